"""Public records of the core; a field that they do not have is named, with the one it may mean."""

from __future__ import annotations

import functools
import re
from typing import Any

from scalemodel._core import Ablation, ServingLayout, Strategy
from scalemodel.errors import ScaleModelError, nearest

__all__ = ["Ablation", "ServingLayout", "Strategy"]


def _hint(name: str, fields: list[dict[str, Any]]) -> str:
    """The field that shares most words with the name, the first ones above all."""
    words = name.lower().split("_")

    def shared(field: dict[str, Any]) -> float:
        told = re.findall("[a-z]{3,}", f"{field['name']} {field['meaning']}".lower())
        return sum(2.0**-i for i, word in enumerate(words) if word in told)

    best = max(fields, key=shared)
    if shared(best) >= 1:
        return f"did you mean {best['name']!r} ({best['meaning']})?"
    return nearest(name, [field["name"] for field in fields])


def _unknown(record: Any, positional: tuple[object, ...], given: dict[str, object]) -> str:
    fields = record.fields()
    known = [str(field["name"]) for field in fields]
    for name, value in given.items():
        if name not in known:
            return f"{name}={value!r}: no such knob; {_hint(name, fields)}"
    shown = ", ".join(map(repr, positional))
    return f"{record.__name__}({shown}): knobs are given by name, for example {known[0]}=1"


def _with_named_errors(record: Any) -> None:
    """Replaces the core's TypeError, which prints the whole signature."""
    original = record.__init__

    @functools.wraps(original)
    def __init__(self: Any, *positional: object, **given: object) -> None:
        try:
            original(self, *positional, **given)
        except TypeError:
            raise ScaleModelError(_unknown(record, positional, given)) from None

    record.__init__ = __init__


for _record in (Ablation, ServingLayout, Strategy):
    _with_named_errors(_record)
