"""Pieces of a page: tables, figures as inline SVG, and the page itself."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import plot
from scalemodel.estimator.explain.explanation import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAGE = Path(__file__).with_name("page.html")
# Names inside a drawing, and what points at them: unique on a page that holds several drawings.
_NAMED = re.compile(r'(\bid="|xlink:href="#|url\(#)')
# Between a number and its unit no line breaks.
_NO_BREAK = "\u00a0"
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[%A-Za-z])")
_ROOT = re.compile(r'<svg [^>]*?(?P<size>width="[^"]*" height="[^"]*" viewBox="[^"]*")[^>]*>')


class Section(NamedTuple):
    """A part of a page: its anchor, heading and HTML."""

    anchor: str
    heading: str
    body: str


def paragraph(text: object, *, kind: str = "") -> str:
    """One paragraph of plain text.

    Examples
    --------
    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    opening = f'<p class="{kind}">' if kind else "<p>"
    return f"{opening}{safe(text)}</p>"


def listing(intro: str, items: Iterable[object]) -> str:
    """A sentence and what it announces, point by point.

    Examples
    --------
    >>> listing("Two:", ["a", "b"])
    '<p>Two:</p><ul><li>a</li><li>b</li></ul>'
    """
    return f"<p>{safe(intro)}</p><ul>{''.join(f'<li>{safe(item)}</li>' for item in items)}</ul>"


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    r"""A table of plain texts; the first cell of a row names it.

    Examples
    --------
    >>> table("Degrees", ["knob", "value"], [("tp", 4)]).count("<td>4</td>")
    1
    >>> "15.8\u00a0s" in table("Steps", ["strategy", "step"], [("tp 4", "15.8 s")])
    True
    """
    head = "".join(f'<th scope="col">{safe(name)}</th>' for name in header)
    lines = "".join(
        f'<tr><th scope="row">{safe(first)}</th>'
        + "".join(f"<td>{_BEFORE_UNIT.sub(_NO_BREAK, safe(cell))}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    titles = f"<thead><tr>{head}</tr></thead>" if header else ""
    return (
        f'<div class="wide"><table><caption>{safe(caption)}</caption>{titles}'
        f"<tbody>{lines}</tbody></table></div>"
    )


def figure(ax: Axes, name: str, caption: str) -> str:
    """A plot as inline SVG with its caption; the figure is closed.

    Parameters
    ----------
    ax : Axes
    name : str
        Tells the names inside the drawing from those of other drawings on the page.
    caption : str
        Also what a screen reader says of the drawing.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    drawing: Any = ax.figure
    drawn = io.StringIO()
    # Without origin and date, and with fixed names: the same study is the same page.
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with plot.style(), mpl.rc_context({"svg.hashsalt": name}):
        drawing.savefig(drawn, format="svg", metadata=nothing)
    plt.close(drawing)
    text = drawn.getvalue()
    text = _NAMED.sub(rf"\g<1>{name}-", text[text.index("<svg") :])
    root = _ROOT.match(text)
    assert root is not None
    # What XML needs of the root element, HTML does not know.
    opening = f'<svg role="img" aria-label="{safe(caption)}" {root["size"]}>'
    shown = opening + text[root.end() :].strip()
    return f"<figure>{shown}<figcaption>{safe(caption)}</figcaption></figure>"


def page(title: str, origin: str, sections: Sequence[Section]) -> str:
    """The whole page; nothing in it points outside."""
    contents = "\n".join(
        f'<li><a href="#{each.anchor}">{safe(each.heading)}</a></li>' for each in sections
    )
    bodies = "\n".join(
        f'<section id="{each.anchor}"><h2>{safe(each.heading)}</h2>\n{each.body}\n</section>'
        for each in sections
    )
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        title=safe(title),
        origin=safe(origin),
        version=safe(_core.__version__),
        contents=contents,
        sections=bodies,
    )
