"""What a training run takes on the cloud instances that MAD-Max compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.layer_groups import compose
from scalemodel.resolve.tasks import Precision
from scalemodel.studies.madmax.suite import SUITE, estimates, meshes
from scalemodel.studies.madmax_original import ask, step

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Instance:
    """A cloud instance: a cluster of the catalogue, its list price, what its cards compute in.

    Attributes
    ----------
    cluster, price : str
        Catalogue names.
    original : str
        The system of MAD-Max with as much network and NVLink.
    precision : str
    """

    cluster: str
    price: str
    original: str
    precision: Precision = "tf32"


#: How click models train.
_CLICKS = SUITE["DLRM-A"]

#: Instances the paper compares, by their clusters and prices in the catalogue.
CLOUDS: dict[str, Instance] = {
    "AWS p3 (V100 16 GB)": Instance("aws_p3", "aws_p3_2023", "cloud_A/cloud_A_v100.16", "fp32"),
    "AWS p3dn (V100 32 GB)": Instance(
        "aws_p3dn", "aws_p3dn_2023", "cloud_A/cloud_A_v100.32", "fp32"
    ),
    "AWS p4d (A100 40 GB)": Instance("aws_p4d", "aws_p4d_2024", "cloud_A/cloud_A_a100.40"),
    "AWS p4de (A100 80 GB)": Instance("aws_p4de", "aws_p4de_2023", "cloud_A/cloud_A_a100.80"),
    "AWS p5 (H100)": Instance("aws_p5", "aws_p5_2024", "cloud_A/cloud_A_h100.80"),
    "Azure NCv3 (V100 16 GB, no NVLink)": Instance(
        "azure_nc_v3", "azure_nc_v3_2023", "cloud_B/cloud_B_v100.16", "fp32"
    ),
    "Azure NDv2 (V100 32 GB)": Instance(
        "azure_ndv2", "azure_ndv2_2023", "cloud_B/cloud_B_v100.32", "fp32"
    ),
    "Azure ND A100 v4 (40 GB)": Instance(
        "azure_nd_a100_v4", "azure_nd_a100_v4_2024", "cloud_B/cloud_B_a100.40"
    ),
    "Azure NDm A100 v4 (80 GB)": Instance(
        "azure_ndm_a100_v4", "azure_ndm_a100_v4_2023", "cloud_B/cloud_B_a100.40"
    ),
    "Azure NC A100 v4 (80 GB, no NVLink)": Instance(
        "azure_nc_a100_v4", "azure_nc_a100_v4_2023", "cloud_B/cloud_B_a100.80"
    ),
    "GCP N1 (8 V100 16 GB)": Instance(
        "gcp_n1_v100", "gcp_n1_v100_2023", "cloud_C/cloud_C_v100.16", "fp32"
    ),
    "GCP A2 (8 A100 40 GB)": Instance("gcp_a2_high", "gcp_a2_high_2023", "cloud_C/cloud_C_a100.40"),
    "GCP A2 Ultra (8 A100 80 GB)": Instance(
        "gcp_a2_ultra", "gcp_a2_ultra_2023", "cloud_C/cloud_C_a100.40"
    ),
    "GCP A2 (16 A100 40 GB)": Instance("gcp_a2", "gcp_a2_mega_2023", "cloud_C/cloud_C_a100.40m"),
}

#: Strategies of the original's sheets: replicated, sharded, tensor parallelism inside a node.
_ORIGINAL_LAYERS = ("ddp@{gpus}", "fsdp@{gpus}", "tp@{node}+ddp@{nodes}")
_WEIGHTS_WITH_STATES = 3  # what the sheets let memory hold


def _original_samples_per_s(
    instance: Instance, model: str, gpus: int, batch: int, memory_bytes: float
) -> float | None:
    """The fastest strategy by the original's formulas; None where none of them fits."""
    node = ask(f"dlrm/{model}", instance.original, gpus, f"ddp@{gpus}", batch).system.gpus_per_node
    best = 0.0
    for layers in _ORIGINAL_LAYERS:
        mesh = layers.format(gpus=gpus, node=node, nodes=gpus // node)
        found = step(ask(f"dlrm/{model}", instance.original, gpus, mesh, batch))
        if _WEIGHTS_WITH_STATES * sum(found.weights_bytes.values()) <= memory_bytes:
            best = max(best, batch / found.step_s)
    return best or None


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
        Of the catalogue's composed models; one that the original has too.
    global_batch : int
    samples : float
        Of the whole run.

    Returns
    -------
    DataFrame, one row per instance and size at which a strategy fits
        Columns instance, accelerators, tables, layers, ``samples_per_s``, ``accelerator_hours``,
        ``cost_usd``, ``energy_j`` of the fastest strategy that fits; by the original's formulas
        and the same price, ``original_samples_per_s`` and ``original_cost_usd``, blank where
        three copies of the weights exceed memory.

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
        task = replace(_CLICKS, global_batch=global_batch, precision=instance.precision).task()
        for size in accelerators:
            if size % resolve.cluster(base, nodes=1).accelerators:
                continue
            cluster = resolve.cluster(base, accelerators=size)
            found = estimates(composed, cluster, task, _CLICKS.stack)
            fits = (one for one in found if one.verdict == "ok")
            est = min(fits, key=lambda one: one.core.step_time_s, default=None)
            if est is None:
                continue
            steps = samples / global_batch
            hours = steps * size * est.core.step_time_s / 3600
            row: dict[str, Any] = {"instance": label, "accelerators": size}
            row |= dict(zip(("tables", "layers"), meshes(est.strategy)[:2], strict=True))
            row |= {"samples_per_s": est.samples_per_s, "accelerator_hours": hours}
            row |= {"cost_usd": steps * est.core.cost_usd, "energy_j": steps * est.core.energy_j}
            # A card sold as 40 GB holds 40 GiB; the sheets take the GB at its word.
            memory = cluster.core.accelerator.memory_capacity_bytes / 2**30 * 1e9
            rate = _original_samples_per_s(instance, model, size, global_batch, memory)
            row["original_samples_per_s"] = rate
            usd_per_s = est.core.cost_usd / est.core.step_time_s
            row["original_cost_usd"] = samples / rate * usd_per_s if rate else None
            rows.append(row)
    return pd.DataFrame(rows)
