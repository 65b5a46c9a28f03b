"""Published measurements that the package carries, each row with its source.

A table names the source of a row by a short id. ``sources.csv`` gives for every id what the row is
cited by (``source``), the file or table inside it (``path``) and an address (``url``). Numbers are
as published; words of a table are the ones that the readers of `scalemodel.validation` know.
Timings of kernels, by far the most rows, are compressed.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import read_text
from scalemodel.validation.rows import Table, table_of_text

#: Tables of a kind. Those of one kind may have columns of their own.
PARTS = {
    "training": ("training",),
    "inference": ("inference", "serving_power"),
    "wide_ep": ("wide_ep",),
    "composed": ("composed",),
    "recompute": ("recompute",),
    "rl": ("rl",),
    "moe_a2a": ("moe_a2a",),
    "kv_transfer": ("kv_transfer",),
    "power": ("power", "serving_power"),
    "gemm": ("gemm", "gemm_median"),
    "attention": ("attention", "attention_latent"),
    "moe": ("moe", "moe_dispatch"),
    "elementwise": ("elementwise", "elementwise_lookup"),
    "collectives": ("collectives",),
}

_LARGEST_BYTES = 16 * 2**20


def folder() -> Path:
    """Folder of the tables."""
    return Path(catalog.__file__).resolve().parent / "measurements"


def path_of(name: str) -> Path:
    """File of a table.

    Raises
    ------
    ScaleModelError
        The package carries no such table.
    """
    for suffix in (".csv", ".csv.gz"):
        path = folder() / f"{name}{suffix}"
        if path.is_file():
            return path
    known = ", ".join(dict.fromkeys(part for parts in PARTS.values() for part in parts))
    raise ScaleModelError(
        f"name={name!r} is no table of the package; it carries {known}", code="unknown_table"
    )


def _text(path: Path) -> str:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode("utf-8")
    return read_text(path, _LARGEST_BYTES, "path=")


@cache
def sources() -> dict[str, dict[str, str]]:
    """What each id of a source stands for: ``source``, ``path`` and ``url``.

    Examples
    --------
    >>> sources()["t1"]["url"]
    'https://github.com/mosaicml/llm-foundry'
    """
    lines = csv.DictReader(_text(folder() / "sources.csv").splitlines())
    return {line.pop("id"): line for line in lines}


def published_table(name: str) -> Table:
    """One table of the package with its sources written out.

    Parameters
    ----------
    name : str
        One of those in `PARTS`.

    Returns
    -------
    Table
        As in the file, but ``source`` cites, and two further columns ``source_path`` and ``url``
        tell where the row stands.

    Raises
    ------
    ScaleModelError
        The package carries no such table.

    Examples
    --------
    >>> table = published_table("training")
    >>> len(table.rows) > 1500, "step_time_s" in table.header
    (True, False)
    """
    path = path_of(name)
    table = table_of_text(_text(path), path)
    known, at = sources(), table.header.index("source")

    def rows() -> Iterator[list[str]]:
        for row in table.rows:
            source = known[row[at]]
            yield [*row[:at], source["source"], *row[at + 1 :], source["path"], source["url"]]

    return Table((*table.header, "source_path", "url"), list(rows()))


def published_tables(kind: str) -> tuple[Table, ...]:
    """The tables of the package with measurements of a kind.

    Parameters
    ----------
    kind : str
        As in `scalemodel.validate`.

    Raises
    ------
    ScaleModelError
        The package carries no measurements of the kind.
    """
    if kind not in PARTS:
        raise ScaleModelError(
            f"kind={kind!r}: the package carries no measurements of it; give a file (path=)",
            code="missing_table",
        )
    return tuple(published_table(name) for name in PARTS[kind])
