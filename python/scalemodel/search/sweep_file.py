"""Every strategy of a space in a file, of which memory holds a part at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.progress import Progress, watched
from scalemodel.estimator.summary import question_text
from scalemodel.search.ranking import Question, Shard
from scalemodel.search.ranking_file import joined_rows, question_document, question_sha256
from scalemodel.search.table_draft import Chunks, writing_chunks

if TYPE_CHECKING:
    import pandas as pd

#: Rows of a sweep that are in memory at once.
CHUNK_ROWS = 65_536
#: Columns that a tally of rows reads.
TALLIED = ("verdict", "tokens_per_s")


class Tally:
    """Counts rows by verdict and remembers the best."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.best: tuple[float, int] | None = None

    def add(self, frame: pd.DataFrame) -> None:
        """Count further rows."""
        for verdict, number in frame["verdict"].value_counts().items():
            if number:
                self.counts[str(verdict)] = self.counts.get(str(verdict), 0) + int(number)
        fits = frame.loc[frame["verdict"] == "ok", "tokens_per_s"]
        if len(fits):
            at = int(fits.to_numpy().argmax())
            row, rate = int(fits.index[at]), float(fits.iloc[at])
            if self.best is None or rate > self.best[0]:
                self.best = rate, row

    def note(self) -> dict[str, Any]:
        """The same as JSON holds it."""
        return {"counts": self.counts, "best": self.best}

    def restore(self, note: Mapping[str, Any]) -> None:
        """Go on from what `note` held."""
        self.counts = dict(note["counts"])
        self.best = None if note["best"] is None else (note["best"][0], note["best"][1])

    def ordered(self) -> dict[str, int]:
        """Rows by verdict, the most frequent first."""
        return dict(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))


class FileOutput:
    """Rows to a file, with the tally of all rows so far."""

    def __init__(self, chunks: Chunks, tally: Tally) -> None:
        self._chunks, self._tally = chunks, tally
        if chunks.note is not None:
            tally.restore(chunks.note)

    def write(self, frame: pd.DataFrame) -> None:
        """Write further rows."""
        self._chunks.write(frame, self._tally.note())


@dataclass(frozen=True)
class SweepFile:
    """A sweep that was written to a file.

    Attributes
    ----------
    path : Path
    rows : int
        Strategies in the file.
    counts : dict
        Strategies by verdict, the most frequent first.
    fastest : int, optional
        Row of the strategy that fits and has the highest `tokens_per_s`; None: none fits.
    """

    path: Path
    rows: int
    counts: dict[str, int] = field(default_factory=dict)
    fastest: int | None = None


def sweep_metadata(own: Shard, question: Question) -> dict[str, Any]:
    """What a file of the rows of a shard says of them."""
    document = question_document(question)
    return {
        "version": _core.__version__,
        "question_text": question_text(question),
        "question_sha256": question_sha256(document),
        "question": document,
        "space_rows": question.size,
        "rows": joined_rows([(own.first, own.last)]),
    }


def needed_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns to compute where these are to be written: those of the tally too; None: all."""
    return None if columns is None else tuple(dict.fromkeys(chain(columns, TALLIED)))


def only(frame: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
    """The columns of a table that were asked for, in its own order; None: all."""
    if columns is None:
        return frame
    return frame[[name for name in frame.columns if name in columns]]


def sweep_parts(
    own: Shard,
    threads: int | None,
    tell: Callable[[int, int], object] | None,
    *,
    rows: int,
    done: int = 0,
) -> Iterator[pd.DataFrame]:
    """The rows of a shard behind those that are done, a part of them at a time.

    A shard without rows has one table, which is empty.

    Parameters
    ----------
    own : Shard
    threads : int, optional
    tell : function of (done, total), optional
        Told of the rows of the shard.
    rows : int
        Of a part.
    done : int
        Rows of the shard to be left out.
    """
    total = own.last - own.first
    for first in range(own.first + done, own.last, rows) or (own.first + done,):

        def further(part: int, _: int, before: int = first - own.first) -> None:
            if tell is not None:
                tell(before + part, total)

        yield own.question.run_sweep(first, min(first + rows, own.last), threads, further)


def write_sweep(
    question: Question,
    path: str | os.PathLike[str],
    threads: int | None = None,
    progress: Progress = None,
) -> SweepFile:
    """Writes all rows of a question, as `sm.sweep` does where it is given `out`.

    Raises
    ------
    ScaleModelError : the file cannot be written; nothing is left of it then.
    """
    tally, size, kept = Tally(), question.size, question.columns
    own = Shard(replace(question, columns=needed_columns(kept)), 0, size)
    name = os.fspath(path)
    with (
        writing_chunks(name, sweep_metadata(own, question)) as chunks,
        watched(progress, size, " rows") as tell,
    ):
        output = FileOutput(chunks, tally)
        for frame in sweep_parts(own, threads, tell, rows=CHUNK_ROWS):
            tally.add(frame)
            output.write(only(frame, kept))
            del frame  # or it stays in memory beside the next one, and beside the row groups
            if tell is not None:
                tell(chunks.rows, size)
    best = None if tally.best is None else tally.best[1]
    return SweepFile(Path(name), size, tally.ordered(), best)
