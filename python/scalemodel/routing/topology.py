"""``design_topology``: which links between accelerators suit which strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.routing.fabric import Bandwidth, Fabric
from scalemodel.routing.report import OK
from scalemodel.routing.route import route
from scalemodel.routing.traffic import Traffic

if TYPE_CHECKING:
    import pandas as pd


def _time_s(fabric: Fabric, jobs: list[Mapping[str, Any]], effort: float) -> tuple[float, str]:
    """Time of jobs that communicate together, all their steps, and the verdict."""
    if not jobs:
        return 0.0, OK
    times = []
    for policy in ("balanced", "spray"):  # flows whole, or split over parallel links
        report = route(fabric, jobs, policy=policy, model="allocated", effort=effort, max_paths=16)
        values = report.columns["allocated_steps_per_s"]
        times.append(
            max(
                count / value if value > 0 else float("inf")
                for count, value in zip(report.traffic.steps, values, strict=True)
            )
        )
    return min(times), report.verdict


@named_arguments
def design_topology(
    nics: int,
    strategies: Mapping[str, Mapping[str, Any]],
    *,
    ports: int,
    bandwidth: Bandwidth = "100 Gbit/s",
    effort: float = 0.2,
) -> pd.DataFrame:
    """Find direct-connect links and a strategy that suit each other.

    For every strategy and every number of rings that the ports allow: build the fabric for its
    demands (`Fabric.direct_connect`), spread its all-reduce over the rings, both ways round, route
    everything, whole or split over parallel links, and add up the times: first the transfers, then
    the all-reduce. Source: TopoOpt
    (NSDI 2023, arXiv 2202.00433), which alternates between strategy and links; here all pairs are
    tried.

    Parameters
    ----------
    nics : int
    strategies : mapping of str to mapping
        By name: ``all_reduce_bytes`` of every NIC's gradients over all NICs (0: none), and ``jobs``
        as in `Traffic.of_jobs`, everything else that is sent in a step.
    ports : int
        Full-duplex ports of a NIC.
    bandwidth : float or str
        Of a port, one direction.
    effort : float
        Of routing, as in `route`.

    Returns
    -------
    DataFrame, the fastest first
        Columns strategy, rings, transfer_s, all_reduce_s, communication_s, verdict
        (``illegal:disconnected`` where the links do not join all who talk).

    Raises
    ------
    ScaleModelError : no strategy, an unknown key, or malformed jobs.

    Examples
    --------
    >>> import scalemodel as sm
    >>> strategies = {
    ...     "data": {"all_reduce_bytes": 4e9},
    ...     "halves": {"all_reduce_bytes": 1e9, "jobs": [
    ...         {"pattern": "chain", "nics": [[i, i + 4] for i in range(4)], "size_bytes": 2e8}]},
    ... }
    >>> table = sm.design_topology(8, strategies, ports=4)
    >>> table.strategy[0], int(table.rings[0])
    ('halves', 2)
    """
    import pandas as pd

    if ports < 1:
        raise ScaleModelError(f"ports={ports!r}: must be at least 1")
    if not strategies:
        raise ScaleModelError("strategies: at least one is needed")
    rows = []
    for name, strategy in strategies.items():
        unknown = set(strategy) - {"all_reduce_bytes", "jobs"}
        if unknown:
            raise ScaleModelError(
                f"strategies[{name!r}]: {sorted(unknown)[0]!r} is no key; there are "
                "all_reduce_bytes and jobs"
            )
        size = float(strategy.get("all_reduce_bytes", 0.0))
        jobs: list[Mapping[str, Any]] = list(strategy.get("jobs", ()))
        for rings in range(ports // 2 + 1):
            if len(_core.ring_strides(nics, rings)) < rings:
                break  # no further ring of its own
            rows.append({"strategy": str(name), "rings": rings})
            rows[-1] |= _judge(nics, ports, rings, size, jobs, bandwidth, effort)
    frame = pd.DataFrame(rows)
    frame["communication_s"] = frame["transfer_s"] + frame["all_reduce_s"]
    order = ["strategy", "rings", "transfer_s", "all_reduce_s", "communication_s", "verdict"]
    return frame[order].sort_values("communication_s", kind="stable", ignore_index=True)


def _judge(
    nics: int,
    ports: int,
    rings: int,
    size: float,
    jobs: Iterable[Mapping[str, Any]],
    bandwidth: Bandwidth,
    effort: float,
) -> dict[str, Any]:
    """Times of a strategy on links made for it."""
    jobs = list(jobs)
    demands: list[tuple[int, int, float]] = []
    if jobs:
        traffic = Traffic.of_jobs(jobs)
        flows = traffic.flows()
        steps = dict(zip(traffic.names, traffic.steps, strict=True))
        weight = flows["size_bytes"] * flows["job"].map(steps)
        demands = list(zip(flows["source"], flows["destination"], weight, strict=True))
    strides = _core.ring_strides(nics, rings)
    if len(strides) < rings:
        return {
            "transfer_s": float("inf"),
            "all_reduce_s": float("inf"),
            "verdict": "illegal:rings",
        }
    fabric = Fabric.direct_connect(
        nics, ports=ports, rings=rings, demands=demands, bandwidth=bandwidth
    )
    transfer_s, verdict = _time_s(fabric, jobs, effort)
    circles = [[i * stride % nics for i in range(nics)] for stride in strides or [1]]
    circles += [circle[::-1] for circle in circles]
    reduce: list[Mapping[str, Any]] = []
    if size > 0:
        reduce = [{"pattern": "ring", "nics": circles, "size_bytes": size / len(circles)}]
    all_reduce_s, other = _time_s(fabric, reduce, effort)
    return {
        "transfer_s": transfer_s,
        "all_reduce_s": all_reduce_s,
        "verdict": verdict if verdict != OK else other,
    }
