"""`Strategy` with the signature that completion and help show: one keyword per knob."""

from __future__ import annotations

import inspect
from typing import Any

from scalemodel._core import Strategy
from scalemodel.base.text import values_text
from scalemodel.base.words import understand

__all__ = ["Strategy"]

_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool, "choice": str}


def _signature() -> inspect.Signature:
    """Keywords of a strategy in the order of its fields, each with its default."""
    parameters = [
        inspect.Parameter(
            str(row["name"]),
            inspect.Parameter.KEYWORD_ONLY,
            default=row["default"],
            annotation=_TYPES.get(str(row["kind"]), inspect.Parameter.empty),
        )
        for row in Strategy.fields()
    ]
    return inspect.Signature(parameters, return_annotation=Strategy)


def _meaning(row: dict[str, Any]) -> str:
    """A knob with what it takes, its default and its meaning, as one line of help."""
    takes = values_text(map(repr, row["choices"]), limit=8) if row["choices"] else row["kind"]
    return f"{row['name']} : {takes}, default {row['default']!r}\n    {row['meaning']}"


def _with_knobs(text: str) -> str:
    """The docstring of the engine with a section of knobs before its examples."""
    knobs = "\n".join(_meaning(row) for row in Strategy.fields())
    section = f"Parameters\n----------\n{knobs}\n\n"
    before, mark, after = text.partition("Examples\n--------")
    return f"{before}{section}{mark}{after}"


# The engine's classes carry no signature that Python can read, so that neither help nor completion
# knows what a strategy takes; the knobs themselves are told by the engine.
understand(Strategy)
if not hasattr(Strategy, "__signature__"):
    Strategy.__signature__ = _signature()  # type: ignore[attr-defined]
    Strategy.__doc__ = _with_knobs(Strategy.__doc__ or "")
