"""Running jobs: their logs beside the prediction, and a monitor that says when they fall behind."""

from __future__ import annotations

from scalemodel.interop.jobs.compare import LogComparison, compare_log
from scalemodel.interop.jobs.logs import Log, read_log
from scalemodel.interop.jobs.monitor import SlowStepWarning, StepTimeMonitor
from scalemodel.interop.jobs.profiles import Profile, read_profile
from scalemodel.interop.jobs.projection import ProjectedStep, Projection, project
from scalemodel.interop.jobs.step_tables import Step
from scalemodel.interop.jobs.suspects import Suspect, suspects
from scalemodel.interop.jobs.writers import write_function

__all__ = [
    "Log",
    "LogComparison",
    "Profile",
    "ProjectedStep",
    "Projection",
    "SlowStepWarning",
    "Step",
    "StepTimeMonitor",
    "Suspect",
    "compare_log",
    "project",
    "read_log",
    "read_profile",
    "suspects",
    "write_function",
]
