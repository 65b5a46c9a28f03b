"""Networks: link classes and their measured constants to engine values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.resolve.reader import Reader, Table, merged


def interconnect_table(name: str) -> dict[str, Any]:
    """A link class, laid over the one whose constants stand for what was not measured of it.

    Examples
    --------
    >>> pcie3, pcie5 = interconnect_table("pcie3"), interconnect_table("pcie5")
    >>> pcie3["all_reduce"]["host_share"] == pcie5["all_reduce"]["host_share"]
    True
    """
    table = catalog.load("interconnects", name)
    return merged(interconnect_table(table["kernels"]), table) if "kernels" in table else table


@catalog.kept(64)
def _interconnect(name: str, kind: str) -> dict[str, Any]:
    table = interconnect_table(name)
    if table.get("kind") != kind:
        raise ScaleModelError(
            f"class={name!r}: is a {table.get('kind')} network, a {kind} network is needed here"
        )
    return table


def _branches(reader: Reader) -> dict[str, float]:
    """The two branches of a form: short buffers and long ones."""
    return {
        "start1_s": reader.quantity("a1", "s"),
        "per_rank1_s": reader.quantity("l1", "s"),
        "bandwidth_fraction1": reader.number("b1"),
        "start2_s": reader.quantity("a2", "s"),
        "per_rank2_s": reader.quantity("l2", "s"),
        "bandwidth_fraction2": reader.number("b2"),
    }


def _collective(table: Table, op: str) -> _core.CollectiveFit:
    reader = Reader(table[op], op)
    return _core.CollectiveFit(
        **_branches(reader),
        pipeline_fill_s=reader.quantity("c", "s"),
        own_share=reader.number("own_share", 0.0),
        host_share=reader.number("host_share", 0.0),
    )


def _in_switch(table: Table) -> _core.InSwitchFit:
    """Constants of reduction in the switch; a class without that table has none."""
    if "in_switch" not in table:
        return _core.InSwitchFit()
    reader = Reader(table["in_switch"], "in_switch")
    return _core.InSwitchFit(
        start_s=reader.quantity("start", "s"),
        bandwidth_fraction=reader.number("bandwidth_fraction"),
        pipeline_fill_s=reader.quantity("fill", "s"),
    )


@catalog.kept(64)
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
        "in_switch": _in_switch(table),
        "carries_fabric": bool(value_of(table.get("carries_fabric", False))),
    }


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@catalog.kept(256)
def custom_all_reduce(
    link_class: str, kernel: str, version: str, accelerator: str = ""
) -> _core.CustomAllReduce | None:
    """Constants of an engine's own all-reduce, or None where the link class has no such kernel.

    The newest release that is not newer than `version` speaks for it, else the oldest known;
    an entry of the accelerator itself wins over one of its links alone.

    Examples
    --------
    >>> custom_all_reduce("nvlink4", "sglang_graph", "0.5.12").host_floor_s
    0.0
    >>> custom_all_reduce("infinity_fabric", "sglang_graph", "0.5.12") is None
    True
    """
    table = _interconnect(catalog.find("interconnects", link_class), "scale_up")
    entries = [entry for entry in table.get("custom_all_reduce", ()) if entry["kernel"] == kernel]
    own = [entry for entry in entries if accelerator in entry.get("accelerators", ())]
    entries = own or [entry for entry in entries if "accelerators" not in entry]
    if not entries:
        return None
    entries.sort(key=lambda entry: _version(entry["version"]))
    asked = _version(version)
    known = [entry for entry in entries if _version(entry["version"]) <= asked]
    reader = Reader((known or entries[:1])[-1], f"{link_class}.{kernel}")
    return _core.CustomAllReduce(
        **_branches(reader),
        host_share=reader.number("host_share", 0.0),
        host_floor_s=reader.quantity("host_floor", "s", 0.0),
    )


def _levels(reader: Reader) -> _core.HostLevels:
    """Switches and sockets of a host; a level that is not named joins all."""
    levels = _core.HostLevels(
        switched=reader.count("switched", 0),
        beyond_switch_bytes_per_s=reader.quantity("beyond_switch", "bytes_per_s", 0.0),
        socket=reader.count("socket", 0),
        beyond_socket_bytes_per_s=reader.quantity("beyond_socket", "bytes_per_s", 0.0),
    )
    reader.finish()
    for size, beyond in (
        (levels.switched, levels.beyond_switch_bytes_per_s),
        (levels.socket, levels.beyond_socket_bytes_per_s),
    ):
        if (size > 0) != (beyond > 0):
            raise ScaleModelError(f"{reader.where}: a level needs its size and its bandwidth")
    if levels.socket and not 0 < levels.switched <= levels.socket:
        raise ScaleModelError(f"{reader.where}.socket: needs switches inside it")
    return levels


def build_scale_up(reader: Reader) -> _core.ScaleUp:
    """The network inside a domain, with the constants of its link class.

    ``levels`` says what joins the accelerators of a host where it is not one switch: ``switched``
    of them below one PCIe switch or on one bridge, ``socket`` of them on one socket, and what
    crosses between these at once, ``beyond_switch`` and ``beyond_socket``.
    """
    link_class = reader.text("class", "pcie5")
    built = _core.ScaleUp(
        domain=reader.count("domain"),
        bandwidth_bytes_per_s=reader.quantity("bandwidth", "bytes_per_s"),
        levels=_levels(reader.sub("levels")),
        **_collectives(catalog.find("interconnects", link_class)),
    )
    reader.finish()
    return built


#: Axes of a strategy whose groups may get less than the fabric's bandwidth.
AXES = tuple(str(row["name"]) for row in _core.NetworkShares.fields())
#: The engine's bound: a slower network would be no network.
_LEAST_SHARE = 1e-9


def build_shares(table: object, where: str) -> _core.NetworkShares:
    """Parts of the fabric's bandwidth by axis; 1 where none is given."""
    if not isinstance(table, Mapping):
        raise ScaleModelError(f"{where}={table!r}: must be a table of shares by axis")
    shares: dict[str, float] = {}
    for axis, cell in table.items():
        share = value_of(cell)
        if axis == "source":
            continue
        if axis not in AXES:
            raise ScaleModelError(f"{where}.{axis}: unknown axis; must be one of {', '.join(AXES)}")
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            raise ScaleModelError(f"{where}.{axis}={share!r}: must be above 0 and at most 1")
        shares[axis] = max(float(share), _LEAST_SHARE)
    return _core.NetworkShares(**shares)


#: Builders that an entry may name under ``fabric.topology``, and what it may say of each.
TOPOLOGIES: Mapping[str, tuple[str, ...]] = {
    "rail_optimised": ("servers_per_unit", "spines"),
    "rail_only": (),
    "leaf_spine": ("nics_per_leaf", "spines"),
    "fat_tree": ("ports",),
}


def topology(table: object, where: str) -> tuple[str, dict[str, int]]:
    """Builder and whole numbers that an entry's ``fabric.topology`` names; empty where missing.

    Examples
    --------
    >>> topology({"builder": "leaf_spine", "nics_per_leaf": 16}, "fabric.topology")
    ('leaf_spine', {'nics_per_leaf': 16})
    """
    if not isinstance(table, Mapping):
        raise ScaleModelError(f"{where}={table!r}: must be a table")
    if not table:
        return "", {}
    builder = str(value_of(table.get("builder", "")))
    if builder not in TOPOLOGIES:
        raise ScaleModelError(
            f"{where}.builder={builder!r}: must be one of {', '.join(TOPOLOGIES)}"
        )
    numbers: dict[str, int] = {}
    for key, cell in table.items():
        if key in ("builder", "source"):
            continue
        if key not in TOPOLOGIES[builder]:
            raise ScaleModelError(
                f"{where}.{key}: unknown key; {nearest(str(key), TOPOLOGIES[builder])}",
                code="unknown_key",
            )
        number = value_of(cell)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ScaleModelError(f"{where}.{key}={number!r}: must be a positive whole number")
        numbers[key] = number
    return builder, numbers


@catalog.kept(64)
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
        in_network_reduction=reader.flag("in_network_reduction"),
        shares=build_shares(reader.table.get("shares", {}), f"{reader.where}.shares"),
        **_fabric_class(fabric_class),
    )
    topology(reader.table.get("topology", {}), f"{reader.where}.topology")
    reader.finish("shares", "topology")
    return built


def build_measured(curves: object, where: str) -> tuple[_core.MeasuredCurve, ...]:
    """Collectives timed on this very cluster, which win over the model where they apply.

    Every curve is a table with ``op``, ``ranks``, ``domains`` (1 when missing), ascending ``sizes``
    (quantities or bytes) and either ``times`` or ``bus_bandwidths``, as nccl-tests prints them.
    """
    if not isinstance(curves, Sequence) or isinstance(curves, str):
        raise ScaleModelError(f"{where}={curves!r}: must be a list of tables")
    most = len(_core.Cluster().measured)
    if len(curves) > most:
        raise ScaleModelError(f"{where}: {len(curves)} curves; at most {most}")
    built = [_measured(Reader(curve, f"{where}[{i}]")) for i, curve in enumerate(curves)]
    return (*built, *[_core.MeasuredCurve()] * (most - len(built)))


def _points(reader: Reader, key: str, dimension: str) -> list[float]:
    reader.known.add(key)
    cells = reader.table.get(key, ())
    if not isinstance(cells, Sequence) or isinstance(cells, str):
        raise ScaleModelError(f"{reader.where}.{key}={cells!r}: must be a list")
    return [parse_quantity(cell, dimension, f"{reader.where}.{key}") for cell in cells]


def _measured(reader: Reader) -> _core.MeasuredCurve:
    op = reader.text("op", "all_reduce")
    ranks, domains = reader.count("ranks"), reader.count("domains", 1)
    sizes = _points(reader, "sizes", "bytes")
    times = _points(reader, "times", "s")
    bandwidths = _points(reader, "bus_bandwidths", "bytes_per_s")
    reader.finish()
    empty = _core.MeasuredCurve().time_s
    if (bool(times) == bool(bandwidths)) or len(times or bandwidths) != len(sizes):
        raise ScaleModelError(
            f"{reader.where}: give times or bus_bandwidths, as many as sizes ({len(sizes)})"
        )
    if not 1 <= len(sizes) <= len(empty):
        raise ScaleModelError(
            f"{reader.where}.sizes: {len(sizes)} points; must be 1 to {len(empty)}"
        )
    if any(b <= a for a, b in pairwise(sizes)) or sizes[0] <= 0:
        raise ScaleModelError(f"{reader.where}.sizes={sizes}: must ascend from above zero")
    if min(times or bandwidths) <= 0 or ranks < 2:
        raise ScaleModelError(f"{reader.where}: ranks, times and bandwidths must be positive")
    passes = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks
    times = times or [passes * s / b for s, b in zip(sizes, bandwidths, strict=True)]
    padding = [0.0] * (len(empty) - len(sizes))
    return _core.MeasuredCurve(
        op=op, ranks=ranks, domains=domains, size_bytes=sizes + padding, time_s=times + padding
    )
