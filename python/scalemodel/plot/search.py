"""Plots of a search: its front, knob against knob, and all knobs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scalemodel import _core, plot
from scalemodel.errors import ScaleModelError
from scalemodel.objective import is_maximised
from scalemodel.pareto import knees as knee_rows
from scalemodel.pareto import numbers, reads_log, table_of
from scalemodel.pareto import pareto as front_of
from scalemodel.plot.columns import (
    COLOUR_MAP,
    Floats,
    Truths,
    feasible_rows,
    line_colours,
    number_text,
    points_of,
    scale_of,
    strategy_text,
    whole,
)
from scalemodel.texts import label_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import LineCollection

#: From so many points on they are drawn as an image inside an otherwise scalable file.
_RASTER = 2_000
_MOST_ANNOTATED = 400
_WHITE = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.75, "linewidth": 0}


def _directions(front: pd.DataFrame, x: str | None, y: str | None) -> dict[str, bool]:
    """Axes of a front and whether each is maximised: as the front was made, else by the column."""
    made = dict.fromkeys(front.attrs.get("minimize", ()), False)
    made |= dict.fromkeys(front.attrs.get("maximize", ()), True)
    free = [name for name in made if name not in (x, y)]
    chosen = [x, y]
    for place, name in enumerate(chosen):
        if name is None:
            if not free:
                raise ScaleModelError(
                    f"{'xy'[place]}=None: must name a column; this table does not know its "
                    "objectives, which what sm.pareto returns does"
                )
            chosen[place] = free.pop(0)
    if chosen[0] == chosen[1]:
        raise ScaleModelError(f"x={x!r}, y={y!r}: must be two columns")
    return {str(name): made.get(str(name), is_maximised(str(name))) for name in chosen}


def pareto(
    front: pd.DataFrame | Any,
    x: str | None = None,
    y: str | None = None,
    *,
    frame: pd.DataFrame | Any = None,
    knees: int = 1,
    iso_products: Sequence[float] = (),
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a Pareto front as steps, its knees labelled, the other rows grey.

    Parameters
    ----------
    front : DataFrame
        What ``sm.pareto`` returns. Rows that are on it for the sake of a third objective are
        hollow, and off the steps.
    x, y : str, optional
        Columns. Default: the first two objectives of the front.
    frame : DataFrame, optional
        Where the front comes from: feasible rows become dots, rows that do not fit crosses.
    knees : int
        How many knees to label at most; see `scalemodel.pareto.knees`.
    iso_products : sequence of float
        Lines on which x times y, in base units, is equal: power and time give energy.
    label : str, optional
        Text of the front in the legend.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        An axis is logarithmic where its values span a decade or more.

    Raises
    ------
    ScaleModelError : nothing to draw, or an unknown column.

    Examples
    --------
    >>> import pandas as pd
    >>> import scalemodel as sm
    >>> frame = pd.DataFrame({"step_time_s": [1.0, 1.2, 4.0], "energy_j": [9e6, 3e6, 2e6]})
    >>> ax = sm.plot.pareto(sm.pareto(frame, minimize=["step_time_s", "energy_j"]))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Step time (s)', 'Energy (MJ)')
    """
    table = table_of(front, "front")
    larger = _directions(table, x, y)
    columns = list(larger)
    points = points_of(table, columns, ["x", "y"])
    table, points = table[whole(points)], points[whole(points)]
    if table.empty:
        raise ScaleModelError(f"front: no row has numbers for {columns[0]} and {columns[1]}")
    if isinstance(knees, bool) or not isinstance(knees, int) or knees < 0:
        raise ScaleModelError(f"knees={knees!r}: must be a whole number, at least 0")
    minimized = [name for name in columns if not larger[name]]
    maximized = [name for name in columns if larger[name]]
    places = table.reset_index(drop=True)
    outline = front_of(places, minimized, maximized, feasible_only=False)
    ax = plot._axis(ax, 6.4, 4.4)
    colour = plot._COLOURS[sum(line.get_gid() == "front" for line in ax.lines) % 10]
    with plot.style():
        clouds = [] if frame is None else _draw_clouds(ax, table_of(frame), columns)
        steps = points[np.sort(outline.index.to_numpy())]
        steps = steps[np.lexsort((steps[:, 1], steps[:, 0]))]
        # Between two rows the better one in x is missing: y is that of the row still to be had.
        (line,) = ax.step(
            steps[:, 0],
            steps[:, 1],
            where="pre" if larger[columns[0]] else "post",
            color=colour,
            marker="o",
            markersize=4,
            label=label or "Pareto front",
            zorder=3,
        )
        line.set_gid("front")
        hollow = np.delete(points, outline.index.to_numpy(), axis=0)
        if len(hollow):
            ax.plot(
                *hollow.T,
                linestyle="none",
                marker="o",
                markersize=4,
                markerfacecolor="none",
                markeredgecolor=colour,
                label="on the front for another objective",
                zorder=3,
            )
        _set_axes(ax, columns, np.vstack([points, *clouds]))
        if knees:
            _label_knees(ax, knee_rows(outline, minimized, maximized, knees), points, table)
        _draw_products(ax, iso_products, columns)
        # Beside clouds, where small is good the front is far from the upper right corner; to look
        # for the emptiest place among so many dots takes longer than to draw them.
        ax.legend(fontsize="small", loc="upper right" if clouds and not maximized else "best")
    return ax


def _draw_clouds(ax: Axes, frame: pd.DataFrame, columns: list[str]) -> list[Floats]:
    """Grey dots for rows that run, crosses for those that do not; returns what was drawn."""
    points = points_of(frame, columns, ["frame", "frame"])
    runs = feasible_rows(frame)
    drawn = []
    for rows, marker, colour, text in (
        (runs, ".", "0.65", "feasible"),
        (~runs, "x", "0.8", "does not fit"),
    ):
        cloud = points[rows & whole(points)]
        if not len(cloud):
            continue
        drawn.append(cloud)
        ax.plot(
            *cloud.T,
            linestyle="none",
            marker=marker,
            markersize=4,
            color=colour,
            label=text,
            rasterized=len(cloud) > _RASTER,
            zorder=1,
        )
    return drawn


def _set_axes(ax: Axes, columns: list[str], points: Floats) -> None:
    """Name both axes; a second front on the same axis may only add a reason for a log axis."""
    ax.set(xlabel=scale_of(columns[0]).label, ylabel=scale_of(columns[1]).label)
    if reads_log(points[:, 0]):
        ax.set_xscale("log")
        _set_log_ticks(ax.xaxis)
    if reads_log(points[:, 1]):
        ax.set_yscale("log")
        _set_log_ticks(ax.yaxis)


def _set_log_ticks(axis: Axis) -> None:
    """Ticks at 1, 2 and 5 of every decade, as numbers: powers of ten crowd an axis of two."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axis.set_minor_formatter(NullFormatter())


def _label_knees(ax: Axes, found: pd.DataFrame, points: Floats, table: pd.DataFrame) -> None:
    """Ring each knee and write its strategy beside it; without knobs, the label of its row."""
    ax.autoscale_view()  # else the limits, by which a text turns inwards, are not those drawn
    for place in found.index:
        row = {str(name): value for name, value in table.iloc[place].items()}
        ax.plot(*points[place], marker="o", markersize=9, color="0.15", fillstyle="none", zorder=4)
        # Inwards, so that the text stays on the axis wherever the knee lies.
        across = ax.transAxes.inverted().transform(ax.transData.transform(points[place]))[0]
        ax.annotate(
            label_text(strategy_text(row) or table.index[place]),
            points[place],
            xytext=(8 if across < 0.6 else -8, 8),
            textcoords="offset points",
            ha="left" if across < 0.6 else "right",
            fontsize="small",
            bbox=_WHITE,
            zorder=4,
        )


def _draw_products(ax: Axes, products: Sequence[float], columns: list[str]) -> None:
    """Lines x * y = product, labelled in base units; the limits stay as they were."""
    limits = ax.get_xlim(), ax.get_ylim()
    x_high, y_high = (max(limit) for limit in limits)
    if len(products) and min(x_high, y_high) <= 0:
        raise ScaleModelError("iso_products: both axes must reach positive values")
    # A linear axis may start below zero, where no such line passes.
    x_low, y_low = max(min(limits[0]), 1e-9 * x_high), max(min(limits[1]), 1e-9 * y_high)
    unit = scale_of(columns[0]).divisor * scale_of(columns[1]).divisor
    text = label_text(f"equal {columns[0]} × {columns[1]}")
    for product in products:
        if not (np.isfinite(product) and product > 0):
            raise ScaleModelError(f"iso_products={product!r}: must be positive numbers")
        drawn = product / unit
        first, last = max(x_low, drawn / y_high), min(x_high, drawn / y_low)
        if first >= last:
            continue  # outside what is shown
        along = np.geomspace(first, last, 101)
        ax.plot(
            along, drawn / along, color="0.6", linewidth=0.8, linestyle=":", label=text, zorder=0
        )
        ax.annotate(
            number_text(product), (along[50], drawn / along[50]), fontsize="x-small", color="0.35"
        )
        text = "_"  # one entry of the legend for all of them
    ax.set(xlim=limits[0], ylim=limits[1])


# ---------------------------------------------------------------------------------------- heat map
def heat_map(
    frame: pd.DataFrame | Any,
    value: str = "step_time_s",
    x: str = "tp",
    y: str = "pp",
    *,
    best: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the best feasible value for every pair of two knobs, over all the other knobs.

    Parameters
    ----------
    frame : DataFrame
        What ``sm.sweep`` returns.
    value : str
        Column of the colour and the number in each cell.
    x, y : str
        Columns of the axes; each of their values gets a column or row of its own.
    best : "min" or "max", optional
        Default: "max" for throughput, work per joule, MFU and HFU, else "min".
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Cells where strategies exist but none fits are hatched and say OOM; cells without a legal
        strategy stay empty; the best cell is framed.

    Raises
    ------
    ScaleModelError : an unknown column, or no feasible row.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"tp": [1, 2, 2], "pp": [1, 1, 1], "step_time_s": [9.0, 4.0, 3.0],
    ...                       "verdict": ["out_of_memory", "ok", "ok"]})
    >>> [text.get_text() for text in heat_map(frame).texts]
    ['OOM', '3']
    """
    if best not in (None, "min", "max"):
        raise ScaleModelError(f"best={best!r}: must be 'min' or 'max'")
    if x == y:
        raise ScaleModelError(f"x={x!r}, y={y!r}: must be two columns")
    table = table_of(frame)
    scale = scale_of(value)
    drawn = points_of(table, [value], ["value"])[:, 0]
    columns, column_of = _categories(table, x, "x")
    rows, row_of = _categories(table, y, "y")
    runs = feasible_rows(table) & ~np.isnan(drawn)
    if not runs.any():
        raise ScaleModelError(f"frame: no feasible row has a {value}")
    larger = is_maximised(value) if best is None else best == "max"
    cells = np.full((len(rows), len(columns)), -np.inf if larger else np.inf)
    better = np.maximum if larger else np.minimum
    better.at(cells, (row_of[runs], column_of[runs]), drawn[runs])
    cells[np.isinf(cells)] = np.nan
    full = np.zeros(cells.shape, dtype=bool)
    if "verdict" in table.columns:
        over = (table["verdict"] == "out_of_memory").to_numpy(dtype=bool)
        full[row_of[over], column_of[over]] = True
    ax = plot._axis(ax, max(3.6, 1.8 + 0.75 * len(columns)), max(2.6, 1.3 + 0.45 * len(rows)))
    with plot.style():
        _draw_cells(ax, cells, full & np.isnan(cells), larger, scale.label)
        ax.set_xticks(range(len(columns)), [label_text(text) for text in columns])
        ax.set_yticks(range(len(rows)), [label_text(text) for text in rows])
        ax.set(xlabel=scale_of(x).label, ylabel=scale_of(y).label)
        ax.set_title("Best over all other knobs")
    return ax


def _categories(
    table: pd.DataFrame, column: str, argument: str
) -> tuple[list[str], NDArray[np.intp]]:
    """Values of a column in order, as text, and the place of each row among them."""
    import pandas as pd

    if column not in table.columns:
        numbers(table, column, argument)  # raises, with the nearest names
    codes, values = pd.factorize(table[column], sort=True, use_na_sentinel=False)
    texts = [number_text(item) if isinstance(item, int | float) else str(item) for item in values]
    return texts, codes


def _draw_cells(ax: Axes, cells: Floats, full: Truths, larger: bool, label: str) -> None:
    """Coloured, numbered cells, hatched ones where nothing fits, and the colour bar."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.patches import Rectangle

    known = cells[~np.isnan(cells)]
    kind = LogNorm if reads_log(known) else Normalize
    image = ax.imshow(
        np.ma.masked_invalid(cells),
        cmap=COLOUR_MAP if larger else f"{COLOUR_MAP}_r",
        norm=kind(known.min(), known.max()),
        origin="lower",
        aspect="auto",
    )
    numbered = cells.size <= _MOST_ANNOTATED
    for row, column in np.ndindex(cells.shape):
        corner = column - 0.5, row - 0.5
        if full[row, column]:
            ax.add_patch(
                Rectangle(corner, 1, 1, facecolor="0.95", edgecolor="0.6", hatch="///", linewidth=0)
            )
        text = "OOM" if full[row, column] else number_text(float(cells[row, column]))
        if not numbered or (text == "nan"):
            continue
        red, green, blue, _ = image.cmap(image.norm(cells[row, column]))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        ax.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize="small",
            color="0.25" if full[row, column] else "white" if dark else "black",
        )
    row, column = np.unravel_index(
        np.nanargmax(cells) if larger else np.nanargmin(cells), cells.shape
    )
    ax.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5),
            1,
            1,
            fill=False,
            edgecolor=plot._COLOURS[2],
            linewidth=2,
            zorder=3,
        )
    )
    ax.figure.colorbar(image, ax=ax, label=label)


# -------------------------------------------------------------------------------- parallel axes
def parallel_coordinates(
    frame: pd.DataFrame | Any,
    columns: Sequence[str] | None = None,
    *,
    colour: str = "step_time_s",
    top: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw each feasible strategy as a line across its knobs, the best ones in colour on top.

    Parameters
    ----------
    frame : DataFrame
        What ``sm.sweep`` returns.
    columns : sequence of str, optional
        The axes. Default: the knobs that differ between rows, then `colour`.
    colour : str
        Column that decides which rows are best, and their colour.
    top : int, optional
        How many rows are coloured. Default: 20.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Every axis runs from its smallest to its largest value, on a log scale where the values span
        a decade or more; columns of text have one place per value.

    Raises
    ------
    ScaleModelError : an unknown column, fewer than two axes, or no feasible row.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> frame = sm.sweep("llama3_8b", "dgx_h100", task, {"tp": [1, 2, 4], "pp": [1, 2]})
    >>> ax = parallel_coordinates(frame, ["tp", "pp", "step_time_s"])
    >>> [text.get_text().split()[0] for text in ax.get_xticklabels()]
    ['tp', 'pp', 'Step']
    """
    count = 20 if top is None else top
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ScaleModelError(f"top={top!r}: must be a whole number, at least 1")
    table = table_of(frame)
    table = table[feasible_rows(table)]
    worth = points_of(table, [colour], ["colour"])[:, 0]
    table, worth = table[~np.isnan(worth)], worth[~np.isnan(worth)]
    if table.empty:
        raise ScaleModelError(f"frame: no feasible row has a {colour}")
    if columns is None:
        knobs = [str(row["name"]) for row in _core.Strategy.fields()]
        columns = [name for name in knobs if name in table and table[name].nunique() > 1]
        columns = [*columns, colour]
    if len(columns) < 2:
        raise ScaleModelError(f"columns={list(columns)!r}: two or more are needed")
    best_first = np.argsort(-worth if is_maximised(colour) else worth, kind="stable")
    ax = plot._axis(ax, max(5.0, 1.5 + 1.05 * len(columns)), 3.8)
    with plot.style():
        heights = np.column_stack([_draw_axis(ax, i, table, c) for i, c in enumerate(columns)])
        _draw_lines(ax, heights[best_first[count:]], zorder=1).set(color="0.82", linewidth=0.6)
        chosen = best_first[:count][::-1]  # the best is drawn last
        lines = _draw_lines(ax, heights[chosen], zorder=2)
        lines.set(array=worth[chosen], cmap=line_colours(is_maximised(colour)), linewidth=1.4)
        ax.figure.colorbar(lines, ax=ax, label=scale_of(colour).label)
        ax.set(xlim=(-0.3, len(columns) - 0.7), ylim=(-0.04, 1.04), yticks=[])
        ax.set_xticks(
            range(len(columns)), [scale_of(c).label.replace(" (", "\n(") for c in columns]
        )
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.tick_params(axis="x", length=0)
        ax.set_title(f"{len(chosen)} best of {len(table)} strategies")
    return ax


def _draw_axis(ax: Axes, place: int, table: pd.DataFrame, column: str) -> Floats:
    """Draw one axis with its values, and return the height of every row on it."""
    import pandas as pd

    if column in table.columns and not pd.api.types.is_numeric_dtype(table[column]):
        texts, codes = _categories(table, column, "columns")
        marks = np.linspace(0, 1, len(texts)) if len(texts) > 1 else np.array([0.5])
        heights = marks[codes]
    else:
        values = points_of(table, [column], ["columns"])[:, 0]
        known = np.unique(values[~np.isnan(values)])
        if not known.size:
            raise ScaleModelError(f"columns={column!r}: no feasible row has a number")
        shown = known if known.size <= 12 else known[[0, -1]]
        texts = [number_text(value) for value in shown]
        marks, heights = _height(shown, known), _height(values, known)
    ax.axvline(place, color="0.35", linewidth=0.8, zorder=1.5)
    for text, mark in zip(texts, marks, strict=True):
        ax.annotate(
            label_text(text),
            (place, float(mark)),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            bbox=_WHITE,
            zorder=5,
        )
    return heights


def _height(values: Floats, known: Floats) -> Floats:
    """0 for the smallest known value, 1 for the largest, half where there is but one."""
    if known[0] == known[-1]:
        return np.where(np.isnan(values), np.nan, 0.5)
    if reads_log(known):
        values, known = np.log(values), np.log(known)
    heights: Floats = (values - known[0]) / (known[-1] - known[0])
    return heights


def _draw_lines(ax: Axes, heights: Floats, *, zorder: float) -> LineCollection:
    """One line per row; a value that is missing leaves a gap."""
    from matplotlib.collections import LineCollection

    places = np.broadcast_to(np.arange(heights.shape[1], dtype=float), heights.shape)
    lines = LineCollection(list(np.stack([places, heights], axis=-1)), zorder=zorder)
    lines.set_rasterized(len(heights) > _RASTER)
    ax.add_collection(lines)
    return lines
