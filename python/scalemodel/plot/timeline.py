"""Plots of a simulated step: what runs on each stage when, and what fills its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.evaluation import MEMORY_COLUMNS
from scalemodel.estimator.timeline import Timeline
from scalemodel.plot.canvas import COLOURS, HATCHES, from_zero, legend_beside, new_axis, style
from scalemodel.search.pareto import table_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Colour of each kind of event; hatched ones are communication. From Petroff's ten colours, which
#: readers with colour vision deficiencies tell apart.
_LOOKS: dict[str, tuple[str, str]] = {
    "forward": ("#3f90da", ""),
    "recompute": ("#92dadd", ""),
    "backward": ("#ffa90e", ""),
    "input_gradient": ("#ffa90e", ""),
    "weight_gradient": ("#b9ac70", ""),
    "optimizer": ("#832db6", ""),
    "tensor_parallel": ("#bd1f01", "///"),
    "context_parallel": ("#e76300", "///"),
    "expert_parallel": ("#a96b59", "///"),
    "gather_parameters": ("#717581", "\\\\\\"),
    "reduce_gradients": ("#94a4a2", "\\\\\\"),
    "send_activations": ("#3f90da", "..."),
    "receive_activations": ("#3f90da", "..."),
    "send_gradients": ("#ffa90e", "..."),
    "receive_gradients": ("#ffa90e", "..."),
    "offload": ("#832db6", "..."),
    "optimizer_transfer": ("#832db6", "..."),
    "decode_gradients": ("#717581", ""),
    "overhead": ("#94a4a2", ""),
    "wait": ("#ffffff", ""),
}
#: Pixels from bar to bar below which a lane shows shares, in cells of at least as many pixels and
#: bars.
_LEAST_PITCH, _LEAST_CELL, _BARS_OF_CELL = 2.5, 6.0, 8.0
_EVENT_COLUMNS = ("rank", "stream", "kind", "start_s", "duration_s")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def _unit_of(length_s: float) -> tuple[float, str]:
    """Seconds in the largest unit of which `length_s` has at least one, and its name."""
    return next((unit for unit in _UNITS if length_s >= unit[0]), _UNITS[-1])


def _columns_of(table: Any, name: str, columns: Sequence[str]) -> pd.DataFrame:
    frame = table_of(table, name)
    for column in columns:
        if column not in frame.columns:
            raise ScaleModelError(
                f"{name}: column {column} is missing; pass what Estimate.timeline returns",
                code="missing_column",
            )
    if not len(frame):
        raise ScaleModelError(f"{name}: no row to plot")
    return frame


def timeline(
    events: Timeline | pd.DataFrame,
    *,
    streams: Sequence[str] | None = ("compute",),
    window_s: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what runs on each rank, one lane per rank and stream.

    Parameters
    ----------
    events : Timeline or DataFrame
        A timeline, or the rows of its `events` that are to be drawn.
    streams : sequence of str, optional
        Streams with a lane of their own, from the top of each rank to its bottom; None: all that
        occur.
    window_s : (float, float), optional
        Part of the step to draw; default: all of it.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Time on the horizontal axis, rank 0 on top, a colour per kind, hatches for communication.
        Where bars are too thin to be told apart, heights show the share of time of each kind.

    Raises
    ------
    ScaleModelError : a column is missing, nothing lies in the window, or a stream is unknown.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
    >>> timeline(est.timeline(), window_s=(0, 1)).get_xlabel()
    'Time (s)'
    """
    table = events.events if isinstance(events, Timeline) else events
    rows = _columns_of(table, "events", _EVENT_COLUMNS)
    end_s = (rows.start_s + rows.duration_s).to_numpy()
    low_s, high_s = (
        (float(rows.start_s.min()), float(end_s.max())) if window_s is None else window_s
    )
    rows = rows[(end_s > low_s) & (rows.start_s < high_s).to_numpy()]
    occurring = list(dict.fromkeys(rows.stream.astype(str)))
    chosen = occurring if streams is None else [name for name in streams if name in occurring]
    if not chosen:
        known = ", ".join(occurring) or "none in this window"
        raise ScaleModelError(
            f"streams={streams!r}: no event to draw; streams with events: {known}"
        )
    ranks = sorted(set(rows["rank"].tolist()))
    ax = new_axis(ax, 10.0, max(2.4, 1.2 + 0.28 * len(ranks) * len(chosen)))
    seconds, unit = _unit_of(high_s - low_s)
    lane = {
        (rank, stream): position * (len(chosen) + 0.6) + offset
        for position, rank in enumerate(ranks)
        for offset, stream in enumerate(chosen)
    }
    with style():
        rows = rows[rows.stream.astype(str).isin(chosen)]
        for key, group in rows.groupby(["rank", "stream"], observed=True):
            place = lane[(key[0], str(key[1]))]
            if ax.get_window_extent().width / len(group) < _LEAST_PITCH:
                _draw_shares(ax, group, place, (low_s, high_s), seconds)
            else:
                _draw_bars(ax, group, place, seconds)
        names = [
            f"stage {rank}" if len(chosen) == 1 else f"stage {rank} {stream}"
            for rank, stream in lane
        ]
        ax.set_yticks(list(lane.values()), names)
        ax.set_ylim(max(lane.values()) + 0.7, -0.7)
        ax.set_xlim(low_s / seconds, high_s / seconds)
        ax.set(xlabel=f"Time ({unit})", ylabel="Pipeline stage", title="Timeline of a step")
        legend_beside(ax, [kind.replace("_", " ") for kind in _LOOKS])
    return ax


def _draw_bars(ax: Axes, events: pd.DataFrame, place: float, seconds: float) -> None:
    """A bar for every event of a lane."""
    for kind, (colour, hatch) in _LOOKS.items():
        group = events[(events.kind == kind).to_numpy()]
        if not len(group):
            continue
        bars = np.column_stack([group.start_s, group.duration_s]) / seconds
        ax.broken_barh(
            [tuple(bar) for bar in bars],
            (place - 0.45, 0.9),
            facecolor=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.2,
            label=kind.replace("_", " "),
        )


def _draw_shares(
    ax: Axes, events: pd.DataFrame, place: float, window_s: tuple[float, float], seconds: float
) -> None:
    """The share of the time that each kind of event of a lane takes, as heights.

    Bars near the width of a pixel would show what the pixels make of them: stripes that come and go
    with the size of the figure.
    """
    pixels = ax.get_window_extent().width
    bars = len(events)
    cells = max(1, int(pixels // max(_LEAST_CELL, _BARS_OF_CELL * pixels / bars)))
    edges = np.linspace(*window_s, cells + 1)
    floor = np.full(cells + 1, place + 0.45)
    for kind, (colour, hatch) in _LOOKS.items():
        group = events[(events.kind == kind).to_numpy()].sort_values("start_s")
        if not len(group):
            continue
        start = group.start_s.to_numpy()
        busy = np.concatenate([[0.0], np.cumsum(group.duration_s)])
        # Time that the kind took until each edge; events of a lane follow one another.
        times = np.column_stack([start, start + group.duration_s.to_numpy()]).ravel()
        until = np.interp(edges, times, np.column_stack([busy[:-1], busy[1:]]).ravel())
        share = np.diff(until) * cells / (window_s[1] - window_s[0])
        top = floor - 0.9 * np.append(share, share[-1])
        ax.fill_between(
            edges / seconds,
            floor,
            top,
            step="post",
            facecolor=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.0,
            label=kind.replace("_", " "),
        )
        floor = top


def memory_timeline(
    memory: Timeline | pd.DataFrame,
    *,
    rank: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what fills the memory of one rank over the step, by kind.

    Parameters
    ----------
    memory : Timeline or DataFrame
        A timeline, or its `memory`.
    rank : int, optional
        Default: the rank that holds most at its peak.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Stacked areas that change in steps; of a `Timeline` also the capacity as a dashed line.

    Raises
    ------
    ScaleModelError : a column is missing, or there is no such rank.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
    >>> memory_timeline(est.timeline()).get_title(loc="left")
    'Memory of stage 0 over a step'
    """
    table = memory.memory if isinstance(memory, Timeline) else memory
    frame = _columns_of(table, "memory", ("rank", "time_s", "memory_bytes", *MEMORY_COLUMNS))
    if rank is None:
        rank = int(frame["rank"].iloc[int(frame.memory_bytes.to_numpy().argmax())])
    rows = frame[frame["rank"] == rank]
    if rows.empty:
        known = ", ".join(str(item) for item in sorted(set(frame["rank"].tolist())))
        raise ScaleModelError(f"rank={rank!r}: no such rank; known are {known}")
    ax = new_axis(ax, 8.0, 4.0)
    seconds, unit = _unit_of(float(rows.time_s.max()))
    times = rows.time_s.to_numpy() / seconds
    floor = np.zeros(len(rows))
    with style():
        for index, column in enumerate(MEMORY_COLUMNS):
            sizes = rows[column].to_numpy() / 2.0**30
            if not sizes.any():
                continue
            ax.fill_between(
                times,
                floor,
                floor + sizes,
                step="post",
                color=COLOURS[index % len(COLOURS)],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                linewidth=0.0,
                label=column.removeprefix("memory_").removesuffix("_bytes"),
            )
            floor = floor + sizes
        if isinstance(memory, Timeline):
            gib = float(memory.estimate.core.memory_capacity_bytes) / 2.0**30
            label = f"capacity {gib:.0f} GiB"
            ax.axhline(gib, color="0.2", linestyle="--", linewidth=1.2, label=label)
        ax.set(
            xlabel=f"Time ({unit})",
            ylabel="Memory (GiB)",
            title=f"Memory of stage {rank} over a step",
            xlim=(0.0, float(times.max())),
        )
        from_zero(ax)
        legend_beside(ax)
    return ax
