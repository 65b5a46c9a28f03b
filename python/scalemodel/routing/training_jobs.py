"""Training jobs on a network: what their strategies send, and between which NICs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.columns import random_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import tables_for
from scalemodel.estimator.verdicts import verdict_message
from scalemodel.resolve import Cluster
from scalemodel.resolve.stacks import DEFAULT_STACK

if TYPE_CHECKING:
    import pandas as pd

#: How the ranks of a job are spread over the NICs of a cluster, other than given one by one.
RANK_PLACEMENTS = ("packed", "random_servers", "random_nics")
_KEYS = ("model", "strategy", "task", "accelerators", "placement", "name", "stack")
COLUMNS = (
    "job",
    "phase",
    "communicator",
    "pattern",
    "period",
    "stage",
    "group",
    "source",
    "destination",
    "size_bytes",
    "times_per_step",
)


@dataclass(frozen=True, eq=False)
class Job:
    """A training job with the NIC of each of its ranks. Made by `jobs_of`.

    Attributes
    ----------
    name : str
    estimate : Estimate
        Model, task, strategy and stack on a cluster of the job's size.
    nics : ndarray of int
        NIC of every rank.
    """

    name: str
    estimate: Estimate
    nics: np.ndarray

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """Every collective and transfer of a step, by pipeline stage, as the engine counts them."""
        return list(_core.step_messages(self.tables, self.estimate.strategy))

    @property
    def tables(self) -> _core.Tables:
        """Cost tables of the job."""
        est = self.estimate
        return tables_for(est.model, est.cluster, est.task, est.stack)

    def flows(self, rails: bool) -> dict[str, Any]:
        """Columns of the job's flows between NICs; one row per pair and period."""
        columns = dict(_core.strategy_flows(self.tables, self.estimate.strategy, rails))
        for end in ("source", "destination"):
            columns[end] = self.nics[columns[end]]
        return columns

    def checkpoint(self, hosts: Sequence[int], every_s: float) -> dict[str, Any]:
        """Columns of what every rank writes to storage hosts: the bytes of one checkpoint."""
        columns = dict(_core.checkpoint_flows(self.tables, self.estimate.strategy, len(hosts)))
        columns["source"] = self.nics[columns["source"]]
        columns["destination"] = np.asarray(hosts)[columns.pop("host")]
        columns.update(dict.fromkeys(("phase", "communicator", "period"), "checkpoint"))
        columns.update(group=0, pattern="write")
        columns["times_per_step"] = float(self.estimate.step_time_s) / every_s
        return columns


class _Room:
    """Free servers of a cluster, taken job by job."""

    def __init__(self, nics: int, server: int, seed: int) -> None:
        self.free = np.ones(nics, dtype=bool)
        self.server = server
        self.random = random_of(seed)

    def take(self, placement: str | Sequence[int], ranks: int, name: str) -> np.ndarray:
        if isinstance(placement, str):
            nics = self._named(placement, ranks, name)
        else:
            nics = np.asarray(list(placement))
            if nics.dtype.kind not in "iu" or nics.shape != (ranks,):
                raise ScaleModelError(
                    f"{name}: placement must name a NIC for each of its {ranks} ranks, or be one "
                    f"of {', '.join(RANK_PLACEMENTS)}"
                )
            if nics.min() < 0 or nics.max() >= self.free.size:
                raise ScaleModelError(
                    f"{name}: placement: NICs are numbered 0 to {self.free.size - 1}"
                )
        if np.unique(nics).size < ranks or not self.free[nics].all():
            raise ScaleModelError(f"{name}: placement: a NIC is taken twice")
        self.free[nics] = False
        return nics

    def _named(self, placement: str, ranks: int, name: str) -> np.ndarray:
        if placement not in RANK_PLACEMENTS:
            raise ScaleModelError(
                f"{name}: placement={placement!r}: must be one of {', '.join(RANK_PLACEMENTS)}, or "
                "a NIC for every rank"
            )
        if placement == "packed":
            nics = np.flatnonzero(self.free)[:ranks]
            if nics.size < ranks:
                raise self._full(ranks, name)
            return nics
        rows = self.free[: self.free.size // self.server * self.server].reshape(-1, self.server)
        servers = np.flatnonzero(rows.all(axis=1))
        needed = -(-ranks // self.server)
        if servers.size < needed:
            raise self._full(ranks, name)
        chosen = self.random.permutation(servers)[:needed]
        nics = chosen[:, None] * self.server + np.arange(self.server)
        if placement == "random_nics":
            nics = self.random.permuted(nics, axis=1)
        return nics.reshape(-1)[:ranks]

    def _full(self, ranks: int, name: str) -> ScaleModelError:
        return ScaleModelError(
            f"{name}: needs {ranks} NICs on whole servers, {int(self.free.sum())} NICs are free"
        )


def _fields(number: int, given: Any, shared: Mapping[str, Any]) -> dict[str, Any]:
    """A job's keys, from a mapping or from (model, strategy, task[, accelerators or NICs])."""
    if isinstance(given, Mapping):
        for key in given:
            if key not in _KEYS:
                raise ScaleModelError(
                    f"jobs[{number}]: {key!r} is no key of a job; known: {', '.join(_KEYS)}"
                )
        fields = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str) and 3 <= len(given) <= 4:
        fields = dict(zip(("model", "strategy", "task"), given[:3], strict=True))
        if len(given) == 4:
            size = given[3]
            whole = isinstance(size, int) and not isinstance(size, bool)
            fields["accelerators" if whole else "placement"] = size
    else:
        raise ScaleModelError(
            f"jobs[{number}]={given!r}: must be (model, strategy, task[, accelerators or "
            "placement]) or a mapping of them"
        )
    for key in ("model", "strategy", "task"):
        if key not in fields:
            raise ScaleModelError(f"jobs[{number}]: has no key {key!r}")
    return {**shared, **fields}


def is_job(given: object) -> bool:
    """Whether a value describes a training job rather than a communication pattern."""
    if isinstance(given, Mapping):
        return "strategy" in given
    return isinstance(given, Sequence) and any(isinstance(p, _core.Strategy) for p in given)


def _ranks_of(number: int, fields: Mapping[str, Any], cluster: Cluster, alone: bool) -> int:
    strategy, placement = fields["strategy"], fields["placement"]
    if fields.get("accelerators") is not None:
        return int(fields["accelerators"])
    if not isinstance(placement, str):
        return len(placement)
    if isinstance(strategy, _core.Strategy) and strategy.dp > 0:
        return int(strategy.tp * strategy.cp * strategy.pp * strategy.dp)
    if not alone:
        raise ScaleModelError(
            f"jobs[{number}]: say how many accelerators it has: accelerators, or dp of its strategy"
        )
    return cluster.accelerators


def jobs_of(
    cluster: Cluster,
    given: Iterable[Any],
    *,
    nics: int,
    placement: str | Sequence[int] = "packed",
    stack: str = DEFAULT_STACK,
    seed: int = 0,
) -> list[Job]:
    """Checked jobs, placed one after the other.

    Raises
    ------
    ScaleModelError : malformed job, a strategy that cannot run, or no room; names the job.
    """
    listed = list(given)
    cluster = resolve.with_network(cluster, {})
    shared = {"placement": placement, "stack": stack}
    room = _Room(nics, int(cluster.core.node_accelerators), seed)
    jobs: list[Job] = []
    for number, one in enumerate(listed):
        fields = _fields(number, one, shared)
        ranks = _ranks_of(number, fields, cluster, len(listed) == 1)
        own = resolve.cluster(cluster, accelerators=ranks)
        try:
            model = resolve.model(fields["model"])
        except ScaleModelError as error:
            raise ScaleModelError(f"jobs[{number}]: {error}", code=error.code) from None
        est = estimate(model, own, fields["task"], fields["strategy"], stack=fields["stack"])
        if est.illegal:
            raise ScaleModelError(f"jobs[{number}]: {verdict_message(est)}")
        name = str(fields.get("name", est.model.name if len(listed) == 1 else f"job {number}"))
        if name in [job.name for job in jobs]:
            raise ScaleModelError(f"jobs[{number}]: name={name!r}: two jobs have this name")
        jobs.append(Job(name, est, room.take(fields["placement"], ranks, f"jobs[{number}]")))
    return jobs


def checked_hosts(hosts: Sequence[int], every_s: float, jobs: Sequence[Job]) -> list[int]:
    """NICs of storage hosts that no rank has.

    Raises
    ------
    ScaleModelError : a NIC of a rank, or no interval between checkpoints.
    """
    listed = [int(host) for host in hosts]
    if listed and not (np.isfinite(every_s) and every_s > 0):
        raise ScaleModelError(f"checkpoint_every_s={every_s!r}: must be above 0 and finite")
    taken = {int(nic) for job in jobs for nic in job.nics}
    for host in listed:
        if host < 0 or host in taken:
            raise ScaleModelError(
                f"checkpoint_to={host}: must be the NIC of a storage host, which no rank has"
            )
    return listed


def commodities(
    jobs: Sequence[Job],
    *,
    rails: bool = True,
    checkpoint_to: Sequence[int] = (),
    checkpoint_every_s: float = 0.0,
) -> pd.DataFrame:
    """The flows of all jobs as one table, as `traffic` describes it."""
    import pandas as pd

    parts = []
    groups = 0
    for job in jobs:
        frame = pd.DataFrame(job.flows(rails))
        frame["period"] = np.where(frame["times_per_step"] == 1, "step", "micro_batch")
        own = [frame]
        if checkpoint_to:
            own.append(pd.DataFrame(job.checkpoint(checkpoint_to, checkpoint_every_s)))
        for part in own:
            part["job"] = job.name
            if len(part):
                part["group"] += groups
                groups = int(part["group"].iloc[-1]) + 1
            parts.append(part)
    return pd.concat(parts, ignore_index=True)[list(COLUMNS)]
