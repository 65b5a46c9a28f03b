"""The cheapest fleet that keeps its limits on a trace: `plan_fleet`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel._core import Autoscaler, Failures, Outage
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.resolve.engines import DEFAULT_ENGINE
from scalemodel.serving.fleet_parts import FleetPart, policy_of
from scalemodel.serving.fleet_pool_search import PoolSearch
from scalemodel.serving.fleet_pools import ServedPools
from scalemodel.serving.fleet_scaled import ScaledSearch
from scalemodel.serving.fleet_search import (
    Counts,
    FleetPolicy,
    FleetSearch,
    Served,
    shared_out,
    values_of,
)
from scalemodel.serving.fleet_ways import check_stock, check_ways, wrongs_of
from scalemodel.serving.launch import ServingLaunch
from scalemodel.serving.launch.fleet import FleetParts, launch_fleet
from scalemodel.serving.limits import limits_of, warn_of_milliseconds
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.serve import serve
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import Inference
from scalemodel.serving.verdicts import layout_text

_LARGEST_TP = 16  # tensor-parallel ranks that are tried where no layout is given


@dataclass(frozen=True, eq=False, repr=False)
class FleetPlan:
    """The cheapest fleet of a model. Made by `plan_fleet`.

    Attributes
    ----------
    parts : tuple of FleetPart
        Kinds with at least one replica: their plans and counts. Empty where nothing keeps the
        limits; then `message` and `binds` say why.
    router : str
    tiers : str
        Set-up of `cache_tiers` below the KV caches; empty: none is needed.
    autoscaler, decode_autoscaler : Autoscaler or None
        What starts and stops the replicas, the second those of a decode pool; None: all of them
        run all the time.
    served : ServedFleet, ServedPools or None
        The trace in that fleet, or in its pools of prompts and answers; with its failures, where
        limits are kept in spite of some.
    values : dict
        Means and percentiles there, by the names of the limits.
    usd_per_hour : float
        Of the replicas while they run, mean over the trace; of each pool over its own span.
    tried : int
        Simulations of fleets.
    limits : dict
    message, binds : str
        What kept the largest fleet from its limits; empty where there is a plan.
    """

    parts: tuple[FleetPart, ...]
    router: str
    served: Served | None
    values: Mapping[str, float]
    usd_per_hour: float
    tried: int
    limits: Mapping[str, float]
    message: str = ""
    binds: str = ""
    tiers: str = ""
    autoscaler: Autoscaler | None = None
    decode_autoscaler: Autoscaler | None = None

    @property
    def fits(self) -> bool:
        """Whether a fleet keeps the limits."""
        return self.served is not None

    @property
    def counts(self) -> dict[str, int]:
        """Replicas by cluster and layout; of pools, by what they do as well."""
        pools = isinstance(self.served, ServedPools)
        return {
            ("decode " if part.plan.task.prefilled else "prefill ") * pools
            + f"{part.plan.cluster.name} {layout_text(part.plan.layout)}": part.count
            for part in self.parts
        }

    def launch(self, target: str = "command", *, name: str = "") -> ServingLaunch:
        """What starts the fleet: every kind of its replicas, and the router before them.

        Parameters
        ----------
        target : {"command", "kubernetes"}
            Command lines, or a Deployment and a Service of every kind, with as many replicas as
            there are of it; where an autoscaler runs them, a ScaledObject of KEDA as well.
        name : str
            Of the objects; made of the model's when left out.

        Returns
        -------
        ServingLaunch
            With the engine's options for tiers below the KV caches, where it has any. Notes say
            what no command does.

        Raises
        ------
        ScaleModelError : no fleet keeps the limits; pools of several kinds each.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> trace = sm.request_stream(task, requests=600, requests_per_s=60)
        >>> plan = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"tpot_s": 0.02})
        >>> list(plan.launch().commands)
        ['dgx_h100 tp1', 'router']
        """
        trace = None if self.served is None else self.served.stream
        longest = 0 if trace is None else int((trace.input_tokens + trace.output_tokens).max())
        named = trace is not None and getattr(trace, "block_offsets", None) is not None
        notes = [f"the longest request has {longest} tokens, which the checkpoint must allow"]
        pairs = tuple((part.plan, part.count) for part in self.parts)
        first = self.served.prefill if isinstance(self.served, ServedPools) else self.served
        parts = FleetParts(
            pairs,
            self.router,
            longest,
            named,
            tuple(notes),
            self.tiers,
            () if first is None else first.tiers,
            (self.autoscaler, self.decode_autoscaler),
        )
        return launch_fleet(parts, target, name)

    def __repr__(self) -> str:
        if not self.fits:
            return f"FleetPlan({self.message})"
        fleet = " + ".join(f"{count} x {name}" for name, count in self.counts.items())
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.values.items())
        ways = [self.router]
        if self.tiers:
            ways.append(f"tiers {self.tiers}")
        scalers = {"": self.autoscaler, "decode ": self.decode_autoscaler}
        ways += [
            f"{own.target:g} {own.signal} a {pool}replica" for pool, own in scalers.items() if own
        ]
        return (
            f"FleetPlan({fleet}, {', '.join(ways)}, {self.usd_per_hour:.4g} USD/h; {values}; "
            f"{self.tried} fleets tried)"
        )


def smallest_replica(
    model: Any, cluster: resolve.Cluster, task: Inference, engine: str
) -> list[ServingPlan]:
    """One replica of the fewest tensor-parallel ranks that hold the model, if any do.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> (plan,) = smallest_replica("llama3_70b", sm.cluster("dgx_h100"), task, "vllm_v1")
    >>> plan.layout.tp, plan.replicas
    (2, 1)
    """
    tp = 1
    while tp <= min(_LARGEST_TP, cluster.accelerators):
        plan = serve(model, cluster, task, _core.ServingLayout(tp=tp), engine=engine, replicas=1)
        if plan.instance is not None:
            return [plan]
        tp *= 2
    return []


def _kinds(
    model: Any,
    clusters: Sequence[Any],
    task: Inference,
    engine: str,
    layouts: Sequence[_core.ServingLayout] | None,
) -> list[ServingPlan]:
    """One replica of every kind that runs, of accelerators with a price."""
    found: list[ServingPlan] = []
    for given in clusters:
        cluster = given if isinstance(given, resolve.Cluster) else resolve.cluster(given)
        if not cluster.core.price_usd_per_s:
            raise ScaleModelError(f"clusters: {cluster.name}: has no price")
        if layouts is None:
            found += smallest_replica(model, cluster, task, engine)
            continue
        tried = [
            serve(model, cluster, task, layout, engine=engine, replicas=1) for layout in layouts
        ]
        found += [plan for plan in tried if plan.instance is not None]
    return found


@named_arguments
def plan_fleet(
    trace: RequestStream | Mapping[str, RequestStream],
    models: Any,
    clusters: Any,
    limits: Mapping[str, float],
    *,
    task: Inference | None = None,
    engine: str = DEFAULT_ENGINE,
    layouts: Sequence[_core.ServingLayout] | None = None,
    routers: Sequence[str] | None = None,
    tiers: Sequence[str | None] = (None,),
    autoscalers: Sequence[Autoscaler] = (),
    failures: Failures | None = None,
    outages: Sequence[Outage] = (),
    max_replicas: int = 64,
    prune: bool = True,
    pools: bool = False,
    stock: Mapping[str, int] | None = None,
    store_tokens: float = 0.0,
    seed: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> FleetPlan | dict[str, FleetPlan]:
    """The cheapest fleet, and the way to run it, that keeps limits of latency on a trace.

    A fleet is a count of replicas of every kind: of every cluster and layout. Fleets are simulated
    in order of cost until one keeps the limits with one of the routers and tiers, so that no
    cheaper one does. What has no more of any kind than a fleet that failed is left out. Then
    autoscalers are tried, on every fleet that keeps the limits without one: they cost what runs.

    Parameters
    ----------
    trace : RequestStream, or mapping of model names to such
        As for `simulate_fleet`; of several models, one trace each: their fleets are apart.
    models : model or sequence of models
        As for `serve`.
    clusters : cluster or sequence of clusters
        As for `serve`, with a price each. A kind has no more replicas than its cluster holds.
    limits : mapping
        At most, in seconds, by the names that `plan_serving` takes, such as ``ttft_p99_s``.
    task : Inference, optional
        Precisions, drafts and the like; its lengths are replaced by the means of the trace.
    engine : str
    layouts : sequence of ServingLayout, optional
        Of an instance; when left out, the fewest tensor-parallel ranks that hold the model.
    routers : sequence of str, optional
        To be tried in this order; when left out ``least_loaded`` and, where the trace names blocks,
        ``prefix_aware`` before it.
    tiers : sequence of str or None
        Set-ups of `cache_tiers` below the KV caches, to be tried in this order behind the routers;
        None: no tiers. They cost nothing: host memory and SSDs come with a server.
    autoscalers : sequence of Autoscaler
        To be tried beside fleets that all run all the time, on one pool or both where there are
        pools; the first replicas of the first kind run always.
    failures : Failures, optional
    outages : sequence of Outage
        What limits are kept in spite of, as of `simulate_fleet`: such as the loss of the first four
        replicas at noon, of each pool where there are pools. A request that is lost breaks them.
    max_replicas : int
        Of a kind, at most.
    prune : bool
        False: fleets with no more of any kind than a failed one are simulated all the same, and
        autoscalers are tried on fleets that break the limits without one.
    pools : bool
        Prompts and answers on replicas of their own, as of `simulate_pools`: every kind is tried
        in both pools, whose numbers grow apart; `routers` are of the prefill pool.
    stock : mapping of cluster name to int, optional
        Accelerators that all models share; the cheapest fleets that it holds together. Without it
        every model has the clusters to itself.
    store_tokens, seed, progress
        As for `simulate_fleet`, of each simulation.

    Returns
    -------
    FleetPlan, or dict of them by model where several were given

    Raises
    ------
    ScaleModelError : no limit, an unknown one, no kind that runs, a cluster without a price.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> trace = sm.request_stream(task, requests=600, requests_per_s=60)
    >>> plan = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"ttft_p99_s": 0.3, "tpot_s": 0.02})
    >>> plan.fits, plan.values["ttft_p99_s"] <= 0.3
    (True, True)
    >>> apart = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"ttft_p99_s": 0.3}, pools=True)
    >>> sorted(name.split()[0] for name in apart.counts)
    ['decode', 'prefill']
    >>> lost = sm.Outage(begin_s=3.0, end_s=60.0, first=0, count=1)
    >>> plans = [sm.plan_fleet(trace, "llama3_8b", "dgx_h100", {"ttft_p95_s": 0.3}, outages=each)
    ...          for each in ([], [lost])]
    >>> plans[0].usd_per_hour < plans[1].usd_per_hour
    True
    """
    kept = limits_of(limits)
    if not kept:
        raise ScaleModelError("limits: must name at least one limit")
    warn_of_milliseconds(kept)
    whole = isinstance(max_replicas, int) and not isinstance(max_replicas, bool)
    if not whole or not 1 <= max_replicas <= 10_000:
        raise ScaleModelError(
            f"max_replicas={max_replicas!r}: must be a whole number from 1 to 1e4"
        )
    one = isinstance(models, (str, Mapping)) or not isinstance(models, Sequence)
    asked = [models] if one else list(models)
    where = (
        list(clusters)
        if isinstance(clusters, Sequence) and not isinstance(clusters, str)
        else [clusters]
    )
    if not asked or not where:
        raise ScaleModelError("models, clusters: must name at least one each")
    if stock is not None:
        check_stock(stock)
    wrongs = wrongs_of(failures, outages)
    check_ways(tiers, autoscalers, stock)
    searches: dict[str, FleetSearch] = {}
    for model in asked:
        chosen = model if isinstance(model, resolve.Model) else resolve.model(model)
        own = _trace_of(trace, chosen.name, len(asked))
        mean = task_of(own, task)
        kinds = _kinds(chosen, where, mean.plain() if pools else mean, engine, layouts)
        prompt_kinds = len(kinds)
        if pools:
            kinds += _kinds(chosen, where, mean.replace(prefilled=True), engine, layouts)
        if not kinds or (pools and len(kinds) == prompt_kinds):
            raise ScaleModelError(f"models: {chosen.name}: fits no cluster in any layout")
        tried = [
            FleetPolicy(router, setup or "")
            for setup, router in itertools.product(tiers, _routers_of(own, routers))
        ]
        options = {"store_tokens": store_tokens, "seed": seed, "progress": progress}
        most = tuple(min(max_replicas, _held(plan, stock)) for plan in kinds)
        given = (own, kinds, most, tried, kept, prune, options, wrongs)
        searches[chosen.name] = (
            PoolSearch(*given, prompt_kinds=prompt_kinds) if pools else FleetSearch(*given)
        )
    if stock is None:
        plans = {name: _cheapest(search, autoscalers) for name, search in searches.items()}
    else:
        chosen_counts = shared_out(list(searches.values()), stock)
        counts: list[Counts | None] = [None] * len(searches)
        if chosen_counts is not None:
            counts = [*chosen_counts]
        plans = {
            name: _answer(search, own)
            for (name, search), own in zip(searches.items(), counts, strict=True)
        }
        if chosen_counts is None:
            plans = {name: _too_small(plan, stock) for name, plan in plans.items()}
    return next(iter(plans.values())) if one else plans


def _trace_of(trace: Any, model: str, models: int) -> RequestStream:
    if isinstance(trace, Mapping):
        if model not in trace:
            raise ScaleModelError(f"trace: has no entry {model!r}")
        trace = trace[model]
    elif models > 1:
        raise ScaleModelError("trace: must map the names of several models to a trace each")
    if not isinstance(trace, RequestStream):
        raise ScaleModelError(f"trace={trace!r}: must be a RequestStream, or a Trace")
    return trace


def task_of(trace: RequestStream, task: Inference | None) -> Inference:
    """A task with the mean lengths of a trace.

    Examples
    --------
    >>> task_of(RequestStream([0.0, 1.0], [100, 300], [10, 20]), None).input_tokens
    200.0
    """
    prompt, answer = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    if task is None:
        return Inference(input_tokens=prompt, output_tokens=answer)
    if not isinstance(task, Inference):
        raise ScaleModelError(f"task={task!r}: must be an Inference")
    return task.replace(input_tokens=prompt, output_tokens=answer)


def _routers_of(trace: RequestStream, routers: Sequence[str] | None) -> list[str]:
    if routers is None:
        named = getattr(trace, "block_offsets", None) is not None
        return ["prefix_aware", "least_loaded"] if named else ["least_loaded"]
    if isinstance(routers, str) or not routers:
        raise ScaleModelError(f"routers={routers!r}: must be a sequence of names")
    return [policy_of(router).router for router in routers]


def _held(plan: ServingPlan, stock: Mapping[str, int] | None) -> int:
    """Replicas that a cluster, or what the stock has of it, holds."""
    ranks = ranks_of(plan.layout)
    if stock is None:
        return max(1, plan.cluster.accelerators // ranks)
    return stock.get(plan.cluster.name, 0) // ranks


def _too_small(plan: FleetPlan, stock: Mapping[str, int]) -> FleetPlan:
    held = ", ".join(f"{number} of {name}" for name, number in stock.items())
    if plan.binds and "refused" not in plan.binds:
        return plan
    message = f"a stock of {held} does not hold fleets of all models that keep their limits"
    return replace(plan, message=message, binds="stock")


def _answer(search: FleetSearch, counts: Counts | None) -> FleetPlan:
    found = None if counts is None else search.kept[counts]
    if counts is None or found is None:
        ratio, name = search.nearest
        missed = (
            "requests are refused" if name == "refused" else f"{name} is {ratio:.3g} x its limit"
        )
        message = f"no fleet of at most {_most_text(search)} keeps the limits; nearest: {missed}"
        return FleetPlan((), "", None, {}, 0.0, search.tried, search.limits, message, name)
    policy, served = found
    return _plan_of(search, policy, served, search.cost(counts))


def _most_text(search: FleetSearch) -> str:
    """The largest fleet, and which of its counts are all that a cluster holds."""
    told, full = [], []
    for plan, most in zip(search.kinds, search.most, strict=True):
        name = plan.cluster.name
        told.append(f"{most} x {name} {layout_text(plan.layout)}")
        if most == _held(plan, None) and name not in full:
            full.append(name)
    hint = f" (all that {' and '.join(full)} hold; more nodes hold more)" * bool(full)
    return " + ".join(told) + hint


def _plan_of(search: FleetSearch, policy: FleetPolicy, served: Served, cost: float) -> FleetPlan:
    return FleetPlan(
        tuple(part for part in served.parts if part.count),
        policy.router,
        served,
        values_of(served, search.limits),
        3600 * cost,
        search.tried,
        search.limits,
        tiers=policy.tiers,
        autoscaler=policy.autoscaler,
        decode_autoscaler=policy.decode_autoscaler,
    )


def _cheapest(search: FleetSearch, autoscalers: Sequence[Autoscaler]) -> FleetPlan:
    """The cheapest fleet that runs all the time, or a cheaper one that starts and stops."""
    counts = search.cheapest()
    if autoscalers:
        bound = float("inf") if counts is None else search.cost(counts)
        scaled = ScaledSearch(search).cheapest(autoscalers, bound)
        if scaled is not None:
            return _plan_of(search, scaled.policy, scaled.served, scaled.cost)
    return _answer(search, counts)
