"""Diffusion transformers and U-Nets: published sizes, formulas, laws, errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

NODE = sm.cluster("dgx_h100", nodes=1)
TASK = sm.BatchInference(global_batch=8, sequence=1)
#: Models of the catalogue, and parameters in millions as their weights on the Hub hold them.
PUBLISHED = {
    "flux_1_dev": 11_901.4,
    "wan_2_1_t2v_14b": 14_288.5,
    "wan_2_1_t2v_1_3b": 1_418.9,
    "hunyuan_video": 12_821.0,
    "stable_diffusion_2_unet": 865.9,
    "sana_1_6b_4k": 1_604.5,
    "sdxl_unet": 2_567.5,
    "image_decoder": 49.5,
}
LAYER: dict[str, Any] = {"hidden": 256, "heads": 4, "ffn": 1024, "causal": False, "tokens": 512}


def convolution(**changes: Any) -> sm.Convolution:
    given: dict[str, Any] = {"blocks": ((64, 64),), "tokens": 1024}
    return sm.Convolution(**{**given, **changes})


def step_s(group: sm.Transformer | sm.Convolution, mesh: str = "ddp") -> float:
    model = sm.compose("one", groups=[group])
    found = sm.estimate(model, NODE, TASK, sm.GroupStrategy(mesh))
    return float(found.step_time_s) - float(found.overhead_s)


# ------------------------------------------------------------------------------------ published
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_the_published_ones(name: str) -> None:
    # Embeddings of time, text and patches differ by implementation; U-Nets are counted in full.
    tolerance = 0.0005 if "unet" in name else 0.04
    counted = sm.compose(name).parameters / 1e6
    assert counted == pytest.approx(PUBLISHED[name], rel=tolerance)


def test_products_of_an_image_are_the_published_ones() -> None:
    # 2 x 2.98 TMAC of SDXL's U-Net (arXiv 2404.12382 and others), .80 of Stable Diffusion's.
    for name, teraflop in (("sdxl_unet", 5.97), ("stable_diffusion_2_unet", 0.803)):
        groups = sm.compose(name).groups
        counted = sum(group.core.forward_flop(1) for group in groups) / 1e12
        assert counted == pytest.approx(teraflop, rel=0.15)


def test_products_of_a_video_are_those_of_its_formula() -> None:
    # L [8 S h^2 + 4 S^2 h + 4 S h^2 + 4 S_t h^2 + 4 S S_t h + 4 S h f].
    layers, h, f, s, text = 40, 5120, 13824, 32760, 512
    found = next(g for g in sm.compose("wan_2_1_t2v_14b").groups if g.name == "transformer")
    each = 8 * s * h * h + 4 * s * s * h + 4 * (s + text) * h * h + 4 * s * text * h + 4 * s * h * f
    assert found.core.forward_flop(1) == pytest.approx(layers * each, rel=1e-3)


# ----------------------------------------------------------------------------------------- laws
def test_a_convolution_counts_every_place_of_its_kernel() -> None:
    narrow = convolution(blocks=(), convolutions=((64, 128, 1),)).core
    wide = convolution(blocks=(), convolutions=((64, 128, 3),)).core
    assert wide.forward_flop(1) == 9 * narrow.forward_flop(1) == 9 * 2 * 1024 * 64 * 128
    assert wide.parameters - 128 == 9 * (narrow.parameters - 128)


def test_a_residual_block_is_its_convolutions() -> None:
    block = convolution(blocks=((64, 96),)).core
    parts = convolution(blocks=(), convolutions=((64, 96, 3), (96, 96, 3), (64, 96, 1))).core
    assert block.forward_flop(1) == parts.forward_flop(1)
    norms = 2 * 64 + 2 * 96
    assert block.parameters == parts.parameters + norms


def test_a_convolution_reads_its_input_once() -> None:
    # As many products in a 1 x 1 convolution of nine times the channels: no faster.
    spread = convolution(blocks=(), convolutions=((64, 64, 3),), tokens=1e6)
    dense = convolution(blocks=(), convolutions=((576, 64, 1),), tokens=1e6)
    assert spread.core.forward_flop(1) == dense.core.forward_flop(1)
    assert step_s(spread) < step_s(dense)


def test_a_modality_adds_parameters_and_no_products() -> None:
    one = sm.Transformer(layers=2, **LAYER).core
    two = sm.Transformer(layers=2, modalities=2, **LAYER).core
    assert two.parameters == 2 * one.parameters
    assert two.forward_flop(1) == one.forward_flop(1)


def test_another_sequence_adds_its_products() -> None:
    tokens, text, width, h = 512, 77, 128, 256
    alone = sm.Transformer(layers=3, **LAYER).core
    beside = sm.Transformer(layers=3, context_tokens=text, context_width=width, **LAYER).core
    own = 4 * tokens * h * h + 4 * text * width * h + 4 * tokens * text * h
    assert beside.forward_flop(1) - alone.forward_flop(1) == pytest.approx(3 * own)


def test_linear_attention_grows_with_the_tokens_alone() -> None:
    def seconds(tokens: int, linear: bool) -> float:
        shape = {**LAYER, "hidden": 1024, "heads": 8, "ffn": 4096, "tokens": tokens}
        return step_s(sm.Transformer(layers=8, linear=linear, **shape))

    for tokens in (32_768, 131_072):
        assert seconds(tokens, True) < seconds(tokens, False)
        assert 1.9 < seconds(2 * tokens, True) / seconds(tokens, True) < 2.1
    assert seconds(262_144, False) > 3.5 * seconds(131_072, False)


def test_a_convolution_inside_the_block_has_its_weights() -> None:
    plain = sm.Transformer(layers=2, gated=True, **LAYER).core
    convolved = sm.Transformer(layers=2, gated=True, depthwise=3, **LAYER).core
    assert convolved.parameters - plain.parameters == 2 * 2 * 1024 * (9 + 1)


def test_ranks_share_the_tokens_of_a_sample() -> None:
    large = sm.Transformer(layers=4, hidden=2048, heads=16, ffn=8192, causal=False, tokens=65536)
    model = sm.compose("video", groups=[large])
    task = sm.BatchInference(global_batch=1, sequence=1)
    times = []
    for ranks in (1, 2, 4, 8):
        cluster = sm.cluster("dgx_h100", accelerators=ranks)
        mesh = f"cp@{ranks}+ddp@1" if ranks > 1 else "ddp"
        found = sm.estimate(model, cluster, task, sm.GroupStrategy(mesh))
        assert found.verdict == "ok"
        times.append(float(found.step_time_s) - float(found.overhead_s))
    for slower, faster in pairwise(times):
        assert slower / 2 <= faster < slower


def test_what_is_made_once_a_sample_goes_where_its_layers_go() -> None:
    cluster = sm.cluster("dgx_h100", nodes=1)
    plan = sm.GroupStrategy("cp@8+ddp@1")
    model = sm.compose("wan_2_1_t2v_1_3b")
    task = sm.BatchInference(global_batch=1, sequence=1)
    assert sm.estimate(model, cluster, task, plan).verdict == "ok"
    with pytest.raises(ScaleModelError, match="no mesh for"):
        sm.estimate(sm.compose("sdxl_unet"), cluster, task, plan)


def test_more_pixels_take_longer_and_text_stays() -> None:
    for name, usual in (("flux_1_dev", 4096), ("sdxl_unet", 16384)):
        model = sm.compose(name)
        assert model.with_tokens(usual) == model
        larger = model.with_tokens(4 * usual)
        task = sm.BatchInference(global_batch=8, sequence=1)
        plan = sm.GroupStrategy("ddp")
        slow, fast = (sm.estimate(each, NODE, task, plan) for each in (larger, model))
        assert slow.step_time_s > 3 * fast.step_time_s
    texts = [g.tokens for g in sm.compose("flux_1_dev").with_tokens(64).groups if "text" in g.name]
    assert texts == [512]


def test_training_keeps_activations_and_recomputes_them() -> None:
    task = sm.Training(global_batch=64, sequence=1)
    plan = sm.GroupStrategy("zero1")
    model = sm.compose("stable_diffusion_2_unet")
    kept = sm.estimate(model, NODE, task, plan)
    again = sm.estimate(model, NODE, task, sm.GroupStrategy("zero1", recompute=True))
    assert again.memory_bytes < kept.memory_bytes
    assert kept.step_time_s < again.step_time_s


def test_a_search_finds_a_layout_of_a_u_net() -> None:
    model, task = sm.compose("stable_diffusion_2_unet"), sm.Training(global_batch=256, sequence=1)
    best = sm.search(model, NODE, task)[0]
    assert best.verdict == "ok"
    assert best.step_time_s <= sm.estimate(model, NODE, task, sm.GroupStrategy("fsdp")).step_time_s


# --------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"blocks": ((64, 64, 3),)}, "blocks"),
        ({"blocks": ((64, 0),)}, "blocks"),
        ({"blocks": "64"}, "blocks"),
        ({"convolutions": ((64, 64),)}, "convolutions"),
        ({"blocks": ()}, "blocks and convolutions=0"),
        ({"tokens": 0}, "tokens=0"),
        ({"condition": -1}, "condition=-1"),
    ],
)
def test_a_malformed_convolution_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ScaleModelError, match=named):
        convolution(**changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"modalities": 0}, "modalities=0"),
        ({"context_tokens": 77}, "context_width=0"),
        ({"context_tokens": 77, "context_width": 64, "tokens": 0}, "tokens=0"),
        ({"modulation": 64, "modulation_vectors": 0}, "modulation_vectors=0"),
        ({"parallel": 1}, "parallel=1"),
        ({"depthwise": -1}, "depthwise=-1"),
    ],
)
def test_a_malformed_transformer_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ScaleModelError, match=named):
        sm.Transformer(layers=1, **{**LAYER, **changes})


def test_a_model_without_patches_has_no_other_size() -> None:
    with pytest.raises(ScaleModelError, match="no patches or maps"):
        sm.compose("llama3_8b").with_tokens(64)
    with pytest.raises(ScaleModelError, match="tokens=0"):
        sm.compose("flux_1_dev").with_tokens(0)
