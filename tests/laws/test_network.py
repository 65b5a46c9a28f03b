"""Laws of the network of training jobs: conservation, the ideal network, monotonicity."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.estimator.evaluation import tables_for

TASK = sm.Training(global_batch=256, sequence=4096)
AXES = ("tp", "cp", "ep", "pp", "dp")
#: What a network may leave to an axis.
SHARE = st.floats(0.01, 1.0)


def cluster(nodes: int, **fabric: Any) -> sm.Cluster:
    return sm.cluster({"base": "dgx_h100", "fabric": fabric} if fabric else "dgx_h100", nodes=nodes)


@st.composite
def plans(draw: st.DrawFn, *, pp: tuple[int, ...] = (1, 2, 4)) -> tuple[str, int, sm.Strategy]:
    """A model, nodes and a strategy that can run there."""
    model = draw(st.sampled_from(["llama3_8b", "mixtral_8x7b"]))
    nodes = draw(st.sampled_from([2, 4, 8]))
    sharding = draw(st.sampled_from(["ddp", "zero1", "zero2", "zero3", "hsdp"]))
    plan = sm.Strategy(
        tp=draw(st.sampled_from([1, 2, 4, 8])),
        cp=draw(st.sampled_from([1, 2, 4])),
        pp=draw(st.sampled_from(pp)),
        ep=draw(st.sampled_from([1, 2, 8])) if model == "mixtral_8x7b" else 1,
        sharding=sharding,
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        context=draw(st.sampled_from(["ring", "all_to_all", "all_gather"])),
        sequence_parallel=draw(st.booleans()),
        placement=draw(st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp"])),
    )
    assume(not sm.estimate(model, cluster(nodes), TASK, plan).illegal)
    return model, nodes, plan


def messages(model: str, on: sm.Cluster, plan: sm.Strategy) -> pd.DataFrame:
    tables = tables_for(sm.model(model), on, TASK, "plain")
    return pd.DataFrame(_core.step_messages(tables, plan))


def sent_bytes(row: Any, members: list[int]) -> float:
    """Bytes of one call between the domains of a group, by the textbook."""
    own = [rank // 8 for rank in members]
    n, domains, size = len(members), len(set(own)), row.size_bytes
    if domains == 1:
        return 0.0
    if row.operation == "transfer":
        crossing = sum(a != b for a, b in zip(own, own[1:] + own[:1], strict=True))
        return float(crossing * size)
    if row.operation == "all_to_all":
        return sum(own.count(a) * (n - own.count(a)) for a in set(own)) * float(size) / n
    if row.algorithm in ("tree", "nvls_tree"):
        return 2.0 * (domains - 1) * size
    if row.algorithm == "sharp":
        return float(domains * size)
    passes = 2 if row.operation == "all_reduce" else 1
    return float(domains * passes * (n - 1) / n * size)


# ---------------------------------------------------------------------------------- conservation
@given(plans(pp=(1,)))
def test_messages_take_the_time_that_the_estimate_counts(case: Any) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    est = sm.estimate(model, on, TASK, plan)
    rows = messages(model, on, plan)
    spent = (rows.calls * rows.times_per_step * rows.time_s).sum() if len(rows) else 0.0
    counted = est.exposed_tp_s + est.exposed_cp_s + est.exposed_ep_s + est.exposed_dp_s
    assert spent == pytest.approx(counted + est.hidden_s, rel=1e-9, abs=1e-12)


@given(plans())
def test_traffic_carries_the_bytes_of_every_collective(case: Any) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    rows = messages(model, on, plan)
    frame = sm.traffic(model, on, TASK, plan)
    sent = frame.size_bytes * frame.times_per_step
    found = sent.groupby(frame.communicator).sum().to_dict()
    per_stage = on.accelerators // plan.pp
    tables = tables_for(sm.model(model), on, TASK, "plain")
    expected: dict[str, float] = {}
    for row in rows[rows.domains > 1].itertuples() if len(rows) else ():
        groups = _core.communicator_groups(tables, plan, row.communicator, row.stage)
        assert sum(len(members) for members in groups) in (per_stage, 2 * per_stage)
        calls = row.calls * row.times_per_step
        step = calls * sum(sent_bytes(row, list(members)) for members in groups)
        expected[row.communicator] = expected.get(row.communicator, 0.0) + step
        if row.communicator != "pp" and (plan.cp == 1 or plan.placement == "tp-cp-dp-pp"):
            # There an estimate sees the groups as they are.
            assert {len({rank // 8 for rank in members}) for members in groups} == {row.domains}
    expected = {name: size for name, size in expected.items() if size > 0}
    assert found == pytest.approx(expected, rel=1e-9)


@given(plans(), st.booleans())
def test_every_nic_receives_what_it_sends(case: Any, rails: bool) -> None:
    model, nodes, plan = case
    frame = sm.traffic(model, cluster(nodes), TASK, plan, rails=rails)
    frame = frame[frame.pattern.isin(["ring", "all_to_all"])]
    for _, part in frame.groupby(["communicator", "stage", "period"]):
        out = part.groupby("source").size_bytes.sum()
        into = part.groupby("destination").size_bytes.sum()
        assert into.to_dict() == pytest.approx(out.to_dict())


@given(plans())
def test_rails_move_all_to_alls_and_keep_their_bytes(case: Any) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    both = [sm.traffic(model, on, TASK, plan, rails=rails) for rails in (True, False)]
    for key in ("source", "destination"):
        aligned, direct = (f.groupby(["communicator", key]).size_bytes.sum() for f in both)
        assert aligned.to_dict() == pytest.approx(direct.to_dict())


@given(plans(), st.sampled_from(["packed", "random_servers", "random_nics"]), st.integers(0, 99))
def test_traffic_leaves_its_server(case: Any, placement: str, seed: int) -> None:
    model, nodes, plan = case
    frame = sm.traffic(model, cluster(nodes), TASK, plan, placement=placement, seed=seed)
    assert (frame.source // 8 != frame.destination // 8).all()


# ------------------------------------------------------------------------------ the ideal network
@given(
    plans(),
    st.sampled_from(["packed", "random_servers", "random_nics"]),
    st.sampled_from(["rails", "leaves"]),
)
def test_balanced_routing_on_an_ideal_network_changes_nothing(
    case: Any, placement: str, kind: str
) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    rate = on.core.fabric.bandwidth_bytes_per_s
    fabric = (
        sm.Fabric.of_cluster(on, servers_per_unit=2)
        if kind == "rails"
        else sm.Fabric.leaf_spine(leaves=nodes, spines=8, nics_per_leaf=8, bandwidth=rate)
    )
    rings = sm.traffic(model, on, TASK, plan)
    assume(not (rings.pattern == "double_binary_tree").any())
    report = sm.route(on, [(model, plan, TASK)], fabric=fabric, placement=placement)
    assert report.shares() == dict.fromkeys(AXES, 1.0)
    ideal = sm.estimate(model, on, TASK, plan)
    assert sm.estimate(model, on, TASK, plan, network=report) == ideal


# ----------------------------------------------------------------------------------- monotonicity
@given(plans(), st.lists(SHARE, min_size=5, max_size=5), st.integers(0, 4), SHARE)
def test_less_of_the_network_never_helps(
    case: Any, shares: list[float], axis: int, part: float
) -> None:
    model, nodes, plan = case
    more = dict(zip(AXES, shares, strict=True))
    less = more | {AXES[axis]: part * shares[axis]}
    steps = [
        sm.estimate(model, cluster(nodes), TASK, plan, network=network).step_time_s
        for network in (None, more, less)
    ]
    assert steps[0] <= steps[1] * (1 + 1e-12)
    assert steps[1] <= steps[2] * (1 + 1e-12)


@given(plans(), st.sampled_from(["ecmp", "greedy", "balanced", "spray", "subflow_ecmp"]))
def test_shares_are_shares(case: Any, policy: str) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    fabric = sm.Fabric.of_cluster(on, servers_per_unit=1)
    report = sm.route(on, [(model, plan, TASK)], policy=policy, fabric=fabric)
    assert all(0 < share <= 1 for share in report.shares().values())
    frame = report.effective()
    if len(frame):
        assert (frame.effective_bytes_per_s <= frame.ideal_bytes_per_s).all()
        flows = report.flows()
        assert (flows.share_fraction >= frame.share_fraction.min() * (1 - 1e-9)).all()


@given(plans(), st.integers(0, 99))
def test_failures_never_help(case: Any, seed: int) -> None:
    model, nodes, plan = case
    on = cluster(nodes)
    rate = on.core.fabric.bandwidth_bytes_per_s
    whole = sm.Fabric.leaf_spine(leaves=nodes, spines=8, nics_per_leaf=8, bandwidth=rate)
    steps = []
    for down in (0, 2, 4, 6):
        report = sm.route(
            on,
            [(model, plan, TASK)],
            policy="spray",
            fabric=whole.failed(spines=range(down)),
            placement="random_nics",
            seed=seed,
        )
        steps.append(sm.estimate(model, on, TASK, plan, network=report).step_time_s)
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(steps))


@given(plans())
def test_oversubscription_never_helps(case: Any) -> None:
    model, nodes, plan = case
    steps = []
    for over in (1.0, 2.0, 4.0):
        on = cluster(nodes, oversubscription=over)
        fabric = sm.Fabric.of_cluster(on, servers_per_unit=1)
        job = (model, plan, TASK)
        report = sm.route(on, [job], policy="spray", fabric=fabric)
        steps.append(sm.estimate(model, on, TASK, plan, network=report).step_time_s)
    assert steps == sorted(steps)


# ------------------------------------------------------------------------------------ consistency
@given(st.lists(SHARE, min_size=5, max_size=5))
def test_a_sweep_equals_estimates_on_the_same_network(shares: list[float]) -> None:
    network = dict(zip(AXES, shares, strict=True))
    on = cluster(4)
    space = sm.Space(tp=[1, 8], cp=1, pp=[1, 2], vpp=1, micro_batch=1, sharding=["zero1", "zero3"])
    frame = sm.sweep("llama3_8b", on, TASK, space, network=network)
    for row in frame.sample(min(len(frame), 20), random_state=0).to_dict("records"):
        plan = sm.Strategy(**{name: row[name] for name in sm.Strategy().to_dict()})
        est = sm.estimate("llama3_8b", on, TASK, plan, network=network)
        assert est.step_time_s == row["step_time_s"]
    best = sm.search("llama3_8b", on, TASK, space, network=network, top=1)
    fitting = frame[frame.verdict == "ok"]
    if len(fitting):
        assert best[0].step_time_s == fitting.step_time_s.min()


def test_a_searched_space_keeps_to_its_network() -> None:
    study = sm.codesign(
        "llama3_8b",
        cluster(2),
        TASK,
        vary={"fabric.bandwidth": [1.0, 2.0]},
        network={"dp": 0.5, "tp": 0.5, "pp": 0.5, "cp": 0.5},
    )
    halved = sm.codesign("llama3_8b", cluster(2), TASK, vary={"fabric.bandwidth": [0.5, 1.0]})
    assert study.step_time_s.tolist() == pytest.approx(halved.step_time_s.tolist(), rel=1e-9)
