"""How far the ranks of a cluster lie apart, from traces, a table of times or a log."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.calibration.entry import check_name, toml_text, write_entries
from scalemodel.estimator.estimate import Estimate
from scalemodel.interop.jobs.logs import read_log
from scalemodel.interop.traces.kineto import read_kineto
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.validation.errors import columns, percent
from scalemodel.validation.rows import read_table

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_LARGEST = float(next(r["high"] for r in _core.Stack.fields() if r["name"] == "kernel_spread"))
_FEWEST_STEPS = 8  # of a log: fewer say nothing of a deviation
_NORMAL_QUARTILE = 0.6744897501960817  # of a standard normal distribution: P(|x| < q) = 1/2
#: Kernels whose names and numbers tell which ranks do the same work.
_TELLING = ("gemm", "attention")


@dataclass(frozen=True)
class RankSpread:
    """How far ranks that do the same work lie apart. Made by `calibrate_spread`.

    Attributes
    ----------
    kernel_spread : float
        Standard deviation of the ranks' kernel times in a step over their mean: the constant of a
        stack. Of a log: at most.
    standard_error : float
        Of it.
    lasting_spread : float or None
        Part of it from ranks that are slow in every step; None where the samples cannot tell.
    ranks, steps : int
        Compared.
    source : str
        What was measured, in words.
    table : DataFrame
        One row per rank: rank, group (ranks that do the same work), steps, time_s (mean), slowdown
        (over the mean of its group). Empty for a log.
    quantiles : DataFrame
        Columns quantile, slowdown (of ranks and steps; of a log, of its steps over their median)
        and normal_slowdown (with this spread, if times were spread normally).
    entries : dict
        Catalogue path such as ``stacks/plain_spread.toml`` to TOML text.
    """

    kernel_spread: float
    standard_error: float
    lasting_spread: float | None
    ranks: int
    steps: int
    source: str
    table: pd.DataFrame = field(compare=False)
    quantiles: pd.DataFrame = field(compare=False)
    entries: dict[str, str]

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the entry below `folder`, a directory for ``SCALEMODEL_CATALOG_PATH``.

        Raises
        ------
        ScaleModelError : a file cannot be written.
        """
        return write_entries(folder, self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts."""
        plain = {key: value for key, value in vars(self).items() if key not in _FRAMES}
        frames = {key: getattr(self, key).astype(object).to_dict("records") for key in _FRAMES}
        return {**plain, **frames}

    def text(self) -> str:
        """The spread, its quantiles and the slowest ranks, in percent of the mean."""
        lines = [
            f"kernel_spread {percent(self.kernel_spread)} % +- {percent(self.standard_error)} % "
            f"({self.source})"
        ]
        if self.lasting_spread is not None:
            lines.append(f"of ranks that are always slow: {percent(self.lasting_spread)} %")
        cells = [
            [f"{row['quantile']:g}", *(percent(row[name] - 1) for name in _SLOWDOWNS)]
            for row in self.quantiles.to_dict("records")
        ]
        lines += ["", *columns(("quantile", "slower %", "if normal %"), cells, texts=0)]
        slowest = self.table.head(_SHOWN).to_dict("records")
        if slowest:
            cells = [[str(row["rank"]), percent(row["slowdown"] - 1)] for row in slowest]
            lines += ["", *columns(("slowest rank", "slower %"), cells, texts=0)]
        return "\n".join(lines)


_SHOWN = 5  # ranks
_SLOWDOWNS = ("slowdown", "normal_slowdown")
_FRAMES = ("table", "quantiles")


@dataclass(frozen=True)
class _Times:
    """Seconds of kernels by step (rows) and rank (columns), of ranks that do the same work."""

    group: Hashable
    ranks: tuple[int, ...]
    seconds: NDArray[np.float64]

    @property
    def slowdowns(self) -> NDArray[np.float64]:
        """Over the mean of the step, which all ranks may share (longer inputs, a lower clock)."""
        relative: NDArray[np.float64] = self.seconds / self.seconds.mean(axis=1, keepdims=True)
        return relative


@named_arguments
def calibrate_spread(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    est: Estimate | None = None,
    stack: str = DEFAULT_STACK,
    name: str | None = None,
) -> RankSpread:
    r"""Measure how far the ranks of a cluster lie apart, as a constant of a software stack.

    Ranks are compared step by step with those that do the same work, so that neither pipeline
    stages nor steps of different length count as stragglers; waiting in collectives is no kernel
    time. A step waits for its slowest rank: in an estimate with the stack this writes, compute
    lasts longer by the expected largest of all ranks' deviations.

    A log has one time for all ranks. If only kernels made it vary from step to step, the deviation
    of the slowest rank's time would be that of the step, and that of a single rank follows:
    an upper bound, because data and networks vary too. Ranks that are always slow do not show.

    Parameters
    ----------
    source : path, or sequence of paths
        Traces of PyTorch's profiler, one per rank and two ranks at least; or a CSV table with
        columns rank and time_s or time_us (kernels of one step, without collectives) and, where
        there are several, step and group (ranks that do the same work); or a training log.
    est : Estimate, optional
        For a log, the prediction of its job: how many ranks there are and how long they compute.
    stack : str
        Named software stack of the catalogue to write the constant into.
    name : str, optional
        Name of the new stack; default: that of the old one and ``_spread``.

    Raises
    ------
    ScaleModelError : a file cannot be read, no two ranks do the same work, or a log without its
        estimate.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "ranks.csv"
    >>> times = [0.98, 1.00, 1.00, 1.02]
    >>> lines = [f"{rank},{step},{t}" for step in (1, 2) for rank, t in enumerate(times)]
    >>> _ = path.write_text("rank,step,time_s\n" + "\n".join(lines) + "\n")
    >>> found = calibrate_spread(path, name="mine")
    >>> round(found.kernel_spread, 4), list(found.entries)
    (0.0163, ['stacks/mine.toml'])
    """
    catalog_name = catalog.find("stacks", stack)
    if name is not None:
        check_name(name)
    paths = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise ScaleModelError(f"source={source!r}: must be a path or paths, at least one")
    first = os.fspath(paths[0])
    if len(paths) > 1 or first.endswith((".json", ".gz")):
        times, what = _trace_times(paths), f"{len(paths)} traces"
    elif first.endswith(".csv"):
        times, what = _table_times(first), Path(first).name
    else:
        return _of_log(first, est, catalog_name, name)
    return _of_ranks(times, what, catalog_name, name)


# --------------------------------------------------------------------------------------- samples
def _trace_times(paths: Iterable[str | os.PathLike[str]]) -> list[_Times]:
    """Kernel seconds of traces; ranks whose products and attention kernels agree are a group."""
    found: dict[Hashable, list[tuple[int, NDArray[np.float64]]]] = {}
    for number, path in enumerate(paths):
        trace = read_kineto(path)
        counts: dict[str, int] = {}
        for kernel in trace.kernels:
            if kernel.kind in _TELLING:
                counts[kernel.name] = counts.get(kernel.name, 0) + 1
        seconds = trace.steps()["compute_s"].to_numpy(dtype=float)
        work = (len(seconds), *sorted(counts.items()))
        rank = number if trace.rank is None else trace.rank
        found.setdefault(work, []).append((rank, seconds))
    return [
        _Times(number, tuple(rank for rank, _ in group), np.stack([t for _, t in group], axis=1))
        for number, group in enumerate(found.values())
        if len(group) > 1
    ]


def _table_times(path: str) -> list[_Times]:
    """The same of a table; a step counts where all ranks of a group have a time."""
    table = read_table(path)
    unit = next((unit for unit in ("time_s", "time_us") if unit in table.header), None)
    if "rank" not in table.header or unit is None:
        raise ScaleModelError(f"{path}: needs the columns rank and time_s or time_us")
    found: dict[Hashable, dict[Hashable, dict[int, float]]] = {}
    for line, row in enumerate(table.select(("rank", "step", "group", unit)), 2):
        rank, time = row.number("rank"), row.number(unit)
        if rank is None or rank != int(rank) or time is None or not time > 0:
            raise ScaleModelError(
                f"{path}, line {line}: rank={row.text('rank')!r}, {unit}={row.text(unit)!r}: must "
                "be a whole number and a positive one"
            )
        steps = found.setdefault(row.text("group"), {})
        steps.setdefault(row.text("step"), {})[int(rank)] = time * (1 if unit == "time_s" else 1e-6)
    times = []
    for group, steps in found.items():
        ranks = tuple(sorted({rank for step in steps.values() for rank in step}))
        whole = [step for step in steps.values() if len(step) == len(ranks)]
        if len(ranks) > 1 and whole:
            times.append(
                _Times(group, ranks, np.array([[step[rank] for rank in ranks] for step in whole]))
            )
    return times


# ---------------------------------------------------------------------------------------- spread
def _of_ranks(times: list[_Times], what: str, stack: str, name: str | None) -> RankSpread:
    import pandas as pd

    if not times:
        raise ScaleModelError(f"source: no two ranks of {what} do the same work in a step")
    freedom = sum(len(group.ranks) - 1 for group in times)
    in_step = lasting = 0.0
    tells = all(len(group.seconds) > 1 for group in times)
    rows: list[dict[str, object]] = []
    for group in times:
        relative, steps = group.slowdowns, len(group.seconds)
        means = relative.mean(axis=0)
        weight = (len(group.ranks) - 1) / freedom
        in_step += weight * float(relative.var(axis=1, ddof=1).mean())
        if tells:  # means of few steps stray by themselves
            passing = float(relative.var(axis=0, ddof=1).mean())
            lasting += weight * (float(means.var(ddof=1)) - passing / steps)
        for rank, mean_s, slowdown in zip(
            group.ranks, group.seconds.mean(axis=0), means, strict=True
        ):
            row = {"rank": rank, "group": group.group, "steps": steps}
            rows.append({**row, "time_s": float(mean_s), "slowdown": float(slowdown)})
    spread = float(np.sqrt(in_step))
    error = spread / float(np.sqrt(2 * freedom))
    slowdowns = np.concatenate([group.slowdowns.ravel() for group in times])
    ranks, steps = len(rows), max(len(group.seconds) for group in times)
    # Steps are draws of their own as far as ranks do not stay as they are.
    anew = 1 - min(1.0, max(0.0, lasting) / in_step) if in_step > 0 else 1.0
    draws = ranks + anew * (len(slowdowns) - ranks)
    words = f"{what}: {ranks} ranks, {steps} steps, standard error {error:.2g}"
    return RankSpread(
        kernel_spread=spread,
        standard_error=error,
        lasting_spread=float(np.sqrt(max(0.0, lasting))) if tells else None,
        ranks=ranks,
        steps=steps,
        source=words,
        table=pd.DataFrame(rows).sort_values("slowdown", ascending=False, ignore_index=True),
        quantiles=_quantiles(slowdowns, spread, draws),
        entries=_entries(spread, words, stack, name),
    )


def _of_log(path: str, est: Estimate | None, stack: str, name: str | None) -> RankSpread:
    import pandas as pd

    if not isinstance(est, Estimate) or est.step_time_s is None:
        raise ScaleModelError(f"est={est!r}: a log needs the Estimate of its job, one that can run")
    log = read_log(path)
    sequence, batch = int(est.task.core.sequence), int(est.task.core.global_batch)
    tokens = sequence * batch / est.cluster.accelerators
    given = [
        step.time_s
        if step.time_s is not None
        else tokens / step.tokens_per_s_accelerator
        if step.tokens_per_s_accelerator
        else None
        for step in log.steps
    ]
    steps_s = np.array([time_s for time_s in given if time_s is not None], dtype=float)
    if len(steps_s) < _FEWEST_STEPS:
        raise ScaleModelError(
            f"{path}: {len(steps_s)} steps with a time; must be {_FEWEST_STEPS} at least"
        )
    # Of neighbours, by their median: neither a slow drift nor a rare stop is a spread of kernels.
    strays_s = float(np.median(np.abs(np.diff(steps_s)))) / (_NORMAL_QUARTILE * 2**0.5)
    ranks = est.cluster.accelerators
    compute_s = float(est.core.compute_s)
    spread = strays_s / (compute_s * _core.maximum_deviation(ranks))
    # A median of absolute values is a third as sure as a standard deviation.
    error = spread * float(np.sqrt(3 / (2 * (len(steps_s) - 1))))
    words = f"{Path(path).name}: at most, from {len(steps_s)} steps of {ranks} ranks"
    relative = steps_s / np.median(steps_s)
    return RankSpread(
        kernel_spread=spread,
        standard_error=error,
        lasting_spread=None,
        ranks=ranks,
        steps=len(steps_s),
        source=words,
        table=pd.DataFrame(columns=["rank", "group", "steps", "time_s", "slowdown"]),
        quantiles=_quantiles(relative, strays_s / float(np.median(steps_s)), len(steps_s)),
        entries=_entries(spread, words, stack, name),
    )


def _quantiles(slowdowns: NDArray[np.float64], spread: float, draws: float) -> pd.DataFrame:
    from statistics import NormalDist

    import pandas as pd

    # The ends of a sample lie where its extremes are expected.
    extreme = _core.expected_maximum(draws)
    normal = [
        extreme * (2 * share - 1)
        if share in (0.0, 1.0)
        else float(np.clip(NormalDist().inv_cdf(share), -extreme, extreme))
        for share in QUANTILES
    ]
    return pd.DataFrame(
        {
            "quantile": QUANTILES,
            "slowdown": np.quantile(slowdowns, QUANTILES),
            "normal_slowdown": 1 + spread * np.array(normal),
        }
    )


def _entries(spread: float, words: str, stack: str, name: str | None) -> dict[str, str]:
    """The stack with the measured spread."""
    if spread > _LARGEST:
        raise ScaleModelError(
            f"source: kernel_spread={spread:.3g} from {words}; must be at most {_LARGEST:g}"
        )
    called = f"{stack}_spread" if name is None else name
    table = dict(catalog.load("stacks", stack))
    facts = dict(Reader(table, stack).sub("stack").table)
    facts["kernel_spread"] = {"value": float(f"{spread:.4g}"), "source": words}
    if called != stack:  # runs of a framework are those of the stack that claims it
        for claim in ("aliases", "frameworks", "tasks", "year_min", "year_max", "priority"):
            table.pop(claim, None)
        table["title"] = f"{table.get('title', stack)} ({called})"
    table = {"name": called, **{key: cell for key, cell in table.items() if key != "name"}}
    return {f"stacks/{called}.toml": toml_text({**table, "stack": facts})}
