"""Tables that fit a screen: answers first, the strategy as one label, as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from scalemodel.base.safe_text import plain
from scalemodel.base.text import size_text

#: Share of the memory below which what is free is called tight: predictions of memory err by some
#: percent, and a device shows less than it is sold with.
TIGHT_FRACTION = 0.05
_CELL = "padding:.1em .6em;text-align:left;white-space:nowrap"


def is_tight(memory_bytes: float, capacity_bytes: float) -> bool:
    """Whether what fits leaves less than `TIGHT_FRACTION` of the memory free.

    Examples
    --------
    >>> is_tight(79.0, 80.0), is_tight(70.0, 80.0), is_tight(81.0, 80.0)
    (True, False, False)
    """
    return (1 - TIGHT_FRACTION) * capacity_bytes < memory_bytes <= capacity_bytes


def memory_text(memory_bytes: float, capacity_bytes: float) -> str:
    """Memory of its capacity, and a word where it is tight.

    Examples
    --------
    >>> memory_text(54 * 2**30, 80 * 2**30), memory_text(79 * 2**30, 80 * 2**30)
    ('54.0 GiB of 80.0 GiB', '79.0 GiB of 80.0 GiB, tight')
    """
    tight = ", tight" if is_tight(memory_bytes, capacity_bytes) else ""
    return f"{size_text(memory_bytes)} of {size_text(capacity_bytes)}{tight}"


def table_text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with aligned columns.

    Examples
    --------
    >>> print(table_text(["#", "step"], [[1, "9.9 s"], [10, "10.0 s"]]))
    #   step
    1   9.9 s
    10  10.0 s
    """
    lines = [list(header), *([plain(str(value)) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def table_html(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The same for notebooks; the first cell of a row names it.

    Examples
    --------
    >>> table_html(["#", "step"], [[1, "9.9 s"]]).count("<td")
    1
    """
    head = "".join(f"<th scope='col' style='{_CELL}'>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr><th scope='row' style='{_CELL}'>{escape(str(first))}</th>"
        + "".join(f"<td style='{_CELL}'>{escape(str(value))}</td>" for value in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
