"""Measured attention kernels: grouped-query and multi-head latent attention, one call per row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.resolve.attention import AttentionEntry, AttentionKernels
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.rows import Row, SkippedRowError

REQUIRED: tuple[str, ...] = ("gpu", "dtype", "phase", "batch", "seq_q", "seq_kv", "heads")

_PHASES = {
    "prefill": "prefill",
    "context": "prefill",
    "decode": "decode",
    "generation": "decode",
    "encoder": "encoder",
    "trainfwd": "train_forward",
    "trainbwd": "train_backward",
}
_DTYPES = {
    **dict.fromkeys(("bfloat16", "bf16", "float16", "fp16", "half"), "bf16"),
    **dict.fromkeys(("fp8", "fp8block", "fp8e4m3", "fp8e5m2", "float8", "int8"), "fp8"),
}
_STACK = re.compile(r"/(sglang|vllm|trtllm)/v?(\d+(?:\.\d+)*)", re.IGNORECASE)
# Query/key, value and cached widths of the one published family of latent attention.
_LATENT_HEAD, _LATENT_VALUE, _LATENT, _ROTARY = 192, 128, 512, 64


class _Call(NamedTuple):
    """What rows must share to be timed together."""

    gpu: str
    phase: str
    latent: bool
    causal: bool
    math: str
    cache: str
    entry: AttentionEntry


class _Shape(NamedTuple):
    batch: int
    queries: int
    keys: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int


def _plain(text: str) -> str:
    return re.sub(r"[\s_\-]+", "", text.lower())


def _named(row: Row, column: str, legal: dict[str, str]) -> str:
    text = row.text(column)
    if not text:
        raise SkippedRowError(f"missing:{column}")
    if _plain(text) not in legal:
        raise SkippedRowError(f"unsupported:{text}")
    return legal[_plain(text)]


def _is_latent(row: Row) -> bool:
    """Latent attention has fixed head sizes; its tables give the tensor-parallel degree instead."""
    if row.text("head_dim"):
        return False
    return bool(row.text("tp")) or "mla" in row.text("kernel").lower()


def _shape(row: Row, *, latent: bool) -> _Shape:
    batch, queries, keys, heads = (
        row.required_count(column) for column in ("batch", "seq_q", "seq_kv", "heads")
    )
    if latent:
        return _Shape(batch, queries, keys, heads, heads, _LATENT_HEAD, _LATENT_VALUE, 0)
    kv_heads, head_dim = row.required_count("kv_heads"), row.required_count("head_dim")
    if kv_heads > heads:
        raise SkippedRowError("illegal:kv_heads")
    value = row.count("v_head_dim") or head_dim
    window = row.count("window", least=0) or 0
    return _Shape(batch, queries, keys, heads, kv_heads, head_dim, value, window)


class _Lookup:
    """What the catalogue says, looked up once per table."""

    def __init__(self) -> None:
        self.accelerator = cache(self._accelerator)
        self.entry = cache(self._entry)

    def _accelerator(self, label: str) -> tuple[str, _core.Accelerator, AttentionKernels] | None:
        try:
            name = catalog.find("accelerators", label)
        except ScaleModelError:
            return None
        return name, build_accelerator(accelerator_table(name)), AttentionKernels(name)

    def _entry(
        self, label: str, phase: str, kernel: str, engine: str, version: str, group: int
    ) -> AttentionEntry:
        _, _, kernels = self.known(label)
        return kernels.choose(phase, kernel=kernel, engine=engine, version=version, group=group)

    def known(self, label: str) -> tuple[str, _core.Accelerator, AttentionKernels]:
        """Return name, engine value and kernels of the accelerator a row means."""
        if not label:
            raise SkippedRowError("missing:gpu")
        found = self.accelerator(label)
        if found is None:
            raise SkippedRowError(f"unknown_accelerator:{label}")
        return found


def _stack(source: str) -> tuple[str, str]:
    match = _STACK.search(source)
    return (match[1].lower(), match[2]) if match else ("", "")


def _question(row: Row, lookup: _Lookup) -> tuple[_Call, _Shape, str]:
    """Key, shape and note of a row; a row that is no question raises SkippedRowError."""
    label = row.text("gpu")
    name, _, _ = lookup.known(label)
    phase = _named(row, "phase", _PHASES)
    math = _named(row, "dtype", _DTYPES)
    cache = _named(row, "kv_dtype", _DTYPES) if row.text("kv_dtype") else math
    latent = _is_latent(row)
    shape = _shape(row, latent=latent)
    causal = row.flag("causal")
    if latent and phase in ("prefill", "decode"):
        phase = f"mla_{phase}"
    group = shape.heads if latent else max(1, round(shape.heads / shape.kv_heads))
    kernel = row.text("kernel")
    engine, version = _stack(row.text("source"))
    entry = lookup.entry(label, phase, kernel, engine, version, group)
    notes = []
    if kernel and entry.kernel != kernel:
        notes.append(f"kernel {kernel} not fitted: {entry.kernel} of {entry.engine}")
    if entry.accelerator != name:
        notes.append(f"constants of {entry.accelerator}")
    call = _Call(
        label,
        phase,
        latent,
        phase != "encoder" if causal is None else causal,
        math,
        cache,
        entry,
    )
    return call, shape, "; ".join(notes)


def _times_s(call: _Call, shapes: Sequence[_Shape], accelerator: _core.Accelerator) -> list[float]:
    columns = np.asarray(shapes, dtype=float).T
    arguments = {
        **dict(zip(_Shape._fields, columns, strict=True)),
        "causal": call.causal,
        "math": call.math,
        "cache": call.cache,
        "latent": float(_LATENT if call.latent else 0),
        "rotary": float(_ROTARY if call.latent else 0),
        # Benchmarks repeat one call, so that small operands stay in the last-level cache.
        "resident": True,
    }
    constants = call.entry.constants
    if isinstance(constants, _core.DecodeKernel):
        times = _core.decode_time_s(constants, accelerator, **arguments)
    else:
        times = _core.prefill_time_s(constants, accelerator, **arguments)
    return [float(time) for time in times]


def predict(rows: Sequence[Row]) -> list[OperatorPrediction]:
    """Time of every row as the benchmark of its stack saw it.

    Parameters
    ----------
    rows : sequence of Row
        With the columns of `REQUIRED`, and ``kv_heads`` and ``head_dim`` except for latent
        attention, whose rows give ``tp`` instead. Used if given: ``kernel``, ``kv_dtype`` (else
        the dtype), ``v_head_dim`` (else head_dim), ``causal`` (else true, encoders false),
        ``window`` (else none); engine and version are read out of ``source``.

    Returns
    -------
    list of OperatorPrediction, one per row

    Examples
    --------
    >>> cells = dict(gpu="H100", dtype="bfloat16", phase="decode", batch="64", seq_q="1",
    ...              seq_kv="4096", heads="32", kv_heads="8", head_dim="128")
    >>> (prediction,) = predict([Row(cells)])
    >>> 300 < prediction.time_us < 420
    True
    """
    lookup = _Lookup()
    predictions = [OperatorPrediction(None)] * len(rows)
    calls: dict[_Call, list[tuple[int, _Shape, str]]] = {}
    for index, row in enumerate(rows):
        try:
            call, shape, note = _question(row, lookup)
        except SkippedRowError as skipped:
            predictions[index] = OperatorPrediction(None, str(skipped))
        else:
            calls.setdefault(call, []).append((index, shape, note))
    for call, items in calls.items():
        _, accelerator, _ = lookup.known(call.gpu)
        times = _times_s(call, [shape for _, shape, _ in items], accelerator)
        for (index, _, note), time in zip(items, times, strict=True):
            if np.isfinite(time) and time > 0:
                predictions[index] = OperatorPrediction(1e6 * time, "", note)
            else:
                predictions[index] = OperatorPrediction(None, "illegal:size")
    return predictions
