"""The original's 33 models and its families of systems, and a question from their names.

Numbers are those of ``madmax/model_cfgs`` and ``madmax/system_cfgs`` of ScaleExplorer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.studies.madmax_original.sizes import (
    Mesh,
    Question,
    System,
    Workload,
    mesh_of,
    product,
)


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


_BLOCKS: dict[str, Any] = {
    "family": "DLRM_Transformer",
    "layers": 4,
    "hidden": 512,
    "ffn": 2048,
    "sequence": 80,
}
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


#: Parallelisms of embedding tables and of layers; sharded layers only inside.
_OF_TABLES, _OF_LAYERS = ("mp", "ddp"), ("ddp", "fsdp", "tp")


def _checked(text: str, of_tables: bool, gpus: int, system: System) -> Mesh:
    """The mesh, if the original runs it.

    Raises
    ------
    ScaleModelError : a name it does not know, twice the same, more than two levels, an outer fsdp,
        or degrees that are not the system's.
    """
    try:
        mesh = mesh_of(text)
    except ValueError:
        raise ScaleModelError(f"mesh={text!r}: must be spelled as tp@8+ddp@16") from None
    names, known = [name for name, _ in mesh], _OF_TABLES if of_tables else _OF_LAYERS
    inner = mesh[0][1] if mesh else 0
    reasons = {
        f"must be made of {', '.join(known)}": set(names) <= set(known) and bool(mesh),
        "the original has at most two levels": len(mesh) <= 2,
        "the original takes a parallelism once": len(set(names)) == len(names),
        "the original shards parameters on the inner level only": "fsdp" not in names[1:],
        f"degrees must multiply to {gpus}": math.prod(degree for _, degree in mesh) == gpus,
        f"the inner degree must be {system.gpus_per_node} or {gpus}": inner
        in (system.gpus_per_node, gpus),
        "degrees must be above 1": all(degree > 1 for _, degree in mesh),
    }
    for reason, holds in reasons.items():
        if not holds:
            raise ScaleModelError(f"mesh={text!r}: {reason}")
    return mesh


def ask(
    model: str,
    system: str,
    gpus: int,
    layers: str,
    batch: float,
    *,
    tables: str = "",
    transformer: str = "",
    task: str = "pretrain",
    early: bool = False,
) -> Question:
    """A question of the original, refused where the original refuses it.

    Parameters
    ----------
    model, system : str
        Of `WORKLOADS`, of `SYSTEMS`.
    gpus : int
    layers, tables, transformer : str
        Meshes such as ``tp@8+ddp@16``; tables are spread over all GPUs, or replicated where a
        model has none of its own; transformer blocks lie as the other layers.
    batch : float
        Of all GPUs.
    task : str
        ``"pretrain"`` or ``"inference"``.
    early : bool
        Parameters are gathered without waiting in the backward pass ("post-optimised").

    Raises
    ------
    ScaleModelError : an unknown model or system, or a mesh that the original does not run.

    Examples
    --------
    >>> from scalemodel.studies.madmax_original import step
    >>> asked = ask("dlrm/dlrm_a", "zionex/zionex", 128, "ddp@128", 65536)
    >>> round(65536 / step(asked).step_s / 1e6, 3)
    1.214
    """
    for name, value, known in (("model", model, WORKLOADS), ("system", system, SYSTEMS)):
        if value not in known:
            raise ScaleModelError(f"{name}={value!r}: {nearest(value, known)}")
    workload, where = WORKLOADS[model], SYSTEMS[system]
    recommender = bool(workload.tables)
    spread = tables or f"{'mp' if recommender else 'ddp'}@{gpus}"
    embedding = _checked(spread, True, gpus, where)
    dense = _checked(layers, False, gpus, where)
    blocks = _checked(transformer or layers, False, gpus, where)
    return Question(
        workload=workload,
        system=where,
        gpus=gpus,
        embedding=embedding,
        mlp=dense if recommender else (),
        transformer=blocks if workload.layers else (),
        embedding_batch=batch / product(embedding, ("ddp",)),
        mlp_batch=batch / product(dense, ("ddp", "fsdp")) if recommender else 0.0,
        transformer_batch=batch / product(blocks, ("ddp", "fsdp")) if workload.layers else 0.0,
        task=task,
        prefetch_all=early,
    )
