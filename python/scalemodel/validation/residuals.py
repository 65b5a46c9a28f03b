"""From residuals of left-out runs to intervals: cells, their scale, what extrapolation costs.

A cell's factor is conformal: a quantile of |log(measured / predicted)| with a finite-sample
correction. Rows of one source resemble each other, so that a factor which holds 80 % of the rows it
is made of holds less of a new source's. Hence the logarithms of all factors are stretched alike:
such that factors made without a source hold 80 % of that source's rows, in the mean of sources and
not of rows, as the next run is of a new source and hardly of the longest table. The same with an
accelerator, an architecture, a number format or the largest jobs left out tells how much wider an
interval must be where an estimate extrapolates; it is never taken to be narrower.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel.estimator.uncertainty import Cell, CellKey, Seen, Situation, Uncertainty, keys_of
from scalemodel.validation.errors import MACRO_ROWS
from scalemodel.validation.prediction import Prediction

COVERAGE = 0.8
LEAST_ROWS = 20
#: Rows of fewer sources say little about the next one.
LEAST_SOURCES = 4
_LARGEST_SHARE = 0.2  # of the rows, taken as what lies beyond all others


class Residual(NamedTuple):
    """How far a run was from a prediction that had not seen its source.

    Attributes
    ----------
    source : str
    situation : Situation
    log_ratio : float
        ln(measured / predicted).
    weight : float
        Falls with the square root of the rows of the source and accelerator, as in the fit of the
        constants.
    """

    source: str
    situation: Situation
    log_ratio: float
    weight: float


#: Tells of a row whether an interval may be made of it, and whether it is to be scored.
Part = Callable[[Situation], tuple[bool, bool]]


def residuals_of(rows: Iterable[tuple[str, Prediction, float]]) -> list[Residual]:
    """Residuals of (source, prediction, measured seconds); skipped rows have none."""
    kept = [
        (source, situation, math.log(measured_s / predicted_s))
        for source, prediction, measured_s in rows
        if (situation := prediction.situation) is not None
        and (predicted_s := prediction.step_time_s) is not None
    ]
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for source, situation, _ in kept:
        counts[source, situation.accelerator] += 1
    return [
        Residual(source, situation, log_ratio, counts[source, situation.accelerator] ** -0.5)
        for source, situation, log_ratio in kept
    ]


# ----------------------------------------------------------------------------------------- cells
def _spreads(residuals: Iterable[Residual]) -> dict[CellKey, Cell]:
    """Factors of the cells that enough rows of enough sources fall into, not stretched yet."""
    members: dict[CellKey, list[Residual]] = defaultdict(list)
    for item in residuals:
        for key in keys_of(item.situation):
            members[key].append(item)
    cells = {}
    for key, rows in members.items():
        sources = len({item.source for item in rows})
        if len(rows) < LEAST_ROWS or sources < LEAST_SOURCES:
            continue
        sizes = [abs(item.log_ratio) for item in rows]
        bound = _core.conformal_bound(sizes, [item.weight for item in rows], COVERAGE)
        # The next source is one more draw beside `sources` of them, whose spread is known from as
        # many: as wide as a prediction interval is over a spread.
        bound *= math.sqrt((sources + 1) / (sources - 1))
        if 0 < bound < math.inf:
            cells[key] = Cell(math.exp(bound), len(rows), sources)
    return cells


def _scores_by_source(residuals: Sequence[Residual], part: Part) -> Iterator[list[float]]:
    """Sizes of residuals over the logarithm of their factor, made without the rows' source."""
    marks = [part(item.situation) for item in residuals]
    for source in dict.fromkeys(item.source for item in residuals):
        held = [
            item
            for item, (_, scored) in zip(residuals, marks, strict=True)
            if scored and item.source == source
        ]
        if not held:
            continue
        cells = _spreads(
            item
            for item, (usable, _) in zip(residuals, marks, strict=True)
            if usable and item.source != source
        )
        found = [
            (item, next((cells[key] for key in keys_of(item.situation) if key in cells), None))
            for item in held
        ]
        scores = [abs(item.log_ratio) / math.log(cell.factor) for item, cell in found if cell]
        if scores:
            yield scores


def _scores(residuals: Sequence[Residual], part: Part) -> Iterator[float]:
    """The same of all sources together."""
    return chain.from_iterable(_scores_by_source(residuals, part))


def _stretch(parts: Iterable[Iterable[float]]) -> float | None:
    """What logarithms of factors must be multiplied with to hold the stated share of rows.

    Each part counts alike: a new source is one draw among sources, and a new architecture one among
    architectures, however many runs were published of the old ones.
    """
    listed = [list(part) for part in parts]
    scores = [score for part in listed for score in part]
    weights = [1 / len(part) for part in listed for _ in part]
    bound = float(_core.conformal_bound(scores, weights, COVERAGE))
    return bound if math.isfinite(bound) else None


def _each(residuals: Sequence[Residual], of: Callable[[Situation], object]) -> list[Part]:
    """For every value that occurs: its rows are scored by all others."""

    def part(value: object) -> Part:
        return lambda situation: (of(situation) != value, of(situation) == value)

    return [part(value) for value in dict.fromkeys(of(item.situation) for item in residuals)]


def _largest(residuals: Sequence[Residual], of: Callable[[Situation], float]) -> list[Part]:
    """The rows with the largest values are scored by those with smaller ones."""
    ordered = sorted(of(item.situation) for item in residuals)
    limit = ordered[int((1 - _LARGEST_SHARE) * (len(ordered) - 1))]
    return [lambda situation: (of(situation) <= limit, of(situation) > limit)]


def _widening(residuals: Sequence[Residual], usual: float) -> dict[str, list[list[float]]]:
    """For each kind of extrapolation and each part left out, scores over the usual stretch."""
    kinds = {
        "vendor": _each(residuals, lambda s: s.vendor),
        "architecture": _each(residuals, lambda s: s.architecture),
        "accelerator": _each(residuals, lambda s: s.accelerator),
        "precision": _each(residuals, lambda s: (s.architecture, s.precision)),
        "kind": _each(residuals, lambda s: s.kind),
        "accelerators": _largest(residuals, lambda s: s.accelerators),
        "sequence": _largest(residuals, lambda s: s.sequence),
        "parameters": _largest(residuals, lambda s: s.parameters),
    }
    scored = {
        kind: [[score / usual for score in _scores(residuals, part)] for part in parts]
        for kind, parts in kinds.items()
    }
    return {
        kind: [part for part in parts if len(part) >= MACRO_ROWS] for kind, parts in scored.items()
    }


def _seen(residuals: Iterable[Residual]) -> tuple[Seen, ...]:
    rows: dict[tuple[str, str, str, str, str], list[Situation]] = defaultdict(list)
    for item in residuals:
        s = item.situation
        rows[s.architecture, s.accelerator, s.precision, s.kind, s.vendor].append(s)
    return tuple(
        Seen(
            accelerator=accelerator,
            architecture=architecture,
            precision=precision,
            rows=len(found),
            accelerators=max(s.accelerators for s in found),
            sequence=max(s.sequence for s in found),
            parameters=max(s.parameters for s in found),
            kind=kind,
            vendor=vendor,
        )
        for (architecture, accelerator, precision, kind, vendor), found in sorted(rows.items())
    )


def _strange(residuals: Sequence[Residual]) -> list[Part]:
    """For every architecture: what constants that have not seen it say, scored by all others."""

    def part(architecture: str) -> Part:
        return lambda s: (not s.strange, s.strange and s.architecture == architecture)

    found = dict.fromkeys(item.situation.architecture for item in residuals)
    return [part(architecture) for architecture in found]


def uncertainty_of(residuals: Sequence[Residual]) -> Uncertainty:
    """Intervals from residuals of left-out runs: of named stacks, and of the plain one.

    Residuals of strange constants, which have not seen the architecture, tell only how much wider
    an interval is with such constants.
    """
    cells: dict[CellKey, Cell] = {}
    widening: dict[str, list[list[float]]] = defaultdict(list)
    strange = [item for item in residuals if item.situation.strange]
    residuals = [item for item in residuals if not item.situation.strange]
    for constants in dict.fromkeys(item.situation.constants for item in residuals):
        own = [item for item in residuals if item.situation.constants == constants]
        stretch = _stretch(_scores_by_source(own, lambda situation: (True, True)))
        if stretch is None:  # too few sources: nothing is known about the next one
            continue
        for key, cell in _spreads(own).items():
            cells[key] = cell._replace(factor=cell.factor**stretch)
        for kind, parts in _widening(own, stretch).items():
            widening[kind] += parts
        strangers = [item for item in strange if item.situation.constants == constants]
        for part in _strange(strangers):
            scores = [score / stretch for score in _scores([*own, *strangers], part)]
            if len(scores) >= MACRO_ROWS:
                widening["constants"].append(scores)
    named = [item for item in residuals if item.situation.constants != "plain"]
    factors = {kind: max(1.0, _stretch(parts) or 1.0) for kind, parts in widening.items()}
    return Uncertainty(COVERAGE, cells, _seen(named or residuals), factors)


def uncertainties_without(residuals: Sequence[Residual]) -> Callable[[str], Uncertainty]:
    """For a source, the uncertainty that the residuals of all other sources give."""
    made: dict[str, Uncertainty] = {}

    def of(source: str) -> Uncertainty:
        if source not in made:
            made[source] = uncertainty_of([item for item in residuals if item.source != source])
        return made[source]

    return of
