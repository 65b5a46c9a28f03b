"""CPU overhead of a framework's operations: loops over documents, modules, deterministic scans."""

from __future__ import annotations

import math

import pytest

import scalemodel as sm
from scalemodel import resolve


def step_s(
    model: str = "qwen3_8b",
    cluster: str = "dgx_h100",
    lengths: str | None = "mean=400,spread=0",
    task: dict[str, int] | None = None,
    strategy: dict[str, object] | None = None,
    **facts: object,
) -> float:
    stack = resolve.stack("plain").replace(host_launch_s=6e-6, **facts)
    asked = {"global_batch": 8, "sequence": 4096} | (task or {})
    if lengths is not None:
        asked["lengths"] = lengths
    degrees = {"dp": 1, "tp": 8, "cp": 1} | (strategy or {})
    accelerators = math.prod(int(degrees[name]) for name in ("dp", "tp", "cp"))
    found = sm.estimate(
        model,
        sm.cluster(cluster, accelerators=accelerators),
        task=sm.FineTuning(**asked),
        strategy=sm.Strategy(**degrees),
        stack=stack,
    )
    return float(found.step_time_s)


def test_a_loop_over_documents_grows_with_their_number() -> None:
    long, short = ("mean=2000,spread=0", "mean=100,spread=0")
    looped = [step_s(lengths=text, rope_by_document=True) for text in (long, short)]
    whole = [step_s(lengths=text) for text in (long, short)]
    assert looped[1] > 2 * looped[0]
    assert looped[0] >= whole[0]
    assert looped[1] > whole[1]


def test_whole_sequences_have_no_loop() -> None:
    facts = {"rope_by_document": True, "exchange_by_document": True}
    assert step_s(lengths=None, **facts) == step_s(lengths=None)


def test_graphs_hold_no_loop() -> None:
    held = step_s(lengths="mean=100,spread=0", cuda_graphs=True, rope_by_document=True)
    assert held == step_s(lengths="mean=100,spread=0", cuda_graphs=True)


@pytest.mark.parametrize("context, slower", [("ring", False), ("all_to_all", True)])
def test_only_an_exchange_of_heads_orders_documents(context: str, slower: bool) -> None:
    strategy = {"tp": 4, "cp": 2, "context": context}
    ordered = step_s(strategy=strategy, exchange_by_document=True)
    assert (ordered > step_s(strategy=strategy)) is slower


def test_more_context_ranks_mean_more_chunks_of_a_document() -> None:
    facts = {"exchange_by_document": True}
    two, four = (
        step_s(strategy={"tp": 8 // cp, "cp": cp, "context": "all_to_all"}, **facts)
        for cp in (2, 4)
    )
    assert 1.7 < four / two < 2.1


def test_deterministic_delta_rules_wait_for_the_cpu_and_others_do_not() -> None:
    delta = {"model": "qwen3_5_27b", "lengths": None}
    slow, fast = step_s(**delta, deterministic=True), step_s(**delta)
    assert slow > 5 * fast
    more = step_s(**delta, deterministic=True, task={"sequence": 8192})
    assert 1.4 < more / slow < 2  # rows of a chunk are inverted once, whatever the length
    assert step_s(lengths=None, deterministic=True) == step_s(lengths=None)


def test_a_slower_cpu_takes_longer_over_operations_alone() -> None:
    grace, server = ("gb200_nvl72", "dgx_b200")
    facts = {"rope_by_document": True, "lengths": "mean=50,spread=0"}
    slowdown = resolve.cluster(grace).core.accelerator.host_slowdown
    assert slowdown > 2
    ratio = step_s(cluster=grace, **facts) / step_s(cluster=server, **facts)
    assert 0.8 * slowdown < ratio <= slowdown


def test_modules_are_a_floor_under_short_layers() -> None:
    short, long = ({"sequence": length} for length in (256, 32_768))
    one = {"strategy": {"tp": 1}, "lengths": None}
    assert step_s(task=short, module_operations=25, **one) > step_s(task=short, **one)
    assert step_s(task=long, module_operations=25, **one) == pytest.approx(
        step_s(task=long, **one), rel=1e-3
    )
