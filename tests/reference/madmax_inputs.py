"""Rows of the original's table as questions, and which of its formulas a row rests on."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from scalemodel.studies.madmax_original import SYSTEMS, WORKLOADS, Question, System, mesh_of

#: Vision transformers whose token and position tables outweigh a layer.
SMALL_VITS = ("vit/dinov2_s", "vit/dinov2_b", "vit/vit_h")


def system_of(name: str, overrides: dict[str, float]) -> System:
    """A system of the original by file name, with new values under the original's own keys."""
    system = SYSTEMS[name.rsplit("_", 1)[0]]
    peaks = dict(system.flop_per_s)
    for key, size in (("f64_flops", 8), ("f32_flops", 4), ("f16_flops", 2), ("i8_ops", 1)):
        peaks[size] = overrides.get(key, peaks[size])
    return replace(
        system,
        flop_per_s=peaks,
        memory_bytes_per_s=overrides.get("mem_bw", system.memory_bytes_per_s),
        memory_bytes=overrides.get("mem_cap", system.memory_bytes),
        link_bytes_per_s=overrides.get("bw_per_nvlink", system.link_bytes_per_s),
        port_bytes_per_s=overrides.get("ibroce_bw", system.port_bytes_per_s),
    )


def question_of(row: dict[str, str]) -> Question:
    """The question one row of ``madmax_reference.csv`` answers."""
    return Question(
        workload=WORKLOADS[row["model_cfg"]],
        system=system_of(row["system_cfg"], json.loads(row["system_overrides"] or "{}")),
        gpus=int(row["num_devices"]),
        embedding=mesh_of(row["emb_parallel"]),
        mlp=mesh_of(row["mlp_parallel"]),
        transformer=mesh_of(row["transformer_parallel"]),
        embedding_batch=float(row["local_emb_bs"] or 0),
        mlp_batch=float(row["local_mlp_bs"] or 0),
        transformer_batch=float(row["local_transformer_bs"] or 0),
        task=row["task_type"],
        prefetch_all=row["task_impl"] in ("llm_tasks", "vit_tasks"),
        freeze=json.loads(row["freeze"] or "{}"),
    )


def comparable_as(row: dict[str, str]) -> str:
    """Strategy of the dense layers if the original's formulas are right for the row.

    Else the key of the correction (of `madmax_original`) that names what is wrong, or ``small``:
    group sizes and layers for which (n - 1) / n, or the gradient of a table, is not near one.
    """
    freeze = json.loads(row["freeze"] or "{}")
    last_trained = freeze.pop("min_frozen_layer", math.inf)
    workload = WORKLOADS[row["model_cfg"]]
    mesh = mesh_of(row["transformer_parallel"] or row["mlp_parallel"])
    spelling = "+".join(name for name, _ in mesh)
    embedding = mesh_of(row["emb_parallel"])
    early = row["task_impl"] in ("llm_tasks", "vit_tasks") and row["task_type"] != "inference"
    if any(freeze.values()) or last_trained < workload.layers:
        return "frozen_backward"
    if workload.family.endswith("MoE"):
        return "expert_exchange"
    if workload.family == "DLRM_Transformer":
        return "named_waits"
    if workload.family == "DLRM":
        replicated = embedding[0][0] == "ddp" and len(embedding) == 1
        forward = row["task_type"] == "inference" and spelling in ("ddp", "tp+ddp", "fsdp+ddp")
        return spelling if replicated and forward else "pooled_exchange"
    if spelling in ("ddp+tp", "fsdp+tp") and not (early and spelling == "ddp+tp"):
        return "shared_adapters"
    if early and "fsdp" not in spelling:
        return "only_sharded_gathers"
    if int(row["num_devices"]) < 64 or row["model_cfg"] in SMALL_VITS:
        return "small"
    return spelling
