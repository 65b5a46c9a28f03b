"""Traces read from files, part by part: what is wrong is said by line and column."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import reading
from scalemodel.base.words import named_arguments
from scalemodel.serving.traces.checking import LEGAL, TraceColumns, TracePart
from scalemodel.serving.traces.layouts import layout_of
from scalemodel.serving.traces.trace import Trace
from scalemodel.serving.traces.writing import load_pyarrow

_CHUNK = 2**20  # bytes of text that are parsed at once, into objects of twelve times the size
_LONGEST_LINE = 64 * 2**20
_PARQUET_ROWS = 8192
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"


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
                legal = LEGAL.get(name, "must be a time")
                raise ScaleModelError(
                    f"{path}: line {numbers[place]}: {column} missing: {legal}"
                ) from None
        yield TracePart(numbers, columns)


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
                yield TracePart(range(first, first + len(lines)), columns)
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
            yield TracePart(numbers, {column: list(cells[at]) for column, at in wanted.items()})


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
                yield TracePart(range(first, first + batch.num_rows), columns)
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


def _span(start_s: float | None, end_s: float | None) -> tuple[float, float]:
    """The time that is asked for; all of it where nothing is said."""
    given = {"start_s": start_s, "end_s": end_s}
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and math.isfinite(value)):
            raise ScaleModelError(f"{name}={value!r}: must be a finite number of seconds")
    begin = -math.inf if start_s is None else float(start_s)
    end = math.inf if end_s is None else float(end_s)
    if end <= begin:
        raise ScaleModelError(f"end_s={end_s!r}: must lie behind start_s={start_s!r}")
    return begin, end


@named_arguments
def read_trace(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    drop_empty: bool | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    blocks: bool = True,
) -> Trace:
    r"""Reads requests that were recorded, each with its arrival and lengths.

    Formats are told by their columns, whether the file is JSON lines, CSV or Parquet (extra
    ``io``), each text also compressed with gzip. Files are read part by part: one may be larger
    than the memory, which holds a part and the numbers of the requests that are asked for, no more.
    Whatever is wrong in a file is refused with its line and column, and nothing is answered.

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
    start_s, end_s : float, optional
        Only requests from `start_s` on and before `end_s` of the file's own clock, whose dates
        count from the first request; their time from `start_s`, as of `Trace.window`. Turns that
        no column tells are counted from there; parts of the file behind `end_s` are not looked at.
    blocks : bool
        False: leave out the blocks of prompts, which take most of the memory where there are any.

    Returns
    -------
    Trace
        Names of sessions of other formats are replaced by numbers. Arrivals of dates count from the
        first request. `Trace.with_sessions` tells the sessions of a trace of Mooncake.

    Raises
    ------
    ScaleModelError : no such format, or a file that is none: time that runs back, lengths below 1,
        columns that are missing, what is no number, broken JSON or gzip, no request; an `end_s`
        that is not behind `start_s`; requests that take more than half of the machine's memory.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
    >>> _ = path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n"
    ...     "2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:05.97,3180,8\n")
    >>> read_trace(path)
    Trace(2 requests over 2.00 s, 1 a second, 3994 + 9 tokens)
    >>> len(read_trace(path, end_s=1.0))
    1
    """
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
    if not isinstance(name, str) or not name:
        raise ScaleModelError(f"path={path!r}: must be the path of a file")
    begin, end = _span(start_s, end_s)
    parts = _parts_of(name, format)
    layout = next(parts, None)
    if layout is None:
        raise ScaleModelError(f"{name}: no request: must hold one at least")
    unit = "row" if Path(name).suffix.lower() == ".parquet" else "line"
    drop = layout.drop_empty if drop_empty is None else drop_empty
    columns = TraceColumns(name, unit, layout, drop, begin, end, blocks)
    for part in parts:
        columns.add(part)
        if columns.complete:
            parts.close()
            break
    return columns.trace()
