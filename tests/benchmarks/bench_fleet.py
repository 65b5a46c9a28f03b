"""A million requests through a fleet; run with ``pytest tests/benchmarks/bench_fleet.py``.

Goals are for one core of an ordinary server. They are written beside what was measured
(``extra_info``) and not asserted: what is asserted is that there was as much to do as claimed.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import RequestStream

pytest.importorskip("pytest_benchmark")

REQUESTS, REPLICAS, BLOCK_TOKENS = 1_000_000, 64, 256
TASK = sm.Inference(input_tokens=2000, output_tokens=200)


@dataclass(frozen=True, eq=False, repr=False)
class Conversations(RequestStream):
    """Sessions of five turns on average, two blocks longer each turn, behind fifty starts."""

    session: Any = None
    block_offsets: Any = None
    block_ids: Any = None
    block_tokens: int = BLOCK_TOKENS


def conversations(count: int, rate: float) -> Conversations:
    random = np.random.default_rng(0)
    session = np.arange(count) // 2000 * 400 + random.integers(0, 400, count)
    order = np.argsort(session, kind="stable")
    ordered = session[order]
    place = np.arange(count)
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    turn = np.empty(count, dtype=np.int64)
    turn[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    blocks = np.minimum(2 + 2 * turn, 30)
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    ids = np.repeat(session * 1000 + 10**9 - offsets[:-1], blocks).astype(np.uint64)
    ids += np.arange(offsets[-1], dtype=np.uint64)
    ids[offsets[:-1]] = session % 50
    return Conversations(
        np.cumsum(random.exponential(1 / rate, count)),
        blocks * BLOCK_TOKENS + random.integers(1, BLOCK_TOKENS, count),
        np.maximum(1, random.exponential(200, count).round()),
        session=session,
        block_offsets=offsets,
        block_ids=ids,
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize(
    "router", ["prefix_aware", "kv_cost", "least_loaded", "session_sticky", "round_robin"]
)
def test_a_million_requests_over_64_replicas(benchmark: Any, router: str) -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    trace = conversations(REQUESTS, 900)
    before = peak_mb()
    served = benchmark.pedantic(
        sm.simulate_fleet, (trace, [(plan, REPLICAS)]), {"router": router}, rounds=1
    )
    assert served.cached_tokens.sum() > 0.1 * trace.input_tokens.sum()
    assert len(np.unique(served.replica)) == REPLICAS
    benchmark.extra_info |= {
        "goal_s": 10.0,
        "goal_peak_mb": 500.0,
        "peak_mb": peak_mb(),
        "peak_of_the_trace_mb": before,
        "blocks": int(trace.block_offsets[-1]),
    }
