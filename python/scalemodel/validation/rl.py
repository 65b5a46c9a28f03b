"""Published steps of reinforcement learning: rows of a table to phases of a step."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.post_training.step import estimate_rl
from scalemodel.post_training.task import Rl
from scalemodel.post_training.weights import RefitWay, refit_time
from scalemodel.resolve.reader import Reader
from scalemodel.validation.inference import format_of, model_of
from scalemodel.validation.place import cluster_of, place
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

REQUIRED_COLUMNS = ("framework", "model", "gpu", "layout")
INPUT_COLUMNS = (
    *REQUIRED_COLUMNS,
    *("release", "algorithm", "policy_lag_steps", "n_gpus", "gpus_train", "gpus_rollout"),
    *("gpus_per_node", "train_backend", "rollout_engine", "train_precision", "rollout_precision"),
    *("max_total_tokens", "mean_generated_tokens", "implied_total_tokens_per_sequence"),
    *("prompts_per_step", "generations_per_prompt", "rollout_sequences"),
    *("train_batch_sequences", "rollout_tp", "rollout_pp", "train_tp", "train_cp", "train_ep"),
    *("train_pp", "train_vpp", "recipe_facts", "activation_checkpointing"),
    *("gpu_memory_utilization", "reference_kl", "logprob_batch", "notes"),
)
OUTPUT_COLUMNS = (
    *("predicted_step_time_s", "predicted_rollout_s", "predicted_logprob_s"),
    *("predicted_reference_s", "predicted_train_s", "predicted_refit_s"),
    *("predicted_note", "skip_reason"),
)
#: Software of a training backend, by a word of its name, and whether it shards parameters.
_BACKENDS = (("fsdp", "pytorch_fsdp", "zero3"), ("", "nemo_mcore_2024_25", "zero1"))


class Prediction(NamedTuple):
    """What a row would show, or why nothing is predicted."""

    step_time_s: float | None = None
    rollout_s: float | None = None
    logprob_s: float | None = None
    reference_s: float | None = None
    train_s: float | None = None
    refit_s: float | None = None
    note: str = ""
    skip_reason: str = ""


class _Usual:
    """What a framework's published recipes do where a row does not say."""

    def __init__(self, row: Row, notes: list[str]) -> None:
        entries = catalog.load("reference", "post_training")["recipes"]
        text = f"{row.text('framework')} {row.text('algorithm')} {row.text('model')}".lower()
        found = next((e for e in entries if all(w in text for w in e["words"])), entries[-1])
        self._found = found
        self._reader = Reader(found, "reference/post_training: recipes")
        self._row, self._notes = row, notes

    def count(self, column: str, key: str) -> int:
        """Whole number of a column, or of the recipe."""
        stated = self._row.count(column)
        return int(self._noted(key)) if stated is None else stated

    def number(self, column: str, key: str) -> float:
        """Number of a column, or of the recipe."""
        stated = self._row.number(column)
        return self._noted(key) if stated is None else stated

    def choice(self, key: str, otherwise: float) -> float:
        """What the recipe sets, where it does."""
        return self._noted(key) if key in self._found else otherwise

    def _noted(self, key: str) -> float:
        value = self._reader.number(key)
        self._notes.append(f"{key} {value:g} assumed")
        return float(value)


def _fact(row: Row, name: str) -> str:
    """What a recipe says of something, in a column of its own or among others."""
    if row.text(name):
        return row.text(name)
    found = re.search(rf"\b{name}\s*=\s*([\w.]+)", row.text("recipe_facts"))
    return found[1] if found else ""


def _cluster(row: Row, accelerators: int, notes: list[str]) -> resolve.Cluster:
    cells = {name: row.text(name) for name in ("gpu", "gpus_per_node", "framework")}
    cells["gpu"] = re.sub(r"\s*\(.*\)$", "", cells["gpu"])
    return cluster_of(place(Row({**cells, "n_gpus": str(accelerators)}), notes))


def _precision(row: Row, column: str) -> Any:
    return format_of(row.text(column) or "bf16") or "bf16"


def _task(row: Row, usual: _Usual) -> Rl:
    limit = usual.count("max_total_tokens", "limit_tokens")
    generated = usual.number("mean_generated_tokens", "generated_tokens")
    total = row.number("implied_total_tokens_per_sequence")
    prompt = total - generated if total and total > generated else usual.number("", "prompt_tokens")
    generations = usual.count("generations_per_prompt", "generations")
    sequences = row.count("rollout_sequences")
    if sequences is None:
        sequences = usual.count("prompts_per_step", "prompts") * generations
    room = limit - prompt
    kl = _fact(row, "reference_kl")
    algorithm = row.text("algorithm").lower().split(" ")[0]
    batch = row.count("train_batch_sequences") or int(usual.choice("train_batch", sequences))
    return Rl(
        prompts=max(1, sequences // generations),
        generations=generations,
        prompt_tokens=prompt,
        generated_tokens=min(generated, room),
        limit_tokens=limit,
        train_batch=min(batch, max(1, sequences // generations) * generations),
        logprob=not (_streams(row) and usual.choice("engine_logprob", 0)),
        algorithm="ppo" if algorithm == "ppo" else "dapo" if algorithm == "dapo" else "grpo",
        reference=bool(kl) and float(kl) > 0,
        precision=_precision(row, "train_precision"),
        rollout_precision=_precision(row, "rollout_precision"),
    )


def _framework(row: Row) -> Any:
    text = row.text("framework").lower()
    return next((name for name in ("verl", "areal") if name in text), "nemo_rl")


def _streams(row: Row) -> bool:
    """Whether verl's fully asynchronous trainer takes answers one by one."""
    return "verl" in row.text("framework").lower() and "async" in row.text("layout").lower()


def _strategy(row: Row, usual: _Usual, notes: list[str]) -> tuple[_core.Strategy, str]:
    backend = row.text("train_backend").lower()
    _, stack, sharding = next(each for each in _BACKENDS if each[0] in backend)
    stated = _fact(row, "activation_checkpointing")
    if not stated:
        notes.append("recompute full assumed")
    fully_sharded = sharding == "zero3"
    context = row.count("train_cp") or int(usual.choice("train_cp", 1) if fully_sharded else 1)
    strategy = _core.Strategy(
        tp=row.count("train_tp") or 1,
        cp=context,
        context="ulysses" if fully_sharded else "ring",
        shard_degree=int(usual.choice("shard_degree", 0)) * context if fully_sharded else 0,
        ep=row.count("train_ep") or 1,
        pp=row.count("train_pp") or 1,
        etp=1,
        sharding=sharding,
        recompute="none" if stated == "False" else "full",
    )
    return strategy, stack


def _replica(
    row: Row, usual: _Usual, model: resolve.Model, cluster: resolve.Cluster, notes: list[str]
) -> int:
    """Ranks of an engine's replica: as many as hold the weights twice over, where none are told."""
    stated = row.count("rollout_tp")
    if stated is not None:
        return stated
    if told := re.search(r"-> TP(\d+)", row.text("notes")):
        return int(told[1])
    if chosen := int(usual.choice("rollout_tp", 0)):
        return chosen
    capacity = cluster.core.accelerator.memory_capacity_bytes
    needed = 1 << max(0, math.ceil(math.log2(4 * model.parameters / capacity)))
    notes.append(f"rollout_tp {needed} assumed")
    return needed


def _partial(row: Row, notes: list[str]) -> bool:
    """Whether generation goes on over updates: AReaL's and verl's asynchronous trainers do so."""
    framework = row.text("framework").lower()
    partial = "async" in row.text("layout").lower() and framework in ("verl", "areal")
    if partial:
        notes.append("partial rollouts assumed")
    return partial


#: Ways of new weights by words of a table's notes; the first that stands there.
_WAYS: tuple[tuple[str, RefitWay], ...] = (
    ("full experts", "rdma_whole"),
    ("nixl", "rdma"),
    ("reshard", "reshard"),
    ("checkpoint engine", "reshard"),
    ("", "broadcast"),
)


def _way(row: Row) -> RefitWay:
    """How new weights go, as the notes say."""
    notes = row.text("notes").lower()
    return next(way for word, way in _WAYS if word in notes)


def _told_ranks(row: Row) -> tuple[int, int]:
    """Ranks of both pools by their degrees, as notes tell them: PP16 EP16 -> TP32 DP8."""
    train, arrow, rollout = row.text("notes").partition("->")
    if not arrow:
        return 0, 0
    degrees = (re.findall(r"\b[TPDE]P(\d+)", side) for side in (train, rollout))
    senders, receivers = (math.prod(map(int, side)) for side in degrees)
    return senders, receivers


def _stale_fraction(row: Row, usual: _Usual) -> float:
    """Of answers that may be of older weights: what the notes say, or the recipe."""
    found = re.search(r"staleness(?:_threshold)?\s+(\d*\.?\d+)", row.text("notes"))
    return float(found[1]) if found else usual.choice("stale_fraction", 1)


def _predicted(row: Row) -> Prediction:
    notes: list[str] = []
    text = re.sub(r"-instruct$", "", row.text("model"), flags=re.IGNORECASE)
    model = resolve.model(model_of(text))
    usual = _Usual(row, notes)
    if "refit only" in row.text("algorithm").lower():
        tp = _replica(row, usual, model, _cluster(row, 8, []), notes)
        senders, receivers = _told_ranks(row)
        pool = _cluster(row, max(tp, row.count("gpus_rollout") or receivers), notes)
        layout = _core.ServingLayout(tp=tp)
        precision = _precision(row, "rollout_precision")
        train = _cluster(row, row.count("gpus_train") or senders or pool.accelerators, [])
        seconds = refit_time(
            model,
            train,
            pool,
            layout,
            precision,
            way=_way(row),
            framework=_framework(row),
            sharded="fsdp" in row.text("train_backend").lower(),
        )
        return Prediction(refit_s=seconds, note="; ".join(notes))
    total = row.required_count("n_gpus")
    apart = row.text("layout").lower().startswith("separate")
    half = max(1, total // 2) if apart else total
    training, generating = row.count("gpus_train") or half, row.count("gpus_rollout") or half
    task = _task(row, usual)
    strategy, stack = _strategy(row, usual, notes)
    where = _cluster(row, training, notes)
    pool = _cluster(row, generating, [])
    layout = _core.ServingLayout(
        tp=min(generating, _replica(row, usual, model, pool, notes)),
        pp=row.count("rollout_pp") or 1,
    )
    share = _fact(row, "gpu_memory_utilization")
    partial = apart and _partial(row, notes)
    step = estimate_rl(
        model,
        where,
        task,
        strategy,
        layout,
        rollout=pool if apart else None,
        staleness=1 if apart else 0,
        stack=stack,
        memory_share=float(share) if share else usual.choice("memory_share", 0.8 if apart else 0.6),
        logprob_batch=int(_fact(row, "logprob_batch") or 1),
        partial_rollouts=partial,
        stale_fraction=_stale_fraction(row, usual) if partial else 1.0,
        framework=_framework(row),
    )
    if not math.isfinite(step.step_time_s):
        raise SkippedRowError(f"illegal:{step.verdict.removeprefix('illegal:')}")
    return _shown(row, step.phases, step.step_time_s, notes)


def _shown(row: Row, phases: _core.RlPhases, step_time_s: float, notes: list[str]) -> Prediction:
    """Phases as the framework's logs tell them: verl's asynchronous rollout is a wait.

    The wait for answers ends before new weights are sent, which its logs time by themselves.
    """
    rollout = phases.rollout_s
    if _streams(row):
        waits = step_time_s - phases.learning_s - phases.between_s
        rollout = max(0.0, waits) + phases.collect_s
        notes.append("rollout is the wait of the trainer")
    return Prediction(
        step_time_s,
        rollout,
        phases.logprob_s,
        phases.reference_s,
        phases.train_s,
        phases.refit_s,
        "; ".join(notes),
    )


def predict(table: Table) -> list[Prediction]:
    """One prediction per row of a table of kind ``rl``, in order.

    Raises
    ------
    ScaleModelError
        The table lacks a column that every row would need. Nothing in a row raises.
    """
    require_columns(table, REQUIRED_COLUMNS, f"kind 'rl' needs {', '.join(REQUIRED_COLUMNS)}")
    predictions = []
    for row in table.select(INPUT_COLUMNS):
        try:
            predictions.append(_predicted(row))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
        except ScaleModelError as error:
            predictions.append(Prediction(skip_reason=f"illegal:{error.code or 'question'}"))
        except (ValueError, OverflowError):
            predictions.append(Prediction(skip_reason="illegal:malformed"))
    return predictions
