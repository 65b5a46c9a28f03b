"""Published training runs: what a row says of recomputation."""

from __future__ import annotations

import re
from typing import Any

import scalemodel._core as _core
from scalemodel.validation.rows import Row

_RECOMPUTATION = ("none", "selective", "full")  # lightest first


def stated(row: Row) -> str:
    """What a run says of recomputation; a note that it was not stated says nothing."""
    text = row.text("recompute").lower()
    return "" if "not stated" in text else text


#: Modules that recomputation repeats, by Megatron-Core's names.
_MODULES = tuple(
    name
    for row in _core.Stack.fields()
    if row["name"] == "selective_modules"
    for name in row["choices"]
    if name != row["default"] and "+" not in name
)


def named_modules(text: str) -> str:
    """Modules that a text of recomputation lists, as the engine writes a set of them."""
    if not text.startswith(("modules", "selective")):
        return ""
    words = set(re.findall(r"[a-z_]+", text))
    return "+".join(name for name in _MODULES if name in words)


def recomputation(row: Row, notes: list[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Recomputation to try in turn, and the strategy fields that belong to it."""
    text = stated(row)
    offload = "offload" in text or bool(
        re.search(r"offload\s*=\s*true", row.text("other_flags").lower())
    )
    extra: dict[str, Any] = {"offload_activations": True} if offload else {}
    if not text:
        return _RECOMPUTATION, extra
    if named_modules(text):
        return ("selective",), extra
    if re.match(r"(none|no|false|off|0)\b", text) or text.startswith("offload"):
        return ("none",), extra
    if re.search(r"fraction of (blocks|layers)", text):
        # Some layers are run again as a whole; as few as memory asks for are assumed.
        return ("none", "full"), extra
    if "selective" in text or re.search(r"core.?att|att\w* only", text):
        return ("selective",), extra
    if part := re.search(r"(\d+)\s*(?:of \d+\s*)?layers", text):
        extra["recompute_layers"] = int(part.group(1))
    return ("full",), extra
