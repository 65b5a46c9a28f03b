"""Prefill and decode pools of a model, whose numbers of replicas grow apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scalemodel._core import Autoscaler
from scalemodel.serving.fleet_parts import FleetPart
from scalemodel.serving.fleet_pools import ServedPools, answered, prompts_served
from scalemodel.serving.fleet_search import Counts, FleetPolicy, FleetSearch, Kept, tiers_of
from scalemodel.serving.served_fleet import ServedFleet


@dataclass
class PoolSearch(FleetSearch):
    """Pairs of a prefill and a decode pool: the first `prompt_kinds` of all are of the first."""

    prompt_kinds: int = 0
    prompts: dict[tuple[FleetPolicy, Counts, bool], ServedFleet] = field(default_factory=dict)

    def sides(self, counts: Counts) -> list[Counts]:
        """Replicas of prompts, and those of answers."""
        return [counts[: self.prompt_kinds], counts[self.prompt_kinds :]]

    def scaled(
        self, policy: FleetPolicy, autoscalers: Sequence[Autoscaler]
    ) -> Iterator[FleetPolicy]:
        """With something that starts and stops replicas of one pool, or of both."""
        for first, second in itertools.product((None, *autoscalers), repeat=2):
            if first is not None or second is not None:
                yield replace(policy, autoscaler=first, decode_autoscaler=second)

    def legal(self, counts: Counts) -> bool:
        """Whether both pools have a replica, and every cluster the accelerators of all of them."""
        if not all(map(any, self.sides(counts))):
            return False
        held = {plan.cluster.name: plan.cluster.accelerators for plan in self.kinds}
        return all(number <= held[name] for name, number in self.taken(counts).items())

    def _pairs(self, counts: Counts) -> tuple[list[FleetPart], list[FleetPart]]:
        parts = [FleetPart(plan, n) for plan, n in zip(self.kinds, counts, strict=True)]
        return parts[: self.prompt_kinds], parts[self.prompt_kinds :]

    def _prefilled(self, policy: FleetPolicy, counts: Counts, **wrongs: Any) -> ServedFleet:
        """The prompts in a prefill pool, which no decode pool changes."""
        own = self.sides(counts)[0]
        key = (replace(policy, decode_autoscaler=None), own, bool(wrongs))
        if key not in self.prompts:
            pairs = [(part.plan, part.count) for part in self._pairs(counts)[0]]
            given = {**self.options, **wrongs, "tiers": tiers_of(policy.tiers, pairs)}
            self.prompts[key] = prompts_served(
                self.trace, pairs, router=policy.router, autoscaler=policy.autoscaler, **given
            )
        return self.prompts[key]

    def served(self, counts: Counts, policy: FleetPolicy, **wrongs: Any) -> ServedPools:
        """The trace in both pools."""
        before = self._prefilled(policy, counts, **wrongs)
        self.tried += 1
        return answered(
            self.trace,
            before,
            self._pairs(counts)[1],
            router="least_loaded",
            autoscaler=policy.decode_autoscaler,
            seed=int(self.options.get("seed", 0)) + 1,
            **wrongs,
        )

    def _simulated(self, counts: Counts) -> Kept:
        early = {name: limit for name, limit in self.limits.items() if name.startswith("ttft")}
        timely = 0

        def in_time() -> Iterator[FleetPolicy]:
            nonlocal timely
            for policy in self.policies:
                if self._within(self._prefilled(policy, counts), early):
                    timely += 1
                    yield policy

        kept = self._first_kept(counts, in_time())
        if not timely:
            # First tokens come from the prefill pool: no decode pool mends them.
            self.failed.append(self.sides(counts)[0] + self.sides(self.most)[1])
        return kept

    def first_found(self) -> list[Counts]:
        """Pools of one kind each that keep the limits."""
        sides = range(self.prompt_kinds), range(self.prompt_kinds, len(self.kinds))
        pairs = [(i, j) for i in sides[0] for j in sides[1]]
        return [each for pair in pairs if (each := self._pair(*pair))]

    def _pair(self, prompt: int, answer: int) -> Counts | None:
        """Few replicas of two kinds that keep the limits, none of which can be left out alone."""

        def of(n: int, m: int) -> Counts:
            return tuple(
                n if place == prompt else m if place == answer else 0
                for place in range(len(self.kinds))
            )

        def holds(n: int, m: int) -> bool:
            counts = of(n, m)
            return self.legal(counts) and not self.hopeless(counts) and self.keeps(counts)

        most = self.most[prompt], self.most[answer]
        found = None
        n = 1
        while found is None and self.legal(of(min(n, most[0]), min(n, most[1]))):
            if holds(min(n, most[0]), min(n, most[1])):
                found = min(n, most[0]), min(n, most[1])
            elif n >= max(most):
                return None
            n *= 2
        if found is None:
            # What the cluster holds, shared between both pools in any way.
            for n in range(1, most[0] + 1):
                room = [m for m in range(1, most[1] + 1) if self.legal(of(n, m))]
                if room and holds(n, room[-1]):
                    found = n, room[-1]
                    break
        if found is None:
            return None
        n = _least(lambda count: holds(count, found[1]), found[0])
        m = _least(lambda count: holds(n, count), found[1])
        return of(n, m)


def _least(holds: Callable[[int], bool], high: int) -> int:
    """The least number up to `high`, which holds, where more never do worse."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
