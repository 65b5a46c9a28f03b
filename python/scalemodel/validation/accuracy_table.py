"""Errors of predicted runs by source, stack and way of prediction, and the table they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.uncertainty import Situation, Uncertainty
from scalemodel.validation.errors import MACRO_ROWS, kendall_tau_b, summarised
from scalemodel.validation.fit import (
    JUDGED_COLUMNS,
    is_unseen,
    may_be_fitted,
    measured_step_time_s,
    read_runs,
)
from scalemodel.validation.left_out import predict_elsewhere, predict_left_out
from scalemodel.validation.prediction import Prediction, predict
from scalemodel.validation.residuals import (
    Measured,
    Residual,
    residuals_of,
    uncertainties_without,
    uncertainty_of,
    unit_of,
)
from scalemodel.validation.rows import Table
from scalemodel.validation.score import merged_source

if TYPE_CHECKING:
    import pandas as pd


WAYS = ("fitted", "left_out", "plain")
#: Constants that have not seen the architecture of the accelerator; a line of the totals only.
ELSEWHERE = "elsewhere"
#: Left out, inside intervals that no run of the source made; a line of the totals only.
NEW_SOURCE = "new_source"


class Scored(NamedTuple):
    """A measured row with what one way of predicting says about it."""

    source: str
    gpu: str
    precision: str
    stack: str
    """The named stack of the row, in every way of predicting it."""
    origin: str
    measured_s: float
    predicted_s: float | None
    low_s: float | None
    high_s: float | None
    situation: Situation | None = None

    @property
    def error_fraction(self) -> float | None:
        """Signed relative error."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1


@dataclass(frozen=True)
class Errors:
    """Errors of a set of rows; NaN where nothing was predicted."""

    rows: int
    predicted: int
    mape_fraction: float
    bias_fraction: float
    p90_fraction: float
    kendall_tau: float
    covered_fraction: float


def errors_of(rows: Sequence[Scored]) -> Errors:
    """Errors of a set of rows, and the share inside their intervals."""
    pairs = [(row.predicted_s, row.measured_s) for row in rows if row.predicted_s is not None]
    summary = summarised([predicted / measured - 1 for predicted, measured in pairs])
    inside = [
        row.low_s <= row.measured_s <= row.high_s
        for row in rows
        if row.low_s is not None and row.high_s is not None
    ]
    return Errors(
        rows=len(rows),
        predicted=len(pairs),
        mape_fraction=summary.mape_fraction,
        bias_fraction=summary.bias_fraction,
        p90_fraction=summary.p90_fraction,
        kendall_tau=kendall_tau_b([pair[0] for pair in pairs], [pair[1] for pair in pairs]),
        covered_fraction=sum(inside) / len(inside) if inside else math.nan,
    )


@dataclass(frozen=True)
class Accuracy:
    """Every measured row, predicted in each of the three ways, and the intervals they give."""

    rows: Mapping[str, Sequence[Scored]]
    uncertainty: Uncertainty
    total_rows: int
    unseen: Sequence[Scored] = ()
    """Rows that no constant was fitted to, by the catalogue's stacks; they are in no other set."""

    def groups(
        self, way: str, key: Callable[[Scored], tuple[str, ...]]
    ) -> dict[tuple[str, ...], list[Scored]]:
        """The rows of a way by key, keys sorted."""
        found: dict[tuple[str, ...], list[Scored]] = {}
        for row in self.rows[way]:
            found.setdefault(key(row), []).append(row)
        return {name: found[name] for name in sorted(found)}

    def macro(self, way: str, *, stacks: Iterable[str] | None = None) -> tuple[float, int]:
        """Mean error over groups (source, accelerator) of at least five rows; their number."""
        wanted = None if stacks is None else set(stacks)
        mapes = []
        for rows in self.groups(way, lambda row: (row.source, row.gpu)).values():
            if wanted is None or {row.stack for row in rows} <= wanted:
                mape = errors_of(rows).mape_fraction
                if len(rows) >= MACRO_ROWS and math.isfinite(mape):
                    mapes.append(mape)
        return (sum(mapes) / len(mapes) if mapes else math.nan), len(mapes)

    def shared_stacks(self) -> list[str]:
        """Stacks with runs from more than one source."""
        sources: dict[str, set[str]] = {}
        for row in self.rows["fitted"]:
            sources.setdefault(row.stack, set()).add(row.source)
        return sorted(name for name, found in sources.items() if name and len(found) > 1)


# ----------------------------------------------------------------------------------- measurement
class Label(NamedTuple):
    """What a table says of a row beside its question.

    ``measured_s`` is None where the row is of another set; ``group`` is its source and model, and
    ``widens`` tells that its error makes intervals though no constant is fitted to it.
    """

    source: str
    gpu: str
    precision: str
    measured_s: float | None
    group: str
    widens: bool


def _labels(table: Table, *, unseen: bool) -> list[Label]:
    """Labels of every row; those of another set than asked for have no measured time."""
    belongs = is_unseen if unseen else may_be_fitted
    columns = ("source", "gpu", "model", "precision_class", "precision", *JUDGED_COLUMNS)
    labels = []
    for row in table.select((*columns, "norm_step_time_s")):
        precision = row.text("precision_class") or row.text("precision")
        source = row.text("source") if unseen else merged_source(row.text("source"))
        measured_s = measured_step_time_s(row) if belongs(row) else None
        group = f"{row.text('source')}: {row.text('model')}"
        widens = row.text("fitted") == "interval"
        labels.append(Label(source, row.text("gpu"), precision, measured_s, group, widens))
    return labels


def _scored(
    labels: Sequence[Label],
    predictions: Sequence[Prediction],
    named: Sequence[tuple[str, str]],
    intervals: Callable[[str], Uncertainty],
    unit_of: Callable[[Prediction, str, str], str] = unit_of,
) -> list[Scored]:
    """Measured rows with their predictions; `named`: stack and origin of its constants."""
    rows = []
    for label, prediction, (stack, origin) in zip(labels, predictions, named, strict=True):
        if label.measured_s is None:
            continue
        unit = unit_of(prediction, label.source, label.group)
        low_s, high_s, _ = prediction.interval(intervals(unit))
        rows.append(
            Scored(
                label.source,
                label.gpu,
                label.precision,
                stack,
                origin,
                label.measured_s,
                prediction.step_time_s,
                low_s,
                high_s,
                prediction.situation,
            )
        )
    return rows


def _source_of(prediction: Prediction, source: str, group: str) -> str:
    """The unit of an interval that no run of the source made; a class of runs has few sources."""
    situation = prediction.situation
    return group if situation is not None and situation.evidence else source


def _residuals(labels: Sequence[Label], predictions: Sequence[Prediction]) -> list[Residual]:
    return residuals_of(
        Measured(label.source, prediction, label.measured_s, label.group)
        for label, prediction in zip(labels, predictions, strict=True)
        if label.measured_s is not None
    )


def _widening(labels: Sequence[Label]) -> list[Label]:
    """Labels of rows to which no constant is fitted, but whose errors make intervals."""
    return [
        label._replace(measured_s=label.measured_s if label.widens else None) for label in labels
    ]


def as_strange(prediction: Prediction, strange: bool = True) -> Prediction:
    """A prediction whose constants have, or have not, seen the architecture."""
    if prediction.situation is None:
        return prediction
    return replace(prediction, situation=prediction.situation._replace(strange=strange))


def refitted(fitted: pd.DataFrame) -> dict[str, _core.Stack]:
    """Stacks with the constants of `fit_stacks`."""
    return {
        str(name): resolve.stack(str(name)).replace(
            **dict(zip(rows["constant"], rows["value"].astype(float), strict=True))
        )
        for name, rows in fitted.groupby("stack")
    }


def _without_widening(
    labels: Sequence[Label], all_of_them: Uncertainty, without: Callable[[str], Uncertainty]
) -> Callable[[str], Uncertainty]:
    """The interval of a row that nothing was fitted to, made without its group if it makes any."""
    groups = {label.group for label in labels if label.widens}
    return lambda unit: without(unit) if unit in groups else all_of_them


def measure(table: Table, stacks: Mapping[str, _core.Stack] | None = None) -> Accuracy:
    """Predict every measured row of a table in the three ways.

    Parameters
    ----------
    table : Table
    stacks : mapping of str to _core.Stack, optional
        To take in place of the catalogue's where constants are fitted to these runs.

    Raises
    ------
    ScaleModelError
        The table lacks a required column, or holds no measured run.
    """
    labels = _labels(table, unseen=False)
    if not any(label.measured_s for label in labels):
        raise ScaleModelError("table: holds no measured run to score")
    runs = read_runs(table)
    left_out = predict_left_out(table, runs)
    elsewhere = predict_elsewhere(table, runs)
    plain = predict(table, stack="plain")
    fitted = predict(table, constants=stacks)
    elsewhere = [as_strange(prediction) for prediction in elsewhere]
    residuals = _residuals(labels, [as_strange(row.prediction, False) for row in left_out])
    residuals += _residuals(labels, plain)
    residuals += _residuals(labels, elsewhere)
    unseen = _labels(table, unseen=True)
    residuals += _residuals(_widening(unseen), fitted) + _residuals(_widening(unseen), plain)
    uncertainty = uncertainty_of(residuals)
    without = uncertainties_without(residuals)
    names = [prediction.stack for prediction in fitted]
    predicted = [row.prediction for row in left_out]
    origins = [row.origin for row in left_out]

    def of(one_origin: str) -> list[tuple[str, str]]:
        return [(name, one_origin) for name in names]

    return Accuracy(
        rows={
            "fitted": _scored(labels, fitted, of("own"), lambda source: uncertainty),
            "left_out": _scored(labels, predicted, list(zip(names, origins, strict=True)), without),
            "plain": _scored(labels, plain, of("plain"), without),
            NEW_SOURCE: _scored(labels, predicted, of(""), without, _source_of),
            ELSEWHERE: _scored(labels, elsewhere, of(""), without),
        },
        uncertainty=uncertainty,
        total_rows=len(table.rows),
        unseen=_scored(unseen, fitted, of("own"), _without_widening(unseen, uncertainty, without)),
    )


# ------------------------------------------------------------------------------------------ files
def _number(value: float) -> float:
    return round(value, 4)


def _errors_record(errors: Errors) -> dict[str, object]:
    """The errors without what is not a number."""
    named = {
        "mape_fraction": errors.mape_fraction,
        "bias_fraction": errors.bias_fraction,
        "p90_fraction": errors.p90_fraction,
        "kendall_tau": errors.kendall_tau,
        "covered_fraction": errors.covered_fraction,
    }
    finite = {key: _number(value) for key, value in named.items() if math.isfinite(value)}
    return {"rows": errors.rows, "predicted": errors.predicted, **finite}


def _distinct(rows: Iterable[Scored], of: Callable[[Scored], str]) -> str:
    return ", ".join(sorted({of(row) for row in rows} - {""}))


#: Classes of runs whose intervals are judged apart: the title of each, and who belongs to it.
CLASSES: tuple[tuple[str, Callable[[Situation], bool]], ...] = (
    ("dense models", lambda s: s.kind == "dense"),
    ("experts", lambda s: s.kind == "experts"),
    ("fine-tuning", lambda s: s.kind == "tuning"),
    ("16 bits", lambda s: s.precision == "16bit"),
    ("FP8", lambda s: s.precision == "fp8"),
    ("Blackwell", lambda s: s.architecture == "blackwell"),
    ("Blackwell, 16 bits", lambda s: (s.architecture, s.precision) == ("blackwell", "16bit")),
    ("AMD", lambda s: s.vendor == "AMD"),
    ("timed as published", lambda s: not s.evidence),
    ("submissions to a benchmark", lambda s: s.evidence == "submission"),
    ("models cut to a node", lambda s: s.evidence == "cut"),
    ("functional library runs", lambda s: s.evidence == "functional"),
)


def class_lines(accuracy: Accuracy) -> list[dict[str, object]]:
    """Errors and shares inside the interval of the `CLASSES` of rows.

    Of runs that constants were fitted to, by constants that have not seen the source; of all others
    by those of the catalogue, which have seen none of them.
    """
    found: list[dict[str, object]] = []
    for way, rows in (("left_out", accuracy.rows["left_out"]), ("unseen", accuracy.unseen)):
        for title, belongs in CLASSES:
            own = [row for row in rows if row.situation is not None and belongs(row.situation)]
            if len(own) >= MACRO_ROWS:
                found.append({"way": way, "class": title, **_errors_record(errors_of(own))})
    return found


def _unseen_lines(rows: Sequence[Scored]) -> list[dict[str, object]]:
    by_source: dict[str, list[Scored]] = {}
    for row in rows:
        by_source.setdefault(row.source, []).append(row)
    found = {name: by_source[name] for name in sorted(by_source)}
    if rows:
        found["all"] = list(rows)
    return [
        {
            "source": name,
            "gpus": _distinct(group, lambda row: row.gpu),
            "stacks": _distinct(group, lambda row: row.stack),
            **_errors_record(errors_of(group)),
        }
        for name, group in found.items()
    ]


def table_of(accuracy: Accuracy) -> dict[str, Any]:
    """The accuracy table as ``accuracy.toml`` holds it.

    ``groups`` has a line per way, source, accelerator and number format; ``sources`` and ``stacks``
    sum over the others; ``totals`` is row-weighted and macro (groups of at least five rows).
    ``unseen`` has a line per source that no constant was fitted to, and one of all of them,
    ``classes`` one per class of runs (`CLASSES`).
    """

    def lines(**keys: Callable[[Scored], str]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        by_way: dict[tuple[str, tuple[str, ...]], dict[str, object]] = {}
        for way in WAYS:
            grouped = accuracy.groups(way, lambda row: tuple(of(row) for of in keys.values()))
            for names, rows in grouped.items():
                if not all(names):  # rows that no stack predicts count in their source
                    continue
                label: dict[str, object] = {"way": way, **dict(zip(keys, names, strict=True))}
                if "gpu" not in keys:
                    label["gpus"] = _distinct(rows, lambda row: row.gpu)
                if "stack" not in keys:
                    label["stacks"] = _distinct(rows, lambda row: row.stack)
                label["constants"] = _distinct(rows, lambda row: row.origin)
                record = _errors_record(errors_of(rows))
                by_way[way, names] = record
                found.append({**label, **record})
        for line in found:  # what the stack of the row gains over the plain one
            names = tuple(str(line[key]) for key in keys)
            plain, own = (by_way[way, names] for way in ("plain", str(line["way"])))
            if line["way"] != "plain" and "mape_fraction" in plain and "mape_fraction" in own:
                gain = float(str(plain["mape_fraction"])) - float(str(own["mape_fraction"]))
                line["gain_fraction"] = _number(gain)
        return found

    totals: list[dict[str, object]] = []
    shared = accuracy.shared_stacks()
    for way in (*WAYS, NEW_SOURCE, ELSEWHERE):
        rows = accuracy.rows[way]
        sizes = sorted(abs(row.error_fraction) for row in rows if row.error_fraction is not None)
        macro, groups = accuracy.macro(way)
        line: dict[str, object] = {"way": way, **_errors_record(errors_of(rows))}
        line |= {"median_fraction": _number(sizes[len(sizes) // 2]) if sizes else 0.0}
        line |= {"macro_mape_fraction": _number(macro), "macro_groups": groups}
        if shared:
            of_shared, count = accuracy.macro(way, stacks=shared)
            line |= {"shared_macro_mape_fraction": _number(of_shared), "shared_groups": count}
        totals.append({key: value for key, value in line.items() if value == value})
    return {
        "totals": totals,
        "unseen": _unseen_lines(accuracy.unseen),
        "classes": class_lines(accuracy),
        "sources": lines(source=lambda row: row.source),
        "stacks": lines(stack=lambda row: row.stack),
        "groups": lines(
            source=lambda row: row.source,
            gpu=lambda row: row.gpu,
            precision=lambda row: row.precision,
        ),
    }
