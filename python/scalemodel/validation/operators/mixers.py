"""Rows of kernels of recurrent mixers, sparse attention and what stands around them.

Every kind tells what one call works on (`scalemodel._core.kernel_work`); the time follows from the
constants of its kernel in the catalogue (`scalemodel._core.WorkKernel`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.kernel_tables import Kernel, dtype_mismatch, kernels, nearest_kernel
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.operators.questions import (
    Accelerators,
    accelerator,
    positive_number,
    stack_of,
    version_distance,
)
from scalemodel.validation.rows import Row, SkippedRowError

#: What tells kernels apart, the most telling first; further columns of a row are sizes.
LABELS: Final = ("op", "work", "phase", "kernel", "engine", "dtype", "cache")
# A kernel of another name, engine or phase is unlike the one asked for, in the unit of distance.
_OTHER: Final = {"op": 1000.0, "phase": 200.0, "kernel": 8.0, "engine": 4.0, "cache": 2.0}
#: Bytes of a weight, its block scales included.
_WEIGHT_BYTES: Final = {"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0, "fp8_block": 1.0,
                        "nvfp4": 0.5625}  # fmt: skip
#: Rows of a tile of FlashMLA's and TensorRT-LLM's sparse kernels, all of one query's heads
#: (deepseek-ai/FlashMLA, B_H of the sparse forward kernels).
_HEAD_TILE: Final = 64.0
_CHUNK: Final = 64.0  # tokens of a chunk of the delta rule (fla-org/flash-linear-attention)


class Call(NamedTuple):
    """One row as the engine sees it: the kind of work, its sizes, and what names its kernel."""

    work: str
    sizes: tuple[float, ...]
    labels: Mapping[str, str]


def _call(work: str, sizes: Sequence[float], labels: Mapping[str, str]) -> Call:
    return Call(work, tuple(map(float, sizes)), {**labels, "work": work})


def _labels(row: Row, op: str, phase: str = "", dtype: str = "", cache: str = "") -> dict[str, str]:
    engine = row.text("engine").lower() or stack_of(row).engine
    return {
        "op": op,
        "phase": phase,
        "kernel": row.text("kernel"),
        "engine": engine,
        "dtype": dtype or row.text("dtype").lower() or "bfloat16",
        "cache": cache,
    }


def _numbers(row: Row, *columns: str) -> list[float]:
    return [positive_number(row, column) for column in columns]


def linear_attention(row: Row) -> Call:
    """Convolution, scan or update of a delta rule's layer."""
    family = row.text("family").lower()
    if family not in ("gdn", "kda"):
        raise SkippedRowError(f"unsupported:{family or 'family'}")
    batch, tokens = _numbers(row, "batch", "seq")
    key_heads, key_dim, heads, value_dim = _numbers(
        row, "k_heads", "k_head_dim", "v_heads", "v_head_dim"
    )
    phase, kernel = row.text("phase").lower(), row.text("kernel")
    labels = _labels(row, f"linear_attention_{family}", phase)
    if "conv" in kernel:
        channels = 2 * key_heads * key_dim + heads * value_dim
        width = row.number("conv_width") or 4.0
        return _call("convolution", (batch, tokens, channels, width, phase != "context"), labels)
    kind = "gated_delta" if family == "gdn" else "kimi_delta"
    sizes = (batch, tokens, heads, key_heads, key_dim, value_dim, _CHUNK)
    if phase == "context":
        return _call(kind, sizes, labels)
    return _call(f"{kind}_update", (*sizes, phase == "verify"), labels)


def mamba2(row: Row) -> Call:
    """Convolution, scan or update of a state-space layer."""
    batch, tokens = _numbers(row, "batch", "seq")
    heads, dim, state, groups = _numbers(row, "heads", "head_dim", "state", "groups")
    phase = row.text("phase").lower()
    labels = _labels(row, "mamba2", phase)
    if "conv" in row.text("kernel"):
        channels, width = heads * dim + 2 * groups * state, row.number("conv_width") or 4.0
        return _call("convolution", (batch, tokens, channels, width, phase != "context"), labels)
    sizes = (batch, tokens, heads, groups, state, dim, positive_number(row, "chunk_size"))
    return (
        _call("mamba2", sizes, labels)
        if phase == "context"
        else _call("mamba2_update", (*sizes, False), labels)
    )


def encoder_attention(row: Row) -> Call:
    """Attention of a vision tower."""
    sizes = _numbers(row, "batch", "seq", "heads", "head_dim")
    return _call("encoder", tuple(sizes), _labels(row, "encoder_attention"))


def mhc(row: Row) -> Call:
    """Mixing of residual streams before or behind the blocks of a layer."""
    sizes = _numbers(row, "tokens", "hidden", "hc_mult")
    return _call("stream_mixing", tuple(sizes), _labels(row, "mhc", row.text("op").lower()))


def moe_fused_a2a(row: Row) -> Call:
    """Experts with the exchange of their tokens in one kernel."""
    tokens, hidden, width, topk, experts, ranks = _numbers(
        row, "tokens_per_rank", "hidden", "inter", "topk", "experts", "ep"
    )
    spread = row.text("distribution").lower() or "balanced"
    sizes = (tokens, hidden, width, topk, experts, ranks, 1.0)
    return _call(
        "fused_experts", sizes, _labels(row, "moe_fused_a2a", row.text("phase"), cache=spread)
    )


@lru_cache(maxsize=64)
def _shape(model: str) -> _core.DecoderShape | None:
    """Shape of a named model of the catalogue; None where it has none."""
    try:
        return resolve.model(catalog.find("models", model)).shape  # a name: files are not opened
    except ScaleModelError:
        return None


#: What a layer without its feed-forward block, experts and further streams has not.
_BARE: Final = {
    **dict.fromkeys(("first_dense_layers", "experts", "experts_per_token", "shared_experts"), 0),
    **dict.fromkeys(("mtp_layers", "kv_shared_layers"), 0),
    "residual_streams": 1,
}
_UNINDEXED: Final = dict.fromkeys(("index_heads", "index_dim", "index_topk"), 0)


@lru_cache(maxsize=256)
def _weights(shape: _core.DecoderShape, mixer: str, heads: int) -> float:
    """Weights of a module of attention with a number of heads, as the engine counts them."""
    part = heads / shape.heads
    changes: dict[str, Any] = {**_BARE, **(_UNINDEXED if mixer == "F" else {})}
    shared = shape.kv_lora_rank == 0 and shape.output_groups == 0
    kv = max(1, round(part * shape.kv_heads)) if shared else heads
    changes |= {"heads": heads, "kv_heads": kv}
    if shape.output_groups:
        changes |= {"kv_heads": 1, "output_groups": max(1, round(part * shape.output_groups))}
    elif shared and mixer != "F":  # the queries of an indexer lie beside their keys
        changes["index_heads"] = kv
    alone = shape.replace(layers=1, mixers=mixer, feed_forwards="-", **changes)
    (group,) = (group for group in _core.decoder_groups(alone) if group.kind == "transformer")
    return float(group.parameters)


def _projections(
    shape: _core.DecoderShape, heads: float, mixer: str, without: str
) -> tuple[float, float]:
    """Weights of a module's projections, and what an indexer adds to them."""
    try:
        projected = _weights(shape, without, int(heads))
        whole = projected if mixer == without else _weights(shape, mixer, int(heads))
    except ScaleModelError:  # heads that the model cannot be divided into
        raise SkippedRowError("illegal:heads") from None
    return projected, whole - projected


def _compressed(a: _core.DecoderShape, heads: float, part: str) -> tuple[float, ...]:
    """Sizes of a module over compressed keys, of `heads` on this rank."""
    far = part == "hca"
    projected, indexer = _projections(a, heads, "H" if far else "C", "H")
    ratio = a.far_ratio if far else a.near_ratio
    selected = 0.0 if far else a.index_topk
    index, dim = a.index_heads * a.index_dim, a.head_dim
    return (a.hidden, heads, projected, indexer, index, 2 * dim, dim, selected, a.window, ratio)


def _latent(a: _core.DecoderShape, heads: float, indexes: bool) -> tuple[float, ...]:
    """Sizes of a latent attention module over selected keys."""
    projected, indexer = _projections(a, heads, "I" if indexes else "F", "F")
    width = a.kv_lora_rank + a.qk_rope_head_dim
    return (
        a.hidden, heads, projected, indexer, a.index_heads * a.index_dim, a.kv_lora_rank + width,
        width, a.index_topk, 0.0, 1.0,
    )  # fmt: skip


def _formats(row: Row) -> tuple[str, str, float, float]:
    dtype = row.text("gemm_dtype").lower() or row.text("dtype").lower() or "bfloat16"
    cache = row.text("kv_dtype").lower() or "bfloat16"
    return dtype, cache, _WEIGHT_BYTES.get(dtype, 2.0), _WEIGHT_BYTES.get(cache, 2.0)


def _call_sizes(row: Row) -> tuple[float, float, float]:
    batch, tokens, keys = _numbers(row, "batch", "seq_q", "seq_kv")
    return batch, tokens, max(keys, tokens)


def sparse_attention(row: Row) -> Call:
    """A module of sparse attention, or a part of it."""
    op = row.text("op").lower()
    module, _, part = op.partition("_")
    if module not in ("dsa", "csa", "hca"):
        raise SkippedRowError(f"unsupported:{op or 'op'}")
    known = _shape(row.text("model"))
    wanted = "kv_lora_rank" if module == "dsa" else "output_groups"
    if known is None or not getattr(known, wanted):
        raise SkippedRowError(f"unknown_model:{row.text('model')}")
    heads = positive_number(row, "heads")
    indexer = row.number("indexer")
    if module == "dsa":
        sizes = _latent(known, heads, indexer is None or indexer > 0)
    else:
        sizes = _compressed(known, heads, module)
    dtype, cache, weight_bytes, cache_bytes = _formats(row)
    work = {"": "sparse_module", "core": "sparse_core", "topk": "choice"}.get(part, "index_scores")
    mode = row.text("score_mode").lower()
    phase = f"{row.text('phase').lower()} {mode}".strip()
    labels = _labels(row, op, phase, dtype, cache)
    sizes = (*sizes, weight_bytes, cache_bytes, _HEAD_TILE)
    return _call(work, (*_call_sizes(row), *sizes), labels)


#: Kernels that go about it in another way. TensorRT-LLM's kernel is Blackwell's (msa_fmha_sm100);
#: elsewhere its modules name none.
_MSA_WORK: Final = {
    "default": "eager_module",
    "sglang_minimax_prefill_triton_sparse": "chained_module",
}


def msa(row: Row) -> Call:
    """The block-sparse attention module of MiniMax-M3."""
    a = resolve.model("MiniMax-M3").shape
    heads = positive_number(row, "heads")
    kv, dim = max(1.0, heads * a.kv_heads / a.heads), a.head_dim
    projected, indexer = _projections(a, heads, "I", "F")
    dtype, cache, weight_bytes, cache_bytes = _formats(row)
    sizes = (
        a.hidden, heads, projected, indexer, kv * a.index_dim, 2 * dim, 2 * kv * dim,
        a.index_topk, 0.0, 1.0, weight_bytes, cache_bytes, 1.0,
    )  # fmt: skip
    labels = _labels(row, "msa", row.text("phase").lower(), dtype, cache)
    kernel = row.text("kernel").lower()
    work = _MSA_WORK.get(kernel, "sparse_module")
    if kernel == "msa_fmha_sm100" and labels["phase"] == "decode":
        work = "blocked_module"
    return _call(work, (*_call_sizes(row), *sizes), labels)


#: Kind of table -> how its rows are read.
CALLS: Final[Mapping[str, Callable[[Row], Call]]] = {
    "linear_attention": linear_attention,
    "mamba2": mamba2,
    "sparse_attention": sparse_attention,
    "msa": msa,
    "mhc": mhc,
    "moe_fused_a2a": moe_fused_a2a,
    "encoder_attention": encoder_attention,
}
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "linear_attention": ("gpu", "family", "phase", "kernel", "batch", "seq", "v_heads"),
    "mamba2": ("gpu", "kernel", "batch", "seq", "heads", "head_dim", "state"),
    "sparse_attention": ("gpu", "model", "op", "phase", "heads", "batch", "seq_q", "seq_kv"),
    "msa": ("gpu", "phase", "heads", "batch", "seq_q", "seq_kv"),
    "mhc": ("gpu", "op", "tokens", "hidden", "hc_mult"),
    "moe_fused_a2a": ("gpu", "tokens_per_rank", "hidden", "inter", "topk", "experts", "ep"),
    "encoder_attention": ("gpu", "batch", "seq", "heads", "head_dim"),
}


def work_of(calls: Sequence[Call]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Flop, bytes, steps, pieces and core of calls of one kind of work, a row each."""
    columns = [np.array(column, float) for column in zip(*(c.sizes for c in calls), strict=True)]
    return _core.kernel_work(calls[0].work, columns)


@dataclass(frozen=True)
class Predictor:
    """Predicts the rows of one kind."""

    kind: str

    @property
    def REQUIRED(self) -> tuple[str, ...]:
        """Columns that a table of the kind needs."""
        return _COLUMNS[self.kind]

    def predict(self, rows: Sequence[Row]) -> list[OperatorPrediction]:
        """One prediction per row, in order; nothing in a row raises.

        Examples
        --------
        >>> cells = {"gpu": "H100-SXM5-80GB", "family": "gdn", "phase": "context", "batch": "1",
        ...          "engine": "sglang", "kernel": "chunk_gated_delta_rule", "seq": "8192",
        ...          "k_heads": "16", "k_head_dim": "128", "v_heads": "32", "v_head_dim": "128"}
        >>> (prediction,) = Predictor("linear_attention").predict([Row(cells)])
        >>> 200 < prediction.time_us < 1500
        True
        """
        accelerators = Accelerators()
        found = kernels("work", _core.WorkKernel, (*LABELS, "version"))
        chosen: dict[object, Kernel[Any]] = {}
        apart: dict[tuple[str, str], float] = {}
        predictions = [OperatorPrediction(None)] * len(rows)
        groups: dict[tuple[str, Any], list[tuple[int, Call, str]]] = {}
        for index, row in enumerate(rows):
            try:
                call, name = CALLS[self.kind](row), accelerators.name_of(row)
                key = (name, *call.labels.values(), stack_of(row).version)
                if key not in chosen:
                    chosen[key] = _nearest(found, name, call.labels, stack_of(row).version, apart)
            except SkippedRowError as skipped:
                predictions[index] = OperatorPrediction(None, str(skipped))
                continue
            kernel = chosen[key]
            note = "" if kernel.accelerator == name else f"constants of {kernel.accelerator}"
            group = (f"{name} {call.work}", kernel.record)
            groups.setdefault(group, []).append((index, call, note))
        for (name, record), members in groups.items():
            l2 = accelerator(name.split()[0]).l2_bytes
            times = _core.work_kernel_time_s(record, l2, work_of([call for _, call, _ in members]))
            for (index, _, note), time_s in zip(members, times.tolist(), strict=True):
                predictions[index] = OperatorPrediction(time_s * 1e6, note=note)
        return predictions


def _nearest(
    found: Sequence[Kernel[Any]],
    name: str,
    labels: Mapping[str, str],
    version: str,
    apart: dict[tuple[str, str], float],
) -> Kernel[Any]:
    """The kernel of the catalogue that is most like the one that was measured."""
    candidates = [
        kernel
        for kernel in found
        if kernel.label("op") == labels["op"] and kernel.label("work") == labels["work"]
    ]
    if not candidates:
        raise SkippedRowError(f"no_kernel:{labels['op']}")

    def mismatch(kernel: Kernel[Any]) -> float:
        total = dtype_mismatch(kernel.label("dtype"), labels["dtype"]) / 5
        for key, unlike in _OTHER.items():
            total += unlike if kernel.label(key) != labels[key] else 0.0
        return total + version_distance(kernel.label("version"), version)

    return nearest_kernel(candidates, name, mismatch, apart)
