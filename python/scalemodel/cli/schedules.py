"""``scalemodel compare-schedules``: every pipeline schedule of one strategy."""

from __future__ import annotations

import argparse
from typing import Any

import scalemodel._core as _core
from scalemodel.cli.options import (
    add_formats,
    add_question,
    add_strategy,
    cluster_of,
    given,
    task_of,
    whole,
)
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json


def add_compare_schedules(commands: Any) -> None:
    """The command that compares pipeline schedules."""
    parser = commands.add_parser(
        "compare-schedules",
        help="compare every pipeline schedule of one strategy",
        description="Step, bubble, exposed transfers and memory of one strategy under every "
        "pipeline schedule, and which frameworks start it. --schedule and --vpp are left aside.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_compare)
    add_question(parser)
    add_strategy(parser)
    compared = parser.add_argument_group("comparison")
    compared.add_argument(
        "--interleave",
        nargs="+",
        type=whole,
        metavar="VPP",
        help="virtual stages to interleave with (default all up to 8 that divide a stage's layers)",
    )
    add_formats(parser)


def _compare(options: argparse.Namespace) -> int:
    from scalemodel.search.schedules import compare_schedules

    found = compare_schedules(
        options.model,
        cluster_of(options),
        task_of(options),
        _core.Strategy(**given(options, _core.Strategy.fields())),
        vpp=options.interleave,
        stack=options.stack,
    )
    table = found.table()
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    if options.json:
        print_json({"schedules": rows})
    elif options.csv:
        print_csv(list(table.columns), [list(row.values()) for row in rows])
    else:
        print(found)
    return OK if found.best else INFEASIBLE
