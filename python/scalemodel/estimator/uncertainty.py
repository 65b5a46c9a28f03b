"""How far a measured step may be from its estimate, by published runs that are comparable.

The constants come from ``catalog/reference/uncertainty.toml``: how far predictions were from runs
whose source none of their constants had seen, in cells of accelerator architecture, number format
and size of the job. `scalemodel.validation.accuracy` derives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import time_text
from scalemodel.estimator.evaluation import Evaluation
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.stack_choice import fitted
from scalemodel.resolve.tasks import FineTuning

#: Upper ends of the buckets of job size, in accelerators: a node, a rack row, a hall.
SCALES = (8, 128, 1024)

#: Runs below which a kind of run is as good as unmeasured.
FEW_RUNS = 20
#: The scale of stacks of which too little was measured: it covers how unlike stacks are.
OTHER_STACKS = "other"
_KINDS = {"dense": "a dense model", "experts": "experts", "tuning": "fine-tuning"}
_TYPES = {str: "a text", int: "a whole number", float: "a number"}
_CLASSES = {"fp32": "32bit", "tf32": "32bit", "fp16": "16bit", "bf16": "16bit"}


def precision_class(precision: str) -> str:
    """The width of a number format: formats of one width err alike.

    Examples
    --------
    >>> precision_class("bf16"), precision_class("fp8")
    ('16bit', 'fp8')
    """
    return _CLASSES.get(precision, precision)


def scale_of(accelerators: int) -> int:
    """The bucket of a job size: its upper end, 0 beyond the last.

    Examples
    --------
    >>> scale_of(8), scale_of(9), scale_of(100_000)
    (8, 128, 0)
    """
    return next((scale for scale in SCALES if accelerators <= scale), 0)


class Situation(NamedTuple):
    """What decides which measured runs an estimate compares with.

    Attributes
    ----------
    constants : str
        ``"plain"`` without a named software stack, else ``"named"``.
    accelerator, architecture : str
        As the catalogue names them.
    precision : str
        Class of the number format.
    accelerators, sequence : int
    parameters : float
    kind : str
        What is trained and how: ``"dense"``, ``"experts"``, or ``"tuning"`` of whatever model.
    vendor : str
    strange : bool
        Whether the constants of the stack were fitted on other architectures only.
    evidence : str
        What the run was timed for: empty for training as it is published, ``"submission"`` to a
        benchmark, ``"cut"`` for as many layers of a model as one node holds, ``"functional"`` for a
        library run that shows that training works, untuned.
    stack : str
        Catalogue name of the software stack; empty where it has none.
    """

    constants: str
    accelerator: str
    architecture: str
    precision: str
    accelerators: int
    sequence: int
    parameters: float
    kind: str = ""
    vendor: str = ""
    strange: bool = False
    evidence: str = ""
    stack: str = ""


def situation_of(est: Evaluation) -> Situation:
    """The situation of an estimate."""
    entry = est.cluster.table.get("accelerator")
    known = entry if isinstance(entry, Mapping) else {}
    architecture = str(known.get("architecture", ""))
    tuned = isinstance(est.task, FineTuning)
    named = catalog.find("stacks", est.stack) if isinstance(est.stack, str) else ""
    runs = fitted(named).runs if named else {}
    return Situation(
        constants="plain" if est.stack == "plain" else "named",
        accelerator=est.cluster.accelerator,
        architecture=architecture,
        precision=precision_class(str(est.task.precision)),
        accelerators=est.cluster.accelerators,
        sequence=int(est.task.sequence),
        parameters=float(est.model.parameters),
        kind="tuning" if tuned else "experts" if est.model.shape.experts else "dense",
        vendor=str(known.get("vendor", "")),
        strange=bool(runs) and architecture not in runs,
        stack=named,
    )


class Interval(NamedTuple):
    """Where a measured step time lies with the stated probability."""

    low_s: float
    high_s: float
    coverage_fraction: float


class CellKey(NamedTuple):
    """A set of comparable runs; an empty text stands for any, -1 for any size."""

    constants: str
    architecture: str = ""
    precision: str = ""
    scale: int = -1
    kind: str = ""
    evidence: str = ""


@lru_cache(maxsize=4096)
def keys_of(situation: Situation) -> tuple[CellKey, ...]:
    """The cells a situation belongs to, the most alike first.

    Runs that were timed for another purpose than to train err by more and mostly to one side: they
    have a cell of their own, whatever their accelerator.

    Examples
    --------
    >>> s = Situation("plain", "h100_sxm_80", "hopper", "fp8", 64, 8192, 8e9, "dense")
    >>> [tuple(key)[1:5] for key in keys_of(s)][:3]
    [('hopper', 'fp8', 128, 'dense'), ('hopper', 'fp8', -1, 'dense'), ('hopper', '', -1, 'dense')]
    >>> [tuple(key)[1:5] for key in keys_of(s)][3:5]
    [('', '', -1, 'dense'), ('hopper', 'fp8', 128, '')]
    """
    s = situation
    kinds = (s.kind, "") if s.kind else ("",)
    own = (CellKey(s.constants, evidence=s.evidence),) if s.evidence else ()
    return own + tuple(
        CellKey(s.constants, *alike, kind)
        for kind in kinds
        for alike in (
            (s.architecture, s.precision, scale_of(s.accelerators)),
            (s.architecture, s.precision, -1),
            (s.architecture, "", -1),
            ("", "", -1),
        )
    )


class Cell(NamedTuple):
    """The factor within which measured and predicted times agree for the stated share of runs.

    One factor for either side: which way a source errs does not carry over to the next source.
    """

    factor: float
    rows: int
    sources: int


class Seen(NamedTuple):
    """What has been measured with one accelerator, class of number formats and kind of run."""

    accelerator: str
    architecture: str
    precision: str
    rows: int
    accelerators: int
    sequence: int
    parameters: float
    kind: str = ""
    vendor: str = ""


@dataclass(frozen=True)
class Uncertainty:
    """Intervals of cells, and what has been measured at all.

    Attributes
    ----------
    coverage_fraction : float
        Share of comparable runs inside an interval.
    cells : mapping of CellKey to Cell
    seen : tuple of Seen
    widening : mapping of str to float
        Reason of extrapolation -> factor on the logarithms of an interval's ends.
    scales : mapping of str to float
        Stack -> how far its runs stray from predictions by constants of others, over the mean of
        stacks; of those not listed, what is said of `OTHER_STACKS`.
    """

    coverage_fraction: float
    cells: Mapping[CellKey, Cell]
    seen: tuple[Seen, ...]
    widening: Mapping[str, float]
    scales: Mapping[str, float] = field(default_factory=dict)

    def scale(self, situation: Situation) -> float:
        """How wide intervals of its stack are over those of others, on a logarithmic scale.

        Runs that were timed for another purpose than to train have an interval of their own,
        whatever their stack, and estimates without a named one have nothing to tell them apart.
        """
        apart = situation.evidence or situation.constants == "plain"
        other = self.scales.get(OTHER_STACKS, 1.0)
        return 1.0 if apart else self.scales.get(situation.stack, other)

    def cell(self, situation: Situation) -> Cell | None:
        """The finest cell of a situation that holds enough runs."""
        return next((self.cells[key] for key in keys_of(situation) if key in self.cells), None)

    def reasons(self, situation: Situation) -> dict[str, str]:
        """Why no measured run is like it: kind of reason -> text; empty inside what was seen."""
        s = situation
        found: dict[str, str] = {}
        alike = [item for item in self.seen if item.architecture == s.architecture]
        if s.vendor and not any(item.vendor == s.vendor for item in self.seen):
            found["vendor"] = f"no measured run on accelerators of {s.vendor}"
        if not alike:
            found["architecture"] = f"no measured run on architecture {s.architecture or 'unknown'}"
        if not any(item.accelerator == s.accelerator for item in self.seen):
            found["accelerator"] = f"no measured run on {s.accelerator}"
        if alike and not any(item.precision == s.precision for item in alike):
            found["precision"] = f"no measured {s.precision} run on {s.architecture}"
        known = sum(item.rows for item in self.seen if item.kind == s.kind)
        if s.kind and known < FEW_RUNS:
            count = f"only {known} measured runs" if known else "no measured run"
            found["kind"] = f"{count} of {_KINDS.get(s.kind, s.kind)}"
        if s.strange:
            found["constants"] = f"no run of its stack was measured on {s.architecture}"
        found.update(
            _beyond(
                self.seen,
                ("accelerators", s.accelerators, "accelerators"),
                ("sequence", s.sequence, "tokens per sequence"),
                ("parameters", s.parameters, "parameters"),
            )
        )
        return found

    def factor(self, situation: Situation) -> float | None:
        """Factor between the predicted time and either end of its interval.

        What lies beyond every measured run is less certain: the logarithm of the factor grows with
        the worst kind of extrapolation. None where nothing was ever measured.
        """
        cell = self.cell(situation)
        if cell is None:
            return None
        widening = [self.widening.get(kind, 1.0) for kind in self.reasons(situation)]
        return float(cell.factor ** (self.scale(situation) * max([1.0, *widening])))

    def interval(self, situation: Situation, step_time_s: float) -> Interval | None:
        """The interval around a predicted step time; None where nothing was ever measured."""
        factor = self.factor(situation)
        if factor is None:
            return None
        return Interval(step_time_s / factor, step_time_s * factor, self.coverage_fraction)


def _beyond(seen: Iterable[Seen], *asked: tuple[str, float, str]) -> dict[str, str]:
    found = {}
    listed = list(seen)
    for name, value, unit in asked:
        most = max((float(getattr(item, name)) for item in listed), default=0.0)
        if value > most:
            found[name] = f"{value:,.0f} {unit}: measured up to {most:,.0f}"
    return found


# ------------------------------------------------------------------------------------- catalogue
def _values(kind: type[CellKey | Cell | Seen], item: object, where: str) -> list[Any]:
    """The values of a tuple of `kind` in a table of a file.

    Raises
    ------
    ScaleModelError : one is missing or of another type; names it.
    """
    values = []
    for key, meant in get_type_hints(kind).items():
        value = item.get(key) if isinstance(item, Mapping) else None
        legal = isinstance(value, (float, int) if meant is float else meant)
        if not legal or isinstance(value, bool) or value != value:
            raise ScaleModelError(f"{where}.{key}={value!r}: must be {_TYPES[meant]}")
        values.append(value)
    return values


def _records(table: Mapping[str, Any], key: str) -> list[Any]:
    listed = table.get(key)
    if not isinstance(listed, list):
        raise ScaleModelError(f"uncertainty.{key}: must be a list of tables")
    return listed


def read(path: Path) -> Uncertainty:
    """The uncertainty that a file such as ``reference/uncertainty.toml`` holds.

    Raises
    ------
    ScaleModelError : a value is missing or of another type; names it.
    """
    table = catalog.read_toml(path)
    cells = {
        CellKey(*_values(CellKey, item, "uncertainty.cells")): Cell(
            *_values(Cell, item, "uncertainty.cells")
        )
        for item in _records(table, "cells")
    }
    widening = Reader(table["widening"], "uncertainty.widening")
    interval = Reader(table["interval"], "uncertainty.interval")
    scales = Reader(table.get("scales", {}), "uncertainty.scales")
    return Uncertainty(
        coverage_fraction=interval.number("coverage_fraction"),
        cells=cells,
        seen=tuple(
            Seen(*_values(Seen, item, "uncertainty.seen")) for item in _records(table, "seen")
        ),
        widening={key: widening.number(key) for key in table["widening"]},
        scales={key: scales.number(key) for key in table.get("scales", {})},
    )


@lru_cache(maxsize=4)
def _loaded(path: Path, modified_ns: int) -> Uncertainty:
    return read(path)


def embedded() -> Uncertainty:
    """The uncertainty of the catalogue; a private ``reference/uncertainty.toml`` wins.

    Examples
    --------
    >>> embedded().coverage_fraction
    0.8
    """
    path = catalog.path_of("reference", "uncertainty")
    return _loaded(path, path.stat().st_mtime_ns)


def interval_of(est: Evaluation) -> Interval | None:
    """Where a measured step would lie; None for an illegal strategy. See `Estimate.interval`."""
    if est.illegal:
        return None
    return embedded().interval(situation_of(est), float(est.core.step_time_s))


def extrapolations(est: Evaluation) -> tuple[str, ...]:
    """In what the question lies beyond every measured run; see `Estimate.extrapolates`."""
    return tuple(embedded().reasons(situation_of(est)).values())


def step_text(est: Evaluation) -> str:
    """The step time of an estimate with its interval."""
    interval = interval_of(est)
    text = time_text(float(est.core.step_time_s))
    if interval is None:
        return text
    share = f"{100 * interval.coverage_fraction:.0f} %"
    return f"{text} ({share}: {time_text(interval.low_s)} to {time_text(interval.high_s)})"
