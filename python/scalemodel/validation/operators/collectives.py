"""Timed collectives: a row becomes a group on a network, the group a prediction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster
from scalemodel.resolve.networks import custom_all_reduce
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.rows import Row, SkippedRowError

REQUIRED: tuple[str, ...] = ("gpu", "gpus", "op", "bytes")
OPTIONAL: tuple[str, ...] = ("nodes", "gpus_per_node", "interconnect", "dtype", "nccl", "algo")

_P2P = "p2p"
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": _P2P,
    "broadcast": "all_gather",
    "reduce": "reduce_scatter",
}
_ONE_BUFFER = ("broadcast", "reduce")
_ALGORITHMS = {
    "ring": "ring",
    "tree": "tree",
    "nvls": "nvls",
    "nvlstree": "nvls_tree",
    "pat": "pat",
    "sharp": "sharp",
    "collnet": "sharp",
}
_NARROW_REDUCTION = re.compile(r"\bu?int\d*|char")

# First match wins.
_SCALE_UP = (
    ("nvlink{}", r"nvlink\s?(\d)"),
    ("nvlink5", r"nvl72"),
    ("pcie{}", r"pcie\s?(?:gen\s?)?(\d)"),
    ("infinity_fabric", r"infinity.?fabric|xgmi"),
)
#: NVSwitch generations join the NVLink generation one above.
_NVSWITCH = re.compile(r"nvswitch\s?(\d)")
_FABRICS = (
    ("efav1", r"efa\s?v1\b"),
    ("efa", r"\befa"),
    ("tcpxo", r"tcpxo"),
    ("tcpx", r"tcpx"),
    ("omnipath", r"omni-?\s?path"),
    ("slingshot", r"slingshot"),
    ("infiniband", r"infini-?band|\bib\b|\b[hnx]dr(\d+)?\b"),
    ("roce", r"roce|rdma|cx\d"),
    ("ethernet", r"ethernet|tcp\b|\d+\s?gbe"),
)
_COUNTED_RATE = re.compile(r"(\d+)\s?x\s?(?:[hnx]dr)?(\d+)(?:\s?gb|\s?ib|\b)")
_PORT_RATE = re.compile(r"\b[hnx]dr(\d{2,})\b")
_NODE_RATE = re.compile(r"\b(\d{2,})\s?gb")
_PCIE_BANDWIDTH = {3: "15.75 GB/s", 4: "31.5 GB/s", 5: "63 GB/s"}
_LINK_BANDWIDTH = {  # one way, per accelerator, of a full set of links
    "nvlink2": "150 GB/s",
    "nvlink3": "300 GB/s",
    "nvlink4": "450 GB/s",
    "nvlink5": "900 GB/s",
    "nvlink6": "1800 GB/s",
}


@dataclass(frozen=True)
class _Group:
    """Everything but the size; rows of equal groups are predicted by one call."""

    accelerator: str
    ranks: int
    per_domain: int
    scale_up: tuple[tuple[str, Any], ...]
    fabric: tuple[tuple[str, Any], ...]
    op: str
    algorithm: str = "best"
    kernel: str = ""
    engine_version: str = ""
    switch_reduces: bool = True


@dataclass(frozen=True)
class _Reading:
    """What a row asks for, whatever its size."""

    group: _Group
    buffers: float  # sizes of the question per size of the row
    note: str


def predict(rows: Sequence[Row]) -> list[OperatorPrediction]:
    """Predicted time of every row; what cannot be predicted carries a skip reason.

    Examples
    --------
    >>> cells = {"gpu": "H100", "gpus": "8", "op": "all_reduce", "bytes": "1073741824"}
    >>> (found,) = predict([Row(cells)])
    >>> 3000 < found.time_us < 6000
    True
    """
    predictions: list[OperatorPrediction | None] = [None] * len(rows)
    groups: dict[_Group, list[tuple[int, float, str]]] = {}
    read: dict[tuple[str, ...], _Reading | SkippedRowError] = {}  # rows differ in size, mostly
    for index, row in enumerate(rows):
        key = tuple(row.text(column) for column in (*REQUIRED[:-1], *OPTIONAL))
        if key not in read:
            read[key] = _try_reading(row)
        try:
            reading = read[key]
            if isinstance(reading, SkippedRowError):
                raise reading
            size_bytes = reading.buffers * row.required_count("bytes")
        except SkippedRowError as skipped:
            predictions[index] = OperatorPrediction(None, str(skipped))
        else:
            groups.setdefault(reading.group, []).append((index, size_bytes, reading.note))
    for group, members in groups.items():
        try:
            times_s = _times_s(group, np.array([size for _, size, _ in members]))
        except SkippedRowError as skipped:
            for index, _, _ in members:
                predictions[index] = OperatorPrediction(None, str(skipped))
            continue
        for (index, _, note), time_s in zip(members, times_s.tolist(), strict=True):
            good = np.isfinite(time_s) and time_s > 0
            predictions[index] = (
                OperatorPrediction(1e6 * time_s, note=note)
                if good
                else OperatorPrediction(None, "illegal:bytes")
            )
    return [found or OperatorPrediction(None, "illegal:row") for found in predictions]


def _times_s(group: _Group, sizes_bytes: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    cluster = _cluster(
        group.accelerator, group.ranks, group.per_domain, group.scale_up, group.fabric
    )
    core = cluster.core
    if group.op == _P2P:
        return np.array([_core.p2p_time_s(size, group.ranks, 1, core) for size in sizes_bytes])
    if not group.switch_reduces:
        core = core.replace(scale_up=core.scale_up.replace(in_switch=_core.InSwitchFit()))
    if group.kernel:
        kernel = custom_all_reduce(
            _link_class(group), group.kernel, group.engine_version, group.accelerator
        )
        if kernel is None or group.op != "all_reduce" or group.per_domain < group.ranks:
            raise SkippedRowError("unsupported:kernel")
        bandwidth = core.scale_up.bandwidth_bytes_per_s
        return _core.custom_all_reduce_times_s(sizes_bytes, group.ranks, bandwidth, kernel)
    try:
        return _core.collective_times_s(
            group.op, sizes_bytes, group.ranks, 1, core, group.algorithm
        )
    except ValueError:
        raise SkippedRowError("unsupported:algo") from None


def _link_class(group: _Group) -> str:
    named = dict(group.scale_up).get("class")
    if named is None:
        named = catalog.load("accelerators", group.accelerator).get("scale_up", {}).get("class")
        named = named.get("value") if isinstance(named, dict) else named
    return str(named or "pcie5")


@catalog.kept(512)
def _cluster(
    accelerator: str,
    ranks: int,
    per_domain: int,
    scale_up: tuple[tuple[str, Any], ...],
    fabric: tuple[tuple[str, Any], ...],
) -> Cluster:
    table = {
        "name": "row",
        "accelerator": accelerator,
        "node": {"accelerators": per_domain},
        "scale_up": dict(scale_up),
        "fabric": dict(fabric),
    }
    try:
        return resolve.cluster(table, accelerators=ranks)
    except ScaleModelError as error:
        raise SkippedRowError(f"illegal:{error.code}") from None


# ------------------------------------------------------------------------------ reading a row


def _try_reading(row: Row) -> _Reading | SkippedRowError:
    try:
        return _read(row)
    except SkippedRowError as skipped:
        return skipped


def _read(row: Row) -> _Reading:
    notes: list[str] = []
    for column in REQUIRED[:-1]:
        if not row.text(column):
            raise SkippedRowError(f"missing:{column}")
    named = re.sub(r"[\s_\-]", "", row.text("op").lower())
    op = _OPERATIONS.get(named)
    if op is None:
        raise SkippedRowError(f"unsupported:{row.text('op')}")
    ranks = row.required_count("gpus")
    if ranks < 2:
        raise SkippedRowError("illegal:gpus")
    links = row.text("interconnect").lower()
    inside, _, outside = links.partition("+")
    if "pairwise" in inside:  # bridges join two cards; beyond them the slots carry all
        inside = inside if ranks <= 2 else re.sub(r".*nvlink\s?(\d).*", _slot, inside)
        outside = outside.partition("+")[2]
    per_domain, nodes = _placement(row, ranks, links, notes)
    accelerator = _accelerator(row, inside, notes)
    scale_up = _scale_up(inside, per_domain)
    in_node = row.count("gpus_per_node") or max(per_domain, 8)
    fabric = _fabric(outside if "+" in links else links, accelerator, nodes, in_node, notes)
    buffers = 1.0
    if named in _ONE_BUFFER:  # no rank keeps a shard: the whole buffer passes every link
        buffers = ranks / (ranks - 1)
        notes.append(f"{named} as a ring {op} of one buffer")
    kernel, algorithm, version = _kernel(row)
    narrow = _NARROW_REDUCTION.search(row.text("dtype").lower()) is not None
    return _Reading(
        _Group(
            accelerator=accelerator,
            ranks=ranks,
            per_domain=per_domain,
            scale_up=scale_up,
            fabric=fabric,
            op=op,
            algorithm="ring" if named in _ONE_BUFFER else algorithm,
            kernel=kernel,
            engine_version=version,
            # The switch adds floating-point numbers only; moving data knows no type.
            switch_reduces=not (narrow and op in ("all_reduce", "reduce_scatter")),
        ),
        buffers,
        "; ".join(notes),
    )


def _slot(found: re.Match[str]) -> str:
    """PCIe generation of the servers of an NVLink generation: 3 and 4, 4 and 5."""
    return f"pcie{min(5, int(found.group(1)) + 1)}"


def _placement(row: Row, ranks: int, links: str, notes: list[str]) -> tuple[int, int]:
    """Ranks per scale-up domain and domains."""
    nodes, in_node = row.count("nodes"), row.count("gpus_per_node")
    if nodes is None:
        nodes = -(-ranks // (in_node or ranks))
        if nodes > 1:
            notes.append(f"{nodes} nodes")
    per_node = -(-ranks // min(nodes, ranks))
    rack = 72 if re.search(r"nvl\s?72|\bgb[23]00", links + " " + row.text("gpu").lower()) else 0
    per_domain = per_node
    if rack and per_node <= 8 and nodes > 1:  # trays of one rack share its domain
        per_domain = min(ranks, rack)
    return per_domain, -(-ranks // per_domain)


def _accelerator(row: Row, inside: str, notes: list[str]) -> str:
    label = row.text("gpu")
    plain = re.sub(r"\(.*?\)", "", label).strip()
    server = re.sub(r"[\s-]*(server|workstation)\b.*", "", plain, flags=re.IGNORECASE)
    for name in (label, plain, server):
        try:
            return catalog.find("accelerators", name)
        except ScaleModelError:
            continue
    if any(re.search(pattern, inside) for _, pattern in _SCALE_UP):
        notes.append(f"accelerator {label} unknown, only its links count")
        return "l40s"
    raise SkippedRowError(f"unknown_accelerator:{label}")


def _scale_up(inside: str, per_domain: int) -> tuple[tuple[str, Any], ...]:
    """Link class as the row names it; otherwise the accelerator's own."""
    table: dict[str, Any] = {"domain": per_domain}
    named = ""
    for name, pattern in _SCALE_UP:
        found = re.search(pattern, inside)
        if found is not None:
            named = name.format(*found.groups())
            break
    switch = _NVSWITCH.search(inside)
    if not named and switch is not None:
        named = f"nvlink{int(switch.group(1)) + (1 if switch.group(1) == '1' else 0)}"
    if named.startswith("pcie"):
        generation = min(5, max(3, int(named[4:])))
        table |= {"class": f"pcie{generation}", "bandwidth": _PCIE_BANDWIDTH[generation]}
    elif named in _LINK_BANDWIDTH:
        table |= {"class": named, "bandwidth": _LINK_BANDWIDTH[named]}
    return tuple(sorted(table.items()))


def _fabric(
    outside: str, accelerator: str, nodes: int, in_node: int, notes: list[str]
) -> tuple[tuple[str, Any], ...]:
    """Class and rate per accelerator; adapters count per node unless the text says per GPU."""
    if nodes == 1:
        return ()
    counted, port, node = (
        pattern.search(outside) for pattern in (_COUNTED_RATE, _PORT_RATE, _NODE_RATE)
    )
    if counted is not None:
        rate = float(counted.group(1)) * float(counted.group(2)) / in_node
    elif port is not None:
        rate = float(port.group(1))
    elif node is not None:
        rate = float(node.group(1)) / in_node
    else:
        rate = next((r for name, r in _USUAL_GBPS if accelerator.startswith(name)), 400.0)
        notes.append(f"network {rate:g} Gbit/s per accelerator assumed")
    named = (name for name, pattern in _FABRICS if re.search(pattern, outside))
    fabric_class = next(named, "infiniband")
    return (("bandwidth", f"{rate:.12g} Gbit/s"), ("class", fabric_class))


#: Network rate of the usual server of an accelerator, Gbit/s each.
_USUAL_GBPS = (("a100", 200.0), ("a800", 200.0), ("v100", 50.0), ("b300", 800.0), ("gb300", 800.0))


def _kernel(row: Row) -> tuple[str, str, str]:
    """Engine kernel, library algorithm and engine version."""
    text = re.sub(r"[^a-z0-9]", "", row.text("algo").lower())
    version = re.search(r"\d+(?:\.\d+)*", row.text("nccl"))
    if not text or text in ("default", "auto", "nccl"):
        return "", "best", ""
    if text in _ALGORITHMS:
        return "", _ALGORITHMS[text], ""
    engine = next((name for name in ("sglang", "vllm", "trtllm") if name in text), None)
    if engine is None:
        raise SkippedRowError("unsupported:algo")
    mode = "" if engine == "trtllm" else "_eager" if "eager" in text else "_graph"
    return engine + mode, "best", version.group() if version else ""
