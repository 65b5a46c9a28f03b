"""Exchanges of tokens and transfers of caches by constants that have not seen their system.

A system is a library on one accelerator with one number of ranks; of transfers, what moves a cache
over one kind of link. None of its rows reaches the constants that predict it. Those of an exchange
begin from the same library's on another accelerator, as another source timed them, or from links at
a usual share of their rate, and are fitted to the rows of the library's other systems: what those
rows cannot see stays as it begins. A transfer reaches the share of its links that other systems of
its library do, and starts once the runs of its layers are posted, one after the other; single
blocks reach what collectives reach of their fabric.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_table
from scalemodel.resolve.kernel_tables import distance
from scalemodel.resolve.reader import Reader
from scalemodel.validation.exchange import (
    A2A_COLUMNS,
    INPUT_COLUMNS,
    KV_COLUMNS,
    LONG_BYTES,
    Call,
    Dispatches,
    Prediction,
    call_of,
    predicted_call,
    predicted_transfer,
    system_of,
)
from scalemodel.validation.inference import model_of
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns

#: The same libraries as another source timed them: mode, and what its directions are called.
_ELSEWHERE = {
    "deepep_v1_low_latency": ("deepep_low_latency", ""),
    "deepep_v1_normal": ("deepep_normal", ""),
}
_NOTE = "its system left out"
#: Fabrics by a word of a link.
_FABRICS = ("efa", "roce", "infiniband")
#: Kernels that run on as many multiprocessors as they are given.
_ON_BLOCKS = ("deepep_v1_normal",)
_MEASURED_COLUMNS = {
    "moe_a2a": ("latency_us", "bandwidth_GB_s"),
    "kv_transfer": ("bandwidth_GB_s", "model", "link"),
}


@dataclass(frozen=True)
class _Timed:
    """A call of the table with its time, and the system it belongs to."""

    call: Call
    system: tuple[str, str, int]
    time_s: float | None


def _line_rate(name: str) -> float:
    scale_up = Reader(accelerator_table(name)["scale_up"], f"accelerators/{name}.toml: scale_up")
    return scale_up.quantity("bandwidth", "bytes_per_s")


def _facts() -> Reader:
    return Reader(catalog.load("reference", "exchange")["beginning"], "reference/exchange")


def _blocks() -> float:
    """Multiprocessors that engines give kernels of many tokens."""
    blocks: float = engine_table(DEFAULT_ENGINE)["kernels"]["dispatch"]["blocks"]["value"]
    return blocks


def _beginning(known: Dispatches, call: Call) -> _core.DispatchKernel:
    """Constants before any row of the table: another accelerator's, or shares of the links."""
    facts, line = _facts(), _line_rate(call.accelerator)
    port = facts.number("port_bytes_per_s")
    mode, prefix = _ELSEWHERE.get(call.mode, ("", ""))
    scope = "several_nodes" if call.nodes > 1 else "one_node"
    found = [
        kernel
        for kernel in known.kernels
        if (kernel.label("mode"), kernel.label("op")) == (mode, prefix + call.op)
        and kernel.label("scope") in (scope, "any")
        and kernel.accelerator != call.accelerator
    ]
    if not found:
        return known.nearest(call.accelerator, call.mode, call.op).record.replace(
            launch_s=facts.number("launch_s"),
            doubling_s=0.0,
            block_bytes_per_s=0.0,
            domain_bytes_per_s=facts.fraction("share_fraction") * line,
            network_bytes_per_s=port,
        )
    kernel = min(
        found, key=lambda k: (distance(k.accelerator, call.accelerator), k.label("scope") != "any")
    )
    scaled = kernel.record.domain_bytes_per_s * line / _line_rate(kernel.accelerator)
    return kernel.record.replace(
        domain_bytes_per_s=min(scaled, line),
        network_bytes_per_s=kernel.record.network_bytes_per_s or port,
    )


def _ranges(begin: _core.DispatchKernel, line: float) -> list[tuple[str, float, float, list[str]]]:
    """Constants that move, between a trace and all of what their hardware gives."""
    facts = _facts()
    least, port = facts.fraction("least_share_fraction"), facts.number("port_bytes_per_s")
    launches = (facts.number("least_launch_s"), facts.number("largest_launch_s"))
    ranges: list[tuple[str, float, float, list[str]]] = [
        ("launch_s", *launches, []),
        ("domain_bytes_per_s", least * line, line, []),
        ("network_bytes_per_s", least * port, port, []),
    ]
    if begin.block_bytes_per_s:
        ranges.append(("block_bytes_per_s", least * port, line, []))
    return ranges


def _fitted(
    begin: _core.DispatchKernel, call: Call, others: Sequence[_Timed]
) -> _core.DispatchKernel:
    """The constants after the rows of other systems, each of which counts as one."""
    line = _line_rate(call.accelerator)
    rows = [
        (*each.call.columns(), each.call.value_bytes, _line_rate(each.call.accelerator) / line)
        for each in others
    ]
    counts = Counter(each.system for each in others)
    record: _core.DispatchKernel
    record, *_ = _core.fit_dispatch(
        begin,
        np.array(rows),
        np.array([each.time_s for each in others]),
        np.array([1 / counts[each.system] for each in others]),
        np.zeros(len(others), dtype=int),
        _ranges(begin, line),
    )
    return record


def _timed(row: Row, known: Dispatches) -> _Timed:
    """A row as a call with its time, where it states one."""
    call = call_of(row, known)
    if call.mode in _ON_BLOCKS and not call.blocks:
        call = call._replace(blocks=_blocks())
    latency, rate = row.number("latency_us"), row.number("bandwidth_GB_s")
    time_s = 1e-6 * latency if latency else None
    if time_s is None and rate:
        time_s = call.counted_bytes / (1e9 * rate)
    return _Timed(call, (call.mode, call.accelerator, call.ranks), time_s)


def _exchanges(table: Table) -> list[Prediction]:
    known = Dispatches()
    rows: list[_Timed | str] = []
    for row in table.select((*INPUT_COLUMNS["moe_a2a"], *_MEASURED_COLUMNS["moe_a2a"])):
        try:
            rows.append(_timed(row, known))
        except SkippedRowError as skipped:
            rows.append(str(skipped))
    timed = [each for each in rows if isinstance(each, _Timed)]
    constants: dict[tuple[object, ...], _core.DispatchKernel] = {}
    predictions = []
    for each in rows:
        if isinstance(each, str):
            predictions.append(Prediction(skip_reason=each))
            continue
        key = (each.system, each.call.op)
        if key not in constants:
            others = [other for other in timed if _teaches(other, each)]
            begin = _beginning(known, each.call)
            constants[key] = _fitted(begin, each.call, others) if others else begin
        predictions.append(predicted_call(each.call, constants[key], _NOTE))
    return predictions


def _teaches(other: _Timed, row: _Timed) -> bool:
    """Whether a row is of the library and direction of another, but of a different system."""
    alike = (other.call.mode, other.call.op) == (row.call.mode, row.call.op)
    return alike and other.system != row.system and other.time_s is not None


class _Rate(NamedTuple):
    """A long transfer of the table: who moves it over what, and the share of the links."""

    library: str
    system: tuple[str, str]
    share: float


def _place(row: Row) -> tuple[str, str]:
    return system_of(row), row.text("link") or row.text("link_peak_GB_s")


def _start(row: Row) -> _core.LogGP:
    """Time to post a transfer: keys and values of a layer lie in one run each.

    A test of block sizes has one block under way on every port.
    """
    post = _facts().number("post_s")
    ports = re.search(r"(\d+)\s*x", row.text("link"))
    if system_of(row) == "blocks" and ports:
        return _core.LogGP(latency_s=post / int(ports[1]))
    try:
        layers = resolve.model(model_of(row.text("model").split(" TP")[0])).shape.layers
    except (ScaleModelError, SkippedRowError):
        layers = 0
    return _core.LogGP(latency_s=max(1, 2 * layers) * post)


def _rates(rows: Sequence[Row]) -> list[_Rate]:
    """The longest transfer of every system, as a share of its links."""
    found: dict[tuple[str, str], tuple[float, _Rate]] = {}
    for row in rows:
        peak, rate = row.number("link_peak_GB_s"), row.number("bandwidth_GB_s")
        if not peak or not rate or peak <= 0:
            continue
        size, place = row.number("bytes_MB") or LONG_BYTES / 1e6, _place(row)
        each = _Rate(row.text("system").lower(), place, rate / peak)
        if place not in found or size >= found[place][0]:
            found[place] = (size, each)
    return [each for _, each in found.values()]


def _share(row: Row, others: Sequence[float]) -> float:
    """Share of the links: of blocks what collectives reach, else the mean of other systems."""
    fabric = next((f for f in _FABRICS if f in row.text("link").lower()), "")
    if system_of(row) == "blocks" and fabric:
        table = Reader(catalog.load("interconnects", fabric), f"interconnects/{fabric}.toml")
        return table.fraction("bandwidth_fraction")
    return float(np.exp(np.mean(np.log(others)))) if others else _facts().fraction("share_fraction")


def _transfers(table: Table) -> list[Prediction]:
    rows = list(table.select((*INPUT_COLUMNS["kv_transfer"], *_MEASURED_COLUMNS["kv_transfer"])))
    rates, predictions = _rates(rows), []
    for row in rows:
        place, library = _place(row), row.text("system").lower()
        others = [each.share for each in rates if each.library == library and each.system != place]
        try:
            share = _share(row, others)
            predictions.append(predicted_transfer(row, _start(row), share, _NOTE))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
    return predictions


def predict(kind: str, table: Table) -> list[Prediction]:
    """One prediction per row of a table of kind ``moe_a2a`` or ``kv_transfer``, in order.

    Raises
    ------
    ScaleModelError
        The table lacks a column that every row would need. Nothing in a row raises.
    """
    needed = A2A_COLUMNS if kind == "moe_a2a" else KV_COLUMNS
    require_columns(table, needed, f"kind {kind!r} needs {', '.join(needed)}")
    return _exchanges(table) if kind == "moe_a2a" else _transfers(table)
