"""Claims about collectives and networks: Blink, SHARP, CASSINI, TopoOpt, tori, LogP."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity
from scalemodel.routing import Fabric, design_topology, pack_trees, simulate_network, time_shifts
from scalemodel.studies.cited_systems.claim import Claim
from scalemodel.studies.published import published

if TYPE_CHECKING:
    import pandas as pd

# -------------------------------------------------------------------------------------------- Blink
#: NVLinks between the GPUs of a DGX-1 with V100, 25 GB/s each (NVIDIA white paper WP-08437).
CUBE_MESH: Mapping[tuple[int, int], int] = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip
_LINK_BYTES_PER_S = 25e9


def has_ring(gpus: Sequence[int]) -> bool:
    """Whether some order of the GPUs is a closed ring of NVLinks.

    Examples
    --------
    >>> has_ring(range(8)), has_ring([0, 3, 4])
    (True, False)
    """
    first, *others = gpus
    return any(
        all(
            (min(a, b), max(a, b)) in CUBE_MESH
            for a, b in itertools.pairwise((first, *order, first))
        )
        for order in itertools.permutations(others)
    )


def tree_bytes_per_s(gpus: Sequence[int]) -> float:
    """All-reduce rate of packed trees over some GPUs of a DGX-1; 0: NVLink does not join them.

    Examples
    --------
    >>> tree_bytes_per_s([0, 3, 4]) / 1e9
    50.0
    """
    place = {gpu: index for index, gpu in enumerate(gpus)}
    rows = [
        (place[a], place[b], count * _LINK_BYTES_PER_S)
        for (a, b), count in CUBE_MESH.items()
        if a in place and b in place
    ]
    try:
        trees = pack_trees(Fabric.from_edges(len(gpus), rows), collective="all_reduce")
    except ScaleModelError as error:
        if "does not reach" in str(error):
            return 0.0
        raise
    return float(trees.attrs["total_bytes_per_s"])


@cache
def blink_gain(most: int = 5) -> float:
    """Largest gain of trees over NCCL's ring, which leaves NVLink where no ring closes.

    Examples
    --------
    >>> 4 < blink_gain(3) <= blink_gain(4)
    True
    """
    pcie = published("blink", "pcie", "bytes_per_s")
    gains = [0.0]
    for count in range(3, most + 1):
        ring = 1 / _core.textbook_collective_s(
            algorithm="ring_all_reduce",
            size_bytes=1.0,
            ranks=count,
            latency_s=0.0,
            bandwidth_bytes_per_s=pcie,
        )
        for gpus in itertools.combinations(range(8), count):
            if not has_ring(gpus):
                gains.append(tree_bytes_per_s(gpus) / ring)
    return max(gains)


# -------------------------------------------------------------------------------------------- SHARP
def sharp_gain(nodes: int = 32, size_bytes: float = 16 * 2**30) -> float:
    """An all-reduce in the switches over a ring.

    Examples
    --------
    >>> 1 < sharp_gain(4) < 2
    True
    """
    cluster = resolve.cluster(
        {"base": "dgx_h100", "fabric": {"in_network_reduction": True}}, nodes=nodes
    )
    times = [
        _core.collective_time_s(
            "all_reduce", size_bytes, cluster.accelerators, 1, cluster.core, name
        )
        for name in ("ring", "sharp")
    ]
    return times[0] / times[1]


# ------------------------------------------------------------------------------------------ CASSINI
@cache
def cassini_gains(jobs: int = 3) -> tuple[float, float]:
    """Mean and worst time of a step of jobs that share a link, in step over shifted.

    Each job sends for as long as the others compute, so that together they can fill the link.

    Examples
    --------
    >>> mean, worst = cassini_gains(2)
    >>> round(mean, 2), round(worst, 2)
    (1.5, 1.5)
    """
    fabric = Fabric.leaf_spine(leaves=2, spines=1, nics_per_leaf=jobs, bandwidth="10 GB/s")
    sending_s = 0.1
    computing_s = (jobs - 1) * sending_s
    asked = [
        {
            "pattern": "chain",
            "nics": [nic, jobs + nic],
            "size_bytes": sending_s * 10e9,
            "compute_s": computing_s,
        }
        for nic in range(jobs)
    ]
    shifts = time_shifts(fabric, asked).shift_s
    steps = [
        computing_s + sending_s * simulate_network(fabric, asked, start_s=start).slowdown
        for start in (0.0, shifts)
    ]
    return float(steps[0].mean() / steps[1].mean()), float(steps[0].max() / steps[1].max())


# ------------------------------------------------------------------------------------------ TopoOpt
#: Transceivers and switch ports of a server in a fat tree of three tiers without oversubscription:
#: both ends of its own cable, of one to an aggregation and of one to a core switch.
_TRANSCEIVERS, _SWITCH_PORTS = 6, 5


def topoopt_cost_ratio() -> float:
    """What a port costs in a switched network of full bandwidth, over a direct link's.

    Either has an adapter; the direct link has a transceiver and a port of a patch panel.

    Examples
    --------
    >>> 2 < topoopt_cost_ratio() < 3.2
    True
    """
    usd = {name: published("topoopt", name) for name in ("nic", "transceiver", "switch_port")}
    switched = usd["nic"] + _TRANSCEIVERS * usd["transceiver"] + _SWITCH_PORTS * usd["switch_port"]
    return switched / (usd["nic"] + usd["transceiver"] + published("topoopt", "patch_port"))


def topoopt_gain(nics: int = 128, ports: int = 4) -> float:
    """An all-reduce over direct links, against a switched network that costs as much.

    Examples
    --------
    >>> topoopt_gain(16) > 2
    True
    """
    size = 1e9
    direct = design_topology(nics, {"data": {"all_reduce_bytes": size}}, ports=ports)
    port = parse_quantity("100 Gbit/s", "bytes_per_s", "bandwidth")
    switched_s = _core.textbook_collective_s(
        algorithm="ring_all_reduce",
        size_bytes=size,
        ranks=nics,
        latency_s=0.0,
        bandwidth_bytes_per_s=ports * port / topoopt_cost_ratio(),
    )
    return switched_s / float(direct.communication_s.min())


# -------------------------------------------------------------------------------------- BlueConnect
def blueconnect_saved(nodes: int = 48, gpus: int = 4) -> float:
    """Time of an all-reduce saved by decomposing it into rings inside and across nodes.

    Examples
    --------
    >>> 0.4 < blueconnect_saved() < 1
    True
    """
    size = published("blueconnect", "gradients", "bytes")
    wire, inside = (
        published("blueconnect", name, "bytes_per_s") for name in ("infiniband", "nvlink")
    )

    def ring_s(size_bytes: float, ranks: int, bandwidth: float) -> float:
        return _core.textbook_collective_s(
            algorithm="ring_all_reduce",
            size_bytes=size_bytes,
            ranks=ranks,
            latency_s=_BLUECONNECT_LATENCY_S,
            bandwidth_bytes_per_s=bandwidth,
        )

    decomposed = ring_s(size, gpus, inside) + ring_s(size / gpus, nodes, wire)
    return 1 - decomposed / ring_s(size, nodes * gpus, wire)


#: Of a message; the saving hangs little on it.
_BLUECONNECT_LATENCY_S = 5e-6


# ------------------------------------------------------------------------------------- text books
def torus_latency_gain(columns: int = 32, rows: int = 32) -> float:
    """Start-up time of a ring over that of a torus of as many ranks.

    Examples
    --------
    >>> round(torus_latency_gain(), 2)
    16.5
    """
    ranks, slow = columns * rows, {"latency_s": 1.0, "bandwidth_bytes_per_s": 1e30}
    ring, torus = (
        _core.textbook_collective_s(
            algorithm=name, size_bytes=1.0, ranks=ranks, groups=columns, **slow
        )
        for name in ("ring_all_reduce", "torus_all_reduce")
    )
    return ring / torus


def logp_broadcast_cycles() -> float:
    """The broadcast of LogP's figure 3, a cycle being a second.

    Examples
    --------
    >>> logp_broadcast_cycles()
    24.0
    """
    # The record takes at most a second: a cycle is a tenth of one.
    model = _core.LogGP(latency_s=0.6, overhead_s=0.2, gap_s=0.4)
    return round(10 * _core.logp_broadcast_s(8, model), 9)


def rabenseifner(ranks: int = 32) -> tuple[float, float]:
    """Start-ups of Rabenseifner's all-reduce, and the buffers that a process sends.

    Examples
    --------
    >>> rabenseifner(4)
    (4.0, 1.5)
    """
    starts, sent = (
        _core.textbook_collective_s(
            algorithm="rabenseifner_all_reduce",
            size_bytes=1.0,
            ranks=ranks,
            latency_s=latency_s,
            bandwidth_bytes_per_s=bandwidth,
        )
        for latency_s, bandwidth in ((1.0, 1e30), (0.0, 1.0))
    )
    return starts, sent


def bruck_break_even_bytes(ranks: int = 64) -> float:
    """Block above which an all-to-all is faster pair by pair than in logarithmic rounds.

    Examples
    --------
    >>> 50 < bruck_break_even_bytes() < 200
    True
    """
    link = {
        "ranks": ranks,
        "latency_s": published("bruck", "start_up", "s"),
        "bandwidth_bytes_per_s": published("bruck", "transfer", "bytes_per_s"),
    }

    def lead_s(block_bytes: float) -> float:
        pairs, rounds = (
            _core.textbook_collective_s(algorithm=name, size_bytes=ranks * block_bytes, **link)
            for name in ("pairwise_all_to_all", "bruck_all_to_all")
        )
        return pairs - rounds

    # Both times are linear in the block.
    near, far = lead_s(1.0), lead_s(2.0)
    return 1.0 + near / (near - far)


def server_over_ring(ranks: int = 64) -> float:
    """Parameter servers on all workers over a ring, long buffers.

    Examples
    --------
    >>> 1 <= server_over_ring() < 1.02
    True
    """
    server, ring = (
        _core.textbook_collective_s(
            algorithm=name,
            size_bytes=1e9,
            ranks=ranks,
            latency_s=0.0,
            bandwidth_bytes_per_s=1e10,
            groups=ranks,
        )
        for name in ("parameter_server", "ring_all_reduce")
    )
    return server / ring


#: Textbook algorithms by the collective they carry out.
ALGORITHMS = {
    "all_gather": (
        "ring_all_gather",
        "recursive_doubling_all_gather",
        "bruck_all_gather",
    ),
    "reduce_scatter": ("recursive_halving_reduce_scatter",),
    "all_reduce": (
        "ring_all_reduce",
        "recursive_doubling_all_reduce",
        "rabenseifner_all_reduce",
        "torus_all_reduce",
        "parameter_server",
    ),
    "all_to_all": ("pairwise_all_to_all", "bruck_all_to_all"),
}


def textbook_collectives(
    collective: str,
    sizes_bytes: Sequence[float],
    *,
    ranks: int,
    latency_s: float,
    bandwidth_bytes_per_s: float,
    groups: int = 1,
) -> pd.DataFrame:
    """Algorithms of textbooks for one collective on ranks that are all alike.

    Parameters
    ----------
    collective : str
        ``"all_gather"``, ``"reduce_scatter"``, ``"all_reduce"`` or ``"all_to_all"``.
    sizes_bytes : sequence of float, shape (S,)
        The buffer of a rank for all-reduce and all-to-all, else that of all ranks together.
    ranks : int
    latency_s, bandwidth_bytes_per_s : float
        Of a message: latency + size / bandwidth.
    groups : int
        Columns of the torus, a divisor of the ranks; parameter servers.

    Returns
    -------
    DataFrame of S rows per algorithm
        Columns algorithm, ``size_bytes``, ``time_s``.

    Raises
    ------
    ScaleModelError : an unknown collective.
    ValueError : a rank count, latency, bandwidth or number of groups out of range; it is named.

    Examples
    --------
    >>> table = textbook_collectives("all_to_all", [1e3, 1e9], ranks=64, latency_s=2e-6,
    ...                              bandwidth_bytes_per_s=10e9)
    >>> table.loc[table.groupby("size_bytes").time_s.idxmin(), "algorithm"].tolist()
    ['bruck_all_to_all', 'pairwise_all_to_all']
    """
    import pandas as pd

    if collective not in ALGORITHMS:
        raise ScaleModelError(f"collective={collective!r}: must be one of {', '.join(ALGORITHMS)}")
    rows = [
        (
            name,
            size,
            _core.textbook_collective_s(
                algorithm=name,
                size_bytes=size,
                ranks=ranks,
                latency_s=latency_s,
                bandwidth_bytes_per_s=bandwidth_bytes_per_s,
                groups=groups,
            ),
        )
        for name in ALGORITHMS[collective]
        for size in sizes_bytes
    ]
    return pd.DataFrame(rows, columns=["algorithm", "size_bytes", "time_s"])


_PRICES = (
    "components at the prices of the paper's appendix, a fat tree of three tiers; how its own "
    "ratio counts cables, look-ahead ports and tiers is not known"
)

CLAIMS = (
    Claim("blink", "largest", "trees over rings on a DGX-1, any allocation", blink_gain),
    Claim("sharp", "all_reduce", "all-reduce in the switches, 32 DGX H100", sharp_gain, 0.15),
    Claim("cassini", "average", "mean step, 3 jobs on a link", lambda: cassini_gains()[0]),
    Claim(
        "cassini",
        "tail",
        "slowest step, 3 jobs on a link",
        lambda: cassini_gains()[1],
        reason="flows share links fairly and lose no packets here; a tail that long retransmits",
    ),
    Claim(
        "topoopt",
        "cost_ratio",
        "switches over direct links, full bandwidth",
        topoopt_cost_ratio,
        reason=_PRICES,
    ),
    Claim(
        "topoopt",
        "gain",
        "direct links over switches of the same cost",
        topoopt_gain,
        reason=_PRICES + "; and the largest gain published is of a model that sends more than "
        "gradients",
    ),
    Claim(
        "blueconnect",
        "overhead",
        "all-reduce of ResNet-50 on 192, time saved",
        blueconnect_saved,
        0.2,
        reason="against a ring at the rate of the wire; the paper's baseline, a library of 2018, "
        "does not reach it",
    ),
    Claim("parameter_server", "ring", "servers on all workers over a ring", server_over_ring, 0.02),
    Claim("thakur", "starts", "start-ups on 32", lambda: rabenseifner()[0], 0.0),
    Claim("thakur", "bytes", "buffers sent on 32", lambda: rabenseifner()[1], 0.0),
    Claim(
        "bruck",
        "break_even",
        "block where rounds and pairs take as long, 64 nodes",
        bruck_break_even_bytes,
        1 / 3,
    ),
    Claim("torus", "latency", "start-up, ring of 1,024 over 32 x 32", torus_latency_gain, 0.01),
    Claim("logp", "broadcast", "cycles of the optimal broadcast", logp_broadcast_cycles, 0.0),
)
