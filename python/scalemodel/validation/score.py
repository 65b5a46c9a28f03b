"""Errors of predictions against measurements: per group, macro, pooled; memory; ranking."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.validation.errors import (
    MACRO_ROWS,
    GroupErrors,
    cells_of,
    columns,
    error_lines,
    grouped,
    kendall_tau_b,
    macro,
    percent,
    plain,
    positive,
    share_text,
    skip_lines,
    skip_reasons,
    without_nan,
)
from scalemodel.validation.rows import is_missing

if TYPE_CHECKING:
    import pandas as pd

CORE_QUALITIES = ("A", "B")
WORST_GROUPS = 10
WORST_ROWS = 3  # smaller groups are one odd row
_TABLES = ("groups", "merged", "worst", "kinds", "unseen", "others")
_LABELS = (
    "source",
    "source_path",
    "gpu",
    "task",
    "model",
    "model_family",
    "status",
    "quality",
    "complete",
    "fitted",
    "norm_step_time_s",
    "memory_GB",
)


@dataclass(frozen=True)
class Case:
    """One row as the scores see it: labels, measurement and prediction."""

    source: str
    sheet: str
    gpu: str
    model: str
    kind: str
    core: bool
    out_of_memory: bool
    measured_s: float | None
    measured_gb: float | None
    predicted_s: float | None
    predicted_gb: float | None
    predicted_fits: bool | None
    skip_reason: str
    low_s: float | None = None
    high_s: float | None = None
    unseen: bool = False  # the table says that no constant was fitted to the row

    @property
    def timed(self) -> bool:
        """Whether there is a measured step time to compare with."""
        return self.measured_s is not None and not self.out_of_memory

    @property
    def covered(self) -> bool | None:
        """Whether the measured time lies in the predicted interval; None without either."""
        if self.measured_s is None or self.low_s is None or self.high_s is None:
            return None
        return self.low_s <= self.measured_s <= self.high_s

    @property
    def error_fraction(self) -> float | None:
        """Signed relative error of the step time."""
        if self.measured_s is None or self.predicted_s is None:
            return None
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class SheetRow:
    """How well one sheet of layouts is ranked, and what following the prediction would cost."""

    source: str
    sheet: str
    rows: int
    kendall_tau: float
    regret_fraction: float
    misses: int


@dataclass(frozen=True)
class MemoryRow:
    """Errors of the printed memory of one source."""

    source: str
    rows: int
    mape_fraction: float
    bias_fraction: float


@dataclass(frozen=True)
class FitRow:
    """How well the rows that ran out of memory are told from those that did not."""

    source: str
    out_of_memory: int
    out_of_memory_recall: float
    ran: int
    ran_recall: float
    balanced_accuracy: float


@dataclass(frozen=True)
class Scores:
    """All scores of a validated training table; `text` prints them."""

    groups: list[GroupErrors]
    macro_mape_fraction: float
    macro_groups: int
    merged: list[GroupErrors]
    merged_macro_mape_fraction: float
    merged_macro_groups: int
    pooled: GroupErrors
    pooled_median_fraction: float
    covered_fraction: float
    worst: list[GroupErrors]
    kinds: list[GroupErrors]
    unseen: list[GroupErrors]
    others: list[GroupErrors]
    fits: list[FitRow]
    memory: list[MemoryRow]
    sheets: list[SheetRow]
    rows: int
    rows_predicted: int
    core_rows: int
    core_predicted: int
    skip_reasons: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        return {name: without_nan(value) for name, value in asdict(self).items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of errors by name, all with the same columns."""
        document = self.to_dict()
        found = {name: document[name] for name in _TABLES}
        return {**found, "pooled": [document["pooled"]]}

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        return "\n".join(_report(self))


# ------------------------------------------------------------------------------------- grouping


def merged_source(source: str) -> str:
    """Source with the rounds of MLPerf Training, and the commits of a repository, counted as one.

    Examples
    --------
    >>> merged_source("MLPerf Training v4.1"), merged_source("AMD-AGI/Primus@c8e5c09d 2026-07-15")
    ('MLPerf Training (all rounds)', 'AMD-AGI/Primus')
    """
    source = re.sub(r"@[0-9a-f]{7,40}\b.*$", "", source)
    return re.sub(r"^(MLPerf Training)\s+v.*$", r"\1 (all rounds)", source, flags=re.IGNORECASE)


def _kind(task: str, family: str) -> str:
    """Which separate line a row belongs to."""
    text = f"{task} {family}".lower()
    suffix = " (MLPerf)" if "mlperf" in text else ""
    for name in ("DLRM", "ViT", "LoRA", "SFT"):
        if re.search(rf"\b{name.lower()}\b", text):
            return name + suffix
    return "pretrain" + suffix


def _number_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def cases(frame: pd.DataFrame) -> list[Case]:
    """Rows of a validated table. A label column that the table lacks excludes no row."""
    judged = "quality" in frame.columns
    finished = "complete" in frame.columns
    result = []
    predicted = zip(
        frame["predicted_step_time_s"].tolist(),
        frame["predicted_memory_gb"].tolist(),
        frame["predicted_fits"].astype(object).tolist(),
        cells_of(frame, "skip_reason"),
        cells_of(frame, "predicted_low"),
        cells_of(frame, "predicted_high"),
        strict=True,
    )
    labels = zip(*(cells_of(frame, name) for name in _LABELS), strict=True)
    for label, prediction in zip(labels, predicted, strict=True):
        source, sheet, gpu, task, model, family, status, *judged_by, measured, memory = label
        quality, complete, fitted = judged_by
        seconds, gigabytes, fits, skip_reason, low_s, high_s = prediction
        out_of_memory = str(status).strip().lower() in ("oom", "out_of_memory", "out of memory")
        ran = not out_of_memory and (is_missing(str(status)) or str(status).lower() == "ok")
        measured_s = positive(measured) if ran else None
        core = (
            measured_s is not None
            and (not judged or str(quality).strip().upper() in CORE_QUALITIES)
            and (not finished or str(complete).strip().lower() == "yes")
        )
        result.append(
            Case(
                source=str(source),
                sheet=str(sheet),
                gpu=str(gpu),
                model=str(model),
                kind=_kind(str(task), str(family)),
                core=core,
                out_of_memory=out_of_memory,
                measured_s=measured_s,
                measured_gb=positive(memory) if ran else None,
                predicted_s=_number_or_none(seconds),
                predicted_gb=_number_or_none(gigabytes),
                predicted_fits=fits if isinstance(fits, bool) else None,
                skip_reason=str(skip_reason),
                low_s=_number_or_none(low_s),
                high_s=_number_or_none(high_s),
                unseen=str(fitted).strip().lower() == "no",
            )
        )
    return result


def _errors(label: str, part: str, rows: Iterable[Case], *, ranked: bool = True) -> GroupErrors:
    pairs = [(row.measured_s, row.predicted_s) for row in rows if row.measured_s is not None]
    return GroupErrors.of(label, part, pairs, ranked=ranked)


def _table(rows: Iterable[Case], key: Callable[[Case], tuple[str, str]]) -> list[GroupErrors]:
    return [_errors(*labels, group) for labels, group in grouped(rows, key).items()]


def _unseen(core: Iterable[Case]) -> list[GroupErrors]:
    """Rows that no constant was fitted to, by source and together."""
    rows = [row for row in core if row.unseen]
    if not rows:
        return []
    whole = _errors("all of them", "", rows, ranked=False)
    return [*_table(rows, lambda row: (row.source, "")), whole]


def _worst(rows: Iterable[Case]) -> list[GroupErrors]:
    """The groups of source, accelerator and model with the largest errors, the worst first."""
    table = _table(rows, lambda row: (merged_source(row.source), f"{row.gpu} {row.model}".strip()))
    kept = [row for row in table if row.predicted >= WORST_ROWS]
    return sorted(kept, key=lambda row: -row.mape_fraction)[:WORST_GROUPS]


# ---------------------------------------------------------------------------- memory and ranking


def _fit_row(source: str, rows: Sequence[Case]) -> FitRow:
    known = [row for row in rows if row.predicted_fits is not None]
    failed = [not row.predicted_fits for row in known if row.out_of_memory]
    passed = [bool(row.predicted_fits) for row in known if not row.out_of_memory]
    recalls = [float(np.mean(part)) if part else math.nan for part in (failed, passed)]
    return FitRow(source, len(failed), recalls[0], len(passed), recalls[1], sum(recalls) / 2)


def _fits(rows: Sequence[Case]) -> list[FitRow]:
    publishing = sorted({row.source for row in rows if row.out_of_memory})
    return [_fit_row(name, [row for row in rows if row.source == name]) for name in publishing]


def _memory(rows: Sequence[Case]) -> list[MemoryRow]:
    table = []
    for source in sorted({row.source for row in rows}):
        errors = np.array(
            [
                row.predicted_gb / row.measured_gb - 1
                for row in rows
                if row.source == source and row.measured_gb and row.predicted_gb
            ]
        )
        if errors.size:
            mape, bias = float(np.abs(errors).mean()), float(np.median(errors))
            table.append(MemoryRow(source, errors.size, mape, bias))
    return table


def _sheet_row(source: str, sheet: str, rows: Sequence[Case]) -> SheetRow:
    timed = [row for row in rows if row.timed and row.predicted_s is not None]
    tau = kendall_tau_b(
        [row.predicted_s or 0.0 for row in timed], [row.measured_s or 0.0 for row in timed]
    )
    believed = sorted(
        (row for row in rows if row.predicted_fits and row.predicted_s is not None),
        key=lambda row: row.predicted_s or 0.0,
    )
    misses = 0
    regret = math.nan
    best = min((row.measured_s for row in rows if row.timed and row.measured_s), default=None)
    for row in believed:
        if row.out_of_memory:
            misses += 1
        elif row.measured_s is not None and best is not None:
            regret = row.measured_s / best - 1
            break
    return SheetRow(source, sheet, len(timed), tau, regret, misses)


def _sheets(rows: Sequence[Case]) -> list[SheetRow]:
    """One line per sheet of the sources that publish what ran out of memory."""
    publishing = {row.source for row in rows if row.out_of_memory}
    groups = grouped(
        (row for row in rows if row.source in publishing), lambda row: (row.source, row.sheet)
    )
    return [_sheet_row(*labels, group) for labels, group in groups.items()]


def score(frame: pd.DataFrame) -> Scores:
    """Compare the predictions of `validate` with the measurements beside them.

    The core rows are those that ran, are complete, of quality A or B and have a step time in
    ``norm_step_time_s``. A macro line is the unweighted mean over groups of at least five core
    rows. Memory and out-of-memory scores use every row of the sources that publish them.
    """
    rows = cases(frame)
    core = [row for row in rows if row.core]
    groups = _table(core, lambda row: (row.source, row.gpu))
    merged = _table(core, lambda row: (merged_source(row.source), row.gpu))
    mape, macro_groups = macro(groups)
    merged_mape, merged_groups = macro(merged)
    sizes = [abs(row.error_fraction) for row in core if row.error_fraction is not None]
    covered = [row.covered for row in core if row.covered is not None]
    return Scores(
        groups=groups,
        macro_mape_fraction=mape,
        macro_groups=macro_groups,
        merged=[row for row in merged if row.label not in {group.label for group in groups}],
        merged_macro_mape_fraction=merged_mape,
        merged_macro_groups=merged_groups,
        pooled=_errors("all core rows", "", core, ranked=False),
        pooled_median_fraction=float(np.median(sizes)) if sizes else math.nan,
        covered_fraction=sum(covered) / len(covered) if covered else math.nan,
        worst=_worst(core),
        kinds=_table(core, lambda row: (row.kind, "")),
        unseen=_unseen(core),
        others=_table(
            (row for row in rows if row.timed and not row.core),
            lambda row: (row.kind, merged_source(row.source)),
        ),
        fits=_fits(rows),
        memory=_memory(rows),
        sheets=_sheets(rows),
        rows=len(rows),
        rows_predicted=sum(row.predicted_s is not None for row in rows),
        core_rows=len(core),
        core_predicted=sum(row.predicted_s is not None for row in core),
        skip_reasons=skip_reasons(frame),
    )


# ------------------------------------------------------------------------------------- printing


def _summary(scores: Scores) -> list[str]:
    pooled = scores.pooled
    coverage = [
        f"{name} {share_text(part, whole)}"
        for name, part, whole in (
            ("core", scores.core_predicted, scores.core_rows),
            ("all", scores.rows_predicted, scores.rows),
        )
    ]
    return [
        f"macro MAPE {percent(scores.merged_macro_mape_fraction)} % over "
        f"{scores.merged_macro_groups} groups of >= {MACRO_ROWS} core rows "
        "(MLPerf rounds as one source)",
        f"macro MAPE {percent(scores.macro_mape_fraction)} % over {scores.macro_groups} groups "
        "(MLPerf rounds apart)",
        f"row-weighted MAPE {percent(pooled.mape_fraction)} %; pooled median "
        f"{percent(scores.pooled_median_fraction)} %, P90 {percent(pooled.p90_fraction)} %, "
        f"bias {percent(pooled.bias_fraction)} %",
        f"inside the predicted interval: {percent(scores.covered_fraction)} %",
        f"coverage: {'; '.join(coverage)}",
    ]


def _memory_lines(scores: Scores) -> list[str]:
    lines: list[str] = []
    if scores.fits:
        cells = [
            [
                row.source,
                str(row.out_of_memory),
                percent(row.out_of_memory_recall),
                str(row.ran),
                percent(row.ran_recall),
                percent(row.balanced_accuracy),
            ]
            for row in scores.fits
        ]
        titles = ("out of memory", "OOM", "recall %", "ran", "recall %", "balanced accuracy %")
        lines += ["", *columns(titles, cells, texts=1)]
    if scores.memory:
        cells = [
            [row.source, str(row.rows), percent(row.mape_fraction), percent(row.bias_fraction)]
            for row in scores.memory
        ]
        mapes = [row.mape_fraction for row in scores.memory]
        biases = [row.bias_fraction for row in scores.memory]
        total = sum(row.rows for row in scores.memory)
        macro = [percent(float(np.mean(values))) for values in (mapes, biases)]
        cells.append(["macro over sources", str(total), *macro])
        lines += ["", *columns(("memory", "n", "MAPE %", "bias %"), cells, texts=1)]
    return lines


def _sheet_lines(scores: Scores) -> list[str]:
    if not scores.sheets:
        return []
    cells = [
        [
            row.sheet or row.source,
            str(row.rows),
            plain(row.kendall_tau),
            percent(row.regret_fraction),
            str(row.misses),
        ]
        for row in scores.sheets
    ]
    return ["", *columns(("sheet", "n", "tau", "regret %", "OOM picks"), cells, texts=1)]


def _report(scores: Scores) -> list[str]:
    lines = error_lines([*scores.groups, *scores.merged], ("source", "gpu"))
    lines += ["", *_summary(scores)]
    if scores.kinds:
        lines += ["", *error_lines(scores.kinds, ("core rows by task", ""))]
    if scores.unseen:
        lines += ["", *error_lines(scores.unseen, ("core rows nothing was fitted to", ""))]
    if scores.worst:
        lines += ["", *error_lines(scores.worst, ("worst groups", "gpu, model"))]
    if scores.others:
        lines += ["", *error_lines(scores.others, ("rows outside the core", "source"))]
    lines += _memory_lines(scores)
    lines += _sheet_lines(scores)
    return lines + skip_lines(scores.skip_reasons)
