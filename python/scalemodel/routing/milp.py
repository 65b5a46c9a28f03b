"""The fullest link proven minimal by a mixed-integer solver: an oracle for small instances."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.mixed_integer import Program, check_solver, solve
from scalemodel.routing.size_patterns import few_sizes, least_units
from scalemodel.routing.traffic import Traffic

_TIME_LIMIT_S = 60.0


def _single_paths(
    owner_flow: NDArray[np.int64],
    entry: tuple[NDArray[np.int64], NDArray[np.int64]],
    loads: NDArray[np.float64],
    least: float,
    *,
    whole: bool,
) -> Program:
    """The least t that no link's load exceeds, each flow on one path; t is the last variable.

    `owner_flow` has the flow of each variable; an entry is a variable and a link that it loads.
    """
    variable, link = entry
    rows, row = np.unique(link, return_inverse=True)
    owners, owner = np.unique(owner_flow, return_inverse=True)
    count, links = len(owner_flow), np.arange(len(rows))
    last = np.r_[np.zeros(count), 1.0]
    return Program(
        cost=last,
        lower=last * least,
        upper=np.where(last > 0, np.inf, 1.0),
        whole=(last == 0) & whole,
        rows=np.concatenate([row, links, len(rows) + owner]),
        columns=np.concatenate([variable, np.full(len(rows), count), np.arange(count)]),
        factors=np.concatenate([loads, -np.ones(len(rows)), np.ones(count)]),
        low=np.r_[np.full(len(rows), -np.inf), np.ones(len(owners))],
        high=np.r_[np.zeros(len(rows)), np.ones(len(owners))],
    )


def least_drain(
    fabric: Fabric,
    traffic: Traffic,
    *,
    max_paths: int = 256,
    detours: int = 0,
    relaxed: bool = False,
    time_limit_s: float = _TIME_LIMIT_S,
) -> dict[str, Any]:
    """Single paths that minimise the longest time to drain a link between switches.

    Minimises t with one binary per flow and path, ``sum_p x[f, p] = 1`` and, for every link,
    ``sum bytes[f] x[f, p] <= t capacity``; t is not below the engine's bound. Where sizes are few
    and links alike, counts of flows alike and patterns of links take the place of the binaries
    (``size_patterns``): their relaxation knows which sums of sizes a link can carry. HiGHS solves
    instances of a few hundred flows. Beyond that the answer is the better one of what it found in
    time and the policy ``balanced``, with the bound that is proven by then.

    Parameters
    ----------
    relaxed : bool
        Flows may be split: the linear program, a lower bound; the answer then holds only
        ``objective_s``.
    time_limit_s : float
        The best paths found by then.

    Returns
    -------
    dict
        As the engine answers a routing, and ``objective_s`` (of the answer), ``dual_bound_s`` (no
        single paths drain sooner).

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("scipy")
    >>> fabric = Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
    >>> jobs = [{"pattern": "ring", "nics": [[0, 2], [1, 3]], "size_bytes": 1e9}]
    >>> least_drain(fabric, Traffic.of_jobs(jobs))["max_flows"]
    1
    """
    check_solver()
    started = time.perf_counter()
    paths = _core.path_columns(fabric.core, traffic.core, max_paths, detours)
    flow, path, link = paths["flow"], paths["path"], paths["link"]
    size = traffic.core.columns()["size_bytes"]
    balanced = _core.route_flows(
        fabric.core, traffic.core, _core.RouteOptions(policy="balanced"), max_paths, detours
    )
    chosen = np.array(balanced["path"], dtype=np.int32)
    # One variable per (flow, path); the last one is t, scaled to about one.
    stride = int(path.max()) + 1 if len(path) else 1
    keys, variable = np.unique(flow.astype(np.int64) * stride + path, return_inverse=True)
    capacity = fabric.core.columns()["bandwidth_bytes_per_s"]
    objective = 0.0
    dual = 0.0
    few = None if relaxed else few_sizes(paths, np.asarray(size), np.asarray(capacity))
    patterns = few and least_units(few, balanced["bound_s"], balanced["drain_s"], time_limit_s)
    if patterns:
        better, dual = patterns
        for f, p in (better or {}).items():
            chosen[f] = p
        objective = dual if better is not None else float(balanced["drain_s"])
    elif len(keys):
        scale = float((size[flow] / capacity[link]).max())
        loads = size[flow] / capacity[link] / scale
        least = 0.0 if relaxed else balanced["bound_s"] / scale * (1 - 1e-9)
        program = _single_paths(keys // stride, (variable, link), loads, least, whole=not relaxed)
        answer = solve(program, time_limit_s)
        if relaxed:
            if answer.values is None:
                raise ScaleModelError(f"policy='milp': the solver found nothing ({answer.message})")
            return {"objective_s": answer.objective * scale}
        dual = max(balanced["bound_s"], answer.bound * scale if answer.bound is not None else 0.0)
        objective = float(balanced["drain_s"])
        if answer.values is not None and answer.objective * scale < objective * (1 - 1e-9):
            objective = answer.objective * scale
            taken = keys[answer.values[:-1] > 0.5]
            chosen[taken // stride] = taken % stride
    columns: dict[str, Any] = _core.judge_routing(
        fabric.core, traffic.core, chosen, max_paths, detours
    )
    columns["bound_s"] = max(float(columns["bound_s"]), dual)
    columns["assignment_s"] = time.perf_counter() - started
    return {**columns, "objective_s": objective, "dual_bound_s": dual}
