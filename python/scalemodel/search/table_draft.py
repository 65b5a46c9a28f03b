"""Long tables written chunk by chunk, so that a process that was killed can be continued.

Beside the chunks lies a journal: first the question, then one line for every chunk that is wholly
written. What follows the last such chunk is cut off when the work goes on.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.search.ranking_file import check_same_question, check_version
from scalemodel.search.table_file import (
    ParquetRows,
    arrow_table,
    check_suffix,
    csv_text,
    load_pyarrow,
)

if TYPE_CHECKING:
    import pandas as pd

#: Of a group of a Parquet file, at least.
_GROUP_ROWS = 60_000
#: Memory holds a group whole, and the writer keeps a record of each until the end, of which it
#: makes a copy for the footer. With its copy a record (97 KB where a row has 60 columns) takes as
#: much as this number of rows of a group (320 bytes each).
_RECORD_ROWS = 300


def _group_rows(rows: int) -> int:
    """Rows of a group, at least, with which a group and the records of all take least memory.

    Both grow as the square root of the rows then.
    """
    return max(_GROUP_ROWS, math.isqrt(_RECORD_ROWS * rows))


class Chunks:
    """The chunks of a table in a file, with the journal of those that are complete.

    Attributes
    ----------
    rows : int
        Rows in complete chunks.
    note : object
        What the last of them was written with; None: there is none yet.
    """

    def __init__(self, target: Path, suffix: str) -> None:
        self.rows = 0
        self.note: Any = None
        self._path = target.with_name(f".{target.name}.chunks")
        self._journal_path = target.with_name(f".{target.name}.journal")
        self._suffix = suffix
        self._bytes = self._journal_bytes = 0
        self._file: IO[bytes]
        self._journal: IO[bytes]

    def continue_from(self, metadata: Mapping[str, Any], name: str) -> None:
        """Finds the complete chunks of an earlier process, which must have asked the same."""
        try:
            *lines, _ = self._journal_path.read_bytes().split(b"\n")  # the last may be cut short
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        try:
            documents = [json.loads(line) for line in lines]
            if documents:
                self._check_question(documents[0], metadata, name)
                self._journal_bytes = len(lines[0]) + 1
            for line, chunk in zip(lines[1:], documents[1:], strict=True):
                if chunk["bytes"] > size:
                    break
                self.rows, self.note = int(chunk["rows"]), chunk["note"]
                self._bytes = int(chunk["bytes"])
                self._journal_bytes += len(line) + 1
        except ScaleModelError:
            raise
        except (LookupError, TypeError, ValueError):
            raise ScaleModelError(
                f"resume: the draft of {name} is damaged; without resume it starts anew"
            ) from None

    def _check_question(
        self, asked: Mapping[str, Any], metadata: Mapping[str, Any], name: str
    ) -> None:
        draft = f"the draft of {name}"
        check_version(draft, asked)
        check_same_question([(draft, asked["question"]), ("resume", metadata["question"])])
        if json.dumps(asked["rows"]) != json.dumps(metadata["rows"]):
            raise ScaleModelError(f"resume: the draft of {name} is of another shard")

    def open(self, metadata: Mapping[str, Any], stack: ExitStack) -> None:
        """Opens both files behind the last complete chunk, the journal first."""
        self._journal = stack.enter_context(_opened_at(self._journal_path, self._journal_bytes))
        if not self._journal_bytes:
            self._record(metadata)
        self._file = stack.enter_context(_opened_at(self._path, self._bytes))

    def write(self, frame: pd.DataFrame, note: object) -> None:
        """Appends a chunk and what to know of all rows so far."""
        started = self.note is not None
        text = csv_text(frame, header=not started).encode() if self._suffix == ".csv" else None
        self._file.write(_stream(frame) if text is None else text)
        self._file.flush()
        self.rows, self.note, self._bytes = self.rows + len(frame), note, self._file.tell()
        self._record({"rows": self.rows, "bytes": self._bytes, "note": note})

    def _record(self, line: Mapping[str, Any]) -> None:
        self._journal.write(json.dumps(line).encode() + b"\n")
        self._journal.flush()

    def finish(self, draft: Path, metadata: Mapping[str, Any]) -> None:
        """Makes the draft of the table from the complete chunks."""
        if self._suffix == ".csv":
            self._path.replace(draft)
        else:
            self._to_parquet(draft, metadata)
        self.remove()

    def _to_parquet(self, draft: Path, metadata: Mapping[str, Any]) -> None:
        """Chunks together in row groups: what a writer keeps of each until the end is much."""
        arrow = load_pyarrow()
        rows, least = ParquetRows(draft, metadata), _group_rows(self.rows)
        try:
            with arrow.OSFile(str(self._path)) as source:
                together: list[Any] = []
                while source.tell() < self._bytes:
                    together.append(arrow.ipc.open_stream(source).read_all())
                    whole = sum(len(table) for table in together) >= least
                    if whole or source.tell() >= self._bytes:
                        rows.write_table(arrow.concat_tables(together))
                        together.clear()
                        arrow.default_memory_pool().release_unused()
        finally:
            rows.close()

    def remove(self) -> None:
        """Takes both files away, the journal first."""
        for path in (self._journal_path, self._path):
            with suppress(OSError):
                path.unlink()


def _opened_at(path: Path, place: int) -> IO[bytes]:
    """A file that is cut off at a place and goes on there."""
    path.touch()
    file = path.open("r+b")
    file.truncate(place)
    file.seek(place)
    return file


def _stream(frame: pd.DataFrame) -> Any:
    """Rows as a stream of Arrow, complete in itself."""
    arrow, table = load_pyarrow(), arrow_table(frame)
    sink = arrow.BufferOutputStream()
    options = arrow.ipc.IpcWriteOptions(compression="lz4")
    with arrow.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()


@contextmanager
def writing_chunks(
    path: str | Path, metadata: Mapping[str, Any], *, resume: bool = False
) -> Iterator[Chunks]:
    """A long table to be written to a file; Parquet carries the metadata too.

    Parameters
    ----------
    path : path
        ``.csv`` or ``.parquet``.
    metadata : mapping
        ``version``, ``question``, ``rows``: what the table holds.
    resume : bool
        Continue behind the chunks that an earlier process has left, and leave them in turn where
        this one is cut short.

    Raises
    ------
    ScaleModelError : the file cannot be written, or its draft answers another question.
    """
    suffix, target = check_suffix(path), Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise ScaleModelError(f"out={str(path)!r}: must be a regular file")
    with replacing(path, keep=resume) as draft:
        chunks = Chunks(target, suffix)
        try:
            if resume:
                chunks.continue_from(metadata, str(path))
            with ExitStack() as stack:
                chunks.open(metadata, stack)
                yield chunks
            chunks.finish(draft, metadata)
        except BaseException:
            if not resume:
                chunks.remove()
            raise
