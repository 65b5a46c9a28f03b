"""Predictions beside measurements, and the errors between them."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.validation.operators.score import OperatorScores
from scalemodel.validation.operators.score import score as _score_operators
from scalemodel.validation.operators.table import OPERATOR_KINDS, WORK_KINDS, available_kinds
from scalemodel.validation.power_score import PowerScores
from scalemodel.validation.published import published_tables
from scalemodel.validation.rows import Table, cell_text, number_in, read_table
from scalemodel.validation.score import Scores, score

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.validation.inference_score import InferenceScores
    from scalemodel.validation.prediction import Bounds, Prediction
    from scalemodel.validation.recompute_score import RecomputeScores
    from scalemodel.validation.seconds_score import SecondsScores

__all__ = [
    "KINDS",
    "OperatorScores",
    "PowerScores",
    "Scores",
    "score",
    "scores_of",
    "validate",
    "write_csv",
]

_EXCHANGES = ("moe_a2a", "kv_transfer")
_RUNS = ("training", "recompute", "rl", "inference", "wide_ep", "composed", "power", *_EXCHANGES)
KINDS = (*_RUNS, *OPERATOR_KINDS, *WORK_KINDS)


def _check_kind(kind: str) -> None:
    known = (*_RUNS, *available_kinds())
    if kind in known:
        return
    available = f"available: {', '.join(known)}"
    if kind in KINDS:
        raise ScaleModelError(
            f"kind {kind!r} is not available yet; {available}", code="unavailable_kind"
        )
    raise ScaleModelError(
        f"kind={kind!r} is not a kind of measurement; {available}", code="unknown_kind"
    )


@named_arguments
def validate(
    kind: str,
    path: str | os.PathLike[str] | None = None,
    *,
    stack: str | None = None,
    left_out: bool = False,
) -> pd.DataFrame:
    """Predict every row of a table of measurements.

    Parameters
    ----------
    kind : str
        What a row is: ``"training"`` a step of a training run; ``"inference"`` a serving run;
        ``"wide_ep"`` a pool of prefill or decode with wide expert parallelism;
        ``"composed"`` a training step or a whole generation of an image or video model;
        ``"recompute"`` training runs that differ in what is recomputed or offloaded;
        ``"rl"`` a step of reinforcement learning;
        ``"gemm"``, ``"attention"``, ``"moe"``, ``"elementwise"``, ``"linear_attention"``,
        ``"mamba2"``, ``"sparse_attention"``, ``"msa"``, ``"mhc"``, ``"moe_fused_a2a"``,
        ``"encoder_attention"`` a kernel; ``"collectives"`` a collective operation; ``"power"`` the
        watts of a node that trains or of an accelerator that serves; ``"moe_a2a"`` one exchange
        of tokens with their experts; ``"kv_transfer"`` the move of a KV cache.
    path : path, optional
        CSV file (UTF-8, comma, quoted). Without it, the published measurements that the package
        carries (`scalemodel.validation.published`). Where these have tables of different columns,
        their rows follow one another, and a row is blank in what only the others have.
    stack : str, optional
        Software stack of every row of kind training, engine of every row of kind inference.
        Without it, each row's own framework, task and year, or its engine, decide.
    left_out : bool
        Predict every training run by constants fitted to the other sources of the same table, and
        its interval by their residuals: how far a run of a new source would be off. Needs the
        column ``source`` and measured times; see `scalemodel.validation.left_out`. Exchanges and
        transfers are predicted by constants that have not seen their system; see
        `scalemodel.validation.exchange_left_out`.

    Returns
    -------
    DataFrame, one row per row of the file, in its order
        All columns of the file as text, unchanged, then ``predicted_step_time_s`` (seconds per
        optimizer step), ``predicted_memory_gb`` (at the peak of the fullest accelerator, live
        tensors, in GiB, unless the stack's log prints something else or in 10^9 bytes),
        ``predicted_fits``,
        ``predicted_low`` and ``predicted_high`` (seconds between which four of five measured
        steps lie), ``predicted_extrapolates`` (in what the row is unlike any measured one),
        ``predicted_stack``, ``predicted_note`` (assumptions made for missing cells) and
        ``skip_reason``, which is empty exactly when
        the row is predicted. Serving runs have ``predicted_output_tokens_s`` (of the whole
        instance), ``predicted_ttft_ms``, ``predicted_tpot_ms`` (means), ``predicted_itl_ms``
        (median of a step), ``predicted_batch`` (mean sequences running), ``predicted_engine``,
        ``predicted_note`` and ``skip_reason``; tables with the mean batch (`avg_batch`) also the
        watts of an accelerator and joules per output token. Deployments with wide expert
        parallelism have ``predicted_tokens_per_s_gpu`` (input tokens of prefill, with those found
        in a cache; output tokens of all else), ``predicted_itl_ms`` (mean between tokens),
        ``predicted_ttft_s`` (of full passes), ``predicted_relative_change_pct`` (over what the row
        is relative to), ``predicted_utilisation_fraction`` (of a row that is a load, a mean over a
        day), ``predicted_note`` and ``skip_reason``. Kernels and collectives have
        ``predicted_time_us`` (one call, as the benchmark of the table saw it),
        ``predicted_note`` and ``skip_reason``. Composed models have ``predicted_step_time_s`` where
        they train, ``predicted_latency_s`` (of a generation) where they serve,
        ``predicted_samples_per_s``, ``predicted_note`` and ``skip_reason``. Recomputation has
        ``predicted_step_time_s``, ``predicted_memory_gb`` (as of training), and the changes against
        the first row of a group: ``predicted_memory_change_gb``,
        ``predicted_memory_change_pct`` and ``predicted_time_change_pct``, ``predicted_note`` and
        ``skip_reason``. Steps of reinforcement learning have ``predicted_step_time_s``,
        ``predicted_rollout_s``, ``predicted_logprob_s``, ``predicted_reference_s``,
        ``predicted_train_s`` and ``predicted_refit_s``, ``predicted_note`` and ``skip_reason``.
        Exchanges and
        transfers have ``predicted_latency_us`` (one call), ``predicted_bandwidth_GB_s`` (as the
        row's source counts bytes), ``predicted_note`` and ``skip_reason``. Power has
        ``predicted_power_w_per_gpu`` (mean of one accelerator), ``predicted_node_power_w`` (at the
        plugs of the node; nodes that train), ``predicted_note`` and ``skip_reason``. Columns of
        these names in the file are replaced.

    Raises
    ------
    ScaleModelError
        The kind or the stack is unknown, the file cannot be read, or it lacks a required column.
        Nothing in a row raises.

    Examples
    --------
    >>> import scalemodel as sm
    >>> runs = sm.validate("training")
    >>> bool((runs["predicted_low"] < runs["predicted_high"]).any())
    True
    """
    _check_kind(kind)
    _check_options(kind, stack, left_out)
    tables = published_tables(kind) if path is None else (read_table(path),)
    return _joined([_validated(kind, table, stack, left_out) for table in tables])


def _check_options(kind: str, stack: str | None, left_out: bool) -> None:
    if type(left_out).__name__ not in ("bool", "bool_"):
        raise ScaleModelError(f"left_out={left_out!r}: must be True or False")
    if kind == "inference" and left_out:
        raise ScaleModelError(
            "left_out=True: kind 'inference' has no fit to leave sources out of",
            code="unused_argument",
        )
    if kind not in ("training", "inference"):
        if stack is not None:
            raise ScaleModelError(
                f"stack={stack!r}: kind {kind!r} has none, its rows name their software",
                code="unused_argument",
            )
        if left_out and kind not in _EXCHANGES:
            raise ScaleModelError(
                f"left_out=True: constants of kind {kind!r} belong to accelerators and kernels",
                code="unused_argument",
            )
    if left_out and stack is not None:
        raise ScaleModelError(
            f"stack={stack!r}, left_out=True: give one of the two; left out, each row keeps its own"
        )


def _validated(kind: str, table: Table, stack: str | None, left_out: bool) -> pd.DataFrame:
    if kind == "training":
        return _training(table, stack, left_out=left_out)
    if kind == "inference":
        return _inference(table, stack)
    if kind == "composed":
        return _composed(table)
    if kind == "recompute":
        return _recomputed(table)
    if kind == "rl":
        return _rl(table)
    if kind == "wide_ep":
        return _wide_ep(table)
    if kind in _EXCHANGES:
        return _exchanged(kind, table, left_out=left_out)
    return _power(table) if kind == "power" else _operators(kind, table)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Rows of all frames: columns of the tables, then what was predicted, the reasons last."""
    if len(frames) == 1:
        return frames[0]
    import pandas as pd

    names = dict.fromkeys(name for frame in frames for name in frame.columns)
    predicted = [name for name in names if name.startswith("predicted_")]
    given = [name for name in names if name not in predicted and name != "skip_reason"]
    whole = pd.concat(frames, ignore_index=True)[[*given, *predicted, "skip_reason"]]
    texts = [name for name in whole.columns if whole[name].dtype == object]
    whole[texts] = whole[texts].fillna("")
    return whole


def _beside(table: Table, columns: Mapping[str, tuple[Sequence[Any], str]]) -> pd.DataFrame:
    """The table as text with columns of a type each behind its own."""
    import pandas as pd

    frame = pd.DataFrame(table.rows, columns=list(table.header), dtype=object)
    for name, (values, dtype) in columns.items():
        frame[name] = pd.Series(values, dtype=dtype)
    return frame


def _operators(kind: str, table: Table) -> pd.DataFrame:
    from scalemodel.validation.operators import table as operators

    table = table.without(operators.OUTPUT_COLUMNS)
    predictions = operators.predict(kind, table)
    columns: dict[str, tuple[list[Any], str]] = {
        "predicted_time_us": ([item.time_us for item in predictions], "float64"),
        "predicted_note": ([item.note for item in predictions], "object"),
        "skip_reason": ([item.skip_reason for item in predictions], "object"),
    }
    return _beside(table, columns)


def _named_columns(
    predictions: Sequence[Any], names: Sequence[str]
) -> dict[str, tuple[list[Any], str]]:
    """Columns of predictions whose fields are called like them, without ``predicted_``."""
    return {
        name: (
            [getattr(item, name.removeprefix("predicted_")) for item in predictions],
            "object" if name in ("predicted_note", "skip_reason") else "float64",
        )
        for name in names
    }


def _composed(table: Table) -> pd.DataFrame:
    from scalemodel.validation import diffusion

    table = table.without(diffusion.OUTPUT_COLUMNS)
    return _beside(table, _named_columns(diffusion.predict(table), diffusion.OUTPUT_COLUMNS))


def _recomputed(table: Table) -> pd.DataFrame:
    from scalemodel.validation import recompute

    table = table.without(recompute.OUTPUT_COLUMNS)
    return _beside(table, _named_columns(recompute.predict(table), recompute.OUTPUT_COLUMNS))


def _rl(table: Table) -> pd.DataFrame:
    from scalemodel.validation import rl

    table = table.without(rl.OUTPUT_COLUMNS)
    return _beside(table, _named_columns(rl.predict(table), rl.OUTPUT_COLUMNS))


def _wide_ep(table: Table) -> pd.DataFrame:
    from scalemodel.validation import wide_ep

    table = table.without(wide_ep.OUTPUT_COLUMNS)
    return _beside(table, _named_columns(wide_ep.predict(table), wide_ep.OUTPUT_COLUMNS))


def _exchanged(kind: str, table: Table, *, left_out: bool) -> pd.DataFrame:
    from scalemodel.validation import exchange, exchange_left_out

    table = table.without(exchange.OUTPUT_COLUMNS)
    predictions = (exchange_left_out if left_out else exchange).predict(kind, table)
    columns: dict[str, tuple[list[Any], str]] = {
        "predicted_latency_us": ([item.latency_us for item in predictions], "float64"),
        "predicted_bandwidth_GB_s": ([item.bandwidth_gb_s for item in predictions], "float64"),
        "predicted_note": ([item.note for item in predictions], "object"),
        "skip_reason": ([item.skip_reason for item in predictions], "object"),
    }
    return _beside(table, columns)


def _power(table: Table) -> pd.DataFrame:
    from scalemodel.validation import power

    table = table.without(power.OUTPUT_COLUMNS)
    predictions = power.predict(table)
    columns: dict[str, tuple[list[Any], str]] = {
        "predicted_power_w_per_gpu": ([item.accelerator_w for item in predictions], "float64"),
        "predicted_node_power_w": ([item.node_w for item in predictions], "float64"),
        "predicted_note": ([item.note for item in predictions], "object"),
        "skip_reason": ([item.skip_reason for item in predictions], "object"),
    }
    return _beside(table, columns)


def _inference(table: Table, engine: str | None) -> pd.DataFrame:
    import pandas as pd

    from scalemodel.validation import inference, power

    table = table.without((*inference.OUTPUT_COLUMNS, *inference.POWER_OUTPUTS))
    predictions = inference.predict(table, engine=engine)
    texts = ("_engine", "_note", "_situation", "skip_reason")
    columns: dict[str, tuple[list[Any], str]] = {
        name: (
            [getattr(item, name.removeprefix("predicted_")) for item in predictions],
            "object" if name.endswith(texts) else "float64",
        )
        for name in inference.OUTPUT_COLUMNS
    }
    frame = _beside(table, columns)
    if "avg_batch" not in table.header:
        return frame
    watts = pd.Series([item.accelerator_w for item in power.predict(table)], dtype="float64")
    accelerators = pd.Series(
        [number_in(cell) for cell in table.column("num_gpus")], dtype="float64"
    )
    joules = watts * accelerators / frame["predicted_output_tokens_s"]
    skipped = frame["predicted_output_tokens_s"].isna()
    frame.insert(len(table.header), "predicted_power_w_per_gpu", watts.mask(skipped))
    frame.insert(len(table.header) + 1, "predicted_j_per_token", joules)
    # The rate stays the first of the predicted columns: it decides whether a row was predicted.
    rate = frame.pop("predicted_output_tokens_s")
    frame.insert(len(table.header), "predicted_output_tokens_s", rate)
    return frame


def scores_of(
    kind: str, frame: pd.DataFrame
) -> Scores | OperatorScores | PowerScores | InferenceScores | SecondsScores | RecomputeScores:
    """Errors of a table that `validate` returned, in the form that suits its kind."""
    if kind == "power":
        from scalemodel.validation.power_score import score as score_power

        return score_power(frame)
    if kind == "recompute":
        from scalemodel.validation import recompute_score

        return recompute_score.score(frame)
    if kind == "rl":
        from scalemodel.validation.seconds_score import phases

        return phases(frame)
    if kind in ("composed", "wide_ep", *_EXCHANGES):
        from scalemodel.validation import seconds_score

        scorers = {"composed": seconds_score.score, "wide_ep": seconds_score.rates}
        return scorers.get(kind, seconds_score.exchanges)(frame)
    if kind == "inference":
        from scalemodel.validation.inference_score import score as score_inference

        return score_inference(frame)
    return _score_operators(kind, frame) if kind in (*OPERATOR_KINDS, *WORK_KINDS) else score(frame)


def _left_out(table: Table) -> tuple[list[Prediction], list[Bounds]]:
    """Predictions and intervals by constants and residuals of the other sources."""
    from scalemodel.validation import fit
    from scalemodel.validation.left_out import predict_left_out
    from scalemodel.validation.residuals import (
        Measured,
        residuals_of,
        uncertainties_without,
        unit_of,
    )

    rows = predict_left_out(table)
    groups = [
        f"{row.source}: {model}" for row, model in zip(rows, table.column("model"), strict=True)
    ]
    columns = (*fit.JUDGED_COLUMNS, "norm_step_time_s")
    measured = [
        fit.measured_step_time_s(row) if fit.may_be_fitted(row) else None
        for row in table.select(columns)
    ]
    uncertainty = uncertainties_without(
        residuals_of(
            Measured(row.source, row.prediction, measured_s, group)
            for row, measured_s, group in zip(rows, measured, groups, strict=True)
            if measured_s is not None
        )
    )
    return (
        [row.prediction for row in rows],
        [
            row.prediction.interval(uncertainty(unit_of(row.prediction, row.source, group)))
            for row, group in zip(rows, groups, strict=True)
        ],
    )


def _training(table: Table, stack: str | None, *, left_out: bool) -> pd.DataFrame:
    from scalemodel import catalog
    from scalemodel.estimator.uncertainty import embedded
    from scalemodel.validation import prediction

    table = table.without(prediction.OUTPUT_COLUMNS)
    if left_out:
        predictions, intervals = _left_out(table)
    else:
        chosen = None if stack is None else catalog.find("stacks", stack)
        predictions = prediction.predict(table, stack=chosen)
        intervals = [item.interval(embedded()) for item in predictions]
    columns: dict[str, tuple[list[Any], str]] = {
        "predicted_step_time_s": ([item.step_time_s for item in predictions], "float64"),
        "predicted_memory_gb": ([item.memory_gb for item in predictions], "float64"),
        "predicted_fits": ([item.fits for item in predictions], "boolean"),
        "predicted_low": ([low_s for low_s, _, _ in intervals], "float64"),
        "predicted_high": ([high_s for _, high_s, _ in intervals], "float64"),
        "predicted_extrapolates": ([reasons for _, _, reasons in intervals], "object"),
        "predicted_stack": ([item.stack for item in predictions], "object"),
        "predicted_note": ([item.note for item in predictions], "object"),
        "skip_reason": ([item.skip_reason for item in predictions], "object"),
    }
    return _beside(table, columns)


def write_csv(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a validated table: text unchanged, numbers unrounded, true/false, blanks for nothing.

    Raises
    ------
    ScaleModelError
        The file cannot be written.
    """
    columns = [frame.iloc[:, index].astype(object).tolist() for index in range(frame.shape[1])]
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(frame.columns)
            for cells in zip(*columns, strict=True):
                writer.writerow([cell_text(cell) for cell in cells])
    except OSError as error:
        raise ScaleModelError(
            f"path={os.fspath(path)!r} cannot be written: {error.strerror or error}",
            code="unwritable_file",
        ) from None
