"""New weights for the ranks that generate, and accelerators that change between both uses."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.resolve.reader import Reader
from scalemodel.serving.plan import ranks_of


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

    Pools apart send every receiver its part; on the same accelerators each rank gathers the whole
    model, over the network where training spans several domains.
    """
    fixed = reference("refit")
    weights = _core.WeightSet(
        parameters=model.parameters,
        matrices=model.shape.layers * (7 + 3 * int(model.shape.experts)),
        precision=precision,
    )
    costs = _core.RefitCosts(start_s=fixed.number("start"), per_matrix_s=fixed.number("tensor"))
    return _core.refit_time_s(weights, pool.core, ranks_of(layout), colocated, costs)


def switch_time(model: resolve.Model, cluster: resolve.Cluster) -> float:
    """Seconds for optimizer states and gradients to the host and back, and an engine that wakes."""
    fixed = reference("switch")
    costs = _core.SwitchCosts(
        per_parameter_bytes=fixed.number("states"), wake_s=fixed.number("wake")
    )
    return _core.switch_time_s(model.parameters, cluster.core, costs)
