"""Plots of a search: its front, and knob against knob."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import COLOURS, SMALL, WHITE, log_ticks, new_axis, style
from scalemodel.plot.columns import (
    COLOUR_MAP,
    RASTER,
    Floats,
    Truths,
    categories,
    feasible_rows,
    number_text,
    points_of,
    scale_of,
    strategy_text,
    whole,
)
from scalemodel.search.objective import is_maximised
from scalemodel.search.pareto import knees as knee_rows
from scalemodel.search.pareto import numbers, reads_log, table_of
from scalemodel.search.pareto import pareto as front_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_ANNOTATED = 400
#: Columns whose best row is the fastest.
_SPEEDS = ("step_time_s", "tokens_per_s")


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
        An axis is logarithmic where its values span a decade or more. The fastest row has a star
        where one axis is the step time or the throughput; where one is the memory, a dashed line is
        the capacity of an accelerator.

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
    ax = new_axis(ax, 6.4, 4.4)
    colour = COLOURS[sum(line.get_gid() == "front" for line in ax.lines) % 10]
    with style():
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
        _draw_capacity(ax, columns, table)
        _set_axes(ax, columns, np.vstack([points, *clouds]))
        found = knee_rows(outline, minimized, maximized, knees) if knees else outline.iloc[:0]
        ringed = [int(place) for place in found.index]
        _label_points(ax, ringed, _fastest(columns, larger, points), points, table)
        _draw_products(ax, iso_products, columns)
        # Beside clouds, where small is good the front is far from the upper right corner; to look
        # for the emptiest place among all these dots takes longer than to draw them.
        ax.legend(fontsize=SMALL, loc="upper right" if clouds and not maximized else "best")
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
            rasterized=len(cloud) > RASTER,
            zorder=1,
        )
    return drawn


def _set_axes(ax: Axes, columns: list[str], points: Floats) -> None:
    """Name both axes; a second front on the same axis may only add a reason for a log axis."""
    ax.set(xlabel=scale_of(columns[0]).label, ylabel=scale_of(columns[1]).label)
    if reads_log(points[:, 0]):
        ax.set_xscale("log")
        log_ticks(ax.xaxis)
    if reads_log(points[:, 1]):
        ax.set_yscale("log")
        log_ticks(ax.yaxis)


def _draw_capacity(ax: Axes, columns: list[str], table: pd.DataFrame) -> None:
    """A dashed line at the memory of an accelerator where an axis is what it holds."""
    for draw, column in zip((ax.axvline, ax.axhline), columns, strict=True):
        if column != "memory_bytes" or "memory_capacity_bytes" not in table.columns:
            continue
        known = numbers(table, "memory_capacity_bytes", "front") / scale_of(column).divisor
        for gib in np.unique(known[np.isfinite(known)]):
            text = f"capacity {gib:.0f} GiB"
            if any(line.get_label() == text for line in ax.lines):
                continue  # a front before on the same axis has drawn it
            draw(gib, color="0.2", linestyle="--", linewidth=1, label=text, zorder=1)


def _fastest(columns: list[str], larger: dict[str, bool], points: Floats) -> int | None:
    """The row of the shortest step or the highest throughput, where one of them is an axis."""
    for place, column in enumerate(columns):
        if column in _SPEEDS:
            best = np.argmax if larger[column] else np.argmin
            return int(best(points[:, place]))
    return None


def _label_points(
    ax: Axes, ringed: list[int], fastest: int | None, points: Floats, table: pd.DataFrame
) -> None:
    """Ring each knee, put a star on the fastest row, and write their strategies beside them."""
    ax.autoscale_view()  # else the limits, by which a text turns inwards, are not those drawn
    ring = {"marker": "o", "markersize": 9, "fillstyle": "none"}
    again = any(line.get_label() == "fastest" for line in ax.lines)  # of a front before
    text = "_" if again else "fastest"
    star = {"marker": "*", "markersize": 10, "linestyle": "none", "label": text}
    marks: list[tuple[int, dict[str, Any]]] = [(place, ring) for place in ringed]
    if fastest is not None:
        marks.append((fastest, star))
    named: set[int] = set()
    for place, mark in marks:
        ax.plot(*points[place], color="0.15", zorder=4, **mark)
        row = {str(name): value for name, value in table.iloc[place].items()}
        text = label_text(strategy_text(row) or table.index[place])
        if place in named:
            continue
        named.add(place)
        # Inwards, so that the text stays on the axis wherever the point lies.
        across, up = ax.transAxes.inverted().transform(ax.transData.transform(points[place]))
        left, below = across < 0.6, mark is star and up > 0.5
        ax.annotate(
            text,
            points[place],
            xytext=(8 if left else -8, -8 if below else 8),
            textcoords="offset points",
            ha="left" if left else "right",
            va="top" if below else "bottom",
            fontsize=SMALL,
            bbox=WHITE,
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
            number_text(product), (along[50], drawn / along[50]), fontsize=SMALL, color="0.35"
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
    columns, column_of = categories(table, x, "x")
    rows, row_of = categories(table, y, "y")
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
    ax = new_axis(ax, max(3.6, 1.8 + 0.75 * len(columns)), max(2.6, 1.3 + 0.45 * len(rows)))
    with style():
        _draw_cells(ax, cells, full & np.isnan(cells), larger, scale.label)
        ax.set_xticks(range(len(columns)), [label_text(text) for text in columns])
        ax.set_yticks(range(len(rows)), [label_text(text) for text in rows])
        ax.set(xlabel=scale_of(x).label, ylabel=scale_of(y).label)
        ax.set_title("Best over all other knobs")
    return ax


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
            fontsize=SMALL,
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
            edgecolor=COLOURS[2],
            linewidth=2,
            zorder=3,
        )
    )
    ax.figure.colorbar(image, ax=ax, label=label)


# -------------------------------------------------------------------------------- parallel axes
