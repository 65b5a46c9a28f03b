"""Figures of the fifteen studies of Routing for Large ML Models."""

from __future__ import annotations

import itertools
import random
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from scalemodel.routing import (
    Fabric,
    RoutingReport,
    Traffic,
    route,
    simulate_network,
    source_ports,
)
from scalemodel.studies.papers.figure import Figure, below, published

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIGURES", "SETTINGS", "placements", "solver"]

#: Jobs, ring size and failed spines of settings whose slowdowns are known from elsewhere.
SETTINGS = (
    (2, 2, 0),
    (2, 4, 0),
    (2, 8, 0),
    (3, 4, 0),
    (3, 8, 0),
    (5, 4, 0),
    (5, 4, 1),
    (5, 4, 4),
    (5, 4, 8),
    (3, 8, 8),
)
_POLICIES = ("ecmp", "greedy", "balanced")
_of_paper = partial(published, "routing")


@cache
def _fabric() -> Fabric:
    """64 leaves under 32 spines, 2,048 NICs of 100 Gbit/s."""
    return Fabric.leaf_spine()


@cache
def _jobs() -> Traffic:
    return Traffic.paper_mix(_fabric(), jobs=5, ring=4)


@cache
def _report(policy: str, failed: int = 0, cables: int = 0) -> RoutingReport:
    """Five jobs in rings of four; the last spines failed, or cables drawn at random."""
    fabric = _fabric().failed(spines=range(32 - failed, 32)) if failed else _fabric()
    if cables:
        pairs = list(itertools.product(range(64), range(64, 96)))
        fabric = fabric.failed(cables=random.Random(0).sample(pairs, cables))
    return route(fabric, _jobs(), policy=policy)


def _slowdowns(report: RoutingReport) -> np.ndarray:
    columns = report.columns
    alone, together = (columns[f"{name}_steps_per_s"] for name in ("isolated", "fair"))
    return np.asarray(np.asarray(alone) / np.asarray(together))


def _mean_gbit(report: RoutingReport) -> float:
    return 8e-9 * float(np.mean(report.columns["rate_bytes_per_s"]))


@cache
def placements(count: int = 100) -> pd.DataFrame:
    """Slowdowns by router over many placements, failed spines drawn with each.

    Parameters
    ----------
    count : int
        Placements of a setting.

    Returns
    -------
    DataFrame, one row per setting of `SETTINGS` and router
        Columns jobs, ring, failed, policy, mean (slowdown, over jobs and placements), sem (standard
        error of that mean), published (mean of five placements, computed independently; of
        ``balanced`` none), ``max_flows``, ``slowest_gbit`` and ``mean_gbit`` (of a job's slowest
        flow, and of all flows, in the mean).

    Examples
    --------
    >>> table = placements(1)
    >>> len(table), bool((table["mean"] >= 1).all())
    (30, True)
    """
    import pandas as pd

    rows = []
    for (count_jobs, ring, failed), seed in itertools.product(SETTINGS, range(count)):
        damaged = _fabric().failed(spines=random.Random(seed).sample(range(32), failed))
        traffic = Traffic.paper_mix(_fabric(), jobs=count_jobs, ring=ring, seed=seed)
        job = pd.Series(traffic.core.columns()["job"])
        for policy in _POLICIES:
            found = route(damaged, traffic, policy=policy)
            rates = pd.Series(8e-9 * np.asarray(found.columns["rate_bytes_per_s"]))
            row = (count_jobs, ring, failed, policy, _slowdowns(found).mean(), found.max_flows)
            rows.append((*row, rates.groupby(job).min().mean(), rates.mean()))
    columns = ["jobs", "ring", "failed", "policy", "slowdown", "max_flows"]
    every = pd.DataFrame(rows, columns=[*columns, "slowest_gbit", "mean_gbit"])
    groups = every.groupby(["jobs", "ring", "failed", "policy"], sort=False)
    table = groups.slowdown.agg(["mean", "sem"])
    table = table.join(groups[["max_flows", "slowest_gbit", "mean_gbit"]].mean()).reset_index()
    table["published"] = [
        None
        if row.policy == "balanced"
        else _of_paper(f"{row.policy}_{row.jobs}_{row.ring}_{row.failed}")
        for row in table.itertuples()
    ]
    return table


def _mean_of(policy: str, failed: bool) -> float:
    table = placements(10)
    return float(table[(table.policy == policy) & ((table.failed > 0) == failed)]["mean"].mean())


def _published_mean(policy: str, failed: bool) -> float:
    values = [
        _of_paper(f"{policy}_{jobs}_{ring}_{down}")
        for jobs, ring, down in SETTINGS
        if (down > 0) == failed
    ]
    return sum(values) / len(values)


@cache
def _annealed(failed: int) -> float:
    values = []
    for seed in range(3):
        fabric = _fabric().failed(spines=range(32 - failed, 32)) if failed else _fabric()
        traffic = Traffic.paper_mix(_fabric(), jobs=5, ring=4, seed=seed)
        values.append(_slowdowns(route(fabric, traffic, policy="annealing")).mean())
    return float(np.mean(values))


@cache
def solver(time_limit_s: float = 4.0) -> pd.DataFrame:
    """The integer program of the fullest link at the paper's scale, stopped after some time.

    Parameters
    ----------
    time_limit_s : float
        For each setting.

    Returns
    -------
    DataFrame, one row per setting
        Columns jobs, ring, failed, flows, ``max_flows`` (of the answer, never above that of
        ``balanced``), ``bound_flows``, ``gap_fraction`` (proven when stopped), proven.

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("scipy")
    >>> solver(1.0).proven.dtype.name
    'bool'
    """
    import pandas as pd

    rows = []
    for jobs, ring, failed in ((2, 2, 0), (2, 4, 0), (5, 4, 0), (5, 4, 8)):
        fabric = _fabric().failed(spines=range(32 - failed, 32)) if failed else _fabric()
        traffic = Traffic.paper_mix(_fabric(), jobs=jobs, ring=ring)
        found = route(fabric, traffic, policy="milp", time_limit_s=time_limit_s)
        answer = found.to_dict()
        gap = found.gap_fraction
        row = (jobs, ring, failed, answer["flows"], found.max_flows, answer["bound_flows"], gap)
        rows.append((*row, gap < 1e-9))
    columns = ["jobs", "ring", "failed", "flows", "max_flows", "bound_flows", "gap_fraction"]
    return pd.DataFrame(rows, columns=[*columns, "proven"])


def _value_over_bound() -> float:
    """Value of the slowest job over the bound of its steps, rates allocated."""
    report = route(_fabric(), _jobs(), policy="balanced", model="allocated")
    return report.values_steps_per_s[0] * report.bound_s


def _greedy_over_optimum() -> float:
    worst = 0.0
    for seed in range(10):
        traffic = Traffic.paper_mix(_fabric(), jobs=3, ring=8, seed=seed)
        loads = [
            route(_fabric(), traffic, policy=name).max_flows for name in ("greedy", "balanced")
        ]
        worst = max(worst, loads[0] / loads[1])
    return worst


@cache
def _completion_s(policy: str) -> float:
    """Mean completion time of a flow."""
    run = simulate_network(_fabric(), _jobs(), policy=policy, epochs=2)
    table = run.attrs["completion"].summary("flow").set_index("job")
    return float(table.loc["all", "mean_s"])


def _mixed_rings() -> float:
    asked = [("bloom", 2), ("gpt3", 4), ("llama2_70b", 8)]
    traffic = Traffic.paper_jobs(_fabric(), asked)
    return float(_slowdowns(route(_fabric(), traffic)).max())


@cache
def _reoptimised(every_s: float) -> float:
    changes = [(8.0, _fabric().failed(spines=range(4))), (20.0, _fabric())]
    run = simulate_network(
        _fabric(),
        _jobs(),
        epochs=6,
        start_s=[0.0, 1.0, 2.5, 4.0, 7.0],
        changes=changes,
        policy="balanced",
        reoptimise_every_s=every_s,
    )
    return float(run.slowdown.mean())


def _assignment_s() -> float:
    """The least of some runs: a busy machine is no property of the router."""
    return min(route(_fabric(), _jobs(), policy="balanced").assignment_s for _ in range(5))


def _ports_found() -> float:
    report = _report("balanced")
    crossing = report.flows()["path"] >= 0
    return float((source_ports(report).source_port[crossing] >= 0).mean())


FIGURES = (
    Figure(
        1,
        "two layers of max-min fairness",
        "value of the slowest job over its bound",
        _value_over_bound,
        lambda: 1.0,
        1e-9,
        computed=True,
    ),
    Figure(
        2,
        "greedy",
        "fullest link over the optimum, worst of ten placements",
        _greedy_over_optimum,
        holds=lambda ratio: 1 <= ratio <= _of_paper("greedy_bound"),
        words="at most 2",
    ),
    *(
        Figure(
            3,
            "hashing",
            f"slowdown, {'failed spines' if failed else 'no failure'}",
            partial(_mean_of, "ecmp", failed),
            partial(_published_mean, "ecmp", failed),
            0.08,
            computed=True,
        )
        for failed in (False, True)
    ),
    Figure(
        4,
        "the paper's edge colouring",
        "Gbit/s of a flow, 8 spines failed",
        lambda: _mean_gbit(_report("modulo_colouring", 8)),
        lambda: _of_paper("mean_gbit_modulo_8"),
        0.02,
        computed=True,
    ),
    Figure(
        5,
        "the paper's annealing",
        "slowdown, 5 jobs in rings of 4",
        partial(_annealed, 0),
        lambda: _of_paper("annealing_0"),
        0.15,
        computed=True,
    ),
    Figure(
        5,
        "the paper's annealing",
        "the same, 8 spines failed",
        partial(_annealed, 8),
        lambda: _of_paper("annealing_8"),
        0.15,
        computed=True,
    ),
    Figure(
        6,
        "integer program at the paper's scale",
        "largest gap when stopped, up to 1,728 flows",
        lambda: solver().gap_fraction.max(),
        holds=lambda gap: gap < 1e-9,
        words="0: as good as its bound",
    ),
    Figure(
        7,
        "forty settings",
        "slowdown, balanced paths, no failure",
        partial(_mean_of, "balanced", False),
        lambda: 1.0,
        1e-9,
        computed=True,
    ),
    Figure(
        7,
        "forty settings",
        "slowdown, greedy, no failure",
        partial(_mean_of, "greedy", False),
        partial(_published_mean, "greedy", False),
        0.08,
        computed=True,
    ),
    Figure(
        7,
        "forty settings",
        "slowdown, greedy, failed spines",
        partial(_mean_of, "greedy", True),
        partial(_published_mean, "greedy", True),
        1e-9,
        computed=True,
    ),
    Figure(
        8,
        "completion times",
        "mean of a flow, greedy over balanced",
        lambda: _completion_s("greedy") / _completion_s("balanced"),
        holds=lambda ratio: 1 <= ratio <= 1.1,
        words="close to the optimum, 1 to 1.1",
    ),
    Figure(
        9,
        "throughput",
        "Gbit/s of a flow, greedy",
        lambda: _mean_gbit(_report("greedy")),
        lambda: _of_paper("mean_gbit_greedy"),
        0.01,
        computed=True,
    ),
    Figure(
        9,
        "throughput",
        "Gbit/s of a flow, hashed",
        lambda: _mean_gbit(_report("ecmp")),
        lambda: _of_paper("mean_gbit_ecmp"),
        0.05,
        computed=True,
    ),
    Figure(
        10,
        "single jobs, mixed rings",
        "slowdown, rings of 2, 4 and 8 together",
        _mixed_rings,
        lambda: 1.0,
        1e-9,
        computed=True,
    ),
    Figure(
        11,
        "failed spines",
        "slowdown, balanced paths, drawn at random",
        partial(_mean_of, "balanced", True),
        lambda: 2.0,
        1e-9,
        computed=True,
    ),
    Figure(
        12,
        "failed cables",
        "gap to the bound, 64 of 2,048 down",
        lambda: _report("balanced", cables=64).gap_fraction,
        holds=lambda gap: gap < 1e-9,
        words="0: as good as any paths",
    ),
    Figure(
        13,
        "paths chosen again",
        "slowdown, every 0.5 s over once, spines failing",
        lambda: _reoptimised(0.5) / _reoptimised(0.0),
        **below(1),
    ),
    Figure(
        14,
        "time of an assignment",
        "1,728 flows within the published 10 ms",
        lambda: float(_assignment_s() <= published("routing", "assignment", "s")),
        lambda: 1.0,
        0.0,
    ),
    Figure(
        15,
        "hosts enforce paths",
        "flows with a source port that hashes to their path",
        _ports_found,
        lambda: 1.0,
        0.0,
        computed=True,
    ),
)
