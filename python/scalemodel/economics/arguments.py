"""Checks of numbers, and of names that stand for numbers of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Mapping

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.text import size_text
from scalemodel.base.units import value_of
from scalemodel.base.words import number_meant
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import running_estimate


def checked(argument: str, value: object, low: float, high: float = 1e30) -> float:
    """`value` as a finite number from `low` to `high`.

    Raises
    ------
    ScaleModelError : it is none; the message names the argument.

    Examples
    --------
    >>> checked("days", 30, 0)
    30.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        meant = number_meant(value) if isinstance(value, str) else None
        likely = "" if meant is None else f"; did you mean {argument}={meant:g}?"
        raise ScaleModelError(
            f"{argument}={value!r}: must be a number from {low:g} to {high:g}{likely}"
        )
    if not math.isfinite(value) or not low <= value <= high:
        raise ScaleModelError(f"{argument}={value!r}: must be from {low:g} to {high:g}")
    return float(value)


def one_of(**given: object) -> str:
    """Name of the one argument that is not None.

    Raises
    ------
    ScaleModelError : none or several are given; the message names them.

    Examples
    --------
    >>> one_of(tokens=1e12, days=None)
    'tokens'
    """
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        got = ", ".join(f"{name}={given[name]!r}" for name in named) or "none was given"
        raise ScaleModelError(f"give exactly one of {', '.join(given)}; {got}")
    return named[0]


def preset(argument: str, value: object, table: Mapping[str, object], low: float) -> float:
    """A number, or the number of a named cell of a reference table.

    Examples
    --------
    >>> preset("pue", "meta", {"meta": {"value": 1.08, "source": "fleet"}}, 1)
    1.08
    """
    if isinstance(value, str):
        if value not in table:
            raise ScaleModelError(f"{argument}={value!r}: unknown; {nearest(value, table)}")
        return checked(argument, value_of(table[value]), low)
    return checked(argument, value, low)


def fitting_estimate(est: Estimate, argument: str = "est") -> Estimate:
    """The estimate of a strategy that runs and fits, or an error that says what would.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192))
    >>> try:
    ...     fitting_estimate(est)
    ... except sm.ScaleModelError as error:
    ...     print(error.code)
    out_of_memory
    """
    found = running_estimate(est, argument)
    if not found.fits:
        needs, has = (
            size_text(getattr(found.core, f"memory_{name}bytes")) for name in ("", "capacity_")
        )
        changes = [fix.change for fix in found.fixes() if fix.verdict == "ok"][:2]
        helps = f"try {' or '.join(changes)} ({argument}.fixes())" if changes else "search for one"
        raise ScaleModelError(
            f"{argument}: needs {needs} of {has} in every {found.cluster.accelerator}; what does "
            f"not fit does not run; {helps}",
            code="out_of_memory",
        )
    return found
