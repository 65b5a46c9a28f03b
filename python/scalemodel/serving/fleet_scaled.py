"""The cheapest fleet whose replicas start and stop with the traffic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scalemodel._core import Autoscaler
from scalemodel.serving.fleet_search import Counts, FleetPolicy, FleetSearch
from scalemodel.serving.served_fleet import ServedFleet


@dataclass(frozen=True)
class ScaledFleet:
    """A fleet that an autoscaler runs, and what it costs in USD per second of the trace."""

    counts: Counts
    policy: FleetPolicy
    served: ServedFleet
    cost: float


@dataclass
class ScaledSearch:
    """Fleets behind an autoscaler, in order of what they would cost without one.

    What they cost is known once they have served the trace. No fewer replicas do better than all of
    them, so that fleets which break their limits without an autoscaler, while nothing fails, are
    left out; and a fleet whose last replicas never start serves as it would without them.
    """

    search: FleetSearch
    #: Of each way to run a fleet: kinds of the replicas that ever ran, where some did not.
    seen: dict[FleetPolicy, set[Counts]] = field(default_factory=dict)

    def cheapest(self, autoscalers: Sequence[Autoscaler], bound: float) -> ScaledFleet | None:
        """The cheapest fleet that keeps the limits and costs less than `bound`."""
        best: ScaledFleet | None = None
        search = self.search
        ranges = [range(most + 1) for most in search.most]
        fleets = sorted(itertools.product(*ranges), key=lambda own: (search.cost(own), sum(own)))
        for counts in fleets:
            if not search.legal(counts):
                continue
            for policy, autoscaler in itertools.product(search.policies, autoscalers):
                scaled = replace(policy, autoscaler=autoscaler)
                least = search.cost(self._always_on(counts, autoscaler))
                if least >= bound or self._is_known(counts, scaled):
                    continue
                if not search.may_keep(counts):
                    break
                found = self._served(counts, scaled)
                if found is not None and found.cost < bound:
                    best, bound = found, found.cost
        return best

    def _served(self, counts: Counts, policy: FleetPolicy) -> ScaledFleet | None:
        search = self.search
        served = search.served(counts, policy)
        ran = _replicas_that_ran(served)
        keeps = search.within(served)
        if keeps and search.wrongs:
            served = search.served(counts, policy, **search.wrongs)
            ran = max(ran, _replicas_that_ran(served))
            keeps = search.within(served)
        if ran < sum(counts):
            self.seen.setdefault(policy, set()).add(_first(counts, ran))
        if not keeps:
            return None
        cost = served.summary()["cost_usd"] / served.totals.makespan_s
        return ScaledFleet(counts, policy, served, cost)

    def _always_on(self, counts: Counts, autoscaler: Autoscaler) -> Counts:
        """Of every kind, the replicas that never stop: the first of the fleet."""
        rest, found = autoscaler.min_replicas, []
        for count in counts:
            found.append(min(count, rest))
            rest -= found[-1]
        return tuple(found)

    def _is_known(self, counts: Counts, policy: FleetPolicy) -> bool:
        """Whether a fleet serves as one that was seen: tiers grow with all replicas, though."""
        if policy.tiers or not self.search.prunes:
            return False
        total = sum(counts)
        return any(
            len(first) <= total and _first(counts, len(first)) == first
            for first in self.seen.get(policy, ())
        )


def _first(counts: Counts, replicas: int) -> Counts:
    """Kinds of the first replicas of a fleet, in their order."""
    kinds = (kind for kind, count in enumerate(counts) for _ in range(count))
    return tuple(itertools.islice(kinds, replicas))


def _replicas_that_ran(served: ServedFleet) -> int:
    """Places up to the last replica that was ever started."""
    return 1 + max(place for place, part in enumerate(served.part_totals) if part.online_s > 0)
