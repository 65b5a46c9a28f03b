"""Networks: link classes and their measured constants to engine values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from scalemodel import _core, catalog
from scalemodel.errors import ScaleModelError
from scalemodel.resolve.reader import Reader, Table


@lru_cache(maxsize=64)
def _interconnect(name: str, kind: str) -> dict[str, Any]:
    table = catalog.load("interconnects", name)
    if table.get("kind") != kind:
        raise ScaleModelError(
            f"class={name!r}: is a {table.get('kind')} network, a {kind} network is needed here"
        )
    return table


def _collective(table: Table, op: str) -> _core.CollectiveFit:
    reader = Reader(table[op], op)
    return _core.CollectiveFit(
        start1_s=reader.quantity("a1", "s"),
        per_rank1_s=reader.quantity("l1", "s"),
        bandwidth_fraction1=reader.number("b1"),
        start2_s=reader.quantity("a2", "s"),
        per_rank2_s=reader.quantity("l2", "s"),
        bandwidth_fraction2=reader.number("b2"),
        pipeline_fill_s=reader.quantity("c", "s"),
    )


@lru_cache(maxsize=64)
def _collectives(link_class: str) -> dict[str, Any]:
    table = _interconnect(link_class, "scale_up")
    p2p = Reader(table["p2p"], "p2p")
    return {
        **{
            op: _collective(table, op)
            for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
        },
        "p2p_latency_s": p2p.quantity("latency", "s"),
        "p2p_fraction": p2p.number("bandwidth_fraction"),
    }


def build_scale_up(reader: Reader) -> _core.ScaleUp:
    """The network inside a domain, with the constants of its link class."""
    link_class = reader.text("class", "pcie5")
    built = _core.ScaleUp(
        domain=reader.count("domain"),
        bandwidth_bytes_per_s=reader.quantity("bandwidth", "bytes_per_s"),
        **_collectives(catalog.find("interconnects", link_class)),
    )
    reader.finish()
    return built


@lru_cache(maxsize=64)
def _fabric_class(name: str) -> dict[str, float]:
    table = _interconnect(name, "fabric")
    reader = Reader(table, f"interconnects/{name}")
    p2p = reader.sub("p2p")
    constants = {
        f"{hop}_s": reader.quantity(hop, "s")
        for hop in ("ring_hop_ll128", "ring_hop_simple", "tree_hop_ll128", "tree_hop_simple")
    }
    constants["latency_factor"] = reader.number("latency_factor")
    constants["bandwidth_fraction"] = reader.number("bandwidth_fraction")
    constants["all_to_all_fraction"] = reader.number("all_to_all_fraction")
    constants["p2p_latency_s"] = p2p.quantity("latency", "s")
    constants["p2p_fraction"] = p2p.number("bandwidth_fraction")
    return constants


def build_fabric(reader: Reader) -> _core.Fabric:
    """The network between domains, with the constants of its class."""
    defaults = catalog.load("reference", "cluster_defaults")
    usual = Reader(defaults["fabric"], "reference/cluster_defaults.fabric")
    fabric_class = catalog.find("interconnects", reader.text("class", "infiniband"))
    built = _core.Fabric(
        bandwidth_bytes_per_s=reader.quantity(
            "bandwidth", "bytes_per_s", usual.quantity("bandwidth", "bytes_per_s")
        ),
        oversubscription=reader.number("oversubscription", 1.0),
        pod=reader.count("pod", 0),
        **_fabric_class(fabric_class),
    )
    reader.finish()
    return built
