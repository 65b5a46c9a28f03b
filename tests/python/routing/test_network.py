"""Training jobs on networks: tables, placements, several jobs, errors, the command line."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import resolve
from scalemodel.cli import MALFORMED, OK, main

TASK = sm.Training(global_batch=256, sequence=4096)
PLAN = sm.Strategy(tp=2)
QUESTION = ["llama3_8b", "--cluster", "dgx_h100", "--nodes", "8"]
QUESTION += ["--global-batch", "256", "--sequence", "4096", "--tp", "2"]


@pytest.fixture
def cluster() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=8)


def leaves(cluster: sm.Cluster, spines: int = 8) -> sm.Fabric:
    """One leaf per server: everything that leaves it takes a spine."""
    return sm.Fabric.leaf_spine(
        leaves=8,
        spines=spines,
        nics_per_leaf=8,
        bandwidth=cluster.core.fabric.bandwidth_bytes_per_s,
    )


# ----------------------------------------------------------------------------------------- traffic
def test_a_ring_of_replicas_sends_what_a_reduction_and_a_gather_take(cluster: sm.Cluster) -> None:
    frame = sm.traffic("llama3_8b", cluster, TASK, sm.Strategy(tp=8))
    assert set(frame.pattern) == {"ring"}
    assert frame.period.unique().tolist() == ["step"]
    assert (frame.source % 8 == frame.destination % 8).all()
    assert frame.groupby("group").size().tolist() == [8] * 8
    # A share of 1/8 of 8.03e9 parameters, 4 bytes reduced and 2 gathered, 7/8 of it to the next.
    assert frame.size_bytes.iloc[0] == pytest.approx(8.03e9 / 8 * 6 * 7 / 8, rel=0.002)


def test_stages_send_every_micro_batch(cluster: sm.Cluster) -> None:
    plan = sm.Strategy(tp=8, pp=4)
    frame = sm.traffic("llama3_8b", cluster, TASK, plan)
    hops = frame[frame.phase == "pp"]
    assert hops.period.unique().tolist() == ["micro_batch"]
    assert hops.times_per_step.unique().tolist() == [128.0]
    assert len(hops) == 2 * 8 * 2 * 3
    assert hops.size_bytes.unique().tolist() == [4096 * 4096 * 2 / 8]


def test_experts_exchange_over_rails_unless_told_otherwise(cluster: sm.Cluster) -> None:
    plan = sm.Strategy(ep=16)
    aligned, direct = (
        sm.traffic("deepseek_v3", cluster, TASK, plan, rails=rails).query("phase == 'ep'")
        for rails in (True, False)
    )
    assert (aligned.source % 8 == aligned.destination % 8).all()
    assert not (direct.source % 8 == direct.destination % 8).all()
    assert len(direct) == 8 * len(aligned)


def test_given_nics_are_taken_and_random_ones_follow_the_seed(cluster: sm.Cluster) -> None:
    backwards = list(range(63, -1, -1))
    given = sm.traffic("llama3_8b", cluster, TASK, PLAN, placement=backwards)
    packed = sm.traffic("llama3_8b", cluster, TASK, PLAN)
    assert (63 - given.source == packed.source).all()
    one, again, other = (
        sm.traffic("llama3_8b", cluster, TASK, PLAN, placement="random_servers", seed=seed)
        for seed in (1, 1, 2)
    )
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)
    assert (one.source % 8 == one.destination % 8).all()


def test_traffic_runs_on_the_network_simulator(cluster: sm.Cluster) -> None:
    frame = sm.traffic("llama3_8b", cluster, TASK, sm.Strategy(tp=8))
    runs = sm.simulate_network(leaves(cluster), frame, epochs=1)
    wire_s = frame.size_bytes.max() / cluster.core.fabric.bandwidth_bytes_per_s
    assert runs.time_s.tolist() == pytest.approx([wire_s])


def test_one_server_has_no_traffic() -> None:
    alone = sm.cluster("dgx_h100", nodes=1)
    frame = sm.traffic("llama3_8b", alone, TASK, PLAN)
    assert len(frame) == 0
    report = sm.route(alone, [("llama3_8b", PLAN, TASK)])
    assert set(report.shares().values()) == {1.0}
    assert report.verdict == "ok"
    assert len(report.effective()) == len(report.flows()) == 0


# ------------------------------------------------------------------------------------- the report
def test_fewer_spines_leave_their_part_and_the_step_pays_it(cluster: sm.Cluster) -> None:
    job = ("llama3_8b", PLAN, TASK)
    steps = {}
    for spines in (8, 4, 2):
        report = sm.route(cluster, [job], fabric=leaves(cluster, spines))
        assert report.shares()["dp"] == pytest.approx(spines / 8)
        est = sm.estimate("llama3_8b", cluster, TASK, PLAN, network=report)
        steps[spines] = est.step_time_s
        assert est.cluster.core.fabric.shares.dp == pytest.approx(spines / 8)
    assert steps[8] < steps[4] < steps[2]
    # Half the bandwidth of the only axis that leaves a server is half the fabric.
    narrow = sm.cluster({"base": "dgx_h100", "fabric": {"bandwidth": "200 Gbit/s"}}, nodes=8)
    assert steps[4] == pytest.approx(sm.estimate("llama3_8b", narrow, TASK, PLAN).step_time_s)


def test_jobs_meet_on_the_network(cluster: sm.Cluster) -> None:
    plan = sm.Strategy(tp=2, dp=16)
    jobs: list[Any] = [
        {"model": "llama3_8b", "strategy": plan, "task": TASK, "name": name} for name in "ab"
    ]
    report = sm.route(cluster, jobs, fabric=leaves(cluster, spines=4), policy="spray")
    assert report.shares("a") == report.shares("b")
    alone = sm.route(cluster, jobs[:1], fabric=leaves(cluster, spines=4), policy="spray")
    assert alone.shares("a")["dp"] == report.shares("a")["dp"] == pytest.approx(0.5)
    assert set(report.flows().job) == {"a", "b"}
    assert report.flows().rate_bytes_per_s.notna().all()
    nics = [set(part.source) for _, part in report.flows().groupby("job")]
    assert not nics[0] & nics[1]
    with pytest.raises(sm.ScaleModelError, match="2 jobs"):
        sm.estimate("llama3_8b", cluster, TASK, PLAN, network=report)
    with pytest.raises(sm.ScaleModelError, match="one of a, b"):
        report.shares("c")
    mapping = report.to_dict()["shares"]["b"]
    assert sm.estimate("llama3_8b", cluster, TASK, PLAN, network=mapping).fits


def test_a_network_without_paths_is_a_verdict_and_no_share(cluster: sm.Cluster) -> None:
    fabric = leaves(cluster).failed(spines=range(8))
    report = sm.route(cluster, [("llama3_8b", PLAN, TASK)], fabric=fabric)
    assert report.verdict == "illegal:disconnected"
    assert report.to_dict()["shares"] == {}
    with pytest.raises(sm.ScaleModelError, match="no path"):
        report.shares()


def test_paths_over_more_groups_add_latency() -> None:
    cluster = sm.cluster({"base": "dgx_h100", "node": {"accelerators": 2}}, nodes=36)
    job = ("llama3_8b", sm.Strategy(), sm.Training(global_batch=72, sequence=4096))
    added = []
    for latency_s in (0.0, 1e-6):
        fabric = sm.Fabric.dragonfly(
            routers=4,
            nics=2,
            global_cables=2,
            bandwidth="400 Gbit/s",
            global_latency_s=latency_s,
        )
        report = sm.route(cluster, [job], fabric=fabric, policy="greedy", placement="random_nics")
        added.append(report.effective().added_latency_s.max())
    # Of paths of three hops between routers some cross one cable between groups, some two.
    assert added == pytest.approx([0.0, 1e-6])


def test_shares_travel_with_the_question(cluster: sm.Cluster) -> None:
    network = {"dp": 0.25}
    est = sm.estimate("llama3_8b", cluster, TASK, PLAN, network=network)
    assert pickle.loads(pickle.dumps(est)) == est
    assert est != sm.estimate("llama3_8b", cluster, TASK, PLAN)
    assert est.timeline().step_time_s == pytest.approx(est.step_time_s, rel=0.01)
    inputs = est.explain("exposed_dp").inputs
    assert inputs["fabric_share_fraction"] == 0.25
    assert "dp 0.25" in str(est.explain().inputs["network"])
    ideal = sm.estimate("llama3_8b", cluster, TASK, PLAN)
    assert "ideal fabric assumed" in str(ideal.explain().inputs["network"])
    assert resolve.with_network(est.cluster, {}) == cluster
    assert resolve.with_network(cluster, None) is cluster


# ------------------------------------------------------------------------------------ the entries
@pytest.mark.parametrize(
    ("name", "nodes", "made"),
    [
        ("dgx_h100", 64, "rail_optimised"),
        ("dgx_h100", 16, "rail_only"),
        ("meta_24k_roce", 16, "leaf_spine"),
        ("meta_24k_roce", 768, "leaf_spine"),
        ("aws_p5", 40, "rail_optimised"),
    ],
)
def test_a_cluster_names_its_fabric(name: str, nodes: int, made: str) -> None:
    cluster = sm.cluster(name, nodes=nodes)
    fabric = sm.Fabric.of_cluster(cluster)
    assert (fabric.name, fabric.nics) == (made, 8 * nodes)


def test_pods_are_leaves_beyond_one_pod() -> None:
    fabric = sm.Fabric.of_cluster(sm.cluster("meta_24k_roce", nodes=768))
    assert fabric.core.leaves == 2
    assert fabric.core.planes == round(3072 / 7)


def test_a_fat_tree_is_as_large_as_it_must_be() -> None:
    base = {"base": "dgx_h100", "fabric": {"topology": {"builder": "fat_tree"}}}
    fabric = sm.Fabric.of_cluster(sm.cluster(base, nodes=16))
    assert (fabric.name, fabric.nics) == ("fat_tree", 128)


@pytest.mark.parametrize(
    ("topology", "match"),
    [
        ({"builder": "ring"}, "builder='ring': must be one of"),
        ({"builder": "leaf_spine", "servers_per_unit": 4}, "unknown key"),
        ({"builder": "leaf_spine", "nics_per_leaf": 0}, "positive whole number"),
        ("leaf_spine", "must be a table"),
    ],
)
def test_a_malformed_topology_is_refused(topology: object, match: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        sm.cluster({"base": "dgx_h100", "fabric": {"topology": topology}})


def test_every_topology_of_the_catalogue_says_where_it_was_published() -> None:
    found = 0
    for name in sm.list_catalog("clusters").name:
        table = resolve.cluster(name).table.get("fabric", {}).get("topology")
        if table:
            found += 1
            assert table["source"]
    assert found >= 8


# ----------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("network", "match"),
    [
        ({"xp": 0.5}, "xp: unknown axis"),
        ({"dp": 0}, "above 0"),
        ({"dp": 1.5}, "at most 1"),
        ({"dp": float("nan")}, "above 0"),
        ({"dp": True}, "above 0"),
        (0.5, "must be what sm.route reports"),
    ],
)
def test_malformed_shares_are_refused(cluster: sm.Cluster, network: Any, match: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        sm.estimate("llama3_8b", cluster, TASK, PLAN, network=network)


@pytest.mark.parametrize(
    ("job", "match"),
    [
        (("llama3_8b", PLAN), "must be"),
        ({"strategy": PLAN, "task": TASK}, "no key 'model'"),
        ({"model": "llama3_8b", "strategy": PLAN, "task": TASK, "size": 3}, "'size' is no key"),
        (("llama3_8b", sm.Strategy(tp=3), TASK), "tp"),
        (("llama3_8b", PLAN, TASK, 128), "needs 128 NICs"),
        (("llama3_8b", PLAN, TASK, [0, 0]), "taken twice"),
        (("llama3_8b", PLAN, TASK, [0, 64]), "0 to 63"),
        (("llama3_8b", PLAN, TASK, "spread"), "must be one of"),
    ],
)
def test_malformed_jobs_are_named(cluster: sm.Cluster, job: Any, match: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        sm.route(cluster, [job])


def test_jobs_need_a_cluster_sizes_and_names_of_their_own(cluster: sm.Cluster) -> None:
    job = ("llama3_8b", PLAN, TASK)
    with pytest.raises(sm.ScaleModelError, match="need a cluster"):
        sm.route(leaves(cluster), [job])
    with pytest.raises(sm.ScaleModelError, match="how many accelerators"):
        sm.route(cluster, [job, job])
    with pytest.raises(sm.ScaleModelError, match="policy='milp'"):
        sm.route(cluster, [job], policy="milp")
    with pytest.raises(sm.ScaleModelError, match="is for training jobs"):
        sm.route(cluster, sm.traffic("llama3_8b", cluster, TASK, PLAN), fabric=leaves(cluster))
    named = {"model": "llama3_8b", "strategy": sm.Strategy(dp=8), "task": TASK, "name": "a"}
    with pytest.raises(sm.ScaleModelError, match="two jobs"):
        sm.route(cluster, [named, named])


# ----------------------------------------------------------------------------------- command line
def test_the_command_routes_a_strategy_and_reads_shares(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["estimate", *QUESTION, "--network", "balanced", "--json"]) == OK
    routed = json.loads(capsys.readouterr().out)
    assert routed["network"] == {"tp": 1.0, "cp": 1.0, "ep": 1.0, "pp": 1.0, "dp": 1.0}
    assert main(["estimate", *QUESTION, "--network", "dp=0.5"]) == OK
    assert "network routed fabric: shares of the ideal bandwidth dp 0.5" in capsys.readouterr().out
    assert main(["estimate", *QUESTION, "--network", "dp=0.5", "--json"]) == OK
    text = capsys.readouterr().out
    slower = json.loads(text)
    assert slower["step_time_s"] > routed["step_time_s"]
    file = tmp_path / "shares.json"
    file.write_text(text, encoding="utf-8")
    one = ["search", *QUESTION, "--pp", "1", "--cp", "1", "--vpp", "1", "--json"]
    bests = []
    for network in ([], ["--network", str(file)], ["--network", "dp=0.5"]):
        assert main([*one, *network]) == OK
        bests.append(json.loads(capsys.readouterr().out)["ranking"][0]["step_time_s"])
    assert bests[0] < bests[1] == bests[2] <= slower["step_time_s"]


@pytest.mark.parametrize(
    ("command", "network", "match"),
    [
        ("search", "ecmp", "a policy routes one strategy"),
        ("estimate", "dp=fast", "must be like dp=0.5"),
        ("estimate", "missing.json", "cannot be read"),
        ("estimate", "xp=0.5", "unknown axis"),
        ("estimate", "widest", "policy='widest'"),
    ],
)
def test_a_malformed_network_is_one_line(
    capsys: pytest.CaptureFixture[str], command: str, network: str, match: str
) -> None:
    code: object
    try:
        code = main([command, *QUESTION, "--network", network])
    except SystemExit as left:
        code = left.code
    assert code == MALFORMED
    error = capsys.readouterr().err
    assert match in error
    assert error.count("\n") == 1
