"""Where a published run took place: accelerators, nodes and networks, from what its row says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity, value_of
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
    from scalemodel import catalog

    if memory_gb is not None and not re.search(r"\d\s*gi?b", label, re.IGNORECASE):
        try:
            return catalog.find("accelerators", f"{label}-{memory_gb:.0f}GB")
        except ScaleModelError:
            pass
    try:
        return catalog.find("accelerators", label)
    except ScaleModelError:
        raise SkippedRowError(f"unknown_accelerator:{label}") from None


def _usual_nic_gbps(accelerator: str) -> int:
    """Network rate of the usual server of an accelerator, Gbit/s each."""
    for prefixes, rate in (
        (("a100", "a800"), 200),
        (("b300", "gb300"), 800),
        (("v100",), 100),
    ):
        if accelerator.startswith(prefixes):
            return rate
    if accelerator.startswith("tpu"):
        pod = f"{accelerator}_pod"
        entry = pod if pod in catalog.names("clusters") else "tpu_v4_pod"
        cell = value_of(catalog.load("clusters", entry)["fabric"]["bandwidth"])
        return round(8e-9 * parse_quantity(cell, "bytes_per_s", f"clusters/{entry}.toml"))
    return 400


def _fabric(row: Row, accelerator: str, several_nodes: bool, notes: list[str]) -> dict[str, str]:
    rate = row.number("nic_gbps_per_gpu")
    if rate is None or rate <= 0:
        rate = _usual_nic_gbps(accelerator)
        if several_nodes:
            notes.append(f"nic {rate} Gbit/s assumed")
    network = row.text("network").lower()
    named = (name for name, pattern in _FABRICS if re.search(pattern, network))
    usual = "tpu_dcn" if accelerator.startswith("tpu") else "infiniband"
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
    accelerator = accelerator_name(label, row.number("gpu_mem_GB"))
    node = _node_accelerators(row, accelerators, notes)
    return Place(
        accelerator=accelerator,
        node_accelerators=node,
        scale_up=frozen(_scale_up(row, node)),
        fabric=frozen(_fabric(row, accelerator, accelerators > node, notes)),
        accelerators=accelerators,
    )


# ------------------------------------------------------------------------------- task and flags
