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
    task: dict[str, object] | None = None,
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


def test_collectives_cost_the_cpu_only_where_there_are_some() -> None:
    asked = {"lengths": None, "task": {"sequence": 256}}
    for strategy, slower in (({"tp": 8}, True), ({"tp": 1}, False)):
        called = step_s(strategy=strategy, collective_operations=100, **asked)
        assert (called > step_s(strategy=strategy, **asked)) is slower
    held = step_s(collective_operations=100, cuda_graphs=True, **asked)
    assert held == step_s(cuda_graphs=True, **asked)


def test_adapters_call_collectives_of_their_own_among_tensor_ranks() -> None:
    asked = {"lengths": None, "task": {"sequence": 256}}
    lora = {"method": "lora", "lora_targets": "all"}

    def added(tp: int, **task: object) -> float:
        of = {**asked, "task": {**asked["task"], **task}, "strategy": {"tp": tp}}
        return step_s(collective_operations=2000, **of) - step_s(collective_operations=1000, **of)

    each = 1.2 * 6e-6 * 1000 * 8  # of every micro-batch
    assert added(8) == pytest.approx(36 * (4 + 6) * each, rel=0.02)
    # No gradient of a frozen weight asks for the input again.
    own = 2 * (1 + 2) + 2 * (2 + 2)
    assert added(8, **lora) == pytest.approx(36 * (4 + 4 + own) * each, rel=0.02)
    assert added(1, **lora) == pytest.approx(0, abs=1e-9)


def test_scans_exchange_more_than_delta_rules_between_context_ranks() -> None:
    asked = {"lengths": None, "task": {"sequence": 256}, "strategy": {"tp": 1, "cp": 2}}
    added = [
        step_s(model=model, collective_operations=2000, **asked)
        - step_s(model=model, collective_operations=1000, **asked)
        for model in ("qwen3_8b", "qwen3_5_27b")
    ]
    each = 1.2 * 6e-6 * 1000 * 8  # of every micro-batch
    assert added[0] == pytest.approx(36 * 3 * each, rel=0.02)  # one hop there and two back
    assert added[1] == pytest.approx((16 * 3 + 48 * 4) * each, rel=0.02)


def test_experts_called_in_turn_wait_for_the_cpu() -> None:
    routed = {"model": "qwen3_30b_a3b", "lengths": None, "task": {"sequence": 256}}
    assert step_s(sequential_experts=True, **routed) > 1.2 * step_s(**routed)
    assert step_s(lengths=None, sequential_experts=True) == step_s(lengths=None)


@pytest.mark.parametrize("left", ["graphed_attention", "graphed_routing"])
def test_what_graphs_leave_out_the_cpu_launches(left: str) -> None:
    asked = {"model": "qwen3_30b_a3b", "lengths": None, "task": {"sequence": 256}}
    facts = {"module_operations": 100, **asked}
    whole, part, none = (
        step_s(cuda_graphs=graphs, **{left: not eager}, **facts)
        for graphs, eager in ((True, False), (True, True), (False, False))
    )
    assert whole < part < none


def test_a_dense_model_has_no_graphs_of_routing_or_scans() -> None:
    asked = {"lengths": None, "cuda_graphs": True, "module_operations": 100}
    other = step_s(graphed_routing=False, graphed_scans=False, **asked)
    assert other == pytest.approx(step_s(**asked), rel=1e-6)


def test_modules_are_a_floor_under_short_layers() -> None:
    short, long = ({"sequence": length} for length in (256, 32_768))
    one = {"strategy": {"tp": 1}, "lengths": None}
    assert step_s(task=short, module_operations=25, **one) > step_s(task=short, **one)
    assert step_s(task=long, module_operations=25, **one) == pytest.approx(
        step_s(task=long, **one), rel=1e-3
    )
