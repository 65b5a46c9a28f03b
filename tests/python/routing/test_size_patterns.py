"""The solver on patterns of links: the least drain time of flows of few sizes, proven."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.routing.size_patterns import FewSizes, few_sizes, fit, least_units

pytest.importorskip("scipy")


def optimum_s(fabric: sm.Fabric, frame: pd.DataFrame, above_s: float) -> float:
    """The least drain time from the solver alone: it knows no routing, and a bound far below."""
    traffic = sm.Traffic.from_frame(frame)
    few = few_sizes(
        _core.path_columns(fabric.core, traffic.core, 256, 0),
        np.asarray(traffic.core.columns()["size_bytes"]),
        np.asarray(fabric.core.columns()["bandwidth_bytes_per_s"]),
    )
    assert few is not None
    answer = least_units(few, above_s, 64 * few.unit_s, 60.0)
    assert answer is not None
    chosen, bound_s = answer
    assert chosen is not None
    load = np.zeros(2 * fabric.core.leaves * fabric.core.planes)
    under = fabric.nics // fabric.core.leaves
    leaf = frame[["source", "destination"]].to_numpy() // under
    size = frame.size_bytes.to_numpy()
    for flow, path in chosen.items():
        for end in range(2):
            side = end * fabric.core.leaves + leaf[flow, end]
            load[side * fabric.core.planes + path] += size[flow] / 12.5e9
    assert load.max() == pytest.approx(bound_s)  # the paths attain what is proven
    return bound_s


def drawn(seed: int, leaves: int, spines: int, flows: int) -> tuple[sm.Fabric, pd.DataFrame]:
    """Flows of 3, 5 or 7 units of 100 MB between any two leaves."""
    fabric = sm.Fabric.leaf_spine(leaves=leaves, spines=spines, nics_per_leaf=4)
    random, nics = np.random.default_rng(seed), 4 * leaves
    source = random.integers(0, nics, flows)
    frame = pd.DataFrame({"job": 0, "source": source})
    frame["destination"] = (source + random.integers(4, nics - 4, flows)) % nics
    frame["size_bytes"] = random.choice([3e8, 5e8, 7e8], flows)
    return fabric, frame


def planted(seed: int, leaves: int, spines: int) -> tuple[sm.Fabric, pd.DataFrame]:
    """Flows of 2 to 7 units that can fill every link with 12 units exactly.

    On every spine each leaf sends a random composition of 12 and receives that of another leaf;
    flows of one size join senders and receivers at random.
    """
    random = np.random.default_rng(seed)
    parts = [[5, 7], [2, 3, 7], [6, 6], [4, 4, 4], [2, 4, 6], [3, 4, 5], [3, 3, 6], [2, 5, 5]]
    rows = []
    for _ in range(spines):
        turn = int(random.integers(1, leaves))
        sent = [(leaf, size) for leaf in range(leaves) for size in parts[random.integers(8)]]
        for size in range(2, 8):
            senders = [leaf for leaf, of_flow in sent if of_flow == size]
            receivers = [(leaf + turn) % leaves for leaf in senders]
            for i in reversed(range(len(receivers))):
                j = int(random.integers(i + 1))
                if senders[i] != receivers[j] and senders[j] != receivers[i]:
                    receivers[i], receivers[j] = receivers[j], receivers[i]
            rows += [(4 * a, 4 * b, size * 1e8) for a, b in zip(senders, receivers, strict=True)]
    frame = pd.DataFrame(rows, columns=["source", "destination", "size_bytes"])
    return sm.Fabric.leaf_spine(leaves=leaves, spines=spines, nics_per_leaf=4), frame.assign(job=0)


@pytest.mark.parametrize("seed", range(8))
def test_the_least_drain_time_is_that_of_all_routings(seed: int) -> None:
    fabric, frame = drawn(seed, leaves=4, spines=2, flows=12)
    leaf = frame[["source", "destination"]].to_numpy() // 4
    size = frame.size_bytes.to_numpy()
    spines = np.array(list(product(range(2), repeat=12)))
    fullest = np.zeros(len(spines))
    for end, side, spine in product((0, 1), range(4), range(2)):
        on_link = (spines == spine) & (leaf[:, end] == side)
        fullest = np.maximum(fullest, on_link @ size)
    port = 12.5e9
    assert optimum_s(fabric, frame, 0.3 * fullest.min() / port) == pytest.approx(
        fullest.min() / port
    )
    report = sm.route(fabric, frame, policy="milp")
    assert report.drain_s == pytest.approx(fullest.min() / port)
    assert report.bound_s == pytest.approx(report.drain_s)
    assert report.gap_fraction == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "flows"), [(drawn, 60), (planted, 0)])
def test_the_default_is_near_the_optimum_of_twenty_instances(make: Any, flows: int) -> None:
    """8 x 4 switches; drawn ones, and planted ones whose links must all be filled exactly."""
    over = []
    for seed in range(20):
        fabric, frame = make(seed, 8, 4, flows) if flows else make(seed, 8, 4)
        balanced = sm.route(fabric, frame)
        optimum = optimum_s(fabric, frame, 0.8 * balanced.bound_s)
        if make is planted:
            assert optimum == pytest.approx(12e8 / 12.5e9)
        assert balanced.bound_s <= optimum * (1 + 1e-9)
        over.append(balanced.drain_s / optimum - 1)
    assert min(over) >= -1e-9
    assert np.mean(np.array(over) <= 0.05) >= 0.95


def test_two_links_cannot_carry_five_and_nobody_says_so_without_proof() -> None:
    table = ((0, 2), (1, 3))
    few = FewSizes({(table, 3): [0, 1, 2], (table, 2): [3]}, 1.0, symmetric=True)
    assert fit(few, 5, 10.0) == (None, True)  # 11 units on two links, one of which has two threes
    chosen, impossible = fit(few, 6, 10.0)
    assert chosen is not None
    assert not impossible
    assert sorted(chosen) == [0, 1, 2, 3]
    on_first = sum(size for flow, size in enumerate((3, 3, 3, 2)) if chosen[flow] == 0)
    assert on_first in (5, 6)


@pytest.mark.parametrize("more", [0, 1])
def test_sizes_are_few_up_to_what_the_engine_counts(more: int) -> None:
    fabric, frame = drawn(0, 4, 4, 4 * _core.MAX_FLOW_SIZES)
    sizes = 1e8 * (1 + np.arange(len(frame)) % (_core.MAX_FLOW_SIZES + more))
    traffic = sm.Traffic.from_frame(frame.assign(size_bytes=sizes))
    few = few_sizes(
        _core.path_columns(fabric.core, traffic.core, 256, 0),
        np.asarray(traffic.core.columns()["size_bytes"]),
        np.asarray(fabric.core.columns()["bandwidth_bytes_per_s"]),
    )
    assert (few is None) == bool(more)
