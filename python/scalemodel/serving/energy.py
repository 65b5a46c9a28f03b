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


def _narrow(task: Inference) -> bool:
    return task.precision.startswith("fp") and task.precision != "fp16"


def decode_load(
    model: Model, task: Inference, instance: _core.Instance, sequences: float
) -> _core.DecodeLoad:
    """One instance's step of running sequences, as the law of serving power knows it.

    Prompts are left out: the law was fitted to runs whose steps mostly decode.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plan = sm.serve("llama3_8b", "dgx_h100", sm.Inference(input_tokens=1000, output_tokens=200))
    >>> load = decode_load(plan.model, plan.task, plan.instance, 32)
    >>> load.sequences, load.weight_bytes
    (32.0, 2.0)
    """
    experts = model.shape.experts > 0
    return _core.decode_load(instance, task.mix, sequences, experts=experts, narrow=_narrow(task))


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
    load = decode_load(model, task, instance, sequences)
    attention = attention_ranks(layout)
    if not layout.expert_ranks:
        return attention * accelerator_power_w(cluster, load)
    busy = instance.pool_load(task.mix, sequences)
    other = expert_cluster or cluster
    experts_w = accelerator_power_w(
        other,
        _core.expert_pool_load(instance, task.mix, sequences, narrow=_narrow(task)),
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
    >>> load = decode_load(plan.model, plan.task, plan.instance, 32)
    >>> 150 < accelerator_power_w(plan.cluster, load) < 700
    True
    """
    constants = serving_power(accelerator_table(kernels_lender(cluster)))
    limit_w = cluster.core.accelerator.power.limit_w
    return float(_core.serving_power_w(constants, limit_w, load, busy_fraction))
