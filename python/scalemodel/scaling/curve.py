"""One job over many sizes: `scaling` and what its table says about diminishing returns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.codesign.study import column_types, row_of
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve import Cluster, Network
from scalemodel.resolve.clusters import ClusterLike, network_text
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.routing.route import options_of
from scalemodel.scaling.choice import Rule, choice_of
from scalemodel.search.objective import Objective
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

#: Columns of one size beside those of an estimate.
POINT_COLUMNS = tuple(str(row["name"]) for row in _core.ScalingPoint.fields())
#: Columns between sizes.
RATIO_COLUMNS = ("scaling_efficiency_fraction", "marginal_return_fraction")

#: Where returns are said to diminish: exposed communication above, marginal return below.
EXPOSED_LIMIT, MARGINAL_LIMIT = 0.05, 0.5


class DiminishingReturns(NamedTuple):
    """First sizes at which more accelerators pay off less; None where no size of the table does.

    Examples
    --------
    >>> DiminishingReturns(exposed_above=64, marginal_below=None).exposed_above
    64
    """

    exposed_above: int | None
    marginal_below: int | None


# -------------------------------------------------------------------------------------- questions
def sizes_of(gpus: Iterable[int], argument: str = "gpus") -> list[int]:
    """Counts of accelerators in ascending order.

    Raises
    ------
    ScaleModelError : no count, one that is not a positive whole number, or one that occurs twice.

    Examples
    --------
    >>> sizes_of([64, 8])
    [8, 64]
    """
    listed = [gpus] if isinstance(gpus, int) else list(gpus)
    if not listed:
        raise ScaleModelError(f"{argument}=[]: at least one size is needed")
    for size in listed:
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool)
        if not whole or size < 1:
            raise ScaleModelError(f"{argument}={size!r}: must be a positive whole number")
    sizes = sorted(int(size) for size in listed)
    doubled = [size for size, later in itertools.pairwise(sizes) if size == later]
    if doubled:
        raise ScaleModelError(f"{argument}={listed!r}: {doubled[0]} is listed twice")
    return sizes


def tasks_of(task: Training, sizes: Sequence[int], mode: str) -> list[Training]:
    """The task at every size.

    Raises
    ------
    ScaleModelError : an unknown mode, or a batch that would not be whole.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=4096)
    >>> [item.global_batch for item in tasks_of(task, [8, 12, 64], "weak")]
    [16, 24, 128]
    """
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    if mode not in ("weak", "strong"):
        raise ScaleModelError(f"mode={mode!r}: must be 'weak' or 'strong'")
    if mode == "strong":
        return [task] * len(sizes)
    found = []
    for size in sizes:
        batch, rest = divmod(task.global_batch * size, sizes[0])
        if rest:
            raise ScaleModelError(
                f"global_batch={task.global_batch}: is that of {sizes[0]} accelerators; "
                f"{size} would take {task.global_batch * size / sizes[0]:g} sequences"
            )
        found.append(task.replace(global_batch=batch))
    return found


# ----------------------------------------------------------------------------------------- rows
def point_row(est: Estimate | None) -> dict[str, Any]:
    """Columns of one size; without an answer all are None but the verdict."""
    row = {**row_of(None), **dict.fromkeys(POINT_COLUMNS)}
    del row["objective"]
    if est is None:
        return row
    row.update(est.row())
    if not est.illegal:
        tables = tables_for(est.model, est.cluster, est.task, est.stack)
        row.update(_core.scaling_point(tables, est.strategy, est.core).to_dict())
        if est.cost_usd is None:
            row["usd_per_token"] = None
    return row


def typed(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows as a table with nullable types: what is missing is <NA>, never a number."""
    import pandas as pd

    types = {**column_types(), "accelerators": "Int64", "global_batch": "Int64"}
    types.update(dict.fromkeys((*POINT_COLUMNS, *RATIO_COLUMNS), "Float64"))
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        cells = [row.get(name) for row in rows]
        columns[name] = pd.Series(cells, dtype=types.get(name))
    return pd.DataFrame(columns)


def _add_ratios(rows: list[dict[str, Any]]) -> None:
    """Efficiency against the smallest size that runs, and return against the one before."""
    for row in rows:
        row.update(dict.fromkeys(RATIO_COLUMNS))
    running = [row for row in rows if row["verdict"] == "ok"]
    if not running:
        return
    sizes = np.array([row["accelerators"] for row in running], dtype=float)
    rates = np.array([row["tokens_per_s"] for row in running])
    efficiencies = _core.scaling_efficiency(rates, sizes, rates[0], sizes[0])
    returns = _core.marginal_return(rates[1:], sizes[1:], rates[:-1], sizes[:-1])
    for row, efficiency in zip(running, efficiencies, strict=True):
        row["scaling_efficiency_fraction"] = float(efficiency)
    for row, marginal in zip(running[1:], returns, strict=True):
        row["marginal_return_fraction"] = float(marginal)


def clusters_of(cluster: ClusterLike, sizes: Sequence[int]) -> list[Cluster]:
    """The cluster at every size."""
    base = resolve.cluster(cluster)
    return [resolve.cluster(base, accelerators=size) for size in sizes]


# ----------------------------------------------------------------------------------------- verbs
@named_arguments
def scaling(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    gpus: Iterable[int],
    *,
    mode: str = "weak",
    strategy: _core.Strategy | None = None,
    rule: Rule | None = None,
    search: Space | Mapping[str, Any] | None = None,
    objective: Objective = "step_time_s",
    constraints: str | Iterable[str] = (),
    stack: str = DEFAULT_STACK,
    network: Network | str = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """One job over many sizes of a cluster.

    Parameters
    ----------
    model, cluster : object or anything `sm.model` and `sm.cluster` take
    task : Training or FineTuning
        Its global batch is that of the smallest size in weak scaling, of every size in strong
        scaling.
    gpus : sequence of int
        Accelerators of the job, in any order.
    mode : str
        ``"weak"``: the batch grows with the job; ``"strong"``: it stays.
    strategy : Strategy, optional
        The same at every size; its data-parallel degree follows from the size.
    rule : str, optional
        ``"ddp"``, ``"fsdp"`` (shards over all ranks) or ``"hsdp"`` (shards over groups of the
        strategy's ``shard_degree``, else of a scale-up domain, and replicates them). Sets the
        sharding of `strategy`, or of one without model parallelism.
    search : Space or mapping of its arguments, optional
        The best strategy of this space at every size. Default where neither a strategy nor a rule
        is given: the automatic space.
    objective, constraints, threads : as in `sm.search`
        Of that search.
    stack : str
        Named software stack of the catalogue.
    network : str, mapping of axis to share, or NetworkReport, optional
        A routing policy of `sm.route`: every size is routed by itself on the cluster's fabric of
        that size, and gets what the policy leaves to each axis; a search still ranks strategies on
        the ideal fabric. Or shares of the bandwidth, as in `sm.estimate`, the same at every size.
        Default: those of the cluster's entry, usually an ideal fabric without collisions.

    Returns
    -------
    DataFrame, one row per size, ascending
        ``accelerators``, ``global_batch``, the columns of `sm.search`, then
        ``tokens_per_s_per_accelerator``, ``full_attention_mfu_fraction`` (12 L h s flop of
        attention a token, as papers count), ``exposed_s`` and ``exposed_fraction`` (communication
        not hidden), ``tokens_per_j`` (at the facility's meter), ``accelerator_tokens_per_j``,
        ``usd_per_token``, ``scaling_efficiency_fraction`` (throughput per accelerator over that
        of the smallest size that fits) and ``marginal_return_fraction`` (throughput of each
        accelerator added since the size before, over what one brought there). Where nothing fits
        the verdict says so and numbers are ``<NA>``. ``attrs["diminishing"]`` is what
        `diminishing_returns` says, ``attrs["network"]`` what is assumed of the fabric.

    Raises
    ------
    ScaleModelError : malformed question; the message names the argument.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=4096)
    >>> curve = scaling("llama2_7b", "dgx_h100", task, [128, 512, 2048], rule="fsdp",
    ...                 strategy=sm.Strategy(micro_batch=2))
    >>> curve.accelerators.tolist(), curve.dp.tolist()
    ([128, 512, 2048], [128, 512, 2048])
    >>> bool(curve.scaling_efficiency_fraction.is_monotonic_decreasing)
    True
    >>> curve.attrs["network"].partition(":")[0]
    'ideal fabric assumed'
    """
    sizes = sizes_of(gpus)
    tasks = tasks_of(task, sizes, mode)
    resolve.stack(stack)
    choice = choice_of(
        strategy=strategy,
        rule=rule,
        search=search,
        objective=objective,
        constraints=constraints,
        stack=stack,
        threads=threads,
    )
    resolved = resolve.model(model)
    policy = network if isinstance(network, str) else None
    base = resolve.cluster(cluster)
    if policy is not None:
        options_of(policy, "fair_share")
    elif not isinstance(network, str):
        base = resolve.with_network(base, network)
    rows = []
    for at, own in zip(clusters_of(base, sizes), tasks, strict=True):
        answer = choice.estimate(resolved, at, own, policy)
        size = {"accelerators": at.accelerators, "global_batch": own.global_batch}
        rows.append({**size, **point_row(answer)})
    _add_ratios(rows)
    curve = typed(rows)
    curve.attrs.update(model=resolved.name, cluster=str(at.name), mode=mode, stack=stack)
    curve.attrs["network"] = (
        network_text(base) if policy is None else f"routed at every size: {policy}"
    )
    curve.attrs["diminishing"] = diminishing_returns(curve)._asdict()
    return curve


def diminishing_returns(
    curve: pd.DataFrame, *, exposed: float = EXPOSED_LIMIT, marginal: float = MARGINAL_LIMIT
) -> DiminishingReturns:
    """Sizes from which more accelerators pay off less.

    Parameters
    ----------
    curve : DataFrame
        What `scaling` returns.
    exposed : float
        Share of exposed communication beyond which a size is named.
    marginal : float
        Throughput of an added accelerator, over what one brought before, below which it is.

    Returns
    -------
    DiminishingReturns
        The smallest size with more exposed communication, and the smallest that brings less.

    Examples
    --------
    >>> import pandas as pd
    >>> diminishing_returns(pd.DataFrame({
    ...     "accelerators": [8, 64, 512], "exposed_fraction": [0.01, 0.06, 0.4],
    ...     "marginal_return_fraction": [None, 0.9, 0.3]}))
    DiminishingReturns(exposed_above=64, marginal_below=512)
    """
    for column in ("accelerators", "exposed_fraction", "marginal_return_fraction"):
        if column not in curve.columns:
            raise ScaleModelError(
                f"curve: column {column} is missing; pass what sm.scaling returns",
                code="missing_column",
            )

    def first(column: str, beyond: Any) -> int | None:
        kept = curve[curve[column].notna()]
        if "verdict" in kept.columns:
            kept = kept[kept["verdict"] == "ok"]
        hits = kept[[bool(beyond(float(value))) for value in kept[column]]]
        return None if hits.empty else int(hits["accelerators"].min())

    return DiminishingReturns(
        first("exposed_fraction", lambda value: value > exposed),
        first("marginal_return_fraction", lambda value: value < marginal),
    )
