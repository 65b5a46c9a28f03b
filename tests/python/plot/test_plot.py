"""Plots show the columns they claim to show, with units, in a file whose text is text."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import scalemodel as sm
from scalemodel import plot

pytestmark = pytest.mark.usefixtures("agg")

TASK = sm.Training(global_batch=1024, sequence=8192)


@pytest.fixture(scope="module")
def estimates() -> list[sm.Estimate]:
    cluster = sm.cluster("dgx_h100", nodes=64)
    strategies = [
        sm.Strategy(tp=8, pp=4),
        sm.Strategy(),
        sm.Strategy(sharding="zero3", recompute="full"),
    ]
    return [sm.estimate("llama3_70b", cluster, TASK, strategy) for strategy in strategies]


def bars(ax: Axes) -> list[list[Rectangle]]:
    """Parts of each stacked bar, from top to bottom."""
    rows: dict[float, list[Rectangle]] = {}
    for patch in ax.patches:
        assert isinstance(patch, Rectangle)
        rows.setdefault(round(patch.get_y() + patch.get_height() / 2, 6), []).append(patch)
    return [rows[key] for key in sorted(rows)]


def bar_ends(ax: Axes) -> list[float]:
    return [max(part.get_x() + part.get_width() for part in parts) for parts in bars(ax)]


def bar_sums(ax: Axes) -> list[float]:
    return [sum(part.get_width() for part in parts) for parts in bars(ax)]


def test_bars_of_time_sum_to_the_step_time(estimates: list[sm.Estimate]) -> None:
    ax = plot.breakdown(estimates)
    expected = [est.step_time_s for est in estimates]
    np.testing.assert_allclose(bar_sums(ax), expected, rtol=1e-9)
    np.testing.assert_allclose(bar_ends(ax), expected, rtol=1e-9)
    assert ax.get_xlabel() == "Step time (s)"


def test_bars_of_memory_sum_to_the_memory(estimates: list[sm.Estimate]) -> None:
    ax = plot.memory(estimates)
    expected = [est.memory_bytes / 2**30 for est in estimates]
    np.testing.assert_allclose(bar_sums(ax), expected, rtol=1e-9)
    assert ax.get_xlabel() == "Memory per accelerator (GiB)"
    (line,) = ax.lines
    assert np.asarray(line.get_xdata())[0] == pytest.approx(
        estimates[0].memory_capacity_bytes / 2**30
    )


def test_one_estimate_is_a_list_of_one(estimates: list[sm.Estimate]) -> None:
    for draw in (plot.breakdown, plot.memory):
        assert len(bar_ends(draw(estimates[0]))) == 1


def test_parts_differ_by_colour_and_hatch(estimates: list[sm.Estimate]) -> None:
    ax = plot.memory(estimates)
    handles, labels = ax.get_legend_handles_labels()
    bars = [handle for handle in handles if hasattr(handle, "patches")]
    looks = {(bar.patches[0].get_facecolor(), bar.patches[0].get_hatch()) for bar in bars}
    assert len(looks) == len(bars)
    assert len(set(labels)) == len(labels)
    assert {"weights", "activations", "capacity 80 GiB"} <= set(labels)


def test_the_given_axis_is_used(estimates: list[sm.Estimate]) -> None:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 2)
    before = len(plt.get_fignums())
    assert plot.breakdown(estimates, ax=axes[0]) is axes[0]
    assert plot.memory(estimates, ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == before


def test_settings_stay_as_they_were(estimates: list[sm.Estimate]) -> None:
    before = dict(mpl.rcParams)
    plot.breakdown(estimates)
    plot.memory(estimates)
    plot.validation(measurements())
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("draw", [plot.breakdown, plot.memory])
def test_what_has_no_numbers_is_refused(draw: object) -> None:
    assert callable(draw)
    illegal = sm.estimate("llama3_70b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=7))
    with pytest.raises(sm.ScaleModelError, match="illegal:mesh"):
        draw([illegal])
    with pytest.raises(sm.ScaleModelError, match="at least one"):
        draw([])
    with pytest.raises(sm.ScaleModelError, match="must be an Estimate"):
        draw(["x"])


def test_models_of_layer_groups_are_drawn_too_and_beside_decoders() -> None:
    cluster, task = sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=4096)
    groups = sm.estimate(sm.compose("llama3_8b"), cluster, task, sm.GroupStrategy("sp@4+fsdp"))
    tables = sm.estimate(
        sm.compose("dlrm_dcnv2"), cluster, sm.Training(global_batch=65536, sequence=1)
    )
    decoder = sm.estimate("llama3_8b", cluster, task, sm.Strategy(tp=4, sharding="zero3"))
    for listed in ([groups], [tables, groups], [decoder, groups, tables]):
        for draw, whole, unit in (
            (plot.breakdown, "step_time_s", 1.0),
            (plot.memory, "memory_bytes", 2.0**30),
        ):
            ax = draw(listed)
            ends = [
                max(bar.get_x() + bar.get_width() for bar in bars)
                for bars in zip(*ax.containers, strict=True)
            ]
            assert ends == pytest.approx([getattr(est, whole) / unit for est in listed])
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels[1] == "llama3_8b\nsp@4+fsdp@2"
    assert "exposed exchange" in [
        text.get_text() for text in plot.breakdown([decoder, tables]).get_legend().get_texts()
    ]


# ------------------------------------------------------------------------------------- validation
def measurements() -> pd.DataFrame:
    """What `validate` returns, in the columns a plot reads: text as in the file, numbers."""
    return pd.DataFrame(
        {
            "source": ["a", "a", "b", "b", "b"],
            "gpu": ["H100", "H100", "H100", "A100", "A100"],
            "norm_step_time_s": ["10", "2", "5", "", "8"],
            "predicted_step_time_s": [11.0, 2.0, 4.0, 3.0, np.nan],
        }
    )


def test_predictions_stand_beside_measurements() -> None:
    ax = plot.validation(measurements())
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlabel() == "Measured step time (s)"
    assert ax.get_ylabel() == "Predicted step time (s)"
    assert ax.get_title(loc="left") == "3 rows, MAPE 10.0 %"
    points = sum(np.size(line.get_xdata()) for line in ax.lines if line.get_marker() != "None")
    assert points == 3
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "±10 %",
        "equal",
        "a, H100",
        "b, H100",
    ]


def test_many_groups_look_different() -> None:
    count = 60
    frame = pd.DataFrame(
        {
            "source": [f"source {i}" for i in range(count)],
            "gpu": "H100",
            "norm_step_time_s": np.linspace(1, 10, count),
            "predicted_step_time_s": np.linspace(1, 11, count),
        }
    )
    ax = plot.validation(frame)
    lines = [line for line in ax.lines if line.get_marker() != "None"]
    assert len({(line.get_marker(), line.get_color()) for line in lines}) == count


def test_a_table_without_predictions_is_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="norm_step_time_s"):
        plot.validation(pd.DataFrame({"x": [1]}))
    with pytest.raises(sm.ScaleModelError, match="no row"):
        plot.validation(measurements().iloc[3:])


# ------------------------------------------------------------------------------------- files
def test_saved_text_is_text(estimates: list[sm.Estimate], tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    plot.save(plot.memory(estimates), path)
    text = path.read_text(encoding="utf-8")
    written = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert "Memory per accelerator (GiB)" in written
    assert "activations" in written
    assert f"scalemodel {sm.__version__}" in text


@pytest.mark.parametrize("suffix", ["png", "pdf", "jpg"])
def test_other_formats_are_written(
    estimates: list[sm.Estimate], tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"time.{suffix}"
    figure = plot.breakdown(estimates).figure
    assert isinstance(figure, Figure)
    plot.save(figure, path)
    assert path.stat().st_size > 1000


def test_public_names_are_documented() -> None:
    assert sm.plot is plot
    for name in plot.__all__:
        assert getattr(plot, name).__doc__
