"""Where a search over thousands of workers stops scaling, and why; ``python cluster_study.py``.

Measured here: what a hardware point costs once (tables, a quick look), what a row costs, what
Dask's scheduler takes to hand out an item (on 1, 8, 64 and 512 local workers, whose items sleep)
and what the parent takes to merge an answer. The rest is simulated: one parent hands out items and
merges answers, one at a time; every worker runs one item at a time. Assumes a network that is never
the limit: an item is 11 KB, its answer less than 100 KB.
"""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np

import scalemodel as sm
from scalemodel.search.merging import merge
from scalemodel.search.ranking import Question

WORKERS = (1, 8, 64, 512, 4096)


@dataclass(frozen=True)
class Costs:
    """Seconds of what a search over workers consists of.

    Attributes
    ----------
    serial_s
        Of the parent alone, before the first item.
    hand_out_s, merge_s
        Of the parent, for each item.
    point_s
        Of a worker, for every hardware point of an item: its question, tables and quick look.
    row_s
        Of a worker, for every strategy.
    """

    serial_s: float = 0.0
    hand_out_s: float = 0.0
    merge_s: float = 0.0
    point_s: float = 0.0
    row_s: float = 0.0


@dataclass(frozen=True)
class Item:
    """What a worker is handed at once: rows of some hardware points."""

    points: int
    first: int
    rows: int


def makespan_s(times_s: Iterable[float], workers: int, costs: Costs) -> float:
    """When the last answer is merged: items go to the first worker that is free, in their order.

    A parent that could hand out an item or merge an answer hands out.
    """
    waiting = list(times_s)[::-1]
    parent_s, free = costs.serial_s, workers
    running: list[float] = []  # ends of items
    ended = 0  # answers to merge
    while waiting or running or ended:
        while running and running[0] <= parent_s:
            heapq.heappop(running)
            free, ended = free + 1, ended + 1
        if waiting and free:
            parent_s += costs.hand_out_s
            heapq.heappush(running, parent_s + waiting.pop())
            free -= 1
        elif ended:
            parent_s += costs.merge_s
            ended -= 1
        else:
            parent_s = max(parent_s, running[0])
    return parent_s


def item_times(
    items: Sequence[Item], rows: int, costs: Costs, spread: Sequence[float] = (1.0,)
) -> list[float]:
    """What a worker takes for each item. `spread`: what rows cost over their mean, in as many equal
    parts of every point of `rows` rows."""
    edges = np.linspace(0, rows, len(spread) + 1)
    sums = np.concatenate([[0.0], np.cumsum(spread)]) * rows / sum(spread)

    def before(row: int) -> float:
        """Rows of mean cost that cost as much as all those in front of a row."""
        points, left = divmod(row, rows)
        return points * rows + float(np.interp(left, edges, sums))

    return [
        item.points * costs.point_s
        + (before(item.first + item.rows) - before(item.first)) * costs.row_s
        for item in items
    ]


# ------------------------------------------------------------------------- how work is handed out
def equal_parts(points: int, rows: int, parts: int) -> list[Item]:
    """All rows in so many parts, one after the other; a part holds what it touches of points."""
    edges = [points * rows * i // parts for i in range(parts + 1)]
    return [
        Item(ceil(last / rows) - first // rows, first, last - first)
        for first, last in pairwise(edges)
        if last > first
    ]


def shrinking_parts(rows: int, workers: int, least_rows: int, first: int, last: int) -> list[Item]:
    """Rows [first, last) in parts of half of what is left for each worker (Polychronopoulos and
    Kuck, IEEE Trans. Comput. C-36 (1987) 1425-1439), whole points of `rows` rows while a part is
    larger than one, at least `least_rows`."""
    found, at = [], first
    while at < last:
        size = max(least_rows, (last - at) // (2 * workers))
        if size > rows:
            size -= (at + size) % rows  # to the end of a point
        end = min(last, at + size)
        found.append(Item(ceil(end / rows) - at // rows, at, end - at))
        at = end
    return found


def least_rows(costs: Costs, workers: int, rows: int) -> int:
    """Rows of the smallest item worth handing out, of so many rows in all.

    The parent feeds `workers` as long as an item takes as many of its turns (a hand-out and a
    merge). Where they are more than it can feed, turns for all items and the last item together
    take least where each takes the root of all work times a turn. What a point costs anew in every
    item stays below a tenth of it.
    """
    turn_s = costs.hand_out_s + costs.merge_s
    item_s = min(workers * turn_s, (rows * costs.row_s * turn_s) ** 0.5)
    return max(1, ceil(max(item_s, 9 * costs.point_s) / costs.row_s))


POLICIES: dict[str, Callable[[int, int, int, Costs], list[Item]]] = {
    "a part for each worker": lambda p, r, w, c: equal_parts(p, r, w),
    "a part for each point": lambda p, r, w, c: equal_parts(p, r, p),
    "100 parts for each point": lambda p, r, w, c: equal_parts(p, r, 100 * p),
    "shrinking parts": lambda p, r, w, c: shrinking_parts(r, w, least_rows(c, w, p * r), 0, p * r),
}


def under_parents_s(
    points: int,
    rows: int,
    workers: int,
    costs: Costs,
    spread: Sequence[float] = (1.0,),
    group: int = 64,
) -> tuple[int, float]:
    """Items and seconds where parents of `group` workers each hand out an equal share of all rows:
    the first parent has only these to serve, one after the other."""
    shares = equal_parts(points, rows, ceil(workers / group))
    own = Costs(0.0, costs.hand_out_s, costs.merge_s, costs.point_s, costs.row_s)
    count, times = 0, []
    for share in shares:
        least = least_rows(costs, group, share.rows)
        items = shrinking_parts(rows, group, least, share.first, share.first + share.rows)
        count += len(items)
        took_s = makespan_s(item_times(items, rows, costs, spread), min(group, workers), own)
        times.append(took_s)
    return count, makespan_s(times, len(shares), costs)


def study(
    points: int, rows: int, costs: Costs, spread: Sequence[float] = (1.0,)
) -> list[tuple[str, int, int, float, float]]:
    """Policy, workers, items, seconds, and share of the workers' time spent on rows and points.

    `spread` is that of `item_times`, as measured.
    """
    useful_s = points * (costs.point_s + rows * costs.row_s)
    found = []
    for name, policy in POLICIES.items():
        for workers in WORKERS:
            items = policy(points, rows, workers, costs)
            took_s = makespan_s(item_times(items, rows, costs, spread), workers, costs)
            found.append((name, workers, len(items), took_s, useful_s / (workers * took_s)))
    for workers in WORKERS:
        count, took_s = under_parents_s(points, rows, workers, costs, spread)
        share = useful_s / (workers * took_s)
        found.append(("parents of 64 workers", workers, count, took_s, share))
    return found


# ----------------------------------------------------------------------------------- measurements
def question(bandwidth_share: float, prune: bool) -> Question:
    """GPT-3 175B on 1,024 A100, Calculon's space, on one of many hardware points."""
    fabric = {"bandwidth": f"{200 * bandwidth_share:g} Gbit/s"}
    cluster = sm.cluster({"base": "dgx_a100", "fabric": fabric}, nodes=128)
    task = sm.Training(global_batch=1536, sequence=2048, batch_is_limit=True)
    model = sm.model("gpt3_175b")
    space = sm.Space.calculon(model, cluster, task)
    objective = (("tokens_per_s", 1.0),)
    return Question(model, cluster, task, space, objective=objective, prune=prune)


def seconds(call: Callable[[], object]) -> float:
    """Processor time of a call."""
    begin_s = time.process_time()
    call()
    return time.process_time() - begin_s


def measured(prune: bool, parts: int = 64) -> tuple[Costs, int, list[float]]:
    """Costs on this machine, rows of a point, and times of items over their mean."""
    first = question(0.9, prune)
    serial_s = seconds(lambda: first.size)  # the space is enumerated once
    asked = question(1.1, prune)
    rows = asked.size
    look = seconds(lambda: asked.run_search(0, 1))  # its tables
    beyond = [float("inf")]

    def quick_look() -> None:
        beyond[0] = asked.quick_look()

    point_s = look + seconds(quick_look)
    answers, times = [], []
    for shard in asked.shards(parts, beyond=beyond[0]):
        times.append(seconds(lambda shard=shard: answers.append(shard.search(1))))  # type: ignore[misc]
    merge_s = seconds(lambda: merge(answers)) / parts
    mean_s = sum(times) / parts
    costs = Costs(serial_s, 0.0, merge_s, point_s, parts * mean_s / rows)
    return costs, rows, [one / mean_s for one in times]


def nap(nap_s: float) -> float:
    """An item that takes its time and no processor."""
    time.sleep(nap_s)
    return nap_s


def dask_hand_out_s(workers: int, items: int) -> float:
    """Time per item of Dask's scheduler, handing short ones to as many local workers."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=max(1, workers // 64),
            threads_per_worker=min(workers, 64),
            processes=False,
            dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,  # type: ignore[no-untyped-call]
    ):
        client.gather(client.map(nap, [0.0] * workers, pure=False))
        begin_s = time.perf_counter()
        client.gather(client.map(nap, [1e-3] * items, pure=False))
        return (time.perf_counter() - begin_s) / items


def main() -> None:
    """Measure, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--items", type=int, default=2000, help="of the measurement of Dask")
    options = parser.parse_args()
    hand_out = {w: dask_hand_out_s(w, options.items) for w in (1, 8, 64, 512)}
    for workers, each_s in hand_out.items():
        print(f"Dask, {workers} local workers: {1e3 * each_s:.2f} ms an item")
    hand_out_s = min(hand_out.values())  # with one worker, its nap is in it
    for prune in (False, True):
        costs, rows, spread = measured(prune)
        costs = Costs(costs.serial_s, hand_out_s, costs.merge_s, costs.point_s, costs.row_s)
        print(
            f"\n{'with bounds' if prune else 'every row'}: {options.points:,} points x {rows:,} "
            f"rows; a point {1e3 * costs.point_s:.1f} ms, a row {1e9 * costs.row_s:.1f} ns, "
            f"hand-out {1e3 * hand_out_s:.2f} ms, merge {1e3 * costs.merge_s:.2f} ms, items "
            f"{min(spread):.2f} to {max(spread):.2f} of their mean (std {np.std(spread):.2f})"
        )
        for name, workers, items, took_s, share in study(options.points, rows, costs, spread):
            print(f"{name:26} {workers:5} workers {items:7,} items {took_s:10.2f} s {share:6.1%}")


if __name__ == "__main__":
    main()
