"""Plans beside paths: re-optimisation over time, shifts, trees, topologies, other all-reduces."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

FABRIC = sm.Fabric.leaf_spine()


# ------------------------------------------------------------------------------ re-optimisation
@pytest.fixture(scope="module")
def traffic() -> sm.Traffic:
    return sm.Traffic.paper_mix(FABRIC, jobs=3, ring=4, seed=2)


STARTS = [0.0, 0.7, 1.9]


def run(traffic: sm.Traffic, policy: str, **options: Any) -> Any:
    return sm.simulate_network(FABRIC, traffic, policy=policy, epochs=3, start_s=STARTS, **options)


def test_a_run_without_controller_has_no_log(traffic: sm.Traffic) -> None:
    assert "controller" not in run(traffic, "greedy").attrs


@pytest.mark.parametrize("forecast", ["active", "announced", "admitted"])
def test_the_log_of_a_controller_is_a_table(traffic: sm.Traffic, forecast: str) -> None:
    runs = run(traffic, "greedy", reoptimise_every_s=0.5, forecast=forecast)
    log = runs.attrs["controller"]
    assert {len(column) for column in log.values()} == {len(log["time_s"])}
    assert log["time_s"] == sorted(log["time_s"])
    assert np.allclose(np.diff(log["time_s"]), 0.5)
    assert all(0 <= each <= 1 for each in log["efficiency_fraction"])
    assert all(0 <= m <= r for m, r in zip(log["moved_flows"], log["routed_flows"], strict=True))
    assert sum(log["moved_flows"]) > 0
    assert runs.attrs["moved_bytes"] == pytest.approx(runs.attrs["delivered_bytes"])
    assert len(runs) == 9
    assert runs.attrs["assignment_s"] > 0


def test_what_is_known_in_advance_is_worth_more(traffic: sm.Traffic) -> None:
    slowdown = {
        forecast: run(traffic, "balanced", reoptimise_every_s=1.0, forecast=forecast).slowdown
        for forecast in ("active", "admitted")
    }
    assert slowdown["admitted"].max() == pytest.approx(1.0, rel=1e-6)
    assert slowdown["active"].mean() > 1.1


def test_failures_are_routed_around_or_waited_for(traffic: sm.Traffic) -> None:
    damaged = FABRIC.failed(spines=range(8))
    lost = run(traffic, "balanced", changes=[(1.0, damaged)])
    assert lost.attrs["verdict"] == "illegal:disconnected"
    assert len(lost) < 9
    repaired = run(traffic, "balanced", changes=[(1.0, damaged), (20.0, FABRIC)])
    assert repaired.attrs["verdict"] == "ok"
    assert len(repaired) == 9
    around = run(traffic, "balanced", changes=[(1.0, damaged)], reoptimise_every_s=0.25)
    assert around.attrs["verdict"] == "ok"
    assert around.time_s.max() < repaired.time_s.max()


def test_a_delay_costs_time(traffic: sm.Traffic) -> None:
    changes = [(1.0, FABRIC.failed(spines=range(8)))]
    times = [
        run(traffic, "balanced", changes=changes, reoptimise_every_s=1.0, delay_s=delay).time_s
        for delay in (0.0, 0.9)
    ]
    assert times[0].sum() < times[1].sum()


# -------------------------------------------------------------------------------------- shifts
def across_one_spine(duties: list[float]) -> tuple[sm.Fabric, list[dict[str, Any]]]:
    """Jobs of a period of one second that send over the same cable for a part of it."""
    fabric = sm.Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=8, bandwidth="10 GB/s")
    jobs = [
        {
            "pattern": "chain",
            "nics": [nic, 8 + nic],
            "size_bytes": duty * 10e9,
            "compute_s": 1 - duty,
        }
        for nic, duty in enumerate(duties)
    ]
    return fabric, jobs


@given(st.lists(st.sampled_from([0.1, 0.2, 0.25, 0.4, 0.5]), min_size=2, max_size=4))
def test_shifted_jobs_that_fit_the_circle_run_as_if_alone(duties: list[float]) -> None:
    fabric, jobs = across_one_spine(duties)
    table = sm.time_shifts(fabric, jobs, finest=40)
    score = table.attrs["score"]
    assert table.attrs["score_before"] <= score <= 1 + 1e-12
    assert score <= 1 - max(sum(duties) - 1, 0) + 1e-9
    if len(duties) == 2 and sum(duties) <= 1:
        assert score == pytest.approx(1)
    runs = sm.simulate_network(fabric, jobs, epochs=3, start_s=table.shift_s, step_latency_s=0.0)
    if score > 1 - 1e-12:
        assert runs.slowdown.max() == pytest.approx(1, rel=1e-6)


def test_shifts_help_where_paths_cannot() -> None:
    fabric, jobs = across_one_spine([0.4, 0.4])
    table = sm.time_shifts(fabric, jobs)
    together = sm.simulate_network(fabric, jobs, epochs=5)
    apart = sm.simulate_network(fabric, jobs, epochs=5, start_s=table.shift_s)
    assert together.slowdown.mean() > 1.9
    assert apart.slowdown.mean() == pytest.approx(1)
    assert table.communication_s.tolist() == pytest.approx([0.4, 0.4])
    assert table.period_s.tolist() == pytest.approx([1.0, 1.0])


# --------------------------------------------------------------------------------------- trees
#: DGX-1 with V100: cables between GPUs, 25 GB/s each (NVIDIA DGX-1 system architecture, WP-08437).
CUBE_MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def allocation(gpus: list[int], single: bool = False) -> sm.Fabric:
    """Some GPUs of the cube mesh; `single`: one cable per pair, as with P100."""
    place = {gpu: index for index, gpu in enumerate(gpus)}
    rows = [
        (place[a], place[b], 25e9 * (1 if single else count))
        for (a, b), count in CUBE_MESH.items()
        if a in place and b in place
    ]
    return sm.Fabric.from_edges(len(gpus), rows)


def test_every_gpu_of_the_cube_mesh_has_six_links() -> None:
    for gpu in range(8):
        assert sum(count for pair, count in CUBE_MESH.items() if gpu in pair) == 6


def test_trees_use_every_link_that_leaves_the_root() -> None:
    trees = sm.pack_trees(allocation(list(range(8))))
    assert trees.attrs["total_bytes_per_s"] == pytest.approx(6 * 25e9)
    assert trees.attrs["bound_bytes_per_s"] == pytest.approx(6 * 25e9)
    # Six GPUs with one cable per pair have three links each, odd: rings use two of them.
    six = sm.pack_trees(allocation([0, 1, 3, 4, 5, 7], single=True))
    assert six.attrs["total_bytes_per_s"] == pytest.approx(3 * 25e9)
    assert six.tree.nunique() == 3


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_trees_of_partial_allocations_carry_the_bound(count: int) -> None:
    """Of what a scheduler may hand out, wherever NVLink joins it."""
    joined = 0
    for gpus in itertools.islice(itertools.combinations(range(8), count), 0, None, 5):
        fabric = allocation(list(gpus))
        try:
            trees = sm.pack_trees(fabric, root=0)
        except ScaleModelError as error:
            assert "does not reach" in str(error)  # noqa: PT017
            continue
        joined += 1
        assert trees.attrs["total_bytes_per_s"] == pytest.approx(trees.attrs["bound_bytes_per_s"])
        load = trees.groupby(["parent", "child"]).rate_bytes_per_s.sum()
        ends = zip(load.index.get_level_values(0), load.index.get_level_values(1), strict=True)
        for (a, b), rate in zip(ends, load.to_numpy(), strict=True):
            low, high = sorted((gpus[a], gpus[b]))
            assert rate <= CUBE_MESH[low, high] * 25e9 * (1 + 1e-9)
        for _, tree in trees.groupby("tree"):
            assert sorted(tree.child) == [nic for nic in range(count) if nic != 0]
        both = sm.pack_trees(fabric, root=0, collective="all_reduce")
        total = both.attrs["total_bytes_per_s"]
        assert total <= both.attrs["bound_bytes_per_s"] * (1 + 1e-9)
        assert total <= trees.attrs["total_bytes_per_s"] * (1 + 1e-9)
        # Trees that serve both ways carry at least half of what goes one way.
        assert total >= 0.5 * 0.95 * trees.attrs["total_bytes_per_s"]
    assert joined > 0


# ----------------------------------------------------------------------------------- topology
def test_links_follow_the_demands() -> None:
    pairs = [[i, 15 - i] for i in range(8)]
    strategies: dict[str, dict[str, Any]] = {
        "data": {"all_reduce_bytes": 8e9},
        "pairs": {
            "all_reduce_bytes": 1e9,
            "jobs": [{"pattern": "chain", "nics": pairs, "size_bytes": 4e9}],
        },
    }
    table = sm.design_topology(16, strategies, ports=4, bandwidth="100 Gbit/s")
    assert (table.communication_s.diff().dropna() >= 0).all()
    assert (table.groupby("strategy").rings.nunique() == 3).all()
    of = table.set_index(["strategy", "rings"])
    # A ring both ways round: 2 (n - 1) / n of half the buffer each way, over one port.
    least = 2 * 15 / 16 * 8e9 / 2 / 12.5e9
    assert of.all_reduce_s["data", 1] == pytest.approx(least)
    assert of.all_reduce_s["data", 2] == pytest.approx(least / 2)
    assert of.verdict["data", 0] == "illegal:disconnected"
    # Two ports of every pair's own.
    assert of.transfer_s["pairs", 1] == pytest.approx(4e9 / 12.5e9 / 2)
    assert of.transfer_s["pairs", 2] > of.transfer_s["pairs", 1]


# --------------------------------------------------------------------------- other all-reduces
@given(st.integers(2, 8), st.integers(1, 4), st.floats(1e6, 1e10))
def test_decomposed_rings_send_what_the_formula_says(inner: int, outer: int, size: float) -> None:
    job = {
        "pattern": "ring",
        "nics": range(inner * outer),
        "shape": [inner, outer],
        "size_bytes": size,
    }
    flows = sm.Traffic.of_jobs([job]).flows()
    expected = 2 * (inner - 1) / inner * size + 2 * (outer - 1) / outer * size / inner
    assert flows.groupby("source").size_bytes.sum().to_numpy() == pytest.approx(expected)
    assert flows.groupby("destination").size_bytes.sum().to_numpy() == pytest.approx(expected)
    # A whole all-reduce sends the same, however it is decomposed.
    assert expected == pytest.approx(2 * (1 - 1 / (inner * outer)) * size)
    # But less of it leaves the inner groups.
    crossing = flows[flows.source // inner != flows.destination // inner].size_bytes.sum()
    assert crossing == pytest.approx(inner * outer * 2 * (outer - 1) / outer * size / inner)


def test_switches_that_add_up_halve_the_traffic() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=4, spines=4, nics_per_leaf=8)
    nics = list(range(32))
    job = {"nics": nics, "size_bytes": 1e9}
    reports = {
        pattern: sm.route(fabric, [job | {"pattern": pattern}])
        for pattern in ("ring", "in_network")
    }
    traffic = {
        pattern: report.traffic.steps[0] * report.links().load_bytes
        for pattern, report in reports.items()
    }
    assert traffic["ring"].max() / traffic["in_network"].max() == pytest.approx(2 * 31 / 32)
    # Each leaf passes the buffer once up and once down, as a tree of switches does.
    links = reports["in_network"].links()
    up = links[(links.source_kind == "leaf") & (links.destination_kind == "spine")]
    assert up.groupby("source").load_bytes.sum().tolist() == pytest.approx([1e9] * 4)
    times = {
        pattern: report.traffic.steps[0] * report.step_time_s for pattern, report in reports.items()
    }
    assert times["ring"] / times["in_network"] == pytest.approx(2 * 31 / 32)


# ----------------------------------------------------------------------------------- questions
JOBS = [{"pattern": "ring", "nics": [0, 32], "size_bytes": 1e9}]


@pytest.mark.parametrize(
    "ask, named",
    [
        (lambda: sm.simulate_network(FABRIC, JOBS, reoptimise_every_s=-1.0), "period_s"),
        (lambda: sm.simulate_network(FABRIC, JOBS, forecast="all"), "forecast='all'"),
        (lambda: sm.simulate_network(FABRIC, JOBS, reoptimise_every_s=1.0, delay_s=2.0), "delay_s"),
        (lambda: sm.simulate_network(FABRIC, JOBS, changes=[(-1.0, FABRIC)]), "changes"),
        (
            lambda: sm.simulate_network(
                FABRIC, JOBS, changes=[(1.0, sm.Fabric.leaf_spine(leaves=2))]
            ),
            "other links",
        ),
        (
            lambda: sm.simulate_network(FABRIC, JOBS, policy="spray", reoptimise_every_s=1.0),
            "whole flows",
        ),
        (lambda: sm.simulate_network(FABRIC, JOBS, start_s=[0.0, 1.0]), "start_s"),
        (lambda: sm.time_shifts(FABRIC, JOBS, finest=4), "finest=4"),
        (lambda: sm.time_shifts(FABRIC, JOBS, policy="milp"), "milp"),
        (lambda: sm.pack_trees(FABRIC), "switches"),
        (lambda: sm.pack_trees(allocation([0, 1]), root=2), "root=2"),
        (lambda: sm.pack_trees(allocation([0, 1]), collective="gather"), "collective='gather'"),
        (lambda: sm.pack_trees(allocation([0, 1]), accuracy=0.0), "accuracy"),
        (lambda: sm.pack_trees(allocation([0, 7])), "does not reach"),
        (lambda: sm.design_topology(8, {}, ports=4), "strategies"),
        (lambda: sm.design_topology(8, {"a": {"bytes": 1}}, ports=4), "'bytes' is no key"),
        (lambda: sm.Fabric.direct_connect(8, ports=2, rings=2), "strides"),
        (lambda: sm.Fabric.direct_connect(1, ports=2), "nics=1"),
        (lambda: sm.Fabric.direct_connect(8, ports=4, demands=[(0, 9, 1.0)]), "NIC 9"),
        (lambda: sm.Traffic.of_jobs([JOBS[0] | {"shape": [3]}]), "shape"),
        (
            lambda: sm.Traffic.of_jobs([JOBS[0] | {"pattern": "chain", "shape": [2]}]),
            "for rings only",
        ),
    ],
)
def test_malformed_questions_name_the_argument(ask: Any, named: str) -> None:
    with pytest.raises(ScaleModelError, match=named):
        ask()
