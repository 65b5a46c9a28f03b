"""Plots of scaling studies draw the rows they should, with units, and say what is missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

import scalemodel as sm
from scalemodel import plot
from scalemodel.estimator.evaluation import TIME_COLUMNS
from scalemodel.scaling import FAMILIES, crossovers, hardware_trends

pytestmark = pytest.mark.usefixtures("agg")

SIZES = [8, 64, 512, 4096]


@pytest.fixture(scope="module")
def curve() -> pd.DataFrame:
    """Full sharding of a model that does not fit on the first size."""
    task = sm.Training(global_batch=8, sequence=4096)
    plan = sm.Strategy(recompute="full")
    table = sm.scaling("llama2_70b", "dgx_h100", task, SIZES, rule="fsdp", strategy=plan)
    assert table.verdict.tolist() == ["out_of_memory", "ok", "ok", "ok"]
    return table


def drawn(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_xydata())


def test_a_curve_is_drawn_where_it_fits(curve: pd.DataFrame) -> None:
    ax = plot.scaling(curve)
    line, ideal = ax.lines
    kept = curve.iloc[1:]
    assert drawn(line)[:, 0].tolist() == kept.accelerators.tolist()
    assert drawn(line)[:, 1].tolist() == kept.tokens_per_s_per_accelerator.tolist()
    assert set(ideal.get_ydata()) == {kept.tokens_per_s_per_accelerator.iloc[0]}
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["64", "512", "4,096"]
    assert ax.get_ylabel() == "Throughput per accelerator (tokens/s)"


def test_a_share_has_its_unit_and_no_ideal(curve: pd.DataFrame) -> None:
    ax = plot.scaling(curve, "exposed_fraction", measured={1024: 0.25})
    line, measured = ax.lines
    assert ax.get_ylabel() == "Exposed (%)"
    assert drawn(line)[:, 1].tolist() == pytest.approx((100 * curve.exposed_fraction[1:]).tolist())
    assert drawn(measured).tolist() == [[1024, 25]]


def test_studies_are_told_apart(curve: pd.DataFrame) -> None:
    faster = curve.assign(mfu_fraction=1.1 * curve.mfu_fraction)
    labelled = plot.scaling({"slow": curve, "fast": faster}, "mfu_fraction")
    both = pd.concat([curve.assign(kind="slow"), faster.assign(kind="fast")])
    split = plot.scaling(both, "mfu_fraction", by="kind")
    for ax in (labelled, split):
        assert [line.get_label() for line in ax.lines] == ["slow", "fast"]
        low, high = (drawn(line)[:, 1] for line in ax.lines)
        assert high == pytest.approx(1.1 * low)


def test_hardware_trends_are_a_line_per_cluster() -> None:
    task = sm.Training(global_batch=8, sequence=4096)
    plan = sm.Strategy(recompute="full")
    clusters = ["dgx_a100", "dgx_h100"]
    table = hardware_trends("llama2_7b", task, [8, 64], clusters=clusters, strategy=plan)
    ax = plot.scaling(table, "mfu_fraction", by="cluster")
    assert [line.get_label() for line in ax.lines] == clusters


def test_shares_of_a_step_sum_to_the_whole(curve: pd.DataFrame) -> None:
    ax = plot.scaling_breakdown(curve)
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    places = sorted({round(bar.get_x(), 6) for bar in bars})
    assert len(places) == 3
    for place, (_, row) in zip(places, curve.iloc[1:].iterrows(), strict=True):
        tops = [bar.get_y() + bar.get_height() for bar in bars if round(bar.get_x(), 6) == place]
        shares = {column: 100 * row[column] / row.step_time_s for column in TIME_COLUMNS}
        assert sum(shares.values()) == pytest.approx(100)
        assert max(tops) == pytest.approx(100, abs=0.2)
    assert ax.get_ylim() == (0, 100)


def test_the_map_names_every_winner() -> None:
    task = sm.Training(global_batch=64, sequence=4096)
    families = {name: FAMILIES[name] for name in ("fsdp", "fsdp+tp")}
    table = crossovers(
        "llama2_7b", "dgx_h100", task, [64, 4096], batches=[64, 128], families=families
    )
    ax = plot.crossovers(table)
    fields = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert len(fields) == len(ax.texts) == 4
    assert all(text.get_text().startswith("+") for text in ax.texts)
    colours = {patch.get_facecolor() for patch in fields}
    assert len(colours) == table[table.wins].family.nunique()
    legend = ax.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == set(families)


def test_a_projection_lies_in_its_interval_beside_what_was_predicted() -> None:
    task = sm.Training(global_batch=16, sequence=8192)
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    table = sm.project(1.2 * est.step_time_s, est, nodes=[1, 4, 16]).table()
    ax = plot.projection(table)
    projected, predicted = (line.get_ydata() for line in ax.lines)
    assert list(projected) == table.step_time_s.tolist()
    assert list(predicted) == table.predicted_step_time_s.tolist()
    assert all(high > low for high, low in zip(projected, predicted, strict=True))
    with pytest.raises(sm.ScaleModelError, match="no size of it can run"):
        plot.projection(table.assign(step_time_s=float("nan")))


def test_what_cannot_be_drawn_is_one_error(curve: pd.DataFrame) -> None:
    with pytest.raises(sm.ScaleModelError, match="y='speed': no such column"):
        plot.scaling(curve, "speed")
    with pytest.raises(sm.ScaleModelError, match="by='cluster': no such column"):
        plot.scaling(curve, by="cluster")
    with pytest.raises(sm.ScaleModelError, match="at least one is needed"):
        plot.scaling({})
    with pytest.raises(sm.ScaleModelError, match="no size that fits"):
        plot.scaling(curve.iloc[:1])
    with pytest.raises(sm.ScaleModelError, match="no size fits"):
        plot.scaling_breakdown(curve.iloc[:1])
    with pytest.raises(sm.ScaleModelError, match="column family is missing"):
        plot.crossovers(curve)
    table = curve.iloc[:1].assign(family="a", wins=False, sequences_per_accelerator=1.0)
    with pytest.raises(sm.ScaleModelError, match="no family fits"):
        plot.crossovers(table)
