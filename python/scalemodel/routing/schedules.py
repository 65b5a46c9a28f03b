"""What the jobs of a traffic repeat over time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

import scalemodel._core as _core
from scalemodel.base.columns import numbers_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.traffic import Traffic


def schedules_of(traffic: Traffic, epochs: int, start_s: ArrayLike) -> list[_core.JobSchedule]:
    """What every job of the traffic repeats."""
    starts = numbers_of("start_s", start_s)
    if starts.shape not in ((), (traffic.jobs,)):
        raise ScaleModelError(f"start_s: must be one number, or one per job ({traffic.jobs})")
    return [
        _core.JobSchedule(steps=steps, epochs=epochs, start_s=float(start), compute_s=compute)
        for steps, start, compute in zip(
            traffic.steps,
            np.broadcast_to(starts, (traffic.jobs,)),
            traffic.compute_s,
            strict=True,
        )
    ]
