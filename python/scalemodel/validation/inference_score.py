"""Errors of predicted serving runs: per group, macro, pooled; rates, first tokens and gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from scalemodel.validation.errors import (
    MACRO_ROWS,
    columns,
    kendall_tau_b,
    percent,
    plain,
    summarised,
    without_nan,
)
from scalemodel.validation.inference import model_of
from scalemodel.validation.operators.score import short_source
from scalemodel.validation.rows import SkippedRowError, number_in

if TYPE_CHECKING:
    import pandas as pd

#: Measured column and its prediction, by schema; the first pair decides what counts as a row.
_RATES = (
    ("output_tokens_s", "predicted_output_tokens_s"),
    ("ttft_ms", "predicted_ttft_ms"),
    ("tpot_ms", "predicted_tpot_ms"),
)
_POWER = (
    ("tokens_per_s", "predicted_output_tokens_s"),
    ("median_itl_ms", "predicted_itl_ms"),
    ("J_per_token", "predicted_j_per_token"),
)


class Run(NamedTuple):
    """One measured run."""

    source: str
    gpu: str
    model: str
    situation: str  # offline, online, at once; the kind of requests in the power schema
    pairs: tuple[tuple[float | None, float | None], ...]  # measured, predicted


@dataclass(frozen=True)
class RunErrors:
    """Errors of one quantity in a group of runs; fractions, NaN where nothing was predicted."""

    label: str
    part: str
    quantity: str
    rows: int
    predicted: int
    skipped: int
    mape_fraction: float
    bias_fraction: float
    mean_error_fraction: float
    p90_fraction: float
    kendall_tau: float


@dataclass(frozen=True)
class InferenceScores:
    """All scores of a validated table of serving runs; `text` prints them."""

    groups: list[RunErrors]
    parts: list[RunErrors]
    models: list[RunErrors]
    situations: list[RunErrors]
    pooled: RunErrors
    macro_mape_fraction: float
    macro_groups: int
    macro_model_mape_fraction: float
    macro_model_groups: int
    rows: int
    rows_predicted: int
    skip_reasons: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        return {name: without_nan(value) for name, value in asdict(self).items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of errors by name, all with the same columns."""
        document = self.to_dict()
        found = {name: document[name] for name in ("groups", "parts", "models", "situations")}
        return {**found, "pooled": [document["pooled"]]}

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        return "\n".join(_report(self))


def _number(value: object) -> float | None:
    found = number_in(value) if isinstance(value, str) else value
    usable = isinstance(found, (int, float)) and math.isfinite(found) and found > 0
    return float(found) if usable and isinstance(found, (int, float)) else None


def _architecture(name: str) -> str:
    try:
        return model_of(name)
    except SkippedRowError:
        return name


def _situation(scenario: str, rate: str) -> str:
    if not rate and not scenario.lower().startswith("online"):
        return "offline"
    return "at once" if _number(rate) is None else "online"


def _runs(frame: pd.DataFrame) -> tuple[list[Run], tuple[tuple[str, str], ...]]:
    def column(name: str) -> list[Any]:
        if name not in frame.columns:
            return [""] * len(frame)
        return ["" if item != item else item for item in frame[name].astype(object).tolist()]

    power = "avg_batch" in frame.columns
    wanted = _POWER if power else _RATES
    labels = zip(
        *(column(name) for name in ("source", "gpu", "model", "scenario", "qps_target", "task")),
        strict=True,
    )
    pairs = [list(zip(column(a), column(b), strict=True)) for a, b in wanted]
    found = []
    for place, (source, gpu, model, scenario, rate, task) in enumerate(labels):
        numbers = tuple((_number(each[place][0]), _number(each[place][1])) for each in pairs)
        if numbers[0][0] is None:
            continue
        situation = str(task) if power else _situation(str(scenario), str(rate))
        origin = short_source(str(source)).split(" ")[0]
        found.append(Run(origin, str(gpu), _architecture(str(model)), situation, numbers))
    return found, wanted


def _errors(label: str, part: str, quantity: str, place: int, runs: Sequence[Run]) -> RunErrors:
    measured = [run for run in runs if run.pairs[place][0] is not None]
    pairs = [(m, p) for run in measured for m, p in [run.pairs[place]] if m and p]
    return RunErrors(
        label=label,
        part=part,
        quantity=quantity,
        rows=len(measured),
        predicted=len(pairs),
        skipped=len(measured) - len(pairs),
        kendall_tau=kendall_tau_b([p for _, p in pairs], [m for m, _ in pairs]),
        **summarised([p / m - 1 for m, p in pairs])._asdict(),
    )


def _table(
    runs: Iterable[Run], key: Callable[[Run], tuple[str, str]], quantity: str, place: int = 0
) -> list[RunErrors]:
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return [_errors(*labels, quantity, place, groups[labels]) for labels in sorted(groups)]


def _macro(groups: Sequence[RunErrors]) -> tuple[float, int]:
    kept = [row.mape_fraction for row in groups if row.rows >= MACRO_ROWS and row.predicted]
    return (sum(kept) / len(kept) if kept else math.nan), len(kept)


def score(frame: pd.DataFrame) -> InferenceScores:
    """Compare the predictions of `validate` with the runs beside them.

    Rows with a positive rate of output tokens count. Groups are (source, gpu) and (gpu, model),
    names of one architecture merged; a macro line is the unweighted mean over groups of at least
    five rows. Times are scored by situation: offline, online at a finite rate, all at once.
    """
    runs, wanted = _runs(frame)
    rate = wanted[0][0]
    groups = _table(runs, lambda run: (run.source, run.gpu), rate)
    parts = _table(runs, lambda run: (run.gpu, run.model), rate)
    situations = [
        row
        for place, (quantity, _) in enumerate(wanted)
        for row in _table(runs, lambda run: (run.situation, run.gpu), quantity, place)
        if row.rows
    ]
    reasons: dict[str, int] = {}
    for reason in frame["skip_reason"].astype(object).tolist():
        if isinstance(reason, str) and reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    macro, macro_groups = _macro(groups)
    by_model, model_groups = _macro(parts)
    return InferenceScores(
        groups=groups,
        parts=parts,
        models=_table(runs, lambda run: (run.model, ""), rate),
        situations=situations,
        pooled=_errors("all rows", "", rate, 0, runs),
        macro_mape_fraction=macro,
        macro_groups=macro_groups,
        macro_model_mape_fraction=by_model,
        macro_model_groups=model_groups,
        rows=len(frame),
        rows_predicted=len(frame) - sum(reasons.values()),
        skip_reasons=reasons,
    )


def _lines(rows: Sequence[RunErrors], titles: tuple[str, str]) -> list[str]:
    header = (*titles, "quantity", "n", "predicted", "MAPE", "bias", "P90", "tau")
    cells = [
        (
            row.label,
            row.part,
            row.quantity,
            str(row.rows),
            str(row.predicted),
            percent(row.mape_fraction),
            percent(row.bias_fraction),
            percent(row.p90_fraction),
            plain(row.kendall_tau),
        )
        for row in rows
    ]
    return columns(header, cells, 3)


def _report(scores: InferenceScores) -> list[str]:
    lines = ["Errors in percent of the measurement.", ""]
    lines += _lines(scores.groups, ("source", "gpu"))
    lines += ["", *_lines(scores.parts, ("gpu", "model"))]
    lines += ["", *_lines(scores.models, ("model", ""))]
    lines += ["", *_lines(scores.situations, ("situation", "gpu")), ""]
    lines.append(
        f"macro (source, gpu): {percent(scores.macro_mape_fraction)} over {scores.macro_groups} "
        f"groups; macro (gpu, model): {percent(scores.macro_model_mape_fraction)} over "
        f"{scores.macro_model_groups} groups"
    )
    pooled = scores.pooled
    lines.append(
        f"pooled: MAPE {percent(pooled.mape_fraction)}, bias {percent(pooled.bias_fraction)}, "
        f"P90 {percent(pooled.p90_fraction)}"
    )
    lines.append(f"coverage: {scores.rows_predicted} of {scores.rows} rows")
    for reason, count in sorted(scores.skip_reasons.items()):
        lines.append(f"  skipped {count}: {reason}")
    return lines
