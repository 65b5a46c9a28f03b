"""The engine on MAD-Max's questions, with what MAD-Max leaves out left out.

Layers as the original has them, constant efficiencies, no latencies; one queue for all collectives;
links and network cards as fast as the original's rates imply if its terms are those of rings.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import scalemodel as sm
from scalemodel.studies.madmax_original import Question, Workload, product
from scalemodel.studies.madmax_original.formulas import FLOP_UTILISATION, MEMORY_UTILISATION

#: Physics the original has not.
LEFT_OUT = {
    "gemm_fraction": FLOP_UTILISATION,
    "memory_fraction": MEMORY_UTILISATION,
    "network_fraction": 1,
    **dict.fromkeys(
        (
            "latency",
            "attention_scores",
            "elementwise",
            "heads",
            "optimizer",
            "host",
            "contention",
            "ends",
            "reshard",
            "index_exchange",
            "pooled_exchange",
            "update_traffic",
            "table_balance",
            "cached_tables",
        ),
        False,
    ),
}
_PRECISIONS = {2: "bf16", 4: "tf32"}
_TABLES = {"mp": "table_wise", "ddp": "ddp"}


def cluster_of(question: Question, ring_factor: bool = True) -> sm.Cluster:
    """A node joined at the original's rate inside it, cards at its mixed rate between nodes.

    Inside a node the original calls the bus bandwidth of a ring of n, 2 (n - 1)/n I, simply I.
    A flat ring runs at the mixed rate H even where the links are slower than that, which two of the
    original's systems have; there the links are given what H asks of them.
    """
    system = question.system
    _, all_reduce = system.rates(question.gpus)
    node = min(system.gpus_per_node, question.gpus)
    share = (node - 1) / node if ring_factor else 1
    inside, outside = 2 * share * all_reduce[0], 2 * all_reduce[-1]
    flat = all(len(mesh) <= 1 for mesh in (question.mlp, question.transformer))
    precision = _PRECISIONS[question.workload.parameter_bytes]
    return sm.cluster(
        {
            "accelerator": {
                "base": "a100_sxm_40",
                "compute": {
                    precision: f"{system.flop_per_s[question.workload.parameter_bytes]} FLOP/s"
                },
                "gemm": {"rows": {"of_2_bytes": 1.0}},  # one rate for products of any shape
                "memory": {
                    "capacity": "1e15 B",
                    "bandwidth": f"{system.memory_bytes_per_s} B/s",
                },
            },
            "node": {"accelerators": node},
            "scale_up": {
                "class": "nvlink3",
                "bandwidth": f"{max(inside, outside) if flat else inside} B/s",
                "domain": node,
            },
            "fabric": {"class": "infiniband", "bandwidth": f"{outside / node} B/s"},
        },
        accelerators=question.gpus,
    )


def _blocks(workload: Workload, divisor: int) -> sm.Transformer:
    """Attention and feed-forward blocks; width and heads rounded up to what tp can cut."""
    return sm.Transformer(
        name="transformer",
        layers=workload.layers,
        hidden=workload.hidden,
        heads=workload.hidden // 16,
        ffn=-(-workload.ffn // divisor) * divisor,
        causal=workload.family != "ViT",
        norms_per_layer=0,
        tokens=workload.sequence,
        after=() if not workload.tables else ("bottom_mlp", "embedding"),
    )


@lru_cache
def model_of(workload: Workload, divisor: int = 1) -> sm.ComposedModel:
    """The original's layers; its tables of words, positions and patches have no part in a step."""
    if not workload.tables:
        return sm.compose(workload.family, groups=[_blocks(workload, divisor)])
    widths = [workload.width] * 3
    return sm.compose(
        workload.family,
        groups=[
            sm.EmbeddingTables(
                name="embedding",
                after=(),
                tables=workload.tables,
                rows=workload.entries,
                dim=workload.dim,
                pooling=workload.pooled,
                value_bytes=workload.embedding_bytes,
                output_bytes=workload.embedding_bytes,
            ),
            sm.Mlp(
                name="bottom_mlp",
                mesh="mlp",
                after=(),
                widths=widths,
                repeat=workload.bottom // 2,
            ),
            sm.Mlp(
                name="top_mlp",
                mesh="mlp",
                after=("bottom_mlp", "embedding"),
                widths=widths,
                repeat=workload.top // 2,
            ),
        ],
    )


def inference_s(question: Question) -> float:
    """The engine's forward pass of a click model with tables spread over all, layers replicated.

    Its only collective is the exchange of pooled rows, so network cards run at the original's rate
    of all-to-alls.
    """
    all_to_all, _ = question.system.rates(question.gpus)
    cluster = cluster_of(question)
    fabric = cluster.core.fabric.replace(bandwidth_bytes_per_s=all_to_all[-1])
    return sm.estimate(
        model_of(question.workload),
        replace(cluster, core=cluster.core.replace(fabric=fabric)),
        sm.BatchInference(
            global_batch=round(question.global_batch),
            sequence=1,
            precision=_PRECISIONS[question.workload.parameter_bytes],
        ),
        sm.GroupStrategy({"embedding": f"table_wise@{question.gpus}", "*": "ddp"}, queues="one"),
        ablation=sm.Ablation(**{**LEFT_OUT, "pooled_exchange": True}),
    ).step_time_s


def _spelling(mesh: tuple[tuple[str, int], ...], names: dict[str, str]) -> str:
    return "+".join(f"{names.get(name, name)}@{degree}" for name, degree in mesh)


def estimates(
    question: Question, *, ring_factor: bool = True, queues: str = "one"
) -> list[sm.GroupEstimate]:
    """The engine's step with the prefetch of the forward pass, and of the backward pass."""
    workload = question.workload
    dense = question.transformer or question.mlp
    task_of = sm.BatchInference if question.task == "inference" else sm.Training
    task = task_of(
        global_batch=round(question.global_batch),
        sequence=workload.sequence,
        precision=_PRECISIONS[workload.parameter_bytes],
        gradient_precision="bf16",
    )
    orders = [("one", "behind")]
    if question.prefetch_all:
        orders.append(("unlimited", "before"))
    return [
        sm.estimate(
            model_of(workload, product(dense, ("tp",))),
            cluster_of(question, ring_factor),
            task,
            sm.GroupStrategy(
                {"embedding": _spelling(question.embedding, _TABLES), "*": _spelling(dense, {})},
                queues=queues,
                prefetch=prefetch,
                backward_gather=gather,
            ),
            ablation=sm.Ablation(**LEFT_OUT, ring_factor=ring_factor),
        )
        for prefetch, gather in orders
    ]


def step_s(question: Question, *, queues: str = "one") -> float:
    """Step time; "post-optimised" is the original's backward pass only."""
    found = estimates(question, queues=queues)
    forward, backward = found[0], found[-1]
    return forward.forward_s + backward.step_time_s - backward.forward_s
