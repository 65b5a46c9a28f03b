"""What the Python package costs; run with ``pytest tests/benchmarks/bench_estimate.py``.

Goals are for one core of an ordinary server. Each is asserted on the median, with head-room for a
busy machine.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from reference.runs import LLAMA, csv_text
from scalemodel.estimator.evaluation import tables_for

pytest.importorskip("pytest_benchmark")

HEADROOM = 3
TASK = sm.Training(global_batch=1024, sequence=8192)
PLAN = sm.Strategy(tp=4, pp=4, vpp=5)


def within(benchmark: Any, goal_s: float) -> None:
    assert benchmark.stats.stats.median < HEADROOM * goal_s


def test_estimate_end_to_end(benchmark: Any) -> None:
    """Goal: under 200 us from objects to an answer."""
    model, cluster = sm.model("llama3_70b"), sm.cluster("dgx_h100", nodes=64)
    est = benchmark(sm.estimate, model, cluster, TASK, PLAN)
    assert not est.illegal
    within(benchmark, 200e-6)


def test_estimate_with_names(benchmark: Any) -> None:
    """Goal: under 2 ms when model and cluster are looked up in the catalogue each time."""

    def question() -> sm.Estimate:
        return sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=64), TASK, PLAN)

    assert not benchmark(question).illegal
    within(benchmark, 2e-3)


def test_estimate_of_a_new_strategy(benchmark: Any) -> None:
    """Goal: under 200 us for a strategy not seen before on known degrees."""
    model, cluster = sm.model("llama3_70b"), sm.cluster("dgx_h100", nodes=64)
    plans = [
        sm.Strategy(tp=tp, pp=pp, sharding=sharding, recompute=recompute)
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4, 8)
        for sharding in ("ddp", "zero1", "zero2", "zero3")
        for recompute in ("none", "selective", "full")
    ]
    turn = itertools.count()
    benchmark(lambda: sm.estimate(model, cluster, TASK, plans[next(turn) % len(plans)]))
    within(benchmark, 200e-6)


def test_first_estimate_of_a_question(benchmark: Any) -> None:
    """Goal: under 2 ms with the tables still to be filled."""
    model, cluster = sm.model("deepseek_v3"), sm.cluster("dgx_h100", nodes=64)
    plan = sm.Strategy(tp=1, pp=4, ep=8)

    def cold() -> sm.Estimate:
        tables_for.cache_clear()
        return sm.estimate(model, cluster, TASK, plan)

    benchmark(cold)
    within(benchmark, 2e-3)


def test_engine_alone(benchmark: Any) -> None:
    """Goal: under 20 us for the engine behind its binding."""
    tables = tables_for(sm.model("llama3_70b"), sm.cluster("dgx_h100", nodes=64), TASK, "plain")
    benchmark(tables.estimate, PLAN)
    within(benchmark, 20e-6)


def test_import_time(benchmark: Any) -> None:
    """Goal: under 60 ms of processor time beyond NumPy, interpreter left out."""
    probe = (
        "import numpy, time; start = time.process_time(); import scalemodel; "
        "print(time.process_time() - start)"
    )
    spent_s: list[float] = []

    def start_python() -> None:
        command = [sys.executable, "-c", probe]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        spent_s.append(float(done.stdout))

    benchmark.pedantic(start_python, rounds=7, warmup_rounds=1)  # the first writes the byte code
    benchmark.extra_info["import_s"] = statistics.median(spent_s)
    assert statistics.median(spent_s) < HEADROOM * 60e-3


def test_validate_speed(benchmark: Any, tmp_path: Path) -> None:
    """Goal: under 5 ms per measured row, all of them different questions."""
    rows = [
        {
            **LLAMA,
            "tp": str(tp),
            "pp": str(pp),
            "dp": str(gpus // (tp * pp)),
            "n_gpus": str(gpus),
            "micro_batch": str(micro_batch),
            "global_batch": "256",
        }
        for gpus, tp, pp, micro_batch in itertools.product(
            (32, 64, 128, 256), (1, 2, 4, 8), (1, 2, 4), (1, 2, 4)
        )
    ]
    path = tmp_path / "runs.csv"
    path.write_text(csv_text(rows), encoding="utf-8")
    frame = benchmark.pedantic(sm.validate, args=("training", path), rounds=3, warmup_rounds=1)
    assert (frame.skip_reason == "").sum() > len(rows) / 2
    within(benchmark, 5e-3 * len(rows))
