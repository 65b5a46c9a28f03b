"""Constants of kernels by what they work on, from tables of their times.

One entry per kernel, engine, phase and format of an accelerator: the ``kernels`` entries of kind
``work`` that `scalemodel.validation` predicts mixers and sparse attention with. Fits need scipy
(extra ``opt``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration.samples import require
from scalemodel.validation.operators.mixers import CALLS, LABELS, Call, Predictor, work_of
from scalemodel.validation.operators.questions import Accelerators, accelerator
from scalemodel.validation.rows import SkippedRowError, Table, read_table

_FOLDS: Final = 5
_SCALE: Final = 0.05  # of logarithmic errors that count fully
_EVALUATIONS: Final = 60
_LEAST_GAIN: Final = 1e-5
_LEAST_ROWS: Final = 12
_DISTURBED: Final = 3.0  # times as long as a call with more of every kind of work
_LARGEST_ERROR: Final = 10.0  # of a constant; the samples do not tell it
_FREE: Final = 1.0  # standard error of the logarithm of a constant that may be left out,
_LEAST_TOLD: Final = 2e-3  # if the fit is no worse than by this share without it
#: Ranges of the constants, in base units, and what stands for one that the times do not tell: no
#: time at all, no speed-up, a plain sum, the other rate. Rates and bandwidths of a single kernel
#: may lie far below those of the accelerator, and above them where caches serve it.
_RANGES: Final[Mapping[str, tuple[float, float, float]]] = {
    "launch_s": (1e-9, 1e-2, 0.0),
    "step_s": (1e-12, 1e-3, 0.0),
    "piece_s": (1e-18, 1e-3, 0.0),
    "rate_flop_per_s": (1e9, 1e18, 1e20),
    "bandwidth_bytes_per_s": (1e7, 1e16, 1e20),
    "cached_speedup": (1.0, 300.0, 1.0),
    "blend": (0.5, 30.0, 1.0),
    "core_rate_flop_per_s": (1e9, 1e18, 0.0),
}
#: Constants of which calls may have no work, and its column.
_OF_WORK: Final = {
    "rate_flop_per_s": 0,
    "bandwidth_bytes_per_s": 1,
    "cached_speedup": 1,
    "step_s": 2,
    "piece_s": 3,
    "core_rate_flop_per_s": 4,
}
_UNITS: Final = {
    "launch_s": ("launch", 1e6, "us"),
    "step_s": ("step", 1e6, "us"),
    "piece_s": ("piece", 1e9, "ns"),
    "rate_flop_per_s": ("rate", 1e-12, "TFLOP/s"),
    "core_rate_flop_per_s": ("core_rate", 1e-12, "TFLOP/s"),
    "bandwidth_bytes_per_s": ("bandwidth", 1e-9, "GB/s"),
}
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Found:
    """One constant of a fit.

    Attributes
    ----------
    key, unit : str
        As the catalogue writes them; ``unit`` is empty for a plain number.
    value, start : float
        In that unit.
    relative_error : float
        Standard error of the logarithm, at most 10 where the samples do not tell the constant.
    at_bound : bool
    """

    key: str
    unit: str
    value: float
    start: float
    relative_error: float
    at_bound: bool


@dataclass(frozen=True)
class WorkFit:
    """A fitted kernel, and how far it is off on shapes it has not seen.

    Attributes
    ----------
    accelerator : str
        Catalogue name.
    labels : mapping of str
        What names the kernel.
    record : WorkKernel
    constants : tuple of Found
    rows : tuple of int
        Of the table, those that were fitted.
    measured_s, predicted_s, held_out_s : array
        Of these rows; each shape is held out once.
    """

    accelerator: str
    labels: Mapping[str, str]
    record: _core.WorkKernel
    constants: tuple[Found, ...]
    rows: tuple[int, ...]
    measured_s: Numbers
    predicted_s: Numbers
    held_out_s: Numbers

    @property
    def error(self) -> float:
        """Mean absolute error of the times, each shape left out once; 0.1 is 10 %."""
        return float(np.mean(np.abs(self.held_out_s / self.measured_s - 1)))

    @property
    def key(self) -> str:
        """Name of the kernel within its file."""
        name = "_".join(self.labels[key] for key in LABELS if self.labels.get(key))
        return "".join(letter if letter.isalnum() else "_" for letter in name)

    def entry(self, source: str) -> dict[str, object]:
        """The kernel as a table of a catalogue file."""
        cells: dict[str, object] = {key: self.labels[key] for key in LABELS if self.labels.get(key)}
        for found in self.constants:
            shown = f"{found.value:.3g}"
            cells[found.key] = f"{shown} {found.unit}" if found.unit else float(shown)
        told = f"fit to {len(self.rows)} timings ({source})"
        return {**cells, "source": f"{told}; held-out error {self.error:.1%} mean"}


#: Shares of the longest calls that each kind of work is taken for at the start: flop, bytes, steps
#: and pieces. Sums of several have more than one best fit.
_STARTS: Final = (
    (0.05, 0.9, 0.1, 0.05),
    (0.7, 0.3, 0.5, 0.1),
    (0.1, 0.5, 0.02, 0.5),
    (0.5, 0.5, 0.9, 0.1),
)


def _prior(work: Numbers, times: Numbers, shares: Sequence[float]) -> _core.WorkKernel:
    """Constants to start from: each kind of work as if it took a share of the longest calls."""

    def each(column: int) -> float:
        amounts = work[:, column]
        longest = np.argsort(amounts)[-max(5, len(amounts) // 10) :]
        some = amounts[longest] > 0
        if not some.any():
            return 0.0
        return float(np.median(times[longest][some] / amounts[longest][some]))

    def within(name: str, value: float) -> float:
        low, high, _ = _RANGES[name]
        return float(np.clip(value, low, high))

    flop, moved, steps, pieces, core = (each(column) for column in range(5))
    return _core.WorkKernel(
        launch_s=within("launch_s", 0.9 * float(np.percentile(times, 5))),
        step_s=within("step_s", shares[2] * steps),
        piece_s=within("piece_s", shares[3] * pieces),
        rate_flop_per_s=within("rate_flop_per_s", 1 / (shares[0] * flop) if flop else 1e18),
        bandwidth_bytes_per_s=within(
            "bandwidth_bytes_per_s", 1 / (shares[1] * moved) if moved else 1e16
        ),
        cached_speedup=1.5,
        blend=1.5,
        core_rate_flop_per_s=within("core_rate_flop_per_s", 1 / (0.5 * core) if core else 1e18),
    )


def _disturbed(work: Numbers, times: Numbers) -> list[bool]:
    """Calls that took far longer than one with as much work of every kind or more.

    No constants make the time of a kernel fall where its work grows: something else was timed with
    them. Of prompts of MiniMax-M3 by TensorRT-LLM on B200 and B300, timed once each, these are more
    than half, up to 120 times as long; of the other kernels of that table at most 3 in 100.
    """
    return [
        bool((times[(work >= one).all(axis=1)] * _DISTURBED < time).any())
        for one, time in zip(work, times, strict=True)
    ]


def _folds(calls: Sequence[Call], folds: int) -> list[int]:
    """Calls of one shape share a fold."""
    order = {shape: at for at, shape in enumerate(dict.fromkeys(call.sizes for call in calls))}
    mixed = np.random.default_rng(0).permutation(len(order))
    return [int(mixed[order[call.sizes]]) % folds for call in calls]


def fit_kernels(kind: str, path: str | os.PathLike[str], *, most: int = 600) -> Iterator[WorkFit]:
    """Every kernel of a table of times.

    Parameters
    ----------
    kind : str
        A kind of `scalemodel.validation.operators.mixers`.
    path : path
        CSV file with the columns of the kind and ``time_us``.
    most : int
        Rows of a kernel that are fitted, spread over all it has.

    Raises
    ------
    ScaleModelError : the kind is not known, the file cannot be read, or scipy is not installed.
    """
    yield from fit_table(kind, read_table(path), _FOLDS, most)[0]


def fit_table(kind: str, table: Table, folds: int, most: int) -> tuple[list[WorkFit], list[str]]:
    """Every kernel of a table, and of each row why it was set aside; empty where it was fitted.

    Raises
    ------
    ScaleModelError : the kind is not known, a column is missing, or scipy is not installed.
    """
    if kind not in CALLS:
        raise ScaleModelError(f"kind={kind!r}: must be one of {', '.join(CALLS)}")
    require(table, (*Predictor(kind).REQUIRED, "time_us"), kind)
    solve = _least_squares(kind)
    known = Accelerators()
    states = [""] * len(table.rows)
    groups: dict[tuple[str, ...], list[tuple[int, Call, float]]] = {}
    for index, row in enumerate(table.select(list(table.header))):
        measured = row.number("time_us")
        if measured is None or measured <= 0:
            states[index] = "missing:time_us"
            continue
        try:
            call, name = CALLS[kind](row), known.name_of(row)
        except SkippedRowError as skipped:
            states[index] = str(skipped)
            continue
        groups.setdefault((name, *call.labels.values()), []).append((index, call, measured))
    fits = []
    for (name, *_labels), members in groups.items():
        if len(members) < _LEAST_ROWS:
            for index, *_ in members:
                states[index] = f"fewer than {_LEAST_ROWS} rows of its kernel"
            continue
        chosen = members[:: max(1, len(members) // most)]
        for index in {index for index, *_ in members} - {index for index, *_ in chosen}:
            states[index] = f"beyond {most} rows of its kernel"
        times = np.array([measured for *_, measured in chosen])
        disturbed = _disturbed(work_of([call for _, call, _ in chosen]), times)
        for (index, *_), is_so in zip(chosen, disturbed, strict=True):
            if is_so:
                states[index] = "longer than a call with more work"
        chosen = [one for one, is_so in zip(chosen, disturbed, strict=True) if not is_so]
        fits.append(_best_fit(name, chosen, folds, solve))
    return fits, states


def _is_told(field: str, work: Numbers) -> bool:
    """Whether calls have work that a constant speaks of; of steps, more than a launch says."""
    column = work[:, _OF_WORK[field]] if field in _OF_WORK else np.ones(len(work))
    return bool(np.ptp(column) > 0 if field == "step_s" else column.any())


def _best_fit(
    name: str, members: Sequence[tuple[int, Call, float]], folds: int, solve: Callable[..., Any]
) -> WorkFit:
    """The fit of all starts whose times are closest, and its error on shapes left out."""
    calls = [call for _, call, _ in members]
    times = np.array([1e-6 * measured for *_, measured in members])
    work, l2 = work_of(calls), accelerator(name).l2_bytes
    active = [field for field in _RANGES if _is_told(field, work)]
    starts = [_prior(work, times, shares) for shares in _STARTS]
    tried = [_Fit(solve, active, start, work, times, l2) for start in starts]
    best = min(tried, key=lambda fit: float(fit.cost))
    start = starts[tried.index(best)]
    # What is at an end of its range, or what nothing tells, is no constant of this kernel.
    while untold := best.untold():
        less = _Fit(solve, [f for f in best.fields if f != untold], best.record, work, times, l2)
        if not best.at_bound(untold) and less.cost > best.cost * (1 + _LEAST_TOLD):
            break
        best = less
    parts = np.array(_folds(calls, folds))
    predicted = np.asarray(_core.work_kernel_time_s(best.record, l2, work))
    held_out = predicted.copy()
    for fold in range(folds):
        away = parts == fold
        if away.any() and not away.all():
            without = _Fit(solve, best.fields, best.record, work[~away], times[~away], l2)
            held_out[away] = _core.work_kernel_time_s(without.record, l2, work[away])
    constants = best.constants(start)
    rows = tuple(index for index, *_ in members)
    labels = calls[0].labels
    return WorkFit(name, labels, best.record, constants, rows, times, predicted, held_out)


class _Fit:
    """Some constants of a kernel fitted to its times, the others as if they were none.

    Logarithms of the constants minimise the soft L1 norm of logarithmic errors: outliers are other
    versions of a kernel, tuned anew.
    """

    def __init__(
        self,
        solve: Callable[..., Any],
        fields: Sequence[str],
        start: _core.WorkKernel,
        work: Numbers,
        times: Numbers,
        l2: float,
    ) -> None:
        self.fields = list(fields)
        low, high = (np.log([_RANGES[field][at] for field in fields]) for at in (0, 1))
        values = np.log([getattr(start, field) for field in fields])

        def errors(values: Numbers) -> Numbers:
            predicted = np.asarray(_core.work_kernel_time_s(self._kernel(values), l2, work))
            return np.log(predicted / times) / _SCALE

        self._found = solve(
            errors,
            np.clip(values, low + 1e-6, high - 1e-6),
            bounds=(low, high),
            loss="soft_l1",
            ftol=_LEAST_GAIN,
            max_nfev=_EVALUATIONS,
        )
        self.cost = float(self._found.cost)
        self.record = self._kernel(self._found.x)
        scatter = 2 * self.cost / max(1, len(times) - len(self.fields))
        normal = self._found.jac.T @ self._found.jac
        spread = np.diag(np.linalg.pinv(normal + 1e-9 * np.eye(len(self.fields)))) * scatter
        self._errors = np.minimum(_LARGEST_ERROR, np.sqrt(np.maximum(0.0, spread)))

    def _kernel(self, values: Numbers) -> _core.WorkKernel:
        given = {field: neutral for field, (*_, neutral) in _RANGES.items()}
        given |= dict(zip(self.fields, np.exp(values).tolist(), strict=True))
        return _core.WorkKernel(**given)

    def at_bound(self, field: str) -> bool:
        """Whether a constant is at an end of its range."""
        low, high, _ = _RANGES[field]
        value = float(getattr(self.record, field))
        return min(value / low, high / value) < 1.001

    def untold(self) -> str:
        """The constant that the times tell least, if any is at an end or nearly free."""
        bound = [field for field in self.fields if self.at_bound(field)]
        if bound:
            return bound[0]
        worst = int(np.argmax(self._errors))
        return self.fields[worst] if self._errors[worst] > _FREE and len(self.fields) > 1 else ""

    def constants(self, start: _core.WorkKernel) -> tuple[Found, ...]:
        """What was found, with error bars from the curvature."""
        found = []
        for field, error in zip(self.fields, self._errors.tolist(), strict=True):
            key, factor, unit = _UNITS.get(field, (field, 1.0, ""))
            value, prior = (factor * float(getattr(k, field)) for k in (self.record, start))
            found.append(Found(key, unit, value, prior, error, self.at_bound(field)))
        return tuple(found)


def _least_squares(kind: str) -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise ScaleModelError(
            f"kind={kind!r}: its fit needs scipy (pip install 'scalemodel[opt]')",
            code="missing_package",
        ) from None
    return least_squares  # type: ignore[no-any-return]


def entries(fits: Sequence[WorkFit], source: str) -> dict[str, dict[str, Any]]:
    """Files of the catalogue, by name, with the fitted kernels added to those they have."""
    found: dict[str, dict[str, Any]] = {}
    for fit in fits:
        name = f"{fit.accelerator}_mixers"
        if name not in found:
            there = name in catalog.names("kernels")
            found[name] = (
                dict(catalog.load("kernels", name))
                if there
                else {
                    "name": name,
                    "title": f"Kernels of mixers and sparse attention on {fit.accelerator}",
                    "kind": "work",
                    "accelerator": fit.accelerator,
                }
            )
        found[name][fit.key] = fit.entry(source)
    return found
