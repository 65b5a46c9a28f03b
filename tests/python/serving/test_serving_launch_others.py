"""Settings of serving engines as others write them, and what is wrong with some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError


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
        (
            "inferencex",
            {**RECIPE, "scenarios": {"fixed-seq-len": [{"isl": 1, "osl": 1, "search-space": 3}]}},
            "search-space=3",
        ),
        (
            "vllm",
            """vllm serve a/b --speculative-config '{"num_speculative_tokens": []}'""",
            "number",
        ),
        (
            "kubernetes",
            {
                "kind": "Deployment",
                "spec": {"template": {"spec": {"containers": [{"args": "vllm serve 'a"}]}}},
            },
            "no command of a shell",
        ),
        (
            "tensorrt_llm",
            "cat > a <<E\nkv_cache_config: {tokens_per_block: x}\nE\ntrtllm-serve a/b --config a",
            "tokens_per_block='x'",
        ),
    ],
)
def test_wrong_settings_are_named(framework: str, source: object, told: str) -> None:
    if framework in ("dynamo", "kubernetes", "tensorrt_llm"):
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


@pytest.mark.parametrize(
    ("model", "engine", "starts"),
    [
        ("lfm2_1_2b", "tensorrt_llm_pytorch_2026", False),
        ("lfm2_1_2b", "vllm_v1", True),
        ("falcon_mamba_7b", "tensorrt_llm_pytorch_2026", False),
        ("nemotron_h_8b", "tensorrt_llm_pytorch_2026", True),
    ],
)
def test_an_engine_starts_no_mixer_that_it_has_no_model_of(
    model: str, engine: str, starts: bool
) -> None:
    task = sm.Inference(input_tokens=1000, output_tokens=100)
    plan = sm.serve(model, "dgx_h100", task, replicas=1, engine=engine)
    if starts:
        assert plan.launch()
        return
    with pytest.raises(ScaleModelError, match=r"starts no model with .*not known to lack.*vllm"):
        plan.launch()
