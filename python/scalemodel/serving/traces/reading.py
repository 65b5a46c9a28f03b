"""Traces read from files, part by part: what is wrong is said by line and column."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import reading
from scalemodel.serving.traces.columns import stacked
from scalemodel.serving.traces.layouts import TraceLayout, layout_of
from scalemodel.serving.traces.trace import Trace
from scalemodel.serving.traces.writing import load_pyarrow

_CHUNK = 4 * 2**20  # bytes of text that are parsed at once
_LONGEST_LINE = 64 * 2**20
_PARQUET_ROWS = 65_536
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_MS_PER_S, _NS_PER_S = 1e3, 1e9
_DATE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?", re.ASCII)
_TOKENS = "must be a whole number of tokens from 1"
_LEGAL = {
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
class _Part:
    """Values of a number of rows by column of the file, and the numbers of their lines."""

    lines: Sequence[int]
    columns: Mapping[str, Sequence[Any]]


@dataclass
class _Columns:
    """The arrays of a trace as they grow."""

    path: str
    unit: str  # what a row is called
    layout: TraceLayout
    drop_empty: bool
    parts: dict[str, list[npt.NDArray[Any]]] = field(default_factory=dict)
    codes: dict[Any, int] = field(default_factory=dict)
    block_tokens: int = 0
    dropped: int = 0
    last: tuple[float, Any] = (-np.inf, None)

    def fault(self, line: int, name: str, value: object, legal: str) -> NoReturn:
        column = self.layout.columns[name]
        shown = repr(value)
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        raise ScaleModelError(f"{self.path}: {self.unit} {line}: {column}={shown}: {legal}")

    def _check(self, part: _Part, name: str, good: npt.NDArray[np.bool_], legal: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            values = part.columns[self.layout.columns[name]]
            value = values[row]
            self.fault(part.lines[row], name, getattr(value, "as_py", lambda: value)(), legal)

    def _numbers(self, part: _Part, name: str, legal: str) -> npt.NDArray[np.float64]:
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

    def _whole(self, part: _Part, name: str) -> npt.NDArray[np.float64]:
        found = self._numbers(part, name, _LEGAL[name])
        least = _LEAST.get(name, -(2.0**53))
        most = _MOST.get(name, 2.0**53)
        good = np.isfinite(found) & (found >= max(least, -most)) & (found <= most)
        if name != "tool_wait_s":
            good &= found == np.floor(found)
        self._check(part, name, good, _LEGAL[name])
        return found

    def _arrivals(self, part: _Part) -> npt.NDArray[np.float64]:
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

    def _dates(self, part: _Part, legal: str) -> npt.NDArray[np.float64]:
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
        if "origin" not in self.codes:
            self.codes["origin"] = int(times[0].astype(np.int64))
        return np.asarray((times.astype(np.int64) - self.codes["origin"]) / _NS_PER_S)

    def _sessions(self, part: _Part) -> npt.NDArray[np.int64]:
        """Names of sessions as numbers; a request without one has a session of its own."""
        found = []
        for line, name in zip(
            part.lines, part.columns[self.layout.columns["session"]], strict=True
        ):
            key = ("row", line) if name in ("", None) else ("name", str(name))
            found.append(self.codes.setdefault(key, len(self.codes)))
        return np.array(found, dtype=np.int64)

    def _blocks(self, part: _Part, prompts: npt.NDArray[np.float64]) -> tuple[Any, Any]:
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
                    self.fault(line, name, row, _LEGAL[name])
            raise
        sizes = np.array([len(row) for row in rows], dtype=np.int64)
        tokens = self.block_tokens
        self._check(part, name, sizes <= -(-prompts // max(1, tokens)), _LEGAL[name])
        return sizes, ids

    def _tokens_of_a_block(self, part: _Part) -> None:
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
        self._check(part, "block_tokens", found == self.block_tokens, _LEGAL["block_tokens"])

    def add(self, part: _Part) -> None:
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
        if "session" in there:
            named = self.layout.name != "scalemodel"
            found["session"] = self._sessions(part) if named else self._whole(part, "session")
        if "block_ids" in there:
            self._tokens_of_a_block(part)
            sizes, ids = self._blocks(part, found["input_tokens"])
            self.parts.setdefault("block_ids", []).append(ids[np.repeat(kept, sizes)])
            found["block_sizes"] = sizes
        self.dropped += int((~kept).sum())
        for name, column in found.items():
            self.parts.setdefault(name, []).append(column[kept])

    def trace(self) -> Trace:
        """The trace of all that was added."""
        kinds: dict[str, Any] = {"session": np.int64, "turn": np.int64, "tenant": np.int32}
        kinds |= {"block_sizes": np.int64, "block_ids": np.uint64}
        whole: dict[str, Any] = {
            name: stacked(self.parts.pop(name), kinds.get(name, float)) for name in [*self.parts]
        }
        if not whole or not whole["arrival_s"].size:
            raise ScaleModelError(f"{self.path}: no request: must hold one at least")
        if "block_sizes" in whole:
            sizes = whole.pop("block_sizes")
            whole["block_offsets"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            whole["block_tokens"] = self.block_tokens
        return Trace(**whole, dropped=self.dropped)


# ----------------------------------------------------------------------------------- text by lines
@contextmanager
def _unpacked(path: str, at: list[int]) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if they are gzip; `at` holds the line that was read last."""
    with reading(path) as file:
        packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        try:
            yield cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ScaleModelError(
                f"{path}: line {at[0]}: the gzip file is cut short or broken there ({error}): must "
                "be whole",
                code="unreadable_file",
            ) from None


def _line_parts(path: str) -> Iterator[tuple[int, list[str]]]:
    """Lines of a file some at a time, with the number of the first of them."""
    at = [1]
    with _unpacked(path, at) as source:
        rest = b""
        while True:
            more = source.read(_CHUNK)
            rest += more
            cut = rest.rfind(b"\n") + 1 if more else len(rest)
            if not cut and len(rest) > _LONGEST_LINE:
                raise ScaleModelError(
                    f"{path}: line {at[0]}: longer than {_LONGEST_LINE // 2**20} MiB: must be one "
                    "request a line"
                )
            whole, rest = rest[:cut], rest[cut:]
            if whole:
                lines = _decoded(path, at[0], whole).split("\n")
                if not lines[-1]:
                    lines.pop()
                yield at[0], lines
                at[0] += len(lines)
            if not more:
                return


def _decoded(path: str, line: int, whole: bytes) -> str:
    try:
        return whole.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        wrong = line + whole.count(b"\n", 0, error.start)
        raise ScaleModelError(
            f"{path}: line {wrong}: not UTF-8 ({error.reason}): must be text",
            code="unreadable_file",
        ) from None


def _json_rows(path: str, first: int, lines: list[str]) -> tuple[list[int], list[dict[str, Any]]]:
    """Objects of lines, and the numbers of the lines; empty ones are left out."""
    numbers = [first + place for place, line in enumerate(lines) if line.strip()]
    texts = [line for line in lines if line.strip()]
    try:  # one call for all is twice as quick
        rows = json.loads(f"[{','.join(texts)}]")
    except (ValueError, RecursionError):
        rows = []
    if len(rows) != len(texts) or not set(map(type, rows)) <= {dict}:
        for number, text in zip(numbers, texts, strict=True):
            try:
                good, why = isinstance(json.loads(text), dict), "no object"
            except (ValueError, RecursionError) as error:
                good, why = False, str(error) or "nested too deeply"
            if not good:
                raise ScaleModelError(
                    f"{path}: line {number}: not JSON of a request ({why}): must be one object a "
                    "line"
                )
    return numbers, rows


def _json_parts(path: str, parts: Iterator[tuple[int, list[str]]], asked: str | None) -> Any:
    """Layout, then values of the columns of each part."""
    layout, wanted = None, {}
    for first, lines in parts:
        numbers, rows = _json_rows(path, first, lines)
        if not rows:
            continue
        if layout is None:
            layout = layout_of(list(rows[0]), asked, f"{path}: line {numbers[0]}")
            wanted = {c: n for n, c in layout.columns.items() if c in rows[0]}
            yield layout
        late = [c for c in layout.columns.values() if c not in wanted]
        for number, row in zip(numbers, rows, strict=True) if late else ():
            if any(column in row for column in late):
                column = next(column for column in late if column in row)
                raise ScaleModelError(
                    f"{path}: line {number}: {column}: must be in every line or in none; the first "
                    "has none"
                )
        columns = {}
        for column, name in wanted.items():
            try:
                columns[column] = [row[column] for row in rows]
            except KeyError:
                place = next(i for i, row in enumerate(rows) if column not in row)
                legal = _LEGAL.get(name, "must be a time")
                raise ScaleModelError(
                    f"{path}: line {numbers[place]}: {column} missing: {legal}"
                ) from None
        yield _Part(numbers, columns)


def _csv_rows(path: str, first: int, lines: list[str]) -> list[list[str]]:
    """Cells of each line."""
    reader = csv.reader(lines, strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ScaleModelError(
            f"{path}: line {first + max(0, reader.line_num - 1)}: broken CSV ({error}): must be "
            "cells with commas between them"
        ) from None
    if len(rows) != len(lines):
        raise ScaleModelError(
            f"{path}: from line {first} on: a line break in a quoted cell: must be one request a "
            "line"
        )
    return rows


def _csv_parts(path: str, parts: Iterator[tuple[int, list[str]]], asked: str | None) -> Any:
    """Layout, then values of the columns of each part."""
    layout, wanted, width = None, {}, 0
    for first, lines in parts:
        # Without quotes and with as many commas in every line, cells need no parser.
        if layout is not None and {line.count(",") for line in lines} == {width - 1}:
            text = ",".join(lines)
            if '"' not in text and "\r" not in text.replace("\r,", ",").removesuffix("\r"):
                flat = text.replace("\r,", ",").removesuffix("\r").split(",")
                columns = {column: flat[at::width] for column, at in wanted.items()}
                yield _Part(range(first, first + len(lines)), columns)
                continue
        rows = _csv_rows(path, first, lines)
        numbers = [first + place for place, row in enumerate(rows) if row]
        rows = [row for row in rows if row]
        if layout is None and rows:
            header = [cell.strip() for cell in rows[0]]
            layout = layout_of(header, asked, f"{path}: line {numbers[0]}")
            known = layout.columns.values()
            twice = sorted({cell for cell in header if cell in known and header.count(cell) > 1})
            if twice:
                raise ScaleModelError(
                    f"{path}: line {numbers[0]}: column {', '.join(twice)}: stands there twice; "
                    "must be given once"
                )
            wanted = {c: place for place, c in enumerate(header) if c in known}
            width = len(header)
            numbers, rows = numbers[1:], rows[1:]
            yield layout
        for number, row in zip(numbers, rows, strict=True):
            if len(row) != width:
                raise ScaleModelError(
                    f"{path}: line {number}: {len(row)} columns: must be {width}, as line 1 has"
                )
        if rows:
            cells = list(zip(*rows, strict=True))
            yield _Part(numbers, {column: list(cells[at]) for column, at in wanted.items()})


def _parquet_parts(path: str, asked: str | None) -> Any:
    """Layout, then values of the columns of each batch of rows."""
    pyarrow = load_pyarrow()
    try:
        file = pyarrow.parquet.ParquetFile(path)
        layout = layout_of(file.schema_arrow.names, asked, path)
        yield layout
        known = [c for c in layout.columns.values() if c in file.schema_arrow.names]
        first = 1
        for batch in file.iter_batches(_PARQUET_ROWS, columns=known):
            if batch.num_rows:
                columns = {c: batch.column(c).to_pylist() for c in known}
                yield _Part(range(first, first + batch.num_rows), columns)
            first += batch.num_rows
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ScaleModelError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}): must be a whole Parquet file",
            code="unreadable_file",
        ) from None


def _parts_of(path: str, asked: str | None) -> Any:
    """Layout of a file, then its parts."""
    with reading(path) as file:
        begin = file.read(len(_PARQUET))
    if begin == _PARQUET:
        return _parquet_parts(path, asked)
    parts = _line_parts(path)
    for first, lines in parts:
        text = next((line.lstrip() for line in lines if line.strip()), "")
        if not text:
            continue
        whole = itertools.chain([(first, lines)], parts)
        if text.startswith(("{", "[")):
            return _json_parts(path, whole, asked)
        return _csv_parts(path, whole, asked)
    raise ScaleModelError(f"{path}: empty: must hold one request at least")


def read_trace(
    path: str | os.PathLike[str], format: str | None = None, *, drop_empty: bool | None = None
) -> Trace:
    r"""Reads requests that were recorded, each with its arrival and lengths.

    Formats are told by their columns, whether the file is JSON lines, CSV or Parquet (extra
    ``io``), each text also compressed with gzip. Text is read part by part: a file may be larger
    than the memory, its numbers may not. Whatever is wrong in a file is refused with its line and
    column, and nothing is answered.

    Parameters
    ----------
    path : path
    format : str, optional
        ``"mooncake"`` (timestamp in ms, input_length, output_length, hash_ids of 512 tokens),
        ``"azure"`` (TIMESTAMP, ContextTokens, GeneratedTokens), ``"burstgpt"`` (Timestamp, Request
        tokens, Response tokens, Session ID) or ``"scalemodel"``: arrival_s, input_tokens,
        output_tokens, and as they are there session, turn, tool_wait_s, tenant, block_ids (in CSV
        with spaces between them) and block_tokens. Default: what the columns say.
    drop_empty : bool, optional
        Leave out requests with a length of 0, which failed, and count them in `Trace.dropped`.
        Default: for BurstGPT, whose description says so; elsewhere they are an error.

    Returns
    -------
    Trace
        Names of sessions of other formats are replaced by numbers. Arrivals of dates count from the
        first request. `Trace.with_sessions` tells the sessions of a trace of Mooncake.

    Raises
    ------
    ScaleModelError : no such format, or a file that is none: time that runs back, lengths below 1,
        columns that are missing, what is no number, broken JSON or gzip, no request.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
    >>> _ = path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
    ...     "2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:05.97,3180,8\n")
    >>> read_trace(path)
    Trace(2 requests over 2.00 s, 1 a second, 3994 + 9 tokens)
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(name, str) or not name:
        raise ScaleModelError(f"path={path!r}: must be the path of a file")
    parts = _parts_of(name, format)
    layout = next(parts, None)
    if layout is None:
        raise ScaleModelError(f"{name}: no request: must hold one at least")
    unit = "row" if Path(name).suffix.lower() == ".parquet" else "line"
    drop = layout.drop_empty if drop_empty is None else drop_empty
    columns = _Columns(name, unit, layout, drop)
    for part in parts:
        columns.add(part)
    return columns.trace()
