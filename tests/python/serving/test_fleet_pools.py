"""Fleets with prompts and answers on replicas of their own, and the cheapest of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import FleetPlan, ServedPools
from scalemodel.serving.fleet_pools import transfer_s

TASK = sm.Inference(input_tokens=1500, output_tokens=150)
ANSWERS = TASK.replace(prefilled=True)


def plan_on(cluster: str, task: sm.Inference, replicas: int = 1) -> sm.Serving:
    return sm.serve("llama3_8b", cluster, task, replicas=replicas)


def pools(trace: sm.RequestStream, prompts: int, answers: int, **options: Any) -> ServedPools:
    first, second = plan_on("dgx_h100", TASK, prompts), plan_on("dgx_h100", ANSWERS, answers)
    return sm.simulate_pools(trace, first, second, **options)


@pytest.fixture(scope="module")
def trace() -> sm.RequestStream:
    return sm.request_stream(TASK, requests=600, requests_per_s=40, lengths="lognormal")


def test_one_replica_each_is_a_pair_of_pools(trace: sm.RequestStream) -> None:
    split = sm.serve_split(
        "llama3_8b", "dgx_h100", TASK, requests_per_s=4, prefill_replicas=1, decode_replicas=1
    )
    light = sm.request_stream(TASK, requests=300, requests_per_s=4)
    found, expected = pools(light, 1, 1), split.simulate(light)
    assert found.first_token_s == pytest.approx(expected.first_token_s, rel=1e-12)
    assert found.finished_s == pytest.approx(expected.finished_s, rel=1e-9)


def test_pools_know_nothing_of_each_other_but_the_order_of_prompts(
    trace: sm.RequestStream,
) -> None:
    few, many = pools(trace, 3, 2), pools(trace, 3, 6)
    assert (few.first_token_s == many.first_token_s).all()
    assert few.summary()["tpot_mean_s"] > many.summary()["tpot_mean_s"]
    more = pools(trace, 6, 2)
    assert more.summary()["ttft_mean_s"] < few.summary()["ttft_mean_s"]
    assert (few.finished_s >= few.first_token_s + few.transfer_s - 1e-9).all()
    plan = plan_on("dgx_h100", TASK)
    each = transfer_s(plan, plan) / TASK.input_tokens * trace.input_tokens
    assert few.transfer_s == pytest.approx(each)
    assert set(few.replicas["pool"]) == {"prefill", "decode"}
    parts = [few.prefill, few.decode]
    costs = [pool.summary()["cost_usd"] for pool in parts if pool is not None]
    assert few.summary()["cost_usd"] == pytest.approx(sum(costs))


def test_prefixes_and_sessions_reach_the_pools() -> None:
    count = 200
    trace = sm.Trace(
        np.arange(count) / 20,
        np.full(count, 1024),
        np.full(count, 50),
        session=np.arange(count) % 10,
        block_tokens=512,
        block_offsets=2 * np.arange(count + 1),
        block_ids=np.ravel(np.column_stack([np.arange(count) % 5, 1000 + np.arange(count)])),
    )
    found = pools(trace, 2, 2, router="prefix_aware", decode_router="session_sticky")
    assert found.summary()["hit_fraction"] > 0.4
    assert found.decode is not None
    sessions = np.asarray(found.decode.stream.session)  # type: ignore[attr-defined]
    for session in range(10):
        assert len(set(found.decode.replica[sessions == session])) == 1


def test_each_pool_grows_by_its_own_load() -> None:
    steps = np.concatenate([np.full(300, 0.2), np.full(1500, 0.02), np.full(300, 0.2)])
    busy = sm.Trace(np.cumsum(steps), np.full(2100, 1500), np.full(2100, 150))
    scaler = sm.Autoscaler(signal="queue", target=2, min_replicas=1, startup_s=5)
    running = sm.Autoscaler(signal="requests", target=24, min_replicas=1, startup_s=5)
    found = pools(busy, 8, 8, autoscaler=scaler, decode_autoscaler=running)
    assert found.prefill is not None
    assert found.decode is not None
    most = [pool.scaling["online"].max() for pool in (found.prefill, found.decode)]
    assert min(most) > 1
    fixed = pools(busy, 8, 8)
    assert found.summary()["cost_usd"] < fixed.summary()["cost_usd"]


def cheapest_by_brute_force(
    trace: sm.RequestStream, clusters: list[str], most: int, limits: dict[str, float]
) -> float | None:
    tasks = [task_of(trace, prefilled) for prefilled in (False, True)]
    kinds = [[plan_on(cluster, task) for cluster in clusters] for task in tasks]
    found = []
    for counts in itertools.product(range(most + 1), repeat=2 * len(clusters)):
        sides = counts[: len(clusters)], counts[len(clusters) :]
        if not all(map(any, sides)):
            continue
        fleets = [list(zip(own, side, strict=True)) for own, side in zip(kinds, sides, strict=True)]
        served = sm.simulate_pools(trace, *fleets)
        table = served.requests
        values = {"ttft_p99_s": table.ttft_s.quantile(0.99), "tpot_s": table.tpot_s.mean()}
        if not served.refused.any() and all(values[k] <= limit for k, limit in limits.items()):
            prices = [plan.cluster.core.price_usd_per_s for plan in itertools.chain(*kinds)]
            found.append(sum(n * price for n, price in zip(counts, prices, strict=True)))
    return min(found, default=None)


def task_of(trace: sm.RequestStream, prefilled: bool) -> sm.Inference:
    lengths = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    return sm.Inference(input_tokens=lengths[0], output_tokens=lengths[1], prefilled=prefilled)


@pytest.mark.parametrize(
    ("clusters", "most", "limits"),
    [
        (["dgx_h100"], 4, {"ttft_p99_s": 0.4, "tpot_s": 0.012}),
        (["dgx_h100"], 4, {"ttft_p99_s": 0.4, "tpot_s": 0.009}),
        (["dgx_h100", "dgx_a100"], 2, {"ttft_p99_s": 0.8, "tpot_s": 0.02}),
        (["dgx_h100"], 2, {"ttft_p99_s": 0.01}),
    ],
)
def test_no_cheaper_pools_keep_the_limits(
    clusters: list[str], most: int, limits: dict[str, float], trace: sm.RequestStream
) -> None:
    plan = sm.plan_fleet(trace, "llama3_8b", clusters, limits, max_replicas=most, pools=True)
    assert isinstance(plan, FleetPlan)
    expected = cheapest_by_brute_force(trace, clusters, most, limits)
    assert plan.fits == (expected is not None), plan
    if expected is not None:
        assert plan.usd_per_hour == pytest.approx(3600 * expected)
        assert all(plan.values[name] <= limit for name, limit in limits.items())
        assert isinstance(plan.served, ServedPools)
        slow = sm.plan_fleet(
            trace, "llama3_8b", clusters, limits, max_replicas=most, pools=True, prune=False
        )
        assert slow.counts == plan.counts
    else:
        assert plan.binds in limits


def test_longer_prompts_grow_the_prefill_pool_alone() -> None:
    limits = {"ttft_p99_s": 1.0, "tpot_s": 0.015}

    def counts(prompt: float, answer: float) -> tuple[int, int]:
        task = sm.Inference(input_tokens=prompt, output_tokens=answer)
        stream = sm.request_stream(task, requests=500, requests_per_s=20)
        large = sm.cluster("dgx_h100", nodes=4)
        plan = sm.plan_fleet(stream, "llama3_8b", large, limits, pools=True)
        assert isinstance(plan, FleetPlan)
        found = plan.counts
        return tuple(  # type: ignore[return-value]
            sum(n for name, n in found.items() if name.startswith(pool))
            for pool in ("prefill", "decode")
        )

    short, long_prompts, long_answers = counts(1000, 200), counts(4000, 200), counts(1000, 800)
    assert long_prompts[0] > short[0]
    assert long_answers[1] > short[1]
    assert long_answers[0] == short[0]


def test_pools_share_what_a_cluster_holds(trace: sm.RequestStream) -> None:
    limits = {"ttft_p99_s": 0.4, "tpot_s": 0.012}
    with pytest.raises(sm.ScaleModelError, match="prefilled=True"):
        sm.simulate_pools(trace, plan_on("dgx_h100", TASK), plan_on("dgx_h100", TASK))
    small = sm.cluster("dgx_h100", accelerators=3)
    plan = sm.plan_fleet(trace, "llama3_8b", small, limits, pools=True)
    assert isinstance(plan, FleetPlan)
    assert not plan.fits or sum(plan.counts.values()) <= 3
