"""Fleets: laws of what they serve, prefix caches against another implementation, plans."""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from reference.conversations import Named, conversations
from scalemodel.serving import FleetPlan, RequestStream
from scalemodel.serving.fleet_parts import ROUTERS
from scalemodel.serving.limits import METRICS

TASK = sm.Inference(input_tokens=800, output_tokens=150)
#: Recorded traces and what caches hold of them, where a folder has them.
TRACES = Path(os.environ.get("SCALEMODEL_DATA", Path(__file__).parents[4] / "shared" / "data"))


def plan_of(replicas: int = 1, **options: Any) -> sm.Serving:
    return sm.serve("llama3_8b", "dgx_h100", TASK, replicas=replicas, **options)


def same(one: Any, other: Any) -> bool:
    names = ("started_s", "first_token_s", "finished_s", "preemptions", "refused")
    return one.totals == other.totals and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("router", ROUTERS)
def test_one_replica_without_a_cache_is_the_stream(engine: str, router: str) -> None:
    plan = plan_of(engine=engine)
    trace = conversations(800, 12, 1)
    fleet = sm.simulate_fleet(trace, plan, router=router, prefix_cache=False)
    assert same(fleet, plan.simulate(trace))


def test_blind_routers_are_the_balance_of_a_plan() -> None:
    plan = plan_of(3)
    trace = conversations(800, 40, 1)
    for router in ("random", "round_robin"):
        fleet = sm.simulate_fleet(trace, plan, router=router, prefix_cache=False, seed=5)
        assert same(fleet, plan.simulate(trace, balance=router, seed=5))


def test_a_kind_in_two_halves_is_the_kind() -> None:
    plan = plan_of(4)
    trace = conversations(1000, 60, 2)
    for router in ROUTERS:
        whole = sm.simulate_fleet(trace, plan, router=router)
        halves = sm.simulate_fleet(trace, [(plan, 2), (plan, 2)], router=router)
        assert same(whole, halves)
        # Power is at the mean concurrency of a kind.
        apart_only = ["kind", "power_w"]
        assert whole.replicas.drop(columns=apart_only).equals(
            halves.replicas.drop(columns=apart_only)
        )


def test_sums_over_replicas_tenants_and_requests_agree() -> None:
    trace = conversations(1500, 60, 3)
    plan = plan_of(4)
    free = sm.simulate_fleet(trace, plan, router="prefix_aware")
    limit = float(free.requests["ttft_s"].median())
    found = sm.simulate_fleet(
        trace, plan, router="prefix_aware", limits={"ttft_s": limit, "tpot_s": 0.02}
    )
    requests, replicas, tenants, summary = (
        found.requests,
        found.replicas,
        found.tenants,
        found.summary(),
    )
    for name in ("input_tokens", "output_tokens", "cached_tokens"):
        assert replicas[name].sum() == requests[name].sum()
    assert replicas["requests"].tolist() == np.bincount(found.replica, minlength=4).tolist()
    assert tenants["requests"].sum() == len(trace)
    assert tenants["output_tokens"].sum() == trace.output_tokens.sum()
    # Little's law, over the fleet.
    in_system = (replicas["running"] + replicas["queue"]).sum() * summary["makespan_s"]
    assert in_system == pytest.approx(requests["latency_s"].sum(), rel=1e-9)
    within = (requests["ttft_s"] <= limit) & (requests["tpot_s"] <= 0.02)
    assert summary["goodput_fraction"] == within.mean()
    assert 0 < within.mean() < 1
    assert 0.25 <= summary["fairness"] <= 1
    price = found.parts[0].plan.cluster.core.price_usd_per_s
    assert summary["cost_usd"] == pytest.approx(4 * price * summary["makespan_s"])
    power = summary["energy_j"] / summary["makespan_s"] / 4
    idle = found.parts[0].plan.cluster.core.accelerator.power
    assert idle.idle_w < power < idle.limit_w


def test_limits_by_tenant_hold_for_that_tenant_alone() -> None:
    trace = conversations(600, 40, 3)
    plan = plan_of(2)
    strict = sm.simulate_fleet(trace, plan, limits={0: {"ttft_s": 1e-6}, 1: {"ttft_s": 1e6}})
    goodput = strict.tenants.set_index("tenant")["goodput_fraction"]
    assert goodput.tolist() == [0.0, 1.0, 1.0, 1.0]


def lru_hits(trace: Named, blocks: float) -> np.ndarray[Any, Any]:
    """Blocks of each prompt that an `OrderedDict` holds, the least recently used first."""
    held: OrderedDict[int, None] = OrderedDict()
    found = []
    for begin, end in itertools.pairwise(trace.block_offsets.tolist()):
        names = trace.block_ids[begin:end].tolist()
        found.append(len(list(itertools.takewhile(held.__contains__, names))))
        for name in reversed(names):
            held[name] = None
            held.move_to_end(name)
        while len(held) > blocks:
            held.popitem(last=False)
    return np.array(found)


def apart(trace: Named) -> Named:
    """The same, each request after the end of the one before."""
    count = len(trace)
    return Named(
        500.0 * np.arange(count),
        trace.input_tokens,
        np.ones(count),
        block_offsets=trace.block_offsets,
        block_ids=trace.block_ids,
        block_tokens=trace.block_tokens,
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("blocks", [40, 150, 700, 100_000])
def test_a_prefix_cache_hits_what_an_ordered_dictionary_does(seed: int, blocks: int) -> None:
    trace = apart(conversations(1000, 1, seed))
    served = sm.simulate_fleet(trace, plan_of(), store_tokens=64 * blocks)
    most = (trace.input_tokens - 1) // 16 * 16  # The last token is computed in any case.
    expected = np.minimum(lru_hits(trace, blocks) * 64, most)
    assert np.array_equal(served.cached_tokens, expected)


def recorded(name: str, block_tokens: int) -> Named:
    path = TRACES / "traces" / name
    if not path.exists():
        pytest.skip("no recorded traces here")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    ids = [row["hash_ids"] for row in rows]
    return Named(
        np.array([row["timestamp"] for row in rows]) / 1e3,
        np.array([max(1, row["input_length"]) for row in rows]),
        np.array([max(1, row["output_length"]) for row in rows]),
        block_offsets=np.concatenate([[0], np.cumsum([len(each) for each in ids])]),
        block_ids=np.array([name for each in ids for name in each], dtype=np.uint64),
        block_tokens=block_tokens,
    )


@pytest.mark.parametrize("name", ["mooncake_conversation_trace", "mooncake_synthetic_trace"])
def test_hits_on_recorded_traces_are_those_computed_elsewhere(name: str) -> None:
    trace = apart(recorded(f"{name}.jsonl", 512))
    table = TRACES / "traces" / "hit_rates.csv"
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["trace"] == f"{name}.jsonl"]
    task = sm.Inference(input_tokens=12_000, output_tokens=300)
    plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    assert len(rows) >= 6
    for row in rows:
        if not row["hit_fraction_tokens"]:
            continue
        blocks = float(row["capacity_blocks"] or 1e9)
        served = sm.simulate_fleet(trace, plan, store_tokens=512 * blocks)
        hits = served.cached_tokens.sum() / trace.input_tokens.sum()
        assert hits == pytest.approx(float(row["hit_fraction_tokens"]), abs=0.01), row


@pytest.mark.parametrize("seed", [7, 8])
def test_on_shared_prefixes_routers_rank_as_published(seed: int) -> None:
    trace = conversations(4000, 40, seed, block_tokens=512)
    # Long prompts that share most of themselves, and answers of very different lengths.
    answers = np.random.default_rng(seed).lognormal(np.log(30) - 2, 2, len(trace))
    mixed = Named(
        trace.arrival_s,
        trace.input_tokens,
        np.clip(answers.round(), 1, 4000),
        session=trace.session,
        block_offsets=trace.block_offsets,
        block_ids=trace.block_ids,
        block_tokens=512,
    )
    found = {
        router: sm.simulate_fleet(mixed, plan_of(8), router=router).summary()
        for router in ("prefix_aware", "kv_cost", "least_loaded", "round_robin", "session_sticky")
    }
    latency = {router: summary["latency_mean_s"] for router, summary in found.items()}
    assert latency["prefix_aware"] < latency["kv_cost"] < latency["least_loaded"]
    assert latency["least_loaded"] < latency["round_robin"]
    hits = {router: summary["hit_fraction"] for router, summary in found.items()}
    assert hits["prefix_aware"] > hits["kv_cost"] > hits["round_robin"] + 0.1
    assert hits["session_sticky"] > hits["round_robin"] + 0.3


def day_of(requests: int, low: float, high: float) -> RequestStream:
    """A wave of traffic between two rates, over the time that its requests take."""
    place = np.linspace(0.0, 1.0, requests)
    rate = low + (high - low) * (1 - np.cos(2 * np.pi * place)) / 2
    task = sm.Inference(input_tokens=500, output_tokens=100)
    even = sm.request_stream(task, requests=requests, requests_per_s=1.0, lengths="exponential")
    gaps = np.diff(even.arrival_s, prepend=0.0) / rate
    return RequestStream(np.cumsum(gaps), even.input_tokens, even.output_tokens)


def test_an_autoscaler_follows_the_traffic_and_pays_for_what_runs() -> None:
    trace = day_of(60_000, 10.0, 100.0)
    plan, scaler = plan_of(), sm.Autoscaler(target=12, startup_s=20, down_window_s=60)
    still = sm.simulate_fleet(trace, [(plan, 12)], router="least_loaded")
    found = sm.simulate_fleet(trace, [(plan, 12)], router="least_loaded", autoscaler=scaler)
    assert (still.replicas["online_s"] == still.totals.makespan_s).all()
    assert len(still.scaling) == 1
    scaling, fleet, fixed = found.scaling, found.summary(), still.summary()
    assert scaling["online"].iloc[0] == 1
    assert scaling["online"].max() > 3
    assert (scaling["online"] + scaling["starting"]).max() <= 12
    assert 1 < fleet["online_replicas"] < fixed["online_replicas"] == pytest.approx(12)
    assert fleet["cost_usd"] / fleet["online_replicas"] == pytest.approx(
        fixed["cost_usd"] / 12, rel=0.05
    )
    assert fleet["energy_j"] < fixed["energy_j"]
    assert fleet["ttft_p99_s"] > fixed["ttft_p99_s"]
    assert found.requests["finished_s"].notna().all()
    assert not found.refused.any()
    # A replica works and holds requests only while it is paid for.
    busy_s = found.replicas["busy_fraction"] * found.totals.makespan_s
    assert (busy_s <= found.replicas["online_s"]).all()
    # What is online from the events, and while it starts, is paid for; drains come on top.
    ends = np.append(scaling["time_s"].to_numpy()[1:], trace.arrival_s[-1])
    counted = (scaling["online"] + scaling["starting"]) * (ends - scaling["time_s"])
    assert counted.sum() <= found.replicas["online_s"].sum() <= 1.2 * counted.sum()


def test_an_autoscaler_that_may_not_move_changes_nothing() -> None:
    trace = conversations(1000, 60, 2)
    for router in ROUTERS:
        whole = sm.simulate_fleet(trace, plan_of(4), router=router)
        pinned = sm.Autoscaler(target=1e-3, min_replicas=4)
        assert same(whole, sm.simulate_fleet(trace, plan_of(4), router=router, autoscaler=pinned))


def test_slower_starts_and_other_signals_cost_what_they_should() -> None:
    trace = day_of(20_000, 10.0, 100.0)
    plan = plan_of()

    def p99(**settings: Any) -> float:
        scaler = sm.Autoscaler(**settings)
        served = sm.simulate_fleet(trace, [(plan, 12)], router="least_loaded", autoscaler=scaler)
        assert served.scaling["online"].max() > 1
        return served.summary()["ttft_p99_s"]

    assert p99(target=12, startup_s=10) < p99(target=12, startup_s=120)
    assert p99(target=6, startup_s=30) < p99(target=50, startup_s=30)
    assert p99(signal="queue", target=0.5, startup_s=10) > 0
    assert p99(signal="kv_cache", target=0.01, startup_s=10) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fleet": "llama"}, "fleet='llama'"),
        ({"fleet": []}, "fleet=\\[\\]"),
        ({"count": 0}, "at least one replica"),
        ({"count": True}, "count=True"),
        ({"router": "best"}, "router='best'"),
        ({"limits": {"ttft": 1}}, "limits: 'ttft'"),
        ({"limits": {"ttft_s": -1}}, "limits: ttft_s=-1"),
        ({"limits": {"a": {"ttft_s": 1}}}, "limits: 'a'"),
        ({"store_tokens": -1}, "store_tokens=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"autoscaler": "hpa"}, "autoscaler='hpa'"),
        ({"trace": None}, "trace=None"),
        ({"session": np.zeros(3, int)}, "session: must be as long"),
        ({"tenant": np.zeros(3, int)}, "tenant: must be as long"),
        ({"session": np.zeros(50)}, "session: must be a column of whole numbers"),
        ({"block_offsets": np.arange(3)}, "block_offsets: must ascend"),
        ({"block_tokens": 0}, "block_tokens=0"),
        ({"arrival_s": -np.arange(50.0)}, "arrival_s=-1"),
        ({"input_tokens": np.zeros(50)}, "input_tokens=0"),
        ({"output_tokens": np.full(50, np.nan)}, "output_tokens=nan"),
    ],
)
def test_bad_input_is_one_clear_error(change: dict[str, Any], message: str) -> None:
    columns = {name: getattr(conversations(50, 5, 1), name) for name in Named.__dataclass_fields__}
    columns |= {name: value for name, value in change.items() if name in columns}
    arguments = {name: value for name, value in change.items() if name not in columns}
    trace = arguments.pop("trace", Named(**columns))
    fleet = arguments.pop("fleet", [(plan_of(), arguments.pop("count", 1))])
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.simulate_fleet(trace, fleet, **arguments)


def test_a_fleet_reports_progress_and_hears_an_interrupt() -> None:
    trace = conversations(100_000, 60, 1)
    seen: list[tuple[int, int]] = []
    sm.simulate_fleet(trace, plan_of(4), progress=lambda done, total: seen.append((done, total)))
    assert seen  # some 50 ms apart
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {100_000}

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sm.simulate_fleet(trace, plan_of(4), progress=stop)


def test_names_that_stand_for_other_blocks_before_them_end_a_prefix() -> None:
    # Names of one block's content alone, in any order: what comes behind other blocks is no hit.
    random, count = np.random.default_rng(0), 400
    names = random.integers(0, 30, (count, 4))
    trace = sm.Trace(
        np.arange(count) / 40,
        np.full(count, 2048),
        np.full(count, 50),
        block_tokens=512,
        block_offsets=4 * np.arange(count + 1),
        block_ids=names.ravel(),
    )
    served = sm.simulate_fleet(trace, plan_of(2), router="prefix_aware")
    assert not served.refused.any()
    assert served.summary()["hit_fraction"] < 0.5


def cheapest_of_all(
    trace: RequestStream, kinds: list[sm.Serving], most: int, limits: dict[str, float]
) -> float | None:
    """Price of the cheapest fleet that keeps its limits, every one of them simulated."""
    best = None
    for counts in itertools.product(range(most + 1), repeat=len(kinds)):
        if not any(counts):
            continue
        served = sm.simulate_fleet(
            trace, list(zip(kinds, counts, strict=True)), router="least_loaded"
        )
        times = served.requests
        kept = all(
            np.quantile(times[METRICS[name.split("_")[0]]], 0.95) <= limit
            for name, limit in limits.items()
        )
        price = sum(
            n * kind.cluster.core.price_usd_per_s for n, kind in zip(counts, kinds, strict=True)
        )
        if kept and not served.refused.any() and (best is None or price < best):
            best = price
    return best


@pytest.mark.parametrize("case", range(50))
def test_the_cheapest_fleet_is_that_of_an_exhaustive_search(case: int) -> None:
    random = np.random.default_rng(case)
    task = sm.Inference(
        input_tokens=int(random.integers(100, 3000)), output_tokens=int(random.integers(10, 300))
    )
    trace = sm.request_stream(
        task,
        requests=200,
        requests_per_s=float(random.uniform(5, 150)),
        lengths="exponential",
        seed=case,
    )
    limits = {
        "ttft_p95_s": float(random.uniform(0.05, 0.5)),
        "tpot_p95_s": float(random.uniform(0.008, 0.04)),
    }
    clusters = ["dgx_h100", "dgx_a100"]
    plan = sm.plan_fleet(trace, "llama3_8b", clusters, limits, max_replicas=4)
    mean = sm.Inference(
        input_tokens=trace.input_tokens.mean(), output_tokens=trace.output_tokens.mean()
    )
    kinds = [sm.serve("llama3_8b", cluster, mean, replicas=1) for cluster in clusters]
    expected = cheapest_of_all(trace, kinds, 4, limits)
    assert plan.fits == (expected is not None), plan
    if expected is not None:
        assert plan.usd_per_hour == pytest.approx(3600 * expected)
        assert all(plan.values[name] <= limit for name, limit in limits.items())
    else:
        assert plan.binds in limits


def test_fleets_of_two_models_are_planned_apart() -> None:
    trace = sm.request_stream(TASK, requests=300, requests_per_s=10)
    traces = {"llama3_8b": trace, "llama3_70b": trace}
    limits = {"ttft_p99_s": 5.0}
    plans = sm.plan_fleet(traces, list(traces), "dgx_h100", limits)
    alone = sm.plan_fleet(trace, "llama3_8b", "dgx_h100", limits)
    assert plans["llama3_8b"].counts == alone.counts
    assert plans["llama3_70b"].usd_per_hour > alone.usd_per_hour
    for wrong in (
        {"limits": {}},
        {"limits": {"ttft": 1.0}},
        {"models": []},
        {"max_replicas": 0},
        {"routers": "random"},
        {"trace": {"other": trace}},
        {"trace": trace},
    ):
        with pytest.raises(sm.ScaleModelError):
            sm.plan_fleet(
                **{
                    "trace": traces,
                    "models": list(traces),
                    "clusters": "dgx_h100",
                    "limits": limits,
                    **wrong,
                }
            )


def test_models_share_a_stock_at_the_least_cost() -> None:
    models, limits = ["llama3_8b", "llama2_7b"], {"ttft_p99_s": 0.4, "tpot_s": 0.02}
    traces = {
        name: conversations(500, rate, seed)
        for seed, (name, rate) in enumerate(zip(models, (70.0, 50.0), strict=True))
    }
    clusters = ["dgx_h100", "dgx_a100"]

    def planned(stock: dict[str, int] | None) -> dict[str, FleetPlan]:
        return sm.plan_fleet(traces, models, clusters, limits, max_replicas=8, stock=stock)

    def used(plans: dict[str, FleetPlan]) -> dict[str, int]:
        parts = [part for plan in plans.values() for part in plan.parts]
        return {
            name: sum(part.accelerators for part in parts if part.plan.cluster.name == name)
            for name in clusters
        }

    apart = planned(None)
    plenty = planned({"dgx_h100": 100, "dgx_a100": 100})
    assert {name: plan.counts for name, plan in apart.items()} == {
        name: plan.counts for name, plan in plenty.items()
    }
    free = used(apart)
    best = max(free, key=lambda name: free[name])
    other = next(name for name in clusters if name != best)
    # One accelerator less of the kind that is liked best: the other kind steps in, at a cost.
    less = planned({best: free[best] - 1, other: 16})
    assert all(plan.fits for plan in less.values())
    assert used(less)[best] < free[best]
    total = sum(plan.usd_per_hour for plan in less.values())
    assert total > sum(plan.usd_per_hour for plan in apart.values())
    # By brute force over the fleets of each model that keep the limits.
    pairs = []
    for name in models:
        own = []
        for counts in itertools.product(range(free[best]), range(9)):
            if not any(counts):
                continue
            order = counts if best == clusters[0] else counts[::-1]
            task = sm.Inference(
                input_tokens=float(traces[name].input_tokens.mean()),
                output_tokens=float(traces[name].output_tokens.mean()),
            )
            kinds = [sm.serve(name, each, task, replicas=1) for each in clusters]
            keeps = False
            for router in ("prefix_aware", "least_loaded"):
                fleet = list(zip(kinds, order, strict=True))
                found = sm.simulate_fleet(traces[name], fleet, router=router).summary()
                keeps |= found["ttft_p99_s"] <= 0.4 and found["tpot_mean_s"] <= 0.02
            if keeps:
                price = [3600 * kind.cluster.core.price_usd_per_s for kind in kinds]
                own.append((counts, sum(n * p for n, p in zip(order, price, strict=True))))
        pairs.append(own)
    held = (free[best] - 1, 16)
    cheapest = min(
        one_cost + other_cost
        for (one, one_cost), (two, other_cost) in itertools.product(*pairs)
        if all(a + b <= most for a, b, most in zip(one, two, held, strict=True))
    )
    assert total == pytest.approx(cheapest)
    none = planned({best: 1, other: 0})
    assert not any(plan.fits for plan in none.values())
    with pytest.raises(sm.ScaleModelError, match="must be a whole number from 0"):
        planned({best: -1})
