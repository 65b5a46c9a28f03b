"""Completion times of simulated flows, steps, rings and collectives agree with each other."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import scalemodel as sm


@pytest.fixture(scope="module", params=["ecmp", "balanced", "subflow_ecmp"])
def runs(request: pytest.FixtureRequest) -> Any:
    fabric = sm.Fabric.leaf_spine(leaves=8, spines=4, nics_per_leaf=8)
    jobs = [
        {"pattern": "ring", "nics": list(range(0, 64, 4)), "size_bytes": 1e9, "compute_s": 0.01},
        {"pattern": "ring", "nics": [[1, 9, 17], [2, 10, 18]], "size_bytes": 3e8, "name": "pair"},
    ]
    return sm.simulate_network(fabric, jobs, policy=request.param, epochs=3)


def test_every_flow_completes_every_step(runs: Any) -> None:
    times = runs.attrs["completion"]
    flows = times.flows()
    steps = {"job 0": 3 * 30, "pair": 3 * 4}
    for job, own in flows.groupby("job"):
        per_flow = own.completions / steps[job]
        assert set(per_flow) <= {1.0, 4.0}  # hashed parts of a flow complete each by itself
        assert (own.min_s <= own.mean_s * (1 + 1e-9)).all()
        assert (own.mean_s <= own.max_s * (1 + 1e-9)).all()
    summary = times.summary("flow").set_index("job")
    assert summary.cases["all"] == flows.completions.sum()
    assert summary.max_s["all"] == pytest.approx(flows.max_s.max())
    mean = (flows.mean_s * flows.completions).sum() / flows.completions.sum()
    assert summary.mean_s["all"] == pytest.approx(mean)
    percentiles = summary.loc["all", ["min_s", "p50_s", "p90_s", "p99_s", "max_s"]].to_numpy()
    assert (np.diff(percentiles.astype(float)) >= 0).all()


def test_steps_add_up_to_rings_and_rings_to_collectives(runs: Any) -> None:
    times = runs.attrs["completion"]
    steps, rings = times.times("step"), times.rings()
    total = (steps.time_s * steps["count"]).groupby(steps.job).sum()
    assert total.to_dict() == pytest.approx(rings.groupby("job").time_s.sum().to_dict())
    last = rings.groupby(["job", "epoch"]).end_s.max()
    ends = runs.set_index(["job", "epoch"]).end_s.sort_index()
    assert last.sort_index().tolist() == pytest.approx(ends.tolist())
    assert times.times("collective").time_s.tolist() == pytest.approx(runs.time_s.tolist())
    assert times.times("phase").empty


def test_tables_hand_the_times_on_without_a_copy(runs: Any) -> None:
    times = runs.attrs["completion"]
    assert copy.deepcopy(times) is times
    assert runs[runs.epoch == 0].attrs["completion"] is times
    assert "flows" in repr(times)


def test_malformed_questions_name_the_argument(runs: Any) -> None:
    times = runs.attrs["completion"]
    with pytest.raises(sm.ScaleModelError, match="of='packet'"):
        times.times("packet")
    with pytest.raises(sm.ScaleModelError, match="percentiles"):
        times.summary("flow", percentiles=[101])


def test_a_ring_of_all_nics_repeats_one_step() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=32, spines=16, nics_per_leaf=16)
    jobs = [{"pattern": "ring", "nics": list(range(512)), "size_bytes": 1e9}]
    runs = sm.simulate_network(fabric, jobs, epochs=1)
    assert runs.attrs["events"] == 1 + 2 * 511
    assert runs.attrs["solved_flows"] < 100
    summary = runs.attrs["completion"].summary("flow")
    assert summary.cases.tolist() == [512 * 1022] * 2
    assert runs.slowdown.tolist() == pytest.approx([1.0], rel=1e-4)  # the latency of steps


def test_a_run_without_paths_completes_nothing() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=2).failed(spines=[0])
    jobs = [{"pattern": "ring", "nics": [0, 2], "size_bytes": 1e9}]
    times = sm.simulate_network(fabric, jobs).attrs["completion"]
    assert times.flows().completions.tolist() == [0, 0]
    assert times.flows().mean_s.isna().all()
    assert times.summary("flow").empty


@pytest.mark.parametrize("policy", ["ecmp", "balanced", "hedera", "spray"])
def test_a_report_runs_on_its_own_paths(policy: str) -> None:
    fabric = sm.Fabric.leaf_spine()
    jobs = sm.Traffic.paper_mix(fabric, jobs=3, ring=4, seed=1)
    report = sm.route(fabric, jobs, policy=policy)
    runs = sm.simulate_network(fabric, jobs, policy=policy, epochs=2)
    for of in ("flow", "step", "ring", "collective"):
        ours, simulated = (
            found.summary(of) for found in (report.completion(epochs=2), runs.attrs["completion"])
        )
        assert ours.equals(simulated)
    again = pickle.loads(pickle.dumps(report))
    assert again == report
    assert again.completion().summary("ring").equals(report.completion().summary("ring"))


def test_reports_are_drawn_and_the_solvers_paths_are_refused() -> None:
    pytest.importorskip("scipy")
    fabric = sm.Fabric.leaf_spine(leaves=4, spines=2, nics_per_leaf=2)
    jobs = [{"pattern": "ring", "nics": [0, 2, 4, 6], "size_bytes": 1e9}]
    reports = {policy: sm.route(fabric, jobs, policy=policy) for policy in ("ecmp", "balanced")}
    ax = sm.plot.completion_times(reports, of="ring")
    assert ax.get_xlabel() == "Completion time of a ring (s)"
    assert len(ax.get_lines()) == 2
    proven = sm.route(fabric, jobs, policy="milp")
    with pytest.raises(sm.ScaleModelError, match="policy='milp': is not simulated"):
        proven.completion()
