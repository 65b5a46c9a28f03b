"""Where the rows of a sweep go that no file takes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from scalemodel.cli import rankings

if TYPE_CHECKING:
    import pandas as pd


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
