"""Quantities as text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import UNITS, in_base_units, parse_quantity, source_of, value_of

EVERY_UNIT = [(dimension, unit) for dimension, units in UNITS.items() for unit in units]


@pytest.mark.parametrize(("dimension", "unit"), EVERY_UNIT)
def test_a_unit_scales_its_number(dimension: str, unit: str) -> None:
    one = parse_quantity(f"1 {unit}", dimension, "x")
    assert one == UNITS[dimension][unit]
    assert math.isclose(parse_quantity(f"2.5{unit}", dimension, "x"), 2.5 * one)


#: What stands before a unit, and the units that take it: all that do must agree.
PREFIXES = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15} | {
    f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGT")
}
STEMS = {"B": 1, "bit": 1 / 8, "FLOP": 1, "W": 1, "Hz": 1}


@pytest.mark.parametrize(("dimension", "unit"), EVERY_UNIT)
def test_a_prefix_means_the_same_before_every_unit(dimension: str, unit: str) -> None:
    """Times and prices, which have none, are written out."""
    named = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60, "h": 3600}
    named |= {"USD/s": 1, "USD/h": 1 / 3600}
    expected = named.get(unit)
    if expected is None:
        name = unit.removesuffix("/s")
        stem = next(stem for stem in STEMS if name.endswith(stem))
        expected = PREFIXES[name.removesuffix(stem)] * STEMS[stem]
    assert parse_quantity(f"1 {unit}", dimension, "x") == pytest.approx(expected, rel=1e-15)


@given(st.floats(min_value=0, max_value=1e15))
def test_a_plain_number_is_in_base_units(number: float) -> None:
    assert parse_quantity(number, "bytes", "x") == number


def test_bits_are_an_eighth_of_bytes() -> None:
    bits = parse_quantity("8 Gbit/s", "bytes_per_s", "x")
    assert bits == parse_quantity("1 GB/s", "bytes_per_s", "x")


@pytest.mark.parametrize(
    ("text", "dimension", "hint"),
    [
        ("80 Gb", "bytes", "reads as bits"),
        ("80", "bytes", "no unit was given"),
        ("3 TB/s", "bytes", "unit of bytes_per_s"),
        ("fast", "flop_per_s", "FLOP/s"),
        ("-1 GB", "bytes", "not negative"),
        (float("nan"), "bytes", "finite"),
        (True, "s", "must be a quantity"),
        (None, "w", "must be a quantity"),
    ],
)
def test_what_is_no_quantity_is_refused_by_name(text: object, dimension: str, hint: str) -> None:
    with pytest.raises(ScaleModelError, match=r"memory\.capacity") as caught:
        parse_quantity(text, dimension, "memory.capacity")
    assert hint in str(caught.value)


def test_a_cell_is_a_value_with_or_without_a_source() -> None:
    cell = {"value": "1 GB", "source": "sheet"}
    assert (value_of(cell), source_of(cell)) == ("1 GB", "sheet")
    assert (value_of("1 GB"), source_of("1 GB")) == ("1 GB", "")


@pytest.mark.parametrize(("dimension", "unit"), EVERY_UNIT)
@pytest.mark.parametrize("gap", ["", " "])
def test_rules_take_quantities_with_every_unit(dimension: str, unit: str, gap: str) -> None:
    written = in_base_units(f"column <= 2.5{gap}{unit}")
    assert float(written.removeprefix("column <= ")) == 2.5 * UNITS[dimension][unit]


@pytest.mark.parametrize(
    "rule",
    [
        "power_w <= 650",
        "memory_bytes <= 0.9 * memory_capacity_bytes",
        "tp * cp <= 8",
        "layers % (pp * vpp) == 0",
        "dp2 <= 4 Gbit/sec",
        "h200 < 3",
    ],
)
def test_rules_without_units_stay_as_they_are(rule: str) -> None:
    assert in_base_units(rule) == rule
