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
    question_text,
    strategy_text,
)
from scalemodel.estimator.losses import what_limits

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.search.ranking import Question, Ranking
    from scalemodel.search.ranking_file import Part

OUT_SUFFIXES = (".json", ".csv", ".parquet")
_SHOWN = ("step_time_s", "tokens_per_s", "mfu_fraction", "memory_bytes")
#: Differences below this share of a step are not worth a word.
_NOTABLE = 0.0005


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
def counts_text(size: int, counts: Mapping[str, int], *further: str) -> str:
    """Rows by what became of them."""
    verdicts = [f"{verdict} {number:,}" for verdict, number in counts.items()]
    return " · ".join([f"{size:,} strategies", *further, *verdicts])


def _counts_text(ranking: Ranking) -> str:
    further = [f"{ranking.evaluated:,} evaluated"]
    if ranking.pruned:
        further.append(f"{ranking.pruned:,} pruned ({ranking.why_pruned()})")
    text = counts_text(ranking.size, ranking.counts, *further)
    return text + (f" · constrained {ranking.constrained:,}" if ranking.constrained else "")


def _aim_text(question: Question) -> str:
    terms = question.objective
    if len(terms) == 1:
        aim = terms[0][0]
    else:
        aim = " + ".join(f"{weight:g} ln {column}" for column, weight in terms)
    from scalemodel.search.objective import is_maximised

    goal = "most" if len(terms) == 1 and is_maximised(terms[0][0]) else "least"
    return ", ".join([f"{goal} {aim}", *question.constraints])


def _further_columns(question: Question) -> list[str]:
    return [column for column, _ in question.objective if column not in _SHOWN]


def _number_text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _top_rows(ranking: Ranking) -> None:
    from scalemodel.base.text import count_text, percent_text, size_text, time_text

    further = _further_columns(ranking.question)
    rows = []
    for number, est in enumerate(ranking, start=1):
        core = est.core
        rows.append(
            [
                number,
                strategy_text(est.strategy, core.dp),
                time_text(core.step_time_s),
                count_text(core.tokens_per_s),
                percent_text(core.mfu_fraction),
                size_text(core.memory_bytes),
                *(_number_text(getattr(est, column)) for column in further),
                est.verdict,
            ]
        )
    print_table(["#", "strategy", "step", "tokens/s", "MFU", "memory", *further, "verdict"], rows)


def _lead_text(ranking: Ranking) -> str:
    """What the first has over the next that differs, in shares of the other's step."""
    from scalemodel.base.text import percent_text
    from scalemodel.estimator.evaluation import TIME_COLUMNS

    first = ranking[0]
    for number, other in enumerate(ranking[1:], start=2):
        step = other.core.step_time_s
        shares = {
            column: (getattr(first.core, column) - getattr(other.core, column)) / step
            for column in TIME_COLUMNS
        }
        aims = {}
        for column in dict.fromkeys(["step_time_s", *_further_columns(ranking.question)]):
            ours, theirs = float(getattr(first, column)), float(getattr(other, column))
            aims[column] = ours / theirs - 1 if theirs else 0.0
        if all(abs(value) < _NOTABLE for value in [*shares.values(), *aims.values()]):
            continue
        parts = [
            f"{column.removesuffix('_time_s')} {percent_text(value, signed=True)}"
            for column, value in aims.items()
        ]
        largest = sorted(shares, key=lambda column: -abs(shares[column]))[:4]
        causes = [
            f"{column.removesuffix('_s').removeprefix('exposed_')} "
            f"{percent_text(shares[column], signed=True)}"
            for column in largest
            if abs(shares[column]) >= _NOTABLE
        ]
        of = f" (of the step: {', '.join(causes)})" if causes else ""
        return f"#1 against #{number}: {', '.join(parts)}{of}"
    return ""


def summary(part: Part) -> str:
    """The question and what became of the rows."""
    from scalemodel.search.ranking_file import rows_text

    ranking = part.ranking
    lines = [question_text(ranking.question, _aim_text(ranking.question)), _counts_text(ranking)]
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
    _top_rows(ranking)
    print(f"#1 is limited by: {what_limits(ranking[0])}")
    lead = _lead_text(ranking)
    if lead:
        print(lead)


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
