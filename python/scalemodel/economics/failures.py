"""Failures and checkpoints: what they leave of a long run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked, preset
from scalemodel.estimator.estimate import Estimate
from scalemodel.resolve import Cluster
from scalemodel.resolve.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

Rule = Literal["young", "daly", "availability"]
RULES = ("young", "daly", "availability")

_DAY_S, _HOUR_S = 86400.0, 3600.0


@dataclass(frozen=True)
class Reliability:
    """A job that fails and restarts from checkpoints. Made by `reliability`.

    Attributes
    ----------
    job : _core.FailingJob
        Nodes, failure rates, restart and checkpoint times.
    interval_s : float
        Productive time between checkpoints; infinite for a job that never fails.

    Examples
    --------
    >>> import scalemodel as sm
    >>> job = sm.reliability(2048, failures="rsc_1")
    >>> 0 < job.interval_s < 86400, 0.5 < job.ettr_fraction < 1
    (True, True)
    """

    job: _core.FailingJob
    interval_s: float

    @property
    def mttf_s(self) -> float:
        """Mean time between interruptions."""
        return float(_core.mean_time_to_failure_s(self.job))

    @property
    def ettr_fraction(self) -> float:
        """Expected productive share of the time, exact for failures at random."""
        if math.isinf(self.interval_s):
            return 1.0
        return float(_core.exact_ettr(self.job, self.interval_s))

    @property
    def first_order_ettr_fraction(self) -> float:
        """The same to first order in the failure rate, the published formula of Kokolis et al."""
        if math.isinf(self.interval_s):
            return 1.0
        return float(_core.first_order_ettr(self.job, self.interval_s))

    def ettr_with(self, **pool: Any) -> float:
        """Expected productive share with hot spares, repair and replicas that fail one by one.

        Exact for a job that stops whole (``replicas=1``); for several replicas as far as the state
        is seldom lost with the last of them.

        Parameters
        ----------
        **pool
            Fields of the pool: spares, repair_s, replicas, stall_s of the other replicas at a
            failure, quorum_fraction of every step.

        Raises
        ------
        ScaleModelError : an unknown field or a number out of range; the message names it.

        Examples
        --------
        >>> job = reliability(2048, failures="rsc_1", write_s=60)
        >>> few, many = (job.ettr_with(spares=spares, repair_s=86400) for spares in (4, 32))
        >>> few < many < job.ettr_fraction
        True
        """
        pools = _core.SparePool(**pool)
        return float(_core.ettr_with_spares(self.job, min(self.interval_s, 1e12), pools))

    def simulate(
        self,
        work_s: float,
        *,
        runs: int = 1000,
        spares: int = 0,
        repair_s: float = 0.0,
        seed: int = 0,
        replicas: int = 1,
        stall_s: float = 0.0,
    ) -> pd.DataFrame:
        """Simulate runs failure by failure, with spare nodes and a queue for repaired ones.

        Parameters
        ----------
        work_s : float
            Productive time of the run.
        runs, seed : int
            Independent runs; equal seeds give equal runs on every machine.
        spares : int
            Nodes that stand ready to replace a failed one.
        repair_s : float
            Until a failed node stands ready again; 0: replaced at once, without spares. A failure
            that finds no spare waits for the next repaired node.
        replicas : int
            Data-parallel replicas that fail one by one while the others go on; 1: the job stops
            whole.
        stall_s : float
            Of the other replicas at a failure.

        Returns
        -------
        DataFrame, one row per run
            Columns time_s, repeated_s, writing_s, restarting_s, queueing_s (they and the work sum
            to time_s; of several replicas each by its share), failures, ettr_fraction.

        Raises
        ------
        ScaleModelError : a number out of range; the message names it.

        Examples
        --------
        >>> job = reliability(2048, failures="rsc_1", write_s=60)
        >>> month = job.simulate(30 * 86400, runs=50)
        >>> bool(abs(month.ettr_fraction.mean() / job.ettr_fraction - 1) < 0.01)
        True
        """
        import pandas as pd

        interval_s = min(self.interval_s, 1e12)
        plan = _core.SimulationPlan(
            work_s=work_s,
            interval_s=interval_s,
            spares=spares,
            repair_s=repair_s,
            runs=runs,
            seed=seed,
            replicas=replicas,
            stall_s=stall_s,
        )
        frame = pd.DataFrame(_core.simulate_runs(self.job, plan))
        frame["ettr_fraction"] = work_s / frame["time_s"]
        return frame


def nodes_of(job: float | Cluster | Estimate) -> float:
    """Nodes of a job given as a number, a cluster or an estimate.

    Examples
    --------
    >>> import scalemodel as sm
    >>> nodes_of(sm.cluster("dgx_h100", nodes=64))
    64.0
    """
    if isinstance(job, Estimate):
        job = job.cluster
    if isinstance(job, Cluster):
        return float(job.nodes)
    return checked("nodes", job, 1e-3, 1e9)


def _interval_s(rule: Rule | float, job: _core.FailingJob) -> float:
    if not isinstance(rule, str):
        return checked("interval", rule, 1e-3, 1e12)
    if rule not in RULES:
        raise ScaleModelError(f"interval={rule!r}: must be seconds or one of {', '.join(RULES)}")
    return interval_by_rule(rule, job)


def interval_by_rule(rule: Rule, job: _core.FailingJob) -> float:
    """Productive seconds between the checkpoints of a job by a rule of `RULES`.

    Examples
    --------
    >>> job = reliability(2048, failures="rsc_1", write_s=60).job
    >>> interval_by_rule("daly", job) < interval_by_rule("young", job)
    True
    """
    mttf_s = _core.mean_time_to_failure_s(job)
    if math.isinf(mttf_s):
        return math.inf
    if job.write_s == 0:
        # Free checkpoints are written whenever one is done.
        return max(1.0, job.background_s)
    if rule == "young":
        best_s = _core.young_interval_s(job.write_s, mttf_s)
    elif rule == "daly":
        best_s = _core.daly_interval_s(job.write_s, mttf_s)
    else:
        best_s = _core.availability_interval_s(job.write_s, mttf_s, job.restart_s)
    return max(float(best_s), job.background_s)


@named_arguments
def reliability(
    nodes: float | Cluster | Estimate,
    *,
    failures: str | float = "llama_3",
    other_per_hour: float = 0.0,
    restart_s: float | None = None,
    write_s: float | None = None,
    background_s: float = 0.0,
    interval: Rule | float = "young",
) -> Reliability:
    """Failures of a job, its checkpoints, and the productive share of its time.

    Parameters
    ----------
    nodes : float, Cluster or Estimate
    failures : str or float
        Failures per node-day, or a preset: ``"rsc_1"``, ``"rsc_2"``, ``"llama_3"``.
    other_per_hour : float
        Interruptions of the job that no node causes. At 1,024 accelerators of RSC-1 they were
        0.092 per hour; beyond 4,000 nodes fail more often.
    restart_s : float, optional
        From a failure to the first step again: noticing, scheduling, loading. Default: 300 s.
    write_s : float, optional
        The job stands still for so long at each checkpoint. Default: 20 s.
    background_s : float
        Asynchronous writes: time until a checkpoint is of use, while the job goes on.
    interval : {"young", "daly", "availability"} or float
        Seconds between checkpoints, or the rule that chooses them. Never shorter than
        `background_s`.

    Raises
    ------
    ScaleModelError : a number out of range or an unknown name; the message names the argument.

    Examples
    --------
    >>> job = reliability(2048, failures="rsc_1", write_s=60)
    >>> round(job.mttf_s / 3600, 2), round(job.ettr_fraction, 2)
    (1.8, 0.83)
    """
    table = catalog.load("reference", "reliability")
    usual = Reader(table["run"], "reference/reliability.run")
    per_day = preset("failures", failures, table["failures"], 0)
    job = _core.FailingJob(
        nodes=nodes_of(nodes),
        node_rate_per_s=per_day / _DAY_S,
        other_rate_per_s=checked("other_per_hour", other_per_hour, 0) / _HOUR_S,
        restart_s=usual.quantity("restart", "s") if restart_s is None else restart_s,
        write_s=usual.quantity("write", "s") if write_s is None else write_s,
        background_s=background_s,
    )
    return Reliability(job, _interval_s(interval, job))
