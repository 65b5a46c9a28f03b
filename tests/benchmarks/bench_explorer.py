"""What a turn of a slider costs; run with ``pytest tests/benchmarks/bench_explorer.py``."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import scalemodel as sm

pytest.importorskip("pytest_benchmark")

HEADROOM = 3
MENUS = ("model", "accelerator", "stack")
GOAL_S = 5e-3  # a tenth of what a hand notices; the rest is for the browser


@pytest.mark.parametrize("model, nodes", [("llama3_70b", 64), ("deepseek_v3", 256)])
def test_a_turn_and_its_page(benchmark: Any, model: str, nodes: int) -> None:
    """Goal: under 5 ms from a setting to the HTML of the answer, whichever setting is turned."""
    cluster = sm.cluster("dgx_h100", nodes=nodes)
    explorer = sm.explore(model, cluster, sm.Training(global_batch=4096, sequence=8192))
    explorer.pin()
    turns = itertools.cycle(
        (name, value)
        for name, setting in explorer.settings.items()
        if name not in MENUS  # another model has other settings
        for value in setting.values
    )

    def turn() -> str:
        name, value = next(turns)
        explorer.set(**{name: value})
        return explorer.html()

    assert "<div" in benchmark(turn)
    assert benchmark.stats.stats.median < HEADROOM * GOAL_S


@pytest.mark.parametrize("menu", MENUS)
def test_a_choice_and_its_page(benchmark: Any, menu: str) -> None:
    """Goal: under 50 ms, which a hand does not notice; models and clusters are resolved anew."""
    cluster = sm.cluster("dgx_h100", nodes=64)
    explorer = sm.explore("llama3_70b", cluster, sm.Training(global_batch=4096, sequence=8192))
    choices = itertools.cycle(explorer.settings[menu].values)

    def choose() -> str:
        explorer.set(**{menu: next(choices)})
        return explorer.html()

    assert "<div" in benchmark(choose)
    assert benchmark.stats.stats.median < 10 * GOAL_S
