"""New weights for the ranks that generate, and accelerators that change between both uses."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.resolve.reader import Reader
from scalemodel.serving.plan import ranks_of

_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5, "fp32": 4, "tf32": 4}


def reference(part: str) -> Reader:
    """A part of the numbers of post-training."""
    table = Reader(catalog.load("reference", "post_training"), "reference/post_training")
    return table.sub(part)


def refit_time(
    model: resolve.Model,
    pool: resolve.Cluster,
    layout: _core.ServingLayout,
    precision: str,
    *,
    colocated: bool,
) -> float:
    """Seconds of new weights for all replicas: a receiver's bytes over its link, and its tensors.

    Pools apart send every receiver its part. On the same accelerators each rank gathers the whole
    model, tensor by tensor, and keeps its part, over the network where training spans several
    domains (NVIDIA-NeMo/RL, design documents: 36.8 s for DeepSeek-V3 on H100 where every rank
    receives all experts, 2.6 s where each receives its own). Without any link it is a copy in
    memory.
    """
    fixed, place = reference("refit"), pool.core
    fast = colocated and place.scale_up.domain >= pool.accelerators
    links = (place.scale_up,) if fast else (place.fabric, place.scale_up)
    rates = [link.p2p_fraction * link.bandwidth_bytes_per_s for link in links]
    copied = place.accelerator.memory_bandwidth_bytes_per_s / 2
    rate = next((rate for rate in rates if rate > 0), copied)
    matrices = model.shape.layers * (7 + 3 * int(model.shape.experts))
    size = model.parameters * _BYTES[precision] / (1 if colocated else ranks_of(layout))
    return fixed.number("start") + matrices * fixed.number("tensor") + size / rate


def switch_time(model: resolve.Model, cluster: resolve.Cluster) -> float:
    """Seconds for optimizer states and gradients to the host and back, and an engine that wakes."""
    fixed = reference("switch")
    size = fixed.number("states") * model.parameters / cluster.accelerators
    host = cluster.core.accelerator.host_bandwidth_bytes_per_s
    moved = 2 * size / host if host > 0 else 0.0
    return moved + fixed.number("wake")
