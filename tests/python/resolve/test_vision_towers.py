"""Vision towers: read from configurations, kept, and priced with the decoder they stand before."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import vision_from_config
from scalemodel.search.ranking_file import question_document, question_from

MODELS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "configs_2026.json").read_text("utf-8")
)
SEEING = [facts for facts in MODELS if "vision_config" in facts["config"]]
CLUSTER = sm.cluster("dgx_h100")
#: Tokens of an image of 1,024 x 1,024 pixels, as the processor of each family makes them.
TOKENS = {
    "qwen3_vl": 32 * 32,
    "qwen3_5_moe": 32 * 32,
    "qwen2_5_vl": 37 * 37,
    "gemma3": 256,
    "gemma4": 280,
    "mistral3": 37 * 37,
}


def config_of(model: str) -> dict[str, Any]:
    return copy.deepcopy(next(m["config"] for m in MODELS if m["model"] == model))


def asked(images: int, **more: Any) -> sm.Training:
    return sm.Training(
        global_batch=64,
        sequence=8192,
        images=images,
        image_height=1024,
        image_width=1024,
        **more,
    )


@pytest.mark.parametrize("facts", SEEING, ids=[m["model"] for m in SEEING])
def test_every_key_of_a_tower_is_understood(facts: dict[str, Any]) -> None:
    vision, unknown = vision_from_config(facts["config"])
    assert vision is not None
    assert unknown == []
    model = sm.model(facts["config"])
    assert model.image_tokens(1024, 1024) == TOKENS[facts["config"]["model_type"]]


def test_layers_of_qwen2_5_that_see_the_whole_image() -> None:
    vision, _ = vision_from_config(config_of("Qwen/Qwen2.5-VL-3B-Instruct"))
    assert vision is not None
    assert (vision["window"], vision["full_layers"], vision["layers"]) == (64, 4, 32)


def test_minimax_m3_has_an_mlp_before_and_one_behind_the_merging_of_patches() -> None:
    config = {
        "model_type": "minimax_m3_vl",
        "projector_hidden_size": 6144,
        "multimodal_projector_bias": True,
        "vision_config": {
            **{"hidden_size": 1280, "num_attention_heads": 16, "num_hidden_layers": 32},
            **{"intermediate_size": 5120, "patch_size": 14, "num_channels": 3},
        },
        "img_token_compression_config": {
            **{"spatial_merge_size": 2, "temporal_patch_size": 2},
            "image_token_compression_method": "patch_merge",
        },
    }
    read, unknown = vision_from_config(config)
    assert not unknown
    assert read is not None
    decoder = sm.model("MiniMax-M3").shape
    core = _core.LayeredModel(decoder, _core.VisionShape(**read))
    # As the class of transformers counts it.
    assert core.vision_parameters == pytest.approx(0.8656e9, rel=1e-4)
    assert core.image_tokens(1008, 1008) == 36 * 36


def test_a_new_key_of_a_tower_is_named() -> None:
    config = config_of("Qwen/Qwen3-VL-4B-Instruct")
    config["vision_config"]["router_experts"] = 4
    assert vision_from_config(config)[1] == ["vision_config.router_experts"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_size", -1, r"vision_config\.hidden_size = -1; legal is a whole number"),
        ("depth", "many", r"vision_config\.depth = 'many'; legal is a whole number"),
        ("num_heads", None, r"`vision_config\.num_heads` is missing"),
        ("num_heads", 4096, r"vision\.heads=4096: must be at most hidden=1024"),
    ],
)
def test_a_value_no_tower_has_is_named(key: str, value: object, says: str) -> None:
    config = config_of("Qwen/Qwen3-VL-4B-Instruct")
    config["vision_config"][key] = value
    with pytest.raises(ScaleModelError, match=says):
        sm.model(config)


def test_images_take_time_and_memory_and_a_frozen_tower_less() -> None:
    model = sm.model(config_of("Qwen/Qwen3-VL-4B-Instruct"))
    strategy = sm.Strategy(tp=2)
    text, seen, frozen = (
        sm.estimate(model, CLUSTER, task, strategy)
        for task in (asked(0), asked(2), asked(2, frozen_vision=True))
    )
    assert text.step_time_s < frozen.step_time_s < seen.step_time_s
    assert text.memory_bytes < frozen.memory_bytes < seen.memory_bytes
    assert seen.timeline().step_time_s == pytest.approx(seen.step_time_s, rel=0.01)


def test_adapters_leave_the_tower_frozen() -> None:
    model = sm.model("ministral_3_8b")
    for frozen in (False, True):
        task = sm.FineTuning(
            global_batch=64,
            sequence=8192,
            method="lora",
            images=2,
            image_height=1024,
            image_width=1024,
            frozen_vision=frozen,
        )
        answers = sm.estimate(model, CLUSTER, task, sm.Strategy(tp=2)).step_time_s
        assert answers == pytest.approx(
            sm.estimate(
                model, CLUSTER, task.replace(frozen_vision=True), sm.Strategy(tp=2)
            ).step_time_s
        )


def test_the_stage_of_the_tower_delays_the_others() -> None:
    """Beyond its share of the step: the tower stands on one of the stages."""
    model = sm.model("ministral_3_3b")
    steps = {
        pp: [
            sm.estimate(model, CLUSTER, asked(images), sm.Strategy(pp=pp)).step_time_s
            for images in (0, 4)
        ]
        for pp in (1, 4)
    }
    added = {pp: seen / text for pp, (text, seen) in steps.items()}
    assert added[4] > added[1] > 1


@pytest.mark.parametrize(
    ("model", "task", "says"),
    [
        ("llama3_8b", asked(1), "images=1: must be 0: the model has no vision tower"),
        ("gemma3_12b", asked(33), "images=33: must be at most 32 of 256 tokens each"),
        (
            "ministral_3_8b",
            sm.Training(global_batch=8, sequence=8192, images=1),
            "image_height=0: must be the pixels of an image",
        ),
    ],
)
def test_images_that_cannot_be_read_are_refused(model: str, task: sm.Training, says: str) -> None:
    with pytest.raises(ScaleModelError, match=says):
        sm.estimate(model, CLUSTER, task, sm.Strategy())


def test_a_model_without_a_tower_has_no_tokens_of_images() -> None:
    with pytest.raises(ScaleModelError, match=r"'llama3_8b': has no vision tower"):
        sm.model("llama3_8b").image_tokens(1024, 1024)


def test_a_search_keeps_the_images_of_its_question() -> None:
    found = sm.search("ministral_3_3b", CLUSTER, asked(2), sm.Space(tp=[1, 2], pp=[1, 2]))
    question = found.question
    assert question_from(question_document(question)) == question
    assert pickle.loads(pickle.dumps(found[0].model)) == found[0].model
    assert found[0].model.vision is not None


def test_a_script_that_starts_the_decoder_alone_says_so() -> None:
    est = sm.estimate("ministral_3_8b", CLUSTER, asked(2), sm.Strategy(tp=2, pp=2))
    notes = sm.launch(est, "megatron").notes
    assert any(note.startswith("not expressed: images=2: with images=0") for note in notes)


def test_engines_hold_the_tower() -> None:
    """Its weights are in 16 bits, and shared out where the degree divides its heads."""
    model = sm.model("ministral_3_8b")
    blind = sm.Model(name=model.name, shape=model.shape)
    task = sm.Inference(input_tokens=1000, output_tokens=100)
    held = [
        sm.serve(
            kind, "dgx_h100", task, sm.ServingLayout(tp=2), requests_per_s=1
        ).memory_weights_bytes
        for kind in (blind, model)
    ]
    tower = model.parameters - blind.parameters
    assert held[1] - held[0] == pytest.approx(2 * tower / 2)
