"""Claims about paths: Hedera, fat trees, ECMP, Fastpass, segment routing."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from scalemodel.routing import Fabric, Traffic, route, segment_lists
from scalemodel.studies.cited_systems.claim import Claim

if TYPE_CHECKING:
    import pandas as pd


def permutation(nics: int, seed: int) -> pd.DataFrame:
    """Every NIC sends as much to another one, which receives from no other.

    Examples
    --------
    >>> sorted(permutation(4, 0).source.tolist())
    [0, 1, 2, 3]
    """
    import pandas as pd

    order = np.random.default_rng(seed).permutation(nics)
    frame = pd.DataFrame({"source": order, "destination": np.roll(order, 1)})
    return frame.assign(job=0, size_bytes=1e9)


@cache
def hedera_rates(ports: int = 16) -> dict[str, float]:
    """Mean rate of the flows of a permutation on a fat tree, by router, over the optimum.

    Examples
    --------
    >>> rates = hedera_rates(8)
    >>> rates["ecmp"] < rates["hedera"] <= 1
    True
    """
    fabric = Fabric.fat_tree(ports=ports)
    asked = permutation(fabric.nics, 1)
    rates = {
        policy: float(np.mean(route(fabric, asked, policy=policy).columns["rate_bytes_per_s"]))
        for policy in ("ecmp", "hedera", "colouring")
    }
    return {policy: rates[policy] / rates["colouring"] for policy in ("ecmp", "hedera")}


def fat_tree_sizes(ports: int = 48) -> tuple[int, int]:
    """Hosts and switches of a fat tree.

    Examples
    --------
    >>> fat_tree_sizes(4)
    (16, 20)
    """
    fabric = Fabric.fat_tree(ports=ports)
    return fabric.nics, fabric.core.nodes - fabric.nics


def ecmp_disrupted(spines: int = 32) -> float:
    """Share of the flows that hash to another spine when the last one fails.

    Examples
    --------
    >>> 0.6 < ecmp_disrupted(4) < 0.9
    True
    """
    fabric = Fabric.leaf_spine(spines=spines)
    asked = permutation(fabric.nics, 2)
    before, after = (
        route(network, asked, policy="ecmp").flows()["path"]
        for network in (fabric, fabric.failed(spines=[spines - 1]))
    )
    crossing = before >= 0  # not under one leaf
    return float((before != after)[crossing].mean())


def fastpass_flows() -> float:
    """Flows on the fullest link where a matching of hosts is edge-coloured.

    Examples
    --------
    >>> fastpass_flows()
    1.0
    """
    fabric = Fabric.leaf_spine()
    return float(route(fabric, permutation(fabric.nics, 2), policy="colouring").max_flows)


@cache
def segment_optimum() -> float:
    """The bound of any routing over the fullest link of paths with one intermediate switch.

    Examples
    --------
    >>> segment_optimum()
    1.0
    """
    fabric = Fabric.leaf_spine()
    report = route(fabric, Traffic.paper_mix(fabric, jobs=5, ring=4), policy="balanced")
    # The list of a flow names a switch between and the one its destination is under.
    assert segment_lists(report)["switches"].str.len().max() == 2
    return report.bound_s / report.drain_s


CLAIMS = (
    Claim(
        "hedera",
        "optimal",
        "annealing over the optimum, 1,024 hosts",
        lambda: hedera_rates()["hedera"],
        0.05,
    ),
    Claim(
        "hedera",
        "over_ecmp",
        "annealing over hashing, 1,024 hosts",
        lambda: hedera_rates()["hedera"] / hedera_rates()["ecmp"],
    ),
    Claim(
        "fat_tree",
        "hosts",
        "hosts of 48-port switches",
        lambda: float(fat_tree_sizes()[0]),
        0.0,
    ),
    Claim("fat_tree", "switches", "their switches", lambda: float(fat_tree_sizes()[1]), 0.0),
    Claim("ecmp", "disrupted", "flows moved when one of 32 spines fails", ecmp_disrupted, 0.02),
    Claim("fastpass", "flows", "flows on the fullest link, 2,048 hosts", fastpass_flows, 0.0),
    Claim(
        "segment_routing",
        "optimum",
        "five jobs through one intermediate switch each",
        segment_optimum,
        0.01,
    ),
)
