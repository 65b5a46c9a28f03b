"""What is said where a record of the core is asked for a field that it does not have."""

from __future__ import annotations

import re
from typing import Any

from scalemodel.base.errors import nearest
from scalemodel.base.vocabulary import SYNONYMS, folded


def _hint(name: str, fields: list[dict[str, Any]]) -> str:
    """The field that is called so too, or shares most words with it, the first ones above all."""
    synonyms = SYNONYMS.get(folded(name), ())
    for field in fields:
        if field["name"] in synonyms:
            return f"did you mean {field['name']!r} ({field['meaning']})?"
    words = name.lower().split("_")

    def shared(field: dict[str, Any]) -> float:
        told = re.findall("[a-z]{3,}", f"{field['name']} {field['meaning']}".lower())
        return sum(2.0**-i for i, word in enumerate(words) if word in told)

    best = max(fields, key=shared)
    if shared(best) >= 1:
        return f"did you mean {best['name']!r} ({best['meaning']})?"
    return nearest(name, [field["name"] for field in fields])


def refusal(record: Any, positional: tuple[object, ...], given: dict[str, object]) -> str:
    """Why a record cannot be made of these: a field that it does not have, or values without names.

    Examples
    --------
    >>> from scalemodel import _core
    >>> refusal(_core.Strategy, (), {"tensor_parallel": 8})
    "tensor_parallel=8: no such knob; did you mean 'tp' (tensor-parallel degree)?"
    """
    fields = record.fields()
    known = [str(field["name"]) for field in fields]
    for name, value in given.items():
        if name not in known:
            return f"{name}={value!r}: no such knob; {_hint(name, fields)}"
    shown = ", ".join(map(repr, positional))
    return f"{record.__name__}({shown}): knobs are given by name, for example {known[0]}=1"
