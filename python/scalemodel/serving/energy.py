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


def _narrow(task: Inference) -> bool:
    return task.precision.startswith("fp") and task.precision != "fp16"


def instance_power_w(
    model: Model,
    cluster: Cluster,
    task: Inference,
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
    >>> 150 < instance_power_w(plan.model, plan.cluster, plan.task, plan.instance, 32) < 700
    True
    """
    return float(
        _core.instance_power_w(
            instance,
            task.mix,
            sequences,
            serving=_law_of(cluster),
            expert_serving=_law_of(expert_cluster or cluster),
            experts=model.shape.experts > 0,
            narrow=_narrow(task),
        )
    )


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
    other = expert_cluster or cluster
    return float(_core.instance_price_usd_per_s(layout, cluster.core, other.core))


def _law_of(cluster: Cluster) -> _core.ServingPower:
    return serving_power(accelerator_table(kernels_lender(cluster)))
