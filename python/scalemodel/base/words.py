"""Words that people use: other spellings of choices, and other names of arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.records import refusal
from scalemodel.base.type_hints import misfit, path_parameters, told_of
from scalemodel.base.vocabulary import SPELLINGS, folded

_NUMBER: Final = re.compile(r"([\d][\d,_]*(?:\.\d+)?(?:[eE]\+?\d+)?)\s*([kKmMgGbBtT]?)")
_PREFIXES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_UNITS: Final = re.compile(r"_(s|bytes|w|j|usd|fraction)$")


def choice(value: Any, legal: Collection[str]) -> Any:
    """The legal choice that a value spells otherwise; the value itself where none is.

    Examples
    --------
    >>> formats = ("fp32", "bf16", "fp8")
    >>> choice("BF16", formats), choice("mxfp8", formats), choice("int3", formats)
    ('bf16', 'fp8', 'int3')
    >>> choice("fsdp", ("ddp", "zero1", "zero2", "zero3", "hsdp"))
    'zero3'
    """
    if not isinstance(value, str) or value in legal:
        return value
    word = folded(value)
    for name in legal:
        if folded(name) == word:
            return name
    return next((name for name in SPELLINGS.get(word, ()) if name in legal), value)


def by_name(fields: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Rows of a field table of the core by the names of the fields."""
    return {str(row["name"]): row for row in fields}


def spelled(given: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Values of a record with every choice spelled as the engine spells it.

    Parameters
    ----------
    given : mapping of str to object
    rows : mapping of str to mapping
        Field table of a record of the core, `by_name`.

    Raises
    ------
    ScaleModelError : a text that spells no choice; the nearest one is named.

    Examples
    --------
    >>> from scalemodel import _core
    >>> spelled({"sharding": "FSDP", "tp": 2}, by_name(_core.Strategy.fields()))
    {'sharding': 'zero3', 'tp': 2}
    """
    found = dict(given)
    for name in given.keys() & rows.keys():
        row, value = rows[name], given[name]
        if row["choices"]:
            found[name] = value = choice(value, row["choices"])
            if isinstance(value, str) and value not in row["choices"]:
                legal = f"one of {', '.join(row['choices'])}"
                raise _illegal(name, value, legal, row, _nearest_choice(value, row["choices"]))
        elif row["kind"] in ("int", "float") and isinstance(value, str):
            kind = "a whole number" if row["kind"] == "int" else "a number"
            legal = f"{kind} from {row['low']:.12g} to {row['high']:.12g}"
            raise _illegal(name, value, legal, row, number_meant(value))
    return found


def _nearest_choice(value: str, legal: Collection[str]) -> object:
    near = difflib.get_close_matches(value.lower(), legal, n=1, cutoff=0.7)
    return near[0] if near else None


def _illegal(
    name: str, value: object, legal: str, row: Mapping[str, Any], meant: object
) -> ScaleModelError:
    """As the core complains of a value, with the one that was meant."""
    likely = "" if meant is None else f"; did you mean {name}={meant!r}?"
    return ScaleModelError(f"{name}={value!r}: must be {legal} ({row['meaning']}){likely}")


def number_meant(text: object) -> float | int | None:
    """The number that a text spells, with a prefix or without; None where it spells none.

    A small k of tokens counts 1024, as context lengths do.

    Examples
    --------
    >>> number_meant("15T"), number_meant("8k"), number_meant("64"), number_meant("many")
    (15000000000000, 8192, 64, None)
    """
    found = _NUMBER.fullmatch(str(text).strip())
    if found is None:
        return None
    number = float(found[1].replace(",", "").replace("_", "")) * _PREFIXES[found[2].upper()]
    if found[2] == "k":
        number *= 1.024
    return int(number) if number == int(number) else number


def understand(record: Any) -> None:
    """Have a record of the core read choices as people spell them, now and in `replace`."""
    if hasattr(record.__init__, "__wrapped__"):
        return
    for name in ("__init__", "replace"):
        setattr(record, name, _spelling(record, getattr(record, name)))


def _spelling(record: Any, method: Any) -> Any:
    rows = by_name(record.fields())

    @functools.wraps(method)
    def call(self: Any, *positional: Any, **given: Any) -> Any:
        if not positional and not given.keys() <= rows.keys():
            raise ScaleModelError(refusal(record, positional, given))
        return method(self, *positional, **spelled(given, rows))

    return call


# --------------------------------------------------------------------------------------- arguments
def hint(name: str, known: Collection[str]) -> str:
    """The name that another one stands for, or the nearest ones.

    Examples
    --------
    >>> hint("gpus", ("nodes", "accelerators"))
    "did you mean 'accelerators'?"
    >>> hint("ttft", ("ttft_s", "tpot_s"))
    "did you mean 'ttft_s'?"
    """
    word = folded(name)
    for other in known:
        if folded(_UNITS.sub("", other)) == word:
            return f"did you mean {other!r}?"
    return nearest(name, known)


_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)


def _meaning(name: str, doc: str) -> str:
    """What the docstring says of a parameter: its type and its first sentence."""
    told = ": ".join(filter(None, told_of(name, doc)))
    return f" ({told})" if told else ""


def _refusal(function: Any, positional: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """Why a function cannot be called with these; empty where it can."""
    signature = inspect.signature(function)
    called, _, method = function.__qualname__.rpartition(".")
    called = called if method == "__init__" else method
    taken = {name: item for name, item in signature.parameters.items() if name != "self"}
    open_ended = any(item.kind is item.VAR_KEYWORD for item in taken.values())
    for name in () if open_ended else given:
        if name not in taken:
            said = f"{name}={given[name]!r}: {called} has no such argument"
            return f"{said}; {hint(name, taken)}"
    allowed = [item for item in taken.values() if item.kind is not item.KEYWORD_ONLY]
    own = positional[1:] if "self" in signature.parameters else positional
    if not allowed and own:
        shown = ", ".join(map(repr, own))
        first = next(iter(taken))
        return f"{called}({shown}): arguments are given by name, for example {first}={own[0]!r}"
    try:
        signature.bind(*positional, **given)
    except TypeError as error:
        missing = [
            name
            for name, item in taken.items()
            if item.default is item.empty and item.kind is item.KEYWORD_ONLY and name not in given
        ]
        if not missing:
            return f"{called}: {error}; its arguments are {', '.join(taken)}"
        doc = inspect.getdoc(function) or ""
        told = " and ".join(f"{name}=...{_meaning(name, doc)}" for name in missing)
        got = ", ".join(f"{name}={value!r}" for name, value in given.items())
        given_too = f"; given was {got}" if got else ""
        return f"{called}: {', '.join(missing)} missing; give {told}{given_too}"
    return ""


def named_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Say which argument is meant where one does not exist, is missing or of another type.

    What works is not looked at: only of a call that has failed is asked which argument is not what
    its annotation says. But a number for a path would be a file that is open elsewhere.

    Examples
    --------
    >>> @named_arguments
    ... def size(*, nodes: int = 1) -> int:
    ...     return 8 * nodes.bit_length()
    >>> size(num_nodes=2)
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: num_nodes=2: size has no such argument; did you mean \
'nodes'?
    >>> size(nodes="two")
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: nodes='two': must be int
    """
    paths = path_parameters(function)

    @functools.wraps(function)
    def call(*positional: _P.args, **given: _P.kwargs) -> _T:
        why, code, failed = "", "malformed", None
        if paths and any(isinstance(value, int) for value in (*positional, *given.values())):
            why = _refusal(function, positional, given) or misfit(
                function, positional, given, paths
            )
        if not why:
            try:
                return function(*positional, **given)
            except ScaleModelError:
                raise
            except (AttributeError, TypeError, ValueError) as error:
                failed = error
                why = _refusal(function, positional, given)
                code = "unknown_argument" if why else code
                why = why or misfit(function, positional, given)
                if not why:
                    raise
        raise ScaleModelError(why, code) from failed

    return call


def refuse_unknown(called: str, given: Iterable[str], *functions: Any) -> None:
    """Raise where a further argument is none of the functions it may be meant for.

    Examples
    --------
    >>> def size(*, nodes=1): ...
    >>> refuse_unknown("plan", ["max_nodes"], size)
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: max_nodes: plan has no such argument; did you mean \
'nodes'?
    """
    known = {name for each in functions for name in inspect.signature(each).parameters}
    for name in given:
        if name not in known:
            raise ScaleModelError(
                f"{name}: {called} has no such argument; {hint(name, sorted(known))}",
                code="unknown_argument",
            )


def named_fields(record: _C) -> _C:
    """As `named_arguments`, of the constructor of a class whose docstring tells its fields."""
    constructor: Any = record.__init__  # type: ignore[misc]
    constructor.__doc__ = record.__doc__
    record.__init__ = named_arguments(constructor)  # type: ignore[misc]
    return record
