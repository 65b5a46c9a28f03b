"""Plots: each takes an estimate or a table and an axis, and returns the axis.

No function shows a figure or changes global settings. `save` writes files whose text stays text.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

import numpy as np

from scalemodel.answer import EngineAnswer
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import MEMORY_COLUMNS, TIME_COLUMNS, Estimate
from scalemodel.plot.network import (
    job_slowdowns,
    link_load_cdf,
    link_loads,
    network_efficiency,
    network_map,
)
from scalemodel.plot.operators import (
    bus_bandwidth,
    collective_table,
    gemm_efficiency,
    gemm_table,
    roofline,
)
from scalemodel.plot.scaling import crossovers, scaling, scaling_breakdown
from scalemodel.plot.search import heat_map, parallel_coordinates, pareto
from scalemodel.plot.sensitivity import iso_performance, tornado
from scalemodel.plot.serving import cache_occupancy, serving_front, serving_rates
from scalemodel.plot.timeline import memory_timeline, timeline
from scalemodel.texts import label_text
from scalemodel.validation.operators.score import short_source

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scalemodel.groups import GroupEstimate

__all__ = [
    "breakdown",
    "bus_bandwidth",
    "cache_occupancy",
    "collective_table",
    "crossovers",
    "gemm_efficiency",
    "gemm_table",
    "heat_map",
    "iso_performance",
    "job_slowdowns",
    "link_load_cdf",
    "link_loads",
    "memory",
    "memory_timeline",
    "network_efficiency",
    "network_map",
    "parallel_coordinates",
    "pareto",
    "roofline",
    "save",
    "scaling",
    "scaling_breakdown",
    "serving_front",
    "serving_rates",
    "style",
    "timeline",
    "tornado",
    "validation",
]

_STYLE = Path(__file__).with_name("scalemodel.mplstyle")
_COLOURS = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
#: An estimate, of a decoder or of layer groups.
_Drawn: TypeAlias = Union[Estimate, "GroupEstimate"]
_HATCHES = ("", "///", "\\\\\\", "...", "xxx", "---", "ooo", "+++", "|||", "***")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
_BAND = 0.10


@contextmanager
def style() -> Iterator[None]:
    """Apply the package's style sheet inside a ``with`` block.

    Examples
    --------
    >>> import matplotlib
    >>> with style():
    ...     matplotlib.rcParams["svg.fonttype"]
    'none'
    """
    import matplotlib as mpl
    import matplotlib.style

    interactive = mpl.is_interactive()
    try:
        with matplotlib.style.context(_STYLE):
            yield
            interactive = mpl.is_interactive()
    finally:
        # A notebook's backend, loaded with the first figure, switches this on: leave it so.
        mpl.interactive(interactive)


def save(target: Axes | Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure with text as text and its origin in the metadata.

    Parameters
    ----------
    target : Axes or Figure
    path : path
        The ending decides the format (svg, pdf, png...).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> ax = breakdown(sm.estimate("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ax, folder + "/step.svg")
    ...     "compute" in Path(folder, "step.svg").read_text(encoding="utf-8")
    True
    """
    from scalemodel import __version__

    figure: Any = getattr(target, "figure", target)
    origin = f"scalemodel {__version__}"
    suffix = Path(path).suffix.lower()
    keys = {".svg": {"Creator": origin, "Date": None}, ".pdf": {"Creator": origin}}
    metadata = keys.get(suffix, {"Software": origin} if suffix == ".png" else None)
    with style():
        figure.savefig(path, metadata=metadata)


def _axis(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axis, or a new one of a size that suits its content."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    with style():
        return plt.subplots(figsize=(width, height))[1]


def _as_list(estimates: _Drawn | Sequence[_Drawn]) -> list[_Drawn]:
    single = isinstance(estimates, EngineAnswer)
    listed = list(cast("Sequence[_Drawn]", [estimates] if single else estimates))
    if not listed:
        raise ScaleModelError("estimates=[]: at least one is needed")
    for est in listed:
        if not isinstance(est, EngineAnswer):
            raise ScaleModelError(f"estimates={est!r}: must be an Estimate or a list of them")
        if est.illegal:
            raise ScaleModelError(
                f"estimates: {est!r} has no numbers to plot; leave it out", code=est.reason
            )
    return listed


def label_of(est: _Drawn) -> str:
    r"""Short label of an estimate: model and the degrees above one, or the meshes of its groups.

    Examples
    --------
    >>> import scalemodel as sm
    >>> label_of(sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                      sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2)))
    'llama3_8b\ntp2 dp4 zero1'
    """
    if not isinstance(est, Estimate):
        return f"{est.model.name}\n{' '.join(dict.fromkeys(est.meshes.values()))}"
    s = est.strategy
    degrees = {"tp": s.tp, "cp": s.cp, "pp": s.pp, "vpp": s.vpp, "ep": s.ep, "dp": est.core.dp}
    parts = [f"{name}{value}" for name, value in degrees.items() if value > 1]
    further = [s.sharding]
    if s.micro_batch > 1:
        further.append(f"micro-batch {s.micro_batch}")
    if s.recompute != "none":
        further.append(f"recompute {s.recompute}")
    if s.schedule != "1f1b":
        further.append(s.schedule)
    return f"{est.model.name}\n{' '.join(parts + further)}"


def _columns(estimates: list[_Drawn], decoders: tuple[str, ...], groups: str) -> tuple[str, ...]:
    """Columns of decoders, of models of layer groups, or of both where both are drawn."""
    if all(isinstance(est, Estimate) for est in estimates):
        return decoders
    from scalemodel.groups import estimate

    of_groups: tuple[str, ...] = getattr(estimate, groups)
    mixed = any(isinstance(est, Estimate) for est in estimates)
    return tuple(dict.fromkeys([*decoders, *of_groups])) if mixed else of_groups


def _stack(ax: Axes, estimates: list[_Drawn], columns: dict[str, str], divisor: float) -> None:
    """Stacked horizontal bars, one per estimate; a part that is zero everywhere has no legend."""
    labels = [label_text(label_of(est)) for est in estimates]
    positions = np.arange(len(estimates))
    left = np.zeros(len(estimates))
    for index, (column, label) in enumerate(columns.items()):
        parts = [float(getattr(est.core, column, 0.0)) for est in estimates]
        sizes = np.array(parts) / divisor
        if not sizes.any():
            continue
        ax.barh(
            positions,
            sizes,
            left=left,
            height=0.6,
            label=label,
            color=_COLOURS[index % len(_COLOURS)],
            hatch=_HATCHES[(index + index // len(_COLOURS)) % len(_HATCHES)],
            edgecolor="white",
            linewidth=0.4,
        )
        left += sizes
    ax.set_yticks(positions, labels)
    ax.invert_yaxis()


def _legend_beside(ax: Axes) -> None:
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), frameon=False, fontsize="small")


def breakdown(estimates: _Drawn | Sequence[_Drawn], ax: Axes | None = None) -> Axes:
    """Draw the time of a step by cause, one stacked horizontal bar per estimate.

    Parameters
    ----------
    estimates : Estimate, GroupEstimate or list of them
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        The parts of a bar sum to the step time.

    Raises
    ------
    ScaleModelError : nothing to plot, or an illegal strategy.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> plans = [sm.Strategy(tp=2), sm.Strategy(tp=4)]
    >>> ax = breakdown([sm.estimate("llama3_8b", "dgx_h100", task, plan) for plan in plans])
    >>> len(ax.get_yticklabels())
    2
    """
    listed = _as_list(estimates)
    ax = _axis(ax, 8.0, max(2.4, 1.4 + 0.7 * len(listed)))
    columns = {
        column: column.removesuffix("_s").replace("exposed_", "exposed ")
        for column in _columns(listed, TIME_COLUMNS, "TIME_COLUMNS")
    }
    with style():
        _stack(ax, listed, columns, 1.0)
        ax.set(xlabel="Step time (s)", title="Time of a step by cause")
        ax.set_xlim(left=0)
        _legend_beside(ax)
    return ax


def memory(estimates: _Drawn | Sequence[_Drawn], ax: Axes | None = None) -> Axes:
    """Draw the memory of the fullest accelerator by kind against its capacity.

    Parameters
    ----------
    estimates : Estimate, GroupEstimate or list of them
        Strategies that do not fit are drawn too: their bars cross the capacity line.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        The parts of a bar sum to ``memory_bytes``; one dashed line per capacity.

    Raises
    ------
    ScaleModelError : nothing to plot, or an illegal strategy.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> memory(sm.estimate("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2))).get_xlabel()
    'Memory per accelerator (GiB)'
    """
    listed = _as_list(estimates)
    ax = _axis(ax, 8.0, max(2.4, 1.4 + 0.7 * len(listed)))
    columns = {
        column: column.removeprefix("memory_").removesuffix("_bytes")
        for column in _columns(listed, MEMORY_COLUMNS, "MEMORY_COLUMNS")
    }
    with style():
        _stack(ax, listed, columns, 2.0**30)
        for capacity in sorted({float(est.core.memory_capacity_bytes) for est in listed}):
            gib = capacity / 2**30
            ax.axvline(
                gib, color="0.2", linestyle="--", linewidth=1.2, label=f"capacity {gib:.0f} GiB"
            )
        ax.set(xlabel="Memory per accelerator (GiB)", title="Memory by kind, fullest accelerator")
        ax.set_xlim(left=0)
        _legend_beside(ax)
    return ax


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
    ax = _axis(ax, 9.0, max(5.0, 0.19 * len(groups)))
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
            shift = index + index // math.lcm(len(_COLOURS), len(_MARKERS))
            ax.plot(
                group.measured,
                group.predicted,
                linestyle="none",
                marker=_MARKERS[shift % len(_MARKERS)],
                color=_COLOURS[index % len(_COLOURS)],
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
        ax.set_aspect("equal")
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(1.02, 1.0),
            fontsize="x-small",
            frameon=False,
            ncols=1 + len(groups) // 45,
        )
    return ax
