"""Tables of measured kernels and collectives: columns, and a prediction for every row."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from typing import Protocol, cast

from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.rows import Row, Table, require_columns

#: Kernels that are predicted by what they work on: one module for all of them.
WORK_KINDS = (
    "linear_attention",
    "mamba2",
    "sparse_attention",
    "msa",
    "mhc",
    "moe_fused_a2a",
    "encoder_attention",
)
#: Kinds of which the package carries measurements.
OPERATOR_KINDS = ("gemm", "attention", "moe", "elementwise", "collectives")
OUTPUT_COLUMNS = ("predicted_time_us", "predicted_note", "skip_reason")

# What was measured, and labels that name a row or a machine: never an input of a prediction.
# `source` stays readable, because engine and version of a kernel stand nowhere else.
UNREADABLE_COLUMNS = (
    "time_us",
    "time_min_us",
    "time_max_us",
    "algbw_GBps",
    "busbw_GBps",
    "bw_GBps",
    "row_id",
    "source_path",
    "source_table",
    "system",
    "split",
    *OUTPUT_COLUMNS,
)


class RowPredictor(Protocol):
    """What the module of a kind offers."""

    REQUIRED: tuple[str, ...]

    def predict(self, rows: Sequence[Row]) -> list[OperatorPrediction]:
        """One prediction per row, in order; nothing in a row raises."""


def available_kinds() -> tuple[str, ...]:
    """Kinds of operators whose rows can be predicted."""
    package = "scalemodel.validation.operators"
    known = tuple(kind for kind in OPERATOR_KINDS if importlib.util.find_spec(f"{package}.{kind}"))
    return (*known, *WORK_KINDS)


def predictor_of(kind: str) -> RowPredictor:
    """The module that predicts rows of `kind`."""
    package = "scalemodel.validation.operators"
    if kind in WORK_KINDS:
        return cast(RowPredictor, importlib.import_module(f"{package}.mixers").Predictor(kind))
    return cast(RowPredictor, importlib.import_module(f"{package}.{kind}"))


def required_columns(predictor: RowPredictor, header: Sequence[str]) -> tuple[str, ...]:
    """Columns every row needs: a kind of several schemas judges by the header."""
    judge = getattr(predictor, "required_columns", None)
    return tuple(judge(tuple(header))) if judge is not None else tuple(predictor.REQUIRED)


def _checked(prediction: OperatorPrediction) -> OperatorPrediction:
    """The prediction with exactly one of a finite positive time and a skip reason."""
    time_us = prediction.time_us
    if time_us is None:
        return prediction._replace(skip_reason=prediction.skip_reason or "illegal:time")
    if not math.isfinite(time_us) or time_us <= 0:
        return OperatorPrediction(None, "illegal:time", prediction.note)
    return prediction._replace(time_us=float(time_us), skip_reason="")


def predict(
    kind: str, table: Table, *, predictor: RowPredictor | None = None
) -> list[OperatorPrediction]:
    """One prediction per row of a table, in order.

    Raises
    ------
    ScaleModelError : the table lacks a required column; the message names it.
    """
    predictor = predictor_of(kind) if predictor is None else predictor
    needed = required_columns(predictor, table.header)
    require_columns(table, needed, f"kind {kind!r} needs {', '.join(needed)}")
    readable = [name for name in table.header if name not in UNREADABLE_COLUMNS]
    rows = table.select(readable)
    predictions = predictor.predict(rows)
    if len(predictions) != len(rows):
        raise RuntimeError(f"kind {kind!r}: {len(predictions)} predictions of {len(rows)} rows")
    return [_checked(prediction) for prediction in predictions]
