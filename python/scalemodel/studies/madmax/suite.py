"""MAD-Max's suite of models, its space of strategies, and what they gain over FSDP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import (
    BatchInference,
    ComposedModel,
    GroupEstimate,
    GroupStrategy,
    compose,
)
from scalemodel.resolve import Cluster
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import OptimizerName, Precision, Training

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "SUITE",
    "Workload",
    "best_over_fsdp",
    "exposed_communication",
    "plans",
    "strategies",
]


@dataclass(frozen=True)
class Workload:
    """A model of the suite, where it runs and on how much.

    Attributes
    ----------
    model, cluster : str
        Catalogue names.
    nodes : int
    global_batch : int
        Queries, images or sequences per step.
    sequence : int
        Tokens of a sequence; 1 where layer groups know their own.
    precision : str
    stack : str
        Software, of the catalogue.
    optimizer : str
        Of dense layers.
    """

    model: str
    cluster: str
    nodes: int
    global_batch: int
    sequence: int = 1
    precision: Precision = "bf16"
    stack: str = DEFAULT_STACK
    optimizer: OptimizerName = "adam"

    def task(self, *, inference: bool = False) -> Training:
        """Pre-training of one step, or one forward pass over the batch."""
        kind = BatchInference if inference else Training
        return kind(
            global_batch=self.global_batch,
            sequence=self.sequence,
            precision=self.precision,
            optimizer=self.optimizer,
        )

    def where(self) -> Cluster:
        """The cluster at its size."""
        return resolve.cluster(self.cluster, nodes=self.nodes)


def _recommender(model: str, nodes: int = 16) -> Workload:
    # Software that pipelines lookups, exchanges and dense layers; one state a weight (AdaGrad).
    return Workload(
        model, "zionex", nodes, 65536, precision="tf32", stack="hugectr", optimizer="sgd_momentum"
    )


def _language(model: str, sequence: int = 2048) -> Workload:
    return Workload(model, "meta_rsc_1", 256, 2048, sequence)


def _vision(model: str) -> Workload:
    return Workload(model, "zionex", 16, 2048)


#: The paper's suite: click models and vision transformers on 128 GPUs of 40 GB, language models on
#: 2,048 of 80 GB. Decoders are the published ones (three matrices, grouped queries), not the
#: paper's replicas; only its mixture of experts, which has no public model, is the paper's.
SUITE: dict[str, Workload] = {
    "DLRM-A": _recommender("dlrm_a"),
    "DLRM-A-MoE": _recommender("dlrm_a_moe"),
    "DLRM-A-Transformer": _recommender("dlrm_a_transformer"),
    "DLRM-F": _recommender("dlrm_f", nodes=256),  # tables of 12T parameters fill 2,048 GPUs
    "DLRM-I": _recommender("dlrm_i"),
    "DLRM-I-MoE": _recommender("dlrm_i_moe"),
    "DLRM-I-Transformer": _recommender("dlrm_i_transformer"),
    "GPT-3": _language("gpt3_175b"),
    "LLaMA-7B": _language("llama_7b"),
    "LLaMA-13B": _language("llama_13b"),
    "LLaMA-30B": _language("llama_30b"),
    "LLaMA-65B": _language("llama_65b"),
    "Llama2-70B": _language("llama2_70b", 4096),
    "LLM-MoE": _language("llm_moe_1_8t", 8192),
    "DINOv2-S": _vision("dinov2_s"),
    "DINOv2-B": _vision("dinov2_b"),
    "DINOv2-L": _vision("dinov2_l"),
    "DINOv2-G": _vision("dinov2_g"),
    "ViT-L": _vision("vit_l"),
    "ViT-H": _vision("vit_h"),
    "ViT-10B": _vision("vit_10b"),
    "ViT-25B": _vision("vit_25b"),
    "ViT-60B": _vision("vit_60b"),
    "ViT-120B": _vision("vit_120b"),
}


def _layouts(cluster: Cluster) -> tuple[list[str], list[str]]:
    """Meshes of tables and of layers: one level over all, or one inside a node and one across."""
    node, total = cluster.core.node_accelerators, cluster.accelerators
    tables, layers = ["table_wise", "row_wise", "ddp"], ["ddp", "fsdp", "tp"]
    if total > node:
        tables += [f"table_wise@{node}+ddp", f"ddp@{node}+table_wise"]
        layers += [f"{inner}@{node}+ddp" for inner in ("tp", "fsdp")]
        layers += [f"{inner}@{node}+tp" for inner in ("ddp", "fsdp")]
    return tables, layers


def plans(
    model: ComposedModel, cluster: Cluster, *, tables: Sequence[str] | None = None
) -> list[GroupStrategy]:
    """Strategies of the paper's space: meshes of tables times meshes of all other layers.

    Routed experts follow the layers around them, as in the paper, or are spread by themselves;
    transformers may run forward again in the backward pass. The paper's space has neither.

    Parameters
    ----------
    model : ComposedModel
    cluster : Cluster
    tables : sequence of str, optional
        Meshes of embedding tables; default: by table, by row, replicated, and the two two-level
        ones by table.

    Examples
    --------
    >>> import scalemodel as sm
    >>> len(plans(sm.compose("dlrm_a"), sm.cluster("zionex", nodes=16)))
    35
    """
    for_tables, for_layers = _layouts(cluster)
    has_tables = any(slot.kind == "embedding_tables" for slot in model.slots)
    # Layers of a click model are smaller than the bucket a gradient travels in.
    buckets: Literal["unit", "group"] = "group" if has_tables else "unit"
    experts: list[str | None] = [None]
    if any(slot.experts for slot in model.slots):
        node = cluster.core.node_accelerators
        experts += [f"ep@{node}+ddp", f"ep@{2 * node}+ddp", f"ep@{node}+fsdp"]
    blocks = any(group.core.kind == "transformer" for group in model.groups)
    listed = (for_tables if tables is None else list(tables)) if has_tables else [""]
    found = []
    for table in listed:
        for layer in for_layers:
            for expert in experts:
                groups = {"*": layer}
                if table:
                    groups["embedding"] = table
                if expert:
                    groups["experts"] = expert
                found += [
                    GroupStrategy(groups, recompute=recompute, buckets=buckets)
                    for recompute in ((False, True) if blocks else (False,))
                ]
    return found


def meshes(plan: GroupStrategy) -> tuple[str, str, str]:
    """Meshes of tables, layers and experts."""
    groups: Mapping[str, str] = plan.groups if isinstance(plan.groups, Mapping) else {}
    return groups.get("embedding", ""), groups["*"], groups.get("experts", "")


def estimates(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    stack: str,
    candidates: Iterable[GroupStrategy] | None = None,
) -> list[GroupEstimate]:
    """Every strategy of the space, or those given."""
    listed = plans(model, cluster) if candidates is None else candidates
    return [estimate(model, cluster, task, plan, stack=stack) for plan in listed]


def named(names: Sequence[str] | None, known: Mapping[str, Workload]) -> dict[str, Workload]:
    """Workloads by name; an unknown one is refused and the nearest named."""
    listed = list(known) if names is None else list(names)
    for name in listed:
        if name not in known:
            raise ScaleModelError(f"names: {name!r}: not in the suite; {nearest(name, known)}")
    return {name: known[name] for name in listed}


_KEPT = ("step_time_s", "samples_per_s", "exposed_fraction", "memory_bytes", "mfu_fraction")


def strategies(names: Sequence[str] | None = None, *, inference: bool = False) -> pd.DataFrame:
    """Every strategy of the space for models of the suite.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: all.
    inference : bool
        Forward passes instead of pre-training steps.

    Returns
    -------
    DataFrame, one row per model and strategy
        Columns name, tables, layers, experts, recompute, verdict, ``step_time_s``,
        ``samples_per_s``, ``exposed_fraction``, ``memory_bytes``, ``mfu_fraction`` and
        ``speed_up``: the step time of the best FSDP strategy that fits, else of the best, over
        this one's.

    Examples
    --------
    >>> table = strategies(["DLRM-A"])
    >>> fsdp = table[(table.layers == "fsdp") & (table.verdict == "ok")]
    >>> float(fsdp.speed_up.max())
    1.0
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, workload in named(names, SUITE).items():
        model, cluster = compose(workload.model), workload.where()
        task = workload.task(inference=inference)
        for est in estimates(model, cluster, task, workload.stack):
            tables, layers, experts = meshes(est.strategy)
            row: dict[str, Any] = {"name": name, "tables": tables, "layers": layers}
            row |= {"experts": experts, "recompute": est.strategy.recompute}
            row["verdict"] = est.verdict
            rows.append(row | {column: getattr(est, column) for column in _KEPT})
    frame = pd.DataFrame(rows)
    return frame.assign(speed_up=_over_fsdp(frame))


def _over_fsdp(frame: pd.DataFrame) -> pd.Series[float]:
    plain = frame[(frame["layers"] == "fsdp") & (frame["experts"] == "")]
    fitting = plain[plain["verdict"] == "ok"]
    base = fitting.groupby("name")["step_time_s"].min()
    base = base.combine_first(plain.groupby("name")["step_time_s"].min())
    return frame["name"].map(base) / frame["step_time_s"]


def best_over_fsdp(frame: pd.DataFrame) -> pd.DataFrame:
    """The fastest strategy that fits, per model, beside FSDP.

    Parameters
    ----------
    frame : DataFrame
        Of `strategies`.

    Returns
    -------
    DataFrame, one row per model that has a strategy that fits
        The row of that strategy.

    Examples
    --------
    >>> best_over_fsdp(strategies(["ViT-10B"])).speed_up.ge(1).all().item()
    True
    """
    fits = frame[frame["verdict"] == "ok"]
    return fits.loc[fits.groupby("name", sort=False)["step_time_s"].idxmin()].reset_index(drop=True)


def exposed_communication(frame: pd.DataFrame) -> pd.DataFrame:
    """Communication that no computation hides, as a share of the step.

    Parameters
    ----------
    frame : DataFrame
        Of `strategies`.

    Returns
    -------
    DataFrame, one row per model
        Columns name, ``fsdp_fraction`` (the fastest FSDP strategy) and ``best_fraction`` (the
        fastest strategy that fits).

    Examples
    --------
    >>> table = exposed_communication(strategies(["DLRM-A", "ViT-10B"]))
    >>> table.name.tolist()
    ['DLRM-A', 'ViT-10B']
    """
    plain = frame[(frame["layers"] == "fsdp") & (frame["experts"] == "")]
    plain = plain.loc[plain.groupby("name", sort=False)["step_time_s"].idxmin()]
    sharded = plain.set_index("name")["exposed_fraction"].rename("fsdp_fraction")
    best = best_over_fsdp(frame).set_index("name")["exposed_fraction"].rename("best_fraction")
    return sharded.to_frame().join(best).reset_index()
