"""Clusters of several kinds: equal kinds are one kind, and nothing beats all of the fastest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

TASK = sm.Training(global_batch=128, sequence=4096)


def by(placement: str, nodes: dict[str, int]) -> sm.MixedCluster:
    return sm.mixed_cluster(nodes, placement=placement)


@st.composite
def plans(draw: st.DrawFn) -> sm.Strategy:
    return sm.Strategy(
        tp=draw(st.sampled_from([1, 2, 4, 8])),
        pp=draw(st.sampled_from([2, 4])),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])),
        micro_batch=draw(st.sampled_from([1, 2])),
        sharding=draw(st.sampled_from(["ddp", "zero1", "zero3"])),
        recompute=draw(st.sampled_from(["none", "full"])),
    )


def time_s(cluster: sm.MixedCluster, plan: sm.Strategy, **options: Any) -> float:
    est = sm.estimate_mixed("llama3_8b", cluster, TASK, plan, **options)
    assert est.step_time_s is not None
    return est.step_time_s


@settings(max_examples=25)
@given(plan=plans(), placement=st.sampled_from(["stages", "replicas"]))
def test_equal_kinds_are_one_kind(plan: sm.Strategy, placement: str) -> None:
    plain = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=8), TASK, plan)
    # The same hardware under two names.
    halves = sm.MixedCluster((sm.cluster("dgx_h100", nodes=4),) * 2, placement)
    expected_s = plain.timeline().step_time_s if placement == "stages" else plain.step_time_s
    assert time_s(halves, plan, split="even") == pytest.approx(expected_s, rel=1e-9)
    assert time_s(halves, plan) <= expected_s * (1 + 1e-9)


@settings(max_examples=25)
@given(
    plan=plans(),
    placement=st.sampled_from(["stages", "replicas"]),
    split=st.sampled_from(["even", "balanced"]),
    slow_first=st.booleans(),
)
def test_a_mix_lies_between_its_kinds(
    plan: sm.Strategy, placement: str, split: str, slow_first: bool
) -> None:
    kinds = ["dgx_a100", "dgx_h100"] if slow_first else ["dgx_h100", "dgx_a100"]
    mixed_s = time_s(by(placement, dict.fromkeys(kinds, 4)), plan, split=split)
    fast_s, slow_s = (
        time_s(sm.MixedCluster((sm.cluster(kind, nodes=4),) * 2, placement), plan, split=split)
        for kind in ("dgx_h100", "dgx_a100")
    )
    assert fast_s * (1 - 1e-9) <= mixed_s <= slow_s * (1 + 1e-9)


@settings(max_examples=15)
@given(plan=plans(), placement=st.sampled_from(["stages", "replicas"]))
def test_balancing_never_hurts(plan: sm.Strategy, placement: str) -> None:
    cluster = by(placement, {"dgx_h100": 4, "dgx_a100": 4})
    assert time_s(cluster, plan) <= time_s(cluster, plan, split="even") * (1 + 1e-9)


def test_balancing_gives_the_faster_kind_more() -> None:
    plan = sm.Strategy(tp=8, pp=4)
    staged = sm.estimate_mixed(
        "llama3_8b", by("stages", {"dgx_a100": 4, "dgx_h100": 4}), TASK, plan
    )
    assert sum(staged.layers) == 32
    assert sum(staged.layers[2:]) > sum(staged.layers[:2])
    shared = sm.estimate_mixed(
        "llama3_8b", by("replicas", {"dgx_a100": 4, "dgx_h100": 4}), TASK, plan
    )
    assert shared.micro_batches[1] > shared.micro_batches[0]
    # 128 sequences on one replica of each kind.
    assert sum(shared.micro_batches) == 128


def test_memory_is_judged_kind_by_kind() -> None:
    est = sm.estimate_mixed(
        "llama3_70b", by("stages", {"dgx_h100": 4, "dgx_a100": 4}), TASK, sm.Strategy(tp=1, pp=2)
    )
    assert est.verdict == "out_of_memory"
    assert est.step_time_s is not None
    assert len(est.memory_bytes) == 2


def test_an_illegal_strategy_is_an_answer() -> None:
    est = sm.estimate_mixed(
        "llama3_8b", by("stages", {"dgx_h100": 4, "dgx_a100": 4}), TASK, sm.Strategy(tp=64, pp=2)
    )
    assert est.verdict.startswith("illegal:")
    assert est.step_time_s is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cluster": "dgx_h100"}, "cluster="),
        ({"task": 3}, "task="),
        ({"strategy": None}, "strategy="),
        ({"split": "fair"}, "split="),
        ({"strategy": sm.Strategy(tp=8, pp=3)}, "whole number"),
        ({"strategy": sm.Strategy(tp=4, pp=4, vpp=2)}, "vpp"),
    ],
)
def test_malformed_questions_are_refused(arguments: dict[str, Any], message: str) -> None:
    question: dict[str, Any] = {
        "model": "llama3_8b",
        "cluster": by("stages", {"dgx_h100": 4, "dgx_a100": 4}),
        "task": TASK,
        "strategy": sm.Strategy(tp=8, pp=4),
    }
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.estimate_mixed(**(question | arguments))


@pytest.mark.parametrize(
    ("nodes", "placement"), [({}, "stages"), ({"dgx_h100": 1}, "rings"), ({"nowhere": 1}, "stages")]
)
def test_malformed_clusters_are_refused(nodes: dict[str, int], placement: str) -> None:
    with pytest.raises(sm.ScaleModelError):
        sm.mixed_cluster(nodes, placement=placement)
