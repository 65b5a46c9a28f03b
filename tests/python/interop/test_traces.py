"""Traces of PyTorch's profiler and of Chakra."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.interop.traces import protobuf as wire
from scalemodel.interop.traces.kineto import covered_s, kind_of, union

EST = sm.estimate(
    "llama3_8b",
    sm.cluster("dgx_h100"),
    sm.Training(global_batch=16, sequence=8192),
    sm.Strategy(tp=2, pp=2, vpp=2),
)


def kernel(name: str, ts: float, dur: float, stream: int = 7, **arguments: Any) -> dict[str, Any]:
    event = {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "pid": 0}
    return {**event, "tid": stream, "args": {"stream": stream, **arguments}}


def mark(name: str, ts: float, dur: float, cat: str = "gpu_user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": 1}


def written(path: Path, events: list[dict[str, Any]], **top: Any) -> Path:
    text = json.dumps({"traceEvents": events, **top})
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


# ----------------------------------------------------------------------------------------- kineto
def test_overlap_is_the_hand_count(tmp_path: Path) -> None:
    """Two steps of 100 us: 60 and 50 us of compute, 40 of communication, 25 and 0 of it hidden."""
    all_reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    events = [
        mark("ProfilerStep#3", 1000, 100),
        mark("ProfilerStep#4", 1100, 100),
        mark("ProfilerStep#3", 900, 10, cat="user_annotation"),  # the host, ahead
        kernel("sm90_xmma_gemm_bf16", 1010, 40),
        kernel("vectorized_elementwise_kernel", 1040, 30, stream=8),  # 10 us at once with the gemm
        kernel(all_reduce, 1045, 40, stream=20),
        kernel("flash_fwd_kernel", 1100, 50),
        kernel(all_reduce, 1150, 40, stream=20),
    ]
    trace = sm.read_kineto(
        written(tmp_path / "t.json.gz", events, distributedInfo={"rank": 3, "world_size": 8})
    )
    assert (trace.rank, trace.world_size) == (3, 8)
    first, second = trace.steps().to_dict("records")
    expected = {
        "step_time_s": 100e-6,
        "compute_s": 60e-6,
        "communication_s": 40e-6,
        "exposed_communication_s": 15e-6,
        "idle_s": 25e-6,
        "overlap_fraction": 25 / 40,
    }
    assert {key: first[key] for key in expected} == pytest.approx(expected)
    assert second["exposed_communication_s"] == pytest.approx(40e-6)
    assert second["overlap_fraction"] == pytest.approx(0)
    assert trace.summary().name.iloc[0] == all_reduce
    assert set(trace.summary().kind) == {"communication", "gemm", "elementwise", "attention"}


INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20), st.booleans()), min_size=1, max_size=12
)


@given(INTERVALS)
def test_busy_idle_and_exposed_time_fill_the_trace(spans: list[tuple[int, int, bool]]) -> None:
    """Against counting every microsecond."""
    import tempfile

    events = [
        kernel("ncclKernel_x" if talks else "gemm", begin, length, stream=i)
        for i, (begin, length, talks) in enumerate(spans)
    ]
    with tempfile.TemporaryDirectory() as folder:
        row = sm.read_kineto(written(Path(folder, "t.json"), events)).steps().iloc[0]
    begin = min(each[0] for each in spans)
    end = max(each[0] + each[1] for each in spans)
    busy = [
        {t for b, n, talks in spans if talks == want for t in range(b, b + n)} for want in (0, 1)
    ]
    assert row.compute_s == pytest.approx(1e-6 * len(busy[0]))
    assert row.communication_s == pytest.approx(1e-6 * len(busy[1]))
    assert row.exposed_communication_s == pytest.approx(1e-6 * len(busy[1] - busy[0]), abs=1e-12)
    assert row.idle_s == pytest.approx(1e-6 * (end - begin - len(busy[0] | busy[1])), abs=1e-12)


def test_calibration_rows_of_a_trace(tmp_path: Path) -> None:
    call = {
        **{"Collective name": "_allgather_base", "Group size": 8, "dtype": "BFloat16"},
        **{"In msg nelems": 1_000_000, "Out msg nelems": 8_000_000},
    }
    events = [
        kernel("ncclDevKernel_AllGather_RING_LL", 10, 90, **call),
        kernel("ncclDevKernel_AllGather_RING_LL", 200, 60, **call),  # waited less
        kernel(
            "ncclDevKernel_Broadcast_RING_LL", 300, 60, **{**call, "Collective name": "broadcast"}
        ),
        {
            **{
                "ph": "X",
                "cat": "cpu_op",
                "name": "aten::mm",
                "ts": 1,
                "dur": 3,
                "pid": 0,
                "tid": 0,
            },
            "args": {
                "External id": 12,
                "Input Dims": [[4096, 1024], [1024, 2048]],
                "Input type": ["c10::BFloat16", "c10::BFloat16"],
            },
        },
        {
            **{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 1},
            "args": {"External id": 12, "correlation": 77},
        },
        kernel("sm90_xmma_gemm_bf16", 400, 33, correlation=77),
    ]
    properties = [{"name": "NVIDIA H100 80GB HBM3"}]
    trace = sm.read_kineto(written(tmp_path / "t.json", events, deviceProperties=properties))
    (row,) = trace.collectives().to_dict("records")
    assert row == {
        **{"gpu": "NVIDIA H100 80GB HBM3", "gpus": 8, "op": "all_gather"},
        **{"bytes": 16e6, "time_us": pytest.approx(60)},
    }
    (product,) = trace.gemms().to_dict("records")
    assert product["time_us"] == pytest.approx(33)
    assert (product["m"], product["n"], product["k"], product["batch"]) == (4096, 2048, 1024, 1)
    path = tmp_path / "gemm.csv"
    trace.gemms().to_csv(path, index=False)
    assert (sm.validate("gemm", path).skip_reason.fillna("") == "").all()


def test_the_trace_that_is_written_reads_back(tmp_path: Path) -> None:
    """Busy time of each stage of a predicted step is what its events say."""
    path = EST.timeline().trace(tmp_path / "t.json")
    data = json.loads(path.read_text())
    names = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in data["traceEvents"]
        if event.get("name") == "thread_name"
    }
    events = EST.timeline().events
    for (rank, stream), own in events.groupby(["rank", "stream"], observed=True):
        spent = [
            event["dur"]
            for event in data["traceEvents"]
            if event["ph"] == "X" and names[event["pid"], event["tid"]] == stream
            if event["pid"] == rank
        ]
        assert 1e-6 * sum(spent) == pytest.approx(own.duration_s.sum(), rel=1e-9)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("ncclDevKernel_SendRecv", "communication"),
        ("Memcpy DtoH", "memory"),
        ("pytorch_flash::flash_bwd_kernel", "attention"),
        ("nvjet_hsh_128x256", "gemm"),
        ("Cijk_Alik_Bljk_BBS", "gemm"),
        ("multi_tensor_apply_kernel", "elementwise"),
    ],
)
def test_kernels_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0, 9)), max_size=9))
def test_a_union_is_disjoint_and_covers(pairs: list[tuple[float, float]]) -> None:
    begin = np.array([low for low, _ in pairs])
    end = begin + np.array([length for _, length in pairs])
    found = union(begin, end)
    assert (found[1:, 0] > found[:-1, 1]).all()
    assert all(
        ((found[:, 0] <= b) & (e <= found[:, 1])).any() for b, e in zip(begin, end, strict=True)
    )
    assert covered_s(found) <= (end - begin).sum() + 1e-9


@pytest.mark.parametrize(
    "text, says",
    [
        ("{", "not JSON"),
        ("{}", "traceEvents"),
        ('{"traceEvents": []}', "no kernel"),
        ("7", "trace"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.read_kineto(path)
    with pytest.raises(sm.ScaleModelError, match="cannot be read"):
        sm.read_kineto(tmp_path / "none.json")


# ----------------------------------------------------------------------------------------- chakra
def test_chakra_keeps_nodes_bytes_and_dependencies(tmp_path: Path) -> None:
    timeline = EST.timeline()
    files = sm.write_chakra(timeline, tmp_path / "et")
    assert len(files) == 2
    sent: dict[tuple[object, ...], int] = {}
    for rank, file in enumerate(files):
        nodes = sm.read_chakra(file)
        own = timeline.events[timeline.events["rank"] == rank]
        assert len(nodes) == len(own)
        assert [node.id for node in nodes] == list(range(len(nodes)))
        spent = sum(node.duration_us for node in nodes)
        assert spent == pytest.approx(1e6 * own.duration_s.sum(), abs=len(nodes))
        sizes = sum(int(node.attributes.get("comm_size", 0)) for node in nodes)
        assert sizes == pytest.approx(own[own.stream != "compute"].bytes.sum(), abs=len(nodes))
        end = {node.id: node.start_us + node.duration_us for node in nodes}
        for node in nodes:
            for other in (*node.control, *node.data):
                assert other < node.id
                assert end[other] <= node.start_us + 2
            if node.type in ("send", "receive"):
                key = tuple(node.attributes[name] for name in ("comm_src", "comm_dst", "comm_tag"))
                sent[key] = sent.get(key, 0) + (1 if node.type == "send" else -1)
        compute = [node for node in nodes if node.type == "compute"]
        assert any(node.data for node in compute)  # waits for what it receives
    assert set(sent.values()) == {0}  # every send has its receive


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_survive_the_wire(number: int) -> None:
    ((field, value),) = wire.fields(wire.whole(9, number))
    assert field == 9
    assert isinstance(value, int)
    assert wire.signed(value) == number


@given(st.binary(max_size=60))
def test_any_bytes_are_a_trace_or_refused(raw: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.et")
        path.write_bytes(raw)
        try:
            nodes = sm.read_chakra(path)
        except sm.ScaleModelError:
            return
        assert all(node.id >= 0 for node in nodes)
