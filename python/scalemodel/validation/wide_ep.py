"""Published deployments with wide expert parallelism: rows of a table to rates of an accelerator.

A row is a prefill pool, a decode pool, or an instance that does both. What it does not say is what
its engine's published commands do (``reference/wide_ep.toml``), limits being those of a
data-parallel rank; the note of a prediction tells what was assumed. What is predicted is the most
that a deployment delivers. A mean over a day of production is a load: its share of that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.resolve.engines import engine_for
from scalemodel.resolve.reader import Reader
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import CachePrecision, Inference, WeightPrecision
from scalemodel.validation.inference import format_of, model_of
from scalemodel.validation.labels import understood
from scalemodel.validation.place import ClusterCache
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

REQUIRED_COLUMNS = ("engine", "model", "gpu", "n_gpus", "phase")
INPUT_COLUMNS = (
    *REQUIRED_COLUMNS,
    *("weights_precision", "kv_precision", "gpus_per_node", "tp", "dp", "ep"),
    *("redundant_experts", "tokens_per_gpu_per_pass", "batch_per_gpu", "input_tokens"),
    *("output_tokens", "context_tokens_mean", "prefix_hit_fraction", "mtp_tokens"),
    *("mtp_acceptance", "two_batch_overlap", "eplb", "relative_to", "notes", "date"),
    "tokens_per_s_gpu",
)
OUTPUT_COLUMNS = (
    *("predicted_tokens_per_s_gpu", "predicted_itl_ms", "predicted_ttft_s"),
    *("predicted_relative_change_pct", "predicted_utilisation_fraction"),
    *("predicted_note", "skip_reason"),
)
_PHASES = ("prefill", "decode", "mixed")
#: Deployments by a word of a row's engine, and the engine of the catalogue that runs them.
_DEPLOYMENTS = {
    "deepseek": "SGLang",
    "sglang": "SGLang",
    "vllm": "vLLM",
    "tensorrt_llm": "TensorRT-LLM",
}
#: Accelerators in one scale-up domain from which a deployment is one of a whole rack.
_RACK = 32
#: Ranks and sequences of the deployment that a baseline without wide expert parallelism is
#: compared with: SGLang's published ones.
_WIDE = {"prefill": 32, "decode": 72}


class Prediction(NamedTuple):
    """What a row would show, or why nothing is predicted."""

    tokens_per_s_gpu: float | None = None
    itl_ms: float | None = None
    ttft_s: float | None = None
    relative_change_pct: float | None = None
    utilisation_fraction: float | None = None
    note: str = ""
    skip_reason: str = ""


@dataclass(frozen=True)
class Deployment:
    """How an engine is started with wide expert parallelism."""

    name: str
    engine: str
    sequences: int
    tokens: int
    redundant_experts: int
    two_batch_overlap: bool
    lacks: float = 1.0  # rate over that of a release before what later ones added


@dataclass(frozen=True)
class Question:
    """A row as a question to `serve`."""

    phase: str
    model: str
    accelerator: str
    accelerators: int
    node_accelerators: int
    layout: _core.ServingLayout
    task: Inference
    deployment: Deployment
    sequences: int  # of a rank
    tokens: int  # of a rank and step
    balanced: str  # how experts are: "perfect", "balanced" or "as they come"
    notes: tuple[str, ...] = field(default=(), compare=False)


def _reference(table: Mapping[str, Any], name: str) -> Any:
    return value_of(table[name])


def _deployment(row: Row, accelerator: str, notes: list[str]) -> Deployment:
    """The published commands that a row's engine stands for."""
    text = row.text("engine").lower().replace("-", "_")
    found = next((name for name in _DEPLOYMENTS if name in text), "")
    if not found:
        notes.append("constants of SGLang stand in for the engine")
        found = "sglang"
    scale_up = Reader(catalog.load("accelerators", accelerator).get("scale_up", {}), "scale_up")
    entries = catalog.load("reference", "wide_ep")
    rack = f"{found}_nvl72"
    name = rack if rack in entries and scale_up.number("domain", 1.0) >= _RACK else found
    table = entries[name]
    return Deployment(
        found,
        engine_for(_DEPLOYMENTS[found]),
        int(_reference(table, "sequences")),
        int(_reference(table, "tokens")),
        int(_reference(table, "redundant_experts")),
        bool(_reference(table, "two_batch_overlap")),
        _lacks(found, row.text("date"), entries, notes),
    )


def _lacks(name: str, date: str, entries: Mapping[str, Any], notes: list[str]) -> float:
    """Gain of what the engine's releases have added since a date, each as measured alone."""
    added = entries.get(f"added_{name}")
    month = re.match(r"(\d{4})-(\d{2})", date)
    if added is None or month is None:
        return 1.0
    if int(month[1] + month[2]) >= _reference(added, "since_month"):
        return 1.0
    gains = {key: float(_reference(added, key)) for key in added if key != "since_month"}
    notes.append(f"before {', '.join(gains)}")
    return math.prod(gains.values())


def _degrees(row: Row, accelerators: int) -> _core.ServingLayout:
    """Degrees of an instance; beside data-parallel attention a `tp` of all ranks is the world."""
    tp, dp, ep = row.count("tp"), row.count("dp"), row.count("ep")
    if ep is None and dp is None:
        return _core.ServingLayout(tp=tp or 1)
    ranks = max(ep or 1, dp or 1)
    if dp is None and tp:
        dp = max(1, ranks // tp)  # Ranks that split attention, and no other is named.
    dp = dp or ranks
    split = tp if tp and tp * dp <= accelerators else max(1, ranks // dp)
    return _core.ServingLayout(tp=split, dp=dp, ep=ep or split * dp)


def _balance(row: Row) -> str | None:
    """Whether experts are balanced; None where a row does not say."""
    text = f"{row.text('eplb')}; {row.text('notes')}".lower()
    if re.search(r"perfect(ly)?[ -]balance|absolutely balanced", text):
        return "perfect"
    stated = row.text("eplb").lower()
    if not stated:
        return None
    return "as they come" if stated.startswith(("no", "off", "none")) else "balanced"


def _redundant(row: Row, experts: int, layout: _core.ServingLayout, asked: int) -> int:
    """Redundant experts, raised until all slots divide over the ranks."""
    given = row.count("redundant_experts", least=0)
    least = asked if given is None else given
    return int(layout.ep * -(-(experts + least) // layout.ep) - experts)


def _lengths(row: Row, phase: str, notes: list[str]) -> tuple[float, float]:
    """Tokens of a prompt and of its answer."""
    usual = catalog.load("reference", "wide_ep")["requests"]
    given, output = row.number("input_tokens"), row.number("output_tokens")
    context = row.number("context_tokens_mean")
    answer = 1.0 if phase == "prefill" else output or float(_reference(usual, "output_tokens"))
    if given is None and context is not None:
        given = context if phase == "prefill" else context - answer / 2
    if given is None:
        given = float(_reference(usual, "input_tokens"))
        notes.append(f"prompts of {given:.0f} tokens assumed")
    if not given >= 1 or not answer >= 1:
        raise SkippedRowError("illegal:input_tokens")
    return given, answer


def _precisions(
    row: Row, model: str, deployment: Deployment, notes: list[str]
) -> tuple[WeightPrecision, CachePrecision]:
    stated = row.text("weights_precision")
    weights = format_of(stated or _checkpoint(model) or "bf16")
    if weights is None:
        raise SkippedRowError("unsupported:dtype")
    if not stated:
        notes.append(f"{weights} weights assumed")
    cache = format_of(row.text("kv_precision"))
    if cache in ("bf16", "fp16", "fp8", "fp4"):
        return weights, cache
    narrow = weights == "fp4" and deployment.name == "tensorrt_llm"
    notes.append(f"{'fp8' if narrow else 'bf16'} cache assumed")
    return weights, "fp8" if narrow else "bf16"


def _checkpoint(model: str) -> str:
    return str(catalog.load("models", model).get("checkpoint", {}).get("weights", ""))


def _limit(row: Row, column: str, usual: int, what: str, notes: list[str]) -> int:
    given = row.count(column)
    if given is None:
        notes.append(f"{usual} {what} a rank assumed")
    return given or usual


def _node(row: Row, accelerators: int, notes: list[str]) -> int:
    """Accelerators of a node; fewer than usual where they do not divide those of a row."""
    usual = row.count("gpus_per_node") or 8
    node = max(size for size in range(1, usual + 1) if accelerators % size == 0)
    if node != usual:
        notes.append(f"{node} accelerators a node")
    return node


def question(row: Row) -> Question:
    """The question that a row asks.

    Raises
    ------
    SkippedRowError : a cell is missing or makes no sense.
    """
    phase = row.text("phase").lower()
    if phase not in _PHASES:
        raise SkippedRowError(f"illegal:phase:{phase or 'none'}")
    try:
        accelerator, read = understood("accelerators", row.text("gpu"))
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{row.text('gpu')}") from None
    notes = [read] if read else []
    model, accelerators = model_of(row.text("model").split("/R1")[0]), row.required_count("n_gpus")
    deployment = _deployment(row, accelerator, notes)
    if deployment.name == "deepseek":
        notes.append("constants of SGLang stand in for DeepSeek's engine")
    layout, shape = _degrees(row, accelerators), resolve.model(model).shape
    if ranks_of(layout) > accelerators:
        raise SkippedRowError("illegal:mesh")
    balanced = _balance(row)
    if balanced is None:
        balanced = "balanced" if deployment.redundant_experts else "as they come"
    overlap = row.flag("two_batch_overlap")
    if layout.ep > 1:
        wanted = deployment.redundant_experts
        if balanced == "balanced" and row.text("eplb"):
            usual = catalog.load("reference", "wide_ep")["balanced"]
            wanted = int(_reference(usual, "redundant_experts"))
        layout = layout.replace(
            redundant_experts=_redundant(row, shape.experts, layout, wanted),
            two_batch_overlap=deployment.two_batch_overlap if overlap is None else overlap,
        )
    input_tokens, output_tokens = _lengths(row, phase, notes)
    weights, cache = _precisions(row, model, deployment, notes)
    task = Inference(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        precision=weights,
        kv_precision=cache,
        prefix_hit_fraction=row.number("prefix_hit_fraction") or 0.0,
        speculative_tokens=0 if phase == "prefill" else row.count("mtp_tokens", least=0) or 0,
        acceptance_fraction=row.number("mtp_acceptance") or 0.0,
        prefilled=phase == "decode",
    )
    sequences, tokens = deployment.sequences, deployment.tokens
    if phase != "prefill":
        sequences = _limit(row, "batch_per_gpu", sequences, "sequences", notes)
    if phase != "decode":
        tokens = _limit(row, "tokens_per_gpu_per_pass", tokens, "tokens", notes)
    return Question(
        phase,
        model,
        accelerator,
        accelerators,
        _node(row, accelerators, notes),
        layout,
        task,
        deployment,
        sequences,
        tokens,
        balanced,
        tuple(notes),
    )


def _imbalance(asked: Question) -> float | None:
    """Load of the fullest rank over the mean, where the layout does not imply it."""
    layout = asked.layout
    if asked.balanced == "perfect":
        return 1.0
    constants = engine_constants(asked.deployment.engine)
    slots = resolve.model(asked.model).shape.experts + layout.redundant_experts
    if layout.ep == 1 or (asked.balanced == "balanced") == (layout.redundant_experts > 0):
        return None
    even = asked.balanced == "balanced"
    spread = constants.balanced_spread if even else constants.expert_spread
    return float(_core.rank_imbalance(spread, slots, layout.ep))


class Answer(NamedTuple):
    """Rates of an accelerator, times, and the plan they come from."""

    tokens_per_s_gpu: float
    itl_s: float | None
    ttft_s: float | None
    plan: Serving


def _answer_of(asked: Question, plan: Serving) -> Answer:
    """Rates and times of a plan."""
    lacks = asked.deployment.lacks
    task, requests = asked.task, float(plan.requests_per_s) / lacks
    each, tpot_s = requests / float(plan.accelerators), float(plan.tpot_s) * lacks
    if asked.phase == "decode":
        # The first token of an answer is the prefill pool's.
        return Answer(each * max(1.0, task.output_tokens - 1), tpot_s, None, plan)
    if asked.phase == "mixed":
        ttft_s = None if plan.ttft_s is None else float(plan.ttft_s) * lacks
        return Answer(each * task.output_tokens, tpot_s, ttft_s, plan)
    # Full passes follow each other: a prompt waits for half of one and takes part in the next.
    passed = asked.tokens * asked.layout.dp * plan.replicas
    pass_s = passed / (requests * task.input_tokens * (1 - task.prefix_hit_fraction))
    return Answer(each * task.input_tokens, None, 1.5 * pass_s, plan)


class Deployments:
    """Answers questions; clusters are kept from row to row."""

    def __init__(self) -> None:
        self._clusters = ClusterCache()

    def answer(self, asked: Question) -> Answer:
        """The rate of one deployment.

        Raises
        ------
        SkippedRowError : it cannot run.
        """
        layout = asked.layout
        limits: dict[str, Any] = {}
        if asked.phase != "prefill":
            limits["max_running_sequences"] = asked.sequences * layout.dp
        if asked.phase != "decode":
            limits["max_batched_tokens"] = asked.tokens * layout.dp
        plan = serve(
            asked.model,
            self._clusters.cluster(asked.accelerator, asked.node_accelerators, asked.accelerators),
            asked.task.replace(imbalance=_imbalance(asked)),
            layout,
            engine=asked.deployment.engine,
            **limits,
        )
        if not plan.fits:
            raise SkippedRowError(
                plan.verdict if ":" in plan.verdict else f"illegal:{plan.verdict}"
            )
        return _answer_of(asked, plan)


def _baseline(asked: Question, relative_to: str) -> Question:
    """The deployment that a row is compared with."""
    text = relative_to.lower()
    if "no eplb" in text:
        return replace(asked, balanced="as they come")
    if "overlap" in text:
        tokens = re.match(r"([\d,]+) tokens", text)
        return replace(
            asked,
            layout=asked.layout.replace(two_batch_overlap=False),
            tokens=int(tokens[1].replace(",", "")) if tokens else asked.tokens,
        )
    if text.startswith("wide ep"):
        ranks, own = _WIDE.get(asked.phase, 0), asked.deployment
        if not 0 < ranks <= asked.accelerators:
            raise SkippedRowError("unsupported:relative_to")
        shape = resolve.model(asked.model).shape
        layout = _core.ServingLayout(dp=ranks, ep=ranks, two_batch_overlap=own.two_batch_overlap)
        slots = ranks * -(-(shape.experts + own.redundant_experts) // ranks)
        return replace(
            asked,
            layout=layout.replace(redundant_experts=slots - shape.experts),
            balanced="balanced",
        )
    raise SkippedRowError("unsupported:relative_to")


def _is_load(row: Row) -> bool:
    """Whether a rate is what was asked of nodes in service, on average."""
    return bool(
        re.search(r"production\b(?!-)", f"{row.text('engine')}; {row.text('notes')}".lower())
    )


def _predict(row: Row, known: Deployments) -> Prediction:
    asked = question(row)
    found, change = known.answer(asked), None
    relative = row.text("relative_to")
    if relative:
        before = known.answer(_baseline(asked, relative)).tokens_per_s_gpu
        change = 100 * (found.tokens_per_s_gpu / before - 1)
    measured, used, notes = row.number("tokens_per_s_gpu"), None, asked.notes
    if measured and _is_load(row):
        used = measured / found.tokens_per_s_gpu
        notes = (*notes, "a mean over a day is a load")
    return Prediction(
        found.tokens_per_s_gpu,
        None if found.itl_s is None else 1e3 * found.itl_s,
        found.ttft_s,
        change,
        used,
        "; ".join(filter(None, (*notes, found.plan.note))),
    )


def predict(table: Table) -> list[Prediction]:
    """One prediction per row of a table of kind ``wide_ep``, in order.

    Raises
    ------
    ScaleModelError
        The table lacks a column that every row would need. Nothing in a row raises.
    """
    why = f"kind 'wide_ep' needs {', '.join(REQUIRED_COLUMNS)}"
    require_columns(table, REQUIRED_COLUMNS, why)
    known, predictions = Deployments(), []
    for row in table.select(INPUT_COLUMNS):
        try:
            predictions.append(_predict(row, known))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
        except ScaleModelError as error:
            predictions.append(Prediction(skip_reason=f"illegal:{error.code}"))
    return predictions
