"""``scalemodel launch`` and ``scalemodel compare-log``: from a prediction to a job and back."""

from __future__ import annotations

import argparse
from typing import Any

from scalemodel.cli.estimates import ask, record
from scalemodel.cli.options import (
    add_formats,
    add_question,
    add_strategy,
    check_given,
    cluster_of,
)
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json
from scalemodel.search.framework_rules import FRAMEWORKS

_SCHEDULERS = ("slurm", "jobset", "pytorchjob")


def add_launch(commands: Any) -> None:
    """The command that writes what starts a strategy in a training framework."""
    parser = commands.add_parser(
        "launch",
        help="write the flags that start a strategy in a training framework",
        description="Write command, environment and files that start a strategy in a training "
        "framework; what it cannot express stands in comments.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_launch)
    add_question(parser)
    add_strategy(parser)
    parser.add_argument("--framework", required=True, choices=FRAMEWORKS, help="framework")
    parser.add_argument("--scheduler", choices=_SCHEDULERS, help="job around the command")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _launch(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from scalemodel.estimator.diagnosis import message
    from scalemodel.interop.settings import launch

    est = ask(options)
    if est.illegal:
        print(message(est))
        return INFEASIBLE
    found = launch(est, options.framework, scheduler=options.scheduler)
    if options.json:
        print_json({**record(est), "launch": asdict(found)})
    else:
        print(found.script(), end="")
    return OK if est.fits else INFEASIBLE


def add_compare_log(commands: Any) -> None:
    """The command that lays a training log beside its prediction."""
    parser = commands.add_parser(
        "compare-log",
        help="compare a training log with its prediction",
        description="Compare the steps of a training log with the prediction of the job. A log of "
        "Megatron names the job itself; for others the job is given as to estimate.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_compare)
    parser.add_argument("log", metavar="LOG", help="training log")
    add_question(parser, required=False)
    add_strategy(parser)
    add_formats(parser)


def _compare(options: argparse.Namespace) -> int:
    from scalemodel.interop.jobs import compare_log

    if options.model is None:
        found = compare_log(
            options.log,
            cluster=cluster_of(options),
            accelerators=options.accelerators,
            stack=options.stack,
        )
    else:
        check_given(options)
        found = compare_log(options.log, ask(options))
    row = found.to_dict()
    if options.json:
        print_json(row)
    elif options.csv:
        print_csv(list(row), [list(row.values())])
    else:
        print(found)
    return OK
