"""The spread of a cluster's ranks, planted in traces, tables and logs, comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from command_line import run_command
from scalemodel.calibration.spread import RankSpread


def times_of(
    ranks: int, steps: int, *, lasting: float, passing: float, seed: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds by step and rank: ranks that stay slow, noise, steps of different length."""
    random = np.random.default_rng(seed)
    factors = 1 + lasting * random.standard_normal(ranks)
    factors = factors + passing * random.standard_normal((steps, ranks))
    lengths = random.uniform(0.5, 2, (steps, 1))
    return np.asarray(lengths * factors)


def table_file(folder: Path, groups: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> Path:
    rows = [
        {"group": name, "step": step, "rank": 1000 * index + rank, "time_us": 1e6 * time_s}
        for index, (name, times) in enumerate(groups.items())
        for step, row in enumerate(times)
        for rank, time_s in enumerate(row)
    ]
    path = folder / "ranks.csv"
    pd.DataFrame(rows).sample(frac=1, random_state=1).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("lasting", "passing"), [(0.03, 0.0), (0.0, 0.03), (0.02, 0.01)])
def test_a_planted_spread_comes_back(tmp_path: Path, lasting: float, passing: float) -> None:
    path = table_file(tmp_path, {"": times_of(256, 40, lasting=lasting, passing=passing, seed=3)})
    found = sm.calibrate_spread(path)
    planted = np.hypot(lasting, passing)
    assert found.kernel_spread == pytest.approx(planted, abs=4 * found.standard_error)
    assert found.standard_error < 0.06 * planted
    assert found.lasting_spread == pytest.approx(lasting, abs=4 * found.standard_error)
    assert (found.ranks, found.steps) == (256, 40)
    # The tail of normal draws is that of a normal distribution.
    frame = found.quantiles
    assert frame.slowdown.to_numpy() == pytest.approx(frame.normal_slowdown.to_numpy(), abs=0.02)
    assert frame.slowdown.is_monotonic_increasing


@settings(max_examples=25)
@given(factor=st.floats(0.01, 100), seed=st.integers(0, 1000))
def test_only_ratios_matter(
    tmp_path_factory: pytest.TempPathFactory, factor: float, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("ranks")
    times = times_of(8, 5, lasting=0.02, passing=0.02, seed=seed)
    one = sm.calibrate_spread(table_file(folder, {"": times}))
    other = sm.calibrate_spread(table_file(folder, {"": factor * times}))
    assert other.kernel_spread == pytest.approx(one.kernel_spread, rel=1e-6)


def test_stages_are_no_stragglers(tmp_path: Path) -> None:
    """A stage with twice the layers is slow by right; equal ranks of both have no spread."""
    stages = {"first": np.full((3, 4), 1.0), "last": np.full((3, 4), 2.0)}
    found = sm.calibrate_spread(table_file(tmp_path, stages))
    assert found.kernel_spread == pytest.approx(0, abs=1e-12)
    assert found.ranks == 8
    assert set(found.table.group) == {"first", "last"}


def test_the_slow_rank_is_named(tmp_path: Path) -> None:
    times = times_of(32, 20, lasting=0.0, passing=0.002, seed=5)
    times[:, 7] *= 1.2
    found = sm.calibrate_spread(table_file(tmp_path, {"": times}))
    assert int(found.table["rank"].iloc[0]) == 7
    assert found.table.slowdown.iloc[0] == pytest.approx(1.2, rel=0.02)
    # One slow rank is no normal spread, and the quantiles say so.
    top = found.quantiles.iloc[-1]
    assert top.slowdown > 1.5 * (top.normal_slowdown - 1) + 1


def test_steps_that_lack_a_rank_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "ranks.csv"
    path.write_text("rank,step,time_s\n0,1,1\n1,1,1.1\n0,2,5\n", encoding="utf-8")
    assert sm.calibrate_spread(path).steps == 1


# ---------------------------------------------------------------------------------------- traces
def trace_file(folder: Path, rank: int, scale: float, layers: int) -> Path:
    """Two steps of `layers` products and an all-reduce that ends with the slowest rank."""
    events: list[dict[str, Any]] = []
    for step in range(2):
        begin = 1e6 * step
        events.append(
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin,
             "dur": 9e5}
        )  # fmt: skip
        for layer in range(layers):
            start, duration = begin + 1000 * layer, 700 * scale
            kernel = {"ph": "X", "cat": "kernel", "name": "sm90_gemm", "args": {"stream": 7}}
            events.append({**kernel, "ts": start, "dur": duration})
        waiting = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce"}
        events.append({**waiting, "ts": begin + 8e5, "dur": 9e4 / scale, "args": {"stream": 9}})
    path = folder / f"rank{rank}.json"
    document = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 8}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_traces_are_compared_kernel_by_kernel(tmp_path: Path) -> None:
    scales = [0.97, 1.0, 1.0, 1.03]
    paths = [trace_file(tmp_path, rank, scale, 20) for rank, scale in enumerate(scales)]
    paths += [trace_file(tmp_path, 4 + rank, scale, 30) for rank, scale in enumerate(scales)]
    found = sm.calibrate_spread(paths)
    # Waiting is shorter on the slow rank and counts nowhere; both stages have the same spread.
    assert found.kernel_spread == pytest.approx(np.std(scales, ddof=1), rel=1e-6)
    assert found.lasting_spread == pytest.approx(found.kernel_spread)
    assert sorted(found.table["rank"]) == list(range(8))
    assert found.steps == 2


# ------------------------------------------------------------------------------------------- logs
@pytest.fixture(scope="module")
def job() -> sm.Estimate:
    return sm.estimate(
        "llama3_8b",
        sm.cluster("dgx_h100", nodes=8),
        sm.Training(global_batch=128, sequence=4096),
        sm.Strategy(tp=2),
    )


def log_of(job: sm.Estimate, spread: float, steps: int, seed: int) -> str:
    """Each step waits for the slowest of all ranks, whose kernels are drawn anew."""
    random = np.random.default_rng(seed)
    assert job.step_time_s is not None
    lines = []
    for step in range(steps):
        slowest = 1 + spread * random.standard_normal(job.cluster.accelerators).max()
        time_s = job.step_time_s + (slowest - 1) * job.core.compute_s
        time_s *= 10 if step % 50 == 49 else 1 + 1e-5 * step  # a checkpoint; a slow drift
        lines.append(
            f" iteration {step}/ 9999 | elapsed time per iteration (ms): {1e3 * time_s:.4f} |"
        )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("spread", [0.01, 0.05])
def test_a_log_gives_back_what_made_its_steps_vary(
    tmp_path: Path, job: sm.Estimate, spread: float
) -> None:
    path = tmp_path / "train.log"
    path.write_text(log_of(job, spread, 2000, seed=1), encoding="utf-8")
    found = sm.calibrate_spread(path, est=job)
    # The largest of 64 draws is not spread normally; its median strays a little less.
    assert found.kernel_spread == pytest.approx(spread, rel=0.12)
    assert found.lasting_spread is None
    assert found.table.empty
    assert found.quantiles.slowdown.iloc[-1] > 5  # checkpoints are seen, and counted nowhere
    assert "at most" in found.source


# ------------------------------------------------------------------------------------ the constant
@pytest.fixture
def found(tmp_path: Path) -> RankSpread:
    times = times_of(64, 10, lasting=0.02, passing=0.01, seed=9)
    return sm.calibrate_spread(
        table_file(tmp_path, {"": times}), stack="torchtitan", name="our_cluster"
    )


def test_the_entry_enters_the_estimate(
    found: RankSpread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [path.name for path in found.write(tmp_path)] == ["our_cluster.toml"]
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    question = (
        "llama3_8b",
        sm.cluster("dgx_h100", nodes=8),
        sm.Training(global_batch=128, sequence=4096),
        sm.Strategy(tp=2),
    )
    before = sm.estimate(*question, stack="torchtitan")
    after = sm.estimate(*question, stack="our_cluster")
    longer = after.core.compute_s / before.core.compute_s - 1
    expected = found.kernel_spread * _core.expected_maximum(64)
    assert longer == pytest.approx(expected, rel=0.02)
    assert after.core.compute_s - before.core.compute_s == pytest.approx(
        after.core.step_time_s - before.core.step_time_s, rel=0.02
    )


def test_a_copy_claims_no_framework(found: RankSpread) -> None:
    (text,) = found.entries.values()
    assert "frameworks" not in text
    assert "kernel_spread" in text
    assert "64 ranks" in text


def test_everything_is_plain_data(found: RankSpread) -> None:
    record = json.loads(json.dumps(found.to_dict()))
    assert record["kernel_spread"] == found.kernel_spread
    assert len(record["table"]) == 64


def test_the_command_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [trace_file(tmp_path, rank, 1 + 0.01 * rank, 20) for rank in range(4)]
    found = sm.calibrate_spread(paths, name="ours")
    ran = run_command(capsys, "calibrate", "--kind", "spread", *paths, "--name", "ours", "--json")
    assert ran.document == json.loads(json.dumps(found.to_dict()))
    folder = tmp_path / "catalogue"
    ran = run_command(
        capsys, "calibrate", "--kind", "spread", *paths, "--name", "ours", "--out", folder
    )
    assert ran.code == 0
    assert found.text() in ran.out
    assert "kernel_spread" in (folder / "stacks/ours.toml").read_text(encoding="utf-8")
    rows = run_command(capsys, "calibrate", "--kind", "spread", *paths, "--csv").rows
    assert [row["rank"] for row in rows] == ["3", "2", "1", "0"]
    assert run_command(capsys, "calibrate", "--kind", "gemm", *paths).code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank,step\n0,1\n", "time_s"),
        ("step,time_s\n0,1\n", "rank"),
        ("rank,time_s\n0,1\n", "same work"),
        ("rank,time_s\n0,1\n1,-1\n", "line 3"),
        ("rank,time_s\n0.5,1\n1,1\n", "line 2"),
        ("rank,time_s,group\n0,1,a\n1,1,b\n", "same work"),
        ("rank,time_s\n0,1\n1,9\n2,1\n", "at most"),
    ],
)
def test_tables_that_tell_nothing_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ranks.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.calibrate_spread(path)


def test_malformed_questions_are_refused(tmp_path: Path, job: sm.Estimate) -> None:
    log = tmp_path / "train.log"
    log.write_text(log_of(job, 0.01, 4, seed=1), encoding="utf-8")
    table = table_file(tmp_path, {"": times_of(4, 2, lasting=0.1, passing=0.0, seed=1)})
    for arguments, message in (
        ({"source": []}, "source="),
        ({"source": log}, "est="),
        ({"source": log, "est": job}, "steps"),
        ({"source": tmp_path / "none.csv"}, "none.csv"),
        ({"source": table, "stack": "nowhere"}, "nowhere"),
        ({"source": table, "name": "a/b"}, "name="),
    ):
        with pytest.raises(sm.ScaleModelError, match=message):
            sm.calibrate_spread(**arguments)
