"""Measured rows as samples of a fit: grouped, weighted, folded, impossible ones set aside."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scalemodel.base.errors import ScaleModelError
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

SHORT_S = 20e-6  # shorter calls count half: mostly launch, and noisy
SHORT_WEIGHT = 0.5
FITTED = "fitted"


@dataclass(frozen=True)
class Sample:
    """One measured call.

    Attributes
    ----------
    row : int
        Position in the table.
    time_s : float
    shape : hashable
        Calls of one shape are held out together.
    numbers : tuple of float
        What the model of the kind asks of a call.
    """

    row: int
    time_s: float
    shape: Hashable
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class Group:
    """Samples that one set of constants explains."""

    name: str
    samples: tuple[Sample, ...]

    def column(self, index: int) -> NDArray[np.float64]:
        """One number of every sample."""
        return np.array([sample.numbers[index] for sample in self.samples], dtype=float)

    @property
    def time_s(self) -> NDArray[np.float64]:
        """Measured seconds."""
        return np.array([sample.time_s for sample in self.samples], dtype=float)

    @property
    def weight(self) -> NDArray[np.float64]:
        """How much a sample counts."""
        return np.where(self.time_s < SHORT_S, SHORT_WEIGHT, 1.0)

    def folds(self, count: int) -> NDArray[np.int32]:
        """Fold of every sample: shapes shuffled with a fixed seed, then dealt out."""
        shapes = list(dict.fromkeys(sample.shape for sample in self.samples))
        order = np.random.default_rng(0).permutation(len(shapes))
        fold_of = {shape: int(order[i]) % count for i, shape in enumerate(shapes)}
        return np.array([fold_of[sample.shape] for sample in self.samples], dtype=np.int32)


def require(table: Table, columns: Sequence[str], kind: str) -> None:
    """Refuse a table that lacks a column.

    Raises
    ------
    ScaleModelError : names the column.
    """
    require_columns(table, columns, f"calibrating {kind!r} needs {', '.join(columns)}")


def one_label(table: Table, column: str) -> str:
    """The only label of a column.

    Raises
    ------
    ScaleModelError : there is none, or more than one; one calibration is of one machine.
    """
    labels = sorted({cell.strip() for cell in table.column(column)} - {""})
    if len(labels) == 1:
        return labels[0]
    shown = ", ".join(repr(label) for label in labels[:6]) or "none"
    raise ScaleModelError(
        f"column {column!r}: holds {shown}; calibrate one at a time, from a table of its rows",
        code="several_machines" if labels else "missing_label",
    )


def positive(row: Row, column: str) -> float:
    """A positive number of a row; a row without it is skipped."""
    value = row.number(column)
    if value is None:
        raise SkippedRowError(f"missing:{column}")
    if value <= 0:
        raise SkippedRowError(f"illegal:{column}")
    return value


def read_samples(
    table: Table, columns: Sequence[str], sample_of: Callable[[Row], tuple[str, tuple[float, ...]]]
) -> tuple[list[Group], list[str]]:
    """Groups of samples, and for every row why it is not among them (or an empty text).

    ``sample_of`` names the group of a row and its numbers, or raises `SkippedRowError`.
    """
    groups: dict[str, list[Sample]] = {}
    states = []
    for index, row in enumerate(table.select(columns)):
        try:
            time_s = 1e-6 * positive(row, "time_us")
            name, numbers = sample_of(row)
        except SkippedRowError as skipped:
            states.append(str(skipped))
            continue
        groups.setdefault(name, []).append(Sample(index, time_s, numbers, numbers))
        states.append("")
    return [Group(name, tuple(samples)) for name, samples in groups.items()], states


def possible(group: Group, bound_s: NDArray[np.float64], states: list[str], why: str) -> Group:
    """The group without samples faster than their bound; their states say so."""
    kept = []
    for sample, bound in zip(group.samples, bound_s.tolist(), strict=True):
        if sample.time_s < bound:
            states[sample.row] = f"impossible:{why}"
        else:
            kept.append(sample)
    return Group(group.name, tuple(kept))
