"""What every layer group says, and checks of its values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError


@dataclass(frozen=True, kw_only=True)
class Group(ABC):
    """What every layer group says.

    Attributes
    ----------
    name : str
        Unique in its model; default: the kind.
    after : sequence of str, optional
        Groups whose output it reads; default: the group before it. Empty: the model's input.
    mesh : str
        Groups of the same `mesh` are sharded alike; default: the group's own name.
    trained : bool
        False: its weights get no gradient.
    frozen_bytes : float
        Bytes of a frozen weight (0.5 for 4-bit weights under adapters); 0: as when trained.
    """

    kind: ClassVar[str] = ""
    name: str = ""
    after: Sequence[str] | None = None
    mesh: str = ""
    trained: bool = True
    frozen_bytes: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.kind)
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, list):
                object.__setattr__(self, item.name, tuple(value))
        if isinstance(self.after, str):
            object.__setattr__(self, "after", (self.after,))
        names = self.after
        if names is not None and not (
            isinstance(names, tuple) and all(isinstance(name, str) for name in names)
        ):
            raise ScaleModelError(
                f"{self.name}: after={self.after!r}: must be names of groups that come before it"
            )
        if not isinstance(self.name, str) or not isinstance(self.mesh, str):
            raise ScaleModelError(f"name={self.name!r}, mesh={self.mesh!r}: must be texts")
        if not isinstance(self.trained, bool):
            raise ScaleModelError(f"{self.name}: trained={self.trained!r}: must be True or False")
        if not 0 <= number_of(self, "frozen_bytes") <= 8:
            raise ScaleModelError(
                f"{self.name}: frozen_bytes={self.frozen_bytes!r}: must be from 0 to 8"
            )
        self.core  # noqa: B018  a malformed group is an error at once

    @property
    @abstractmethod
    def core(self) -> _core.LayerGroup:
        """The engine's group."""

    def _given(self, *counts: str, **others: object) -> dict[str, Any]:
        """Arguments of the engine's builder: the name, checked whole numbers, and others."""
        return {"name": self.name, **{name: count_of(self, name) for name in counts}, **others}


def number_of(group: Group, name: str) -> float:
    """A value as a number."""
    value = getattr(group, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ScaleModelError(f"{group.name}: {name}={value!r}: must be a number")
    return float(value)


def tokens_of(group: Group, name: str = "tokens") -> float:
    """Tokens of a sample; 0: the sequence of the task."""
    value = number_of(group, name)
    if not 0 <= value <= 1e9:
        raise ScaleModelError(f"{group.name}: {name}={value!r}: must be from 0 to 1e9")
    return value


def count_of(group: Group, name: str) -> int:
    """A value as a whole number, 0 or more."""
    value = getattr(group, name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ScaleModelError(f"{group.name}: {name}={value!r}: must be a whole number, 0 or more")
    return value


def flag_of(group: Group, name: str) -> bool:
    """A value as True or False."""
    value = getattr(group, name)
    if not isinstance(value, bool):
        raise ScaleModelError(f"{group.name}: {name}={value!r}: must be True or False")
    return value
