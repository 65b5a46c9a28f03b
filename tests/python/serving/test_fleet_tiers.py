"""Tiers below the KV cache, failures, priorities: what they do to a fleet, and what is refused."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
from reference.conversations import conversations
from scalemodel.serving import RequestStream, ServedFleet
from scalemodel.serving.tiers import tier_setups

#: Prompts long enough for their prefixes to be worth loading.
LONG = sm.Inference(input_tokens=4000, output_tokens=150)


def plan_of(replicas: int) -> sm.Serving:
    task = sm.Inference(input_tokens=800, output_tokens=150)
    return sm.serve("llama3_8b", "dgx_h100", task, replicas=replicas)


def same(one: ServedFleet, other: ServedFleet) -> bool:
    return one.totals == other.totals and np.array_equal(one.finished_s, other.finished_s)


def drawn(**options: Any) -> Any:
    return sm.simulate_fleet(conversations(1200, 40, 3), plan_of(3), **options)


@pytest.mark.parametrize("setup", tier_setups())
def test_every_set_up_of_the_catalogue_serves(setup: str) -> None:
    plan = plan_of(3)
    tiers = sm.cache_tiers(setup, plan, replicas=3)
    plain, found = drawn(), drawn(tiers=tiers)
    levels = found.cache_levels.set_index("level")
    assert len(levels) == len(tiers) + 2
    assert levels.requests.sum() == len(found.stream)
    assert levels.tokens.sum() == pytest.approx(found.cached_tokens.sum())
    assert found.cached_tokens.sum() >= plain.cached_tokens.sum()
    assert (levels.written_bytes.dropna() > 0).all()


def test_a_shared_pool_makes_up_for_a_router_that_scatters_conversations() -> None:
    plan = plan_of(3)
    pool = sm.cache_tiers("mooncake_store", plan, replicas=3)
    assert drawn(tiers=pool).summary()["hit_fraction"] > 1.2 * drawn().summary()["hit_fraction"]
    (tier,) = pool
    assert tier.read_bytes_per_s == pytest.approx(3 * tier.link_bytes_per_s)
    assert sm.cache_tiers("mooncake_store", plan, capacity_bytes=1e12)[0].capacity_bytes == 1e12


def test_a_tier_pays_from_some_length_on() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", LONG, replicas=1)
    table = sm.tier_table(
        plan, sm.cache_tiers("hicache_3fs", plan), prefix_tokens=[256, 1024, 16384, 65536]
    )
    host, flash = (own for _, own in table.groupby("tier"))
    assert host.pays.all()
    assert flash.pays.tolist() == [False, False, True, True]
    assert (np.diff(host.load_s) > 0).all()
    assert (host.load_s.to_numpy() < flash.load_s.to_numpy()).all()


def test_no_failure_is_no_change_and_requests_outlive_some() -> None:
    plain = drawn(router="least_loaded")
    assert same(plain, drawn(router="least_loaded", failures=sm.Failures(restart_s=5.0)))
    found = drawn(router="least_loaded", failures=sm.Failures(mtbf_s=30.0, restart_s=5.0))
    summary, table = found.summary(), found.requests
    assert summary["failures"] > 0
    assert summary["lost"] == 0
    assert summary["retried"] == (table.retries > 0).sum() > 0
    assert summary["latency_p99_s"] > plain.summary()["latency_p99_s"]
    once = drawn(router="least_loaded", failures=sm.Failures(mtbf_s=30.0, max_retries=0))
    lost = once.requests[once.requests.why_refused == "lost"]
    assert len(lost) == once.summary()["lost"] > 0
    assert not lost.within_limits.any()


def test_urgent_tenants_wait_less_and_fairness_says_so() -> None:
    trace = conversations(2500, 200, 3)
    plan = plan_of(1)
    equal = sm.simulate_fleet(trace, plan)
    ordered = sm.simulate_fleet(trace, plan, priority={0: 0, 1: 1, 2: 1, 3: 1})
    before, after = (each.tenants.set_index("tenant").ttft_mean_s for each in (equal, ordered))
    assert after[0] < 0.5 * before[0]
    assert after[0] < after[1:].min()
    assert ordered.slowdown_fairness < equal.slowdown_fairness <= 1
    slow = equal.tenant_slowdowns
    assert slow.requests.sum() == len(trace)
    # A prompt that is found takes less than alone, where it is computed whole.
    assert (np.nan_to_num(equal.slowdowns, nan=1.0) > 0.3).all()
    column = np.where(trace.tenant == 0, 0, 1)
    assert same(ordered, sm.simulate_fleet(trace, plan, priority=column))


def test_alone_nobody_is_slowed_down() -> None:
    plan = plan_of(1)
    trace = RequestStream(1000.0 * np.arange(20), np.arange(100, 2100, 100), np.full(20, 50))
    found = sm.simulate_fleet(trace, plan)
    assert found.slowdowns == pytest.approx(np.ones(20))


def test_requests_are_turned_away_instead_of_waiting() -> None:
    trace, plan = conversations(2500, 200, 3), plan_of(1)
    shed = sm.simulate_fleet(trace, plan, shedding=sm.Shedding(queue=5.0))
    open_ = sm.simulate_fleet(trace, plan)
    assert shed.summary()["shed"] == shed.refused.sum() > 0
    assert shed.summary()["ttft_p99_s"] < 0.5 * open_.summary()["ttft_p99_s"]


def test_what_if_changes_what_it_says() -> None:
    drawn = conversations(600, 40, 3)
    trace = sm.Trace(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    table = sm.what_if_fleet(
        trace,
        plan_of(3),
        {"more": {"rate": 2}, "rack": {"lost": 1}, "grown": {"add": 2}},
        router="least_loaded",
    ).set_index("case")
    assert table.requests["more"] == pytest.approx(1200, rel=0.05)
    assert table.failures["rack"] == 1
    assert table.accelerators["grown"] == 5
    assert table.ttft_mean_s["rack"] > table.ttft_mean_s["as it is"] > table.ttft_mean_s["grown"]


def test_starts_are_slower_from_further_away() -> None:
    plan = plan_of(1)
    times = [sm.startup_s(plan, name) for name in ("peer", "disk", "object_store", "block_volume")]
    assert times == sorted(times)
    bare = [sm.startup_s(plan, "disk", schedule_s=0, warm_up_s=x) for x in (0, 10)]
    assert bare[1] - bare[0] == pytest.approx(10)


def test_what_is_wrong_is_named() -> None:
    plan = plan_of(1)
    for options, message in (
        ({"tiers": [1]}, "tiers: 1: must be of CacheTier"),
        ({"failures": 3}, "failures: 3: must be of Failures"),
        ({"priority": [1]}, "priority: must be whole numbers, one of each request"),
    ):
        with pytest.raises(sm.ScaleModelError, match=message):
            drawn(**options)
    plain = RequestStream([0.0], [10], [10])
    with pytest.raises(sm.ScaleModelError, match="priority: is by tenant, and the trace has none"):
        sm.simulate_fleet(plain, plan, priority={0: 1})
    with pytest.raises(sm.ScaleModelError, match="setup='x': must be one of"):
        sm.cache_tiers("x", plan)
    with pytest.raises(sm.ScaleModelError, match="source='x': must be one of"):
        sm.startup_s(plan, "x")
    with pytest.raises(sm.ScaleModelError, match="rate: the trace must be a Trace"):
        sm.what_if_fleet(plain, plan)
    with pytest.raises(sm.ScaleModelError, match="capacity_bytes: must be 1 numbers"):
        sm.cache_tiers("hicache", plan, capacity_bytes=[1, 2])


def test_requests_are_written_to_files_as_they_are(tmp_path: Path) -> None:
    served = drawn(tiers=sm.cache_tiers("hicache", plan_of(3)))
    served.write(tmp_path / "requests.csv")
    assert pd.read_csv(tmp_path / "requests.csv").finished_s.to_numpy() == pytest.approx(
        served.finished_s
    )
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    assert served.arrow().num_rows == len(served.stream)
    served.write(tmp_path / "requests.parquet")
    back = pd.read_parquet(tmp_path / "requests.parquet")
    pd.testing.assert_frame_equal(back, served.requests, check_dtype=False)
    served.write(tmp_path / "requests.arrow")
    with arrow.memory_map(str(tmp_path / "requests.arrow")) as source:
        assert arrow.ipc.open_file(source).read_all().equals(served.arrow())
    with pytest.raises(sm.ScaleModelError, match=r"must end in \.parquet or \.arrow or \.csv"):
        served.write(tmp_path / "requests.txt")


def studied(**options: Any) -> pd.DataFrame:
    trace, plan = conversations(600, 40, 3), plan_of(1)
    fleets = {f"{n} replicas": [(plan, n)] for n in (1, 2, 3)}
    routers = ("least_loaded", "prefix_aware")
    tiers = sm.cache_tiers("hicache_mooncake", plan, replicas=2)
    failures = sm.Failures(mtbf_s=20.0, restart_s=2.0)
    found = sm.study_fleets(
        trace, fleets, routers=routers, tiers=tiers, failures=failures, **options
    )
    assert found.fleet.tolist() == [name for name in fleets for _ in routers]
    return found


def same_tables(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """Every bit."""
    pd.testing.assert_frame_equal(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("shards", [None, 1, 4, 100])
def test_a_study_is_the_same_whoever_runs_it(shards: int | None) -> None:
    alone = studied()
    same_tables(alone, studied(shards=shards))
    with ThreadPoolExecutor(2) as pool:
        same_tables(alone, studied(executor=pool, shards=shards))
    with ProcessPoolExecutor(1) as pool:
        same_tables(alone, studied(executor=pool, shards=shards))
    with pytest.raises(sm.ScaleModelError, match="shards=0: must be a whole number"):
        studied(shards=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask and what it brings along
def test_a_study_is_the_same_on_workers_of_dask() -> None:
    distributed = pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    quiet = {"dashboard_address": None, "silence_logs": "CRITICAL", "host": "127.0.0.1"}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **quiet) as own,
        distributed.Client(own) as client,
        client.get_executor() as pool,
    ):
        assert pool.submit(os.getpid).result() != os.getpid()
        for shards in (None, 2):
            same_tables(studied(), studied(executor=pool, shards=shards))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray and what it brings along
def test_a_study_is_the_same_on_workers_of_ray() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")

    class Pool:
        """What notebooks/README.md makes of Ray."""

        def map(self, function: Any, *columns: Any) -> Any:
            task = ray.remote(function)
            return iter(ray.get([task.remote(*row) for row in zip(*columns, strict=True)]))

    found_by = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}
    quiet = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    ray.init(num_cpus=1, runtime_env=found_by, **quiet)
    try:
        same_tables(studied(), studied(executor=Pool(), shards=2))
    finally:
        ray.shutdown()
