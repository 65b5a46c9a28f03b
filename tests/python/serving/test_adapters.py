"""Serving with low-rank adapters: what they take of memory and time, and how engines start."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel.resolve.engines import engine

CHAT = sm.Inference(input_tokens=1000, output_tokens=200)
MIXTURE = CHAT.replace(precision="mxfp4")


def served(**changes: object) -> sm.Serving:
    return sm.serve("llama3_8b", "dgx_h100", CHAT.replace(**changes), concurrency=64)


def test_no_adapters_change_nothing() -> None:
    assert served(adapter_rank=64, adapter_slots=3).to_dict() == served().to_dict()


@pytest.mark.parametrize("engine", ["vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2025"])
@pytest.mark.parametrize("model", ["llama3_8b", "gpt_oss_20b"])
def test_more_adapters_and_higher_ranks_never_help(model: str, engine: str) -> None:
    # Adapters of all experts are large: 32 of rank 64 would fill an accelerator.
    task = (MIXTURE if model == "gpt_oss_20b" else CHAT).replace(adapter_slots=4)

    def rate(**changes: object) -> float:
        plan = sm.serve(
            model, "dgx_h100", task.replace(**changes), engine=engine, concurrency=64, replicas=1
        )
        return float(plan.output_tokens_per_s)

    rates = [rate(), *(rate(adapters=n) for n in (1, 4, 32)), rate(adapters=32, adapter_rank=64)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > rates[-1]
    assert rate(adapters=32, adapter_targets="attention") > rates[3]


def test_slots_hold_adapters_and_the_cache_has_the_rest() -> None:
    none, all_of_them, some = served(), served(adapters=64), served(adapters=64, adapter_slots=16)
    # Rank 16, by hand: 41.9 million values of 2 bytes.
    each = 2 * 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    taken = all_of_them.memory_weights_bytes - none.memory_weights_bytes
    assert taken == pytest.approx(64 * each)
    assert some.memory_weights_bytes - none.memory_weights_bytes == pytest.approx(16 * each)
    assert none.max_concurrency > some.max_concurrency > all_of_them.max_concurrency


def test_an_adapter_without_a_slot_is_waited_for() -> None:
    def overhead_s(slots: int, prompts: float) -> float:
        plan = served(adapters=64, adapter_slots=slots)
        step = plan.instance.step(prompts=prompts, prompt_tokens=1000, prompt_keys=1000)
        return float(step.host_s)

    # A prompt's adapter is absent three times in four: 84 MB, which the host's link carries at
    # 63 GB/s, in 448 matrices, whose copies take longer to start.
    each = 448 * engine("vllm_v1").adapter_copy_s
    assert each > 83.9e6 / 63e9
    for prompts in (1.0, 4.0):
        waited = overhead_s(16, prompts) - overhead_s(64, prompts)
        assert waited == pytest.approx(prompts * 0.75 * each, rel=1e-3)


def test_plans_are_searched_and_split_with_adapters() -> None:
    with_some = CHAT.replace(adapters=16, adapter_rank=32)
    found = sm.plan_serving("llama3_8b", "dgx_h100", with_some, goal="throughput")
    best = found[0]
    assert best.task.adapters == 16
    again = sm.serve("llama3_8b", "dgx_h100", with_some, best.layout, **best.options)
    assert again.output_tokens_per_s == pytest.approx(best.output_tokens_per_s)
    plain = sm.plan_serving("llama3_8b", "dgx_h100", CHAT, goal="throughput")
    assert best.output_tokens_per_s < plain[0].output_tokens_per_s


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm_v1", "--enable-lora --max-loras 4 --max-lora-rank 32 --max-cpu-loras 12"),
        ("sglang_2025", "--enable-lora --max-loras-per-batch 4 --max-lora-rank 24"),
        ("tensorrt_llm_pytorch_2025", "max_cpu_loras: 12"),
    ],
)
def test_commands_start_the_adapters(engine: str, words: str) -> None:
    task = CHAT.replace(adapters=12, adapter_rank=24, adapter_slots=4)
    plan = sm.serve("llama3_8b", "dgx_h100", task, engine=engine, concurrency=8, replicas=1)
    launch = sm.launch_serving(plan)
    assert words in "\n".join([*launch.commands.values(), *launch.files.values()])
    assert "lora" not in sm.serve("llama3_8b", "dgx_h100", CHAT, engine=engine).launch().lower()


def test_slots_that_no_adapter_fills_are_allocated_and_started() -> None:
    filled, roomy = served(adapters=4), served(adapters=4, adapter_slots=9)
    each = served(adapters=5).memory_weights_bytes - filled.memory_weights_bytes
    more = roomy.memory_weights_bytes - filled.memory_weights_bytes
    assert more == pytest.approx(5 * each)
    assert roomy.tpot_s > filled.tpot_s
    assert "--max-loras 9 --max-lora-rank 16 --max-cpu-loras 9" in roomy.launch()


@pytest.mark.parametrize(
    "wrong",
    [{"adapters": -1}, {"adapters": 1.5}, {"adapter_rank": 0}, {"adapter_targets": "mlp"}],
)
def test_what_is_no_set_of_adapters_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(sm.ScaleModelError, match=next(iter(wrong))):
        CHAT.replace(**wrong)


def test_published_cost_of_adapters_of_experts() -> None:
    """GPT-OSS 20B with eight adapters of rank 32, 1,600 tokens in, 600 out (vLLM 0.15).

    Source: vllm-project.github.io, 2026-02-26: 144 tokens/s and 135 ms to the first token, 87 %
    less than at first, when it was ten times that of the model alone: so 104 ms without adapters.
    Neither accelerator nor load are told; what adapters add can be compared all the same.
    """
    first_ms, gone, times = 135, 0.87, 10
    alone_ms = first_ms / (1 - gone) / times
    task = MIXTURE.replace(input_tokens=1600, output_tokens=600)
    with_some = task.replace(adapters=8, adapter_rank=32)
    rates = []
    for users in (1, 2, 4):
        both = [
            sm.serve("gpt_oss_20b", "dgx_h100", each, engine="vLLM 0.15", concurrency=users)
            for each in (with_some, task)
        ]
        assert both[0].ttft_s / both[1].ttft_s == pytest.approx(first_ms / alone_ms, rel=0.1)
        rates.append(1 / both[0].tpot_s)
    assert rates == pytest.approx([144] * 3, rel=0.2)
