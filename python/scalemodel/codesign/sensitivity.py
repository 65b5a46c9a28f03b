"""How much each hardware quantity is worth, and what trades against what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.codesign.study import Answer, Study, codesign, row_of, sign_of, table_of
from scalemodel.codesign.vary import Setting
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.tasks import Training
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

#: What `sensitivity` looks at unless told otherwise, where the cluster has a value to scale.
DEFAULT_PATHS = (
    "accelerator.peak",
    "accelerator.memory.bandwidth",
    "accelerator.memory.capacity",
    "accelerator.host.bandwidth",
    "accelerator.power.tdp",
    "scale_up.bandwidth",
    "fabric.bandwidth",
    "price.usd_per_accelerator_hour",
)

_COLUMNS = (
    "name",
    "low",
    "high",
    "low_value",
    "high_value",
    "base",
    "elasticity",
    "fixed_low_value",
    "fixed_high_value",
    "fixed_elasticity",
)


def _column_only(objective: object, argument: str = "objective") -> str:
    if not isinstance(objective, str):
        raise ScaleModelError(f"{argument}={objective!r}: must be one column here")
    return objective


def _ends(step: float | tuple[float, float]) -> tuple[float, float]:
    """Scales of the two ends; one number is a ratio up and the same ratio down."""
    if isinstance(step, tuple) and len(step) == 2:
        low, high = step
    elif isinstance(step, (int, float)) and not isinstance(step, bool) and step > 0:
        low, high = 1 / (1 + step), 1 + step
    else:
        raise ScaleModelError(f"step={step!r}: must be a number above 0, or (low, high) scales")
    if not (math.isfinite(high) and 0 < low < high):
        raise ScaleModelError(f"step={step!r}: must be finite, with 0 < low < high")
    return float(low), float(high)


def _elasticity(
    low: Setting, high: Setting, low_value: float | None, high_value: float | None
) -> float | None:
    """Ratio of the logarithms' differences; None where a value is missing or not positive."""
    if not low_value or not high_value or min(low_value, high_value) <= 0:
        return None
    return math.log(high_value / low_value) / math.log(float(high.value) / float(low.value))


def _value(est: Estimate, objective: str) -> float | None:
    """The objective of a strategy that was not searched, if it runs."""
    if not est.fits:
        return None
    value = est.row().get(objective)
    return None if value is None else float(value)


def sensitivity(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    paths: str | Sequence[str] | None = None,
    step: float | tuple[float, float] = 0.1,
    objective: str = "step_time_s",
    **question: Any,
) -> pd.DataFrame:
    """What a change of each hardware quantity does to the best strategy.

    Parameters
    ----------
    model, cluster, task, space : as in `codesign`
    paths : str or sequence of str, optional
        Quantities; default: peak, bandwidths, capacity, power limit and price.
    step : float or (float, float)
        0.1: from 1/1.1 to 1.1 times the cluster's value; or the two scales themselves.
    objective : str
        A column.
    **question
        ``constraints``, ``headroom``, ``stack``, ``threads``, ``progress`` as in `codesign`.

    Returns
    -------
    DataFrame, one row per quantity, widest first; `sm.plot.tornado` draws it
        name; low, high (scales); low_value, high_value, base (the objective, searched again at
        every point); elasticity d ln(objective) / d ln(quantity) between the ends; and
        fixed_low_value, fixed_high_value, fixed_elasticity with the base's strategy kept. <NA>
        where nothing fits (the kept strategy: where it does not); such a row has no bar, drop it.

    Raises
    ------
    ScaleModelError : unknown path; nothing fits on the base; a count that the step does not move.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> table = sm.codesign.sensitivity("llama3_8b", "dgx_h100", task, paths="accelerator.peak")
    >>> bool(-1 < table.elasticity.iloc[0] < 0)
    True
    """
    import pandas as pd

    objective = _column_only(objective)
    low_scale, high_scale = _ends(step)
    asked = Study(model, cluster, task, space, objective=objective, **question)
    hardware = asked.hardware
    if paths is None:
        paths = [path for path in DEFAULT_PATHS if hardware.quantity(path).scales]
    paths = [paths] if isinstance(paths, str) else list(paths)
    ends = {
        path: (hardware.setting(path, low_scale), hardware.setting(path, high_scale))
        for path in paths
    }
    for path, (low, high) in ends.items():
        if low.value == high.value:
            raise ScaleModelError(
                f"step={step!r}: does not change {path}={hardware.quantity(path).base!r}; "
                "give wider scales"
            )
    clusters = [
        hardware.build({path: setting.value}) for path, pair in ends.items() for setting in pair
    ]
    found = asked.answers([hardware.cluster, *clusters])
    if found[0] is None:
        raise ScaleModelError("cluster: nothing fits on it; there is nothing to compare with")
    rows = []
    for index, (path, (low, high)) in enumerate(ends.items()):
        here = slice(1 + 2 * index, 3 + 2 * index)
        values = [None if answer is None else answer.objective for answer in found[here]]
        fixed = [
            _value(
                estimate(asked.model, item, task, found[0].estimate.strategy, stack=asked.stack),
                objective,
            )
            for item in clusters[2 * index : 2 * index + 2]
        ]
        rows.append(
            (
                path,
                low.scale,
                high.scale,
                *values,
                found[0].objective,
                _elasticity(low, high, *values),
                *fixed,
                _elasticity(low, high, *fixed),
            )
        )
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    frame = frame.astype(dict.fromkeys(_COLUMNS[3:], "Float64"))
    span = (frame["high_value"] - frame["low_value"]).abs()
    order = span.sort_values(ascending=False, kind="stable", na_position="first").index
    frame = frame.loc[order].reset_index(drop=True)
    frame.attrs["objective"] = objective
    return frame


def _grid(
    study: pd.DataFrame, x: str, y: str, value: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Axes of x and y, ascending, and the values by (x, y); NaN where nothing fits."""
    for name in (x, y, value):
        if name not in study.columns:
            raise ScaleModelError(f"{name}: no such column of the study", code="missing_column")
    rows = study[study["verdict"] == "ok"] if "verdict" in study.columns else study
    rows = rows[rows[value].notna()]
    sign = sign_of(value)
    best = (sign * rows[value].astype(float)).groupby([rows[x], rows[y]]).min()
    table = (sign * best).unstack()
    return (
        table.index.to_numpy(dtype=float),
        table.columns.to_numpy(dtype=float),
        table.to_numpy(dtype=float),
    )


def _substitution(
    xs: np.ndarray[Any, Any], ys: np.ndarray[Any, Any], values: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """-d ln y / d ln x along lines of equal value; NaN where y changes nothing."""
    if len(xs) < 2 or len(ys) < 2:
        return np.full(values.shape, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        along_x, along_y = np.gradient(np.log(values), np.log(xs), np.log(ys))
        ratio = along_x / along_y
    return np.where(np.isfinite(ratio), ratio, np.nan)


def iso_performance(
    study: pd.DataFrame | tuple[Any, Any, Training],
    *,
    x: str,
    y: str,
    value: str = "step_time_s",
    span: float = 4.0,
    points: int = 9,
    **question: Any,
) -> pd.DataFrame:
    """The objective over two hardware quantities, and how much of one buys the other.

    Parameters
    ----------
    study : DataFrame, or (model, cluster, task)
        What `codesign` returns, varied in `x` and `y` (the best over any further paths is taken);
        or a question, then varied from 1/`span` to `span` in `points` steps on each axis.
    x, y : str
        Paths of quantities above 0.
    value : str
        A column, positive.
    **question
        With a question: further arguments of `codesign`.

    Returns
    -------
    DataFrame, one row per point where something fits; `sm.plot.iso_performance` draws it
        x, y (by their paths, base units; with their ``_scale`` where the study has it), the value,
        and ``substitution``: by how many percent y may shrink for one percent more x at the same
        value (-d ln y / d ln x; <NA> where y changes nothing). See `exchange_rate` for large
        steps.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> x, y = "accelerator.peak", "accelerator.memory.bandwidth"
    >>> question = ("llama3_8b", "dgx_h100", task)
    >>> table = sm.codesign.iso_performance(question, x=x, y=y, span=2, points=3)
    >>> len(table), bool((table.step_time_s > 0).all())
    (9, True)
    """
    import pandas as pd

    value = _column_only(value, "value")
    if x == y:
        raise ScaleModelError(f"x={x!r}, y={y!r}: must differ")
    if not isinstance(study, pd.DataFrame):
        if not isinstance(study, tuple) or len(study) != 3:
            raise ScaleModelError("study: must be a table of codesign or (model, cluster, task)")
        axis = ("log", *_ends((1 / span, span)), points)
        question.setdefault("objective", value)
        study = codesign(*study, vary={x: axis, y: axis}, **question)
    xs, ys, values = _grid(study, x, y, value)
    if values.size and not (np.nanmin(values) > 0 and min(xs.min(), ys.min()) > 0):
        raise ScaleModelError(f"{x}, {y}, {value}: must be above 0 to compare ratios")
    across, along = np.meshgrid(xs, ys, indexing="ij")
    columns: dict[str, Any] = {}
    for path, places in ((x, across.ravel()), (y, along.ravel())):
        columns[path] = places
        if f"{path}_scale" in study.columns:
            scales = dict(zip(study[path], study[f"{path}_scale"], strict=True))
            columns[f"{path}_scale"] = [scales[place] for place in places]
    columns[value] = values.ravel()
    columns["substitution"] = pd.array(_substitution(xs, ys, values).ravel(), dtype="Float64")
    frame = pd.DataFrame(columns)
    frame = frame[frame[value].notna()].reset_index(drop=True)
    frame.attrs["value"] = value
    return frame


def _crossing(
    ys: np.ndarray[Any, Any], column: np.ndarray[Any, Any], level: float, sign: float
) -> tuple[float | None, bool]:
    """The least y (in the order given) that reaches `level`, and whether it is the first of all."""
    before: int | None = None
    for index, reached in enumerate(column):
        if np.isnan(reached):
            continue
        if sign * reached <= sign * level:
            if before is None:
                return float(ys[index]), True
            # Straight lines between the points of a log-log plot.
            part = math.log(level / column[before]) / math.log(reached / column[before])
            return float(ys[before] * (ys[index] / ys[before]) ** part), False
        before = index
    return None, False


def exchange_rate(
    table: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str = "step_time_s",
    levels: Sequence[float] | None = None,
) -> pd.DataFrame:
    """How much y each x needs to reach a level of the objective.

    Parameters
    ----------
    table : DataFrame
        What `iso_performance` or `codesign` returns.
    levels : sequence of float, optional
        Values of the objective; default: five between the worst and the best of the table.

    Returns
    -------
    DataFrame, one row per level and x
        ``level``, x, y (interpolated between the grid's points, straight in logarithms; <NA> where
        no y of the grid suffices), and ``at_edge``: the first y of the grid suffices already, so
        that less might do.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> x, y = "accelerator.peak", "accelerator.memory.bandwidth"
    >>> question = ("llama3_8b", "dgx_h100", task)
    >>> table = sm.codesign.iso_performance(question, x=x, y=y, span=2, points=3)
    >>> levels = [float(table.step_time_s.median())]
    >>> rates = sm.codesign.exchange_rate(table, x=x, y=y, levels=levels)
    >>> rates[y].dropna().is_monotonic_decreasing
    True
    """
    import pandas as pd

    xs, ys, values = _grid(table, x, y, value)
    sign = sign_of(value)
    finite = values[np.isfinite(values)]
    if not finite.size:
        levels = []
    elif levels is None:
        levels = np.geomspace(finite.max(), finite.min(), 7)[1:-1].tolist()
    if finite.size and _more_is_worse(values, sign):  # then the largest y that does is sought
        ys, values = ys[::-1], values[:, ::-1]
    rows = []
    for level in levels:
        if not (math.isfinite(level) and level > 0):
            raise ScaleModelError(f"levels={level!r}: must be finite and above 0")
        for own_x, column in zip(xs, values, strict=True):
            needed, at_edge = _crossing(ys, column, level, sign)
            rows.append((float(level), float(own_x), needed, at_edge))
    frame = pd.DataFrame(rows, columns=["level", x, y, "at_edge"])
    return frame.astype({y: "Float64"})


def _more_is_worse(values: np.ndarray[Any, Any], sign: float) -> bool:
    """Whether the last column is worse than the first, over the rows that have both."""
    both = np.isfinite(values[:, 0]) & np.isfinite(values[:, -1])
    return bool(sign * (values[both, -1] - values[both, 0]).sum() > 0)


def invert(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    path: str,
    target: float,
    objective: str = "step_time_s",
    low: float = 1 / 64,
    high: float = 64.0,
    tolerance: float = 1e-4,
    **question: Any,
) -> pd.Series[Any] | None:
    """The smallest change of one quantity with which the best strategy reaches a target.

    Parameters
    ----------
    path : str
        A quantity on which the objective depends monotonically: the smallest value is sought where
        more is better, the largest where more is worse (``"fabric.oversubscription"``).
    target : float
        The objective to reach: at most, or at least where more of the column is better.
    low, high : float
        Scales between which to look.
    tolerance : float
        Relative width of the last interval; the end that reaches the target is returned. Counts
        are exact.
    **question
        ``constraints``, ``headroom``, ``stack``, ``threads``, ``progress`` as in `codesign`.

    Returns
    -------
    Series or None
        Row of a study (`codesign`) for that value; None where no scale between the ends reaches
        the target.

    Raises
    ------
    ScaleModelError : unknown path, or a target that is not a number.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> now = sm.search("llama3_8b", "dgx_h100", task, top=1)[0].step_time_s
    >>> row = sm.codesign.invert("llama3_8b", "dgx_h100", task, path="accelerator.peak",
    ...                          target=0.8 * now)
    >>> bool(1.2 < row["accelerator.peak_scale"] < 1.6)
    True
    """
    objective = _column_only(objective)
    if not (isinstance(target, (int, float)) and math.isfinite(target)):
        raise ScaleModelError(f"target={target!r}: must be a finite number")
    if not 0 < tolerance < 1:
        raise ScaleModelError(f"tolerance={tolerance!r}: must be between 0 and 1")
    least, most = _ends((low, high))
    asked = Study(model, cluster, task, space, objective=objective, **question)
    hardware, sign = asked.hardware, sign_of(objective)

    def answer_at(setting: Setting) -> tuple[Setting, Answer | None]:
        return setting, asked.answers([hardware.build({path: setting.value})])[0]

    def score(answer: Answer | None) -> float:
        return math.inf if answer is None else sign * answer.objective

    bottom, top = (answer_at(hardware.setting(path, scale)) for scale in (least, most))
    more_is_worse = score(bottom[1]) < score(top[1])
    reached, missed = (bottom, top) if more_is_worse else (top, bottom)
    if score(reached[1]) > sign * target:
        return None
    if score(missed[1]) <= sign * target:
        reached = missed  # the whole interval does
    else:
        whole = hardware.quantity(path).dimension == "count"
        good, bad = float(reached[0].value), float(missed[0].value)
        while abs(good - bad) > 1 if whole else abs(math.log(good / bad)) > tolerance:
            between = (good + bad) // 2 if whole else math.sqrt(good * bad)
            middle = answer_at(hardware.at(path, between))
            if score(middle[1]) <= sign * target:
                reached, good = middle, between
            else:
                bad = between
    points = [{path: reached[0]}]
    return table_of(hardware, points, [row_of(reached[1])], objective).iloc[0]
