"""A power limit on every accelerator: what it saves and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import scalemodel._core as _core
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import operator_rows, running_estimate
from scalemodel.resolve.power import clock_power

if TYPE_CHECKING:
    import pandas as pd

_EXPOSED = ("tp", "cp", "ep", "pp", "dp", "offload")


def _clocked_fraction(est: Estimate) -> float:
    """Share of the kernels' time that the clock of the multiprocessors limits.

    Kernels that only move bytes follow the memory; communication is no kernel of the step.
    """
    clocked_s = total_s = 0.0
    for row in operator_rows(est):
        if str(row["operator"]).endswith("_parallel"):
            continue
        total_s += row["step_s"]
        if not row["bytes"]:
            clocked_s += row["step_s"]
    return clocked_s / total_s if total_s else 1.0


def phases_of(est: Estimate) -> _core.StepPhases:
    """Time of a step by what limits it; the phases sum to the step time."""
    clocked = _clocked_fraction(est) * est.compute_s
    exposed_s = sum(getattr(est.core, f"exposed_{cause}_s") for cause in _EXPOSED)
    memory_s = est.compute_s - clocked + est.optimizer_s
    return _core.StepPhases(
        compute_s=clocked,
        memory_bound_s=memory_s,
        exposed_s=exposed_s,
        idle_s=max(0.0, est.step_time_s - clocked - memory_s - exposed_s),
    )


class CappedStep(NamedTuple):
    """A step under a power limit.

    Attributes
    ----------
    time_s, power_w : float
        Of the step; mean of one accelerator.
    clock_fraction : float
        Of the highest clock, while computing.
    met : bool
        Whether any clock keeps to the limit.
    """

    time_s: float
    power_w: float
    clock_fraction: float
    met: bool


def capped_step(est: Estimate, cap_w: float | None) -> CappedStep:
    """The step of an estimate under a power limit of each accelerator, in watts; None: its own."""
    power = est.cluster.core.accelerator.power
    limit_w = power.limit_w if cap_w is None else checked("cap_w", cap_w, 1e-3, 1e6)
    step = _core.step_under_cap(power, clock_power(), phases_of(est), limit_w)
    return CappedStep(step.time_s, step.power_w, step.clock_fraction, step.met)


@named_arguments
def power_caps(est: Estimate, caps_w: Sequence[float]) -> pd.DataFrame:
    """A step under several power limits: slower, and more frugal up to a point.

    Parameters
    ----------
    est : Estimate
        Of a strategy that can run.
    caps_w : sequence of float
        Limits of one accelerator.

    Returns
    -------
    DataFrame, one row per limit
        Columns cap_w, met (whether any clock keeps to it), clock_fraction, step_time_s, power_w
        (mean of one accelerator), energy_j (of the step, at the facility's meter), tokens_per_s,
        tokens_per_j.

    Raises
    ------
    ScaleModelError : the strategy cannot run, or a limit is no positive number.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> table = power_caps(est, [700, 500])
    >>> bool(table.step_time_s[1] > table.step_time_s[0]), bool(table.power_w[1] <= 500)
    (True, True)
    """
    import pandas as pd

    core = running_estimate(est).cluster.core
    tokens = est.tokens_per_s * est.step_time_s
    rows = []
    for cap_w in caps_w:
        step = capped_step(est, cap_w)
        energy_j = _core.facility_energy_j(
            step.time_s,
            step.power_w,
            core.accelerators,
            core.host_power_w,
            est.cluster.nodes,
            core.pue,
        )
        rows.append(
            {
                "cap_w": float(cap_w),
                "met": step.met,
                "clock_fraction": step.clock_fraction,
                "step_time_s": step.time_s,
                "power_w": step.power_w,
                "energy_j": energy_j,
                "tokens_per_s": tokens / step.time_s,
                "tokens_per_j": tokens / energy_j,
            }
        )
    return pd.DataFrame(rows)
