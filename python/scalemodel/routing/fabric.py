"""Networks between accelerators as graphs of links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity
from scalemodel.resolve.networks import topology

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.resolve import Cluster

#: Text with a unit ("100 Gbit/s") or bytes per second.
Bandwidth = float | str

_USUAL_BANDWIDTH = "100 Gbit/s"


def _cable(bandwidth: Bandwidth, latency_s: float, where: str) -> _core.Cable:
    rate = parse_quantity(bandwidth, "bytes_per_s", where)
    return _core.Cable(bandwidth_bytes_per_s=rate, latency_s=latency_s)


class Fabric:
    """A network: switches, accelerators with their ports (NICs), and the links between them.

    Made by its class methods; never changed, `failed` makes changed copies. Every cable is two
    links, one per direction; bandwidths are those of one direction.

    Parameters
    ----------
    core : _core.LinkGraph
        Nodes and links.
    name : str
        What it was made by.

    Attributes
    ----------
    core : _core.LinkGraph
    name : str

    Examples
    --------
    >>> import scalemodel as sm
    >>> fabric = sm.Fabric.leaf_spine(leaves=4, spines=2, nics_per_leaf=8, bandwidth="100 Gbit/s")
    >>> fabric.nics, fabric.links().shape
    (32, (80, 8))
    """

    def __init__(self, core: _core.LinkGraph, name: str) -> None:
        self.core = core
        self.name = name

    def __repr__(self) -> str:
        return f"Fabric.{self.name}({self.core.nics} NICs, {self.core.links} links)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fabric) and (self.name, self.core) == (other.name, other.core)

    def __hash__(self) -> int:
        return hash((self.name, self.core.nics, self.core.links))

    # ---------------------------------------------------------------------------------- builders
    @classmethod
    def leaf_spine(
        cls,
        *,
        leaves: int = 64,
        spines: int = 32,
        nics_per_leaf: int = 32,
        cables: int = 1,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        fabric_bandwidth: Bandwidth | None = None,
        latency_s: float = 0.0,
    ) -> Fabric:
        """Two tiers: every leaf joined to every spine by `cables` cables.

        Oversubscription is ``nics_per_leaf bandwidth / (spines cables fabric_bandwidth)``. The
        default is the fabric of arXiv 2503.05324.

        Parameters
        ----------
        leaves, spines, nics_per_leaf, cables : int
        bandwidth : float or str
            Of a NIC.
        fabric_bandwidth : float or str, optional
            Of a cable between leaf and spine; default: that of a NIC.
        latency_s : float
            Of one link.

        Examples
        --------
        >>> Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=4).nics
        8
        """
        spec = _core.LeafSpine(
            leaves=leaves,
            spines=spines,
            nics_per_leaf=nics_per_leaf,
            cables=cables,
            host=_cable(bandwidth, latency_s, "bandwidth"),
            fabric=_cable(fabric_bandwidth or bandwidth, latency_s, "fabric_bandwidth"),
        )
        return cls(_core.LinkGraph(spec), "leaf_spine")

    @classmethod
    def fat_tree(
        cls,
        *,
        ports: int,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        fabric_bandwidth: Bandwidth | None = None,
        latency_s: float = 0.0,
    ) -> Fabric:
        """Three tiers of switches with `ports` ports: ``ports**3 / 4`` NICs.

        Examples
        --------
        >>> Fabric.fat_tree(ports=8).nics
        128
        """
        spec = _core.FatTree(
            ports=ports,
            host=_cable(bandwidth, latency_s, "bandwidth"),
            fabric=_cable(fabric_bandwidth or bandwidth, latency_s, "fabric_bandwidth"),
        )
        return cls(_core.LinkGraph(spec), "fat_tree")

    @classmethod
    def rail_optimised(
        cls,
        *,
        servers: int,
        gpus: int = 8,
        servers_per_unit: int = 32,
        spines: int = 32,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        fabric_bandwidth: Bandwidth | None = None,
        scale_up_bandwidth: Bandwidth = 0.0,
        latency_s: float = 0.0,
    ) -> Fabric:
        """Accelerator r of every server of a unit on leaf r of the unit, leaves joined by spines.

        With `scale_up_bandwidth` the accelerators of a server also meet in a scale-up domain,
        through which traffic may change the rail. NIC ``server * gpus + r`` is accelerator r.

        Examples
        --------
        >>> Fabric.rail_optimised(servers=4, gpus=2, servers_per_unit=2, spines=2).core.leaves
        4
        """
        spec = _core.Rails(
            servers=servers,
            gpus=gpus,
            servers_per_unit=servers_per_unit,
            spines=spines,
            host=_cable(bandwidth, latency_s, "bandwidth"),
            fabric=_cable(fabric_bandwidth or bandwidth, latency_s, "fabric_bandwidth"),
            scale_up=_cable(scale_up_bandwidth, latency_s, "scale_up_bandwidth"),
        )
        return cls(_core.LinkGraph(spec), "rail_optimised" if spines else "rail_only")

    @classmethod
    def rail_only(
        cls,
        *,
        servers: int,
        gpus: int = 8,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        scale_up_bandwidth: Bandwidth = "450 GB/s",
        latency_s: float = 0.0,
    ) -> Fabric:
        """One switch per rail and no spines: other rails are reached inside a server.

        Source: Wang et al., arXiv 2307.12169.

        Examples
        --------
        >>> Fabric.rail_only(servers=16, gpus=8).nics
        128
        """
        return cls.rail_optimised(
            servers=servers,
            gpus=gpus,
            servers_per_unit=servers,
            spines=0,
            bandwidth=bandwidth,
            scale_up_bandwidth=scale_up_bandwidth,
            latency_s=latency_s,
        )

    @classmethod
    def dragonfly(
        cls,
        *,
        routers: int,
        nics: int,
        global_cables: int,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        latency_s: float = 0.0,
        global_latency_s: float = 0.0,
    ) -> Fabric:
        """``routers * global_cables + 1`` fully joined groups of fully joined routers.

        Examples
        --------
        >>> Fabric.dragonfly(routers=4, nics=2, global_cables=2).nics
        72
        """
        spec = _core.Dragonfly(
            routers=routers,
            nics=nics,
            global_cables=global_cables,
            host=_cable(bandwidth, latency_s, "bandwidth"),
            local=_cable(bandwidth, latency_s, "bandwidth"),
            between=_cable(bandwidth, global_latency_s, "bandwidth"),
        )
        return cls(_core.LinkGraph(spec), "dragonfly")

    @classmethod
    def torus(
        cls,
        shape: Sequence[int],
        *,
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        host_bandwidth: Bandwidth | None = None,
        latency_s: float = 0.0,
    ) -> Fabric:
        """A torus of one to three dimensions with one NIC per node.

        `host_bandwidth` is what a node can inject, by default as much as all its cables carry.

        Examples
        --------
        >>> Fabric.torus((4, 4, 4)).nics
        64
        """
        if not 1 <= len(shape) <= 3:
            raise ScaleModelError(f"shape={tuple(shape)!r}: must have one to three dimensions")
        x, y, z = (*shape, 1, 1, 1)[:3]
        rate = parse_quantity(bandwidth, "bytes_per_s", "bandwidth")
        ports = sum(min(size - 1, 2) for size in (x, y, z))
        spec = _core.Torus(
            x=x,
            y=y,
            z=z,
            host=_cable(host_bandwidth or max(ports, 1) * rate, latency_s, "host_bandwidth"),
            fabric=_cable(rate, latency_s, "bandwidth"),
        )
        return cls(_core.LinkGraph(spec), "torus")

    @classmethod
    def scale_up_domain(
        cls, *, nics: int, bandwidth: Bandwidth = "450 GB/s", latency_s: float = 0.0
    ) -> Fabric:
        """Accelerators on one scale-up switch.

        Examples
        --------
        >>> Fabric.scale_up_domain(nics=8).nics
        8
        """
        if nics < 1:
            raise ScaleModelError(f"nics={nics!r}: must be at least 1")
        return cls(_core.LinkGraph(nics, _cable(bandwidth, latency_s, "bandwidth")), "domain")

    @classmethod
    def from_edges(
        cls,
        nics: int,
        edges: Iterable[tuple[int, int, Bandwidth]],
        *,
        switches: int = 0,
        latency_s: float = 0.0,
    ) -> Fabric:
        """Any graph: rows ``(a, b, bandwidth)``, one per cable.

        Nodes 0 to ``nics - 1`` are accelerators, the next `switches` are switches. Accelerators
        with several cables forward traffic (direct-connect networks).

        Examples
        --------
        >>> Fabric.from_edges(3, [(0, 1, "50 GB/s"), (1, 2, "50 GB/s"), (2, 0, "50 GB/s")]).nics
        3
        """
        if nics < 1 or switches < 0:
            raise ScaleModelError(f"nics={nics!r}, switches={switches!r}: must be at least 1 and 0")
        rows = [
            (int(a), int(b), parse_quantity(rate, "bytes_per_s", f"edges[{i}]"), latency_s)
            for i, (a, b, rate) in enumerate(edges)
        ]
        return cls(_core.LinkGraph(nics, switches, rows), "custom")

    @classmethod
    def direct_connect(
        cls,
        nics: int,
        *,
        ports: int,
        rings: int = 1,
        demands: Iterable[tuple[int, int, float]] = (),
        bandwidth: Bandwidth = _USUAL_BANDWIDTH,
        latency_s: float = 0.0,
    ) -> Fabric:
        """Accelerators joined without switches, for the traffic they carry.

        `rings` rings with strides that share no factor with `nics` take two of the `ports` of every
        accelerator each; the other ports join the pairs with the largest demands. NICs forward.
        Source: TopoOpt (NSDI 2023, arXiv 2202.00433).

        Parameters
        ----------
        nics, ports, rings : int
        demands : iterable of (int, int, float)
            Bytes from one NIC to another.
        bandwidth : float or str
            Of a port, one direction.
        latency_s : float
            Of one link.

        Raises
        ------
        ScaleModelError : more rings than ports allow, or a NIC that does not exist.

        Examples
        --------
        >>> Fabric.direct_connect(8, ports=4, rings=1, demands=[(0, 4, 1e9)]).links().shape
        (20, 8)
        """
        if nics < 2 or ports < 1 or rings < 0:
            raise ScaleModelError(
                f"nics={nics!r}, ports={ports!r}, rings={rings!r}: must be at least 2, 1 and 0"
            )
        rows = [(int(a), int(b), float(size)) for a, b, size in demands]
        cable = _cable(bandwidth, latency_s, "bandwidth")
        strides = _core.ring_strides(nics, rings)
        return cls(_core.direct_connect(nics, ports, strides, rows, cable), "direct_connect")

    @classmethod
    def of_cluster(cls, cluster: Cluster, *, servers_per_unit: int | None = None) -> Fabric:
        """The network of a cluster, with its nodes and bandwidths.

        The one that ``fabric.topology`` of its entry names (rail_optimised, rail_only, leaf_spine,
        fat_tree), otherwise rail-optimised: units of `servers_per_unit` nodes share leaves. Spines
        give every leaf the bandwidth of its NICs over the cluster's oversubscription. A cluster
        with pods is one pod without oversubscription up to its size; beyond, every pod is a leaf in
        which nothing collides, and spines join the pods.

        Parameters
        ----------
        cluster : Cluster
        servers_per_unit : int, optional
            Rail-optimised fabrics; default: the entry's, or 32.

        Examples
        --------
        >>> import scalemodel as sm
        >>> Fabric.of_cluster(sm.cluster("dgx_h100", nodes=64))
        Fabric.rail_optimised(512 NICs, 3072 links)
        >>> Fabric.of_cluster(sm.cluster("meta_24k_roce", nodes=8))
        Fabric.leaf_spine(64 NICs, 384 links)
        """
        core, entry = cluster.core, cluster.table.get("fabric", {})
        builder, numbers = topology(entry.get("topology", {}), f"{cluster.name}.fabric.topology")
        bandwidth = float(core.fabric.bandwidth_bytes_per_s)
        gpus, nics = int(core.node_accelerators), cluster.accelerators
        servers = -(-nics // gpus)
        over, pod = float(core.fabric.oversubscription), int(core.fabric.pod)
        if 0 < pod < nics:
            builder, numbers = "leaf_spine", {"nics_per_leaf": pod}
        elif pod > 0:
            over = 1.0

        def spines(ports: int) -> int:
            return numbers.get("spines", max(round(ports / over), 1))

        if builder == "leaf_spine":
            per_leaf = min(numbers.get("nics_per_leaf", gpus), nics)
            return cls.leaf_spine(
                leaves=-(-nics // per_leaf),
                spines=spines(per_leaf),
                nics_per_leaf=per_leaf,
                bandwidth=bandwidth,
            )
        if builder == "fat_tree":
            ports = numbers.get("ports", 2)
            while "ports" not in numbers and ports**3 // 4 < nics:
                ports += 2
            return cls.fat_tree(ports=ports, bandwidth=bandwidth, fabric_bandwidth=bandwidth / over)
        scale_up = float(core.scale_up.bandwidth_bytes_per_s)
        if builder == "rail_only":
            return cls.rail_only(
                servers=servers, gpus=gpus, bandwidth=bandwidth, scale_up_bandwidth=scale_up
            )
        unit = min(servers_per_unit or numbers.get("servers_per_unit", 32), servers)
        return cls.rail_optimised(
            servers=servers,
            gpus=gpus,
            servers_per_unit=unit,
            spines=0 if servers <= unit else spines(unit),
            bandwidth=bandwidth,
            scale_up_bandwidth=scale_up,
        )

    # ---------------------------------------------------------------------------------- contents
    @property
    def nics(self) -> int:
        """Accelerators with a port."""
        return int(self.core.nics)

    def links(self) -> pd.DataFrame:
        """Every directed link.

        Returns
        -------
        DataFrame indexed by link
            Columns source, destination (nodes), source_kind, destination_kind, source_number,
            destination_number (among nodes of the kind), bandwidth_bytes_per_s (0: down),
            latency_s.
        """
        import pandas as pd

        columns = self.core.columns()
        kinds = pd.Series(self.core.kinds())
        numbers = kinds.groupby(kinds).cumcount().to_numpy()
        frame = pd.DataFrame({name: columns[name] for name in ("source", "destination")})
        for end in ("source", "destination"):
            frame[f"{end}_kind"] = kinds.to_numpy()[columns[end]]
            frame[f"{end}_number"] = numbers[columns[end]]
        frame["bandwidth_bytes_per_s"] = columns["bandwidth_bytes_per_s"]
        frame["latency_s"] = columns["latency_s"]
        frame.index.name = "link"
        return frame

    # ---------------------------------------------------------------------------------- failures
    def failed(
        self,
        *,
        leaves: Iterable[int] = (),
        spines: Iterable[int] = (),
        nics: Iterable[int] = (),
        cables: Iterable[tuple[int, int]] = (),
        capacity: Mapping[tuple[int, int], float] | None = None,
    ) -> Fabric:
        """A copy in which nodes or cables are down, or cables have lost capacity.

        Parameters
        ----------
        leaves, spines, nics : iterable of int
            Numbers among the nodes of their kind.
        cables : iterable of (int, int)
            Pairs of nodes; every cable between them goes down.
        capacity : mapping of (int, int) to float, optional
            Pairs of nodes; the fraction of the built capacity that both directions keep.

        Raises
        ------
        ScaleModelError : no such node or cable; names it.

        Examples
        --------
        >>> fabric = Fabric.leaf_spine(leaves=2, spines=2, nics_per_leaf=2)
        >>> int((fabric.failed(spines=[1]).links().bandwidth_bytes_per_s == 0).sum())
        4
        """
        core = self.core.copy()
        kinds = core.kinds()
        for kind, numbers in (("leaf", leaves), ("spine", spines), ("nic", nics)):
            of_kind = [node for node, name in enumerate(kinds) if name == kind]
            for number in numbers:
                if not 0 <= number < len(of_kind):
                    raise ScaleModelError(
                        f"{kind}={number!r}: the fabric has {len(of_kind)} nodes of this kind"
                    )
                core.fail_node(of_kind[number])
        factors = dict.fromkeys(cables, 0.0) | dict(capacity or {})
        if factors:
            columns = core.columns()
            for (a, b), factor in factors.items():
                between = (columns["source"] == a) & (columns["destination"] == b)
                if not between.any():
                    raise ScaleModelError(f"cables: nodes {a} and {b} are not joined")
                if not 0 <= factor <= 1:
                    raise ScaleModelError(f"capacity[{a}, {b}]={factor!r}: must be 0 to 1")
                for link in between.nonzero()[0]:
                    core.scale_cable(int(link), float(factor))
        return Fabric(core, self.name)
