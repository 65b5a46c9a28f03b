"""Traces of requests: read, described, cut, scaled and drawn anew."""

from __future__ import annotations

from scalemodel.serving.traces.reading import read_trace
from scalemodel.serving.traces.trace import Trace

__all__ = ["Trace", "read_trace"]
