"""Laws of collective operations on the clusters of the catalogue."""

from __future__ import annotations

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel import _core

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
#: Bytes on the wire of a rank, in units of size (n - 1)/n.
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}

operations = st.sampled_from(OPERATIONS)
clusters = st.sampled_from(["dgx_a100", "dgx_h100", "dgx_b200", "gb200_nvl72"])
sizes = st.floats(1, 1e12)


@lru_cache(maxsize=16)
def core(cluster: str) -> _core.Cluster:
    return sm.cluster(cluster, accelerators=72 * 1024).core


def time_s(op: str, size_bytes: float, ranks: int, cluster: str, stride: int = 1) -> float:
    return float(_core.collective_time_s(op, size_bytes, ranks, stride, core(cluster)))


def whole_domains(cluster: str, domains: int) -> int:
    """Ranks that fill `domains` scale-up domains."""
    return int(core(cluster).scale_up.domain) * domains


@given(op=operations, cluster=clusters, size_bytes=sizes, stride=st.sampled_from([1, 4, 8]))
def test_one_rank_is_free(op: str, cluster: str, size_bytes: float, stride: int) -> None:
    assert time_s(op, size_bytes, 1, cluster, stride) == 0


@given(
    op=st.sampled_from(sorted(PASSES)),
    cluster=clusters,
    size_bytes=sizes,
    ranks=st.integers(2, 65_536),
)
def test_nothing_beats_its_wire(op: str, cluster: str, size_bytes: float, ranks: int) -> None:
    hardware = core(cluster)
    domain = int(hardware.scale_up.domain)
    wire_bytes_per_s = float(hardware.scale_up.bandwidth_bytes_per_s)
    if ranks > domain:  # the ports of a domain work together
        wire_bytes_per_s = min(wire_bytes_per_s, domain * hardware.fabric.bandwidth_bytes_per_s)
    on_wire_bytes = PASSES[op] * size_bytes * (ranks - 1) / ranks
    bus_bytes_per_s = on_wire_bytes / time_s(op, size_bytes, ranks, cluster)
    assert bus_bytes_per_s <= wire_bytes_per_s * (1 + 1e-12)


@given(
    op=operations,
    cluster=clusters,
    size_bytes=sizes,
    factor=st.floats(1, 1e3),
    ranks=st.integers(2, 8192),
)
def test_time_never_falls_with_size(
    op: str, cluster: str, size_bytes: float, factor: float, ranks: int
) -> None:
    small_s = time_s(op, size_bytes, ranks, cluster)
    assert time_s(op, factor * size_bytes, ranks, cluster) >= small_s * (1 - 1e-12)


@given(op=operations, cluster=clusters, size_bytes=sizes, ranks=st.integers(1, 71))
def test_time_never_falls_with_ranks_of_a_domain(
    op: str, cluster: str, size_bytes: float, ranks: int
) -> None:
    ranks = min(ranks, whole_domains(cluster, 1) - 1)
    few_s = time_s(op, size_bytes, ranks, cluster)
    assert time_s(op, size_bytes, ranks + 1, cluster) >= few_s * (1 - 1e-12)


@given(
    op=operations,
    cluster=clusters,
    size_bytes=sizes,
    domains=st.integers(1, 512),
    more=st.integers(1, 512),
)
def test_time_never_falls_with_domains(
    op: str, cluster: str, size_bytes: float, domains: int, more: int
) -> None:
    few_s = time_s(op, size_bytes, whole_domains(cluster, domains), cluster)
    many_s = time_s(op, size_bytes, whole_domains(cluster, domains + more), cluster)
    assert many_s >= few_s * (1 - 1e-12)


@given(
    part=st.sampled_from(["reduce_scatter", "all_gather"]),
    cluster=clusters,
    size_bytes=sizes,
    ranks=st.integers(2, 72),
)
def test_an_all_reduce_takes_at_least_either_half(
    part: str, cluster: str, size_bytes: float, ranks: int
) -> None:
    ranks = min(ranks, whole_domains(cluster, 1))
    half_s = time_s(part, size_bytes, ranks, cluster)
    assert time_s("all_reduce", size_bytes, ranks, cluster) >= half_s


@given(
    part=st.sampled_from(["reduce_scatter", "all_gather"]),
    cluster=clusters,
    domains=st.integers(2, 512),
    bytes_per_rank=st.floats(1e8, 1e10),
)
def test_a_large_all_reduce_takes_at_least_either_half_across_domains(
    part: str, cluster: str, domains: int, bytes_per_rank: float
) -> None:
    # Small ones need not: an all-reduce may take a tree, its halves go around the ring.
    ranks = whole_domains(cluster, domains)
    half_s = time_s(part, bytes_per_rank * ranks, ranks, cluster)
    assert time_s("all_reduce", bytes_per_rank * ranks, ranks, cluster) >= half_s


@given(
    op=operations,
    size_bytes=sizes,
    ranks=st.integers(2, 8192),
    scale_up=st.floats(1, 100),
    fabric=st.floats(1, 100),
)
def test_more_bandwidth_never_costs_time(
    op: str, size_bytes: float, ranks: int, scale_up: float, fabric: float
) -> None:
    hardware = core("dgx_h100")
    faster = hardware.replace(
        scale_up=hardware.scale_up.replace(
            bandwidth_bytes_per_s=scale_up * hardware.scale_up.bandwidth_bytes_per_s
        ),
        fabric=hardware.fabric.replace(
            bandwidth_bytes_per_s=fabric * hardware.fabric.bandwidth_bytes_per_s
        ),
    )
    slow_s = _core.collective_time_s(op, size_bytes, ranks, 1, hardware)
    assert _core.collective_time_s(op, size_bytes, ranks, 1, faster) <= slow_s * (1 + 1e-12)


@given(op=operations, size_bytes=sizes, ranks=st.integers(2, 8))
def test_neighbours_are_never_slower_than_ranks_of_different_domains(
    op: str, size_bytes: float, ranks: int
) -> None:
    near_s = time_s(op, size_bytes, ranks, "dgx_h100", stride=1)
    assert near_s <= time_s(op, size_bytes, ranks, "dgx_h100", stride=8)


@given(size_bytes=sizes, factor=st.floats(1, 1e3), stride=st.sampled_from([1, 8]))
def test_a_transfer_grows_with_its_bytes(size_bytes: float, factor: float, stride: int) -> None:
    hardware = core("dgx_h100")
    one_s = _core.p2p_time_s(size_bytes, 2, stride, hardware)
    assert _core.p2p_time_s(factor * size_bytes, 2, stride, hardware) >= one_s
    assert _core.p2p_time_s(size_bytes, 1, stride, hardware) == 0


@pytest.mark.parametrize("op", OPERATIONS)
def test_an_unknown_operation_is_refused(op: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        time_s(op + "s", 1e6, 8, "dgx_h100")
