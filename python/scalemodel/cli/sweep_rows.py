"""Where the rows of a sweep go, and what is counted on the way."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel.cli import rankings

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.search.table_draft import Chunks


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


class CsvOutput:
    """Rows to standard output as they come."""

    def __init__(self) -> None:
        self._started = False

    def write(self, frame: pd.DataFrame) -> None:
        """Write further rows."""
        from scalemodel.search.table_file import csv_text

        sys.stdout.write(csv_text(frame, header=not self._started))
        self._started = True


class JsonOutput:
    """Rows to standard output as one JSON array, one row a line."""

    def __init__(self) -> None:
        self._started = False

    def write(self, frame: pd.DataFrame) -> None:
        """Write further rows."""
        import json

        for row in rankings.records(frame.reset_index()):
            text = json.dumps(row, ensure_ascii=False, allow_nan=False)
            sys.stdout.write((",\n" if self._started else "[\n") + text)
            self._started = True

    def close(self) -> None:
        """Close the array."""
        sys.stdout.write("\n]\n" if self._started else "[]\n")
