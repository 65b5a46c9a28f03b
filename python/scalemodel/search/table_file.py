"""Tables too large for memory, in CSV and Parquet files: written in parts, merged by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.base.safe_text import csv_cell, plain
from scalemodel.search.ranking_file import (
    Rows,
    check_complete,
    check_rows,
    check_same_question,
    check_version,
)

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")
METADATA = b"scalemodel"
_BATCH_ROWS = 65_536


class Writer(Protocol):
    """Takes a table part by part."""

    def write(self, frame: pd.DataFrame) -> None:
        """Appends rows; the index is the column ``row``."""


def load_pyarrow() -> Any:
    """The module, or what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ScaleModelError(
            'Parquet: pip install "scalemodel[io]"  (needed for Parquet); CSV needs nothing',
            code="missing_extra",
        ) from None
    return pyarrow


def check_suffix(path: str | Path, legal: Sequence[str] = SUFFIXES) -> str:
    """The suffix of a file, if it is a known one."""
    suffix = Path(path).suffix.lower()
    if suffix not in legal:
        raise ScaleModelError(f"out={str(path)!r}: must end in {' or '.join(legal)}")
    if suffix == ".parquet":
        load_pyarrow()
    return suffix


# ------------------------------------------------------------------------------------- writing
def csv_text(frame: pd.DataFrame, *, header: bool) -> str:
    """Rows as CSV text; numbers read back to the same bits, truth is ``true`` or ``false``."""
    import numpy as np
    import pandas as pd

    texts: dict[str, Any] = {
        str(name): np.where(column, "true", "false")
        for name, column in frame.items()
        if column.dtype == bool
    }
    for name, column in frame.items():
        if column.dtype == object or isinstance(column.dtype, pd.StringDtype):
            texts[str(name)] = [
                csv_cell(cell) if isinstance(cell, str) else cell for cell in column
            ]
    return str(frame.assign(**texts).to_csv(header=header, lineterminator="\n"))


class _CsvWriter:
    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._started = False

    def write(self, frame: pd.DataFrame) -> None:
        self._file.write(csv_text(frame, header=not self._started))
        self._started = True


def arrow_table(frame: pd.DataFrame) -> Any:
    """Rows as pyarrow holds them, row numbers as a column."""
    # pandas would keep the row numbers of the first part only.
    return load_pyarrow().Table.from_pandas(frame.reset_index(), preserve_index=False)


class ParquetRows:
    """A Parquet file to which tables are appended, each as row groups of its own."""

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self._path, self._metadata = path, metadata
        self._writer: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        """Appends rows; the index is the column ``row``."""
        self.write_table(arrow_table(frame))

    def write_table(self, table: Any) -> None:
        """Appends a table of pyarrow."""
        if self._writer is None:
            known = {METADATA: json.dumps(self._metadata).encode()}
            schema = table.schema.with_metadata({**(table.schema.metadata or {}), **known})
            self._writer = load_pyarrow().parquet.ParquetWriter(self._path, schema)
        self._writer.write_table(table.replace_schema_metadata(self._writer.schema.metadata))

    def close(self) -> None:
        """Completes the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writing(path: str | Path, metadata: Mapping[str, Any]) -> Iterator[Writer]:
    """A writer to a file whose suffix says what kind; Parquet carries the metadata too."""
    suffix = check_suffix(path)
    with replacing(path) as draft:
        if suffix == ".csv":
            with draft.open("w", encoding="utf-8", newline="") as file:
                yield _CsvWriter(file)
            return
        writer = ParquetRows(draft, metadata)
        try:
            yield writer
        finally:
            writer.close()


# -------------------------------------------------------------------------------------- merging
@dataclass(frozen=True)
class _Piece:
    """A file of rows: which ones, of what."""

    path: Path
    rows: Rows
    header: str
    metadata: dict[str, Any] | None = None


def _csv_piece(path: Path) -> _Piece:
    """One pass over the file: row numbers are its first column."""
    ranges: list[tuple[int, int]] = []
    with path.open(encoding="utf-8", newline="") as file:
        header = file.readline()
        if header.split(",", 1)[0].strip() != "row":
            raise ScaleModelError(f"{path}: its first column must be row; is it of a sweep?")
        for line in file:
            number = line.split(",", 1)[0]
            if not number.isdigit() or not line.endswith("\n"):
                raise ScaleModelError(f"{path}: {line[:40]!r} is no row; was it cut short?")
            row = int(number)
            if ranges and ranges[-1][1] == row:
                ranges[-1] = ranges[-1][0], row + 1
            else:
                ranges.append((row, row + 1))
    if ranges != sorted(ranges):
        raise ScaleModelError(f"{path}: its rows must be in ascending order")
    check_rows([(str(path), ((first, last),)) for first, last in ranges])
    return _Piece(path, tuple(ranges), header)


def _parquet_piece(path: Path) -> _Piece:
    arrow = load_pyarrow()
    with arrow.parquet.ParquetFile(path) as file:
        schema = file.schema_arrow
        known = (schema.metadata or {}).get(METADATA)
        if known is None:
            raise ScaleModelError(f"{path}: holds no sweep of scalemodel")
        metadata = json.loads(known)
        check_version(str(path), metadata)
        rows: Rows = tuple((int(first), int(last)) for first, last in metadata["rows"])
        if file.metadata.num_rows != sum(last - first for first, last in rows):
            raise ScaleModelError(f"{path}: does not hold the rows it names")
    return _Piece(path, rows, ",".join(schema.names), metadata)


def _piece(path: Path, suffix: str) -> _Piece:
    try:
        return _csv_piece(path) if suffix == ".csv" else _parquet_piece(path)
    except OSError as error:
        reason = error.strerror or "not a Parquet file"
        raise ScaleModelError(f"{path}: cannot be read ({reason})") from None
    except ScaleModelError:
        raise
    except (UnicodeDecodeError, ValueError, LookupError, TypeError) as error:
        raise ScaleModelError(f"{path}: holds no rows of a sweep ({error})") from None


def merge_tables(
    paths: Sequence[str | Path], out: str | Path, *, partial: bool = False
) -> tuple[Rows, int | None]:
    """Files of a sweep's shards put together in the order of rows, with bounded memory.

    Parameters
    ----------
    paths : sequence of path
        All ``.csv`` or all ``.parquet``, in any order.
    out : path
        Of the same kind.
    partial : bool
        Accept that rows are missing: the result can be merged further.

    Returns
    -------
    rows : tuple of (first, last)
    size : int or None
        Rows of the whole space. CSV files do not know it: whether the last rows are there cannot
        be told from them.

    Raises
    ------
    ScaleModelError : parts of different questions, rows that are missing or there twice.
    """
    if not paths:
        raise ScaleModelError("paths=[]: at least one is needed")
    suffix = check_suffix(out)
    for path in paths:
        if Path(path).suffix.lower() != suffix:
            raise ScaleModelError(f"{path}: must end in {suffix} as {out} does")
    pieces = [_piece(Path(path), suffix) for path in paths]
    for piece in pieces:
        if piece.header != pieces[0].header:
            raise ScaleModelError(f"{pieces[0].path}, {piece.path}: have different columns")
    rows = check_rows([(str(piece.path), piece.rows) for piece in pieces])
    metadata = pieces[0].metadata
    size = None
    if metadata is not None:
        asked = [(str(p.path), p.metadata["question"]) for p in pieces if p.metadata is not None]
        check_same_question(asked)
        size = int(metadata["space_rows"])
        metadata = {**metadata, "rows": rows}
    if not partial:
        check_complete(rows, size if size is not None else max((b for _, b in rows), default=0))
    _write_merged(pieces, out, suffix, metadata or {})
    return rows, size


def _write_merged(
    pieces: Sequence[_Piece], out: str | Path, suffix: str, metadata: Mapping[str, Any]
) -> None:
    runs = sorted((run, i) for i, piece in enumerate(pieces) for run in piece.rows)
    with replacing(out) as draft:
        if suffix == ".csv":
            _merge_csv(pieces, runs, draft)
            return
        try:
            _merge_parquet(pieces, runs, draft, metadata)
        except load_pyarrow().ArrowException as error:
            raise _no_rows(", ".join(str(piece.path) for piece in pieces), error) from None


def _no_rows(files: object, error: Exception) -> ScaleModelError:
    """What is said of broken rows behind a sound header."""
    reason = plain(str(error).partition("\n")[0])
    return ScaleModelError(f"{files}: holds no rows of a sweep ({reason})")


def _merge_csv(
    pieces: Sequence[_Piece], runs: Sequence[tuple[tuple[int, int], int]], draft: Path
) -> None:
    files = [piece.path.open(encoding="utf-8", newline="") for piece in pieces]
    try:
        with draft.open("w", encoding="utf-8", newline="") as target:
            target.write(pieces[0].header)
            for file in files:
                file.readline()
            for (first, last), i in runs:
                target.writelines(islice(files[i], last - first))
    finally:
        for file in files:
            file.close()


def _merge_parquet(
    pieces: Sequence[_Piece],
    runs: Sequence[tuple[tuple[int, int], int]],
    draft: Path,
    metadata: Mapping[str, Any],
) -> None:
    parquet = load_pyarrow().parquet
    files = [parquet.ParquetFile(piece.path) for piece in pieces]
    try:
        schema = files[0].schema_arrow
        known = {METADATA: json.dumps(metadata).encode()}
        schema = schema.with_metadata({**schema.metadata, **known})
        parts = [
            _Batches(file.iter_batches(_BATCH_ROWS), piece.path)
            for file, piece in zip(files, pieces, strict=True)
        ]
        with parquet.ParquetWriter(draft, schema) as writer:
            for (first, last), i in runs:
                for batch in parts[i].take(last - first):
                    writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    finally:
        for file in files:
            file.close()


class _Batches:
    """The rows of a Parquet file, taken in any lengths."""

    def __init__(self, batches: Iterator[Any], path: str | Path) -> None:
        self._batches = batches
        self._path = path
        self._rest: Any = None

    def _next(self) -> Any:
        try:
            return next(self._batches)
        except OSError as error:  # not of the file that is written
            raise _no_rows(self._path, error) from None

    def take(self, rows: int) -> Iterator[Any]:
        while rows > 0:
            batch = self._rest if self._rest is not None else self._next()
            used = min(rows, batch.num_rows)
            yield batch.slice(0, used)
            self._rest = batch.slice(used) if used < batch.num_rows else None
            rows -= used
