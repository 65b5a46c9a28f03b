"""Phases that follow each other or overlap on the network, and the traffic of checkpoints."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

TASK = sm.Training(global_batch=256, sequence=4096)
PIPELINE = sm.Strategy(tp=4, pp=4)
#: A rank's NIC each, and a rack of storage hosts behind them.
NICS, HOSTS = 64, list(range(64, 72))


@pytest.fixture(scope="module")
def cluster() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=8)


@pytest.fixture(scope="module")
def fabric(cluster: sm.Cluster) -> sm.Fabric:
    return sm.Fabric.leaf_spine(
        leaves=9,
        spines=8,
        nics_per_leaf=8,
        bandwidth=cluster.core.fabric.bandwidth_bytes_per_s,
    )


def phases(runs: pd.DataFrame) -> dict[str, float]:
    """Seconds of every phase."""
    said = runs.attrs["phases"]
    ends = zip(said["phase"], said["start_s"], said["end_s"], strict=True)
    return {name: end - start for name, start, end in ends}


# ------------------------------------------------------------------------------------- simulation
def test_phases_follow_each_other_unless_they_overlap(
    cluster: sm.Cluster, fabric: sm.Fabric
) -> None:
    sent = sm.traffic("llama3_8b", cluster, TASK, PIPELINE)
    apart = sm.simulate_network(fabric, sent, epochs=1, overlap=[])
    beside = sm.simulate_network(fabric, sent, epochs=1, overlap=[("dp", "pp")])
    assert set(phases(apart)) == {"dp", "pp"}
    assert set(phases(beside)) == {"dp+pp"}
    assert sum(phases(apart).values()) == pytest.approx(apart.time_s[0])
    # Ports are the bottleneck of both: what overlaps takes at most as long, at least the longer.
    assert beside.time_s[0] <= apart.time_s[0] * (1 + 1e-9)
    assert beside.time_s[0] >= max(phases(apart).values()) * (1 - 1e-9)


def test_a_phase_alone_takes_what_it_took_before(cluster: sm.Cluster, fabric: sm.Fabric) -> None:
    sent = sm.traffic("llama3_8b", cluster, TASK, sm.Strategy(tp=8))
    assert set(sent.phase) == {"dp"}
    plain = sm.simulate_network(fabric, sent, epochs=3)
    phased = sm.simulate_network(fabric, sent, epochs=3, overlap=[])
    pd.testing.assert_frame_equal(plain, phased)
    assert phased.attrs["phases"]["epoch"] == [0, 1, 2]


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.floats(1e6, 1e9), min_size=2, max_size=5),
    overlapping=st.booleans(),
    every_s=st.sampled_from([0.0, 0.01]),
)
def test_bytes_are_conserved_phase_by_phase(
    sizes: list[float], overlapping: bool, every_s: float
) -> None:
    rows = [("a", f"p{n}", n % 4, 4 + n, size) for n, size in enumerate(sizes)]
    frame = pd.DataFrame(rows, columns=["job", "phase", "source", "destination", "size_bytes"])
    overlap = [frame.phase.tolist()] if overlapping else []
    runs = sm.simulate_network(
        sm.Fabric.leaf_spine(leaves=3, spines=2, nics_per_leaf=4),
        frame,
        epochs=2,
        overlap=overlap,
        reoptimise_every_s=every_s,
    )
    assert runs.attrs["delivered_bytes"] == pytest.approx([2 * sum(sizes)])
    assert runs.attrs["moved_bytes"] == pytest.approx([2 * sum(sizes)])
    said = runs.attrs["phases"]
    assert len(said["phase"]) == 2 * (1 if overlapping else len(sizes))
    for before, after in zip(said["end_s"], said["start_s"][1:], strict=False):
        assert before <= after * (1 + 1e-12)
    assert (runs.slowdown >= 1 - 1e-9).all()


def test_other_jobs_run_in_the_gaps() -> None:
    """While one job is in a phase elsewhere, its links are free."""
    rows = [("a", "x", 0, 4, 1e9), ("a", "y", 1, 5, 1e9), ("b", "x", 1, 5, 1e9)]
    frame = pd.DataFrame(rows, columns=["job", "phase", "source", "destination", "size_bytes"])
    fabric = sm.Fabric.leaf_spine(leaves=2, spines=3, nics_per_leaf=4)
    runs = sm.simulate_network(fabric, frame, epochs=1, overlap=[])
    assert runs.slowdown.tolist() == pytest.approx([1.0, 1.0])
    together = sm.simulate_network(fabric, frame, epochs=1, overlap=[("x", "y")])
    assert together.slowdown.max() == pytest.approx(2.0)


# ------------------------------------------------------------------------------------------ rates
def test_overlapping_axes_share_their_ports(cluster: sm.Cluster) -> None:
    job = ("llama3_8b", PIPELINE, TASK)
    apart, beside = sm.route(cluster, [job]), sm.route(cluster, [job], overlap=[("dp", "pp")])
    assert set(apart.shares().values()) == {1.0}
    shares = beside.shares()
    # No more than two axes share a port, so that neither loses more than half.
    assert 0.5 <= shares["dp"] < 1
    assert 0.5 <= shares["pp"] < 1
    slow = sm.estimate("llama3_8b", cluster, TASK, PIPELINE, network=beside)
    assert slow.step_time_s > sm.estimate("llama3_8b", cluster, TASK, PIPELINE).step_time_s


def test_axes_without_traffic_overlap_with_nobody(cluster: sm.Cluster) -> None:
    job = ("llama3_8b", PIPELINE, TASK)
    report = sm.route(cluster, [job], overlap=[("dp", "ep")])
    assert report.shares() == sm.route(cluster, [job]).shares()


# ------------------------------------------------------------------------------------ checkpoints
@pytest.mark.parametrize(
    "plan",
    [
        sm.Strategy(tp=8, sharding="ddp"),
        sm.Strategy(tp=4, pp=4),
        sm.Strategy(tp=2, pp=2, vpp=2, sharding="zero1"),
        sm.Strategy(sharding="zero3"),
    ],
)
def test_every_parameter_is_written_once(cluster: sm.Cluster, plan: sm.Strategy) -> None:
    sent = sm.traffic(
        "llama3_8b", cluster, TASK, plan, checkpoint_to=HOSTS, checkpoint_every_s=600.0
    ).query("phase == 'checkpoint'")
    assert sorted(sent.source) == list(range(NICS))
    assert sent.destination.isin(HOSTS).all()
    # 8.03e9 parameters: 2 bytes of weight, 4 of master weight, 8 of moments.
    assert sent.size_bytes.sum() == pytest.approx(14 * 8.03e9, rel=0.002)
    step_s = sm.estimate("llama3_8b", cluster, TASK, plan).step_time_s
    assert sent.times_per_step.unique().tolist() == pytest.approx([step_s / 600])
    assert sent.groupby("destination").size().tolist() == [NICS // len(HOSTS)] * len(HOSTS)


def test_experts_are_written_once_too(cluster: sm.Cluster) -> None:
    plans = [sm.Strategy(ep=8), sm.Strategy(ep=1, sharding="zero3")]
    sums = [
        sm.traffic("mixtral_8x7b", cluster, TASK, plan, checkpoint_to=[64], checkpoint_every_s=1.0)
        .query("phase == 'checkpoint'")
        .size_bytes.sum()
        for plan in plans
    ]
    assert sums[0] == pytest.approx(sums[1], rel=1e-9)


def test_frozen_weights_are_not_written(cluster: sm.Cluster) -> None:
    tuned = sm.FineTuning(method="lora", global_batch=256, sequence=4096)
    sent = sm.traffic(
        "llama3_8b", cluster, tuned, sm.Strategy(), checkpoint_to=HOSTS, checkpoint_every_s=60.0
    ).query("phase == 'checkpoint'")
    assert 0 < sent.size_bytes.sum() < 0.02 * 14 * 8.03e9


def test_a_checkpoint_beside_training_slows_what_shares_its_ports(
    cluster: sm.Cluster, fabric: sm.Fabric
) -> None:
    plan = sm.Strategy(tp=8)
    sent = sm.traffic(
        "llama3_8b", cluster, TASK, plan, checkpoint_to=HOSTS, checkpoint_every_s=60.0
    )
    alone = sm.simulate_network(fabric, sent[sent.phase == "dp"], epochs=1, overlap=[])
    beside = sm.simulate_network(fabric, sent, epochs=1, overlap=[("dp", "checkpoint")])
    after = sm.simulate_network(fabric, sent, epochs=1, overlap=[])
    assert alone.time_s[0] < beside.time_s[0] <= after.time_s[0] * (1 + 1e-9)


# ----------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"checkpoint_to": [63], "checkpoint_every_s": 1.0}, "checkpoint_to=63"),
        ({"checkpoint_to": [-1], "checkpoint_every_s": 1.0}, "checkpoint_to=-1"),
        ({"checkpoint_to": [64]}, "checkpoint_every_s=0"),
    ],
)
def test_malformed_checkpoints_are_named(
    cluster: sm.Cluster, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        sm.traffic("llama3_8b", cluster, TASK, PIPELINE, **options)


def test_malformed_overlaps_are_named(cluster: sm.Cluster, fabric: sm.Fabric) -> None:
    sent = sm.traffic("llama3_8b", cluster, TASK, PIPELINE)
    for overlap, match in ([("dp", "xp")], "no phase"), ([("dp",), ("dp", "pp")], "twice"):
        with pytest.raises(sm.ScaleModelError, match=match):
            sm.simulate_network(fabric, sent, overlap=overlap)
    with pytest.raises(sm.ScaleModelError, match="no column 'phase'"):
        sm.simulate_network(fabric, sent.drop(columns="phase"), overlap=[])
    with pytest.raises(sm.ScaleModelError, match="tables of flows"):
        sm.simulate_network(fabric, sm.Traffic.paper_mix(sm.Fabric.leaf_spine()), overlap=[])
    job = ("llama3_8b", PIPELINE, TASK)
    for overlap, match in ([("dp", "xp")], "no phase"), ([("dp",), ("dp", "pp")], "twice"):
        with pytest.raises(sm.ScaleModelError, match=match):
            sm.route(cluster, [job], overlap=overlap)
    with pytest.raises(sm.ScaleModelError, match="training jobs"):
        sm.route(fabric, sent, overlap=[("dp", "pp")])
