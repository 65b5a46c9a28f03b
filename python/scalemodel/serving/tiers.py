"""Tiers of prefixes below the KV cache, and how a replica starts, from the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel._core import CacheTier, StartUp, TierReach
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.resolve.reader import Reader
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.task import number_from_to

if TYPE_CHECKING:
    import pandas as pd

_TABLE = "cache_tiers"
_LINKS = ("host", "fabric", "node")


def _reader() -> Reader:
    return Reader(catalog.load("storage", _TABLE), f"storage/{_TABLE}")


def tier_setups() -> list[str]:
    """Names of the set-ups that `cache_tiers` takes.

    Examples
    --------
    >>> "hicache" in tier_setups()
    True
    """
    table = catalog.load("storage", _TABLE)
    return sorted(name for name, own in table.items() if isinstance(own, dict) and "tiers" in own)


def _running(plan: ServingPlan) -> _core.Instance:
    if not isinstance(plan, ServingPlan) or plan.instance is None:
        raise ScaleModelError(f"plan={plan!r}: must be a Serving that runs")
    return plan.instance


@named_arguments
def cache_tiers(
    setup: str,
    plan: ServingPlan,
    *,
    replicas: int = 1,
    capacity_bytes: float | Sequence[float] | None = None,
) -> tuple[CacheTier, ...]:
    """The tiers of a set-up of the catalogue, as a replica of a plan sees them.

    Parameters
    ----------
    setup : str
        Such as ``"vllm_offloading"``, ``"lmcache"``, ``"hicache"``, ``"hicache_3fs"`` or
        ``"mooncake_store"``; `tier_setups` lists them.
    plan : Serving
        Its accelerators' links to the host and to the network carry the blocks.
    replicas : int
        Of the fleet: a shared tier lies on the servers of all of them.
    capacity_bytes : float or sequence of float, optional
        Of each tier, for a replica (of all replicas where it is shared), in place of the set-up's.

    Returns
    -------
    tuple of CacheTier, the nearest first

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=200)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> host, pool = cache_tiers("hicache_mooncake", plan, replicas=8)
    >>> host.layerwise, pool.shared, host.read_bytes_per_s > pool.link_bytes_per_s
    (True, True, True)
    """
    names = tier_setups()
    if setup not in names:
        raise ScaleModelError(f"setup={setup!r}: must be one of {', '.join(names)}")
    _running(plan)
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 1 <= replicas <= 100_000:
        raise ScaleModelError(f"replicas={replicas!r}: must be a whole number from 1 to 1e5")
    table = _reader()
    listed = table.sub(setup).table["tiers"]
    given: list[float | None] = [None] * len(listed)
    if capacity_bytes is not None:
        one = isinstance(capacity_bytes, (int, float))
        given = [float(capacity_bytes)] if one else [float(x) for x in capacity_bytes]  # type: ignore[union-attr, arg-type]
        if len(given) != len(listed):
            raise ScaleModelError(
                f"capacity_bytes: must be {len(listed)} numbers, one of each tier"
            )
    return tuple(
        _tier(table.sub("tier").sub(name), plan, replicas, size)
        for name, size in zip(listed, given, strict=True)
    )


def _tier(entry: Reader, plan: ServingPlan, replicas: int, capacity: float | None) -> CacheTier:
    settings = CacheTier(
        capacity_bytes=0.0 if capacity is None else capacity,
        latency_s=_latency_s(entry),
        writes=entry.text("writes", "write_through"),
        threshold_tokens=entry.number("threshold_tokens", 0),
        layerwise=entry.flag("layerwise"),
        shared=entry.flag("shared"),
    )
    return _core.reached_tier(settings, _reach(entry, plan, replicas))


def _system(entry: Reader) -> Reader:
    """What moves blocks over a link, and the share of it that it reaches."""
    moved = Reader(catalog.load("reference", "kv_transfer"), "reference/kv_transfer")
    return moved.sub(entry.text("transfer", "other"))


def _latency_s(entry: Reader) -> float:
    if entry.text("link", "") == "node":
        return entry.quantity("latency", "s")
    return _system(entry).number("start_s")


def _reach(entry: Reader, plan: ServingPlan, replicas: int) -> TierReach:
    """How the ranks of a replica come to a tier, and its room for each of them."""
    cluster, link = plan.cluster.core, entry.text("link", "")
    if link not in _LINKS:
        raise ScaleModelError(f"{entry.where}.link={link!r}: must be one of {', '.join(_LINKS)}")
    reach = TierReach(
        ranks=ranks_of(plan.layout),
        node_accelerators=cluster.node_accelerators,
        replicas=replicas,
        rank_capacity_bytes=_rank_capacity(entry, plan),
    )
    if link == "node":
        return reach.replace(
            node_read_bytes_per_s=entry.quantity("node_read", "bytes_per_s"),
            node_write_bytes_per_s=entry.quantity("node_write", "bytes_per_s"),
        )
    to_host = cluster.accelerator.host_bandwidth_bytes_per_s
    return reach.replace(
        link_bytes_per_s=to_host if link == "host" else cluster.fabric.bandwidth_bytes_per_s,
        reached_fraction=_system(entry).fraction("share_fraction"),
    )


def _rank_capacity(entry: Reader, plan: ServingPlan) -> float:
    if "device_ratio" in entry.table:
        task = plan.task
        held = _running(plan).capacity(task.input_tokens, task.output_tokens)
        return entry.number("device_ratio") * float(held.memory_kv_cache_bytes)
    return entry.quantity("capacity_per_accelerator", "bytes")


@named_arguments
def tier_table(
    plan: ServingPlan,
    tiers: Sequence[CacheTier],
    *,
    prefix_tokens: Sequence[float] = (256, 1024, 4096, 16384, 65536),
    suffix_tokens: float = 128,
) -> pd.DataFrame:
    """When a tier pays: the time to load a prefix, and to compute it instead.

    Parameters
    ----------
    plan : Serving
    tiers : sequence of CacheTier
        As of `cache_tiers`; idle.
    prefix_tokens : sequence of float
    suffix_tokens : float
        Computed behind the prefix in any case.

    Returns
    -------
    DataFrame, one row per tier and prefix, tiers varying slowest
        Columns tier, prefix_tokens, load_s, exposed_s (of the load, what the computation of the
        suffix does not hide), compute_s, pays (whether exposed_s is below compute_s).

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=200)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> table = tier_table(plan, cache_tiers("hicache", plan), prefix_tokens=[4096])
    >>> bool(table.pays.all())
    True
    """
    import pandas as pd

    instance, rows = _running(plan), []
    number_from_to("suffix_tokens", suffix_tokens, 1, 1e9)
    for place, tier in enumerate(tiers):
        if not isinstance(tier, CacheTier):
            raise ScaleModelError(f"tiers: {tier!r}: must be a CacheTier")
        for tokens in prefix_tokens:
            number_from_to("prefix_tokens", tokens, 0, 1e9)
            found = _core.prefix_times(
                instance, plan.task.mix, tier, float(tokens), float(suffix_tokens)
            )
            rows.append(
                {
                    "tier": place,
                    "prefix_tokens": float(tokens),
                    "load_s": found.load_s,
                    "exposed_s": found.exposed_s,
                    "compute_s": found.compute_s,
                    "pays": found.exposed_s < found.compute_s,
                }
            )
    return pd.DataFrame(rows)


@named_arguments
def startup_s(
    plan: ServingPlan,
    source: str = "disk",
    *,
    schedule_s: float | None = None,
    warm_up_s: float | None = None,
) -> float:
    """Seconds until a new replica of a plan takes requests.

    Parameters
    ----------
    plan : Serving
    source : str
        Where its weights are: ``"disk"`` (SSDs of its node), ``"object_store"``,
        ``"block_volume"`` or ``"peer"`` (another replica, over the network).
    schedule_s, warm_up_s : float, optional
        Until its process runs; and of graphs and the first requests. Default: of the catalogue.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> startup_s(plan, "peer") < startup_s(plan, "disk") < startup_s(plan, "object_store")
    True
    """
    instance, table = _running(plan), _reader()
    ranks, cluster = ranks_of(plan.layout), plan.cluster.core
    sources = table.sub("weights")
    names = [*sources.table, "peer"]
    if source not in names:
        raise ScaleModelError(f"source={source!r}: must be one of {', '.join(names)}")
    reach = TierReach(ranks=ranks, node_accelerators=cluster.node_accelerators)
    if source == "peer":
        moved = Reader(catalog.load("reference", "kv_transfer"), "reference/kv_transfer")
        reach = reach.replace(
            link_bytes_per_s=cluster.fabric.bandwidth_bytes_per_s,
            reached_fraction=moved.sub("mooncake").fraction("share_fraction"),
        )
    else:
        rate = sources.sub(source).quantity("node_read", "bytes_per_s")
        reach = reach.replace(node_read_bytes_per_s=rate)
    usual = table.sub("start_up")
    start = StartUp(
        schedule_s=usual.quantity("schedule", "s") if schedule_s is None else schedule_s,
        read_bytes_per_s=_core.weights_bytes_per_s(reach),
        warm_up_s=usual.quantity("warm_up", "s") if warm_up_s is None else warm_up_s,
    )
    task = plan.task
    held = instance.capacity(task.input_tokens, task.output_tokens)
    return float(_core.startup_s(start, ranks * float(held.memory_weights_bytes)))
