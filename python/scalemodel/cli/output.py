"""How commands print: JSON, CSV, tables, one-line complaints; exit codes."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.safe_text import csv_cell, plain

if TYPE_CHECKING:
    from scalemodel.estimator.summary import Asked

OK, FAILED, MALFORMED, INFEASIBLE, NOTHING_FEASIBLE, INTERRUPTED = 0, 1, 2, 3, 4, 130


def print_json(document: object) -> None:
    """One indented document."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str))


def cell(value: object) -> str:
    """A value in a table."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return plain(value) if isinstance(value, str) else str(value)


def print_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A CSV table."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([csv_cell(cell(value)) for value in row] for row in rows)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table with aligned columns."""
    texts = [[cell(value) for value in row] for row in rows]
    widths = [
        max(len(header[i]), *(len(row[i]) for row in texts)) if texts else len(header[i])
        for i in range(len(header))
    ]
    for line in [list(header), *texts]:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def report(kind: str, text: object) -> None:
    """One line on the error stream."""
    print(f"scalemodel: {kind}: {plain(text)}", file=sys.stderr)


# ------------------------------------------------------------------------------------- questions
def question_record(asked: Asked) -> dict[str, Any]:
    """The question as the first columns of a row."""
    return {
        "model": asked.model.name,
        "cluster": asked.cluster.name,
        "accelerator": asked.cluster.accelerator,
        "accelerators": asked.cluster.accelerators,
        "stack": asked.stack,
        **asked.task.core.to_dict(),
    }


def question_text(asked: Asked, *further: str) -> str:
    """The question in one line."""
    from scalemodel.estimator import summary

    return summary.question_text(asked, *further)


def strategy_text(strategy: _core.Strategy, dp: int) -> str:
    """A strategy in short: degrees above one, then what is not a degree; `dp` as resolved."""
    from scalemodel.estimator import summary

    return summary.strategy_text(strategy, dp)
