"""Experts on accelerators of their own: what of a plan lies where, and how busy it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd

#: Where a step keeps something busy, columns of a `PoolLoad`.
PLACES = ("attention", "experts", "dispatch", "combine")


def attention_ranks(layout: _core.ServingLayout) -> int:
    """Accelerators of one instance without those of an expert pool.

    Examples
    --------
    >>> attention_ranks(_core.ServingLayout(tp=2, dp=4, ep=8, expert_ranks=8))
    8
    """
    return int(layout.tp * layout.dp * layout.cp * layout.pp)


def expert_cluster_of(layout: _core.ServingLayout, given: Any, task: Inference) -> Cluster | None:
    """The cluster of an expert pool where it is another than that of attention.

    Raises
    ------
    ScaleModelError : there is no pool, or adapters of its experts are asked for.

    Examples
    --------
    >>> task = Inference(input_tokens=600, output_tokens=160)
    >>> expert_cluster_of(_core.ServingLayout(expert_ranks=8), "dgx_h100", task).accelerators
    8
    """
    if layout.expert_ranks and task.adapters and task.adapter_targets == "all":
        raise ScaleModelError(
            "adapter_targets='all': experts of a pool of their own take none; give 'attention'"
        )
    if given is None:
        return None
    if not layout.expert_ranks:
        raise ScaleModelError(
            f"expert_cluster={str(given)!r}: no experts lie there; give expert_ranks of the layout "
            "from 1"
        )
    return given if isinstance(given, Cluster) else resolve.cluster(given)


def copies_of(layout: _core.ServingLayout, cluster: Cluster, expert_cluster: Cluster | None) -> int:
    """Instances that the clusters hold, at least one.

    Examples
    --------
    >>> import scalemodel as sm
    >>> copies_of(sm.ServingLayout(tp=2, ep=2, expert_ranks=2), sm.cluster("dgx_h100"), None)
    2
    """
    attention, experts = attention_ranks(layout), int(layout.expert_ranks)
    if expert_cluster is None:
        return max(1, cluster.accelerators // (attention + experts))
    return max(1, min(cluster.accelerators // attention, expert_cluster.accelerators // experts))


def pool_table(layout: _core.ServingLayout, load: _core.PoolLoad) -> pd.DataFrame:
    """The table of `Serving.pools`.

    Examples
    --------
    >>> load = _core.PoolLoad(attention_s=3.0, experts_s=2.0, dispatch_s=1.0, combine_s=1.0,
    ...                       step_time_s=4.0)
    >>> pool_table(_core.ServingLayout(tp=4, expert_ranks=2), load).busy_fraction.tolist()
    [0.75, 0.5, 0.25, 0.25]
    """
    import pandas as pd

    busy = [float(getattr(load, f"{place}_s")) for place in PLACES]
    ranks = (attention_ranks(layout), int(layout.expert_ranks), 0, 0)
    shares = [each / load.step_time_s for each in busy]
    return pd.DataFrame(
        {"accelerators": ranks, "busy_s": busy, "busy_fraction": shares}, index=list(PLACES)
    )
