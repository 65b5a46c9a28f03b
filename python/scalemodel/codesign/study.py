"""The best strategy of every hardware point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress, watched
from scalemodel.base.threads import worker_threads
from scalemodel.base.words import named_arguments
from scalemodel.codesign import budget as budgets
from scalemodel.codesign.vary import Hardware, Setting, Value, Values, designs_of
from scalemodel.estimator.estimate import Estimate
from scalemodel.resolve import Cluster, Network
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import HEADROOM, Objective, headroom_fraction, is_maximised
from scalemodel.search.search import question_of, ranked_by, search_near
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.search.ranking import Ranking

#: Prefix of the columns with knobs that were not searched.
ASKED = "asked_"

_DTYPES = {"int": "Int64", "float": "Float64", "bool": "boolean", "choice": "object"}


#: A cluster, and knobs of the strategy that are not searched.
_Point: TypeAlias = tuple[Cluster, tuple[tuple[str, Any], ...]]


class Answer(NamedTuple):
    """The best strategy of a hardware point, and its objective."""

    estimate: Estimate
    objective: float


def sign_of(objective: Objective) -> float:
    """-1 where more of the objective is better, else 1.

    Examples
    --------
    >>> sign_of("tokens_per_s"), sign_of("step_time_s")
    (-1.0, 1.0)
    """
    return -1.0 if isinstance(objective, str) and is_maximised(objective) else 1.0


class Study:
    """Model, task, space and objective: everything but the hardware. Answers are remembered."""

    def __init__(
        self,
        model: ModelLike,
        cluster: ClusterLike,
        task: Training,
        space: Space | Mapping[str, Any] | None = None,
        *,
        objective: Objective = "step_time_s",
        constraints: str | Iterable[str] = (),
        headroom: float = HEADROOM,
        stack: str = DEFAULT_STACK,
        threads: int | None = None,
        progress: Progress = None,
    ) -> None:
        self.model = resolve.model(model)
        self.hardware = Hardware(cluster)
        self.task = task
        space = Space() if space is None else space
        self.space = Space(**space) if isinstance(space, Mapping) else space
        # A single column is ranked by its value, whatever its weight.
        if isinstance(objective, Mapping) and len(objective) == 1:
            objective = next(iter(objective))
        self.objective: Objective = dict(objective) if isinstance(objective, Mapping) else objective
        self.constraints = (constraints,) if isinstance(constraints, str) else tuple(constraints)
        self.headroom = headroom_fraction(headroom)
        self.stack = stack
        self.threads = worker_threads(threads)
        self.progress = progress
        self._answers: dict[_Point, Answer | None] = {}
        #: Rows of the best strategies of some point that was searched; their scores at another
        #: one leave most of its space out, and change no answer.
        self._near: tuple[int, ...] = ()

    def _search(self, point: _Point, threads: int) -> Answer | None:
        cluster, fixed = point
        space = self.space.replace(**dict(fixed)) if fixed else self.space
        ranking = self._ranking(cluster, space, threads)
        if len(ranking) == 0:
            return None
        best = ranking[0]
        if isinstance(self.objective, str):
            value = best.row().get(self.objective)
            if value is not None:
                return Answer(best, float(value))
        return Answer(best, float(ranking.table["objective"].iloc[0]))

    def _ranking(self, cluster: Cluster, space: Space, threads: int) -> Ranking:
        """The best strategies of a cluster, looked for where those of the last one were."""
        question = question_of(self.model, cluster, self.task, space, self.stack, None)
        question = ranked_by(question, self.objective, self.constraints, self.headroom, top=1)
        ranking = search_near(question, self._near, threads)
        self._near = ranking.kept_rows or self._near
        return ranking

    def answers(
        self,
        clusters: Sequence[Cluster],
        fixed: Sequence[Mapping[str, Any]] = (),
    ) -> list[Answer | None]:
        """The best strategy of each cluster, None where nothing fits.

        Many points are searched side by side, few of them one after the other on all threads.
        `fixed` holds knobs of each cluster that are not searched.
        """
        knobs = [tuple(sorted(plan.items())) for plan in fixed] or [()] * len(clusters)
        points = list(zip(clusters, knobs, strict=True))
        # Counts are rounded, so that neighbouring points may be the same machine.
        new = list(dict.fromkeys(point for point in points if point not in self._answers))
        with watched(self.progress, len(new), " points") as tell:
            for finished, (point, answer) in enumerate(self._searched(new), 1):
                self._answers[point] = answer
                if tell is not None:
                    tell(finished, len(new))
        return [self._answers[point] for point in points]

    def _searched(self, points: Sequence[_Point]) -> Iterator[tuple[_Point, Answer | None]]:
        """Every point with its answer, in order."""
        if len(points) >= 2 * self.threads > 2:
            with ThreadPoolExecutor(self.threads) as pool:
                found = pool.map(lambda item: self._search(item, 1), points)
                yield from zip(points, found, strict=True)
            return
        for point in points:
            yield point, self._search(point, self.threads)


def column_types() -> dict[str, str]:
    """Nullable types: a point where nothing fits has no numbers, and pandas says <NA>."""
    rows = [*_core.Strategy.fields(), *_core.Estimate.fields()]
    types = {row["name"]: _DTYPES.get(row["kind"], "object") for row in rows}
    return {**types, "verdict": "object", "objective": "Float64", budgets.COST: "Float64"}


def row_of(answer: Answer | None, verdict: str = "infeasible") -> dict[str, Any]:
    """Columns of the best strategy; without one all are None but the verdict."""
    if answer is not None:
        return {**answer.estimate.row(), "objective": answer.objective}
    names = [row["name"] for row in (*_core.Strategy.fields(), *_core.Estimate.fields())]
    return {**dict.fromkeys(names), "verdict": verdict, "objective": None}


def _point_row(answer: Answer | None, *, searched: bool) -> dict[str, Any]:
    """The columns of an answer, then where a measured step would lie."""
    est = None if answer is None else answer.estimate
    ends = ("step_time_low_s", "step_time_high_s")
    between = {name: None if est is None else getattr(est, name) for name in ends}
    return {**row_of(answer, "infeasible" if searched else "over_budget"), **between}


def table_of(
    hardware: Hardware,
    points: Sequence[Mapping[str, Setting]],
    rows: Sequence[Mapping[str, Any]],
    objective: Objective,
) -> pd.DataFrame:
    """The study: columns of the hardware points, then those of the answers."""
    import pandas as pd

    from scalemodel.codesign.table import StudyTable

    columns: dict[str, pd.Series[Any]] = {}
    for path in points[0] if points else ():
        settings = [point[path] for point in points]
        is_text = hardware.quantity(path).dimension == "text"
        values = [setting.value for setting in settings]
        columns[path] = pd.Series(values, dtype="object" if is_text else "float64")
        if any(setting.scale is not None for setting in settings):
            scales = [setting.scale for setting in settings]
            columns[f"{path}_scale"] = pd.Series(scales, dtype="float64")
    types = column_types()
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        cells = [row.get(name) for row in rows]
        dtype = types.get(name.removeprefix(ASKED), "Float64")
        columns[name] = pd.Series(cells, dtype=dtype)
    frame = StudyTable(columns)
    frame.attrs["objective"] = objective
    frame.attrs["units"] = {path: hardware.quantity(path).dimension for path in points[0]}
    return frame


def _split(
    hardware: Hardware,
    budget: budgets.Limits,
    points: Sequence[Mapping[str, Setting]],
    has_cost: bool,
) -> tuple[list[tuple[budgets.Limit, float]], list[str]]:
    """Limits on the design with their bounds in base units, and limits on the answer."""
    on_design: list[tuple[budgets.Limit, float]] = []
    on_answer: list[str] = []
    varied = points[0] if points else {}
    for limit in budgets.limits(budget):
        if limit.left == budgets.COST:
            if not has_cost:
                raise ScaleModelError(f"budget={str(limit)!r}: design_cost is not given")
            on_design.append((limit, budgets.number(limit)))
        elif limit.left in varied:
            bound = hardware.setting(limit.left, limit.right).value
            if isinstance(bound, str):
                raise ScaleModelError(f"budget={str(limit)!r}: {limit.left} is no number")
            on_design.append((limit, bound))
        elif limit.left in hardware.quantities:
            raise ScaleModelError(f"budget={str(limit)!r}: {limit.left} is not varied")
        else:
            on_answer.append(str(limit))
    return on_design, on_answer


@named_arguments
def codesign(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    vary: Mapping[str, Values] | None = None,
    points: pd.DataFrame | None = None,
    mode: str = "grid",
    objective: Objective = "step_time_s",
    constraints: str | Iterable[str] = (),
    headroom: float = HEADROOM,
    budget: budgets.Limits = None,
    design_cost: budgets.DesignCost | None = None,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: Progress = None,
) -> pd.DataFrame:
    """Varies the hardware and searches the best strategy of every point again.

    Parameters
    ----------
    model, cluster, task, space : as in `search`
        `cluster` is the base that numbers scale.
    vary : mapping
        Key path of the cluster's entry -> values: ``"fabric.bandwidth"``,
        ``"accelerator.memory.capacity"``, ``"accelerator.peak"`` (all formats together),
        ``"nodes"``... A number scales the base (counts are rounded, at least 1); a text sets:
        ``"800 Gbit/s"``, ``"16"``. ``("log", low, high, points)`` and ``("linear", ...)`` are
        ranges.
    points : DataFrame
        Instead of `vary`: one column per path, one row per hardware point.
    mode : str
        ``"grid"`` (every combination, the first path slowest) or ``"zip"``.
    objective, constraints, headroom, stack, network, threads : as in `search`
        The shares of a network hold at every point.
    budget : str or list of str
        Limits. On ``design_cost`` or a varied path: points beyond are not searched and get the
        verdict ``over_budget``. On a column of the answer (``"cost_usd <= 40"``): a further
        constraint of the search.
    design_cost : mapping or function
        Path -> cost of a unit (a number per base unit, or ``"12 per GB"``), summed into the column
        ``design_cost``; or a function of the mapping path -> value. Any currency, or watts.
    progress : bool or function, optional
        Default: a line once a second has passed, on a terminal or in a notebook. True shows a bar
        of tqdm, False nothing; or a function of points done and points in all.

    Returns
    -------
    DataFrame, one row per hardware point
        Every path (base units; units in ``attrs["units"]``) and, where it has a base,
        ``<path>_scale``; then the columns of `search` for the best strategy, ``objective``, the
        ends of its interval (``step_time_low_s``, ``step_time_high_s``) and ``design_cost``.
        Where nothing fits, ``verdict`` is ``infeasible`` and the other columns of the answer are
        ``<NA>`` (nullable types; names are None), never a number. Printed, the table shows the
        points and their answers; ``pd.DataFrame(study)`` shows every column.

    Raises
    ------
    ScaleModelError : unknown path (the nearest ones are named), wrong unit, illegal value.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> study = sm.codesign("llama3_8b", "dgx_h100", task, vary={"fabric.bandwidth": [1, 2]})
    >>> study["fabric.bandwidth"].tolist(), study.verdict.tolist()
    ([50000000000.0, 100000000000.0], ['ok', 'ok'])
    """
    cluster = resolve.with_network(resolve.cluster(cluster), network)
    hardware = Hardware(cluster)
    plan = designs_of(hardware, vary, mode, points)
    cost = budgets.cost_function(hardware, design_cost)
    on_design, on_answer = _split(hardware, budget, plan, cost is not None)
    given = (constraints,) if isinstance(constraints, str) else tuple(constraints)
    question = Study(
        model,
        hardware.cluster,
        task,
        space,
        objective=objective,
        constraints=(*given, *on_answer),
        headroom=headroom,
        stack=stack,
        threads=threads,
        progress=progress,
    )
    designs: list[dict[str, Value]] = [
        {path: setting.value for path, setting in point.items()} for point in plan
    ]
    clusters = [hardware.build(design) for design in designs]
    costs = [None if cost is None else cost(design) for design in designs]
    measures = [{**design, budgets.COST: own} for design, own in zip(designs, costs, strict=True)]
    searched = [
        all(limit.holds(float(measure[limit.left] or 0), bound) for limit, bound in on_design)
        for measure in measures
    ]
    kept = [item for item, go in zip(clusters, searched, strict=True) if go]
    answers = iter(question.answers(kept))
    rows = [_point_row(next(answers) if go else None, searched=go) for go in searched]
    if cost is not None:
        for row, own in zip(rows, costs, strict=True):
            row[budgets.COST] = own
    return table_of(hardware, plan, rows, question.objective)


def best_design(
    study: pd.DataFrame, *, budget: budgets.Limits = None, objective: str | None = None
) -> pd.Series[Any] | None:
    """The best row of a study within a budget, or None where no row keeps it.

    Parameters
    ----------
    study : DataFrame
        What `codesign` returns.
    budget : str or list of str
        Limits on any numeric columns: ``"design_cost <= 9000"``; numbers in base units.
    objective : str, optional
        Column to rank by; default: the study's own objective. Ties go to the earlier row.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> study = sm.codesign("llama3_8b", "dgx_h100", task, vary={"fabric.bandwidth": [1, 2]})
    >>> best = sm.codesign.best_design(study, budget="fabric.bandwidth <= 60e9")
    >>> float(best["fabric.bandwidth_scale"])
    1.0
    """
    rows = budgets.kept(study, budget)
    if rows.empty:
        return None
    ranked = objective or "objective"
    if ranked not in rows.columns:
        known = ", ".join(map(str, rows.columns))
        raise ScaleModelError(f"objective={ranked!r}: no such column; known: {known}")
    sign = sign_of(objective or study.attrs.get("objective", "step_time_s"))
    values = [sign * float(value) for value in rows[ranked]]
    return rows.iloc[values.index(min(values))]


def design_cluster(
    cluster: ClusterLike,
    design: pd.Series[Any] | Mapping[str, object],
) -> Cluster:
    """The cluster of a hardware point.

    Parameters
    ----------
    cluster : as in `codesign`
        The base.
    design : Series or mapping
        A row of the study, whose values are in base units; or path -> value as in ``vary``, where
        numbers scale and texts set.

    Examples
    --------
    >>> design_cluster("dgx_h100", {"fabric.bandwidth": 2}).core.fabric.bandwidth_bytes_per_s
    100000000000.0
    """
    hardware = Hardware(cluster)
    if isinstance(design, Mapping):
        return hardware.build(hardware.design(design))
    paths = [str(name) for name in design.index if name in hardware.quantities]
    values = {path: design[path] for path in paths}
    return hardware.build(
        {path: value if isinstance(value, str) else float(value) for path, value in values.items()}
    )


def design_strategy(row: pd.Series[Any] | Mapping[str, Any]) -> _core.Strategy:
    """The strategy of a row of a study (or of any table with a strategy's columns).

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> study = sm.codesign("llama3_8b", "dgx_h100", task, vary={"fabric.bandwidth": [1, 2]})
    >>> plan = sm.codesign.design_strategy(study.iloc[0])
    >>> bool(plan.tp == study.tp.iloc[0])
    True
    """
    kinds: dict[str, Callable[[Any], Any]] = {"int": int, "bool": bool, "choice": str}
    fields = _core.Strategy.fields()
    if row["verdict"] not in ("ok", "out_of_memory"):
        raise ScaleModelError(f"row: {row['verdict']}: there is no strategy")
    return _core.Strategy(**{f["name"]: kinds[f["kind"]](row[f["name"]]) for f in fields})
