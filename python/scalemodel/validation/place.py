"""Where a published run took place: accelerators, nodes and networks, from what its row says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.validation.labels import understood
from scalemodel.validation.rows import Row, SkippedRowError

# One direction of a x16 slot after line coding, by PCIe generation.
_PCIE_BANDWIDTH = {3: "15.75 GB/s", 4: "31.5 GB/s", 5: "63 GB/s", 6: "121 GB/s"}

# First match wins: a row that names several networks (compute and management) is served by the
# first of this list.
_FABRICS = (
    ("omnipath", r"omni-?\s?path"),
    ("slingshot", r"slingshot"),
    ("efa", r"\befa\b|elastic fabric"),
    ("tcpx", r"tcpx|gpudirect-tcp"),
    ("infiniband", r"infini-?band|\bib\b|\b[hn]dr(\d+)?\b|\bselene\b|quantum"),
    ("roce", r"roce|\brdma\b|spectrum-x"),
    ("tpu_dcn", r"\bdcn\b|jupiter"),
    ("ethernet", r"ethernet|\d+\s?gbe|\bbf3\b"),
)


def frozen(table: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """A table as pairs, which compare and hash.

    Examples
    --------
    >>> frozen({"tp": 2})
    (('tp', 2),)
    """
    return tuple(table.items())


def accelerator_name(label: str, memory_gb: float | None) -> str:
    """Catalogue name of a label; a capacity beside it chooses among parts sold under one name.

    Raises
    ------
    SkippedRowError
        The catalogue does not know the label.
    """
    if memory_gb is not None and not re.search(r"\d\s*gi?b", label, re.IGNORECASE):
        try:
            return catalog.find("accelerators", f"{label}-{memory_gb:.0f}GB")
        except ScaleModelError:
            pass
    try:
        return understood("accelerators", label)[0]
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{label}") from None


@catalog.kept(1)
def _parts() -> Mapping[str, tuple[str, int, int]]:
    """Parts that software takes for accelerators: by the whole its part, parts in it, in a node."""
    entries = {name: catalog.load("accelerators", name) for name in catalog.names("accelerators")}
    return {
        part["accelerator"]: (name, part["count"]["value"], part["node"]["value"])
        for name, entry in entries.items()
        if (part := entry.get("part_of"))
    }


def _whole_of(accelerator: str) -> tuple[str, int]:
    """The accelerator that one is a part of, and how many parts it has; itself and 1 of others."""
    for whole, (part, count, _) in _parts().items():
        if part == accelerator:
            return whole, count
    return accelerator, 1


@catalog.kept(64)
def _usual_fabric(accelerator: str) -> tuple[str, float]:
    """Class of the network and Gbit/s of an accelerator, in the usual server of one.

    Those that are let and not sold stand in one kind of server, which the catalogue has.
    """
    for prefixes, rate in (
        (("a100", "a800"), 200),
        (("b300", "gb300"), 800),
        (("v100",), 100),
    ):
        if accelerator.startswith(prefixes):
            return "infiniband", rate
    if not accelerator.startswith(("tpu", "trainium", "inferentia")):
        return "infiniband", 400
    whole, count = _whole_of(accelerator)
    entries = {name: catalog.load("clusters", name) for name in catalog.names("clusters")}
    named = (name for name, entry in entries.items() if entry["accelerator"] == whole)
    name = next(named, "tpu_v4_pod")
    fabric = entries[name]["fabric"]
    where = f"clusters/{name}.toml"
    whole_rate = 8e-9 * parse_quantity(value_of(fabric["bandwidth"]), "bytes_per_s", where)
    return fabric["class"], whole_rate / count


def _fabric(
    row: Row, accelerator: str, parts: int, several_nodes: bool, notes: list[str]
) -> dict[str, str]:
    """Network of an accelerator; the row's rate is shared by ``parts`` of them."""
    usual, usual_rate = _usual_fabric(accelerator)
    rate = max(0.0, row.number("nic_gbps_per_gpu") or 0.0) / parts
    if rate == 0:
        rate = usual_rate
        if several_nodes:
            notes.append(f"nic {rate:g} Gbit/s assumed")
    network = row.text("network").lower()
    named = (name for name, pattern in _FABRICS if re.search(pattern, network))
    return {"bandwidth": f"{rate:g} Gbit/s", "class": next(named, usual)}


def _scale_up(row: Row, node_accelerators: int) -> dict[str, Any]:
    """Scale-up table when the row says PCIe; otherwise the accelerator's own entry holds."""
    text = row.text("nvlink").lower()
    if "pcie" not in text or "nvlink" in text:
        return {}
    found = re.search(r"(?:gen\s*|pcie\s*)(\d)", text)
    generation = int(found.group(1)) if found else 4
    generation = min(max(generation, min(_PCIE_BANDWIDTH)), max(_PCIE_BANDWIDTH))
    return {
        "class": f"pcie{min(generation, 5)}",
        "bandwidth": _PCIE_BANDWIDTH[generation],
        "domain": node_accelerators,
    }


def _node_accelerators(row: Row, accelerators: int, notes: list[str]) -> int:
    stated = row.count("gpus_per_node")
    node = min(stated or 8, accelerators)
    if stated is None and accelerators > node:
        notes.append("gpus_per_node 8 assumed")
    if accelerators % node:
        node = max(size for size in range(1, node + 1) if accelerators % size == 0)
        notes.append(f"{node} accelerators per node")
    return node


@dataclass(frozen=True)
class Place:
    """Where a row ran, as `scalemodel.cluster` takes it."""

    accelerator: str
    node_accelerators: int
    scale_up: tuple[tuple[str, Any], ...]
    fabric: tuple[tuple[str, Any], ...]
    accelerators: int


def cluster_of(where: Place) -> resolve.Cluster:
    """The cluster of a place."""
    table: dict[str, Any] = {
        "accelerator": where.accelerator,
        "node": {"accelerators": where.node_accelerators},
        "fabric": dict(where.fabric),
    }
    if where.scale_up:
        table["scale_up"] = dict(where.scale_up)
    return resolve.cluster(table, accelerators=where.accelerators)


class ClusterCache:
    """Clusters of serving rows, which tell accelerators and nodes only; kept from row to row."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, int, int], resolve.Cluster] = {}

    def cluster(self, accelerator: str, node: int, accelerators: int) -> resolve.Cluster:
        """A cluster of ``accelerators`` in nodes of ``node``."""
        key = (accelerator, node, accelerators)
        if key not in self._clusters:
            table = {"accelerator": accelerator, "node": {"accelerators": node}}
            self._clusters[key] = resolve.cluster(table, accelerators=accelerators)
        return self._clusters[key]


def _processes(row: Row) -> int:
    """Accelerators that the degrees of a row multiply to; 0 where it gives no data-parallel one."""
    tp, pp, cp = (row.count(name) or 1 for name in ("tp", "pp", "cp"))
    return tp * pp * cp * (row.count("dp") or 0)


def _counted(row: Row, accelerator: str, accelerators: int, notes: list[str]) -> tuple[str, int]:
    """The accelerator that a row's numbers count, and how many.

    Sources print an MI250X where they count its dies, and count Trainium devices where their
    degrees of parallelism count cores.
    """
    if accelerator not in _parts():
        return accelerator, accelerators
    part, count, node = _parts()[accelerator]
    if (row.count("gpus_per_node") or 0) >= node:
        notes.append(f"gpus_per_node counts {part}")
        return part, accelerators
    if _processes(row) == count * accelerators:
        notes.append(f"degrees count {part}")
        return part, count * accelerators
    return accelerator, accelerators


def place(row: Row, notes: list[str]) -> Place:
    """Cluster of a row.

    Raises
    ------
    SkippedRowError
        The accelerator is missing or unknown.
    """
    label = row.text("gpu")
    if not label:
        raise SkippedRowError("missing:gpu")
    accelerators = row.required_count("n_gpus")
    whole = accelerator_name(label, row.number("gpu_mem_GB"))
    accelerator, counted = _counted(row, whole, accelerators, notes)
    node = _node_accelerators(row, accelerators, notes) * (counted // accelerators)
    return Place(
        accelerator=accelerator,
        node_accelerators=node,
        scale_up=frozen(_scale_up(row, node)),
        fabric=frozen(_fabric(row, accelerator, counted // accelerators, counted > node, notes)),
        accelerators=counted,
    )


# ------------------------------------------------------------------------------- task and flags
