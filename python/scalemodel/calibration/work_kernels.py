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
_LARGEST_ERROR: Final = 10.0  # of a constant; the samples do not tell it
#: Ranges of the constants, in base units; rates and bandwidths of a single kernel may lie far below
#: those of the accelerator, and above them where caches serve it.
_RANGES: Final[tuple[tuple[str, float, float], ...]] = (
    ("launch_s", 1e-9, 1e-2),
    ("step_s", 1e-12, 1e-3),
    ("piece_s", 1e-18, 1e-3),
    ("rate_flop_per_s", 1e9, 1e18),
    ("bandwidth_bytes_per_s", 1e7, 1e16),
    ("cached_speedup", 1.0, 30.0),
    ("blend", 0.7, 20.0),
)
_UNITS: Final = {
    "launch_s": ("launch", 1e6, "us"),
    "step_s": ("step", 1e6, "us"),
    "piece_s": ("piece", 1e9, "ns"),
    "rate_flop_per_s": ("rate", 1e-12, "TFLOP/s"),
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
        low, high = next((low, high) for field, low, high in _RANGES if field == name)
        return float(np.clip(value, low, high))

    flop, moved, steps, pieces = (each(column) for column in range(4))
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
    )


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
        fits.append(_best_fit(name, chosen, folds, solve))
    return fits, states


def _best_fit(
    name: str, members: Sequence[tuple[int, Call, float]], folds: int, solve: Callable[..., Any]
) -> WorkFit:
    """The fit of all starts whose times are closest, and its error on shapes left out."""
    calls = [call for _, call, _ in members]
    times = np.array([1e-6 * measured for *_, measured in members])
    work, l2 = work_of(calls), accelerator(name).l2_bytes
    starts = [_values(_prior(work, times, shares)) for shares in _STARTS]
    fitted = [_fitted(solve, start, work, times, l2) for start in starts]
    best = min(range(len(fitted)), key=lambda at: float(fitted[at].cost))
    values = fitted[best].x
    parts = np.array(_folds(calls, folds))
    predicted = np.asarray(_core.work_kernel_time_s(_kernel(values), l2, work))
    held_out = predicted.copy()
    for fold in range(folds):
        away = parts == fold
        if away.any() and not away.all():
            without = _fitted(solve, values, work[~away], times[~away], l2).x
            held_out[away] = _core.work_kernel_time_s(_kernel(without), l2, work[away])
    constants = _constants(fitted[best], starts[best], len(times))
    rows = tuple(index for index, *_ in members)
    labels = calls[0].labels
    return WorkFit(name, labels, _kernel(values), constants, rows, times, predicted, held_out)


def _constants(fitted: Any, start: Numbers, rows: int) -> tuple[Found, ...]:
    """What a fit found, with error bars from its curvature."""
    scatter = 2 * float(fitted.cost) / max(1, rows - len(_RANGES))
    normal = fitted.jac.T @ fitted.jac
    spread = np.diag(np.linalg.pinv(normal + 1e-9 * np.eye(len(_RANGES)))) * scatter
    found = []
    for at, (field, low, high) in enumerate(_RANGES):
        key, factor, unit = _UNITS.get(field, (field, 1.0, ""))
        value, prior = float(np.exp(fitted.x[at])), float(np.exp(start[at]))
        error = min(_LARGEST_ERROR, float(np.sqrt(max(0.0, spread[at]))))
        bound = min(value / low, high / value) < 1.001
        found.append(Found(key, unit, factor * value, factor * prior, error, bound))
    return tuple(found)


def _values(kernel: _core.WorkKernel) -> Numbers:
    return np.log([getattr(kernel, name) for name, *_ in _RANGES])


def _kernel(values: Numbers) -> _core.WorkKernel:
    given = np.exp(values).tolist()
    return _core.WorkKernel(**{name: v for (name, *_), v in zip(_RANGES, given, strict=True)})


def _least_squares(kind: str) -> Callable[..., Any]:
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise ScaleModelError(
            f"kind={kind!r}: its fit needs scipy (pip install 'scalemodel[opt]')",
            code="missing_package",
        ) from None
    return least_squares  # type: ignore[no-any-return]


def _fitted(
    solve: Callable[..., Any], start: Numbers, work: Numbers, times: Numbers, l2: float
) -> Any:
    """Logarithms of the constants that minimise the soft L1 norm of logarithmic errors.

    Outliers are other versions of a kernel, tuned anew.
    """
    low, high = (np.log([row[at] for row in _RANGES]) for at in (1, 2))

    def errors(values: Numbers) -> Numbers:
        predicted = np.asarray(_core.work_kernel_time_s(_kernel(values), l2, work))
        return np.log(predicted / times) / _SCALE

    return solve(
        errors,
        np.clip(start, low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        ftol=_LEAST_GAIN,
        max_nfev=_EVALUATIONS,
    )


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
