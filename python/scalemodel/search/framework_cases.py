"""A strategy as the rules of training frameworks ask about it, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import scalemodel._core as _core
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.tasks import Training

#: Schedules that hold two chunks on each stage by themselves.
THERE_AND_BACK: Final = ("zero_bubble_v", "dualpipe_v")


def chunks(strategy: _core.Strategy) -> int:
    """Groups of layers that each pipeline stage holds."""
    return 2 if strategy.schedule in THERE_AND_BACK else int(strategy.vpp)


@dataclass(frozen=True)
class Case:
    """A strategy of a question, as rules ask about it.

    Attributes
    ----------
    model, cluster, task, strategy, stack
        The question.
    layout : bool
        Whether the layers of every pipeline stage are written out, so that they need not divide.
    """

    model: Model
    cluster: Cluster
    task: Training
    strategy: _core.Strategy
    stack: _core.Stack
    layout: bool = True

    @property
    def shape(self) -> Any:
        """The architecture."""
        return self.model.shape

    @property
    def degrees(self) -> _core.Degrees:
        """Degrees, those left open filled in."""
        return _core.resolve_degrees(self.strategy, self.cluster.core, self.task.core)

    @property
    def micro_batches(self) -> float:
        """Passes of a replica through the model in one step."""
        dp, whole = self.degrees.dp, self.task.global_batch
        sequences = whole // dp if self.task.batch_is_limit else whole / dp
        return float(sequences / self.strategy.micro_batch)

    @property
    def precision(self) -> str:
        """Format of the linear layers."""
        chosen = self.strategy.linear_precision
        return self.task.precision if chosen == "task" else str(chosen)

    @property
    def kv_heads(self) -> int:
        """Groups of queries; as many as heads where every head has its own keys."""
        shape = self.shape
        return int(shape.heads if shape.kv_lora_rank else shape.kv_heads or shape.heads)

    @property
    def overlaps_tp(self) -> bool:
        """Whether tensor-parallel communication is hidden, by the strategy or else by the stack."""
        plan = self.strategy
        if plan.tp == 1 or not plan.sequence_parallel:
            return False
        if plan.overlap_tp != "stack":
            return plan.overlap_tp != "off"
        if not self.stack.overlap_tp:
            return False
        return self.uses("overlap_tp") or not self.stack.overlap_tp_in_node

    def uses(self, *facts: str) -> bool:
        """Whether the estimate takes another time without facts that the stack has."""
        held = [name for name in facts if getattr(self.stack, name)]
        if not held:
            return False
        without = self.stack.replace(**dict.fromkeys(held, False))
        times = [
            tables_for(self.model, self.cluster, self.task, stack).estimate(self.strategy)
            for stack in (self.stack, without)
        ]
        return bool(times[0].step_time_s != times[1].step_time_s)


@dataclass(frozen=True)
class Rule:
    """What a framework refuses.

    Attributes
    ----------
    name : str
    says : str
        What must hold.
    source : str
        Where the framework says so.
    breaks : callable
        Whether a case breaks it.
    degree : str
        The one degree of parallelism that decides, whatever the others are; empty where several
        knobs do.
    """

    name: str
    says: str
    source: str
    breaks: Callable[[Case], bool]
    degree: str = ""
