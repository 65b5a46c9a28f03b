"""The cheapest fleet whose replicas start and stop with the traffic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from scalemodel._core import Autoscaler, ReplicaTotals
from scalemodel.serving.fleet_pools import ServedPools
from scalemodel.serving.fleet_search import Counts, FleetPolicy, FleetSearch, Served
from scalemodel.serving.served_fleet import ServedFleet

#: Kinds of the replicas of a side up to the last that ever ran, and whether there were more.
Ran = tuple[Counts, bool]


@dataclass(frozen=True)
class ScaledFleet:
    """A fleet that an autoscaler runs, and what it costs in USD per second of the trace."""

    counts: Counts
    policy: FleetPolicy
    served: Served
    cost: float


@dataclass
class ScaledSearch:
    """Fleets behind an autoscaler, in order of what they would cost without one.

    What they cost is known once they have served the trace. No fewer replicas do better than all of
    them, so that fleets which break their limits without an autoscaler, while nothing fails, are
    left out; and a fleet whose last replicas never start serves as it would without them.
    """

    search: FleetSearch
    #: Of each way to run a fleet: what ran of each side, where some replicas did not.
    seen: dict[FleetPolicy, set[tuple[Ran, ...]]] = field(default_factory=dict)

    def cheapest(self, autoscalers: Sequence[Autoscaler], bound: float) -> ScaledFleet | None:
        """The cheapest fleet that keeps the limits and costs less than `bound`."""
        best: ScaledFleet | None = None
        search = self.search
        ranges = [range(most + 1) for most in search.most]
        fleets = sorted(itertools.product(*ranges), key=lambda own: (search.cost(own), sum(own)))
        ways = [
            scaled for policy in search.policies for scaled in search.scaled(policy, autoscalers)
        ]
        for counts in fleets:
            if not search.legal(counts):
                continue
            for policy in ways:
                least = search.cost(search.always_on(counts, policy))
                if least >= bound or self._is_known(counts, policy):
                    continue
                if not search.may_keep(counts):
                    break
                found = self._served(counts, policy)
                if found is not None and found.cost < bound:
                    best, bound = found, found.cost
        return best

    def _served(self, counts: Counts, policy: FleetPolicy) -> ScaledFleet | None:
        search = self.search
        served = search.served(counts, policy)
        ran = _ran(served)
        keeps = search.within(served)
        if keeps and search.wrongs:
            served = search.served(counts, policy, **search.wrongs)
            ran = [max(pair) for pair in zip(ran, _ran(served), strict=False)]
            keeps = search.within(served)
        sides = search.sides(counts)
        if len(ran) == len(sides) and any(n < sum(own) for n, own in zip(ran, sides, strict=True)):
            self.seen.setdefault(policy, set()).add(
                tuple((_first(own, n), n < sum(own)) for n, own in zip(ran, sides, strict=True))
            )
        if not keeps:
            return None
        cost = sum(pool.summary()["cost_usd"] / pool.totals.makespan_s for pool in _pools(served))
        return ScaledFleet(counts, policy, served, cost)

    def _is_known(self, counts: Counts, policy: FleetPolicy) -> bool:
        """Whether a fleet serves as one that was seen: tiers grow with all replicas, though."""
        if policy.tiers or not self.search.prunes:
            return False
        sides = self.search.sides(counts)
        return any(
            all(_as_seen(own, *ran) for own, ran in zip(sides, seen, strict=True))
            for seen in self.seen.get(policy, ())
        )


def _as_seen(side: Counts, first: Counts, more: bool) -> bool:
    """Whether a side begins with what ran, and has more only where others had as well."""
    total = sum(side)
    long_enough = len(first) <= total if more else len(first) == total
    return long_enough and _first(side, len(first)) == first


def _first(counts: Counts, replicas: int) -> Counts:
    """Kinds of the first replicas of a side, in their order."""
    kinds = (kind for kind, count in enumerate(counts) for _ in range(count))
    return tuple(itertools.islice(kinds, replicas))


def _pools(served: Served) -> list[ServedFleet]:
    """The fleets that served, each with a span of its own: prompts end before answers do."""
    pools = [served.prefill, served.decode] if isinstance(served, ServedPools) else [served]
    return [pool for pool in pools if pool is not None]


def _ran(served: Served) -> list[int]:
    """Of each side, places up to the last replica that was ever started."""
    return [_last_started(pool.part_totals) for pool in _pools(served)]


def _last_started(totals: Sequence[ReplicaTotals]) -> int:
    return 1 + max(place for place, part in enumerate(totals) if part.online_s > 0)
