"""Clusters: accelerators, nodes, networks and prices put together."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments, number_meant
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.resolve.networks import build_fabric, build_measured, build_scale_up, build_shares
from scalemodel.resolve.prices import Price, entry_price, usual_price
from scalemodel.resolve.reader import Reader, Table, freeze, is_path, merged
from scalemodel.resolve.unknown import (
    accelerator_meant,
    clusters_with,
    is_model,
    no_file,
    swapped,
    unknown_cluster,
)

#: Key of the parts of a cluster file that describes several kinds.
PARTS_KEY = "part"


@dataclass(frozen=True)
class Cluster:
    """Accelerators, their networks and their nodes. Made by `cluster`; hashable, picklable.

    Attributes
    ----------
    name, title, accelerator : str
        `accelerator` is the catalogue name.
    core : _core.Cluster
        Every number, in base units.
    table : mapping
        The entry it was made of, its accelerator's in place of the name.

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.cluster("dgx_h100", nodes=2)
    >>> cluster.accelerators, cluster.accelerator, cluster.core.scale_up.domain
    (16, 'h100_sxm_80', 8)
    """

    name: str
    core: _core.Cluster
    title: str = field(default="", compare=False)
    accelerator: str = field(default="", compare=False)
    price_source: str = field(default="", compare=False)
    table: Table = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for key in ("name", "title", "accelerator", "price_source"):
            object.__setattr__(self, key, plain(getattr(self, key)))

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return int(self.core.accelerators)

    @property
    def nodes(self) -> float:
        """Nodes of the job."""
        return self.accelerators / int(self.core.node_accelerators)

    @property
    def price(self) -> Price | None:
        """The price of an accelerator with its seller, terms and date; None without one.

        Examples
        --------
        >>> import scalemodel as sm
        >>> str(sm.cluster("dgx_h100").price)
        '2.99 USD/h (Lambda, on demand, 2026-03)'
        """
        usd = float(self.core.price_usd_per_s)
        if not usd:
            return None
        if self.price_source in catalog.names("prices"):
            listed = entry_price(self.price_source)
            if listed.usd_per_s == usd:
                return listed
        return Price(usd, self.price_source or "as given")

    @property
    def announced(self) -> str:
        """Who announced hardware that is not known to be sold; empty where it is sold.

        Examples
        --------
        >>> import scalemodel as sm
        >>> sm.cluster("vera_rubin_nvl72")
        Cluster('vera_rubin_nvl72', 72 x rubin, announced)
        """
        accelerator = self.table.get("accelerator")
        return (
            plain(str(accelerator.get("announced", ""))) if isinstance(accelerator, Mapping) else ""
        )

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.core))

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, object]:
        kept = ("name", "core", "title", "accelerator", "price_source", "table")
        return {key: getattr(self, key) for key in kept}

    def __repr__(self) -> str:
        status = ", announced" if self.announced else ""
        return f"Cluster({self.name!r}, {self.accelerators} x {self.accelerator}{status})"


#: What stands for a cluster in a question.
ClusterLike = str | Path | Cluster | dict[str, Any]


def _topology(table: Table) -> object:
    fabric = table.get("fabric")
    return fabric.get("topology") if isinstance(fabric, Mapping) else None


def _with_base(source: Table, derived: tuple[str, ...]) -> dict[str, Any]:
    """A table with what it does not say taken from the cluster that it is based on."""
    base = source.get("base")
    if base is None:
        return dict(source)
    if str(base) in derived:
        raise ScaleModelError(
            f"base={base!r}: leads back to itself; an entry takes from one of another name"
        )
    table = merged(
        cluster_table(str(base), (*derived, str(base)))[0],
        {key: cell for key, cell in source.items() if key != "base"},
    )
    topology = _topology(source)
    if isinstance(topology, Mapping) and "builder" in topology:
        # Another builder has parameters of its own: nothing of the old one's stays.
        table["fabric"] = {**table["fabric"], "topology": topology}
    return table


def cluster_table(
    source: str | Path | Table, derived: tuple[str, ...] = ()
) -> tuple[dict[str, Any], str]:
    """Table of a cluster with what it inherits filled in, and its name.

    `derived` names the clusters that are based on it.
    """
    if isinstance(source, Mapping):
        table = _with_base(source, derived)
        return table, str(source.get("name", table.get("name", "cluster")))
    text = str(source)
    if is_path(source, (".toml",), ("clusters",)):
        try:
            return _with_base(catalog.read_toml(Path(text)), (*derived, text)), text
        except ScaleModelError as error:
            if error.code == "unreadable_file" and not os.path.exists(text):
                raise no_file("cluster", text, error) from None
            raise
    try:
        name = catalog.find("clusters", text)
    except ScaleModelError as error:
        accelerator = accelerator_meant(text)
        if accelerator is None:
            raise unknown_cluster(text, error) from None
        return {"accelerator": accelerator}, accelerator
    return _with_base(catalog.load("clusters", name), (*derived, name)), name


def _count(value: object, argument: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e3 nodes
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100_000_000:
        meant = number_meant(value) if isinstance(value, str) else None
        likely = f"; did you mean {argument}={meant}?" if meant else ""
        raise ScaleModelError(f"{argument}={value!r}: must be a whole number from 1 to 1e8{likely}")
    return value


def _say_generic(source: str, built: Cluster) -> None:
    """An accelerator was named in the place of a cluster: what was taken for the rest."""
    core, known = built.core, clusters_with(built.accelerator)
    gbit = 8e-9 * core.fabric.bandwidth_bytes_per_s
    listed = f"clusters with it: {', '.join(known)}; " if known else ""
    warnings.warn(
        f"cluster={source!r}: is the accelerator {built.accelerator}, taken in nodes of "
        f"{core.node_accelerators} with the usual network, {gbit:.4g} Gbit/s each; {listed}"
        f"cluster={{'accelerator': {built.accelerator!r}}} says the same without this warning",
        stacklevel=4,
    )


def _say_part_nodes(count: int, built: Cluster) -> None:
    """Jobs of several nodes take whole ones."""
    each = int(built.core.node_accelerators)
    if count > each and count % each:
        warnings.warn(
            f"accelerators={count}: are {count / each:.4g} nodes of {built.name}, which has "
            f"{each} in each; groups cross nodes unevenly then, so give a multiple of {each} "
            f"(nodes={-(-count // each)} is {-(-count // each) * each})",
            stacklevel=4,
        )


@named_arguments
def cluster(
    source: str | Path | Table | Cluster,
    *,
    nodes: int | None = None,
    accelerators: int | None = None,
) -> Cluster:
    """A cluster from the catalogue, a TOML file or a table of overrides.

    Parameters
    ----------
    source : str, Path or mapping
        Catalogue name or alias, path of a ``.toml`` entry, an accelerator's name (a generic node of
        it, with a warning), or a mapping with the keys of an entry:
        ``{"base": "dgx_h100", "fabric": {"bandwidth": "800 Gbit/s"}}`` changes an entry, as the
        same keys of a file do, ``{"accelerator": "H100"}`` builds one with what is usual for that
        accelerator. The accelerator may itself be a mapping with a ``base``.
    nodes, accelerators : int, optional
        Size of the job; give one of them. Default: the entry's ``nodes``.

    Raises
    ------
    ScaleModelError : unknown name or key, wrong unit, impossible number; the message names it.

    Warns
    -----
    UserWarning : the name of an accelerator was given; or several nodes, the last of them in part.

    Examples
    --------
    >>> cluster("dgx_h100", nodes=64).accelerators
    512
    >>> faster = cluster({"base": "dgx_h100", "fabric": {"bandwidth": "800 Gbit/s"}}, nodes=2)
    >>> faster.core.fabric.bandwidth_bytes_per_s
    100000000000.0
    """
    if nodes is not None and accelerators is not None:
        raise ScaleModelError(
            f"nodes={nodes}, accelerators={accelerators}: give one of the two, a whole number from "
            "1; the other follows from the nodes of the cluster"
        )
    if nodes is not None:
        nodes = _count(nodes, "nodes")
    if accelerators is not None:
        accelerators = _count(accelerators, "accelerators")
    if isinstance(source, Cluster):
        built = source
    elif is_model(source):
        raise swapped("cluster", source)
    elif isinstance(source, (str, Path, Mapping)):
        table, name = cluster_table(source)
        built = _build_cluster(table, name)
        if isinstance(source, str) and table.keys() == {"accelerator"}:
            _say_generic(source, built)
        if nodes is None and accelerators is None:
            nodes = _count(Reader(table, name).count("nodes", 1), "nodes")
    else:
        raise ScaleModelError(
            f"cluster={source!r}: must be a catalogue name, a path or a mapping, such as 'dgx_h100'"
        )
    per_node = int(built.core.node_accelerators)
    count = accelerators if accelerators is not None else (nodes or 0) * per_node
    if count == 0:
        return built
    _say_part_nodes(count, built)
    return Cluster(
        name=built.name,
        core=built.core.replace(accelerators=count),
        title=built.title,
        accelerator=built.accelerator,
        price_source=built.price_source,
        table=built.table,
    )


class ReportsShares(Protocol):
    """A report of what a network leaves to the axes of a job."""

    def shares(self) -> dict[str, float]:
        """Share of the ideal bandwidth by axis."""


#: What ``network=`` takes.
Network: TypeAlias = ReportsShares | Mapping[str, float] | None


def with_network(cluster: Cluster, network: Network) -> Cluster:
    """The cluster whose fabric leaves every axis its share of the bandwidth.

    Parameters
    ----------
    network : NetworkReport, mapping of axis to share, or None
        What `sm.route` reports of one job, or shares above 0 and at most 1 by axis (tp, cp, ep,
        pp, dp), 1 where left out; they replace the cluster's own. None: the cluster as it is.

    Raises
    ------
    ScaleModelError : unknown axis, a share out of range, a report of several jobs or without paths.

    Examples
    --------
    >>> with_network(cluster("dgx_h100", nodes=4), {"dp": 0.5}).core.fabric.shares.dp
    0.5
    """
    if network is None:
        return cluster
    reported = getattr(network, "shares", None)
    table: object = reported() if callable(reported) else network
    if not isinstance(table, Mapping):
        raise ScaleModelError(
            f"network={network!r}: must be what sm.route reports of jobs, or shares by axis"
        )
    shares = build_shares(table, "network")
    if shares == cluster.core.fabric.shares:
        return cluster
    entry = {**cluster.table, "fabric": {**cluster.table.get("fabric", {}), "shares": dict(table)}}
    fabric = cluster.core.fabric.replace(shares=shares)
    return replace(cluster, core=cluster.core.replace(fabric=fabric), table=entry)


_BUILT: dict[object, Cluster] = {}
catalog.when_changed(_BUILT.clear)


def _build_cluster(table: Table, name: str) -> Cluster:
    """The cluster a table describes; equal tables are built once."""
    if PARTS_KEY in table:
        raise ScaleModelError(f"{name}: has parts of several kinds; see mixed_cluster")
    if "accelerator" not in table:
        raise ScaleModelError(f"{name}: accelerator: missing")
    given = table["accelerator"]
    if not isinstance(given, (str, Mapping)):
        raise ScaleModelError(f"{name}: accelerator={given!r}: must be a name or a table")
    accelerator = accelerator_table(given)
    if "compute" not in accelerator:
        raise ScaleModelError(
            f"{name}: accelerator={given!r}: must be a whole entry or name what it changes, such "
            "as {'base': 'h100_sxm_80', 'memory': {'capacity': '141 GB'}}"
        )
    key = (name, freeze(table), freeze(accelerator))
    if key not in _BUILT:
        if len(_BUILT) >= 512:
            _BUILT.clear()
        _BUILT[key] = cluster_from_tables(table, accelerator, name)
    return _BUILT[key]


def cluster_from_tables(table: Table, accelerator: Table, name: str) -> Cluster:
    """The cluster of an entry and of its accelerator's, for one node."""
    accelerator_name = str(accelerator.get("name", "accelerator"))
    top = Reader(table, name)
    node = top.sub("node")
    domain = accelerator.get("scale_up", {})
    scale_up = Reader(
        merged(
            Reader(domain, "accelerator.scale_up").table,
            Reader(table.get("scale_up", {}), f"{name}.scale_up").table,
        ),
        f"{name}.scale_up",
    )
    power, price = top.sub("power"), top.sub("price")
    listed = usual_price(accelerator_name)
    price_per_s, price_source = (listed.usd_per_s, listed.source) if listed else (0.0, "")
    if "usd_per_accelerator_hour" in price.table:
        price_source = f"{name}.price"
    usual_node = min(8, Reader(domain, "scale_up").count("domain", 8) or 8)
    per_node = node.count("accelerators", usual_node)
    usual = Reader(catalog.load("reference", "cluster_defaults"), "reference/cluster_defaults")
    # A CPU that is part of an accelerator comes with it; others are those of usual nodes.
    host = Reader(accelerator.get("host", {}), f"{accelerator_name}.host")
    each_w = host.quantity("power", "w", usual.sub("node").quantity("host_power", "w"))
    own_bytes = per_node * host.quantity("memory", "bytes", 0.0)
    host_bytes = own_bytes or usual.sub("node").quantity("host_memory", "bytes")
    core = _core.Cluster(
        accelerator=build_accelerator(accelerator),
        node_accelerators=per_node,
        accelerators=per_node,
        host_power_w=node.quantity("host_power", "w", per_node * each_w),
        host_memory_bytes=node.quantity("host_memory", "bytes", host_bytes),
        scale_up=build_scale_up(scale_up),
        fabric=build_fabric(top.sub("fabric")),
        pue=power.number("pue", usual.sub("power").number("pue")),
        price_usd_per_s=price.quantity("usd_per_accelerator_hour", "usd_per_s", price_per_s),
        measured=build_measured(table.get("measured", []), f"{name}.measured"),
    )
    for reader in (node, power, price):
        reader.finish()
    top.finish("name", "title", "aliases", "accelerator", "nodes", "scale_up", "measured")
    return Cluster(
        name=name,
        core=core,
        title=str(table.get("title", name)),
        accelerator=accelerator_name,
        price_source=price_source,
        table={**table, "accelerator": accelerator},
    )


def network_text(cluster: Cluster) -> str:
    """What is assumed of the network between domains.

    Examples
    --------
    >>> import scalemodel as sm
    >>> network_text(sm.cluster("dgx_h100"))
    'ideal fabric assumed: no collisions, no failures; network=... takes what sm.route reports'
    """
    shares = cluster.core.fabric.shares.to_dict()
    if all(share == 1 for share in shares.values()):
        return (
            "ideal fabric assumed: no collisions, no failures; network=... takes what sm.route "
            "reports"
        )
    listed = ", ".join(f"{axis} {share:.4g}" for axis, share in shares.items() if share < 1)
    return f"routed fabric: shares of the ideal bandwidth {listed}, other axes 1"
