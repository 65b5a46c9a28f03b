"""Islands that train apart and meet every few steps: DiLoCo, and its streaming form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate


@dataclass(frozen=True)
class OuterStepEstimate:
    """What meetings of islands add to their steps. Made by `outer_steps`.

    Attributes
    ----------
    estimate : Estimate
        A step of one island.
    outer : OuterSteps
        How often they meet, and over what.
    step_time_s, round_s : float
        Of an inner step with its share of the exchange, in the mean; from meeting to meeting.
    exchange_s : float
        Of one fragment, hidden or not.
    tokens_per_s : float
        Of all islands.
    memory_bytes : float
        Of an accelerator, with the states of the outer optimizer.
    fits : bool
        Whether it has as much.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=2))
    >>> met = sm.outer_steps(est, islands=4, inner_steps=100, bandwidth_bytes_per_s=1e10)
    >>> 0 < met.step_time_s / est.step_time_s - 1 < 0.01
    True
    """

    estimate: Estimate
    outer: _core.OuterSteps
    step_time_s: float
    round_s: float
    exchange_s: float
    tokens_per_s: float
    memory_bytes: float

    @property
    def fits(self) -> bool:
        """Whether an accelerator holds the states of both optimizers."""
        return self.memory_bytes <= float(self.estimate.memory_capacity_bytes)


@named_arguments
def outer_steps(est: Estimate, **knobs: Any) -> OuterStepEstimate:
    """The step of islands that each train as an estimate says, and meet every few steps.

    What this does to the loss is outside the model.

    Parameters
    ----------
    est : Estimate
        A step of one island.
    **knobs
        Fields of `OuterSteps`: islands, inner_steps, fragments, overlap_steps, value_bytes,
        bandwidth_bytes_per_s of an island, latency_s.

    Raises
    ------
    ScaleModelError : an estimate that cannot run, or a value out of range.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=2))
    >>> plain = sm.outer_steps(est, bandwidth_bytes_per_s=1e9)
    >>> streamed = sm.outer_steps(est, bandwidth_bytes_per_s=1e9, fragments=8, overlap_steps=5)
    >>> streamed.step_time_s < plain.step_time_s
    True
    """
    if est.illegal:
        raise ScaleModelError(f"est: cannot run ({est.verdict})")
    if "bandwidth_bytes_per_s" not in knobs:
        raise ScaleModelError("bandwidth_bytes_per_s: of an island to the others is needed")
    outer = _core.OuterSteps(**knobs)
    parameters = float(est.model.parameters)
    exchange, whole, mean, rate = _core.outer_round(
        outer, parameters, est.core.step_time_s, est.core.tokens_per_s
    )
    states = _core.outer_state_bytes(parameters, int(est.cluster.accelerators))
    return OuterStepEstimate(
        est, outer, mean, whole, exchange, rate, est.core.memory_bytes + states
    )
