"""Constants of kernels by what they work on, from tables of their times.

One entry per kernel, engine, phase and format of an accelerator: the ``kernels`` entries of kind
``work`` that `scalemodel.validation` predicts mixers and sparse attention with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation.operators.mixers import CALLS, LABELS, Call, work_of
from scalemodel.validation.operators.questions import Accelerators, accelerator
from scalemodel.validation.rows import SkippedRowError, read_table

_FOLDS: Final = 5
_SCALE: Final = 0.05  # of logarithmic errors that count fully
_ITERATIONS: Final = 60
_TRIES: Final = 8
_STEP: Final = 1e-4
_LEAST_GAIN: Final = 1e-4
_LEAST_ROWS: Final = 12
#: Ranges of the constants, in base units; rates and bandwidths of a single kernel may lie far below
#: those of the accelerator, and above them where caches serve it.
_RANGES: Final[tuple[tuple[str, float, float, list[str]], ...]] = (
    ("launch_s", 1e-9, 1e-2, []),
    ("step_s", 1e-12, 1e-3, []),
    ("piece_s", 1e-18, 1e-3, []),
    ("rate_flop_per_s", 1e9, 1e18, []),
    ("bandwidth_bytes_per_s", 1e7, 1e16, []),
    ("cached_speedup", 1.0, 30.0, []),
    ("blend", 0.7, 20.0, []),
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
class WorkFit:
    """A fitted kernel, and how far it is off on shapes it has not seen.

    Attributes
    ----------
    accelerator : str
        Catalogue name.
    labels : mapping of str
        What names the kernel.
    record : WorkKernel
    rows : int
    error : float
        Mean absolute error of the times, each shape left out once; 0.1 is 10 %.
    """

    accelerator: str
    labels: Mapping[str, str]
    record: _core.WorkKernel
    rows: int
    error: float

    def table(self, source: str) -> str:
        """The kernel as a line of a catalogue file."""
        parts = [f'{key} = "{self.labels[key]}"' for key in LABELS if self.labels.get(key)]
        for field, (key, factor, unit) in _UNITS.items():
            value = getattr(self.record, field)
            parts.append(f'{key} = "{factor * value:.3g} {unit}"')
        parts += [f"{key} = {getattr(self.record, key):.3g}" for key in ("cached_speedup", "blend")]
        told = (
            f"fit to {self.rows} published timings ({source}); 5-fold error {self.error:.1%} mean"
        )
        name = "_".join(self.labels[key] for key in LABELS if self.labels.get(key))
        name = "".join(letter if letter.isalnum() else "_" for letter in name)
        return f'{name} = {{ {", ".join(parts)}, source = "{told}" }}'


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
        low, high = next((low, high) for field, low, high, _ in _RANGES if field == name)
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


def _folds(calls: Sequence[Call]) -> list[int]:
    """Calls of one shape share a fold."""
    order = {shape: at for at, shape in enumerate(dict.fromkeys(call.sizes for call in calls))}
    mixed = np.random.default_rng(0).permutation(len(order))
    return [int(mixed[order[call.sizes]]) % _FOLDS for call in calls]


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
    ScaleModelError : the kind is not known or the file cannot be read.
    """
    if kind not in CALLS:
        raise ScaleModelError(f"kind={kind!r}: must be one of {', '.join(CALLS)}")
    known = Accelerators()
    table = read_table(path)
    groups: dict[tuple[str, ...], list[tuple[Call, float]]] = {}
    for row in table.select(list(table.header)):
        measured = row.number("time_us")
        if measured is None or measured <= 0:
            continue
        try:
            call, name = CALLS[kind](row), known.name_of(row)
        except SkippedRowError:
            continue
        groups.setdefault((name, call.work, *call.labels.values()), []).append((call, measured))
    for (name, _, *_labels), members in groups.items():
        if len(members) < _LEAST_ROWS:
            continue
        chosen = members[:: max(1, len(members) // most)]
        calls = [call for call, _ in chosen]
        times = np.array([1e-6 * measured for _, measured in chosen])
        yield _best_fit(name, calls, times)


def _best_fit(name: str, calls: Sequence[Call], times: Numbers) -> WorkFit:
    """The fit of all starts whose times are closest, and its error on shapes left out."""
    work, l2 = work_of(calls), accelerator(name).l2_bytes
    starts = [_values(_prior(work, times, shares)) for shares in _STARTS]
    found = min((_fitted(start, work, times, l2) for start in starts), key=lambda fit: fit[0])[1]
    folds = np.array(_folds(calls))
    held_out = np.zeros(len(times))
    for fold in range(_FOLDS):
        away = folds == fold
        if not away.any() or away.all():
            continue
        without = _fitted(found, work[~away], times[~away], l2)[1]
        held_out[away] = _core.work_kernel_time_s(_kernel(without), l2, work[away])
    error = float(np.mean(np.abs(held_out / times - 1)))
    return WorkFit(name, calls[0].labels, _kernel(found), len(calls), error)


def _values(kernel: _core.WorkKernel) -> Numbers:
    return np.log([getattr(kernel, name) for name, *_ in _RANGES])


def _kernel(values: Numbers) -> _core.WorkKernel:
    given = np.exp(values).tolist()
    return _core.WorkKernel(**{name: v for (name, *_), v in zip(_RANGES, given, strict=True)})


def _fitted(start: Numbers, work: Numbers, times: Numbers, l2: float) -> tuple[float, Numbers]:
    """Logarithms of the constants that minimise the soft L1 norm of logarithmic errors.

    Levenberg and Marquardt, reweighted; outliers are other versions of a kernel, tuned anew.
    """
    low, high = (np.log([row[at] for row in _RANGES]) for at in (1, 2))

    def errors(values: Numbers) -> Numbers:
        predicted = np.asarray(_core.work_kernel_time_s(_kernel(values), l2, work))
        return np.log(predicted / times) / _SCALE

    def loss(at: Numbers) -> float:
        return float(np.mean(np.sqrt(1 + at**2) - 1))

    values, damping = np.clip(start, low + 1e-9, high - 1e-9), 1e-2
    current = errors(values)
    for _ in range(_ITERATIONS):
        step = np.where(values + _STEP < high, _STEP, -_STEP)
        slope = np.array(
            [(errors(values + np.eye(len(step))[k] * step[k]) - current) / step[k]
             for k in range(len(step))]
        ).T  # fmt: skip
        weight = 1 / np.sqrt(1 + current**2)
        normal, gradient = slope.T @ (weight[:, None] * slope), slope.T @ (weight * current)
        for _ in range(_TRIES):
            ridge = damping * (np.diag(normal) + 1e-6 * np.trace(normal) + 1e-12)
            moved = np.clip(
                values - np.linalg.solve(normal + np.diag(ridge), gradient), low + 1e-9, high - 1e-9
            )
            after = errors(moved)
            if loss(after) < loss(current):
                break
            damping *= 4
        else:
            break
        gained = loss(current) - loss(after)
        values, current, damping = moved, after, max(damping / 6, 1e-8)
        if gained < _LEAST_GAIN * loss(current):
            break
    return loss(current), values
