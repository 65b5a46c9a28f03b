"""Plots of scaling studies: curves over the size of a job, its time by cause, who wins where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.estimator.evaluation import TIME_COLUMNS
from scalemodel.plot.canvas import (
    COLOURS,
    HATCHES,
    MARKERS,
    SMALL,
    from_zero,
    legend_beside,
    new_axis,
    style,
)
from scalemodel.plot.columns import feasible_rows, number_text, points_of, scale_of, whole
from scalemodel.search.objective import is_maximised
from scalemodel.search.pareto import numbers, table_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SIZE = "accelerators"


def _curves(curves: Any, by: str | None) -> dict[str, pd.DataFrame]:
    """Tables by label: a mapping as it is, one table as a whole or split by a column."""
    if isinstance(curves, Mapping):
        found = {str(label): table_of(table, "curves") for label, table in curves.items()}
    else:
        table = table_of(curves, "curves")
        if by is None:
            found = {"": table}
        elif by not in table.columns:
            raise ScaleModelError(f"by={by!r}: no such column", code="unknown_column")
        else:
            found = {str(key): rows for key, rows in table.groupby(by, sort=False)}
    if not found:
        raise ScaleModelError("curves={}: at least one is needed")
    return found


def _size_axis(ax: Axes, sizes: np.ndarray[Any, Any]) -> None:
    """A log axis that names the sizes, as many as can be read."""
    ax.set_xscale("log", base=2)
    shown = np.unique(sizes)
    shown = shown[:: max(1, -(-len(shown) // 9))]
    ax.xaxis.set_ticks(shown, [f"{size:,.0f}" for size in shown])
    ax.xaxis.set_ticks([], minor=True)
    ax.set_xlabel(scale_of(_SIZE).label)


def scaling(
    curves: pd.DataFrame | Mapping[str, pd.DataFrame],
    y: str = "tokens_per_s_per_accelerator",
    *,
    by: str | None = None,
    measured: Mapping[int, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a column of scaling studies over the size of the job, one line per study.

    Parameters
    ----------
    curves : DataFrame or mapping of label to DataFrame
        What ``sm.scaling`` returns.
    y : str
        Column to draw.
    by : str, optional
        Column that splits one table into studies: ``"cluster"``, ``"family"``.
    measured : mapping of int to float, optional
        Measured values by size, in base units; drawn as crosses.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Sizes on a logarithmic axis; sizes that do not fit are left out. A dashed line at the value
        of each study's smallest size where a rate per accelerator or an efficiency is drawn.

    Raises
    ------
    ScaleModelError : an unknown column, or nothing to draw.

    Examples
    --------
    >>> import pandas as pd
    >>> ax = scaling(pd.DataFrame({"accelerators": [8, 64], "mfu_fraction": [0.5, 0.4]}),
    ...              "mfu_fraction")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Accelerators', 'MFU (%)')
    """
    found = _curves(curves, by)
    ax = new_axis(ax, 6.4, 4.2)
    ideal = y.endswith("per_accelerator") or y == "scaling_efficiency_fraction"
    every: list[float] = []
    with style():
        for index, (label, table) in enumerate(found.items()):
            kept = table[feasible_rows(table)]
            points = points_of(kept, [_SIZE, y], ["curves", "y"])
            points = points[whole(points)]
            points = points[np.argsort(points[:, 0])]
            if not len(points):
                continue
            every.extend(points[:, 0])
            colour = COLOURS[index % len(COLOURS)]
            ax.plot(
                points[:, 0],
                points[:, 1],
                marker=MARKERS[index % len(MARKERS)],
                color=colour,
                label=label_text(label) or "_",
            )
            if ideal:
                ax.axhline(points[0, 1], color=colour, linestyle="--", linewidth=0.8)
        if not every:
            raise ScaleModelError(f"curves: no size that fits has a value of {y}")
        if measured:
            sizes = np.array(sorted(measured), dtype=float)
            values = np.array([measured[int(size)] for size in sizes]) / scale_of(y).divisor
            ax.plot(sizes, values, linestyle="none", marker="x", color="0.15", label="measured")
            every.extend(sizes)
        _size_axis(ax, np.array(every))
        ax.set_ylabel(scale_of(y).label)
        from_zero(ax)
        if len(found) > 1 or measured:
            legend_beside(ax)
    return ax


def scaling_breakdown(curve: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw where the time of a step goes at every size, as shares of the step.

    Parameters
    ----------
    curve : DataFrame
        What ``sm.scaling`` returns.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One stacked bar per size that fits; the parts of a bar sum to 100 %.

    Raises
    ------
    ScaleModelError : a column is missing, or no size fits.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=4096)
    >>> ax = scaling_breakdown(sm.scaling("llama2_7b", "dgx_h100", task, [8, 64], rule="fsdp"))
    >>> len(ax.get_xticklabels())
    2
    """
    table = table_of(curve, "curve")
    kept = table[feasible_rows(table)]
    if kept.empty:
        raise ScaleModelError("curve: no size fits")
    ax = new_axis(ax, 7.0, 4.2)
    places = np.arange(len(kept))
    step = numbers(kept, "step_time_s", "curve")
    base = np.zeros(len(kept))
    with style():
        for index, column in enumerate(TIME_COLUMNS):
            share = 100 * numbers(kept, column, "curve") / step
            if not (share > 0.05).any():
                base += share
                continue
            ax.bar(
                places,
                share,
                bottom=base,
                width=0.8,
                label=column.removesuffix("_s").replace("exposed_", "exposed "),
                color=COLOURS[index % len(COLOURS)],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                linewidth=0.4,
            )
            base += share
        labels = [f"{int(size):,}" for size in kept[_SIZE]]
        many = len(labels) > 8
        ax.set_xticks(places, labels, rotation=45 if many else 0, ha="right" if many else "center")
        ax.set(xlabel=scale_of(_SIZE).label, ylabel="Share of the step (%)", ylim=(0, 100))
        legend_beside(ax)
    return ax


def crossovers(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw which family of strategies wins at which size and batch.

    Parameters
    ----------
    table : DataFrame
        What ``sm.scaling.crossovers`` returns.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One field per size and number of sequences per accelerator, coloured by the winner, with
        its lead over the next family.

    Raises
    ------
    ScaleModelError : a column is missing, or no family runs anywhere.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=8, sequence=4096)
    >>> crossovers(sm.scaling.crossovers("llama2_7b", "dgx_h100", task, [8, 64])).get_xlabel()
    'Accelerators'
    """
    from matplotlib.patches import Patch, Rectangle

    frame = table_of(table, "table")
    for column in ("family", "wins", "sequences_per_accelerator", _SIZE):
        if column not in frame.columns:
            raise ScaleModelError(
                f"table: column {column} is missing; pass what sm.scaling.crossovers returns",
                code="missing_column",
            )
    objective = str(frame.attrs.get("objective", "tokens_per_s"))
    families = list(dict.fromkeys(frame["family"]))
    kept = frame[feasible_rows(frame)]
    if kept.empty:
        raise ScaleModelError("table: no family fits at any size")
    sizes = sorted({int(size) for size in frame[_SIZE]})
    batches = sorted({float(batch) for batch in frame["sequences_per_accelerator"]})
    ax = new_axis(ax, 2.4 + 0.75 * len(sizes), max(2.6, 1.6 + 0.5 * len(batches)))
    sign = 1.0 if is_maximised(objective) else -1.0
    with style():
        fields: Any = kept.groupby([_SIZE, "sequences_per_accelerator"])
        for (size, batch), group in fields:
            ordered = group.assign(_key=sign * numbers(group, objective)).sort_values(
                "_key", ascending=False
            )
            best = ordered.iloc[0]
            index = families.index(best["family"])
            place = sizes.index(int(size)), batches.index(float(batch))
            ax.add_patch(
                Rectangle(
                    (place[0] - 0.5, place[1] - 0.5),
                    1,
                    1,
                    facecolor=COLOURS[index % len(COLOURS)],
                    hatch=HATCHES[index % len(HATCHES)],
                    edgecolor="white",
                )
            )
            if len(ordered) > 1:
                ratio = float(best[objective]) / float(ordered.iloc[1][objective])
                lead = 100 * (ratio - 1 if sign > 0 else 1 / ratio - 1)
                ax.text(
                    *place,
                    f"+{number_text(lead)} %",
                    ha="center",
                    va="center",
                    fontsize=SMALL,
                    bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1},
                )
        ax.set(xlim=(-0.5, len(sizes) - 0.5), ylim=(-0.5, len(batches) - 0.5))
        ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], rotation=45, ha="right")
        ax.set_yticks(range(len(batches)), [number_text(batch) for batch in batches])
        ax.set(xlabel=scale_of(_SIZE).label, ylabel="Sequences per accelerator")
        ax.grid(False)
        shown = [family for family in families if (kept["family"] == family).any()]
        ax.legend(
            handles=[
                Patch(
                    facecolor=COLOURS[families.index(family) % len(COLOURS)],
                    hatch=HATCHES[families.index(family) % len(HATCHES)],
                    edgecolor="white",
                    label=label_text(family),
                )
                for family in shown
            ],
            loc="upper left",
            bbox_to_anchor=(1.01, 1.02),
            frameon=False,
            fontsize=SMALL,
        )
    return ax


def projection(table: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw a measured job at other sizes: projected steps with their interval, and as predicted.

    Parameters
    ----------
    table : DataFrame
        Of ``sm.project(...).table()``.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Step time over the accelerators of the job; sizes that cannot run are left out.

    Raises
    ------
    ScaleModelError : no such table, or nothing to draw.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> ax = projection(sm.project(2.0, est, nodes=[1, 8]).table())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Accelerators', 'Step time (s)')
    """
    frame = table_of(table, "table")
    names = [_SIZE, "step_time_s", "step_time_low_s", "step_time_high_s", "predicted_step_time_s"]
    points = points_of(frame, names, ["table"] * len(names))
    points = points[whole(points)]
    if not len(points):
        raise ScaleModelError("table: no size of it can run")
    points = points[np.argsort(points[:, 0])]
    sizes, step_s, low_s, high_s, predicted_s = points.T
    ax = new_axis(ax, 6.4, 4.2)
    with style():
        ax.fill_between(sizes, low_s, high_s, color=COLOURS[0], alpha=0.2, label="interval")
        ax.plot(sizes, step_s, marker=MARKERS[0], color=COLOURS[0], label="projected")
        ax.plot(sizes, predicted_s, marker=MARKERS[1], color=COLOURS[1], label="predicted")
        _size_axis(ax, sizes)
        ax.set_ylabel(scale_of("step_time_s").label)
        from_zero(ax)
        ax.legend()
    return ax
