"""What the original was asked: its 33 models, its families of systems, the rows of its table."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from reference.madmax import Question, System, Workload, mesh_of


def _dlrm(depth: int, width: int, tables: int, entries: int, dim: int, pooled: int) -> Workload:
    return Workload(
        "DLRM",
        parameter_bytes=4,
        tables=tables,
        entries=entries,
        dim=dim,
        pooled=pooled,
        width=width,
        bottom=depth,
        top=depth,
    )


def _decoder(layers: int, hidden: int, ffn: int, sequence: int) -> Workload:
    return Workload(
        "LLM", layers=layers, hidden=hidden, ffn=ffn, sequence=sequence, vocabulary=50257
    )


def _vit(layers: int, hidden: int, image: int = 224, patch: int = 16) -> Workload:
    return Workload(
        "ViT",
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        sequence=math.ceil(image / patch) ** 2,
        vocabulary=3 * patch**2,
    )


_BLOCKS = {"family": "DLRM_Transformer", "layers": 4, "hidden": 512, "ffn": 2048, "sequence": 80}
_DLRM = {
    "dlrm_a": _dlrm(10, 3994, 4096, 2_080_000, 94, 15),
    "dlrm_a_small": _dlrm(10, 3994, 4096, 130_000, 94, 15),
    "dlrm_f": _dlrm(4, 560, 64, 732_000_000, 256, 20),
    "dlrm_i": _dlrm(22, 826, 512, 7_050_000, 92, 70),
    "dlrm_i_small": _dlrm(22, 826, 512, 440_000, 92, 70),
}
WORKLOADS: dict[str, Workload] = {
    **{f"dlrm/{name}": shape for name, shape in _DLRM.items()},
    **{
        f"dlrm_moe/{name}_moe": replace(shape, family="DLRM_MoE", experts=16, active_experts=2)
        for name, shape in _DLRM.items()
        if name != "dlrm_f"
    },
    **{
        f"dlrm_transformer/{name}_transformer": replace(shape, **_BLOCKS)
        for name, shape in _DLRM.items()
        if name != "dlrm_f"
    },
    "llm/gpt3_175b": _decoder(96, 12288, 49152, 2048),
    "llm/llama_7b": _decoder(32, 4096, 10924, 2048),
    "llm/llama_13b": _decoder(40, 5120, 13654, 2048),
    "llm/llama_30b": _decoder(60, 6656, 17750, 2048),
    "llm/llama_65b": _decoder(80, 8192, 21846, 2048),
    "llm/llama2_70b": _decoder(80, 8192, 21846, 4096),
    "llm/llama2_70b_8kctx": _decoder(80, 8192, 21846, 8192),
    "llm/llama2_70b_16kctx": _decoder(80, 8192, 21846, 16384),
    "llm/llama2_70b_32kctx": _decoder(80, 8192, 21846, 32768),
    "llm_moe/gpt4_1.8t": replace(
        _decoder(120, 10704, 42816, 8192), family="LLM_MoE", experts=16, active_experts=2
    ),
    "vit/dinov2_s": _vit(12, 384),
    "vit/dinov2_b": _vit(18, 768),
    "vit/dinov2_l": _vit(24, 1024),
    "vit/dinov2_g": _vit(40, 1536),
    "vit/vit_l": _vit(24, 1024),
    "vit/vit_h": _vit(4, 1280),
    "vit/vit_10b": _vit(32, 5120, patch=14),
    "vit/vit_25b": _vit(36, 7680, patch=14),
    "vit/vit_60b": _vit(48, 10240, patch=14),
    "vit/vit_120b": _vit(96, 10240, patch=14),
}

_PEAKS = {
    "a100": {8: 9.7e12, 4: 156e12, 2: 312e12, 1: 624e12},
    "h100": {8: 26e12, 4: 378e12, 2: 756e12, 1: 1513e12},  # of the PCIe card
    "v100": {8: 7e12, 4: 14e12, 2: 112e12, 1: 112e12},
}


def _system(
    gpu: str,
    memory: float,
    memory_rate: float,
    node: int,
    links: tuple[int, float, float],
    ports: tuple[int, float, float],
    share: float = 0.1465,
) -> System:
    return System(
        flop_per_s=_PEAKS[gpu],
        memory_bytes_per_s=memory_rate,
        memory_bytes=memory,
        gpus_per_node=node,
        links=links[0],
        link_bytes_per_s=links[1],
        link_fraction=links[2],
        ports=ports[0],
        port_bytes_per_s=ports[1],
        port_fraction=ports[2],
        intra_share=share,
    )


_ZIONEX = _system("a100", 40e9, 1555e9, 8, (12, 50e9, 0.6667), (8, 25e9, 0.56), 0.2746)
_NVLINK2 = (6, 50e9, 0.45)
_NVLINK3 = (12, 50e9, 0.45)
_V100_32 = _system("v100", 32e9, 900e9, 8, _NVLINK2, (8, 1.5625e9, 0.62))

#: Families of systems; a file of the original is a family and a number of GPUs.
SYSTEMS: dict[str, System] = {
    "zionex/zionex": _ZIONEX,
    "dc_A/dc_A": _ZIONEX,
    "cloud_A/cloud_A_a100.40": _system("a100", 40e9, 1555e9, 8, _NVLINK3, (8, 6.25e9, 0.62)),
    "cloud_A/cloud_A_a100.80": _system("a100", 80e9, 1555e9, 8, _NVLINK3, (8, 6.25e9, 0.62)),
    "cloud_A/cloud_A_h100.80": _system("h100", 80e9, 2000e9, 8, (18, 50e9, 0.45), (8, 50e9, 0.62)),
    "cloud_A/cloud_A_v100.16": _system("v100", 16e9, 900e9, 8, _NVLINK2, (8, 0.390625e9, 0.62)),
    "cloud_A/cloud_A_v100.32": _V100_32,
    "cloud_B/cloud_B_v100.32": _V100_32,
    "cloud_B/cloud_B_a100.40": _system("a100", 40e9, 1555e9, 8, _NVLINK3, (8, 25e9, 0.62)),
    "cloud_B/cloud_B_a100.80": _system("a100", 80e9, 1555e9, 4, (1, 2.5e9, 0.45), (4, 2.5e9, 0.62)),
    "cloud_B/cloud_B_v100.16": _system(
        "v100", 16e9, 900e9, 4, (1, 0.75e9, 0.62), (4, 0.75e9, 0.62)
    ),
    "cloud_C/cloud_C_a100.40": _system("a100", 40e9, 1555e9, 8, _NVLINK3, (8, 1.5625e9, 0.62)),
    "cloud_C/cloud_C_a100.40m": _system("a100", 40e9, 1555e9, 16, _NVLINK3, (16, 0.78125e9, 0.62)),
    "cloud_C/cloud_C_v100.16": _system(
        "v100", 16e9, 900e9, 8, (6, 50e9, 0.62), (8, 1.5625e9, 0.62)
    ),
}

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

    Else the key of the correction (`madmax.CORRECTIONS`) that names what is wrong, or ``small``:
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
