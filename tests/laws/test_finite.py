"""Every number that an answer holds is finite and none is negative, whatever is asked."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel import catalog

#: Clusters of chips whose matrix units have no FP32.
NO_FP32 = ["tpu_v6e_pod", "tpu_v5p_pod", "tpu_v4_pod"]


def numbers(estimate: sm.Estimate) -> dict[str, float]:
    return {k: v for k, v in estimate.row().items() if isinstance(v, float)}


@pytest.mark.parametrize("stack", [s for s in catalog.names("stacks") if "megatron_bridge" in s])
@pytest.mark.parametrize("model", ["qwen3_30b_a3b", "mixtral_8x7b", "deepseek_v3"])
def test_wide_routers_run_where_fp32_has_no_rate(model: str, stack: str) -> None:
    for name in NO_FP32:
        estimate = sm.estimate(
            model,
            sm.cluster(name, nodes=8),
            sm.Training(global_batch=512, sequence=4096),
            sm.Strategy(ep=8, recompute="full"),
            stack=stack,
        )
        assert not estimate.illegal
        assert math.isfinite(estimate.step_time_s)
        assert estimate.step_time_s > 0


def test_no_answer_holds_what_is_no_number() -> None:
    draw = random.Random(20_261_124)
    answered = 0
    for _ in range(3000):
        cluster = sm.cluster(draw.choice(catalog.names("clusters")), nodes=draw.choice([1, 4, 16]))
        strategy = sm.Strategy(
            tp=draw.choice([1, 2, 8]),
            pp=draw.choice([1, 2, 4]),
            ep=draw.choice([1, 2, 8]),
            schedule=draw.choice(["1f1b", "gpipe", "zero_bubble"]),
            sharding=draw.choice(["ddp", "zero1", "zero2", "zero3", "hsdp"]),
            recompute=draw.choice(["none", "selective", "full"]),
        )
        task = sm.Training(
            global_batch=draw.choice([256, 512, 1024]),
            sequence=draw.choice([128, 4096]),
            precision=draw.choice(["bf16", "fp16", "fp8", "fp32", "tf32"]),
        )
        stack = draw.choice(["plain", *catalog.names("stacks")])
        try:
            estimate = sm.estimate(
                draw.choice(catalog.names("models")), cluster, task, strategy, stack=stack
            )
        except sm.ScaleModelError:
            continue
        if estimate.illegal:
            continue
        answered += 1
        for name, value in numbers(estimate).items():
            assert math.isfinite(value), name
            assert value >= 0, name
        assert estimate.step_time_s > 0
    assert answered > 300


def test_a_fit_to_no_rate_is_refused_or_left_out(tmp_path: Path, monkeypatch: Any) -> None:
    text = catalog.path_of("accelerators", "h100_sxm_80").read_text(encoding="utf-8")
    changed = text.replace("[gemm]\n", '[gemm]\npeak_reference = "0 TFLOP/s"\n')
    assert changed != text
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / "h100_sxm_80.toml").write_text(changed, encoding="utf-8")
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    catalog.forget()
    try:
        task = sm.Training(global_batch=64, sequence=4096)
        estimate = sm.estimate("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2, pp=2))
        assert estimate.illegal or math.isfinite(estimate.step_time_s)
    finally:
        monkeypatch.undo()
        catalog.forget()
