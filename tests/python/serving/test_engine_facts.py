"""Facts of engines' releases: which kernels compute experts, what is overlapped."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.resolve.engine_kernels import expert_kernel
from scalemodel.resolve.engines import engine, engine_for, engine_table

EXPERTS = sm.Inference(input_tokens=1000, output_tokens=500)


def engines_with_kernels() -> list[tuple[str, str]]:
    return [
        (name, key)
        for name in catalog.names("engines")
        for key in engine_table(name).get("kernels", {}).get("experts", {}).get("kernels", {})
    ]


@pytest.mark.parametrize(("name", "key"), engines_with_kernels())
def test_every_named_kernel_of_experts_was_timed_on_such_accelerators(name: str, key: str) -> None:
    architecture, dtype = key.split("_", 1)
    want = engine_table(name)["kernels"]["experts"]
    accelerator = {"hopper": "h100_sxm_80", "blackwell": "b200"}[architecture]
    chosen = expert_kernel(accelerator, dtype, want)
    assert want["kernels"][key]["value"] in chosen.label("kernel")
    assert chosen.label("dtype") == dtype
    assert catalog.load("accelerators", chosen.accelerator)["architecture"] == architecture


def test_a_kernel_timed_by_another_engine_comes_before_another_kernel_of_the_own() -> None:
    own = {"engine": "vllm"}
    assert expert_kernel("h200", "w4a16_mxfp4", own).label("kernel").startswith("vllm_compressed")
    named = own | {"kernels": {"hopper_w4a16_mxfp4": "oaitriton"}}
    assert "oaitriton" in expert_kernel("h200", "w4a16_mxfp4", named).label("kernel")
    borrowed = own | {"kernels": {"hopper_int4_wo": {"value": "sglang_marlin"}}}
    assert expert_kernel("h200", "int4_wo", borrowed).label("engine") == "sglang"
    # What is said of one architecture changes nothing on another.
    assert expert_kernel("b200", "int4_wo", borrowed) == expert_kernel("b200", "int4_wo", own)


def test_releases_of_vllm_differ_by_what_their_authors_changed() -> None:
    assert engine_for("vLLM 0.16.1") == "vllm_v1"
    assert engine_for("vllm/vllm-openai:v0.11.1") == "vllm_v1"
    assert engine_for("vLLM v0.17") == engine_for("vLLM 0.24.0") == "vllm_2026"
    old, new = engine("vllm_v1"), engine("vllm_2026")
    assert (old.overlaps_host, new.overlaps_host) == (False, True)
    assert new == old.replace(
        overlaps_host=True,
        memory_fraction=0.92,
        overlaps_draft_models=False,
        overlaps_masks=True,
        overlaps_draft_masks=True,
    )
    rates = [
        sm.serve("qwen3_30b_a3b", "dgx_b200", EXPERTS, concurrency=64, replicas=1, engine=name)
        for name in ("vllm_v1", "vllm_2026")
    ]
    assert rates[1].output_tokens_per_s > 1.3 * rates[0].output_tokens_per_s
