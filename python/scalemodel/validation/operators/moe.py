"""Rows of measured expert layers, grouped products and token dispatch.

Three schemas share this kind: fused expert layers, grouped products whose sizes stand in the
kernel's name, and dispatch or combine calls (a column ``mode``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.resolve.kernel_tables import Kernel, dtype_mismatch, kernels, nearest_kernel
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
REQUIRED: tuple[str, ...] = ("gpu", "tokens", "hidden", "topk", "experts", "op")
LAYER_COLUMNS: tuple[str, ...] = (*REQUIRED, "dtype", "inter")
DISPATCH_COLUMNS: tuple[str, ...] = (*REQUIRED, "mode")

_Columns = npt.NDArray[np.float64]

_LAYER_LABELS = ("kernel", "op", "dtype", "engine", "version", "always_gated")
_DISPATCH_LABELS = ("mode", "op", "scope", "engine", "version", "follows_dtype")
_GROUPED = re.compile(r"ng=(\d+)\s+M=(\d+)\s+N=(\d+)\s+K=(\d+)", re.IGNORECASE)
_DOMAIN_MODE = re.compile(r"(?P<family>.+?)_ep(?P<ranks>\d+)(?:_(?P<dtype>\w+))?")
_SKEW = re.compile(r"power_law_(\d+(?:\.\d+)?)")
_FAMILIES = ("marlin", "triton", "flashinfer_trtllm", "cutlass", "deepgemm", "torch_flow", "xpu")

_OTHER_KERNEL, _OTHER_FAMILY, _OTHER_ENGINE = 4.0, 6.0, 2.0
_MOST_UNLIKE = 25.0  # a format further from everything known is not predicted

# Hidden and expert sizes of published models whose experts have no gate (squared ReLU).
_UNGATED = {(2688, 1856), (1024, 2688), (4096, 2688), (2048, 5120), (8192, 5120)}

# Accelerators of a server where it is not eight: trays of NVL72 racks.
_PER_NODE = {"gb200": 4, "gb300": 4}

# Bytes per value that a dispatch in this format sends.
_SENT_BYTES = {"nvfp4": 0.5625, "fp8": 1.0, "bfloat16": 2.0, "float16": 2.0}


def required_columns(header: Collection[str]) -> tuple[str, ...]:
    """Columns that a table with this header needs.

    Examples
    --------
    >>> required_columns(["gpu", "mode", "tokens"])[-1]
    'mode'
    """
    return DISPATCH_COLUMNS if "mode" in header and "inter" not in header else LAYER_COLUMNS


class _Case(NamedTuple):
    """One row as numbers, its accelerator, and the kernel whose constants it takes."""

    solver: str
    accelerator: str
    kernel: Kernel[Any]
    record: Any
    numbers: tuple[float, ...]
    note: str


# ----------------------------------------------------------------------------------- kernels
def _family(kernel: str) -> str:
    return next((name for name in _FAMILIES if name in kernel), "")


def _stack_mismatch(kernel: Kernel[Any], stack: Stack) -> float:
    if not stack.engine:
        return 0.0
    if kernel.label("engine") != stack.engine:
        return _OTHER_ENGINE
    return version_distance(kernel.label("version"), stack.version)


def _note(kernel: Kernel[Any], accelerator_name: str, asked: str, known: str) -> str:
    same = kernel.accelerator == accelerator_name and (asked == known or not asked)
    return "" if same else f"constants of {known} on {kernel.accelerator}"


class _Catalogue:
    """Kernels of the catalogue, with the choices already made."""

    def __init__(self) -> None:
        found = kernels("expert_layer", _core.GroupedGemmKernel, _LAYER_LABELS)
        self.layers = [kernel for kernel in found if not kernel.label("op")]
        self.grouped = [kernel for kernel in found if kernel.label("op")]
        self.dispatch = kernels("dispatch", _core.DispatchKernel, _DISPATCH_LABELS)
        self.accelerators = Accelerators()
        self._chosen: dict[object, Kernel[Any]] = {}
        self._apart: dict[tuple[str, str], float] = {}

    def _choose(
        self,
        key: object,
        candidates: Sequence[Kernel[Any]],
        name: str,
        mismatch: Callable[[Kernel[Any]], float],
    ) -> Kernel[Any]:
        if key not in self._chosen:
            self._chosen[key] = nearest_kernel(candidates, name, mismatch, self._apart)
        return self._chosen[key]

    def layer(self, name: str, dtype: str, kernel: str, stack: Stack) -> Kernel[Any]:
        """Expert layer kernel nearest to the one asked for."""
        family = _family(kernel)

        def mismatch(each: Kernel[Any]) -> float:
            apart = dtype_mismatch(dtype, each.label("dtype")) + _stack_mismatch(each, stack)
            if kernel and each.label("kernel") != kernel:
                same_family = family and _family(each.label("kernel")) == family
                apart += _OTHER_KERNEL if same_family else _OTHER_FAMILY
            return apart

        chosen = self._choose((name, dtype, kernel, stack), self.layers, name, mismatch)
        if dtype_mismatch(dtype, chosen.label("dtype")) > _MOST_UNLIKE:
            raise SkippedRowError(f"unsupported:{dtype}")
        return chosen

    def product(self, name: str, dtype: str, op: str) -> Kernel[Any]:
        """Grouped product of a training framework."""
        candidates = [each for each in self.grouped if each.label("op") == op]
        if not candidates:
            raise SkippedRowError(f"unsupported:{op}")
        if dtype_mismatch(dtype, "bfloat16") > 0:
            raise SkippedRowError(f"unsupported:{dtype}")
        return self._choose((name, op), candidates, name, lambda each: 0.0)

    def sending(self, name: str, mode: str, op: str, nodes: int, stack: Stack) -> Kernel[Any]:
        """One direction of a dispatch library."""
        scope = "several_nodes" if nodes > 1 else "one_node"
        scopes = (scope, "any")
        candidates = [
            each
            for each in self.dispatch
            if (each.label("mode"), each.label("op")) == (mode, op)
            and each.label("scope") in scopes
        ]
        if not candidates:
            known = any(each.label("mode") == mode for each in self.dispatch)
            raise SkippedRowError(f"unsupported:{op if known else mode}")
        return self._choose(
            (name, mode, op, scope, stack),
            candidates,
            name,
            lambda each: _stack_mismatch(each, stack),
        )


# -------------------------------------------------------------------------------------- rows
def _whole(row: Row, column: str, default: int | None = None) -> int:
    value = row.count(column)
    if value is None and default is None:
        raise SkippedRowError(f"missing:{column}")
    return default if value is None else value  # type: ignore[return-value]


def _skew(row: Row) -> tuple[float, str]:
    text = row.text("distribution").lower()
    if not text:
        return 0.0, "balanced experts assumed"
    if text in ("balanced", "uniform"):
        return 0.0, ""
    found = _SKEW.fullmatch(text)
    if found is None:
        raise SkippedRowError(f"unsupported:{text}")
    return float(found[1]), ""


def _routing(row: Row) -> tuple[int, int, int]:
    """Experts, choices per token and expert-parallel ranks, which must fit together."""
    experts, topk, ranks = _whole(row, "experts"), _whole(row, "topk"), _whole(row, "ep", 1)
    if topk > experts:
        raise SkippedRowError("illegal:topk")
    if experts > 1_000_000:
        raise SkippedRowError("illegal:experts")
    if experts % ranks != 0:
        raise SkippedRowError("illegal:ep")
    return experts, topk, ranks


def _layer_case(row: Row, known: _Catalogue) -> _Case:
    name = known.accelerators.name_of(row)
    dtype = dtype_of(row)
    tokens = _whole(row, "tokens")
    hidden, inter = positive_number(row, "hidden"), positive_number(row, "inter")
    experts, topk, ranks = _routing(row)
    skew, assumed = _skew(row)
    label = row.text("kernel")
    kernel = known.layer(name, dtype, label, stack_of(row))
    ungated = "nongated" in label or (int(hidden), int(inter)) in _UNGATED
    matrices = 2.0 if ungated and kernel.label("always_gated") != "True" else 3.0
    notes = (assumed, _note(kernel, name, label, kernel.label("kernel")))
    numbers = (tokens, topk, experts, ranks, skew, hidden, inter, _whole(row, "tp", 1), matrices)
    note = "; ".join(text for text in notes if text)
    return _Case("layer", name, kernel, kernel.record, tuple(map(float, numbers)), note)


def _product_case(row: Row, known: _Catalogue, op: str) -> _Case:
    name = known.accelerators.name_of(row)
    kernel = known.product(name, dtype_of(row), op)
    sizes = _GROUPED.search(row.text("kernel"))
    if sizes is None:
        raise SkippedRowError("missing:kernel")
    groups, rows, columns, depth = (float(size) for size in sizes.groups())
    if min(groups, rows, columns, depth) < 1 or max(groups * rows, columns, depth) > 1e15:
        raise SkippedRowError("illegal:kernel")
    note = _note(kernel, name, "", kernel.label("kernel"))
    return _Case(
        "product", name, kernel, kernel.record, (groups * rows, groups, columns, depth), note
    )


def _dispatch_case(row: Row, known: _Catalogue, op: str) -> _Case:
    name = known.accelerators.name_of(row)
    mode = row.text("mode")
    if not mode:
        raise SkippedRowError("missing:mode")
    tokens, hidden = positive_number(row, "tokens"), positive_number(row, "hidden")
    topk, experts, nodes = _whole(row, "topk"), _whole(row, "experts"), _whole(row, "nodes", 1)
    blocks = row.count("sms", least=0) or 0
    ranks = nodes * _PER_NODE.get(name, 8)
    sent = 0.0
    in_domain = _DOMAIN_MODE.fullmatch(mode)
    if in_domain is not None:
        mode, ranks, nodes = in_domain["family"], int(in_domain["ranks"]), 1
        sent = _SENT_BYTES.get(in_domain["dtype"] or "bfloat16", 0.0)
        if sent == 0 or ranks < 1:
            raise SkippedRowError(f"unsupported:{row.text('mode')}")
    kernel = known.sending(name, mode, op, nodes, stack_of(row))
    record = kernel.record
    if sent and kernel.label("follows_dtype") == "True":
        record = record.replace(value_bytes=sent)
    note = _note(kernel, name, "", f"{mode} {kernel.label('version')}")
    numbers = (tokens, hidden, topk, experts, ranks, nodes, blocks)
    return _Case("dispatch", name, kernel, record, tuple(map(float, numbers)), note)


def _case(row: Row, known: _Catalogue) -> _Case:
    op = row.text("op").lower()
    if not op:
        raise SkippedRowError("missing:op")
    if op.startswith("grouped_gemm"):
        return _product_case(row, known, op)
    if row.text("mode"):
        return _dispatch_case(row, known, op)
    if op != "fused_moe_fwd":
        raise SkippedRowError(f"unsupported:{op}")
    return _layer_case(row, known)


# ------------------------------------------------------------------------------------- times
def _layer_times(name: str, record: Any, numbers: _Columns, loads: _Columns) -> _Columns:
    tokens, topk, experts, ranks, _, hidden, inter, tp, matrices = numbers.T
    return _core.expert_layer_time_s(
        accelerator(name),
        record,
        loads=loads,
        tokens=tokens,
        topk=topk,
        experts=experts,
        expert_ranks=ranks,
        hidden=hidden,
        intermediate=inter,
        tensor_ranks=tp,
        matrices=matrices,
    )


def _seconds(cases: Sequence[_Case]) -> _Columns:
    """Seconds of every case: one engine call per kernel and accelerator."""
    out = np.zeros(len(cases))
    layers = [index for index, case in enumerate(cases) if case.solver == "layer"]
    # Many kernels are measured on the same few routings: drawn once for all of them.
    loads = np.zeros((len(cases), 3))
    if layers:
        routing = np.array([cases[index].numbers[:5] for index in layers])
        tokens, topk, experts, ranks, skew = routing.T
        loads[layers] = _core.expert_loads(tokens, experts, topk, ranks, skew)
    groups: dict[tuple[str, str, Any], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((case.solver, case.accelerator, case.record), []).append(index)
    for (solver, name, record), members in groups.items():
        numbers = np.array([cases[index].numbers for index in members])
        if solver == "layer":
            out[members] = _layer_times(name, record, numbers, loads[members])
        elif solver == "product":
            out[members] = _core.grouped_call_time_s(accelerator(name), record, *numbers.T)
        else:
            out[members] = _core.dispatch_time_s(accelerator(name), record, *numbers.T)
    return out


def predict(rows: Sequence[Row]) -> list[OperatorPrediction]:
    """Predicted time of every row, in order; nothing in a row raises.

    Parameters
    ----------
    rows : sequence of Row
        `source` is read for engine and version only.

    Returns
    -------
    list of OperatorPrediction
        The busiest expert-parallel rank of a layer; one direction of a dispatch.

    Examples
    --------
    >>> cells = {"gpu": "H100", "dtype": "bfloat16", "tokens": "4096", "hidden": "4096",
    ...          "inter": "14336", "topk": "2", "experts": "8", "op": "fused_moe_fwd",
    ...          "distribution": "balanced"}
    >>> (prediction,) = predict([Row(cells)])
    >>> 4000 < prediction.time_us < 12000
    True
    >>> predict([Row({**cells, "topk": "9"})])[0].skip_reason
    'illegal:topk'
    """
    known = _Catalogue()
    cases: list[_Case] = []
    where: list[int] = []
    predictions = [OperatorPrediction(None)] * len(rows)
    for index, row in enumerate(rows):
        try:
            cases.append(_case(row, known))
            where.append(index)
        except SkippedRowError as skipped:
            predictions[index] = OperatorPrediction(None, str(skipped))
    for index, case, time_s in zip(where, cases, _seconds(cases).tolist(), strict=True):
        predictions[index] = OperatorPrediction(time_s * 1e6, note=case.note)
    return predictions
