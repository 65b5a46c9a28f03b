"""``plan_paths``: a controller's paths for demands that are announced, arrive, leave and fail."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.report import DISCONNECTED, OK
from scalemodel.routing.route import as_fabric, options_of
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster

EVENTS = ("arrive", "depart", "fail", "repair")
#: What fails, by name: the argument of `Fabric.failed` and how many numbers tell which.
_TARGETS = {
    "leaf": ("leaves", 1),
    "spine": ("spines", 1),
    "nic": ("nics", 1),
    "cable": ("cables", 2),
}
COLUMNS = ("time_s", "job", "source", "destination", "size_bytes", "path", "via", "change")
CHANGES = ("new", "moved", "lost")
#: Policies that give every flow one path.
_SPLIT = ("spray", "subflow_ecmp", "milp")

_ROUNDING = 1e-9
#: Directed links of a path, those of NICs left out; none within a leaf.
Links: TypeAlias = tuple[int, ...]
#: A flow: job, when it arrives, number among the job's flows.
_Key: TypeAlias = tuple[str, float, int]


@dataclass
class _State:
    """What a controller knows at one time."""

    flows: dict[str, pd.DataFrame] = field(default_factory=dict)
    down: dict[Hashable, tuple[str, tuple[int, ...]]] = field(default_factory=dict)

    def announced(self, rows: Iterable[pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """The flows of all jobs that are there, and of those that arrive with these rows."""
        flows = dict(self.flows)
        for group in rows:
            for job, own in group[group["event"] == "arrive"].groupby("job", sort=False):
                flows.setdefault(str(job), own)
        return flows

    def fabric(self, built: Fabric) -> Fabric:
        failed: dict[str, Any] = {}
        for argument, numbers in self.down.values():
            failed.setdefault(argument, []).append(numbers if len(numbers) > 1 else numbers[0])
        return built.failed(**failed) if failed else built


def _target(text: object, where: str) -> tuple[str, tuple[int, ...]]:
    """The argument of `Fabric.failed` and the numbers that a target names."""
    kind, *numbers = str(text).split()
    known = _TARGETS.get(kind)
    if known is None or len(numbers) != known[1] or not all(n.isdigit() for n in numbers):
        raise ScaleModelError(
            f"{where}: target={text!r}: must be like 'spine 3', 'leaf 0', 'nic 5' or, by numbers "
            "of nodes, 'cable 0 65'"
        )
    return known[0], tuple(int(number) for number in numbers)


def _checked(demands: pd.DataFrame) -> pd.DataFrame:
    """The events in the order of their times, each legal by itself."""
    for column in ("time_s", "event", "job"):
        if column not in demands:
            raise ScaleModelError(f"demands: has no column {column!r}")
    times = np.asarray(demands["time_s"], dtype=float)
    if not np.isfinite(times).all() or (times < 0).any():
        raise ScaleModelError("demands: time_s must be at least 0 and finite")
    unknown = [event for event in demands["event"].unique() if event not in EVENTS]
    if unknown:
        raise ScaleModelError(f"demands: event={unknown[0]!r}: must be one of {', '.join(EVENTS)}")
    if demands["event"].isin(("fail", "repair")).any() and "target" not in demands:
        raise ScaleModelError("demands: has no column 'target', which fail and repair need")
    return demands.sort_values("time_s", kind="stable")


def _apply(state: _State, rows: pd.DataFrame) -> None:
    """Events of one time: departures, repairs, failures, arrivals."""
    time_s = float(rows["time_s"].iloc[0])
    for event in ("depart", "repair", "fail", "arrive"):
        own = rows[rows["event"] == event]
        where = f"demands: {event} at {time_s:g} s"
        if event in ("fail", "repair"):
            for text in own["target"] if len(own) else ():
                target = _target(text, where)
                if event == "fail":
                    state.down[target] = target
                elif state.down.pop(target, None) is None:
                    raise ScaleModelError(f"{where}: target={text!r} is not down")
            continue
        for job, flows in own.groupby("job", sort=False):
            if event == "arrive":
                if str(job) in state.flows:
                    raise ScaleModelError(f"{where}: job={job!r} is there already")
                state.flows[str(job)] = flows
            elif state.flows.pop(str(job), None) is None:
                raise ScaleModelError(f"{where}: job={job!r} is not there")


def _runs(times: Sequence[float], every_s: float) -> Iterator[float]:
    """When the controller runs: at every event, or periodically until the last event is seen."""
    if every_s == 0:
        yield from times
    elif times:
        for number in range(int(times[0] // every_s), int(np.ceil(times[-1] / every_s)) + 1):
            yield number * every_s


def _change(key: _Key, before: Mapping[_Key, Links | None], now: Links | None) -> str:
    """What happened to a flow: one of CHANGES, or nothing."""
    then = before.get(key)
    if now is None:
        return "lost" if then is not None or key not in before else ""
    if then is None:
        return "new"
    return "" if then == now else "moved"


class _Run:
    """One run of the controller: flows on what is up, with the paths that the last run left."""

    def __init__(self, fabric: Fabric, flows: Mapping[str, pd.DataFrame], max_paths: int) -> None:
        import pandas as pd

        self.fabric, self.max_paths = fabric, max_paths
        self.keys: list[_Key] = [
            (job, float(time_s), number)
            for job, rows in flows.items()
            for number, time_s in enumerate(rows["time_s"])
        ]
        self.frame = pd.concat(flows.values(), ignore_index=True)[list(COLUMNS[2:5])]
        self.frame.insert(0, "job", [job for job, _, _ in self.keys])
        self.traffic = Traffic.from_frame(self.frame)
        columns = _core.path_columns(fabric.core, self.traffic.core, max_paths, 0)
        self.links: dict[tuple[int, int], Links] = {}
        rows = zip(*(columns[name].tolist() for name in ("flow", "path", "link")), strict=True)
        for flow, path, link in rows:
            self.links[flow, path] = (*self.links.get((flow, path), ()), link)
        self.position = {(flow, links): path for (flow, path), links in self.links.items()}
        self.local = self._local(columns["host_up"], columns["host_down"])

    def _local(self, up: np.ndarray, down: np.ndarray) -> np.ndarray:
        """Flows within a leaf whose NICs are up."""
        links = self.fabric.core.columns()
        open_ = (links["bandwidth_bytes_per_s"][up] > 0) & (
            links["bandwidth_bytes_per_s"][down] > 0
        )
        same = links["destination"][up] == links["source"][down]
        return np.asarray((up >= 0) & (down >= 0) & open_ & same)

    def choose(
        self, options: _core.RouteOptions, before: Mapping[_Key, Links | None], tolerance: float
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Positions of paths, and what is said of them: the policy's own, or with those before."""
        question = (self.fabric.core, self.traffic.core)
        own = _core.route_flows(*question, options, self.max_paths, 0)
        kept = np.array(own["path"], dtype=np.int32)
        for flow, key in enumerate(self.keys):
            kept[flow] = self.position.get((flow, before.get(key) or ()), kept[flow])
        judged = _core.judge_routing(*question, kept, self.max_paths, 0)
        if judged["drain_s"] <= own["drain_s"] * (1 + max(tolerance, _ROUNDING)):
            return kept, judged
        return np.asarray(own["path"]), own

    def paths(self, chosen: np.ndarray) -> dict[_Key, Links | None]:
        """The links of every flow; none within a leaf, None where it has no path."""
        found: dict[_Key, Links | None] = {}
        for flow, (key, path) in enumerate(zip(self.keys, chosen.tolist(), strict=True)):
            links = self.links.get((flow, path), ())
            found[key] = links if links or self.local[flow] else None
        return found

    def rows(self, chosen: np.ndarray, links: Iterable[Links | None]) -> pd.DataFrame:
        """The table of the answer, all flows."""
        ends = self.fabric.core.columns()
        frame = self.frame.copy()
        frame["path"] = chosen
        frame["via"] = [
            "-".join(str(ends["source"][link]) for link in own) + f"-{ends['destination'][own[-1]]}"
            if own
            else ""
            for own in links
        ]
        return frame


@named_arguments
def plan_paths(
    fabric: Fabric | Cluster,
    demands: pd.DataFrame,
    *,
    policy: str = "balanced",
    reoptimise_every_s: float = 0.0,
    tolerance_fraction: float = 0.0,
    seed: int = 0,
    effort: float = 1.0,
    max_paths: int = 256,
) -> pd.DataFrame:
    """Paths of announced demands over time, and which flows every change moves.

    A controller runs at every event, or periodically. It routes together the flows of all jobs that
    are there and of those announced to arrive before its next run, on what is up at that time.
    Flows whose path goes down between two runs wait for the next one.

    Parameters
    ----------
    fabric : Fabric or Cluster
    demands : DataFrame
        Events by row: ``time_s``, ``event`` (arrive, depart, fail, repair) and ``job``. A job
        arrives with one row per flow: ``source``, ``destination`` (NICs), ``size_bytes``. What
        fails or is repaired is the ``target``: ``spine 3``, ``leaf 0``, ``nic 5``, or ``cable 0
        65`` by numbers of nodes. Events of one time: departures, repairs, failures, arrivals.
    policy, seed, effort, max_paths
        As in `route`; policies that give every flow one path.
    reoptimise_every_s : float
        Between two runs; 0: at every event.
    tolerance_fraction : float
        Flows keep paths that are up where the fullest link then takes at most this much longer to
        drain than under the policy's own answer.

    Returns
    -------
    DataFrame, one row per flow whose path changes, in the order of time
        Columns time_s (of the run), job, source, destination, size_bytes, path (position among the
        flow's paths that are up), via (numbers of the switches on it) and change: ``new``,
        ``moved``, or ``lost`` where no path is left; a flow that gets one again is ``new``.
        ``attrs["runs"]``: of every run time_s, flows, new, moved, lost, drain_s (of the fullest
        link) and bound_s. ``attrs["verdict"]``: ``illegal:disconnected`` where flows have no path
        in the end.

    Raises
    ------
    ScaleModelError : malformed demands; names the event. A policy that splits flows.

    Examples
    --------
    >>> import pandas as pd
    >>> import scalemodel as sm
    >>> rows = [(0.0, "arrive", "a", 0, 2, 1e9, ""), (1.0, "fail", "", -1, -1, 0, "spine 0"),
    ...         (2.0, "repair", "", -1, -1, 0, "spine 0"), (3.0, "depart", "a", -1, -1, 0, "")]
    >>> names = ["time_s", "event", "job", "source", "destination", "size_bytes", "target"]
    >>> fabric = sm.Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
    >>> plan = sm.plan_paths(fabric, pd.DataFrame(rows, columns=names))
    >>> plan[["time_s", "via", "change"]].values.tolist()
    [[0.0, '0-2-1', 'new'], [1.0, '0-3-1', 'moved']]
    >>> [run["flows"] for run in plan.attrs["runs"]]
    [1, 1, 1, 0]
    """
    import pandas as pd

    if policy in _SPLIT:
        raise ScaleModelError(f"policy={policy!r}: a controller gives every flow one path")
    for name, value in (
        ("reoptimise_every_s", reoptimise_every_s),
        ("tolerance_fraction", tolerance_fraction),
    ):
        if not np.isfinite(value) or value < 0:
            raise ScaleModelError(f"{name}={value!r}: must be at least 0 and finite")
    built = as_fabric(fabric)
    options = options_of(policy, "fair_share", seed=seed, effort=effort)
    groups = [(float(t), rows) for t, rows in _checked(demands).groupby("time_s", sort=True)]  # type: ignore[arg-type]
    state, paths, applied = _State(), dict[_Key, Links | None](), 0
    tables, runs = [], []
    for now_s in _runs([time_s for time_s, _ in groups], reoptimise_every_s):
        while applied < len(groups) and groups[applied][0] <= now_s:
            _apply(state, groups[applied][1])
            applied += 1
        end_s = now_s + reoptimise_every_s
        flows = state.announced(rows for time_s, rows in groups[applied:] if time_s < end_s)
        changes: list[str] = []
        said = {"drain_s": 0.0, "bound_s": 0.0}
        before, paths = paths, {}
        if flows:
            run = _Run(state.fabric(built), flows, max_paths)
            chosen, said = run.choose(options, before, tolerance_fraction)
            paths = run.paths(chosen)
            changes = [_change(key, before, links) for key, links in paths.items()]
            table = run.rows(chosen, paths.values())
            table.insert(0, "time_s", now_s)
            table["change"] = changes
            tables.append(table[table["change"] != ""])
        counts = {name: changes.count(name) for name in CHANGES}
        drain = {name: float(said[name]) for name in ("drain_s", "bound_s")}
        runs.append({"time_s": now_s, "flows": len(paths), **counts, **drain})
    plan = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(COLUMNS))
    plan.attrs["runs"] = runs
    plan.attrs["verdict"] = DISCONNECTED if None in paths.values() else OK
    return plan
