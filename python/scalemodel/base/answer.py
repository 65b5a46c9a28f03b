"""What answers share: columns as attributes, equality by question and answer, pickling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class EngineAnswer(ABC):
    """A question and the engine's answer to it, whose columns are attributes."""

    __slots__ = ()

    #: Names of what the class is made from, in the order of its arguments.
    _PARTS: ClassVar[tuple[str, ...]]
    core: Any

    @property
    @abstractmethod
    def illegal(self) -> bool:
        """Whether the strategy cannot run at all; then there are no numbers."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self._PARTS:
            raise AttributeError(name)
        try:
            value = getattr(self.core, name)
        except AttributeError:
            raise AttributeError(f"{type(self).__name__} has no column {name!r}") from None
        return None if self.illegal else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((type(self), self.core))

    def _identity(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self._PARTS)

    def __reduce__(self) -> tuple[type[EngineAnswer], tuple[object, ...]]:
        return type(self), self._identity()


class ColumnAnswer:
    """An answer of many columns, each an attribute; None where nothing runs."""

    verdict: str
    _columns: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._columns[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no column {name!r}") from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._columns})

    @property
    def fits(self) -> bool:
        """Whether anything runs at all."""
        return self.verdict == "ok"


def by_cause(seconds: Mapping[str, float], launches_s: float) -> dict[str, float]:
    """Seconds by cause from the columns of an answer, launches apart from the rest of compute.

    Examples
    --------
    >>> by_cause({"compute_s": 3.0, "exposed_tp_s": 1.0}, 0.5)
    {'compute': 2.5, 'launches': 0.5, 'exposed_tp': 1.0}
    """
    parts: dict[str, float] = {}
    for column, time_s in seconds.items():
        parts[column.removesuffix("_s")] = time_s
        if column == "compute_s":
            parts |= {"compute": time_s - launches_s, "launches": launches_s}
    return parts


def verdict_text(reason: str) -> str:
    """Verdict of a reason code: ``ok``, ``out_of_memory`` or ``illegal:<reason>``."""
    return reason if reason in ("ok", "out_of_memory") else f"illegal:{reason}"
