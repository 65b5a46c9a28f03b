"""Writes the catalogue's decoders, clusters and stacks, for the fuzzer of evaluate.

    python tests/fuzz/records.py FILE

One record a line: its name, then its fields in the order of the field tables: numbers in base
units, words in quotes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scalemodel as sm
from scalemodel import catalog
from scalemodel.resolve.stacks import stack


def values(record: Any) -> Iterator[float | str]:
    """The values of a record's fields; a name of a choice is its place among them."""
    for field in type(record).fields():
        value = getattr(record, field["name"])
        if field["choices"]:
            yield field["choices"].index(value)
        else:
            yield from flat(value)


def flat(value: Any) -> Iterator[float | str]:
    """The numbers and words of a value, of a record or of a sequence of them."""
    if isinstance(value, (tuple, list)):
        for element in value:
            yield from flat(element)
    elif hasattr(type(value), "fields"):
        yield from values(value)
    elif isinstance(value, str):
        yield value
    else:
        yield float(value)


def catalogue() -> Iterator[Any]:
    """Every record of the catalogue that a decoder's training step is asked of."""
    for name in catalog.names("models"):
        model = sm.model(name)
        if hasattr(model, "shape"):
            yield model.shape
    for name in catalog.names("clusters"):
        yield sm.cluster(name, nodes=1).core
    for name in catalog.names("stacks"):
        yield stack(name)


def main(path: Path) -> None:
    lines = [
        f"{type(record).__name__} {' '.join(json.dumps(value) for value in values(record))}"
        for record in catalogue()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} records written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
