"""Laws of the study of searches over many workers, and that their answer is the same bits."""

from __future__ import annotations

import importlib.util
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.search.merging import merge
from scalemodel.search.ranking import Question, Ranking, Shard

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "cluster_study.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster_study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


study = load()
SECONDS = st.floats(0, 2, allow_nan=False)
COSTS = st.builds(study.Costs, SECONDS, SECONDS, SECONDS, SECONDS, st.floats(1e-9, 1e-6))
TIMES = st.lists(st.floats(1e-3, 10), min_size=1, max_size=40)


@given(times=TIMES, costs=COSTS)
def test_one_worker_takes_what_serial_work_takes(times: list[float], costs: study.Costs) -> None:
    free = study.Costs(serial_s=costs.serial_s)
    assert study.makespan_s(times, 1, free) == pytest.approx(costs.serial_s + sum(times))
    # While a worker works, the parent merges what came before: all but the last answer.
    took_s = study.makespan_s(times, 1, costs)
    handed_s = len(times) * costs.hand_out_s
    all_s = costs.serial_s + sum(times) + handed_s + costs.merge_s * len(times)
    assert costs.serial_s + sum(times) + handed_s + costs.merge_s <= took_s * (1 + 1e-9)
    assert took_s <= all_s * (1 + 1e-9)


@given(times=TIMES, costs=COSTS, workers=st.integers(1, 100))
def test_nothing_is_faster_than_its_work_over_its_workers(
    times: list[float], costs: study.Costs, workers: int
) -> None:
    took_s = study.makespan_s(times, workers, costs) * (1 + 1e-9)
    parent_s = len(times) * (costs.hand_out_s + costs.merge_s)
    assert took_s >= costs.serial_s + sum(times) / workers
    assert took_s >= costs.serial_s + costs.hand_out_s + max(times) + costs.merge_s
    assert took_s >= costs.serial_s + parent_s
    # Nor slower than one after the other.
    assert took_s <= (costs.serial_s + sum(times) + parent_s) * (1 + 1e-8)


@given(
    points=st.integers(1, 50),
    rows=st.integers(1, 10_000),
    workers=st.integers(1, 64),
    costs=COSTS,
)
def test_every_way_of_handing_out_hands_out_every_row_once(
    points: int, rows: int, workers: int, costs: study.Costs
) -> None:
    for policy in study.POLICIES.values():
        items = policy(points, rows, workers, costs)
        ends = [item.first + item.rows for item in items]
        assert [item.first for item in items] == [0, *ends[:-1]]
        assert ends[-1] == points * rows
        assert all(item.rows > 0 for item in items)
        assert all((item.points - 2) * rows < item.rows <= item.points * rows for item in items)
        uneven = study.item_times(items, rows, study.Costs(row_s=1.0), [0.5, 2.0, 1.0])
        assert sum(uneven) == pytest.approx(points * rows)


@given(points=st.integers(1, 30), workers=st.integers(1, 300), costs=COSTS)
def test_parents_of_workers_are_no_faster_than_their_work(
    points: int, workers: int, costs: study.Costs
) -> None:
    rows = 1000
    items, took_s = study.under_parents_s(points, rows, workers, costs)
    work_s = points * (costs.point_s + rows * costs.row_s)
    assert items >= 1
    assert took_s * (1 + 1e-9) >= costs.serial_s + work_s / workers


def test_shrinking_parts_keep_hundreds_of_workers_busy() -> None:
    costs = study.Costs(0.1, 2e-4, 1e-4, 0.02, 2.5e-7)
    spread = random.Random(0).choices((0.5, 0.75, 1.0, 1.75), k=997)
    # As many points that the last round of whole ones leaves most of the workers idle.
    rows = study.study(1100, 10**7, costs, spread)
    found = {(name, workers): share for name, workers, _, _, share in rows}
    assert found["shrinking parts", 1] == pytest.approx(1, abs=0.02)
    assert found["shrinking parts", 64] > 0.95
    assert found["shrinking parts", 512] > 0.85
    assert found["shrinking parts", 512] > found["a part for each point", 512]
    assert found["shrinking parts", 512] > 2 * found["100 parts for each point", 512]
    assert found["parents of 64 workers", 4096] > 1.5 * found["shrinking parts", 4096]


@pytest.fixture(scope="module")
def asked() -> Question:
    task = sm.Training(global_batch=64, sequence=8192)
    return Question(sm.model("llama3_8b"), sm.cluster("dgx_h100", nodes=2), task, sm.Space())


def shards_of(asked: Question) -> list[Shard]:
    shards = asked.shards(23, beyond=asked.quick_look())
    random.Random(7).shuffle(shards)
    return shards


def searched(shard: Shard) -> Ranking:
    return shard.search(1)


def test_workers_answer_with_the_same_bits(asked: Question) -> None:
    whole = asked.run_search(0, asked.size, 1)
    for workers in (1, 3):
        with ThreadPoolExecutor(workers) as pool:
            assert list(merge(list(pool.map(searched, shards_of(asked))))) == list(whole)


def test_dask_answers_with_the_same_bits(asked: Question) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        parts = client.gather(client.map(searched, shards_of(asked), pure=False))
    assert list(merge(parts)) == list(asked.run_search(0, asked.size, 1))
