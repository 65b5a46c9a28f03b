"""The fullest link proven minimal where flows have few sizes: an oracle on patterns of links."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel.routing.mixed_integer import Program, solve

#: The links of every path that a flow may take.
PathLinks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FewSizes:
    """Flows that may be exchanged for each other, and how many units a link carries."""

    #: Flows by the links of their paths and their size in units.
    alike: dict[tuple[PathLinks, int], list[int]]
    #: Seconds that a link needs for one unit.
    unit_s: float
    #: Whether any two planes may be exchanged for each other.
    symmetric: bool


def few_sizes(
    paths: dict[str, Any], size_bytes: NDArray[np.float64], capacity: NDArray[np.float64]
) -> FewSizes | None:
    """Classes of flows alike; None where links differ or sizes are many or share no unit."""
    flow, path, link = paths["flow"], paths["path"], paths["link"]
    sizes = np.unique(size_bytes[flow])
    if not len(flow) or len(sizes) > _core.MAX_FLOW_SIZES or (sizes != np.round(sizes)).any():
        return None
    if len(np.unique(capacity[link])) > 1:
        return None
    unit = int(np.gcd.reduce(sizes.astype(np.int64)))
    links: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for f, p, e in zip(flow.tolist(), path.tolist(), link.tolist(), strict=True):
        links[f][p].append(e)
    alike: dict[tuple[PathLinks, int], list[int]] = defaultdict(list)
    for f, of_path in links.items():
        table = tuple(tuple(of_path[p]) for p in sorted(of_path))
        alike[table, round(size_bytes[f] / unit)].append(f)
    # On two tiers the n-th path of every flow is that of the n-th plane.
    hops = {tuple(len(row) for row in table) for table, _ in alike}
    symmetric = len(hops) == 1 and set(next(iter(hops))) == {2}
    return FewSizes(dict(alike), unit / float(capacity[link[0]]), symmetric)


def _patterns(sizes: list[int], counts: list[int], least: int, most: int) -> Iterator[list[int]]:
    """Numbers of flows by size that a link can carry with ``least`` to ``most`` units in all."""
    if not sizes:
        if least <= 0:
            yield []
        return
    for count in range(min(counts[0], most // sizes[0]), -1, -1):
        used = count * sizes[0]
        for rest in _patterns(sizes[1:], counts[1:], least - used, most - used):
            yield [count, *rest]


def fit(few: FewSizes, full: int, time_limit_s: float) -> tuple[dict[int, int] | None, bool]:
    """Paths by flow with which no link carries more than ``full`` units.

    One integer per class of flows and path, the flows of the class that take it; one binary per
    link and pattern of it, numbers of flows by size that fit on the link. A link has one pattern,
    and for every size the flows on the link are those of its pattern. A link carries at least
    what the other links that its flows could take cannot. Planes that may be exchanged for each
    other are ordered by the patterns of one leaf.

    Returns
    -------
    tuple
        The paths, or None; and whether the solver has proven that there are none.
    """
    first: dict[tuple[PathLinks, int], int] = {}
    upper: list[float] = []
    entries: list[tuple[int, int, float]] = []
    low: list[float] = []
    high: list[float] = []

    def row(terms: list[tuple[int, float]], lower: float, most: float) -> None:
        entries.extend((len(low), variable, factor) for variable, factor in terms)
        low.append(lower)
        high.append(most)

    on_link: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    count_on: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    totals: dict[frozenset[int], int] = defaultdict(int)
    for (table, size), flows in few.alike.items():
        first[table, size] = len(upper)
        row([(len(upper) + p, 1.0) for p in range(len(table))], len(flows), len(flows))
        for p, links in enumerate(table):
            for e in links:
                on_link[e][size].append(len(upper) + p)
                count_on[e][size] += len(flows)
        upper.extend([float(len(flows))] * len(table))
        for hop in range(min(len(links) for links in table)):
            totals[frozenset(links[hop] for links in table)] += size * len(flows)
    least: dict[int, int] = defaultdict(int)
    for links_of_side, units in totals.items():
        for e in links_of_side:
            least[e] = max(least[e], units - (len(links_of_side) - 1) * full)
    order: dict[int, list[tuple[int, float]]] = {}
    for e, by_size in on_link.items():
        sizes = sorted(by_size, reverse=True)
        listed = list(_patterns(sizes, [count_on[e][size] for size in sizes], least[e], full))
        begin = len(upper)
        upper.extend([1.0] * len(listed))
        row([(begin + k, 1.0) for k in range(len(listed))], 1.0, 1.0)
        order[e] = [(begin + k, float(k)) for k in range(len(listed))]
        for at, size in enumerate(sizes):
            taken = [(begin + k, -float(counts[at])) for k, counts in enumerate(listed)]
            row([(variable, 1.0) for variable in by_size[size]] + taken, 0.0, 0.0)
    if few.symmetric:
        table = max(few.alike, key=lambda one: totals[frozenset(links[0] for links in one[0])])[0]
        for one, other in pairwise(table):
            negative = [(variable, -factor) for variable, factor in order[one[0]]]
            row(order[other[0]] + negative, 0.0, np.inf)
    rows, columns, factors = (np.array(column) for column in zip(*entries, strict=True))
    program = Program(
        cost=np.zeros(len(upper)),
        lower=np.zeros(len(upper)),
        upper=np.array(upper),
        whole=np.ones(len(upper), dtype=bool),
        rows=rows,
        columns=columns,
        factors=factors,
        low=np.array(low),
        high=np.array(high),
    )
    answer = solve(program, time_limit_s)
    if answer.values is None:
        return None, answer.infeasible
    chosen: dict[int, int] = {}
    for key, flows in few.alike.items():
        left = iter(flows)
        for p in range(len(key[0])):
            for _ in range(round(answer.values[first[key] + p])):
                chosen[next(left)] = p
    return chosen, False


def least_units(
    few: FewSizes, bound_s: float, drain_s: float, time_limit_s: float
) -> tuple[dict[int, int] | None, float] | None:
    """Raises what a link may carry, from the bound on, until all flows fit or the time is over.

    Returns
    -------
    tuple
        Better paths than those that drain in ``drain_s``, by flow, or None; and the proven bound.
        None in all where a link carries too many units for patterns to be listed.
    """
    started = time.perf_counter()
    full = int(np.ceil(bound_s / few.unit_s * (1 - 1e-9)))
    known = round(drain_s / few.unit_s)
    if known > _core.MAX_LINK_UNITS:
        return None
    while full < known:
        left_s = time_limit_s - (time.perf_counter() - started)
        chosen, impossible = fit(few, full, left_s) if left_s > 0 else (None, False)
        if chosen is not None or not impossible:
            return chosen, full * few.unit_s
        full += 1
    return None, known * few.unit_s
