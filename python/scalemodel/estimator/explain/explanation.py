"""One term of an explanation with what it is made of, as text, plain data and HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scalemodel.base.text import count_text, money_text, percent_text, size_text, time_text

#: Words of a source by what they say of it, the least certain first. Sources of the catalogue are
#: written so that a reader can tell; these are the words they tell it with.
_GRADES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "assumed",
        ("assumed", "nearest", "borrowed", "not re-read", "the share measured on", "taken for"),
    ),
    ("fitted", ("fit", "timings", "MAPE", "interval: published runs", "stacks/")),
    ("published", ("accelerators/", "clusters/", "prices/")),
)

BOX = "font-family:system-ui,sans-serif;font-size:90%;max-width:60em"


@dataclass(frozen=True, repr=False)
class Explanation:
    """One term and what it is made of.

    Attributes
    ----------
    name : str
    value : float or None
        In `unit`; None where the strategy has no such number.
    unit : str
        ``"s"``, ``"B"``, ``"J"``, ``"USD"``, ``"fraction"``; empty for the root.
    share_fraction : float or None
        Of the term at the top of its branch (the step time, the capacity, the energy).
    formula, source : str
        How the value is computed, and where formula and constants were published.
    inputs : mapping of str to object
        What enters the formula.
    children : tuple of Explanation
        Parts; where they have the term's unit they sum to its value.
    confidence : str
        How the least certain thing that enters was had: ``counted`` (bytes and operations),
        ``published`` (data sheets, price lists), ``fitted`` (to measurements) or ``assumed``.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> {term.name: term.confidence for term in est.explain().walk()}["weights"]
    'counted'
    """

    name: str
    value: float | None
    unit: str
    share_fraction: float | None
    formula: str
    source: str
    inputs: Mapping[str, object] = field(default_factory=dict, hash=False)
    children: tuple[Explanation, ...] = ()

    @property
    def confidence(self) -> str:
        """How the least certain thing that enters was had."""
        for grade, words in _GRADES:
            if any(word in self.source for word in words):
                return grade
        return "counted"

    def walk(self) -> Iterator[Explanation]:
        """Yield the term, then everything below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "share_fraction": self.share_fraction,
            "formula": self.formula,
            "source": self.source,
            "confidence": self.confidence,
            "inputs": {key: _plain(value) for key, value in self.inputs.items()},
            "children": [child.to_dict() for child in self.children],
        }

    def value_text(self) -> str:
        """Value and share for people."""
        if self.value is None:
            return ""
        texts: dict[str, Callable[[float], str]] = {
            "s": time_text,
            "B": size_text,
            "J": lambda value: f"{count_text(value)}J",
            "USD": money_text,
            "fraction": percent_text,
        }
        text = texts[self.unit](self.value)
        shown = self.share_fraction is not None and self.unit != "fraction"
        return f"{text} ({percent_text(self.share_fraction or 0)})" if shown else text

    def inputs_text(self) -> str:
        """Inputs as ``name = value``, quantities with their units."""
        return ", ".join(f"{key} = {_shown(key, value)}" for key, value in self.inputs.items())

    def __repr__(self) -> str:
        return f"Explanation({f'{self.name} {self.value_text()}'.rstrip()})"

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        pad = "  " * depth
        yield f"{pad}{self.name} {self.value_text()}".rstrip()
        if self.formula:
            yield f"{pad}  = {self.formula}"
        if self.inputs:
            yield f"{pad}    {self.inputs_text()}"
        if self.source:
            yield f"{pad}    {self.confidence}; source: {self.source}"
        for child in self.children:
            yield from child._lines(depth + 1)

    def _repr_html_(self) -> str:
        return f'<div style="{BOX}">{folded_html(self, is_open=True)}</div>'


def _plain(value: object) -> object:
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)


def _shown(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for suffix, write in (
        ("_bytes_per_s", lambda v: f"{count_text(v)}B/s"),
        ("_flop_per_s", lambda v: f"{count_text(v)}FLOP/s"),
        ("_flop", lambda v: f"{count_text(v)}FLOP"),
        ("bytes", size_text),
        ("_s", time_text),
        ("_w", lambda v: f"{count_text(v)}W"),
    ):
        if key.endswith(suffix):
            return write(float(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def safe(text: object) -> str:
    """Text that is safe in HTML."""
    return html.escape(str(text), quote=True)


def folded_html(term: Explanation, *, is_open: bool = False) -> str:
    """A term and everything below it, each part folded unless open."""
    head = f"<b>{safe(term.name)}</b> {safe(term.value_text())}"
    facts = [("formula", term.formula), ("inputs", term.inputs_text()), ("source", term.source)]
    facts.append(("confidence", term.confidence if term.source else ""))
    listed = "".join(
        f"<dt style='font-style:italic'>{label}</dt><dd>{safe(text)}</dd>"
        for label, text in facts
        if text
    )
    below = "".join(folded_html(child) for child in term.children)
    return (
        f"<details{' open' if is_open else ''} style='margin-left:1em'>"
        f"<summary>{head}</summary><dl style='margin:.2em 1em'>{listed}</dl>{below}</details>"
    )
