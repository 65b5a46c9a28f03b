"""Power of an accelerator beside its training phases: under a limit, and while it serves."""

from __future__ import annotations

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.resolve.reader import Reader, Table


def _defaults(part: str) -> Reader:
    table = catalog.load("reference", "power_phases")[part]
    return Reader(table, f"reference/power_phases.{part}")


def clock_power() -> _core.ClockPower:
    """How power follows the clock, of any accelerator.

    Examples
    --------
    >>> 2 <= clock_power().exponent <= 3
    True
    """
    reader = _defaults("clock")
    return _core.ClockPower(
        static_fraction=reader.number("static_fraction"),
        exponent=reader.number("exponent"),
        least_clock=reader.number("least_clock"),
    )


def serving_power(accelerator: Table) -> _core.ServingPower:
    """Constants of an accelerator's tables; what they leave out is that of measured ones.

    Examples
    --------
    >>> from scalemodel.resolve.accelerators import accelerator_table
    >>> serving_power(accelerator_table("b200")).floor_fraction
    0.44
    """
    usual = _defaults("serving")
    own = Reader(accelerator.get("power", {}), "power").sub("serving")
    fractions = ("floor_fraction", "busy_fraction", "activity_fraction")
    times = ("host_step", "host_sequence", "rank_step")
    constants = {name: own.number(name, usual.number(name)) for name in fractions}
    for name in times:
        constants[f"{name}_s"] = own.quantity(name, "s", usual.quantity(name, "s"))
    own.finish()
    return _core.ServingPower(**constants)
