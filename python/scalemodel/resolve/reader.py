"""Checked reading of nested tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.safe_text import plain
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.catalog.entries import Entry
from scalemodel.resolve.hub import is_hub_id

Table = Mapping[str, Any]

_LARGEST = 1e30


class Cell(NamedTuple):
    """What a reader was asked for: a dimension of `units.UNITS`, "number", "count" or "text"."""

    dimension: str
    value: float | str
    given: bool


_NOTES: ContextVar[dict[str, Cell] | None] = ContextVar("notes", default=None)


@contextmanager
def noted() -> Iterator[dict[str, Cell]]:
    """Every cell that readers are asked for inside the ``with`` block, by key path.

    So the list of legal keys, their units and their defaults is the reading code itself.
    """
    notes: dict[str, Cell] = {}
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


class Reader:
    """Reads quantities of one table and remembers which keys it knows."""

    def __init__(self, table: object, where: str) -> None:
        if not isinstance(table, Mapping):
            raise ScaleModelError(f"{where}={table!r}: must be a table")
        self.table = table
        self.where = where
        self.known = {"source"}

    def _note(self, key: str, dimension: str, value: float | str) -> None:
        notes = _NOTES.get()
        if notes is not None:
            path = f"{self.where}.{key}".lstrip(".")
            notes[path] = Cell(dimension, value, key in self.table)

    def quantity(self, key: str, dimension: str, default: float | None = None) -> float:
        """A quantity in base units; without a default it must be there."""
        self.known.add(key)
        if key not in self.table:
            if default is None:
                raise ScaleModelError(f"{self.where}.{key}: missing")
            self._note(key, dimension, default)
            return default
        value = parse_quantity(value_of(self.table[key]), dimension, f"{self.where}.{key}")
        self._note(key, dimension, value)
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A plain number."""
        self.known.add(key)
        if key not in self.table:
            if default is None:
                raise ScaleModelError(f"{self.where}.{key}: missing")
            self._note(key, "number", default)
            return default
        value = value_of(self.table[key])
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ScaleModelError(f"{self.where}.{key}={value!r}: must be a number")
        if not abs(value) <= _LARGEST:  # written so that NaN is refused too
            raise ScaleModelError(f"{self.where}.{key}={value!r}: must be a finite number")
        self._note(key, "number", float(value))
        return float(value)

    def fraction(self, key: str) -> float:
        """The share of a peak that something reaches."""
        share = self.number(key)
        if not share > 0:
            raise ScaleModelError(f"{self.where}.{key}={share}: must be above 0, the share reached")
        return share

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        number = self.number(key, default)
        if number != int(number):
            raise ScaleModelError(f"{self.where}.{key}={number}: must be a whole number")
        self._note(key, "count", number)
        return int(number)

    def text(self, key: str, default: str) -> str:
        """A text."""
        self.known.add(key)
        value = plain(value_of(self.table.get(key, default)))
        self._note(key, "text", value)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        self.known.add(key)
        value = value_of(self.table.get(key, default))
        if not isinstance(value, bool):
            raise ScaleModelError(f"{self.where}.{key}={value!r}: must be true or false")
        return value

    def sub(self, key: str) -> Reader:
        """The reader of a table inside this one; of an empty one when it is missing."""
        self.known.add(key)
        return Reader(self.table.get(key, {}), f"{self.where}.{key}".lstrip("."))

    def accept_former(self, names: Mapping[str, str]) -> None:
        """Takes keys by their former names, as entries written for an earlier version have them."""
        given = {names[key]: cell for key, cell in self.table.items() if key in names}
        self.table = {key: cell for key, cell in self.table.items() if key not in names} | given

    def finish(self, *further: str) -> None:
        """Every key was asked for; an unknown one is an error with the nearest known names."""
        for key in self.table:
            if key not in self.known and key not in further:
                raise ScaleModelError(
                    f"{self.where}.{key}: unknown key; {nearest(str(key), self.known)}".lstrip("."),
                    code="unknown_key",
                )


def merged(base: Table, changes: Table) -> dict[str, Any]:
    """`base` with `changes` laid over it, table by table; cells are replaced whole."""
    result = dict(base)
    for key, cell in changes.items():
        below = result.get(key)
        is_table = isinstance(cell, Mapping) and "value" not in cell
        if is_table and isinstance(below, Mapping):
            result[key] = merged(below, cell)
        else:
            result[key] = cell
    return Entry(result, base.where) if isinstance(base, Entry) else result


def freeze(table: object) -> object:
    """`table` as nested tuples, to compare and hash by content."""
    if isinstance(table, Mapping):
        return tuple(sorted((str(key), freeze(cell)) for key, cell in table.items()))
    if isinstance(table, list):
        return tuple(freeze(cell) for cell in table)
    return table


def is_path(source: str | Path, suffixes: tuple[str, ...], kinds: tuple[str, ...]) -> bool:
    """Whether `source` names a file of one of these suffixes rather than a catalogue entry.

    An entry wins over a file of its name or Hub id, so that what lies in a folder cannot take the
    place of a well-known name: ``./name.toml`` or a `Path` says that the file is meant.
    """
    return str(source).endswith(suffixes) and not _is_entry(source, kinds)


def is_folder(source: str | Path, holding: str, kinds: tuple[str, ...]) -> bool:
    """Whether `source` names a folder that holds a file; an entry wins as in `is_path`."""
    try:
        return os.path.isfile(os.path.join(source, holding)) and not _is_entry(source, kinds)
    except ValueError:  # a null byte
        return False


def _is_entry(source: str | Path, kinds: tuple[str, ...]) -> bool:
    if not isinstance(source, str):
        return False
    if os.path.basename(source) != source and not is_hub_id(source):
        return False
    return any(catalog.is_entry(kind, source) for kind in kinds)
