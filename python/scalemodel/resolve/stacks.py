"""Software stacks: named constants and facts to engine values."""

from __future__ import annotations

from typing import Any, TypeAlias

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.resolve.reader import Reader

DEFAULT_STACK = "plain"
#: A named stack of the catalogue, or constants of one's own.
StackLike: TypeAlias = str | _core.Stack

_STACK_FIELDS = tuple(row["name"] for row in _core.Stack.fields())
_STACK_DIMENSIONS = {"_s": "s", "_bytes": "bytes"}


@catalog.kept(64)
def stack(name: StackLike) -> _core.Stack:
    """The engine's constants of a named software stack; constants themselves are returned.

    Examples
    --------
    >>> stack("plain").gradients_fp32
    True
    """
    if isinstance(name, _core.Stack):
        return name
    entry = catalog.find("stacks", name)
    table = catalog.load("stacks", entry)
    facts = Reader(table.get("stack", {}), f"stacks/{entry}.toml: stack")
    given: dict[str, Any] = {}
    for field_name in _STACK_FIELDS:
        key = field_name
        dimension = None
        for suffix, kind in _STACK_DIMENSIONS.items():
            if field_name.endswith(suffix):
                key, dimension = field_name[: -len(suffix)], kind
        facts.known.add(key)
        if key not in facts.table:
            continue
        cell = value_of(facts.table[key])
        given[field_name] = (
            parse_quantity(cell, dimension, f"stacks/{entry}.toml: {key}") if dimension else cell
        )
    facts.finish()
    return _core.Stack(**given)


def stack_text(stack: StackLike) -> str:
    """The name of a stack, or that its constants are of its own.

    Examples
    --------
    >>> stack_text("plain"), stack_text(_core.Stack(host_launch_s=5e-6))
    ('plain', 'of its own')
    """
    return stack if isinstance(stack, str) else "of its own"
