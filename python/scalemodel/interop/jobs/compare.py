"""A training log beside its prediction."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import running_estimate
from scalemodel.interop.jobs.logs import Log, read_log
from scalemodel.interop.jobs.step_tables import Step
from scalemodel.interop.jobs.suspects import Suspect, suspects
from scalemodel.resolve.stacks import DEFAULT_STACK

_WARM_UP = 0.1  # share of the steps that is set aside, and at least
_LEAST_WARM_UP = 2
_SLOW = 1.2  # a step this many times the median is an outlier


@dataclass(frozen=True)
class LogComparison:
    """Predicted against measured steps. Made by `compare_log`.

    Attributes
    ----------
    framework : str
        Whose log it was.
    estimate : Estimate
    steps : int
        Counted ones; the first tenth, two at least, is warm-up.
    median_s, low_s, high_s : float
        Measured step time: median, and the tenth and ninetieth percentile.
    slow_fraction : float
        Steps that took more than 1.2 medians: checkpoints, data, stragglers.
    memory_bytes : float or None
        Most that the log names.
    suspects : tuple of Suspect
        What would explain the difference, where it lies outside the interval of the estimate.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> step_ms = 1e3 * est.step_time_s
    >>> line = " iteration {}/ 30 | elapsed time per iteration (ms): {} |"
    >>> lines = [line.format(i, step_ms) for i in range(30)]
    >>> compared = sm.compare_log(chr(10).join(lines), est)
    >>> compared.framework, compared.suspects
    ('megatron', ())
    """

    framework: str
    estimate: Estimate
    steps: int
    median_s: float
    low_s: float
    high_s: float
    slow_fraction: float
    memory_bytes: float | None
    suspects: tuple[Suspect, ...]

    @property
    def error_fraction(self) -> float:
        """Predicted over measured, less one."""
        return float(self.estimate.core.step_time_s) / self.median_s - 1

    @property
    def within(self) -> bool:
        """Whether the median lies in the estimate's 80 % interval."""
        interval = self.estimate.interval()
        return interval is not None and interval.low_s <= self.median_s <= interval.high_s

    def to_dict(self) -> dict[str, Any]:
        r"""One flat row.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Training(global_batch=64, sequence=8192)
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
        >>> line = " iteration {}/ 9 | elapsed time per iteration (ms): 3000.0 |\n"
        >>> text = "".join(line.format(i) for i in range(1, 9))
        >>> sm.compare_log(text, est).to_dict()["measured_step_time_s"]
        3.0
        """
        interval = self.estimate.interval()
        return {
            "framework": self.framework,
            "steps": self.steps,
            "measured_step_time_s": self.median_s,
            "measured_p10_s": self.low_s,
            "measured_p90_s": self.high_s,
            "slow_fraction": self.slow_fraction,
            "predicted_step_time_s": float(self.estimate.core.step_time_s),
            "step_time_low_s": None if interval is None else interval.low_s,
            "step_time_high_s": None if interval is None else interval.high_s,
            "error_fraction": self.error_fraction,
            "within": self.within,
            "measured_memory_bytes": self.memory_bytes,
            "predicted_memory_bytes": float(self.estimate.core.memory_bytes),
            "suspects": "; ".join(each.cause for each in self.suspects),
        }

    def __str__(self) -> str:
        from scalemodel.base.text import percent_text, time_text
        from scalemodel.estimator.uncertainty import step_text

        lines = [
            f"measured {time_text(self.median_s)} a step, median of {self.steps} "
            f"({time_text(self.low_s)} to {time_text(self.high_s)}); "
            f"predicted {step_text(self.estimate)}: "
            f"{percent_text(self.error_fraction, signed=True)}"
        ]
        lines.append(
            "within the interval of the estimate" if self.within else "outside the interval"
        )
        if self.slow_fraction:
            lines.append(f"{percent_text(self.slow_fraction)} of the steps over {_SLOW} medians")
        lines += [
            f"would explain {percent_text(each.explained_fraction)} of it: {each.cause}"
            f" (check: {each.check})"
            for each in self.suspects
        ]
        return chr(10).join(lines)


def step_times_s(log: Log, est: Estimate) -> NDArray[np.float64]:
    """Seconds of each step of a log, from what the log gives, by the batch of the estimate."""
    tokens = est.task.global_batch * est.task.sequence

    def seconds(step: Step) -> float | None:
        if step.time_s is not None:
            return step.time_s
        if step.tokens_per_s_accelerator:
            return tokens / (step.tokens_per_s_accelerator * est.cluster.accelerators)
        if step.tokens_per_s:
            return tokens / step.tokens_per_s
        return est.task.global_batch / step.samples_per_s if step.samples_per_s else None

    times = [seconds(step) for step in log.steps]
    return np.array([time for time in times if time is not None and time > 0])


def steady(times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Step times without the warm-up."""
    return times_s[min(max(_LEAST_WARM_UP, round(_WARM_UP * len(times_s))), len(times_s) - 1) :]


def asked(log: Log, cluster: Any, accelerators: int | None, stack: str) -> Estimate:
    """The estimate of the job whose arguments a log prints."""
    from scalemodel import resolve
    from scalemodel.interop.settings import read_settings

    world = str(log.arguments.get("world_size", ""))
    count = accelerators or (int(world) if world.isdigit() else 0)
    if not log.arguments or not count:
        raise ScaleModelError(
            "log: prints no arguments of the job; pass est=", code="missing_settings"
        )
    if cluster is None:
        raise ScaleModelError("cluster=None: must be given where the estimate is not")
    settings = read_settings("megatron", log.arguments, accelerators=count)
    if settings.model is None or settings.task is None:
        raise ScaleModelError(
            "log: its arguments name no model, batch or sequence; pass est=",
            code="missing_settings",
        )
    where = resolve.cluster(cluster, accelerators=count)
    return estimate(settings.model, where, settings.task, settings.strategy, stack=stack)


@named_arguments
def compare_log(
    log: str | os.PathLike[str],
    est: Estimate | None = None,
    *,
    cluster: Any = None,
    accelerators: int | None = None,
    stack: str = DEFAULT_STACK,
) -> LogComparison:
    r"""Predicted against measured steps of a training log.

    Parameters
    ----------
    log : str or path
        File, or text of more than one line; see `jobs.read_log` for the frameworks.
    est : Estimate, optional
        Of the job. Default: of the arguments that Megatron prints at the head of its log.
    cluster : object or anything `sm.cluster` takes, optional
        Where the job ran; needed without an estimate.
    accelerators : int, optional
        Of the job; default: what the log says.
    stack : str
        Software stack, without an estimate.

    Returns
    -------
    LogComparison

    Raises
    ------
    ScaleModelError : the log is not known or has no steps, or the job cannot be told from it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> line = " iteration {}/ 9 | elapsed time per iteration (ms): 3000.0 |\n"
    >>> sm.compare_log("".join(line.format(i) for i in range(1, 9)), est).median_s
    3.0
    """
    read = read_log(log)
    if est is None:
        est = asked(read, cluster, accelerators, stack)
    est = running_estimate(est)
    times_s = step_times_s(read, est)
    if not len(times_s):
        raise ScaleModelError("log: no step has a time or a rate", code="unknown_log")
    counted = steady(times_s)
    low_s, median_s, high_s = (float(each) for each in np.quantile(counted, (0.1, 0.5, 0.9)))
    memory = [step.memory_bytes for step in read.steps if step.memory_bytes]
    found = LogComparison(
        framework=read.framework,
        estimate=est,
        steps=len(counted),
        median_s=median_s,
        low_s=low_s,
        high_s=high_s,
        slow_fraction=float((counted > _SLOW * median_s).mean()),
        memory_bytes=max(memory) if memory else None,
        suspects=(),
    )
    if found.within:
        return found
    return replace(found, suspects=tuple(suspects(est, median_s)))
