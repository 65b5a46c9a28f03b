"""What a design costs, and the limits it has to keep."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import UNITS
from scalemodel.codesign.vary import Design, Hardware, Quantity

if TYPE_CHECKING:
    import pandas as pd

#: Path -> cost of a unit of it, or a function of a design.
DesignCost: TypeAlias = "Mapping[str, float | str] | Callable[[dict[str, Any]], float]"
#: One limit or several, such as ``"design_cost <= 9000"``.
Limits: TypeAlias = "str | Iterable[str] | None"

COST = "design_cost"
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_LIMIT = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*(\S.*?)\s*")
_RATE = re.compile(r"\s*(\S+)\s+per\s+(\S+)\s*")


class Limit(NamedTuple):
    """A column or path, a comparison and the text on its right."""

    left: str
    comparison: str
    right: str

    def holds(self, value: float, bound: float) -> bool:
        """Whether `value` keeps the limit."""
        return _COMPARISONS[self.comparison](value, bound)

    def __str__(self) -> str:
        return f"{self.left} {self.comparison} {self.right}"


def limits(given: Limits) -> list[Limit]:
    """The limits of a budget.

    Examples
    --------
    >>> limits("design_cost <= 9e3")
    [Limit(left='design_cost', comparison='<=', right='9e3')]
    """
    if given is not None and not isinstance(given, Iterable):
        raise ScaleModelError(f"budget={given!r}: must be such as 'design_cost <= 9000'")
    texts = [given] if isinstance(given, str) else list(given or ())
    found = []
    for text in texts:
        match = _LIMIT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise ScaleModelError(
                f"budget={text!r}: must be a column or path, one of <=, >=, <, > and a number"
            )
        found.append(Limit(*match.groups()))
    return found


def number(limit: Limit) -> float:
    """The right side of a limit on a column."""
    try:
        value = float(limit.right)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise ScaleModelError(f"budget={str(limit)!r}: the right side must be a number")
    return value


def _rate(quantity: Quantity, given: object) -> float:
    """Cost of a base unit: a number, or a text such as ``"12 per GB"``."""
    amount, unit = given, None
    if isinstance(given, str):
        match = _RATE.fullmatch(given)
        if match is None:
            raise ScaleModelError(
                f"design_cost: {quantity.path}={given!r}: must be a number or such as '12 per GB'"
            )
        amount, unit = match.groups()
    try:
        rate = float(amount)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        rate = math.nan
    if isinstance(given, bool) or not math.isfinite(rate):
        raise ScaleModelError(f"design_cost: {quantity.path}={given!r}: must be a finite number")
    if unit is None:
        return rate
    units = UNITS.get(quantity.dimension, {})
    if unit not in units:
        raise ScaleModelError(
            f"design_cost: {quantity.path}={given!r}: {nearest(unit, units)}", code="units"
        )
    return rate / units[unit]


def cost_function(hardware: Hardware, cost: DesignCost | None) -> Callable[[Design], float] | None:
    """What a design costs; quantities it leaves alone count at the cluster's own value."""
    if cost is None:
        return None
    if callable(cost):
        function = cost
        return lambda design: _checked(function(hardware.values(design)), design)
    if not isinstance(cost, Mapping) or not cost:
        raise ScaleModelError(f"design_cost={cost!r}: must map paths to costs, or be a function")
    rates = {path: _rate(hardware.quantity(path), given) for path, given in cost.items()}
    for path in rates:
        if hardware.quantity(path).dimension == "text":
            raise ScaleModelError(f"design_cost: {path!r} is no number")

    def summed(design: Design) -> float:
        values = hardware.values(design)
        return math.fsum(rate * float(values[path]) for path, rate in rates.items())

    return lambda design: _checked(summed(design), design)


def _checked(cost: object, design: Design) -> float:
    number = float(cost) if isinstance(cost, (int, float)) else math.nan
    if not math.isfinite(number):
        raise ScaleModelError(f"design_cost: {dict(design)!r} costs {cost!r}; must be finite")
    return number


def kept(study: pd.DataFrame, budget: Limits) -> pd.DataFrame:
    """The rows of a study that ran and keep a budget."""
    rows = study[study["verdict"] == "ok"]
    for limit in limits(budget):
        if limit.left not in study.columns:
            raise ScaleModelError(
                f"budget={str(limit)!r}: {nearest(limit.left, map(str, study.columns))}",
                code="missing_column",
            )
        bound = number(limit)
        rows = rows[[limit.holds(float(value), bound) for value in rows[limit.left]]]
    return rows
