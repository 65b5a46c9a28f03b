"""What can be turned in an explorer, and what its widgets may ask of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Setting(NamedTuple):
    """One thing that can be turned: its group, the values it takes, and whether they scale."""

    group: str
    values: tuple[Any, ...]
    scales: bool = False


QUESTION, STRATEGY, TASK, MACHINE = "question", "strategy", "task", "machine"
#: What a menu chooses: names of the catalogue.
MODEL, ACCELERATOR, STACK = "model", "accelerator", "stack"


class Explored(Protocol):
    """A question whose settings widgets turn."""

    settings: dict[str, Setting]
    values: dict[str, Any]
    estimate: Any

    def html(self) -> str:
        """The answer as HTML."""

    def listen(self, tell: Callable[[], None]) -> None:
        """Call a function after every change."""

    def set(self, **values: Any) -> object:
        """Turn one or more settings."""

    def pin(self) -> None:
        """Compare what follows with the present answer."""

    def search(self) -> object:
        """Turn the strategy to the fastest one."""

    def report(self) -> Any:
        """The present strategy on one page."""
