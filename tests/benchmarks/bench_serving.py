"""What plans of serving cost; run with ``pytest tests/benchmarks/bench_serving.py``.

Goals are for one core of an ordinary server. They are written beside what was measured
(``extra_info``) and not asserted: what is asserted is that there was as much to do as claimed.
"""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm

pytest.importorskip("pytest_benchmark")

MILLION = 1_000_000
TASK = sm.Inference(input_tokens=1000, output_tokens=200, precision="fp8")


def test_a_search_of_a_million_plans(benchmark: Any) -> None:
    cluster = sm.cluster("dgx_h100", nodes=2)

    def search() -> Any:
        return sm.plan_serving(
            "llama3_70b",
            cluster,
            TASK,
            most_tokens=range(512, 16_385, 512),
            per_octave=120,
            threads=1,
        )

    found = benchmark.pedantic(search, rounds=3, iterations=1)
    assert found.plans >= MILLION
    seconds = benchmark.stats.stats.min * MILLION / found.plans
    benchmark.extra_info |= {"goal_s_per_million": 3.0, "s_per_million": seconds}


def test_one_steady_state(benchmark: Any) -> None:
    plan = sm.serve("llama3_70b", "dgx_h100", TASK, sm.ServingLayout(tp=4), replicas=1)
    capacity = plan.instance.capacity(1000, 200)
    state = benchmark(plan.instance.steady_state, TASK.mix, 100.0)
    assert state.concurrency == 100 <= capacity.max_running_sequences
    benchmark.extra_info |= {"goal_s": 2e-6, "includes": "one call across the border"}


def test_one_deployment_with_wide_expert_parallelism(benchmark: Any) -> None:
    layout = sm.ServingLayout(dp=72, ep=72, redundant_experts=32, two_batch_overlap=True)
    task = TASK.replace(prefilled=True)
    cluster = sm.cluster("dgx_h100", nodes=9)
    plan = sm.serve("deepseek_v3", cluster, task, layout, engine="sglang", concurrency=72 * 128)
    state = benchmark(plan.instance.steady_state, task.mix, 1440.0)
    assert state.concurrency == 1440
    benchmark.extra_info |= {"goal_s": 3e-6, "includes": "one call across the border"}


def test_a_stream_of_ten_thousand_requests(benchmark: Any) -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, requests_per_s=15, replicas=1)
    served = benchmark.pedantic(
        plan.simulate, kwargs={"requests": 10_000, "lengths": "exponential"}, rounds=3
    )
    assert len(served.requests) == 10_000
    benchmark.extra_info |= {"goal_s": 0.5}
