"""Plots of fleets: their load over time, the latency of their requests, what goodput costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import COLOURS, from_zero, log_ticks, new_axis, style
from scalemodel.search.pareto import numbers, table_of
from scalemodel.serving.served_fleet import ServedFleet

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Column = npt.NDArray[np.float64]

_PARTS = 96  # of the span: a quarter of an hour of a day
_HOURS = 3600.0
_LONG_S = 2 * _HOURS  # from where times are in hours
_MOST_PERCENT = 99.9


def _fleets(served: object) -> dict[str, ServedFleet]:
    """Served fleets by label; one alone has none."""
    given = served if isinstance(served, Mapping) else {"": served}
    if not given:
        raise ScaleModelError("served={}: at least one is needed")
    found: dict[str, ServedFleet] = {}
    for label, each in given.items():
        if not isinstance(each, ServedFleet):
            named = f"served[{label!r}]" if label else "served"
            raise ScaleModelError(f"{named}={type(each).__name__}: must be a ServedFleet")
        found[str(label)] = each
    return found


def _rate(served: ServedFleet, edges: Column) -> Column:
    counts, _ = np.histogram(served.stream.arrival_s, bins=edges)
    return np.asarray(counts / np.diff(edges))


def _queue(served: ServedFleet, edges: Column) -> Column:
    """Mean number of requests before their first token: their waits, cut at the edges."""
    kept = ~served.refused
    begins, ends = served.stream.arrival_s[kept], served.first_token_s[kept]
    waited = [(_passed(begins, edge) - _passed(ends, edge)).sum() for edge in edges]
    return np.asarray(np.diff(waited) / np.diff(edges))


def _passed(times: Column, edge: float) -> Column:
    """Seconds since each time at an edge; 0 before it."""
    return np.maximum(0.0, edge - times)


def _hits(served: ServedFleet, edges: Column) -> Column:
    arrivals = served.stream.arrival_s
    prompts, _ = np.histogram(arrivals, bins=edges, weights=served.stream.input_tokens)
    cached, _ = np.histogram(arrivals, bins=edges, weights=served.cached_tokens)
    found = np.full(len(prompts), np.nan)
    np.divide(100 * cached, prompts, out=found, where=prompts > 0)
    return found


def _replicas(served: ServedFleet, edges: Column) -> Column:
    """Mean number of replicas that take requests: events last until the next one."""
    table = served.scaling
    times, online = table.time_s.to_numpy(), table.online.to_numpy()
    sums = np.concatenate([[0.0], np.cumsum(online[:-1] * np.diff(times))])
    place = np.maximum(0, np.searchsorted(times, edges, side="right") - 1)
    total = sums[place] + online[place] * (edges - times[place])
    return np.asarray(np.diff(total) / np.diff(edges))


def _ttft(served: ServedFleet, edges: Column) -> Column:
    kept = ~served.refused
    arrivals = served.stream.arrival_s[kept]
    waits = served.first_token_s[kept] - arrivals
    part = np.minimum(np.searchsorted(edges, arrivals, side="right"), len(edges) - 1) - 1
    return np.array(
        [
            np.quantile(waits[part == place], 0.99) if (part == place).any() else np.nan
            for place in range(len(edges) - 1)
        ]
    )


_QUANTITIES: Mapping[str, tuple[str, Callable[[ServedFleet, Column], Column]]] = {
    "rate": ("Requests (1/s)", _rate),
    "queue": ("Requests waiting", _queue),
    "hits": ("Prompts in caches (%)", _hits),
    "replicas": ("Replicas online", _replicas),
    "ttft_p99": ("TTFT, 99 of 100 (s)", _ttft),
}


def fleet_load(
    served: ServedFleet | Mapping[str, ServedFleet],
    quantity: str = "rate",
    *,
    parts: int = _PARTS,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity of a fleet over time.

    Parameters
    ----------
    served : ServedFleet, or mapping of label to such
        What ``sm.simulate_fleet`` returns.
    quantity : str
        ``"rate"`` (requests that come), ``"queue"`` (requests before their first token),
        ``"hits"`` (prompt tokens found in caches), ``"replicas"`` (that take requests) or
        ``"ttft_p99"``.
    parts : int
        Of the span of the arrivals, over each of which the quantity is taken.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One line of steps per fleet.

    Raises
    ------
    ScaleModelError : nothing to draw, or an unknown quantity.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=6)
    >>> trace = sm.request_stream(task, requests=4000, requests_per_s=60, arrivals="bursty")
    >>> scaled = sm.simulate_fleet(trace, plan, router="least_loaded",
    ...                            autoscaler=sm.Autoscaler(target=8.0, interval_s=2.0,
    ...                                                     startup_s=4.0, down_window_s=15.0))
    >>> ax = sm.plot.fleet_load(scaled, "replicas", parts=40)
    >>> ax.get_ylabel()
    'Replicas online'
    """
    fleets = _fleets(served)
    if quantity not in _QUANTITIES:
        raise ScaleModelError(f"quantity={quantity!r}: must be one of {', '.join(_QUANTITIES)}")
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= 10**5:
        raise ScaleModelError(f"parts={parts!r}: must be a whole number from 1 to 1e5")
    spans = [each.stream.arrival_s[-1] - each.stream.arrival_s[0] for each in fleets.values()]
    if not min(spans) > 0:
        raise ScaleModelError("served: all requests come at once; must last some time")
    hours = max(spans) >= _LONG_S
    name, found = _QUANTITIES[quantity]
    ax = new_axis(ax, 8.0, 3.2)
    with style():
        for label, each in fleets.items():
            arrivals = each.stream.arrival_s
            edges = np.linspace(arrivals[0], arrivals[-1], parts + 1)
            since = (edges - edges[0]) / (_HOURS if hours else 1.0)
            ax.stairs(
                found(each, edges), since, baseline=None, label=label_text(label) or None, lw=1.4
            )
        ax.set(xlabel="Time (h)" if hours else "Time (s)", ylabel=name, title="Fleet over time")
        from_zero(ax)
        ax.set_xlim(0, max(spans) / (_HOURS if hours else 1.0))
        if any(fleets):
            ax.legend(frameon=False)
    return ax


_METRICS = {
    "ttft_s": "Time to the first token (s)",
    "tpot_s": "Time per output token (s)",
    "latency_s": "Latency (s)",
}


def latency_percentiles(
    served: ServedFleet | Mapping[str, ServedFleet],
    metric: str = "ttft_s",
    *,
    limit_s: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the percentiles of a latency, the slowest requests stretched out.

    Parameters
    ----------
    served : ServedFleet, or mapping of label to such
    metric : str
        ``"ttft_s"``, ``"tpot_s"`` or ``"latency_s"``.
    limit_s : float, optional
        A limit, drawn as a line.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One line per fleet, over percentiles from the median to 99.9.

    Raises
    ------
    ScaleModelError : nothing to draw, or an unknown metric.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=2)
    >>> trace = sm.request_stream(task, requests=2000, requests_per_s=40, lengths="lognormal")
    >>> fleets = {name: sm.simulate_fleet(trace, plan, router=name)
    ...           for name in ("random", "least_loaded")}
    >>> ax = sm.plot.latency_percentiles(fleets, limit_s=0.2)
    >>> ax.get_xlabel()
    'Requests no slower (%)'
    """
    fleets = _fleets(served)
    if metric not in _METRICS:
        raise ScaleModelError(f"metric={metric!r}: must be one of {', '.join(_METRICS)}")
    percents = 100 - np.geomspace(50, 100 - _MOST_PERCENT, 200)
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        for label, each in fleets.items():
            times = each.requests.loc[~each.refused, metric].to_numpy()
            if not times.size:
                raise ScaleModelError(f"served: no request was served of {label or 'the fleet'}")
            slower = 100 - percents
            ax.plot(slower, np.percentile(times, percents), label=label_text(label) or None)
        if limit_s is not None:
            ax.axhline(limit_s, color="0.3", linestyle="--", linewidth=1, label="limit")
        ax.set(
            xscale="log",
            yscale="log",
            xlabel="Requests no slower (%)",
            ylabel=_METRICS[metric],
            title="Percentiles of latency",
        )
        ax.set_xlim(50, 100 - _MOST_PERCENT)
        marks = (50, 90, 99, 99.9)
        ax.set_xticks([100 - mark for mark in marks], [f"{mark:g}" for mark in marks])
        ax.minorticks_off()
        log_ticks(ax.yaxis)
        if any(fleets) or limit_s is not None:
            ax.legend(frameon=False)
    return ax


def fleet_front(
    table: pd.DataFrame | Mapping[str, pd.DataFrame], *, ax: Axes | None = None
) -> Axes:
    """Draw what goodput costs.

    Parameters
    ----------
    table : DataFrame, or mapping of label to such
        What ``sm.study_fleets`` returns, with prices and limits.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Every fleet as a point, and by label the most goodput within a cost as a line of steps.

    Raises
    ------
    ScaleModelError : nothing to draw, or a column is missing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> trace = sm.request_stream(task, requests=1500, requests_per_s=90)
    >>> tables = {}
    >>> for name in ("dgx_h100", "dgx_a100"):
    ...     plan = sm.serve("llama3_8b", name, task, replicas=1)
    ...     tables[name] = sm.study_fleets(trace, [(plan, n) for n in (2, 3, 4, 6, 8)],
    ...                                    limits={"ttft_s": 0.3, "tpot_s": 0.04})
    >>> ax = sm.plot.fleet_front(tables)
    >>> ax.get_xlabel()
    'Cost (USD/h)'
    """
    labelled = table if isinstance(table, Mapping) else {"": table}
    if not labelled:
        raise ScaleModelError("table={}: at least one is needed")
    ax = new_axis(ax, 7.0, 4.4)
    with style():
        for place, (label, each) in enumerate(labelled.items()):
            rows = table_of(each, "table")
            costs = numbers(rows, "usd_per_hour", "table")
            good = 100 * numbers(rows, "goodput_fraction", "table")
            kept = np.isfinite(costs) & np.isfinite(good)
            if not kept.any():
                raise ScaleModelError(f"table: nothing to draw of {label or 'the table'}")
            order = np.argsort(costs[kept], kind="stable")
            best = np.maximum.accumulate(good[kept][order])
            colour = COLOURS[place % len(COLOURS)]
            ax.plot(costs[kept], good[kept], "o", color=colour, alpha=0.6)
            ax.step(
                costs[kept][order],
                best,
                where="post",
                color=colour,
                label=label_text(str(label)) or None,
            )
        ax.set(
            xlabel="Cost (USD/h)", ylabel="Requests within limits (%)", title="Goodput and its cost"
        )
        from_zero(ax)
        ax.set_xlim(left=0)
        ax.set_ylim(0, 104)
        if any(labelled):
            ax.legend(frameon=False, loc="lower right")
    return ax
