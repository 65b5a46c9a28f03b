"""Logs and traces that real frameworks wrote, read without them.

``tests/frameworks/recorded`` holds what `frameworks.training_loops` wrote on one day; the slow test
runs the loops again, by interpreters that have the frameworks.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import scalemodel as sm
from frameworks import tools
from scalemodel.interop.jobs import read_log

RECORDED = Path(tools.__file__).parent / "recorded"
STEPS, BATCH, SEQUENCE = 24, 4, 64
#: Framework of a run, its module, its ranks, and its logs: pattern, format, steps read.
RUNS: dict[str, tuple[str, int, dict[str, tuple[str, int]]]] = {
    "hugging_face": (
        "transformers",
        1,
        {
            "trainer_state.json*": ("hugging_face", STEPS // 2 - 1),
            "output.log*": ("hugging_face_output", STEPS // 2 - 1),
            "events/*tfevents*": ("tensorboard", STEPS // 2 - 1),
        },
    ),
    "lightning": (
        "lightning",
        1,
        {"csv/metrics.csv*": ("csv", 11), "events/*tfevents*": ("tensorboard", STEPS - 3)},
    ),
    "fsdp2": ("torch", 2, {"steps.jsonl*": ("json_lines", STEPS)}),
    "accelerate": (
        "accelerate",
        2,
        {"steps.jsonl*": ("json_lines", STEPS), "events/*tfevents*": ("tensorboard", STEPS - 3)},
    ),
    "megatron_core": ("megatron.core", 2, {"train.log*": ("megatron", STEPS)}),
    "deepspeed": (
        "deepspeed",
        2,
        {"train.log*": ("deepspeed", STEPS - 2), "steps.jsonl*": ("json_lines", STEPS)},
    ),
}


def estimate_of(name: str) -> sm.Estimate:
    ranks = RUNS[name][1]
    shape = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 256, "head_dim": 16}
    tensor = ranks if name == "megatron_core" else 1
    batch = {"hugging_face": 2 * BATCH}.get(name, BATCH * ranks // tensor)
    return sm.estimate(
        {"name": "tiny", "architecture": {**shape, "gated": False}},
        sm.cluster("dgx_h100", accelerators=ranks),
        sm.Training(global_batch=batch, sequence=SEQUENCE),
        sm.Strategy(micro_batch=BATCH, tp=tensor),
    )


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def check_run(name: str, folder: Path) -> None:
    """Every log gives the steps back, the monitor saw them, and the trace adds up."""
    _, ranks, logs = RUNS[name]
    est = estimate_of(name)
    seen = json.loads((folder / "monitor.json").read_text(encoding="utf-8"))
    assert seen["steps"] == STEPS
    # Most processors are slower than the accelerator that was predicted, and the monitor says so.
    interval = est.interval()
    assert interval is not None
    assert (seen["warnings"] >= 1) == (seen["median_s"] > interval.high_s)
    medians = []
    for pattern, (framework, steps) in logs.items():
        path = only(folder, pattern)
        log = read_log(path)
        assert (log.framework, len(log.steps)) == (framework, steps), path.name
        found = sm.compare_log(path, est)
        assert found.within == (interval.low_s <= found.median_s <= interval.high_s)
        medians.append(found.median_s)
        node = sm.project(path, est, nodes=4)
        assert node.profile.step_time_s == found.median_s
    # Two ways to count the same steps; loggers and callbacks begin and end them elsewhere.
    assert max(medians) < 2.5 * min(medians)
    assert 0.4 * seen["median_s"] < medians[0] < 2.5 * seen["median_s"]
    trace = sm.read_kineto(only(folder, "*trace*.json*"))
    assert trace.world_size == (None if ranks == 1 else ranks)
    steps = trace.steps()
    parts = steps.compute_s + steps.exposed_communication_s + steps.idle_s
    assert parts.to_numpy() == pytest.approx(steps.step_time_s.to_numpy())
    assert (steps.compute_s > 0).all()
    assert (steps.idle_s >= 0).all()
    assert (steps.communication_s > 0).all() == (ranks > 1)
    assert {"gemm", "elementwise"} < set(trace.summary().kind)
    products = trace.gemms()
    assert (products.dtype == "float32").all()
    assert {64, 256} <= set(products.k)
    # Megatron's own attention multiplies in batches, the others by one fused operator.
    assert (products.batch > 1).any() == (name == "megatron_core")
    factors = sm.project(trace, est, nodes=2).factors()
    assert factors.measured_s[0] == pytest.approx(factors.measured_s[1:].sum())


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_is_read(name: str) -> None:
    check_run(name, RECORDED / name)


def test_recordings_are_small_and_say_who_wrote_them() -> None:
    assert sum(path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()) < 100_000
    told = (RECORDED / "README.md").read_text(encoding="utf-8")
    for name in RUNS:
        versions = json.loads((RECORDED / name / "monitor.json").read_text())["versions"]
        assert all(f"{package} {version}" in told for package, version in versions.items())


def test_tokens_of_the_trainer_count_as_it_says() -> None:
    """Tokens seen are steps, times the batches accumulated, times their tokens."""
    state = json.loads(only(RECORDED / "hugging_face", "trainer_state.json").read_text())
    for entry in state["log_history"]:
        assert entry["num_input_tokens_seen"] == entry["step"] * 2 * BATCH * SEQUENCE


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_framework_runs_and_is_read(name: str, tmp_path: Path) -> None:
    module, ranks, _ = RUNS[name]
    python = tools.interpreter_with(module)
    program = str(Path(tools.__file__).with_name("training_loops.py"))
    start = [python]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    variables = {
        **tools.environment(),
        "PYTHONPATH": str(Path(sm.__file__).parents[1]),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "events"),
        "PATH": os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")]),
    }
    done = subprocess.run(
        [*start, program, name, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env=variables,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if name == "hugging_face":
        (tmp_path / "output.log").write_text(done.stdout, encoding="utf-8")
    for spare in tmp_path.glob("trace_rank[1-9]*.json"):
        spare.unlink()
    check_run(name, tmp_path)
