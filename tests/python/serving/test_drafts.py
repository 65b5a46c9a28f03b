"""Speculative decoding: chains, trees, draft models, depth by load; commands and settings of it."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import _core
from scalemodel.resolve.engines import engine
from scalemodel.serving.launch import launch_command

CHAT = sm.Inference(input_tokens=1000, output_tokens=500, precision="fp8", kv_precision="fp8")
LLAMA = "llama3_1_70b"
TP4 = sm.ServingLayout(tp=4)
MODEL: dict[str, Any] = {"draft_model": "llama3_2_1b", "draft_tp": 1, "speculative_tokens": 5}


#: Runs draft models as graphs; in vLLM the CPU launches them layer by layer.
GRAPHED = "tensorrt_llm_pytorch_2026"


def served(
    concurrency: float = 8, model: str = LLAMA, *, engine: str = "vllm_v1", **changes: Any
) -> sm.Serving:
    task = CHAT.replace(**changes)
    plan = sm.serve(model, "dgx_h100", task, TP4, engine=engine, concurrency=concurrency)
    assert plan.verdict == "ok"
    return plan


@pytest.mark.parametrize("given", [MODEL, {"speculative_tokens": 3}, {**MODEL, "draft_width": 4}])
def test_accepted_drafts_pay_and_those_never_accepted_cost_their_draft(given: Any) -> None:
    plain = served()
    best, none = (served(**given, acceptance_fraction=a) for a in (0.9, 0.0))
    assert best.tpot_s < plain.tpot_s < none.tpot_s
    assert none.task.tokens_per_step == 1
    # Nothing is gained: a token takes a step with its drafts, verified.
    assert none.tpot_s > plain.tpot_s + 0.99 * none.step().draft_s
    assert plain.step().draft_s == 0
    assert plain.draft_tokens == 0
    assert best.draft_tokens == given["speculative_tokens"]


def test_a_draft_model_takes_memory_and_computes_prompts() -> None:
    plain, layer, model = served(), served(speculative_tokens=5), served(**MODEL)
    split = served(**MODEL | {"draft_tp": 4})
    more = [
        plan.memory_weights_bytes - plain.memory_weights_bytes for plan in (layer, split, model)
    ]
    # 1.24 billion parameters, whole on each rank: one byte each, two of the token embedding.
    assert 1.24e9 < more[2] < 2 * 1.24e9
    assert more[1] == pytest.approx(more[2] / 4, rel=0.02)
    # A layer of 0.86 billion parameters, and its projection of 2 x 8192 to 8192 on each rank.
    assert more[0] == pytest.approx(0.856e9 / 4 + 2 * 2 * 8192**2, rel=0.01)
    assert plain.max_concurrency > split.max_concurrency > 0
    prompt = {"output_tokens": 2}
    assert served(1, **MODEL, **prompt).ttft_s > served(1, **prompt).ttft_s


@pytest.mark.parametrize(("concurrency", "name", "faster"), [(8, GRAPHED, 1), (512, "vllm_v1", 4)])
def test_ranks_pay_for_a_draft_once_there_is_much_to_save(
    concurrency: float, name: str, faster: int
) -> None:
    # Communication of every pass takes longer than what ranks save of small batches.
    passes = {
        tp: served(concurrency, engine=name, **MODEL | {"draft_tp": tp}).step().draft_s
        for tp in (1, 4)
    }
    assert min(passes, key=passes.__getitem__) == faster


def test_the_cpu_launches_the_layers_of_a_draft_model_in_vllm() -> None:
    launched = 5 * 16 * engine("vllm_v1").draft_layer_host_s
    assert served(**MODEL).step().draft_s == pytest.approx(launched)
    assert served(engine=GRAPHED, **MODEL).step().draft_s < 0.5 * launched
    assert served(512, **MODEL).step().draft_s > launched


def test_adaptive_drafts_are_left_out_under_load() -> None:
    given: dict[str, Any] = {"speculative_tokens": 5, "acceptance_fraction": 0.35}
    depths = []
    for concurrency in (1, 64, 256, 1024):
        fixed = served(concurrency, **given)
        adaptive = served(concurrency, **given, adaptive_drafts=True)
        plain = served(concurrency)
        assert adaptive.tpot_s <= 1.02 * min(fixed.tpot_s, plain.tpot_s)
        depths.append(adaptive.draft_tokens)
    assert depths == sorted(depths, reverse=True)
    assert depths[0] >= 3
    assert depths[-1] == 0


@pytest.mark.parametrize(
    "given",
    [
        MODEL | {"acceptance_fraction": 0.7},
        {"speculative_tokens": 3, "draft_width": 4, "draft_nodes": 12},
        MODEL | {"adaptive_drafts": True},
    ],
)
def test_streams_agree_with_the_steady_state(given: dict[str, Any]) -> None:
    task = CHAT.replace(**given)
    plan = sm.serve(LLAMA, "dgx_h100", task, TP4, requests_per_s=4)
    found = plan.simulate(requests=2000).summary()
    assert found["tpot_mean_s"] == pytest.approx(plan.tpot_s, rel=0.06)
    assert found["ttft_mean_s"] == pytest.approx(plan.ttft_s, rel=0.1)


def test_plans_are_searched_with_a_draft() -> None:
    task = CHAT.replace(draft_model="llama3_2_1b", draft_tp=2, speculative_tokens=4)
    found = sm.plan_serving(LLAMA, "dgx_h100", task, goal="tpot", requests_per_s=2, top=5)
    assert all(plan.layout.tp % 2 == 0 for plan in found)
    plain = sm.plan_serving(LLAMA, "dgx_h100", CHAT, goal="tpot", requests_per_s=2, top=1)
    assert found[0].tpot_s < plain[0].tpot_s
    pools = sm.serve_split(LLAMA, "dgx_h100", task, requests_per_s=1, prefill=TP4, decode=TP4)
    assert pools.verdict == "ok"
    assert pools.decode.step().draft_s > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"draft_model": "llama3_2_1b"}, "draft_model='llama3_2_1b': nothing is drafted"),
        ({"draft_width": 4}, "draft_width=4: nothing is drafted; give speculative_tokens"),
        ({"adaptive_drafts": True}, "adaptive_drafts=True: nothing is drafted"),
        ({"speculative_tokens": 2, "draft_width": 0}, "draft_width=0: must be a whole number"),
        ({"speculative_tokens": 2, "draft_nodes": 3}, "draft_nodes=3: a chain verifies all of it"),
        (
            {"speculative_tokens": 2, "draft_width": 2, "draft_nodes": 7},
            "draft_nodes=7: a tree of depth 2 and width 2 has 6 candidates",
        ),
        ({"speculative_tokens": 1, "draft_tp": 2}, "draft_tp=2: of a draft model"),
        ({**MODEL, "draft_tp": -1}, "draft_tp=-1: must be a whole number from 0"),
        ({**MODEL, "draft_precision": "fp3"}, "draft_precision='fp3': must be one of"),
        ({**MODEL, "acceptance_decay": 1.5}, "acceptance_decay=1.5: must be a number from 0 to 1"),
        ({**MODEL, "acceptance_power": -1}, "acceptance_power=-1: must be a number from 0 to 8"),
    ],
)
def test_drafts_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match="^" + message.replace("(", "\\(")):
        CHAT.replace(**given)


def test_drafts_that_do_not_suit_the_model_are_refused() -> None:
    def asked(**changes: Any) -> sm.Serving:
        return sm.serve(LLAMA, "dgx_h100", CHAT.replace(**MODEL | changes), TP4)

    with pytest.raises(sm.ScaleModelError, match=r"vocabulary of 151936 .* 128256"):
        asked(draft_model="qwen3_0_6b")
    with pytest.raises(sm.ScaleModelError, match="draft_tp=3: must divide tp=4"):
        asked(draft_tp=3)
    with pytest.raises(sm.ScaleModelError, match="nobody"):
        asked(draft_model="nobody")
    wide, narrow = (
        served(engine=GRAPHED, **MODEL, draft_precision=precision) for precision in ("bf16", "fp8")
    )
    assert wide.step().draft_s > narrow.step().draft_s


def words(engine: str, **given: Any) -> list[str]:
    task = CHAT.replace(precision="fp8", **given)
    return shlex.split(launch_command(sm.serve(LLAMA, "dgx_h100", task, TP4, engine=engine)))


def after(command: list[str], option: str) -> str:
    return command[command.index(option) + 1]


TREE: dict[str, Any] = {"speculative_tokens": 2, "draft_width": 2, "draft_nodes": 4}


def test_commands_of_vllm_and_sglang_draft_and_are_read_back() -> None:
    config = json.loads(after(words("vllm", **MODEL), "--speculative-config"))
    assert config == {
        "method": "draft_model",
        "model": "meta-llama/Llama-3.2-1B-Instruct",
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
    }
    tree = json.loads(after(words("vllm", **TREE), "--speculative-config"))
    assert tree["speculative_token_tree"] == "[(0,), (1,), (0, 0), (0, 1)]"
    assert tree["num_speculative_tokens"] == 4
    sglang = words("sglang", **MODEL)
    assert after(sglang, "--speculative-algorithm") == "STANDALONE"
    assert after(sglang, "--speculative-draft-model-path") == "meta-llama/Llama-3.2-1B-Instruct"
    branches = words("sglang", **TREE)
    assert after(branches, "--speculative-num-steps") == "2"
    assert after(branches, "--speculative-eagle-topk") == "2"
    assert after(branches, "--speculative-num-draft-tokens") == "5"


@pytest.mark.parametrize(
    "engine, given",
    [  # A file of TensorRT-LLM has no such trees.
        *(("vllm", MODEL), ("vllm", TREE), ("sglang", MODEL), ("sglang", TREE)),
        ("tensorrt_llm", MODEL),
    ],
)
def test_settings_read_the_drafts_of_commands(engine: str, given: dict[str, Any]) -> None:
    plan = sm.serve(LLAMA, "dgx_h100", CHAT.replace(**given), TP4, engine=engine, concurrency=64)
    read = sm.read_serving(engine, sm.launch_serving(plan))
    task = read.task(input_tokens=1000, output_tokens=500)
    for name, value in given.items():
        found = getattr(task, name)
        if name == "draft_model":
            assert sm.model(found).name == value
        elif name != "draft_tp" or engine == "vllm":
            assert found == value, name


def test_what_is_no_tree_is_refused() -> None:
    text = (
        "vllm serve a/b --speculative-config "
        """'{"num_speculative_tokens": 2, "speculative_token_tree": "[(0,), 7]"}'"""
    )
    with pytest.raises(sm.ScaleModelError, match=r"speculative_token_tree=.*list of paths"):
        sm.read_serving("vllm", text)


def test_the_tokens_of_a_step_by_depth_and_width() -> None:
    task = CHAT.replace(speculative_tokens=3, acceptance_fraction=0.8)
    assert task.tokens_per_step == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert task.replace(acceptance_decay=0.5).tokens_per_step == pytest.approx(
        1 + 0.8 + 0.32 + 0.064
    )
    wide = task.replace(draft_width=4)
    assert task.tokens_per_step < wide.tokens_per_step < 4
    first = [_core.tree_acceptance(wide.mix, 1, rank) for rank in (1, 2, 3, 4)]
    assert sum(first) == pytest.approx(1 - 0.2 * 4**-0.5)
