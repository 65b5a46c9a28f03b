"""Timing on the cores of a CPU: one rank is one core, and a call ends when it returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from scalemodel.calibration.measure import Bench
from scalemodel.calibration.shapes import ELEMENTWISE_OPS, log_uniform, multiple_of_step

#: Several times the second-level cache of a core: what a call reads was written some calls before.
_EVICTED_BYTES = 16 * 2**20
_WARM_UP = 3

# Ranges of (m, n, k): launch, tokens of a small batch with the widths of small layers, and more.
_GEMM_RANGES = (
    ((16, 64), (16, 64), (16, 64)),
    ((128, 2048), (64, 1024), (64, 1024)),
    ((256, 2048), (256, 2048), (256, 2048)),
)


def gemm_shapes(count: int, *, seed: int = 0) -> list[tuple[int, int, int]]:
    """Shapes (m, n, k) that take a core from microseconds to tenths of a second.

    Examples
    --------
    >>> shapes = gemm_shapes(30)
    >>> len(shapes), max(m * n * k for m, n, k in shapes) <= 2**33
    (30, True)
    """
    rng = np.random.default_rng(seed)
    shapes = []
    for index in range(count):
        m, n, k = (multiple_of_step(rng, low, high) for low, high in _GEMM_RANGES[index % 3])
        shapes.append((m, n, k))
    return shapes


def elementwise_shapes(count: int, *, seed: int = 0) -> list[tuple[str, int, int]]:
    """Operations and matrices (op, rows, cols) of up to four million elements.

    Examples
    --------
    >>> max(rows * cols for _, rows, cols in elementwise_shapes(30)) <= 2**22
    True
    """
    rng = np.random.default_rng(seed)
    return [
        (
            ELEMENTWISE_OPS[index % len(ELEMENTWISE_OPS)],
            log_uniform(rng, 16, 2048),
            8 * log_uniform(rng, 8, 256),
        )
        for index in range(count)
    ]


class CoreBench(Bench):
    """Times calls on one core.

    Processor time counts, and the fastest of the repeats: whatever else the machine does can only
    add to a call.
    """

    def __init__(self, torch: Any, name: str, dtype: str, repeats: int) -> None:
        self.torch = torch
        self.device = "cpu"
        self.dtype = dtype
        self.repeats = repeats
        self.gpu = name
        self.no_memory = MemoryError
        self._flush = torch.empty(_EVICTED_BYTES, dtype=torch.int8)

    def time_s(self, call: Callable[[], object]) -> float:
        """Fastest seconds of one call whose operands lie outside the core's own cache."""
        for _ in range(_WARM_UP):
            call()
        times_s = []
        for _ in range(self.repeats):
            self._flush.zero_()
            begin = time.process_time()
            call()
            times_s.append(time.process_time() - begin)
        return min(times_s)
