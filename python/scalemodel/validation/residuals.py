"""From residuals of left-out runs to intervals: cells, their scale, what extrapolation costs.

A cell's factor is conformal: a quantile of |log(measured / predicted)| with a finite-sample
correction. Rows of one source resemble each other, so that a factor which holds 80 % of the rows it
is made of holds less of a new source's. Hence what counts is the source, and in it the stack, with
its facts right or wrong: each pair weighs the same, however many rows it has, and the next run is
of a pair of its own, one more draw beside those known (Lee, Barber, Willett, Distribution-free
inference with hierarchical data, 2023). Stacks do not stray alike: a residual counts over the scale
of its stack, which the stack's runs of other models and sources tell, drawn towards that of all
stacks (Lei, G'Sell, Rinaldo, Tibshirani, Wasserman, Distribution-free predictive inference for
regression, 2018, section 5.2). Few sources say little of how much a part of the runs differs from
all of them: only what many sources ran has an interval of its own. The same with an accelerator, an
architecture, a number format or the largest jobs left out tells how much wider an interval must be
where an estimate extrapolates; it is never taken to be narrower.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from statistics import fmean
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel.estimator.uncertainty import (
    OTHER_STACKS,
    Cell,
    CellKey,
    Seen,
    Situation,
    Uncertainty,
    keys_of,
)
from scalemodel.validation.errors import MACRO_ROWS
from scalemodel.validation.prediction import Prediction

COVERAGE = 0.8
LEAST_ROWS = 20
#: Of four sources the largest error would be the bound of the next, and of fewer none would.
LEAST_SOURCES = 5
#: Of fewer the bound of a part of the runs is close to its largest error, and chance tells it from
#: the bound of all: left out, Hopper's of six sources held 98 % of rows, at twice the width.
SOURCES_OF_A_PART = 8
#: Rows and groups of a class of runs that were timed for another purpose than to train.
LEAST_CLASS = 8, 3
#: How a group of a class counts by its rows in what its interval must hold: rows are to be held.
CLASS_SHARE = 1.0
#: Groups of a stack (a source and a model of it) that its scale is drawn towards all stacks' by: of
#: 0.5 to 8, groups that a scale was made without are likeliest at 1 to 4, rows at 1 and 2.
PRIOR_GROUPS = 1.0
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
        Of a run of a class: falls with the square root of the rows of its group. Others weigh as
        one part of their source and stack.
    group : str
        Source and model.
    stack : str
        Catalogue name.
    """

    source: str
    situation: Situation
    log_ratio: float
    weight: float
    group: str = ""
    stack: str = ""

    @property
    def unit(self) -> str:
        """What is left out as a whole to tell how wide intervals must be."""
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
    """What is left out as a whole to judge the interval of a prediction.

    Of a named stack that is the source and model of the run: other models of its source tell how
    far the stack strays. Without one nothing does, and the source is left out.
    """
    situation = prediction.situation
    named = situation is not None and (situation.evidence or situation.constants != "plain")
    return group if named else source


def residuals_of(rows: Iterable[Measured]) -> list[Residual]:
    """Residuals of predicted rows; skipped ones have none."""
    kept = [
        Residual(
            row.source,
            situation,
            math.log(row.measured_s / predicted_s),
            1.0,
            row.group,
            row.prediction.stack,
        )
        for row in rows
        if (situation := row.prediction.situation) is not None
        and (predicted_s := row.prediction.step_time_s) is not None
    ]
    counts = Counter(item.unit for item in kept)
    return [item._replace(weight=counts[item.unit] ** -0.5) for item in kept]


# ---------------------------------------------------------------------------------------- scales
def _has_scale(situation: Situation) -> bool:
    return situation.constants != "plain" and not situation.evidence


@dataclass(frozen=True)
class StackScales:
    """How far the runs of each stack stray: mean size of residuals by stack and group.

    Constants that have not seen the architecture tell nothing here.
    """

    sizes: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, residuals: Iterable[Residual]) -> StackScales:
        """From residuals of all kinds."""
        listed: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for item in residuals:
            if _has_scale(item.situation) and not item.situation.strange:
                listed[item.stack][item.group].append(abs(item.log_ratio))
        return cls(
            {
                stack: {group: fmean(sizes) for group, sizes in groups.items()}
                for stack, groups in listed.items()
            }
        )

    def scale(self, stack: str, group: str = "") -> float:
        """Scale of a stack over the mean of stacks, made without a group of its runs."""
        if (stack, group) not in self._made:
            self._made[stack, group] = self._scale(stack, group)
        return self._made[stack, group]

    @cached_property
    def _made(self) -> dict[tuple[str, str], float]:
        return {}

    @cached_property
    def _usual(self) -> float:
        return fmean(fmean(groups.values()) for groups in self.sizes.values())

    def _scale(self, stack: str, group: str) -> float:
        known = self.sizes.get(stack, {})
        others = [size for name, size in known.items() if name != group]
        if not others:
            return 1.0
        return (PRIOR_GROUPS + math.fsum(others) / self._usual) / (PRIOR_GROUPS + len(others))

    def told(self) -> dict[str, float]:
        """Scales of named stacks, all of their groups counted."""
        return {stack: self.scale(stack) for stack in sorted(self.sizes) if stack}

    def scaled(self, item: Residual) -> Residual:
        """A residual over the scale of its stack, made without its group."""
        if not _has_scale(item.situation):
            return item
        return item._replace(log_ratio=item.log_ratio / self.scale(item.stack, item.group))


# ----------------------------------------------------------------------------------------- cells
def _least(key: CellKey) -> tuple[int, int]:
    """Rows and sources (of a class: groups) from which on a cell is made."""
    if key.evidence:
        return LEAST_CLASS
    whole = key == CellKey(key.constants)
    return LEAST_ROWS, LEAST_SOURCES if whole else SOURCES_OF_A_PART


def _bound(key: CellKey, rows: Sequence[Residual]) -> float:
    """What the next size of a residual does not exceed in the stated share of cases.

    A class is of few groups, often of one source: its stretch tells what the next one is like.
    """
    sizes = [abs(item.log_ratio) for item in rows]
    if key.evidence:
        return float(_core.conformal_bound(sizes, [item.weight for item in rows], COVERAGE))
    counts = Counter((item.source, item.stack) for item in rows)
    weights = [1 / counts[item.source, item.stack] for item in rows]
    return float(_core.conformal_bound(sizes, weights, COVERAGE, next_weight=1))


def _members(residuals: Iterable[Residual]) -> dict[CellKey, list[Residual]]:
    """Rows by the cells that they fall into."""
    members: dict[CellKey, list[Residual]] = defaultdict(list)
    for item in residuals:
        for key in keys_of(item.situation):
            if key.evidence == item.situation.evidence:
                members[key].append(item)
    return members


def _cell(key: CellKey, rows: Sequence[Residual]) -> Cell | None:
    """The factor of a cell, of a class unstretched; None of too few rows or sources."""
    least_rows, least_sources = _least(key)
    if len(rows) < least_rows:
        return None
    sources = len({item.unit for item in rows})
    if sources < least_sources:
        return None
    bound = _bound(key, rows)
    return Cell(math.exp(bound), len(rows), sources) if 0 < bound < math.inf else None


def _spreads(residuals: Iterable[Residual]) -> dict[CellKey, Cell]:
    """Factors of the cells that enough rows of enough sources fall into."""
    found = {key: _cell(key, rows) for key, rows in _members(residuals).items()}
    return {key: cell for key, cell in found.items() if cell}


def _cell_without(
    members: Callable[[CellKey], Sequence[Residual]], unit: str, key: CellKey
) -> Cell | None:
    return _cell(key, [item for item in members(key) if item.unit != unit])


def _scores_by_unit(
    residuals: Sequence[Residual],
    part: Part,
    members: Mapping[CellKey, Sequence[Residual]] | None = None,
) -> Iterator[list[float]]:
    """Sizes of residuals over the logarithm of their factor, made without the rows' unit.

    Of the cells only those of scored rows are asked for; `members` are those of all residuals.
    """
    of_all = _members(residuals) if members is None else members
    marks = [part(item.situation) for item in residuals]
    usable = {id(item) for item, (usable, _) in zip(residuals, marks, strict=True) if usable}
    held_of: dict[str, list[Residual]] = {item.unit: [] for item in residuals}
    for item, (_, scored) in zip(residuals, marks, strict=True):
        if scored:
            held_of[item.unit].append(item)

    @cache
    def usable_of(key: CellKey) -> list[Residual]:
        return [item for item in of_all.get(key, ()) if id(item) in usable]

    for unit, held in held_of.items():
        cell_of = cache(partial(_cell_without, usable_of, unit))
        found = [
            (item, next(filter(None, map(cell_of, keys_of(item.situation))), None)) for item in held
        ]
        scores = [abs(item.log_ratio) / math.log(cell.factor) for item, cell in found if cell]
        if scores:
            yield scores


def _scores(
    residuals: Sequence[Residual], part: Part, members: Mapping[CellKey, Sequence[Residual]]
) -> Iterator[float]:
    """The same of all sources together."""
    return chain.from_iterable(_scores_by_unit(residuals, part, members))


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


def _widening(residuals: Sequence[Residual]) -> dict[str, list[list[float]]]:
    """For each kind of extrapolation and each part left out, scores of its rows."""
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
    members = _members(residuals)
    scored = {
        kind: [list(_scores(residuals, part, members)) for part in parts]
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


def _factors(residuals: Sequence[Residual]) -> dict[str, float]:
    """How much wider intervals are where a question extrapolates, from scaled residuals."""
    widening: dict[str, list[list[float]]] = defaultdict(list)
    strange = _classes(item for item in residuals if item.situation.strange)
    usual = _classes(item for item in residuals if not item.situation.strange)
    for (constants, evidence), own in usual.items():
        if evidence:
            continue
        for kind, parts in _widening(own).items():
            widening[kind] += parts
        strangers = strange.get((constants, ""), [])
        both = [*own, *strangers]
        members = _members(both)
        for part in _strange(strangers):
            scores = list(_scores(both, part, members))
            if len(scores) >= MACRO_ROWS:
                widening["constants"].append(scores)
    return {kind: max(1.0, _stretch(parts) or 1.0) for kind, parts in widening.items()}


def _other_scale(unscaled: Sequence[Residual], scaled: Sequence[Residual]) -> float:
    """Scale of a stack of which nothing is known: its bound is that of all stacks, unscaled."""
    key = CellKey("named")

    def bound(rows: Iterable[Residual]) -> float:
        usual = [i for i in rows if _has_scale(i.situation) and not i.situation.strange]
        return _bound(key, usual) if usual else math.inf

    whole, alike = bound(unscaled), bound(scaled)
    return max(1.0, whole / alike) if alike > 0 and whole < math.inf else 1.0


def uncertainty_of(
    residuals: Sequence[Residual],
    stretches: Mapping[tuple[str, str], float] | None = None,
    widening: Mapping[str, float] | None = None,
) -> Uncertainty:
    """Intervals from residuals of left-out runs: of named stacks, and of the plain one.

    Residuals of strange constants, which have not seen the architecture, tell only how much wider
    an interval is with such constants. `stretches` of classes and `widening` are those of the
    residuals where they are not given.
    """
    scales, unscaled = StackScales.of(residuals), residuals
    residuals = [scales.scaled(item) for item in residuals]
    factors = _factors(residuals) if widening is None else widening
    residuals = [item for item in residuals if not item.situation.strange]
    of_class = _class_stretches(residuals) if stretches is None else stretches
    cells: dict[CellKey, Cell] = {}
    for key, own in _classes(residuals).items():
        stretch = of_class.get(key, 1.0)
        for cell_key, cell in _spreads(own).items():
            cells[cell_key] = cell._replace(factor=cell.factor**stretch)
    named = [item for item in residuals if item.situation.constants != "plain"]
    told = scales.told()
    if told:
        told[OTHER_STACKS] = _other_scale(unscaled, named)
    return Uncertainty(COVERAGE, cells, _seen(named or residuals), factors, told)


def uncertainties_without(residuals: Sequence[Residual]) -> Callable[[str], Uncertainty]:
    """For a source or a group of runs, the uncertainty that the residuals of all others give.

    A class of runs has too few groups to be stretched anew without one of them: its one factor of
    stretch stays that of all its groups. What extrapolation costs is told without the source of a
    group: that takes long, and without one group of it hardly differs.
    """
    made: dict[str, Uncertainty] = {}
    stretches = _class_stretches(item for item in residuals if not item.situation.strange)
    source_of = {item.group: item.source for item in residuals}

    def of(unit: str) -> Uncertainty:
        if unit not in made:
            others = [item for item in residuals if unit not in (item.source, item.group)]
            source = source_of.get(unit, unit) or unit
            widening = None if source == unit else of(source).widening
            made[unit] = uncertainty_of(others, stretches, widening)
        return made[unit]

    return of
