"""Timelines as Python sees them: tables, traces, plots, options and errors."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
import scalemodel._core as _core

pytestmark = pytest.mark.usefixtures("agg")

TASK = sm.Training(global_batch=64, sequence=8192)


@pytest.fixture(scope="module")
def est() -> sm.Estimate:
    plan = sm.Strategy(tp=2, pp=4, vpp=2)
    return sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2), TASK, plan)


@pytest.fixture(scope="module")
def timeline(est: sm.Estimate) -> sm.Timeline:
    return est.timeline()


def uneven_405b(vpp: int = 8) -> sm.Estimate:
    """126 layers on 16 stages: embedding and head are chunks of their own where vpp is 8."""
    plan = sm.Strategy(tp=8, pp=16, vpp=vpp, recompute="selective")
    return sm.estimate(
        "llama3_1_405b",
        sm.cluster("dgx_h100", nodes=128),
        sm.Training(global_batch=1024, sequence=8192),
        plan,
    )


def test_events_have_the_documented_columns(timeline: sm.Timeline) -> None:
    events = timeline.events
    assert list(events.columns) == [
        "rank",
        "stream",
        "name",
        "kind",
        "chunk",
        "micro_batch",
        "start_s",
        "duration_s",
        "bytes",
    ]
    assert set(events["rank"]) == {0, 1, 2, 3}
    assert {"compute", "tp", "dp", "send_next", "receive_previous"} <= set(events.stream)
    assert "forward, chunk 1" in set(events.name)
    assert (events.duration_s > 0).all()
    assert events.memory_usage().sum() < 100 * len(events)


def test_every_micro_batch_passes_every_chunk_both_ways(timeline: sm.Timeline) -> None:
    events = timeline.events
    for kind in ("forward", "backward"):
        passes = events[(events.kind == kind).to_numpy()]
        counts = passes.groupby(["rank", "chunk", "micro_batch"]).size()
        assert len(counts) == 4 * 2 * 32
        assert (counts == 1).all()


def test_the_slowest_rank_is_busy_as_long_as_estimated(
    est: sm.Estimate, timeline: sm.Timeline
) -> None:
    events = timeline.events
    kernels = events[((events.stream == "compute") & (events.chunk >= 0)).to_numpy()]
    busiest_s = kernels.groupby("rank").duration_s.sum().max()
    assert busiest_s == pytest.approx(est.compute_s, rel=0.005)


@pytest.mark.parametrize("micro_batches", [1, 3, 4, 6, 7, 16])
def test_a_pipeline_that_turns_around_peaks_where_its_estimate_says(micro_batches: int) -> None:
    """Below 2 pp - 1 micro-batches, its first stages do not fill: they hold (m + i + 1) / 2."""
    task = sm.Training(global_batch=micro_batches, sequence=4096)
    strategy = sm.Strategy(tp=4, pp=4, dp=1, schedule="zero_bubble_v")
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2), task, strategy)
    memory = est.timeline().memory
    fullest = memory[memory["rank"] == est.fullest_stage]
    peak = fullest.memory_activations_bytes.max()
    assert peak == pytest.approx(est.memory_activations_bytes, rel=1e-9)
    assert (
        est.memory_bytes
        <= sm.estimate(
            est.model, est.cluster, task.replace(global_batch=micro_batches + 1), strategy
        ).memory_bytes
    )


def test_memory_ends_at_the_resident_level(timeline: sm.Timeline) -> None:
    for _, rows in timeline.memory.groupby("rank"):
        assert (np.diff(rows.time_s) > 0).all()
        columns = [c for c in rows.columns if c.startswith("memory_") and c != "memory_bytes"]
        assert (rows[columns] >= 0).all().all()
        assert np.allclose(rows[columns].sum(axis=1), rows.memory_bytes, rtol=1e-12)
        last = rows.iloc[-1]
        for kind in ("activations", "logits", "temporary"):
            assert last[f"memory_{kind}_bytes"] == 0
        assert last.memory_bytes == rows.memory_bytes.min()


def test_uneven_stages_of_405b() -> None:
    est = uneven_405b()
    assert est.verdict == "ok" or est.verdict == "out_of_memory"
    timeline = est.timeline()
    assert timeline.core.passes == 16 * 8 * 128 * 2
    kernels = timeline.events
    kernels = kernels[((kernels.stream == "compute") & (kernels.chunk >= 0)).to_numpy()]
    busy = kernels.groupby("rank").duration_s.sum()
    # The first and the last stage hold a layer less.
    assert busy[0] < busy[1]
    assert timeline.step_time_s == pytest.approx(est.step_time_s, rel=0.05)


def test_trace_is_valid_and_in_order(timeline: sm.Timeline, tmp_path: Path) -> None:
    file = timeline.trace(tmp_path / "step.json")
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    last: dict[tuple[int, int], float] = defaultdict(float)
    slices = 0
    for event in events:
        if event["ph"] == "X":
            slices += 1
            key = (event["pid"], event["tid"])
            assert event["ts"] >= last[key]
            assert event["dur"] > 0
            last[key] = event["ts"]
    assert slices == len(timeline.events)
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"stage 0", "stage 1", "stage 2", "stage 3"}
    begun = sorted(e["id"] for e in events if e["ph"] == "s")
    assert begun == sorted(e["id"] for e in events if e["ph"] == "f")
    assert len(set(begun)) == len(begun)
    counted = [e for e in events if e["ph"] == "C"]
    assert len(counted) == len(timeline.memory)


def test_operators_fill_their_pass(est: sm.Estimate, tmp_path: Path) -> None:
    file = est.trace(tmp_path / "operators.json", operators=True)
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    compute = [e for e in events if e["ph"] == "X" and e["tid"] == 0 and e["pid"] == 1]
    passes = [e for e in compute if e["name"] == "forward"]
    inside = [e for e in compute if e["name"] == "qkv"]
    assert len(inside) == 2 * len(passes) * 32 // 8
    first = passes[0]
    parts = [
        e
        for e in compute
        if "args" not in e and first["ts"] <= e["ts"] < first["ts"] + first["dur"] - 1e-3
    ]
    assert sum(e["dur"] for e in parts) == pytest.approx(first["dur"], rel=1e-6)


def test_a_compressed_gradient_costs_time_to_make_and_less_to_send() -> None:
    plan = sm.Strategy(sharding="ddp", overlap_grad_reduce=False)
    est = sm.estimate(
        "llama3_2_1b",
        sm.cluster("dgx_h100", nodes=4),
        sm.Training(global_batch=32, sequence=2048),
        plan,
    )
    plain, small = est.timeline(), est.timeline(gradient_compression=0.25)
    reduced = [t.events[(t.events.kind == "reduce_gradients").to_numpy()] for t in (plain, small)]
    assert reduced[1].bytes.sum() == pytest.approx(reduced[0].bytes.sum() / 4)
    assert reduced[1].duration_s.sum() < reduced[0].duration_s.sum()
    assert "decode_gradients" in set(small.events.kind)
    assert small.step_time_s < plain.step_time_s


def test_sending_by_need_uses_the_next_forward_pass() -> None:
    plan = sm.Strategy(sharding="ddp", overlap_grad_reduce=True)
    est = sm.estimate(
        "llama3_2_1b",
        sm.cluster("dgx_h100", nodes=16),
        sm.Training(global_batch=128, sequence=2048),
        plan,
    )
    plain, by_need = est.timeline(), est.timeline(priority="by_need")
    assert by_need.step_time_s < plain.step_time_s
    first = by_need.events[(by_need.events.stream == "dp").to_numpy()].iloc[0]
    assert first.kind == "reduce_gradients"
    assert first.start_s == pytest.approx(0, abs=1e-9)


def test_a_straggling_stage_paces_the_step(est: sm.Estimate, timeline: sm.Timeline) -> None:
    slow = est.timeline(slowdown=[1, 1, 2, 1])
    assert slow.step_time_s > 1.2 * timeline.step_time_s
    path = slow.critical_path()
    on_slow = path[((path["rank"] == 2) & (path.stream == "compute")).to_numpy()]
    assert on_slow.duration_s.sum() > 0.5 * slow.step_time_s


@pytest.mark.parametrize("slowdown", [[1, 1], [1, 1, 1, 0], [1, 1, 1, float("nan")], "fast", 2])
def test_slowdowns_are_checked(est: sm.Estimate, slowdown: object) -> None:
    with pytest.raises(sm.ScaleModelError, match="slowdown="):
        est.timeline(slowdown=slowdown)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", "lifo"),
        ("slices", 0),
        ("gradient_compression", 0),
        ("gradient_compression", 2),
        ("contention", 1),
    ],
)
def test_options_are_checked(est: sm.Estimate, option: str, value: object) -> None:
    with pytest.raises(sm.ScaleModelError, match=option):
        est.timeline(**{option: value})  # type: ignore[arg-type]


def test_an_illegal_strategy_has_no_timeline() -> None:
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=3))
    with pytest.raises(sm.ScaleModelError) as caught:
        est.timeline()
    assert caught.value.code == est.reason


def test_timelines_travel(timeline: sm.Timeline) -> None:
    copy = pickle.loads(pickle.dumps(timeline))
    assert copy.step_time_s == timeline.step_time_s
    assert copy.options == timeline.options
    assert repr(copy) == repr(timeline)


def test_streams_and_activities_have_looks() -> None:
    from scalemodel.plot.timeline import _LOOKS

    assert set(_LOOKS) == set(_core.ACTIVITIES)


def test_plot_of_a_timeline(timeline: sm.Timeline) -> None:
    ax = sm.plot.timeline(timeline)
    assert ax.get_xlabel() == "Time (s)"
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["stage 0", "stage 1", "stage 2", "stage 3"]
    legend = ax.get_legend()
    assert legend is not None
    assert {"forward", "backward"} <= {text.get_text() for text in legend.get_texts()}
    low, high = ax.get_xlim()
    assert low == 0
    assert high == pytest.approx(timeline.step_time_s)


def test_plot_of_all_streams_in_a_window(timeline: sm.Timeline) -> None:
    ax = sm.plot.timeline(timeline.events, streams=None, window_s=(0.0, 0.5))
    assert ax.get_xlabel() == "Time (ms)"
    labels = {text.get_text() for text in ax.get_yticklabels()}
    assert {"stage 0 compute", "stage 0 tp", "stage 3 receive_previous"} <= labels


def test_plot_of_memory(timeline: sm.Timeline, est: sm.Estimate) -> None:
    ax = sm.plot.memory_timeline(timeline)
    assert ax.get_ylabel() == "Memory (GiB)"
    assert ax.get_title(loc="left") == f"Memory of stage {est.fullest_stage} over a step"
    assert ax.get_ylim()[1] >= est.memory_bytes / 2**30
    other = sm.plot.memory_timeline(timeline.memory, rank=3)
    assert other.get_title(loc="left") == "Memory of stage 3 over a step"


def test_plots_name_what_is_missing(timeline: sm.Timeline) -> None:
    with pytest.raises(sm.ScaleModelError, match="stream"):
        sm.plot.timeline(timeline.events.drop(columns="stream"))
    with pytest.raises(sm.ScaleModelError, match="streams="):
        sm.plot.timeline(timeline, streams=["gpu"])
    with pytest.raises(sm.ScaleModelError, match="events"):
        sm.plot.timeline(timeline.events.iloc[:0])
    with pytest.raises(sm.ScaleModelError, match="rank=9"):
        sm.plot.memory_timeline(timeline, rank=9)
    with pytest.raises(sm.ScaleModelError, match="memory_weights_bytes"):
        sm.plot.memory_timeline(timeline.memory.drop(columns="memory_weights_bytes"))
