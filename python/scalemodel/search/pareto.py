"""Which rows of a table no other row beats, and where along them a compromise pays most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import named_arguments

if TYPE_CHECKING:
    import pandas as pd

FEWEST_OBJECTIVES, MOST_OBJECTIVES = 2, 4

#: Ratio of the largest to the smallest value from which an objective is read on a log axis.
LOG_RATIO = 10.0

# A distance from the chord below this share of the axes is rounding, not a bend.
_BEND = 1e-9


def table_of(frame: Any, argument: str = "frame") -> pd.DataFrame:
    """Return the table itself, or the one that a ranking carries as ``table``.

    Parameters
    ----------
    frame : DataFrame, or an object with a DataFrame as ``table``
    argument : str
        Its name in an error.

    Raises
    ------
    ScaleModelError : neither of the two.

    Examples
    --------
    >>> import pandas as pd
    >>> list(table_of(pd.DataFrame({"step_time_s": [1.0]})).columns)
    ['step_time_s']
    """
    import pandas as pd

    table = frame if isinstance(frame, pd.DataFrame) else getattr(frame, "table", None)
    if not isinstance(table, pd.DataFrame):
        raise ScaleModelError(
            f"{argument}={type(frame).__name__}: must be a DataFrame, such as sm.sweep returns"
        )
    return table


def feasible(table: pd.DataFrame) -> pd.DataFrame:
    """Rows whose verdict is ``ok``; all rows of a table without verdicts.

    Examples
    --------
    >>> import pandas as pd
    >>> feasible(pd.DataFrame({"verdict": ["ok", "out_of_memory"], "tp": [4, 1]})).tp.tolist()
    [4]
    """
    return table[table["verdict"] == "ok"] if "verdict" in table.columns else table


def numbers(table: pd.DataFrame, column: str, argument: str = "frame") -> NDArray[np.float64]:
    """Values of a column as 64-bit floats; what is missing is NaN.

    Parameters
    ----------
    table : DataFrame
    column : str
    argument : str
        The argument that named the column, for an error.

    Raises
    ------
    ScaleModelError : no such column, or one that does not hold real numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> numbers(pd.DataFrame({"tp": [1, 2]}), "tp")
    array([1., 2.])
    """
    import pandas as pd

    if column not in table.columns:
        known = [str(name) for name in table.columns]
        raise ScaleModelError(
            f"{argument}={column!r}: no such column; {nearest(str(column), known)}",
            code="unknown_column",
        )
    if list(table.columns).count(column) > 1:
        raise ScaleModelError(f"{argument}={column!r}: the table has more than one such column")
    values = table[column]
    if values.dtype == object:
        # A column that holds None beside numbers arrives as objects; text stays a mistake.
        values = values.infer_objects()
    real = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values)
    if not real and not (values.dtype == object and values.isna().all()):
        raise ScaleModelError(
            f"{argument}={column!r}: holds {values.dtype}; must be a column of real numbers"
        )
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def names(columns: str | Sequence[str], argument: str) -> list[str]:
    """Column names as a list; one name may come alone.

    Raises
    ------
    ScaleModelError : something that is no name.

    Examples
    --------
    >>> names("energy_j", "minimize"), names(("a", "b"), "maximize")
    (['energy_j'], ['a', 'b'])
    """
    listed = [columns] if isinstance(columns, str) else list(columns)
    for name in listed:
        if not isinstance(name, str):
            raise ScaleModelError(f"{argument}={columns!r}: must be names of columns")
    return listed


def reads_log(values: NDArray[np.float64]) -> bool:
    """Whether values are read on a log axis: all positive and spread over a decade or more.

    Examples
    --------
    >>> reads_log(np.array([1.0, 9.0])), reads_log(np.array([1.0, 10.0]))
    (False, True)
    """
    if values.size == 0 or not np.isfinite(values).all() or values.min() <= 0:
        return False
    return bool(values.max() >= LOG_RATIO * values.min())


def _objectives(
    table: pd.DataFrame, minimize: str | Sequence[str], maximize: str | Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Each objective as numbers to be minimised: what is to be maximised changes sign."""
    smaller, larger = names(minimize, "minimize"), names(maximize, "maximize")
    together = [*smaller, *larger]
    if not FEWEST_OBJECTIVES <= len(together) <= MOST_OBJECTIVES:
        raise ScaleModelError(
            f"minimize={smaller!r}, maximize={larger!r}: {len(together)} objectives; a front has "
            f"{FEWEST_OBJECTIVES} to {MOST_OBJECTIVES}"
        )
    for name in together:
        if together.count(name) > 1:
            raise ScaleModelError(
                f"minimize={smaller!r}, maximize={larger!r}: {name!r} is named twice"
            )
    signed = {name: numbers(table, name, "minimize") for name in smaller}
    signed |= {name: -numbers(table, name, "maximize") for name in larger}
    for name, values in signed.items():
        missing = np.isnan(values)
        if missing.any():
            first = int(missing.argmax())
            (label,) = table.index[first : first + 1].tolist()
            raise ScaleModelError(
                f"column {name!r}: {int(missing.sum())} of {len(values)} rows have no value, first "
                f"the one labelled {label!r}; leave them out with "
                f"frame.dropna(subset=[{name!r}])",
                code="missing_value",
            )
    return signed


@named_arguments
def pareto(
    frame: pd.DataFrame | Any,
    minimize: str | Sequence[str] = (),
    maximize: str | Sequence[str] = (),
    *,
    feasible_only: bool = True,
) -> pd.DataFrame:
    """Rows that no other row beats in every objective, the best in the first objective first.

    A row is beaten by one that is nowhere worse and somewhere better; equal rows stay together.
    Values are compared as 64-bit floats.

    Parameters
    ----------
    frame : DataFrame, or a ranking
        What ``sm.sweep`` returns, or any table with the columns named.
    minimize, maximize : str or sequence of str
        Columns; two to four in all. The first one orders the result: the first of `minimize`, or
        of `maximize` where nothing is minimised.
    feasible_only : bool
        Leave out rows whose ``verdict`` is not ``ok``. A table without that column keeps all.

    Returns
    -------
    DataFrame
        Index and columns of `frame`; ``attrs`` names the objectives for ``sm.plot.pareto``. Empty
        where nothing is feasible.

    Raises
    ------
    ScaleModelError : an unknown column, one named twice or without numbers, a missing value, fewer
        than two or more than four objectives.

    Examples
    --------
    >>> import pandas as pd
    >>> import scalemodel as sm
    >>> frame = pd.DataFrame({"step_time_s": [1.0, 2.0, 2.0, 4.0], "energy_j": [9.0, 3.0, 5.0, 2.0],
    ...                       "verdict": ["ok", "ok", "ok", "out_of_memory"]})
    >>> sm.pareto(frame, minimize=["step_time_s", "energy_j"]).index.tolist()
    [0, 1]
    """
    table = table_of(frame)
    if feasible_only:
        table = feasible(table)
    signed = _objectives(table, minimize, maximize)
    front = table.iloc[_core.pareto_front(list(signed.values()))]
    front.attrs["minimize"] = names(minimize, "minimize")
    front.attrs["maximize"] = names(maximize, "maximize")
    return front


def knees(
    front: pd.DataFrame | Any,
    minimize: str | Sequence[str] = (),
    maximize: str | Sequence[str] = (),
    count: int = 1,
) -> pd.DataFrame:
    """Rows of a front where giving up a little of one objective no longer gains much of another.

    Every objective is scaled to 0 (best on the front) and 1 (worst), on a log axis where its values
    are positive and span a decade or more. A knee lies farthest below the chord between the
    extremes (Das, Structural Optimization 18 (1999) 107-115), or below the plane through the
    corners for three and four objectives: distance (1 - sum of scaled values) / sqrt(objectives).

    Parameters
    ----------
    front : DataFrame, or a ranking
        Rows of a front, as `pareto` returns them.
    minimize, maximize : str or sequence of str
        The objectives of the front, two to four in all.
    count : int
        With two objectives a further knee is a bend of its own, farther from the chord than the
        rows beside it.

    Returns
    -------
    DataFrame
        At most `count` rows, the farthest first; fewer, or none, where no row lies below the
        chord.

    Raises
    ------
    ScaleModelError : as `pareto`; also infinite values, which have no scale.

    Examples
    --------
    >>> import pandas as pd
    >>> front = pd.DataFrame({"step_time_s": [1.0, 1.2, 4.0], "energy_j": [9.0, 3.0, 2.0]})
    >>> knees(front, minimize=["step_time_s", "energy_j"]).index.tolist()
    [1]
    """
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ScaleModelError(f"count={count!r}: must be a whole number, at least 1")
    table = table_of(front, "front")
    signed = _objectives(table, minimize, maximize)
    for name, values in signed.items():
        if not np.isfinite(values).all():
            raise ScaleModelError(
                f"column {name!r}: infinite values have no place between extremes"
            )
    if table.empty:
        return table
    smaller = names(minimize, "minimize")
    scaled = [_scaled(values, 1 if name in smaller else -1) for name, values in signed.items()]
    distance = (1 - np.sum(scaled, axis=0)) / np.sqrt(len(scaled))
    bends = distance > _BEND
    if len(signed) == FEWEST_OBJECTIVES:
        along = np.lexsort(list(reversed(signed.values())))
        inner = np.concatenate(([-np.inf], distance[along], [-np.inf]))
        bends[along] &= (inner[1:-1] >= inner[:-2]) & (inner[1:-1] > inner[2:])
    farthest_first = np.argsort(-distance, kind="stable")
    chosen: pd.DataFrame = table.iloc[farthest_first[bends[farthest_first]][:count]]
    return chosen


def _scaled(signed: NDArray[np.float64], sign: float) -> NDArray[np.float64]:
    """0 for the best value, 1 for the worst; all 0 where they are equal."""
    values = sign * signed
    if reads_log(values):
        signed = sign * np.log(values)
    halved = 0.5 * signed  # the span of the largest floats is no float
    span = halved.max() - halved.min()
    return (halved - halved.min()) / span if span > 0 else np.zeros_like(signed)
