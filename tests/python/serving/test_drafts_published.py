"""Speculative decoding where a source says how many tokens a step brought, and what it gained."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm
from scalemodel.resolve.engines import engine

#: Tokens a second of one user, plain and with EAGLE-3, and tokens of a step: Qwen3 on one H20, two
#: drafts, 1,024 tokens of answer, vLLM 0.11.2 (Tencent/AngelSlim README, mean of four data sets).
EAGLE = {
    "qwen3_1_7b": (381.05, 642.93, 2.17),
    "qwen3_4b": (233.26, 386.94, 2.08),
    "qwen3_8b": (151.81, 257.52, 1.99),
    "qwen3_14b": (93.26, 145.33, 1.79),
    "qwen3_32b": (43.32, 74.1, 1.91),
    "qwen3_30b_a3b": (320.87, 438.07, 2.04),
}

#: Drafts for Qwen3-30B-A3B in SGLang of December 2025, one user, MT-bench (on two H100
#: sgl-project/SpecForge#339, on four Tencent/AngelSlim#163): accelerators; depth, width and
#: candidates verified; tokens a second and tokens of a step. Steps of the first two of as many
#: candidates and passes, a chain and a tree, differ by a fifth: 11.6 and 9.6 ms.
MIXTURE = [
    (2, 3, 1, 3, 159.78, 1.86),
    (2, 3, 3, 7, 172.99, 2.20),
    (2, 3, 3, 3, 207.62, 1.99),
    (2, 7, 4, 15, 191.90, 2.52),
    (2, 6, 4, 11, 171.54, 2.42),
    (2, 8, 8, 59, 177.50, 3.20),
    (4, 3, 3, 3, 170.35, 2.017),
    (4, 3, 2, 7, 185.28, 2.216),
    (4, 4, 4, 15, 185.64, 2.542),
    (4, 7, 10, 63, 193.31, 3.034),
]

#: Four drafts for Qwen3-32B on one H100 of 96 GB, InstructCoder (148 tokens in, 200 out), vLLM of
#: January 2026 (tomasruizt/vllm-scripts, results/logs-2026-01-23): users; time per token without
#: and with drafts in ms; tokens a second of both; share of first drafts that were accepted, and how
#: much smaller that of every later one was.
CODER = [
    ({}, 64, 40.44, 27.65, 1518.44, 2119.04, 0.624, 0.89),
    ({}, 128, 47.11, 46.44, 2489.48, 2563.23, 0.620, 0.89),
    ({"draft_model": "qwen3_1_7b"}, 32, 37.46, 21.75, 831.23, 1355.72, 0.714, 1.0),
    ({"draft_model": "qwen3_1_7b"}, 128, 47.11, 48.97, 2489.48, 2367.79, 0.708, 1.0),
]


def _accepted(task: sm.Inference, tokens: float) -> sm.Inference:
    """The task with as many tokens of a step as were counted."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        below = task.replace(acceptance_fraction=middle).tokens_per_step < tokens
        low, high = (middle, high) if below else (low, middle)
    return task.replace(acceptance_fraction=low)


def _one_user(model: str, cluster: str, engine: str, task: sm.Inference) -> float:
    plan = sm.serve(model, cluster, task, engine=engine, concurrency=1, replicas=1)
    return float(1 / plan.tpot_s)


@pytest.mark.parametrize("model", EAGLE)
def test_gain_of_a_chain_for_one_user(model: str) -> None:
    plain, drafted, tokens = EAGLE[model]
    task = sm.Inference(input_tokens=200, output_tokens=1024)
    chain = _accepted(task.replace(speculative_tokens=2), tokens)
    rates = [_one_user(model, "h20_node", "vLLM 0.11.2", each) for each in (task, chain)]
    assert rates[1] / rates[0] == pytest.approx(drafted / plain, rel=0.15)
    if model != "qwen3_30b_a3b":  # its experts take twice as long here, drafted or not
        assert rates == pytest.approx([plain, drafted], rel=0.2)


@pytest.mark.parametrize("case", CODER, ids=lambda case: f"{case[1]} {case[0] or 'EAGLE-3'}")
def test_gain_under_load_of_a_layer_and_of_a_model(case: Any) -> None:
    given, users, plain_ms, drafted_ms, plain, drafted, accepted, decay = case
    task = sm.Inference(input_tokens=148, output_tokens=200)
    more = task.replace(
        speculative_tokens=4, acceptance_fraction=accepted, acceptance_decay=decay, **given
    )
    plans = [
        sm.serve(
            "qwen3_32b",
            "meta_grand_teton_96",
            each,
            engine="vLLM 0.24",
            concurrency=users,
            replicas=1,
        )
        for each in (task, more)
    ]
    assert [1e3 * plan.tpot_s for plan in plans] == pytest.approx([plain_ms, drafted_ms], rel=0.1)
    gain = plans[1].output_tokens_per_s / plans[0].output_tokens_per_s
    assert gain == pytest.approx(drafted / plain, rel=0.1)


def test_a_draft_model_that_runs_without_graphs() -> None:
    """Qwen3-32B with three tokens of 1.7B on an H200, and Llama 3.1 8B with EAGLE-3's layer.

    Source: tomasruizt/vllm-scripts, drafter-supports-multiple-kvcache-groups, 2026-02 (MT-bench,
    one user): 36.8 ms a step with the model, 5.01 ms plain and 6.16 ms a step with the layer. The
    time to launch a layer is of the first; its step would take 23 ms as a graph.
    """
    task = sm.Inference(input_tokens=75, output_tokens=256, speculative_tokens=3)

    def step_ms(model: str, asked: sm.Inference) -> float:
        plan = sm.serve(model, "dgx_h200", asked, engine="vLLM 0.24", concurrency=1, replicas=1)
        return 1e3 * float(plan.step().step_time_s)

    assert step_ms("qwen3_32b", task.replace(draft_model="qwen3_1_7b")) == pytest.approx(
        36.8, rel=0.01
    )
    assert step_ms("llama3_1_8b", task.replace(speculative_tokens=0)) == pytest.approx(
        5.01, rel=0.1
    )
    assert step_ms("llama3_1_8b", task) == pytest.approx(6.16, rel=0.1)


@pytest.mark.parametrize("case", MIXTURE, ids=lambda case: "-".join(map(str, case[:4])))
def test_drafts_of_a_mixture_of_experts(case: tuple[int, int, int, int, float, float]) -> None:
    accelerators, depth, width, verified, measured, tokens = case
    task = sm.Inference(input_tokens=100, output_tokens=1500, speculative_tokens=depth)
    if width > 1:
        task = task.replace(draft_width=width, draft_nodes=verified)
    layout = sm.ServingLayout(tp=accelerators)
    plan = sm.serve(
        "qwen3_30b_a3b",
        "dgx_h100",
        _accepted(task, tokens),
        layout,
        engine="sglang",
        concurrency=1,
        replicas=1,
    )
    assert 1 / float(plan.tpot_s) == pytest.approx(measured, rel=0.16)


@pytest.mark.parametrize(("measured", "tokens"), [(234.52, 2.59), (304.63, 3.45), (317.04, 3.52)])
def test_drafts_of_a_hybrid_mixture_on_other_accelerators(measured: float, tokens: float) -> None:
    """Qwen3-Next-80B-A3B in FP8 on four H20, three drafts, one user (sgl-project/sglang#14607).

    MT-bench, HumanEval and MATH-500; questions of GSM8K have long prompts and short answers.
    """
    task = sm.Inference(input_tokens=100, output_tokens=500, precision="fp8_block")
    plan = sm.serve(
        "qwen3_next_80b_a3b",
        "h20_node",
        _accepted(task.replace(speculative_tokens=3), tokens),
        sm.ServingLayout(tp=4),
        engine="sglang",
        concurrency=1,
        replicas=1,
    )
    assert 1 / float(plan.tpot_s) == pytest.approx(measured, rel=0.05)


def test_a_server_with_drafts_takes_fewer_requests_unless_told() -> None:
    """SGLang's limit with speculation, by default 48 (sgl-project/sglang#34290)."""
    task = sm.Inference(input_tokens=200, output_tokens=200)

    def most(asked: sm.Inference, **limits: int) -> int:
        plan = sm.serve("llama3_1_8b", "dgx_h100", asked, engine="sglang", replicas=1, **limits)
        return int(plan.max_running_sequences)

    drafted = task.replace(speculative_tokens=3)
    assert (most(task), most(drafted)) == (2048, 48)
    assert most(drafted, max_running_sequences=256) == 256


def test_drafts_that_the_scheduler_waits_for() -> None:
    """Llama 3.1 8B in SGLang 0.5 on an H100: 246.8 tokens/s with 2.99 a step of five drafts.

    Source: sgl-project/sglang#11398, where overlap, off with drafts but for a beta, gains 11 %.
    """
    task = sm.Inference(input_tokens=100, output_tokens=512)
    drafted = _accepted(task.replace(speculative_tokens=5), 2.99)
    rate = _one_user("llama3_1_8b", "dgx_h100", "sglang", drafted)
    assert rate == pytest.approx(246.8, rel=0.1)
    constants = engine("sglang")
    assert (constants.overlaps_host, constants.overlaps_drafts) == (True, False)
    step = sm.serve("llama3_1_8b", "dgx_h100", drafted, engine="sglang", concurrency=1).step()
    assert (
        step.host_s >= 2 * constants.step_host_s
    )  # before the drafts, and before what they extend
    plain = sm.serve("llama3_1_8b", "dgx_h100", task, engine="sglang", concurrency=1).step()
    assert plain.host_s < 0.1 * constants.step_host_s


def test_which_drafts_leave_the_scheduler_ahead() -> None:
    """vLLM of 2026 stays ahead of a layer that drafts, and waits for a draft model."""
    task = sm.Inference(input_tokens=200, output_tokens=200, speculative_tokens=3)
    layer, model = (
        sm.serve("qwen3_32b", "dgx_h100", each, engine="vLLM 0.24", concurrency=8).step()
        for each in (task, task.replace(draft_model="qwen3_1_7b"))
    )
    waited = engine("vllm_2026").step_host_s
    assert model.host_s - layer.host_s == pytest.approx(waited, rel=1e-6)
