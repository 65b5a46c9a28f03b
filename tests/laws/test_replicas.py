"""Instances that share nothing: as many tokens an accelerator however many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import scalemodel as sm

TASK = sm.Inference(input_tokens=1000, output_tokens=200, precision="fp8")
LOADS: Mapping[str, Any] = {
    "as much as fits": lambda copies: {},
    "kept running": lambda copies: {"concurrency": 64 * copies},
    "arriving": lambda copies: {"requests_per_s": 4 * copies},
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("engine", ["vllm_v1", "sglang_2025", "tensorrt_llm_pytorch_2025"])
@pytest.mark.parametrize("model", ["llama3_8b", "qwen3_30b_a3b"])
def test_replicas_scale_linearly(model: str, engine: str, load: str) -> None:
    cluster = sm.cluster("dgx_h100", nodes=8)
    rates = []
    for copies in (1, 2, 8, 64):
        asked = LOADS[load](copies)
        plan = sm.serve(model, cluster, TASK, engine=engine, replicas=copies, **asked)
        rates.append(plan.output_tokens_per_s_per_accelerator)
    assert max(rates) / min(rates) < 1.02
