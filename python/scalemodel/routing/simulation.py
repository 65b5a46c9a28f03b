"""``simulate_network``: collectives of jobs over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress, watched
from scalemodel.base.type_hints import fits, shown
from scalemodel.base.words import named_arguments
from scalemodel.routing.completion import CompletionTimes
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.report import DISCONNECTED, OK
from scalemodel.routing.route import as_fabric, as_traffic, options_of
from scalemodel.routing.schedules import schedules_of
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster

FORECASTS = ("active", "announced", "admitted")


def _change(given: tuple[float, Fabric]) -> tuple[float, _core.LinkGraph]:
    """A change of the fabric as the engine takes it."""
    known = isinstance(given, tuple | list) and len(given) == 2
    if not known or not fits(given[0], float) or not isinstance(given[1], Fabric):
        raise ScaleModelError(f"changes: {shown(given)} must be a time in seconds and a Fabric")
    if not 0 <= given[0] < np.inf:
        raise ScaleModelError(f"changes: {given[0]!r} must be at least 0 s and finite")
    return float(given[0]), given[1].core


@named_arguments
def simulate_network(
    fabric: Fabric | Cluster,
    jobs: Traffic | pd.DataFrame | Iterable[Mapping[str, Any]],
    *,
    policy: str = "balanced",
    epochs: int = 11,
    start_s: ArrayLike = 0.0,
    step_latency_s: float = 1e-9,
    seed: int = 0,
    effort: float = 1.0,
    parts: int = 4,
    max_paths: int = 256,
    detours: int = 0,
    reoptimise_every_s: float = 0.0,
    delay_s: float = 0.0,
    forecast: str = "announced",
    changes: Iterable[tuple[float, Fabric]] = (),
    overlap: Iterable[Iterable[str]] | None = None,
    progress: Progress = None,
) -> pd.DataFrame:
    """Run the collectives of all jobs, step by step, on paths chosen once or again and again.

    A job repeats a collective and its computation. A group of flows takes its next step when all of
    them have arrived; flows that end early free their share until then. Rates are max-min fair at
    every instant. Not modelled: convergence of transport protocols, incast, priority flow control,
    latency of packets.

    With `reoptimise_every_s` a controller routes the demands of its forecast together, again and
    again, and moves running flows at no cost; until its first run paths are hashed. Flows on a path
    that goes down wait for its next run, but hashed paths (``ecmp``) are chosen anew at once.

    Parameters
    ----------
    fabric, jobs, policy, seed, effort, parts, max_paths, detours
        As in `route`. Steps and computation are those of the traffic.
    epochs : int
        Collectives of every job.
    start_s : array_like of float
        When jobs start their first collective: one number, or one per job.
    step_latency_s : float
        Between two steps of a group; its flows hold their share meanwhile.
    reoptimise_every_s : float
        Between two runs of the controller; 0: paths are chosen once, for all jobs together.
    delay_s : float
        From the demands that a run sees to its paths; at most the time between runs.
    forecast : {"announced", "active", "admitted"}
        Which jobs a run routes: those in a collective (active), also those that start one before
        the next run (announced), or all with collectives before them (admitted).
    changes : iterable of (float, Fabric)
        From when on the network is which one: the fabric with failures, or without once repaired.
    overlap : iterable of iterables of str, optional
        Of a table with phases, as `traffic` answers: which of them run at the same time in a step,
        while others follow each other; see `Traffic.from_frame`. Paths are those for all phases
        together.
    progress : bool or function of (done, total), optional
        Collectives that have ended; as of `sweep`.

    Returns
    -------
    DataFrame, one row per collective, in the order in which they end
        Columns job (name), epoch, start_s, end_s, time_s, isolated_s (the job alone, bounded by its
        NICs, phase by phase), slowdown. ``attrs``: verdict (``illegal:disconnected`` where flows
        wait for ever), completion (`CompletionTimes`: of flows, steps, rings and collectives, with
        percentiles), events, solved_flows (classes of flows alike), and delivered_bytes and
        moved_bytes by job (flows counted, and rates integrated). Where the controller runs or
        something changes also ``controller``: for every instant at which paths or links changed,
        time_s, routed_flows, moved_flows and efficiency_fraction (until the next one: bytes moved
        over those of flows on their way were their jobs alone); and assignment_s, the time spent
        choosing paths, measured. With phases also ``phases``: job, epoch, phase, start_s and end_s
        of each.

    Raises
    ------
    ScaleModelError : as `route`; the policy ``milp`` is not simulated, and a controller moves whole
        flows only.

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine()
    >>> runs = sm.simulate_network(fabric, sm.Traffic.paper_mix(fabric, jobs=2, ring=2), epochs=3)
    >>> runs.slowdown.round(6).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]

    A spine fails after a second, and a controller notices within half a second:

    >>> runs = sm.simulate_network(
    ...     fabric, sm.Traffic.paper_mix(fabric, jobs=2, ring=2), epochs=3,
    ...     reoptimise_every_s=0.5, changes=[(1.0, fabric.failed(spines=[0]))])
    >>> runs.attrs["verdict"], bool(runs.slowdown.max() < 2.5)
    ('ok', True)

    A step of a training job, whose gradients travel beside what its pipeline stages exchange:

    >>> cluster = sm.cluster("dgx_h100", nodes=8)
    >>> sent = sm.traffic("llama3_8b", cluster, sm.Training(global_batch=256, sequence=4096),
    ...                   sm.Strategy(tp=4, pp=4))
    >>> runs = sm.simulate_network(cluster, sent, epochs=1, overlap=[("dp", "pp")])
    >>> runs.attrs["phases"]["phase"]
    ['dp+pp']
    """
    import pandas as pd

    if policy == "milp":
        raise ScaleModelError("policy='milp': is not simulated; balanced is as good or better")
    fabric, traffic = as_fabric(fabric), as_traffic(jobs, overlap)
    options = options_of(policy, "fair_share", seed=seed, effort=effort, parts=parts)
    if forecast not in FORECASTS:
        raise ScaleModelError(f"forecast={forecast!r}: must be one of {', '.join(FORECASTS)}")
    controller = _core.Controller(period_s=reoptimise_every_s, delay_s=delay_s, forecast=forecast)
    later = [_change(one) for one in changes]
    schedules = schedules_of(traffic, epochs, start_s)
    with watched(progress, epochs * len(schedules), " collectives") as tell:
        answer = _core.run_network(
            fabric.core,
            traffic.core,
            options,
            schedules,
            step_latency_s,
            max_paths,
            detours,
            controller,
            later,
            tell,
        )
    job = answer["job"]
    frame = pd.DataFrame({"job": np.array(traffic.names, dtype=object)[job]})
    frame["epoch"] = pd.Series(job).groupby(job).cumcount() if len(job) else []
    frame["start_s"], frame["end_s"] = answer["start_s"], answer["end_s"]
    frame["time_s"] = frame["end_s"] - frame["start_s"]
    frame["isolated_s"] = np.asarray(answer["isolated_s"])[job]
    frame["slowdown"] = frame["time_s"] / frame["isolated_s"]
    frame.attrs = {
        "verdict": DISCONNECTED if answer["disconnected"] else OK,
        "completion": CompletionTimes(traffic, answer),
        **{name: answer[name] for name in ("events", "solved_flows")},
        **{name: answer[name].tolist() for name in ("delivered_bytes", "moved_bytes")},
    }
    if traffic.phases:
        names = [traffic.phases[number] for number in answer["phase"]]
        frame.attrs["phases"] = {
            "job": [traffic.names[number] for number in answer["phase_job"]],
            "epoch": answer["phase_epoch"].tolist(),
            "phase": names,
            "start_s": answer["phase_start_s"].tolist(),
            "end_s": answer["phase_end_s"].tolist(),
        }
    if reoptimise_every_s > 0 or later:
        # Plain lists: pandas compares attributes when it joins frames.
        frame.attrs["controller"] = {
            "time_s": answer["controller_time_s"].tolist(),
            **{
                name: answer[name].tolist()
                for name in ("routed_flows", "moved_flows", "efficiency_fraction")
            },
        }
        frame.attrs["assignment_s"] = answer["assignment_s"]
    return frame
