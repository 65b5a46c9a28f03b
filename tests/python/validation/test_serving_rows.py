"""What rows of served runs mean: labels, lengths, replicas, padding; and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.serving.padding import padded
from scalemodel.serving.uncertainty import (
    Known,
    ServingSituation,
    factor_of,
    half_width,
    interval_around,
    known,
)
from scalemodel.validation.inference import ServingPrediction, ServingPredictor, question
from scalemodel.validation.inference_score import residuals, score
from scalemodel.validation.labels import understood
from scalemodel.validation.lengths import arrivals, drawn, varies
from scalemodel.validation.place import accelerator_name
from scalemodel.validation.rows import Row, SkippedRowError
from scalemodel.validation.serving_intervals import ServedResidual, cells_of, coverage

RUN = {
    "model": "Llama 3.1 8B",
    "gpu": "H100",
    "n_gpus": "1",
    "isl": "1000",
    "osl": "500",
    "precision": "fp8",
    "engine": "vLLM 0.11",
    "num_requests": "400",
}


def ask(**changes: str) -> ServingPrediction:
    return ServingPredictor().predict(question(Row({**RUN, **changes}), power=False))


@pytest.mark.parametrize(
    ("kind", "label", "entry"),
    [
        ("accelerators", "8x NVIDIA H100 SXM5 80GB HBM3 GPU", "h100_sxm_80"),
        ("accelerators", "AMD Instinct MI300X OAM 192GB", "mi300x"),
        ("accelerators", "4x H100", "h100_sxm_80"),
        ("models", "neuralmagic/70B-Llama-3.1-Instruct-FP8-KV", "llama3_1_70b"),
        ("models", "Meta-Llama-3.1-70B-Instruct-quantized.w4a16", "llama3_1_70b"),
        ("models", "TheBloke/Llama-2-13B-chat-AWQ", "llama2_13b"),
        ("models", "Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2_5_72b"),
        ("models", "LLaMA v3.1 70B", "llama3_1_70b"),
    ],
)
def test_labels_are_read_loosely(kind: str, label: str, entry: str) -> None:
    assert understood(kind, label)[0] == entry


NAMES = {
    "meta-llama/Llama-3.3-70B": "llama3_1_70b",
    "NousResearch/Hermes-3-Llama-3.1-405B": "llama3_1_405b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama_34b",
    "TinyLlama 1.1B": "tinyllama_1_1b",
    "lmsys/vicuna-13b-v1.5": "llama2_13b",
    "Qwen2.5-14B-Instruct-AWQ": "qwen2_5_14b",
    "Qwen2.5-Coder-32B-Instruct": "qwen2_5_32b",
    "Qwen1.5-72B-Chat": "qwen1_5_72b",
    "Qwen3-Coder-30B-A3B-Instruct": "qwen3_30b_a3b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": "qwen3_coder_480b_a35b",
    "DeepSeek-R1-Distill-Qwen-14B": "qwen2_5_14b",
    "deepseek-ai/deepseek-llm-67b-chat": "deepseek_llm_67b",
    "DeepSeek-Coder-V2-Lite-Instruct": "deepseek_v2_lite",
    "Mistral-Large-Instruct-2407": "mistral_large_2",
    "Mistral-Small-24B-Instruct-2501": "mistral_small_24b",
    "Codestral-22B-v0.1": "codestral_22b",
    "gemma-3-4b-it": "gemma3_4b",
    "google/gemma-2-2b-it": "gemma2_2b",
    "microsoft/Phi-4-mini-instruct": "phi_4_mini",
    "Phi-3.5-mini-instruct": "phi_3_mini",
    "facebook/opt-1.3b": "opt_1300m",
    "OPT-13B": "opt_13b",
    "EleutherAI/pythia-6.9b": "pythia_6_9b",
    "bigscience/bloom-3b": "bloom_3b",
    "01-ai/Yi-1.5-9B-Chat": "yi_9b",
    "THUDM/glm-4-9b-chat": "glm_4_9b",
    "zai-org/GLM-4.7-FP8": "glm_4_6",
    "MiniMaxAI/MiniMax-M2.5": "minimax_m2",
    "inclusionAI/Ring-1T": "ling_1t",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan_a13b",
    "baidu/ERNIE-4.5-300B-A47B-PT": "ernie_4_5_300b_a47b",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron_nano_9b_v2",
    "LGAI-EXAONE/EXAONE-4.0-32B": "exaone4_32b",
    "CohereForAI/aya-expanse-32b": "command_r_08_2024",
    "bigcode/starcoder2-15b": "starcoder2_15b",
    "PaLM 540B": "palm_540b",
}


@pytest.mark.parametrize("label", NAMES)
def test_names_of_checkpoints_stand_for_their_architecture(label: str) -> None:
    assert understood("models", label)[0] == NAMES[label]


@pytest.mark.parametrize(
    ("gpu", "entry"),
    [
        ("Instinct MI300X", "mi300x"),
        ("TPU7x", "tpu_v7"),
        ("v6e", "tpu_v6e"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("NVIDIA RTX A6000", "rtx_a6000"),
        ("GeForce RTX 3090", "rtx_3090"),
        ("Ascend 910B", "ascend_910b"),
        ("AMD Instinct MI300A", "mi300a"),
        ("DGX Spark", "gb10"),
        ("H20-141GB", "h20_141"),
        ("H800 PCIe", "h800_pcie_80"),
        ("AMD Instinct MI308X OAM", "mi308x"),
        ("GeForce RTX 2080 Ti", "rtx_2080_ti"),
        ("RTX 4090D", "rtx_4090_d"),
        ("NVIDIA Tesla V100", "v100_sxm_32"),
        ("Inf2", "inferentia2"),
        ("TPU v2", "tpu_v2"),
    ],
)
def test_training_runs_name_their_accelerator_as_loosely(gpu: str, entry: str) -> None:
    assert accelerator_name(gpu, None) == entry


@pytest.mark.parametrize(
    "gpu", ["Maia 100", "Biren BR100", "Cloud AI 100", "DCU K100", "MTIA v2", "SN40L"]
)
def test_part_of_a_name_means_no_accelerator(gpu: str) -> None:
    with pytest.raises(SkippedRowError, match="unknown_accelerator"):
        accelerator_name(gpu, None)


@pytest.mark.parametrize("label", ["Llama-3", "Qwen/Qwen3-VLA-8B-Instruct", "3-8B", "instruct", ""])
def test_what_may_be_another_model_is_none(label: str) -> None:
    with pytest.raises(sm.ScaleModelError):
        understood("models", label)


def test_what_was_understood_is_said() -> None:
    loose = ask(gpu="4x NVIDIA H100 SXM5 80GB GPU", model="8B-Llama-3.1-Instruct-FP8-KV")
    assert loose.output_tokens_s == ask().output_tokens_s
    assert "read as h100_sxm_80" in loose.note
    assert "read as llama3_1_8b" in loose.note


def test_a_chat_about_images_brings_one() -> None:
    """Where a row says no more: its tokens count, and the tower's work."""
    row = {
        "model": "google/gemma-3-12b-it",
        "gpu": "H100",
        "num_gpus": "1",
        "avg_batch": "32",
        "avg_output_len": "500",
        "weight_precision": "bfloat16",
    }
    chat = question(Row({**row, "task": "lm-arena-chat"}), power=True)
    seen = question(Row({**row, "task": "image-chat"}), power=True)
    tokens = sm.model("gemma3_12b").image_tokens(1024, 1024)
    assert seen.task.input_tokens == chat.task.input_tokens + tokens
    assert seen.task.images == 1
    assert "one image of 1024 x 1024 assumed" in seen.notes
    rates = [ServingPredictor().predict(asked).output_tokens_s for asked in (chat, seen)]
    assert rates[1] < rates[0]
    unknown = Row({**row, "task": "video-chat"})
    with pytest.raises(SkippedRowError, match="missing:isl"):
        question(unknown, power=True)


def test_an_engine_without_constants_is_said() -> None:
    strange = ask(engine="LMDeploy 0.7")
    assert strange.output_tokens_s == ask(engine="").output_tokens_s
    assert "no constants of LMDeploy 0.7; engine vllm_v1 assumed" in strange.note


def test_means_of_a_data_set_are_told_from_fixed_lengths() -> None:
    assert [varies(n) for n in (16, 128, 500, 2048, 20000)] == [False] * 5
    assert [varies(n) for n in (202, 214, 467, 211.3)] == [True] * 4
    assert varies(512, "ShareGPT, 4 requests/s")


def test_lengths_have_the_mean_and_the_spread_of_conversations() -> None:
    lengths = drawn(200, "answers", 20_000, np.random.default_rng(1))
    assert lengths.mean() == pytest.approx(200, rel=0.01)
    assert lengths.std() / lengths.mean() == pytest.approx(0.77, rel=0.05)
    assert lengths.min() >= 1
    times = arrivals(500, 8.0, np.random.default_rng(1))
    assert times[-1] == pytest.approx(500 / 8)
    assert (np.diff(times) > 0).all()


def test_the_longest_answers_drain_a_burst() -> None:
    burst = {"scenario": "online", "qps_target": "inf", "isl": "200"}
    fixed = ask(osl="216", **burst).output_tokens_s
    mixed = ask(osl="214", **burst).output_tokens_s
    assert fixed is not None
    assert mixed is not None
    assert mixed < 0.85 * fixed


@pytest.mark.parametrize("engine", ["vLLM 0.11", "TensorRT-LLM 1.0"])
def test_replicas_have_a_host_and_limits_each(engine: str) -> None:
    rates = []
    for copies in (1, 4, 16, 64):
        found = ask(
            engine=engine,
            n_gpus=str(copies),
            tp="1",
            dp=str(copies),
            num_requests=str(400 * copies),
        )
        assert found.output_tokens_s is not None
        rates.append(found.output_tokens_s / copies)
    assert max(rates) / min(rates) < 1.02


def test_limits_hold_for_each_rank_of_data_parallel_attention() -> None:
    model, cluster = "deepseek_v3", sm.cluster("dgx_h200", nodes=4)
    task = sm.Inference(input_tokens=200, output_tokens=200, precision="fp8")
    one = sm.serve(model, cluster, task, sm.ServingLayout(tp=8, dp=2, ep=16), replicas=1)
    two = sm.serve(model, cluster, task, sm.ServingLayout(tp=8, dp=4, ep=32), replicas=1)
    assert one.verdict == two.verdict == "ok"
    assert two.max_running_sequences == 2 * one.max_running_sequences == 4096
    assert two.max_batched_tokens == 2 * one.max_batched_tokens
    given = sm.serve(
        model, cluster, task, sm.ServingLayout(tp=8, dp=4, ep=32), max_running_sequences=512
    )
    assert given.max_running_sequences == 512
    assert given.max_batched_tokens == two.max_batched_tokens


def test_heads_that_do_not_divide_are_padded() -> None:
    model = sm.model("qwen2_5_7b")  # 28 heads, 4 of keys and values
    same, nothing = padded(model, sm.ServingLayout(tp=4))
    assert same is model
    assert nothing == ""
    wide, note = padded(model, sm.ServingLayout(tp=8))
    assert wide.shape.heads == 32
    assert wide.shape.kv_heads == 4
    assert wide.shape.hidden == model.shape.hidden
    assert "heads 28 padded to 32" in note
    found = ask(model="Qwen2.5-7B", n_gpus="8", tp="8", precision="bf16")
    assert found.output_tokens_s is not None
    assert "padded" in found.note


def test_narrow_experts_stay_narrow_without_products_of_their_format() -> None:
    row = {"model": "Mixtral 8x7B", "gpu": "A100-80GB", "tp": "1", "precision": "fp8"}
    assert ask(**row).output_tokens_s is not None  # 47 GB, not 94
    task = sm.Inference(input_tokens=500, output_tokens=200, precision="int8")
    plan = sm.serve("mixtral_8x7b", "dgx_a100", task, concurrency=1, replicas=1)
    assert plan.memory_weights_bytes < 50e9
    wide = sm.serve(
        "mixtral_8x7b", "dgx_a100", task.replace(precision="bf16"), sm.ServingLayout(tp=2)
    )
    assert wide.verdict == "ok"
    oss = sm.serve("gpt_oss_120b", "dgx_a100", task.replace(precision="mxfp4"))
    assert oss.verdict == "ok"


def test_four_bit_weights_are_the_fastest_alone() -> None:
    """One sequence reads every weight once a step: fewer bytes, shorter steps."""
    times = [
        sm.serve(
            "llama3_8b",
            "dgx_h100",
            sm.Inference(input_tokens=1000, output_tokens=200, precision=precision),
            concurrency=1,
        ).tpot_s
        for precision in ("int4", "fp8", "bf16")
    ]
    assert times == sorted(times)


# ----------------------------------------------------------------------------------- intervals
def _residuals(spread: float, groups: int = 8, rows: int = 25) -> list[ServedResidual]:
    random = np.random.default_rng(2)
    situation = ServingSituation("offline", "dense", "hopper")
    return [
        ServedResidual((f"gpu{g}", "model"), situation, "rate", float(spread * random.normal()))
        for g in range(groups)
        for _ in range(rows)
    ]


def test_intervals_hold_what_they_say_of_groups_left_out() -> None:
    made = _residuals(0.1)
    inside, rows = coverage(made)["rate", "offline"]
    assert rows == 200
    assert 0.75 <= inside / rows <= 0.9
    cells = cells_of(made)
    wide = cells_of(_residuals(0.2))
    key = ("rate", "offline", "dense", "hopper")
    assert np.log(wide[key]) == pytest.approx(2 * np.log(cells[key]))
    # Another architecture borrows the widest cell that covers it.
    other = ServingSituation("online", "experts", "cdna3")
    assert factor_of(other, "rate", cells) == cells["rate", "", "", ""]
    assert factor_of(other, "ttft", cells) is None


def test_the_wider_of_kind_and_architecture_stands_for_both() -> None:
    cells = {
        ("rate", "offline", "dense", ""): 1.1,
        ("rate", "offline", "", "blackwell"): 1.3,
        ("rate", "offline", "", ""): 1.2,
    }
    assert factor_of(ServingSituation("offline", "dense", "blackwell"), "rate", cells) == 1.3
    assert factor_of(ServingSituation("offline", "dense", "hopper"), "rate", cells) == 1.1
    assert factor_of(ServingSituation("offline", "experts", "hopper"), "rate", cells) == 1.2
    both = cells | {("rate", "offline", "dense", "blackwell"): 1.05}
    assert factor_of(ServingSituation("offline", "dense", "blackwell"), "rate", both) == 1.05


@pytest.mark.repeats
def test_intervals_hold_without_an_accelerator_and_without_an_engine() -> None:
    scores = score(sm.validate(kind="inference"))
    for name in ("accelerator", "engine"):
        for quantity in ("rate", "tpot", "ttft"):
            inside, rows = scores.inside_without[f"{name}, {quantity}"]
            assert 0.75 <= inside / rows <= 0.88


def test_what_a_question_borrows_is_no_wider_than_runs_like_it() -> None:
    cells = {
        ("rate", "running", "dense", ""): 1.6,
        ("rate", "running", "dense", "hopper"): 1.2,
        ("rate", "running", "dense", "blackwell"): 1.9,
        ("tpot", "running", "dense", ""): 1.4,
    }
    engines = {"rate": ("other",), "tpot": ("other",)}
    told = Known(cells, engines, 0.8)
    asked = ServingSituation("running", "dense", "hopper", "asked")
    # Of times per token no cell tells for the architecture: that of any stands in.
    assert half_width(asked, "rate", told) == 1.4
    del cells["tpot", "running", "dense", ""]
    assert half_width(asked, "rate", told) == half_width(asked, "ttft", told) == 1.2
    assert half_width(asked._replace(architecture="cdna3"), "rate", told) == 1.9


def test_predictions_carry_their_intervals() -> None:
    found = ask()
    assert found.output_tokens_s is not None
    interval = interval_around(
        ServingSituation("offline", "dense", "hopper"), "rate", found.output_tokens_s
    )
    assert interval is not None
    assert found.output_tokens_s_low == interval.low < found.output_tokens_s < interval.high
    assert found.situation == "offline dense hopper"


def test_what_an_interval_borrows_is_named_and_makes_it_wide() -> None:
    near = interval_around(ServingSituation("offline", "dense", "hopper", "vllm_v1"), "rate", 1.0)
    assert near is not None
    assert near.borrowed == ()
    for situation, named in (
        (ServingSituation("offline", "dense", "cdna3", "vllm_v1"), ("architecture cdna3",)),
        (ServingSituation("offline", "dense", "hopper", "sglang_2025"), ("engine sglang_2025",)),
        (ServingSituation("online", "experts", "hopper", "vllm_v1"), ("kind experts",)),
    ):
        far = interval_around(situation, "rate", 1.0)
        assert far is not None
        assert far.borrowed == named
        assert far.high >= (factor_of(situation, "rate") or math.inf)
        assert far.high > near.high or situation.load == "online"
    # Times and rates follow from the same steps: an engine without runs has the widest of them.
    widest = max(f for key, f in known().cells.items() if key[1] != "running")
    engine = interval_around(ServingSituation("offline", "dense", "tpu", "sglang_2025"), "rate", 1)
    assert engine is not None
    assert engine.high == widest  # of all offline runs, and of all loads together


def test_a_plan_names_what_its_interval_borrows() -> None:
    task = sm.Inference(input_tokens=1000, output_tokens=200)
    plans = [
        sm.serve("llama3_8b", "dgx_h100", task, engine=engine, concurrency=16)
        for engine in ("vllm_v1", "sglang_2025")
    ]
    widths = {}
    for quantity in ("rate", "tpot"):
        own, other = (plan.interval(quantity) for plan in plans)
        assert own is not None
        assert other is not None
        assert own.borrowed == ()
        assert other.borrowed == ("engine sglang_2025",)
        widths[quantity] = (math.sqrt(own.high / own.low), math.sqrt(other.high / other.low))
    # What follows from a step of another engine is as uncertain as any quantity of such runs.
    assert widths["tpot"][1] > widths["tpot"][0]
    assert widths["rate"][1] >= widths["rate"][0]
    assert widths["tpot"][1] == pytest.approx(widths["rate"][1])


def test_rates_that_are_the_requests_own_make_no_interval() -> None:
    def residuals_of(measured: str, predicted: float) -> int:
        cells = {
            "source": "s",
            "gpu": "H100",
            "model": "Llama 3.1 8B",
            "scenario": "online",
            "qps_target": "4",
            "osl": "100",
            "output_tokens_s": measured,
            "predicted_output_tokens_s": predicted,
            "predicted_situation": "online dense hopper",
            "predicted_engine": "vllm_v1",
        }
        return len(residuals(pd.DataFrame([cells])))

    assert residuals_of("398", 399.0) == 0  # both keep up with 4 x 100 tokens per second
    assert residuals_of("250", 399.0) == residuals_of("398", 250.0) == 1  # one of them does not
