"""What the predictors of expert layers and elementwise kernels share: labels of rows."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.validation.rows import Row, SkippedRowError

_ENGINE = re.compile(r"\b(sglang|vllm|trtllm|tensorrt-llm)/v?(\d[\w.]*)", re.IGNORECASE)
_DTYPES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
    "float8": "fp8",
    "fp8_e4m3": "fp8",
    "int4": "int4_wo",
    "fp4": "nvfp4",
}


class Stack(NamedTuple):
    """Engine and version of a row; empty texts when it names none."""

    engine: str = ""
    version: str = ""


def stack_of(row: Row) -> Stack:
    """The (engine, version) that a row's source names.

    Examples
    --------
    >>> stack_of(Row({"source": "owner/data@1:h100/moe/vllm/0.24.0/moe.parquet"}))
    Stack(engine='vllm', version='0.24.0')
    """
    found = _ENGINE.search(row.text("source"))
    if found is None:
        return Stack()
    return Stack(found[1].lower().replace("tensorrt-llm", "trtllm"), found[2])


def dtype_of(row: Row) -> str:
    """Number format of a row, in one spelling."""
    text = row.text("dtype").lower().removeprefix("torch.")
    if not text:
        raise SkippedRowError("missing:dtype")
    return _DTYPES.get(text, text)


class Accelerators:
    """Accelerators of a table's labels; each label is looked up once."""

    def __init__(self) -> None:
        self._names: dict[str, str | None] = {}

    def name_of(self, row: Row) -> str:
        """Catalogue name of a row's accelerator."""
        label = row.text("gpu")
        if not label:
            # A cell that says "unknown" names no accelerator, but it is not empty.
            raw = row.cells.get("gpu", "").strip()
            raise SkippedRowError(f"unknown_accelerator:{raw}" if raw else "missing:gpu")
        if label not in self._names:
            try:
                self._names[label] = catalog.find("accelerators", label)
            except ScaleModelError:
                self._names[label] = None
        name = self._names[label]
        if name is None:
            raise SkippedRowError(f"unknown_accelerator:{label}")
        return name


@lru_cache(maxsize=128)
def _built(name: str, modified: object) -> _core.Accelerator:
    return build_accelerator(accelerator_table(name))


def accelerator(name: str) -> _core.Accelerator:
    """The engine's accelerator of a catalogue entry."""
    return _built(name, resolve.reader.freeze(accelerator_table(name)))


def version_distance(one: str, other: str) -> float:
    """How far apart two versions are, from 0 to 1: the newer of two strangers is as good."""
    if one == other:
        return 0.0
    numbers = [[int(part) for part in re.findall(r"\d+", text)[:3]] for text in (one, other)]
    common = 0
    for a, b in zip(*numbers, strict=False):
        if a != b:
            break
        common += 1
    return 1.0 - 0.25 * common


def positive_number(row: Row, column: str) -> float:
    """A number above zero; a row without it is skipped."""
    value = row.number(column)
    if value is None:
        raise SkippedRowError(f"missing:{column}")
    if not 0 < value <= 1e15:
        raise SkippedRowError(f"illegal:{column}")
    return value
