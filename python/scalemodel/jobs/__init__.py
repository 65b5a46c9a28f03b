"""Running jobs: their logs beside the prediction, and a monitor that says when they fall behind."""

from __future__ import annotations

from scalemodel.jobs.compare import LogComparison, compare_log
from scalemodel.jobs.logs import Log, Step, read_log
from scalemodel.jobs.monitor import SlowStepWarning, StepTimeMonitor
from scalemodel.jobs.suspects import Suspect, suspects

__all__ = [
    "Log",
    "LogComparison",
    "SlowStepWarning",
    "Step",
    "StepTimeMonitor",
    "Suspect",
    "compare_log",
    "read_log",
    "suspects",
]
