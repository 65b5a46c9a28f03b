"""The terms of an estimate: time, memory, energy, cost and utilisation, each with its parts.

Values are read from the estimate and its operators; only the parts that have no column of their
own are differences, so that the children of a term always sum to it.
"""

from __future__ import annotations

from typing import Any

from scalemodel.estimator.evaluation import (
    MEMORY_COLUMNS,
    TIME_COLUMNS,
    Evaluation,
    launches_s,
    operator_rows,
    stack_of,
    tables_for,
)
from scalemodel.estimator.explain.explanation import Explanation
from scalemodel.estimator.explain.sources import MEMORY_FACTS, Sources, cause_facts, entry_source
from scalemodel.estimator.losses import operator_class, recomputation_s
from scalemodel.estimator.verdicts import verdict_message
from scalemodel.resolve.clusters import network_text
from scalemodel.resolve.stacks import stack_text

# ------------------------------------------------------------------------------------------ time
_CLASSES_OF_CAUSE = {
    "compute_s": ("gemm", "attention", "elementwise"),
    "exposed_tp_s": ("tensor_parallel",),
    "exposed_cp_s": ("context_parallel",),
    "exposed_ep_s": ("expert_parallel",),
}
_REST = {
    "compute_s": (
        "slowest stage, embedding",
        "what the slowest stage computes beyond the operators of the mean one: more layers, head "
        "or embedding",
    ),
    "exposed_tp_s": (
        "ends, repeats, hidden part",
        "embedding and head, recomputed layers and the slowest stage, less what compute hides",
    ),
    "exposed_cp_s": (
        "repeats, hidden part",
        "recomputed layers and the slowest stage, less what attention hides",
    ),
    "exposed_ep_s": (
        "repeats, hidden part",
        "recomputed layers and the slowest stage, less what compute hides",
    ),
}


def _rows_of_cause(column: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    wanted = _CLASSES_OF_CAUSE.get(column, ())
    return [row for row in rows if operator_class(row) in wanted or row["operator"] in wanted]


def _operator_nodes(
    rows: list[dict[str, Any]], sources: Sources, step: float
) -> tuple[Explanation, ...]:
    nodes = []
    for row in rows:
        formula, source = sources.operator(row)
        keys = ("m", "n", "k", "batch", "bytes", "forward_s", "backward_s", "layers_per_stage")
        given = {key: row[key] for key in keys if row[key]}
        given["micro_batches"] = sources.est.core.micro_batches
        time_s = float(row["step_s"])
        nodes.append(
            Explanation(row["operator"], time_s, "s", time_s / step, formula, source, given)
        )
    return tuple(nodes)


def _layer_nodes(rows: list[dict[str, Any]], sources: Sources, step: float) -> list[Explanation]:
    """One node per layer kind, its operators below."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(row["layer_kind"], []).append(row)
    nodes = []
    for kind, members in kinds.items():
        below = _operator_nodes(members, sources, step)
        total = sum(node.value or 0.0 for node in below)
        count = members[0]["layers_per_stage"]
        nodes.append(
            Explanation(
                kind,
                total,
                "s",
                total / step,
                "sum of its operators over the micro-batches of a step, on the mean stage",
                "operators of the engine, costs/layer_cost.cpp",
                {"layers_per_stage": count, "micro_batches": sources.est.core.micro_batches},
                below,
            )
        )
    return nodes


def _compute_parts(est: Evaluation, step: float, sources: Sources) -> list[Explanation]:
    """Launches, recomputation and contention, which are no operators of their own."""
    parts = []
    waiting = launches_s(est, recomputed=False)
    if waiting > 0:
        parts.append(
            Explanation(
                "launches",
                waiting,
                "s",
                waiting / step,
                "compute without recomputation − the same with kernels launched at once: layers "
                "that the host cannot launch faster",
                sources.stack,
                {"host_launch_s": stack_of(est).host_launch_s},
            )
        )
    again = recomputation_s(est)
    if again > 0:
        parts.append(
            Explanation(
                "recomputation",
                again,
                "s",
                again / step,
                "compute of this strategy − compute of the same one without recomputation",
                "Korthikanti et al., arXiv 2205.05198",
                {
                    "recompute": est.strategy.recompute,
                    "recompute_layers": est.strategy.recompute_layers,
                },
            )
        )
    contention = stack_of(est).contention
    slowed = contention * est.core.hidden_s
    if slowed > 0:
        parts.append(
            Explanation(
                "contention",
                slowed,
                "s",
                slowed / step,
                "contention × hidden communication",
                sources.stack,
                {"contention": contention, "hidden_s": est.core.hidden_s},
            )
        )
    return parts


def _cause_node(
    est: Evaluation, column: str, rows: list[dict[str, Any]], sources: Sources
) -> Explanation:
    step, value = float(est.core.step_time_s), float(getattr(est.core, column))
    formula, source, inputs = cause_facts(est, column, sources)
    below = _layer_nodes(_rows_of_cause(column, rows), sources, step)
    if column == "compute_s":
        below += _compute_parts(est, step, sources)
    if below:
        rest = value - sum(node.value or 0.0 for node in below)
        name, meaning = _REST[column]
        origin = "difference of the column and its operators"
        below.append(Explanation(name, rest, "s", rest / step, meaning, origin))
    name = column.removesuffix("_s")
    return Explanation(name, value, "s", value / step, formula, source, inputs, tuple(below))


def _uncertainty(est: Evaluation) -> dict[str, object]:
    """Where a measured step would lie, and in what the question is unlike any measured one."""
    interval = est.interval()
    if interval is None:
        return {}
    facts: dict[str, object] = {
        "low_s": interval.low_s,
        "high_s": interval.high_s,
        "coverage_fraction": interval.coverage_fraction,
    }
    if est.extrapolates:
        facts["extrapolates"] = "; ".join(est.extrapolates)
    return facts


def _step_time(est: Evaluation, sources: Sources) -> Explanation:
    rows = operator_rows(est)
    causes = tuple(_cause_node(est, column, rows, sources) for column in TIME_COLUMNS)
    return Explanation(
        "step_time",
        float(est.core.step_time_s),
        "s",
        1.0,
        "sum of its causes",
        "estimator/evaluate.cpp; interval: published runs, reference/uncertainty",
        {"micro_batches": est.core.micro_batches, "hidden_s": est.core.hidden_s}
        | _uncertainty(est),
        causes,
    )


# ---------------------------------------------------------------------------------------- memory
def _memory(est: Evaluation, sources: Sources) -> Explanation:
    core, s, stack = est.core, est.strategy, stack_of(est)
    capacity = float(core.memory_capacity_bytes)
    children = []
    for column in MEMORY_COLUMNS:
        kind = column.removeprefix("memory_").removesuffix("_bytes")
        size = float(getattr(core, column))
        inputs: dict[str, object]
        if kind == "reserve":
            formula = "reserve + fragmentation × (allocated - persistent)"
            source = sources.stack
            inputs = {
                "reserve_bytes": stack.reserve_bytes,
                "fragmentation_fraction": stack.fragmentation_fraction,
                "allocated_bytes": core.memory_allocated_bytes,
                "persistent_bytes": core.memory_weights_bytes
                + core.memory_gradients_bytes
                + core.memory_optimizer_bytes,
            }
        else:
            formula, source, knobs = MEMORY_FACTS[kind]
            inputs = {name: getattr(s, name) for name in knobs}
        children.append(Explanation(kind, size, "B", size / capacity, formula, source, inputs))
    return Explanation(
        "memory",
        float(core.memory_bytes),
        "B",
        float(core.memory_bytes) / capacity,
        "sum of its kinds on the fullest accelerator; share of the capacity",
        f"estimator/evaluate.cpp; capacity: {sources.capacity}",
        {"capacity_bytes": capacity, "fullest_stage": core.fullest_stage},
        tuple(children),
    )


# ------------------------------------------------------------------- energy, cost, utilisation
def _energy(est: Evaluation, sources: Sources) -> Explanation:
    core, cluster = est.core, est.cluster.core
    total, step = float(core.energy_j), float(core.step_time_s)
    nodes = est.cluster.nodes
    accelerators = float(core.power_w) * est.cluster.accelerators * step
    hosts = float(cluster.host_power_w) * nodes * step
    cooling = total - accelerators - hosts
    name = est.cluster.name
    children = (
        Explanation(
            "accelerators",
            accelerators,
            "J",
            accelerators / total,
            "step × accelerators × (shares computing, waiting and idle × their power)",
            sources.power,
            {"power_w": core.power_w, "accelerators": est.cluster.accelerators},
        ),
        Explanation(
            "hosts",
            hosts,
            "J",
            hosts / total,
            "step × nodes × host power",
            entry_source("clusters", name, "node", "host_power"),
            {"host_power_w": cluster.host_power_w, "nodes": nodes},
        ),
        Explanation(
            "facility",
            cooling,
            "J",
            cooling / total,
            "(pue − 1) × what the equipment draws",
            entry_source("clusters", name, "power", "pue"),
            {"pue": cluster.pue},
        ),
    )
    return Explanation(
        "energy",
        total,
        "J",
        1.0,
        "pue × step × (accelerators × power + nodes × host power)",
        "economics/step.hpp",
        {"step_time_s": step},
        children,
    )


def _cost(est: Evaluation) -> Explanation:
    price = est.cluster.core.price_usd_per_s
    source = est.cluster.price_source
    return Explanation(
        "cost",
        est.cost_usd,
        "USD",
        None,
        "accelerators × step × price",
        f"prices/{source}" if source else "no price known for this accelerator",
        {
            "accelerators": est.cluster.accelerators,
            "step_time_s": est.core.step_time_s,
            "usd_per_accelerator_hour": 3600 * price,
        },
    )


def _utilisation(est: Evaluation, sources: Sources) -> tuple[Explanation, Explanation]:
    core = est.core
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    forward, attention = tables.model_flop()
    import scalemodel._core as _core

    peaks = dict(zip(_core.precisions(), est.cluster.core.accelerator.peak_flop_per_s, strict=True))
    inputs = {
        "forward_of_a_sequence_flop": forward,
        "attention_of_it_flop": attention,
        "global_batch": est.task.global_batch,
        "step_time_s": core.step_time_s,
        "accelerators": est.cluster.accelerators,
        "dense_peak_flop_per_s": peaks[est.task.precision],
    }
    peak_source = entry_source(
        "accelerators", est.cluster.accelerator, "compute", est.task.precision
    )
    source = f"Chowdhery et al., PaLM, arXiv 2204.02311; peak: {peak_source}"
    mfu = Explanation(
        "mfu",
        float(core.mfu_fraction),
        "fraction",
        None,
        "3 × forward flop × sequences / (step × accelerators × dense peak); causal attention "
        "counted once, recomputation left out, frozen weights without weight gradient",
        source,
        inputs,
    )
    hfu = Explanation(
        "hfu",
        float(core.hfu_fraction),
        "fraction",
        None,
        "as mfu, recomputed flop included",
        source,
        {**inputs, "recompute": est.strategy.recompute},
    )
    return mfu, hfu


# ------------------------------------------------------------------------------------------ tree
def _copied_heads(est: Evaluation) -> dict[str, object]:
    """Said where tensor ranks outnumber key/value heads, so that some hold the same one."""
    shape, tp = est.model.shape, est.strategy.tp
    heads = shape.kv_heads or shape.heads
    if shape.kv_lora_rank or tp <= heads:
        return {}
    return {"key_value_heads": f"{heads} over {tp} tensor ranks: each keeps a copy of one"}


def term_tree(est: Evaluation) -> Explanation:
    """All terms of an estimate; of an illegal one, why it is illegal."""
    if est.illegal:
        return Explanation(
            "estimate",
            None,
            "",
            None,
            verdict_message(est),
            "strategy/legal.cpp",
            est.strategy.to_dict(),
        )
    sources = Sources(est)
    mfu, hfu = _utilisation(est, sources)
    return Explanation(
        "estimate",
        None,
        "",
        None,
        "one training step, closed form",
        "estimator/evaluate.cpp",
        {
            "model": est.model.label,
            "cluster": est.cluster.name,
            "accelerators": est.cluster.accelerators,
            "strategy": repr(est.strategy),
            "stack": stack_text(est.stack),
            "network": network_text(est.cluster),
            **_copied_heads(est),
            "verdict": est.verdict,
        },
        (
            _step_time(est, sources),
            _memory(est, sources),
            _energy(est, sources),
            _cost(est),
            mfu,
            hfu,
        ),
    )
