"""Software stacks: named constants and facts to engine values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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
    return _core.Stack(**_read(entry, "stack"))


def _read(entry: str, section: str) -> dict[str, Any]:
    """Fields of the engine's record that a section of a catalogued stack gives."""
    table = catalog.load("stacks", entry)
    facts = Reader(table.get(section, {}), f"stacks/{entry}.toml: {section}")
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
    return given


@catalog.kept(1)
def eager_facts() -> Mapping[str, Any]:
    """What a stack of PyTorch has otherwise where nothing compiles the model.

    Returns
    -------
    Mapping of str to object
        Fields of `Stack` -> values.

    Examples
    --------
    >>> stack("pytorch_2026").replace(**eager_facts()).fused_loss
    False
    """
    return MappingProxyType(_read(DEFAULT_STACK, "eager"))


def stack_text(stack: StackLike) -> str:
    """The name of a stack, or that its constants are of its own.

    Examples
    --------
    >>> stack_text("plain"), stack_text(_core.Stack(host_launch_s=5e-6))
    ('plain', 'of its own')
    """
    return stack if isinstance(stack, str) else "of its own"
