"""Traces written to files in the project's own columns."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import replacing
from scalemodel.serving.traces.columns import Ids, Whole

_ROWS = 50_000  # written at a time
SUFFIXES = (".jsonl", ".csv", ".jsonl.gz", ".csv.gz", ".parquet")


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


def _suffix(path: str | os.PathLike[str]) -> str:
    name = Path(path).name.lower()
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise ScaleModelError(f"out={os.fspath(path)!r}: must end in {' or '.join(SUFFIXES)}")


def _parts(
    columns: Mapping[str, npt.NDArray[Any]],
    offsets: Whole | None,
    ids: Ids | None,
    tokens: int,
) -> Iterator[dict[str, list[Any]]]:
    """Rows of all columns, some at a time, as lists."""
    size = len(columns["arrival_s"])
    for start in range(0, size, _ROWS):
        end = min(start + _ROWS, size)
        part = {name: column[start:end].tolist() for name, column in columns.items()}
        if offsets is not None and ids is not None:
            ends = offsets[start : end + 1].tolist()
            flat = ids[ends[0] : ends[-1]].tolist()
            begin = ends[0]
            part["block_ids"] = [
                flat[one - begin : other - begin] for one, other in itertools.pairwise(ends)
            ]
            part["block_tokens"] = [tokens] * (end - start)
        yield part


def _text(kind: str, parts: Iterator[dict[str, list[Any]]]) -> Iterator[str]:
    header = kind == "csv"
    for part in parts:
        names, rows = list(part), zip(*part.values(), strict=True)
        if kind == "jsonl":
            lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
            yield "\n".join(lines) + "\n"
            continue
        sheet = io.StringIO()
        writer = csv.writer(sheet, lineterminator="\n")
        if header:
            writer.writerow(names)
            header = False
        for row in rows:
            writer.writerow([" ".join(map(str, x)) if isinstance(x, list) else x for x in row])
        yield sheet.getvalue()


def _write_parquet(draft: Path, parts: Iterator[dict[str, list[Any]]]) -> None:
    pyarrow = load_pyarrow()
    writer = None
    try:
        for part in parts:
            arrays = {
                name: pyarrow.array(
                    values,
                    type=pyarrow.list_(pyarrow.uint64()) if name == "block_ids" else None,
                )
                for name, values in part.items()
            }
            table = pyarrow.table(arrays)
            if writer is None:
                writer = pyarrow.parquet.ParquetWriter(draft, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def write_columns(
    path: str | os.PathLike[str],
    columns: Mapping[str, npt.NDArray[Any]],
    block_offsets: Whole | None,
    block_ids: Ids | None,
    block_tokens: int,
) -> None:
    """Writes columns and blocks of prompts, whole or not at all, in the format of the suffix."""
    suffix = _suffix(path)
    parts = _parts(columns, block_offsets, block_ids, block_tokens)
    if suffix == ".parquet":
        load_pyarrow()
    with replacing(path) as draft:
        if suffix == ".parquet":
            _write_parquet(draft, parts)
            return
        with open(draft, "wb") as file:
            # No time and no name in the file: equal traces make equal files.
            packed = suffix.endswith(".gz")
            sink = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if packed else file
            for text in _text(suffix.split(".")[1], parts):
                cast(io.RawIOBase, sink).write(text.encode())
            if packed:
                sink.close()
