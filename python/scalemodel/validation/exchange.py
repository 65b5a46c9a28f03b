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
_INPUT_COLUMNS = {
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
_SYSTEMS = (
    (r"block size", "blocks"),
    (r"mooncake", "mooncake"),
    (r"dma|memcpy", "copy_engine"),
    (r"kernel", "copy_kernel"),
    (r"", "other"),
)
#: Tokens of a rank in the benchmarks of rates, where a row does not say.
_MANY_TOKENS = 4096
#: Bytes of a transfer whose length a row does not say: long enough that its start counts little.
_LONG_BYTES = 40e9


class Prediction(NamedTuple):
    """What a row would show."""

    latency_us: float | None = None
    bandwidth_gb_s: float | None = None
    note: str = ""
    skip_reason: str = ""


class _Dispatches:
    """Constants of dispatch libraries by accelerator."""

    def __init__(self) -> None:
        labels = ("mode", "op", "scope", "engine", "version", "follows_dtype")
        self._kernels = kernels("dispatch", _core.DispatchKernel, labels)
        self._accelerators = Accelerators()

    def name_of(self, row: Row) -> str:
        """Accelerator of a row; a generation with an example ("SM90 (H800)") is the example."""
        example = re.fullmatch(r"sm_?\d+\s*\((.+)\)", row.text("gpu"), re.IGNORECASE)
        return self._accelerators.name_of(Row({"gpu": example[1]}) if example else row)

    def nearest(self, name: str, mode: str, op: str) -> Kernel[_core.DispatchKernel]:
        """The constants of a library on the accelerator most like the one named."""
        found = [k for k in self._kernels if (k.label("mode"), k.label("op")) == (mode, op)]
        if not found:
            raise SkippedRowError(f"unsupported:{op or mode}")
        return nearest_kernel(found, name, lambda _: 0.0)


def _count(row: Row, name: str) -> int:
    value = row.count(name)
    if value is None:
        raise SkippedRowError(f"missing:{name}")
    return value


def _exchange(row: Row, known: _Dispatches) -> Prediction:
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
    kernel = known.nearest(name, mode, row.text("direction").lower())
    record, sent = kernel.record, row.number("bytes_per_token")
    if sent:
        record = record.replace(value_bytes=sent / hidden)
    numbers = (tokens, hidden, topk, row.count("experts") or 256, ranks, nodes)
    columns = [np.array([float(number)]) for number in (*numbers, row.count("sms") or 0)]
    time_s = float(_core.dispatch_time_s(accelerator(name), record, *columns)[0])
    copies = _counted_copies(row, topk, ranks, nodes)
    bandwidth = copies * tokens * hidden * record.value_bytes / time_s / 1e9
    note = "" if kernel.accelerator == name else f"constants of {kernel.accelerator}"
    return Prediction(1e6 * time_s, bandwidth, note)


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
    """Systems by a pattern of their names: start of a transfer, and share of the links' rate."""
    table = Reader(catalog.load("reference", "kv_transfer"), "reference/kv_transfer")
    found = []
    for pattern, key in _SYSTEMS:
        entry = table.sub(key)
        start = _core.LogGP(latency_s=entry.number("start_s"))
        found.append((pattern, start, entry.fraction("share_fraction")))
    return found


def _transfer(row: Row, systems: Sequence[tuple[str, _core.LogGP, float]]) -> Prediction:
    peak = row.number("link_peak_GB_s")
    if peak is None:
        raise SkippedRowError("missing:link_peak_GB_s")
    if not peak > 0:
        raise SkippedRowError("illegal:link_peak_GB_s")
    label = f"{row.text('system')} {row.text('what')}".lower()
    _, model, share = next(each for each in systems if re.search(each[0], label))
    stated = row.number("bytes_MB")
    if stated is not None and not stated > 0:
        raise SkippedRowError("illegal:bytes_MB")
    size = 1e6 * stated if stated else _LONG_BYTES
    rate = share * peak * 1e9
    time_s = _core.loggp_s(size, 1, model.replace(gap_per_byte_s=1 / rate))
    note = "" if stated else "a transfer of 40 GB assumed"
    return Prediction(1e6 * time_s, size / time_s / 1e9, note)


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
        known = _Dispatches()

        def one(row: Row) -> Prediction:
            return _exchange(row, known)
    else:
        systems = _transfers()

        def one(row: Row) -> Prediction:
            return _transfer(row, systems)

    predictions = []
    for row in table.select(_INPUT_COLUMNS[kind]):
        try:
            predictions.append(one(row))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
    return predictions
