"""Rows of measured elementwise, row-wise and lookup kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel.resolve.kernel_tables import Kernel, kernels, nearest_kernel
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.operators.questions import (
    Accelerators,
    Stack,
    accelerator,
    dtype_of,
    positive_number,
    stack_of,
    version_distance,
)
from scalemodel.validation.rows import Row, SkippedRowError

#: Columns that every schema of this kind has.
REQUIRED: tuple[str, ...] = ("gpu", "dtype", "op")
MATRIX_COLUMNS: tuple[str, ...] = (*REQUIRED, "rows", "cols")
LOOKUP_COLUMNS: tuple[str, ...] = (*REQUIRED, "dim", "batch")

# What the kernels do with memory, by the names that measured tables use.
_CLASSES = {
    "add": ("add", "sub", "mul", "div"),
    "unary": ("addu", "subu", "mulu", "divu", "relu", "gelu", "silu", "tanh", "copy", "cast"),
    "pow": ("pow",),
    "pow_scalar": ("powu",),
    "layernorm": ("ln", "layernorm", "layer_norm"),
    "rmsnorm": ("rmsnorm", "rms_norm", "input_layernorm", "post_attention_layernorm"),
    "softmax": ("softmax",),
    "rope": ("rope", "attn_rope", "rotary"),
    "gated_activation": ("mlp_act", "silu_and_mul", "swiglu", "gelu_and_mul", "geglu"),
    "quantise": ("scale_matrix",),
    "quantise_scale": ("computescale",),
}
#: Operation, by the names that measured tables use -> what its kernel does with memory.
CLASS_OF = {op: name for name, ops in _CLASSES.items() for op in ops}
_VALUE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0}
# Kernels of other widths were timed inside other frameworks, whose start they include.
_OTHER_WIDTH, _OTHER_ENGINE = 20.0, 2.0


def required_columns(header: Collection[str]) -> tuple[str, ...]:
    """Columns that a table with this header needs.

    Examples
    --------
    >>> required_columns(["gpu", "op", "dim"])[-2:]
    ('dim', 'batch')
    """
    lookup = "dim" in header and "cols" not in header
    return LOOKUP_COLUMNS if lookup else MATRIX_COLUMNS


class _Case(NamedTuple):
    lookup: bool
    accelerator: str
    record: Any
    numbers: tuple[float, ...]
    note: str


class _Catalogue:
    """Kernels of the catalogue, with the choices already made."""

    def __init__(self) -> None:
        labels = ("op", "dtype", "engine", "version")
        self._streaming = kernels("streaming", _core.StreamingKernel, labels)
        self._lookup = kernels("lookup", _core.LookupKernel, labels)
        self.accelerators = Accelerators()
        self._chosen: dict[object, Kernel[Any]] = {}
        self._apart: dict[tuple[str, str], float] = {}

    def nearest(self, name: str, op: str, dtype: str, stack: Stack) -> Kernel[Any]:
        """Kernel of an operation on the accelerator or the one most like it."""
        key = (name, op, dtype, stack)
        if key not in self._chosen:
            everything: list[Kernel[Any]] = [*self._streaming, *self._lookup]
            candidates = [kernel for kernel in everything if kernel.label("op") == op]
            width = _VALUE_BYTES[dtype]

            def mismatch(kernel: Kernel[Any]) -> float:
                apart = 0.0 if _VALUE_BYTES[kernel.label("dtype")] == width else _OTHER_WIDTH
                engine = kernel.label("engine")
                if not stack.engine or not engine:
                    return apart
                if engine != stack.engine:
                    return apart + _OTHER_ENGINE
                return apart + version_distance(kernel.label("version"), stack.version)

            self._chosen[key] = nearest_kernel(candidates, name, mismatch, self._apart)
        return self._chosen[key]


def _note(kernel: Kernel[Any], name: str) -> str:
    return "" if kernel.accelerator == name else f"constants of {kernel.accelerator}"


def _case(row: Row, known: _Catalogue) -> _Case:
    op = row.text("op").lower()
    if not op:
        raise SkippedRowError("missing:op")
    name = known.accelerators.name_of(row)
    dtype = dtype_of(row)
    if dtype not in _VALUE_BYTES:
        raise SkippedRowError(f"unsupported:{dtype}")
    width = _VALUE_BYTES[dtype]
    numbers: tuple[float, ...]
    lookup = op.startswith(("token_embedding", "embedding"))
    if lookup:
        batch, dim = positive_number(row, "batch"), positive_number(row, "dim")
        tables, pooling = row.number("tables") or 1.0, row.number("pooling") or 1.0
        if min(tables, pooling) < 1 or max(tables, pooling) > 1e9:
            raise SkippedRowError("illegal:pooling")
        numbers = (tables, batch, pooling, dim, width)
        kernel = known.nearest(name, "token_embedding", dtype, Stack())
    else:
        if op not in CLASS_OF:
            raise SkippedRowError(f"unsupported:{op}")
        numbers = (positive_number(row, "rows"), positive_number(row, "cols"), width)
        kernel = known.nearest(name, CLASS_OF[op], dtype, stack_of(row))
    return _Case(lookup, name, kernel.record, numbers, _note(kernel, name))


def predict(rows: Sequence[Row]) -> list[OperatorPrediction]:
    """Predicted time of every row, in order; nothing in a row raises.

    Parameters
    ----------
    rows : sequence of Row
        `source` is read for engine and version only.

    Examples
    --------
    >>> cells = {"gpu": "A100-SXM4-80GB", "dtype": "float16", "op": "add", "cols": "8192"}
    >>> (prediction,) = predict([Row({**cells, "rows": "16384"})])
    >>> 400 < prediction.time_us < 600
    True
    >>> predict([Row(cells)])[0].skip_reason
    'missing:rows'
    """
    known = _Catalogue()
    predictions = [OperatorPrediction(None)] * len(rows)
    cases: dict[int, _Case] = {}
    for index, row in enumerate(rows):
        try:
            cases[index] = _case(row, known)
        except SkippedRowError as skipped:
            predictions[index] = OperatorPrediction(None, str(skipped))
    groups: dict[tuple[bool, str, Any], list[int]] = {}
    for index, case in cases.items():
        groups.setdefault((case.lookup, case.accelerator, case.record), []).append(index)
    for (lookup, name, record), members in groups.items():
        columns = np.array([cases[index].numbers for index in members]).T
        call = _core.lookup_time_s if lookup else _core.streaming_time_s
        times = call(accelerator(name), record, *columns)
        for index, time_s in zip(members, times.tolist(), strict=True):
            predictions[index] = OperatorPrediction(time_s * 1e6, note=cases[index].note)
    return predictions
