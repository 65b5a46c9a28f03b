"""The same answers wherever the shards run: processes, threads, joblib, Dask."""

from __future__ import annotations

import concurrent.futures
import functools
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.search.ranking import Question

SPACE = sm.Space(cp=1, micro_batch=[1, 2], recompute=["none", "selective"])
QUESTION = (
    "llama3_70b",
    sm.cluster("dgx_h100", nodes=4),
    sm.Training(global_batch=128, sequence=8192),
    SPACE,
)
OTHERS: list[dict[str, Any]] = [
    {},
    {"objective": "tokens_per_j", "top": 50},
    {"objective": {"step_time_s": 1, "memory_bytes": 0.2}, "top": 25},
    {"constraints": ["memory_bytes <= 0.8 * memory_capacity_bytes"]},
    {"stack": "nemo_mcore_2024_25", "prune": False},
]


@functools.cache
def searched(which: int) -> sm.Ranking:
    return sm.search(*QUESTION, **OTHERS[which])


@functools.cache
def swept() -> pd.DataFrame:
    return sm.sweep(*QUESTION)


def check(executor: Executor, shards: int | None = None) -> None:
    """A sweep and searches in an executor are those of this process."""
    frame = sm.sweep(*QUESTION, executor=executor, shards=shards)
    pd.testing.assert_frame_equal(frame, swept(), check_index_type=False, rtol=0, atol=0)
    for which, options in enumerate(OTHERS):
        here = searched(which)
        there = sm.search(*QUESTION, **options, executor=executor, shards=shards)
        assert len(here) > 0
        assert there._hits == here._hits  # scores, rows, strategies, estimates: every bit
        assert there.size == here.size == there.evaluated + there.pruned
        assert there.question == here.question
        if not options.get("prune", True):  # what is skipped depends on what else a shard saw
            assert there == here


def assert_elsewhere(executor: Executor) -> None:
    """The executor has processes of its own."""
    assert executor.submit(os.getpid).result() != os.getpid()


def test_the_question_is_worth_sharing_out() -> None:
    assert len(swept()) > 10_000
    assert {"ok", "out_of_memory"} <= set(swept().verdict)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_answer_as_this_one_does(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert_elsewhere(pool)
        check(pool)


@pytest.mark.parametrize("shards", [None, 1, 2, 13])
def test_threads_answer_as_one_does(shards: int | None) -> None:
    with ThreadPoolExecutor(3) as pool:
        check(pool, shards)


def test_many_searches_at_once_do_not_disturb_each_other() -> None:
    def ask(turn: int) -> tuple[int, sm.Ranking, pd.DataFrame | None]:
        which = turn % len(OTHERS)
        ranking = sm.search(*QUESTION, **OTHERS[which], threads=1 + turn % 3)
        frame = sm.sweep(*QUESTION, threads=1 + turn % 2) if turn % 7 == 0 else None
        return which, ranking, frame

    with ThreadPoolExecutor(8) as pool:
        for which, ranking, frame in pool.map(ask, range(40)):
            assert ranking == searched(which)  # counts included: threads do not matter
            if frame is not None:
                pd.testing.assert_frame_equal(frame, swept(), rtol=0, atol=0)


def test_questions_first_asked_at_once_agree() -> None:
    """The first use of a question fills caches that all threads share."""
    cluster = sm.cluster("dgx_a100", nodes=2)  # asked for by no other test of this file
    parts = "llama3_8b", cluster, sm.Training(global_batch=64, sequence=4096), SPACE
    with ThreadPoolExecutor(8) as pool:
        rankings = list(pool.map(lambda _: sm.search(*parts, threads=1), range(16)))
    assert all(ranking == rankings[0] for ranking in rankings)


def test_shards_and_answers_can_travel() -> None:
    parts = Question(sm.model(QUESTION[0]), *QUESTION[1:]).shards(3)
    for shard in parts:
        there = pickle.loads(pickle.dumps(shard))
        assert there == shard
        assert hash(there) == hash(shard)
        ranking = there.search()
        assert pickle.loads(pickle.dumps(ranking)) == ranking == shard.search()


def test_a_fault_in_a_worker_is_told() -> None:
    class Broken(ThreadPoolExecutor):
        def map(self, fn: Any, *iterables: Any, **options: Any) -> Iterator[Any]:
            def fail(_: object) -> None:
                raise concurrent.futures.BrokenExecutor("worker died")

            return super().map(fail, *iterables, **options)

    with Broken(1) as pool, pytest.raises(concurrent.futures.BrokenExecutor, match="worker died"):
        sm.search(*QUESTION, executor=pool)


def test_workers_of_joblib_answer_as_this_process_does() -> None:
    pytest.importorskip("joblib", reason="joblib is not installed")
    from joblib.externals.loky import get_reusable_executor

    pool = get_reusable_executor(max_workers=2)
    try:
        assert_elsewhere(pool)
        check(pool)
    finally:
        pool.shutdown(wait=True, kill_workers=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask and what it brings along
def test_workers_of_dask_answer_as_this_process_does() -> None:
    distributed = pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address=None,
                silence_logs="CRITICAL",
            )
        )
        client = stack.enter_context(distributed.Client(cluster))
        pool = stack.enter_context(client.get_executor())
        assert_elsewhere(pool)
        check(pool)
