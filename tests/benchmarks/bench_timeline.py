"""Time to simulate one step of a 405-billion-parameter model, and to read it out.

Goals: under 100 ms for all 16 stages, 126 layers in 128 chunks, 128 micro-batches. Run with
``python tests/benchmarks/bench_timeline.py``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import scalemodel as sm

GOAL_S = 0.1


def median_s(call: Callable[[], object], repeats: int = 7) -> float:
    """Median processor time of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    """Print the times."""
    est = sm.estimate(
        "llama3_1_405b",
        sm.cluster("dgx_h100", nodes=128),
        sm.Training(global_batch=1024, sequence=8192),
        sm.Strategy(tp=8, pp=16, vpp=8, recompute="selective"),
    )
    timeline = est.timeline()
    print(f"{timeline!r}, {len(timeline.events)} events, goal {1e3 * GOAL_S:.0f} ms")
    for what, call in (
        ("simulate", est.timeline),
        ("events", timeline.core.events),
        ("memory", timeline.core.memory),
        ("critical path", timeline.core.critical_path),
    ):
        print(f"{what:14} {1e3 * median_s(call):8.1f} ms")


if __name__ == "__main__":
    main()
