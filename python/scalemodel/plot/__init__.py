"""Plots: each takes an estimate or a table and an axis, and returns the axis.

No function shows a figure or changes global settings. `save` writes files whose text stays text.
"""

from __future__ import annotations

from scalemodel.plot.accuracy import validation
from scalemodel.plot.canvas import save, style
from scalemodel.plot.estimates import breakdown, memory
from scalemodel.plot.fleet import fleet_front, fleet_load, latency_percentiles
from scalemodel.plot.network import (
    completion_times,
    job_slowdowns,
    link_load_cdf,
    link_loads,
    network_efficiency,
    network_map,
)
from scalemodel.plot.operators import (
    bus_bandwidth,
    collective_table,
    gemm_efficiency,
    gemm_table,
    roofline,
)
from scalemodel.plot.parallel import parallel_coordinates
from scalemodel.plot.post_training import rl_step
from scalemodel.plot.scaling import crossovers, projection, scaling, scaling_breakdown
from scalemodel.plot.search import heat_map, pareto
from scalemodel.plot.sensitivity import iso_performance, tornado
from scalemodel.plot.serving import cache_occupancy, serving_front, serving_rates
from scalemodel.plot.timeline import memory_timeline, timeline
from scalemodel.plot.traces import hit_curve, request_lengths, request_rate

__all__ = [
    "breakdown",
    "bus_bandwidth",
    "cache_occupancy",
    "collective_table",
    "completion_times",
    "crossovers",
    "fleet_front",
    "fleet_load",
    "gemm_efficiency",
    "gemm_table",
    "heat_map",
    "hit_curve",
    "iso_performance",
    "job_slowdowns",
    "latency_percentiles",
    "link_load_cdf",
    "link_loads",
    "memory",
    "memory_timeline",
    "network_efficiency",
    "network_map",
    "parallel_coordinates",
    "pareto",
    "projection",
    "request_lengths",
    "request_rate",
    "rl_step",
    "roofline",
    "save",
    "scaling",
    "scaling_breakdown",
    "serving_front",
    "serving_rates",
    "style",
    "timeline",
    "tornado",
    "validation",
]


def __dir__() -> list[str]:
    return __all__
