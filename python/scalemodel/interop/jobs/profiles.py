"""What was measured of a job: a step time, and where a trace tells it, what fills the step."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import read_unpacked
from scalemodel.estimator.estimate import Estimate
from scalemodel.interop.jobs.compare import steady, step_times_s
from scalemodel.interop.jobs.logs import read_log
from scalemodel.interop.traces.kineto import KinetoTrace, read_kineto

#: What fills a step: kernels that compute, communication that no other kernel hides, and neither.
PARTS = ("compute", "communication", "host")
_TRACE = b'"traceEvents"'


@dataclass(frozen=True)
class Profile:
    """What was measured of a job.

    Attributes
    ----------
    step_time_s : float
        Median.
    low_s, high_s : float
        Tenth and ninetieth percentile of the steps.
    steps : int
        Counted ones.
    source : str
        What was read, in words.
    parts : dict of str to float
        Seconds of the step by `PARTS`, which sum to it; empty where only step times are known.
    """

    step_time_s: float
    low_s: float
    high_s: float
    steps: int
    source: str
    parts: dict[str, float] = field(default_factory=dict, hash=False)


def _of_times(times_s: Sequence[float], source: str) -> Profile:
    times = np.asarray(times_s, dtype=float)
    if times.ndim != 1 or not len(times) or not np.all(np.isfinite(times) & (times > 0)):
        raise ScaleModelError(
            f"profile={list(times_s)!r}: seconds of steps must be finite and above 0"
        )
    low_s, median_s, high_s = (float(each) for each in np.quantile(times, (0.1, 0.5, 0.9)))
    return Profile(median_s, low_s, high_s, len(times), source)


def _median_step(trace: KinetoTrace) -> dict[str, float]:
    """The columns of the step whose time is the median, the shorter one of two."""
    table = trace.steps().sort_values("step_time_s", kind="stable")
    row = table.iloc[(len(table) - 1) // 2]
    names = ("compute_s", "exposed_communication_s", "idle_s")
    return {part: float(row[name]) for part, name in zip(PARTS, names, strict=True)}


def _of_traces(traces: Sequence[KinetoTrace], est: Estimate) -> Profile:
    worlds = {trace.world_size for trace in traces} - {None}
    if worlds - {est.cluster.accelerators}:
        listed = ", ".join(str(world) for world in sorted(filter(None, worlds)))
        raise ScaleModelError(
            f"profile: its traces are of {listed} ranks, the estimate of "
            f"{est.cluster.accelerators}; pass the estimate of the profiled job"
        )
    steps = [trace.steps()["step_time_s"] for trace in traces]
    each = [_median_step(trace) for trace in traces]
    parts = {part: float(np.mean([one[part] for one in each])) for part in PARTS}
    times = np.concatenate([np.asarray(one, dtype=float) for one in steps])
    low_s, high_s = (float(end) for end in np.quantile(times, (0.1, 0.9)))
    ranks = "a trace" if len(traces) == 1 else f"traces of {len(traces)} ranks"
    step_s = sum(parts.values())
    if not step_s > 0:
        raise ScaleModelError("profile: the steps of its traces take no time", code="empty_trace")
    return Profile(
        step_s, min(low_s, step_s), max(high_s, step_s), len(steps[0]), f"{ranks} of PyTorch", parts
    )


def _is_trace(path: Path) -> bool:
    return path.is_file() and _TRACE in read_unpacked(path)


def read_profile(profile: Any, est: Estimate) -> Profile:
    """What was measured of a job, from any of the ways to tell it.

    Parameters
    ----------
    profile : path, str, float, KinetoTrace, or a sequence of paths, traces or seconds
        Trace of PyTorch's profiler, or one per rank; a log of steps (`read_log`), the warm-up of
        which is set aside; or seconds of a step, or of several, that were timed otherwise.
    est : Estimate
        Of the job that was measured: logs that give rates need its batch.

    Raises
    ------
    ScaleModelError : what is given cannot be read, names no step, or is of another size.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> read_profile([2.0, 2.1, 2.0], est).step_time_s
    2.0
    """
    if isinstance(profile, KinetoTrace):
        return _of_traces([profile], est)
    if isinstance(profile, (int, float)) and not isinstance(profile, bool):
        return _of_times([float(profile)], "a measured step time")
    if isinstance(profile, (str, os.PathLike)):
        text = os.fspath(profile)
        if "\n" not in text and not Path(text).exists():
            raise ScaleModelError(
                f"profile={text!r} cannot be read (no such file); legal are a trace of PyTorch's "
                "profiler, a log of steps, or seconds of a step such as 2.1",
                code="unreadable_file",
            )
        if "\n" not in text and _is_trace(Path(text)):
            return _of_traces([read_kineto(text)], est)
        log = read_log(text)
        times = step_times_s(log, est)
        if not len(times):
            raise ScaleModelError("log: no step has a time or a rate", code="unknown_log")
        return _of_times(steady(times).tolist(), f"a log of {log.framework}")
    listed = isinstance(profile, Iterable) and not isinstance(profile, Mapping)
    items = list(profile) if listed else []
    if items and all(isinstance(item, (str, os.PathLike, KinetoTrace)) for item in items):
        traces = [item if isinstance(item, KinetoTrace) else read_kineto(item) for item in items]
        return _of_traces(traces, est)
    if items and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) for item in items
    ):
        return _of_times([float(item) for item in items], "measured step times")
    raise ScaleModelError(
        f"profile={profile!r}: must be a trace of PyTorch's profiler, one per rank, a log of steps "
        "or seconds of steps"
    )
