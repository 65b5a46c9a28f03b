"""How costs grow from n to 10 n; ``pytest tests/benchmarks/bench_growth.py``.

The goal is 12 times at most: n log n takes 11.7 times from 10^6 to 10^7. Processor time of one
thread is written beside (``extra_info``), not asserted: caches and first touches of memory are the
machine's. Time in the system alone, in which a guest of a virtual machine first gets its memory, is
what the first call takes longer.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from itertools import cycle
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.search.merging import merge
from scalemodel.search.ranking import Question

pytest.importorskip("pytest_benchmark")


def front(objectives: int) -> Callable[[int], Callable[[], object]]:
    """Rows that all stay: the last objective is what the others are not."""

    def of(rows: int) -> Callable[[], object]:
        columns = list(np.random.default_rng(0).random((objectives - 1, rows)))
        columns.append(-np.sum(columns, axis=0))
        return lambda: _core.pareto_front(columns)

    return of


def flows(equal: bool) -> Callable[[int], Callable[[], object]]:
    def of(count: int) -> Callable[[], object]:
        random = np.random.default_rng(0)
        fabric = sm.Fabric.leaf_spine(leaves=64, spines=32, nics_per_leaf=32)
        source = random.integers(0, 2048, count)
        frame = pd.DataFrame(
            {
                "job": source % 64,
                "source": source,
                "destination": (source + random.integers(1, 2048, count)) % 2048,
                "size_bytes": 1e9 if equal else 1e9 * (1 + random.random(count)),
            }
        )
        traffic = sm.Traffic.from_frame(frame)
        policy = "balanced" if equal else "greedy"
        return lambda: sm.route(fabric, traffic, policy=policy)

    return of


def ring(nics: int) -> Callable[[], object]:
    """One ring over NICs in random order, whose flows collide where a hash says so."""
    fabric = sm.Fabric.leaf_spine(leaves=nics // 32, spines=32, nics_per_leaf=32)
    order = np.random.default_rng(0).permutation(nics).tolist()
    traffic = sm.Traffic.of_jobs([{"pattern": "ring", "nics": order, "size_bytes": 1e12}])
    return lambda: sm.simulate_network(fabric, traffic, epochs=11, policy="ecmp")


def stream(requests: int) -> Callable[[], object]:
    task = sm.Inference(input_tokens=500, output_tokens=256)
    plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=20)
    asked = sm.serving.stream.request_stream(task, requests=requests, requests_per_s=20)
    return lambda: plan.simulate(asked)


def plans(layouts: int) -> Callable[[], object]:
    """As many layouts, each of them several times, whose plans are all kept to be put in order."""
    model, cluster = sm.model("deepseek_v3"), sm.cluster("dgx_h100", nodes=16)
    task = sm.Inference(input_tokens=2000, output_tokens=500, precision="fp8")
    legal = _core.serving_layouts(model.core, cluster.core, cluster.accelerators)
    asked = [layout for layout, _ in zip(cycle(legal), range(layouts), strict=False)]
    return lambda: sm.plan_serving(
        model, cluster, task, layouts=asked, requests_per_s=40, checked=False, top=1, threads=1
    )


def timeline(micro_batches: int) -> Callable[[], object]:
    cluster = sm.cluster("dgx_h100", nodes=16)
    task = sm.Training(global_batch=micro_batches, sequence=4096)
    est = sm.estimate("llama3_405b", cluster, task, sm.Strategy(tp=8, pp=16, micro_batch=1))
    return lambda: est.timeline().events


def shards_s(count: int) -> tuple[float, Any]:
    """Processor time of a search in parts, one after the other, and its answer."""
    task = sm.Training(global_batch=1536, sequence=2048)
    model, cluster = sm.model("gpt3_175b"), sm.cluster("dgx_a100", nodes=128)
    asked = Question(model, cluster, task, sm.Space.calculon(model, cluster, task))
    assert asked.size > 10**7  # and its rows are enumerated
    begin_s = time.process_time()
    beyond = asked.quick_look() if count > 1 else inf
    answer = merge([shard.search(1) for shard in asked.shards(count, beyond=beyond)])
    return time.process_time() - begin_s, answer


def test_a_thousand_shards(benchmark: Any) -> None:
    """Goal: 1.2 times the processor time of one, both once their pipelines' paths are known."""
    one = min((shards_s(1) for _ in range(3)), key=lambda found: found[0])
    every: list[tuple[float, Any]] = []
    benchmark.pedantic(lambda: every.append(shards_s(1024)), rounds=3)
    many = min(every, key=lambda found: found[0])
    ratio = many[0] / one[0]
    benchmark.extra_info.update(goal="1.2 times at most", ratio=round(ratio, 2))
    print(f"1,024 shards: {many[0]:.3f} s, one {one[0]:.3f} s, {ratio:.1f} times")
    assert list(many[1]) == list(one[1])


CASES: dict[str, tuple[Callable[[int], Callable[[], object]], int]] = {
    "front of three": (front(3), 100_000),
    "front of three, more": (front(3), 1_000_000),
    "front of four": (front(4), 50_000),
    "equal flows": (flows(equal=True), 1_000_000),
    "unequal flows": (flows(equal=False), 1_000_000),
    "rings": (ring, 1_024),
    "stream": (stream, 100_000),
    "serving plans": (plans, 400),
    "timeline": (timeline, 4_000),
}


def costs_s(call: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Processor time of each call: all of it, and that of the program itself."""
    costs = []
    for _ in range(rounds):
        begin = resource.getrusage(resource.RUSAGE_SELF)
        call()
        end = resource.getrusage(resource.RUSAGE_SELF)
        own_s = end.ru_utime - begin.ru_utime
        costs.append((own_s + end.ru_stime - begin.ru_stime, own_s))
    return costs


@pytest.mark.parametrize("name", CASES)
def test_ten_times_as_many(benchmark: Any, name: str) -> None:
    make, count = CASES[name]
    small, large = make(count), make(10 * count)
    small()  # what is loaded once is not counted
    few: list[tuple[float, float]] = []
    many: list[tuple[float, float]] = []

    def run() -> None:  # by turns: what else a machine does slows both down
        few.extend(costs_s(small, 3))
        many.extend(costs_s(large, 1))

    benchmark.pedantic(run, rounds=3)
    few_s, few_own_s = (min(column) for column in zip(*few, strict=True))
    # The first call takes memory that the machine itself may not have touched yet.
    many_s, many_own_s = zip(*many, strict=True)
    ratio, first = min(many_s) / few_s, many_s[0] / few_s
    own, own_first = min(many_own_s) / few_own_s, many_own_s[0] / few_own_s
    benchmark.extra_info.update(
        goal="12 times at most",
        n=count,
        s=[round(one, 4) for one in (few_s, min(many_s))],
        ratio=round(ratio, 2),
        first_ratio=round(first, 2),
        ratio_without_system=round(own, 2),
        first_ratio_without_system=round(own_first, 2),
    )
    print(
        f"{name}: {count:,} {few_s:.4f} s, {10 * count:,} {min(many_s):.4f} s, {ratio:.1f} times, "
        f"{first:.1f} the first time; without the system's {own:.1f} and {own_first:.1f}"
    )
