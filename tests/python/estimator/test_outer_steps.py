"""Islands that meet every few steps: laws, and what is refused."""

from __future__ import annotations

import pytest

import scalemodel as sm

ISLAND = sm.estimate(
    "llama3_8b",
    sm.cluster("dgx_h100"),
    sm.Training(global_batch=64, sequence=8192),
    sm.Strategy(tp=2, pp=2),
)


def test_one_island_is_its_own_steps_with_more_states() -> None:
    alone = sm.outer_steps(ISLAND, islands=1, bandwidth_bytes_per_s=1e9)
    assert alone.step_time_s == pytest.approx(ISLAND.step_time_s)
    assert alone.tokens_per_s == pytest.approx(ISLAND.tokens_per_s)
    assert alone.memory_bytes == pytest.approx(ISLAND.memory_bytes + ISLAND.model.parameters)


def test_rarer_meetings_and_overlap_cost_less() -> None:
    before = float("inf")
    for steps in (1, 10, 100, 1000):
        met = sm.outer_steps(ISLAND, islands=4, inner_steps=steps, bandwidth_bytes_per_s=1e8)
        assert ISLAND.step_time_s < met.step_time_s < before
        before = met.step_time_s
    knobs = {"islands": 4, "bandwidth_bytes_per_s": 1e8, "fragments": 8}
    plain, streamed = (sm.outer_steps(ISLAND, overlap_steps=n, **knobs) for n in (0, 20))
    assert streamed.step_time_s < plain.step_time_s
    assert streamed.exchange_s == plain.exchange_s


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(sm.ScaleModelError, match="bandwidth_bytes_per_s"):
        sm.outer_steps(ISLAND)
    with pytest.raises(ValueError, match="islands"):
        sm.outer_steps(ISLAND, islands=0, bandwidth_bytes_per_s=1e9)
    illegal = sm.estimate(ISLAND.model, ISLAND.cluster, ISLAND.task, sm.Strategy(tp=3))
    with pytest.raises(sm.ScaleModelError, match="cannot run"):
        sm.outer_steps(illegal, bandwidth_bytes_per_s=1e9)
