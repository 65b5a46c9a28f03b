"""Tiers of storage that training writes checkpoints to and reads samples from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.economics.arguments import checked
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve import Cluster
from scalemodel.resolve.reader import Reader

_WHERE: Final = "storage/checkpoint_tiers"


@dataclass(frozen=True)
class StorageTier:
    """Rates of a tier below one job, in bytes per second. Made by `storage_tier`.

    Attributes
    ----------
    on_nodes : bool
        Whether a lost node takes its part along.
    node_read, node_write : float
        Of a node; 0 for host memory, which the links to it decide.
    shared_read, shared_write : float
        Of the storage as a whole, as large as the job needs it; 0: it does not limit the nodes.
    """

    name: str
    on_nodes: bool
    node_read: float = 0.0
    node_write: float = 0.0
    shared_read: float = 0.0
    shared_write: float = 0.0


def storage_tiers() -> tuple[str, ...]:
    """Names of the tiers of the catalogue.

    Examples
    --------
    >>> storage_tiers()
    ('host_memory', 'local_disk', 'shared_file_system', 'object_store')
    """
    return tuple(catalog.load("storage", "checkpoint_tiers")["tier"])


def storage_tier(argument: str, name: str, nodes: float) -> StorageTier:
    """A tier of the catalogue below a job of this number of nodes.

    Raises
    ------
    ScaleModelError : an unknown name; the message names the argument.

    Examples
    --------
    >>> storage_tier("tiers", "shared_file_system", 64).shared_write / 1e9
    40.0
    """
    known = catalog.load("storage", "checkpoint_tiers")["tier"]
    if not isinstance(name, str) or name not in known:
        raise ScaleModelError(f"{argument}={name!r}: unknown; {nearest(str(name), known)}")
    tier = Reader(known[name], f"{_WHERE}.tier.{name}")
    source = tier
    if "reads" in known[name]:
        weights = catalog.load("storage", "cache_tiers")["weights"]
        source = Reader(weights, "storage/cache_tiers.weights").sub(tier.text("reads", ""))
    # Storage grows with the cluster by whole units.
    units = math.ceil(nodes / tier.count("unit_nodes", 1))
    return StorageTier(
        name,
        tier.flag("on_nodes"),
        source.quantity("node_read", "bytes_per_s", 0.0),
        tier.quantity("node_write", "bytes_per_s", 0.0),
        units * tier.quantity("unit_read", "bytes_per_s", 0.0),
        units * tier.quantity("unit_write", "bytes_per_s", 0.0),
    )


def _reached(way: str) -> float:
    """Share of a link that transfers reach."""
    table = Reader(catalog.load("reference", "kv_transfer"), "reference/kv_transfer")
    return table.sub(way).fraction("share_fraction")


def network_bytes_per_s(cluster: Cluster) -> float:
    """What a node sends to the memory of others, or reads from it, over its network ports.

    Examples
    --------
    >>> import scalemodel as sm
    >>> 100e9 < network_bytes_per_s(sm.cluster("dgx_h100")) < 400e9
    True
    """
    core = cluster.core
    share = _reached("mooncake")
    return float(core.node_accelerators * core.fabric.bandwidth_bytes_per_s * share)


def host_link_bytes_per_s(cluster: Cluster) -> float:
    """What a copy engine moves between an accelerator and pinned host memory.

    Examples
    --------
    >>> import scalemodel as sm
    >>> round(host_link_bytes_per_s(sm.cluster("dgx_h100")) / 1e9, 1)
    41.6
    """
    return float(cluster.core.accelerator.host_bandwidth_bytes_per_s) * _reached("copy_engine")


def free_host_memory_bytes(est: Estimate) -> float:
    """Memory of a node that a training step leaves, beside what it offloads.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192),
    ...                   sm.Strategy(sharding="zero3"))
    >>> free_host_memory_bytes(est) / 1e12
    2.0
    """
    return float(est.cluster.core.host_memory_bytes) - float(est.host_memory_bytes)


def usual_planning_s() -> float:
    """What all ranks take to agree on who writes what, of the catalogue."""
    table = catalog.load("storage", "checkpoint_tiers")
    return Reader(table, _WHERE).sub("write").quantity("planning", "s")


def checkpoint_sizes(est: Estimate) -> tuple[float, float, float]:
    """Bytes of a checkpoint: in all, of the busiest rank and of the busiest node.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2),
    ...                   sm.Training(global_batch=64, sequence=8192),
    ...                   sm.Strategy(sharding="zero3"))
    >>> [round(size / 2**30, 1) for size in checkpoint_sizes(est)]  # published: 105 GB
    [104.7, 6.5, 52.4]
    """
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    flows = _core.checkpoint_flows(tables, est.strategy, 1)
    nodes = flows["source"] // int(est.cluster.core.node_accelerators)
    sizes = flows["size_bytes"]
    return float(sizes.sum()), float(sizes.max()), float(np.bincount(nodes, sizes).max())


def read_bytes_per_s(read: str | float) -> float:
    """Bytes per second of a node that reads a checkpoint.

    Examples
    --------
    >>> read_bytes_per_s("disk") > read_bytes_per_s("block_volume") > 1e8
    True
    """
    if not isinstance(read, str):
        return checked("read", read, 1, 1e15)
    sources = catalog.load("storage", "cache_tiers")["weights"]
    if read not in sources:
        raise ScaleModelError(
            f"read={read!r}: must be bytes per second of a node, or one of {', '.join(sources)}"
        )
    return (
        Reader(sources, "storage/cache_tiers.weights")
        .sub(read)
        .quantity("node_read", "bytes_per_s")
    )
