"""Reading and writing tables of measurements: lenient cells, strings left as they were."""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import read_text
from scalemodel.base.safe_text import csv_cell, plain

_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_YES = ("yes", "true", "on", "1", "1.0", "enabled")
_NO = ("no", "false", "off", "0", "0.0", "none", "disabled")
#: Tables of measurements have up to 20 MiB; as lists of cells they take ten times as much memory.
_LARGEST_BYTES = 64 * 2**20
_LARGEST = 1e15  # no count of a training run comes near; beyond it doubles skip integers


class SkippedRowError(Exception):
    """A row that cannot become a question; the text is its skip reason."""


def is_missing(text: str) -> bool:
    """Whether a cell says nothing: blank, or starting with ``unknown`` or ``n/a``.

    Examples
    --------
    >>> is_missing("n/a (single node)"), is_missing("none")
    (True, False)
    """
    lowered = text.strip().lower()
    return lowered in ("", "nan") or lowered.startswith(("unknown", "n/a"))


def number_in(text: str) -> float | None:
    """First finite number of a cell, or None.

    Examples
    --------
    >>> number_in("8.0"), number_in("46068 MiB"), number_in("1,024"), number_in("proxy")
    (8.0, 46068.0, 1024.0, None)
    """
    if is_missing(text):
        return None
    found = _NUMBER.search(text)
    if found is None:
        return None
    value = float(found.group().replace(",", "").replace("_", ""))
    return value if math.isfinite(value) else None


#: What turns a clause around: before the thing named (``no graphs``) or after it (``graphs: off``).
_NOT_BEFORE = re.compile(r"\b(?:no|not|non|never|without|w/o)\b")
_NOT_AFTER = re.compile(r"\w*\s*(?:[=:]\s*|\b(?:is|are)\s+)?(?:off|false|none|no|not|disabled|0)\b")


def states(text: str, pattern: str) -> bool | None:
    """Whether a text says that something is so, or that it is not; None where it is silent.

    Clauses end at commas and semicolons. Where clauses contradict, what is so somewhere is so.

    Parameters
    ----------
    text : str
        In lower case.
    pattern : str
        Regular expression of the thing.

    Examples
    --------
    >>> states("cuda graphs; no deepep", "cuda graph"), states("no deepep", "deepep")
    (True, False)
    >>> states("overlap=false", "overlap"), states("overlap", "graphs") is None
    (False, True)
    """
    said = None
    for clause in re.split(r"[;,]", text):
        for found in re.finditer(pattern, clause):
            denied = _NOT_BEFORE.search(clause, 0, found.start())
            if not denied and not _NOT_AFTER.match(clause, found.end()):
                return True
            said = False
    return said


@dataclass(frozen=True)
class Row:
    """One row, reduced to the columns that a prediction may read."""

    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Cell without surrounding blanks; empty when missing."""
        cell = self.cells.get(column, "")
        return "" if is_missing(cell) else plain(cell)

    def number(self, column: str) -> float | None:
        """First number of the cell, or None when missing or not numeric."""
        return number_in(self.cells.get(column, ""))

    def count(self, column: str, *, least: int = 1) -> int | None:
        """Whole number of the cell, or None when missing or not numeric.

        Raises
        ------
        SkippedRowError
            The number is fractional, below ``least`` or absurdly large.
        """
        value = self.number(column)
        if value is None:
            return None
        if value != math.floor(value) or not least <= value <= _LARGEST:
            raise SkippedRowError(f"illegal:{column}")
        return int(value)

    def required_count(self, column: str) -> int:
        """Whole number of the cell; a row without it is skipped."""
        value = self.count(column)
        if value is None:
            raise SkippedRowError(f"missing:{column}")
        return value

    def flag(self, column: str) -> bool | None:
        """Truth of a yes/no cell, or None when missing or neither."""
        words = re.split(r"[\s,;(]+", self.text(column).lower(), maxsplit=1)
        if words[0] in _YES:
            return True
        if words[0] in _NO:
            return False
        return None


@dataclass(frozen=True)
class Table:
    """A CSV file as text: column names and, per row, one cell for each of them."""

    header: tuple[str, ...]
    rows: list[list[str]]

    def without(self, columns: Iterable[str]) -> Table:
        """Return the table less the named columns."""
        dropped = set(columns)
        kept = [i for i, name in enumerate(self.header) if name not in dropped]
        if len(kept) == len(self.header):
            return self
        return Table(
            tuple(self.header[i] for i in kept), [[row[i] for i in kept] for row in self.rows]
        )

    def column(self, name: str) -> list[str]:
        """Cells of a column; blanks when the table has no such column."""
        if name not in self.header:
            return [""] * len(self.rows)
        index = self.header.index(name)
        return [plain(row[index]) for row in self.rows]

    def select(self, columns: Sequence[str]) -> list[Row]:
        """Rows restricted to ``columns``, so that nothing else can reach a prediction."""
        present = [(name, self.header.index(name)) for name in columns if name in self.header]
        return [Row({name: row[index] for name, index in present}) for row in self.rows]


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a CSV file (UTF-8, comma, quoted) without interpreting its cells.

    Short rows are filled with blanks and cells beyond the header are dropped.

    Raises
    ------
    ScaleModelError
        The file cannot be opened, is not UTF-8 CSV, or has no header line.
    """
    return table_of_text(read_text(path, _LARGEST_BYTES, "path="), path)


def table_of_text(text: str, path: str | os.PathLike[str]) -> Table:
    """The table that the text of a CSV file holds; `read_table` says how.

    Raises
    ------
    ScaleModelError
        The text is not CSV or has no header line; the message names `path`.
    """
    name = os.fspath(path)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (csv.Error, ValueError) as error:
        raise ScaleModelError(
            f"path={name!r} is not a UTF-8 CSV file: {error}", code="unreadable_file"
        ) from None
    if not lines:
        raise ScaleModelError(
            f"path={name!r} is empty; a CSV file with a header line is needed",
            code="unreadable_file",
        )
    header = tuple(cell.strip() for cell in lines[0])
    width = len(header)
    rows = [line[:width] + [""] * (width - len(line)) for line in lines[1:]]
    return Table(header, rows)


def require_columns(table: Table, needed: Sequence[str], why: str) -> None:
    """Refuse a table that lacks a column every row would need.

    Parameters
    ----------
    table : Table
    needed : sequence of str
    why : str
        What needs them, for the message.

    Raises
    ------
    ScaleModelError
        Names the column.
    """
    for column in needed:
        if column not in table.header:
            raise ScaleModelError(
                f"required column {column!r} is missing from the table; {why}",
                code="missing_column",
                details={"column": column},
            )


def cell_text(value: object) -> str:
    """Text of one output cell: shortest exact number, true/false, blank for nothing.

    Examples
    --------
    >>> cell_text(0.1), cell_text(True), cell_text(float("nan")), cell_text("=A1")
    ('0.1', 'true', '', "'=A1")
    """
    if isinstance(value, str):
        return csv_cell(value)
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(float(value)) if math.isfinite(value) else ""
    return ""
