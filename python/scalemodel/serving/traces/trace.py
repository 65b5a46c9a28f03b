"""A trace of requests: when they came, how long they were, what their prompts share."""

from __future__ import annotations

import html
import math
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.base.columns import numbers_of, random_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import time_text
from scalemodel.serving.schedule import PrefixHits
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.traces import statistics
from scalemodel.serving.traces.columns import (
    Floats,
    Ids,
    Whole,
    first_fault,
    gathered,
    renumbered,
    row_of,
    whole_column,
)
from scalemodel.serving.traces.sessions import sessions_of_blocks, turns_of
from scalemodel.serving.traces.writing import write_columns

_MOST_BLOCKS = 10**8  # of a cache
_MOST_REQUESTS = 10**9
# Copies of a session move by at most this part of the trace, and at most so long: a burst becomes
# several, the rate over the day stays.
_SHIFT_FRACTION = 0.02
_MOST_SHIFT_S = 1800.0
#: A block in at least this part of the sessions, and in three, belongs to the application (a
#: system prompt), not to its user: copies of sessions share it.
_COMMON_FRACTION = 0.01
_FEWEST_COMMON = 3


@dataclass(frozen=True, eq=False, repr=False)
class Trace(RequestStream):
    """Requests as they were recorded, in order of arrival. Made by `read_trace`.

    Anything that takes a `RequestStream` takes it, such as `Serving.simulate(stream=)`.

    Attributes
    ----------
    arrival_s, input_tokens, output_tokens : array of float, equally long
    session : array of int64, optional
        Equal number, equal session: turns of one conversation or agent.
    turn : array of int64, optional
        Within the session, from 0; counted where only sessions are given.
    tool_wait_s : array of float, optional
        From the end of the previous turn's answer to this request: a tool that runs, a user who
        reads. 0 for first turns.
    tenant : array of int32, optional
    block_offsets : array of int64, optional
        Where the blocks of each prompt begin in `block_ids`, and the end of the last.
    block_ids : array of uint64, optional
        Equal id, equal prefix up to and including that block.
    block_tokens : int
        Of each block, the last of a prompt excepted, which may be partial; 0 without blocks.
    dropped : int
        Failed requests of the file that were left out.

    Examples
    --------
    >>> Trace([0.0, 0.5, 2.0], [100, 200, 300], [10, 20, 30], session=[0, 1, 0])
    Trace(3 requests over 2.00 s, 1.5 a second, 200 + 20 tokens, 2 sessions)
    """

    session: Whole | None = None
    turn: Whole | None = None
    tool_wait_s: Floats | None = None
    tenant: npt.NDArray[np.int32] | None = None
    block_offsets: Whole | None = None
    block_ids: Ids | None = None
    block_tokens: int = 0
    dropped: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = len(self)
        for name in ("input_tokens", "output_tokens"):
            if getattr(self, name).size != size:
                raise ScaleModelError(f"{name}: must be as long as arrival_s, {size:,} numbers")
        fault = first_fault(self.arrival_s, self.input_tokens, self.output_tokens)
        if fault is not None:
            row, name, legal = fault
            raise ScaleModelError(f"{name}[{row}]={getattr(self, name)[row]:g}: {legal}")
        for name, kind in (("session", np.int64), ("turn", np.int64), ("tenant", np.int32)):
            if getattr(self, name) is not None:
                column = whole_column(name, getattr(self, name), size, kind)
                object.__setattr__(self, name, column)
        self._check_sessions()
        self._check_blocks()

    def _check_sessions(self) -> None:
        if self.session is None:
            for name in ("turn", "tool_wait_s"):
                if getattr(self, name) is not None:
                    raise ScaleModelError(f"{name}: needs the column session")
            return
        if self.turn is None:
            object.__setattr__(self, "turn", turns_of(self.session))
        if self.tool_wait_s is not None:
            waits = numbers_of("tool_wait_s", self.tool_wait_s)
            if waits.shape != (len(self),) or not (np.isfinite(waits) & (waits >= 0)).all():
                raise ScaleModelError("tool_wait_s: must be seconds from 0, one of each request")
            object.__setattr__(self, "tool_wait_s", waits)

    def _check_blocks(self) -> None:
        given = (self.block_offsets is not None, self.block_ids is not None, self.block_tokens != 0)
        if not any(given):
            return
        if not all(given):
            raise ScaleModelError(
                "block_offsets, block_ids, block_tokens: must be given together, or none of them"
            )
        tokens = self.block_tokens
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 10**6:
            raise ScaleModelError(f"block_tokens={tokens!r}: must be a whole number from 1 to 1e6")
        offsets = whole_column("block_offsets", self.block_offsets, len(self) + 1)
        ids = np.ascontiguousarray(self.block_ids)
        if ids.ndim != 1 or ids.dtype.kind not in "iu" or (ids.size and ids.min() < 0):
            raise ScaleModelError("block_ids: must be a column of whole numbers from 0")
        if offsets[0] != 0 or offsets[-1] != ids.size or (np.diff(offsets) < 0).any():
            raise ScaleModelError(
                f"block_offsets: must rise from 0 to the {ids.size:,} block_ids there are"
            )
        if (np.diff(offsets) > -(-self.input_tokens // tokens)).any():
            raise ScaleModelError("block_ids: must be no more blocks than the prompt has")
        object.__setattr__(self, "block_offsets", offsets)
        object.__setattr__(self, "block_ids", ids.astype(np.uint64, copy=False))

    # -------------------------------------------------------------------------------- description
    def __repr__(self) -> str:
        return f"Trace({', '.join(self._facts())})"

    def _facts(self) -> list[str]:
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        facts = [f"{len(self):,} requests over {time_text(span)}"]
        if span > 0:
            facts.append(f"{self.requests_per_s:.4g} a second")
        facts.append(f"{self.input_tokens.mean():.4g} + {self.output_tokens.mean():.4g} tokens")
        if self.session is not None:
            facts.append(f"{np.unique(self.session).size:,} sessions")
        if self.block_ids is not None:
            facts.append(f"{self.block_ids.size:,} blocks of {self.block_tokens}")
        if self.dropped:
            facts.append(f"{self.dropped:,} failed ones left out")
        return facts

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in statistics.text_of(self.summary())
        )
        return f"<p>{html.escape(', '.join(self._facts()))}</p><table>{rows}</table>"

    def summary(self) -> dict[str, float]:
        """Rates, burstiness, lengths and shared prefixes; nothing that tells of one request.

        `gap_cv` is the coefficient of variation of the gaps between arrivals, `dispersion` the
        variance over the mean of the arrivals in windows of `dispersion_window_s` (both 1 at
        random), `length_correlation` Spearman's of input and output lengths, `hit_fraction` the
        share of input tokens that a cache without limit holds. Sessions are those given, else those
        that prefixes tell (`with_sessions`).

        Examples
        --------
        >>> trace = Trace([0.0, 1.0, 3.0], [64, 64, 32], [8, 8, 8], block_offsets=[0, 2, 4, 5],
        ...               block_ids=[1, 2, 1, 3, 1], block_tokens=32)
        >>> round(trace.summary()["hit_fraction"], 3)
        0.4
        """
        found = statistics.arrival_statistics(self.arrival_s)
        if self.dropped:
            found["failed_requests"] = float(self.dropped)
        found |= statistics.length_statistics("input_tokens", self.input_tokens)
        found |= statistics.length_statistics("output_tokens", self.output_tokens)
        found["length_correlation"] = statistics.rank_correlation(
            self.input_tokens, self.output_tokens
        )
        if self.session is not None or self.block_ids is not None:
            found |= statistics.session_statistics(self.arrival_s, self.groups)
        if self.tool_wait_s is not None and self.turn is not None and (self.turn > 0).any():
            found["tool_wait_median_s"] = float(np.median(self.tool_wait_s[self.turn > 0]))
        if self.tenant is not None:
            found["tenants"] = float(np.unique(self.tenant).size)
        if self.block_offsets is not None and self.block_ids is not None:
            found["hit_fraction"] = self.prefix_hits().fraction
            found |= statistics.tree_statistics(self.block_offsets, self.block_ids)
        return found

    # -------------------------------------------------------------------------- shared prefixes
    def prefix_hits(self, blocks: int | None = None) -> PrefixHits:
        """How much of the prompts a cache would hold, one request after the other.

        As `scalemodel.prefix_hits` counts it; without blocks of the prompts nothing is shared.

        Parameters
        ----------
        blocks : int, optional
            Of the cache, of `block_tokens` tokens; without it, no limit.

        Examples
        --------
        >>> trace = Trace([0.0, 1.0], [64, 64], [8, 8], block_offsets=[0, 2, 4],
        ...               block_ids=[1, 2, 1, 3], block_tokens=32)
        >>> trace.prefix_hits().fraction, trace.prefix_hits(blocks=1).fraction
        (0.25, 0.0)
        """
        if self.block_offsets is None or self.block_ids is None:
            return PrefixHits(int(self.input_tokens.sum()), 0, 0, 0)
        whole = isinstance(blocks, int) and not isinstance(blocks, bool)
        if blocks is not None and (not whole or not 1 <= blocks <= _MOST_BLOCKS):
            raise ScaleModelError(f"blocks={blocks!r}: must be a whole number from 1 to 1e8")
        everything = int((-(-self.input_tokens // self.block_tokens)).sum())
        found = _core.prefix_hits(
            everything if blocks is None else min(blocks, everything),
            self.block_tokens,
            self.arrival_s - self.arrival_s[0],
            self.input_tokens.astype(np.int64),
            self.output_tokens.astype(np.int64),
            self.block_ids,
            self.block_offsets[1:],
            self.block_tokens,
        )
        return PrefixHits(*found)

    @cached_property
    def groups(self) -> Whole:
        """The session of every request: given, else told by prefixes, else one of each request."""
        if self.session is not None:
            return self.session
        if self.block_offsets is None or self.block_ids is None:
            return np.arange(len(self))
        tokens = self.input_tokens.astype(np.int64)
        return sessions_of_blocks(self.block_offsets, self.block_ids, tokens, self.block_tokens)

    def with_sessions(self) -> Trace:
        """The trace with the sessions that its prefixes tell; as it is where they are given.

        A request is the next turn of a session if its prompt begins with all full blocks of the
        session's last prompt, the last of which no other session had before. Shared beginnings such
        as system prompts make no session. Without blocks every request is one of its own.

        Examples
        --------
        >>> trace = Trace([0.0, 9.0], [64, 96], [8, 8], block_offsets=[0, 2, 5],
        ...               block_ids=[1, 2, 1, 2, 3], block_tokens=32)
        >>> trace.with_sessions().turn.tolist()
        [0, 1]
        """
        return self if self.session is not None else replace(self, session=self.groups)

    # ------------------------------------------------------------------------------------ changes
    def chosen(self, rows: npt.NDArray[np.intp], start_s: float = 0.0) -> Trace:
        """Some of the requests, by their places; arrivals are counted from `start_s`."""
        columns: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in ("session", "turn", "tool_wait_s", "tenant")
        }
        if self.block_offsets is not None and self.block_ids is not None:
            offsets, ids = gathered(self.block_offsets, self.block_ids, rows)
            columns |= {"block_offsets": offsets, "block_ids": ids}
            columns["block_tokens"] = self.block_tokens
        return Trace(
            self.arrival_s[rows] - start_s,
            self.input_tokens[rows],
            self.output_tokens[rows],
            **columns,
        )

    def window(self, start_s: float, end_s: float) -> Trace:
        """The requests that came from `start_s` on and before `end_s`, their time from `start_s`.

        Raises
        ------
        ScaleModelError : no request came then.

        Examples
        --------
        >>> Trace([0.0, 5.0, 7.0], [1, 2, 3], [1, 1, 1]).window(5, 8).arrival_s.tolist()
        [0.0, 2.0]
        """
        low, high = np.searchsorted(self.arrival_s, (start_s, end_s), side="left")
        if not high > low:
            raise ScaleModelError(
                f"window({start_s!r}, {end_s!r}): must hold a request; the trace goes from "
                f"{self.arrival_s[0]:g} to {self.arrival_s[-1]:g} s"
            )
        return self.chosen(np.arange(low, high), float(start_s))

    def scaled(self, rate: float, *, seed: int = 0) -> Trace:
        """`rate` times the traffic in the same time: as many more users, not longer requests.

        Less traffic is a choice of sessions at random (thinning), all turns of each. More is the
        trace and copies of its sessions (superposition), the last copy thinned; each copied session
        is moved by a time of its own, up to 2 % of the trace and half an hour, so that a burst does
        not become a burst of twice the size and the rate over the day stays. Copies share the
        blocks that 1 % of the sessions have, such as system prompts; their other blocks are new.
        Lengths, turns and waits stay as they are: to shorten all gaps would also shorten the time
        that users read and tools run, and to lengthen requests would ask another question.

        Parameters
        ----------
        rate : float
            Above 0; 2 is twice the traffic.
        seed : int

        Examples
        --------
        >>> trace = Trace([0.0, 5.0, 7.0, 9.0], [1, 2, 3, 4], [1, 1, 1, 1])
        >>> len(trace.scaled(rate=2.0)), len(trace.scaled(rate=0.5))
        (8, 2)
        """
        number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if not number or not 0 < rate < math.inf:
            raise ScaleModelError(f"rate={rate!r}: must be a number above 0")
        if rate * len(self) > _MOST_REQUESTS:
            raise ScaleModelError(f"rate={rate!r}: must give at most 1e9 requests")
        random = random_of(seed)
        copies = int(rate)
        parts = [np.arange(len(self))] * copies
        if rate > copies:
            parts.append(self._thinned(rate - copies, random))
        rows = np.concatenate(parts)
        copy = np.repeat(np.arange(len(parts)), [part.size for part in parts])
        return self._copied(rows, copy, random)

    def _thinned(self, fraction: float, random: np.random.Generator) -> npt.NDArray[np.intp]:
        """Places of whole sessions at random with `fraction` of the requests, one at least."""
        numbers, count = renumbered(self.groups)
        order = random.permutation(count)
        sums = np.cumsum(np.bincount(numbers, minlength=count)[order])
        taken = max(1, int(np.argmin(np.abs(sums - fraction * len(self)))) + 1)
        kept = np.zeros(count, dtype=bool)
        kept[order[:taken]] = True
        return np.flatnonzero(kept[numbers])

    def _copied(
        self, rows: npt.NDArray[np.intp], copy: npt.NDArray[np.intp], random: np.random.Generator
    ) -> Trace:
        """Requests and numbered copies of them, which are moved and have prefixes of their own."""
        groups, sessions = renumbered(self.groups)
        moved = np.stack([self._shifts(groups, sessions, random) for _ in range(copy.max() + 1)])
        moved[0] = 0.0
        arrival = self.arrival_s[rows] + moved[copy, groups[rows]]
        order = np.argsort(arrival, kind="stable")
        rows, copy, arrival = rows[order], copy[order], arrival[order]
        columns: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in ("turn", "tool_wait_s", "tenant")
        }
        if self.session is not None:
            columns["session"] = groups[rows] + copy * sessions
        if self.block_offsets is not None and self.block_ids is not None:
            ids, common = self._common_blocks(groups, sessions)
            offsets, chosen = gathered(self.block_offsets, ids.astype(np.uint64), rows)
            whose = np.repeat(copy, np.diff(offsets))
            own = ~common[chosen.astype(np.int64)]
            chosen += (whose * own * common.size).astype(np.uint64)
            columns |= {"block_offsets": offsets, "block_ids": chosen}
            columns["block_tokens"] = self.block_tokens
        return Trace(arrival, self.input_tokens[rows], self.output_tokens[rows], **columns)

    def _shifts(self, groups: Whole, sessions: int, random: np.random.Generator) -> Floats:
        """Seconds by which each session moves; none of its turns leaves the trace."""
        start, end = float(self.arrival_s[0]), float(self.arrival_s[-1])
        most = min(_MOST_SHIFT_S, _SHIFT_FRACTION * (end - start))
        first, last = np.full(sessions, np.inf), np.full(sessions, -np.inf)
        np.minimum.at(first, groups, self.arrival_s)
        np.maximum.at(last, groups, self.arrival_s)
        return random.uniform(np.maximum(start - first, -most), np.minimum(end - last, most))

    def _common_blocks(self, groups: Whole, sessions: int) -> tuple[Whole, npt.NDArray[np.bool_]]:
        """Blocks as numbers from 0, and of each number whether many sessions have the block."""
        assert self.block_offsets is not None
        ids, count = renumbered(self.block_ids if self.block_ids is not None else np.zeros(0, int))
        pairs = np.unique(ids * sessions + groups[row_of(self.block_offsets)])
        holders = np.bincount(pairs // sessions, minlength=count)
        return ids, holders >= max(_FEWEST_COMMON, _COMMON_FRACTION * sessions)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace to a file that `read_trace` reads, in the project's own columns.

        Parameters
        ----------
        path : path
            Ends in ``.jsonl``, ``.csv`` (either also with ``.gz``) or ``.parquet`` (extra ``io``).

        Raises
        ------
        ScaleModelError : another ending, or the file cannot be written.
        """
        columns: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                *("arrival_s", "input_tokens", "output_tokens"),
                *("session", "turn", "tool_wait_s", "tenant"),
            )
            if getattr(self, name) is not None
        }
        for name in ("input_tokens", "output_tokens"):
            columns[name] = columns[name].astype(np.int64)
        write_columns(path, columns, self.block_offsets, self.block_ids, self.block_tokens)
