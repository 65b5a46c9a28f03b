"""``route``: paths for the flows of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.network import NetworkReport, route_jobs
from scalemodel.routing.report import RoutingReport
from scalemodel.routing.traffic import Traffic
from scalemodel.routing.training_jobs import is_job, jobs_of

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster, Model
    from scalemodel.resolve.tasks import Training

#: Policies of the engine, and the exact solver that needs HiGHS.
POLICIES = (
    "ecmp",
    "subflow_ecmp",
    "spray",
    "greedy",
    "colouring",
    "modulo_colouring",
    "balanced",
    "annealing",
    "hedera",
    "local_search",
    "exhaustive",
    "milp",
)
MODELS = ("fair_share", "allocated")
#: (model, strategy, task[, accelerators or NICs]), or a mapping of them.
TrainingJob: TypeAlias = Any


def as_fabric(fabric: Fabric | Cluster) -> Fabric:
    """The fabric itself, or the one of a cluster."""
    return fabric if isinstance(fabric, Fabric) else Fabric.of_cluster(fabric)


def as_traffic(
    jobs: Traffic | pd.DataFrame | Iterable[Mapping[str, Any]],
    overlap: Iterable[Iterable[str]] | None = None,
) -> Traffic:
    """Traffic itself, or that of a table of flows, in phases maybe, or of a list of jobs."""
    if hasattr(jobs, "columns"):
        return Traffic.from_frame(cast("pd.DataFrame", jobs), overlap=overlap)
    if overlap is not None:
        raise ScaleModelError("overlap: is for tables of flows with phases")
    if isinstance(jobs, Traffic):
        return jobs
    return Traffic.of_jobs(jobs)


def options_of(policy: str, model: str, **others: Any) -> _core.RouteOptions:
    """Checked options of the engine."""
    if policy not in POLICIES:
        raise ScaleModelError(f"policy={policy!r}: must be one of {', '.join(POLICIES)}")
    if model not in MODELS:
        raise ScaleModelError(f"model={model!r}: must be one of {', '.join(MODELS)}")
    return _core.RouteOptions(
        policy="greedy" if policy == "milp" else policy, model=model, **others
    )


def estimate_routed(
    model: Model,
    cluster: Cluster,
    task: Training,
    strategy: _core.Strategy,
    *,
    stack: str,
    policy: str,
) -> Estimate:
    """The estimate of a strategy with what its network leaves it when a policy routes it alone.

    Raises
    ------
    ScaleModelError : unknown policy, or a strategy that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task, plan = sm.Training(global_batch=512, sequence=8192), sm.Strategy(tp=2)
    >>> question = (sm.model("llama3_8b"), sm.cluster("dgx_h100", nodes=64), task, plan)
    >>> est = estimate_routed(*question, stack="plain", policy="ecmp")
    >>> est.step_time_s >= sm.estimate(*question).step_time_s
    True
    """
    job = {"model": model, "strategy": strategy, "task": task, "stack": stack}
    report = route(cluster, [job], policy=policy)
    return estimate(model, cluster, task, strategy, stack=stack, network=report)


@overload
def route(
    cluster: Cluster,
    jobs: Iterable[TrainingJob],
    *,
    policy: str = "balanced",
    model: str = "fair_share",
    seed: int = 0,
    effort: float = 1.0,
    parts: int = 4,
    keep_best: bool = False,
    max_paths: int = 256,
    detours: int = 0,
    fabric: Fabric | None = None,
    placement: str | Sequence[int] = "packed",
    rails: bool = True,
    overlap: Iterable[Iterable[str]] = (),
) -> NetworkReport: ...


@overload
def route(
    cluster: Fabric | Cluster,
    jobs: Traffic | pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    policy: str = "balanced",
    model: str = "fair_share",
    seed: int = 0,
    effort: float = 1.0,
    parts: int = 4,
    keep_best: bool = False,
    max_paths: int = 256,
    detours: int = 0,
    time_limit_s: float = 60.0,
) -> RoutingReport: ...


@named_arguments
def route(
    cluster: Fabric | Cluster,
    jobs: Traffic | pd.DataFrame | Iterable[TrainingJob],
    *,
    policy: str = "balanced",
    model: str = "fair_share",
    seed: int = 0,
    effort: float = 1.0,
    parts: int = 4,
    keep_best: bool = False,
    max_paths: int = 256,
    detours: int = 0,
    fabric: Fabric | None = None,
    placement: str | Sequence[int] = "packed",
    rails: bool = True,
    overlap: Iterable[Iterable[str]] = (),
    time_limit_s: float = 60.0,
) -> RoutingReport | NetworkReport:
    """Choose paths for the flows of jobs and judge them.

    Every flow moves at its max-min fair rate; a job steps with its slowest flow (fair_share), or
    its flows are paced to end together (allocated). Rates are a fluid: convergence of transport
    protocols, incast, priority flow control and queues are not modelled.

    Parameters
    ----------
    cluster : Cluster or Fabric
        A cluster stands for its fabric, see `Fabric.of_cluster`.
    jobs : Traffic, DataFrame, or iterable of jobs
        Flows; a table as in `Traffic.from_frame`; jobs as in `Traffic.of_jobs`. Or training jobs:
        ``(model, strategy, task[, accelerators or NICs])`` or mappings with these keys and
        ``placement``, ``name`` and ``stack``; a job without a size has that of its strategy's dp,
        a single one the whole cluster.
    policy : str
        ``ecmp`` (a hash decides), ``subflow_ecmp`` (several hashed parts), ``spray`` (packets over
        all paths), ``greedy``, ``annealing`` and ``modulo_colouring`` (those of arXiv 2503.05324;
        annealing elsewhere than on two tiers is Hedera's), ``hedera`` (annealing of destinations
        over cores with natural demands, NSDI 2010), ``colouring`` (optimal for equal flows on two
        tiers; fat trees too), ``balanced`` (colouring for equal flows, otherwise local search;
        never drains later than greedy), ``local_search``, ``exhaustive`` (small instances),
        ``milp`` (layer 1 proven by HiGHS; extra ``milp``).
    model : {"fair_share", "allocated"}
        Rate model that searches improve and that the report's objective uses.
    seed : int
        Of annealing, hedera and local search: equal seeds give equal answers.
    effort : float
        Of local search, in operations; 1 takes up to 50 ms of one core, and 0.2 s where hundreds
        of flows of few sizes must fill every link exactly. Those are worth more: with 256, which
        takes 1 to 12 s, most instances of 16 leaves and 8 spines do fill them.
    parts : int
        Of every flow, ``subflow_ecmp``.
    keep_best : bool
        Annealing answers the best state met instead of the last one.
    max_paths, detours : int
        Where the fabric has not two tiers: shortest paths per pair of switches at most, and further
        paths by way of another switch.
    time_limit_s : float
        ``milp``: the best paths by then, `balanced` ones at least; ``gap_fraction`` is what is not
        proven.
    fabric : Fabric, optional
        Training jobs: the network of the cluster where it is not its own, with failures say.
    placement, rails
        Training jobs: as in `traffic`, for jobs that do not say.
    overlap : iterable of iterables of str
        Training jobs: axes whose traffic runs at the same time, such as ``[("dp", "pp")]``; they
        are routed together and share ports and links. Default: phases follow each other.

    Returns
    -------
    RoutingReport
        ``jobs()``, ``flows()``, ``links()``, and ``completion()``: when flows, rings and
        collectives end. Of training jobs: a NetworkReport, for ``network=`` of `estimate`, `sweep`
        and `search`.

    Raises
    ------
    ScaleModelError : unknown policy, a NIC that does not exist, a policy that does not apply, a
        training job that is malformed or cannot run, no room for it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=3, spines=2, nics_per_leaf=2)
    >>> jobs = [{"pattern": "ring", "nics": [0, 2, 4], "size_bytes": 1e9},
    ...         {"pattern": "ring", "nics": [1, 5, 3], "size_bytes": 1e9}]
    >>> sm.route(fabric, jobs).jobs().slowdown.tolist()
    [1.0, 1.0]
    >>> job = ("llama3_8b", sm.Strategy(tp=2), sm.Training(global_batch=64, sequence=8192))
    >>> sm.route(sm.cluster("dgx_h100", nodes=4), [job]).shares()
    {'tp': 1.0, 'cp': 1.0, 'ep': 1.0, 'pp': 1.0, 'dp': 1.0}
    """
    options = options_of(policy, model, seed=seed, effort=effort, parts=parts, keep_best=keep_best)
    jobs = jobs if isinstance(jobs, Traffic) or hasattr(jobs, "columns") else list(jobs)
    if isinstance(jobs, list) and jobs and is_job(jobs[0]):
        if isinstance(cluster, Fabric):
            raise ScaleModelError(
                "cluster: training jobs need a cluster; its network is fabric=..."
            )
        if policy == "milp":
            raise ScaleModelError("policy='milp': routes tables of flows, not training jobs")
        network = as_fabric(cluster) if fabric is None else fabric
        placed = jobs_of(cluster, jobs, nics=network.nics, placement=placement, seed=seed)
        return route_jobs(
            cluster,
            network,
            placed,
            options,
            rails=rails,
            max_paths=max_paths,
            detours=detours,
            overlap=overlap,
        )
    if fabric is not None:
        raise ScaleModelError("fabric: is for training jobs; pass the fabric of flows first")
    if overlap:
        raise ScaleModelError("overlap: is for training jobs; the flows of a table run together")
    on, traffic = as_fabric(cluster), as_traffic(jobs)
    if policy == "milp":
        from scalemodel.routing.milp import least_drain

        columns = least_drain(
            on, traffic, time_limit_s=time_limit_s, max_paths=max_paths, detours=detours
        )
    else:
        columns = _core.route_flows(on.core, traffic.core, options, max_paths, detours)
    return RoutingReport(on, traffic, policy, model, columns, options, (max_paths, detours))
