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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
#: Rows and groups of a class of runs that were timed for another purpose than to train.
LEAST_CLASS = 8, 3
#: How a source, or a group of a class, counts by its rows in what intervals must hold: rows of a
#: class are to be held, and rows of a long table say more of its source than one row of another.
SOURCE_SHARE, CLASS_SHARE = 0.5, 1.0
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
        constants, or of the group.
    group : str
        Source and model.
    """

    source: str
    situation: Situation
    log_ratio: float
    weight: float
    group: str = ""

    @property
    def unit(self) -> str:
        """What is left out as a whole to judge an interval: the source, or the group."""
        return self.group if self.situation.evidence else self.source


#: Tells of a row whether an interval may be made of it, and whether it is to be scored.
Part = Callable[[Situation], tuple[bool, bool]]


def _all(situation: Situation) -> tuple[bool, bool]:
    return True, True


class Measured(NamedTuple):
    """A row with its prediction; see `Residual`."""

    source: str
    prediction: Prediction
    measured_s: float
    group: str = ""


def unit_of(prediction: Prediction, source: str, group: str) -> str:
    """`Residual.unit` of a prediction."""
    situation = prediction.situation
    return group if situation is not None and situation.evidence else source


def residuals_of(rows: Iterable[Measured]) -> list[Residual]:
    """Residuals of predicted rows; skipped ones have none."""
    kept = [
        Residual(row.source, situation, math.log(row.measured_s / predicted_s), 1.0, row.group)
        for row in rows
        if (situation := row.prediction.situation) is not None
        and (predicted_s := row.prediction.step_time_s) is not None
    ]

    def alike(item: Residual) -> tuple[str, str]:
        return item.unit, "" if item.situation.evidence else item.situation.accelerator

    counts = Counter(alike(item) for item in kept)
    return [item._replace(weight=counts[alike(item)] ** -0.5) for item in kept]


# ----------------------------------------------------------------------------------------- cells
def _spreads(residuals: Iterable[Residual]) -> dict[CellKey, Cell]:
    """Factors of the cells that enough rows of enough sources fall into, not stretched yet."""
    members: dict[CellKey, list[Residual]] = defaultdict(list)
    for item in residuals:
        for key in keys_of(item.situation):
            if key.evidence == item.situation.evidence:
                members[key].append(item)
    cells = {}
    for key, rows in members.items():
        sources = len({item.unit for item in rows})
        least_rows, least_sources = LEAST_CLASS if key.evidence else (LEAST_ROWS, LEAST_SOURCES)
        if len(rows) < least_rows or sources < least_sources:
            continue
        sizes = [abs(item.log_ratio) for item in rows]
        bound = _core.conformal_bound(sizes, [item.weight for item in rows], COVERAGE)
        # The next source is one more draw beside `sources` of them, whose spread is known from as
        # many: as wide as a prediction interval is over a spread. Of a class, the stretch tells it.
        if not key.evidence:
            bound *= math.sqrt((sources + 1) / (sources - 1))
        if 0 < bound < math.inf:
            cells[key] = Cell(math.exp(bound), len(rows), sources)
    return cells


def _scores_by_unit(residuals: Sequence[Residual], part: Part) -> Iterator[list[float]]:
    """Sizes of residuals over the logarithm of their factor, made without the rows' unit."""
    marks = [part(item.situation) for item in residuals]
    for unit in dict.fromkeys(item.unit for item in residuals):
        held = [
            item
            for item, (_, scored) in zip(residuals, marks, strict=True)
            if scored and item.unit == unit
        ]
        if not held:
            continue
        cells = _spreads(
            item
            for item, (usable, _) in zip(residuals, marks, strict=True)
            if usable and item.unit != unit
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
    return chain.from_iterable(_scores_by_unit(residuals, part))


def _stretch(parts: Iterable[Iterable[float]], share: float = 0.0) -> float | None:
    """What logarithms of factors must be multiplied with to hold the stated share of rows.

    A part counts by its rows to the power of `share`. With 0 each counts alike: a new architecture
    is one draw among architectures, however many runs were published of the old ones.
    """
    listed = [list(part) for part in parts]
    scores = [score for part in listed for score in part]
    weights = [len(part) ** (share - 1) for part in listed for _ in part]
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


def _classes(residuals: Iterable[Residual]) -> dict[tuple[str, str], list[Residual]]:
    """Residuals by constants and by what the runs were timed for."""
    found: dict[tuple[str, str], list[Residual]] = defaultdict(list)
    for item in residuals:
        found[item.situation.constants, item.situation.evidence].append(item)
    return found


def _class_stretches(residuals: Iterable[Residual]) -> dict[tuple[str, str], float]:
    """What the logarithm of the factor of each class of runs is multiplied with."""
    return {
        key: _stretch(_scores_by_unit(own, _all), CLASS_SHARE) or 1.0
        for key, own in _classes(residuals).items()
        if key[1]
    }


def uncertainty_of(
    residuals: Sequence[Residual], stretches: Mapping[tuple[str, str], float] | None = None
) -> Uncertainty:
    """Intervals from residuals of left-out runs: of named stacks, and of the plain one.

    Residuals of strange constants, which have not seen the architecture, tell only how much wider
    an interval is with such constants. `stretches` of classes are those of the residuals where they
    are not given.
    """
    cells: dict[CellKey, Cell] = {}
    widening: dict[str, list[list[float]]] = defaultdict(list)
    strange = _classes(item for item in residuals if item.situation.strange)
    residuals = [item for item in residuals if not item.situation.strange]
    of_class = _class_stretches(residuals) if stretches is None else stretches
    for (constants, evidence), own in _classes(residuals).items():
        stretch = (
            of_class.get((constants, evidence))
            if evidence
            else _stretch(_scores_by_unit(own, _all), SOURCE_SHARE)
        )
        if stretch is None:  # too few sources: nothing is known about the next one
            continue
        for key, cell in _spreads(own).items():
            cells[key] = cell._replace(factor=cell.factor**stretch)
        if evidence:
            continue
        for kind, parts in _widening(own, stretch).items():
            widening[kind] += parts
        strangers = strange.get((constants, ""), [])
        for part in _strange(strangers):
            scores = [score / stretch for score in _scores([*own, *strangers], part)]
            if len(scores) >= MACRO_ROWS:
                widening["constants"].append(scores)
    named = [item for item in residuals if item.situation.constants != "plain"]
    factors = {kind: max(1.0, _stretch(parts) or 1.0) for kind, parts in widening.items()}
    return Uncertainty(COVERAGE, cells, _seen(named or residuals), factors)


def uncertainties_without(residuals: Sequence[Residual]) -> Callable[[str], Uncertainty]:
    """For a unit (`Residual.unit`), the uncertainty that the residuals of all others give.

    A class of runs has too few groups to be stretched anew without one of them: its one factor of
    stretch stays that of all its groups.
    """
    made: dict[str, Uncertainty] = {}
    stretches = _class_stretches(item for item in residuals if not item.situation.strange)

    def of(unit: str) -> Uncertainty:
        if unit not in made:
            others = [item for item in residuals if item.unit != unit]
            made[unit] = uncertainty_of(others, stretches)
        return made[unit]

    return of
