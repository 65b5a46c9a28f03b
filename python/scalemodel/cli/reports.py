"""``scalemodel report``: a study on one HTML page."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from scalemodel.cli.estimates import record
from scalemodel.cli.output import (
    NOTHING_FEASIBLE,
    OK,
    print_json,
    question_record,
    question_text,
)
from scalemodel.cli.searches import add_aim, add_space, add_threads, asked


def add_report(commands: Any) -> None:
    """The command that writes the page of a study."""
    parser = commands.add_parser(
        "report",
        help="write a study as one HTML page",
        description="Find the best strategies of a space and write them on one self-contained "
        "HTML page: why they win, trade-offs, sensitivities, assumptions, error bars.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_report)
    add_space(parser)
    add_aim(parser, 5)
    work = add_threads(parser)
    work.add_argument("--progress", action="store_true", help="tell on the error stream")
    output = parser.add_argument_group("output")
    output.add_argument("--out", required=True, metavar="FILE", help="the .html file to write")
    output.add_argument("--title", metavar="TEXT", help="heading (default: model and machine)")
    output.add_argument("--json", action="store_true", help="one JSON document")


def _tell(done: int, total: int) -> None:
    print(f"section {done} of {total}", file=sys.stderr, flush=True)


def _report(options: argparse.Namespace) -> int:
    from scalemodel.base.errors import ScaleModelError
    from scalemodel.reports import report

    if not options.out.lower().endswith((".html", ".htm")):
        raise ScaleModelError(f"--out={options.out!r}: must end in .html", code="malformed")
    model, cluster, task, space = asked(options)
    page = report(
        model,
        cluster,
        task,
        space,
        objective=options.objective,
        constraints=options.constraint,
        headroom=options.headroom,
        top=options.top,
        title=options.title,
        stack=options.stack,
        threads=options.threads,
        progress=_tell if options.progress else False,
    )
    path, ranking = page.write(options.out), page.ranking
    if options.json:
        print_json(
            {
                **question_record(ranking.question),
                "space_rows": ranking.size,
                "counts": ranking.counts,
                "best": record(ranking[0]) if ranking else None,
                "out": str(path),
            }
        )
    else:
        print(question_text(ranking.question))
        print(ranking.why_infeasible())
        print(f"written to {path}")
    return OK if ranking else NOTHING_FEASIBLE
