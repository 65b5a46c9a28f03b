"""What a search is for: columns, objectives and constraints, read from names and texts."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import in_base_units
from scalemodel.search.space import as_texts

_COLUMNS = {str(row["name"]): row for row in _core.columns()}
#: The same of models of layer groups.
GROUP_COLUMNS: dict[str, dict[str, Any]] = {
    str(name): {"maximised": maximised, "positive": positive}
    for name, maximised, positive in _core.group_columns()
}
_STRATEGY_NAMES = tuple(str(row["name"]) for row in _core.Strategy.fields())
_ESTIMATE_NAMES = tuple(str(row["name"]) for row in _core.Estimate.fields())
#: Column names of `sweep`: the strategy's fields, then the estimate's.
SWEEP_COLUMNS = _STRATEGY_NAMES + tuple(n for n in _ESTIMATE_NAMES if n not in _STRATEGY_NAMES)

Columns = Mapping[str, Mapping[str, Any]]
Objective = str | Mapping[str, float]
#: Share of the memory that a search leaves free unless it is told otherwise.
HEADROOM = 0.05
ConstraintRow = tuple[str, str, float, str | None]

_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}

# left comparison number, left comparison right, left comparison number * right
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONSTRAINT = (
    r"\s*(?P<left>\w+)\s*(?P<op><=|>=|==|!=|<|>)\s*"
    rf"(?P<number>{_NUMBER})?\s*(?P<times>\*)?\s*(?P<right>[A-Za-z_]\w*)?\s*"
)


def known_column(name: object, argument: str, columns: Columns = _COLUMNS) -> str:
    """The name of a column of an estimate; any other is an error that names `argument`."""
    if not isinstance(name, str) or name not in columns:
        raise ScaleModelError(f"{argument}={name!r}: no such column; {nearest(str(name), columns)}")
    return name


def is_maximised(column: str, columns: Columns = _COLUMNS) -> bool:
    """Whether more of a column is better.

    Examples
    --------
    >>> is_maximised("tokens_per_s"), is_maximised("energy_j")
    (True, False)
    """
    return bool(column in columns and columns[column]["maximised"])


def objective_terms(objective: Objective, columns: Columns = _COLUMNS) -> list[tuple[str, float]]:
    """Columns and weights of an objective; `columns`: what it may name.

    Examples
    --------
    >>> objective_terms({"step_time_s": 1, "cost_usd": 0.5})
    [('step_time_s', 1.0), ('cost_usd', 0.5)]
    """
    if isinstance(objective, str):
        return [(known_column(objective, "objective", columns), 1.0)]
    if not isinstance(objective, Mapping) or not objective:
        raise ScaleModelError(
            f"objective={objective!r}: must be a column or a mapping of columns to weights"
        )
    terms = []
    for name, weight in objective.items():
        column = known_column(name, "objective", columns)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < 1e6:
            raise ScaleModelError(f"objective[{name!r}]={weight!r}: must be a positive weight")
        if len(objective) > 1 and not columns[column]["positive"]:
            raise ScaleModelError(
                f"objective[{name!r}]: a weighted objective takes columns that are never zero: "
                + ", ".join(key for key, row in columns.items() if row["positive"])
            )
        terms.append((column, float(weight)))
    return terms


def constraint(text: str, columns: Columns = _COLUMNS) -> ConstraintRow:
    """A limit on one of `columns`, read from text.

    Examples
    --------
    >>> constraint("power_w <= 650")
    ('power_w', '<=', 650.0, None)
    >>> constraint("memory_bytes <= 60 GB")
    ('memory_bytes', '<=', 60000000000.0, None)
    >>> constraint("memory_bytes <= 0.9 * memory_capacity_bytes")
    ('memory_bytes', '<=', 0.9, 'memory_capacity_bytes')
    """
    found = re.fullmatch(_CONSTRAINT, in_base_units(text)) if isinstance(text, str) else None
    given = () if found is None else (found["number"], found["right"])
    # A star stands between a number and a column, and only there.
    if found is None or not any(given) or (found["times"] is not None) != all(given):
        raise ScaleModelError(
            f"constraints={text!r}: must be like 'power_w <= 650' or "
            "'memory_bytes <= 0.9 * memory_capacity_bytes'"
        )
    left = known_column(found["left"], "constraints", columns)
    right = None if found["right"] is None else known_column(found["right"], "constraints", columns)
    factor = 1.0 if found["number"] is None else float(found["number"])
    if abs(factor) == float("inf"):
        raise ScaleModelError(f"constraints={text!r}: the limit must be finite")
    return left, found["op"], factor, right


def headroom_fraction(headroom: object) -> float:
    """A checked share of the memory that is to be left free.

    Examples
    --------
    >>> headroom_fraction(0.05), headroom_fraction(0)
    (0.05, 0.0)
    """
    number = isinstance(headroom, (int, float)) and not isinstance(headroom, bool)
    if not (number and 0 <= float(headroom) < 1):  # type: ignore[arg-type]
        raise ScaleModelError(
            f"headroom={headroom!r}: must be a share of the memory from 0 to below 1, as 0.05"
        )
    return float(headroom)  # type: ignore[arg-type]


def limits_of(
    constraints: Sequence[str], headroom: float, columns: Columns = _COLUMNS
) -> list[ConstraintRow]:
    """Limits as the engine takes them, that of the memory left free among them.

    Examples
    --------
    >>> limits_of(["power_w <= 650"], 0.0)
    [('power_w', '<=', 650.0, None)]
    >>> limits_of([], 0.25)
    [('memory_bytes', '<=', 0.75, 'memory_capacity_bytes')]
    """
    free = [("memory_bytes", "<=", 1.0 - headroom, "memory_capacity_bytes")] if headroom else []
    return [*(constraint(text, columns) for text in constraints), *free]


def holds(core: _core.Estimate, limit: ConstraintRow) -> bool:
    """Whether an estimate keeps a limit.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> holds(est.core, constraint("memory_bytes <= memory_capacity_bytes"))
    True
    """
    column, compared, factor, other = limit
    bound = factor * (1.0 if other is None else float(getattr(core, other)))
    return bool(_COMPARED[compared](float(getattr(core, column)), bound))


def known_columns(columns: object) -> tuple[str, ...]:
    """Names of columns of a sweep, at least one; any other is an error."""
    listed = as_texts(columns, "columns")
    for name in listed:
        if name not in SWEEP_COLUMNS:
            raise ScaleModelError(
                f"columns={name!r}: no such column; {nearest(name, SWEEP_COLUMNS)}"
            )
    if not listed:
        raise ScaleModelError("columns=[]: at least one is needed")
    return listed
