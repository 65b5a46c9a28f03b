"""The scheduler over named blocks: vLLM's own schedules, step for step, and laws of any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm

RECORDED = json.loads(Path(__file__).with_name("vllm_schedules.json").read_text(encoding="utf-8"))[
    "recordings"
]
LIMITS = sm.SchedulerLimits(blocks=200, block_tokens=16, max_batched_tokens=256)


def recorded_requests(recording: dict[str, Any]) -> list[sm.PromptRequest]:
    """The requests of a recording, by their token ids."""
    shared = recording["shared_prefix"]
    lengths = zip(recording["input_tokens"], recording["output_tokens"], strict=True)
    return [
        sm.PromptRequest(
            [*range(shared), *((7 * i + 13 * j) % 1000 for j in range(prompt - shared))], output
        )
        for i, (prompt, output) in enumerate(lengths)
    ]


def unrolled(runs: list[list[int]]) -> list[int]:
    return [value for value, count in runs for _ in range(count)]


@pytest.mark.parametrize("recording", RECORDED, ids=lambda recording: recording["name"])
def test_every_step_of_a_recorded_schedule_of_vllm(recording: dict[str, Any]) -> None:
    limits = sm.SchedulerLimits(**recording["limits"])
    found = sm.replay_schedule(recorded_requests(recording), limits=limits)
    counted = found.summary()
    for name, count in recording["counters"].items():
        assert counted[name] == count, name
    for name, runs in recording["steps"].items():
        assert found.steps[name].tolist() == unrolled(runs), name


@pytest.mark.parametrize("recording", RECORDED, ids=lambda recording: recording["name"])
def test_tokens_are_prompts_less_hits_and_outputs_but_the_last(recording: dict[str, Any]) -> None:
    found = sm.replay_schedule(
        recorded_requests(recording), limits=sm.SchedulerLimits(**recording["limits"])
    ).summary()
    once = found["prompt_tokens"] - found["cached_tokens"] + found["output_tokens"]
    once -= found["requests"]
    assert found["batched_tokens"] == once + found["recomputed_tokens"]
    assert found["recomputed_tokens"] == {"prefix": 0, "preempt": 828}[recording["name"]]


def test_versions_before_may_2026_recompute_more_where_blocks_are_few() -> None:
    tight = RECORDED[1]
    requests = recorded_requests(tight)
    new, old = (
        sm.replay_schedule(
            requests, limits=sm.SchedulerLimits(**tight["limits"], uncached_last=last)
        ).summary()
        for last in (False, True)
    )
    assert old["recomputed_tokens"] == new["recomputed_tokens"] + 160
    assert old["steps"] == new["steps"]


def test_names_and_ids_of_the_same_blocks_give_the_same_schedule() -> None:
    rng = np.random.default_rng(3)
    ids, names = [], []
    for i in range(60):
        blocks = [int(rng.integers(3)) for _ in range(int(rng.integers(1, 8)))]
        rest = int(rng.integers(1, 16))
        prompt = [1000 * name + place for name in blocks for place in range(16)]
        ids.append(sm.PromptRequest([*prompt, *(9000 + i,) * rest], 20, arrival=3 * i))
        names.append(
            sm.PromptRequest(len(prompt) + rest, 20, [f"block {n}" for n in blocks], 3 * i)
        )
    assert sm.replay_schedule(ids, limits=LIMITS) == sm.replay_schedule(names, limits=LIMITS)
    finer = [
        sm.PromptRequest(
            each.prompt,
            20,
            [(name, half) for name in each.block_names for half in (0, 1)],
            each.arrival,
        )
        for each in names
    ]
    halves = sm.replay_schedule(finer, limits=LIMITS, name_tokens=8)
    assert halves == sm.replay_schedule(ids, limits=LIMITS)


def test_an_answer_is_found_again_by_the_next_turn() -> None:
    first, answer, second = list(range(40)), list(range(100, 140)), list(range(200, 220))
    turns = [
        sm.PromptRequest(first, answer),
        sm.PromptRequest([*first, *answer, *second], 5, arrival=1000),
    ]
    known = sm.replay_schedule(turns, limits=LIMITS).requests
    # Of 80 tokens the last was never computed: four full blocks.
    assert known.cached_tokens.tolist() == [0, 64]
    unknown = [sm.PromptRequest(first, len(answer)), turns[1]]
    assert sm.replay_schedule(unknown, limits=LIMITS).requests.cached_tokens[1] == 32


def test_the_last_token_is_computed_even_of_a_prompt_that_is_held() -> None:
    same = [sm.PromptRequest(list(range(64)), 4, arrival=at) for at in (0, 50)]
    found = sm.replay_schedule(same, limits=LIMITS)
    assert found.requests.cached_tokens.tolist() == [0, 48]
    off = sm.replay_schedule(same, limits=LIMITS.replace(prefix_caching=False))
    assert off.requests.cached_tokens.tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_limits_all_tokens_are_made_and_no_limit_is_broken(seed: int) -> None:
    rng = np.random.default_rng(seed)
    limits = sm.SchedulerLimits(
        blocks=int(rng.integers(12, 60)),
        block_tokens=int(rng.choice([1, 8, 16])),
        max_batched_tokens=int(rng.integers(4, 90)),
        max_running_sequences=int(rng.integers(1, 12)),
        max_prompt_chunk=int(rng.choice([0, 7])),
        reserves_prompt=bool(rng.integers(2)),
        uncached_last=bool(rng.integers(2)),
        prefix_caching=bool(seed % 3),
    )
    requests = [
        sm.PromptRequest(
            [0] * int(rng.integers(1, 60)) + [1 + i] * int(rng.integers(1, 40)),
            int(rng.integers(1, 50)),
            arrival=2 * i,
        )
        for i in range(80)
    ]
    found = sm.replay_schedule(requests, limits=limits)
    steps, done, total = found.steps, found.requests[~found.requests.refused], found.summary()
    assert (steps.batched_tokens <= limits.max_batched_tokens).all()
    assert (steps.running <= limits.max_running_sequences).all()
    assert (steps.used_blocks <= limits.blocks).all()
    assert (steps.batched_tokens > 0).all()
    fits = found.requests.input_tokens + found.requests.output_tokens - 1
    assert (found.requests.refused == (fits > limits.blocks * limits.block_tokens)).all()
    assert (done.finished - done.first_token >= done.output_tokens - 1).all()
    once = (done.input_tokens - done.cached_tokens + done.output_tokens - 1).sum()
    assert total["batched_tokens"] == once + total["recomputed_tokens"]
    assert steps.started.sum() == len(done)
    assert done.preemptions.sum() == total["preemptions"]


def test_a_cache_twice_as_large_hits_no_less_where_nothing_is_preempted() -> None:
    rng = np.random.default_rng(5)
    drawn = [int(rng.integers(8)) for _ in range(300)]
    requests = [
        sm.PromptRequest(100, 1, [f"{name}/{place}" for place in range(6)], 2 * i)
        for i, name in enumerate(drawn)
    ]
    hits = []
    for blocks in (10, 20, 40, 80, 160):
        limits = sm.SchedulerLimits(blocks=blocks, block_tokens=16)
        hits.append(sm.replay_schedule(requests, limits=limits).summary()["cached_tokens"])
    assert hits == sorted(hits)
    assert hits[0] < hits[-1] == 96 * (len(requests) - len(set(drawn)))


@pytest.mark.parametrize("blocks", [3, 10, 40, None])
def test_prefix_hits_are_those_of_a_least_recently_used_cache(blocks: int | None) -> None:
    rng = np.random.default_rng(11)
    prompts = [
        [f"{family}/{place}" for place in range(int(rng.integers(1, 9)))]
        for family in rng.integers(0, 12, 400).tolist()
    ]
    cache: dict[tuple[str, ...], None] = {}
    hits = hit_tokens = tokens = 0
    requests = []
    for names in prompts:
        length = 32 * len(names) - int(rng.integers(32))
        requests.append(sm.PromptRequest(length, 5, names))
        chains = [tuple(names[: place + 1]) for place in range(len(names))]
        found = next((at for at, chain in enumerate(chains) if chain not in cache), len(chains))
        hits, tokens = hits + found, tokens + length
        hit_tokens += min(length, 32 * found)
        for chain in chains:
            cache.pop(chain, None)
            if blocks is not None and len(cache) == blocks:
                del cache[next(iter(cache))]
            cache[chain] = None
    found_hits = sm.prefix_hits(requests, blocks=blocks, block_tokens=32)
    assert found_hits == (tokens, hit_tokens, sum(map(len, prompts)), hits)


def test_hits_that_a_server_of_vllm_counted() -> None:
    """vLLM 0.32.0, 23 November 2026: 300 requests, 20 a second, 512 of 576 tokens shared, blocks of
    32; its counters of queries and hits.
    """
    requests = [
        sm.PromptRequest([*range(512), *range(10_000 * (i + 1), 10_000 * (i + 1) + 64)], 64)
        for i in range(300)
    ]
    found = sm.prefix_hits(requests, block_tokens=32)
    assert (found.tokens, found.hit_tokens) == (172_800, 153_088)
    limits = sm.SchedulerLimits(
        blocks=16_383, block_tokens=32, max_batched_tokens=512, max_running_sequences=16
    )
    replayed = sm.replay_schedule(requests, limits=limits).summary()
    assert (replayed["cached_tokens"], replayed["preemptions"]) == (153_088, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"blocks": 0}, "blocks=0"), ({"block_tokens": True}, "block_tokens=True")],
)
def test_bad_caches_are_named(options: Any, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.prefix_hits([sm.PromptRequest(4, 4)], **options)


def test_a_pool_of_any_size_costs_no_more_than_its_requests() -> None:
    requests = recorded_requests(RECORDED[0])[:10]
    ample, huge = (
        sm.replay_schedule(requests, limits=LIMITS.replace(blocks=blocks))
        for blocks in (10_000, 100_000_000)
    )
    assert (ample.step_table == huge.step_table).all()


def plan_of(**options: Any) -> sm.serving.Serving:
    task = sm.Inference(input_tokens=800, output_tokens=60)
    return sm.serve("llama3_8b", "dgx_h100", task, **{"requests_per_s": 8.0, **options})


def test_without_anything_shared_it_serves_as_the_simulation_does() -> None:
    plan = plan_of(replicas=1)
    stream = sm.request_stream(plan.task, requests=300, requests_per_s=8, seed=2)
    served = plan.simulate(stream)
    requests = [
        sm.PromptRequest(int(prompt), int(answer), arrival=float(at))
        for at, prompt, answer in zip(
            stream.arrival_s, stream.input_tokens, stream.output_tokens, strict=True
        )
    ]
    found = sm.replay_schedule(requests, plan=plan).requests
    # Decode-only steps that the simulation takes at once may end a step later or earlier.
    one_step = 1.5 * plan.step_time_s
    for mine, theirs in (
        (found.first_token, served.first_token_s),
        (found.finished, served.finished_s),
    ):
        apart = np.abs(mine.to_numpy() - theirs)
        assert apart.max() <= one_step
        assert apart.mean() <= 0.02 * one_step
    assert found.preemptions.sum() == served.preemptions.sum() == 0


def test_a_shared_prompt_shortens_the_time_to_the_first_token() -> None:
    plan = plan_of(replicas=1)
    times = []
    for shared in (0, 768):
        requests = [
            sm.PromptRequest(
                [*range(shared), *(10**6 + 10**4 * i + j for j in range(800 - shared))],
                60,
                arrival=i / 8,
            )
            for i in range(80)
        ]
        found = sm.replay_schedule(requests, plan=plan).requests
        times.append(float((found.first_token - found.arrival)[1:].mean()))
    assert times[1] < 0.75 * times[0]


def test_replicas_serve_what_each_of_them_is_sent() -> None:
    plan = plan_of(replicas=2)
    requests = [
        sm.PromptRequest([*range(512), *(10**6 + 10**4 * i + j for j in range(288))], 60, (), i / 8)
        for i in range(60)
    ]
    both = plan.simulate(requests, balance="round_robin")
    for replica in (0, 1):
        own = sm.replay_schedule(requests[replica::2], plan=plan).requests
        found = both.requests[replica::2]
        assert (found.finished_s.to_numpy() == own.finished.to_numpy()).all()
        assert (found.started_s.to_numpy() == own.started.to_numpy()).all()
    assert (both.requests.ttft_s > 0).all()
    # Little's law, and gaps between the shortest and the longest step.
    summary = both.summary()
    mean_s = both.requests.latency_s.mean()
    assert summary["in_system"] == pytest.approx(mean_s * 60 / summary["makespan_s"])
    assert summary["itl_median_s"] <= summary["itl_p90_s"] <= summary["itl_p99_s"]
    assert summary["tpot_median_s"] == pytest.approx(summary["itl_median_s"], rel=0.2)


def test_a_stream_that_shares_nothing_is_served_alike_by_content_and_by_length() -> None:
    plan = plan_of(replicas=1)
    stream = sm.request_stream(plan.task, requests=200, requests_per_s=12, seed=4)
    by_length = plan.simulate(stream).summary()
    requests = [
        sm.PromptRequest(int(prompt), int(answer), (), float(at))
        for at, prompt, answer in zip(
            stream.arrival_s, stream.input_tokens, stream.output_tokens, strict=True
        )
    ]
    by_content = plan.simulate(requests).summary()
    assert set(by_content) == set(by_length)
    for name, value in by_length.items():
        assert by_content[name] == pytest.approx(value, rel=0.03, abs=1e-9), name


@pytest.mark.parametrize(
    ("requests", "options", "message"),
    [
        ([sm.PromptRequest(4, 4, (), 2.0), sm.PromptRequest(4, 4)], {}, "in order of arrival"),
        ([], {}, "one at least"),
        ([1.0, 2.0], {}, "must be PromptRequests"),
        ([sm.PromptRequest(4, 4)], {"balance": "even"}, "balance='even'"),
    ],
)
def test_streams_that_cannot_be_served_are_refused(
    requests: Any, options: Any, message: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        plan_of(replicas=1).simulate(requests, **options)


@pytest.mark.parametrize(
    ("requests", "options", "message"),
    [
        ([], {"limits": LIMITS}, "one at least"),
        ([sm.PromptRequest(4, 4)], {}, "limits=None"),
        ([sm.PromptRequest(4, 4, arrival=2), sm.PromptRequest(4, 4)], {"limits": LIMITS}, "ascend"),
        ([sm.PromptRequest(64, 4, [1])], {"limits": LIMITS, "name_tokens": 24}, "name_tokens=24"),
        ([sm.PromptRequest([1], 4), sm.PromptRequest(4, 4, [1])], {"limits": LIMITS}, "all have"),
        ([sm.PromptRequest(["a"], 4)], {"limits": LIMITS}, "must be whole numbers"),
        ([sm.PromptRequest(9, 4, [[]])], {"limits": LIMITS}, "hashable"),
    ],
)
def test_bad_requests_are_named(requests: Any, options: Any, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.replay_schedule(requests, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "prompt: 0 tokens"),
        ((4, []), "output: 0 tokens"),
        (("text", 4), "prompt='text'"),
        ((4, True), "output=True"),
        ((4, 4, (), -1.0), "arrival=-1.0"),
        ((4, 4, (), float("nan")), "arrival=nan"),
        (([1], 4, (7,)), "block_names"),
    ],
)
def test_a_bad_request_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        sm.PromptRequest(*arguments)


@pytest.mark.parametrize(
    "options",
    [{"engine": "sglang"}, {"engine": "tensorrt_llm"}, {"layout": sm.ServingLayout(dp=2)}],
)
def test_engines_and_layouts_that_schedule_otherwise_are_refused(options: Any) -> None:
    with pytest.raises(sm.ScaleModelError, match="plan: "):
        sm.replay_schedule([sm.PromptRequest(4, 4)], plan=plan_of(**options))
