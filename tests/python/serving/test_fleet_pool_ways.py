"""Prefill and decode pools that fail, start and stop: laws, and plans against brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import FleetPlan, RequestStream, ServedPools

TASK = sm.Inference(input_tokens=1500, output_tokens=150)
ANSWERS = TASK.replace(prefilled=True)
MODEL, MOST = "llama3_8b", 3


def plan_on(cluster: str, task: sm.Inference) -> sm.Serving:
    return sm.serve(MODEL, cluster, task, replicas=1)


@pytest.fixture(scope="module")
def trace() -> RequestStream:
    return sm.request_stream(TASK, requests=600, requests_per_s=40, lengths="lognormal")


def pools(trace: RequestStream, prompts: int, answers: int, **options: Any) -> ServedPools:
    first, second = plan_on("dgx_h100", TASK), plan_on("dgx_h100", ANSWERS)
    return sm.simulate_pools(trace, (first, prompts), (second, answers), **options)


def test_without_anything_amiss_nothing_changes(trace: RequestStream) -> None:
    plain = pools(trace, 3, 3)
    careful = pools(trace, 3, 3, failures=sm.Failures(mtbf_s=0, restart_s=5))
    assert np.array_equal(plain.finished_s, careful.finished_s)
    assert careful.summary().get("failures", 0) == 0
    late = [sm.Outage(begin_s=1e6, end_s=2e6)]
    after = pools(trace, 3, 3, outages=late, decode_outages=late)
    assert np.array_equal(plain.finished_s, after.finished_s)


def test_a_lost_decode_replica_costs_its_requests_another_prompt(trace: RequestStream) -> None:
    plain = pools(trace, 3, 3)
    begin = float(np.median(trace.arrival_s))
    lost = sm.Outage(begin_s=begin, end_s=begin + 20, first=0, count=1)
    found = pools(trace, 3, 3, decode_outages=[lost])
    summary = found.summary()
    assert summary["failures"] == 1
    assert summary["lost"] == 0
    assert not found.refused.any()
    # Prompts know nothing of what happens behind them.
    assert np.array_equal(found.first_token_s, plain.first_token_s)
    assert found.decode is not None
    back = found.decode.requests
    retried = back[back.retries > 0]
    assert len(retried) == summary["retried"] > 0
    again = float((plain.first_token_s - trace.arrival_s + plain.transfer_s).mean())
    assert (retried.finished_s > begin + again).all()
    # What came and left before is served as if nothing happened.
    before = plain.finished_s < begin
    assert before.sum() > 50
    assert np.array_equal(found.finished_s[before], plain.finished_s[before])
    assert found.finished_s.sum() > plain.finished_s.sum()


def test_a_lost_prefill_replica_delays_first_tokens_alone(trace: RequestStream) -> None:
    plain = pools(trace, 3, 6)
    begin = float(np.median(trace.arrival_s))
    lost = sm.Outage(begin_s=begin, end_s=1e12, first=1, count=2)
    found = pools(trace, 3, 6, outages=[lost])
    assert found.summary()["failures"] == 2
    late = trace.arrival_s > begin
    ttft, usual = found.first_token_s - trace.arrival_s, plain.first_token_s - trace.arrival_s
    assert ttft[late].mean() > 2 * usual[late].mean()
    early = plain.first_token_s < begin
    assert np.array_equal(found.first_token_s[early], plain.first_token_s[early])


def test_requests_that_no_replica_is_left_for_are_lost(trace: RequestStream) -> None:
    begin = float(np.median(trace.arrival_s))
    never = [sm.Outage(begin_s=begin, end_s=1e12, first=0, count=2)]
    for name in ("outages", "decode_outages"):
        found = pools(trace, 2, 2, **{name: never})
        assert found.refused.any()
        assert not found.refused.all()
        assert found.summary()["lost"] == found.refused.sum()
    with pytest.raises(sm.ScaleModelError, match=r"decode_outages: .*must be an Outage that does"):
        pools(trace, 2, 2, decode_outages=[sm.Outage(begin_s=5, end_s=1)])


def cheapest_by_brute_force(
    trace: RequestStream,
    limits: dict[str, float],
    autoscalers: list[sm.Autoscaler],
    wrongs: dict[str, Any],
) -> float | None:
    """USD per second of the cheapest pools, all of them simulated in every way."""
    lengths = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    mean = sm.Inference(input_tokens=lengths[0], output_tokens=lengths[1])
    kinds = [plan_on("dgx_h100", each) for each in (mean, mean.replace(prefilled=True))]
    price, best = kinds[0].cluster.core.price_usd_per_s, None
    if "outages" in wrongs:
        wrongs = {**wrongs, "decode_outages": wrongs["outages"]}
    for counts in itertools.product(range(1, MOST + 1), repeat=2):
        for scalers in itertools.product((None, *autoscalers), repeat=2):
            served = sm.simulate_pools(
                trace,
                *zip(kinds, counts, strict=True),
                autoscaler=scalers[0],
                decode_autoscaler=scalers[1],
                **wrongs,
            )
            table = served.requests
            values = {"ttft_p90_s": table.ttft_s.quantile(0.9), "tpot_s": table.tpot_s.mean()}
            cost = price * sum(counts)
            if any(scalers):
                fleets = [pool for pool in (served.prefill, served.decode) if pool is not None]
                cost = sum(each.summary()["cost_usd"] / each.totals.makespan_s for each in fleets)
            good = all(values[name] <= limit for name, limit in limits.items())
            if good and not served.refused.any() and (best is None or cost < best):
                best = cost
    return best


def case_of(case: int) -> tuple[RequestStream, dict[str, float], dict[str, Any]]:
    """Traffic that rises and falls, limits, and what may go wrong in two cases of three."""
    random = np.random.default_rng(case)
    place = np.linspace(0, 1, 300)
    rate = random.uniform(2, 6) + random.uniform(5, 30) * (1 - np.cos(2 * np.pi * place)) / 2
    arrivals = np.cumsum(random.exponential(1, 300) / rate)
    trace = sm.Trace(arrivals, np.full(300, 1500), random.integers(50, 300, 300))
    end = float(arrivals[-1])
    limits = {"ttft_p90_s": random.uniform(0.1, 0.5), "tpot_s": random.uniform(0.008, 0.014)}
    scalers = [
        sm.Autoscaler(
            signal=signal,
            target=random.uniform(low, high),
            min_replicas=1,
            interval_s=1,
            startup_s=random.uniform(0.5, 3),
            down_window_s=random.uniform(1, 8),
        )
        for signal, low, high in (("queue", 1, 4), ("requests", 4, 20))
    ]
    options: dict[str, Any] = {"autoscalers": scalers if case % 2 else scalers[:1]}
    if case % 3 == 1:
        options["outages"] = [sm.Outage(begin_s=end / 2, end_s=end, first=0, count=1)]
        options["failures"] = sm.Failures(restart_s=2)
    if case % 3 == 2:
        options["failures"] = sm.Failures(mtbf_s=3 * end, restart_s=end / 10)
    return trace, limits, options


@pytest.mark.parametrize("case", range(12))
def test_no_cheaper_pools_keep_the_limits_in_any_way(case: int) -> None:
    trace, limits, options = case_of(case)
    plan = sm.plan_fleet(trace, MODEL, "dgx_h100", limits, max_replicas=MOST, pools=True, **options)
    assert isinstance(plan, FleetPlan)
    wrongs = {name: options[name] for name in ("failures", "outages") if name in options}
    expected = cheapest_by_brute_force(trace, limits, options["autoscalers"], wrongs)
    assert plan.fits == (expected is not None), plan
    if expected is None:
        return
    assert plan.usd_per_hour == pytest.approx(3600 * expected)
    assert isinstance(plan.served, ServedPools)
    assert not plan.served.refused.any()
    assert all(plan.values[name] <= limit for name, limit in limits.items())
    scaled = plan.autoscaler is not None or plan.decode_autoscaler is not None
    full = sum(part.price_usd_per_s for part in plan.parts)
    assert (3600 * full > plan.usd_per_hour * (1 + 1e-9)) == scaled


def test_what_if_says_which_pools_outlive_a_lost_replica() -> None:
    drawn = sm.request_stream(TASK, requests=400, requests_per_s=40)
    trace = sm.Trace(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    limits = {"ttft_p95_s": 0.4, "tpot_s": 0.012}
    large = sm.cluster("dgx_h100", nodes=4)
    cases = {"double": {"rate": 2}, "lost": {"lost": 1}}
    table = sm.what_if_plan(trace, MODEL, large, limits, cases, pools=True).set_index("case")
    assert table.keeps["as it is"]
    assert not table.keeps["double"]
    assert table.usd_per_hour["double"] > table.usd_per_hour["as it is"]
    assert table.usd_per_hour["lost"] > table.usd_per_hour["as it is"]
    assert "decode" in table.fleet["lost"]
