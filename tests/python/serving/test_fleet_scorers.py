"""The router that weighs scores, by metrics of replicas as old as their scrape."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel as sm
from reference.conversations import conversations


def plan_of(replicas: int) -> sm.Serving:
    task = sm.Inference(input_tokens=800, output_tokens=150)
    return sm.serve("llama3_8b", "dgx_h100", task, replicas=replicas)


def scorers(**weights: float) -> sm.RouterPolicy:
    names = ("queue_weight", "kv_cache_weight", "prefix_weight", "active_weight")
    return sm.RouterPolicy(router="weighted_scorers", **(dict.fromkeys(names, 0.0) | weights))


def test_weighted_scorers_of_one_weight_are_the_rule_of_that_weight() -> None:
    trace, plan = conversations(3000, 60, 5), plan_of(4)
    loads = sm.simulate_fleet(trace, plan, router=scorers(active_weight=1.0))
    least = sm.simulate_fleet(trace, plan, router="least_loaded")
    for name in ("latency_mean_s", "ttft_mean_s"):
        assert loads.summary()[name] == pytest.approx(least.summary()[name], rel=0.05)
    held = sm.simulate_fleet(trace, plan, router=scorers(prefix_weight=1.0)).summary()
    aware = sm.simulate_fleet(trace, plan, router="prefix_aware").summary()
    assert held["hit_fraction"] >= aware["hit_fraction"] > least.summary()["hit_fraction"]
    # Without any weight all are equal, and one is drawn.
    drawn = sm.simulate_fleet(trace, plan, router=scorers())
    counts = np.bincount(drawn.replica, minlength=4)
    assert counts.sum() == len(trace)
    assert counts.max() - counts.min() < 5 * np.sqrt(len(trace) / 4)
    # Weights count by their ratios.
    twice = sm.simulate_fleet(trace, plan, router=scorers(queue_weight=4.0, prefix_weight=6.0))
    once = sm.simulate_fleet(trace, plan, router=scorers(queue_weight=2.0, prefix_weight=3.0))
    assert twice.totals == once.totals
    assert np.array_equal(twice.finished_s, once.finished_s)


def test_stale_metrics_send_requests_to_one_replica() -> None:
    trace, plan = conversations(3000, 90, 5), plan_of(4)
    waits = []
    for interval in (0.0, 0.05, 2.0, 20.0):
        policy = scorers(queue_weight=1.0, kv_cache_weight=1.0).replace(scrape_interval_s=interval)
        served = sm.simulate_fleet(trace, plan, router=policy, prefix_cache=False)
        waits.append(served.summary()["ttft_mean_s"])
    assert waits == sorted(waits)
    assert waits[3] > 2 * waits[0]
    # Between two looks all requests go where the last look found the least.
    policy = policy.replace(scrape_interval_s=1e6)
    served = sm.simulate_fleet(trace, plan, router=policy, prefix_cache=False)
    assert np.bincount(served.replica, minlength=4).min() > 0.2 * len(trace)  # Nothing seen: equal.
