"""What would explain a job that runs slower, or faster, than predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scalemodel.base.errors import ScaleModelError
from scalemodel.codesign.vary import PEAK, Hardware
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import running_estimate

# Shares of a rate that are left when something is amiss: a link at half its width, a shared
# uplink, a clock held down by heat or a cap.
_SHARES = (0.9, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class Suspect:
    """One thing that would bring prediction and measurement together.

    Attributes
    ----------
    cause : str
    step_time_s : float
        Predicted with it.
    explained_fraction : float
        Of the logarithm of measured over predicted: 1 explains the whole.
    check : str
        Where to look.
    """

    cause: str
    step_time_s: float
    explained_fraction: float
    check: str


def _hardware(est: Estimate) -> Iterator[tuple[str, Estimate, str]]:
    """The job on hardware of which one rate is lower than the catalogue says."""
    hardware = Hardware(est.cluster)
    for path, name, unit, check in (
        ("fabric.bandwidth", "network", "rate", "nccl-tests between nodes; uplinks, routing"),
        ("scale_up.bandwidth", "links of the domain", "rate", "nccl-tests on one node"),
        ("accelerator.memory.bandwidth", "memory", "rate", "a memory copy; sharing, ECC"),
        (PEAK, "accelerators", "clock", "clocks and their reasons; power cap, heat"),
    ):
        if path not in hardware.quantities or not hardware.quantity(path).scales:
            continue
        for share in _SHARES:
            cluster = hardware.build(hardware.design({path: share}))
            other = estimate(est.model, cluster, est.task, est.strategy, stack=est.stack)
            yield f"{name} at {share:.0%} of the {unit} in the catalogue", other, check


def _strategies(est: Estimate) -> Iterator[tuple[str, Estimate, str]]:
    """The job with a switch that may not have taken effect."""
    plan = est.strategy
    for changes, cause, check in (
        ({"overlap_grad_reduce": "off"}, "gradient reduction is not hidden", "overlap flags"),
        ({"overlap_param_gather": "off"}, "parameter gathering is not hidden", "overlap flags"),
        ({"overlap_tp": "off"}, "tensor-parallel traffic is not hidden", "overlap flags"),
        ({"recompute": "full"}, "every layer is recomputed", "recomputation flags"),
        ({"recompute": "none"}, "nothing is recomputed", "recomputation flags"),
        ({"sequence_parallel": False}, "no sequence parallelism", "sequence-parallel flag"),
        ({"offload_optimizer": True}, "optimizer states are in host memory", "offload flags"),
    ):
        if all(getattr(plan, name) == value for name, value in changes.items()):
            continue
        other = estimate(est.model, est.cluster, est.task, plan.replace(**changes), stack=est.stack)
        yield cause, other, check


def suspects(est: Estimate, measured_s: float, count: int = 3) -> list[Suspect]:
    """What would explain a measured step time, the closest first.

    Each suspect is the same job with one thing changed, predicted by the same engine. They are
    hypotheses to check, not a diagnosis: several may explain the same time.

    Parameters
    ----------
    est : Estimate
        Of the job, as it should run.
    measured_s : float
        Measured seconds of a step.
    count : int
        Length of the answer, at most.

    Returns
    -------
    list of Suspect
        Empty where nothing that is known comes near, or nothing needs explaining.

    Raises
    ------
    ScaleModelError : the strategy cannot run, or the time is not above 0.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=512, sequence=8192)
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=16), task,
    ...                   sm.Strategy(tp=8, pp=2))
    >>> suspects(est, 1.3 * est.step_time_s)[0].explained_fraction > 0.5
    True
    """
    est = running_estimate(est)
    if not measured_s > 0:
        raise ScaleModelError(f"measured_s={measured_s!r}: must be above 0")
    gap = math.log(measured_s / est.step_time_s)
    if abs(gap) < 1e-6:
        return []
    tried = [
        (cause, float(other.core.step_time_s), check)
        for cause, other, check in (*_hardware(est), *_strategies(est))
        if not other.illegal
    ]
    found: dict[str, Suspect] = {}
    for cause, time_s, check in tried:
        explained = math.log(time_s / est.step_time_s) / gap
        if not 0.25 <= explained <= 1.75:
            continue
        kind = cause.split(" at ")[0]
        suspect = Suspect(cause, time_s, explained, check)
        if kind not in found or _miss(suspect) < _miss(found[kind]):
            found[kind] = suspect
    return sorted(found.values(), key=_miss)[:count]


def _miss(suspect: Suspect) -> float:
    return abs(1 - suspect.explained_fraction)
