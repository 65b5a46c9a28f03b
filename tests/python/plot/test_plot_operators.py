"""Plots of kernels and collectives show the rates they claim to show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import plot

pytestmark = pytest.mark.usefixtures("agg")

SIZES = [256, 1024, 4096]


@pytest.fixture(scope="module")
def est() -> sm.Estimate:
    task = sm.Training(global_batch=64, sequence=8192)
    return sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))


# ------------------------------------------------------------------------------ multiplications
def test_no_multiplication_beats_the_peak() -> None:
    table = plot.gemm_table("h100_sxm_80", m=SIZES, n=SIZES, k=SIZES)
    assert len(table) == 27
    assert ((table.efficiency_fraction > 0) & (table.efficiency_fraction < 1)).all()
    flop = 2 * table.m * table.n * table.k
    np.testing.assert_allclose(table.flop_per_s * table.time_s, flop)
    assert list(table.k[:3]) == SIZES


def test_the_surface_shows_every_pair_once() -> None:
    table = plot.gemm_table("h100_sxm_80", m=SIZES, n=[*SIZES, 8192], k=[8192])
    ax = plot.gemm_efficiency(table)
    (mesh,) = ax.collections
    shown = np.asarray(mesh.get_array()).reshape(3, 4)
    expected = table.efficiency_fraction.to_numpy().reshape(3, 4)
    np.testing.assert_allclose(shown, expected)
    assert [text.get_text() for text in ax.texts] == [f"{100 * v:.0f}" for v in expected.ravel()]
    assert ax.get_title(loc="left") == "Percent of peak, k = 8k"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["256", "1k", "4k", "8k"]


def test_other_planes_and_means() -> None:
    table = plot.gemm_table("a100_sxm_80", m=[64, 4096], n=[4096, 8192], k=[4096])
    ax = plot.gemm_efficiency(table, x="k", y="m")
    mean = table.groupby("m").efficiency_fraction.mean()
    np.testing.assert_allclose(np.asarray(ax.collections[0].get_array()).ravel(), mean)
    assert "2 values" in ax.get_title(loc="left")


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"precision": "fp3"}, "precision='fp3'"),
        ({"precision": "fp4"}, "not supported"),
        ({"m": []}, "m="),
        ({"m": [0.5]}, "m="),
    ],
)
def test_grids_are_checked(arguments: dict[str, object], named: str) -> None:
    given: dict[str, object] = {"m": [1], "n": [1], "k": [1], **arguments}
    with pytest.raises(sm.ScaleModelError, match=named):
        plot.gemm_table("h100_sxm_80", **given)  # type: ignore[arg-type]


def test_surfaces_are_checked() -> None:
    table = plot.gemm_table("h100_sxm_80", m=[64], n=[64], k=[64])
    with pytest.raises(sm.ScaleModelError, match="two of m, n, k"):
        plot.gemm_efficiency(table, x="m", y="m")
    with pytest.raises(sm.ScaleModelError, match="efficiency_fraction is missing"):
        plot.gemm_efficiency(table.drop(columns="efficiency_fraction"))
    with pytest.raises(sm.ScaleModelError, match="no row"):
        plot.gemm_efficiency(table.iloc[:0])


# -------------------------------------------------------------------------------------- roofline
def test_every_point_lies_under_the_roof(est: sm.Estimate) -> None:
    ax = plot.roofline(est)
    slope, peak, *points = ax.lines
    accelerator = est.cluster.core.accelerator
    bandwidth = accelerator.memory_bandwidth_bytes_per_s / 1e12
    top = np.asarray(peak.get_ydata())[0]
    assert top == pytest.approx(989)
    np.testing.assert_allclose(np.asarray(slope.get_ydata())[-1], top)
    labels = set()
    for point in points:
        (x,), (y,) = np.asarray(point.get_xdata()), np.asarray(point.get_ydata())
        assert 0 < y <= min(top, bandwidth * x)
        labels.add(point.get_label())
    assert {"qkv", "mlp_up", "mlp_down", "head"} <= labels
    assert "norm" not in labels
    assert ax.get_xlabel() == "Arithmetic intensity (flop/byte)"


def test_an_illegal_strategy_has_no_roofline() -> None:
    task = sm.Training(global_batch=64, sequence=8192)
    illegal = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=7))
    with pytest.raises(sm.ScaleModelError, match="illegal:mesh"):
        plot.roofline(illegal)


# ----------------------------------------------------------------------------------- collectives
def test_bus_bandwidth_rises_with_size_and_stays_below_the_wire() -> None:
    sizes = [2.0**i for i in range(10, 35, 2)]
    table = plot.collective_table("dgx_h100", "all_gather", ranks=[2, 8], sizes_bytes=sizes)
    for _, rows in table.groupby("ranks"):
        rates = rows.bus_bandwidth_bytes_per_s.to_numpy()
        assert (np.diff(rates) > 0).all()
        assert rates[-1] < 450e9
    ax = plot.bus_bandwidth(table, peak_bytes_per_s=450e9)
    first, second, link = ax.lines
    assert [line.get_label() for line in ax.lines] == ["2 ranks", "8 ranks", "link 450 GB/s"]
    np.testing.assert_allclose(
        np.asarray(second.get_ydata()), table[table.ranks == 8].bus_bandwidth_bytes_per_s / 1e9
    )
    assert link.get_linestyle() == "--"
    assert first.get_marker() != second.get_marker()
    assert ax.get_ylabel() == "Bus bandwidth (GB/s)"
    assert ax.get_title(loc="left") == "All-gather"


@pytest.mark.parametrize(
    "arguments, named",
    [
        ({"op": "reduce"}, "op='reduce'"),
        ({"ranks": [1]}, "ranks="),
        ({"ranks": []}, "ranks="),
        ({"sizes_bytes": [0]}, "sizes_bytes="),
        ({"cluster": "nope"}, "nope"),
    ],
)
def test_collectives_are_checked(arguments: dict[str, object], named: str) -> None:
    given: dict[str, object] = {
        **{"cluster": "dgx_h100", "op": "all_reduce", "ranks": [2], "sizes_bytes": [1e6]},
        **arguments,
    }
    with pytest.raises(sm.ScaleModelError, match=named):
        plot.collective_table(**given)  # type: ignore[arg-type]


def test_measurements_can_be_drawn_too() -> None:
    table = pd.DataFrame(
        {"ranks": [8, 8], "size_bytes": [2e6, 1e6], "bus_bandwidth_bytes_per_s": [2e9, 1e9]}
    )
    (line,) = plot.bus_bandwidth(table).lines
    assert list(np.asarray(line.get_xdata())) == [1e6, 2e6]
    with pytest.raises(sm.ScaleModelError, match="ranks is missing"):
        plot.bus_bandwidth(table.drop(columns="ranks"))


# ---------------------------------------------------------------------------------------- parity
def test_kernels_stand_beside_their_measurements() -> None:
    frame = pd.DataFrame(
        {
            "source": ["a@1", "a@2", "b:c"],
            "gpu": "H100",
            "time_us": ["10", "20", ""],
            "predicted_time_us": [11.0, 18.0, 5.0],
        }
    )
    ax = plot.validation(frame)
    assert ax.get_xlabel() == "Measured time of a call (us)"
    assert ax.get_title(loc="left") == "2 rows, MAPE 10.0 %"
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["±10 %", "equal", "a, H100"]


def test_the_given_axis_is_used(est: sm.Estimate) -> None:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, 3)
    before = len(plt.get_fignums())
    table = plot.gemm_table("h100_sxm_80", m=SIZES, n=SIZES, k=[1024])
    busy = plot.collective_table("dgx_h100", "all_reduce", ranks=[8], sizes_bytes=[1e6])
    assert plot.gemm_efficiency(table, ax=axes[0]) is axes[0]
    assert plot.roofline(est, ax=axes[1]) is axes[1]
    assert plot.bus_bandwidth(busy, ax=axes[2]) is axes[2]
    assert len(plt.get_fignums()) == before
