"""The best layouts with experts on a pool of their own: `plan_expert_pools`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.numbers import divisors
from scalemodel.base.threads import worker_threads
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.resolve.serving_kernels import kernels_for
from scalemodel.serving.limits import limits_of, warn_of_milliseconds
from scalemodel.serving.plan import started_engine
from scalemodel.serving.pools import expert_cluster_of
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import Inference

GOALS = ("throughput", "cost")
_MICRO_BATCHES = (1, 2, 3, 4)  # more only make experts' products thin: MegaScale-Infer, 4.2
_MOST_SPLIT = 8
_COARSE_ROWS = 64  # rows of one layout among the best, at different concurrencies


def pool_layouts(
    model: Model, cluster: Cluster, expert_cluster: Cluster | None = None
) -> list[_core.ServingLayout]:
    """Legal layouts of an instance whose experts have a pool of their own.

    Attention has powers of two of tensor and data-parallel ranks, experts any number of ranks that
    divides them, each of them split over up to eight accelerators of a scale-up domain, and steps
    one to four micro-batches.

    Examples
    --------
    >>> import scalemodel as sm
    >>> found = pool_layouts(sm.model("mixtral_8x22b"), sm.cluster("dgx_h100", nodes=2))
    >>> sorted({layout.micro_batches for layout in found})
    [1, 2, 3, 4]
    >>> pool_layouts(sm.model("llama3_8b"), sm.cluster("dgx_h100"))
    []
    """
    if not model.shape.experts:
        return []
    other = cluster if expert_cluster is None else expert_cluster
    most, most_experts = cluster.accelerators, other.accelerators
    powers = [2**k for k in range(max(most, most_experts).bit_length())]
    core = None if expert_cluster is None else expert_cluster.core
    tensor = [n for n in powers if n <= int(cluster.core.scale_up.domain)]
    within = min(_MOST_SPLIT, int(other.core.scale_up.domain))
    found = []
    for tp, dp, ep in product(tensor, powers, divisors(model.shape.experts)):
        for split in [n for n in powers if n <= within]:
            experts = ep * split
            beside = tp * dp + (experts if expert_cluster is None else 0)
            if beside > most or experts > most_experts:
                continue
            layout = _core.ServingLayout(tp=tp, dp=dp, ep=ep, expert_ranks=experts)
            if _core.check_serving_layout(model.core, layout, cluster.core, core) == "ok":
                found += [layout.replace(micro_batches=n) for n in _MICRO_BATCHES]
    return found


def _prices(cluster: Cluster, other: Cluster | None, goal: str) -> float:
    """What an accelerator of the expert pool counts for, in those of attention."""
    if goal not in GOALS:
        raise ScaleModelError(f"goal={goal!r}: must be one of {', '.join(GOALS)}")
    if goal == "throughput" or other is None:
        return 1.0
    prices = [float(each.core.price_usd_per_s) for each in (cluster, other)]
    if not all(prices):
        name = str(cluster if not prices[0] else other)
        raise ScaleModelError(f"goal='cost': {name} has no price; give one to the cluster")
    return prices[1] / prices[0]


@named_arguments
def plan_expert_pools(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    expert_cluster: str | Path | Mapping[str, Any] | Cluster | None = None,
    goal: str = "throughput",
    tpot_s: float | None = None,
    engine: str = DEFAULT_ENGINE,
    per_octave: int = 4,
    top: int = 10,
    threads: int | None = None,
) -> list[Serving]:
    """The best instances that compute attention on one pool and experts on another.

    Numbers of accelerators of both pools, degrees, micro-batches and sequences kept running are
    searched in steady state (MegaScale-Infer, arXiv 2504.02263, algorithm 1, with pools of any
    size).

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve`; `cluster` holds attention, and the experts too where they have no other.
        A pool that only decodes has a `task` that is ``prefilled``.
    expert_cluster : str, path, mapping or Cluster, optional
        Where the experts lie.
    goal : str
        ``throughput`` (output tokens per second and accelerator) or ``cost`` (per price of both
        pools, by the prices of the clusters).
    tpot_s : float, optional
        Limit of the mean time between tokens.
    per_octave : int
        Concurrencies tried per doubling.
    top : int
        Plans of the result, no two of one layout.
    threads : int, optional
        All processors when left out; the result does not depend on it.

    Returns
    -------
    list of Serving
        Best first, each of one instance at the concurrency that was found; empty where nothing
        fits within the limit, or the model has no experts.

    Raises
    ------
    ScaleModelError : an unknown name, a number out of range, a cluster without a price.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=600, output_tokens=160, prefilled=True)
    >>> best = sm.plan_expert_pools("mixtral_8x22b", sm.cluster("dgx_h200", nodes=2), task,
    ...                             tpot_s=0.1, per_octave=1, top=2)
    >>> [plan.verdict for plan in best], best[0].tpot_s <= 0.1
    (['ok', 'ok'], True)
    """
    limits = limits_of({"tpot_s": tpot_s})
    warn_of_milliseconds(limits)
    if task.speculative_tokens:
        raise ScaleModelError(
            f"speculative_tokens={task.speculative_tokens}: no part of this search; ask serve"
        )
    chosen = resolve.model(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    name = engine_for(engine)
    other = expert_cluster_of(_core.ServingLayout(expert_ranks=1), expert_cluster, task)
    price = _prices(where, other, goal)
    layouts = pool_layouts(chosen, where, other)
    formats = (chosen.shape, task.precision, task.kv_precision)
    kernels, _ = kernels_for(where, name, *formats, images=task.images > 0)
    pool = None
    if other is not None:
        pool = _core.ExpertPool(other.core, kernels_for(other, name, *formats, images=False)[0])
    rows, _, _ = _core.search_pools(
        chosen.core,
        where.core,
        started_engine(name, task),
        kernels,
        task.mix,
        task.rank_imbalance,
        pool,
        price,
        layouts,
        per_octave,
        limits.get("tpot_s", 0.0),
        max(1, top * len(_MICRO_BATCHES) * _COARSE_ROWS),
        worker_threads(threads),
    )
    return _distinct(rows, top, chosen, where, task, name, other)


def _distinct(
    rows: Any,
    top: int,
    model: Model,
    cluster: Cluster,
    task: Inference,
    engine: str,
    expert_cluster: Cluster | None,
) -> list[Serving]:
    """The first plan of each layout, served again."""
    names = ("tp", "dp", "ep", "expert_ranks", "micro_batches")
    found: dict[_core.ServingLayout, Serving] = {}
    for row in rows:
        degrees: dict[str, Any] = {
            key: int(value) for key, value in zip(names, row[: len(names)], strict=True)
        }
        layout = _core.ServingLayout(**degrees)
        if layout in found:
            continue
        found[layout] = serve(
            model,
            cluster,
            task,
            layout,
            engine=engine,
            replicas=1,
            concurrency=float(row[len(names) + 1]),
            expert_cluster=expert_cluster,
        )
        if len(found) == top:
            break
    return list(found.values())
