"""Which argument is not what its annotation says: asked where a call has failed, to name it."""

from __future__ import annotations

import builtins
import collections.abc
import importlib
import inspect
import numbers
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

#: What modules are called in annotations.
_SHORT: Final = {"np": "numpy", "npt": "numpy.typing", "pd": "pandas"}
#: Members of a sequence or mapping that are looked at.
_MOST_MEMBERS: Final = 1000


class _Names(dict[str, Any]):
    """Names of annotations that a module imports for type checkers alone.

    Of a name that several modules have, whichever it may be: no argument is blamed wrongly.
    """

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def __missing__(self, name: str) -> Any:
        if name not in self._known and not hasattr(builtins, name):
            if name in _SHORT:
                return importlib.import_module(_SHORT[name])
            ours = (module for key, module in [*sys.modules.items()] if key[:10] == "scalemodel")
            futures = importlib.import_module("concurrent.futures")
            modules = (typing, collections.abc, futures, *ours)
            found = [vars(module)[name] for module in modules if name in vars(module)]
            if found and all(isinstance(one, type) for one in found):
                return typing.Union[tuple(found)]  # noqa: UP007 - of as many as there are
            if found:
                return found[0]
        raise KeyError(name)


def _hint(function: Any, name: str) -> Any:
    """What a parameter is annotated with; any object where that cannot be told."""
    text = function.__annotations__.get(name, object)
    if not isinstance(text, str):
        return text
    try:
        return eval(text, function.__globals__, _Names(function.__globals__))
    except (AttributeError, NameError, TypeError):
        return object


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what a type hint says, as far as that is seen from outside.

    Examples
    --------
    >>> fits(3, int), fits(3, float), fits(True, int), fits(3, int | None), fits("a", list[str])
    (True, True, False, True, False)
    >>> fits(["a", 3], list[str]), fits({"a": 1}, Mapping[str, int]), fits("b", typing.Literal["a"])
    (False, True, False)
    """
    if hint in (typing.Any, object):
        return True
    if isinstance(hint, typing.TypeVar):
        return all(fits(value, one) for one in (hint.__bound__,) if one is not None)
    origin: Any = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in parts)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in parts)
    if hint is None:
        return value is None
    kind: Any = hint if origin is None else origin
    if not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    if kind in (bool, int, float):
        truth = isinstance(value, bool) or type(value).__name__.startswith("bool")  # numpy's, too
        number = numbers.Integral if kind is int else numbers.Real
        return truth if kind is bool else isinstance(value, number) and not truth
    listed = isinstance(value, str | bytes) or hasattr(value, "__array__")
    if listed and issubclass(kind, collections.abc.Iterable) and not isinstance(value, kind):
        return hasattr(value, "__array__")
    if isinstance(value, str | bytes) and parts:  # a text is no list of texts
        return False
    if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
        return False  # half of a surrogate pair is part of no text
    return isinstance(value, kind) and _members_fit(value, kind, parts)


def _members_fit(value: Any, kind: type, parts: tuple[Any, ...]) -> bool:
    """Whether the members of a container are what its hint says."""
    if not parts or not issubclass(kind, collections.abc.Iterable):
        return True
    if isinstance(value, Mapping) and len(parts) == 2:
        items = [*value.items()][:_MOST_MEMBERS]
        return all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in items)
    if not isinstance(value, list | tuple | set | frozenset):
        return True
    members = [*value][:_MOST_MEMBERS]
    if kind is tuple and parts[-1] is not ...:
        return len(members) == len(parts) and all(map(fits, members, parts))
    return all(fits(one, parts[0]) for one in members)


def told_of(name: str, doc: str) -> tuple[str, str]:
    """Type and meaning of a parameter as a docstring has them; empty where it has none.

    Examples
    --------
    >>> told_of("b", '''What it does.
    ...
    ...     a, b : int or str
    ...         How many, or
    ...         their name. None: all.
    ...     c : bool''')
    ('int or str', 'How many, or their name')
    """
    found = re.search(rf"^( *)(?:\w+, )*{name}(?:, \w+)* : (.+)((?:\n\1 +.+)*)", doc, re.MULTILINE)
    if found is None:
        return "", ""
    meaning = " ".join(found[3].split())
    return found[2], re.split(r"[.;:](?: |$)", meaning)[0]


def shown(value: object) -> str:
    """A value as messages show it, cut where it is long.

    Examples
    --------
    >>> shown([1, 2]), shown("a" * 100)[-6:]
    ('[1, 2]', "aa...'")
    """
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...{text[-1]}"


def misfit(
    function: Callable[..., Any],
    positional: tuple[Any, ...],
    given: Mapping[str, Any],
    only: Iterable[str] | None = None,
) -> str:
    """What is wrong with the first argument that is not of its type; empty where all are.

    Parameters
    ----------
    function : callable
        With annotations, and a docstring that tells its parameters.
    positional, given : tuple, mapping
        What it was called with.
    only : iterable of str, optional
        Parameters to look at. Default: all.

    Examples
    --------
    >>> def size(nodes: int, names: list[str] | None = None) -> None:
    ...     '''Size of a cluster.
    ...
    ...     Parameters
    ...     ----------
    ...     nodes : int
    ...         Machines of it.
    ...     names : list of str, optional
    ...         What they are called.
    ...     '''
    >>> misfit(size, (), {"nodes": "many"})
    "nodes='many': must be int (Machines of it)"
    >>> misfit(size, (2, "a"), {}), misfit(size, (2,), {})
    ("names='a': must be list of str (What they are called)", '')
    """
    bound = inspect.signature(function).bind(*positional, **given).arguments
    doc = inspect.getdoc(function) or ""
    for name, value in bound.items():
        if name == "self" or (only is not None and name not in only):
            continue
        if not fits(value, _hint(function, name)):
            legal, meaning = told_of(name, doc)
            legal = legal.removesuffix(", optional") or function.__annotations__[name]
            return f"{name}={shown(value)}: must be {legal}" + (f" ({meaning})" if meaning else "")
    return ""


def path_parameters(function: Any) -> frozenset[str]:
    """Parameters that are paths: a number among them would be a file that is open elsewhere.

    Examples
    --------
    >>> def read(path: str | os.PathLike[str], lines: int) -> None: ...
    >>> path_parameters(read)
    frozenset({'path'})
    """
    hints = function.__annotations__.items()
    paths = (name for name, text in hints if name != "return" and "Path" in str(text))
    return frozenset(paths)
