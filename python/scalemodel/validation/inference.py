"""Published serving runs: rows of a table to predictions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for, engine_table
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.resolve.hub import is_hub_id
from scalemodel.serving.padding import padded
from scalemodel.serving.plan import instance_for, ranks_of
from scalemodel.serving.task import CachePrecision, Inference, WeightPrecision
from scalemodel.serving.uncertainty import ServingSituation, borrowed_by, interval_around
from scalemodel.validation.labels import understood
from scalemodel.validation.lengths import arrivals, drawn, prompt_tokens, varies, with_images
from scalemodel.validation.place import ClusterCache
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

REQUIRED_COLUMNS = ("model", "gpu", "n_gpus", "isl", "osl", "precision")
#: The schema of runs with a power meter beside them: the mean batch is known, prompts are not.
POWER_COLUMNS = ("model", "gpu", "num_gpus", "avg_batch", "avg_output_len", "weight_precision")
INPUT_COLUMNS = (
    *REQUIRED_COLUMNS,
    "engine",
    "kv_precision",
    "gpus_per_node",
    "tp",
    "pp",
    "ep",
    "dp",
    "cp",
    "concurrency_or_batch",
    "num_requests",
    "scenario",
    "qps_target",
    "task",
    *POWER_COLUMNS[2:],
    "parallelization",
    "max_num_seqs",
)
OUTPUT_COLUMNS = (
    "predicted_output_tokens_s",
    "predicted_ttft_ms",
    "predicted_tpot_ms",
    "predicted_itl_ms",
    "predicted_batch",
    "predicted_output_tokens_s_low",
    "predicted_output_tokens_s_high",
    "predicted_ttft_ms_low",
    "predicted_ttft_ms_high",
    "predicted_tpot_ms_low",
    "predicted_tpot_ms_high",
    "predicted_situation",
    "predicted_engine",
    "predicted_note",
    "skip_reason",
)
#: Further columns where the mean batch is known.
POWER_OUTPUTS = ("predicted_power_w_per_gpu", "predicted_j_per_token")

_FORMATS: tuple[tuple[str, WeightPrecision], ...] = (
    ("mxfp4", "mxfp4"),
    ("nvfp4", "fp4"),
    ("fp4", "fp4"),
    ("fp8_block", "fp8_block"),
    ("fp8", "fp8"),
    ("w4a16", "int4"),
    ("int4", "int4"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ("w8a16", "int8"),
    ("int8", "int8"),
    ("bf16", "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "fp16"),
    ("float16", "fp16"),
    ("half", "fp16"),
    ("16bit", "bf16"),
)
#: Predicted numbers with an interval, by the quantity it is made for.
_INTERVALS = {"output_tokens_s": "rate", "ttft_ms": "ttft", "tpot_ms": "tpot"}
_DEFAULT_REQUESTS = 1000
_SEED = 0


@dataclass(frozen=True)
class ServingPrediction:
    """What is predicted of one run, or why nothing is."""

    output_tokens_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    itl_ms: float | None = None
    batch: float | None = None
    engine: str = ""
    note: str = ""
    skip_reason: str = ""
    compared: ServingSituation | None = None

    @property
    def situation(self) -> str:
        """What comparable runs share with this one, as a text."""
        return "" if self.compared is None else " ".join(self.compared[:3])

    def __getattr__(self, name: str) -> float | None:
        """Ends of intervals, as ``ttft_ms_low``."""
        quantity, _, end = name.rpartition("_")
        if end not in ("low", "high") or quantity not in _INTERVALS:
            raise AttributeError(name)
        if self.compared is None:
            return None
        found = interval_around(self.compared, _INTERVALS[quantity], getattr(self, quantity))
        return None if found is None else getattr(found, end)


@dataclass
class ServingQuestion:
    """A row as a question to the engine."""

    model: str
    accelerator: str
    engine: str
    layout: _core.ServingLayout
    task: Inference
    node_accelerators: int
    accelerators: int
    requests: int
    replicas: int = 1  # with a host, a scheduler and limits each
    varied: tuple[bool, bool] = (False, False)  # whether prompts and answers differ in length
    rate: float | None = None  # None: offline; inf: all at once, seen by waiting clients
    concurrency: float | None = None
    running: float | None = None  # mean batch, where it was measured
    notes: list[str] = field(default_factory=list)


def format_of(text: str) -> WeightPrecision | None:
    """Number format that a cell names, or None.

    Examples
    --------
    >>> format_of("fp8 (assumed)"), format_of("bfloat16"), format_of("")
    ('fp8', 'bf16', None)
    """
    lowered = text.lower().replace("-", "_")
    return next((known for word, known in _FORMATS if word in lowered), None)


def model_of(name: str) -> str:
    """Catalogue entry of a served model, less who published it and how it was tuned or stored.

    Raises
    ------
    SkippedRowError : the catalogue has no such architecture.

    Examples
    --------
    >>> model_of("Qwen/Qwen3-30B-A3B-Thinking-2507"), model_of("LLaMA v3.1 70B")
    ('qwen3_30b_a3b', 'llama3_1_70b')
    """
    return _model_of(name)[0]


def _model_of(name: str) -> tuple[str, str]:
    try:
        return understood("models", name)
    except ScaleModelError:
        raise SkippedRowError(f"unknown_architecture:{name}") from None


def _layout(
    row: Row, accelerators: int, routed: bool, defaults: Mapping[str, Any]
) -> _core.ServingLayout:
    """Degrees of a row: its columns, or the JSON that the power schema keeps them in."""
    text = row.text("parallelization")
    if text:
        try:
            given = json.loads(text)
            replicas, shared = int(given.get("data_parallel", 1)), given.get("expert_parallel", 1)
            split = max(int(given.get("tensor_parallel", 1)), accelerators // replicas)
            # Ranks that shard experts split attention, unless data parallelism is said to.
            return _core.ServingLayout(tp=split, dp=replicas, ep=int(shared))
        except (ValueError, TypeError, AttributeError, ZeroDivisionError):
            raise SkippedRowError("illegal:parallelization") from None
    tp, dp, ep = row.count("tp"), row.count("dp"), row.count("ep")
    pp, cp = row.count("pp") or 1, row.count("cp") or 1
    # Expert parallelism that is said to be on without a degree spans all ranks.
    stated = ep is None and "ep" in row.text("ep").lower()
    if tp is None:
        tp = max(1, accelerators // (pp * cp * (dp or 1)))
    if not routed:
        return _core.ServingLayout(tp=tp, pp=pp, dp=dp or 1, cp=cp)
    if stated and dp is None and value_of(defaults.get("attention_dp", False)):
        # Attention is repeated on the ranks that would split it, experts are sharded.
        return _core.ServingLayout(tp=1, dp=tp, ep=tp, pp=pp, cp=cp)
    if stated:
        ep = tp * (dp or 1)
    return _core.ServingLayout(tp=tp, pp=pp, dp=dp or 1, cp=cp, ep=ep or 1)


def _replicas(layout: _core.ServingLayout) -> tuple[_core.ServingLayout, int]:
    """Data-parallel ranks that share no experts are instances of their own."""
    split = layout.tp * layout.cp
    if layout.dp == 1 or layout.ep > split or split % layout.ep:
        return layout, 1
    return layout.replace(dp=1), int(layout.dp)


def _positive(row: Row, column: str) -> float:
    value = row.number(column)
    if value is None:
        raise SkippedRowError(f"missing:{column}")
    if not 1 <= value <= 1e8:
        raise SkippedRowError(f"illegal:{column}")
    return value


def _engine_of(row: Row, notes: list[str]) -> str:
    """Engine of a row; the default one where it names none or one that the catalogue lacks."""
    text = row.text("engine")
    if text:
        try:
            return engine_for(text)
        except ScaleModelError:
            notes.append(f"no constants of {text}")
    notes.append(f"engine {DEFAULT_ENGINE} assumed")
    return DEFAULT_ENGINE


def _cache_format(
    row: Row, precision: WeightPrecision, engine_name: str, notes: list[str]
) -> CachePrecision:
    stated = format_of(row.text("kv_precision"))
    if stated in ("bf16", "fp16", "fp8", "fp4"):
        return stated
    narrow = precision in ("fp8", "fp4") and engine_name.startswith("tensorrt")
    cache: CachePrecision = "fp8" if narrow else "bf16"
    notes.append(f"{cache} cache assumed")
    return cache


def question(row: Row, *, power: bool, engine_name: str | None = None) -> ServingQuestion:
    """The question a row asks.

    Raises
    ------
    SkippedRowError : a cell is missing or makes no sense.
    """
    for column in ("model", "gpu"):
        if not row.text(column):
            raise SkippedRowError(f"missing:{column}")
    try:
        accelerator, read = understood("accelerators", row.text("gpu"))
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{row.text('gpu')}") from None
    model, also = _model_of(row.text("model"))
    notes = [note for note in (read, also) if note]
    accelerators = row.required_count("num_gpus" if power else "n_gpus")
    name = engine_name or _engine_of(row, notes)
    column = "weight_precision" if power else "precision"
    precision = format_of(row.text(column))
    if precision is None:
        raise SkippedRowError("unsupported:dtype" if row.text(column) else f"missing:{column}")
    published = catalog.load("models", model).get("checkpoint", {})
    stored = published.get("eight_bit", published.get("weights"))
    if precision == "fp8" and stored == "fp8_block" and is_hub_id(row.text("model")):
        precision = "fp8_block"
        notes.append("8 bits scaled by blocks, as published")
    if precision == "fp8" and published.get("experts") == "mxfp4":
        # One checkpoint for every accelerator: FP8 tells it from what FP4 products make of it.
        precision = "mxfp4"
        notes.append("experts in MXFP4, all else in BF16, as published")
    cache = _cache_format(row, precision, name, notes)
    routed = resolve.model(model).shape.experts > 0
    defaults = engine_table(name).get("defaults", {})
    layout = _layout(row, accelerators, routed, defaults)
    if ranks_of(layout) != accelerators:
        raise SkippedRowError("illegal:mesh")
    layout, replicas = _replicas(layout)
    if power:
        input_tokens, output = prompt_tokens(row, notes), _positive(row, "avg_output_len")
    else:
        input_tokens, output = _positive(row, "isl"), _positive(row, "osl")
    task = Inference(
        input_tokens=input_tokens, output_tokens=output, precision=precision, kv_precision=cache
    )
    found = ServingQuestion(
        model,
        accelerator,
        name,
        layout,
        with_images(task, row, model, notes),
        node_accelerators=row.count("gpus_per_node") or 8,
        accelerators=accelerators,
        requests=row.count("num_requests") or _DEFAULT_REQUESTS,
        replicas=replicas,
        varied=(
            not power and varies(input_tokens, row.text("scenario")),
            not power and varies(output, row.text("scenario")),
        ),
        notes=notes,
    )
    found.concurrency = row.number("concurrency_or_batch")
    if power:
        found.running = _positive(row, "avg_batch")
    elif row.text("scenario").lower().startswith("online") or row.text("qps_target"):
        asked = row.number("qps_target")
        found.rate = math.inf if asked is None else asked
    return found


class ServingPredictor:
    """Predicts rows; clusters and tabulated instances are kept from row to row.

    Parameters
    ----------
    constants : mapping of str to _core.Engine, optional
        In place of the catalogue's, by name of an engine.
    """

    def __init__(self, constants: Mapping[str, _core.Engine] | None = None) -> None:
        self._constants = dict(constants or {})
        self._clusters = ClusterCache()

    def predict(self, asked: ServingQuestion) -> ServingPrediction:
        """The prediction of one question; a refusal where it has no answer."""
        cluster = self._clusters.cluster(
            asked.accelerator, asked.node_accelerators, asked.accelerators
        )
        model, padding = padded(resolve.model(asked.model), asked.layout)
        reason = str(_core.check_serving_layout(model.core, asked.layout, cluster.core))
        if reason != "ok":
            raise SkippedRowError(f"illegal:{reason}")
        constants = self._constants.get(asked.engine, engine_constants(asked.engine))
        if asked.rate is not None:
            # Only a benchmark knows its requests beforehand; a server is set up for all.
            constants = constants.replace(tunes_limits=False)
        if asked.concurrency is not None:
            ranks = asked.replicas * (asked.layout.dp if constants.limits_per_rank else 1)
            most = math.ceil(max(1, min(asked.concurrency, 1e6)) / ranks)
            constants = constants.replace(max_running_sequences=most, tunes_limits=False)
        instance, note = self._instance(model, cluster, asked, constants)
        notes = [*asked.notes, *(text for text in (padding, note) if text)]
        found = self._answer(asked, instance)
        compared = ServingSituation(
            load="running" if asked.running else "offline" if asked.rate is None else "online",
            kind="experts" if model.shape.experts else "dense",
            architecture=str(catalog.load("accelerators", asked.accelerator)["architecture"]),
            engine=asked.engine,
        )
        if borrowed := borrowed_by(compared, "rate"):
            notes.append(f"interval of others: {', '.join(borrowed)}")
        return replace(found, engine=asked.engine, note="; ".join(notes), compared=compared)

    def _instance(
        self, model: Model, cluster: Cluster, asked: ServingQuestion, constants: _core.Engine
    ) -> tuple[_core.Instance, str]:
        task = asked.task
        return instance_for(
            model,
            cluster,
            task.precision,
            task.kv_precision,
            task.rank_imbalance,
            asked.layout,
            asked.engine,
            constants,
            task.mix if task.images else None,
        )

    def _answer(self, asked: ServingQuestion, instance: _core.Instance) -> ServingPrediction:
        task = asked.task
        if asked.running is not None:
            each = asked.running / asked.replicas
            state = instance.steady_state(task.mix, each, limited=False)
            decode_only = instance.step(
                sequences=state.concurrency,
                context=task.input_tokens + (task.output_tokens + 1) / 2,
            )
            return ServingPrediction(
                output_tokens_s=asked.replicas * state.requests_per_s * task.output_tokens,
                ttft_ms=1e3 * state.ttft_s,
                tpot_ms=1e3 * state.tpot_s,
                itl_ms=1e3 * decode_only.step_time_s,
                batch=asked.replicas * state.concurrency,
            )
        capacity = instance.capacity(task.input_tokens, task.output_tokens)
        if capacity.max_running_sequences < 1:
            raise SkippedRowError("illegal:out_of_memory")
        count, random = asked.requests, np.random.default_rng(_SEED)
        came = np.zeros(count)
        if asked.rate is not None and math.isfinite(asked.rate):
            came = arrivals(count, asked.rate, random)
        prompts, answers = (
            drawn(mean, part, count, random) if varied else np.full(count, float(mean))
            for mean, part, varied in zip(
                (task.input_tokens, task.output_tokens),
                ("prompts", "answers"),
                asked.varied,
                strict=True,
            )
        )
        served, totals = instance.simulate(
            task.mix, came, prompts, answers, replicas=asked.replicas, balance="round_robin"
        )
        rate = float(answers.sum()) / totals.makespan_s
        if asked.rate is None:
            state = instance.steady_state(task.mix, capacity.max_running_sequences)
            ttft_s, tpot_s = state.ttft_s, state.tpot_s
        else:
            first, last = served[:, 1], served[:, 2]
            ttft_s = float(np.mean(first - came))
            # Over all tokens: benchmarks average gaps, and long answers have more of them.
            tpot_s = float(np.sum(last - first) / np.sum(np.maximum(1.0, answers - 1)))
        return ServingPrediction(
            output_tokens_s=rate,
            ttft_ms=1e3 * ttft_s,
            tpot_ms=1e3 * tpot_s,
            itl_ms=1e3 * totals.itl_median_s,
            batch=totals.running_s / totals.makespan_s,
        )


def check_columns(table: Table) -> bool:
    """Whether the table has the power schema.

    Raises
    ------
    ScaleModelError : a column that every row needs is missing; the message names it.
    """
    power = "avg_batch" in table.header
    needed = POWER_COLUMNS if power else REQUIRED_COLUMNS
    require_columns(table, needed, f"kind 'inference' needs {', '.join(needed)}")
    return power


def predict(
    table: Table,
    constants: Mapping[str, _core.Engine] | None = None,
    *,
    engine: str | None = None,
) -> list[ServingPrediction]:
    """One prediction per row of a table, in order; no row can fail the run.

    Parameters
    ----------
    table : Table
    constants : mapping of str to _core.Engine, optional
        In place of the catalogue's, by name of an engine.
    engine : str, optional
        Of every row.

    Raises
    ------
    ScaleModelError : a required column is missing, or `engine` is unknown.
    """
    power = check_columns(table)
    forced = None if engine is None else engine_for(engine)
    predictor = ServingPredictor(constants)
    predictions = []
    for row in table.select(INPUT_COLUMNS):
        try:
            predictions.append(predictor.predict(question(row, power=power, engine_name=forced)))
        except SkippedRowError as skipped:
            predictions.append(ServingPrediction(skip_reason=str(skipped)))
        except ScaleModelError as error:
            code = "unsupported:dtype" if error.code == "precision" else f"illegal:{error.code}"
            predictions.append(ServingPrediction(skip_reason=code))
        except (ValueError, TypeError, OverflowError):
            predictions.append(ServingPrediction(skip_reason="illegal:malformed"))
    return predictions
