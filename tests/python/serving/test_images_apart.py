"""Layers that attend to an image alone (Llama 3.2 Vision): its tokens are in no prompt."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

NAME = "llama3_2_11b_vision"
POSITIONS = 4 * 1601  # four tiles of 40 x 40 patches and a class each
BLOCK = 16
TASK = sm.Inference(input_tokens=512, output_tokens=128)
TRAIN = sm.Training(global_batch=16, sequence=4096, precision="bf16")


def served(task: sm.Inference = TASK, **more: Any) -> sm.Serving:
    return sm.serve(NAME, "dgx_h100", task, replicas=1, **more)


def test_the_cache_holds_an_image_once_in_the_layers_that_attend_to_it() -> None:
    plan = served()
    assert plan.task.source_tokens == POSITIONS
    assert plan.instance is not None
    capacity = plan.instance.capacity(TASK.input_tokens, TASK.output_tokens)
    values = 2 * 2 * 8 * 128  # keys and values of eight heads, in 16 bits
    image = 8 * values * BLOCK * math.ceil(POSITIONS / BLOCK)
    own = 32 * values * BLOCK * math.ceil((TASK.input_tokens + TASK.output_tokens) / BLOCK)
    assert capacity.cached_sequences == math.floor(
        capacity.blocks * capacity.block_bytes / (image + own) + 1e-9
    )


def test_an_image_is_the_source_of_a_request_however_it_is_said() -> None:
    plans = [served(), served(TASK.replace(images=1)), served(TASK.replace(source_tokens=6404))]
    assert plans[0].to_dict() == plans[1].to_dict() == plans[2].to_dict()
    with pytest.raises(ScaleModelError, match="images=2"):
        served(TASK.replace(images=2))
    with pytest.raises(ScaleModelError, match="source_tokens=100: must be 6404"):
        served(TASK.replace(source_tokens=100))


def test_a_first_token_waits_for_the_tower_and_later_ones_do_not() -> None:
    plan, text = served(concurrency=4), sm.serve("llama3_1_8b", "dgx_h100", TASK, concurrency=4)
    assert plan.ttft_s > text.ttft_s
    # Eight layers more of forty, and keys of the image in those.
    assert 1.1 < plan.tpot_s / text.tpot_s < 1.6
    assert plan.instance is not None
    step = plan.instance.step(prompts=1, prompt_tokens=64, prompt_keys=64, images=1)
    assert step.encoder_s > 0


def _flop(estimate: sm.Estimate) -> float:
    """Of a step, as MFU counts it."""
    peak = 989.4e12
    return float(estimate.mfu_fraction * estimate.step_time_s * 8 * peak)


def test_a_step_trains_the_tower_on_an_image_of_every_sequence() -> None:
    found = sm.estimate(NAME, "dgx_h100", TRAIN, sm.Strategy(tp=8))
    named = sm.estimate(NAME, "dgx_h100", TRAIN.replace(images=1), sm.Strategy(tp=8))
    assert found.row() == named.row()
    text = sm.estimate("llama3_1_8b", "dgx_h100", TRAIN, sm.Strategy(tp=8))
    # Of a sequence, by hand: the tower and its projector; eight more layers of the decoder, the
    # keys and values of the image that these make; attention of both.
    tower = 2 * POSITIONS * (40 * 12 * 1280**2 + 6 * 1280 * 4096 + 3 * 14**2 * 1280)
    tower += 40 * 4 * POSITIONS**2 * 1280
    own = 2 * 4096**2 + 3 * 4096 * 14336
    layers = 8 * 2 * (TRAIN.sequence * own + POSITIONS * 2 * 1024 * 4096)
    layers += 8 * 4 * TRAIN.sequence * POSITIONS * 4096
    more = 3 * TRAIN.global_batch * (tower + layers)
    assert _flop(found) - _flop(text) == pytest.approx(more, rel=0.01)
    assert found.memory_weights_bytes > text.memory_weights_bytes


def test_longer_answers_cost_more_and_hold_fewer_requests() -> None:
    plans = [served(TASK.replace(output_tokens=tokens)) for tokens in (64, 256, 1024)]
    for shorter, longer in pairwise(plans):
        assert shorter.max_concurrency >= longer.max_concurrency


def test_where_no_image_comes_from_the_answer_says_so() -> None:
    shape = {"layers": 4, "hidden": 512, "vocab": 1000, "heads": 8, "ffn": 2048, "mixers": "FFFX"}
    model = sm.model({"name": "toy", "architecture": shape})
    with pytest.raises(ScaleModelError, match="must have an encoder or a vision tower"):
        sm.estimate(model, "dgx_h100", TRAIN, sm.Strategy())
    with pytest.raises(ScaleModelError, match="must have an encoder or a vision tower"):
        sm.serve(model, "dgx_h100", TASK)


def test_layers_that_attend_to_an_image_are_no_chain_of_groups_and_no_split() -> None:
    with pytest.raises(ScaleModelError, match="no chain of layer groups"):
        sm.compose(sm.model(NAME))
    with pytest.raises(ScaleModelError, match="serve it whole"):
        sm.serve_split(NAME, "dgx_h100", TASK, requests_per_s=1.0)


def test_engines_that_have_no_class_of_it_are_not_started() -> None:
    with pytest.raises(ScaleModelError, match="no command is known"):
        served(engine="vllm_v1").launch()


def test_windows_of_sound_are_what_an_engine_is_told_of() -> None:
    task = sm.Inference(input_tokens=900, output_tokens=100, images=2)
    command = sm.serve("voxtral_mini_3b", "dgx_h100", task, replicas=1, concurrency=8).launch()
    assert """--limit-mm-per-prompt '{"audio": 2}'""" in command


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("jetmoe_8b", "of the jetmoe family"),
        ("xlstm_7b", "of the xlstm family"),
        ("recurrentgemma_2b", "with rg_lru mixers"),
    ],
)
def test_kinds_that_no_engine_has_a_model_of_are_not_started(model: str, kind: str) -> None:
    plan = sm.serve(model, "dgx_h100", TASK, replicas=1, engine="vllm_v1")
    with pytest.raises(ScaleModelError, match=f"starts no model {kind}.*not known to lack"):
        plan.launch()
