"""Errors of predicted kernel and collective times: per group, macro, pooled."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.validation.errors import (
    MACRO_ROWS,
    GroupErrors,
    cells_of,
    error_lines,
    grouped,
    macro,
    percent,
    positive,
    share_text,
    skip_lines,
    skip_reasons,
    without_nan,
)

if TYPE_CHECKING:
    import pandas as pd

SHORT_US = 20.0  # below it a call is mostly launch, and its measurement mostly noise

# What the second table groups by, beside the accelerator; the first column a table has.
_PARTS: dict[str, tuple[str, ...]] = {
    "attention": ("phase",),
    "moe": ("dtype", "mode"),
    "collectives": ("op",),
}


@dataclass(frozen=True)
class Case:
    """One measured row: labels, measurement, prediction."""

    source: str
    gpu: str
    system: str
    part: str
    op: str
    measured_us: float
    predicted_us: float | None

    @property
    def error_fraction(self) -> float | None:
        """Signed relative error."""
        return None if self.predicted_us is None else self.predicted_us / self.measured_us - 1


@dataclass(frozen=True)
class SubsetErrors:
    """A selection of the rows: unweighted mean over its groups, and all its rows together."""

    name: str
    macro_mape_fraction: float
    macro_groups: int
    pooled: GroupErrors
    median_fraction: float


@dataclass(frozen=True)
class OperatorScores:
    """All scores of a validated table of kernels or collectives; `text` prints them."""

    kind: str
    groups: list[GroupErrors]
    parts: list[GroupErrors]
    part_labels: tuple[str, str]
    subsets: list[SubsetErrors]
    rows: int
    rows_predicted: int
    measured_rows: int
    measured_predicted: int
    skip_reasons: dict[str, int]

    @property
    def macro_mape_fraction(self) -> float:
        """Unweighted mean of the errors of the groups of at least five rows."""
        return self.subsets[0].macro_mape_fraction

    @property
    def pooled(self) -> GroupErrors:
        """Errors of all measured rows together."""
        return self.subsets[0].pooled

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        document = asdict(self)
        document["part_labels"] = list(self.part_labels)
        document["macro_mape_fraction"] = self.macro_mape_fraction
        document["pooled"] = asdict(self.pooled)
        return {name: without_nan(value) for name, value in document.items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of errors by name, all with the same columns."""
        document = self.to_dict()
        subsets = [{**row["pooled"], "label": row["name"]} for row in document["subsets"]]
        return {"groups": document["groups"], "parts": document["parts"], "pooled": subsets}

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        return "\n".join(_report(self))


# ------------------------------------------------------------------------------------- grouping
def short_source(source: str) -> str:
    """Source up to the first ``@`` or ``:``.

    Examples
    --------
    >>> short_source("owner/name@1a2b3c:data/h100/gemm.csv")
    'owner/name'
    """
    return re.split(r"[@:]", source, maxsplit=1)[0].strip()


def part_labels(kind: str, header: Iterable[str]) -> tuple[str, str]:
    """Names of the two columns of the second table."""
    present = set(header)
    names = _PARTS.get(kind, ("dtype",))
    part = next((name for name in names if name in present), names[0])
    return ("system" if kind == "collectives" else "gpu"), part


def cases(kind: str, frame: pd.DataFrame) -> list[Case]:
    """Rows of a validated table that were measured."""
    _, part = part_labels(kind, frame.columns)

    names = ("source", "gpu", "system", part, "op", "time_us", "predicted_time_us")
    rows = zip(*(cells_of(frame, name) for name in names), strict=True)
    result = []
    for source, gpu, system, part_of, op, measured, predicted in rows:
        measured_us = positive(measured)
        if measured_us is not None:
            labels = (str(gpu), str(system), str(part_of), str(op))
            result.append(
                Case(short_source(str(source)), *labels, measured_us, positive(predicted))
            )
    return result


def _errors(label: str, part: str, rows: Sequence[Case], *, ranked: bool = True) -> GroupErrors:
    pairs = [(row.measured_us, row.predicted_us) for row in rows]
    return GroupErrors.of(label, part, pairs, ranked=ranked)


def _table(
    rows: Iterable[Case], key: Callable[[Case], tuple[str, str]], *, ranked: bool = True
) -> list[GroupErrors]:
    return [_errors(*labels, group, ranked=ranked) for labels, group in grouped(rows, key).items()]


def _by_source(row: Case) -> tuple[str, str]:
    return row.source, row.gpu


def _by_gpu(row: Case) -> tuple[str, str]:
    return row.gpu, row.part


def _by_system(row: Case) -> tuple[str, str]:
    return row.system, row.part


def _subset(name: str, rows: Sequence[Case]) -> SubsetErrors:
    mape, groups = macro(_table(rows, _by_source, ranked=False))
    sizes = [abs(row.error_fraction) for row in rows if row.error_fraction is not None]
    return SubsetErrors(
        name=name,
        macro_mape_fraction=mape,
        macro_groups=groups,
        pooled=_errors(name, "", rows, ranked=False),
        median_fraction=statistics.median(sizes) if sizes else math.nan,
    )


def _subsets(kind: str, rows: Sequence[Case]) -> list[SubsetErrors]:
    chosen = [("all rows", list(rows))]
    if kind == "gemm":
        chosen += [
            (f"above {SHORT_US:.0f} us", [row for row in rows if row.measured_us > SHORT_US]),
            (f"up to {SHORT_US:.0f} us", [row for row in rows if row.measured_us <= SHORT_US]),
        ]
    if kind == "elementwise":
        # A difference of two timings: some of its rows are near zero.
        kept = [row for row in rows if "computescale" not in row.op]
        chosen.append(("without computescale", kept))
    return [_subset(name, part) for name, part in chosen if part or name == "all rows"]


def score(kind: str, frame: pd.DataFrame) -> OperatorScores:
    """Compare the predictions of `validate` with the times beside them.

    Rows with a positive ``time_us`` count. The first table groups by (source up to its first
    ``@`` or ``:``, gpu); the macro line is the unweighted mean over its groups of at least five
    rows. The second table groups by (gpu, dtype), attention by (gpu, phase), collectives by
    (system, op).
    """
    rows = cases(kind, frame)
    labels = part_labels(kind, frame.columns)
    predicted = [positive(value) for value in frame["predicted_time_us"].tolist()]
    return OperatorScores(
        kind=kind,
        groups=_table(rows, _by_source),
        parts=_table(rows, _by_system if labels[0] == "system" else _by_gpu),
        part_labels=labels,
        subsets=_subsets(kind, rows),
        rows=len(frame),
        rows_predicted=sum(value is not None for value in predicted),
        measured_rows=len(rows),
        measured_predicted=sum(row.predicted_us is not None for row in rows),
        skip_reasons=skip_reasons(frame),
    )


# ------------------------------------------------------------------------------------- printing
def _report(scores: OperatorScores) -> list[str]:
    lines = error_lines(scores.groups, ("source", "gpu"))
    lines += ["", *error_lines(scores.parts, scores.part_labels), ""]
    for subset in scores.subsets:
        pooled = subset.pooled
        lines.append(
            f"{subset.name}: macro MAPE {percent(subset.macro_mape_fraction)} % over "
            f"{subset.macro_groups} groups of >= {MACRO_ROWS} rows; row-weighted MAPE "
            f"{percent(pooled.mape_fraction)} %, median {percent(subset.median_fraction)} %, "
            f"P90 {percent(pooled.p90_fraction)} %, bias {percent(pooled.bias_fraction)} %"
        )
    lines.append(
        f"coverage: measured {share_text(scores.measured_predicted, scores.measured_rows)}; "
        f"all {share_text(scores.rows_predicted, scores.rows)}"
    )
    return lines + skip_lines(scores.skip_reasons)
