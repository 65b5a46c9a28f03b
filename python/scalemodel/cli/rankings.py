"""How a ranking is printed and written, for ``search`` and ``merge``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalemodel._core import __version__
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.cli.output import (
    NOTHING_FEASIBLE,
    OK,
    print_csv,
    print_json,
    print_table,
    question_record,
)

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.search.ranking import Question
    from scalemodel.search.ranking_file import Part

OUT_SUFFIXES = (".json", ".csv", ".parquet")


def add_ranking_output(parser: argparse.ArgumentParser, columns: Sequence[str]) -> None:
    """Options that say what becomes of a ranking."""
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        metavar="FILE",
        help=".json: the ranking, to be merged or read again; .csv, .parquet: its table",
    )
    output.add_argument(
        "--columns", nargs="+", metavar="NAME", help="columns of the table: " + ", ".join(columns)
    )


# -------------------------------------------------------------------------------------- documents
def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON holds them; what is unknown is null."""
    import pandas as pd

    unknown = {name: frame[name].isna().any() for name in frame.columns}
    columns = [
        [None if value is None or value is pd.NA or value != value else value for value in listed]
        if unknown[name]
        else listed
        for name, listed in ((name, frame[name].tolist()) for name in frame.columns)
    ]
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _chosen(frame: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
    if columns is None:
        return frame
    for name in columns:
        if name not in frame.columns:
            known = [str(column) for column in frame.columns]
            raise ScaleModelError(f"columns={name!r}: no such column; {nearest(name, known)}")
    return frame[list(dict.fromkeys(columns))]


def question_document(question: Question) -> dict[str, Any]:
    """What was asked, for other programs."""
    return {
        **question_record(question),
        "space": repr(question.space),
        "objective": dict(question.objective),
        "constraints": list(question.constraints),
        "top": question.top,
        "prune": question.prune,
        "headroom": question.headroom,
        "framework": question.framework,
    }


def _document(part: Part, frame: pd.DataFrame) -> dict[str, Any]:
    ranking = part.ranking
    document = {
        **question_document(ranking.question),
        "space_rows": part.size,
        "rows": [list(found) for found in part.rows],
        "size": ranking.size,
        "evaluated": ranking.evaluated,
        "pruned": ranking.pruned,
        "constrained": ranking.constrained,
        "counts": ranking.counts,
        "ranking": records(frame),
    }
    if not len(ranking):
        document["why_infeasible"] = ranking.why_infeasible()
    return document


# ------------------------------------------------------------------------------------------ texts
def counts_text(size: int, counts: Mapping[str, int]) -> str:
    """Rows by what became of them."""
    from scalemodel.search import ranking_view

    return ranking_view.counts_text(size, counts)


def summary(part: Part) -> str:
    """The question and what became of the rows."""
    from scalemodel.search.ranking_file import rows_text
    from scalemodel.search.ranking_view import head_lines

    lines = head_lines(part.ranking)
    if not part.complete:
        lines.insert(1, f"part: {rows_text(part.rows)} of {part.size:,}")
    return "\n".join(lines)


def show(part: Part, options: argparse.Namespace) -> int:
    """Prints and writes a ranking as the options want it; the exit code."""
    ranking = part.ranking
    if options.out:
        write(part, options.out, options.columns)
    table = ranking.table
    frame = _chosen(table, options.columns)
    if options.json:
        print_json(_document(part, frame))
    elif options.csv:
        print_csv([str(name) for name in frame.columns], [list(r.values()) for r in records(frame)])
    else:
        _show_text(part, frame, options.columns)
        if options.out:
            print(f"written to {options.out}")
    return NOTHING_FEASIBLE if part.complete and not len(ranking) else OK


def _show_text(part: Part, frame: pd.DataFrame, columns: Sequence[str] | None) -> None:
    from scalemodel.search.compact import table_text
    from scalemodel.search.ranking_view import best_rows, foot_lines

    ranking = part.ranking
    print(summary(part))
    if not len(ranking):
        print(ranking.why_infeasible())
        if ranking.pruned:
            print("--no-prune counts the reasons of every strategy.")
        return
    if columns is not None:
        header = [str(name) for name in frame.columns]
        print_table(header, [list(row.values()) for row in records(frame)])
        return
    print(table_text(*best_rows(ranking)))
    print("\n".join(foot_lines(ranking)))


def check_out(path: str, *, part: bool) -> None:
    """ScaleModelError for a file that cannot hold a ranking, before the work is done."""
    from scalemodel.search import table_file

    suffix = table_file.check_suffix(path, OUT_SUFFIXES)
    if part and suffix != ".json":
        raise ScaleModelError(f"out={path!r}: a part of a ranking must end in .json")


def write(part: Part, path: str, columns: Sequence[str] | None) -> None:
    """A ranking to a file: all of it as JSON, its table as CSV or Parquet."""
    from scalemodel.base import files
    from scalemodel.search import ranking_file, table_file

    if table_file.check_suffix(path, OUT_SUFFIXES) == ".json":
        with files.replacing(path) as draft:
            draft.write_text(ranking_file.to_json(part) + "\n", encoding="utf-8")
        return
    frame = _chosen(part.ranking.table, columns)
    frame = frame.set_index(frame.index.rename("rank") + 1)
    metadata = {"version": __version__, "question": question_document(part.ranking.question)}
    with table_file.writing(path, metadata) as writer:
        writer.write(frame)
