"""Timed collectives: a row becomes a group on a network, the group a prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.resolve import Cluster
from scalemodel.resolve.networks import custom_all_reduce
from scalemodel.resolve.reader import Reader
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.rows import Row, SkippedRowError

REQUIRED: tuple[str, ...] = ("gpu", "gpus", "op", "bytes")
OPTIONAL: tuple[str, ...] = (
    "nodes",
    "gpus_per_node",
    "interconnect",
    "dtype",
    "nccl",
    "algo",
)

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
# oneCCL counts its releases by the year.
_ONECCL = re.compile(r"20\d\d\.")
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
    host_s: float = 0.0  # CPU time of a call that shows


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
        return _core.custom_all_reduce_times_s(sizes_bytes, group.ranks, core.scale_up, kernel)
    try:
        times_s = _core.collective_times_s(
            group.op, sizes_bytes, group.ranks, 1, core, group.algorithm
        )
    except ValueError:
        raise SkippedRowError("unsupported:algo") from None
    return np.hypot(times_s, group.host_s)


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
        "scale_up": _thawed(scale_up),
        "fabric": _thawed(fabric),
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
    per_domain, nodes = _placement(row, ranks, links, notes)
    accelerator = _accelerator(row, inside, notes)
    scale_up = _scale_up(inside, per_domain, accelerator)
    if "pairwise" in inside:
        outside = outside.partition("+")[2]
        scale_up["levels"] = _bridges(inside)
    else:
        scale_up |= _host(accelerator, inside, notes)
    in_node = row.count("gpus_per_node") or max(per_domain, 8)
    fabric = _fabric(outside if "+" in links else links, accelerator, nodes, in_node, notes)
    if nodes > 1:
        fabric |= _network(links, notes)
    buffers = 1.0
    if op == "all_gather" and _ONECCL.match(row.text("nccl")):
        buffers = ranks
        notes.append("oneCCL counts what one rank gives")
    if named in _ONE_BUFFER:  # no rank keeps a shard: the whole buffer passes every link
        buffers = ranks / (ranks - 1)
        notes.append(f"{named} as a ring {op} of one buffer")
    kernel, algorithm, version = _kernel(row)
    host_s = 0.0
    plain_log = not row.text("nccl") and row.text("dtype").lower() in ("float", "float32", "fp32")
    if plain_log and nodes == 1 and op != _P2P and not kernel:
        host_s = _call_s(op)
    narrow = _NARROW_REDUCTION.search(row.text("dtype").lower()) is not None
    return _Reading(
        _Group(
            accelerator=accelerator,
            ranks=ranks,
            per_domain=per_domain,
            scale_up=_frozen(scale_up),
            fabric=_frozen(fabric),
            op=op,
            algorithm="ring" if named in _ONE_BUFFER else algorithm,
            kernel=kernel,
            engine_version=version,
            # The switch adds floating-point numbers only; moving data knows no type.
            switch_reduces=not (narrow and op in ("all_reduce", "reduce_scatter")),
            host_s=host_s,
        ),
        buffers,
        "; ".join(notes),
    )


def _frozen(table: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A table as a key."""
    return tuple(
        sorted((key, _frozen(v) if isinstance(v, Mapping) else v) for key, v in table.items())
    )


def _thawed(items: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {key: _thawed(v) if isinstance(v, tuple) else v for key, v in items}


def _host(accelerator: str, inside: str, notes: list[str]) -> dict[str, Any]:
    """Levels of the host of cards that nothing but their slots joins, where one is known."""
    if "switch" in inside or _scale_up_class(inside) not in ("", "pcie"):
        return {}
    for host in catalog.load("reference", "timed_collectives")["host"]:
        if host["accelerator"] == accelerator:
            notes.append(f"in the host of {host['cluster']}")
            return {"levels": catalog.load("clusters", host["cluster"])["scale_up"]["levels"]}
    return {}


def _scale_up_class(inside: str) -> str:
    """Kind of the links that a text names, without its generation."""
    found = (name for name, pattern in _SCALE_UP if re.search(pattern, inside))
    return next(found, "").rstrip("{}0123456789")


def _network(links: str, notes: list[str]) -> dict[str, Any]:
    """What words beside the adapters say of a network."""
    for network in catalog.load("reference", "timed_collectives")["network"]:
        if any(word in links for word in network["words"]):
            notes.append(f"{network['class']} network: {network['source']}")
            return {"class": network["class"]}
    return {}


def _call_s(op: str) -> float:
    """CPU time of a call that one process issues to every accelerator of a node."""
    reader = Reader(catalog.load("reference", "timed_collectives")["launch"], "launch")
    calls = reader.number("exchange_calls") if op == "all_to_all" else 1
    return calls * reader.quantity("call", "s")


def _bridges(inside: str) -> dict[str, Any]:
    """Levels of a host whose cards are joined in pairs: beyond them the slots carry all.

    Servers of NVLink 3 have PCIe 4, those of NVLink 4 PCIe 5.
    """
    reader = Reader(catalog.load("reference", "timed_collectives")["bridges"], "bridges")
    named = re.search(r"nvlink\s?(\d)", inside)
    slot = _PCIE_BANDWIDTH[min(5, int(named.group(1)) + 1) if named else 4]
    beyond = reader.number("slot_fraction") * parse_quantity(slot, "bytes_per_s", "slot")
    return {
        "switched": reader.count("accelerators"),
        "beyond_switch": f"{beyond:.12g} B/s",
    }


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


def _scale_up(inside: str, per_domain: int, accelerator: str) -> dict[str, Any]:
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
    own = catalog.load("accelerators", accelerator).get("scale_up", {})
    if named.startswith("pcie") and str(value_of(own.get("class", ""))).startswith(named):
        return table  # The accelerator knows how many lanes it has.
    if named.startswith("pcie"):
        generation = min(5, max(3, int(named[4:])))
        table |= {"class": f"pcie{generation}", "bandwidth": _PCIE_BANDWIDTH[generation]}
    elif named in _LINK_BANDWIDTH:
        table |= {"class": named, "bandwidth": _LINK_BANDWIDTH[named]}
    return table


def _fabric(
    outside: str, accelerator: str, nodes: int, in_node: int, notes: list[str]
) -> dict[str, Any]:
    """Class and rate per accelerator; adapters count per node unless the text says per GPU."""
    if nodes == 1:
        return {}
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
    return {"bandwidth": f"{rate:.12g} Gbit/s", "class": fabric_class}


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
