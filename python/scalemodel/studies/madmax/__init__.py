"""The studies of MAD-Max ("Beyond Single-Node", arXiv 2310.02784) with this package's physics.

Its suite of recommendation models, language models and vision transformers; its space of two-level
strategies per layer group; what they gain over FSDP, which communication stays exposed, what faster
hardware and longer contexts change, what a training run costs in a cloud. Everything is computed by
`scalemodel.estimate`; `pandas` tables come back.
"""

from __future__ import annotations

from scalemodel.studies.madmax.clouds import CLOUDS, cloud_costs
from scalemodel.studies.madmax.machines import (
    ACCELERATORS,
    RESOURCES,
    accelerators,
    context_lengths,
    resource_scaling,
)
from scalemodel.studies.madmax.suite import (
    SUITE,
    Workload,
    best_over_fsdp,
    exposed_communication,
    plans,
    strategies,
)
from scalemodel.studies.madmax.tasks import (
    bars,
    fine_tuning,
    fleet_exposed,
    tasks,
    throughput_memory,
)

__all__ = [
    "ACCELERATORS",
    "CLOUDS",
    "RESOURCES",
    "SUITE",
    "Workload",
    "accelerators",
    "bars",
    "best_over_fsdp",
    "cloud_costs",
    "context_lengths",
    "exposed_communication",
    "fine_tuning",
    "fleet_exposed",
    "plans",
    "resource_scaling",
    "strategies",
    "tasks",
    "throughput_memory",
]
