"""Every call that may take long ends soon after an interrupt, on machines of any speed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="compares clocks of two processes"),
]

#: From the signal to the exception, seconds, and how often a busy machine is asked again.
SOON_S, ROUNDS = 0.2, 4


@dataclass(frozen=True)
class Long:
    """A call that takes seconds, which is made again where it ends before the interrupt."""

    needs: str
    call: str


FLOWS = """
import numpy as np, pandas as pd
random = np.random.default_rng(0)
fabric = sm.Fabric.leaf_spine(leaves=64, spines=32, nics_per_leaf=32)
n = {flows}
source = random.integers(0, 2048, n)
frame = pd.DataFrame({{"job": source % 64, "source": source,
                       "destination": (source + random.integers(1, 2048, n)) % 2048,
                       "size_bytes": {size}}})
flows = sm.Traffic.from_frame(frame)
"""
EQUAL = FLOWS.format(flows=6_000_000, size="1e9")
UNEQUAL = FLOWS.format(flows=2_000_000, size="random.random(n) + 1.0")
RINGS = """
import numpy as np
random = np.random.default_rng(0)
fabric = sm.Fabric.leaf_spine(leaves=64, spines=32, nics_per_leaf=32)
nics = random.permutation(2048).reshape(64, 32)
jobs = [{"pattern": "ring", "nics": row.tolist(), "size_bytes": 1e9 * (1 + random.random()),
         "compute_s": random.random()} for row in nics]
"""
SERVED = """
task = sm.Inference(input_tokens=500, output_tokens=100)
plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=8)
kept = sm.serve("llama3_8b", "dgx_h100", task, concurrency=64)
stream = sm.serving.stream.request_stream(task, requests=10_000_000, requests_per_s=8)
"""
PROMPTS = (
    SERVED
    + """
asked = [sm.PromptRequest(500, 4000, arrival=i / 4) for i in range(30_000)]
"""
)
FLEET = """
import numpy as np
count = 1_000_000
task = sm.Inference(input_tokens=2048, output_tokens=100)
plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=8)
answers = sm.serve("llama3_8b", "dgx_h100", task.replace(prefilled=True), replicas=8)
names = 4 * np.random.default_rng(0).integers(0, 40_000, (count, 1)) + np.arange(4)
trace = sm.Trace(np.arange(count) / 60, np.full(count, 2048), np.full(count, 100), block_tokens=512,
                 block_offsets=4 * np.arange(count + 1), block_ids=names.ravel())
tiers = sm.cache_tiers("mooncake_store", plan, replicas=8)
failures = sm.Failures(mtbf_s=60, restart_s=5)
outages = [sm.Outage(begin_s=9 * k, end_s=9 * k + 4, count=7) for k in range(500)]
kept = {"ttft_p99_s": 0.25, "tpot_s": 0.02}
clusters = ["dgx_h100", "dgx_a100"]
"""
STEP = """
task = sm.Training(global_batch=2**14, sequence=4096)
strategy = sm.Strategy(tp=8, pp=16, vpp=4, micro_batch=1)
cluster = sm.cluster("dgx_h100", nodes=16)
est = sm.estimate("llama3_405b", cluster, task, strategy)
"""
SPACE = """
cluster = sm.cluster("dgx_h100", nodes=2048)
designs = {"accelerator.memory.bandwidth": [f"{k} GB/s" for k in range(2000, 9000)]}
task = sm.Training(global_batch=2**14, sequence=8192)
space = sm.Space()
both = (False, True)
wide = sm.Space(
    shard_degree=range(1, 65), recompute_layers=range(1, 65), context=("ring", "all_to_all"),
    sequence_parallel=both,
    regather=both, split_p2p=both, offload_weights=both, offload_activations=both,
    offload_optimizer=both, overlap_tp=("off", "ring"), overlap_grad_reduce=("off", "on"),
    overlap_param_gather=("off", "on"), sharding=("ddp", "zero1", "zero2", "fsdp", "hsdp"),
)
"""
TABLE = """
import numpy as np, pandas as pd
a, b = np.random.default_rng(0).random((2, 5_000_000))
three = pd.DataFrame({"a": a, "b": b, "c": -a - b})
four = three.assign(c=a * b, d=-a - b - a * b).iloc[:2_000_000]
"""

CALLS = {
    "search": Long(SPACE, "sm.search('llama3_405b', cluster, task, space, prune=False)"),
    "search_with_bounds": Long(
        SPACE, "[sm.search('llama3_405b', cluster, task, space, top=k) for k in range(1000, 1020)]"
    ),
    "sweep": Long(SPACE, "sm.sweep('llama3_405b', cluster, task, space, columns=['step_time_s'])"),
    "sweep_to_csv": Long(
        SPACE, "sm.sweep('llama3_405b', cluster, task, space, out='/dev/shm/interrupted.csv')"
    ),
    "sweep_to_parquet": Long(
        SPACE,
        "sm.sweep('llama3_405b', cluster, task, space, out='/dev/shm/interrupted.parquet')",
    ),
    "size": Long(SPACE, "wide.size('llama3_405b', cluster, task)"),
    "codesign": Long(
        SPACE,
        "sm.codesign('llama3_405b', cluster, task, vary=designs)",
    ),
    "pareto": Long(TABLE, "sm.pareto(three, ['a', 'b', 'c'])"),
    "pareto_of_four": Long(TABLE, "sm.pareto(four, list('abcd'))"),
    "route_equal": Long(EQUAL, "sm.route(fabric, flows)"),
    "route_unequal": Long(UNEQUAL, "sm.route(fabric, flows, policy='local_search', effort=1e6)"),
    "route_annealing": Long(UNEQUAL, "sm.route(fabric, flows, policy='annealing')"),
    "route_few_sizes": Long(
        RINGS, "[sm.route(fabric, jobs, effort=1e5, seed=k) for k in range(999)]"
    ),
    "route_exactly": Long(RINGS, "sm.route(fabric, jobs, policy='milp')"),
    "simulate_network": Long(RINGS, "sm.simulate_network(fabric, jobs, epochs=100_000)"),
    "simulate_controlled": Long(
        RINGS, "sm.simulate_network(fabric, jobs, epochs=20_000, reoptimise_every_s=0.1)"
    ),
    "stream": Long(SERVED, "plan.simulate(stream)"),
    "keep_running": Long(SERVED, "kept.simulate(requests=9_000_000)"),
    "at_rates": Long(
        "import numpy as np\n" + SERVED, "plan.at_rates(np.linspace(1, 9, 4_000_000))"
    ),
    "prompts": Long(PROMPTS, "plan.simulate(asked)"),
    "plan_serving": Long(
        SERVED,
        "sm.plan_serving('llama3_8b', 'dgx_h100', task, requests_per_s=400,"
        " per_octave=100_000, checked=False, progress=False)",
    ),
    "fleet_tiers": Long(FLEET, "sm.simulate_fleet(trace, plan, router='kv_cost', tiers=tiers)"),
    "fleet_failures": Long(
        FLEET, "sm.simulate_fleet(trace, plan, failures=failures, outages=outages, tiers=tiers)"
    ),
    "fleet_pools": Long(FLEET, "sm.simulate_pools(trace, plan, answers, tiers=tiers)"),
    "plan_fleet": Long(FLEET, "sm.plan_fleet(trace, 'llama3_8b', clusters, kept)"),
    "plan_pools": Long(FLEET, "sm.plan_fleet(trace, 'llama3_8b', clusters, kept, pools=True)"),
    "timeline": Long(STEP, "est.timeline()"),
    "timeline_events": Long(STEP, "est.timeline().events()"),
    "report": Long(SPACE, "sm.report('llama3_405b', cluster, task)"),
}

SCRIPT = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)

import pandas
import scalemodel as sm
{needs}
print("ready", flush=True)
try:
    while True:
        {call}
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
"""


def seconds_to_stop(long: Long, wait_s: float) -> float:
    """From sending SIGINT to the exception; the clock is the machine's."""
    script = SCRIPT.format(needs=long.needs, call=long.call)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait_s)
        sent_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        stopped_s = float(process.stdout.readline())
        process.kill()
    return stopped_s - sent_s


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_ends_the_call_soon(name: str) -> None:
    moments = random.Random(name)
    took = []
    for _ in range(ROUNDS):
        took.append(seconds_to_stop(CALLS[name], moments.uniform(0.05, 1.5)))
        if took[-1] <= SOON_S:
            return
    pytest.fail(f"interrupted, it went on for {', '.join(f'{one:.2f}' for one in took)} s")
