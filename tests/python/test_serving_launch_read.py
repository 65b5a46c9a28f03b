"""Commands, objects and recipes of serving engines, written and read back to the same answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.serving import serve_split, serving_layouts

ENGINES = {
    "vllm_v1": "vllm",
    "sglang_2025": "sglang",
    "tensorrt_llm_pytorch_2025": "tensorrt_llm",
    "tensorrt_llm_pytorch_2026": "tensorrt_llm",
    "tensorrt_llm_2025": "tensorrt_llm",
}
MODELS = ("llama3_8b", "llama3_70b", "mixtral_8x7b", "deepseek_v3", "gpt_oss_120b", "qwen3_32b")
CLUSTERS = {
    "dgx_h100": sm.cluster("dgx_h100", nodes=2),
    "dgx_b200": sm.cluster("dgx_b200", nodes=4),
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


def drawn(number: int) -> Any:
    """A plan at random, of a model, an engine, a layout, formats, limits and a load."""
    draw = random.Random(number)
    model = sm.model(draw.choice(MODELS))
    cluster = draw.choice(list(CLUSTERS.values()))
    precision = draw.choice(["bf16", "fp8", "fp8", "fp8_block", "fp4", "int8", "int4", "fp16"])
    task = sm.Inference(
        input_tokens=draw.choice([200, 1000, 3000.5]),
        output_tokens=draw.choice([1, 100, 700]),
        precision="mxfp4" if model.checkpoint == "mxfp4" else precision,
        kv_precision=draw.choice(["bf16", "fp8", "fp4"]),
        prefix_hit_fraction=draw.choice([0.0, 0.3]),
        speculative_tokens=draw.choice([0, 0, 2]),
        acceptance_fraction=0.6,
        imbalance=draw.choice([1.0, 1.2]),
    )
    options: dict[str, Any] = {"engine": draw.choice(list(ENGINES))}
    load = draw.choice(["rate", "concurrency", "full"])
    layout = draw.choice(serving_layouts(model, cluster, 16))
    options["replicas"] = draw.choice([1, 1, 2])
    if load == "rate":
        options["requests_per_s"] = draw.choice([0.1, 3.0])
    elif load == "concurrency":
        options["concurrency"] = draw.choice([1, 64, 200])
    if draw.random() < 0.3:
        options["max_batched_tokens"] = draw.choice([2048, 16384])
    try:
        return sm.serve(model, cluster, task, layout, **options)
    except sm.ScaleModelError:  # the accelerator has no products of the format
        return None


def plans(count: int) -> list[Any]:
    found: list[Any] = []
    for number in range(100_000):
        plan = drawn(number)
        if plan is not None and plan.fits:
            found.append(plan)
        if len(found) == count:
            break
    return found


def again(read: Any, plan: Any, **more: Any) -> Any:
    """The plan that settings describe, asked about the same requests."""
    untold = {name: getattr(plan.task, name) for name in UNTOLD}
    asked = {"requests_per_s": plan.asked_rate, "concurrency": plan.asked_concurrency}
    return read.serve(plan.cluster, replicas=plan.replicas, **untold, **asked, **more)


PLANS = plans(50)


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


# --------------------------------------------------------------------- what others write
def test_vllm_as_people_write_it() -> None:
    read = sm.read_serving(
        "vllm",
        """
        export MODEL=deepseek-ai/DeepSeek-R1-0528   # all nodes
        vllm serve $MODEL \\
            --data_parallel_size=16 --data-parallel-size-local 8 --enable-expert-parallel \\
            --max-num-batched-tokens 8k --max-model-len 16K --kv_cache_dtype fp8 \\
            --speculative-config.method mtp --speculative-config.num_speculative_tokens 2 \\
            --gpu-memory-utilization 0.95 --all2all-backend deepep_low_latency
        """,
    )
    assert read.model is not None
    assert read.model.name == "deepseek_v3"
    assert read.model.hub == "deepseek-ai/DeepSeek-R1-0528"
    assert read.layout == sm.ServingLayout(dp=16, ep=16)
    assert (read.max_batched_tokens, read.context_tokens) == (16 * 8000, 16384)
    assert (read.precision, read.kv_precision, read.speculative_tokens) == ("fp8_block", "fp8", 2)
    assert read.notes == ("gpu_memory_utilization 0.95: predicted with 0.9 of vllm_v1",)
    assert read.unread == ("all2all_backend",)
    assert read.max_running_sequences is None


def test_sglang_as_people_write_it() -> None:
    read = sm.read_serving(
        "sglang",
        "python3 -m sglang.launch_server --model deepseek-ai/DeepSeek-V3 --tp 16 --dp 4 "
        "--enable-dp-attention --moe-a2a-backend deepep --chunked-prefill-size 32768 "
        "--max-running-requests 512 --speculative-algorithm EAGLE --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --disable-radix-cache",
    )
    assert read.layout == sm.ServingLayout(tp=4, dp=4, ep=16)
    assert (read.max_running_sequences, read.max_batched_tokens) == (512, 32768)
    assert (read.speculative_tokens, read.prefix_caching) == (3, False)
    with pytest.raises(sm.ScaleModelError, match="multiple of 3"):
        sm.read_serving(
            "sglang",
            "python -m sglang.launch_server --model-path a/b --tp 16 --dp 3 --enable-dp-attention",
        )


def test_tensorrt_llm_with_its_file() -> None:
    pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    command = "trtllm-serve nvidia/DeepSeek-R1-0528-FP4-v2 --tp_size 8 --ep_size 8 --config a.yml"
    text = "enable_attention_dp: true\nmax_batch_size: 128\nkv_cache_config: {dtype: fp8}\n"
    read = sm.read_serving("tensorrt_llm", command, files={"a.yml": text})
    assert read.layout == sm.ServingLayout(dp=8, ep=8)
    assert read.max_running_sequences == 8 * 128
    assert (read.precision, read.kv_precision) == ("fp4", "fp8")
    assert read.model is not None
    assert read.model.name == "deepseek_v3"
    assert "not given" in sm.read_serving("tensorrt_llm", command).notes[0]


OLDER = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: a}
spec:
  services:
    Frontend: {componentType: frontend, replicas: 1}
    Prefill:
      componentType: worker
      replicas: 3
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
        mainContainer:
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-32B, --tensor-parallel-size, "4", --is-prefill-worker]
    Decode:
      componentType: worker
      replicas: 2
      resources: {limits: {gpu: "2"}}
      extraPodSpec:
        mainContainer:
          command: [/bin/sh, -c]
          args: ["python3 -m dynamo.vllm --model Qwen/Qwen3-32B -tp 2 --is-decode-worker"]
"""


def test_dynamo_of_the_older_version() -> None:
    pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    read = sm.read_serving("dynamo", OLDER)
    assert (read.layout.tp, read.replicas, read.node_accelerators) == (2, 2, 2)
    assert read.prefill is not None
    assert (read.prefill.layout.tp, read.prefill.replicas) == (4, 3)
    assert read.prefill.cluster == "h100_sxm_80"


def test_kserve_with_its_own_runtime(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    path = tmp_path / "service.yaml"
    path.write_text(
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n"
        "    minReplicas: 3\n    model:\n      modelFormat: {name: huggingface}\n"
        "      args: [--model_name=a, --model_id=meta-llama/Llama-3.1-8B-Instruct,"
        " --max-model-len=4096]\n      resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    read = sm.read_serving("kserve", path)
    assert read.hub == "meta-llama/Llama-3.1-8B-Instruct"
    assert (read.replicas, read.context_tokens, read.node_accelerators) == (3, 4096, 1)


RECIPE = {
    "image": "vllm/vllm-openai:v0.10.2",
    "model": "deepseek-ai/DeepSeek-R1-0528",
    "model-prefix": "dsr1",
    "runner": "cluster:h200-nv",
    "precision": "fp8",
    "framework": "dynamo-sglang",
    "multinode": True,
    "disagg": True,
    "scenarios": {
        "fixed-seq-len": [
            {
                "isl": 8192,
                "osl": 1024,
                "search-space": [
                    {"tp": 8, "ep": 8, "dp-attn": True, "conc-start": 4, "conc-end": 64},
                    {
                        "spec-decoding": "mtp",
                        "conc-list": [512],
                        "prefill": {"num-worker": 2, "tp": 8, "ep": 8, "dp-attn": True},
                        "decode": {"num-worker": 1, "tp": 16, "ep": 16, "dp-attn": True},
                    },
                ],
            }
        ]
    },
}


def test_recipes_of_inferencex(tmp_path: Path) -> None:
    read = sm.read_serving("inferencex", {"dsr1-fp8-h200-sglang": RECIPE})
    assert [point.concurrency for point in read.points] == [4, 8, 16, 32, 64, 512]
    assert read.layout == sm.ServingLayout(dp=8, ep=8)
    assert (read.engine, read.precision, read.cluster) == ("sglang_2025", "fp8_block", "h200")
    plan = read.serve(sm.cluster("dgx_h200"))
    assert plan.verdict == "ok"
    assert plan.asked_concurrency == 4
    split = read.points[-1]
    assert split.prefill is not None
    assert (split.layout.dp, split.prefill.replicas, split.speculative_tokens) == (16, 2, 1)
    assert "names no number" in split.notes[0]
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(RECIPE))
    assert sm.read_serving("inferencex", path) == read
    with pytest.raises(sm.ScaleModelError, match="2 recipes"):
        sm.read_serving("inferencex", {"a": RECIPE, "b": RECIPE})


def test_results_of_inferencex() -> None:
    result = {
        "hw": "b200",
        "conc": 64,
        "model": "nvidia/Llama-3.3-70B-Instruct-FP4",
        "framework": "trt",
        "precision": "fp4",
        "isl": 1024,
        "osl": 1024,
        "tp": 2,
        "ep": 1,
        "dp_attention": "false",
        "tput_per_gpu": 5000.0,
    }
    read = sm.read_serving("inferencex", result)
    assert (read.layout.tp, read.concurrency, read.precision) == (2, 64, "fp4")
    plan = read.serve(sm.cluster("dgx_b200"))
    assert plan.output_tokens_per_s > 0
    assert plan.task.input_tokens == 1024


# ------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("framework", "source", "told"),
    [
        ("vlm", "vllm serve a/b", "unknown"),
        ("vllm", "python -m sglang.launch_server --model-path a/b", "starts no server"),
        ("vllm", "vllm serve --tensor-parallel-size 2", "no model"),
        ("vllm", "vllm serve a/b --tensor-parallel-size two", "tensor_parallel_size='two'"),
        ("vllm", "vllm serve a/b --tensor-parallel-size 0", "tensor_parallel_size='0'"),
        ("vllm", "vllm serve a/b --quantization gold", "quantization='gold'"),
        ("vllm", "vllm serve a/b --kv-cache-dtype gold", "kv_cache_dtype='gold'"),
        ("vllm", "vllm serve a/b --gpu-memory-utilization 9", "gpu_memory_utilization='9'"),
        ("vllm", "vllm serve a/b --speculative-config '{'", "must be JSON"),
        ("vllm", "vllm serve 'a/b", "no command of a shell"),
        ("vllm", "no_such_file", "cannot be read"),
        ("vllm", {"prefil": "vllm serve a/b"}, "prefill and decode"),
        ("dynamo", "kind: Service", "DynamoGraphDeployment"),
        ("dynamo", "a: [", "dynamo"),
        ("dynamo", "a: &x [1]\nb: *x\n", "aliases"),
        ("dynamo", "[" * 2000, "nested too deeply"),
        ("kubernetes", 3, "must be a text"),
        ("inferencex", {"framework": "gold", "model": "a/b"}, "framework='gold'"),
        ("inferencex", {**RECIPE, "precision": "gold"}, "precision='gold'"),
        ("inferencex", {**RECIPE, "scenarios": {}}, "fixed-seq-len"),
    ],
)
def test_wrong_settings_are_named(framework: str, source: object, told: str) -> None:
    if framework in ("dynamo", "kubernetes"):
        pytest.importorskip("yaml", reason="YAML is read by PyYAML")
    with pytest.raises(sm.ScaleModelError, match=told.replace("(", r"\(")):
        sm.read_serving(framework, source)


def test_settings_are_no_whole_question() -> None:
    read = sm.read_serving("vllm", "vllm serve nobody/knows-this --no-enable-prefix-caching")
    assert read.model is None
    with pytest.raises(sm.ScaleModelError, match="does not know 'nobody/knows-this'"):
        read.serve("dgx_h100", input_tokens=1, output_tokens=1)
    plan = read.serve("dgx_h100", model="llama3_8b", input_tokens=100, output_tokens=10)
    assert plan.verdict == "ok"
    with pytest.raises(sm.ScaleModelError, match="input_tokens: the settings name no lengths"):
        read.task(output_tokens=1)
    with pytest.raises(sm.ScaleModelError, match="switched off"):
        read.task(input_tokens=10, output_tokens=1, prefix_hit_fraction=0.5)
    with pytest.raises(sm.ScaleModelError, match="no field of a task"):
        read.task(input_token=10)
    with pytest.raises(sm.ScaleModelError, match="name no accelerator"):
        read.serve(model="llama3_8b", input_tokens=10, output_tokens=1)
    short = sm.read_serving("vllm", "vllm serve Qwen/Qwen3-8B --max-model-len 100")
    with pytest.raises(sm.ScaleModelError, match="more than 100 tokens"):
        short.task(input_tokens=90, output_tokens=11)


def test_a_limit_that_is_read_is_in_force() -> None:
    read = sm.read_serving("vllm", "vllm serve Qwen/Qwen3-8B --max-num-seqs 8")
    lengths = {"input_tokens": 1000, "output_tokens": 100}
    full = read.serve("dgx_h100", replicas=1, **lengths)
    assert full.concurrency == 8
    rate = read.serve("dgx_h100", replicas=1, requests_per_s=1e4, **lengths)
    assert rate.saturated
    assert rate.max_running_sequences == 8
    load = read.serve("dgx_h100", replicas=1, concurrency=100, **lengths)
    assert load.concurrency <= 8


def test_a_path_in_a_command_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    for path in (str(tmp_path), str(tmp_path / "config.json"), "./config.json"):
        assert sm.read_serving("vllm", ["vllm", "serve", path]).model is None
