"""Catalogue entries as TOML text: what a calibration found, ready to be saved and named."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import write_whole

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_cell(item)}" for key, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_cell(item) for item in value) + "]"
    raise ScaleModelError(f"{value!r}: cannot stand in a catalogue entry")


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and "value" not in value


def toml_text(table: Mapping[str, Any], _path: tuple[str, ...] = ()) -> str:
    """`table` as TOML: plain cells, then one section per table, numbers with source inline.

    Examples
    --------
    >>> print(toml_text({"name": "x", "memory": {"capacity": {"value": "80 GB", "source": "y"}}}))
    name = "x"
    <BLANKLINE>
    [memory]
    capacity = { value = "80 GB", source = "y" }
    <BLANKLINE>
    """
    cells = [f"{_key(name)} = {_cell(cell)}" for name, cell in table.items() if not _is_table(cell)]
    lines = []
    if _path and (cells or not table):
        lines.append("[" + ".".join(_key(part) for part in _path) + "]")
    text = "".join(f"{line}\n" for line in [*lines, *cells])
    for name, cell in table.items():
        if _is_table(cell):
            section = toml_text(cell, (*_path, name))
            text += f"\n{section}" if text else section
    return text


def check_name(name: str) -> None:
    """Refuse what cannot name an entry and its file."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ScaleModelError(
            f"name={name!r}: must be letters, digits, points, hyphens and underscores"
        )


def write_entries(folder: str | os.PathLike[str], entries: Mapping[str, str]) -> list[Path]:
    """Write entries, by path in the catalogue, below `folder`."""
    paths = []
    for name, text in entries.items():
        path = Path(folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise ScaleModelError(
                f"folder={os.fspath(folder)!r}: {path} cannot be written: "
                f"{error.strerror or error}",
                code="unwritable_file",
            ) from None
        paths.append(path)
    return paths
