"""Checkpoints against published sizes and times, and what each tier and mode must obey."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.economics.storage import (
    checkpoint_sizes,
    host_link_bytes_per_s,
    network_bytes_per_s,
)

GIB = 2**30


def estimate_of(model: str, nodes: int, strategy: sm.Strategy, **task: Any) -> sm.Estimate:
    asked = {"global_batch": 512, "sequence": 4096} | task
    return sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), sm.Training(**asked), strategy)


@pytest.fixture(scope="module")
def est() -> sm.Estimate:
    return estimate_of("llama3_70b", 32, sm.Strategy(tp=8, pp=4), global_batch=1024)


@pytest.fixture(scope="module")
def table(est: sm.Estimate) -> pd.DataFrame:
    return sm.plan_checkpoints(est).set_index(["tier", "mode"])


# MLPerf Storage v2.0, submission guidelines, table 2, in its layouts; what it calls GB are GiB. The
# last is that of a card of Megatron-Bridge.
@pytest.mark.parametrize(
    ("model", "nodes", "strategy", "published_gib"),
    [
        ("llama3_8b", 1, sm.Strategy(sharding="zero3"), 105),
        ("llama3_70b", 8, sm.Strategy(sharding="zero3", recompute="full"), 912),
        ("llama3_405b", 64, sm.Strategy(tp=8, pp=32, sharding="zero1"), 5290),
        ("nemotron_3_5_lightning", 8, sm.Strategy(sharding="zero3", recompute="full"), 430),
    ],
)
def test_published_sizes_of_checkpoints(
    model: str, nodes: int, strategy: sm.Strategy, published_gib: float
) -> None:
    size = checkpoint_sizes(estimate_of(model, nodes, strategy))[0]
    assert size / GIB == pytest.approx(published_gib, rel=0.01)


def test_a_checkpoint_holds_every_state_once_whatever_the_sharding() -> None:
    sizes = [
        checkpoint_sizes(estimate_of("llama3_8b", 4, sm.Strategy(sharding=sharding, tp=8)))
        for sharding in ("ddp", "zero1", "zero3", "hsdp")
    ]
    for every, rank, node in sizes:
        assert every == pytest.approx(sizes[0][0], rel=1e-6)
        assert rank <= node <= every
        assert node >= every / 4 * (1 - 1e-9)


def test_copies_take_a_part_of_the_published_standstill() -> None:
    # pytorch.org, 2025-04-30: 0.78 s at 1856 H200, Llama 3 70B with HSDP. The catalogue takes all
    # of it for planning, so the copy itself must be far below it.
    cluster = sm.cluster("dgx_h200", nodes=232)
    task = sm.Training(global_batch=1856, sequence=4096)
    strategy = sm.Strategy(sharding="hsdp", shard_degree=64, recompute="full")
    est = sm.estimate("llama3_70b", cluster, task, strategy)
    row = sm.plan_checkpoints(est, tiers=["shared_file_system"], planning_s=0).iloc[1]
    assert 0 < row.blocking_s < 0.1 * 0.78


def test_synchronous_checkpoints_take_the_slower_of_nodes_and_storage(
    est: sm.Estimate, table: pd.DataFrame
) -> None:
    every, rank, node = checkpoint_sizes(est)
    planning_s = 0.78
    file_system = table.loc[("shared_file_system", "synchronous")]
    assert file_system.blocking_s == pytest.approx(planning_s + every / 20e9)
    alone = sm.plan_checkpoints(est, tiers={"shared_file_system": 1e9}, shared_bytes_per_s=0)
    assert alone.blocking_s[0] == pytest.approx(planning_s + node / 1e9)
    staged = planning_s + rank / host_link_bytes_per_s(est.cluster)
    for tier in ("host_memory", "local_disk", "shared_file_system", "object_store"):
        assert table.blocking_s[(tier, "asynchronous")] == pytest.approx(staged)
    copied = table.loc[("host_memory", "asynchronous")]
    assert copied.background_s == pytest.approx(node / network_bytes_per_s(est.cluster))


def test_one_tier_is_as_productive_as_its_reliability(
    est: sm.Estimate, table: pd.DataFrame
) -> None:
    row = table.loc[("object_store", "asynchronous")]
    same = sm.reliability(
        est, write_s=row.blocking_s, background_s=row.background_s, restart_s=300 + row.reload_s
    )
    assert row.interval_s == pytest.approx(same.interval_s)
    assert row.productive_fraction == pytest.approx(same.ettr_fraction)


def test_intervals_are_no_shorter_than_a_write_and_a_step(est: sm.Estimate) -> None:
    slow = sm.plan_checkpoints(est, tiers={"object_store": 1e7}, failures=1.0)
    assert slow.interval_s[1] == slow.least_interval_s[1] == slow.background_s[1]
    asked = sm.plan_checkpoints(est, tiers={"object_store": 1e7}, interval=60.0)
    assert list(asked.verdict) == ["ok", "too_often"]
    assert "interval=60 s" in asked.reason[1]


def test_a_mix_pays_where_storage_is_slow_and_failures_are_many(est: sm.Estimate) -> None:
    tiers = {"local_disk": 13e9, "object_store": 2e7}
    found = sm.plan_checkpoints(est, tiers=tiers, failures=0.1)
    assert found.tier[found.best].tolist() == ["local_disk + object_store"]
    alone = sm.plan_checkpoints(est, tiers=tiers, failures=0.1, beyond_copies_fraction=0)
    # Copies that every failure leaves need no storage.
    assert alone.tier[alone.best].tolist() == ["local_disk"]


def test_what_cannot_be_written_says_why(est: sm.Estimate) -> None:
    many = sm.plan_checkpoints(est, copies=31).set_index(["tier", "mode"])
    assert many.verdict[("host_memory", "synchronous")] == "host_memory"
    assert "training leaves" in many.reason[("host_memory", "synchronous")]
    none = sm.plan_checkpoints(est, copies=0).set_index(["tier", "mode"])
    assert none.verdict[("local_disk", "asynchronous")] == "not_durable"
    assert none.verdict[("local_disk + object_store", "asynchronous")] == "not_durable"
    assert none.verdict[("object_store", "asynchronous")] == "ok"
    lone = estimate_of("llama3_8b", 1, sm.Strategy(sharding="zero3"))
    assert sm.plan_checkpoints(lone).verdict[0] == "no_peers"


def test_a_job_that_never_fails_loses_nothing(est: sm.Estimate) -> None:
    table = sm.plan_checkpoints(est, failures=0.0)
    durable = table[table.verdict == "ok"]
    assert len(durable) == 8
    assert durable.productive_fraction.to_numpy() == pytest.approx(1.0)
    assert durable.writing_fraction.to_numpy() == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"tiers": ["tape"]}, "tiers='tape'"),
        ({"tiers": "local_disk"}, "tiers='local_disk'"),
        ({"tiers": {"host_memory": 1e9}}, "host_memory has no rate"),
        ({"copies": 0.5}, "copies=0.5"),
        ({"beyond_copies_fraction": 2}, "beyond_copies_fraction=2"),
        ({"interval": "often"}, "interval='often'"),
    ],
)
def test_bad_questions_name_the_argument(
    est: sm.Estimate, asked: dict[str, Any], named: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=named.replace("(", r"\(")):
        sm.plan_checkpoints(est, **asked)
