"""Serving: laws first, then block counts worked out by hand, then the ways to ask."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.text import time_text
from scalemodel.resolve.engines import (
    WEIGHT_FORMATS,
    engine,
    engine_for,
    engine_table,
)
from scalemodel.resolve.serving_kernels import kernels_for, serving_kernels
from scalemodel.serving import (
    RequestStream,
    launch_options,
    plan_split,
    request_stream,
    serve_split,
    serving_layouts,
)
from scalemodel.serving.plan import MEMORY_COLUMNS, STEP_COLUMNS

GIB = 2**30
TASK = sm.Inference(input_tokens=1000, output_tokens=200)
ENGINES = ("vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2025", "tensorrt_llm_2025")


# ------------------------------------------------------------------------------------------ laws
@settings(max_examples=40, deadline=None)
@given(
    concurrency=st.floats(1, 2000),
    input_tokens=st.floats(1, 30_000),
    output_tokens=st.floats(1, 8_000),
    tp=st.sampled_from([1, 2, 4, 8]),
    name=st.sampled_from(ENGINES),
)
def test_rates_times_and_memory_agree(
    concurrency: float, input_tokens: float, output_tokens: float, tp: int, name: str
) -> None:
    task = sm.Inference(input_tokens=input_tokens, output_tokens=output_tokens)
    layout = sm.ServingLayout(tp=tp)
    plan = sm.serve(
        "llama3_8b", "dgx_h100", task, layout, engine=name, concurrency=concurrency, replicas=1
    )
    if not plan.fits:
        assert plan.verdict == "out_of_memory"
        return
    steps = max(1.0, output_tokens - 1)
    assert plan.concurrency <= min(concurrency, plan.max_concurrency) * (1 + 1e-9)
    rounds = plan.requests_per_s * steps * plan.state.step_time_s
    assert plan.concurrency == pytest.approx(rounds, rel=1e-9)
    assert plan.tpot_s <= plan.state.step_time_s * (1 + 1e-9)  # a sequence's own prompt apart
    assert plan.ttft_s > 0
    assert plan.memory_bytes == pytest.approx(sum(getattr(plan, name) for name in MEMORY_COLUMNS))
    assert plan.memory_bytes <= 80 * GIB
    step = plan.step()
    assert sum(getattr(step, name) for name in STEP_COLUMNS) == pytest.approx(step.step_time_s)


@settings(max_examples=25, deadline=None)
@given(low=st.floats(0.05, 0.9), more=st.floats(1.01, 1.5))
def test_more_requests_never_wait_less(low: float, more: float) -> None:
    most = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1).requests_per_s
    rates = [low * most / 1.6, low * more * most / 1.6]
    a, b = (
        sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1, requests_per_s=rate) for rate in rates
    )
    assert a.tpot_s <= b.tpot_s * (1 + 1e-6)
    assert a.ttft_s <= b.ttft_s * (1 + 1e-6)
    assert a.concurrency < b.concurrency
    assert b.requests_per_s == pytest.approx(rates[1], rel=2e-3)


def test_replicas_multiply_what_one_instance_does() -> None:
    one = sm.serve("llama3_8b", "dgx_h100", TASK, concurrency=32, replicas=1)
    four = sm.serve("llama3_8b", "dgx_h100", TASK, concurrency=128, replicas=4)
    assert four.output_tokens_per_s == pytest.approx(4 * one.output_tokens_per_s)
    assert four.tpot_s == one.tpot_s


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(("load", "tolerance"), [(0.2, 0.05), (0.5, 0.05)])
def test_closed_form_and_stream_agree_where_stable(
    name: str, load: float, tolerance: float
) -> None:
    layout = sm.ServingLayout(tp=2)
    ask = {"engine": name, "replicas": 1}
    most = sm.serve("llama3_70b", "dgx_h200", TASK, layout, **ask).requests_per_s
    stream = request_stream(TASK, requests=3000, requests_per_s=load * most, seed=3)
    plan = sm.serve(
        "llama3_70b", "dgx_h200", TASK, layout, requests_per_s=stream.requests_per_s, **ask
    )
    found = plan.simulate(stream).summary()
    assert plan.tpot_s == pytest.approx(found["tpot_mean_s"], rel=tolerance)
    assert plan.concurrency == pytest.approx(found["concurrency"], rel=tolerance)
    assert plan.ttft_s == pytest.approx(found["ttft_mean_s"], rel=2 * tolerance)


def test_requests_in_the_system_follow_littles_law() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, requests_per_s=20, replicas=2)
    served = plan.simulate(requests=800, arrivals="bursty", lengths="exponential", seed=5)
    found = served.summary()
    rate = found["requests"] / found["makespan_s"]
    assert found["in_system"] == pytest.approx(rate * found["latency_mean_s"], rel=1e-9)
    assert (served.first_token_s > served.started_s).all()
    assert (served.finished_s >= served.first_token_s).all()


def test_bursts_and_unequal_lengths_only_ever_cost() -> None:
    plan = sm.serve(
        "llama3_70b", "dgx_h100", TASK, sm.ServingLayout(tp=4), replicas=1, requests_per_s=4
    )
    ask = {"requests": 2000, "seed": 1}
    steady = plan.simulate(arrivals="uniform", **ask).summary()
    random = plan.simulate(arrivals="poisson", **ask).summary()
    bursty = plan.simulate(arrivals="bursty", lengths="lognormal", **ask).summary()
    assert steady["ttft_p99_s"] <= random["ttft_p99_s"] <= bursty["ttft_p99_s"]


# ---------------------------------------------------------------------------- blocks, by hand
# What the fullest rank holds, in bytes, from model cards: linear layers in the format of the
# weights, tables and norms in 16 bits.
def dense_weights(
    *, layers: int, hidden: int, kv: int, ffn: int, vocab: int, bytes_each: float, ranks: int
) -> float:
    attention = hidden * (2 * hidden + 2 * kv)
    linear = layers * (attention + 3 * hidden * ffn) * bytes_each / ranks
    norms = (2 * layers + 1) * hidden * 2
    return linear + norms + 2 * vocab * hidden * 2 / ranks


def steps_bytes(*, tokens: int, hidden: int, widest: float, sampled: int, vocab: int) -> float:
    return tokens * (2 * hidden + widest) * 2 + sampled * vocab * 6


LLAMA_8B = {"layers": 32, "hidden": 4096, "kv": 1024, "ffn": 14336, "vocab": 128256}
LLAMA_70B = {"layers": 80, "hidden": 8192, "kv": 1024, "ffn": 28672, "vocab": 128256}
LLAMA_405B = {"layers": 126, "hidden": 16384, "kv": 1024, "ffn": 53248, "vocab": 128256}

DEPLOYMENTS = [
    # Llama 3 8B, BF16, one H100: 72 GiB - 16.06 GB - 1.63 GB - 2 GiB, blocks of 2 MiB.
    ("llama3_8b", "dgx_h100", {}, "bf16", "bf16", LLAMA_8B, 2, 1, 80 * GIB, 16 * 32 * 2 * 1024 * 2),
    # The same with an 8-bit cache: half the block.
    ("llama3_8b", "dgx_h100", {}, "bf16", "fp8", LLAMA_8B, 2, 1, 80 * GIB, 16 * 32 * 2 * 1024),
    # Llama 3 70B, FP8 weights and cache, four H100: two key/value heads on each.
    (
        "llama3_70b",
        "dgx_h100",
        {"tp": 4},
        "fp8",
        "fp8",
        LLAMA_70B,
        1,
        4,
        80 * GIB,
        16 * 80 * 2 * 256,
    ),
    # Llama 3 70B, BF16, eight H100: one head each.
    (
        "llama3_70b",
        "dgx_h100",
        {"tp": 8},
        "bf16",
        "bf16",
        LLAMA_70B,
        2,
        8,
        80 * GIB,
        16 * 80 * 2 * 128 * 2,
    ),
    # Llama 3.1 405B, FP8, eight H200.
    (
        "llama3_1_405b",
        "dgx_h200",
        {"tp": 8},
        "fp8",
        "bf16",
        LLAMA_405B,
        1,
        8,
        140 * GIB,
        16 * 126 * 2 * 128 * 2,
    ),
]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda row: f"{row[0]}-{row[3]}-{row[4]}")
def test_blocks_of_dense_models_by_hand(deployment: tuple[object, ...]) -> None:
    model, cluster, degrees, weights, cache, card, each, ranks, memory, block = deployment
    heads_width = 2 * 2 * card["hidden"] / ranks
    used = steps_bytes(
        tokens=8192,
        hidden=card["hidden"],
        widest=max(heads_width, 3 * card["ffn"] / ranks),
        sampled=1024,
        vocab=card["vocab"],
    )
    held = dense_weights(**card, bytes_each=each, ranks=ranks)
    room = 0.9 * memory - held - used - 2 * GIB
    task = TASK.replace(precision=weights, kv_precision=cache)
    plan = sm.serve(model, cluster, task, sm.ServingLayout(**degrees), replicas=1)
    capacity = plan.instance.capacity(1000, 200)
    assert capacity.memory_weights_bytes == pytest.approx(held, rel=1e-6)
    assert capacity.block_bytes == block
    assert capacity.blocks == room // block
    assert capacity.max_running_sequences == min(room // block // 75, 1024)  # 1200 tokens, 16 each


def test_blocks_of_latent_attention_by_hand() -> None:
    # DeepSeek-V3 on eight H200, from its model card: hidden 7168, 128 heads of 128 + 64 (values
    # 128), latents of 1536 and 512, three dense layers of 18432, 58 of 256 experts of 2048.
    layers, hidden, heads, vocab, ranks = 61, 7168, 128, 129280, 8
    # Split over the ranks, one byte each: out of the latents, outputs, dense layers, experts.
    attention = 1536 * heads * 192 + 512 * heads * (128 + 128) + heads * 128 * hidden
    dense, shared = 3 * hidden * 18432, 3 * hidden * 2048
    experts = 256 * 3 * hidden * 2048
    split = layers * attention + 3 * dense + 58 * (shared + experts)
    # On every rank: projections into the latents (one byte), their norms, the norms of layers and
    # the last one, and routers (two bytes).
    down = layers * hidden * (1536 + 512 + 64)
    wide = layers * (1536 + 512 + 2 * hidden) + hidden + 58 * hidden * 256
    held = split / ranks + down + 2 * wide + 2 * 2 * vocab * hidden / ranks
    # One token chooses eight experts of three matrices, spread over the ranks, and their inputs.
    widest = max(2 * 128 * (192 + 128) / 8, 8 * (3 * 2048 / 8 + 2 * 7168 / 8), 3 * 18432 / 8)
    used = steps_bytes(tokens=8192, hidden=hidden, widest=widest, sampled=1024, vocab=vocab)
    # A token keeps 512 + 64 values per layer, the same on every tensor rank.
    for kv, each in (("bf16", 2), ("fp8", 1)):
        task = TASK.replace(precision="fp8", kv_precision=kv)
        plan = sm.serve(
            "deepseek_v3",
            "dgx_h200",
            task,
            sm.ServingLayout(tp=8, ep=8),
            replicas=1,
        )
        capacity = plan.instance.capacity(1000, 200)
        block = 16 * layers * 576 * each
        assert capacity.block_bytes == block
        assert capacity.memory_weights_bytes == pytest.approx(held, rel=1e-6)
        assert capacity.blocks == (0.9 * 140 * GIB - held - used - 2 * GIB) // block


# ------------------------------------------------------------------------------- engines, kernels
def test_every_engine_has_at_most_four_fitted_constants_within_bounds() -> None:
    free = ("kernel_efficiency", "collective_wait", "step_host", "sequence_host", "request_host")
    for name in catalog.names("engines"):
        table = engine_table(name)["engine"]
        fitted = [key for key in free if "least squares" in table[key]["source"]]
        assert len(fitted) <= 4, name
        assert 0.9 <= engine(name).kernel_efficiency <= 1.1
        assert all(cell["source"] for cell in table.values())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("TensorRT-LLM 0.14 + Triton backend", "tensorrt_llm_triton_2024"),
        ("TensorRT-LLM 0.17", "tensorrt_llm_2025"),
        ("TensorRT-LLM 1.0 (PyTorch backend)", "tensorrt_llm_pytorch_2025"),
        ("TensorRT-LLM 1.2", "tensorrt_llm_pytorch_2026"),
        ("vLLM 0.11.1", "vllm_v1"),
        ("sglang", "sglang_2025"),
    ],
)
def test_engines_go_by_name_and_release(text: str, name: str) -> None:
    assert engine_for(text) == name


@pytest.mark.parametrize("weights", sorted(WEIGHT_FORMATS))
@pytest.mark.parametrize("accelerator", ["a100_sxm_80", "h200", "gb300", "mi300x", "l40s"])
def test_every_format_has_kernels_everywhere(accelerator: str, weights: str) -> None:
    for name in ENGINES:
        constants, _ = serving_kernels(accelerator, name, weights, "bf16", 8, False)
        assert constants.linear_format.weight_bytes <= 2
        assert not constants.experts.computes_remote


@pytest.mark.parametrize("accelerator", catalog.names("accelerators"))
def test_every_accelerator_serves_near_what_its_memory_allows(accelerator: str) -> None:
    cluster = sm.cluster({"accelerator": accelerator, "node": {"accelerators": 8}}, accelerators=8)
    has = dict(zip(_core.precisions(), cluster.core.accelerator.peak_flop_per_s, strict=True))
    memory = cluster.core.accelerator.memory_bandwidth_bytes_per_s
    for weights in WEIGHT_FORMATS:
        task = TASK.replace(precision=weights)
        layout = sm.ServingLayout(tp=8)
        if not (has["bf16"] or has["fp16"]) or (weights in ("bf16", "fp16") and not has[weights]):
            with pytest.raises(sm.ScaleModelError, match=f"precision='{weights}': {accelerator} "):
                sm.serve("llama3_8b", cluster, task, layout, concurrency=64)
            continue
        plan = sm.serve("llama3_8b", cluster, task, layout, concurrency=64)
        assert plan.verdict == "ok"
        weights_s = plan.memory_weights_bytes / memory
        assert weights_s < plan.linear_s < (5 if weights in ("bf16", "fp16") else 80) * weights_s
        cache_s = 64 * (1000 + 200 / 2) * 131072 / 8 / memory
        assert cache_s < plan.decode_attention_s < 8 * cache_s


def test_an_era_whose_hosts_are_bound_waits_less_for_grace() -> None:
    older, newer = (
        serving_kernels("gb200", f"tensorrt_llm_pytorch_{year}", "fp8", "fp8", 8, False)[0]
        for year in (2025, 2026)
    )
    assert (older.host_slowdown, newer.host_slowdown) == (3.0, 1.0)
    assert older.replace(host_slowdown=1.0) == newer
    ahead = engine("tensorrt_llm_pytorch_2025").replace(
        overlaps_draft_models=True, overlaps_draft_masks=True
    )
    assert engine("tensorrt_llm_pytorch_2026") == ahead


def test_narrow_weights_are_read_faster() -> None:
    times = {
        precision: sm.serve(
            "llama3_70b",
            "dgx_h200",
            TASK.replace(precision=precision),
            sm.ServingLayout(tp=2),
            concurrency=1,
            replicas=1,
        ).tpot_s
        for precision in ("bf16", "fp8", "int4")
    }
    assert times["int4"] < times["fp8"] < times["bf16"]


def test_kernels_of_other_accelerators_are_told() -> None:
    cluster = sm.cluster("mi300x_node")
    _, note = kernels_for(cluster, "vllm_v1", sm.model("llama3_8b").shape, "bf16", "bf16")
    assert "attention of" in note


def test_private_accelerators_run_the_kernels_of_their_base() -> None:
    def tpot_s(accelerator: dict[str, object]) -> float:
        cluster = sm.cluster({"accelerator": {"base": "h100_sxm_80", **accelerator}})
        plan = sm.serve("llama3_8b", cluster, TASK, concurrency=8, replicas=1)
        assert ("kernels of h100_sxm_80" in plan.note) == ("name" in accelerator)
        return float(plan.tpot_s)

    usual = tpot_s({})
    assert tpot_s({"name": "mine"}) == usual
    assert tpot_s({"name": "mine", "memory": {"bandwidth": "6 TB/s"}}) < usual


# ----------------------------------------------------------------------------------- ways to ask
def test_plans_that_cannot_run_say_why() -> None:
    ask = ("llama3_70b", "dgx_h100", TASK)
    assert sm.serve(*ask).verdict == "out_of_memory"
    assert sm.serve(*ask, sm.ServingLayout(tp=16)).verdict == "illegal:mesh"
    assert sm.serve(*ask, sm.ServingLayout(tp=3)).verdict == "illegal:tp_heads"
    assert sm.serve(*ask, sm.ServingLayout(tp=8), replicas=2).verdict == "illegal:mesh"
    assert sm.serve(*ask, sm.ServingLayout(tp=4, ep=4)).verdict == "illegal:ep_experts"
    assert sm.serve(*ask).tpot_s is None


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"precision": "fp7"}, "precision"),
        ({"kv_precision": "int3"}, "kv_precision"),
        ({"input_tokens": 0}, "input_tokens"),
        ({"prefix_hit_fraction": 1.5}, "prefix_hit_fraction"),
        ({"imbalance": 0.5}, "imbalance"),
        ({"output_tokens": float("nan")}, "output_tokens"),
    ],
)
def test_bad_tasks_name_the_argument(change: dict[str, object], name: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=name):
        TASK.replace(**change)


def test_bad_questions_name_the_argument() -> None:
    ask = ("llama3_8b", "dgx_h100", TASK)
    with pytest.raises(sm.ScaleModelError, match="engine"):
        sm.serve(*ask, engine="no such engine")
    with pytest.raises(sm.ScaleModelError, match="concurrency"):
        sm.serve(*ask, concurrency=1, requests_per_s=1)
    with pytest.raises(sm.ScaleModelError, match="requests_per_s"):
        sm.serve(*ask, requests_per_s=float("nan"))
    with pytest.raises(sm.ScaleModelError, match="replicas"):
        sm.serve(*ask, replicas=0)
    with pytest.raises(sm.ScaleModelError, match="goal"):
        sm.plan_serving(*ask, goal="best")  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="arrivals"):
        request_stream(TASK, requests=3, arrivals="daily")  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="arrival_s"):
        sm.serve(*ask).simulate(RequestStream([1.0, 0.5], [10, 10], [5, 5]))


def test_the_fewest_accelerators_carry_the_rate() -> None:
    task = TASK.replace(precision="fp8", kv_precision="fp8")
    found = sm.plan_serving(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=2),
        task,
        goal="accelerators",
        requests_per_s=10,
        tpot_s=0.04,
        top=3,
        threads=2,
    )
    best = found.best.iloc[0]
    assert best["accelerators"] == found.best["accelerators"].min()
    assert best["requests_per_s"] * best["replicas"] >= 10
    plan = sm.serve(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=2),
        task,
        found.layout(),
        concurrency=float(best["concurrency"]),
        replicas=1,
    )
    assert plan.tpot_s <= 0.04 * 1.1  # the engine's own limit of tokens per step may differ
    assert found.front["tpot_s"].is_monotonic_increasing
    assert found.front["output_tokens_per_s_per_accelerator"].is_monotonic_increasing


def test_a_million_plans_are_compared() -> None:
    found = sm.plan_serving(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=2),
        TASK.replace(precision="fp8"),
        most_tokens=range(512, 16_385, 512),
        per_octave=120,
        threads=1,
    )
    assert found.plans >= 1_000_000


def test_a_long_stream_is_served() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, requests_per_s=15, replicas=1)
    served = plan.simulate(requests=10_000, lengths="exponential")
    assert not served.refused.any()


def test_split_pools_keep_prompts_out_of_the_answers() -> None:
    task = sm.Inference(input_tokens=6000, output_tokens=200, precision="fp8", kv_precision="fp8")
    layout = sm.ServingLayout(tp=2)
    split = serve_split(
        "llama3_70b",
        "dgx_h100",
        task,
        requests_per_s=3,
        prefill=layout,
        decode=layout,
        prefill_replicas=3,
    )
    together = sm.serve("llama3_70b", "dgx_h100", task, layout, requests_per_s=3, replicas=4)
    assert split.accelerators == 8
    stream = request_stream(task, requests=500, requests_per_s=3, seed=2)
    apart, mixed = split.simulate(stream).summary(), together.simulate(stream).summary()
    assert apart["itl_p99_s"] < mixed["itl_p99_s"]
    assert 0 < split.transfer_s < 0.1
    assert split.to_dict()["verdict"] == "ok"
    with pytest.raises(sm.ScaleModelError, match="accelerators"):
        serve_split("llama3_70b", "dgx_h100", task, requests_per_s=1, prefill_replicas=9)


def test_the_split_search_meets_both_limits() -> None:
    task = sm.Inference(input_tokens=4000, output_tokens=200)
    table = plan_split(
        "llama3_8b", "dgx_h100", task, requests_per_s=8, ttft_s=0.5, tpot_s=0.02, top=2
    )
    assert (table["prefill_ttft_s"] <= 0.5).all()
    assert (table["decode_tpot_s"] <= 0.02).all()


def test_layouts_are_legal_and_distinct() -> None:
    model, cluster = sm.model("mixtral_8x7b"), sm.cluster("dgx_h100")
    found = serving_layouts(model, cluster)
    assert len({tuple(layout.to_dict().values()) for layout in found}) == len(found)
    assert any(layout.ep == 8 and layout.dp == 8 for layout in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vllm", ["vllm serve", "--tensor-parallel-size 2", "--enable-expert-parallel"]),
        ("sglang", ["sglang.launch_server", "--tp-size 2", "--ep-size 2"]),
        ("TensorRT-LLM", ["trtllm-serve", "--tp_size 2", "--ep_size 2", "options.yaml"]),
    ],
)
def test_the_launch_command_says_what_was_planned(name: str, words: list[str]) -> None:
    task = TASK.replace(kv_precision="fp8")
    plan = sm.serve("mixtral_8x7b", "dgx_h100", task, sm.ServingLayout(tp=2, ep=2), engine=name)
    command = plan.launch()
    for word in words:
        assert word in command
    if name == "TensorRT-LLM":
        assert "kv_cache_config:" in launch_options(plan)
        assert "dtype: fp8" in launch_options(plan)


def test_steps_of_speculation_pay_for_their_drafts() -> None:
    plain = sm.serve(
        "deepseek_v3",
        "dgx_h200",
        TASK.replace(precision="fp8"),
        sm.ServingLayout(tp=8, ep=8),
        concurrency=16,
        replicas=1,
    )
    drafted = sm.serve(
        "deepseek_v3",
        "dgx_h200",
        TASK.replace(precision="fp8", speculative_tokens=2, acceptance_fraction=0.8),
        sm.ServingLayout(tp=8, ep=8),
        concurrency=16,
        replicas=1,
    )
    assert drafted.step().draft_s > 0
    assert drafted.step().step_time_s > plain.step().step_time_s
    assert drafted.tpot_s < plain.tpot_s


def test_streams_of_a_trace_are_served_as_given() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    trace = RequestStream(np.array([0.0, 0.1, 3.0]), [100, 5000, 10], [5, 50, 1])
    served = plan.simulate(trace)
    assert served.requests["output_tokens"].tolist() == [5, 50, 1]
    assert served.finished_s[2] == served.first_token_s[2]


def test_a_plan_and_its_stream_travel_and_compare() -> None:
    plan = sm.serve("mixtral_8x7b", "dgx_h100", TASK, sm.ServingLayout(tp=4), requests_per_s=4)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.to_dict() == plan.to_dict()
    ask = {"requests": 200, "seed": 3}
    served, again = plan.simulate(**ask), copy.simulate(**ask)
    assert served == again
    assert hash(served) == hash(again)
    assert served != plan.simulate(requests=200, seed=4)
    assert served.stream == pickle.loads(pickle.dumps(served.stream))
    assert served.stream != RequestStream([0.0], [1], [1])
    assert served.stream != "stream"


@pytest.mark.parametrize("value", ["8", True, [8], -1, float("nan")])
def test_what_is_no_number_is_refused_by_name(value: Any) -> None:
    for name in ("concurrency", "requests_per_s"):
        with pytest.raises(sm.ScaleModelError, match=f"{name}=.*must be a number from 0"):
            sm.serve("llama3_8b", "dgx_h100", TASK, **{name: value})
    with pytest.raises(sm.ScaleModelError, match=r"imbalance=.*must be a number from 1"):
        TASK.replace(imbalance=value)


def test_in_turn_waits_are_shorter_than_at_random() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, requests_per_s=40, replicas=8)
    random = plan.simulate(requests=8000).summary()
    turns = plan.simulate(requests=8000, balance="round_robin").summary()
    assert random["ttft_mean_s"] > turns["ttft_mean_s"]
    assert plan.ttft_s == pytest.approx(random["ttft_mean_s"], rel=0.05)
    with pytest.raises(sm.ScaleModelError, match=r"balance='least'.*random, round_robin"):
        plan.simulate(balance="least")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------- words
def test_formats_are_understood_as_people_spell_them() -> None:
    task = sm.Inference(input_tokens=100, output_tokens=10, precision="MXFP8", kv_precision="FP8")  # type: ignore[arg-type]
    assert (task.precision, task.kv_precision) == ("fp8", "fp8")
    assert task == TASK.replace(
        input_tokens=100, output_tokens=10, precision="fp8", kv_precision="fp8"
    )
    with pytest.raises(sm.ScaleModelError, match="precision='int3': must be one of bf16"):
        TASK.replace(precision="int3")


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: sm.serve("llama3_8b", "dgx_h100", TASK, max_num_seqs=4), "max_running_sequences"),
        (lambda: sm.serve("llama3_8b", "dgx_h100", TASK, request_rate=4), "requests_per_s"),
        (lambda: sm.plan_serving("llama3_8b", "dgx_h100", TASK, ttft=4), "ttft_s"),
        (lambda: sm.plan_serving("llama3_8b", "dgx_h100", TASK, requests_per_sec=4), "requests"),
        (lambda: sm.compare_serving("llama3_8b", ["dgx_h100"], TASK, head_room=0.1), "headroom"),
        (lambda: sm.Inference(input_len=4, output_tokens=3), "input_tokens"),
    ],
)
def test_a_wrong_argument_names_the_one_meant(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=f"did you mean '{meant}"):
        call()


def test_a_missing_argument_is_told() -> None:
    with pytest.raises(sm.ScaleModelError, match="plan_serving: missing a required argument"):
        sm.plan_serving("llama3_8b", "dgx_h100")  # type: ignore[call-arg]


def test_streams_are_shown_in_few_lines() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, requests_per_s=8)
    served = plan.simulate(requests=300)
    lines = repr(served).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith("ServedStream(300 requests served, 0 refused, ")
    assert f"p99 {time_text(served.summary()['ttft_p99_s'])}" in lines[1]
    assert len(repr(served.stream).splitlines()) == 1
    assert "300 requests" in repr(served.stream)
