"""Traffic like a trace's: fitted to it, kept in a small file, drawn at any rate and length."""

from __future__ import annotations

import bisect
import json
import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from scalemodel.base.columns import random_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.base.reading import read_json
from scalemodel.base.text import time_text
from scalemodel.base.words import named_arguments
from scalemodel.serving.traces.columns import Floats, Whole, gathered, renumbered
from scalemodel.serving.traces.sessions import turns_of
from scalemodel.serving.traces.trace import Trace

_FORMAT = "scalemodel traffic 1"
_REQUESTS_PER_BIN = 200  # a rate from fewer arrivals is mostly chance
_MOST_BINS = 96  # quarters of an hour of a day
_LEAST_RATE = 1e-6  # of a bin without arrivals, over the mean
_MOST_SESSIONS = 4096
_MOST_TURNS = 20_000
_MOST_REQUESTS = 10_000_000
_CANDIDATES = 64  # requests near the drawn one, among which a prompt long enough is looked for
_TURN_COLUMNS = ("gap_s", "input_tokens", "output_tokens", "reused_blocks", "lag")


@dataclass(frozen=True, eq=False, repr=False)
class TrafficProfile:
    """What traffic is like, without any request's content. Made by `fit_traffic`.

    Attributes
    ----------
    span_s, requests_per_s : float
        Of the trace it was fitted to.
    rate : array of float
        Over equal parts of the span, relative to the mean. Longer draws repeat it.
    tie_fraction : float
        Requests that come with the one before, such as those of a batch or of a coarse clock.
    gap_cv : float
        Coefficient of variation of the other gaps, which are gamma distributed, where time runs as
        fast as the rate.
    turn_counts : array of int64
        Of a sample of sessions, stratified by turns and prompts.
    turns : dict of str to array
        Of the turns of these sessions one after the other: gap_s (since the turn before),
        input_tokens, output_tokens, reused_blocks (that an endless cache held), lag (requests since
        the last of those was used; 0: by the turn before), tool_wait_s where the trace has it.
    block_tokens : int
        0 where the trace has no blocks.

    Examples
    --------
    >>> profile = fit_traffic(Trace([0.0, 1.0, 4.0], [9, 8, 7], [1, 2, 3]))
    >>> profile.span_s, profile.turns["input_tokens"].tolist()
    (4.0, [7.0, 8.0, 9.0])
    """

    span_s: float
    requests_per_s: float
    rate: Floats
    tie_fraction: float
    gap_cv: float
    turn_counts: Whole
    turns: dict[str, Floats]
    block_tokens: int = 0

    def __repr__(self) -> str:
        return (
            f"TrafficProfile({self.requests_per_s:.4g} requests a second in {self.rate.size} parts "
            f"of {time_text(self.span_s)}, {self.turn_counts.size:,} sessions of "
            f"{self.turn_counts.mean():.3g} turns)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrafficProfile) and self._document() == other._document()

    def __hash__(self) -> int:
        return hash((self.span_s, self.requests_per_s, self.turn_counts.tobytes()))

    # -------------------------------------------------------------------------------------- drawing
    def draw(
        self,
        requests: int | None = None,
        *,
        span_s: float | None = None,
        rate: float | None = None,
        seed: int = 0,
    ) -> Trace:
        """A new trace of such traffic.

        Arrivals follow the rate over the span with gamma gaps, as many and in as much time as is
        asked. Whole sessions are drawn from the sample, with their lengths and waits, so that
        lengths of a request and of its turns belong together; their requests take the arrivals in
        order. A prompt repeats as many blocks as the sampled one did, of the turn before or of a
        request as many places back, and goes on with new ones.

        Parameters
        ----------
        requests : int, optional
        span_s : float, optional
        rate : float, optional
            Requests per second. Of the three at most two; default: rate and span of the trace.
        seed : int

        Raises
        ------
        ScaleModelError : a number out of range, or all three.

        Examples
        --------
        >>> trace = Trace([0.0, 1.0, 3.0, 4.0], [9, 8, 7, 6], [1, 2, 3, 4])
        >>> fit_traffic(trace).draw(requests=100, rate=5.0)
        Trace(100 requests over 20.0 s, 5 a second, ...)
        """
        count, span = self._extent(requests, span_s, rate)
        random = random_of(seed)
        arrival = self._arrivals(count, span, random)
        starts = np.concatenate([[0], np.cumsum(self.turn_counts)])
        drawn = self._sessions(count, random)
        sizes = self.turn_counts[drawn]
        kept = int(np.searchsorted(np.cumsum(sizes), count)) + 1
        drawn, sizes = drawn[:kept], sizes[:kept]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        session = np.repeat(np.arange(kept), sizes)[:count]
        turn = (np.arange(ends[-1]) - np.repeat(ends[:-1], sizes))[:count]
        rows = starts[drawn][session] + turn
        when = self._tentative(session, turn, self.turns["gap_s"][rows], span, random)
        order = np.lexsort((turn, session, when))
        session, turn, rows = session[order], turn[order], rows[order]
        # Sessions in order of their first request, as a reader numbers them.
        _, first, place = np.unique(session, return_index=True, return_inverse=True)
        session = np.argsort(np.argsort(first))[place.reshape(-1)]
        columns: dict[str, Any] = {}
        if self.block_tokens:
            offsets, ids = self._blocks(session, rows, random)
            columns = {"block_offsets": offsets, "block_ids": ids}
            columns["block_tokens"] = self.block_tokens
        if "tool_wait_s" in self.turns:
            columns["tool_wait_s"] = self.turns["tool_wait_s"][rows]
        if self.turn_counts.max() > 1:
            columns |= {"session": session, "turn": turn}
        return Trace(
            arrival, self.turns["input_tokens"][rows], self.turns["output_tokens"][rows], **columns
        )

    def _sessions(self, count: int, random: np.random.Generator) -> npt.NDArray[np.intp]:
        """Places in the sample of sessions of that many requests.

        All of it in random order, then again, so that rare long ones come as often as they should.
        """
        rounds = count // int(self.turn_counts.sum()) + 1
        sample = self.turn_counts.size
        return np.concatenate([random.permutation(sample) for _ in range(rounds)])

    def _extent(
        self, requests: int | None, span_s: float | None, rate: float | None
    ) -> tuple[int, float]:
        """How many requests in how much time."""
        if None not in (requests, span_s, rate):
            raise ScaleModelError("requests, span_s, rate: must be two of them at most")
        for name, value in (("span_s", span_s), ("rate", rate)):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise ScaleModelError(f"{name}={value!r}: must be a number above 0")
        whole = isinstance(requests, int) and not isinstance(requests, bool)
        if requests is not None and not (whole and 1 <= requests <= _MOST_REQUESTS):
            raise ScaleModelError(f"requests={requests!r}: must be a whole number from 1 to 1e7")
        each = self.requests_per_s if rate is None else rate
        if requests is None:
            span = self.span_s if span_s is None else span_s
            count = max(1, round(each * span))
            if count > _MOST_REQUESTS:
                raise ScaleModelError(
                    f"rate={each:g} over {span:g} s: must be at most 1e7 requests"
                )
            return count, span
        return requests, requests / each if span_s is None else span_s

    def _arrivals(self, count: int, span: float, random: np.random.Generator) -> Floats:
        gaps = np.ones(count)
        if self.gap_cv > 0:
            gaps = random.gamma(1 / self.gap_cv**2, self.gap_cv**2, count)
        gaps[random.uniform(size=count) < self.tie_fraction] = 0.0
        gaps[0] = 0.0
        sums = np.cumsum(gaps)
        share = sums / sums[-1] if sums[-1] > 0 else np.linspace(0, 1, count)
        width = self.span_s / self.rate.size
        edges = np.minimum(np.arange(math.ceil(span / width - 1e-9) + 1) * width, span)
        weights = np.resize(np.maximum(self.rate, _LEAST_RATE), edges.size - 1) * np.diff(edges)
        passed = np.concatenate([[0.0], np.cumsum(weights)])
        return np.asarray(np.interp(share, passed / passed[-1], edges))

    def _tentative(
        self, session: Whole, turn: Whole, gaps: Floats, span: float, random: np.random.Generator
    ) -> Floats:
        """Times that put the requests of all sessions in order, each session within the span."""
        since = np.cumsum(np.where(turn > 0, gaps, 0.0))
        since -= np.maximum.accumulate(np.where(turn == 0, since, 0.0))
        count = int(session[-1]) + 1
        length = np.zeros(count)
        np.maximum.at(length, session, since)
        starts = self._arrivals(count + 1, span, random)[1:]
        random.shuffle(starts)
        late = starts + length > span
        room = np.maximum(0.0, span - length[late])
        starts[late] = random.uniform(size=int(late.sum())) * room
        return np.asarray(starts[session] + since)

    def _blocks(
        self, session: Whole, rows: npt.NDArray[np.intp], random: np.random.Generator
    ) -> tuple[Whole, npt.NDArray[np.uint64]]:
        """Prefix blocks of requests in order of arrival."""
        tokens = self.turns["input_tokens"][rows].astype(np.int64)
        sizes = -(-tokens // self.block_tokens)
        full = (tokens // self.block_tokens).tolist()
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        # All blocks are new, then those that are repeated are copied over, oldest prompt first.
        ids = np.arange(offsets[-1], dtype=np.uint64)
        lags = self.turns["lag"][rows]
        # The part of all requests with another that many places before, here and in the trace.
        here = np.maximum(0.0, 1 - lags / rows.size)
        there = np.maximum(1 / self._requests, 1 - lags / self._requests)
        young = random.uniform(size=rows.size) >= here / there
        reused = np.where((lags > 0) & young, 0.0, self.turns["reused_blocks"][rows])
        begin, size, known = offsets.tolist(), sizes.tolist(), _Prompts()
        before = [-1] * (int(session.max()) + 1)
        for row, (whose, wanted, lag) in enumerate(
            zip(
                session.tolist(),
                reused.astype(int).tolist(),
                lags.astype(int).tolist(),
                strict=True,
            )
        ):
            parent = before[whose]
            if lag and wanted:
                parent = known.nearest(row - 1 - (lag - 1) % row, wanted) if row else -1
            before[whose] = row
            known.add(full[row])
            if parent >= 0 and wanted:
                taken = min(wanted, size[row], full[parent] if lag else size[parent])
                at, source = begin[row], begin[parent]
                ids[at : at + taken] = ids[source : source + taken]
        return offsets, ids

    @property
    def _requests(self) -> float:
        """Requests of the trace it was fitted to."""
        return self.requests_per_s * self.span_s

    # ---------------------------------------------------------------------------------------- files
    def _document(self) -> dict[str, Any]:
        def short(column: npt.NDArray[Any]) -> list[float]:
            return [int(x) if x == int(x) else x for x in column.tolist()]

        return {
            "format": _FORMAT,
            "span_s": self.span_s,
            "requests_per_s": self.requests_per_s,
            "tie_fraction": self.tie_fraction,
            "gap_cv": self.gap_cv,
            "block_tokens": self.block_tokens,
            "rate": short(self.rate),
            "turn_counts": self.turn_counts.tolist(),
            "turns": {name: short(column) for name, column in self.turns.items()},
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the profile to a small JSON file: numbers alone, no name, no id, no date."""
        with replacing(path) as draft:
            draft.write_text(json.dumps(self._document()) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> TrafficProfile:
        """Reads what `write` wrote.

        Raises
        ------
        ScaleModelError : the file holds no profile, or numbers that none can have.
        """
        document = read_json(path)
        if document.get("format") != _FORMAT:
            raise ScaleModelError(
                f"{os.fspath(path)}: format={document.get('format')!r}: must be {_FORMAT!r}"
            )
        try:
            found = cls(
                float(document["span_s"]),
                float(document["requests_per_s"]),
                np.array(document["rate"], dtype=np.float64),
                float(document["tie_fraction"]),
                float(document["gap_cv"]),
                np.array(document["turn_counts"], dtype=np.int64),
                {str(k): np.array(v, dtype=np.float64) for k, v in document["turns"].items()},
                int(document["block_tokens"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ScaleModelError(f"{os.fspath(path)}: no traffic profile ({error!r})") from None
        found._check(os.fspath(path))
        return found

    def _check(self, where: str) -> None:
        """Refuses numbers that no fit can have given."""
        turns = int(self.turn_counts.sum()) if self.turn_counts.ndim == 1 else -1
        columns = [self.turns.get(name, np.zeros(0)) for name in _TURN_COLUMNS]
        columns += [column for name, column in self.turns.items() if name not in _TURN_COLUMNS]
        legal = {
            "span_s": 0 < self.span_s < math.inf,
            "requests_per_s": 0 < self.requests_per_s < math.inf,
            "tie_fraction": 0 <= self.tie_fraction < 1,
            "gap_cv": 0 <= self.gap_cv < math.inf,
            "block_tokens": 0 <= self.block_tokens <= 10**6,
            "rate": self.rate.ndim == 1 and self.rate.size > 0 and bool((self.rate >= 0).all()),
            "turn_counts": turns > 0 and bool((self.turn_counts > 0).all()),
            "turns": all(
                column.shape == (turns,) and bool((np.isfinite(column) & (column >= 0)).all())
                for column in columns
            ),
        }
        for name, good in legal.items():
            if not good:
                raise ScaleModelError(f"{where}: {name}: must be numbers as `fit_traffic` gives")


class _Prompts:
    """Full blocks of the prompts so far, to find those that have as many as are wanted."""

    def __init__(self) -> None:
        self._full: list[int] = []
        self._long: list[list[int]] = []  # rows of at least 1, 2, 4, 8, ... full blocks

    def add(self, full: int) -> None:
        """The next prompt."""
        for power in range(full.bit_length()):
            if power == len(self._long):
                self._long.append([])
            self._long[power].append(len(self._full))
        self._full.append(full)

    def nearest(self, middle: int, wanted: int) -> int:
        """A row near `middle` whose prompt has the wanted blocks.

        Else one that has half of them, or one of the longest there are.
        """
        full, size = self._full, len(self._full)
        for step in range(_CANDIDATES):
            for row in (middle - step, middle + step):
                if 0 <= row < size and full[row] >= wanted:
                    return row
        for power in ((wanted - 1).bit_length(), wanted.bit_length() - 1, len(self._long) - 1):
            if 0 <= power < len(self._long):
                rows = self._long[power]
                place = bisect.bisect(rows, middle)
                return rows[max(0, place - 1)]
        return -1


def _reuse(trace: Trace, session: Whole) -> tuple[Floats, Floats]:
    """Blocks of each prompt that an endless cache holds, and how long ago it got them.

    Counted in requests since the last of the blocks was used; 0 where the turn before had them.
    """
    size = len(trace)
    reused, lags = np.zeros(size), np.zeros(size)
    if trace.block_offsets is None or trace.block_ids is None:
        return reused, lags
    ends, ids = trace.block_offsets.tolist(), trace.block_ids.tolist()
    used: dict[int, int] = {}
    before = dict[int, int]()
    for row, whose in enumerate(session.tolist()):
        blocks = ids[ends[row] : ends[row + 1]]
        hits = next((n for n, block in enumerate(blocks) if block not in used), len(blocks))
        if hits:
            last = before.get(whose, -1)
            turn = ids[ends[last] : ends[last + 1]] if last >= 0 else []
            shared = len(turn) >= hits and turn[hits - 1] == blocks[hits - 1]
            reused[row], lags[row] = hits, 0 if shared else row - used[blocks[hits - 1]]
        used.update(dict.fromkeys(blocks, row))
        before[whose] = row
    return reused, lags


def _arrival_process(arrival_s: Floats) -> tuple[Floats, float, float]:
    """Relative rate of equal parts of the span, share of ties, variation of the other gaps."""
    count = arrival_s.size
    bins = max(1, min(_MOST_BINS, count // _REQUESTS_PER_BIN))
    counts, edges = np.histogram(arrival_s, bins=bins)
    passed = np.concatenate([[0], np.cumsum(counts)])
    gaps = np.diff(np.interp(arrival_s, edges, passed))
    ties = np.diff(arrival_s) == 0
    others = gaps[~ties]
    variation = float(others.std() / others.mean()) if others.size and others.mean() > 0 else 0.0
    return counts * (bins / count), float(ties.mean()) if ties.size else 0.0, variation


@named_arguments
def fit_traffic(trace: Trace) -> TrafficProfile:
    """What the traffic of a trace is like, to draw as much of it as is wanted.

    Parameters
    ----------
    trace : Trace
        With its sessions, or with blocks that tell them; else every request is one of its own.

    Returns
    -------
    TrafficProfile
        Anonymous and small: a rate over time, two numbers of the gaps, and lengths, waits and
        reused blocks of at most 4,096 sessions. Drawn traces repeat mean rate, variation of gaps,
        lengths and their correlation, turns, and the share of prompts that a cache without limit
        holds; what a small cache holds follows roughly. Where gaps depend on each other, as those
        of a coarse clock do, counts in windows vary more than they did.

    Raises
    ------
    ScaleModelError : a trace in which all requests come at once.

    Examples
    --------
    >>> times = np.arange(400.0)
    >>> profile = fit_traffic(Trace(times, 100 + times, np.full(400, 7)))
    >>> profile
    TrafficProfile(1.003 requests a second in 2 parts of 399 s, 400 sessions of 1 turns)
    >>> len(profile.draw(rate=3.0, span_s=100.0))
    300
    """
    if not isinstance(trace, Trace):
        raise ScaleModelError(f"trace={type(trace).__name__}: must be a Trace, see `read_trace`")
    span = float(trace.arrival_s[-1] - trace.arrival_s[0])
    if not span > 0:
        raise ScaleModelError("trace: must last some time; all its requests come at once")
    rate, ties, variation = _arrival_process(trace.arrival_s)
    groups, count = renumbered(trace.groups)
    reused, lags = _reuse(trace, groups)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups, minlength=count)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    gaps = np.concatenate([[0.0], np.diff(trace.arrival_s[order])])
    gaps[turns_of(groups)[order] == 0] = 0.0
    # Every so-manieth of the sessions in order of turns and first prompts: a stratified sample.
    sorted_sessions = np.lexsort((trace.input_tokens[order][starts[:-1]], sizes))
    most = max(1, min(count, _MOST_SESSIONS, int(_MOST_TURNS / sizes.mean())))
    picked = sorted_sessions[((np.arange(most) + 0.5) * count / most).astype(np.int64)]
    _, places = gathered(starts, order.astype(np.uint64), picked)
    rows = places.astype(np.intp)
    turns = {
        "gap_s": gaps[np.argsort(order)][rows],
        "input_tokens": trace.input_tokens[rows],
        "output_tokens": trace.output_tokens[rows],
        "reused_blocks": reused[rows],
        "lag": lags[rows],
    }
    if trace.tool_wait_s is not None:
        turns["tool_wait_s"] = trace.tool_wait_s[rows]
    return TrafficProfile(
        span,
        trace.requests_per_s,
        rate,
        ties,
        variation,
        sizes[picked].astype(np.int64),
        turns,
        trace.block_tokens,
    )
