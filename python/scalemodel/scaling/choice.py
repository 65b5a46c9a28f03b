"""How a strategy follows from the size of a job: kept, derived by a rule, or searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import Objective
from scalemodel.search.search import search
from scalemodel.search.space import Space

Rule = Literal["ddp", "fsdp", "hsdp"]

#: Sharding that each rule sets.
_SHARDING = {"ddp": "ddp", "fsdp": "zero3", "hsdp": "hsdp"}


@dataclass(frozen=True)
class Choice:
    """One of the three ways; made by `choice_of`."""

    strategy: _core.Strategy | None
    rule: str | None
    space: Space
    objective: Objective
    constraints: tuple[str, ...]
    stack: str
    threads: int | None

    def strategy_at(self, cluster: Cluster) -> _core.Strategy | None:
        """The strategy at this size; None where it is searched."""
        base = self.strategy
        if self.rule is None:
            return base
        base = base or _core.Strategy()
        changes: dict[str, Any] = {"sharding": _SHARDING[self.rule]}
        if self.rule == "hsdp":
            ranks = cluster.accelerators // (base.tp * base.pp)
            group = base.shard_degree or int(cluster.core.scale_up.domain)
            changes["shard_degree"] = max(1, min(group, ranks))
        return base.replace(**changes)

    def estimate(
        self, model: Model, cluster: Cluster, task: Training, policy: str | None = None
    ) -> Estimate | None:
        """The answer at this size; None where a search found nothing that fits.

        With a routing policy the strategy of the ideal fabric, on what that policy leaves it.
        """
        found = self._ideal(model, cluster, task)
        if policy is None or found is None or found.illegal:
            return found
        from scalemodel.routing.route import estimate_routed

        return estimate_routed(
            model, cluster, task, found.strategy, stack=self.stack, policy=policy
        )

    def _ideal(self, model: Model, cluster: Cluster, task: Training) -> Estimate | None:
        strategy = self.strategy_at(cluster)
        if strategy is not None:
            return estimate(model, cluster, task, strategy, stack=self.stack)
        found = search(
            model,
            cluster,
            task,
            self.space,
            objective=self.objective,
            top=1,
            constraints=self.constraints,
            stack=self.stack,
            threads=self.threads,
        )
        return found[0] if found else None


def choice_of(
    *,
    strategy: _core.Strategy | None = None,
    rule: str | None = None,
    search: Space | Mapping[str, Any] | None = None,
    objective: Objective = "step_time_s",
    constraints: str | Iterable[str] = (),
    stack: str = "plain",
    threads: int | None = None,
) -> Choice:
    """The way that the arguments of `scaling` ask for.

    Raises
    ------
    ScaleModelError : an unknown rule, or a search beside a strategy.

    Examples
    --------
    >>> import scalemodel as sm
    >>> choice_of(rule="hsdp").strategy_at(sm.cluster("dgx_h100", nodes=4)).shard_degree
    8
    """
    if rule is not None and rule not in _SHARDING:
        raise ScaleModelError(f"rule={rule!r}: no such rule; {nearest(str(rule), _SHARDING)}")
    if strategy is not None and not isinstance(strategy, _core.Strategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a Strategy")
    if strategy is not None and strategy.dp:
        raise ScaleModelError(
            f"strategy: dp={strategy.dp} fits one size only; leave dp out, it follows from the size"
        )
    fixed = strategy is not None or rule is not None
    if search is not None and fixed:
        raise ScaleModelError("search: cannot go with strategy or rule, which leave nothing open")
    space = Space(**search) if isinstance(search, Mapping) else search or Space()
    if not isinstance(space, Space):
        raise ScaleModelError(f"search={search!r}: must be a Space or a mapping of its arguments")
    texts = (constraints,) if isinstance(constraints, str) else tuple(constraints)
    return Choice(strategy, rule, space, objective, texts, stack, threads)
