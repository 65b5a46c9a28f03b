"""Traces of other tools: read for what they measured, written for what is predicted."""

from __future__ import annotations

from scalemodel.traces.chakra import Node, read_chakra, write_chakra
from scalemodel.traces.kineto import Kernel, KinetoTrace, read_kineto
from scalemodel.traces.profiler import write_kineto

__all__ = [
    "Kernel",
    "KinetoTrace",
    "Node",
    "read_chakra",
    "read_kineto",
    "write_chakra",
    "write_kineto",
]
