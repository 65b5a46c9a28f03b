"""What a load generator measured, whichever wrote it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from scalemodel.base.errors import ScaleModelError


class Spread(NamedTuple):
    """Statistics of a time over requests, seconds; None where the file has none.

    Attributes
    ----------
    mean, median, p99, std : float or None
    """

    mean: float | None = None
    median: float | None = None
    p99: float | None = None
    std: float | None = None


_NONE: Final = Spread()


@dataclass(frozen=True)
class BenchRun:
    """One load that a tool offered, and what came of it. Made by `read_bench`.

    Attributes
    ----------
    tool : str
        ``vllm``, ``sglang``, ``aiperf``, ``genai_perf``, ``guidellm`` or ``inferencex``.
    where : str
        File, and line or place in it.
    model : str
        As the tool names it.
    completed, failed : int
        Requests.
    duration_s : float or None
    requests_per_s, output_tokens_per_s : float
        Of completed requests, all accelerators together.
    input_tokens, output_tokens : float
        Of a completed request, mean.
    asked_rate, asked_concurrency : float or None
        What the tool was told: requests per second (None: no such limit), requests at once.
    ttft, tpot, itl, latency : Spread
        Time to first token; time per output token without the first; gap between two chunks of
        an answer; whole request.
    chunk_tokens : float or None
        Tokens accepted a step, where the tool says so.
    told : bool
        Whether the file names the load; else it is the mean number of requests under way, by
        Little's law.
    input_spread, output_spread : float
        Standard deviation of the logarithm of the lengths, of log-normal ones as wide; 0 where the
        file gives means alone.
    table : mapping
        The record, where it names the deployment as well (InferenceX).
    """

    tool: str
    where: str
    model: str
    completed: int
    failed: int
    duration_s: float | None
    requests_per_s: float
    output_tokens_per_s: float
    input_tokens: float
    output_tokens: float
    asked_rate: float | None = None
    asked_concurrency: float | None = None
    ttft: Spread = _NONE
    tpot: Spread = _NONE
    itl: Spread = _NONE
    latency: Spread = _NONE
    chunk_tokens: float | None = None
    told: bool = True
    input_spread: float = 0.0
    output_spread: float = 0.0
    table: Mapping[str, Any] | None = None

    @property
    def load(self) -> str:
        """The load in words."""
        if self.asked_concurrency is not None:
            return f"{self.asked_concurrency:.4g} running" + ("" if self.told else ", as measured")
        if self.asked_rate is not None:
            return f"{self.asked_rate:g} requests/s"
        return "all at once"


class Record:
    """A table of a file; whatever is wrong with a key of it is one error that names the key."""

    def __init__(self, table: Any, where: str) -> None:
        if not isinstance(table, Mapping):
            raise wrong(where, f"must be an object, not {type(table).__name__}")
        self.table = table
        self.where = where

    def has(self, key: str) -> bool:
        """Whether a key is there and not null."""
        return self.table.get(key) is not None

    def within(self, key: str) -> Record:
        """The table under a key."""
        if not self.has(key):
            raise wrong(self.where, f"{key}: is missing")
        return Record(self.table[key], f"{self.where}: {key}")

    def find(self, *keys: str, least: float = 0.0) -> float | None:
        """The number under the first of some keys that is there; None where none is."""
        for key in keys:
            if self.has(key):
                value = self.table[key]
                number = isinstance(value, (int, float)) and not isinstance(value, bool)
                if not number or not least <= value < math.inf:
                    raise wrong(self.where, f"{key}={value!r}: must be a number from {least:g}")
                return float(value)
        return None

    def number(self, *keys: str, least: float = 0.0) -> float:
        """The same where it must be there."""
        found = self.find(*keys, least=least)
        if found is None:
            raise wrong(self.where, f"{' or '.join(keys)}: is missing")
        return found

    def count(self, *keys: str) -> int:
        """A whole number of at least one request."""
        found = self.number(*keys)
        if found < 1 or not found.is_integer():
            raise wrong(self.where, f"{keys[0]}={found:g}: must be a whole number from 1")
        return int(found)

    def rate(self, key: str) -> float | None:
        """A rate, which tools write as a number or as "inf"; None for no limit."""
        if str(self.table.get(key)).lower() in ("none", "inf", "infinity", "-1"):
            return None
        return self.find(key, least=1e-9)

    def spread(self, key: Callable[[str], str], unit: float) -> Spread:
        """Statistics whose keys follow from their names."""
        found = (self.find(key(name)) for name in Spread._fields)
        return Spread(*(None if each is None else unit * each for each in found))


def length_spread(mean: float, std: float | None) -> float:
    """Standard deviation of the logarithm of log-normal lengths of some mean and deviation.

    Examples
    --------
    >>> round(length_spread(100.0, 10.0), 4), length_spread(100.0, None)
    (0.0998, 0.0)
    """
    return math.sqrt(math.log1p((std / mean) ** 2)) if std and mean else 0.0


def wrong(where: str, why: str) -> ScaleModelError:
    """An error in a file."""
    return ScaleModelError(f"{where}: {why}", code="bad_benchmark")


def spread_of(values: Sequence[float]) -> Spread:
    """Statistics of times.

    Examples
    --------
    >>> spread_of([1.0, 2.0, 3.0])
    Spread(mean=2.0, median=2.0, p99=2.98, std=0.816...)
    """
    import numpy as np

    if not len(values):
        return Spread()
    median, p99 = np.quantile(values, (0.5, 0.99))
    return Spread(float(np.mean(values)), float(median), float(p99), float(np.std(values)))
