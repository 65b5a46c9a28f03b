"""What a simulated stream tells of means and percentiles, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scalemodel.serving.limits import LIMITS, METRICS, PERCENTS, slack_of
from scalemodel.serving.stream import RequestStream, ServedStream, request_stream
from scalemodel.serving.task import Inference

REQUESTS = 12_000  # that are measured; nearly three digits of the mean, a hundred beyond p99
FEW_REQUESTS = 2_000  # of an instance that is hardly loaded
MOST_REQUESTS = 250_000
WARM, DRAIN = 3.0, 2.0  # mean latencies at both ends of a stream that are not measured
_BLOCKS = 10  # of a stream in time, whose spread tells how sure its percentiles are
_ERRORS = 2.0  # standard errors that a value must be within its limit
_GROWTH = 0.05  # of the arrivals, that requests inside may grow by in half a stream
_REFUSED = 0.005  # of the requests, longer than the whole cache
_CLEAR = 3.0  # standard errors beyond a limit, that a few requests are enough to tell

RATE, CACHE = "requests_per_s", "kv_cache"


@dataclass(frozen=True)
class Measured:
    """Means and percentiles of a simulated stream by the names of limits, and how sure they are."""

    values: Mapping[str, float]
    errors: Mapping[str, float]
    grows: bool = False
    refused: float = 0.0

    def broken(self, limits: Mapping[str, float], errors: float = _ERRORS) -> tuple[float, str]:
        """The largest ratio of a value, its error added, to its limit; above 1: broken."""
        if self.grows:
            return float("inf"), RATE
        if self.refused > _REFUSED:
            return float("inf"), CACHE
        sure = {name: self.values[name] + errors * self.errors[name] for name in limits}
        return slack_of(sure, limits)


def _statistics(columns: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, float]:
    found = {}
    for metric, values in columns.items():
        ascending = np.sort(values)
        found[f"{metric}_s"] = float(values.mean())
        for percent in PERCENTS:
            # The value that at least such a share of the requests does not exceed.
            place = -(-percent * ascending.size // 100) - 1
            found[f"{metric}_p{percent}_s"] = float(ascending[place])
    return found


def measure(
    runs: Sequence[ServedStream], life: float, limits: Mapping[str, float] | None = None
) -> Measured:
    """Means and percentiles of streams, less what comes while they fill and drain.

    Parameters
    ----------
    runs : sequence of ServedStream
        Alike but for what was drawn.
    life : float
        Mean latency of a request, about.
    limits : mapping, optional
        Only what these limits are about.
    """
    asked = METRICS if limits is None else {LIMITS[name][0] for name in limits}
    columns, refused = [], []
    for served in runs:
        found, left_out = _measured_columns(served, life)
        columns.append({metric: column for metric, column in found.items() if metric in asked})
        refused.append(left_out)
    count = min((each.size for found in columns for each in found.values()), default=_BLOCKS)
    if count < _BLOCKS:
        return Measured({}, {}, refused=1.0)

    def joined(metric: str) -> npt.NDArray[np.float64]:
        return np.concatenate([found[metric] for found in columns])

    values = _statistics({metric: joined(metric) for metric in columns[0]})
    whole = [_statistics(found) for found in columns]
    parts = -(-_BLOCKS // len(runs))
    blocks = [
        _statistics({metric: np.array_split(found[metric], parts)[i] for metric in found})
        for found in columns
        for i in range(parts)
    ]
    errors = {}
    for name in values:
        # What is alike within a run differs between runs.
        errors[name] = max(_standard_error([each[name] for each in of]) for of in (blocks, whole))
    return Measured(values, errors, any(map(_grows, runs)), float(np.mean(refused)))


def _standard_error(means: Sequence[float]) -> float:
    """Of the mean of some; 0 for one."""
    return float(np.std(means, ddof=1) / np.sqrt(len(means))) if len(means) > 1 else 0.0


def _measured_columns(
    served: ServedStream, life: float
) -> tuple[dict[str, npt.NDArray[np.float64]], float]:
    """Times of the requests that count, by metric, and the share of those that were refused."""
    arrival, tokens = served.stream.arrival_s, served.stream.output_tokens
    first, last = float(arrival[0]), float(arrival[-1])
    kept = (arrival >= first + WARM * life) & (arrival <= last - DRAIN * life)
    if kept.sum() < _BLOCKS:
        kept = np.ones(len(arrival), dtype=bool)
    refused = float(served.refused[kept].mean())
    kept &= ~served.refused
    began, ended, arrival = served.first_token_s[kept], served.finished_s[kept], arrival[kept]
    columns = {
        "ttft": began - arrival,
        "tpot": (ended - began) / np.maximum(1.0, tokens[kept] - 1),
        "e2e": ended - arrival,
    }
    return columns, refused


def _grows(served: ServedStream) -> bool:
    """Whether more and more requests are inside because more come than are finished."""
    arrival, finished = np.sort(served.stream.arrival_s), np.sort(served.finished_s)
    half, last = float(arrival[len(arrival) // 2]), float(arrival[-1])

    def inside(at: float) -> tuple[int, int]:
        came = int(np.searchsorted(arrival, at, side="right"))
        return came, came - int(np.searchsorted(finished, at, side="right"))

    (came_half, inside_half), (came, now) = inside(half), inside(last)
    grown = now - inside_half
    return bool(grown > max(_GROWTH * (came - came_half), 4 * np.sqrt(now + 1.0)))


def looked_at(look: Callable[[int], Measured], limits: Mapping[str, float]) -> Measured:
    """What a few requests tell where it is clear, else what many do."""
    if not limits:
        return look(REQUESTS)
    few = look(FEW_REQUESTS)
    clear = not few.grows and few.broken(limits, -_CLEAR)[0] > 1
    return few if clear else look(REQUESTS)


def loaded_stream(
    task: Inference, rate: float, life: float, requests: int = REQUESTS, seed: int = 0
) -> RequestStream:
    """Requests at random, of which about `requests` are measured between both ends.

    Parameters
    ----------
    task : Inference
    rate, life : float
        Requests per second; the mean latency of one, about.
    requests, seed : int
    """
    count = min(requests + round(rate * life * (WARM + DRAIN + 10)), MOST_REQUESTS)
    return request_stream(task, requests=count, requests_per_s=rate, seed=seed)
