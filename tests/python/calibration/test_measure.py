"""What `measure` draws and writes, with a device that only counts."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration import measure
from scalemodel.calibration.design import sensitivities
from scalemodel.calibration.measure import COLUMNS, KINDS
from scalemodel.calibration.shapes import attention_shapes, elementwise_shapes, gemm_shapes
from scalemodel.cli import main
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator

CALL_S = {"linear": 4e-3, "add": 1e-3, "mul": 1e-3, "gelu": 2e-3, "layer_norm": 3e-3}


class Clock:
    """A device whose time passes only when a kernel runs on it."""

    def __init__(self, scale: float = 1.0) -> None:
        self.now_s = 0.0
        self.calls: list[tuple[str, object]] = []
        self.scale = scale

    def kernel(self, name: str) -> Any:
        def call(*arguments: object, **options: object) -> None:
            self.calls.append((name, options))
            self.now_s += self.scale * CALL_S.get(name, 5e-3)

        return call


def fake_torch(clock: Clock, **cuda: Any) -> SimpleNamespace:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_s = clock.now_s

        def elapsed_time(self, other: Event) -> float:
            return 1e3 * (other.at_s - self.at_s)

    class Tensor:
        def __init__(self, *shape: int) -> None:
            self.shape = shape

        def zero_(self) -> None:
            clock.now_s += 1.0  # a second of overwriting that must not be measured

        def element_size(self) -> int:
            return 2

        def item(self) -> float:
            return float(self.shape[0])

    class Memory(RuntimeError):
        pass

    def randn(*shape: int, dtype: object, device: str) -> Tensor:
        if np.prod(shape, dtype=float) > cuda.get("room", 1e12):
            raise Memory
        return Tensor(*shape)

    class Mode:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    names = ("linear", "gelu", "layer_norm", "softmax", "scaled_dot_product_attention")
    return SimpleNamespace(
        __version__="9.9",
        version=SimpleNamespace(cuda="99", hip=None),
        int8="int8",
        bfloat16="bfloat16",
        float64="float64",
        add=clock.kernel("add"),
        mul=clock.kernel("mul"),
        randn=randn,
        empty=lambda size, dtype, device: Tensor(size),
        empty_like=lambda tensor: tensor,
        tensor=lambda values, dtype, device: Tensor(*values),
        inference_mode=Mode,
        nn=SimpleNamespace(functional=SimpleNamespace(**{n: clock.kernel(n) for n in names})),
        cuda=SimpleNamespace(
            is_available=lambda: cuda.get("available", True),
            Event=Event,
            OutOfMemoryError=Memory,
            synchronize=lambda: None,
            get_device_name=lambda: "NVIDIA H100 80GB HBM3",
            set_device=lambda index: None,
            nccl=SimpleNamespace(version=lambda: (2, 27, 3)),
        ),
        distributed=fake_distributed(clock, cuda.get("rank", 0), cuda.get("world", 8)),
    )


def fake_distributed(clock: Clock, rank: int, world: int) -> SimpleNamespace:
    def reduce(tensor: object, group: object, op: object = None) -> None:
        if op is None:
            clock.kernel("all_reduce")()

    return SimpleNamespace(
        ReduceOp=SimpleNamespace(MAX="max"),
        init_process_group=lambda backend: None,
        destroy_process_group=lambda: None,
        get_rank=lambda: rank,
        get_world_size=lambda: world,
        new_group=tuple,
        barrier=lambda: None,
        all_reduce=reduce,
        **{
            name: clock.kernel(name)
            for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")
        },
    )


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(scale: float = 1.0, **cuda: Any) -> Clock:
        clock = Clock(scale)
        monkeypatch.setitem(sys.modules, "torch", fake_torch(clock, **cuda))
        for name, value in (("RANK", cuda.get("rank", 0)), ("WORLD_SIZE", cuda.get("world", 8))):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(cuda.get("local", 8)))
        return clock

    return install


# ---------------------------------------------------------------------------------------- shapes
@given(count=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_shapes_are_whole_positive_and_repeatable(count: int, seed: int) -> None:
    for draw in (gemm_shapes, elementwise_shapes, attention_shapes):
        shapes = draw(count, seed=seed)
        assert len(shapes) == count
        assert shapes == draw(count, seed=seed)
    for m, n, k in gemm_shapes(count, seed=seed):
        assert 1 <= m <= 16384
        assert min(n, k) >= 16
        assert n <= 16384
        assert k <= 61440
    for shape in attention_shapes(count, seed=seed):
        assert int(shape["heads"]) % int(shape["kv_heads"]) == 0
        assert (shape["seq_q"] == 1) == (shape["phase"] == "decode")


@given(count=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_rows_are_whole_16_bytes(count: int, seed: int) -> None:
    """Others run on kernels that no layer of common sizes meets."""
    assert all(size % 16 == 0 for shape in gemm_shapes(count, seed=seed) for size in shape)
    assert all(columns % 8 == 0 for _, _, columns in elementwise_shapes(count, seed=seed))
    for shape in attention_shapes(count, seed=seed):
        assert int(shape["seq_kv"]) % 16 == int(shape["head_dim"]) % 16 == 0


@pytest.mark.parametrize("name", ["A100", "H200", "L40S"])
def test_shapes_for_an_accelerator_are_whole_16_bytes_too(name: str) -> None:
    assert all(size % 16 == 0 for shape in gemm_shapes(40, name) for size in shape)


@pytest.mark.parametrize("name", ["A100", "b200"])
def test_shapes_for_an_accelerator_show_more_than_a_mixture(name: str) -> None:
    core = build_accelerator(accelerator_table(name))
    factors = np.ones(5)

    def worst_variance(shapes: list[tuple[int, int, int]]) -> float:
        rows = sensitivities(core, np.array(shapes), factors)
        return float(np.diag(np.linalg.inv(rows.T @ rows)).max())

    chosen = gemm_shapes(40, name)
    mixtures = [gemm_shapes(40, seed=seed) for seed in range(5)]
    assert len(set(chosen)) == 40
    assert worst_variance(chosen) < 0.9 * min(map(worst_variance, mixtures))


def test_an_unknown_accelerator_gets_the_mixture() -> None:
    assert gemm_shapes(7, "Colossus Mk9") == gemm_shapes(7)


def test_another_seed_draws_other_shapes() -> None:
    assert gemm_shapes(40) != gemm_shapes(40, seed=1)


@given(world=st.integers(2, 600), per_node=st.integers(1, 16))
def test_groups_are_of_whole_nodes_or_of_one(world: int, per_node: int) -> None:
    counts = measure.rank_counts(world, per_node)
    assert counts[-1] == world
    assert counts == sorted(set(counts))
    for count in counts[:-1]:
        assert count <= per_node or count % per_node == 0


# --------------------------------------------------------------------------------------- running
def test_a_call_is_timed_and_nothing_else(device: Any) -> None:
    device()
    (row,) = measure.measure("gemm", samples=1)
    assert row["time_us"] == pytest.approx(1e6 * CALL_S["linear"])
    assert row["gpu"] == "NVIDIA H100 80GB HBM3"
    assert "torch 9.9" in str(row["source"])


@pytest.mark.parametrize("kind", ["gemm", "attention", "elementwise"])
def test_rows_have_the_columns_of_their_kind(device: Any, tmp_path: Path, kind: str) -> None:
    clock = device()
    rows = measure.measure(kind, samples=10, repeats=3)
    assert len(rows) == 10
    assert set(rows[0]) == set(COLUMNS[kind])
    assert len(clock.calls) == 10 * (5 + 3)
    measure.write_table(kind, rows, tmp_path / "t.csv")
    header, *lines = csv.reader((tmp_path / "t.csv").read_text(encoding="utf-8").splitlines())
    assert tuple(header) == COLUMNS[kind]
    assert len(lines) == 10


def test_what_does_not_fit_is_left_out(device: Any) -> None:
    device(room=2**24)
    rows = measure.measure("gemm", samples=40)
    assert 0 < len(rows) < 40
    assert all(int(str(row["m"])) * int(str(row["k"])) <= 2**24 for row in rows)


def test_grouped_heads_are_asked_for_only_where_there_are_groups(device: Any) -> None:
    clock = device()
    rows = measure.measure("attention", samples=30, repeats=1)
    grouped = sum(row["heads"] != row["kv_heads"] for row in rows)
    asked = sum("enable_gqa" in options for _, options in clock.calls)
    assert asked == 6 * grouped
    assert 0 < grouped < 30


def test_collectives_cover_operations_sizes_and_groups(device: Any) -> None:
    device()
    rows = measure.measure("collectives", samples=5)
    assert {row["gpus"] for row in rows} == {2, 4, 8}
    assert {row["op"] for row in rows} == {"all_reduce", "all_gather", "reduce_scatter", "alltoall"}
    assert len(rows) == 3 * 4 * 5
    assert {row["nodes"] for row in rows} == {1}
    assert {row["nccl"] for row in rows} == {"2.27.3"}
    assert set(rows[0]) <= set(COLUMNS["collectives"])
    # 5 ms a call, twenty of them in one timing
    assert {round(float(str(row["time_us"]))) for row in rows} <= {5000, 0}


def test_nodes_are_counted(device: Any) -> None:
    device(world=16)
    nodes = {row["gpus"]: row["nodes"] for row in measure.measure("collectives", samples=1)}
    assert nodes == {2: 1, 4: 1, 8: 1, 16: 2}


def test_only_the_first_rank_has_rows(device: Any) -> None:
    device(rank=3)
    assert measure.measure("collectives", samples=2) == []


# ---------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    "kind, arguments, named",
    [
        ("training", {}, "kind='training'"),
        ("gemm", {"dtype": "int3"}, "dtype='int3'"),
        ("gemm", {"samples": 0}, "samples=0"),
        ("gemm", {"repeats": True}, "repeats=True"),
        ("gemm", {"seed": -1}, "seed=-1"),
    ],
)
def test_arguments_are_checked(kind: str, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ScaleModelError, match=named):
        measure.measure(kind, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_without_torch_one_line_says_what_to_install(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    out = tmp_path / "t.csv"
    assert main(["measure", "--kind", kind, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "scalemodel[torch]" in error
    assert len(error.splitlines()) == 1
    assert not out.exists()


def test_without_an_accelerator_one_line_says_so(
    device: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device(available=False)
    assert main(["measure", "--kind", "gemm", "--out", str(tmp_path / "t.csv")]) == 2
    assert "torch sees no accelerator" in capsys.readouterr().err


def test_collectives_without_ranks_name_torchrun(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device()
    monkeypatch.delenv("RANK")
    with pytest.raises(ScaleModelError, match="torchrun"):
        measure.measure("collectives")
    device(world=1)
    with pytest.raises(ScaleModelError, match="at least two ranks"):
        measure.measure("collectives")


def test_the_command_writes_a_table(
    device: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device()
    out = tmp_path / "t.csv"
    assert main(["measure", "--kind", "elementwise", "--out", str(out), "--samples", "6"]) == 0
    assert f"6 rows written to {out}" in capsys.readouterr().out
    assert len(out.read_text(encoding="utf-8").splitlines()) == 7
    kept = out.read_bytes()
    assert main(["measure", "--kind", "nope", "--out", str(out)]) == 2
    assert out.read_bytes() == kept
    nowhere = str(tmp_path / "no" / "t.csv")
    assert main(["measure", "--kind", "gemm", "--out", nowhere]) == 2
    with pytest.raises(ScaleModelError, match="cannot be written"):
        measure.write_table("gemm", [], nowhere)
