"""Tables and lists of an entry: they do not change, and say what a reader does not find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from scalemodel.base.errors import ScaleModelError


def _unchangeable(self: Entry | Items, *_: object, **__: object) -> Any:
    raise TypeError(
        f"{self.where}: entries of the catalogue do not change; copy.deepcopy(entry) is a copy "
        "that does"
    )


class Entry(dict[str, Any]):
    """A table of an entry: what a reader needs and does not find in it is an error that names it.

    All who ask for an entry are given the same one, so it does not change; a deep copy is a plain
    dictionary of one's own.

    Examples
    --------
    >>> from scalemodel import catalog
    >>> catalog.load("models", "llama3_8b")["architecture"]["wheels"]
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: models/llama3_8b.architecture.wheels: missing
    """

    __slots__ = ("where",)

    __setitem__ = __delitem__ = __ior__ = _unchangeable
    clear = pop = popitem = setdefault = update = _unchangeable

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        super().__init__({key: table_of(cell, f"{where}.{key}") for key, cell in table.items()})
        self.where = where

    def __reduce__(self) -> tuple[type[Entry], tuple[dict[str, Any], str]]:
        return Entry, (dict(self), self.where)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return deepcopy(dict(self), memo)

    def __missing__(self, key: str) -> Any:
        raise ScaleModelError(f"{self.where}.{key}: missing")


class Items(list[Any]):
    """A list of an entry, which does not change either."""

    __slots__ = ("where",)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _unchangeable
    append = clear = extend = insert = pop = remove = reverse = sort = _unchangeable

    def __init__(self, items: Iterable[Any], where: str) -> None:
        super().__init__(table_of(item, f"{where}[{number}]") for number, item in enumerate(items))
        self.where = where

    def __reduce__(self) -> tuple[type[Items], tuple[list[Any], str]]:
        return Items, (list(self), self.where)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return deepcopy(list(self), memo)


def table_of(cell: Any, where: str) -> Any:
    """What stands in an entry, unchangeable where it could be changed."""
    if isinstance(cell, Entry | Items):
        return cell
    if isinstance(cell, dict):
        return Entry(cell, where)
    if isinstance(cell, list):
        return Items(cell, where)
    return cell
