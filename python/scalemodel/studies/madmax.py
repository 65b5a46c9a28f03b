"""The studies of MAD-Max ("Beyond Single-Node", arXiv 2310.02784) with this package's physics.

Its suite of recommendation models, language models and vision transformers; its space of two-level
strategies per layer group; what they gain over FSDP, which communication stays exposed, what faster
hardware and longer contexts change, what a training run costs in a cloud. Everything is computed by
`scalemodel.estimate`; `pandas` tables come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel._core import Ablation
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.codesign.vary import Hardware
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import (
    BatchInference,
    ComposedModel,
    GroupEstimate,
    GroupStrategy,
    compose,
)
from scalemodel.resolve import Cluster
from scalemodel.resolve.tasks import Precision, Training

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "CLOUDS",
    "RESOURCES",
    "SUITE",
    "Workload",
    "best_over_fsdp",
    "cloud_costs",
    "context_lengths",
    "exposed_communication",
    "plans",
    "resource_scaling",
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
    """

    model: str
    cluster: str
    nodes: int
    global_batch: int
    sequence: int = 1
    precision: Precision = "bf16"

    def task(self, *, inference: bool = False) -> Training:
        """Pre-training of one step, or one forward pass over the batch."""
        kind = BatchInference if inference else Training
        return kind(
            global_batch=self.global_batch, sequence=self.sequence, precision=self.precision
        )

    def where(self) -> Cluster:
        """The cluster at its size."""
        return resolve.cluster(self.cluster, nodes=self.nodes)


def _recommender(model: str) -> Workload:
    return Workload(model, "zionex", 16, 65536, precision="tf32")


#: The paper's suite: click models and vision transformers on 128 GPUs, language models on 2,048.
#: Decoders are the published ones (three matrices, grouped queries), not the paper's replicas.
SUITE: dict[str, Workload] = {
    "DLRM-A": _recommender("dlrm_a"),
    "DLRM-A-MoE": _recommender("dlrm_a_moe"),
    "DLRM-A-Transformer": _recommender("dlrm_a_transformer"),
    "DLRM-I": _recommender("dlrm_i"),
    "DLRM-I-MoE": _recommender("dlrm_i_moe"),
    "DLRM-I-Transformer": _recommender("dlrm_i_transformer"),
    "GPT-3": Workload("gpt3_175b", "zionex", 256, 2048, 2048),
    "LLaMA-65B": Workload("llama_65b", "zionex", 256, 2048, 2048),
    "Llama2-70B": Workload("llama2_70b", "zionex", 256, 2048, 4096),
    "DINOv2-G": Workload("dinov2_g", "zionex", 16, 2048),
    "ViT-10B": Workload("vit_10b", "zionex", 16, 2048),
    "ViT-120B": Workload("vit_120b", "zionex", 16, 2048),
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
    experts: list[str | None] = [None]
    if any(slot.experts for slot in model.slots):
        node = cluster.core.node_accelerators
        experts += [f"ep@{node}+ddp", f"ep@{2 * node}+ddp"]
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
                    GroupStrategy(groups, recompute=recompute)
                    for recompute in ((False, True) if blocks else (False,))
                ]
    return found


def _meshes(plan: GroupStrategy) -> tuple[str, str, str]:
    groups: Mapping[str, str] = plan.groups if isinstance(plan.groups, Mapping) else {}
    return groups.get("embedding", ""), groups["*"], groups.get("experts", "")


def _estimates(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    candidates: Iterable[GroupStrategy] | None = None,
) -> list[GroupEstimate]:
    listed = plans(model, cluster) if candidates is None else candidates
    return [estimate(model, cluster, task, plan) for plan in listed]


def _named(names: Sequence[str] | None, known: Mapping[str, Workload]) -> dict[str, Workload]:
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
    for name, workload in _named(names, SUITE).items():
        model, cluster = compose(workload.model), workload.where()
        for est in _estimates(model, cluster, workload.task(inference=inference)):
            tables, layers, experts = _meshes(est.strategy)
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


#: What a machine is made of, as paths of `scalemodel.codesign`.
RESOURCES: dict[str, tuple[str, ...]] = {
    # Faster cores with their caches: higher peaks alone would starve behind the same cache.
    "compute": ("accelerator.peak", "accelerator.compute.clock"),
    "memory bandwidth": ("accelerator.memory.bandwidth",),
    "memory capacity": ("accelerator.memory.capacity",),
    "scale-up": ("scale_up.bandwidth",),
    "fabric": ("fabric.bandwidth",),
}
RESOURCES["all"] = tuple(path for paths in RESOURCES.values() for path in paths)


def resource_scaling(
    names: Sequence[str] | None = None,
    *,
    factors: Sequence[float] = (2, 10),
    layers: str = "",
) -> pd.DataFrame:
    """How much faster a pre-training step gets with more of each resource.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: all.
    factors : sequence of float
        By which a resource grows.
    layers : str
        Mesh of all layers, tables by table; default: the best strategy at every point.

    Returns
    -------
    DataFrame, one row per model, resource and factor
        Columns name, resource, factor, layers (the mesh used), ``step_time_s``, ``speed_up``.

    Examples
    --------
    >>> table = resource_scaling(["DLRM-A"], factors=[2])
    >>> bool((table.speed_up >= 0.999).all())
    True
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, workload in _named(names, SUITE).items():
        model, task = compose(workload.model), workload.task()
        hardware = Hardware(workload.where())

        def best(
            cluster: Cluster, model: ComposedModel = model, task: Training = task
        ) -> GroupEstimate | None:
            fixed = [GroupStrategy({"embedding": "table_wise", "*": layers})]
            found = _estimates(model, cluster, task, fixed if layers else None)
            fits = [est for est in found if est.verdict == "ok"]
            return min(fits, key=lambda est: est.core.step_time_s, default=None)

        base = best(hardware.cluster)
        if base is None:
            continue
        for resource, paths in RESOURCES.items():
            for factor in factors:
                design = hardware.design(dict.fromkeys(paths, factor))
                faster = best(hardware.build(design))
                step_s = faster.core.step_time_s if faster else None
                rows.append(
                    {
                        "name": name,
                        "resource": resource,
                        "factor": factor,
                        "layers": _meshes(faster.strategy)[1] if faster else "",
                        "step_time_s": step_s,
                        "speed_up": base.core.step_time_s / step_s if step_s else None,
                    }
                )
    return pd.DataFrame(rows)


def _passes(mesh: str, workload: Workload) -> int:
    """Micro-batches of a step in which ranks that share sequences are at one at a time."""
    sharing = 1
    for axis in mesh.split("+"):
        name, _, degree = axis.partition("@")
        sharing *= int(degree) if degree and name in ("tp", "sp", "cp") else 1
    return max(1, workload.global_batch * sharing // workload.where().accelerators)


def context_lengths(
    sequences: Sequence[int] = (4096, 8192, 16384, 32768),
    *,
    name: str = "Llama2-70B",
    layers: Sequence[str] = ("fsdp", "tp@8+ddp", "sp@8+fsdp", "cp@8+fsdp"),
) -> pd.DataFrame:
    """Tokens per second against the length of sequences, their number fixed.

    Ranks that shard matrices or sequences work at one sequence at a time.

    Parameters
    ----------
    sequences : sequence of int
    name : str
        Of `SUITE`.
    layers : sequence of str
        Meshes of all layers.

    Returns
    -------
    DataFrame, one row per length and mesh
        Columns sequence, layers, verdict, ``tokens_per_s``, and ``tokens_per_s`` without attention
        scores, which the original leaves out, as ``without_scores_tokens_per_s``.

    Examples
    --------
    >>> table = context_lengths([4096, 32768], layers=["fsdp"])
    >>> bool(table.tokens_per_s.iloc[1] < table.without_scores_tokens_per_s.iloc[1])
    True
    """
    import pandas as pd

    workload = _named([name], SUITE)[name]
    model, cluster = compose(workload.model), workload.where()
    no_scores = Ablation(attention_scores=False)
    rows = []
    for sequence in sequences:
        task = replace(workload, sequence=sequence).task()
        for mesh in layers:
            # Long sequences fit only if layers run again in the backward pass.
            plan = GroupStrategy(mesh, recompute=True, micro_batches=_passes(mesh, workload))
            full = estimate(model, cluster, task, plan)
            bare = estimate(model, cluster, task, plan, ablation=no_scores)
            rows.append((sequence, mesh, full.verdict, full.tokens_per_s, bare.tokens_per_s))
    columns = ["sequence", "layers", "verdict", "tokens_per_s", "without_scores_tokens_per_s"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True)
class Instance:
    """A cloud instance: a cluster of the catalogue, its list price, what its cards compute in."""

    cluster: str
    price: str
    precision: Precision = "tf32"


#: Instances the paper compares, by their clusters and prices in the catalogue.
CLOUDS: dict[str, Instance] = {
    "AWS p3dn (V100 32 GB)": Instance("aws_p3dn", "aws_p3dn_2023", "fp32"),
    "AWS p4d (A100 40 GB)": Instance("aws_p4d", "aws_p4d_2024"),
    "AWS p4de (A100 80 GB)": Instance("aws_p4de", "aws_p4de_2023"),
    "AWS p5 (H100)": Instance("aws_p5", "aws_p5_2024"),
    "Azure NDv2 (V100 32 GB)": Instance("azure_ndv2", "azure_ndv2_2023", "fp32"),
    "Azure ND A100 v4 (40 GB)": Instance("azure_nd_a100_v4", "azure_nd_a100_v4_2024"),
    "Azure NDm A100 v4 (80 GB)": Instance("azure_ndm_a100_v4", "azure_ndm_a100_v4_2023"),
    "GCP A2 (16 A100 40 GB)": Instance("gcp_a2", "gcp_a2_mega_2023"),
}


def cloud_costs(
    accelerators: Sequence[int] = (64, 128, 256, 512),
    *,
    model: str = "dlrm_a",
    global_batch: int = 65536,
    samples: float = 5e9,
) -> pd.DataFrame:
    """What a training run takes on cloud instances: time, accelerator hours, money, energy.

    Parameters
    ----------
    accelerators : sequence of int
        Sizes; a size that does not fill whole nodes is left out.
    model : str
        Of the catalogue's composed models.
    global_batch : int
    samples : float
        Of the whole run.

    Returns
    -------
    DataFrame, one row per instance and size at which a strategy fits
        Columns instance, accelerators, layers, ``samples_per_s``, ``accelerator_hours``,
        ``cost_usd``, ``energy_j`` of the fastest strategy that fits.

    Examples
    --------
    >>> table = cloud_costs([128])
    >>> set(table.columns) >= {"instance", "samples_per_s", "cost_usd", "energy_j"}
    True
    """
    import pandas as pd

    composed, rows = compose(model), []
    for label, instance in CLOUDS.items():
        price = catalog.load("prices", instance.price)["usd_per_accelerator_hour"]["value"]
        base = {"base": instance.cluster, "price": {"usd_per_accelerator_hour": price}}
        task = Training(global_batch=global_batch, sequence=1, precision=instance.precision)
        for size in accelerators:
            if size % resolve.cluster(base, nodes=1).accelerators:
                continue
            found = _estimates(composed, resolve.cluster(base, accelerators=size), task)
            fits = (one for one in found if one.verdict == "ok")
            est = min(fits, key=lambda one: one.core.step_time_s, default=None)
            if est is None:
                continue
            steps = samples / global_batch
            rows.append(
                {
                    "instance": label,
                    "accelerators": size,
                    "tables": _meshes(est.strategy)[0],
                    "layers": _meshes(est.strategy)[1],
                    "samples_per_s": est.samples_per_s,
                    "accelerator_hours": size * steps * est.core.step_time_s / 3600,
                    "cost_usd": steps * est.core.cost_usd,
                    "energy_j": steps * est.core.energy_j,
                }
            )
    return pd.DataFrame(rows)
