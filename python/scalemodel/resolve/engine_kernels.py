"""Kernels of experts and of token dispatch that an engine calls, nearest to an accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.units import value_of
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator, sheet_peak
from scalemodel.resolve.kernel_tables import (
    Kernel,
    distance,
    dtype_mismatch,
    kernels,
    nearest_kernel,
)
from scalemodel.resolve.reader import Reader

_EXPERT_LABELS = ("kernel", "op", "dtype", "engine", "version", "always_gated")
_DISPATCH_LABELS = ("mode", "op", "scope", "engine", "version", "follows_dtype")
_WORK_LABELS = ("op", "work", "phase", "kernel", "engine", "dtype", "cache", "version")
_OTHER_ARCHITECTURE = 6.0  # in the unit of `kernel_tables.distance`
_OTHER_ENGINE = 2.0  # in the unit of `kernel_tables.distance`
_OTHER_KERNEL = 4.0  # the same, of kernels that the engine does not run
_OTHER_TIMING = 1.0  # the same, of a kernel that it runs as another engine's benchmark timed it


class DispatchChoice(NamedTuple):
    """Constants of one direction of a dispatch: whose inside a node, and whose between nodes."""

    record: _core.DispatchKernel
    inside: Kernel[_core.DispatchKernel]
    between: Kernel[_core.DispatchKernel]


@catalog.kept(1)
def _expert_kernels() -> tuple[Kernel[_core.GroupedGemmKernel], ...]:
    return tuple(kernels("expert_layer", _core.GroupedGemmKernel, _EXPERT_LABELS))


@catalog.kept(1)
def _encoder_kernels() -> tuple[Kernel[_core.WorkKernel], ...]:
    found = kernels("work", _core.WorkKernel, _WORK_LABELS)
    return tuple(kernel for kernel in found if kernel.label("op") == "encoder_attention")


@catalog.kept(1)
def _dispatch_kernels() -> tuple[Kernel[_core.DispatchKernel], ...]:
    return tuple(kernels("dispatch", _core.DispatchKernel, _DISPATCH_LABELS))


def expert_kernel(
    accelerator: str, dtype: str, want: Mapping[str, Any]
) -> Kernel[_core.GroupedGemmKernel]:
    """Constants of expert layers of an engine, or of the least unlike ones.

    Where the engine's table says which kernel it runs on such accelerators (`kernels`, by
    architecture and format, a part of the kernel's label), timings of that kernel come first, by
    the benchmark of any engine.

    Examples
    --------
    >>> expert_kernel("h100_sxm_80", "fp8_block", {"engine": "sglang"}).label("kernel")
    'sglang_fused_moe_triton'
    >>> triton = {"engine": "vllm", "kernels": {"blackwell_bfloat16": "triton"}}
    >>> expert_kernel("b200", "bfloat16", triton).label("kernel")
    'sglang_fused_moe_triton'
    """
    architecture = accelerator_table(accelerator).get("architecture", "")
    runs = str(value_of(want.get("kernels", {}).get(f"{architecture}_{dtype}", "")))

    def mismatch(kernel: Kernel[Any]) -> float:
        apart = dtype_mismatch(dtype, kernel.label("dtype"))
        other = bool(kernel.label("engine") != want.get("engine", ""))
        if not runs:
            return apart + _OTHER_ENGINE * other
        if runs in kernel.label("kernel"):
            return apart + _OTHER_TIMING * other
        return apart + _OTHER_KERNEL + _OTHER_ENGINE * other

    # A library that computes tokens which were sent may also be what an engine runs without.
    found = [
        kernel
        for kernel in _expert_kernels()
        if not kernel.label("op") or kernel.label("kernel") == runs
    ]
    return nearest_kernel(found, accelerator, mismatch)


def encoder_kernel(accelerator: str, engine: str) -> _core.WorkKernel | None:
    """Attention of vision towers on an accelerator, of the engine or of the least unlike one.

    None where none has been timed on it, or on one of the same arithmetic: constants are rates.

    Examples
    --------
    >>> encoder_kernel("h100_sxm_80", "vllm").rate_flop_per_s
    625000000000000.0
    >>> encoder_kernel("a100_sxm_80", "vllm") is None
    True
    """
    peak = sheet_peak(accelerator_table(accelerator), "bf16")
    alike = [
        kernel
        for kernel in _encoder_kernels()
        if distance(accelerator, kernel.accelerator) < _OTHER_ARCHITECTURE
        and sheet_peak(accelerator_table(kernel.accelerator), "bf16") == peak
    ]
    if not alike:
        return None

    def mismatch(kernel: Kernel[Any]) -> float:
        return _OTHER_ENGINE * (kernel.label("engine") != engine)

    return nearest_kernel(alike, accelerator, mismatch).record


def is_own(kernel: Kernel[Any], accelerator: str, engine: str) -> bool:
    """Whether constants are an engine's own on accelerators of such an architecture.

    Examples
    --------
    >>> chosen = expert_kernel("h200", "fp8_block", {"engine": "sglang"})
    >>> is_own(chosen, "h200", "sglang"), is_own(chosen, "b200", "sglang")
    (True, False)
    """
    near = distance(accelerator, kernel.accelerator) < _OTHER_ARCHITECTURE
    return kernel.label("engine") == engine and near


def in_a_model(
    kernel: Kernel[_core.GroupedGemmKernel], accelerator: str
) -> _core.GroupedGemmKernel:
    """Constants of experts in a model of many layers, on an accelerator.

    A benchmark repeats one layer, so that small experts stay in the cache, and one release timed
    experts of other ranks too: neither happens there. Parts of the architecture that the kernel
    was timed on may have tensor cores of another pace.

    Examples
    --------
    >>> timed = expert_kernel("h20", "bfloat16", {"engine": "vllm"})
    >>> timed.accelerator, timed.record.cached_speedup, timed.record.compute_fraction
    ('h200', 8.75, 0.907)
    >>> found = in_a_model(timed, "h20")
    >>> found.cached_speedup, round(found.compute_fraction, 3)
    (1.0, 0.975)
    """
    record = kernel.record.replace(cached_speedup=1.0, computes_remote=False)
    alike = 0 < distance(accelerator, kernel.accelerator) < _OTHER_ARCHITECTURE
    if not (alike and _states_pace(accelerator) and _states_pace(kernel.accelerator)):
        return record
    return _core.moved_kernel(record, _built(kernel.accelerator), _built(accelerator))


def _states_pace(accelerator: str) -> bool:
    """Whether an entry has what its peak is shared by; what is assumed elsewhere is no pace."""
    table = accelerator_table(accelerator)
    stated = {*table.get("compute", {}), *table.get("gemm", {})}
    return {"multiprocessors", "clock"} <= stated


@catalog.kept(64)
def _built(accelerator: str) -> _core.Accelerator:
    return build_accelerator(accelerator_table(accelerator))


def in_reserved_rows(
    accelerator: str, experts: _core.GroupedGemmKernel, asked: Mapping[str, Any], key: str
) -> _core.GroupedGemmKernel:
    """Experts in a layout that reserves tiles for all tokens that could come, where it does."""

    def told(name: str) -> float:
        return Reader(asked.get(name, {}), f"kernels.experts.{name}").number(key, 0.0)

    if not told("reserved_rows"):
        return experts
    table = accelerator_table(accelerator).get("elementwise", {})
    launch_s = Reader(table, f"{accelerator}.elementwise").quantity("launch", "s", 0.0)
    return experts.replace(
        reserved_rows=told("reserved_rows"),
        inner_passes=told("inner_passes"),
        launch_s=experts.launch_s + told("beside") * launch_s,
    )


def received_experts(
    accelerator: str, dtype: str, want: Mapping[str, Any]
) -> Kernel[_core.GroupedGemmKernel] | None:
    """Experts of tokens that were sent, of the library that an engine calls for them.

    None where its dispatch table names none for the format.

    Examples
    --------
    >>> want = {"experts": "deepgemm", "formats": ["fp8_block"]}
    >>> received_experts("h100_sxm_80", "fp8_block", want).accelerator
    'h800_sxm_80'
    """
    if dtype not in want.get("formats", ()):
        return None
    found = [
        kernel
        for kernel in _expert_kernels()
        if kernel.label("kernel") == want.get("experts")
        and kernel.label("op") in ("", "received_experts")
    ]
    return nearest_kernel(
        found, accelerator, lambda kernel: dtype_mismatch(dtype, kernel.label("dtype"))
    )


def dispatch_kernel(accelerator: str, modes: Sequence[str], op: str) -> DispatchChoice:
    """Constants of one direction; those that also leave the node come first.

    Where a library was timed inside a node alone, the rates between nodes are borrowed.

    Examples
    --------
    >>> found = dispatch_kernel("b200", ["deepep_low_latency"], "dispatch")
    >>> found.inside.accelerator, found.between.accelerator
    ('b200', 'h200')
    """

    def apart(kernel: Kernel[Any]) -> float:
        return _OTHER_ENGINE if kernel.label("scope") == "one_node" else 0.0

    candidates = [
        kernel
        for kernel in _dispatch_kernels()
        if kernel.label("op") == op and kernel.label("mode") in modes
    ]
    chosen = nearest_kernel(candidates, accelerator, apart)
    wider = [kernel for kernel in candidates if kernel.label("scope") != "one_node"]
    if chosen.label("scope") != "one_node" or not wider:
        return DispatchChoice(chosen.record, chosen, chosen)
    between = nearest_kernel(wider, accelerator, apart)
    names = ("network_bytes_per_s", "doubling_s", "spine_nodes", "spine_fraction")
    borrowed = {name: getattr(between.record, name) for name in names}
    return DispatchChoice(chosen.record.replace(**borrowed), chosen, between)
