"""Networks as graphs, the traffic of training jobs on them, and how to route it."""

from __future__ import annotations

from scalemodel.routing.fabric import Fabric
from scalemodel.routing.report import RoutingReport
from scalemodel.routing.route import route
from scalemodel.routing.simulation import simulate_network
from scalemodel.routing.traffic import Traffic

__all__ = ["Fabric", "RoutingReport", "Traffic", "route", "simulate_network"]
