"""Plots of routed traffic show the tables they are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
from scalemodel import plot
from scalemodel.base.errors import ScaleModelError

pytestmark = pytest.mark.usefixtures("agg")


@pytest.fixture(scope="module")
def reports() -> dict[str, sm.RoutingReport]:
    fabric = sm.Fabric.leaf_spine()
    jobs = sm.Traffic.paper_mix(fabric, jobs=3, ring=4)
    return {policy: sm.route(fabric, jobs, policy=policy) for policy in ("ecmp", "balanced")}


@pytest.mark.parametrize("direction", ["up", "down"])
def test_the_heat_map_holds_every_byte_between_leaves_and_spines(
    reports: dict[str, sm.RoutingReport], direction: str
) -> None:
    ax = plot.link_loads(reports["ecmp"], direction=direction)
    (image,) = ax.get_images()
    cells = np.asarray(image.get_array())
    assert cells.shape == (64, 32)
    links = reports["ecmp"].links()
    kinds = ("leaf", "spine") if direction == "up" else ("spine", "leaf")
    mine = links[(links.source_kind == kinds[0]) & (links.destination_kind == kinds[1])]
    assert cells.sum() == pytest.approx(1e-9 * mine.load_bytes.sum())
    assert cells.max() == pytest.approx(1e-9 * mine.load_bytes.max())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Spine", "Leaf")


def test_the_curve_of_balanced_links_spreads_less(reports: dict[str, sm.RoutingReport]) -> None:
    ax = plot.link_load_cdf(reports)
    spread = {}
    for line in ax.get_lines():
        loads, share = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert (np.diff(loads) >= 0).all()
        assert share[-1] == 100
        spread[line.get_label()] = loads[-1] / loads[0]
    assert spread["balanced"] <= spread["ecmp"]
    assert "(GB)" in ax.get_xlabel()


def test_balanced_flows_complete_before_hashed_ones() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=8, spines=4, nics_per_leaf=4)
    jobs = [{"pattern": "ring", "nics": list(range(0, 32, 2)), "size_bytes": 1e9}]
    runs = {
        policy: sm.simulate_network(fabric, jobs, policy=policy, epochs=2)
        for policy in ("ecmp", "balanced")
    }
    ax = plot.completion_times(runs)
    last = {line.get_label(): np.asarray(line.get_xdata())[-1] for line in ax.get_lines()}
    for policy, run in runs.items():
        assert last[policy] == run.attrs["completion"].times("flow").time_s.max()
    assert last["balanced"] <= last["ecmp"]
    assert all(np.asarray(line.get_ydata())[-1] == 100 for line in ax.get_lines())
    with pytest.raises(ScaleModelError, match="of='packet'"):
        plot.completion_times(runs, of="packet")
    with pytest.raises(ScaleModelError, match="simulate_network"):
        plot.completion_times({"no run": runs["ecmp"].to_numpy()})


def test_bars_are_the_slowdowns_of_the_jobs(reports: dict[str, sm.RoutingReport]) -> None:
    ax = plot.job_slowdowns(reports)
    heights = [patch.get_height() for patch in ax.patches]  # type: ignore[attr-defined]
    wanted = [value for report in reports.values() for value in report.jobs().slowdown]
    assert heights == pytest.approx(wanted)
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert shown == list(reports["ecmp"].jobs().job)


def test_one_report_and_its_tables_plot_alike(
    reports: dict[str, sm.RoutingReport], tmp_path: Path
) -> None:
    report = reports["ecmp"]
    first = plot.link_loads(report).get_images()[0].get_array()
    second = plot.link_loads(report.links()).get_images()[0].get_array()
    assert (np.asarray(first) == np.asarray(second)).all()
    ax = plot.job_slowdowns(report.jobs())
    assert ax.get_legend() is None
    plot.save(ax, tmp_path / "jobs.svg")
    assert "Slowdown (1 = alone)" in (tmp_path / "jobs.svg").read_text(encoding="utf-8")


def test_the_map_draws_every_cable_once_and_failed_ones_dashed() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=4, spines=3, nics_per_leaf=4)
    jobs = [{"pattern": "ring", "nics": [0, 4, 8, 12], "size_bytes": 1e9}]
    damaged = fabric.failed(spines=[2], cables=[(0, 4)])
    report = sm.route(damaged, jobs)
    ax = plot.network_map(report)
    lines = {
        str(c.get_linestyle()): len(c.get_segments())
        for c in ax.collections
        if hasattr(c, "get_segments")
    }
    assert sum(lines.values()) == 4 * 3 + 16
    dashed = [count for name, count in lines.items() if "None" not in name]
    assert dashed == [4 + 1]
    (coloured,) = [c for c in ax.collections if c.get_array() is not None]
    assert np.asarray(coloured.get_array()).max() == pytest.approx(1.0)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["nic", "leaf", "spine"]


def test_maps_without_load_of_large_and_of_flat_networks() -> None:
    large = plot.network_map(sm.Fabric.leaf_spine(leaves=8, spines=4, nics_per_leaf=32))
    assert [text.get_text() for text in large.get_yticklabels()] == ["leaf", "spine"]
    (lines,) = [c for c in large.collections if hasattr(c, "get_segments")]
    assert len(lines.get_segments()) == 32
    flat = plot.network_map(sm.Fabric.direct_connect(8, ports=2, rings=1))
    (lines,) = [c for c in flat.collections if hasattr(c, "get_segments")]
    assert len(lines.get_segments()) == 8
    assert np.linalg.norm(np.concatenate(lines.get_segments()), axis=1) == pytest.approx(1.0)
    torus = plot.network_map(sm.Fabric.torus((3, 3)))
    (lines,) = [c for c in torus.collections if hasattr(c, "get_segments")]
    radius = np.linalg.norm(np.concatenate(lines.get_segments()), axis=1)
    assert set(radius.round(6)) == {1.0, 0.75}
    assert not torus.get_yticklabels()
    with pytest.raises(ScaleModelError, match="column source is missing"):
        plot.network_map(sm.Fabric.leaf_spine(leaves=2).links().drop(columns="source"))


def test_efficiency_over_time_is_the_table_of_the_controller() -> None:
    fabric = sm.Fabric.leaf_spine()
    jobs = sm.Traffic.paper_mix(fabric, jobs=2, ring=2)
    changes = [(1.0, fabric.failed(spines=range(4)))]
    runs = {
        "hashed": sm.simulate_network(fabric, jobs, policy="ecmp", epochs=2, changes=changes),
        "controlled": sm.simulate_network(
            fabric, jobs, epochs=2, changes=changes, reoptimise_every_s=0.5
        ),
    }
    ax = plot.network_efficiency(runs)
    for line, (label, run) in zip(ax.get_lines(), runs.items(), strict=True):
        log = run.attrs["controller"]
        assert line.get_label() == label
        assert list(line.get_xdata())[:-1] == log["time_s"]
        assert list(line.get_ydata())[:-1] == log["efficiency_fraction"]
        assert float(np.asarray(line.get_xdata())[-1]) >= run.end_s.max()
    with pytest.raises(ScaleModelError, match="no controller ran"):
        plot.network_efficiency(sm.simulate_network(fabric, jobs, epochs=1))
    with pytest.raises(ScaleModelError, match="at least one"):
        plot.network_efficiency({})


def test_what_cannot_be_plotted_says_why(reports: dict[str, sm.RoutingReport]) -> None:
    report = reports["ecmp"]
    with pytest.raises(ScaleModelError, match="direction='left'"):
        plot.link_loads(report, direction="left")
    with pytest.raises(ScaleModelError, match="column load_bytes is missing"):
        plot.link_loads(report.links().drop(columns="load_bytes"))
    with pytest.raises(ScaleModelError, match="at least one"):
        plot.link_load_cdf({})
    with pytest.raises(ScaleModelError, match="of the same jobs"):
        plot.job_slowdowns({"a": report, "b": report.jobs().head(1)})
    only_nics = report.links()[report.links().source_kind == "nic"]
    with pytest.raises(ScaleModelError, match="between switches"):
        plot.link_load_cdf(only_nics)
    torus = sm.Fabric.torus((2, 2))
    with pytest.raises(ScaleModelError, match="other tiers"):
        plot.link_loads(torus.links().assign(load_bytes=1.0, utilisation_fraction=0.1))
