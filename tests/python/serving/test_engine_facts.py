"""Facts of engines' releases: which kernels compute experts, what is overlapped."""

from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.resolve.engine_kernels import expert_kernel
from scalemodel.resolve.engines import engine, engine_for, engine_table
from scalemodel.resolve.serving_kernels import serving_kernels

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
    named = want["kernels"][key]["value"]
    assert named in chosen.label("kernel")
    # Triton's experts were timed with scales by block: those by tensor or channel run the same.
    by_blocks = dtype == "fp8" and "triton" in named
    assert chosen.label("dtype") == ("fp8_block" if by_blocks else dtype)
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


def _minimax_tpot_s(engine_name: str) -> float:
    task = sm.Inference(input_tokens=2048, output_tokens=1024, precision="fp8_block")
    plan = sm.serve(
        "minimax_m2",
        "dgx_h100",
        task,
        sm.ServingLayout(tp=4),
        engine=engine_name,
        concurrency=10,
        replicas=1,
    )
    assert plan.tpot_s is not None
    return plan.tpot_s


def test_experts_in_reserved_tiles_as_published_for_minimax_m2() -> None:
    """32.2 ms a token with DeepGEMM's experts, 16.9 with Triton's at untuned tiles.

    Four H100, ten users (vllm-project/recipes#112 and vllm-project/vllm#28200, 2025-11); no
    constant was fitted to them. Later releases pack their rows.
    """
    assert _minimax_tpot_s("vLLM 0.11") == pytest.approx(0.0322, rel=0.06)
    host_s = engine("vllm_v1").step_host_s - 0.0003
    assert _minimax_tpot_s("vLLM 0.17") + host_s == pytest.approx(0.0169, rel=0.1)


def test_eight_bits_by_blocks_run_reserved_tiles_and_others_do_not() -> None:
    for accelerator, passes in (("h100_sxm_80", 10.75), ("b200", 0.0)):
        blocks, _ = serving_kernels(accelerator, "vllm_v1", "fp8_block", "bf16", 8, False)
        assert (blocks.experts.reserved_rows, blocks.experts.inner_passes) == (128, passes)
        channels, _ = serving_kernels(accelerator, "vllm_v1", "fp8", "bf16", 8, False)
        later, _ = serving_kernels(accelerator, "vllm_2026", "fp8_block", "bf16", 8, False)
        assert channels.experts.reserved_rows == later.experts.reserved_rows == 0


def test_a_benchmark_that_waits_for_its_cpu_tells_nothing_of_graphs() -> None:
    """Calls of vLLM's FP8 blocks take 57 us at least in a loop: those of SGLang run the same."""
    for accelerator in ("h100_sxm_80", "h200"):
        kernels, _ = serving_kernels(accelerator, "vllm_v1", "fp8_block", "bf16", 8, False)
        assert kernels.linear.host_floor_s == 0
        assert kernels.linear.launch_s < 6e-6
