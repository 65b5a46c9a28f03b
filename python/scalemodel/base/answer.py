"""What answers share: columns as attributes, equality by question and answer, pickling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pandas as pd


class EngineAnswer(ABC):
    """A question about one step and the engine's answer to it, whose columns are attributes."""

    __slots__ = ()

    #: Names of what the class is made from, in the order of its arguments.
    _PARTS: ClassVar[tuple[str, ...]]
    #: Columns that say what fills the fullest accelerator; they sum to ``memory_bytes``.
    _MEMORY: ClassVar[tuple[str, ...]]
    cluster: Any
    core: Any

    @property
    def verdict(self) -> str:
        """``ok``, ``out_of_memory`` or ``illegal:<reason>``."""
        return verdict_text(str(self.core.verdict))

    @property
    def illegal(self) -> bool:
        """Whether the strategy cannot run at all; then there are no numbers."""
        return is_illegal(str(self.core.verdict))

    @property
    def fits(self) -> bool:
        """Whether the strategy runs within the memory of the accelerator."""
        return bool(self.core.verdict == "ok")

    @property
    def cost_usd(self) -> float | None:
        """Price of the step; None where the catalogue has no price for the accelerator."""
        known = self.cluster.core.price_usd_per_s > 0 and not self.illegal
        return float(self.core.cost_usd) if known else None

    @abstractmethod
    def time_by_cause(self) -> dict[str, float]:
        """Seconds of the step by cause, which sum to the step time; empty where it is illegal."""

    def breakdown(self) -> pd.DataFrame:
        """Seconds and share of the step by cause; the seconds sum to the step time.

        The causes are those of `time_by_cause`: the columns of the answer, with the launches of
        the host apart from the rest of compute.

        Returns
        -------
        DataFrame
            Columns cause, time_s, share_fraction; empty for an illegal strategy.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> bool(abs(est.breakdown().time_s.sum() - est.step_time_s) < 1e-9)
        True
        """
        import pandas as pd

        step = self.core.step_time_s
        rows = [(cause, time_s, time_s / step) for cause, time_s in self.time_by_cause().items()]
        return pd.DataFrame(rows, columns=["cause", "time_s", "share_fraction"])

    def memory(self) -> pd.DataFrame:
        """Bytes and share of the capacity by kind on the fullest accelerator.

        Returns
        -------
        DataFrame
            Columns kind, bytes, share_fraction; empty for an illegal strategy.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> bool(est.memory().bytes.sum() == est.memory_bytes)
        True
        """
        import pandas as pd

        rows = []
        for column in () if self.illegal else self._MEMORY:
            size = getattr(self.core, column)
            kind = column.removeprefix("memory_").removesuffix("_bytes")
            rows.append((kind, size, size / self.core.memory_capacity_bytes))
        return pd.DataFrame(rows, columns=["kind", "bytes", "share_fraction"])

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


def is_illegal(reason: str) -> bool:
    """Whether a reason code says that a strategy cannot run at all."""
    return reason not in ("ok", "out_of_memory")


def verdict_text(reason: str) -> str:
    """Verdict of a reason code: ``ok``, ``out_of_memory`` or ``illegal:<reason>``."""
    return f"illegal:{reason}" if is_illegal(reason) else reason
