"""What faster, other and rented hardware changes for the models of MAD-Max's suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel._core import Ablation
from scalemodel.codesign.vary import Hardware
from scalemodel.estimator.estimate import estimate
from scalemodel.layer_groups import ComposedModel, GroupEstimate, GroupStrategy, compose
from scalemodel.resolve import Cluster
from scalemodel.resolve.tasks import Precision, Training
from scalemodel.studies.madmax.suite import SUITE, Workload, estimates, meshes, named

if TYPE_CHECKING:
    import pandas as pd

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
        Mesh of all layers, tables by table, layers run again where that fits or is faster; default:
        the best strategy at every point.

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
    for name, workload in named(names, SUITE).items():
        model, task, stack = compose(workload.model), workload.task(), workload.stack
        hardware = Hardware(workload.where())

        def best(
            cluster: Cluster,
            model: ComposedModel = model,
            task: Training = task,
            stack: str = stack,
        ) -> GroupEstimate | None:
            groups = {"embedding": "table_wise", "*": layers}
            fixed = [GroupStrategy(groups, recompute=again) for again in (False, True)]
            found = estimates(model, cluster, task, stack, fixed if layers else None)
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
                        "layers": meshes(faster.strategy)[1] if faster else "",
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

    workload = named([name], SUITE)[name]
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


#: Accelerators of the paper's comparison: clusters of the catalogue and what they compute in. One
#: scale-up domain of 32 nodes stands for the SuperPOD with NVLink between nodes.
ACCELERATORS: dict[str, tuple[str | dict[str, Any], Precision]] = {
    "A100 40 GB (ZionEX)": ("zionex", "tf32"),
    "A100 80 GB": ("dgx_a100", "tf32"),
    "H100": ("dgx_h100", "tf32"),
    "H100 SuperPOD, NVLink between nodes": (
        {"base": "dgx_h100", "scale_up": {"domain": 256}},
        "tf32",
    ),
    "MI300X": ("mi300x_node", "tf32"),
    "Gaudi 2": ("gaudi2_hls", "bf16"),
    "TPU v4": ("tpu_v4_pod", "bf16"),
}


def accelerators(
    names: Sequence[str] | None = None, *, size: int = 128, inference: bool = False
) -> pd.DataFrame:
    """Models of the suite on as many accelerators of other kinds.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: DLRM-A.
    size : int
        Accelerators.
    inference : bool
        Forward passes instead of pre-training steps.

    Returns
    -------
    DataFrame, one row per model and accelerator on which a strategy fits
        Columns name, accelerator, precision (of click models: TF32, or BF16 where there is none;
        of others the suite's), tables, layers, experts, ``samples_per_s``, ``exposed_fraction``,
        ``speed_up`` over the first.

    Raises
    ------
    ScaleModelError : an unknown model, or a size that does not fill nodes.

    Examples
    --------
    >>> table = accelerators(["DLRM-A"])
    >>> table.accelerator.iloc[0], float(table.speed_up.iloc[0])
    ('A100 40 GB (ZionEX)', 1.0)
    """
    import pandas as pd

    rows = []
    for name, workload in named(["DLRM-A"] if names is None else names, SUITE).items():
        model = compose(workload.model)
        clicks = workload.precision == "tf32"
        for label, (source, fallback) in ACCELERATORS.items():
            precision = fallback if clicks else workload.precision
            task = replace(workload, precision=precision).task(inference=inference)
            cluster = resolve.cluster(source, accelerators=size)
            found = estimates(model, cluster, task, workload.stack)
            fits = (one for one in found if one.verdict == "ok")
            est = min(fits, key=lambda one: one.core.step_time_s, default=None)
            if est is None:
                continue
            row = (name, label, precision, *meshes(est.strategy))
            rows.append((*row, est.samples_per_s, est.core.exposed_fraction))
    columns = ["name", "accelerator", "precision", "tables", "layers", "experts"]
    frame = pd.DataFrame(rows, columns=[*columns, "samples_per_s", "exposed_fraction"])
    first = frame.groupby("name", sort=False)["samples_per_s"].transform("first")
    return frame.assign(speed_up=frame["samples_per_s"] / first)
