"""All knobs of a search side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import SMALL, WHITE, new_axis, style
from scalemodel.plot.columns import (
    RASTER,
    Floats,
    categories,
    feasible_rows,
    line_colours,
    number_text,
    points_of,
    scale_of,
)
from scalemodel.search.objective import is_maximised
from scalemodel.search.pareto import reads_log, table_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection


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
    ax = new_axis(ax, max(5.0, 1.5 + 1.05 * len(columns)), 3.8)
    with style():
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
        texts, codes = categories(table, column, "columns")
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
            fontsize=SMALL,
            bbox=WHITE,
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
    lines.set_rasterized(len(heights) > RASTER)
    ax.add_collection(lines)
    return lines
