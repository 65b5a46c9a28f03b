"""Benchmarks of serving: files of load generators beside what is predicted."""

from __future__ import annotations

from scalemodel.interop.benchmarks.compare import BenchComparison, ComparedRun, compare_bench
from scalemodel.interop.benchmarks.formats import read_bench
from scalemodel.interop.benchmarks.prediction import Prediction
from scalemodel.interop.benchmarks.record import BenchRun, Spread
from scalemodel.interop.benchmarks.suspects import BenchSuspect

__all__ = [
    "BenchComparison",
    "BenchRun",
    "BenchSuspect",
    "ComparedRun",
    "Prediction",
    "Spread",
    "compare_bench",
    "read_bench",
]
