"""Hot spares: how many a long run should keep, by what it does when a node fails."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments, refuse_unknown
from scalemodel.economics.arguments import checked, fitting_estimate
from scalemodel.economics.failures import Reliability, reliability
from scalemodel.economics.run import price_on
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import running_estimate
from scalemodel.resolve.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster

#: Share of the time in the queue below which more spares are not looked at.
_NO_QUEUE: Final = 1e-4
#: The most spares to look at.
_MOST_SPARES: Final = 10_000
_COLUMNS: Final = (
    "policy",
    "spares",
    "nodes",
    "productive_fraction",
    "queueing_fraction",
    "work_per_node_fraction",
    "goodput_tokens_per_s",
    "usd_per_million_tokens",
    "best",
)


def replica_layout(est: Estimate, **changes: Any) -> _core.ReplicaLayout:
    """Replicas of the state of a strategy, changed or not, and the nodes that each lies on.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=4),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(sharding="hsdp"))
    >>> replica_layout(est).replicas
    4
    """
    found = running_estimate(est)
    strategy = found.strategy.replace(**changes)
    degrees = _core.resolve_degrees(strategy, found.cluster.core, found.task.core)
    return _core.ReplicaLayout(strategy, found.cluster.core, degrees)


def usual_stall_s() -> float:
    """How long the other replicas stand still when one fails, of the catalogue."""
    table = catalog.load("reference", "reliability")
    return Reader(table["run"], "reference/reliability.run").quantity("stall", "s")


def count_of(argument: str, value: object, low: int, high: int) -> int:
    """`value` as a whole number from `low` to `high`.

    Raises
    ------
    ScaleModelError : it is none; the message names the argument.

    Examples
    --------
    >>> count_of("spares", 4, 0, 100)
    4
    """
    number = checked(argument, value, low, high)
    if number != int(number):
        raise ScaleModelError(f"{argument}={value!r}: must be a whole number")
    return int(number)


def _enough(job: _core.FailingJob, pool: _core.SparePool) -> int:
    """The fewest spares that leave next to no queue."""
    low, high = 0, _MOST_SPARES
    while low < high:
        middle = (low + high) // 2
        if _core.staffed_fraction(job, pool.replace(spares=middle)) > 1 - _NO_QUEUE:
            high = middle
        else:
            low = middle + 1
    return low


@named_arguments
def plan_spares(
    job: float | Cluster | Estimate | Reliability,
    *,
    repair_s: float,
    replicas: int | None = None,
    stall_s: float | None = None,
    quorum_s: float = 0.0,
    most_spares: int | None = None,
    spare_price_fraction: float = 1.0,
    price: str | float | None = None,
    **terms: Any,
) -> pd.DataFrame:
    """What hot spares are worth over a long run, for a job that restarts and for one that goes on.

    Failed nodes are repaired one by one and come back as spares. Policy ``"restart"``: a failure
    stops the job, which starts again from its last checkpoint once a spare or a repaired node has
    taken the place. Policy ``"drop_replica"``: only the data-parallel replica with the lost node
    stops, the others stall for a moment and go on with a smaller batch; it comes back from the
    state of its peers. Both write the same checkpoints. Spares do not fail while they wait.

    Parameters
    ----------
    job : float, Cluster, Estimate or Reliability
        Nodes of the job, or the job with its failures, made by `sm.reliability`.
    repair_s : float
        From the failure of a node until it stands ready again; 0: replaced at once.
    replicas : int, optional
        Replicas that fail one by one, each of equally many nodes. Default: those of the estimate's
        strategy, of which no two share a node or a part of the state; else only ``"restart"``.
    stall_s : float, optional
        Of the other replicas at a failure. Default: the timeout of torchft and, of an estimate, the
        step that is lost.
    quorum_s : float
        Of every step: to agree on the replicas that take part, as far as it is not hidden; needs an
        estimate.
    most_spares : int, optional
        The most to look at, up to 10,000. Default: as many as leave no queue for a node.
    spare_price_fraction : float
        Price of a waiting spare over that of a node at work.
    price : str or float, optional
        As of `sm.training_run`; of an estimate only.
    **terms
        Further arguments of `sm.reliability`: failures, restart_s, write_s, interval...

    Returns
    -------
    DataFrame, one row per policy and number of spares
        Columns policy, spares, nodes (with spares), productive_fraction (of the time, of all
        replicas), queueing_fraction (waiting for a node), work_per_node_fraction (per node-hour
        paid for, spares included), goodput_tokens_per_s and usd_per_million_tokens (of an
        estimate, with a price), best (most work per node-hour of the policy).

    Raises
    ------
    ScaleModelError : a number out of range; more replicas than nodes; the message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> table = sm.plan_spares(2048, repair_s=86400, replicas=16)
    >>> best = table[table.best].set_index("policy")
    >>> bool(best.spares["restart"] > 4)
    True
    >>> bool(best.productive_fraction["drop_replica"] > best.productive_fraction["restart"])
    True
    """
    import pandas as pd

    refuse_unknown("plan_spares", terms, reliability, plan_spares)
    est = fitting_estimate(job, "job") if isinstance(job, Estimate) else None
    if isinstance(job, Reliability):
        if terms:
            raise ScaleModelError(f"{next(iter(terms))}: is part of the job already given")
        run = job
    else:
        run = reliability(job, **terms)
    pools = _pools(run, est, repair_s, replicas, stall_s, quorum_s)
    most = None if most_spares is None else count_of("most_spares", most_spares, 0, _MOST_SPARES)
    paid = checked("spare_price_fraction", spare_price_fraction, 0, 100)
    usd_per_s = _usd_per_s(est, price)
    rows: list[dict[str, Any]] = []
    for policy, pool in pools.items():
        upto = _enough(run.job, pool) if most is None else most
        of_policy = [
            _row(policy, run, pool.replace(spares=spares), est, usd_per_s, paid)
            for spares in range(upto + 1)
        ]
        best = max(of_policy, key=lambda row: row["work_per_node_fraction"])
        rows += [{**row, "best": row is best} for row in of_policy]
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _pools(
    run: Reliability,
    est: Estimate | None,
    repair_s: float,
    replicas: int | None,
    stall_s: float | None,
    quorum_s: float,
) -> dict[str, _core.SparePool]:
    """What stands beside the job under every policy, without spares yet."""
    repair = checked("repair_s", repair_s, 0, 1e9)
    step_s = float(est.step_time_s) if est is not None else 0.0
    quorum = checked("quorum_s", quorum_s, 0, 1e6)
    if quorum and est is None:
        raise ScaleModelError(f"quorum_s={quorum_s!r}: is of a step, so give an estimate as job")
    pools = {"restart": _core.SparePool(repair_s=repair)}
    if replicas is not None:
        most = math.floor(run.job.nodes)
        units = count_of("replicas", replicas, 1, 1_000_000)
        if units > most:
            raise ScaleModelError(
                f"replicas={replicas!r}: must be at most the {most} nodes of the job; replicas "
                "that share a node fail as one"
            )
    else:
        units = int(replica_layout(est).units) if est is not None else 1
    if units > 1:
        stall = usual_stall_s() + step_s if stall_s is None else checked("stall_s", stall_s, 0, 1e8)
        quorum_fraction = quorum / step_s if step_s else 0.0
        pools["drop_replica"] = _core.SparePool(
            repair_s=repair, replicas=units, stall_s=stall, quorum_fraction=quorum_fraction
        )
    return pools


def _usd_per_s(est: Estimate | None, price: str | float | None) -> float | None:
    if est is None:
        if price is not None:
            raise ScaleModelError(
                f"price={price!r}: is of accelerators, so give an estimate as job"
            )
        return None
    found = price_on(est.cluster, price)
    return found.usd_per_s if found else None


def _row(
    policy: str,
    run: Reliability,
    pool: _core.SparePool,
    est: Estimate | None,
    usd_per_s: float | None,
    paid: float,
) -> dict[str, Any]:
    nodes = float(run.job.nodes)
    share = run.ettr_with(**pool.to_dict())
    row: dict[str, Any] = {
        "policy": policy,
        "spares": int(pool.spares),
        "nodes": nodes + pool.spares,
        "productive_fraction": share,
        "queueing_fraction": 1 - _core.staffed_fraction(run.job, pool),
        "work_per_node_fraction": _core.work_per_paid_node(share, nodes, pool.spares, paid),
    }
    if est is not None:
        rate = _core.goodput(float(est.tokens_per_s), share)
        row["goodput_tokens_per_s"] = rate
        if usd_per_s and rate:
            spent = _core.rental_cost_usd(1.0, est.cluster.accelerators, usd_per_s)
            kept = _core.goodput(float(est.tokens_per_s), row["work_per_node_fraction"])
            row["usd_per_million_tokens"] = 1e6 * spent / kept
    return row
