"""What a turn of a slider costs; run with ``pytest tests/benchmarks/bench_explorer.py``."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import scalemodel as sm

pytest.importorskip("pytest_benchmark")

HEADROOM = 3
GOAL_S = 5e-3  # a tenth of what a hand notices; the rest is for the browser


@pytest.mark.parametrize("model, nodes", [("llama3_70b", 64), ("deepseek_v3", 256)])
def test_a_turn_and_its_page(benchmark: Any, model: str, nodes: int) -> None:
    """Goal: under 5 ms from a setting to the HTML of the answer, whichever setting is turned."""
    cluster = sm.cluster("dgx_h100", nodes=nodes)
    explorer = sm.explore(model, cluster, sm.Training(global_batch=4096, sequence=8192))
    explorer.pin()
    turns = itertools.cycle(
        [(n, value) for n, setting in explorer.settings.items() for value in setting.values]
    )

    def turn() -> str:
        name, value = next(turns)
        explorer.set(**{name: value})
        return explorer.html()

    assert "<div" in benchmark(turn)
    assert benchmark.stats.stats.median < HEADROOM * GOAL_S
