"""The fullest link proven minimal by a mixed-integer solver: an oracle for small instances."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.background import in_background
from scalemodel.base.errors import ScaleModelError
from scalemodel.routing.fabric import Fabric
from scalemodel.routing.size_patterns import few_sizes, least_units
from scalemodel.routing.traffic import Traffic

_TIME_LIMIT_S = 60.0


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
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix
    except ImportError as error:
        raise ScaleModelError(
            "policy='milp': needs scipy (pip install 'scalemodel[milp]')"
        ) from error
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
        rows, row = np.unique(link, return_inverse=True)
        loads = size[flow] / capacity[link] / scale
        count = len(keys)
        ones = np.ones(len(rows))
        on_link = csr_matrix(
            (
                np.concatenate([loads, -ones]),
                (
                    np.concatenate([row, np.arange(len(rows))]),
                    np.concatenate([variable, np.full(len(rows), count)]),
                ),
            ),
            shape=(len(rows), count + 1),
        )
        owners, owner = np.unique(keys // stride, return_inverse=True)
        whole = csr_matrix(
            (np.ones(count), (owner, np.arange(count))), shape=(len(owners), count + 1)
        )
        cost = np.zeros(count + 1)
        cost[-1] = 1.0
        upper = np.ones(count + 1)
        upper[-1] = np.inf
        lower = np.zeros(count + 1)
        lower[-1] = 0.0 if relaxed else balanced["bound_s"] / scale * (1 - 1e-9)
        answer = in_background(
            lambda: milp(
                cost,
                constraints=[LinearConstraint(on_link, ub=0.0), LinearConstraint(whole, 1.0, 1.0)],
                integrality=np.zeros(count + 1) if relaxed else np.r_[np.ones(count), 0],
                bounds=Bounds(lower, upper),
                options={"time_limit": time_limit_s},
            )
        )
        if relaxed:
            if answer.x is None:
                raise ScaleModelError(f"policy='milp': the solver found nothing ({answer.message})")
            return {"objective_s": float(answer.fun) * scale}
        proven = answer.mip_dual_bound
        dual = max(balanced["bound_s"], float(proven) * scale if proven is not None else 0.0)
        objective = float(balanced["drain_s"])
        if answer.x is not None and float(answer.fun) * scale < objective * (1 - 1e-9):
            objective = float(answer.fun) * scale
            taken = keys[answer.x[:-1] > 0.5]
            chosen[taken // stride] = taken % stride
    columns: dict[str, Any] = _core.judge_routing(
        fabric.core, traffic.core, chosen, max_paths, detours
    )
    columns["bound_s"] = max(float(columns["bound_s"]), dual)
    columns["assignment_s"] = time.perf_counter() - started
    return {**columns, "objective_s": objective, "dual_bound_s": dual}
