"""``scalemodel list`` and ``scalemodel validate``."""

from __future__ import annotations

import argparse
from typing import Any

from scalemodel.cli.options import add_formats
from scalemodel.cli.output import OK, print_csv, print_json, print_table


def add_list(commands: Any) -> None:
    """The command that shows the catalogue."""
    parser = commands.add_parser(
        "list",
        help="show the catalogue",
        description="Show what the catalogue holds: all kinds, one kind, or one entry.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_list)
    parser.add_argument("kind", nargs="?", metavar="KIND", help="accelerators, clusters, models...")
    parser.add_argument("name", nargs="?", metavar="NAME", help="entry: its numbers and sources")
    add_formats(parser)


def add_validate(commands: Any) -> None:
    """The command that compares predictions with measurements."""
    parser = commands.add_parser(
        "validate",
        help="compare predictions with measurements",
        description="Predict every row of a table of measurements and report the errors.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_validate)
    kinds = (
        "training, inference, gemm, attention, moe, elementwise, collectives, power, "
        "linear_attention, mamba2, sparse_attention, msa, mhc, moe_fused_a2a or encoder_attention"
    )
    parser.add_argument("--kind", required=True, metavar="KIND", help=kinds)
    parser.add_argument("file", nargs="?", metavar="FILE", help="CSV (default: the catalogue's)")
    parser.add_argument("--out", metavar="FILE", help="write the rows with their predictions")
    parser.add_argument("--stack", metavar="NAME", help="software stack or engine of every row")
    parser.add_argument(
        "--left-out", action="store_true", help="constants from the other sources of FILE only"
    )
    add_formats(parser)


def _list(options: argparse.Namespace) -> int:
    from scalemodel import catalog

    frame = catalog.list_catalog(options.kind, options.name)
    header = [str(column) for column in frame.columns]
    rows = frame.astype(object).to_numpy().tolist()
    if options.json:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    elif options.csv:
        print_csv(header, rows)
    else:
        shown = header.index("key") if "key" in header else 0
        print_table(header[shown:], [row[shown:] for row in rows])
    return OK


def _validate(options: argparse.Namespace) -> int:
    from scalemodel import validation

    frame = validation.validate(
        options.kind, options.file, stack=options.stack, left_out=options.left_out
    )
    if options.out:
        validation.write_csv(frame, options.out)
    scores = validation.scores_of(options.kind, frame)
    if options.json:
        print_json(scores.to_dict())
    elif options.csv:
        tables = scores.tables()
        rows = [{"table": name, **row} for name, table in tables.items() for row in table]
        header = list(rows[0])
        print_csv(header, [[row[name] for name in header] for row in rows])
    else:
        print(scores.text())
    return OK
