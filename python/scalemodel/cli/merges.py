"""``scalemodel merge``: what several machines found, put together."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli import rankings
from scalemodel.cli.options import add_formats
from scalemodel.cli.output import OK, print_csv, print_json
from scalemodel.search.ranking import RANKING_COLUMNS

_KINDS = ".json (rankings), .csv or .parquet (sweeps)"


def add_merge(commands: Any) -> None:
    """The command that puts shards together."""
    parser = commands.add_parser(
        "merge",
        help="put shards of a search or sweep together",
        description="Put the shards of a search (.json) or sweep (.csv, .parquet) together, in any "
        "order: checks that they answer one question and that none is missing or there twice.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_merge)
    parser.add_argument("files", nargs="+", metavar="FILE", help=f"shards: all {_KINDS}")
    parser.add_argument(
        "--partial",
        action="store_true",
        help="accept missing shards: the result is a part that can be merged further",
    )
    rankings.add_ranking_output(parser, RANKING_COLUMNS)
    add_formats(parser)


def _merge(options: argparse.Namespace) -> int:
    suffixes = {Path(name).suffix.lower() for name in options.files}
    if len(suffixes) > 1 or not suffixes <= {".json", ".csv", ".parquet"}:
        raise ScaleModelError(
            f"files={', '.join(options.files)}: must be all of one kind: {_KINDS}"
        )
    return _merge_rankings(options) if suffixes == {".json"} else _merge_sweeps(options)


def _merge_rankings(options: argparse.Namespace) -> int:
    from scalemodel.search import ranking_file

    if options.out:
        rankings.check_out(options.out, part=options.partial)
    parts = [ranking_file.read(name) for name in options.files]
    return rankings.show(ranking_file.merge(parts, partial=options.partial), options)


def _merge_sweeps(options: argparse.Namespace) -> int:
    from scalemodel.search import table_file

    if not options.out:
        raise ScaleModelError("out: a file is needed to merge sweeps into (--out FILE)")
    if options.columns is not None:
        raise ScaleModelError("columns: only rankings can be merged into fewer columns")
    rows, size = table_file.merge_tables(options.files, options.out, partial=options.partial)
    count = sum(last - first for first, last in rows)
    if size is None:
        warnings.warn(
            "CSV files do not say how many rows the space has: whether the last shard is missing "
            "was not checked (it is for Parquet)",
            stacklevel=1,
        )
    if options.json:
        document = {"out": options.out, "rows": rows, "rows_written": count, "space_rows": size}
        print_json(document)
    elif options.csv:
        print_csv(["rows_written", "space_rows"], [[count, size]])
    else:
        of = "" if size is None else f" of {size:,}"
        print(f"{count:,}{of} rows written to {options.out}")
    return OK
