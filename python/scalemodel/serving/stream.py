"""Streams of requests and their simulation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]


def poisson_arrivals(count: int, rate: float, seed: int) -> Column:
    """Arrival times of `count` requests at random, `rate` per second on average.

    Examples
    --------
    >>> times = poisson_arrivals(1000, 5.0, seed=1)
    >>> bool(180 < times[-1] < 220)
    True
    """
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return np.asarray(np.cumsum(gaps), dtype=np.float64)
