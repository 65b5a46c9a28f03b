"""Plots of accuracy: predicted against measured."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import COLOURS, MARKERS, SMALL, log_ticks, new_axis, style
from scalemodel.validation.operators.score import short_source

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_BAND = 0.10
#: Measured and predicted column of each kind of table, what they are, and their unit.
_COMPARED = (
    ("norm_step_time_s", "predicted_step_time_s", "step time", "s"),
    ("time_us", "predicted_time_us", "time of a call", "us"),
)


def _measured(frame: pd.DataFrame) -> tuple[pd.DataFrame, str, str]:
    """Rows with a positive measured and predicted time; what the times are; their unit."""
    import pandas as pd

    found = [row for row in _COMPARED if row[1] in frame.columns]
    measured, predicted, what, unit = found[0] if found else _COMPARED[0]
    for column in (measured, predicted):
        if column not in frame.columns:
            raise ScaleModelError(
                f"frame: column {column} is missing; pass what sm.validate returns",
                code="missing_column",
            )
    kept = pd.DataFrame(
        {
            "measured": pd.to_numeric(frame[measured], errors="coerce"),
            "predicted": pd.to_numeric(frame[predicted], errors="coerce"),
        }
    )
    for name in ("source", "gpu"):
        kept[name] = frame[name].astype(str) if name in frame.columns else ""
    if unit == "us":
        kept["source"] = kept["source"].map(short_source)
    return kept[(kept.measured > 0) & (kept.predicted > 0)], what, unit


def validation(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw predicted against measured time, one marker and colour per source and accelerator.

    Parameters
    ----------
    frame : DataFrame
        What ``sm.validate`` returns: steps of training, kernels or collectives.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Log-log, with the line of equality, a band of ±10 %, and the number of rows and their mean
        absolute percentage error in the title.

    Raises
    ------
    ScaleModelError : a column is missing, or no row has both times.

    Examples
    --------
    >>> import pandas as pd
    >>> ax = validation(pd.DataFrame({"source": ["a", "a"], "accelerator": ["H100", "H100"],
    ...                               "norm_step_time_s": [1.0, 2.0],
    ...                               "predicted_step_time_s": [1.1, 2.0]}))
    >>> ax.get_xscale()
    'log'
    """
    rows, what, unit = _measured(frame)
    if rows.empty:
        raise ScaleModelError(f"frame: no row has both a measured and a predicted {what}")
    groups = list(rows.groupby(["source", "gpu"], sort=True))
    ax = new_axis(ax, 9.0, max(5.0, 0.22 * len(groups)))
    error = (rows.predicted / rows.measured - 1).abs()
    low = 0.8 * min(rows.measured.min(), rows.predicted.min())
    high = 1.25 * max(rows.measured.max(), rows.predicted.max())
    line = np.array([low, high])
    with style():
        ax.fill_between(
            line, (1 - _BAND) * line, (1 + _BAND) * line, color="0.85", label="±10 %", zorder=0
        )
        ax.plot(line, line, color="0.4", linewidth=0.8, label="equal")
        for index, (key, group) in enumerate(groups):
            # The marker moves on when the colours start again: no two groups look alike.
            shift = index + index // math.lcm(len(COLOURS), len(MARKERS))
            ax.plot(
                group.measured,
                group.predicted,
                linestyle="none",
                marker=MARKERS[shift % len(MARKERS)],
                color=COLOURS[index % len(COLOURS)],
                markersize=4.5,
                markeredgecolor="white",
                markeredgewidth=0.3,
                label=label_text(", ".join(str(part) for part in key if part)),
            )
        ax.set(
            xscale="log",
            yscale="log",
            xlim=(low, high),
            ylim=(low, high),
            xlabel=f"Measured {what} ({unit})",
            ylabel=f"Predicted {what} ({unit})",
            title=f"{len(rows)} rows, MAPE {100 * error.mean():.1f} %",
        )
        log_ticks(ax.xaxis)
        log_ticks(ax.yaxis)
        ax.set_aspect("equal")
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(1.02, 1.0),
            fontsize=SMALL,
            frameon=False,
            ncols=1 + len(groups) // 60,
        )
    return ax
