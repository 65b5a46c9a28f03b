"""Measured matrix multiplications: what each row of the table should have taken."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.resolve.kernels import GEMM_TYPES, gemm_kernel, training_efficiency
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.rows import Row, SkippedRowError

REQUIRED: tuple[str, ...] = ("gpu", "dtype", "m", "n", "k")

_DTYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8": "fp8",
    "fp4": "nvfp4",
    "w8a8": "sq",
}
_WEIGHT_GRADIENT = "_acc_fp32"
# The kernel name alone does not name the stack; the tables write it into their provenance.
_STACKS = {
    "sglang": "sglang",
    "vllm": "vllm",
    "trtllm": "tensorrt_llm",
    "tensorrt": "tensorrt_llm",
    "simumax": "transformer_engine",
    "transformer_engine": "transformer_engine",
    "neusight": "pytorch",
}


class _Kernel(NamedTuple):
    """What rows must share to be one call of the engine."""

    accelerator: str
    dtype: str
    stack: str
    output_bytes: float


def _stack_of(source: str) -> str:
    lowered = source.lower()
    return next((stack for word, stack in _STACKS.items() if word in lowered), "")


def _accelerator_of(label: str) -> str:
    try:
        return catalog.find("accelerators", re.sub(r"\s*\(.*\)", "", label))
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{label}") from None


def _extent(row: Row, column: str) -> float:
    value = row.number(column)
    if value is None:
        raise SkippedRowError(f"missing:{column}")
    if not 1 <= value <= 1e12:
        raise SkippedRowError(f"illegal:{column}")
    return value


def _kernel_of(gpu: str, dtype_label: str, source: str) -> _Kernel:
    label = dtype_label.lower()
    wide = label.removesuffix(_WEIGHT_GRADIENT)
    dtype = _DTYPES.get(wide, wide)
    if dtype not in GEMM_TYPES:
        raise SkippedRowError(f"unsupported:{dtype_label}")
    # A weight gradient is read and written in FP32; a product of FP32 numbers writes FP32.
    output_bytes = 8.0 if wide != label else 4.0 if dtype == "fp32" else 2.0
    return _Kernel(_accelerator_of(gpu), dtype, _stack_of(source), output_bytes)


class _Reader:
    """Reads rows; what many rows repeat is looked up once."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, str, str], _Kernel | SkippedRowError] = {}

    def kernel(self, row: Row) -> _Kernel:
        key = (row.text("gpu"), row.text("dtype"), row.text("source"))
        known = self.kernels.get(key)
        if known is None:
            try:
                known = _kernel_of(*key)
            except SkippedRowError as reason:
                known = reason
            self.kernels[key] = known
        if isinstance(known, SkippedRowError):
            raise known
        return known

    def read(self, row: Row) -> tuple[_Kernel, tuple[float, float, float, float]]:
        for column in ("gpu", "dtype"):
            if not row.text(column):
                raise SkippedRowError(f"missing:{column}")
        m, n, k = (_extent(row, column) for column in ("m", "n", "k"))
        batch = _extent(row, "batch") if row.text("batch") else 1.0
        return self.kernel(row), (m, n, k, batch)


def _seconds(kernel: _Kernel, shapes: np.ndarray) -> tuple[np.ndarray, str]:
    """Time of every shape, and the assumptions made."""
    m, n, k, batch = np.ascontiguousarray(shapes.T)
    efficiency = training_efficiency(kernel.accelerator, kernel.stack)
    found = gemm_kernel(kernel.accelerator, kernel.dtype, kernel.stack)
    if found is not None:
        times = _core.gemm_kernel_time_s(
            found.accelerator, found.constants, found.format, m, n, k, batch, kernel.output_bytes
        )
        return times / efficiency, found.note
    accelerator = build_accelerator(accelerator_table(kernel.accelerator))
    precision = GEMM_TYPES[kernel.dtype].peak_of
    if accelerator.peak_flop_per_s[_core.precisions().index(precision)] <= 0:
        raise SkippedRowError(f"unsupported:{kernel.dtype}")
    # The roofline is linear in the batch beyond its fixed start.
    one = _core.gemm_time_s(accelerator, precision, m, n, k, 1.0)
    start = accelerator.gemm.roofline_launch_s
    return (start + (one - start) * batch) / efficiency, "roofline of the data sheet"


def predict(rows: Sequence[Row]) -> list[OperatorPrediction]:
    """Predict the time of one call of each row, as the benchmark of the table saw it.

    Examples
    --------
    >>> cells = {"gpu": "H100", "dtype": "bfloat16", "m": "4096", "n": "4096", "k": "4096"}
    >>> (row,) = predict([Row(cells)])
    >>> 150 < row.time_us < 300
    True
    """
    answers: list[OperatorPrediction | None] = [None] * len(rows)
    groups: defaultdict[_Kernel, list[tuple[int, tuple[float, float, float, float]]]]
    groups = defaultdict(list)
    reader = _Reader()
    for index, row in enumerate(rows):
        try:
            kernel, shape = reader.read(row)
        except SkippedRowError as reason:
            answers[index] = OperatorPrediction(None, str(reason))
        else:
            groups[kernel].append((index, shape))
    for kernel, members in groups.items():
        try:
            times, note = _seconds(kernel, np.array([shape for _, shape in members]))
        except SkippedRowError as reason:
            for index, _ in members:
                answers[index] = OperatorPrediction(None, str(reason))
            continue
        for (index, _), time_s in zip(members, times.tolist(), strict=True):
            ok = math.isfinite(time_s) and time_s > 0
            answers[index] = (
                OperatorPrediction(1e6 * time_s, "", note)
                if ok
                else OperatorPrediction(None, "illegal:shape")
            )
    return [answer for answer in answers if answer is not None]
