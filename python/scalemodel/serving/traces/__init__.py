"""Traces of requests: read, described, cut, scaled and drawn anew."""

from __future__ import annotations

from scalemodel.serving.traces.reading import read_trace
from scalemodel.serving.traces.trace import Trace
from scalemodel.serving.traces.traffic import TrafficProfile, fit_traffic

__all__ = ["Trace", "TrafficProfile", "fit_traffic", "read_trace"]
