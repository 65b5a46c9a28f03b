"""Plots of serving: what throughput costs in latency, what a rate does, what a stream holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import from_zero, log_ticks, new_axis, style
from scalemodel.plot.columns import scale_of
from scalemodel.search.pareto import numbers, table_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_THROUGHPUT = "output_tokens_per_s_per_accelerator"


def serving_front(
    plans: Any | Mapping[str, Any], *, tpot_s: float | None = None, ax: Axes | None = None
) -> Axes:
    """Draw what throughput per accelerator costs in time between tokens.

    Parameters
    ----------
    plans : ServingPlans, DataFrame, or mapping of label to either
        What ``sm.plan_serving`` returns, or a table with its columns.
    tpot_s : float, optional
        A limit, drawn as a line.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One line of steps per label: the most that any plan delivers within a time.

    Raises
    ------
    ScaleModelError : nothing to draw, or a column is missing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> ax = sm.plot.serving_front(sm.plan_serving("llama3_8b", "dgx_h100", task))
    >>> ax.get_xlabel()
    'Time between tokens (ms)'
    """
    labelled = plans if isinstance(plans, Mapping) else {"": plans}
    if not labelled:
        raise ScaleModelError("plans={}: at least one is needed")
    tables = {
        str(label): table_of(getattr(each, "front", each), "plans")
        for label, each in labelled.items()
    }
    ax = new_axis(ax, 7.0, 4.6)
    with style():
        for label, table in tables.items():
            times, rates = numbers(table, "tpot_s", "plans"), numbers(table, _THROUGHPUT, "plans")
            kept = np.isfinite(times) & np.isfinite(rates)
            if not kept.any():
                raise ScaleModelError(f"plans: nothing to draw of {label or 'the table'}")
            order = np.argsort(times[kept], kind="stable")
            best = np.maximum.accumulate(rates[kept][order])
            ax.step(1e3 * times[kept][order], best, where="post", label=label_text(label) or None)
        if tpot_s is not None:
            ax.axvline(1e3 * tpot_s, color="0.3", linestyle="--", linewidth=1, label="limit")
        ax.set(
            xscale="log",
            xlabel="Time between tokens (ms)",
            ylabel="Output per accelerator (tokens/s)",
            title="Throughput against latency",
        )
        log_ticks(ax.xaxis)
        from_zero(ax)
        if any(tables) or tpot_s is not None:
            ax.legend(frameon=False)
    return ax


def serving_rates(table: pd.DataFrame | Any, *, ax: Axes | None = None) -> Axes:
    """Draw the time to the first token and between tokens over the rate of requests.

    Parameters
    ----------
    table : DataFrame
        What `scalemodel.serving.rate_table` returns.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Two lines; what is saturated is left out and shaded.

    Raises
    ------
    ScaleModelError : nothing to draw, or a column is missing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> ax = sm.plot.serving_rates(sm.serving.rate_table(plan))
    >>> [line.get_label() for line in ax.lines]
    ['first token', 'between tokens']
    """
    rows = table_of(table, "table")
    rates = numbers(rows, "requests_per_s", "table")
    if not len(rates):
        raise ScaleModelError("table: no row to draw")
    first, between = numbers(rows, "ttft_s", "table"), numbers(rows, "tpot_s", "table")
    settled = np.isfinite(first)
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        for times, label in ((first, "first token"), (between, "between tokens")):
            ax.plot(
                rates[settled],
                1e3 * times[settled],
                label=label,
                marker="o" if settled.sum() == 1 else None,
            )
        if settled.any() and not settled.all():
            ax.axvspan(rates[settled].max(), rates.max(), color="0.9", label="saturated")
        ax.set(
            yscale="log",
            xlabel="Requests (1/s)",
            ylabel="Time (ms)",
            title="Latency over the rate of requests",
        )
        log_ticks(ax.yaxis)
        ax.set_xlim(left=0)
        ax.legend(frameon=False)
    return ax


def cache_occupancy(served: Any, *, points: int = 500, ax: Axes | None = None) -> Axes:
    """Draw how full the caches of keys and values are over a simulated stream.

    Parameters
    ----------
    served : ServedStream or DataFrame
        What ``Serving.simulate`` returns, or its ``occupancy()``.
    points : int
        Times drawn.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        The share of the caches in use, and requests running and waiting on an axis of their own.

    Raises
    ------
    ScaleModelError : a column is missing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=1000)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=2, replicas=1)
    >>> sm.plot.cache_occupancy(plan.simulate(requests=200)).get_ylabel()
    'Cache (%)'
    """
    occupancy = getattr(served, "occupancy", None)
    rows = table_of(served if occupancy is None else occupancy(points), "served")
    scale = scale_of("cache_fraction")
    times = numbers(rows, "time_s", "served")
    ax = new_axis(ax, 8.0, 4.0)
    with style():
        shares = numbers(rows, "cache_fraction", "served") / scale.divisor
        ax.fill_between(times, shares, color="0.85", linewidth=0)
        ax.plot(times, shares, color="0.3", label="cache")
        ax.set(xlabel="Time (s)", ylabel=scale.label, title="Cache over time")
        ax.set_ylim(0, max(100.0, 1.02 * float(np.nanmax(shares, initial=0.0))))
        beside = ax.twinx()
        for name, line in (("running", "-"), ("waiting", ":")):
            beside.plot(times, numbers(rows, name, "served"), linestyle=line, label=name)
        beside.set_ylabel("Requests")
        from_zero(beside)
        lines = [*ax.lines, *beside.lines]
        ax.legend(lines, [str(line.get_label()) for line in lines], frameon=False)
    return ax
