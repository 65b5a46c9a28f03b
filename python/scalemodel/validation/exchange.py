"""Published exchanges of tokens with their experts, and transfers of KV caches.

A row of either says how many bytes move over which links; what is predicted is the time of one
call, and the rate as its source counts bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.resolve.kernel_tables import Kernel, kernels, nearest_kernel
from scalemodel.resolve.reader import Reader
from scalemodel.validation.operators.questions import Accelerators, accelerator
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

OUTPUT_COLUMNS = (
    *("predicted_latency_us", "predicted_bandwidth_GB_s", "predicted_note", "skip_reason"),
)
A2A_COLUMNS = ("library", "gpu", "n_gpus", "kernel", "direction")
KV_COLUMNS = ("system", "link_peak_GB_s")
INPUT_COLUMNS = {
    "moe_a2a": (
        *A2A_COLUMNS,
        *("gpus_per_node", "tokens_per_rank", "hidden", "topk", "experts", "bytes_per_token"),
        *("bound", "bandwidth_kind", "sms"),
    ),
    "kv_transfer": (*KV_COLUMNS, "what", "bytes_MB"),
}
#: Libraries by name and kind of kernel, and the mode of their constants.
_MODES = (
    (r"deepep v2|unified", "deepep_v2"),
    (r"deepep.*low.?latency", "deepep_v1_low_latency"),
    (r"deepep", "deepep_v1_normal"),
    (r"one.?sided", "nvlink_one_sided"),
)
#: What moves a cache, by what the row says, and its constants.
SYSTEMS = (
    (r"block size", "blocks"),
    (r"mooncake", "mooncake"),
    (r"dma|memcpy", "copy_engine"),
    (r"kernel", "copy_kernel"),
    (r"", "other"),
)
#: Tokens of a rank in the benchmarks of rates, where a row does not say.
_MANY_TOKENS = 4096
#: Bytes of a transfer whose length a row does not say: long enough that its start counts little.
LONG_BYTES = 40e9


class Prediction(NamedTuple):
    """What a row would show."""

    latency_us: float | None = None
    bandwidth_gb_s: float | None = None
    note: str = ""
    skip_reason: str = ""


class Dispatches:
    """Constants of dispatch libraries by accelerator."""

    def __init__(self) -> None:
        labels = ("mode", "op", "scope", "engine", "version", "follows_dtype")
        self.kernels = kernels("dispatch", _core.DispatchKernel, labels)
        self._accelerators = Accelerators()

    def name_of(self, row: Row) -> str:
        """Accelerator of a row; a generation with an example ("SM90 (H800)") is the example."""
        example = re.fullmatch(r"sm_?\d+\s*\((.+)\)", row.text("gpu"), re.IGNORECASE)
        return self._accelerators.name_of(Row({"gpu": example[1]}) if example else row)

    def nearest(self, name: str, mode: str, op: str) -> Kernel[_core.DispatchKernel]:
        """The constants of a library on the accelerator most like the one named."""
        found = [k for k in self.kernels if (k.label("mode"), k.label("op")) == (mode, op)]
        if not found:
            raise SkippedRowError(f"unsupported:{op or mode}")
        return nearest_kernel(found, name, lambda _: 0.0)


def _count(row: Row, name: str) -> int:
    value = row.count(name)
    if value is None:
        raise SkippedRowError(f"missing:{name}")
    return value


class Call(NamedTuple):
    """A row as one call of a library."""

    mode: str
    op: str
    accelerator: str
    tokens: int
    hidden: int
    topk: int
    experts: int
    ranks: int
    nodes: int
    blocks: float  # multiprocessors of the kernel; 0: as it likes
    value_bytes: float
    counted_bytes: float  # what the source counts in its rate
    note: str

    def columns(self) -> tuple[float, ...]:
        """The call as the engine takes it, the accelerator's multiprocessors last."""
        shape = (self.tokens, self.hidden, self.topk, self.experts, self.ranks, self.nodes)
        sending = accelerator(self.accelerator).multiprocessors
        return tuple(float(number) for number in (*shape, self.blocks, sending))


def call_of(row: Row, known: Dispatches) -> Call:
    """The call that a row describes.

    Raises
    ------
    SkippedRowError : a cell is missing, or the library unknown.
    """
    label = f"{row.text('library')} {row.text('kernel')}".lower()
    mode = next((mode for pattern, mode in _MODES if re.search(pattern, label)), "")
    if not mode:
        raise SkippedRowError(f"unsupported:{row.text('library')}")
    name = known.name_of(row)
    ranks = row.required_count("n_gpus")
    hidden, topk = _count(row, "hidden"), _count(row, "topk")
    tokens = row.count("tokens_per_rank") or _MANY_TOKENS
    inside = "nvlink" in row.text("bound").lower() and "rdma" not in row.text("bound").lower()
    nodes = 1 if inside else max(1, ranks // (row.count("gpus_per_node") or 8))
    op = row.text("direction").lower()
    kernel, sent = known.nearest(name, mode, op), row.number("bytes_per_token")
    value_bytes = sent / hidden if sent else float(kernel.record.value_bytes)
    counted = _counted_copies(row, topk, ranks, nodes) * tokens * hidden * value_bytes
    shape = (tokens, hidden, topk, row.count("experts") or 256, ranks, nodes)
    note = "" if kernel.accelerator == name else f"constants of {kernel.accelerator}"
    return Call(mode, op, name, *shape, row.count("sms") or 0, value_bytes, counted, note)


def predicted_call(call: Call, constants: _core.DispatchKernel, note: str) -> Prediction:
    """Time and rate of a call by the constants of a kernel."""
    record = constants.replace(value_bytes=call.value_bytes)
    columns = [np.array([number]) for number in call.columns()[:-1]]
    time_s = float(_core.dispatch_time_s(accelerator(call.accelerator), record, *columns)[0])
    return Prediction(1e6 * time_s, call.counted_bytes / time_s / 1e9, note)


def _exchange(row: Row, known: Dispatches) -> Prediction:
    call = call_of(row, known)
    kernel = known.nearest(call.accelerator, call.mode, call.op)
    return predicted_call(call, kernel.record, call.note)


def _counted_copies(row: Row, topk: int, ranks: int, nodes: int) -> float:
    """Copies of a token that a source counts in its rate.

    Those of every choice, of as many as there are ranks; or of every place that gets one, the
    sender's own included: nodes where there are several, else ranks.
    """
    kind = row.text("bandwidth_kind").lower()
    if "min(ep" in kind:
        return min(topk, ranks)
    if "topk" in kind:
        return topk
    places = nodes if nodes > 1 else ranks
    return places * (1 - (1 - 1 / places) ** topk)


def _transfers() -> list[tuple[str, _core.LogGP, float]]:
    """Systems by name: start of a transfer, and share of the links' rate."""
    table = Reader(catalog.load("reference", "kv_transfer"), "reference/kv_transfer")
    found = []
    for _, key in SYSTEMS:
        entry = table.sub(key)
        start = _core.LogGP(latency_s=entry.number("start_s"))
        found.append((key, start, entry.fraction("share_fraction")))
    return found


def system_of(row: Row) -> str:
    """What moves the cache of a row, by the names of its constants."""
    label = f"{row.text('system')} {row.text('what')}".lower()
    return next(key for pattern, key in SYSTEMS if re.search(pattern, label))


def predicted_transfer(row: Row, model: _core.LogGP, share: float, *notes: str) -> Prediction:
    """Time and rate of a transfer over a share of its links.

    Raises
    ------
    SkippedRowError : a cell is missing or makes no sense.
    """
    peak = row.number("link_peak_GB_s")
    if peak is None:
        raise SkippedRowError("missing:link_peak_GB_s")
    if not peak > 0:
        raise SkippedRowError("illegal:link_peak_GB_s")
    stated = row.number("bytes_MB")
    if stated is not None and not stated > 0:
        raise SkippedRowError("illegal:bytes_MB")
    size = 1e6 * stated if stated else LONG_BYTES
    time_s = _core.loggp_s(size, 1, model.replace(gap_per_byte_s=1 / (share * peak * 1e9)))
    note = "" if stated else "a transfer of 40 GB assumed"
    return Prediction(1e6 * time_s, size / time_s / 1e9, "; ".join(filter(None, (*notes, note))))


def _transfer(row: Row, systems: Sequence[tuple[str, _core.LogGP, float]]) -> Prediction:
    key = system_of(row)
    model, share = next((model, share) for name, model, share in systems if name == key)
    return predicted_transfer(row, model, share)


def predict(kind: str, table: Table) -> list[Prediction]:
    """One prediction per row of a table of kind ``moe_a2a`` or ``kv_transfer``, in order.

    Raises
    ------
    ScaleModelError
        The table lacks a column that every row would need. Nothing in a row raises.
    """
    needed = A2A_COLUMNS if kind == "moe_a2a" else KV_COLUMNS
    require_columns(table, needed, f"kind {kind!r} needs {', '.join(needed)}")
    one: Callable[[Row], Prediction]
    if kind == "moe_a2a":
        known = Dispatches()

        def one(row: Row) -> Prediction:
            return _exchange(row, known)
    else:
        systems = _transfers()

        def one(row: Row) -> Prediction:
            return _transfer(row, systems)

    predictions = []
    for row in table.select(INPUT_COLUMNS[kind]):
        try:
            predictions.append(one(row))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
    return predictions
