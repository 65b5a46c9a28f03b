"""What to recompute under a memory budget: `plan_recompute`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import percent_text, size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import stack_at, tables_by
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import HEADROOM

if TYPE_CHECKING:
    import pandas as pd

#: Modules by Megatron-Core's names; `moe` repeats the two after it as well.
MODULES = (*("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"),)
_INSIDE_EXPERTS = frozenset(("moe_act", "shared_experts"))


@dataclass(frozen=True, repr=False)
class RecomputeOption:
    """One way to recompute, and what the step takes with it.

    Attributes
    ----------
    modules : str
        ``"none"``, modules joined by ``+``, ``"full"``, or ``"full, N layers"`` of each rank.
    estimate : Estimate
        The step; its strategy and stack start it (`scalemodel.launch`).
    step_time_s, memory_bytes : float
        Memory of the fullest accelerator.
    fits : bool
        Whether it keeps to the budget.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> sm.plan_recompute("llama3_8b", sm.cluster("dgx_h100"), task)[0].modules
    'none'
    """

    modules: str
    estimate: Estimate
    step_time_s: float
    memory_bytes: float
    fits: bool

    def __repr__(self) -> str:
        step, size = time_text(self.step_time_s), size_text(self.memory_bytes)
        return (
            f"RecomputeOption({self.modules}: step {step}, {size}{'' if self.fits else ', over'})"
        )


class RecomputePlan(Sequence[RecomputeOption]):
    """Ways to recompute that no other beats in time and memory, the fastest first.

    Attributes
    ----------
    budget_bytes : float
        Memory of the fullest accelerator that a step may take.
    best : RecomputeOption or None
        The fastest that keeps to the budget; None where none does.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> plan = sm.plan_recompute("llama3_8b", sm.cluster("dgx_h100"), task, memory_bytes=80e9)
    >>> plan.best.fits, bool(plan.table().step_time_s.is_monotonic_increasing)
    (True, True)
    """

    def __init__(self, options: Sequence[RecomputeOption], budget_bytes: float) -> None:
        self._options = tuple(options)
        self.budget_bytes = budget_bytes
        self.best = next((option for option in self._options if option.fits), None)

    def __len__(self) -> int:
        return len(self._options)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._options[index]

    def table(self) -> pd.DataFrame:
        """The price curve: modules, step_time_s, memory_bytes, fits, time_change_fraction.

        The change is that of the step against the fastest option's.
        """
        import pandas as pd

        first = self._options[0].step_time_s
        return pd.DataFrame(
            [
                {
                    "modules": option.modules,
                    "step_time_s": option.step_time_s,
                    "memory_bytes": option.memory_bytes,
                    "fits": option.fits,
                    "time_change_fraction": option.step_time_s / first - 1,
                }
                for option in self._options
            ]
        )

    def message(self) -> str:
        """The answer in a sentence: what to recompute, or by how much nothing fits."""
        if self.best is None:
            least = min(self._options, key=lambda option: option.memory_bytes)
            return (
                f"nothing keeps to {size_text(self.budget_bytes)}: {least.modules} needs "
                f"{size_text(least.memory_bytes)}; shard more, or take a smaller micro-batch"
            )
        more = self.best.step_time_s / self._options[0].step_time_s - 1
        return (
            f"recompute {self.best.modules}: {size_text(self.best.memory_bytes)} of "
            f"{size_text(self.budget_bytes)}, a step takes {time_text(self.best.step_time_s)} "
            f"({percent_text(more)} longer than the fastest)"
        )

    def __repr__(self) -> str:
        return f"RecomputePlan({self.message()})"


class _Asked:
    """A question with everything but recomputation answered."""

    def __init__(
        self,
        model: resolve.Model,
        cluster: resolve.Cluster,
        task: Training,
        strategy: _core.Strategy,
        stack: StackLike,
    ) -> None:
        self.model, self.cluster, self.task, self.strategy = model, cluster, task, strategy
        self.given, self.stack = stack, stack_at(stack, cluster)

    def estimate(self, modules: str, layers: int = 0) -> Estimate:
        """The step that repeats ``"none"``, ``"full"`` or a set of modules."""
        selective = modules not in ("none", "full")
        stack = self.stack.replace(selective_modules=modules) if selective else self.stack
        strategy = self.strategy.replace(
            recompute="selective" if selective else modules, recompute_layers=layers
        )
        core = tables_by(self.model, self.cluster, self.task, stack).estimate(strategy)
        return Estimate(self.model, self.cluster, self.task, strategy, stack, core)


def _sets(asked: _Asked, none: Estimate) -> Iterator[str]:
    """Sets of modules that differ: of those that the model has, none inside another."""

    def matters(module: str) -> bool:
        alone = asked.estimate(module)
        return (alone.step_time_s, alone.memory_bytes) != (none.step_time_s, none.memory_bytes)

    present = [module for module in MODULES if matters(module)]
    for size in range(1, len(present) + 1):
        for chosen in combinations(present, size):
            if "moe" not in chosen or not _INSIDE_EXPERTS & set(chosen):
                yield "+".join(chosen)


def _steps(asked: _Asked, none: Estimate) -> Iterator[tuple[str, Estimate]]:
    yield "none", none
    for modules in _sets(asked, none):
        yield modules, asked.estimate(modules)
    yield "full", asked.estimate("full")
    layers = asked.model.shape.layers // asked.strategy.pp
    for count in range(1, layers):
        yield f"full, {count} layers", asked.estimate("full", count)


@named_arguments
def plan_recompute(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    strategy: _core.Strategy | None = None,
    *,
    stack: StackLike = DEFAULT_STACK,
    memory_bytes: float | None = None,
) -> RecomputePlan:
    """The cheapest recomputation under a memory budget, and the curve of what memory costs.

    Every set of modules that the model has is evaluated, and whole layers, all or some of each
    rank: the answer is exact for what the engine predicts. Modules are Megatron-Core's
    (NVIDIA/Megatron-LM, megatron/core/transformer/transformer_config.py, recompute_modules).

    Parameters
    ----------
    model, cluster, task, stack
        As in `scalemodel.estimate`.
    strategy : Strategy, optional
        What it says of recomputation is left aside.
    memory_bytes : float, optional
        Budget of the fullest accelerator in bytes; without it, what the accelerator has less the
        5 % that `scalemodel.search` leaves free.

    Returns
    -------
    RecomputePlan
        Options that no other beats in time and memory. `RecomputePlan.best` is None where nothing
        keeps to the budget; `RecomputePlan.message` says by how much.

    Raises
    ------
    ScaleModelError
        The budget is no positive number, or the strategy cannot run whatever is recomputed.

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.cluster("dgx_h100", nodes=8)
    >>> task = sm.Training(global_batch=128, sequence=8192)
    >>> plan = sm.plan_recompute("llama3_70b", cluster, task, sm.Strategy(tp=4, pp=4))
    >>> plan.best.fits, plan.best.step_time_s <= plan[-1].step_time_s
    (True, True)
    """
    number = isinstance(memory_bytes, (int, float)) and not isinstance(memory_bytes, bool)
    if memory_bytes is not None and not (number and 0 < memory_bytes < math.inf):
        raise ScaleModelError(f"memory_bytes={memory_bytes!r}: must be a positive number of bytes")
    resolved, place = resolve.model(model), resolve.cluster(cluster)
    asked = _Asked(resolved, place, task, strategy or _core.Strategy(), stack)
    none = asked.estimate("none")
    if none.illegal:
        raise ScaleModelError(none.message(), code=str(none.verdict))
    budget = float(memory_bytes or (1 - HEADROOM) * none.memory_capacity_bytes)
    options = [
        RecomputeOption(
            modules, est, est.step_time_s, est.memory_bytes, bool(est.memory_bytes <= budget)
        )
        for modules, est in _steps(asked, none)
        if not est.illegal
    ]
    return RecomputePlan(_front(options), budget)


def _front(options: list[RecomputeOption]) -> list[RecomputeOption]:
    """Options that no other beats in both, the fastest first; of equals the one named first."""
    front: list[RecomputeOption] = []
    for option in sorted(options, key=lambda one: (one.step_time_s, one.memory_bytes)):
        if not front or option.memory_bytes < front[-1].memory_bytes:
            front.append(option)
    return front
