"""Plots of the network draw what `sm.route` returns for training jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel import plot
from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.network import NetworkReport, _link_bytes

pytestmark = pytest.mark.usefixtures("agg")

TASK = sm.Training(global_batch=512, sequence=8192)
JOBS: list[dict[str, Any]] = [
    {"model": "llama3_8b", "strategy": sm.Strategy(tp=2, pp=2, dp=16), "task": TASK, "name": "a"},
    {"model": "llama3_8b", "strategy": sm.Strategy(tp=4, dp=16), "task": TASK, "name": "b"},
]
FABRICS = {
    "two tiers": sm.Fabric.leaf_spine(leaves=16, spines=8, nics_per_leaf=8),
    "fat tree": sm.Fabric.fat_tree(ports=8),
    "rails": None,
}


def routed(policy: str, fabric: str = "two tiers", **options: Any) -> NetworkReport:
    cluster = sm.cluster("dgx_h100", nodes=16)
    given = {"fabric": FABRICS[fabric], "placement": "random_nics", **options}
    return sm.route(cluster, JOBS, policy=policy, **given)


@pytest.fixture(scope="module")
def reports() -> dict[str, NetworkReport]:
    return {policy: routed(policy) for policy in ("ecmp", "balanced")}


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("policy", ["ecmp", "subflow_ecmp", "spray", "balanced"])
def test_bytes_on_links_are_those_that_the_engine_counts(policy: str, fabric: str) -> None:
    report = routed(policy, fabric)
    for part in report.parts:
        sizes = part.report.traffic.core.columns()["size_bytes"]
        counted = part.report.columns["link_bytes"]
        assert _link_bytes(part.report, sizes, report.limits) == pytest.approx(counted)


def test_detours_are_found_again() -> None:
    report = sm.route(
        sm.cluster("dgx_h100", nodes=16),
        [JOBS[0] | {"strategy": sm.Strategy(tp=2, pp=4, dp=16)}],
        policy="spray",
        fabric=sm.Fabric.dragonfly(routers=4, nics=8, global_cables=2),
        detours=2,
    )
    assert report.limits == (256, 2)
    for part in report.parts:
        sizes = part.report.traffic.core.columns()["size_bytes"]
        counted = part.report.columns["link_bytes"]
        assert _link_bytes(part.report, sizes, report.limits) == pytest.approx(counted)


def test_what_leaves_the_nics_is_what_a_step_sends(reports: dict[str, NetworkReport]) -> None:
    for report in reports.values():
        links, flows = report.links(), report.flows()
        sent = float((flows.size_bytes * flows.times_per_step).sum())
        for end in ("source", "destination"):
            assert links[links[f"{end}_kind"] == "nic"].load_bytes.sum() == pytest.approx(sent)
        assert links.utilisation_fraction.max() == pytest.approx(1.0)


def test_slowdowns_are_those_of_the_shares(reports: dict[str, NetworkReport]) -> None:
    for report in reports.values():
        table = report.slowdowns().set_index("job")
        effective = report.effective()
        for name, row in table.iterrows():
            shares = effective[effective.job == name].share_fraction
            assert 1 / shares.max() - 1e-9 <= row.slowdown <= 1 / shares.min() + 1e-9
            assert row.network_s == pytest.approx(row.slowdown * row.alone_s)
    assert routed("ecmp", "rails", placement="packed").slowdowns().slowdown.tolist() == [1.0, 1.0]


def test_all_four_plots_draw_training_jobs(reports: dict[str, NetworkReport]) -> None:
    report = reports["ecmp"]
    links = report.links()
    (image,) = plot.link_loads(report).get_images()
    up = links[(links.source_kind == "leaf") & (links.destination_kind == "spine")]
    assert np.asarray(image.get_array()).sum() == pytest.approx(1e-9 * up.load_bytes.sum())

    curves = plot.link_load_cdf(reports).get_lines()
    between = links[(links.source_kind != "nic") & (links.destination_kind != "nic")]
    assert np.asarray(curves[0].get_xdata()).max() == pytest.approx(1e-9 * between.load_bytes.max())

    bars = [bar.get_height() for bar in plot.job_slowdowns(reports).patches]  # type: ignore[attr-defined]
    wanted = [value for each in reports.values() for value in each.slowdowns().slowdown]
    assert bars == pytest.approx(wanted)

    drawn = [c for c in plot.network_map(report).collections if c.get_array() is not None]
    used = np.asarray(drawn[0].get_array())
    assert used.max() == pytest.approx(1.0)
    assert len(used) == 16 * 8 + 128


def test_a_job_without_a_path_is_named() -> None:
    fabric = sm.Fabric.leaf_spine(leaves=16, spines=1, nics_per_leaf=8).failed(spines=[0])
    lost = sm.route(sm.cluster("dgx_h100", nodes=16), JOBS, fabric=fabric, placement="random_nics")
    assert lost.verdict == "illegal:disconnected"
    assert lost.links().load_bytes.sum() >= 0
    with pytest.raises(ScaleModelError, match="jobs: a has a flow without a path"):
        plot.job_slowdowns(lost)
