"""What a network leaves to the communicators of training jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import AXES, Cluster
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.report import DISCONNECTED, OK, RoutingReport
from scalemodel.routing.traffic import Traffic, checked_overlap
from scalemodel.routing.training_jobs import Job, commodities

if TYPE_CHECKING:
    import pandas as pd

#: What tells flows of a communicator apart, whatever their periods.
_PAIR = ("job", "communicator", "pattern", "source", "destination")


class Part(NamedTuple):
    """One communicator of all jobs, routed. Sizes of its flows are ideal rates, bytes of a second.

    `ports`: bandwidth of a port by job, of an ideal fabric; `added_latency_s`: by flow; `together`:
    shares by job beside the phases that run at the same time, where there are such.
    """

    phase: str
    communicator: str
    pattern: str
    report: RoutingReport
    ports: tuple[float, ...]
    added_latency_s: np.ndarray
    together: tuple[float, ...] = ()

    def share(self, job: int) -> float:
        """Of the ideal bandwidth, for the slowest flow of a job."""
        alone = float(self.report.job_values()[job])
        return min(1.0, _rounded(self.together[job] if self.together else alone))


@dataclass(frozen=True, repr=False, eq=False)
class NetworkReport:
    """Paths for the traffic of training jobs, and the bandwidth they leave. Made by `route`.

    Every communicator is routed by itself: the phases of a job follow each other, while the same
    communicator of several jobs may send at once. A flow's share is its rate over the rate it would
    have if only the ports of NICs bound it; a communicator moves with its slowest flow, an axis
    with its slowest communicator. Phases that are said to overlap are routed together and start
    together; who ends first frees its share, and a share is the time of a communicator alone on its
    NICs over that beside the others. Pass the report to `estimate`, `sweep`, `search` or `codesign`
    as ``network=``.

    Attributes
    ----------
    cluster : Cluster
    fabric : Fabric
    jobs : tuple of Job
    policy, model : str
        How paths were chosen; rate model.
    rails : bool
        Whether all-to-alls stay on their rails.
    parts : tuple of Part
        Communicators by pattern, with the routing of each.
    limits : pair of int
        Paths per pair of switches at most, and detours, among which paths were chosen.

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.cluster("dgx_h100", nodes=64)
    >>> task, plan = sm.Training(global_batch=512, sequence=8192), sm.Strategy(tp=2)
    >>> report = sm.route(cluster, [("llama3_8b", plan, task)], policy="ecmp",
    ...                   placement="random_servers")
    >>> report.shares()["dp"] < 1
    True
    >>> slow = sm.estimate("llama3_8b", cluster, task, plan, network=report)
    >>> slow.step_time_s > sm.estimate("llama3_8b", cluster, task, plan).step_time_s
    True
    """

    cluster: Cluster
    fabric: Fabric
    jobs: tuple[Job, ...]
    policy: str
    model: str
    rails: bool
    parts: tuple[Part, ...] = field(repr=False)
    limits: tuple[int, int] = (256, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NetworkReport) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        jobs = [(job.name, job.estimate, *job.nics.tolist()) for job in self.jobs]
        parts = [(part[:4], part.ports, part.together) for part in self.parts]
        choices = self.policy, self.model, self.rails
        return self.cluster, self.fabric, *choices, *jobs, *parts

    def __repr__(self) -> str:
        worst = min((row["share_fraction"] for row in self._rows()), default=1.0)
        return (
            f"NetworkReport({self.policy}: {self.verdict}, {len(self.jobs)} jobs, "
            f"smallest share {worst:.3g})"
        )

    @property
    def verdict(self) -> str:
        """``ok``, or ``illegal:disconnected`` where some flow has no path."""
        lost = any(part.report.verdict != OK for part in self.parts)
        return DISCONNECTED if lost else OK

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for part in self.parts:
            flows = part.report.traffic.core.columns()
            for number, job in enumerate(self.jobs):
                own = flows["job"] == number
                if not own.any():
                    continue
                share = part.share(number)
                port = float(part.ports[number])
                rows.append(
                    {
                        "job": job.name,
                        "phase": part.phase,
                        "communicator": part.communicator,
                        "pattern": part.pattern,
                        "flows": int(own.sum()),
                        "ideal_bytes_per_s": port,
                        "effective_bytes_per_s": share * port,
                        "share_fraction": share,
                        "added_latency_s": float(part.added_latency_s[own].max()),
                    }
                )
        return rows

    def effective(self) -> pd.DataFrame:
        """Bandwidth of every communicator that leaves a domain.

        Returns
        -------
        DataFrame
            Columns job, phase, communicator, pattern, flows, ideal_bytes_per_s (of one port, as
            the estimate of an ideal fabric takes it), effective_bytes_per_s and share_fraction (of
            the slowest flow), added_latency_s (of the longest path taken over the shortest of its
            pair; estimates leave it out).
        """
        import pandas as pd

        return pd.DataFrame(self._rows())

    def shares(self, job: str | None = None) -> dict[str, float]:
        """Part of the ideal bandwidth that each axis of a job gets; 1 where it sends nothing.

        Parameters
        ----------
        job : str, optional
            May be left out where the report has one job.

        Raises
        ------
        ScaleModelError : which job is not said, or unknown; a flow has no path.
        """
        names = [one.name for one in self.jobs]
        if job is None and len(names) > 1:
            raise ScaleModelError(
                f"network: the report has {len(names)} jobs; pass report.shares(job), job one of "
                f"{', '.join(names)}"
            )
        if job is not None and job not in names:
            raise ScaleModelError(f"job={job!r}: must be one of {', '.join(names)}")
        shares = dict.fromkeys(AXES, 1.0)
        for row in self._rows():
            if row["job"] == (job or names[0]):
                shares[row["phase"]] = min(shares[row["phase"]], row["share_fraction"])
        if min(shares.values()) <= 0:
            raise ScaleModelError("network: some flow has no path, or no bandwidth")
        return shares

    def flows(self) -> pd.DataFrame:
        """The traffic of all jobs, as of `traffic`, with paths and rates.

        Returns
        -------
        DataFrame
            The columns of `traffic`, then path, plane, parts and rate_bytes_per_s as of
            `RoutingReport.flows`, and share_fraction; each communicator as if it sent alone.
        """
        import pandas as pd

        frame = commodities(self.jobs, rails=self.rails)
        routed = []
        for part in self.parts:
            table = part.report.flows()
            table["communicator"], table["pattern"] = part.communicator, part.pattern
            table["share_fraction"] = table["rate_bytes_per_s"] / table["size_bytes"]
            routed.append(table.drop(columns=["group", "size_bytes"]))
        return frame.merge(pd.concat(routed), on=list(_PAIR), how="left") if routed else frame

    def links(self) -> pd.DataFrame:
        """One row per directed link.

        Returns
        -------
        DataFrame indexed by link
            The fabric's columns, then load_bytes (of one step of all jobs), rate_bytes_per_s (of
            the communicator that fills the link most, each as if it sent alone) and
            utilisation_fraction (that rate over the link's bandwidth).

        Examples
        --------
        >>> import scalemodel as sm
        >>> job = ("llama3_8b", sm.Strategy(tp=2), sm.Training(global_batch=64, sequence=8192))
        >>> report = sm.route(sm.cluster("dgx_h100", nodes=4), [job])
        >>> bool((report.links().utilisation_fraction <= 1 + 1e-9).all())
        True
        """
        frame = self.fabric.links()
        load, rate = np.zeros(len(frame)), np.zeros(len(frame))
        for part, sent in zip(self.parts, self._sent_bytes(), strict=True):
            load += _link_bytes(part.report, sent, self.limits)
            np.maximum(rate, part.report.columns["link_rate_bytes_per_s"], out=rate)
        capacity = frame["bandwidth_bytes_per_s"].to_numpy()
        there = capacity > 0
        frame["load_bytes"], frame["rate_bytes_per_s"] = load, rate
        frame["utilisation_fraction"] = np.where(there, rate / np.where(there, capacity, 1.0), 0.0)
        return frame

    def slowdowns(self) -> pd.DataFrame:
        """How much longer the traffic of a step takes than bounded by the NICs of its job alone.

        Communicators count one after the other, each with its slowest flow.

        Returns
        -------
        DataFrame
            Columns job, flows, alone_s, network_s and slowdown; 1 for a job that sends nothing.

        Examples
        --------
        >>> import scalemodel as sm
        >>> job = ("llama3_8b", sm.Strategy(tp=2), sm.Training(global_batch=64, sequence=8192))
        >>> sm.route(sm.cluster("dgx_h100", nodes=4), [job]).slowdowns().slowdown.tolist()
        [1.0]
        """
        import pandas as pd

        names = [job.name for job in self.jobs]
        flows, alone, network = (np.zeros(len(names)) for _ in range(3))
        for part, sent in zip(self.parts, self._sent_bytes(), strict=True):
            columns = part.report.traffic.core.columns()
            for number in np.unique(columns["job"]):
                own = columns["job"] == number
                ideal_s = float((sent[own] / columns["size_bytes"][own]).max())
                share = part.share(int(number))
                flows[number] += own.sum()
                alone[number] += ideal_s
                network[number] += ideal_s / share if share > 0 else np.inf
        slowdown = np.divide(network, alone, out=np.ones(len(names)), where=alone > 0)
        table = {"job": names, "flows": flows.astype(int), "alone_s": alone, "network_s": network}
        return pd.DataFrame({**table, "slowdown": slowdown})

    def _sent_bytes(self) -> list[np.ndarray]:
        """Of every part, what each of its flows sends in a step, in the order of its flows."""
        frame = commodities(self.jobs, rails=self.rails)
        frame["sent_bytes"] = frame["size_bytes"] * frame["times_per_step"]
        totals = frame.groupby(list(_PAIR), as_index=False)["sent_bytes"].sum()
        sent = []
        for part in self.parts:
            flows = part.report.traffic.flows()
            flows["communicator"], flows["pattern"] = part.communicator, part.pattern
            sent.append(flows.merge(totals, on=list(_PAIR), how="left")["sent_bytes"].to_numpy())
        return sent

    def to_dict(self) -> dict[str, Any]:
        """Policy, verdict, shares by job and the rows of `effective`, for JSON.

        What ``shares`` holds for a job is itself a legal ``network=``.
        """
        connected = self.verdict == OK
        return {
            "policy": self.policy,
            "model": self.model,
            "verdict": self.verdict,
            "shares": {job.name: self.shares(job.name) for job in self.jobs} if connected else {},
            "effective": self._rows(),
        }


def _rounded(share: float) -> float:
    """One where only rounding keeps a share below it: an ideal network must change nothing."""
    return 1.0 if abs(share - 1) < 1e-9 else share


def _link_bytes(report: RoutingReport, sent: np.ndarray, limits: tuple[int, int]) -> np.ndarray:
    """Bytes on every link where each flow of a routing sends what is given over its paths."""
    columns, links = report.columns, report.fabric.core.columns()
    first = np.asarray(columns["first"])
    flow = np.repeat(np.arange(len(first) - 1), np.diff(first))
    path, share = np.asarray(columns["path"]), np.asarray(columns["share"])
    rows = _core.path_columns(report.fabric.core, report.traffic.core, *limits)
    # Between switches a part takes the links of its path.
    paths = max(int(rows["path"].max(initial=0)), int(path.max(initial=0))) + 1
    routed = path >= 0
    on_path = np.zeros(len(sent) * paths)
    np.add.at(on_path, flow[routed] * paths + path[routed], (share * sent[flow])[routed])
    used = [(rows["link"], on_path[rows["flow"] * paths + rows["path"]])]
    # Between a NIC and its leaf goes all that is routed, and what never leaves the leaf.
    up, down = rows["host_up"], rows["host_down"]
    carried = np.bincount(flow[routed], (share * sent[flow])[routed], minlength=len(sent))
    local = (up >= 0) & (down >= 0) & (links["destination"][up] == links["source"][down])
    carried = np.where(local, sent, carried)
    used += [(ends[ends >= 0], carried[ends >= 0]) for ends in (up, down)]
    count = len(links["source"])
    total: np.ndarray = np.zeros(count)
    for link, size in used:
        total += np.bincount(link, size, minlength=count)
    return total


def _port_bandwidths(job: Job) -> dict[str, float]:
    """What the estimate of an ideal fabric gives one port of every communicator."""
    ports: dict[str, float] = {}
    for row in job.messages:
        name, rate = row["communicator"], row["port_bytes_per_s"]
        ports[name] = min(rate, ports.get(name, rate))
    return ports


def _demands(rows: pd.DataFrame, job: np.ndarray, ports: Sequence[float], nics: int) -> _core.Flows:
    """Flows of one communicator; their sizes are rates that only ports of NICs bound."""
    ends = rows["source"].to_numpy(), rows["destination"].to_numpy()
    group = np.unique(rows["group"].to_numpy(), return_inverse=True)[1]
    ideal = np.empty(len(rows))
    for number, bandwidth in enumerate(ports):
        own = np.flatnonzero(job == number)
        if own.size == 0:
            continue
        alone = _core.Flows(
            np.zeros(own.size, dtype=int),
            np.unique(group[own], return_inverse=True)[1],
            ends[0][own],
            ends[1][own],
            np.ones(own.size),
            1,
        )
        star = Fabric.scale_up_domain(nics=nics, bandwidth=bandwidth)
        answer = _core.route_flows(star.core, alone, _core.RouteOptions(policy="ecmp"))
        ideal[own] = answer["rate_bytes_per_s"]
    return _core.Flows(job, group, *ends, ideal, len(ports))


def _added_latency_s(fabric: Fabric, report: RoutingReport, limits: Sequence[int]) -> np.ndarray:
    """Latency of every flow's first path beyond the shortest of its pair."""
    flows = int(report.traffic.core.size)
    latency = np.asarray(fabric.core.columns()["latency_s"])
    if not latency.any():
        return np.zeros(flows)
    rows = _core.path_columns(fabric.core, report.traffic.core, *limits)
    of_path = np.zeros((flows, int(rows["path"].max(initial=0)) + 1))
    np.add.at(of_path, (rows["flow"], rows["path"]), latency[rows["link"]])
    there = np.zeros(of_path.shape, dtype=bool)
    there[rows["flow"], rows["path"]] = True
    chosen = np.asarray(report.columns["path"])[np.asarray(report.columns["first"])[:-1]]
    routed = np.flatnonzero(chosen >= 0)
    shortest = np.where(there[routed], of_path[routed], np.inf).min(axis=1)
    added = np.zeros(flows)
    added[routed] = of_path[routed, chosen[routed]] - shortest
    return added


def _together(
    fabric: Fabric,
    jobs: Sequence[Job],
    rows: pd.DataFrame,
    options: _core.RouteOptions,
    max_paths: int,
    detours: int,
) -> dict[tuple[str, str, int], float]:
    """Shares by communicator, pattern and job where all of them start at the same time.

    Every communicator of every job counts as a job of its own that sends the bytes of a step.
    """
    names = [job.name for job in jobs]
    ends: list[tuple[str, str, str]] = [
        (str(communicator), str(pattern), str(job))
        for communicator, pattern, job in rows[["communicator", "pattern", "job"]].to_numpy()
    ]
    keys = list(dict.fromkeys(ends))
    code = np.array([keys.index(key) for key in ends])
    order = np.argsort(code, kind="stable")
    group = np.cumsum(np.r_[0, np.diff(rows["group"].to_numpy()[order]) != 0])
    sent = (rows["size_bytes"] * rows["times_per_step"]).to_numpy()
    core = _core.Flows(
        code[order],
        group,
        rows["source"].to_numpy()[order],
        rows["destination"].to_numpy()[order],
        sent[order],
        len(keys),
    )
    once = [_core.JobSchedule(steps=1, epochs=1, start_s=0.0, compute_s=0.0)] * len(keys)
    run = _core.run_network(fabric.core, core, options, once, 0.0, max_paths, detours)
    shares = dict.fromkeys(range(len(keys)), 0.0)
    for number, end_s in zip(run["job"].tolist(), run["end_s"].tolist(), strict=True):
        shares[number] = float(run["isolated_s"][number]) / end_s
    return {
        (communicator, pattern, names.index(job)): shares[number]
        for number, (communicator, pattern, job) in enumerate(keys)
    }


def route_jobs(
    cluster: Cluster,
    fabric: Fabric,
    jobs: Iterable[Job],
    options: _core.RouteOptions,
    *,
    rails: bool,
    max_paths: int,
    detours: int,
    overlap: Iterable[Iterable[str]] = (),
) -> NetworkReport:
    """Routes the traffic of placed jobs, one communicator after the other.

    Phases that overlap are routed together.
    """
    placed = tuple(jobs)
    names = [job.name for job in placed]
    policy, model = str(options.policy), str(options.model)
    by_job = [_port_bandwidths(job) for job in placed]
    parts: list[Part] = []
    whole = commodities(placed, rails=rails)
    frame = whole.drop_duplicates(list(_PAIR))
    beside: dict[tuple[str, str, int], float] = {}
    for phases in checked_overlap(overlap, AXES):
        rows = whole[whole["phase"].isin(phases)]
        if rows["phase"].nunique() > 1:
            beside.update(_together(fabric, placed, rows, options, max_paths, detours))
    for key, rows in frame.groupby(["communicator", "pattern"], sort=False):
        communicator, pattern = (str(name) for name in key)
        ports = tuple(of_job.get(communicator, 0.0) for of_job in by_job)
        job = rows["job"].map(names.index).to_numpy()
        core = _demands(rows, job, ports, fabric.nics)
        traffic = Traffic(core, names, [1] * len(names), [0.0] * len(names))
        columns = _core.route_flows(fabric.core, core, options, max_paths, detours)
        limits = max_paths, detours
        report = RoutingReport(fabric, traffic, policy, model, columns, options, limits)
        added = _added_latency_s(fabric, report, limits)
        phase = str(rows["phase"].iloc[0])
        mixed = tuple(beside.get((communicator, pattern, n), 1.0) for n in range(len(names)))
        known = any((communicator, pattern, n) in beside for n in range(len(names)))
        parts.append(
            Part(phase, communicator, pattern, report, ports, added, mixed if known else ())
        )
    limits = max_paths, detours
    return NetworkReport(cluster, fabric, placed, policy, model, rails, tuple(parts), limits)
