"""Checkpoints of a training run: where to write them, how often, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.economics.arguments import checked, fitting_estimate
from scalemodel.economics.failures import Reliability, Rule, interval_by_rule, reliability
from scalemodel.economics.spares import count_of
from scalemodel.economics.storage import (
    StorageTier,
    checkpoint_sizes,
    free_host_memory_bytes,
    host_link_bytes_per_s,
    network_bytes_per_s,
    storage_tier,
    storage_tiers,
    usual_planning_s,
)
from scalemodel.estimator.estimate import Estimate
from scalemodel.resolve.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

_MODES: Final = ("synchronous", "asynchronous")
_COLUMNS: Final = (
    "tier",
    "mode",
    "verdict",
    "reason",
    "checkpoint_bytes",
    "rank_bytes",
    "node_bytes",
    "host_memory_bytes",
    "blocking_s",
    "background_s",
    "reload_s",
    "least_interval_s",
    "interval_s",
    "interval_steps",
    "remote_interval_s",
    "writing_fraction",
    "productive_fraction",
    "best",
)


@dataclass(frozen=True)
class _Job:
    """What every way to write needs to know of the job."""

    est: Estimate
    sizes: tuple[float, float, float]
    run: Reliability
    rule: Rule | float
    copies: int
    beyond: float
    planning_s: float

    @property
    def nodes(self) -> float:
        return float(self.est.cluster.nodes)

    def way(self, tier: StorageTier, mode: str) -> _Way:
        copies = self.copies if tier.on_nodes else 0
        write = _core.CheckpointWrite(
            all_bytes=self.sizes[0],
            rank_bytes=self.sizes[1],
            node_bytes=self.sizes[2],
            copies=copies,
            host_link_bytes_per_s=host_link_bytes_per_s(self.est.cluster),
            peer_network_bytes_per_s=network_bytes_per_s(self.est.cluster),
            node_storage_bytes_per_s=tier.node_write,
            shared_bytes_per_s=tier.shared_write,
            planning_s=self.planning_s,
        )
        return _Way(self, tier, mode, write)


@dataclass(frozen=True)
class _Way:
    """Checkpoints to one tier."""

    job: _Job
    tier: StorageTier
    mode: str
    write: _core.CheckpointWrite

    @property
    def asynchronous(self) -> bool:
        return self.mode == "asynchronous"

    @property
    def blocking_s(self) -> float:
        return float(_core.checkpoint_blocking_s(self.write, self.asynchronous))

    @property
    def background_s(self) -> float:
        return float(_core.checkpoint_background_s(self.write, self.asynchronous))

    @property
    def host_memory_bytes(self) -> float:
        return float(_core.checkpoint_host_memory_bytes(self.write, self.asynchronous))

    @property
    def reload_s(self) -> float:
        """To read the state: of nodes, the part of a lost one from its peers."""
        tier, job = self.tier, self.job
        if not tier.on_nodes:
            rates = tier.node_read, tier.shared_read
            return float(_core.reload_time_s(job.sizes[0], job.nodes, *rates))
        rate = float(self.write.peer_network_bytes_per_s)
        rate = min(rate, tier.node_read) if tier.node_read else rate
        return float(_core.reload_time_s(job.sizes[2], 1, rate))

    @property
    def least_interval_s(self) -> float:
        """A write ends before the next begins, and the state changes once a step."""
        return max(self.background_s, float(self.job.est.step_time_s))

    def failing(self, share: float = 1.0) -> _core.FailingJob:
        """The job with what its failures and checkpoints cost here, and a share of its failures."""
        job = self.job.run.job
        return job.replace(
            write_s=self.blocking_s,
            background_s=self.background_s,
            restart_s=float(job.restart_s) + self.reload_s,
            node_rate_per_s=share * job.node_rate_per_s,
            other_rate_per_s=share * job.other_rate_per_s,
        )

    def interval_s(self, share: float = 1.0) -> float:
        rule = self.job.rule
        if not isinstance(rule, str):
            return float(rule)
        return max(interval_by_rule(rule, self.failing(share)), self.least_interval_s)

    def wrong(self, others_bytes: float = 0.0) -> tuple[str, str]:
        """Verdict and reason of what cannot be written, or not so often."""
        job, needs = self.job, self.host_memory_bytes + others_bytes
        if self.write.copies and self.write.copies >= job.nodes:
            return "no_peers", f"{job.nodes:g} nodes have no {job.copies} peers for copies"
        left = free_host_memory_bytes(job.est)
        if needs > left:
            return "host_memory", (
                f"needs {size_text(needs)} of host memory in a node; training leaves "
                f"{size_text(left)}"
            )
        if self.interval_s() < self.least_interval_s:
            return "too_often", (
                f"interval={job.rule:g} s: a write and a step take "
                f"{time_text(self.least_interval_s)}; the next one cannot begin before"
            )
        return "ok", ""

    def durable(self) -> tuple[str, str]:
        """Verdict and reason of a tier whose copies some failures take along."""
        if not self.tier.on_nodes:
            return "ok", ""
        if not self.job.copies:
            return "not_durable", "copies=0: a lost node takes its part of the state along"
        if self.job.beyond:
            return "not_durable", (
                f"{self.job.beyond:.1%} of the failures take a node and its peers along; keep "
                "checkpoints in storage beside"
            )
        return "ok", ""

    def row(self) -> dict[str, Any]:
        verdict, reason = self.wrong()
        if verdict == "ok":
            verdict, reason = self.durable()
        row = self.facts(verdict, reason)
        row.update(host_memory_bytes=self.host_memory_bytes)
        if verdict in ("ok", "not_durable"):
            interval_s = self.interval_s()
            row.update(_how_often(interval_s, self.job))
            row["writing_fraction"] = _writing(self.blocking_s, interval_s)
        if verdict == "ok":
            failing = self.failing()
            row["productive_fraction"] = Reliability(failing, interval_s).ettr_fraction
        return row

    def facts(self, verdict: str, reason: str) -> dict[str, Any]:
        """What does not depend on how often."""
        every, rank, node = self.job.sizes
        return {
            "tier": self.tier.name,
            "mode": self.mode,
            "verdict": verdict,
            "reason": reason,
            "checkpoint_bytes": every,
            "rank_bytes": rank,
            "node_bytes": node,
            "blocking_s": self.blocking_s,
            "background_s": self.background_s,
            "reload_s": self.reload_s,
            "least_interval_s": self.least_interval_s,
        }


def _writing(blocking_s: float, interval_s: float) -> float:
    """Share of the time between two failures that writes take."""
    return blocking_s / (interval_s + blocking_s) if math.isfinite(interval_s) else 0.0


def _how_often(interval_s: float, job: _Job) -> dict[str, float]:
    steps = interval_s / float(job.est.step_time_s)
    return {"interval_s": interval_s, "interval_steps": steps}


def _mix(local: _Way, remote: _Way) -> dict[str, Any]:
    """Frequent checkpoints on the nodes against most failures, seldom ones in storage."""
    job, beyond = local.job, local.job.beyond
    remote = replace(remote, job=replace(job, rule="young"))
    needs = local.host_memory_bytes + remote.host_memory_bytes
    verdict, reason = local.wrong(remote.host_memory_bytes)
    if not job.copies:
        verdict, reason = local.durable()
    row = local.facts(verdict, reason)
    row.update(tier=f"{local.tier.name} + {remote.tier.name}", host_memory_bytes=needs)
    if verdict != "ok":
        return row
    often, seldom = local.interval_s(1 - beyond), remote.interval_s(beyond)
    row.update(_how_often(often, job), remote_interval_s=seldom)
    stalls = [w.blocking_s / t for w, t in ((local, often), (remote, seldom)) if math.isfinite(t)]
    row["writing_fraction"] = sum(stalls) / (1 + sum(stalls))
    # A job that never fails never writes.
    often, seldom = min(often, 1e12), min(seldom, 1e12)
    row["productive_fraction"] = float(
        _core.two_level_ettr(local.failing(), often, remote.failing(), seldom, beyond)
    )
    return row


def _tiers(given: Sequence[str] | Mapping[str, float] | None, nodes: float) -> list[StorageTier]:
    names = storage_tiers() if given is None else given
    if isinstance(names, str) or not isinstance(names, (Sequence, Mapping)) or not names:
        raise ScaleModelError(
            f"tiers={given!r}: must be names of tiers, or a mapping of them to the bytes per "
            f"second that a node writes; known: {', '.join(storage_tiers())}"
        )
    tiers = [storage_tier("tiers", name, nodes) for name in names]
    if not isinstance(names, Mapping):
        return tiers
    if "host_memory" in names:
        raise ScaleModelError(
            "tiers: host_memory has no rate of its own; links of the accelerators and the network "
            "decide"
        )
    rates = [checked(f"tiers[{name!r}]", rate, 1, 1e15) for name, rate in names.items()]
    return [replace(tier, node_write=rate) for tier, rate in zip(tiers, rates, strict=True)]


def _rows(job: _Job, tiers: Sequence[StorageTier]) -> Iterator[dict[str, Any]]:
    for tier in tiers:
        for mode in _MODES:
            yield job.way(tier, mode).row()
    for local in tiers:
        for remote in tiers:
            if local.on_nodes and not remote.on_nodes:
                yield _mix(job.way(local, "asynchronous"), job.way(remote, "asynchronous"))


@named_arguments
def plan_checkpoints(
    est: Estimate,
    *,
    tiers: Sequence[str] | Mapping[str, float] | None = None,
    copies: int = 1,
    shared_bytes_per_s: float | None = None,
    failures: str | float = "llama_3",
    other_per_hour: float = 0.0,
    restart_s: float | None = None,
    interval: Rule | float = "young",
    beyond_copies_fraction: float | None = None,
    planning_s: float | None = None,
) -> pd.DataFrame:
    """Where and how often a training run should write checkpoints, and what they cost it.

    Every rank writes its own part of weights, master weights and moments once, as a fully parallel
    save does. A synchronous write stops the job until it ends. An asynchronous one stops it for a
    copy to pinned host memory; the rest goes on beside the steps, whose slowdown by it is left out,
    as is what CPUs take to serialise tensors.
    A checkpoint on the nodes (``"host_memory"``, ``"local_disk"``) is copied to peers, for a lost
    node takes its own along. A mix writes frequently to the nodes and seldom to storage, which
    failures that take a node and its peers along go back to; its productive share is to first
    order in the failure rate, that of one tier exact.

    Parameters
    ----------
    est : Estimate
    tiers : sequence of str or mapping of str to float, optional
        ``"host_memory"``, ``"local_disk"``, ``"shared_file_system"``, ``"object_store"``, all of
        them by default; or with the bytes per second that a node writes.
    copies : int
        Of a node's part, on other nodes.
    shared_bytes_per_s : float, optional
        What shared storage takes of all nodes together; 0: it does not limit them. Default: the
        scalable units of a DGX SuperPOD that the job fills, no limit of an object store.
    failures, other_per_hour, restart_s, interval
        As of `sm.reliability`; reading the checkpoint comes on top of `restart_s`. A number of
        seconds as `interval` is that of the nodes' checkpoints in a mix.
    beyond_copies_fraction : float, optional
        Share of the failures that take a node and all its peers along. Default: that of network
        switches and cables in the training of Llama 3.
    planning_s : float, optional
        Ranks agree on who writes what, with cached plans. Default: 0.78 s, measured on 1856 H200.

    Returns
    -------
    DataFrame, one row per tier and mode, and per mix
        Columns tier, mode, verdict and reason (host_memory: the node has no room for it; no_peers;
        not_durable: some failures lose it; too_often), checkpoint_bytes (in all), rank_bytes,
        node_bytes (busiest), host_memory_bytes (of the busiest node), blocking_s, background_s
        (until it counts), reload_s, least_interval_s, interval_s, interval_steps,
        remote_interval_s (of a mix), writing_fraction (of the time, standing still to write),
        productive_fraction, best.

    Raises
    ------
    ScaleModelError : the strategy cannot run or does not fit; a number out of range or an unknown
        name; the message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=32),
    ...                   sm.Training(global_batch=1024, sequence=8192), sm.Strategy(tp=8, pp=4))
    >>> table = sm.plan_checkpoints(est).set_index(["tier", "mode"])
    >>> at = table.loc["shared_file_system"]
    >>> bool(at.blocking_s["asynchronous"] < 2 < 40 < at.blocking_s["synchronous"])
    True
    >>> bool(at.productive_fraction["asynchronous"] > at.productive_fraction["synchronous"])
    True
    """
    import pandas as pd

    est = fitting_estimate(est)
    nodes = float(est.cluster.nodes)
    places = _tiers(tiers, nodes)
    if shared_bytes_per_s is not None:
        rate = checked("shared_bytes_per_s", shared_bytes_per_s, 0, 1e18)
        places = [tier if tier.on_nodes else replace(tier, shared_write=rate) for tier in places]
    run = reliability(
        est,
        failures=failures,
        other_per_hour=other_per_hour,
        restart_s=restart_s,
        interval=interval,
    )
    beyond = _usual_beyond() if beyond_copies_fraction is None else beyond_copies_fraction
    job = _Job(
        est,
        checkpoint_sizes(est),
        run,
        interval,
        count_of("copies", copies, 0, 1000),
        checked("beyond_copies_fraction", beyond, 0, 1),
        usual_planning_s() if planning_s is None else checked("planning_s", planning_s, 0, 1e6),
    )
    table = pd.DataFrame(list(_rows(job, places)), columns=list(_COLUMNS))
    shares = table.productive_fraction.astype(float)
    table["best"] = (table.index == shares.idxmax()) if shares.notna().any() else False
    return table


def _usual_beyond() -> float:
    table = catalog.load("reference", "reliability")
    return Reader(table["run"], "reference/reliability.run").number("beyond_copies")
