"""Quantities written as text, such as ``"3.35 TB/s"``, in base units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from scalemodel.base.errors import ScaleModelError

_BYTES = {
    "B": 1.0,
    "KB": 1e3,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "PB": 1e15,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
_BITS = {"bit": 1 / 8, "Kbit": 1e3 / 8, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}

#: Factor to base units, by dimension and unit.
UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {f"{unit}/s": factor for unit, factor in {**_BYTES, **_BITS}.items()},
    "flop_per_s": {
        f"{unit}/s": factor
        for unit, factor in {
            "FLOP": 1.0,
            "GFLOP": 1e9,
            "TFLOP": 1e12,
            "PFLOP": 1e15,
        }.items()
    },
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "w": {"W": 1.0, "kW": 1e3, "MW": 1e6},
    "hz": {"Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9},
    "usd_per_s": {"USD/s": 1.0, "USD/h": 1 / 3600},
}

#: Whole numbers beyond it have no floating-point form.
_LARGEST = 1e300

_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*)?")

_EVERY_UNIT = {unit: factor for units in UNITS.values() for unit, factor in units.items()}
_QUANTITY = re.compile(
    r"(?<![\w.])((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*("
    + "|".join(sorted(map(re.escape, _EVERY_UNIT), key=len, reverse=True))
    + r")(?![\w/])"
)


def parse_quantity(value: object, dimension: str, where: str) -> float:
    """The number of base units that `value` stands for.

    Parameters
    ----------
    value : str or float
        Text with a unit, or a plain number already in base units.
    dimension : str
        A key of `UNITS`.
    where : str
        What is being read, for the message.

    Raises
    ------
    ScaleModelError : not a finite number, or a unit of another dimension; names `where`.

    Examples
    --------
    >>> parse_quantity("400 Gbit/s", "bytes_per_s", "fabric.bandwidth")
    50000000000.0
    """
    units = UNITS[dimension]
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ScaleModelError(
            f"{where}={value!r}: must be a quantity such as '1 {next(iter(units))}'",
            code="malformed",
        )
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value.strip())
        unit = (match.group(2) or "") if match else ""
        if match is None or unit not in units:
            raise ScaleModelError(
                f"{where}={value!r}: must be a number with one of the units "
                f"{', '.join(units)}{_hint(unit, dimension)}",
                code="units",
            )
        number = float(match.group(1)) * units[unit]
    else:
        number = float(value) if abs(value) <= _LARGEST else math.inf
    if not math.isfinite(number) or number < 0:
        raise ScaleModelError(f"{where}={value!r}: must be finite and not negative")
    return number


def in_base_units(text: str) -> str:
    """A rule whose quantities have units, with plain numbers in base units in their place.

    Examples
    --------
    >>> in_base_units("memory_bytes <= 60 GB"), in_base_units("step_time_s < 500ms")
    ('memory_bytes <= 60000000000.0', 'step_time_s < 0.5')
    >>> in_base_units("memory_bytes <= 0.9 * memory_capacity_bytes")
    'memory_bytes <= 0.9 * memory_capacity_bytes'
    """
    return _QUANTITY.sub(lambda found: repr(float(found[1]) * _EVERY_UNIT[found[2]]), text)


def _hint(unit: str, dimension: str) -> str:
    if not unit:
        return " (no unit was given)"
    if dimension.startswith("bytes") and unit.replace("/s", "").endswith("b"):
        return f"; {unit!r} reads as bits, a capacity is in bytes and a rate may be in bit/s"
    for other, known in UNITS.items():
        if unit in known:
            return f"; {unit!r} is a unit of {other}"
    return ""


def value_of(entry: object) -> object:
    """The value of a catalogue cell, which may be ``{ value = ..., source = ... }``."""
    if isinstance(entry, Mapping):
        return entry.get("value")
    return entry


def source_of(entry: object) -> str:
    """Where a catalogue cell comes from, or an empty text."""
    return str(entry.get("source", "")) if isinstance(entry, Mapping) else ""
