"""Streams of requests through serving instances: who waits how long, request by request."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.base.background import in_background
from scalemodel.base.columns import numbers_of, random_of, same_columns
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress, watched
from scalemodel.base.text import time_text
from scalemodel.base.words import named_arguments
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    import pandas as pd


Column = npt.NDArray[np.float64]
Arrivals = Literal["poisson", "bursty", "uniform", "at_once"]
Lengths = Literal["fixed", "exponential", "lognormal"]
Balance = Literal["random", "round_robin"]

_ARRIVALS = ("poisson", "bursty", "uniform", "at_once")
_LENGTHS = ("fixed", "exponential", "lognormal")
_BALANCES = ("random", "round_robin")
_BURST_SHAPE = 0.25  # gamma gaps of this shape: variance four times that of random arrivals
_SPREAD = 1.0  # of the logarithm of log-normal lengths, where the task names none
_MOST_REQUESTS = 10_000_000


def poisson_arrivals(count: int, rate: float, seed: int) -> Column:
    """Arrival times of `count` requests at random, `rate` per second on average.

    Examples
    --------
    >>> times = poisson_arrivals(1000, 5.0, seed=1)
    >>> bool(180 < times[-1] < 220)
    True
    """
    gaps = random_of(seed).exponential(1 / rate, count)
    return np.asarray(np.cumsum(gaps), dtype=np.float64)


def _arrivals(kind: str, count: int, rate: float, random: np.random.Generator) -> Column:
    if kind == "at_once":
        return np.zeros(count)
    if kind == "uniform":
        return np.arange(count) / rate
    shape = 1.0 if kind == "poisson" else _BURST_SHAPE
    return np.asarray(np.cumsum(random.gamma(shape, 1 / (shape * rate), count)), dtype=np.float64)


def _lengths(
    kind: str, mean: float, spread: float, count: int, random: np.random.Generator
) -> Column:
    if kind == "fixed" or (kind == "lognormal" and not spread):
        return np.full(count, float(mean))
    if kind == "exponential":
        drawn = random.exponential(mean, count)
    else:
        drawn = random.lognormal(np.log(mean) - spread**2 / 2, spread, count)
    return np.maximum(1.0, np.round(drawn))


def _drawn(
    task: Inference, lengths: Lengths | None, count: int, random: np.random.Generator
) -> tuple[Column, Column]:
    """Lengths of prompts and answers."""
    spreads = (float(task.input_spread), float(task.output_spread))
    kind = lengths or ("lognormal" if any(spreads) else "fixed")
    if not any(spreads):
        spreads = (_SPREAD, _SPREAD)
    return (
        _lengths(kind, task.input_tokens, spreads[0], count, random),
        _lengths(kind, task.output_tokens, spreads[1], count, random),
    )


@dataclass(frozen=True, eq=False, repr=False)
class RequestStream:
    """Requests in order of arrival. Made by `request_stream`, or of a trace's own columns.

    Attributes
    ----------
    arrival_s, input_tokens, output_tokens : array of float, equally long

    Examples
    --------
    >>> RequestStream([0.0, 0.5], [100, 200], [10, 20]).requests_per_s
    4.0
    """

    arrival_s: Column
    input_tokens: Column
    output_tokens: Column

    def __post_init__(self) -> None:
        for name in ("arrival_s", "input_tokens", "output_tokens"):
            column = numbers_of(name, getattr(self, name))
            if column.ndim != 1 or not column.size:
                raise ScaleModelError(f"{name}: must be a column of at least one number")
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    def __eq__(self, other: object) -> bool:
        return same_columns(self, other)

    def __hash__(self) -> int:
        return hash(self.arrival_s.tobytes())

    def __repr__(self) -> str:
        prompt, answer = self.input_tokens.mean(), self.output_tokens.mean()
        rate = self.requests_per_s
        when = "all at once" if np.isinf(rate) else f"{rate:.4g} a second"
        return f"RequestStream({len(self):,} requests, {when}, {prompt:.4g} + {answer:.4g} tokens)"

    @property
    def requests_per_s(self) -> float:
        """Mean rate of arrival; infinite where all arrive at once."""
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        return len(self) / span if span > 0 else float("inf")


@named_arguments
def request_stream(
    task: Inference,
    *,
    requests: int,
    requests_per_s: float = float("inf"),
    arrivals: Arrivals = "poisson",
    lengths: Lengths | None = None,
    seed: int = 0,
) -> RequestStream:
    """A stream of requests with the mean lengths of a task.

    Parameters
    ----------
    task : Inference
    requests : int
    requests_per_s : float
        Mean rate; infinite: all at once.
    arrivals : str
        ``"poisson"`` (at random), ``"bursty"`` (gamma gaps of four times the variance),
        ``"uniform"`` or ``"at_once"``.
    lengths : str
        ``"fixed"``, ``"exponential"`` or ``"lognormal"`` (with the spread of the task, 1 where it
        has none). When left out, ``"lognormal"`` for a task that names a spread, else ``"fixed"``.
    seed : int

    Raises
    ------
    ScaleModelError : an unknown choice, or a count or rate out of range.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> stream = request_stream(task, requests=200, requests_per_s=4, lengths="exponential")
    >>> len(stream), bool(400 < stream.input_tokens.mean() < 600)
    (200, True)
    """
    for name, value, legal in (
        ("arrivals", arrivals, _ARRIVALS),
        ("lengths", lengths, _LENGTHS),
    ):
        if value not in legal and (name, value) != ("lengths", None):
            raise ScaleModelError(f"{name}={value!r}: must be one of {', '.join(legal)}")
    whole = isinstance(requests, int) and not isinstance(requests, bool)
    if not whole or not 1 <= requests <= _MOST_REQUESTS:
        raise ScaleModelError(f"requests={requests!r}: must be a whole number from 1 to 1e7")
    if not requests_per_s > 0:
        raise ScaleModelError(f"requests_per_s={requests_per_s!r}: must be above 0")
    random = random_of(seed)
    kind = "at_once" if np.isinf(requests_per_s) else arrivals

    def draw() -> RequestStream:
        times = _arrivals(kind, requests, requests_per_s, random)
        return RequestStream(times, *_drawn(task, lengths, requests, random))

    stream: RequestStream = in_background(draw)
    return stream


@dataclass(frozen=True, eq=False, repr=False)
class ServedStream:
    """What became of a stream. Made by `Serving.simulate`.

    Attributes
    ----------
    stream : RequestStream
    started_s, first_token_s, finished_s : array of float
        Absolute times, in the clock of the arrivals.
    preemptions : array of float
        How often the cache of a request was taken away.
    refused : array of bool
        Requests longer than the whole cache.
    totals : StreamTotals
        Steps, integrals over time and quantiles of the time between tokens.
    cache_tokens : float
        That the caches of all replicas hold, in requests of the mean lengths.
    """

    stream: RequestStream
    started_s: Column
    first_token_s: Column
    finished_s: Column
    preemptions: Column
    refused: npt.NDArray[np.bool_]
    totals: _core.StreamTotals = field(repr=False)
    cache_tokens: float = float("inf")

    def __eq__(self, other: object) -> bool:
        return same_columns(self, other)

    def __hash__(self) -> int:
        return hash((self.stream, self.totals))

    def __repr__(self) -> str:
        found = self.summary()
        lines = [
            f"ServedStream({found['requests']:,.0f} requests served, {found['refused']:,.0f} "
            f"refused, {found['preemptions']:,.0f} preemptions, {found['requests_per_s']:.4g} "
            f"requests/s, "
            f"{found['output_tokens_per_s']:.4g} tokens/s, {found['concurrency']:.4g} running"
        ]
        for name in ("ttft", "tpot", "latency"):
            if f"{name}_mean_s" not in found:
                continue
            times = [
                f"{label} {time_text(found[f'{name}_{label}_s'])}"
                for label in ("mean", "median", "p90", "p95", "p99")
            ]
            lines.append(f"  {name:<7}  {'  '.join(times)}")
        return "\n".join(lines) + ")"

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request: lengths, times, TTFT, TPOT, latency, preemptions."""
        import pandas as pd

        stream = self.stream
        steps = np.maximum(1.0, stream.output_tokens - 1)
        return pd.DataFrame(
            {
                "arrival_s": stream.arrival_s,
                "input_tokens": stream.input_tokens,
                "output_tokens": stream.output_tokens,
                "started_s": self.started_s,
                "first_token_s": self.first_token_s,
                "finished_s": self.finished_s,
                "ttft_s": self.first_token_s - stream.arrival_s,
                "tpot_s": (self.finished_s - self.first_token_s) / steps,
                "latency_s": self.finished_s - stream.arrival_s,
                "preemptions": self.preemptions,
                "refused": self.refused,
            }
        )

    def occupancy(self, points: int = 500) -> pd.DataFrame:
        """What the caches hold over time.

        A request holds its prompt from its start on and its answer as it grows, evenly. Where that
        is more than the caches hold, some were preempted for a while: then they are full.

        Returns
        -------
        DataFrame of `points` rows
            Columns time_s (from the first arrival), running (sequences), waiting (requests that
            have come and not started), cached_tokens, cache_fraction.

        Raises
        ------
        ScaleModelError : `points` is no whole number from 2.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=500, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=8)
        >>> table = plan.simulate(requests=500).occupancy(points=50)
        >>> len(table), bool((table.cache_fraction <= 1).all())
        (50, True)
        """
        import pandas as pd

        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise ScaleModelError(f"points={points!r}: must be a whole number from 2")
        kept = ~self.refused
        stream = self.stream
        begin = float(stream.arrival_s[0])
        arrived, started = stream.arrival_s[kept] - begin, self.started_s[kept] - begin
        first, last = self.first_token_s[kept] - begin, self.finished_s[kept] - begin
        prompts, answers = stream.input_tokens[kept], stream.output_tokens[kept]
        times = np.linspace(0.0, float(last.max(initial=0.0)), points)
        # An answer of one token ends as it begins: nothing grows.
        rate = np.where(last > first, answers / np.where(last > first, last - first, 1.0), 0.0)

        def during(since: Column, until: Column) -> Column:
            entered = np.searchsorted(np.sort(since), times, side="right")
            left = np.searchsorted(np.sort(until), times, side="right")
            return np.asarray(entered - left, dtype=float)

        def total(at: Column, amount: Column) -> Column:
            order = np.argsort(at, kind="stable")
            sums = np.concatenate([[0.0], np.cumsum(amount[order])])
            return np.asarray(sums[np.searchsorted(at[order], times, side="right")])

        # Sum over requests of rate (time - first token), between first token and end.
        tokens = total(started, prompts) - total(last, prompts)
        tokens += times * (total(first, rate) - total(last, rate))
        tokens -= total(first, rate * first) - total(last, rate * first)
        tokens = np.clip(tokens, 0.0, self.cache_tokens)
        return pd.DataFrame(
            {
                "time_s": times,
                "running": during(first, last),
                "waiting": during(arrived, started),
                "cached_tokens": tokens,
                "cache_fraction": tokens / self.cache_tokens,
            }
        )

    def summary(self) -> dict[str, float]:
        """Rates, means and percentiles of the requests that were served.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=500, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=8)
        >>> found = plan.simulate(requests=500).summary()
        >>> found["ttft_p99_s"] >= found["ttft_median_s"] > 0
        True
        """
        kept = ~self.refused
        frame, totals = self.requests[kept], self.totals
        span = totals.makespan_s
        found = {
            "requests": float(kept.sum()),
            "refused": float(self.refused.sum()),
            "preemptions": totals.preemptions,
            "makespan_s": span,
            "requests_per_s": float(kept.sum()) / span,
            "output_tokens_per_s": float(frame["output_tokens"].sum()) / span,
            "concurrency": totals.running_s / span,
            "in_system": totals.in_system_s / span,
            "itl_median_s": totals.itl_median_s,
            "itl_p90_s": totals.itl_p90_s,
            "itl_p99_s": totals.itl_p99_s,
        }
        for name in ("ttft", "tpot", "latency"):
            times = frame[f"{name}_s"].to_numpy()
            if not times.size:
                continue
            found[f"{name}_mean_s"] = float(times.mean())
            for label, share in (("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
                found[f"{name}_{label}_s"] = float(np.quantile(times, share))
        return found


def run_stream(
    instance: _core.Instance,
    mix: _core.RequestMix,
    stream: RequestStream,
    replicas: int,
    *,
    prefilled: bool = False,
    balance: Balance = "random",
    seed: int = 0,
    progress: Progress = None,
) -> ServedStream:
    """Serves a stream on copies of one instance, spread as `balance` says."""
    if balance not in _BALANCES:
        raise ScaleModelError(f"balance={balance!r}: must be one of {', '.join(_BALANCES)}")
    with watched(progress, len(stream), " requests") as tell:
        served, totals = instance.simulate(
            mix,
            stream.arrival_s,
            stream.input_tokens,
            stream.output_tokens,
            replicas,
            prefilled,
            balance,
            seed,
            tell,
        )
    capacity = instance.capacity(mix.input_tokens, mix.output_tokens)
    length = mix.input_tokens + mix.output_tokens
    return ServedStream(
        stream,
        served[:, 0],
        served[:, 1],
        served[:, 2],
        served[:, 3],
        served[:, 4] > 0,
        totals,
        replicas * capacity.cached_sequences * length,
    )
