"""Traces of other tools: read for what they measured, written for what is predicted."""

from __future__ import annotations

from scalemodel.interop.traces.chakra import Node, read_chakra, write_chakra
from scalemodel.interop.traces.kineto import Kernel, KinetoTrace, read_kineto
from scalemodel.interop.traces.profiler import write_kineto

__all__ = [
    "Kernel",
    "KinetoTrace",
    "Node",
    "read_chakra",
    "read_kineto",
    "write_chakra",
    "write_kineto",
]
