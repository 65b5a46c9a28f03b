"""``scalemodel trace``: what recorded traffic is like, and more or less of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scalemodel.cli.options import add_formats, number, whole
from scalemodel.cli.output import OK, print_csv, print_json, print_table

if TYPE_CHECKING:
    from scalemodel.serving.traces import Trace


def add_trace(commands: Any) -> None:
    """The command that describes and changes a trace of requests."""
    parser = commands.add_parser(
        "trace",
        help="describe, scale or draw a trace of requests",
        description="Describe recorded requests (Mooncake, Azure, BurstGPT, own JSONL, CSV or "
        "Parquet, gzip): rates, burstiness, lengths, sessions and shared prefixes; scale them to "
        "other traffic, or draw new ones that are alike.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_trace)
    parser.add_argument("file", metavar="FILE", help="recorded requests")
    parser.add_argument(
        "--format", metavar="NAME", help="scalemodel, mooncake, azure or burstgpt (default: told)"
    )
    parser.add_argument(
        "--drop-empty",
        action=argparse.BooleanOptionalAction,
        help="leave out requests with a length of 0 (default: those of BurstGPT)",
    )
    parser.add_argument(
        "--blocks",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="read the blocks of prompts, which take most of the memory (default: they are)",
    )
    change = parser.add_argument_group("other traffic (first to last)")
    change.add_argument(
        "--window", nargs=2, type=number, metavar=("START", "END"), help="seconds to keep"
    )
    more = change.add_mutually_exclusive_group()
    more.add_argument(
        "--scale", type=number, metavar="X", help="times the traffic: more sessions, or fewer"
    )
    more.add_argument("--draw", type=whole, metavar="N", help="new requests, fitted to the trace")
    change.add_argument("--rate", type=number, metavar="X", help="requests per second of --draw")
    change.add_argument(
        "--seed", type=whole, default=0, metavar="N", help="of what is at random (default 0)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", metavar="FILE", help=".jsonl, .csv (either also .gz) or .parquet of the result"
    )
    output.add_argument("--plot", metavar="FILE", help="picture of rate, lengths and prefix cache")
    add_formats(parser)


def _asked(options: argparse.Namespace) -> Trace:
    """The trace that the options describe."""
    from scalemodel.base.errors import ScaleModelError
    from scalemodel.serving.traces import fit_traffic, read_trace

    if options.rate is not None and options.draw is None:
        raise ScaleModelError(f"--rate={options.rate:g}: needs --draw; --scale multiplies the rate")
    start_s, end_s = options.window or (None, None)
    trace = read_trace(
        options.file,
        options.format,
        drop_empty=options.drop_empty,
        start_s=start_s,
        end_s=end_s,
        blocks=options.blocks,
    )
    if options.scale is not None:
        trace = trace.scaled(options.scale, seed=options.seed)
    if options.draw is not None:
        trace = fit_traffic(trace).draw(options.draw, rate=options.rate, seed=options.seed)
    return trace


def _plot(trace: Trace, path: str) -> None:
    import matplotlib.pyplot as plt

    from scalemodel import plot

    blocks = trace.block_ids is not None and trace.block_ids.size > 0
    with plot.style():
        figure, axes = plt.subplots(2 + blocks, 1, figsize=(8.0, 3.8 * (2 + blocks)))
        plot.request_rate(trace, ax=axes[0])
        plot.request_lengths(trace, ax=axes[1])
        if blocks:
            plot.hit_curve(trace, ax=axes[2])
        figure.tight_layout()
    plot.save(figure, path)
    plt.close(figure)


def _trace(options: argparse.Namespace) -> int:
    from scalemodel.serving.traces.statistics import text_of

    trace = _asked(options)
    if options.out is not None:
        trace.write(options.out)
    if options.plot is not None:
        _plot(trace, options.plot)
    found = trace.summary()
    if options.json:
        print_json(found)
    elif options.csv:
        print_csv(list(found), [list(found.values())])
    else:
        print(trace)
        print_table(("quantity", "value"), text_of(found))
    return OK
