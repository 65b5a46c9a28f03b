"""Intervals of served runs: made of published residuals, and checked on groups left out."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel.serving.uncertainty import (
    QUANTITIES,
    Factors,
    Known,
    ServingSituation,
    factor_of,
    half_width,
)

COVERAGE = 0.8
LEAST_ROWS = 12
LEAST_GROUPS = {"rate": 3, "ttft": 1}  # of others two: few sources publish times to tokens
CellKey = tuple[str, str, str, str]
_HEAD = """# Written by python -m scalemodel.validation.serving_accuracy. The factor between a
# predicted rate of output tokens, time to the first token or time per token and either end of its
# interval, for runs alike in load, kind of model and accelerator architecture; an empty text stands
# for any.
"""


class ServedResidual(NamedTuple):
    """One measured quantity of a run: ln(measured / predicted), and whom it resembles."""

    group: tuple[str, str]  # accelerator, model
    situation: ServingSituation
    quantity: str
    log_ratio: float


class _Cell(NamedTuple):
    """Runs of one cell, in their order: whose they are, how far they strayed, what they weigh."""

    groups: NDArray[np.intp]
    sizes: NDArray[np.float64]
    weights: NDArray[np.float64]

    def bound(self, quantity: str, left_out: int = -1) -> float | None:
        """Logarithm of the factor without a group; None of too few rows or groups."""
        kept = self.groups != left_out
        groups = self.groups[kept]
        if len(groups) < LEAST_ROWS or len(set(groups.tolist())) < LEAST_GROUPS.get(quantity, 2):
            return None
        found = float(_core.conformal_bound(self.sizes[kept], self.weights[kept], COVERAGE))
        return found if 0 < found < math.inf else None


class _Cells:
    """Runs by the cells that they fall into. To leave a group out moves only the cells it is in."""

    def __init__(self, residuals: Sequence[ServedResidual]) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        members: dict[CellKey, list[tuple[int, float]]] = defaultdict(list)
        keys_of = cache(lambda situation, quantity: tuple(situation.keys(quantity)))
        for item in residuals:
            number = self._numbers.setdefault(item.group, len(self._numbers))
            for key in keys_of(item.situation, item.quantity):
                members[key].append((number, abs(item.log_ratio)))
        self._cells: dict[CellKey, _Cell] = {}
        self._cells_of: dict[int, list[CellKey]] = defaultdict(list)
        for key, rows in members.items():
            counts = Counter(number for number, _ in rows)
            for number in counts:
                self._cells_of[number].append(key)
            self._cells[key] = _Cell(
                np.array([number for number, _ in rows]),
                np.array([size for _, size in rows]),
                np.array([counts[number] ** -0.5 for number, _ in rows]),
            )
        bounds = {key: cell.bound(key[0]) for key, cell in self._cells.items()}
        self.spreads = {key: bound for key, bound in bounds.items() if bound is not None}

    def spreads_without(self, group: tuple[str, str]) -> Mapping[CellKey, float]:
        """Logarithms of the cells' factors from the runs of all other groups."""
        number = self._numbers[group]
        spreads = dict(self.spreads)
        for key in self._cells_of[number]:
            bound = self._cells[key].bound(key[0], number)
            if bound is None:
                spreads.pop(key, None)
            else:
                spreads[key] = bound
        return spreads


def _scored(
    residuals: Sequence[ServedResidual], cells: _Cells
) -> list[tuple[ServedResidual, float]]:
    """Residuals with the bound that the runs of other groups give; those without one are gone."""
    groups = dict.fromkeys(item.group for item in residuals)
    spreads = {group: cells.spreads_without(group) for group in groups}
    found = []
    for item in residuals:
        bound = factor_of(item.situation, item.quantity, spreads[item.group])
        if bound is not None:
            found.append((item, bound))
    return found


def _stretch(scored: Iterable[tuple[ServedResidual, float]]) -> dict[str, float]:
    """What bounds must be multiplied with to hold 80 % of the runs of a group without its help."""
    scores: dict[str, list[float]] = defaultdict(list)
    for item, bound in scored:
        scores[item.quantity].append(abs(item.log_ratio) / bound)
    return {
        quantity: max(1.0, _core.conformal_bound(found, [1.0] * len(found), COVERAGE))
        for quantity, found in scores.items()
    }


def cells_of(residuals: Sequence[ServedResidual]) -> Factors:
    """Factors by cell, stretched so that those made without a group hold 80 % of its runs."""
    cells = _Cells(residuals)
    stretch = _stretch(_scored(residuals, cells))
    return {key: math.exp(stretch.get(key[0], 1.0) * bound) for key, bound in cells.spreads.items()}


def coverage(residuals: Sequence[ServedResidual]) -> dict[tuple[str, str], tuple[int, int]]:
    """Runs inside and runs by quantity and load, each in an interval its group did not make.

    Examples
    --------
    >>> coverage([])
    {}
    """
    found: dict[tuple[str, str], tuple[int, int]] = {}
    scored = _scored(residuals, _Cells(residuals))
    for group in dict.fromkeys(item.group for item, _ in scored):
        stretch = _stretch(pair for pair in scored if pair[0].group != group)
        for item, bound in scored:
            if item.group != group:
                continue
            key = (item.quantity, item.situation.load)
            inside, rows = found.get(key, (0, 0))
            held = abs(item.log_ratio) <= stretch.get(item.quantity, 1.0) * bound
            found[key] = (inside + held, rows + 1)
    return found


def coverage_without(
    residuals: Sequence[ServedResidual], of: Callable[[ServedResidual], str]
) -> dict[str, tuple[int, int]]:
    """Runs inside and runs by quantity, all runs that share what `of` names left out at a time.

    The intervals are those that a question with such an engine, or such an accelerator, gets from
    the other runs: as wide as the widest that it may borrow.

    Examples
    --------
    >>> coverage_without([], of=lambda run: run.situation.engine)
    {}
    """
    found: dict[str, tuple[int, int]] = {}
    for left_out in dict.fromkeys(map(of, residuals)):
        others = [item for item in residuals if of(item) != left_out]
        engines = {
            quantity: tuple({r.situation.engine for r in others if r.quantity == quantity})
            for quantity in QUANTITIES
        }
        told = Known(cells_of(others), engines, COVERAGE)
        for item in residuals:
            if of(item) != left_out:
                continue
            factor = half_width(item.situation, item.quantity, told)
            if factor is None:
                continue
            inside, rows = found.get(item.quantity, (0, 0))
            found[item.quantity] = (inside + (abs(item.log_ratio) <= math.log(factor)), rows + 1)
    return found


def text_of(cells: Factors, residuals: Sequence[ServedResidual], date: str) -> str:
    """The file of the catalogue."""
    runs = sum(item.quantity == "rate" for item in residuals)
    lines = [
        _HEAD + 'name = "serving_uncertainty"',
        'title = "How far measured serving strays from predictions"',
        f'date = "{date}"',
        f'source = "{runs} published serving runs of {len({r.group for r in residuals})} '
        'accelerators and models"',
        "",
        "cells = [",
    ]
    for (quantity, load, kind, architecture), factor in sorted(
        cells.items(), key=lambda item: (QUANTITIES.index(item[0][0]), item[0][1:])
    ):
        lines.append(
            f'  {{ quantity = "{quantity}", load = "{load}", kind = "{kind}", '
            f'architecture = "{architecture}", factor = {factor:.4f} }},'
        )
    lines += ["]", "", "# Engines of the runs.", "engines = ["]
    for quantity in QUANTITIES:
        names = sorted({r.situation.engine for r in residuals if r.quantity == quantity})
        lines.append(f'  {{ quantity = "{quantity}", names = {json.dumps(names)} }},')
    lines += [
        "]",
        "",
        "[interval]",
        f"coverage_fraction = {{ value = {COVERAGE}, "
        'unit = "of measured runs", source = "chosen" }',
        "",
    ]
    return "\n".join(lines)
