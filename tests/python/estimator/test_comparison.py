"""Comparisons of estimates, and what a diagnosis says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

CLUSTERS = {name: sm.cluster(name, nodes=4) for name in ("dgx_h100", "dgx_a100")}
BASE = {
    **{"model": "llama3_8b", "cluster": "dgx_h100", "batch": 64, "tp": 2, "pp": 1},
    "stack": "plain",
}
QUESTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama3_8b", "llama2_13b"]),
        "cluster": st.sampled_from(list(CLUSTERS)),
        "batch": st.sampled_from([64, 128]),
        "tp": st.sampled_from([1, 2, 4]),
        "pp": st.sampled_from([1, 2]),
        "stack": st.sampled_from(["plain", "nemo_mcore_2024_25"]),
    }
)


def answer(question: dict[str, Any]) -> sm.Estimate:
    return sm.estimate(
        question["model"],
        CLUSTERS[question["cluster"]],
        sm.Training(global_batch=question["batch"], sequence=4096),
        sm.Strategy(tp=question["tp"], pp=question["pp"]),
        stack=question["stack"],
    )


@given(one=QUESTIONS, other=QUESTIONS)
@settings(max_examples=25)
def test_parts_sum_to_the_difference(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = sm.compare(answer(one), answer(other))
    assert found.causes().difference_s.sum() == pytest.approx(found.difference_s, abs=1e-9)
    inputs = found.inputs()
    differing = {"batch": "task", "tp": "strategy", "pp": "strategy"}
    expected = {differing.get(key, key) for key in one if one[key] != other[key]}
    assert set(inputs.input) == expected
    if len(inputs):
        assert inputs.difference_s.sum() == pytest.approx(found.difference_s, abs=1e-9)
    back = sm.compare(answer(other), answer(one))
    assert back.difference_s == -found.difference_s
    assert "no difference" in str(found) or found.difference_s or expected


def test_one_changed_input_is_the_whole_difference() -> None:
    found = sm.compare(answer(BASE), answer({**BASE, "cluster": "dgx_a100"}))
    (row,) = found.inputs().to_dict("records")
    assert row["input"] == "cluster"
    assert row["difference_s"] == pytest.approx(found.difference_s)
    assert found.causes().cause.iloc[0] == "compute"
    assert "by cause: compute +" in str(found)


def test_a_cost_names_its_price_and_two_kinds_of_seller_are_told_apart() -> None:
    same = str(sm.compare(answer(BASE), answer({**BASE, "tp": 4})))
    assert "cost of a step" in same
    assert same.count("2.99 USD/h (Lambda, on demand, 2026-03)") == 1
    trainium = sm.estimate(
        "llama3_8b", sm.cluster("aws_trn1", nodes=4), answer(BASE).task, sm.Strategy(tp=8)
    )
    mixed = str(sm.compare(answer(BASE), trainium))
    assert "(AWS, on demand, 2026-07); the prices differ in seller or terms" in mixed
    unpriced = sm.estimate(
        "llama3_8b", sm.cluster({"accelerator": "mi355x"}, nodes=4), answer(BASE).task
    )
    assert "no cost: mi355x has no list price" in str(sm.compare(answer(BASE), unpriced))
    assert "cost of a step" not in str(sm.compare(unpriced, unpriced))


def test_what_cannot_run_is_not_compared() -> None:
    good = answer(
        {"model": "llama3_8b", "cluster": "dgx_h100", "batch": 64, "tp": 2, "pp": 1}
        | {"stack": "plain"}
    )
    bad = sm.estimate("llama3_8b", CLUSTERS["dgx_h100"], good.task, sm.Strategy(tp=3))
    with pytest.raises(sm.ScaleModelError, match="second: its verdict is illegal:mesh"):
        sm.compare(good, bad)
    with pytest.raises(sm.ScaleModelError, match="first=7"):
        sm.compare(7, good)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- diagnosis
def test_the_speed_of_light_is_the_model_at_peak() -> None:
    est = sm.estimate(
        "llama3_8b",
        CLUSTERS["dgx_h100"],
        sm.Training(global_batch=64, sequence=8192),
        sm.Strategy(tp=8),
    )
    found = sm.diagnose(est)
    assert found.speed_of_light_s == pytest.approx(est.mfu_fraction * est.step_time_s)
    assert found.speed_of_light_s < min(change.step_time_s for change in found.changes)
    assert all(change.step_time_s < est.step_time_s for change in found.changes)
    assert found.losses[0].time_s == max(loss.time_s for loss in found.losses)
    for part in (found.limit, "speed of light", "would help"):
        assert part in str(found)


def test_a_strategy_that_cannot_run_is_told_what_would() -> None:
    cluster = CLUSTERS["dgx_h100"]
    task = sm.Training(global_batch=64, sequence=8192)
    illegal = sm.diagnose(sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=3)))
    assert illegal.limit == "illegal:mesh"
    assert illegal.speed_of_light_s is None
    assert illegal.changes
    large = sm.diagnose(sm.estimate("llama3_70b", cluster, task, sm.Strategy(sharding="ddp")))
    assert large.limit.startswith("memory")
    assert all(change.verdict == "ok" for change in large.changes)
