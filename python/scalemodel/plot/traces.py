"""Plots of traces: when requests came, how long they were, what a prefix cache holds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import label_text
from scalemodel.plot.canvas import COLOURS, from_zero, log_ticks, new_axis, style
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.traces import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = 60  # of the span in which arrivals are counted
_SIZES = 12  # of caches


def _labelled(traces: object, kind: type[RequestStream]) -> dict[str, RequestStream]:
    """Traces by label; one alone has none."""
    given = traces if isinstance(traces, Mapping) else {"": traces}
    if not given:
        raise ScaleModelError("traces={}: at least one is needed")
    found = {}
    for label, trace in given.items():
        if not isinstance(trace, kind):
            named = f"traces[{label!r}]" if label else "traces"
            raise ScaleModelError(f"{named}={type(trace).__name__}: must be a {kind.__name__}")
        found[str(label)] = trace
    return found


def request_rate(
    traces: RequestStream | Mapping[str, RequestStream],
    *,
    parts: int = _PARTS,
    ax: Axes | None = None,
) -> Axes:
    """Draw how many requests come over time.

    Parameters
    ----------
    traces : Trace, other RequestStream, or mapping of label to either
    parts : int
        Of the span, in each of which arrivals are counted.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One line of steps per trace.

    Raises
    ------
    ScaleModelError : nothing to draw.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> stream = sm.request_stream(task, requests=2000, requests_per_s=4, arrivals="bursty")
    >>> ax = sm.plot.request_rate(stream)
    >>> ax.get_ylabel()
    'Requests (1/s)'
    """
    if isinstance(parts, bool) or not isinstance(parts, int) or not 1 <= parts <= 10**6:
        raise ScaleModelError(f"parts={parts!r}: must be a whole number from 1 to 1e6")
    labelled = _labelled(traces, RequestStream)
    ax = new_axis(ax, 8.0, 3.6)
    with style():
        for label, trace in labelled.items():
            since = trace.arrival_s - trace.arrival_s[0]
            if not since[-1] > 0:
                raise ScaleModelError("traces: all requests come at once; must last some time")
            counts, edges = np.histogram(since, bins=parts)
            ax.stairs(counts / np.diff(edges), edges, label=label_text(label) or None)
        ax.set(xlabel="Time (s)", ylabel="Requests (1/s)", title="Requests over time")
        from_zero(ax)
        ax.set_xlim(left=0)
        if any(labelled):
            ax.legend(frameon=False)
    return ax


def request_lengths(
    traces: RequestStream | Mapping[str, RequestStream], *, ax: Axes | None = None
) -> Axes:
    """Draw how many requests are no longer than a length.

    Parameters
    ----------
    traces : Trace, other RequestStream, or mapping of label to either
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        Two lines per trace: lengths of inputs, and dashed those of outputs.

    Raises
    ------
    ScaleModelError : nothing to draw.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> stream = sm.request_stream(task, requests=2000, lengths="lognormal")
    >>> [line.get_label() for line in sm.plot.request_lengths(stream).lines]
    ['input', 'output']
    """
    labelled = _labelled(traces, RequestStream)
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        for place, (label, trace) in enumerate(labelled.items()):
            shares = 100 * np.arange(1, len(trace) + 1) / len(trace)
            for name, line in (("input", "-"), ("output", "--")):
                lengths = np.sort(getattr(trace, f"{name}_tokens"))
                ax.step(
                    np.concatenate([lengths[:1], lengths]),
                    np.concatenate([[0.0], shares]),
                    where="post",
                    linestyle=line,
                    color=COLOURS[place % len(COLOURS)] if label else None,
                    label=f"{label_text(label)} {name}".strip(),
                )
        ax.set(
            xscale="log", xlabel="Tokens", ylabel="Requests (%)", title="Lengths of the requests"
        )
        log_ticks(ax.xaxis)
        ax.set_ylim(0, 101)
        ax.legend(frameon=False)
    return ax


def hit_curve(
    traces: Trace | Mapping[str, Trace],
    *,
    blocks: Sequence[int] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what prefix caches of many sizes hold of the prompts.

    Parameters
    ----------
    traces : Trace or mapping of label to Trace
        With blocks of the prompts.
    blocks : sequence of int, optional
        Sizes of the caches; default: up to all blocks of the trace.
    ax : Axes, optional
        Default: a new figure.

    Returns
    -------
    Axes
        One line per trace, as `Trace.prefix_hits` counts; dashed: a cache without limit.

    Raises
    ------
    ScaleModelError : a trace has no blocks, or a size is no whole number from 1.

    Examples
    --------
    >>> import numpy as np
    >>> import scalemodel as sm
    >>> users = np.random.default_rng(0).zipf(1.5, 500) % 97
    >>> trace = sm.Trace(np.arange(500.0), np.full(500, 64), np.full(500, 8),
    ...                  block_offsets=np.arange(0, 1001, 2), block_tokens=32,
    ...                  block_ids=np.stack([users, 100 + users], axis=1).ravel())
    >>> ax = sm.plot.hit_curve(trace, blocks=[8, 16, 32, 64, 128, 256])
    >>> ax.get_xlabel()
    'Cache (blocks of 32 tokens)'
    """
    labelled = {k: v for k, v in _labelled(traces, Trace).items() if isinstance(v, Trace)}
    for label, trace in labelled.items():
        if trace.block_ids is None or not trace.block_ids.size:
            named = f"traces[{label!r}]" if label else "traces"
            raise ScaleModelError(f"{named}: must have blocks of the prompts")
    tokens = sorted({trace.block_tokens for trace in labelled.values()})
    ax = new_axis(ax, 7.0, 4.2)
    with style():
        for place, (label, trace) in enumerate(labelled.items()):
            sizes = blocks if blocks is not None else _sizes_of(trace)
            shares = [100 * trace.prefix_hits(size).fraction for size in sizes]
            colour = COLOURS[place % len(COLOURS)]
            ax.plot(sizes, shares, marker="o", color=colour, label=label_text(label) or None)
            ax.axhline(
                100 * trace.prefix_hits().fraction, color=colour, linestyle="--", linewidth=1
            )
        ax.set(
            xscale="log",
            xlabel=f"Cache (blocks of {' or '.join(map(str, tokens))} tokens)",
            ylabel="Prompts in the cache (%)",
            title="Prefix cache",
        )
        log_ticks(ax.xaxis)
        from_zero(ax)
        if any(labelled):
            ax.legend(frameon=False)
    return ax


def _sizes_of(trace: Trace) -> list[int]:
    """Sizes of caches from a hundredth of the different blocks of a trace to all of them."""
    assert trace.block_ids is not None
    most = int(np.unique(trace.block_ids).size)
    return sorted({int(size) for size in np.geomspace(max(1, most // 100), most, _SIZES).round()})
