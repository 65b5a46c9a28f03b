"""Predicted times of elementwise, row-wise and lookup kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation.operators import OperatorPrediction, elementwise
from scalemodel.validation.rows import Row, read_table

MATRIX = {
    "gpu": "A100-SXM4-80GB",
    "dtype": "float16",
    "op": "add",
    "rows": "4096",
    "cols": "8192",
    "source": "",
}
LOOKUP = {
    "gpu": "H100",
    "dtype": "float16",
    "op": "token_embedding_vocab_parallel",
    "tables": "1",
    "dim": "8192",
    "batch": "1024",
    "pooling": "1",
}
OPERATIONS = ["add", "relu", "pow", "ln", "input_layernorm", "softmax", "attn_rope", "mlp_act"]


def predicted(cells: dict[str, str], **changes: str) -> OperatorPrediction:
    (prediction,) = elementwise.predict([Row({**cells, **changes})])
    assert (prediction.time_us is None) == bool(prediction.skip_reason)
    return prediction


def time_us(cells: dict[str, str], **changes: str) -> float:
    prediction = predicted(cells, **changes)
    assert prediction.time_us is not None, prediction.skip_reason
    return prediction.time_us


@given(
    op=st.sampled_from(OPERATIONS),
    gpu=st.sampled_from(["A40", "H100", "Tesla T4", "AMD Instinct MI210", "TPU v5p", "Gaudi2"]),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    rows=st.integers(1, 100_000),
    columns=st.integers(1, 65_536),
)
@pytest.mark.slow
def test_larger_matrices_never_take_less_time(
    op: str, gpu: str, dtype: str, rows: int, columns: int
) -> None:
    changes = {"op": op, "gpu": gpu, "dtype": dtype}
    time = time_us(MATRIX, rows=str(rows), cols=str(columns), **changes)
    slack = 1 + 1e-12
    assert time <= slack * time_us(MATRIX, rows=str(rows + 1), cols=str(columns), **changes)
    assert time <= slack * time_us(MATRIX, rows=str(rows), cols=str(columns + 1), **changes)


@pytest.mark.parametrize("name", catalog.names("accelerators"))
def test_every_accelerator_streams_no_faster_than_its_memory(name: str) -> None:
    accelerator_bandwidth = elementwise.accelerator(name).memory_bandwidth_bytes_per_s
    large = {"rows": "1000000", "cols": "16384", "gpu": name}
    for op, values in (("add", 3), ("relu", 2), ("softmax", 2)):
        bound_s = values * 1e6 * 16384 * 2 / accelerator_bandwidth
        assert time_us(MATRIX, op=op, **large) * 1e-6 > bound_s
    assert time_us(LOOKUP, gpu=name) > 0


def test_width_decides_not_the_name_of_the_format() -> None:
    large = {"rows": "1000000", "cols": "16384"}
    half = time_us(MATRIX, **large)
    assert time_us(MATRIX, dtype="bf16", **large) == half
    assert time_us(MATRIX, dtype="float32", **large) == pytest.approx(2 * half, rel=0.1)


def test_the_named_stack_chooses_the_kernel() -> None:
    cells = {**MATRIX, "gpu": "H100", "dtype": "fp8", "op": "scale_matrix"}
    slow = time_us(cells, source="a@b:quantize/sglang/0.5.14/x.parquet")
    fast = time_us(cells, source="a@b:quantize/vllm/0.24.0/x.parquet")
    assert slow > 5 * fast


@pytest.mark.parametrize(
    ("cells", "changes", "reason"),
    [
        (MATRIX, {"gpu": ""}, "missing:gpu"),
        (MATRIX, {"gpu": "abacus"}, "unknown_accelerator:abacus"),
        (MATRIX, {"op": ""}, "missing:op"),
        (MATRIX, {"op": "fft"}, "unsupported:fft"),
        (MATRIX, {"dtype": "int7"}, "unsupported:int7"),
        (MATRIX, {"rows": ""}, "missing:rows"),
        (MATRIX, {"cols": "-1"}, "illegal:cols"),
        (LOOKUP, {"dim": ""}, "missing:dim"),
        (LOOKUP, {"pooling": "-1"}, "illegal:pooling"),
    ],
)
def test_rows_without_an_answer_say_why(
    cells: dict[str, str], changes: dict[str, str], reason: str
) -> None:
    assert predicted(cells, **changes) == OperatorPrediction(None, reason)


def test_a_borrowed_kernel_is_named() -> None:
    assert predicted(MATRIX).note == ""
    assert predicted(MATRIX, gpu="H200").note == "constants of h100_sxm_80"


def test_columns_are_judged_by_schema() -> None:
    assert elementwise.required_columns(MATRIX) == elementwise.MATRIX_COLUMNS
    assert elementwise.required_columns(LOOKUP) == elementwise.LOOKUP_COLUMNS


def test_columns_of_unequal_length_are_refused() -> None:
    accelerator = elementwise.accelerator("h200")
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(ScaleModelError, match="columns: must have one dimension of 1"):
        _core.streaming_time_s(accelerator, _core.StreamingKernel(), one, two, one)
    with pytest.raises(ScaleModelError, match="dim: must have one dimension of 2"):
        _core.lookup_time_s(accelerator, _core.LookupKernel(), two, two, two, one, two)


def test_elementwise_kernels_are_within_the_stated_error(corpora: Path) -> None:
    table = read_table(corpora / "ops" / "elementwise_norm.csv")
    rows = table.select([name for name in table.header if name != "time_us"])
    measured = map(float, table.column("time_us"))
    errors: dict[tuple[str, str], list[float]] = {}
    predictions = elementwise.predict(rows)
    for row, actual, prediction in zip(rows, measured, predictions, strict=True):
        # A difference of two timings, partly near zero: its mean error says nothing.
        if row.text("op") == "computescale":
            continue
        assert prediction.time_us is not None, prediction.skip_reason
        key = (row.text("source").split("@")[0], row.text("gpu"))
        errors.setdefault(key, []).append(abs(prediction.time_us / actual - 1))
    means = [float(np.mean(each)) for each in errors.values()]
    assert len(means) >= 17
    assert np.mean(means) < 0.085
    assert max(means) < 0.23


def test_look_ups_are_within_the_stated_error(corpora: Path) -> None:
    table = read_table(corpora / "ops" / "embedding.csv")
    rows = table.select([name for name in table.header if name not in ("time_us", "bw_GBps")])
    long = []
    predictions = elementwise.predict(rows)
    for cell, prediction in zip(table.column("time_us"), predictions, strict=True):
        if prediction.time_us is not None and float(cell) > 20:
            long.append(abs(prediction.time_us / float(cell) - 1))
    assert len(long) > 250
    assert np.mean(long) < 0.06
