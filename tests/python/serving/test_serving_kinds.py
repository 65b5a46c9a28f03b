"""Kinds of serving: one pass per request, drafts and prefixes by hand, cluster by cluster."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.serving import request_stream, serve_batches

CHAT = sm.Inference(input_tokens=1000, output_tokens=301)
IMAGE = sm.Inference(input_tokens=1, output_tokens=1)


# -------------------------------------------------------------------------- one pass per request
def batch_queue(cost: _core.BatchPass, rate: float, count: int, seed: int) -> tuple[float, float]:
    """Mean latency and batch of a server that takes whoever came during its last pass."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))
    now, first, late, passes = 0.0, 0, 0.0, 0
    while first < count:
        now = max(now, arrivals[first])
        last = min(int(np.searchsorted(arrivals, now, side="right")), first + int(cost.most))
        size = last - first
        now += cost.alone_s + max(0.0, size - cost.padded) * cost.more_s
        late += float((now - arrivals[first:last]).sum())
        first, passes = last, passes + 1
    return late / count, count / passes


@pytest.mark.parametrize("load", [0.05, 0.3, 0.6])
@pytest.mark.parametrize(
    ("alone_s", "more_s", "padded", "most"),
    [(0.01, 1e-4, 8, 256), (0.01, 0.009, 1, 4), (0.01, 0.002, 1, 64), (0.02, 0.0, 1, 32)],
)
def test_batches_as_they_come_queue_as_a_simulation_does(
    load: float, alone_s: float, more_s: float, padded: float, most: float
) -> None:
    cost = _core.BatchPass(alone_s=alone_s, more_s=more_s, padded=padded, most=most)
    rate = load * most / (alone_s + (most - padded) * more_s)
    state = _core.batch_state_at(cost, rate)
    latency_s, batch = batch_queue(cost, rate, 100_000, seed=1)
    assert state.utilisation == pytest.approx(load)
    assert state.latency_s == pytest.approx(latency_s, rel=0.05)
    assert state.batch == pytest.approx(batch, rel=0.05)
    assert _core.batch_state_at(cost, 1.01 * rate / load).saturated


@pytest.mark.parametrize("name", ["vit_l", "dinov2_g", "dlrm_dcnv2", "dlrm_a_small"])
def test_encoders_and_ranking_models_are_served_by_passes(name: str) -> None:
    model = sm.compose(name)
    full = sm.serve(model, "dgx_h100", IMAGE)
    one_pass = sm.estimate(model, "dgx_h100", sm.BatchInference(global_batch=512, sequence=1))
    fixed = sm.serve(model, "dgx_h100", IMAGE, concurrency=512)
    assert fixed.latency_s == fixed.pass_time_s == one_pass.step_time_s
    assert fixed.requests_per_s == pytest.approx(512 / one_pass.step_time_s)
    assert full.verdict == "ok"
    assert full.requests_per_s >= fixed.requests_per_s
    rates = [share * full.requests_per_s for share in (0.01, 0.1, 0.5, 0.9)]
    plans = [sm.serve(model, "dgx_h100", IMAGE, requests_per_s=rate) for rate in rates]
    assert [plan.latency_s for plan in plans] == sorted(plan.latency_s for plan in plans)
    assert [plan.power_w for plan in plans] == sorted(plan.power_w for plan in plans)
    assert sm.serve(model, "dgx_h100", IMAGE, requests_per_s=1.1 * full.requests_per_s).saturated


def test_passes_that_cannot_be_say_why() -> None:
    model = sm.compose("vit_l")
    with pytest.raises(sm.ScaleModelError, match="output_tokens"):
        sm.serve(model, "dgx_h100", CHAT)
    with pytest.raises(sm.ScaleModelError, match="engine"):
        sm.serve(model, "dgx_h100", IMAGE, engine="sglang")  # type: ignore[call-overload]
    with pytest.raises(sm.ScaleModelError, match="batch"):
        serve_batches(model, "dgx_h100", IMAGE, requests_per_s=1, batch=8)
    with pytest.raises(sm.ScaleModelError, match="batch"):
        sm.serve(model, "dgx_h100", IMAGE, concurrency=8.5)
    assert sm.serve(sm.compose("vit_120b"), "dgx_a100", IMAGE).verdict == "out_of_memory"


# ------------------------------------------------------------------------------------- estimate
def test_an_estimate_of_inference_is_what_serve_answers() -> None:
    layout = sm.ServingLayout(tp=4, ep=4)
    served = sm.serve("mixtral_8x7b", "dgx_h100", CHAT, layout, engine="sglang")
    for plan in (layout, sm.Strategy(tp=4, ep=4)):
        estimated = sm.estimate("mixtral_8x7b", "dgx_h100", CHAT, plan, stack="sglang")
        assert estimated.to_dict() == served.to_dict()
    images = sm.estimate(sm.compose("vit_l"), "dgx_h100", IMAGE)
    assert images.to_dict() == sm.serve(sm.compose("vit_l"), "dgx_h100", IMAGE).to_dict()
    with pytest.raises(sm.ScaleModelError, match="task"):
        sm.estimate("llama3_8b", "dgx_h100", "chat")  # type: ignore[call-overload]
    with pytest.raises(sm.ScaleModelError, match="layout"):
        sm.estimate("llama3_8b", "dgx_h100", CHAT, "tp4")  # type: ignore[call-overload]


# ------------------------------------------------------------------- drafts and prefixes, by hand
@pytest.mark.parametrize(
    ("drafts", "kept", "tokens"),
    [
        (1, 0.85, 1.85),  # multi-token prediction of DeepSeek-V3: 1 + .85
        (2, 0.8, 1 + 0.8 + 0.64),
        (3, 0.7, 1 + 0.7 + 0.49 + 0.343),
        (5, 0.6, 1 + 0.6 + 0.36 + 0.216 + 0.1296 + 0.07776),
        (4, 1.0, 5.0),
    ],
)
def test_kept_drafts_shorten_answers_as_by_hand(drafts: int, kept: float, tokens: float) -> None:
    task = CHAT.replace(speculative_tokens=drafts, acceptance_fraction=kept)
    assert _core.tokens_per_step(task.mix) == pytest.approx(tokens)
    layout = sm.ServingLayout(tp=8, ep=8)
    plan = sm.serve("deepseek_v3", "dgx_h200", task.replace(precision="fp8"), layout, replicas=1)
    one = plan.simulate(request_stream(task, requests=1))
    # 300 tokens after the first, in whole steps; each step verifies all drafts in one pass.
    steps = math.ceil(300 / tokens)
    assert one.totals.steps == steps + 1
    step_s = plan.instance.step(
        sequences=1, context=1000 + 151, query_tokens=1 + drafts, draft_tokens=drafts
    ).step_time_s
    assert one.finished_s[0] - one.first_token_s[0] == pytest.approx(steps * step_s, rel=0.01)


@pytest.mark.parametrize("engine", ["vllm_v1", "sglang_2025", "tensorrt_llm_2025"])
def test_a_cached_prefix_leaves_the_rest_of_the_prompt(engine: str) -> None:
    # Nine tenths of 8000 tokens are in the cache: 800 are computed, attending to all 8000.
    task = sm.Inference(input_tokens=8000, output_tokens=50, prefix_hit_fraction=0.9)
    plan = sm.serve("llama3_8b", "dgx_h100", task, engine=engine, replicas=1)
    one = plan.simulate(request_stream(task, requests=1))
    prompt = plan.instance.step(prompts=1, prompt_tokens=800, prompt_keys=8000)
    host_s = one.started_s[0]
    assert one.first_token_s[0] - host_s == pytest.approx(prompt.step_time_s)
    # The cache holds the whole prompt all the same.
    plain = sm.serve(
        "llama3_8b",
        "dgx_h100",
        task.replace(prefix_hit_fraction=0),
        engine=engine,
        replicas=1,
    )
    assert plan.max_concurrency == plain.max_concurrency
    assert plan.requests_per_s > 2 * plain.requests_per_s


def test_replicas_take_turns() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", CHAT, requests_per_s=32, replicas=4)
    quarter = sm.serve("llama3_8b", "dgx_h100", CHAT, requests_per_s=8, replicas=1)
    assert plan.concurrency == pytest.approx(4 * quarter.concurrency)
    assert plan.ttft_s == quarter.ttft_s
    assert plan.power_w == pytest.approx(4 * quarter.power_w)
    # Turns are more even than chance: nobody waits longer than behind a replica of its own.
    stream = request_stream(CHAT, requests=4000, requests_per_s=32, seed=4)
    shared = plan.simulate(stream, balance="round_robin").summary()
    alone = quarter.simulate(
        request_stream(CHAT, requests=4000, requests_per_s=8, seed=4)
    ).summary()
    assert shared["ttft_mean_s"] <= alone["ttft_mean_s"]


@pytest.mark.parametrize("dp", [1, 4, 16, 64])
@pytest.mark.parametrize("name", ["deepseek_v3", "mixtral_8x7b", "gpt_oss_120b"])
def test_watts_are_told_of_any_layout(name: str, dp: int) -> None:
    cluster = sm.cluster("dgx_h200", nodes=8)
    task = CHAT.replace(precision="fp8", kv_precision="fp8")
    for tp in (1, 8):
        layout = sm.ServingLayout(tp=tp, dp=max(1, dp // tp), ep=min(8, dp * tp))
        plan = sm.serve(name, cluster, task, layout, replicas=1, concurrency=64)
        if plan.fits:
            limit_w = cluster.core.accelerator.power.limit_w
            assert 0.1 * limit_w < plan.power_w / plan.accelerators <= limit_w
            assert plan.output_tokens_per_j == pytest.approx(
                plan.output_tokens_per_s / plan.power_w
            )


def test_watts_are_told_on_any_accelerator() -> None:
    short = sm.Inference(input_tokens=200, output_tokens=100)
    for name in catalog.names("accelerators"):
        peaks = catalog.load("accelerators", name)["compute"]
        formats = [each for each in ("bf16", "fp16") if each in peaks]
        if not formats:
            continue
        task = short.replace(precision=formats[0])
        plan = sm.serve("gpt2_small", {"accelerator": name}, task, replicas=1)
        assert 0 < plan.power_w <= plan.cluster.core.accelerator.power.limit_w, name


# ----------------------------------------------------------------------------- cluster by cluster
def test_a_cluster_without_the_format_is_a_row() -> None:
    table = sm.compare_serving("llama3_8b", ["dgx_1v_32", "dgx_a100"], CHAT)
    assert table.cluster.tolist() == ["dgx_a100", "dgx_1v_32"]
    assert table.verdict.tolist() == ["ok", "illegal:precision"]
    assert table.iloc[1].isna().sum() > 5


def test_clusters_are_compared_by_second_dollar_and_joule() -> None:
    names = ["dgx_a100", "dgx_h100", "dgx_b200"]
    limits = {"tpot_s": 0.03, "ttft_s": 0.5}
    tables = {
        by: sm.compare_serving("llama3_8b", names, CHAT, by=by, **limits)
        for by in (
            "output_tokens_per_s_per_accelerator",
            "output_tokens_per_usd",
            "output_tokens_per_j",
        )
    }
    for by, table in tables.items():
        assert table[by].is_monotonic_decreasing
        assert set(table.accelerator) == {"a100_sxm_80", "h100_sxm_80", "b200"}
        assert (table.tpot_s <= 0.03).all()
        assert (table.ttft_s <= 0.5).all()
        joules = table.power_w / table.output_tokens_per_s
        assert (1 / joules).tolist() == pytest.approx(table.output_tokens_per_j.tolist())
        cost = table.usd_per_million_output_tokens
        assert (1e6 / cost).tolist() == pytest.approx(table.output_tokens_per_usd.tolist())
    fastest = tables["output_tokens_per_s_per_accelerator"]
    assert fastest.accelerator.tolist()[0] == "b200"
    none = sm.compare_serving("llama3_8b", ["dgx_h100"], CHAT, tpot_s=1e-5)
    assert none.verdict.tolist() == ["infeasible"]
    with pytest.raises(sm.ScaleModelError, match="by"):
        sm.compare_serving("llama3_8b", names, CHAT, by="speed")
    with pytest.raises(sm.ScaleModelError, match="clusters"):
        sm.compare_serving("llama3_8b", "dgx_h100", CHAT)
