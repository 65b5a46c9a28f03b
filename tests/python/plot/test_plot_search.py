"""Plots of a search draw the rows they should, where they should, and say so in words and units."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

import scalemodel as sm
from scalemodel import plot
from scalemodel.plot.columns import number_text, scale_of, strategy_text
from scalemodel.search.objective import is_maximised

pytestmark = pytest.mark.usefixtures("agg")


@pytest.fixture(scope="module")
def sweep() -> pd.DataFrame:
    """Real estimates: some run, some do not fit, some are illegal and have no numbers."""
    task = sm.Training(global_batch=1024, sequence=8192)
    cluster = sm.cluster("dgx_h100", nodes=64)
    rows = [
        sm.estimate(
            "llama3_70b",
            cluster,
            task,
            sm.Strategy(tp=tp, pp=pp, micro_batch=m, recompute=recompute),
        ).to_dict()
        for tp, pp, m, recompute in itertools.product(
            (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 3), ("none", "full")
        )
    ]
    frame = pd.DataFrame(rows)
    kinds = set(frame.verdict.str.split(":").str[0])
    assert kinds == {"ok", "out_of_memory", "illegal"}
    return frame


@pytest.fixture
def front(sweep: pd.DataFrame) -> pd.DataFrame:
    return sm.pareto(sweep, minimize=["step_time_s", "memory_bytes"])


def line(ax: Axes, label: str) -> Line2D:
    (found,) = [item for item in ax.lines if item.get_label() == label]
    return found


def data(item: Line2D) -> list[tuple[float, float]]:
    return list(zip(np.asarray(item.get_xdata()), np.asarray(item.get_ydata()), strict=True))


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def legend(ax: Axes) -> list[str]:
    drawn = ax.get_legend()
    assert drawn is not None
    return [text.get_text() for text in drawn.get_texts()]


# ------------------------------------------------------------------------------------------ columns
@pytest.mark.parametrize(
    ("column", "label", "divisor"),
    [
        ("step_time_s", "Step time (s)", 1),
        ("memory_activations_bytes", "Memory activations (GiB)", 2**30),
        ("energy_j", "Energy (MJ)", 1e6),
        ("cost_usd", "Cost (USD)", 1),
        ("tokens_per_s", "Throughput (tokens/s)", 1),
        ("tokens_per_accelerator_per_s", "Throughput (tokens/accelerator/s)", 1),
        ("tokens_per_j", "Efficiency (tokens/J)", 1),
        ("mfu_fraction", "MFU (%)", 0.01),
        ("power_w", "Power (W)", 1),
        ("bus_bandwidth_bytes_per_s", "Bus bandwidth (GB/s)", 1e9),
        ("peak_flop_per_s", "Peak (TFLOP/s)", 1e12),
        ("accelerator.memory.bandwidth", "accelerator.memory.bandwidth", 1),
        ("tp", "tp", 1),
    ],
)
def test_a_suffix_is_a_unit(column: str, label: str, divisor: float) -> None:
    assert scale_of(column).label == label
    assert scale_of(column).divisor == divisor


def test_every_column_of_an_estimate_with_a_unit_is_named_with_it(sweep: pd.DataFrame) -> None:
    for column in map(str, sweep.columns):
        if re.search(r"_(s|j|w|usd|bytes|fraction)$", column):
            assert re.search(r"\(.+\)$", scale_of(column).label), column


def test_directions_are_those_of_a_search() -> None:
    larger = {"tokens_per_s", "tokens_per_j", "mfu_fraction", "hfu_fraction"}
    smaller = {"step_time_s", "bubble_fraction", "memory_bytes", "power_w", "cost_usd"}
    assert {name for name in larger | smaller if is_maximised(name)} == larger


def test_strategies_are_named_by_what_is_not_plain() -> None:
    row = sm.Strategy(tp=2, pp=4, micro_batch=3, sharding="zero3", recompute="full").to_dict()
    assert strategy_text(row) == "tp2 pp4 zero3 micro-batch 3 recompute full"
    assert strategy_text({"tp": 2.0, "micro_batch": 1.0, "sharding": "ddp"}) == "tp2"
    assert strategy_text({"tp": None, "dp": float("nan"), "x": 1}) == ""


@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1234.0, 99_999.0, 123_456.0, 1e-9, 3.14159])
def test_short_numbers_keep_three_digits(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=5e-3)
    assert len(number_text(value)) <= 9


# ------------------------------------------------------------------------------------------- fronts
def test_a_front_is_drawn_where_its_rows_are(front: pd.DataFrame) -> None:
    ax = plot.pareto(front)
    drawn = data(line(ax, "Pareto front"))
    expected = list(zip(front.step_time_s, front.memory_bytes / 2**30, strict=True))
    np.testing.assert_allclose(drawn, expected)
    assert ax.get_xlabel() == "Step time (s)"
    assert ax.get_ylabel() == "Memory (GiB)"
    assert legend(ax) == ["Pareto front", "capacity 80 GiB", "fastest"]


def test_the_fastest_row_has_a_star_and_memory_its_capacity(front: pd.DataFrame) -> None:
    ax = plot.pareto(front)
    fastest = front.loc[front.step_time_s.idxmin()]
    (star,) = data(line(ax, "fastest"))
    assert star == pytest.approx([fastest.step_time_s, fastest.memory_bytes / 2**30])
    assert strategy_text(dict(fastest)) in texts(ax)
    assert set(np.asarray(line(ax, "capacity 80 GiB").get_ydata())) == {80.0}
    turned = plot.pareto(front, "memory_bytes", "tokens_per_s")
    assert set(np.asarray(line(turned, "capacity 80 GiB").get_xdata())) == {80.0}
    assert data(line(turned, "fastest"))[0][1] == pytest.approx(front.tokens_per_s.max())
    assert "fastest" not in legend(plot.pareto(front, "memory_bytes", "energy_j"))


@pytest.mark.parametrize(
    ("minimize", "maximize", "corner"),
    [
        # Between two rows, what can still be had in y is that of the row no worse in x.
        (["a", "b"], [], (3.0, 5.0)),
        ([], ["a", "b"], (1.0, 2.0)),
        (["a"], ["b"], (3.0, 2.0)),
        (["b"], ["a"], (1.0, 5.0)),
    ],
)
def test_steps_bound_what_can_be_had(
    minimize: list[str], maximize: list[str], corner: tuple[float, float]
) -> None:
    falls = len(minimize) != 1
    frame = pd.DataFrame({"a": [1.0, 3.0], "b": [5.0, 2.0] if falls else [2.0, 5.0]})
    ax = plot.pareto(sm.pareto(frame, minimize, maximize), "a", "b", knees=0)
    drawn = line(ax, "Pareto front")
    path = [tuple(map(float, point)) for point in np.asarray(drawn.get_path().vertices)]
    assert path[0] == (1.0, frame.b[0])
    assert path[-1] == (3.0, frame.b[1])
    assert path[1] == corner


def test_other_rows_are_grey_dots_and_crosses(sweep: pd.DataFrame, front: pd.DataFrame) -> None:
    ax = plot.pareto(front, frame=sweep)
    dots, crosses = line(ax, "feasible"), line(ax, "does not fit")
    assert len(data(dots)) == (sweep.verdict == "ok").sum()
    assert len(data(crosses)) == (sweep.verdict == "out_of_memory").sum()
    over = sweep[sweep.verdict == "out_of_memory"]
    np.testing.assert_allclose(
        sorted(y for _, y in data(crosses)), np.sort(over.memory_bytes / 2**30)
    )
    assert (dots.get_marker(), crosses.get_marker()) == (".", "x")
    for item in (dots, crosses):
        red, green, blue, _ = mpl.colors.to_rgba(item.get_color())
        assert red == green == blue
    assert ax.get_yscale() == "log"  # what does not fit reaches beyond a decade


def test_labels_of_rows_may_repeat(sweep: pd.DataFrame, front: pd.DataFrame) -> None:
    again = sweep.set_axis([0] * len(sweep))
    ax = plot.pareto(front, frame=again)
    assert len(data(line(ax, "feasible"))) == (sweep.verdict == "ok").sum()


def test_knees_are_ringed_and_named(sweep: pd.DataFrame, front: pd.DataFrame) -> None:
    from scalemodel.search.pareto import knees

    found = knees(front, ["step_time_s", "memory_bytes"], count=2)
    ax = plot.pareto(front, knees=2, frame=sweep)
    *knees_named, fastest = texts(ax)
    assert knees_named == [strategy_text(dict(row)) for _, row in found.iterrows()]
    assert fastest == strategy_text(dict(front.loc[front.step_time_s.idxmin()]))
    assert texts(ax)[0].startswith(("tp", "pp", "dp"))
    rings = [item for item in ax.lines if item.get_fillstyle() == "none"]
    expected = zip(found.step_time_s, found.memory_bytes / 2**30, strict=True)
    np.testing.assert_allclose([data(ring)[0] for ring in rings], list(expected))
    assert texts(plot.pareto(front, knees=0)) == [fastest]


def test_a_knee_without_knobs_is_named_by_its_row() -> None:
    frame = pd.DataFrame({"a": [1.0, 1.2, 4.0], "b": [9.0, 3.0, 2.0]}, index=["x", "y", "z"])
    assert texts(plot.pareto(sm.pareto(frame, ["a", "b"]))) == ["y"]


def test_rows_of_a_third_objective_are_hollow_and_off_the_steps(sweep: pd.DataFrame) -> None:
    names = ["step_time_s", "memory_bytes", "power_w"]
    front = sm.pareto(sweep, names)
    ax = plot.pareto(front)
    both = sm.pareto(sweep, names[:2])
    steps = data(line(ax, "Pareto front"))
    hollow = data(line(ax, "on the front for another objective"))
    assert len(steps) == len(both) < len(front)
    assert len(steps) + len(hollow) == len(front)
    assert all(b[1] <= a[1] for a, b in itertools.pairwise(steps))


def test_axes_default_to_the_objectives_and_can_be_others(front: pd.DataFrame) -> None:
    assert plot.pareto(front, "memory_bytes").get_ylabel() == "Step time (s)"
    assert plot.pareto(front, y="step_time_s").get_xlabel() == "Memory (GiB)"
    ax = plot.pareto(front, "tokens_per_s", "energy_j")
    assert ax.get_xlabel() == "Throughput (tokens/s)"
    assert ax.get_ylabel() == "Energy (MJ)"


def test_two_fronts_on_one_axis_look_different(front: pd.DataFrame) -> None:
    ax = plot.pareto(front, label="H100")
    assert plot.pareto(front.iloc[:3], label="B200", ax=ax) is ax
    assert legend(ax) == ["H100", "capacity 80 GiB", "fastest", "B200"]
    assert line(ax, "H100").get_color() != line(ax, "B200").get_color()


def test_iso_lines_hold_one_product_and_leave_the_limits(front: pd.DataFrame) -> None:
    plain = plot.pareto(front)
    middle = float((front.step_time_s * front.memory_bytes).median())
    ax = plot.pareto(front, iso_products=[middle, 2 * middle, 1e30])
    assert ax.get_xlim() == plain.get_xlim()
    assert ax.get_ylim() == plain.get_ylim()
    lines = [item for item in ax.lines if item.get_linestyle() == ":"]
    assert len(lines) == 2  # the third lies outside
    for item, product in zip(lines, (middle, 2 * middle), strict=True):
        points = np.array(data(item))
        np.testing.assert_allclose(points.prod(axis=1) * 2**30, product)
    assert number_text(middle) in texts(ax)
    assert legend(ax).count("equal step_time_s × memory_bytes") == 1


def test_many_points_become_an_image() -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.random((3_000, 2)) + 0.1, columns=["a", "b"])
    front = sm.pareto(frame, ["a", "b"])
    assert line(plot.pareto(front, frame=frame), "feasible").get_rasterized()
    assert not line(plot.pareto(front, frame=frame[:100]), "feasible").get_rasterized()


def test_a_front_that_cannot_be_drawn_is_refused(sweep: pd.DataFrame, front: pd.DataFrame) -> None:
    with pytest.raises(sm.ScaleModelError, match="x=None: must name a column"):
        plot.pareto(sweep)
    with pytest.raises(sm.ScaleModelError, match="must be two columns"):
        plot.pareto(front, "energy_j", "energy_j")
    with pytest.raises(sm.ScaleModelError, match=r"x='enrgy_j'.*did you mean 'energy_j'"):
        plot.pareto(front, "enrgy_j")
    with pytest.raises(sm.ScaleModelError, match="frame='energy_j': no such column"):
        plot.pareto(front, "step_time_s", "energy_j", frame=sweep.drop(columns="energy_j"))
    with pytest.raises(sm.ScaleModelError, match="no row has numbers"):
        plot.pareto(front.iloc[:0])
    with pytest.raises(sm.ScaleModelError, match="front=int: must be a DataFrame"):
        plot.pareto(3)
    for knees in (-1, True, 1.5):
        with pytest.raises(sm.ScaleModelError, match="knees="):
            plot.pareto(front, knees=knees)  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match=r"iso_products=-1\.0: must be positive"):
        plot.pareto(front, iso_products=[-1.0])


# ---------------------------------------------------------------------------------------- heat maps
def image(ax: Axes) -> AxesImage:
    (found,) = ax.images
    return found


def test_a_cell_is_the_best_over_all_other_knobs(sweep: pd.DataFrame) -> None:
    ax = plot.heat_map(sweep)
    cells = np.ma.filled(image(ax).get_array(), np.nan)
    runs = sweep[sweep.verdict == "ok"]
    expected = runs.pivot_table(index="pp", columns="tp", values="step_time_s", aggfunc="min")
    full = expected.reindex(index=[1, 2, 4, 8], columns=[1, 2, 4, 8])
    np.testing.assert_allclose(cells, full.to_numpy())
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4", "8"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tp", "pp")
    numbers = {number_text(value) for value in cells[~np.isnan(cells)]}
    assert numbers <= set(texts(ax))
    assert image(ax).get_cmap().name == "cividis_r"  # bright is good
    bar = image(ax).colorbar
    assert bar is not None
    assert bar.ax.get_ylabel() == "Step time (s)"


def test_throughput_is_best_where_it_is_largest(sweep: pd.DataFrame) -> None:
    runs = sweep[sweep.verdict == "ok"]
    ax = plot.heat_map(sweep, "mfu_fraction", x="recompute", y="micro_batch")
    assert image(ax).get_array().max() == pytest.approx(100 * runs.mfu_fraction.max())
    assert image(ax).get_cmap().name == "cividis"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["full", "none"]
    worst = plot.heat_map(sweep, "mfu_fraction", x="recompute", y="micro_batch", best="min")
    assert image(worst).get_array().min() == pytest.approx(100 * runs.mfu_fraction.min())


def small() -> pd.DataFrame:
    """One cell runs twice, one runs once, one does not fit, one is illegal."""
    return pd.DataFrame(
        {
            "tp": [1, 1, 2, 1, 2],
            "pp": [1, 1, 1, 2, 2],
            "step_time_s": [5.0, 3.0, 4.0, 1.0, np.nan],
            "verdict": ["ok", "ok", "ok", "out_of_memory", "illegal:mesh"],
        }
    )


def test_what_does_not_fit_is_hatched_and_what_is_illegal_stays_empty() -> None:
    ax = plot.heat_map(small())
    assert sorted(texts(ax)) == ["3", "4", "OOM"]
    patches = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    (hatched,) = [patch for patch in patches if patch.get_hatch()]
    assert hatched.get_xy() == (-0.5, 0.5)
    (oom,) = [text for text in ax.texts if text.get_text() == "OOM"]
    assert oom.get_position() == (0, 1)
    (framed,) = [patch for patch in patches if not patch.get_fill()]
    assert framed.get_xy() == (-0.5, -0.5)  # the best cell
    assert np.ma.getmaskarray(image(ax).get_array()).tolist() == [[False, False], [True, True]]


def test_numbers_can_be_read_on_their_colour() -> None:
    frame = pd.DataFrame({"tp": [1, 2], "pp": [1, 1], "step_time_s": [1.0, 9.0]})
    ax = plot.heat_map(frame)
    assert [text.get_color() for text in ax.texts] == ["black", "white"]


def test_a_wide_range_of_values_is_coloured_by_its_logarithm() -> None:
    frame = pd.DataFrame({"tp": [1, 2, 4], "pp": 1, "step_time_s": [1.0, 10.0, 100.0]})
    picture = image(plot.heat_map(frame))
    assert picture.norm(10.0) == pytest.approx(0.5)


def test_a_table_without_verdicts_is_feasible(sweep: pd.DataFrame) -> None:
    ax = plot.heat_map(small().drop(columns="verdict").dropna())
    assert sorted(texts(ax)) == ["1", "3", "4"]
    ranking = SimpleNamespace(table=sweep)
    assert texts(plot.heat_map(ranking)) == texts(plot.heat_map(sweep))


def test_a_heat_map_without_sense_is_refused(sweep: pd.DataFrame) -> None:
    with pytest.raises(sm.ScaleModelError, match="best='low'"):
        plot.heat_map(sweep, best="low")
    with pytest.raises(sm.ScaleModelError, match="must be two columns"):
        plot.heat_map(sweep, x="pp")
    with pytest.raises(sm.ScaleModelError, match=r"value='step_tme_s'.*'step_time_s'"):
        plot.heat_map(sweep, "step_tme_s")
    with pytest.raises(sm.ScaleModelError, match="x='tpp'"):
        plot.heat_map(sweep, x="tpp")
    with pytest.raises(sm.ScaleModelError, match="no feasible row has a step_time_s"):
        plot.heat_map(small().iloc[3:])


# ----------------------------------------------------------------------------------------- tornados
def effects() -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "name": ["fabric", "peak", "micro_batch", "sharding"],
            "low": [0.5, 0.5, 1, "zero1"],
            "high": [2.0, 2.0, 4, "zero3"],
            "low_value": [12.0, 19.0, 11.0, 10.0],
            "high_value": [9.0, 6.0, 12.0, 11.5],
            "base": 10.0,
        }
    )
    table.attrs["objective"] = "step_time_s"
    return table


def test_a_tornado_narrows_downwards() -> None:
    ax = plot.tornado(effects())
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == ["peak", "fabric", "micro_batch", "sharding"]
    assert ax.yaxis_inverted()
    spans: dict[int, list[float]] = {}
    for bar in ax.patches:
        assert isinstance(bar, Rectangle)
        place = round(bar.get_y() + bar.get_height() / 2)
        spans.setdefault(place, [10.0]).append(bar.get_x() + bar.get_width())
    assert [sorted(spans[place]) for place in range(4)] == [
        [6.0, 10.0, 19.0],
        [9.0, 10.0, 12.0],
        [10.0, 11.0, 12.0],
        [10.0, 10.0, 11.5],
    ]
    assert ax.get_xlabel() == "Step time (s)"
    assert ax.get_title(loc="left") == "Base 10 s"
    (base,) = ax.lines
    assert set(np.asarray(base.get_xdata())) == {10.0}


def test_ends_of_a_tornado_say_setting_and_change() -> None:
    ax = plot.tornado(effects())
    assert texts(ax) == [
        "0.5: +90 %",
        "2: −40 %",
        "0.5: +20 %",
        "2: −10 %",
        "1: +10 %",
        "4: +20 %",
        "zero1: +0 %",
        "zero3: +15 %",
    ]
    assert legend(ax) == ["low end", "high end"]


def test_both_ends_differ_by_colour_and_hatch_and_stay_visible() -> None:
    ax = plot.tornado(effects())
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in ax.patches}
    assert len(looks) == 2
    assert len({hatch for _, hatch in looks}) == 2
    # Where both ends lie on one side the shorter bar is drawn over the longer.
    widths = [bar.get_width() for bar in ax.patches if round(bar.get_y() + 0.33) == 2]
    assert widths == [2.0, 1.0]


def test_a_base_of_zero_has_differences_not_percentages() -> None:
    table = effects().iloc[:1].assign(base=0.0, low_value=-1.0, high_value=2.0)
    assert texts(plot.tornado(table)) == ["0.5: −1", "2: +2"]


def test_values_of_a_tornado_have_the_unit_of_the_objective() -> None:
    table = effects()
    table[["low_value", "high_value", "base"]] *= 2.0**30
    table.attrs["objective"] = "memory_bytes"
    ax = plot.tornado(table)
    assert ax.get_xlabel() == "Memory (GiB)"
    assert ax.get_title(loc="left") == "Base 10 GiB"


def test_a_malformed_tornado_is_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="column low_value is missing"):
        plot.tornado(effects().drop(columns="low_value"))
    with pytest.raises(sm.ScaleModelError, match="base must be equal"):
        plot.tornado(effects().assign(base=[10.0, 10.0, 10.0, 11.0]))
    with pytest.raises(sm.ScaleModelError, match="finite numbers"):
        plot.tornado(effects().assign(low_value=np.nan))
    with pytest.raises(sm.ScaleModelError, match="must be one row"):
        plot.tornado(effects().iloc[:0])


# ------------------------------------------------------------------------------------ parallel axes
def bundles(ax: Axes) -> tuple[LineCollection, LineCollection]:
    """Grey lines and coloured ones."""
    grey, coloured = (item for item in ax.collections if isinstance(item, LineCollection))
    return grey, coloured


def test_every_feasible_row_is_a_line_and_the_best_are_coloured(sweep: pd.DataFrame) -> None:
    runs = sweep[sweep.verdict == "ok"]
    ax = plot.parallel_coordinates(sweep, top=7)
    grey, coloured = bundles(ax)
    assert len(coloured.get_segments()) == 7
    assert len(grey.get_segments()) == len(runs) - 7
    np.testing.assert_allclose(
        np.asarray(coloured.get_array())[::-1], np.sort(runs.step_time_s)[:7]
    )
    assert coloured.get_zorder() > grey.get_zorder()
    assert ax.get_title(loc="left") == f"7 best of {len(runs)} strategies"


def test_default_axes_are_the_knobs_that_differ(sweep: pd.DataFrame) -> None:
    ax = plot.parallel_coordinates(sweep)
    labels = [tick.get_text() for tick in ax.get_xticklabels()]
    assert labels == ["tp", "pp", "dp", "micro_batch", "recompute", "Step time\n(s)"]
    bar = bundles(ax)[1].colorbar
    assert bar is not None
    assert bar.ax.get_ylabel() == "Step time (s)"


def test_axes_run_from_smallest_to_largest_with_marks() -> None:
    frame = pd.DataFrame(
        {
            "wide": [1.0, 10.0, 100.0],
            "narrow": [2, 3, 4],
            "text": ["b", "a", "c"],
            "same": 5,
            "step_time_s": [3.0, 2.0, 1.0],
        }
    )
    columns = ["wide", "narrow", "text", "same"]
    ax = plot.parallel_coordinates(frame, columns, top=3)
    heights = np.array([segment[:, 1] for segment in bundles(ax)[1].get_segments()])
    # The worst is drawn first: rows come in their order here.
    np.testing.assert_allclose(
        heights, [[0, 0, 0.5, 0.5], [0.5, 0.5, 0, 0.5], [1, 1, 1, 0.5]], atol=1e-12
    )
    marks = {(text.xy[0], text.get_text()): text.xy[1] for text in ax.texts}  # type: ignore[attr-defined]
    assert marks[0, "10"] == pytest.approx(0.5)
    assert marks[2, "a"] == 0
    assert marks[2, "c"] == 1
    assert marks[3, "5"] == 0.5


def test_the_best_is_darkest_whichever_way_it_lies(sweep: pd.DataFrame) -> None:
    for column in ("step_time_s", "mfu_fraction"):
        ax = plot.parallel_coordinates(sweep, colour=column, top=5)
        _, coloured = bundles(ax)
        best = np.asarray(coloured.get_array())[-1]
        runs = sweep[sweep.verdict == "ok"][column]
        scale = scale_of(column).divisor
        expected = runs.max() if is_maximised(column) else runs.min()
        assert best == pytest.approx(expected / scale)
        lightness = coloured.get_cmap()(coloured.norm(coloured.get_array()))[:, :3].sum(axis=1)
        assert lightness[-1] == lightness.min()


def test_parallel_axes_without_sense_are_refused(sweep: pd.DataFrame) -> None:
    with pytest.raises(sm.ScaleModelError, match="two or more"):
        plot.parallel_coordinates(sweep, ["tp"])
    with pytest.raises(sm.ScaleModelError, match="columns='ttp'"):
        plot.parallel_coordinates(sweep, ["ttp", "pp"])
    with pytest.raises(sm.ScaleModelError, match="no feasible row"):
        plot.parallel_coordinates(sweep[sweep.verdict == "out_of_memory"])
    for top in (0, 2.5, True):
        with pytest.raises(sm.ScaleModelError, match="top="):
            plot.parallel_coordinates(sweep, top=top)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------- equal performance
def grid(**columns: Any) -> pd.DataFrame:
    """Harmonic performance over two scaled bandwidths."""
    pairs = itertools.product((0.5, 1, 2, 4), (0.5, 1, 2, 4, 8))
    table = pd.DataFrame(pairs, columns=["memory.bandwidth", "fabric.bandwidth"])
    slower = 0.6 / table["memory.bandwidth"] + 0.4 / table["fabric.bandwidth"]
    return table.assign(step_time_s=slower, **columns)


AXES = ("memory.bandwidth", "fabric.bandwidth", "step_time_s")


def contour_points(ax: Axes) -> list[np.ndarray[Any, Any]]:
    """Corners of each line, in the order of levels; one line may come in pieces."""
    paths = [path for lines in ax.collections for path in lines.get_paths()]
    return [np.asarray(path.vertices) for path in paths if len(path.vertices)]


def test_lines_hold_their_value() -> None:
    fine = pd.DataFrame(
        [(a, b, a * b) for a in np.linspace(1, 3, 41) for b in np.linspace(1, 3, 41)],
        columns=["a", "b", "energy_j"],
    )
    ax = plot.iso_performance(fine, "a", "b", "energy_j", levels=[2.0, 4.0])
    products = [points.prod(axis=1) for points in contour_points(ax)]
    for product in products:
        np.testing.assert_allclose(product, np.round(product[0]), rtol=2e-3)
    assert sorted({round(product[0]) for product in products}) == [2, 4]
    assert sum(map(len, products)) > 50
    assert ax.get_title(loc="left") == "Energy (MJ)"
    assert {text.get_text() for text in ax.texts} == {"2e-06", "4e-06"}  # labelled in MJ


def test_axes_follow_the_grid_and_the_base_is_marked() -> None:
    ax = plot.iso_performance(grid(), *AXES)
    assert (ax.get_xlabel(), ax.get_ylabel()) == AXES[:2]
    assert ax.get_xscale() == ax.get_yscale() == "log"  # equal ratios
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.5", "1", "2", "4"]
    assert data(line(ax, "base")) == [(1.0, 1.0)]
    assert legend(ax) == ["base"]
    assert len(ax.texts) >= 5
    even = grid().replace({"memory.bandwidth": {0.5: 0.0, 4.0: 3.0}})
    assert plot.iso_performance(even, *AXES).get_xscale() == "linear"


def test_a_base_elsewhere_is_marked_there() -> None:
    assert data(line(plot.iso_performance(grid(), *AXES, base=(2.0, 4.0)), "base")) == [(2.0, 4.0)]
    beyond = grid()[lambda table: table["memory.bandwidth"] > 1]
    assert plot.iso_performance(beyond, *AXES).get_legend() is None
    with pytest.raises(sm.ScaleModelError, match=r"base=\(9, 1\): outside the grid"):
        plot.iso_performance(grid(), *AXES, base=(9, 1))


def test_what_is_not_feasible_leaves_a_hole() -> None:
    verdict = ["out_of_memory"] * 5 + ["ok"] * 15  # the smallest memory bandwidth
    ax = plot.iso_performance(grid(verdict=verdict), *AXES)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4"]
    verdict[7] = "out_of_memory"  # at (1, 2): no line in the triangles around it
    holed = plot.iso_performance(grid(verdict=verdict), *AXES)

    def in_hole(drawn: Axes) -> int:
        x, y = np.vstack(contour_points(drawn)).T
        return int((x - 1 + np.where(y > 2, (y - 2) / 2, 2 - y) < 0.99).sum())

    assert in_hole(ax) > 0
    assert in_hole(holed) == 0


def test_a_grid_that_has_no_lines_is_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="two or more values each"):
        plot.iso_performance(grid().iloc[:5], *AXES)
    with pytest.raises(sm.ScaleModelError, match="occurs twice"):
        plot.iso_performance(pd.concat([grid(), grid()]), *AXES)
    with pytest.raises(sm.ScaleModelError, match=r"step_time_s is 1 everywhere"):
        plot.iso_performance(grid().assign(step_time_s=1.0), *AXES)
    with pytest.raises(sm.ScaleModelError, match=r"levels=\[50\]: none lies between"):
        plot.iso_performance(grid(), *AXES, levels=[50])
    with pytest.raises(sm.ScaleModelError, match=r"x='memory\.bandwith'"):
        plot.iso_performance(grid(), "memory.bandwith", *AXES[1:])


# ---------------------------------------------------------------------------------------- all plots
def test_settings_tables_and_the_given_axis_are_respected(
    sweep: pd.DataFrame, front: pd.DataFrame, tmp_path: Path
) -> None:
    import matplotlib.pyplot as plt

    draws = [
        lambda ax: plot.pareto(front, frame=sweep, ax=ax),
        lambda ax: plot.heat_map(sweep, ax=ax),
        lambda ax: plot.tornado(effects(), ax=ax),
        lambda ax: plot.parallel_coordinates(sweep, ax=ax),
        lambda ax: plot.iso_performance(grid(), *AXES, ax=ax),
    ]
    settings, table = dict(mpl.rcParams), sweep.copy()
    for number, draw in enumerate(draws):
        _, ax = plt.subplots()
        figures = len(plt.get_fignums())
        assert draw(ax) is ax
        assert len(plt.get_fignums()) == figures
        path = tmp_path / f"{number}.svg"
        plot.save(ax, path)
        written = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
        assert ax.get_xlabel() in written or number == 3
    assert dict(mpl.rcParams) == settings
    pd.testing.assert_frame_equal(sweep, table)
