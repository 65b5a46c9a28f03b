"""Watts of accelerators that serve a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.power import serving_power
from scalemodel.resolve.serving_kernels import kernels_lender
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    from scalemodel.resolve import Cluster, Model

_MOST_WEIGHT_BYTES = 8.0  # per parameter; the law knows no more copies


def decode_load(
    model: Model,
    cluster: Cluster,
    task: Inference,
    layout: _core.ServingLayout,
    instance: _core.Instance,
    sequences: float,
) -> _core.DecodeLoad:
    """One instance's step of running sequences, as the law of serving power knows it.

    Prompts are left out: the law was fitted to runs whose steps mostly decode.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plan = sm.serve("llama3_8b", "dgx_h100", sm.Inference(input_tokens=1000, output_tokens=200))
    >>> load = decode_load(plan.model, plan.cluster, plan.task, plan.layout, plan.instance, 32)
    >>> load.sequences, load.weight_bytes
    (32.0, 2.0)
    """
    accelerator = cluster.core.accelerator
    context = task.input_tokens + (task.output_tokens + 1) / 2
    capacity = instance.capacity(task.input_tokens, task.output_tokens)
    rank_cache = instance.cache_blocks(context) * capacity.block_bytes
    stage_ranks = layout.tp * layout.cp * layout.pp
    peaks = dict(zip(_core.precisions(), accelerator.peak_flop_per_s, strict=True))
    narrow = task.precision.startswith("fp") and task.precision != "fp16"
    wide = peaks["bf16"] or peaks["fp16"] or max(peaks.values())
    peak = (peaks["fp8"] if narrow else 0.0) or wide
    accelerators = stage_ranks * layout.dp
    # Data-parallel ranks of a dense model are copies of it; those of experts share these out and
    # hold more than one copy of everything else.
    replicas = 1 if model.shape.experts > 0 else layout.dp
    held = capacity.memory_weights_bytes * accelerators / (model.parameters * replicas)
    return _core.DecodeLoad(
        parameters=model.parameters,
        active_parameters=model.active_parameters,
        weight_bytes=min(held, _MOST_WEIGHT_BYTES),
        cache_bytes=rank_cache * stage_ranks,
        sequences=max(sequences, 1e-3),
        accelerators=accelerators,
        replicas=replicas,
        peak_flop_per_s=peak,
        bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
    )


def accelerator_power_w(cluster: Cluster, load: _core.DecodeLoad) -> float:
    """Mean watts of one accelerator under such steps.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plan = sm.serve("llama3_8b", "dgx_h100", sm.Inference(input_tokens=1000, output_tokens=200))
    >>> load = decode_load(plan.model, plan.cluster, plan.task, plan.layout, plan.instance, 32)
    >>> 150 < accelerator_power_w(plan.cluster, load) < 700
    True
    """
    constants = serving_power(accelerator_table(kernels_lender(cluster)))
    limit_w = cluster.core.accelerator.power.limit_w
    return float(_core.serving_power_w(constants, limit_w, load))
