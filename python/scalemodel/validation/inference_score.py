"""Errors of predicted serving runs: per group, macro, pooled; rates, first tokens and gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from scalemodel.serving.uncertainty import ServingSituation
from scalemodel.validation.errors import (
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
from scalemodel.validation.inference import model_of
from scalemodel.validation.operators.score import short_source
from scalemodel.validation.rows import SkippedRowError
from scalemodel.validation.serving_intervals import (
    ServedResidual,
    coverage,
    coverage_without,
)

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


#: Measured columns by the quantity that intervals are made for.
_QUANTITIES = {
    "output_tokens_s": "rate",
    "tokens_per_s": "rate",
    "ttft_ms": "ttft",
    "tpot_ms": "tpot",
    "median_itl_ms": "tpot",
}
_LABELS = ("source", "gpu", "model", "scenario", "qps_target", "task")
#: A rate of this share of what the requests ask for is theirs, and says nothing of a limit.
_KEEPS_UP = 0.95


class Run(NamedTuple):
    """One measured run."""

    source: str
    gpu: str
    model: str
    situation: str  # offline, online, at once; the kind of requests in the power schema
    pairs: tuple[tuple[float | None, float | None], ...]  # measured, predicted
    compared: tuple[str, ...] = ()  # load, kind, architecture and engine, of a predicted run
    asked: float = math.inf  # output tokens per second that requests at a finite rate ask for

    def keeps_up(self, column: str, measured: float, own: float) -> bool:
        """Whether a rate is that of the requests alone, as measured and as predicted."""
        rate = _QUANTITIES[column] == "rate"
        return rate and min(measured, own) >= _KEEPS_UP * self.asked


@dataclass(frozen=True)
class RunErrors(GroupErrors):
    """Errors of one quantity in a group of runs."""

    quantity: str


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
    inside: dict[str, tuple[int, int]]
    inside_without: dict[str, tuple[int, int]]

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


def _architecture(name: str) -> str:
    try:
        return model_of(name)
    except SkippedRowError:
        return name


def _situation(scenario: str, rate: str) -> str:
    if not rate and not scenario.lower().startswith("online"):
        return "offline"
    return "at once" if positive(rate) is None else "online"


def _runs(frame: pd.DataFrame, wanted: Sequence[tuple[str, str]]) -> list[Run]:
    power = wanted is _POWER
    labels = zip(
        *(
            cells_of(frame, name)
            for name in (*_LABELS, "osl", "predicted_situation", "predicted_engine")
        ),
        strict=True,
    )
    pairs = [list(zip(cells_of(frame, a), cells_of(frame, b), strict=True)) for a, b in wanted]
    found = []
    for place, cells in enumerate(labels):
        source, gpu, model, scenario, rate, task, output, compared, engine = cells
        numbers = tuple((positive(each[place][0]), positive(each[place][1])) for each in pairs)
        if numbers[0][0] is None:
            continue
        situation = str(task) if power else _situation(str(scenario), str(rate))
        origin = short_source(str(source)).split(" ")[0]
        alike = tuple(str(compared).split()) if isinstance(compared, str) else ()
        alike = (*alike, str(engine)) if alike else ()
        asked = math.inf
        if situation == "online":
            asked = (positive(rate) or math.inf) * (positive(output) or math.inf)
        names = (origin, str(gpu), _architecture(str(model)))
        found.append(Run(*names, situation, numbers, alike, asked))
    return found


def residuals(frame: pd.DataFrame) -> list[ServedResidual]:
    """What was measured over what was predicted, by the quantities that intervals are made for.

    Rates at which requests come, as measured and as predicted, are left out: any limit allows them.
    """
    return [
        ServedResidual(
            (run.gpu, run.model),
            ServingSituation(*run.compared),
            quantity,
            math.log(measured / own),
        )
        for runs, wanted in _schemas(frame)
        for run in runs
        for (column, _), (measured, own) in zip(wanted, run.pairs, strict=True)
        if (quantity := _QUANTITIES.get(column)) and run.compared and measured and own
        if not run.keeps_up(column, measured, own)
    ]


def _schemas(frame: pd.DataFrame) -> list[tuple[list[Run], Sequence[tuple[str, str]]]]:
    """Runs by schema: a table has one, the package's tables may follow one another."""
    if "avg_batch" not in frame.columns:
        return [(_runs(frame, _RATES), _RATES)]
    metered = frame["avg_batch"].astype(str) != ""
    if metered.all() or "output_tokens_s" not in frame.columns:
        return [(_runs(frame, _POWER), _POWER)]
    return [(_runs(frame[~metered], _RATES), _RATES), (_runs(frame[metered], _POWER), _POWER)]


def _errors(label: str, part: str, quantity: str, place: int, runs: Iterable[Run]) -> RunErrors:
    pairs = [run.pairs[place] for run in runs]
    errors = GroupErrors.of(label, part, [(m, p) for m, p in pairs if m is not None])
    return RunErrors(**asdict(errors), quantity=quantity)


def _table(
    runs: Iterable[Run], key: Callable[[Run], tuple[str, str]], quantity: str, place: int = 0
) -> list[RunErrors]:
    return [
        _errors(*labels, quantity, place, group) for labels, group in grouped(runs, key).items()
    ]


def score(frame: pd.DataFrame) -> InferenceScores:
    """Compare the predictions of `validate` with the runs beside them.

    Rows with a positive rate of output tokens count. Groups are (source, gpu) and (gpu, model),
    names of one architecture merged; a macro line is the unweighted mean over groups of at least
    five rows. Times are scored by situation: offline, online at a finite rate, all at once.
    """
    schemas = _schemas(frame)
    runs = [run for found, _ in schemas for run in found]
    rate = schemas[0][1][0][0]
    groups = _table(runs, lambda run: (run.source, run.gpu), rate)
    parts = _table(runs, lambda run: (run.gpu, run.model), rate)
    situations = [
        row
        for found, wanted in schemas
        for place, (quantity, _) in enumerate(wanted)
        for row in _table(found, lambda run: (run.situation, run.gpu), quantity, place)
        if row.rows
    ]
    reasons = skip_reasons(frame)
    mape, macro_groups = macro(groups)
    found_residuals = residuals(frame)
    by_model, model_groups = macro(parts)
    return InferenceScores(
        groups=groups,
        parts=parts,
        models=_table(runs, lambda run: (run.model, ""), rate),
        situations=situations,
        pooled=_errors("all rows", "", rate, 0, runs),
        macro_mape_fraction=mape,
        macro_groups=macro_groups,
        macro_model_mape_fraction=by_model,
        macro_model_groups=model_groups,
        rows=len(frame),
        rows_predicted=len(frame) - sum(reasons.values()),
        skip_reasons=reasons,
        inside={" ".join(key): count for key, count in coverage(found_residuals).items()},
        inside_without=_without(found_residuals),
    )


def _without(found: list[ServedResidual]) -> dict[str, tuple[int, int]]:
    """Coverage with the accelerator, and with the engine, of the runs left out."""
    named = {
        "accelerator": coverage_without(found, lambda run: run.group[0]),
        "engine": coverage_without(found, lambda run: run.situation.engine),
    }
    return {
        f"{name}, {quantity}": counts
        for name, by_quantity in named.items()
        for quantity, counts in by_quantity.items()
    }


def _lines(rows: Sequence[RunErrors], titles: tuple[str, str]) -> list[str]:
    named = [replace(row, part=f"{row.part} {row.quantity}".strip()) for row in rows]
    return error_lines(named, (titles[0], f"{titles[1]} quantity".strip()))


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
    for name, (inside, rows) in scores.inside.items():
        lines.append(
            f"inside the 80 % interval of other groups, {name}: {share_text(inside, rows)}"
        )
    for name, (inside, rows) in scores.inside_without.items():
        lines.append(f"inside the 80 % interval without the {name}: {share_text(inside, rows)}")
    lines.append(f"coverage: {share_text(scores.rows_predicted, scores.rows)}")
    return lines + skip_lines(scores.skip_reasons)
