"""Laws of routing: conservation, bounds, symmetry, scaling, agreement of policies and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm


@st.composite
def questions(draw: st.DrawFn, *, equal: bool = True, failures: bool = False) -> Any:
    """A small two-tier fabric and flows between its leaves."""
    leaves, spines = draw(st.integers(2, 6)), draw(st.integers(1, 6))
    under = draw(st.integers(1, 4))
    fabric = sm.Fabric.leaf_spine(leaves=leaves, spines=spines, nics_per_leaf=under)
    if failures and spines > 1:
        down = draw(st.integers(0, spines - 1))
        fabric = fabric.failed(spines=range(down))
    nic = st.integers(0, leaves * under - 1)
    pairs = draw(
        st.lists(st.tuples(nic, nic).filter(lambda p: p[0] != p[1]), min_size=1, max_size=40)
    )
    frame = pd.DataFrame(pairs, columns=["source", "destination"])
    frame["job"] = [draw(st.integers(0, 3)) for _ in pairs]
    size = st.just(1e9) if equal else st.integers(1, 20).map(lambda n: n * 1e8)
    frame["size_bytes"] = [draw(size) for _ in pairs]
    return fabric, frame


@given(questions(failures=True))
def test_colouring_meets_the_bound_and_greedy_twice_it(question: Any) -> None:
    fabric, frame = question
    coloured = sm.route(fabric, frame, policy="colouring")
    assert coloured.max_flows == coloured.columns["bound_flows"]
    greedy = sm.route(fabric, frame, policy="greedy")
    assert coloured.max_flows <= greedy.max_flows <= 2 * coloured.max_flows
    sprayed = sm.route(fabric, frame, policy="spray")
    assert sprayed.drain_s <= coloured.drain_s * (1 + 1e-9)


@given(questions(equal=False, failures=True), st.sampled_from(["ecmp", "greedy", "subflow_ecmp"]))
@pytest.mark.slow
def test_bytes_are_conserved_at_every_node(question: Any, policy: str) -> None:
    fabric, frame = question
    links = sm.route(fabric, frame, policy=policy).links()
    into = links.groupby("destination").load_bytes.sum()
    out = links.groupby("source").load_bytes.sum()
    for nic, number in links.loc[links.source_kind == "nic", ["source", "source_number"]].values:
        assert out[nic] == pytest.approx(frame.size_bytes[frame.source == number].sum())
        assert into[nic] == pytest.approx(frame.size_bytes[frame.destination == number].sum())
    switches = links.loc[links.source_kind != "nic", "source"].unique()
    assert into[switches].to_dict() == pytest.approx(out[switches].to_dict())


@given(questions(equal=False))
@pytest.mark.slow
def test_links_are_not_overfull_and_every_flow_has_a_full_one(question: Any) -> None:
    fabric, frame = question
    report = sm.route(fabric, frame, policy="ecmp")
    links, flows = report.links(), report.flows()
    assert (links.utilisation_fraction <= 1 + 1e-9).all()
    full = links.utilisation_fraction >= 1 - 1e-9
    planes = fabric.core.planes
    under = fabric.nics // fabric.core.leaves
    for flow in flows.itertuples():
        hops = [fabric.core.leaves * planes + flow.source]
        if flow.plane >= 0:
            up = 2 * (flow.source // under * planes + flow.plane)
            down = 2 * (flow.destination // under * planes + flow.plane) + 1
            used = [2 * hops[0], up, down]
        else:
            used = [2 * hops[0]]
        used.append(2 * (fabric.core.leaves * planes + flow.destination) + 1)
        assert full.iloc[used].any()


@given(questions(equal=False), st.sampled_from(["ecmp", "greedy", "balanced", "spray"]))
def test_faster_links_scale_every_rate(question: Any, policy: str) -> None:
    fabric, frame = question
    core = fabric.core.copy()
    halved = sm.Fabric(core, "halved")
    for link in range(0, core.links, 2):
        core.scale_cable(link, 0.5)
    whole = sm.route(fabric, frame, policy=policy, effort=0.05)
    half = sm.route(halved, frame, policy=policy, effort=0.05)
    rates = np.asarray(whole.columns["rate_bytes_per_s"])
    assert np.asarray(half.columns["rate_bytes_per_s"]) == pytest.approx(0.5 * rates)


@given(questions(equal=False))
def test_one_flow_per_job_and_equal_sizes_make_the_models_agree(question: Any) -> None:
    fabric, frame = question
    frame = frame.assign(job=range(len(frame)), size_bytes=1e9)
    report = sm.route(fabric, frame, policy="ecmp")
    fair = report.columns["fair_steps_per_s"]
    assert list(fair) == pytest.approx(list(report.columns["allocated_steps_per_s"]))


@given(questions(equal=False), st.sampled_from(["fair_share", "allocated"]))
def test_search_is_between_bound_and_greedy(question: Any, model: str) -> None:
    fabric, frame = question
    found = sm.route(fabric, frame, policy="local_search", model=model, effort=0.05)
    greedy = sm.route(fabric, frame, policy="greedy", model=model)
    assert found.drain_s >= found.bound_s * (1 - 1e-9)
    assert found.drain_s <= greedy.drain_s * (1 + 1e-9)
    if has_smaller_values(found.values_steps_per_s, greedy.values_steps_per_s):
        assert found.drain_s < greedy.drain_s


@given(questions(), st.integers(1, 3))
def test_another_spine_never_worsens_the_optimum(question: Any, more: int) -> None:
    fabric, frame = question
    larger = sm.Fabric.leaf_spine(
        leaves=fabric.core.leaves,
        spines=fabric.core.planes + more,
        nics_per_leaf=fabric.nics // fabric.core.leaves,
    )
    before = sm.route(fabric, frame, policy="colouring").max_flows
    assert sm.route(larger, frame, policy="colouring").max_flows <= before


@given(questions(equal=False))
def test_a_simulated_step_conserves_bytes_and_beats_no_wire(question: Any) -> None:
    fabric, frame = question
    runs = sm.simulate_network(fabric, frame, policy="ecmp", epochs=2, step_latency_s=0.0)
    sent = 2 * frame.groupby("job", sort=False).size_bytes.sum()
    assert runs.attrs["delivered_bytes"] == pytest.approx(sent.tolist())
    assert runs.attrs["moved_bytes"] == pytest.approx(sent.tolist(), rel=1e-6)
    assert (runs.slowdown >= 1 - 1e-9).all()


@given(questions(equal=False), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter_to_rates(question: Any, random: Any) -> None:
    fabric, frame = question
    names = list(range(4))
    random.shuffle(names)
    renamed = frame.assign(job=[names[job] for job in frame.job])
    one = sm.route(fabric, frame, policy="ecmp")
    other = sm.route(fabric, renamed, policy="ecmp")
    assert list(one.columns["rate_bytes_per_s"]) == list(other.columns["rate_bytes_per_s"])
    assert one.values_steps_per_s == pytest.approx(other.values_steps_per_s)


def unequal_instance(seed: int) -> tuple[sm.Fabric, pd.DataFrame]:
    """Equal, few or many sizes, in turn, on a fabric of up to eight leaves and spines."""
    random = np.random.default_rng(seed)
    leaves, spines, under = (int(random.integers(low, 9)) for low in (2, 1, 1))
    fabric = sm.Fabric.leaf_spine(leaves=leaves, spines=spines, nics_per_leaf=under)
    if spines > 1 and random.random() < 0.3:
        fabric = fabric.failed(spines=range(int(random.integers(0, spines - 1))))
    count, nics = int(random.integers(2, 121)), leaves * under
    source = random.integers(0, nics, count)
    sizes = (
        np.full(count, 1e9),
        random.choice([1e8, 5e8, 2e9], count),
        random.uniform(1e7, 2e9, count),
    )
    columns = {
        "job": random.integers(0, max(1, count // 8) + 1, count),
        "source": source,
        "destination": (source + random.integers(1, nics, count)) % nics,
        "size_bytes": sizes[seed % 3],
    }
    return fabric, pd.DataFrame(columns)


def has_smaller_values(ours: Any, other: Any) -> bool:
    """Lexicographic order of sorted job values, but for rounding."""
    for own, their in zip(ours, other, strict=True):
        if own != pytest.approx(their, rel=1e-8):
            return bool(own < their)
    return False


@pytest.mark.parametrize("model", ["fair_share", "allocated"])
@pytest.mark.parametrize("policy", ["balanced", "local_search"])
@pytest.mark.parametrize("seed", range(24))
def test_no_policy_that_optimises_loses_to_greedy(seed: int, policy: str, model: str) -> None:
    fabric, frame = unequal_instance(seed)
    greedy = sm.route(fabric, frame, policy="greedy", model=model)
    found = sm.route(fabric, frame, policy=policy, model=model)
    assert found.drain_s <= greedy.drain_s * (1 + 1e-9)
    assert found.drain_s >= found.bound_s * (1 - 1e-9)
    if has_smaller_values(found.values_steps_per_s, greedy.values_steps_per_s):
        assert found.drain_s < greedy.drain_s


@pytest.mark.parametrize("sizes", ["few", "many"])
def test_the_default_stays_near_the_bound_while_greedy_does_not(sizes: str) -> None:
    """Job values of an instant must not cost drain time: 8 x 4 switches, three flows a link."""
    gaps: dict[str, list[float]] = {"balanced": [], "greedy": []}
    fabric = sm.Fabric.leaf_spine(leaves=8, spines=4, nics_per_leaf=16)
    for seed in range(8):
        random = np.random.default_rng(seed)
        source = random.integers(0, 128, 110)
        frame = pd.DataFrame({"job": np.arange(110) // 14, "source": source})
        frame["destination"] = (source + random.integers(16, 112, 110)) % 128
        few, many = random.integers(2, 8, 110) * 1e8, random.uniform(1e8, 8e8, 110)
        frame["size_bytes"] = few if sizes == "few" else many
        for policy, of_policy in gaps.items():
            of_policy.append(sm.route(fabric, frame, policy=policy).gap_fraction)
    assert np.mean(gaps["balanced"]) < 0.03
    assert max(gaps["balanced"]) < 0.1
    assert np.mean(gaps["greedy"]) > 0.15
    assert all(own <= other for own, other in zip(*gaps.values(), strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_planned_paths_never_drain_after_greedys(seed: int) -> None:
    fabric, frame = unequal_instance(3 * seed + 2)
    demands = frame.assign(time_s=(frame.job % 3).astype(float), event="arrive")
    runs = sm.plan_paths(fabric, demands).attrs["runs"]
    for run in runs:
        there = frame[demands.time_s <= run["time_s"]]
        greedy = sm.route(fabric, there, policy="greedy")
        assert run["drain_s"] <= greedy.drain_s * (1 + 1e-9)


@pytest.mark.parametrize("model", ["fair_share", "allocated"])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_all_routings_drains_no_later_than_greedy(seed: int, model: str) -> None:
    random = np.random.default_rng(seed)
    fabric = sm.Fabric.leaf_spine(leaves=3, spines=2, nics_per_leaf=4)
    source = random.integers(0, 12, 9)
    frame = pd.DataFrame({"job": np.arange(9) % 3, "source": source})
    frame["destination"] = (source + random.integers(1, 12, 9)) % 12
    frame["size_bytes"] = random.choice([1e8, 2e8, 3e8], 9)
    best = sm.route(fabric, frame, policy="exhaustive", model=model)
    greedy = sm.route(fabric, frame, policy="greedy", model=model)
    assert best.drain_s <= greedy.drain_s * (1 + 1e-9)
    assert not has_smaller_values(best.values_steps_per_s, greedy.values_steps_per_s)


@pytest.mark.slow
def test_five_hundred_instances_stay_within_five_percent_and_before_greedy() -> None:
    gaps = []
    for seed in range(500):
        fabric, frame = unequal_instance(seed)
        found, greedy = (sm.route(fabric, frame, policy=name) for name in ("balanced", "greedy"))
        assert found.drain_s <= greedy.drain_s * (1 + 1e-9), seed
        gaps.append(found.gap_fraction)
    assert np.mean(np.array(gaps) <= 0.05 + 1e-9) >= 0.95
