"""The same requests through this fleet and through that of ``vllm-sr-sim``, side by side.

Run with ``pytest tests/benchmarks/bench_fleet_peer.py -s`` where the peer can be imported (``pip
install vllm-sr-sim``, or its folder on PYTHONPATH); it is skipped where not.

Both get the same arrivals, lengths, KV cache and step times: the peer's profile is asked for the
steps of this engine, on a grid of sequences and contexts. What differs then is the simulation.

* The peer frees a slot after (time of service with all slots busy)/slots, so that its queue is one
  server of full speed for whole requests, and nearly never waits; the time that users see is
  computed beside it, at the number of sequences that run as a request starts, and stays so.
* It takes a prompt as chunks of steps that decode as well, of one sequence; here prompts share a
  budget of tokens, and one of them holds up all others.
* A sequence here grows while it decodes and joins steps that change; its arrival waits for the end
  of the step under way, and for the CPU of the server (`request_host`, 5 ms).

At low load the two agree on the time of a token, which is the step's; the wait for the first one
differs by the constants above, and with load by the queue that the peer does not have.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import RequestStream

pytest.importorskip(
    "fleet_sim", reason="vllm-sr-sim is not installed: pip install vllm-sr-sim, or PYTHONPATH"
)

REPLICAS = 16
TASK = sm.Inference(input_tokens=1000, output_tokens=200)
CHUNK, BLOCK = 512, 16
SPEED_GOAL = 20.0


class Profile:
    """Steps of an instance, as the peer asks for them."""

    name, chunk, blk_size, cost_per_hr = "instance", CHUNK, BLOCK, 1.0

    def __init__(self, plan: sm.Serving) -> None:
        assert plan.instance is not None
        capacity = plan.instance.capacity(TASK.input_tokens, TASK.output_tokens)
        self.total_kv_blks = int(capacity.blocks)
        self.slots = int(min(capacity.step_sequences, capacity.max_running_sequences))
        self.counts = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
        context = TASK.input_tokens + TASK.output_tokens / 2
        step = plan.instance.step
        self.steps = [step(sequences=n, context=context).step_time_s for n in self.counts]
        chunk = step(prompts=1, prompt_tokens=CHUNK, prompt_keys=TASK.input_tokens / 2)
        self.chunk_s = chunk.step_time_s

    def n_slots(self, max_ctx: int) -> int:
        return self.slots

    def iter_latency(self, n_active: int, mean_seq_len: float | None = None) -> float:
        place = min(bisect_left(self.counts, n_active), len(self.counts) - 1)
        if not place or self.counts[place] == n_active:
            return self.steps[place]
        low, high = self.counts[place - 1], self.counts[place]
        share = min(1.0, (n_active - low) / (high - low))
        return self.steps[place - 1] + share * (self.steps[place] - self.steps[place - 1])

    def prefill_iter_latency(
        self, chunk: int, history: float, n_active: int, mean_seq_len: float | None = None
    ) -> float:
        return self.chunk_s


def peer_fleet(plan: sm.Serving, stream: RequestStream) -> tuple[dict[str, float], float]:
    """What the peer finds, and the seconds it took."""
    from fleet_sim.core.fleet import Fleet, FleetConfig, PoolConfig
    from fleet_sim.core.request import Request

    pool = PoolConfig("all", Profile(plan), REPLICAS, 4096, lb_strategy="least_loaded")
    fleet = Fleet(FleetConfig([pool], router_type="RandomRouter"))
    columns = (stream.arrival_s, stream.input_tokens, stream.output_tokens)
    asked = [
        (float(arrival), Request(place, float(arrival), int(prompt), int(answer)))
        for place, (arrival, prompt, answer) in enumerate(zip(*columns, strict=True))
    ]
    begin = time.perf_counter()
    done = fleet.run(asked).completed
    taken = time.perf_counter() - begin
    ttft = np.array([each.ttft for each in done])
    tpot = np.array([each.tpot for each in done if each.l_out > 1])
    return {
        "requests": len(done),
        "ttft_mean_s": ttft.mean(),
        "ttft_p99_s": np.quantile(ttft, 0.99),
        "tpot_mean_s": tpot.mean(),
    }, taken


def ours(plan: sm.Serving, stream: RequestStream) -> tuple[dict[str, float], float]:
    begin = time.perf_counter()
    served = sm.simulate_fleet(stream, [(plan, REPLICAS)], router="least_loaded")
    taken = time.perf_counter() - begin
    return served.summary(), taken


@pytest.mark.parametrize("load", [0.02, 0.5, 0.9])
def test_the_same_trace_through_both(load: float, capsys: Any) -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    steady = plan.instance.steady_state(plan.task.mix, 512.0)  # type: ignore[union-attr]
    rate = load * REPLICAS * steady.requests_per_s
    stream = sm.request_stream(
        TASK, requests=20_000, requests_per_s=rate, lengths="exponential", seed=1
    )
    (found, own_s), (theirs, peer_s) = ours(plan, stream), peer_fleet(plan, stream)
    with capsys.disabled():
        print(f"\nload {load}, {rate:.4g} requests/s: {own_s:.3f} s and {peer_s:.3f} s", end="")
        print(f", ratio {peer_s / own_s:.1f}")
        for name, value in theirs.items():
            print(f"  {name:12} {found[name]:10.4g} {value:10.4g}")
    assert theirs["requests"] > 0
    assert peer_s / own_s > SPEED_GOAL
    if load < 0.1:
        assert theirs["tpot_mean_s"] == pytest.approx(found["tpot_mean_s"], rel=0.25)
