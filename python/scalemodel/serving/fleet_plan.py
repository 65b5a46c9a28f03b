"""The cheapest fleet that keeps its limits on a trace: `plan_fleet`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.engines import DEFAULT_ENGINE
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import FleetPart, policy_of
from scalemodel.serving.limits import LIMITS, METRICS, limits_of, slack_of, warn_of_milliseconds
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.plans import layout_text
from scalemodel.serving.serve import serve
from scalemodel.serving.served_fleet import ServedFleet
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import Inference

Counts = tuple[int, ...]

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
    served : ServedFleet or None
        The trace in that fleet.
    values : dict
        Means and percentiles there, by the names of the limits.
    usd_per_hour : float
    tried : int
        Fleets that were simulated.
    limits : dict
    message, binds : str
        What kept the largest fleet from its limits; empty where there is a plan.
    """

    parts: tuple[FleetPart, ...]
    router: str
    served: ServedFleet | None
    values: Mapping[str, float]
    usd_per_hour: float
    tried: int
    limits: Mapping[str, float]
    message: str = ""
    binds: str = ""

    @property
    def fits(self) -> bool:
        """Whether a fleet keeps the limits."""
        return self.served is not None

    @property
    def counts(self) -> dict[str, int]:
        """Replicas by cluster and layout."""
        return {
            f"{part.plan.cluster.name} {layout_text(part.plan.layout)}": part.count
            for part in self.parts
        }

    def __repr__(self) -> str:
        if not self.fits:
            return f"FleetPlan({self.message})"
        fleet = " + ".join(f"{count} x {name}" for name, count in self.counts.items())
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.values.items())
        return (
            f"FleetPlan({fleet}, {self.router}, {self.usd_per_hour:.4g} USD/h; {values}; "
            f"{self.tried} fleets tried)"
        )


def _values(served: ServedFleet, limits: Mapping[str, float]) -> dict[str, float]:
    """Means and percentiles of a served trace, by the names of limits."""
    table = served.requests[~served.refused]
    found = {}
    for name in limits:
        metric, percent = LIMITS[name]
        times = table[METRICS[metric]].to_numpy()
        if not times.size:
            continue
        found[name] = float(np.quantile(times, percent / 100) if percent else times.mean())
    return found


@dataclass
class _Search:
    """Fleets of one model, each simulated once."""

    trace: RequestStream
    kinds: Sequence[ServingPlan]
    most: Counts
    routers: Sequence[str]
    limits: Mapping[str, float]
    prunes: bool
    options: Mapping[str, Any]
    kept: dict[Counts, tuple[str, ServedFleet] | None] = field(default_factory=dict)
    failed: list[Counts] = field(default_factory=list)
    nearest: tuple[float, str] = (float("inf"), "refused")
    tried: int = 0

    @property
    def prices(self) -> list[float]:
        return [FleetPart(plan, 1).price_usd_per_s for plan in self.kinds]

    def cost(self, counts: Counts) -> float:
        return sum(n * price for n, price in zip(counts, self.prices, strict=True))

    def keeps(self, counts: Counts) -> bool:
        """Whether a fleet keeps the limits with one of the routers."""
        if counts not in self.kept:
            self.kept[counts] = self._simulated(counts)
            if self.kept[counts] is None:
                self.failed.append(counts)
        return self.kept[counts] is not None

    def _simulated(self, counts: Counts) -> tuple[str, ServedFleet] | None:
        fleet = list(zip(self.kinds, counts, strict=True))
        self.tried += 1
        for router in self.routers:
            served = simulate_fleet(self.trace, fleet, router=router, **self.options)
            ratio, name = slack_of(_values(served, self.limits), self.limits)
            if served.refused.any():
                ratio, name = float("inf"), "refused"
            if ratio <= 1:
                return router, served
            self.nearest = min(self.nearest, (ratio, name))
        return None

    def hopeless(self, counts: Counts) -> bool:
        """Whether a fleet has no more of anything than one that failed."""
        return self.prunes and any(
            all(n <= more for n, more in zip(counts, failed, strict=True)) for failed in self.failed
        )

    def alone(self, kind: int) -> Counts | None:
        """The fewest of one kind that keep the limits, where more of them never do worse."""

        def of(count: int) -> Counts:
            return tuple(count if place == kind else 0 for place in range(len(self.kinds)))

        low, high = 0, min(1, self.most[kind])
        while high and not self.keeps(of(high)):
            if high == self.most[kind]:
                return None
            low, high = high, min(2 * high, self.most[kind])
        if not high:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.keeps(of(middle)) else (middle, high)
        return of(high)

    def cheapest(self) -> Counts | None:
        """The first fleet that keeps the limits, by cost, then by number of replicas."""
        bound = float("inf")
        if self.prunes:
            found = [each for kind in range(len(self.kinds)) if (each := self.alone(kind))]
            bound = min(map(self.cost, found), default=bound)
            if not found and not self.keeps(self.most):
                return None
        start = (0,) * len(self.kinds)
        queue, seen = [(0.0, 0, start)], {start}
        while queue:
            cost, _, counts = heapq.heappop(queue)
            if cost > bound * (1 + 1e-12):
                break
            if sum(counts) and not self.hopeless(counts) and self.keeps(counts):
                return counts
            for kind, most in enumerate(self.most):
                if counts[kind] == most:
                    continue
                more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                if more not in seen:
                    seen.add(more)
                    heapq.heappush(queue, (self.cost(more), sum(more), more))
        return None

    def minimal(self) -> list[Counts]:
        """All fleets that keep the limits and have a fleet that does not for every replica less."""
        found: list[Counts] = []
        for kind in range(len(self.kinds)):
            self.alone(kind)
        start = tuple(0 for _ in self.kinds)
        queue, seen = [(self.cost(start), 0, start)], {start}
        while queue:
            _, _, counts = heapq.heappop(queue)
            if any(all(n <= more for n, more in zip(own, counts, strict=True)) for own in found):
                continue
            if any(counts) and not self.hopeless(counts) and self.keeps(counts):
                found.append(counts)
                continue
            for kind, most in enumerate(self.most):
                more = (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
                if counts[kind] < most and more not in seen:
                    seen.add(more)
                    heapq.heappush(queue, (self.cost(more), sum(more), more))
        return found

    def taken(self, counts: Counts) -> dict[str, int]:
        """Accelerators of a fleet by cluster."""
        found: dict[str, int] = {}
        for plan, count in zip(self.kinds, counts, strict=True):
            name = plan.cluster.name
            found[name] = found.get(name, 0) + count * ranks_of(plan.layout)
        return found


def _shared_out(searches: Sequence[_Search], stock: Mapping[str, int]) -> list[Counts] | None:
    """The cheapest fleets, one of each model, that a stock holds together.

    A cheapest choice has a minimal fleet of every model: what it has beyond one could be left out.
    Choices come in order of their cost.
    """
    listed = [sorted(search.minimal(), key=search.cost) for search in searches]
    if not all(listed):
        return None

    def cost(places: Counts) -> float:
        return sum(
            search.cost(own[place])
            for search, own, place in zip(searches, listed, places, strict=True)
        )

    start = tuple(0 for _ in searches)
    queue, seen = [(cost(start), start)], {start}
    while queue:
        _, places = heapq.heappop(queue)
        chosen = [own[place] for own, place in zip(listed, places, strict=True)]
        needed: dict[str, int] = {}
        for search, counts in zip(searches, chosen, strict=True):
            for name, number in search.taken(counts).items():
                needed[name] = needed.get(name, 0) + number
        if all(number <= stock.get(name, 0) for name, number in needed.items()):
            return chosen
        for model, own in enumerate(listed):
            more = (*places[:model], places[model] + 1, *places[model + 1 :])
            if more[model] < len(own) and more not in seen:
                seen.add(more)
                heapq.heappush(queue, (cost(more), more))
    return None


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
    max_replicas: int = 64,
    prune: bool = True,
    stock: Mapping[str, int] | None = None,
    store_tokens: float = 0.0,
    seed: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> FleetPlan | dict[str, FleetPlan]:
    """The cheapest fleet, and its router, that keeps limits of latency on a trace.

    A fleet is a count of replicas of every kind: of every cluster and layout. Fleets are simulated
    in order of cost until one keeps the limits with one of the routers, so that no cheaper one
    does. What has no more of any kind than a fleet that failed is left out.

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
    max_replicas : int
        Of a kind, at most.
    prune : bool
        False: fleets with no more of any kind than a failed one are simulated all the same.
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
        _check_stock(stock)
    searches: dict[str, _Search] = {}
    for model in asked:
        chosen = model if isinstance(model, resolve.Model) else resolve.model(model)
        own = _trace_of(trace, chosen.name, len(asked))
        kinds = _kinds(chosen, where, task_of(own, task), engine, layouts)
        if not kinds:
            raise ScaleModelError(f"models: {chosen.name}: fits no cluster in any layout")
        tried = _routers_of(own, routers)
        options = {"store_tokens": store_tokens, "seed": seed, "progress": progress}
        most = tuple(min(max_replicas, _held(plan, stock)) for plan in kinds)
        searches[chosen.name] = _Search(own, kinds, most, tried, kept, prune, options)
    if stock is None:
        plans = {name: _answer(search, search.cheapest()) for name, search in searches.items()}
    else:
        chosen_counts = _shared_out(list(searches.values()), stock)
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


def _check_stock(stock: Any) -> None:
    if not isinstance(stock, Mapping):
        raise ScaleModelError(f"stock={stock!r}: must map names of clusters to accelerators")
    for name, number in stock.items():
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or number < 0:
            raise ScaleModelError(f"stock[{name!r}]={number!r}: must be a whole number from 0")


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


def _answer(search: _Search, counts: Counts | None) -> FleetPlan:
    found = None if counts is None else search.kept[counts]
    if counts is None or found is None:
        ratio, name = search.nearest
        missed = (
            "requests are refused" if name == "refused" else f"{name} is {ratio:.3g} x its limit"
        )
        message = f"no fleet of at most {search.most} replicas keeps the limits; nearest: {missed}"
        return FleetPlan((), "", None, {}, 0.0, search.tried, search.limits, message, name)
    router, served = found
    return FleetPlan(
        tuple(part for part in served.parts if part.count),
        router,
        served,
        _values(served, search.limits),
        3600 * search.cost(counts),
        search.tried,
        search.limits,
    )
