"""Watts of accelerators that serve a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.power import serving_power
from scalemodel.resolve.serving_kernels import kernels_lender
from scalemodel.serving.pools import attention_ranks
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
    parameters, active = float(model.parameters), float(model.active_parameters)
    apart = layout.expert_ranks > 0
    if apart:
        apart_parameters, apart_active = instance.pool_parameters
        parameters -= apart_parameters
        active -= apart_active
    stage_ranks = layout.tp * layout.cp * layout.pp
    accelerators = stage_ranks * layout.dp
    # Data-parallel ranks of a dense model are copies of it; those of experts share these out and
    # hold more than one copy of everything else.
    replicas = 1 if model.shape.experts > 0 and not apart else layout.dp
    held = capacity.memory_weights_bytes * accelerators / (parameters * replicas)
    return _core.DecodeLoad(
        parameters=parameters,
        active_parameters=active,
        weight_bytes=min(held, _MOST_WEIGHT_BYTES),
        cache_bytes=rank_cache * stage_ranks,
        sequences=max(sequences, 1e-3),
        accelerators=accelerators,
        replicas=replicas,
        peak_flop_per_s=_peak(cluster, task),
        bandwidth_bytes_per_s=accelerator.memory_bandwidth_bytes_per_s,
    )


def _peak(cluster: Cluster, task: Inference) -> float:
    """Dense rate of the products of a task."""
    rates = cluster.core.accelerator.peak_flop_per_s
    peaks = dict(zip(_core.precisions(), rates, strict=True))
    narrow = task.precision.startswith("fp") and task.precision != "fp16"
    wide = peaks["bf16"] or peaks["fp16"] or max(peaks.values())
    return float((peaks["fp8"] if narrow else 0.0) or wide)


def _expert_load(
    cluster: Cluster,
    task: Inference,
    layout: _core.ServingLayout,
    instance: _core.Instance,
    sequences: float,
) -> _core.DecodeLoad:
    """The same of the pool that holds the experts of an instance alone, on its cluster."""
    ranks, (parameters, active) = int(layout.expert_ranks), instance.pool_parameters
    capacity = instance.capacity(task.input_tokens, task.output_tokens)
    held = capacity.memory_expert_weights_bytes * ranks / parameters
    return _core.DecodeLoad(
        parameters=parameters,
        active_parameters=active,
        weight_bytes=min(held, _MOST_WEIGHT_BYTES),
        cache_bytes=0.0,
        sequences=max(sequences, 1e-3),
        accelerators=ranks,
        replicas=1,
        peak_flop_per_s=_peak(cluster, task),
        bandwidth_bytes_per_s=cluster.core.accelerator.memory_bandwidth_bytes_per_s,
    )


def instance_power_w(
    model: Model,
    cluster: Cluster,
    task: Inference,
    layout: _core.ServingLayout,
    instance: _core.Instance,
    sequences: float,
    expert_cluster: Cluster | None = None,
) -> float:
    """Mean watts of the accelerators of one instance, those of an expert pool among them.

    A pool that waits for the other draws what one does that waits for its CPU.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plan = sm.serve("llama3_8b", "dgx_h100", sm.Inference(input_tokens=1000, output_tokens=200))
    >>> question = plan.model, plan.cluster, plan.task, plan.layout, plan.instance
    >>> 150 < instance_power_w(*question, 32) < 700
    True
    """
    load = decode_load(model, cluster, task, layout, instance, sequences)
    attention = attention_ranks(layout)
    if not layout.expert_ranks:
        return attention * accelerator_power_w(cluster, load)
    busy = instance.pool_load(task.mix, sequences)
    other = expert_cluster or cluster
    experts_w = accelerator_power_w(
        other,
        _expert_load(other, task, layout, instance, sequences),
        busy.experts_s / busy.step_time_s,
    )
    attention_w = accelerator_power_w(cluster, load, busy.attention_s / busy.step_time_s)
    return attention * attention_w + int(layout.expert_ranks) * experts_w


def price_usd_per_s(
    layout: _core.ServingLayout, cluster: Cluster, expert_cluster: Cluster | None
) -> float:
    """Of the accelerators of one instance; 0 where one of its clusters has no price.

    Examples
    --------
    >>> import scalemodel as sm
    >>> round(3600 * price_usd_per_s(sm.ServingLayout(tp=2), sm.cluster("dgx_h100"), None), 2)
    5.98
    """
    own = float(cluster.core.price_usd_per_s)
    other = own if expert_cluster is None else float(expert_cluster.core.price_usd_per_s)
    experts = int(layout.expert_ranks)
    if not own or (experts and not other):
        return 0.0
    return attention_ranks(layout) * own + experts * other


def accelerator_power_w(
    cluster: Cluster, load: _core.DecodeLoad, busy_fraction: float = 1.0
) -> float:
    """Mean watts of one accelerator under such steps, computing at most this share of them.

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
    return float(_core.serving_power_w(constants, limit_w, load, busy_fraction))
