"""``scalemodel project``: a measured node carried over to a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from scalemodel.cli.estimates import ask
from scalemodel.cli.options import (
    add_formats,
    add_model,
    add_network,
    add_strategy,
    add_task,
    check_given,
    whole,
)
from scalemodel.cli.output import NOTHING_FEASIBLE, OK, print_csv, print_json


def add_project(commands: Any) -> None:
    """The command that projects a measured job to other sizes."""
    parser = commands.add_parser(
        "project",
        help="project a profiled node to a cluster",
        description="Carry a measured job over to other sizes of its cluster: what the prediction "
        "misses on the node is taken along. Model, task and strategy are those of the measured "
        "job; a log of Megatron names them itself.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_project)
    parser.add_argument(
        "profile",
        metavar="PROFILE",
        help="trace of PyTorch's profiler, several joined by commas (one per rank), a log of "
        "steps, or seconds of a step",
    )
    add_model(parser, required=False)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument(
        "--measured-nodes", type=whole, metavar="N", help="nodes of the measured job (default 1)"
    )
    size.add_argument(
        "--accelerators", type=whole, metavar="N", help="accelerators of the measured job"
    )
    cluster.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    cluster.add_argument(
        "--nodes",
        required=True,
        nargs="+",
        type=whole,
        metavar="N",
        help="nodes of the jobs to project to",
    )
    cluster.add_argument(
        "--mode",
        choices=["weak", "strong"],
        default="weak",
        help="whether the batch grows with the job, from the measured one (default weak)",
    )
    add_network(cluster, policies=False)
    add_task(parser, required=False)
    add_strategy(parser)
    add_formats(parser)


def _profile(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        parts = text.split(",")
        return parts if len(parts) > 1 else text


def _project(options: argparse.Namespace) -> int:
    from scalemodel.interop.jobs import project

    counts, profile = options.nodes, _profile(options.profile)
    if options.model is None:
        found = project(
            profile,
            nodes=counts,
            mode=options.mode,
            cluster=options.cluster,
            accelerators=options.accelerators,
            stack=options.stack,
        )
    else:
        check_given(options)
        # The measured job is the one that is asked about first.
        options.nodes = None if options.accelerators else options.measured_nodes or 1
        found = project(profile, ask(options), nodes=counts, mode=options.mode)
    if options.json:
        print_json(found.to_dict())
    elif options.csv:
        rows = found.to_dict()["sizes"]
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    else:
        print(found.explain())
    return OK if any(step.estimate.fits for step in found.steps) else NOTHING_FEASIBLE
