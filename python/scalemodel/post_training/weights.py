"""New weights for the ranks that generate, and accelerators that change between both uses."""

from __future__ import annotations

from typing import Literal

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.resolve.reader import Reader
from scalemodel.serving.plan import ranks_of

RefitWay = Literal["ipc", "broadcast", "reshard", "rdma", "rdma_whole"]
#: Ways of new weights between pools; accelerators that do both hand them on in memory.
WAYS: tuple[RefitWay, ...] = ("broadcast", "reshard", "rdma", "rdma_whole")


def reference(part: str) -> Reader:
    """A part of the numbers of post-training."""
    table = Reader(catalog.load("reference", "post_training"), "reference/post_training")
    return table.sub(part)


def refit_time(
    model: resolve.Model,
    train: resolve.Cluster,
    rollout: resolve.Cluster,
    layout: _core.ServingLayout,
    precision: str,
    *,
    way: RefitWay,
    framework: str,
    sharded: bool = False,
) -> float:
    """Seconds of new weights for all replicas: bytes over links, and every matrix by itself.

    Parameters
    ----------
    way : str
        One of `WAYS`, as the engine's ``RefitWay`` says.
    framework : str
        Whose fixed time is added.
    sharded : bool
        Whether the ranks that train hold a shard of every matrix (FSDP, ZeRO-3), which they gather
        before they hand it on whole.
    """
    fixed = reference("refit")
    costs = _core.RefitCosts(
        start_s=reference("refit_start").number(framework),
        per_matrix_s=fixed.number("matrix"),
        per_load_s=fixed.number("load"),
        gather_bytes_per_s=fixed.number("gather"),
    )
    weights = _core.weight_set(model.core, precision)
    pools, ranks = (train.core, rollout.core), ranks_of(layout)
    return _core.refit_time_s(weights, *pools, way, ranks, costs, sharded)


def switch_time(model: resolve.Model, cluster: resolve.Cluster) -> float:
    """Seconds for optimizer states and gradients to the host and back, and an engine that wakes."""
    fixed = reference("switch")
    costs = _core.SwitchCosts(
        per_parameter_bytes=fixed.number("states"), wake_s=fixed.number("wake")
    )
    return _core.switch_time_s(model.parameters, cluster.core, costs)
