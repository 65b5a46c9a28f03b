"""Numbers that papers print, from the catalogue's reference data."""

from __future__ import annotations

from scalemodel import catalog
from scalemodel.base.units import parse_quantity, value_of


def published(table: str, key: str, dimension: str = "", *, entry: str = "cited_systems") -> float:
    """A published number of ``reference/<entry>.toml``, in base units.

    Parameters
    ----------
    table, key : str
        Where it stands in the entry: a system, paper or run, and the number's name.
    dimension : str
        Such as ``"bytes"``; empty for a plain number.
    entry : str
        Name of the file.

    Raises
    ------
    ScaleModelError : the number is of another dimension; the message names it.

    Examples
    --------
    >>> published("zero", "stage3", "bytes")
    1900000000.0
    >>> published("scaling", "throughput_fall", entry="studied_papers")
    0.3722
    """
    value = value_of(catalog.load("reference", entry)[table][key])
    where = f"reference/{entry}.{table}.{key}"
    if dimension:
        return parse_quantity(value, dimension, where)
    assert isinstance(value, (int, float)), where
    return float(value)
