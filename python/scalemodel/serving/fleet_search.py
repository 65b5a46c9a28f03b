"""Fleets of a model, each simulated once, in order of their cost."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from scalemodel._core import Autoscaler, CacheTier
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import FleetPart
from scalemodel.serving.fleet_pools import ServedPools
from scalemodel.serving.limits import LIMITS, METRICS, slack_of
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.served_fleet import ServedFleet
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.tiers import cache_tiers

Counts = tuple[int, ...]
Served = ServedFleet | ServedPools


@dataclass(frozen=True)
class FleetPolicy:
    """How a fleet is run.

    Attributes
    ----------
    router : str
    tiers : str
        Set-up of `cache_tiers` below the KV caches; empty: none.
    autoscaler, decode_autoscaler : Autoscaler or None
        None: all replicas run all the time. The second is of the decode pool, where there is one.
    """

    router: str
    tiers: str = ""
    autoscaler: Autoscaler | None = None
    decode_autoscaler: Autoscaler | None = None


#: What a fleet was found to do, and how it was run; None where it breaks a limit in any way.
Kept = tuple[FleetPolicy, Served] | None


def values_of(served: Served, limits: Mapping[str, float]) -> dict[str, float]:
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
class FleetSearch:
    """Fleets of one model, each simulated once."""

    trace: RequestStream
    kinds: Sequence[ServingPlan]
    most: Counts
    policies: Sequence[FleetPolicy]
    limits: Mapping[str, float]
    prunes: bool
    options: Mapping[str, Any]
    #: Failures and outages, that limits are kept in spite of.
    wrongs: Mapping[str, Any] = field(default_factory=dict)
    kept: dict[Counts, Kept] = field(default_factory=dict)
    #: Fleets that keep their limits while nothing fails, and that break them even then.
    good: list[Counts] = field(default_factory=list)
    failed: list[Counts] = field(default_factory=list)
    nearest: tuple[float, str] = (float("inf"), "refused")
    tried: int = 0

    @property
    def prices(self) -> list[float]:
        """Of a replica of each kind, in USD per second."""
        return [FleetPart(plan, 1).price_usd_per_s for plan in self.kinds]

    def cost(self, counts: Counts) -> float:
        """Of a fleet, in USD per second."""
        return sum(n * price for n, price in zip(counts, self.prices, strict=True))

    def keeps(self, counts: Counts) -> bool:
        """Whether a fleet keeps the limits when it is run in one of the ways."""
        if counts not in self.kept:
            self.kept[counts] = self._simulated(counts)
        return self.kept[counts] is not None

    def may_keep(self, counts: Counts) -> bool:
        """Whether a fleet keeps the limits, or more than one that does, while nothing fails."""
        if not self.prunes or any(no_more(good, counts) for good in self.good):
            return True
        if not self.hopeless(counts):
            self.keeps(counts)
        return not self.hopeless(counts)

    def sides(self, counts: Counts) -> list[Counts]:
        """Replicas that start and stop together: all of a fleet, or those of each pool."""
        return [counts]

    def scaled(
        self, policy: FleetPolicy, autoscalers: Sequence[Autoscaler]
    ) -> Iterator[FleetPolicy]:
        """A way to run a fleet, with something that starts and stops replicas."""
        for each in autoscalers:
            yield replace(policy, autoscaler=each)

    def always_on(self, counts: Counts, policy: FleetPolicy) -> Counts:
        """Of every kind, the replicas that never stop: the first of each side."""
        found: list[int] = []
        scalers = (policy.autoscaler, policy.decode_autoscaler)
        for side, scaler in zip(self.sides(counts), scalers, strict=False):
            rest = sum(side) if scaler is None else scaler.min_replicas
            for count in side:
                found.append(min(count, rest))
                rest -= found[-1]
        return tuple(found)

    def served(self, counts: Counts, policy: FleetPolicy, **wrongs: Any) -> Served:
        """The trace in a fleet."""
        self.tried += 1
        fleet = list(zip(self.kinds, counts, strict=True))
        tiers = tiers_of(policy.tiers, fleet)
        given = {**self.options, **wrongs, "tiers": tiers, "autoscaler": policy.autoscaler}
        return simulate_fleet(self.trace, fleet, router=policy.router, **given)

    def _simulated(self, counts: Counts) -> Kept:
        return self._first_kept(counts, self.policies)

    def _first_kept(self, counts: Counts, policies: Iterable[FleetPolicy]) -> Kept:
        """The first policy that keeps the limits, with what goes wrong as well."""
        good = False
        for policy in policies:
            served = self.served(counts, policy)
            if not self.within(served):
                continue
            good = True
            if self.wrongs:
                served = self.served(counts, policy, **self.wrongs)
                if not self.within(served):
                    continue
            self.good.append(counts)
            return policy, served
        (self.good if good else self.failed).append(counts)
        return None

    def within(self, served: Served) -> bool:
        """Whether served requests keep the limits."""
        return self._within(served, self.limits)

    def _within(self, served: Served, limits: Mapping[str, float]) -> bool:
        """Whether served requests keep limits; how near those that do not come is kept."""
        ratio, name = slack_of(values_of(served, limits), limits)
        if served.refused.any():
            ratio, name = float("inf"), "refused"
        if ratio > 1:
            self.nearest = min(self.nearest, (ratio, name))
        return ratio <= 1

    def hopeless(self, counts: Counts) -> bool:
        """Whether a fleet has no more of anything than one that failed with nothing amiss."""
        return self.prunes and any(no_more(counts, failed) for failed in self.failed)

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

    def first_found(self) -> list[Counts]:
        """Fleets that keep the limits, found by few simulations: of one kind each."""
        return [each for kind in range(len(self.kinds)) if (each := self.alone(kind))]

    def legal(self, counts: Counts) -> bool:
        """Whether there may be such a fleet."""
        return any(counts)

    def cheapest(self) -> Counts | None:
        """The first fleet that keeps the limits, by cost, then by number of replicas."""
        bound = float("inf")
        if self.prunes:
            found = self.first_found()
            bound = min(map(self.cost, found), default=bound)
            if not found and self.legal(self.most) and not self.may_keep(self.most):
                return None
        start = (0,) * len(self.kinds)
        queue, seen = [(0.0, 0, start)], {start}
        while queue:
            cost, _, counts = heapq.heappop(queue)
            if cost > bound * (1 + 1e-12):
                break
            if self.legal(counts) and not self.hopeless(counts) and self.keeps(counts):
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
        self.first_found()
        start = tuple(0 for _ in self.kinds)
        queue, seen = [(self.cost(start), 0, start)], {start}
        while queue:
            _, _, counts = heapq.heappop(queue)
            if any(no_more(own, counts) for own in found):
                continue
            if self.legal(counts) and not self.hopeless(counts) and self.keeps(counts):
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


def no_more(counts: Counts, others: Counts) -> bool:
    """Whether one fleet has no more of anything than the other."""
    return all(n <= more for n, more in zip(counts, others, strict=True))


def tiers_of(setup: str, fleet: Sequence[tuple[ServingPlan, int]]) -> tuple[CacheTier, ...]:
    """Tiers of a set-up below the replicas of a fleet, as its first kind reaches them.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> len(tiers_of("hicache_mooncake", [(plan, 3)])), tiers_of("", [(plan, 3)])
    (2, ())
    """
    if not setup:
        return ()
    first = next(plan for plan, count in fleet if count)
    return cache_tiers(setup, first, replicas=sum(count for _, count in fleet))


def shared_out(searches: Sequence[FleetSearch], stock: Mapping[str, int]) -> list[Counts] | None:
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
