"""Hardware varied: paths, values, budgets, sensitivities, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.codesign import (
    Hardware,
    best_design,
    codesign,
    design_cluster,
    design_strategy,
    exchange_rate,
    invert,
    iso_performance,
    optimise,
    sensitivity,
)
from scalemodel.resolve import designs

TASK = sm.Training(global_batch=64, sequence=4096)
MEMORY, NETWORK = "accelerator.memory.bandwidth", "fabric.bandwidth"
CAPACITY = "accelerator.memory.capacity"


@lru_cache(maxsize=1)
def base() -> sm.Cluster:
    return sm.cluster("dgx_h100", nodes=2)


@lru_cache(maxsize=1)
def space() -> Any:
    return sm.Space(
        tp=[1, 2, 4, 8],
        pp=[1, 2],
        cp=1,
        ep=1,
        etp=0,
        vpp=1,
        micro_batch=[1, 2],
        sharding=["zero1", "zero3"],
        recompute=["none", "full"],
        context="ring",
        sequence_parallel=True,
        offload_optimizer=False,
        placement="tp-cp-dp-pp",
    )


def study(**given: Any) -> pd.DataFrame:
    return codesign("llama3_8b", base(), TASK, space(), **{"threads": 1, **given})


# ------------------------------------------------------------------------------- hardware points
def test_a_grid_varies_the_first_path_slowest() -> None:
    table = study(vary={MEMORY: [1, 2], NETWORK: [1, "800 Gbit/s", 0.5]})
    assert table[MEMORY].tolist() == [3.35e12] * 3 + [6.7e12] * 3
    assert table[NETWORK].tolist() == [50e9, 100e9, 25e9] * 2
    assert table[f"{NETWORK}_scale"].tolist() == [1, 2, 0.5] * 2
    assert (table["verdict"] == "ok").all()
    assert table.attrs["units"] == {MEMORY: "bytes_per_s", NETWORK: "bytes_per_s"}


def test_columns_are_the_paths_then_those_of_an_estimate() -> None:
    table = study(vary={MEMORY: [2]})
    est = sm.estimate("llama3_8b", base(), TASK)
    ends = ["step_time_low_s", "step_time_high_s"]
    assert list(table) == [MEMORY, f"{MEMORY}_scale", *est.row(), "objective", *ends]


def test_zip_and_points_go_side_by_side() -> None:
    side = study(vary={MEMORY: [1, 2], NETWORK: [4, "50 GB/s"]}, mode="zip")
    points = pd.DataFrame({MEMORY: [1, 2], NETWORK: [4, "50 GB/s"]}, index=[7, 7])
    assert side[NETWORK].tolist() == [200e9, 50e9]
    pd.testing.assert_frame_equal(side, study(points=points))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("log", 0.25, 4, 5), [0.25, 0.5, 1, 2, 4]),
        (("linear", 1, 2, 3), [1, 1.5, 2]),
        (("linear", "25 GB/s", "100 GB/s", 4), [0.5, 1, 1.5, 2]),
        (("log", "25 GB/s", "100 GB/s", 3), [0.5, 1, 2]),
        (np.array([1, 3]), [1, 3]),
        (2, [2]),
        ("100 GB/s", [2]),
    ],
)
def test_ranges_and_single_values(values: Any, expected: list[float]) -> None:
    settings = Hardware(base()).settings(NETWORK, values)
    assert [setting.scale for setting in settings] == pytest.approx(expected)
    assert [setting.value for setting in settings] == pytest.approx([50e9 * e for e in expected])


@pytest.mark.parametrize(
    ("path", "given", "value"),
    [
        ("scale_up.domain", 1.4, 11),
        ("scale_up.domain", 0.01, 1),
        ("scale_up.domain", "72", 72),
        ("fabric.pod", "512", 512),
        ("fabric.oversubscription", 7, 7),
        ("fabric.oversubscription", "3.5", 3.5),
        ("accelerator.compute.multiprocessors", 1.003, 132),
        ("accelerators", 2, 32),
        ("nodes", "5", 5),
        ("fabric.class", "roce", "roce"),
        ("price.usd_per_accelerator_hour", "3.6 USD/h", 1e-3),
        ("power.pue", "1.1", 1.1),
    ],
)
def test_counts_are_rounded_and_texts_set(path: str, given: object, value: object) -> None:
    setting = Hardware(base()).setting(path, given)
    assert setting.value == (value if isinstance(value, str) else pytest.approx(value))


def test_equal_machines_after_rounding_are_equal_rows() -> None:
    table = study(vary={"nodes": [1, 1.1, 1.2]})
    assert table["nodes"].tolist() == [2, 2, 2]
    assert table["nodes_scale"].tolist() == [1, 1, 1]
    assert table["step_time_s"].nunique() == 1


def test_the_size_of_a_job() -> None:
    hardware = Hardware(base())
    assert hardware.build({"nodes": 4.0}).accelerators == 32
    assert hardware.build({"accelerators": 24.0}).accelerators == 24
    assert hardware.build({"nodes": 4.0, "node.accelerators": 4.0}).accelerators == 16
    assert hardware.build({"node.accelerators": 4.0}).accelerators == 16
    assert hardware.build({"node.accelerators": 4.0}).nodes == 4


def test_a_peak_moves_what_the_fit_refers_to() -> None:
    own = base().core.accelerator
    for path in ("accelerator.peak", "accelerator.compute.bf16"):
        core = design_cluster(base(), {path: 2}).core.accelerator
        assert core.peak_flop_per_s[3] == 2 * own.peak_flop_per_s[3]
        assert core.gemm.reference_peak_flop_per_s == 2 * own.gemm.reference_peak_flop_per_s
    everything = design_cluster(base(), {"accelerator.peak": 2}).core.accelerator
    assert everything.peak_flop_per_s == tuple(2 * peak for peak in own.peak_flop_per_s)
    assert everything.memory_bandwidth_bytes_per_s == own.memory_bandwidth_bytes_per_s
    slow, fast = study(vary={"accelerator.compute.bf16": [1, 2]})["compute_s"]
    assert 0.4 * slow < fast < 0.7 * slow


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_every_cluster_of_the_catalogue_can_be_varied(name: str) -> None:
    hardware = Hardware(name)
    own = {path: quantity.base for path, quantity in hardware.quantities.items()}
    for path, quantity in hardware.quantities.items():
        assert hardware.build({path: quantity.base}) == hardware.cluster, path
    assert hardware.values({}) == own
    again = sm.cluster(hardware.cluster.table, nodes=int(hardware.cluster.nodes))
    assert again == hardware.cluster
    for path in (MEMORY, CAPACITY, NETWORK, "scale_up.bandwidth", "accelerator.peak"):
        assert hardware.build(hardware.design({path: 2})) != hardware.cluster


def test_a_private_cluster_can_be_varied() -> None:
    private = sm.cluster({"accelerator": {"base": "H100", "memory": {"capacity": "96 GB"}}})
    roomy = design_cluster(private, {CAPACITY: 2, "price.usd_per_accelerator_hour": "2 USD/h"})
    assert roomy.core.accelerator.memory_capacity_bytes == 192e9
    assert roomy.core.price_usd_per_s == pytest.approx(2 / 3600)


def test_cells_know_which_were_given() -> None:
    cells = designs.cells(base())
    assert cells["fabric.pod"] == ("count", 0, False)
    assert cells["accelerator.memory.bandwidth"] == ("bytes_per_s", 3.35e12, True)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"vary": {"acelerator.memory.bandwidth": [1]}}, "did you mean 'accelerator.memory.bandwidth'"),
    ({"vary": {"memory.bandwidth": [1]}}, "'accelerator.memory.bandwidth'"),
    ({"vary": {3: [1]}}, "unknown path"),
    ({"vary": {NETWORK: ["400 Gbit"]}}, "fabric.bandwidth='400 Gbit'.*Gbit/s"),
    ({"vary": {NETWORK: ["fast"]}}, "fabric.bandwidth='fast'"),
    ({"vary": {NETWORK: [-1]}}, "a scale must be finite and above 0"),
    ({"vary": {NETWORK: [float("nan")]}}, "a scale must be finite and above 0"),
    ({"vary": {NETWORK: [True]}}, "a number, which scales"),
    ({"vary": {NETWORK: [None]}}, "a number, which scales"),
    ({"vary": {NETWORK: []}}, "at least one value"),
    ({"vary": {NETWORK: {"set": [1]}}}, "must be values, or"),
    ({"vary": {NETWORK: ("log", 1, 2)}}, "a range is"),
    ({"vary": {NETWORK: ("log", 1, 2, 1)}}, "points must be"),
    ({"vary": {NETWORK: ("log", 1, "2 GB/s", 3)}}, "both ends"),
    ({"vary": {NETWORK: ("log", "0 B/s", "2 GB/s", 3)}}, "log range must be above 0"),
    ({"vary": {"scale_up.domain": ["7.5"]}}, "whole number"),
    ({"vary": {"scale_up.domain": ["many"]}}, "a number without a unit"),
    ({"vary": {"fabric.pod": [2]}}, "no value to scale"),
    ({"vary": {"fabric.class": [2]}}, "no value to scale"),
    ({"vary": {"fabric.class": ["nvlink4"]}}, "nvlink4"),
    ({"vary": {"fabric.oversubscription": [0.5]}}, "oversubscription.*from 1"),
    ({"vary": {"nodes": [1], "accelerators": [1]}}, "give one of the two"),
    ({"vary": {"accelerator.peak": [2], "accelerator.compute.bf16": [2]}}, "varied already"),
    ({"vary": {NETWORK: [1, 2], MEMORY: [1]}, "mode": "zip"}, "equal length"),
    ({"vary": {NETWORK: [1]}, "mode": "all"}, "'grid' or 'zip'"),
    ({"vary": {}}, "at least one path"),
    ({}, "give one of the two"),
    ({"vary": {NETWORK: [1]}, "points": pd.DataFrame({NETWORK: [1]})}, "give one of the two"),
    ({"vary": {NETWORK: [1]}, "threads": 0}, "threads=0"),
    ({"vary": {NETWORK: [1]}, "budget": "design_cost <= 3"}, "design_cost is not given"),
    ({"vary": {NETWORK: [1]}, "budget": f"{MEMORY} <= 3"}, "not varied"),
    ({"vary": {NETWORK: [1]}, "budget": "cheap"}, "budget='cheap'"),
    ({"vary": {NETWORK: [1]}, "budget": 3}, "budget=3: must be"),
    ({"vary": {NETWORK: [1]}, "budget": f"{NETWORK} <= 3 kg"}, "3 kg"),
    ({"vary": {NETWORK: [1]}, "design_cost": {NETWORK: "12 per kg"}}, "12 per kg"),
    ({"vary": {NETWORK: [1]}, "design_cost": {NETWORK: "dear"}}, "dear"),
    ({"vary": {NETWORK: [1]}, "design_cost": {NETWORK: None}}, "finite number"),
    ({"vary": {NETWORK: [1]}, "design_cost": {"fabric.class": 3}}, "is no number"),
    ({"vary": {NETWORK: [1]}, "design_cost": {}}, "design_cost"),
    ({"vary": {NETWORK: [1]}, "design_cost": lambda design: float("inf")}, "must be finite"),
    ({"vary": {NETWORK: [1]}, "design_cost": {"fabric.price": 2}}, "unknown path"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_a_malformed_question_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        study(**given)


def test_a_cluster_without_an_entry_is_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="made without an entry"):
        Hardware(sm.Cluster("bare", base().core))


# ---------------------------------------------------------------------------- verdicts and budgets
def test_where_nothing_fits_there_are_no_numbers() -> None:
    table = study(vary={CAPACITY: [1, 0.05]})
    assert table["verdict"].tolist() == ["ok", "infeasible"]
    answer = table.iloc[1].drop([CAPACITY, f"{CAPACITY}_scale", "verdict"])
    assert answer.isna().all()
    assert not any(isinstance(cell, float) for cell in answer)
    assert str(table["step_time_s"].dtype) == "Float64"
    assert best_design(table).name == 0  # type: ignore[union-attr]
    assert best_design(table.iloc[1:]) is None
    with pytest.raises(sm.ScaleModelError, match="infeasible: there is no strategy"):
        design_strategy(table.iloc[1])


def test_a_design_beyond_its_budget_is_not_searched() -> None:
    seen: list[tuple[int, int]] = []
    table = study(
        vary={NETWORK: [1, 2, 4]},
        design_cost={NETWORK: "10 per GB/s", "accelerators": 100},
        budget=["design_cost <= 2600", f"{NETWORK} > 50 GB/s"],
        progress=lambda done, of: seen.append((done, of)),
    )
    assert table["design_cost"].tolist() == [2100, 2600, 3600]
    assert table["verdict"].tolist() == ["over_budget", "ok", "over_budget"]
    assert seen == [(1, 1)]


def test_a_budget_on_the_answer_constrains_the_search() -> None:
    free, kept = (
        study(vary={NETWORK: [1]}, budget=limit).iloc[0] for limit in (None, "memory_bytes <= 6e10")
    )
    assert free["memory_bytes"] > 6e10 >= kept["memory_bytes"]
    assert free["step_time_s"] < kept["step_time_s"]
    same = study(vary={NETWORK: [1]}, constraints="memory_bytes <= 6e10").iloc[0]
    assert same["step_time_s"] == kept["step_time_s"]


def test_costs_see_every_quantity_of_a_design() -> None:
    hardware = Hardware(base())
    values = hardware.values({"accelerator.peak": 2e15, "nodes": 3.0, "node.accelerators": 4.0})
    assert values["accelerators"] == 12
    assert values["accelerator.compute.bf16"] == 2e15
    assert hardware.values({"accelerator.compute.bf16": 2e15})["accelerator.peak"] == 2e15
    table = study(
        vary={NETWORK: [2], CAPACITY: [1, 2]},
        design_cost=lambda design: design[CAPACITY] / 2**30 + design["nodes"],
    )
    assert table["design_cost"].tolist() == [82, 162]


def test_the_best_design_of_a_budget() -> None:
    table = study(
        vary={MEMORY: ("log", 0.5, 2, 3), NETWORK: ("log", 0.25, 4, 3)},
        design_cost={MEMORY: "1 per GB/s", NETWORK: "20 per GB/s"},
    )
    budget = 4000.0
    chosen = best_design(table, budget=f"design_cost <= {budget}")
    within = table[table["design_cost"] <= budget]
    assert chosen is not None
    assert chosen["step_time_s"] == within["step_time_s"].min()
    assert chosen["step_time_s"] > table["step_time_s"].min()
    fastest = best_design(table, objective="tokens_per_s")
    assert fastest is not None
    assert fastest["tokens_per_s"] == table["tokens_per_s"].max()
    with pytest.raises(sm.ScaleModelError, match="design_cos"):
        best_design(table, budget="design_cos <= 3")
    with pytest.raises(sm.ScaleModelError, match="must be a number"):
        best_design(table, budget="design_cost <= little")
    with pytest.raises(sm.ScaleModelError, match="no such column"):
        best_design(table, objective="speed")


def test_weights_and_maximised_objectives() -> None:
    table = study(vary={NETWORK: [0.1, 1]}, objective="tokens_per_s")
    assert table["objective"].tolist() == table["tokens_per_s"].tolist()
    assert best_design(table).name == 1  # type: ignore[union-attr]
    single = study(vary={NETWORK: [0.1, 1]}, objective={"tokens_per_s": 2})
    pd.testing.assert_frame_equal(single, table)
    weighted = study(vary={NETWORK: [1]}, objective={"step_time_s": 1, "energy_j": 0.5}).iloc[0]
    expected = np.log(weighted["step_time_s"]) + 0.5 * np.log(weighted["energy_j"])
    assert weighted["objective"] == pytest.approx(expected)


def test_several_objectives_are_left_to_the_front() -> None:
    table = study(
        vary={MEMORY: ("log", 0.25, 4, 5), NETWORK: ("log", 0.25, 4, 5)},
        design_cost={MEMORY: "1 per GB/s", NETWORK: "20 per GB/s"},
    )
    front = sm.pareto(table, minimize=["step_time_s", "design_cost"])
    pairs = [(float(r["step_time_s"]), r["design_cost"]) for _, r in table.iterrows()]
    undominated = {
        (t, c)
        for t, c in pairs
        if not any(a <= t and b <= c and (a, b) != (t, c) for a, b in pairs)
    }
    found = set(zip(front["step_time_s"].astype(float), front["design_cost"], strict=True))
    assert found == undominated
    assert 2 < len(front) < len(table)


def test_the_stack_is_the_one_asked_for() -> None:
    given: dict[str, Any] = {"stack": "torchtitan", "threads": 1}
    table = codesign("llama3_8b", base(), TASK, space(), vary={NETWORK: 1}, **given)
    named = sm.search("llama3_8b", base(), TASK, space(), top=1, stack="torchtitan")[0]
    plain = sm.search("llama3_8b", base(), TASK, space(), top=1)[0]
    assert table["step_time_s"][0] == named.step_time_s != plain.step_time_s
    worth = sensitivity("llama3_8b", base(), TASK, space(), paths=[CAPACITY], step=1e-3, **given)
    assert worth["fixed_high_value"][0] == named.step_time_s


# ------------------------------------------------------------------------ sensitivity and exchange
def test_sensitivities_are_sorted_and_signed() -> None:
    table = sensitivity("llama3_8b", base(), TASK, space(), threads=1)
    assert table["name"][0] == "accelerator.peak"
    spans = (table["high_value"] - table["low_value"]).abs().tolist()
    assert spans == sorted(spans, reverse=True)
    by_name = table.set_index("name")
    assert -1 <= by_name["elasticity"]["accelerator.peak"] < -0.4
    assert by_name["elasticity"]["accelerator.power.tdp"] == 0
    assert (table["low"] < 1).all()
    assert (table["high"] > 1).all()
    best = sm.search("llama3_8b", base(), TASK, space(), top=1)[0].step_time_s
    assert (table["base"] == best).all()
    energy = sensitivity(
        "llama3_8b",
        base(),
        TASK,
        space(),
        paths=["accelerator.power.tdp"],
        objective="energy_j",
        threads=1,
    )
    assert 0.7 < energy["elasticity"][0] < 1


def test_small_changes_are_worth_the_same_to_the_kept_strategy() -> None:
    table = sensitivity(
        "llama3_8b",
        base(),
        TASK,
        space(),
        paths=["accelerator.peak", MEMORY, "scale_up.bandwidth"],
        step=1e-4,
        threads=1,
    )
    kept = table["fixed_elasticity"].astype(float).tolist()
    assert table["elasticity"].astype(float).tolist() == pytest.approx(kept, abs=1e-6)


def test_sensitivity_where_an_end_fits_nothing() -> None:
    table = sensitivity(
        "llama3_8b", base(), TASK, space(), paths=[CAPACITY], step=(0.05, 2), threads=1
    )
    assert pd.isna(table["low_value"][0])
    assert pd.isna(table["elasticity"][0])
    assert not pd.isna(table["high_value"][0])
    tiny = design_cluster(base(), {CAPACITY: 0.05})
    with pytest.raises(sm.ScaleModelError, match="nothing fits"):
        sensitivity("llama3_8b", tiny, TASK, space(), threads=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": 0}, "step=0"),
        ({"step": (2, 1)}, "0 < low < high"),
        ({"paths": ["scale_up.domain"], "step": 0.01}, "does not change scale_up.domain"),
        ({"objective": {"energy_j": 1}}, "must be one column"),
        ({"paths": ["nonsense"]}, "unknown path"),
        ({"paths": "nonsense"}, "'nonsense': unknown path"),
    ],
)
def test_malformed_sensitivities(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sensitivity("llama3_8b", base(), TASK, space(), threads=1, **given)


def test_equal_performance_over_two_quantities() -> None:
    question = ("llama3_8b", base(), TASK)
    table = iso_performance(question, x=MEMORY, y=NETWORK, points=3, space=space(), threads=1)
    scales = [f"{MEMORY}_scale", f"{NETWORK}_scale"]
    assert list(table) == [MEMORY, scales[0], NETWORK, scales[1], "step_time_s", "substitution"]
    assert table[scales].iloc[4].tolist() == pytest.approx([1, 1])
    assert len(table) == 9
    assert table[MEMORY].is_monotonic_increasing
    low = table[table[NETWORK] == 12.5e9].set_index(MEMORY)["substitution"].astype(float)
    assert (low > 0).all()
    rates = exchange_rate(table, x=MEMORY, y=NETWORK)
    assert len(rates) == 5 * 3
    for _, rows in rates.dropna().groupby("level"):
        assert rows[NETWORK].is_monotonic_decreasing  # more memory, less network
    given = study(
        vary={NETWORK: ("log", 0.25, 4, 3), MEMORY: ("log", 0.25, 4, 3), CAPACITY: [1, 2]}
    )
    roomy = iso_performance(given, x=MEMORY, y=NETWORK)
    assert (roomy["step_time_s"] <= table["step_time_s"]).all()


def test_a_quantity_of_which_less_is_better_is_exchanged_the_other_way() -> None:
    table = pd.DataFrame(
        [(x, y, y / x) for x in (1.0, 2.0, 4.0) for y in (1.0, 2.0, 4.0)],
        columns=["x", "y", "step_time_s"],
    )
    rates = exchange_rate(table, x="x", y="y", levels=[1.0])
    assert rates["y"].astype(float).tolist() == pytest.approx([1, 2, 4])
    assert rates["at_edge"].tolist() == [False, False, True]
    maximised = table.rename(columns={"step_time_s": "tokens_per_s"})
    rates = exchange_rate(maximised, x="x", y="y", value="tokens_per_s", levels=[1.5])
    assert rates["y"].astype(float).tolist()[:2] == pytest.approx([1.5, 3])
    assert pd.isna(rates["y"][2])


def test_malformed_exchanges() -> None:
    table = pd.DataFrame({"x": [1.0], "y": [1.0], "step_time_s": [1.0]})
    with pytest.raises(sm.ScaleModelError, match="must differ"):
        iso_performance(table, x="x", y="x")
    with pytest.raises(sm.ScaleModelError, match="no such column"):
        iso_performance(table, x="x", y="z")
    with pytest.raises(sm.ScaleModelError, match="model, cluster, task"):
        iso_performance("llama3_8b", x="x", y="y")  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="levels=-1"):
        exchange_rate(table, x="x", y="y", levels=[-1])
    with pytest.raises(sm.ScaleModelError, match="above 0"):
        iso_performance(table.assign(x=0.0), x="x", y="y")
    assert iso_performance(table, x="x", y="y")["substitution"].isna().all()
    assert exchange_rate(table.iloc[:0], x="x", y="y").empty


def test_the_tables_can_be_drawn() -> None:
    bars = sensitivity("llama3_8b", base(), TASK, space(), threads=1)
    ax = sm.plot.tornado(bars)
    assert [label.get_text() for label in ax.get_yticklabels()] == bars["name"].tolist()
    grid = iso_performance(
        ("llama3_8b", base(), TASK), x=MEMORY, y=NETWORK, points=5, space=space(), threads=1
    )
    ax = sm.plot.iso_performance(grid, f"{MEMORY}_scale", f"{NETWORK}_scale", "step_time_s")
    assert ax.get_legend_handles_labels()[1] == ["base"]


def find(**given: Any) -> pd.Series | None:
    return invert("llama3_8b", base(), TASK, space(), threads=1, **given)


def test_inversion_finds_the_least_that_meets_a_target() -> None:
    (now,) = study(vary={MEMORY: [1]})["step_time_s"]
    assert find(path=MEMORY, target=now / 100) is None
    row = find(path="accelerator.peak", target=0.8 * now)
    assert row is not None
    assert row["accelerator.peak_scale"] > 1
    assert row["step_time_s"] == pytest.approx(0.8 * now, rel=1e-3)
    slack = find(path=MEMORY, target=100 * now, low=0.5)
    assert slack is not None
    assert slack[f"{MEMORY}_scale"] == 0.5
    (rate,) = study(vary={MEMORY: [1]})["tokens_per_s"]
    faster = find(path="accelerator.peak", target=1.2 * rate, objective="tokens_per_s")
    assert faster is not None
    assert faster["accelerator.peak_scale"] > 1
    assert faster["tokens_per_s"] == pytest.approx(1.2 * rate, rel=1e-3)


def test_inversion_of_counts_is_exact() -> None:
    def time_s(count: int) -> float:
        (found,) = study(vary={"scale_up.domain": [f"{count}"]})["step_time_s"]
        return float(found)

    assert time_s(1) > time_s(3) > time_s(4)
    for target in (time_s(4), (time_s(3) * time_s(4)) ** 0.5, time_s(1)):
        row = find(path="scale_up.domain", target=target, low=1 / 8, high=12)
        assert row is not None
        count = row["scale_up.domain"]
        assert count == int(count)
        assert time_s(int(count)) == row["step_time_s"] <= target
        assert count == 1 or time_s(int(count) - 1) > target


def test_inversion_where_more_is_worse() -> None:
    cluster = sm.cluster({"base": "dgx_h100", "fabric": {"pod": 8}}, nodes=8)
    given = {"path": "fabric.oversubscription", "low": 1, "high": 512, "threads": 1}
    at_one, at_most = codesign(
        "llama3_8b", cluster, TASK, space(), vary={"fabric.oversubscription": [1, 512]}
    )["step_time_s"]
    assert at_one < at_most
    middle = (at_one * at_most) ** 0.5
    row = invert("llama3_8b", cluster, TASK, space(), target=middle, **given)
    assert row is not None
    assert row["step_time_s"] == pytest.approx(middle, rel=1e-3)
    assert row["step_time_s"] <= middle
    with pytest.raises(sm.ScaleModelError, match="target=nan"):
        find(path=MEMORY, target=float("nan"))
    with pytest.raises(sm.ScaleModelError, match="tolerance=2"):
        find(path=MEMORY, target=1, tolerance=2)


# ----------------------------------------------------------------------------------- the package
@pytest.mark.parametrize(
    "first", ["", "import scalemodel.codesign; ", "from scalemodel.codesign import sensitivity; "]
)
def test_the_verb_can_be_called_however_it_was_imported(first: str) -> None:
    code = (
        f"import scalemodel as sm; {first}"
        "task = sm.Training(global_batch=64, sequence=4096); "
        "space = sm.Space(tp=2, pp=1, cp=1); "
        "print(len(sm.codesign('llama3_8b', 'dgx_h100', task, space, "
        "vary={'fabric.bandwidth': [1, 2]})), callable(sm.codesign.sensitivity))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "True"]


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(sm.ScaleModelError, match=r'pip install "scalemodel\[opt\]"'):
        optimise("llama3_8b", base(), TASK, space(), vary={NETWORK: [1]})
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(sm.ScaleModelError, match=r'pip install "scalemodel\[notebook\]"'):
        study(vary={NETWORK: [1]}, progress=True)


# ------------------------------------------------------------------------------------------ optuna
def test_optuna_finds_the_best_of_a_small_grid() -> None:
    pytest.importorskip("optuna")
    vary = {MEMORY: [0.5, 1, 2], NETWORK: [0.25, 1, "200 GB/s"]}
    found = optimise("llama3_8b", base(), TASK, space(), vary=vary, trials=9, batch=4, threads=1)
    whole = study(vary=vary)
    assert sorted(found.study["objective"]) == sorted(whole["objective"])
    assert found.best is not None
    assert found.best["objective"] == whole["objective"].min()


@pytest.mark.parametrize("objective", ["step_time_s", "tokens_per_s"])
def test_optuna_is_repeatable_and_never_worse_than_what_it_asked(objective: str) -> None:
    pytest.importorskip("optuna")
    given: dict[str, Any] = {
        "vary": {
            MEMORY: ("log", 0.5, 2),
            NETWORK: ("linear", "25 GB/s", "100 GB/s"),
            "scale_up.domain": ("log", 1, 4),
            CAPACITY: [0.05, 1],
        },
        "knobs": {"tp": [1, 2, 4], "recompute": ["none", "full"]},
        "objective": objective,
        "trials": 24,
        "batch": 7,
        "seed": 3,
    }
    first = optimise("llama3_8b", base(), TASK, space(), threads=1, **given)
    second = optimise("llama3_8b", base(), TASK, space(), threads=2, **given)
    pd.testing.assert_frame_equal(first.study, second.study)
    assert len(first.study) == 24
    ran = first.study[first.study["verdict"] == "ok"]
    assert 0 < len(ran) < 24
    assert (ran["tp"] == ran["asked_tp"]).all()
    assert (ran["recompute"] == ran["asked_recompute"]).all()
    assert first.study[MEMORY].between(0.5 * 3.35e12, 2 * 3.35e12).all()
    assert first.study[NETWORK].between(25e9, 100e9).all()
    assert (first.study["scale_up.domain"] % 1 == 0).all()
    assert first.best is not None
    pick = max if objective == "tokens_per_s" else min
    assert first.best["objective"] == pick(ran["objective"])
    other = optimise("llama3_8b", base(), TASK, space(), threads=1, **{**given, "seed": 4})
    assert other.study[MEMORY].tolist() != first.study[MEMORY].tolist()


@pytest.mark.parametrize("objective", ["step_time_s", "tokens_per_s"])
def test_optuna_learns_from_what_it_is_told(objective: str) -> None:
    pytest.importorskip("optuna")
    axis = ("log", 0.25, 4)
    table = optimise(
        "llama3_8b",
        base(),
        TASK,
        space(),
        vary={"accelerator.peak": axis, MEMORY: axis},
        objective=objective,
        trials=60,
        batch=5,
        threads=1,
    ).study
    times = table["step_time_s"].astype(float)
    assert times[-20:].mean() < 0.7 * times[:20].mean()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"batch": 1.5}, "batch=1.5"),
        ({"vary": {}}, "nothing to choose"),
        ({"vary": {NETWORK: ("log", 2, 1)}}, "low must be below high"),
        ({"vary": {NETWORK: ("log", 1, 2, 3)}}, "must be .'log' or 'linear', low, high"),
        ({"vary": {NETWORK: ("log", "0 B/s", "2 GB/s")}}, "above 0"),
    ],
)
def test_malformed_optimisations(given: dict[str, Any], message: str) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(sm.ScaleModelError, match=message):
        optimise("llama3_8b", base(), TASK, space(), **{"vary": {NETWORK: [1]}, **given})
