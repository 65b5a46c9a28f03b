"""Laws of collective operations on the clusters of the catalogue."""

from __future__ import annotations

import contextlib
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
#: Bytes on the wire of a rank, in units of size (n - 1)/n.
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}

operations = st.sampled_from(OPERATIONS)
clusters = st.sampled_from(["dgx_a100", "dgx_h100", "dgx_b200", "gb200_nvl72"])
sizes = st.floats(1, 1e12)


@lru_cache(maxsize=16)
def core(cluster: str) -> _core.Cluster:
    return sm.cluster(cluster, accelerators=72 * 1024).core


def time_s(
    op: str, size_bytes: float, ranks: int, cluster: str, stride: int = 1, algorithm: str = "best"
) -> float:
    hardware = core(cluster)
    return float(_core.collective_time_s(op, size_bytes, ranks, stride, hardware, algorithm))


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
def test_no_ring_beats_its_wire(op: str, cluster: str, size_bytes: float, ranks: int) -> None:
    hardware = core(cluster)
    domain = int(hardware.scale_up.domain)
    wire_bytes_per_s = float(hardware.scale_up.bandwidth_bytes_per_s)
    if ranks > domain:  # the ports of a domain work together
        wire_bytes_per_s = min(wire_bytes_per_s, domain * hardware.fabric.bandwidth_bytes_per_s)
    on_wire_bytes = PASSES[op] * size_bytes * (ranks - 1) / ranks
    bus_bytes_per_s = on_wire_bytes / time_s(op, size_bytes, ranks, cluster, algorithm="ring")
    assert bus_bytes_per_s <= wire_bytes_per_s * (1 + 1e-12)


@given(
    op=st.sampled_from(sorted(PASSES)),
    cluster=clusters,
    size_bytes=sizes,
    ranks=st.integers(2, 65_536),
)
def test_no_algorithm_beats_what_must_leave_a_rank_and_a_domain(
    op: str, cluster: str, size_bytes: float, ranks: int
) -> None:
    # Bus bandwidth counts a ring's bytes; a switch that reduces saves up to half of them (8 H100
    # reach 480 GB/s on links of 450), and between domains each need send its share only once.
    hardware = core(cluster)
    domain = min(int(hardware.scale_up.domain), ranks)
    domains = -(-ranks // domain)
    reducing = hardware.scale_up.in_switch.bandwidth_fraction > 0
    once = 1.0 if op == "all_reduce" and reducing else PASSES[op] * (1 - 1 / domain)
    least_s = once * size_bytes / hardware.scale_up.bandwidth_bytes_per_s
    ports_bytes_per_s = domain * hardware.fabric.bandwidth_bytes_per_s
    outside_s = PASSES[op] * (1 - 1 / domains) * size_bytes / ports_bytes_per_s
    assert time_s(op, size_bytes, ranks, cluster) >= max(least_s, outside_s) * (1 - 1e-12)


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
    least = 1.0
    if op == "all_reduce" and core(cluster).scale_up.in_switch.bandwidth_fraction > 0:
        # Through the switch a rank moves S (1 + 1/n): less in a larger group, as measured.
        least = (1 + 1 / (ranks + 1)) / (1 + 1 / ranks)
    assert time_s(op, size_bytes, ranks + 1, cluster) >= least * few_s * (1 - 1e-12)


@given(
    op=st.sampled_from(sorted(PASSES)), cluster=clusters, size_bytes=sizes, ranks=st.integers(2, 71)
)
def test_a_ring_never_gets_faster_with_ranks_of_a_domain(
    op: str, cluster: str, size_bytes: float, ranks: int
) -> None:
    ranks = min(ranks, whole_domains(cluster, 1) - 1)
    few_s = time_s(op, size_bytes, ranks, cluster, algorithm="ring")
    many_s = time_s(op, size_bytes, ranks + 1, cluster, algorithm="ring")
    assert many_s >= few_s * (1 - 1e-12)


@given(
    op=operations,
    cluster=clusters,
    size_bytes=sizes,
    ranks=st.integers(2, 4096),
    stride=st.sampled_from([1, 2, 8]),
)
def test_best_is_the_fastest_legal_algorithm_of_the_library(
    op: str, cluster: str, size_bytes: float, ranks: int, stride: int
) -> None:
    hardware = core(cluster)
    name = _core.best_algorithm(op, size_bytes, ranks, stride, hardware)
    best_s = time_s(op, size_bytes, ranks, cluster, stride)
    assert time_s(op, size_bytes, ranks, cluster, stride, algorithm=name) == best_s
    for other in ("ring", "tree", "nvls", "nvls_tree", "pat", "sharp", "direct"):
        with contextlib.suppress(ValueError):  # not legal here
            assert best_s <= time_s(op, size_bytes, ranks, cluster, stride, algorithm=other)


@pytest.mark.parametrize(
    ("op", "ranks", "stride", "algorithm", "legal"),
    [
        ("all_reduce", 8, 1, "tree", "best, ring, nvls"),
        ("all_reduce", 64, 1, "pat", "best, ring, tree, nvls_tree, hierarchical"),
        ("all_gather", 64, 8, "tree", "best, ring, pat"),
        ("all_to_all", 64, 1, "ring", "best, hierarchical, direct"),
    ],
)
def test_an_algorithm_that_the_group_does_not_allow_is_refused(
    op: str, ranks: int, stride: int, algorithm: str, legal: str
) -> None:
    with pytest.raises(ValueError, match=f"'{algorithm}': must be one of {legal} "):
        time_s(op, 1e6, ranks, "dgx_h100", stride, algorithm=algorithm)


@given(op=operations, size_bytes=sizes, ranks=st.integers(2, 512))
def test_switches_that_reduce_never_cost_time(op: str, size_bytes: float, ranks: int) -> None:
    plain = core("dgx_h100")
    sharp = plain.replace(fabric=plain.fabric.replace(in_network_reduction=True))
    plain_s = _core.collective_time_s(op, size_bytes, ranks, 1, plain)
    assert _core.collective_time_s(op, size_bytes, ranks, 1, sharp) <= plain_s


@given(size_bytes=st.floats(1e9, 1e11), domains=st.integers(2, 64))
def test_adapters_on_pcie_share_its_links(size_bytes: float, domains: int) -> None:
    """Sixteen cards of two servers take no less than the eight of one."""
    one = sm.cluster("l40s_server", nodes=64).core
    inside_s = _core.collective_time_s("all_to_all", size_bytes, 8, 1, one)
    across_s = _core.collective_time_s("all_to_all", size_bytes, 8 * domains, 1, one)
    assert across_s >= inside_s


def curves(**measured: object) -> _core.Cluster:
    table = {"op": "all_reduce", "ranks": 16, "domains": 2, **measured}
    return sm.cluster({"base": "dgx_h100", "measured": [table]}, nodes=4).core


def test_a_measured_curve_wins_where_it_was_measured() -> None:
    measured = curves(sizes=["1 MiB", "1 GiB"], times=["100 us", "10 ms"])
    plain = core("dgx_h100")

    def ask(size_bytes: float, ranks: int, on: _core.Cluster) -> float:
        return float(_core.collective_time_s("all_reduce", size_bytes, ranks, 1, on))

    assert ask(2.0**20, 16, measured) == pytest.approx(100e-6)
    assert ask(2.0**25, 16, measured) == pytest.approx(1e-3)  # halfway in logarithms
    assert ask(1.0, 16, measured) == pytest.approx(100e-6)
    assert ask(2.0**32, 16, measured) == pytest.approx(40e-3)
    assert ask(2.0**25, 32, measured) == ask(2.0**25, 32, plain)
    assert ask(2.0**25, 8, measured) == ask(2.0**25, 8, plain)


def test_a_curve_may_be_given_as_bus_bandwidth() -> None:
    measured = curves(sizes=["1 GiB"], bus_bandwidths=["375 GB/s"])
    time = _core.collective_time_s("all_reduce", 2.0**30, 16, 1, measured)
    assert time == pytest.approx(2 * 15 / 16 * 2**30 / 375e9)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"sizes": ["1 MiB"]}, "give times or bus_bandwidths"),
        ({"sizes": ["2 MiB", "1 MiB"], "times": ["1 ms", "2 ms"]}, "must ascend"),
        ({"sizes": [], "times": ["1 ms"]}, "as many as sizes"),
        ({"sizes": ["1 MiB"], "times": ["0 ms"]}, "must be positive"),
        ({"sizes": "1 MiB", "times": ["1 ms"]}, "must be a list"),
        ({"sizes": ["1 MiB"], "times": ["1 ms"], "speed": 1}, "unknown key"),
    ],
)
def test_a_malformed_curve_is_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=why):
        curves(**wrong)


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
