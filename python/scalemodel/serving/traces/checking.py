"""Rows of a recorded trace, checked and gathered: a fault is told by line and column."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text
from scalemodel.serving.traces.columns import GrowingColumn
from scalemodel.serving.traces.layouts import TraceLayout
from scalemodel.serving.traces.trace import Trace

_MS_PER_S, _NS_PER_S = 1e3, 1e9
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
_TOKENS = "must be a whole number of tokens from 1"
LEGAL = {
    "input_tokens": _TOKENS,
    "output_tokens": _TOKENS,
    "session": "must be a whole number",
    "turn": "must be a whole number from 0",
    "tool_wait_s": "must be a number of seconds from 0",
    "tenant": "must be a whole number below 2^31",
    "block_tokens": "must be one whole number from 1 in the whole file",
    "block_ids": "must be whole numbers from 0 to 2^64 - 1, at most one of a block of the prompt",
}
_MOST = {"tenant": 2.0**31 - 1}
_LEAST = {"input_tokens": 0, "output_tokens": 0, "turn": 0, "tool_wait_s": 0, "block_tokens": 1}
_CLOCKS = {
    "s": "must be a finite number of seconds",
    "ms": "must be a finite number of milliseconds",
    "utc": "must be a date and time such as 2023-11-16 18:17:03.9799600",
}


@dataclass
class TracePart:
    """Values of a number of rows by column of the file, and the numbers of their lines."""

    lines: Sequence[int]
    columns: Mapping[str, Sequence[Any]]


def memory_bytes() -> int:
    """Memory of this machine; no bound where its system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize


_KINDS: dict[str, type] = {
    "session": np.int64,
    "turn": np.int64,
    "tenant": np.int32,
    "block_sizes": np.int64,
    "block_ids": np.uint64,
}


@dataclass
class TraceColumns:
    """The arrays of a trace as they grow: of requests from `start_s` on and before `end_s`."""

    path: str
    unit: str  # what a row is called
    layout: TraceLayout
    drop_empty: bool
    start_s: float = -np.inf
    end_s: float = np.inf
    blocks: bool = True
    columns: dict[str, GrowingColumn] = field(default_factory=dict)
    #: Numbers of the sessions that have a name, and how many there are of all.
    codes: dict[str, int] = field(default_factory=dict)
    sessions: int = 0
    origin: int | None = None
    block_tokens: int = 0
    dropped: int = 0
    last: tuple[float, Any] = (-np.inf, None)

    def fault(self, line: int, name: str, value: object, legal: str) -> NoReturn:
        """Refuses a value of a row: where it stands, what it is, what would be legal."""
        column = self.layout.columns[name]
        shown = repr(value)
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        raise ScaleModelError(f"{self.path}: {self.unit} {line}: {column}={shown}: {legal}")

    def _check(self, part: TracePart, name: str, good: npt.NDArray[np.bool_], legal: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            values = part.columns[self.layout.columns[name]]
            value = values[row]
            self.fault(part.lines[row], name, getattr(value, "as_py", lambda: value)(), legal)

    def _numbers(self, part: TracePart, name: str, legal: str) -> npt.NDArray[np.float64]:
        values = part.columns[self.layout.columns[name]]
        try:
            if not set(map(type, values)) <= {int, float, str}:
                raise ValueError
            return np.fromiter(map(float, values), np.float64, len(values))
        except (ValueError, TypeError, OverflowError):
            for line, value in zip(part.lines, values, strict=True):
                try:
                    if isinstance(value, bool):
                        raise ValueError
                    float(value)
                except (ValueError, TypeError, OverflowError):
                    self.fault(line, name, value, legal)
            raise ScaleModelError(f"{self.path}: {name}: {legal}") from None

    def _whole(self, part: TracePart, name: str) -> npt.NDArray[np.float64]:
        found = self._numbers(part, name, LEGAL[name])
        least = _LEAST.get(name, -(2.0**53))
        most = _MOST.get(name, 2.0**53)
        good = np.isfinite(found) & (found >= max(least, -most)) & (found <= most)
        if name != "tool_wait_s":
            good &= found == np.floor(found)
        self._check(part, name, good, LEGAL[name])
        return found

    def _arrivals(self, part: TracePart) -> npt.NDArray[np.float64]:
        clock = self.layout.clock
        legal = _CLOCKS[clock]
        if clock == "utc":
            found = self._dates(part, legal)
        else:
            found = self._numbers(part, "arrival_s", legal)
            self._check(part, "arrival_s", np.isfinite(found), legal)
            if clock == "ms":
                found = found / _MS_PER_S
        before = np.concatenate([[self.last[0]], found[:-1]])
        values = part.columns[self.layout.columns["arrival_s"]]
        back = found < before
        if back.any():
            row = int(np.argmax(back))
            above = values[row - 1] if row else self.last[1]
            legal = f"must not lie before {above} of the request above it; sort the rows by time"
            self._check(part, "arrival_s", ~back, legal)
        if found.size:
            self.last = (float(found[-1]), values[-1])
        return found

    def _dates(self, part: TracePart, legal: str) -> npt.NDArray[np.float64]:
        """Seconds since the first request of the file."""
        values = part.columns[self.layout.columns["arrival_s"]]
        texts = [str(value).strip().removesuffix("+00:00").removesuffix("Z") for value in values]
        # Other zones than UTC, which numpy takes with a warning, are no dates here.
        shape = np.fromiter((_DATE.fullmatch(text) is not None for text in texts), bool, len(texts))
        self._check(part, "arrival_s", shape, legal)
        try:
            times = np.array(texts, dtype="datetime64[ns]")
        except ValueError:
            for line, text, value in zip(part.lines, texts, values, strict=True):
                try:
                    np.datetime64(text, "ns")
                except ValueError:
                    self.fault(line, "arrival_s", value, legal)
            raise ScaleModelError(f"{self.path}: arrival_s: {legal}") from None
        if self.origin is None:
            self.origin = int(times[0].astype(np.int64))
        return np.asarray((times.astype(np.int64) - self.origin) / _NS_PER_S)

    def _sessions(self, part: TracePart, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Names of sessions as numbers; a request without one has a session of its own."""
        names = part.columns[self.layout.columns["session"]]
        found = np.zeros(len(names), np.int64)
        for row in np.flatnonzero(kept).tolist():
            named = names[row] not in ("", None)
            found[row] = self.codes.get(str(names[row]), -1) if named else -1
            if found[row] < 0:
                found[row] = self.sessions
                self.sessions += 1
                if named:
                    self.codes[str(names[row])] = int(found[row])
        return found

    def _blocks(self, part: TracePart, prompts: npt.NDArray[np.float64]) -> tuple[Any, Any]:
        """Numbers of blocks of each request, and the blocks themselves."""
        rows = part.columns[self.layout.columns["block_ids"]]
        name = "block_ids"
        if isinstance(rows[0], str):
            try:
                rows = [[int(word) for word in row.split()] for row in rows]
            except (ValueError, AttributeError):
                rows = [row.split() for row in rows]
        try:
            flat = list(itertools.chain.from_iterable(rows))
            if not set(map(type, flat)) <= {int}:
                raise ValueError
            ids = np.array(flat, dtype=np.uint64)
        except (ValueError, TypeError, OverflowError):
            for line, row in zip(part.lines, rows, strict=True):
                if not isinstance(row, list) or not all(
                    type(block) is int and 0 <= block < 2**64 for block in row
                ):
                    self.fault(line, name, row, LEGAL[name])
            raise
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        tokens = self.block_tokens
        self._check(part, name, sizes <= -(-prompts // max(1, tokens)), LEGAL[name])
        return sizes, ids

    def _tokens_of_a_block(self, part: TracePart) -> None:
        if self.layout.block_tokens:
            self.block_tokens = self.layout.block_tokens
            return
        if self.layout.columns["block_tokens"] not in part.columns:
            line, column = part.lines[0], self.layout.columns["block_tokens"]
            raise ScaleModelError(
                f"{self.path}: {self.unit} {line}: column {column} missing: must say how many "
                "tokens each of block_ids stands for"
            )
        found = self._whole(part, "block_tokens")
        self.block_tokens = self.block_tokens or int(found[0])
        self._check(part, "block_tokens", found == self.block_tokens, LEGAL["block_tokens"])

    def add(self, part: TracePart) -> None:
        """Checks rows and appends them."""
        there = {name for name, column in self.layout.columns.items() if column in part.columns}
        found: dict[str, npt.NDArray[Any]] = {"arrival_s": self._arrivals(part)}
        for name in ("input_tokens", "output_tokens", "turn", "tool_wait_s", "tenant"):
            if name in there:
                found[name] = self._whole(part, name)
        kept = (found["input_tokens"] > 0) & (found["output_tokens"] > 0)
        if not self.drop_empty:
            for name in ("input_tokens", "output_tokens"):
                legal = f"{_TOKENS} (drop_empty=True leaves out requests that failed)"
                self._check(part, name, found[name] > 0, legal)
        asked = (found["arrival_s"] >= self.start_s) & (found["arrival_s"] < self.end_s)
        self.dropped += int((asked & ~kept).sum())
        kept &= asked
        if "session" in there:
            named = self.layout.name != "scalemodel"
            found["session"] = self._sessions(part, kept) if named else self._whole(part, "session")
        if "block_ids" in there and self.blocks:
            self._tokens_of_a_block(part)
            sizes, ids = self._blocks(part, found["input_tokens"])
            self._append("block_ids", ids[np.repeat(kept, sizes)])
            found["block_sizes"] = sizes
        for name, column in found.items():
            self._append(name, column[kept])
        self._check_memory(part)

    def _check_memory(self, part: TracePart) -> None:
        """Refuses more than half of the machine's memory, before the system ends the process.

        What is done with a trace takes about as much again.
        """
        held = sum(column.held_bytes for column in self.columns.values())
        most = memory_bytes() // 2
        if held > most:
            requests = self.columns["arrival_s"].size
            blocks = "block_ids" in self.columns
            less = " or without blocks (blocks=False)" if blocks else ""
            raise ScaleModelError(
                f"{self.path}: {self.unit} {part.lines[-1]}: {requests:,} requests up to here take "
                f"{size_text(held)}, more than {size_text(most)}, half of this machine's memory: "
                f"must be read in parts (start_s, end_s){less}"
            )

    def _append(self, name: str, part: npt.NDArray[Any]) -> None:
        if name not in self.columns:
            self.columns[name] = GrowingColumn(_KINDS.get(name, float))
        self.columns[name].add(part)

    @property
    def complete(self) -> bool:
        """Whether no later request is asked for."""
        return self.last[0] >= self.end_s

    def trace(self) -> Trace:
        """The trace of all that was added."""
        whole: dict[str, Any] = {name: column.whole() for name, column in self.columns.items()}
        if not whole or not whole["arrival_s"].size:
            if self.start_s == -np.inf and self.end_s == np.inf:
                raise ScaleModelError(f"{self.path}: no request: must hold one at least")
            raise ScaleModelError(
                f"{self.path}: no request from start_s={self.start_s:g} to end_s={self.end_s:g}: "
                f"must hold a request; the last that was read came at {self.last[0]:g} s"
            )
        if self.start_s > -np.inf:
            whole["arrival_s"] -= self.start_s
        if "block_sizes" in whole:
            sizes = whole.pop("block_sizes")
            whole["block_offsets"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            whole["block_tokens"] = self.block_tokens
        return Trace(**whole, dropped=self.dropped)
