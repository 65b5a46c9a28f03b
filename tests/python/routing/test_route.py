"""Routing: published and recomputed instances, tables, failures, command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.cli import INFEASIBLE, MALFORMED, OK, main

GBIT = 1e9 / 8
SMALL = (
    "r1_two_rings_4tor_2spine",
    "r2_weighted_4tor_2spine",
    "r3_failures_4tor_4spine",
    "r4_greedy_suboptimal",
)
PAPER = ("r7_paper_5jobs_ring4_0failed", "r7_paper_5jobs_ring4_8failed")
#: Gbit/s of the slowest flow of every job, and of the mean flow, by policy.
PAPER_RATES = {
    PAPER[0]: {
        "ecmp": ([20, 20, 25, 20, 25], 63.117284, 5),
        "greedy": ([100, 50, 50, 100, 100], 98.148148, 2),
        "colouring": ([100, 100, 100, 100, 100], 100.0, 1),
    },
    PAPER[1]: {
        "ecmp": ([14.285714, 20, 20, 20, 25], 53.626543, 7),
        "greedy": ([50, 50, 50, 50, 50], 74.305556, 2),
        "colouring": ([50, 50, 50, 50, 50], None, 2),
    },
}


def flow_table(rows: Sequence[tuple[int, int, int, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["job", "source", "destination", "size_gbit"])
    frame["size_bytes"] = frame.pop("size_gbit") * GBIT
    return frame


def fabric_of(instance: dict[str, Any]) -> sm.Fabric:
    assert instance["host_link_gbps"] == instance["fabric_link_gbps"]
    leaves = instance["num_tors"]
    fabric = sm.Fabric.leaf_spine(
        leaves=leaves,
        spines=instance["num_spines"],
        nics_per_leaf=instance["hosts_per_tor"],
        bandwidth=instance["host_link_gbps"] * GBIT,
    )
    return fabric.failed(
        spines=instance.get("failed_spines", []),
        cables=[(leaf, leaves + spine) for leaf, spine in instance.get("failed_links", [])],
    )


def flows_of(instance: dict[str, Any]) -> pd.DataFrame:
    if "flows" in instance:
        return flow_table([tuple(flow.values()) for flow in instance["flows"]])
    sizes = instance["job_step_size_gbit"]
    return flow_table([(job, a, b, sizes[job]) for job, a, b in instance["flows_compact"]])


@pytest.fixture(scope="module")
def instances(corpora: Path) -> dict[str, dict[str, Any]]:
    folder = corpora / "routing_instances"
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def ask(instance: dict[str, Any], policy: str, **options: Any) -> sm.RoutingReport:
    return sm.route(fabric_of(instance), flows_of(instance), policy=policy, **options)


# ------------------------------------------------------------------------------ small instances
@pytest.mark.parametrize("name", SMALL)
def test_greedy_takes_the_published_order(instances: dict[str, Any], name: str) -> None:
    expected = instances[name]["results"]["greedy_mcvlc"]
    report = ask(instances[name], "greedy")
    assert report.flows().plane.tolist() == expected["assignment"]
    assert report.max_flows == expected["minmax_count"]
    assert report.columns["max_bytes"] == pytest.approx(expected["minmax_weighted_gbit"] * GBIT)
    values = sorted(report.columns["fair_steps_per_s"])
    assert values == pytest.approx(sorted(expected["job_value_fairshare_per_s"]), rel=1e-8)
    values = sorted(report.columns["allocated_steps_per_s"])
    assert values == pytest.approx(sorted(expected["job_value_allocated_per_s"]), rel=1e-8)


@pytest.mark.parametrize("policy", ["local_search", "exhaustive"])
@pytest.mark.parametrize("name", SMALL)
def test_searches_reach_both_layers_of_the_optimum(
    instances: dict[str, Any], name: str, policy: str
) -> None:
    expected = instances[name]["results"]["exhaustive"]
    allocated = ask(instances[name], policy, model="allocated")
    assert allocated.columns["max_bytes"] == pytest.approx(
        expected["opt_minmax_weighted_gbit"] * GBIT
    )
    assert allocated.values_steps_per_s == pytest.approx(
        expected["two_layer_allocated_sorted_job_values_per_s"], rel=1e-8
    )
    fair = ask(instances[name], policy, model="fair_share")
    assert fair.values_steps_per_s == pytest.approx(
        expected["two_layer_fairshare_sorted_job_values_per_s"], rel=1e-8
    )
    assert allocated.columns["bound_flows"] <= expected["opt_minmax_count"]
    assert allocated.assignment_s < 0.5  # about 10 ms; the machine may be busy


@pytest.mark.parametrize("name", SMALL)
def test_equal_sizes_reach_the_optimum_by_count(instances: dict[str, Any], name: str) -> None:
    """Sizes made equal, the allocated optimum is the optimum by number of flows."""
    instance = instances[name]
    frame = flows_of(instance)
    frame["size_bytes"] = 1e9
    report = sm.route(fabric_of(instance), frame, policy="local_search", model="allocated")
    assert report.max_flows == instance["results"]["exhaustive"]["opt_minmax_count"]


@pytest.mark.parametrize("name", SMALL)
def test_the_solver_proves_the_same_optimum(instances: dict[str, Any], name: str) -> None:
    pytest.importorskip("scipy")
    from scalemodel.routing.milp import least_drain

    expected = instances[name]["results"]["milp_minmax_weighted_gbit"]
    report = ask(instances[name], "milp")
    assert report.columns["max_bytes"] == pytest.approx(expected["obj"] * GBIT)
    assert report.columns["dual_bound_s"] == pytest.approx(report.drain_s)
    traffic = sm.Traffic.from_frame(flows_of(instances[name]))
    relaxed = least_drain(fabric_of(instances[name]), traffic, relaxed=True)
    capacity = instances[name]["fabric_link_gbps"]
    assert relaxed["objective_s"] == pytest.approx(expected["lp"] / capacity)


def test_the_flows_on_which_greedy_is_twice_as_bad() -> None:
    """Three leaves, two spines, a permutation: no data file needed."""
    fabric = sm.Fabric.leaf_spine(leaves=3, spines=2, nics_per_leaf=2)
    frame = flow_table([(0, 3, 5, 10), (1, 2, 0, 10), (0, 4, 2, 10), (1, 5, 1, 10)])
    greedy = sm.route(fabric, frame, policy="greedy")
    assert greedy.flows().plane.tolist() == [0, 1, 0, 0]
    assert (greedy.max_flows, greedy.values_steps_per_s) == (2, [5.0, 5.0])
    balanced = sm.route(fabric, frame, policy="balanced")
    assert (balanced.max_flows, balanced.values_steps_per_s) == (1, [10.0, 10.0])


def test_two_rings_where_one_of_them_can_run_freely() -> None:
    """Layer 1 leaves a choice: both jobs at half speed, or only one."""
    fabric = sm.Fabric.leaf_spine(leaves=4, spines=2, nics_per_leaf=4)
    rings = [(0, [0, 4, 8, 12]), (0, [1, 13, 9, 5]), (1, [2, 6, 14, 10])]
    rows = [
        (job, a, b, 10.0)
        for job, ring in rings
        for a, b in zip(ring, ring[1:] + ring[:1])  # noqa: B905
    ]
    for model in ("fair_share", "allocated"):
        report = sm.route(fabric, flow_table(rows), policy="local_search", model=model)
        assert report.values_steps_per_s == pytest.approx([5.0, 10.0])
        assert report.max_flows == 2
    greedy = sm.route(fabric, flow_table(rows), policy="greedy")
    assert greedy.values_steps_per_s == pytest.approx([5.0, 5.0])


# ------------------------------------------------------------------------------ paper's instances
@pytest.mark.parametrize("policy", ["ecmp", "greedy", "colouring"])
@pytest.mark.parametrize("name", PAPER)
def test_paper_instances(instances: dict[str, Any], name: str, policy: str) -> None:
    slowest, mean, load = PAPER_RATES[name][policy]
    report = ask(instances[name], policy)
    jobs = report.jobs()
    assert (jobs.slowest_bytes_per_s / GBIT).tolist() == pytest.approx(slowest, rel=1e-6)
    if mean is not None:
        assert report.flows().rate_bytes_per_s.mean() / GBIT == pytest.approx(mean, rel=1e-6)
    assert report.max_flows == load
    if policy == "colouring":
        assert load == instances[name]["results"]["opt_minmax_count"]
    stored = instances[name]["results"]
    other = {"colouring": "optimal"}.get(policy, policy)
    assert stored["job_min_flow_rate_gbps"][other] == pytest.approx(slowest, rel=1e-6)


@pytest.mark.parametrize("name", PAPER)
def test_stored_optimum_is_judged_as_stored(instances: dict[str, Any], name: str) -> None:
    import scalemodel._core as _core

    instance = instances[name]
    traffic = sm.Traffic.from_frame(flows_of(instance))
    path = np.array(instance["results"]["optimal_assignment"], dtype=np.int32)
    judged = _core.judge_routing(fabric_of(instance).core, traffic.core, path)
    assert judged["max_flows"] == instance["results"]["opt_minmax_count"]
    mean = judged["rate_bytes_per_s"].mean() / GBIT
    expected = instance["results"]["mean_flow_rate_gbps"]["optimal"]
    assert mean == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("jobs, ring", [(2, 2), (2, 4), (3, 8), (5, 4)])
def test_mean_slowdowns_over_placements(jobs: int, ring: int) -> None:
    """Without failures: balanced exactly one, greedy below two, ECMP four to six."""
    fabric = sm.Fabric.leaf_spine()
    means: dict[str, list[float]] = {"balanced": [], "greedy": [], "ecmp": []}
    for seed in range(20):
        traffic = sm.Traffic.paper_mix(fabric, jobs=jobs, ring=ring, seed=seed)
        for policy, of_policy in means.items():
            report = sm.route(fabric, traffic, policy=policy)
            of_policy.append(float(report.jobs().slowdown.mean()))
    assert set(means["balanced"]) == {1.0}
    assert 1.0 <= np.mean(means["greedy"]) < 2.0
    if ring == 2:
        assert set(means["greedy"]) == {1.0}
    assert 4.0 <= np.mean(means["ecmp"]) <= 6.0


@pytest.mark.parametrize("failed", [1, 4, 8])
def test_failed_spines_cost_a_factor_of_two(failed: int) -> None:
    """With a full leaf no single path does better; spraying does."""
    fabric = sm.Fabric.leaf_spine().failed(spines=range(32 - failed, 32))
    traffic = sm.Traffic.paper_mix(fabric, jobs=5, ring=4, seed=1)
    for policy in ("greedy", "colouring"):
        jobs = sm.route(fabric, traffic, policy=policy).jobs()
        assert jobs.slowdown.tolist() == pytest.approx([2.0] * 5)
    sprayed = sm.route(fabric, traffic, policy="spray")
    assert sprayed.jobs().slowdown.max() == pytest.approx(32 / (32 - failed))
    assert sprayed.gap_fraction <= 0


# ------------------------------------------------------------------------------------ the tables
@pytest.fixture(scope="module")
def report() -> sm.RoutingReport:
    fabric = sm.Fabric.leaf_spine(leaves=8, spines=4, nics_per_leaf=8)
    jobs = [
        {"pattern": "ring", "nics": list(range(0, 64, 8)), "size_bytes": "1 GB", "name": "data"},
        {"pattern": "all_to_all", "nics": [1, 9, 17, 25], "size_bytes": 1e8},
        {"pattern": "ring", "nics": [2, 3], "size_bytes": 1e8, "name": "local"},
    ]
    return sm.route(fabric, jobs, policy="ecmp")


def test_tables_agree_with_each_other(report: sm.RoutingReport) -> None:
    flows, jobs, links = report.flows(), report.jobs(), report.links()
    assert jobs.job.tolist() == ["data", "job 1", "local"]
    assert jobs.flows.tolist() == flows.groupby("job", sort=False).size().tolist()
    # What NICs send is what their links carry.
    sent = links[links.source_kind == "nic"].groupby("source_number").load_bytes.sum()
    expected = flows.groupby("source").size_bytes.sum()
    assert sent[sent > 0].to_dict() == pytest.approx(expected.to_dict())
    rates = links[links.source_kind == "nic"].groupby("source_number").rate_bytes_per_s.sum()
    expected = flows.groupby("source").rate_bytes_per_s.sum()
    assert rates[rates > 0].to_dict() == pytest.approx(expected.to_dict())
    assert links.utilisation_fraction.between(0, 1 + 1e-9).all()
    # Flow conservation at every switch.
    into = links.groupby("destination").load_bytes.sum()
    out = links.groupby("source").load_bytes.sum()
    switches = links.loc[links.source_kind != "nic", "source"].unique()
    assert into[switches].to_dict() == pytest.approx(out[switches].to_dict())
    assert flows.loc[flows.job == "local", "plane"].tolist() == [-1, -1]


def test_a_row_summarises_the_report(report: sm.RoutingReport) -> None:
    row = report.to_dict()
    assert row["verdict"] == report.verdict == "ok"
    assert row["flows"] == len(report.flows())
    assert row["slowdown_max"] == pytest.approx(report.jobs().slowdown.max())
    assert 0 < row["jain_fraction"] <= 1
    assert report.step_time_s == pytest.approx(1 / min(report.columns["fair_steps_per_s"]))
    assert "ecmp" in repr(report)


def test_disconnected_flows_are_an_answer() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=2).failed(spines=[0])
    jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]
    for policy in ("ecmp", "greedy", "balanced", "spray", "annealing", "subflow_ecmp"):
        report = sm.route(fabric, jobs, policy=policy)
        assert report.verdict == "illegal:disconnected"
        assert report.step_time_s == float("inf")
        assert report.jobs().slowdown.tolist() == [float("inf")]
    assert sm.simulate_network(fabric, jobs).attrs["verdict"] == "illegal:disconnected"


@pytest.mark.parametrize(
    "fabric",
    [
        sm.Fabric.fat_tree(ports=4),
        sm.Fabric.rail_only(servers=4, gpus=4),
        sm.Fabric.rail_optimised(servers=8, gpus=4, servers_per_unit=4, spines=4),
        sm.Fabric.dragonfly(routers=4, nics=2, global_cables=2),
        sm.Fabric.torus((4, 4)),
        sm.Fabric.scale_up_domain(nics=16),
        sm.Fabric.from_edges(16, [(i, (i + s) % 16, "50 GB/s") for i in range(16) for s in (1, 5)]),
    ],
    ids=lambda fabric: fabric.name,
)
def test_every_fabric_routes_every_pattern(fabric: sm.Fabric) -> None:
    nics = list(range(0, 16))
    jobs = [
        {"pattern": pattern, "nics": nics, "size_bytes": 1e8}
        for pattern in ("ring", "all_to_all", "chain", "double_binary_tree")
    ]
    drains = {}
    for policy in ("ecmp", "greedy", "balanced", "spray"):
        report = sm.route(fabric, jobs, policy=policy, effort=0.1)
        assert report.verdict == "ok"
        assert report.drain_s >= report.bound_s * (1 - 1e-9) or policy == "spray"
        assert (report.links().utilisation_fraction <= 1 + 1e-9).all()
        drains[policy] = report.drain_s
    assert drains["balanced"] <= drains["greedy"] * (1 + 1e-9)


def test_a_cluster_becomes_a_rail_optimised_fabric() -> None:
    cluster = sm.cluster("dgx_h100", nodes=64)
    jobs = [{"pattern": "ring", "nics": list(range(0, 512, 8)), "size_bytes": "1 GB"}]
    report = sm.route(cluster, jobs)
    assert report.fabric.nics == 512
    assert report.jobs().slowdown.tolist() == pytest.approx([1.0])
    rate = cluster.core.fabric.bandwidth_bytes_per_s
    assert report.jobs().slowest_bytes_per_s.tolist() == pytest.approx([rate])


# ------------------------------------------------------------------------------ network over time
def test_a_simulated_job_alone_takes_its_ideal_time() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=4, spines=4, nics_per_leaf=4)
    jobs = [{"pattern": "ring", "nics": [0, 4, 8, 12], "size_bytes": 4e9, "compute_s": "0.5 s"}]
    runs = sm.simulate_network(fabric, jobs, epochs=3, start_s=1.0, step_latency_s=0.0)
    assert runs.time_s.tolist() == pytest.approx([6 * 1e9 / 12.5e9] * 3)
    assert runs.slowdown.tolist() == pytest.approx([1.0] * 3)
    assert runs.start_s.diff()[1:].tolist() == pytest.approx([0.48 + 0.5] * 2)
    assert runs.attrs["delivered_bytes"] == [3 * 6 * 4 * 1e9]


def test_simulated_policies_keep_their_order() -> None:
    fabric = sm.Fabric.leaf_spine()
    traffic = sm.Traffic.paper_mix(fabric, jobs=5, ring=4, seed=3)
    slowdown = {}
    for policy in ("ecmp", "greedy", "colouring"):
        runs = sm.simulate_network(
            fabric, traffic, policy=policy, epochs=2, start_s=[1.0, 2.0, 4.0, 5.0, 8.0]
        )
        slowdown[policy] = runs.slowdown.mean()
        assert runs.attrs["moved_bytes"] == pytest.approx(runs.attrs["delivered_bytes"], rel=1e-9)
    assert slowdown["colouring"] == pytest.approx(1.0, rel=1e-6)
    assert slowdown["colouring"] < slowdown["greedy"] < slowdown["ecmp"]


# -------------------------------------------------------------------------------------- questions
FABRIC = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
JOBS = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]


@pytest.mark.parametrize(
    "change, named",
    [
        ({"policy": "fastest"}, "policy='fastest'"),
        ({"model": "quick"}, "model='quick'"),
        ({"jobs": [{"pattern": "star", "nics": [0, 2], "size_bytes": 1}]}, "pattern='star'"),
        ({"jobs": [{"pattern": "ring", "nics": [0, 2]}]}, "size_bytes"),
        ({"jobs": [{"pattern": "ring", "nics": [0, 9], "size_bytes": 1e9}]}, "0 to 3"),
        ({"jobs": [{"pattern": "ring", "nics": [1, 1], "size_bytes": 1e9}]}, "destination"),
        ({"jobs": [{**JOBS[0], "size_bytes": "1 GB/s"}]}, "size_bytes"),
        ({"jobs": [{**JOBS[0], "colour": "red"}]}, "colour"),
        ({"jobs": flow_table([(0, 0, 2, -1.0)])}, "size_bytes"),
        ({"jobs": flow_table([(0, 0, 2, float("nan"))])}, "size_bytes"),
        ({"jobs": pd.DataFrame({"job": [0]})}, "source"),
        ({"parts": 0}, "parts"),
        ({"effort": -1.0}, "effort"),
        ({"max_paths": 0}, "max_paths"),
    ],
)
def test_malformed_questions_name_the_argument(change: dict[str, Any], named: str) -> None:
    question: dict[str, Any] = {"jobs": JOBS} | change
    with pytest.raises(sm.ScaleModelError, match=named):
        sm.route(FABRIC, **question)


@pytest.mark.parametrize(
    "make, named",
    [
        (lambda: sm.Fabric.leaf_spine(leaves=0), "leaves"),
        (lambda: sm.Fabric.leaf_spine(bandwidth="100 GB"), "bandwidth"),
        (lambda: sm.Fabric.fat_tree(ports=5), "ports"),
        (lambda: sm.Fabric.torus((2, 2, 2, 2)), "shape"),
        (lambda: sm.Fabric.from_edges(2, [(0, 7, 1e9)]), "edges"),
        (lambda: FABRIC.failed(spines=[2]), "spine=2"),
        (lambda: FABRIC.failed(cables=[(0, 1)]), "not joined"),
        (lambda: FABRIC.failed(capacity={(0, 2): 1.5}), "capacity"),
        (lambda: sm.Traffic.paper_mix(FABRIC, jobs=4, ring=8), "ring=8"),
        (lambda: sm.Traffic.paper_mix(FABRIC), "NICs"),
        (lambda: sm.Traffic.paper_mix(sm.Fabric.leaf_spine(), accelerator="abacus"), "abacus"),
        (lambda: sm.Traffic.of_ring_jobs(FABRIC, [], placement="anywhere"), "placement"),
        (lambda: sm.simulate_network(FABRIC, JOBS, policy="milp"), "milp"),
        (lambda: sm.simulate_network(FABRIC, JOBS, epochs=0), "epochs"),
    ],
)
def test_malformed_fabrics_and_traffic(make: Any, named: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=named):
        make()


# ----------------------------------------------------------------------------------- command line
def test_command_compares_policies(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["route", "--jobs", "2", "--ring", "2", "--policy", "ecmp,greedy,balanced"]
    assert main([*asked, "--json"]) == OK
    rows = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in rows] == ["ecmp", "greedy", "balanced"]
    assert rows[2]["slowdown_mean"] == 1.0
    assert [job["job"] for job in rows[0]["jobs"]] == ["bloom", "llama2_70b"]
    assert main([*asked, "--csv"]) == OK
    assert capsys.readouterr().out.splitlines()[0].startswith("policy,model,verdict,flows")
    assert main(asked) == OK
    assert "slowdown" in capsys.readouterr().out


def test_command_reads_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flows.csv"
    frame = flow_table([(0, 0, 2, 10), (0, 2, 0, 10)])
    frame.to_csv(file, index=False)
    asked = ["route", "--flows", str(file), "--leaves", "2", "--spines", "2"]
    assert main([*asked, "--nics-per-leaf", "2"]) == OK
    assert "balanced" in capsys.readouterr().out
    assert main([*asked, "--nics-per-leaf", "2", "--failed-spines", "2"]) == INFEASIBLE
    assert main([*asked, "--failed-spines", "3"]) == MALFORMED
    assert main(["route", "--flows", str(tmp_path / "none.csv")]) == MALFORMED
    assert "none.csv" in capsys.readouterr().err


def test_command_takes_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["route", "--cluster", "dgx_h100", "--nodes", "64", "--jobs", "2", "--ring", "2"]
    assert main([*asked, "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["verdict"] == "ok"
