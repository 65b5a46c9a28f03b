"""Commands, objects and recipes of serving engines, written and read back to the same answer."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm
from frameworks.serving_draws import MODELS, plans
from scalemodel.serving import serve_split

ENGINES = {
    "vllm_v1": "vllm",
    "sglang_2025": "sglang",
    "tensorrt_llm_pytorch_2025": "tensorrt_llm",
    "tensorrt_llm_pytorch_2026": "tensorrt_llm",
    "tensorrt_llm_2025": "tensorrt_llm",
}
#: Fields of a task that no server is told.
UNTOLD = (
    "input_tokens",
    "output_tokens",
    "prefix_hit_fraction",
    "acceptance_fraction",
    "imbalance",
)
TASK = sm.Inference(input_tokens=1000, output_tokens=200)


def again(read: Any, plan: Any, **more: Any) -> Any:
    """The plan that settings describe, asked about the same requests."""
    untold = {name: getattr(plan.task, name) for name in UNTOLD}
    asked = {"requests_per_s": plan.asked_rate, "concurrency": plan.asked_concurrency}
    return read.serve(plan.cluster, replicas=plan.replicas, **untold, **asked, **more)


PLANS = plans(80, list(ENGINES))


def test_the_plans_are_of_every_kind() -> None:
    assert {plan.engine for plan in PLANS} == set(ENGINES)
    assert {plan.model.name for plan in PLANS} == set(MODELS)
    assert any(plan.layout.dp > 1 for plan in PLANS)
    assert any(plan.layout.pp > 1 for plan in PLANS)
    assert any(plan.layout.ep > 1 for plan in PLANS)
    assert any(plan.layout.cp > 1 for plan in PLANS)
    assert any(sm.launch_serving(plan).notes == () for plan in PLANS)


#: Words of a note, and what of a plan it excuses to be read otherwise.
EXCUSES = {
    "weights in": ("precision",),
    "experts over": ("layout",),
    "gives each": ("layout",),
    "a cache in": ("kv_precision",),
    "rounded up": ("limits",),
    "is cut to": ("limits",),
    "is raised to": ("limits",),
}


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_a_command_read_back_gives_the_same_answer(number: int) -> None:
    plan = PLANS[number]
    launch = sm.launch_serving(plan)
    read = sm.read_serving(ENGINES[plan.engine], launch, engine=plan.engine)
    assert read.unread == ()
    assert read.hub == plan.model.hub
    assert read.model == plan.model
    excused = {
        what
        for words, found in EXCUSES.items()
        for what in found
        if words in " ".join(launch.notes)
    }
    # What no note excuses is read as it was planned.
    if "layout" not in excused:
        assert read.layout == plan.layout
    for name in ("precision", "kv_precision", "speculative_tokens"):
        if name not in excused:
            assert getattr(read, name) == getattr(plan.task, name), launch.script()
    assert read.prefix_caching == (plan.task.prefix_hit_fraction > 0)
    if excused & {"layout", "limits"}:
        return
    given = {name: getattr(plan.task, name) for name in ("precision", "kv_precision")}
    found = again(read, plan, **{name: given[name] for name in given if name in excused})
    assert found.to_dict() == plan.to_dict(), launch.script()


def test_many_commands_say_all_of_their_plan() -> None:
    silent = sum(
        not any(words in " ".join(sm.launch_serving(plan).notes) for words in EXCUSES)
        for plan in PLANS
    )
    assert silent >= 20


@pytest.mark.parametrize("target", ["kubernetes", "kserve", "dynamo", "llm_d"])
def test_objects_read_back_give_the_same_answer(target: Any) -> None:
    pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    compared = 0
    for plan in PLANS:
        try:
            launch = sm.launch_serving(plan, target)
        except sm.ScaleModelError:  # the target has no words for such an instance
            continue
        read = sm.read_serving(target, launch, engine=plan.engine)
        assert read.replicas == plan.replicas
        assert read.node_accelerators == min(8, plan.accelerators // plan.replicas)
        if any(words in " ".join(launch.notes) for words in EXCUSES):
            continue
        assert again(read, plan).to_dict() == plan.to_dict()
        compared += 1
    assert compared >= 5


def test_a_plan_that_was_searched_for_is_started_as_it_was_found() -> None:
    task = sm.Inference(input_tokens=1000, output_tokens=300, precision="fp8")
    found = sm.plan_serving(
        "llama3_70b",
        "dgx_h100",
        task,
        tpot_s=0.03,
        requests_per_s=5,
        layouts=[sm.ServingLayout(tp=4)],
        most_tokens=[1024],
    )
    plan = found[0]
    assert plan.max_batched_tokens == 1024
    assert "--max-num-batched-tokens 1024 " in plan.launch()
    read = sm.read_serving("vllm", plan.launch())
    assert again(read, plan).to_dict() == plan.to_dict()


def test_a_limit_without_a_load_stays_a_limit() -> None:
    plan = sm.serve(
        "llama3_8b", "dgx_h100", TASK, replicas=1, engine="sglang", max_running_sequences=48
    )
    assert plan.max_running_sequences == plan.max_concurrency == 48
    read = sm.read_serving("sglang", plan.launch())
    found = read.serve("dgx_h100", input_tokens=1000, output_tokens=200, replicas=1)
    assert found.to_dict() == plan.to_dict()


# ------------------------------------------------------------------------------------- two pools
def two_pools(engine: str, **given: Any) -> Any:
    task = TASK.replace(precision="fp8", kv_precision="fp8", **given)
    return serve_split(
        "llama3_70b",
        sm.cluster("dgx_h100", nodes=2),
        task,
        requests_per_s=2,
        prefill=sm.ServingLayout(tp=4),
        decode=sm.ServingLayout(tp=2),
        prefill_replicas=1,
        decode_replicas=2,
        engine=engine,
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "TensorRT-LLM"])
@pytest.mark.parametrize("target", ["command", "dynamo", "kubernetes", "llm_d"])
def test_both_pools_are_read_back(engine: str, target: Any) -> None:
    if target != "command":
        pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    plan = two_pools(engine)
    if target == "llm_d" and engine != "vllm":
        with pytest.raises(sm.ScaleModelError, match="runs vLLM"):
            sm.launch_serving(plan, target)
        return
    launch = sm.launch_serving(plan, target)
    framework = ENGINES[plan.decode.engine] if target == "command" else target
    read = sm.read_serving(framework, launch)
    assert read.role == "decode"
    assert read.prefill is not None
    assert read.prefill.role == "prefill"
    assert (read.layout, read.prefill.layout) == (plan.decode.layout, plan.prefill.layout)
    if target == "command":
        assert (read.replicas, read.prefill.replicas) == (None, None)
        return
    assert (read.replicas, read.prefill.replicas) == (2, 1)
    assert read.accelerators == plan.accelerators
    found = read.serve(
        plan.decode.cluster,
        input_tokens=1000,
        output_tokens=200,
        requests_per_s=2,
        precision="fp8",
    )
    assert found.to_dict() == plan.to_dict()


def test_commands_of_two_pools_are_told_apart() -> None:
    role = '{"kv_connector":"MooncakeConnector","kv_role":"kv_%s"}'
    words = ["vllm", "serve", "Qwen/Qwen3-8B", "-tp", "2", "--kv-transfer-config"]
    shell = "\n".join(
        " ".join([*words[:-1], "--port", port, words[-1], f"'{role % kind}'", "&"])
        for kind, port in (("producer", "1"), ("consumer", "2"))
    )
    read = sm.read_serving("vllm", shell)
    assert (read.role, read.prefill.role) == ("decode", "prefill")
    alike = "vllm serve Qwen/Qwen3-8B -tp 2 --port 1 &\nvllm serve Qwen/Qwen3-8B --port 2"
    with pytest.raises(sm.ScaleModelError, match="one for prefill and one for decode"):
        sm.read_serving("vllm", alike)
    prefill, decode = alike.split(" &\n")
    read = sm.read_serving("vllm", {"prefill": prefill, "decode": decode})
    assert (read.layout.tp, read.prefill.layout.tp) == (1, 2)


@pytest.mark.parametrize("engine", ["vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2025"])
@pytest.mark.parametrize(
    "adapters",
    [
        {"adapters": 8},
        {"adapters": 16, "adapter_slots": 4},
        {"adapters": 4, "adapter_rank": 64},
    ],
)
def test_adapters_are_read_back(engine: str, adapters: dict[str, int]) -> None:
    task = TASK.replace(**adapters)
    plan = sm.serve("llama3_8b", "dgx_h100", task, engine=engine, concurrency=32, replicas=1)
    read = sm.read_serving(ENGINES[engine], sm.launch_serving(plan), engine=engine)
    assert read.unread == ()
    assert any("give adapters" in note for note in read.notes)
    assert again(read, plan).to_dict() == plan.to_dict()
    assert again(read, plan, adapters=0, adapter_slots=0).tpot_s < plan.tpot_s


@pytest.mark.parametrize("engine", ["sglang_2025", "tensorrt_llm_pytorch_2025"])
def test_adapters_of_attention_are_read_back(engine: str) -> None:
    task = TASK.replace(adapters=4, adapter_targets="attention")
    plan = sm.serve("llama3_8b", "dgx_h100", task, engine=engine, concurrency=32, replicas=1)
    read = sm.read_serving(ENGINES[engine], sm.launch_serving(plan), engine=engine)
    assert read.adapter_targets == "attention"
    assert again(read, plan).to_dict() == plan.to_dict()


@pytest.mark.parametrize(
    ("framework", "words", "adapters", "slots", "rank"),
    [
        ("vllm", "--enable-lora", 1, 0, 16),
        ("vllm", "--enable-lora --max-loras 2 --max-lora-rank 64 --max-cpu-loras 9", 9, 2, 64),
        ("vllm", "--enable-lora --max-loras 4 --lora-modules a=/a b=/b", 2, 4, 16),
        ("vllm", '--enable-lora --lora-modules \'{"name": "a", "path": "/a"}\'', 1, 0, 16),
        ("vllm", "--max-loras 2 --lora-modules a=/a", 0, 0, 16),  # not switched on
        ("sglang", "--lora-paths a=/a b=/b c=/c", 3, 8, 16),
        ("sglang", "--enable-lora --max-lora-rank 32 --max-loaded-loras 20", 20, 8, 32),
        ("sglang", "--max-loras-per-batch 4", 0, 0, 16),
    ],
)
def test_adapters_as_commands_name_them(
    framework: str, words: str, adapters: int, slots: int, rank: int
) -> None:
    start = {
        "vllm": "vllm serve Qwen/Qwen3-8B ",
        "sglang": "python -m sglang.launch_server --model-path Qwen/Qwen3-8B ",
    }[framework]
    read = sm.read_serving(framework, start + words)
    assert read.unread == ()
    assert (read.adapters, read.adapter_slots, read.adapter_rank) == (adapters, slots, rank)
    listed = "=/" in words or "{" in words
    assert any("not listed" in note for note in read.notes) == (adapters > 0 and not listed)


def test_adapters_of_an_options_file() -> None:
    command = "trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options a.yml"

    def read(text: str) -> Any:
        return sm.read_serving("tensorrt_llm", command, files={"a.yml": text})

    found = read("lora_config:\n  lora_dir: [/a, /b]\n  lora_target_modules: [attn_q, attn_v]\n")
    assert (found.adapters, found.adapter_slots, found.adapter_rank) == (2, 0, 64)
    assert found.adapter_targets == "attention"
    assert any(note.startswith("max_loras") for note in found.notes)
    for wrong in ("lora_dir: /a", "max_loras: many", "max_lora_rank: -1"):
        with pytest.raises(sm.ScaleModelError, match=wrong.split(":")[0]):
            read(f"lora_config:\n  {wrong}\n")
