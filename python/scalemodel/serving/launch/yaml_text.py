"""Tables as YAML: block style, every text that could be read as something else in quotes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

#: Texts that every version of YAML reads as themselves.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS: Final = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _scalar(value: object) -> str:
    if isinstance(value, str):
        bare = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        # A text of JSON is one of YAML in double quotes.
        return value if bare else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _block(text: str, indent: str) -> list[str]:
    """A text of several lines as it is, each one indented."""
    return [indent + line if line else "" for line in text.rstrip("\n").split("\n")]


def _is_block(item: object) -> bool:
    """Whether a text is a plain list of lines, the last one ended."""
    if not isinstance(item, str) or not re.fullmatch(r"[^ \n][^\n]*\n(.*[^ \n]\n)*", item):
        return False
    return item.replace("\n", "").isprintable()


def _lines(value: Any, indent: str) -> list[str]:
    lines: list[str] = []
    items = value.items() if isinstance(value, Mapping) else ((None, item) for item in value)
    for key, item in items:
        head = "- " if key is None else f"{_scalar(key)}:"
        if isinstance(item, (Mapping, list, tuple)) and item:
            below = _lines(item, indent + "  ")
            if key is None:
                below[0] = indent + "- " + below[0].lstrip()
                lines += below
            else:
                lines += [indent + head, *below]
        elif key is not None and _is_block(item):
            lines += [f"{indent}{head} |", *_block(item, indent + "  ")]
        else:
            text = "[]" if isinstance(item, (list, tuple)) else _scalar(item)
            lines.append(indent + head + ("" if key is None else " ") + text)
    return lines


def yaml_text(table: Mapping[str, Any]) -> str:
    """A table as a document of YAML, without a line break at its end.

    Examples
    --------
    >>> print(yaml_text({"kind": "Service", "ports": [{"port": 80, "name": "on"}], "spec": {}}))
    kind: Service
    ports:
      - port: 80
        name: "on"
    spec: {}
    """
    return "\n".join(_lines(table, ""))
