"""What a Pareto front of a table costs; run with ``pytest tests/benchmarks/bench_pareto.py``.

Goals are for one core of an ordinary server. Each is asserted on the median, with head-room for a
busy machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm

pytest.importorskip("pytest_benchmark")

HEADROOM = 3
ROWS = 1_000_000


def table(objectives: int) -> pd.DataFrame:
    """Random rows, one in ten of which does not fit."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.random((ROWS, objectives)), columns=list("abcd"[:objectives]))
    frame["verdict"] = np.where(random.random(ROWS) < 0.9, "ok", "out_of_memory")
    return frame


def within(benchmark: Any, goal_s: float) -> None:
    assert benchmark.stats.stats.median < HEADROOM * goal_s


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_front_of_a_million_random_rows(benchmark: Any, objectives: int) -> None:
    """Goal: under 0.25 s from table to table."""
    frame = table(objectives)
    front = benchmark(sm.pareto, frame, list("abcd"[:objectives]))
    assert 1 < len(front) < 5_000
    within(benchmark, 0.25)


def test_front_of_a_million_rows_that_all_stay(benchmark: Any) -> None:
    """Goal: under 2 s with three objectives; the result is as large as the table."""
    frame = table(3).drop(columns="verdict")
    frame["c"] = -frame.a - frame.b
    front = benchmark.pedantic(sm.pareto, args=(frame, ["a", "b", "c"]), rounds=3)
    assert len(front) == ROWS
    within(benchmark, 2)


def test_front_of_four_objectives_that_all_stay(benchmark: Any) -> None:
    """Goal: under 1 s for 200,000 rows."""
    frame = table(4).drop(columns="verdict").iloc[:200_000]
    frame = frame.assign(d=-frame.a - frame.b - frame.c)
    front = benchmark.pedantic(sm.pareto, args=(frame, list("abcd")), rounds=3)
    assert len(front) == 200_000
    within(benchmark, 1)
