"""Plots of what hardware and knobs do to an objective: sensitivities and equal performance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import SMALL, legend_beside, new_axis, style
from scalemodel.plot.columns import (
    Floats,
    feasible_rows,
    line_colours,
    number_text,
    points_of,
    scale_of,
    whole,
)
from scalemodel.search.objective import is_maximised
from scalemodel.search.pareto import reads_log, table_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_LOW_END, _HIGH_END = "#5e3c99", "#e66101"  # the ends of ColorBrewer's PuOr
_STAR_ROOM = 40  # pixels between the mark of the base and a label
_MOST_TICKS = 5  # intervals between labels on an axis of five inches
_LEAST_PERCENT = 0.005  # of a change that is worth a number
_NEEDED = ("name", "low", "high", "low_value", "high_value", "base")


def tornado(table: pd.DataFrame | Any, *, ax: Axes | None = None) -> Axes:
    """Draw what each knob or hardware quantity does to the objective, the strongest on top.

    Parameters
    ----------
    table : DataFrame
        Columns name; low and high, the two ends of the quantity; low_value and high_value, the
        objective there; base, the objective in between, equal in all rows. ``attrs["objective"]``
        names the objective's column, for its unit.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Bars from the base to both ends, each with its setting and its change relative to the base.

    Raises
    ------
    ScaleModelError : a column is missing or holds no numbers, no row, or bases that differ.

    Examples
    --------
    >>> import pandas as pd
    >>> ax = tornado(pd.DataFrame({"name": ["memory bandwidth"], "low": [0.5], "high": [2.0],
    ...                            "low_value": [12.0], "high_value": [9.0], "base": [10.0]}))
    >>> [text.get_text() for text in ax.texts]
    ['0.5: +20 %', '2: −10 %']
    """
    frame = table_of(table, "table")
    for column in _NEEDED:
        if column not in frame.columns:
            raise ScaleModelError(f"table: column {column} is missing", code="missing_column")
    scale = scale_of(str(frame.attrs.get("objective", "Objective")))
    low, high, base = points_of(frame, _NEEDED[3:], ["table"] * 3).T / scale.divisor
    if frame.empty or np.isnan([low, high, base]).any():
        raise ScaleModelError("table: every row needs finite numbers, and there must be one row")
    if not np.allclose(base, base[0], rtol=1e-9, atol=0):
        raise ScaleModelError(
            "table: base must be equal in all rows, not "
            f"{base.min() * scale.divisor:.6g} to {base.max() * scale.divisor:.6g}"
        )
    order = np.argsort(-np.ptp([low, high, base], axis=0), kind="stable")
    ax = new_axis(ax, 7.0, 1.3 + 0.42 * len(frame))
    with style():
        for place, row in enumerate(order):
            ends = [
                (low[row], frame["low"].iloc[row], _LOW_END, "", "low end"),
                (high[row], frame["high"].iloc[row], _HIGH_END, "///", "high end"),
            ]
            # The longer bar first: where both point the same way the shorter one stays visible.
            for end, _, colour, hatch, text in sorted(
                ends, key=lambda item: -abs(item[0] - base[0])
            ):
                ax.barh(
                    place,
                    end - base[0],
                    left=base[0],
                    height=0.66,
                    color=colour,
                    hatch=hatch,
                    edgecolor="white",
                    label=text if place == 0 else "_",
                )
            _label_ends(ax, place, base[0], ends)
        ax.axvline(base[0], color="0.2", linewidth=1)
        ax.set_yticks(range(len(frame)), [label_text(frame["name"].iloc[row]) for row in order])
        ax.invert_yaxis()
        ax.margins(x=0.5)  # room for the labels at the ends
        ax.set(xlabel=scale.label, title=f"Base {number_text(base[0])} {scale.unit}".rstrip())
        legend_beside(ax)
    return ax


def _change_text(end: float, base: float) -> str:
    """The relative change; what rounds away at a hundredth of a percent is none."""
    if not base:
        return f"{end:+.3g}"
    percent = 100 * (end / base - 1)
    return f"{percent if abs(percent) >= _LEAST_PERCENT else 0.0:+.3g} %"


def _label_ends(ax: Axes, place: int, base: float, ends: list[tuple[Any, ...]]) -> None:
    """Setting and relative change at both ends, outwards; on two lines where they share a side."""
    shared = (ends[0][0] > base) == (ends[1][0] > base)
    for line, (end, setting, *_) in enumerate(ends):
        change = _change_text(end, base)
        name = setting if isinstance(setting, str) else number_text(setting)
        right = end > base or (end == base and ends[1 - line][0] < base)
        outmost = max(ends[0][0], ends[1][0]) if right else min(ends[0][0], ends[1][0])
        ax.annotate(
            label_text(f"{name}: {change}".replace("-", "−")),
            (outmost if shared else end, place),
            xytext=(4 if right else -4, (6 - 12 * line) if shared else 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=SMALL,
        )


def iso_performance(
    table: pd.DataFrame | Any,
    x: str,
    y: str,
    value: str,
    *,
    levels: Sequence[float] | None = None,
    base: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw lines of equal performance over two hardware quantities.

    Parameters
    ----------
    table : DataFrame
        A grid, one row per pair of `x` and `y`, such as ``sm.codesign`` returns. Rows that are
        not feasible leave a hole.
    x, y : str
        Columns of the two quantities.
    value : str
        Column that is equal along a line.
    levels : sequence of float, optional
        Values of the lines, in base units. Default: seven between the extremes.
    base : pair of float, optional
        The point marked as base, in the units of the columns. Default: (1, 1), nothing scaled,
        where the grid reaches it.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Logarithmic where a grid has equal ratios or spans a decade.

    Raises
    ------
    ScaleModelError : an unknown column, fewer than two values on an axis, a pair that occurs
        twice, or no line between the extremes.

    Examples
    --------
    >>> import pandas as pd
    >>> grid = [(x, y) for x in (1, 2, 4) for y in (1, 2, 4)]
    >>> table = pd.DataFrame(grid, columns=["x", "y"]).assign(step_time_s=lambda t: 1 / (t.x * t.y))
    >>> iso_performance(table, "x", "y", "step_time_s").get_xscale()
    'log'
    """
    frame = table_of(table, "table")
    frame = frame[feasible_rows(frame)]
    points = points_of(frame, [x, y, value], ["x", "y", "value"])
    points = points[whole(points)]
    across, column_of = np.unique(points[:, 0], return_inverse=True)
    along, row_of = np.unique(points[:, 1], return_inverse=True)
    if min(len(across), len(along)) < 2:
        raise ScaleModelError(f"table: {x} and {y} need two or more values each in feasible rows")
    if len(np.unique(points[:, :2], axis=0)) < len(points):
        raise ScaleModelError(f"table: a pair of {x} and {y} occurs twice; keep one row of each")
    grid = np.full((len(along), len(across)), np.nan)
    grid[row_of, column_of] = points[:, 2]
    ax = new_axis(ax, 5.6, 4.4)
    with style():
        # Scales come first: lines are labelled halfway along them as they are drawn.
        _grid_axis(ax, "x", across)
        _grid_axis(ax, "y", along)
        lines = ax.contour(
            across,
            along,
            np.ma.masked_invalid(grid),
            levels=_levels(points[:, 2], levels, value),
            cmap=line_colours(is_maximised(value)),
        )
        marked = (1.0, 1.0) if base is None else base
        scales = scale_of(x), scale_of(y)
        place = [float(item) / scale.divisor for item, scale in zip(marked, scales, strict=True)]
        inside = across[0] <= place[0] <= across[-1] and along[0] <= place[1] <= along[-1]
        places = _label_places(ax, lines.allsegs, place if inside else None)
        texts = _level_texts(list(lines.levels))
        ax.clabel(lines, fmt=texts, fontsize=SMALL, colors="0.15", manual=places)
        if inside:
            # A corner of the grid is a corner of the axes, where half the star would be cut off.
            star: dict[str, Any] = {"marker": "*", "markersize": 11, "clip_on": False, "zorder": 3}
            ax.plot(*place, linestyle="none", color="0.15", label="base", **star)
            legend_beside(ax)
        elif base is not None:
            raise ScaleModelError(f"base={base!r}: outside the grid of {x} and {y}")
        ax.set(xlabel=scales[0].label, ylabel=scales[1].label, title=scale_of(value).label)
    return ax


def _level_texts(levels: Sequence[float]) -> dict[float, str]:
    """Numbers of the lines, of three digits or as many as tell them apart."""
    for digits in range(3, 16):
        texts = {
            level: number_text(level) if digits == 3 else f"{level:.{digits}g}" for level in levels
        }
        if len(set(texts.values())) == len(levels):
            break
    return texts


def _label_places(
    ax: Axes, levels: Sequence[Sequence[Any]], star: Sequence[float] | None
) -> list[tuple[float, float]]:
    """A point on the longest line of each level: halfway along as drawn, but beside the star."""
    places: list[tuple[float, float]] = []
    taken = None if star is None else ax.transData.transform(star)
    for segments in levels:
        ways = []
        for line in segments:
            points = ax.transData.transform(line)
            steps = np.hypot(*np.diff(points, axis=0).T)
            ways.append((np.concatenate([[0.0], np.cumsum(steps)]), points))
        if not ways:
            continue
        way, points = max(ways, key=lambda item: float(item[0][-1]))
        for share in (0.5, 0.3, 0.7):
            at = [float(np.interp(share * way[-1], way, points[:, axis])) for axis in (0, 1)]
            if taken is None or np.hypot(*(taken - at)) > _STAR_ROOM:
                break
        x, y = ax.transData.inverted().transform(at)
        places.append((float(x), float(y)))
    return places


def _levels(drawn: Floats, levels: Sequence[float] | None, value: str) -> Floats:
    """Lines that exist: given in base units, or seven inside the extremes."""
    scale = scale_of(value)
    low, high = drawn.min(), drawn.max()
    if low == high:
        raise ScaleModelError(
            f"table: {value} is {low * scale.divisor:.6g} everywhere; there is no line to draw"
        )
    if levels is None:
        spaced = np.geomspace if reads_log(drawn) else np.linspace
        inner: Floats = spaced(low, high, 9)[1:-1]
        return inner
    wanted = np.unique(np.asarray(levels, dtype=float)) / scale.divisor
    kept: Floats = wanted[(wanted > low) & (wanted < high)]
    if not kept.size:
        raise ScaleModelError(
            f"levels={list(levels)!r}: none lies between the extremes of {value}, "
            f"{low * scale.divisor:.6g} and {high * scale.divisor:.6g}"
        )
    return kept


def _grid_axis(ax: Axes, which: str, values: Floats) -> None:
    """A log axis for equal ratios or a decade; ticks on the grid, as many as can be read."""
    ratios = values[1:] / values[:-1] if values[0] > 0 else np.zeros(1)
    geometric = len(values) > 2 and values[0] > 0 and np.allclose(ratios, ratios[0], rtol=0.02)
    axis = ax.xaxis if which == "x" else ax.yaxis
    if geometric or reads_log(values):
        ax.set(**{f"{which}scale": "log"})
    if len(values) <= 12:
        step = -(-(len(values) - 1) // _MOST_TICKS)
        shown = values[::step]
        axis.set_ticks(shown, [number_text(value) for value in shown])
        axis.set_ticks([], minor=True)
