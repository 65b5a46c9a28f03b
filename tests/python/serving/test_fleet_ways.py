"""Plans of fleets over tiers, autoscalers and what goes wrong, against an exhaustive search."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from reference.conversations import Named, conversations
from scalemodel.serving import FleetPlan, RequestStream
from scalemodel.serving.limits import METRICS

MODEL, MOST = "llama3_8b", 3
#: Caches that hold all that is asked for, and caches that do not.
LARGE, SMALL = ["dgx_h100", "dgx_a100"], ["dgx_a100_40", "dgx_a100"]
ROUTERS = ("prefix_aware", "least_loaded")


def kinds_of(trace: RequestStream, clusters: list[str]) -> list[sm.Serving]:
    lengths = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    mean = sm.Inference(input_tokens=lengths[0], output_tokens=lengths[1])
    return [sm.serve(MODEL, cluster, mean, replicas=1) for cluster in clusters]


def cheapest_of_all(
    trace: RequestStream,
    clusters: list[str],
    limits: dict[str, float],
    tiers: list[str | None],
    autoscalers: list[sm.Autoscaler],
    wrongs: dict[str, Any],
) -> float | None:
    """USD per second of the cheapest fleet, every one simulated in every way."""
    best, kinds = None, kinds_of(trace, clusters)
    ways = list(itertools.product(ROUTERS, tiers, [None, *autoscalers]))
    for counts in itertools.product(range(MOST + 1), repeat=len(kinds)):
        if not any(counts):
            continue
        fleet = list(zip(kinds, counts, strict=True))
        first = next(kind for kind, count in fleet if count)
        for router, setup, scaler in ways:
            below = sm.cache_tiers(setup, first, replicas=sum(counts)) if setup else ()
            served = sm.simulate_fleet(
                trace, fleet, router=router, tiers=below, autoscaler=scaler, **wrongs
            )
            table = served.requests
            kept = all(
                np.quantile(table[METRICS[name.split("_")[0]]], 0.9) <= limit
                for name, limit in limits.items()
            )
            prices = [kind.cluster.core.price_usd_per_s for kind in kinds]
            cost = sum(n * price for n, price in zip(counts, prices, strict=True))
            if scaler is not None:
                cost = served.summary()["cost_usd"] / served.totals.makespan_s
            if kept and not served.refused.any() and (best is None or cost < best):
                best = cost
    return best


def burst(seed: int, most: float, block_tokens: int) -> Named:
    """Conversations whose rate rises from a low one and falls again."""
    random = np.random.default_rng(seed)
    even = conversations(250, 1.0, seed, block_tokens)
    place = np.linspace(0.0, 1.0, len(even))
    low, high = np.sort(random.uniform(0.05, 1.0, 2)) * most
    rate = low + (high - low) * (1 - np.cos(2 * np.pi * place)) / 2
    return Named(
        np.cumsum(np.diff(even.arrival_s, prepend=0.0) / rate),
        even.input_tokens,
        even.output_tokens,
        block_offsets=even.block_offsets,
        block_ids=even.block_ids,
        block_tokens=even.block_tokens,
    )


def case_of(case: int) -> tuple[Named, list[str], dict[str, float], dict[str, Any]]:
    """Traffic, clusters, limits and ways: two cases of three have something that goes wrong."""
    random = np.random.default_rng(1000 + case)
    large = case % 2 == 0
    trace = burst(case, 60.0, 64) if large else burst(case, 12.0, 320)
    end = float(trace.arrival_s[-1])
    slower = 1 if large else 3
    limits = {
        "ttft_p90_s": float(random.uniform(0.04, 0.3)) * slower,
        "tpot_p90_s": float(random.uniform(0.008, 0.016)) * slower,
    }
    scaler = sm.Autoscaler(
        target=float(random.uniform(2, 12)),
        min_replicas=1,
        interval_s=1.0,
        startup_s=float(random.uniform(0.5, 4)),
        down_window_s=float(random.uniform(1, 10)),
    )
    options: dict[str, Any] = {"tiers": [None, "hicache"], "autoscalers": [scaler]}
    if case % 3 == 1:
        options["outages"] = [sm.Outage(begin_s=end / 2, end_s=end, first=0, count=1)]
        options["failures"] = sm.Failures(restart_s=2.0)
    if case % 3 == 2:
        options["failures"] = sm.Failures(mtbf_s=3 * end, restart_s=end / 10)
    return trace, LARGE if large else SMALL, limits, options


@pytest.mark.repeats
@pytest.mark.parametrize("case", range(50))
def test_the_cheapest_of_all_ways_is_that_of_an_exhaustive_search(case: int) -> None:
    trace, clusters, limits, options = case_of(case)
    plan = sm.plan_fleet(
        trace, MODEL, clusters, limits, routers=ROUTERS, max_replicas=MOST, **options
    )
    assert isinstance(plan, FleetPlan)
    wrongs = {name: options[name] for name in ("failures", "outages") if name in options}
    ways = options["tiers"], options["autoscalers"]
    expected = cheapest_of_all(trace, clusters, limits, *ways, wrongs)
    assert plan.fits == (expected is not None), plan
    if expected is not None:
        assert plan.usd_per_hour == pytest.approx(3600 * expected)
        assert all(plan.values[name] <= limit for name, limit in limits.items())
        assert not plan.served.refused.any()  # type: ignore[union-attr]


def test_what_if_says_what_would_break_and_what_it_would_cost() -> None:
    drawn = sm.request_stream(
        sm.Inference(input_tokens=1000, output_tokens=200), requests=600, requests_per_s=60
    )
    trace = sm.Trace(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    limits = {"ttft_p95_s": 0.3, "tpot_s": 0.02}
    cases = {
        "double": {"rate": 2},
        "rack": {"lost": 2},
        "H200": {"clusters": ["dgx_h100", "dgx_h200"]},
        "strict": {"limits": {"tpot_s": 0.001}},
    }
    table = sm.what_if_plan(trace, MODEL, "dgx_h100", limits, cases).set_index("case")
    plain = sm.plan_fleet(trace, MODEL, "dgx_h100", limits)
    double = sm.plan_fleet(trace.scaled(2), MODEL, "dgx_h100", limits)
    assert isinstance(plain, FleetPlan)
    assert isinstance(double, FleetPlan)
    assert table.usd_per_hour["as it is"] == plain.usd_per_hour
    assert table.usd_per_hour["double"] == double.usd_per_hour > plain.usd_per_hour
    assert table.change["double"] == pytest.approx(double.usd_per_hour / plain.usd_per_hour - 1)
    assert table.keeps.to_dict() == {
        "as it is": True,
        "double": False,
        "rack": False,
        "H200": True,
        "strict": False,
    }
    assert table.ratio["rack"] > 1
    assert table.usd_per_hour["rack"] > plain.usd_per_hour
    assert table.usd_per_hour["H200"] <= plain.usd_per_hour
    assert table.fleet["strict"] == ""
    assert "no fleet of at most" in table.message["strict"]
    both = sm.what_if_plan(
        {MODEL: trace, "llama2_7b": trace}, [MODEL, "llama2_7b"], "dgx_h100", limits
    )
    assert both.model.tolist() == [MODEL, "llama2_7b"] * 3
    for wrong, message in (
        ({"cases": {"x": {"rate": 0}}}, "rate"),
        ({"cases": {"x": 3}}, "must be a mapping"),
        ({"cases": {"x": {"lost": 0.5}}}, "lost=0.5"),
        ({"cases": {}, "tiers": ["ram"]}, "tiers: 'ram'"),
        ({"cases": {}, "tiers": "hicache"}, "tiers='hicache'"),
        ({"cases": {}, "autoscalers": [1]}, "autoscalers: 1: must be"),
        ({"cases": {}, "failures": 1}, "failures=1"),
        ({"cases": {}, "outages": [1]}, "outages: 1: must be of Outage"),
    ):
        with pytest.raises(sm.ScaleModelError, match=message):
            sm.what_if_plan(trace, MODEL, "dgx_h100", limits, **wrong)  # type: ignore[arg-type]
