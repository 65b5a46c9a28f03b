"""What starts a handful of serving plans: commands, and objects of Kubernetes.

``python tests/golden/launches.py`` writes them into ``launch/``, to be read one by one.

Limits are given with the plans, so that no prediction decides a word of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import scalemodel as sm
from scalemodel.serving import serve_split

GOLDEN = Path(__file__).parent / "launch"

FP8 = sm.Inference(input_tokens=2000, output_tokens=500, precision="fp8", kv_precision="fp8")
DRAFTS = FP8.replace(speculative_tokens=1)
LIMITS = {"max_batched_tokens": 8192, "max_running_sequences": 256}


def dense(engine: str, **given: Any) -> Any:
    """Llama 3 70B on four accelerators, four copies."""
    cluster = sm.cluster("dgx_h100", nodes=2)
    layout = sm.ServingLayout(tp=4)
    task = FP8.replace(**given)
    return sm.serve("llama3_70b", cluster, task, layout, engine=engine, replicas=4, **LIMITS)


def wide(engine: str) -> Any:
    """DeepSeek-R1 with its experts on two nodes."""
    cluster = sm.cluster("dgx_h200", nodes=4)
    layout = sm.ServingLayout(dp=16, ep=16)
    limits = {"max_batched_tokens": 32768, "max_running_sequences": 2048}
    return sm.serve(
        "deepseek-ai/DeepSeek-R1-0528", cluster, DRAFTS, layout, engine=engine, replicas=2, **limits
    )


def split(engine: str) -> Any:
    """Qwen3 32B with a pool for prompts and a pool for answers."""
    return serve_split(
        "qwen3_32b",
        sm.cluster("dgx_h100", nodes=2),
        FP8,
        requests_per_s=4,
        prefill=sm.ServingLayout(tp=4),
        decode=sm.ServingLayout(tp=2),
        prefill_replicas=2,
        decode_replicas=3,
        engine=engine,
    )


VLLM, SGLANG, TENSORRT = "vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2026"

#: What is launched, by the name of its file.
LAUNCHES: dict[str, Callable[[], sm.ServingLaunch]] = {
    "vllm_dense.sh": lambda: sm.launch_serving(dense(VLLM)),
    "vllm_wide.sh": lambda: sm.launch_serving(wide(VLLM)),
    "vllm_split.sh": lambda: sm.launch_serving(split(VLLM)),
    "vllm_pipeline.sh": lambda: sm.launch_serving(
        sm.serve(
            "llama3_1_405b",
            sm.cluster("dgx_h100", nodes=2),
            FP8.replace(prefix_hit_fraction=0.5, speculative_tokens=3),
            sm.ServingLayout(tp=8, pp=2),
            **LIMITS,
        )
    ),
    "sglang_dense.sh": lambda: sm.launch_serving(dense(SGLANG)),
    "sglang_wide.sh": lambda: sm.launch_serving(wide(SGLANG)),
    "sglang_split.sh": lambda: sm.launch_serving(split(SGLANG)),
    "tensorrt_llm_dense.sh": lambda: sm.launch_serving(dense(TENSORRT, precision="bf16")),
    "tensorrt_llm_wide.sh": lambda: sm.launch_serving(wide(TENSORRT)),
    "vllm_dense_kubernetes.yaml": lambda: sm.launch_serving(dense(VLLM), "kubernetes"),
    "tensorrt_llm_dense_kubernetes.yaml": lambda: sm.launch_serving(dense(TENSORRT), "kubernetes"),
    "sglang_dense_kserve.yaml": lambda: sm.launch_serving(dense(SGLANG), "kserve"),
    "vllm_wide_llm_d.yaml": lambda: sm.launch_serving(wide(VLLM), "llm_d"),
    "vllm_split_llm_d.yaml": lambda: sm.launch_serving(split(VLLM), "llm_d"),
    "vllm_split_dynamo.yaml": lambda: sm.launch_serving(split(VLLM), "dynamo"),
    "sglang_wide_dynamo.yaml": lambda: sm.launch_serving(wide(SGLANG), "dynamo"),
    "tensorrt_llm_wide_dynamo.yaml": lambda: sm.launch_serving(wide(TENSORRT), "dynamo"),
}


def text(name: str) -> str:
    """The contents of a file."""
    return LAUNCHES[name]().script()


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for each in LAUNCHES:
        (GOLDEN / each).write_text(text(each), encoding="utf-8")
