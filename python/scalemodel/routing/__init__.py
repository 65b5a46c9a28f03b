"""Networks as graphs, the traffic of training jobs on them, and how to route it."""

from __future__ import annotations

from scalemodel.routing.completion import CompletionTimes
from scalemodel.routing.enforcement import segment_lists, source_ports, write_segment_lists
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.network import NetworkReport
from scalemodel.routing.paths import plan_paths
from scalemodel.routing.report import RoutingReport
from scalemodel.routing.route import route
from scalemodel.routing.shifts import time_shifts
from scalemodel.routing.simulation import simulate_network
from scalemodel.routing.topology import design_topology
from scalemodel.routing.traffic import Traffic, traffic
from scalemodel.routing.trees import pack_trees

__all__ = [
    "CompletionTimes",
    "Fabric",
    "NetworkReport",
    "RoutingReport",
    "Traffic",
    "design_topology",
    "pack_trees",
    "plan_paths",
    "route",
    "segment_lists",
    "simulate_network",
    "source_ports",
    "time_shifts",
    "traffic",
    "write_segment_lists",
]
