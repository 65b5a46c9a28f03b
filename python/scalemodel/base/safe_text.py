"""Text that others wrote, made safe for where it goes: a terminal, a comment, a table, a plot.

Names, titles and labels come from files of strangers. What reads them calls `plain`, so nothing
below ever holds a line break or a terminal escape; what writes them quotes for its own format:
scripts with `shlex`, CSV with `csv_cell`, plots with `label_text`, pages with `html.escape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FORMULA: Final = ("=", "+", "-", "@")


def plain(text: object) -> str:
    r"""Text on one line without characters that act instead of being seen.

    Control characters (escapes and line breaks among them), marks that reorder a line and halves of
    surrogate pairs become blanks; blanks in a row become one.

    Examples
    --------
    >>> plain("llama\n\x1b[31mrm -rf  x")
    'llama [31mrm -rf x'
    """
    given = str(text)
    if not given.isprintable():
        given = "".join(sign if sign.isprintable() else " " for sign in given)
    return " ".join(given.split())


def plain_cells(table: object) -> Any:
    r"""Nested tables and lists with every key and text made `plain`.

    Examples
    --------
    >>> plain_cells({"title": "a\tb", "sizes": [1, "2\r"]})
    {'title': 'a b', 'sizes': [1, '2']}
    """
    if isinstance(table, str):
        return table if table.isprintable() else plain(table)
    if isinstance(table, Mapping):
        return {plain_cells(key): plain_cells(cell) for key, cell in table.items()}
    if isinstance(table, list):
        return [plain_cells(cell) for cell in table]
    return table


def csv_cell(text: str) -> str:
    """A cell that a spreadsheet shows instead of computing.

    Spreadsheets run a cell that starts with ``= + - @`` as a formula, which can call programs and
    send data away; quotation marks of CSV do not prevent it. An apostrophe in front does (OWASP,
    "CSV Injection"). Dropping the sign would change a name, refusing it would lose a table; numbers
    stay as they are, so that programs read them.

    Examples
    --------
    >>> csv_cell("=HYPERLINK(A1)"), csv_cell("-1.5e3"), csv_cell("llama3_8b")
    ("'=HYPERLINK(A1)", '-1.5e3', 'llama3_8b')
    """
    # Spreadsheets drop blanks in front before they look for a sign.
    if not text.lstrip().startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def label_text(text: object) -> str:
    r"""Text that matplotlib draws as it stands: a dollar sign begins no mathematics.

    Examples
    --------
    >>> label_text(r"$\frac{")
    '\\$\\frac{'
    """
    return str(text).replace("$", r"\$")
