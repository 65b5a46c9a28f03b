"""What studies of layer groups cost; run with ``pytest tests/benchmarks/bench_groups.py``.

Goals are for one core of an ordinary server. They are written beside what was measured
(``extra_info``) and not asserted: what is asserted is that every question has an answer.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.studies import madmax

pytest.importorskip("pytest_benchmark")

#: Every schedule with or without recomputation, every mesh of every family of groups.
SPACE = sm.GroupSpace(recompute=(False, True))


def systems(workload: madmax.Workload) -> list[sm.Cluster]:
    """Clusters of the catalogue with as many accelerators as the workload's own."""
    size = workload.where().accelerators
    found = []
    for name in catalog.names("clusters"):
        node = sm.cluster(name, nodes=1).accelerators
        if size % node == 0:
            found.append(sm.cluster(name, accelerators=size))
    return found


def best_of_everything() -> tuple[int, int, int]:
    """Questions, strategies and questions with a strategy that fits."""
    questions = strategies = answered = 0
    for workload in madmax.SUITE.values():
        model = sm.compose(workload.model)
        for cluster in systems(workload):
            for precision in (workload.precision, "bf16", "fp16"):
                task = replace(workload, precision=precision).task()
                ranking = sm.search(model, cluster, task, SPACE, top=1, threads=1)
                if set(ranking.counts) - {"illegal:precision"}:
                    break
            questions += 1
            strategies += ranking.size
            answered += len(ranking) > 0
    return questions, strategies, answered


def test_best_strategy_of_every_workload_on_every_system(benchmark: Any) -> None:
    """Goal: 5 s in all, tables included."""
    begin_s = time.process_time()
    questions, strategies, answered = benchmark.pedantic(best_of_everything, rounds=1)
    benchmark.extra_info |= {
        "goal_s": 5,
        "cpu_s": round(time.process_time() - begin_s, 2),
        "questions": questions,
        "strategies": strategies,
    }
    assert answered > 0.5 * questions
