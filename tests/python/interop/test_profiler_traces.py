"""Predicted steps written as traces of PyTorch's profiler."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm

TASK = sm.Training(global_batch=16, sequence=8192)
PLANS = [
    sm.Strategy(),
    sm.Strategy(tp=2, pp=2, vpp=2, sharding="zero2"),
    sm.Strategy(tp=2, cp=2, pp=4),
    sm.Strategy(pp=2, sharding="zero3", offload_activations=True),
]


def timeline_of(plan: sm.Strategy) -> sm.Timeline:
    return sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2), TASK, plan).timeline()


def document(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return read


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_what_is_written_reads_back(plan: sm.Strategy, tmp_path: Path) -> None:
    """Every step of every stage: its length, its kernels' time, all of its traffic."""
    timeline = timeline_of(plan)
    files = sm.write_kineto(timeline, tmp_path / "traces", steps=2)
    assert [file.name for file in files] == [f"rank{stage}.json.gz" for stage in range(plan.pp)]
    for stage, file in enumerate(files):
        trace = sm.read_kineto(file)
        own = timeline.events[timeline.events["rank"] == stage]
        assert (trace.rank, trace.world_size) == (stage, plan.pp)
        assert trace.accelerator == "h100_sxm_80"
        computed = own[own.stream == "compute"].duration_s.sum()
        for row in trace.steps().itertuples():
            assert row.step_time_s == pytest.approx(timeline.step_time_s, rel=1e-6)
            # Copies to the host are not communication either, and may run beside kernels.
            copied = own[own.stream == "host"].duration_s.sum() if plan.offload_activations else 0
            assert computed * (1 - 1e-6) <= row.compute_s <= (computed + copied) * (1 + 1e-6)
        sent = own[own.bytes > 0].bytes.sum()
        told = sum(kernel.arguments.get("bytes", 0) for kernel in trace.kernels)
        assert told == pytest.approx(2 * sent, rel=1e-6)


def test_kernels_are_launched_inside_their_step(tmp_path: Path) -> None:
    (file, *_) = sm.write_kineto(timeline_of(PLANS[1]), tmp_path)
    text = gzip.decompress(file.read_bytes()).decode()
    assert re.search(r'"rank":\s+0', text)  # what HolisticTraceAnalysis looks for
    events = document(file)["traceEvents"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    assert len(steps) == 3
    kernels = {e["args"]["correlation"]: e for e in events if e["cat"] in ("kernel", "gpu_memcpy")}
    launches = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    assert kernels.keys() == launches.keys()
    assert kernels
    for number, launch in launches.items():
        assert launch["ts"] <= kernels[number]["ts"]
        assert any(s["ts"] <= launch["ts"] + 1e-3 <= s["ts"] + s["dur"] for s in steps)


def test_the_same_step_is_the_same_file(tmp_path: Path) -> None:
    (one, *_), (other, *_) = (
        sm.write_kineto(timeline_of(PLANS[1]), tmp_path / name) for name in ("one", "other")
    )
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("steps", [0, 1001, 1.5, "3", True])
def test_steps_are_counted_in_whole_numbers(steps: Any, tmp_path: Path) -> None:
    with pytest.raises(sm.ScaleModelError, match=r"steps=.*whole number from 1 to 1000"):
        sm.write_kineto(timeline_of(PLANS[0]), tmp_path, steps=steps)


def test_holistic_trace_analysis_reads_the_folder(tmp_path: Path) -> None:
    """Its computing time and overlap are those of the timeline, rank by rank."""
    analysis = pytest.importorskip(
        "hta.trace_analysis", reason="HolisticTraceAnalysis (PyPI: traceinsight) is not installed"
    )
    timeline = timeline_of(PLANS[1])
    files = sm.write_kineto(timeline, tmp_path, steps=3)
    read = analysis.TraceAnalysis(trace_dir=str(tmp_path))
    shares = read.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = read.get_comm_comp_overlap(visualize=False).set_index("rank")
    for stage, file in enumerate(files):
        step = sm.read_kineto(file).steps().iloc[0]
        row = shares.loc[stage]
        # The last of three steps is left out; times are rounded to microseconds.
        assert row["compute_time(us)"] == pytest.approx(2e6 * step.compute_s, rel=1e-3)
        assert row["non_compute_time(us)"] == pytest.approx(
            2e6 * step.exposed_communication_s, rel=1e-2
        )
        told = overlap.loc[stage, "comp_comm_overlap_pctg"] / 100
        assert told == pytest.approx(step.overlap_fraction, abs=2e-3)
