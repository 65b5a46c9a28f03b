"""Which named stack would run the strategies of a ranking faster than plain kernels do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.text import time_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_by
from scalemodel.resolve.stack_choice import facts_on, holds_on
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.stacks import stack as stack_of

#: What decides how much of the exchange of experts is left: how much is sent, and under what.
_EXCHANGE = (
    *("deduplicated_dispatch", "deduplicated_between", "narrow_dispatch"),
    *("overlap_ep", "overlap_ep_between"),
)
#: Share of a step below which no other stack is worth a word.
_NOTABLE = 0.05


class OtherStack(NamedTuple):
    """A stack, and the fastest of the strategies under it."""

    name: str
    step_time_s: float
    strategy: _core.Strategy


def _candidates(accelerator: str) -> Iterator[tuple[str, _core.Stack]]:
    """Named stacks that exchange tokens otherwise than plain ones and hold on the accelerator."""
    if accelerator not in catalog.names("accelerators"):
        return
    architecture = catalog.load("accelerators", accelerator)["architecture"]
    plain = stack_of(DEFAULT_STACK)
    for name in sorted(catalog.names("stacks")):
        facts = facts_on(name, architecture)
        if name == DEFAULT_STACK or not holds_on(name, accelerator):
            continue
        if any(getattr(facts, field) != getattr(plain, field) for field in _EXCHANGE):
            yield name, facts


def fastest_other_stack(listed: Sequence[Estimate]) -> OtherStack | None:
    """The stack under which one of the strategies is fastest, if notably faster than the first.

    Only the exchange of experts is a matter of the stack to such an extent: plain kernels send a
    copy of a token to each of its experts, in 16 bits, and wait for it.

    Parameters
    ----------
    listed : sequence of Estimate
        Strategies of one question, best first.

    Returns
    -------
    OtherStack or None
        None for models without experts, questions of a named stack, and where the first is within
        5 % of what any other stack reaches.
    """
    if not listed or listed[0].stack != DEFAULT_STACK or not listed[0].model.shape.experts:
        return None
    first = listed[0]
    best: OtherStack | None = None
    for name, facts in _candidates(first.cluster.accelerator):
        tables = tables_by(first.model, first.cluster, first.task, facts)
        for estimate in listed:
            core = tables.estimate(estimate.strategy)
            if core.verdict != "ok":
                continue
            if best is None or core.step_time_s < best.step_time_s:
                best = OtherStack(name, core.step_time_s, estimate.strategy)
    notable = best is not None and best.step_time_s < (1 - _NOTABLE) * first.core.step_time_s
    return best if notable else None


def other_stack_text(found: OtherStack) -> str:
    """One line that names the stack and how to ask for it."""
    return (
        f"the stack decides: under {found.name} one of these takes "
        f"{time_text(found.step_time_s)}; search with stack={found.name!r} for its best"
    )
