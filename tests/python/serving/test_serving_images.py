"""Images of prompts: the vision tower in the first token, in memory and in the stream."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.serving import request_stream

TEXT = sm.Inference(input_tokens=4000, output_tokens=100)
SEEN = TEXT.replace(images=1, image_height=896, image_width=896)
MODELS = ("gemma3_12b", "mistral_small_3_2_24b", "qwen3_5_35b_a3b")


def served(model: str, task: sm.Inference, *, tp: int = 2, load: float = 0.5, **layout: object):
    plan = sm.ServingLayout(tp=tp, **layout)
    return sm.serve(model, "dgx_h100", task, plan, replicas=1, requests_per_s=load)


@pytest.mark.parametrize("model", MODELS)
def test_no_image_is_the_answer_about_text(model):
    sized = TEXT.replace(image_height=512, image_width=512, encoder_hit_fraction=0.5)
    assert served(model, sized).to_dict() == served(model, TEXT).to_dict()


@pytest.mark.parametrize("model", MODELS)
def test_the_first_token_takes_longer_with_every_image(model):
    plans = [served(model, SEEN.replace(images=count)) for count in (0, 0.5, 1, 2, 3)]
    assert all(few.ttft_s < more.ttft_s for few, more in pairwise(plans))
    assert all(few.memory_kv_cache_bytes >= more.memory_kv_cache_bytes
               for few, more in pairwise(plans))  # fmt: skip


def test_larger_images_take_longer_where_the_tower_reads_them_in_their_size():
    sides = (448, 896, 1344)
    plans = [
        served("qwen3_5_35b_a3b", SEEN.replace(image_height=side, image_width=side))
        for side in sides
    ]
    tokens = [sm.model("qwen3_5_35b_a3b").image_tokens(side, side) for side in sides]
    assert tokens == sorted(tokens)
    assert all(small.ttft_s < large.ttft_s for small, large in pairwise(plans))
    fixed = [served("gemma3_12b", SEEN.replace(image_height=side)) for side in sides]
    assert len({plan.ttft_s for plan in fixed}) == 1


def test_encodings_that_are_held_cost_no_time():
    text, seen = served("gemma3_12b", TEXT), served("gemma3_12b", SEEN)
    half = served("gemma3_12b", SEEN.replace(encoder_hit_fraction=0.5))
    held = served("gemma3_12b", SEEN.replace(encoder_hit_fraction=1))
    assert text.ttft_s < half.ttft_s < seen.ttft_s
    assert held.ttft_s == pytest.approx(text.ttft_s, rel=1e-12)
    assert held.memory_activations_bytes > text.memory_activations_bytes


def test_a_cached_prefix_spares_its_share_of_the_images():
    # What the images add to the time of a prompt that is half cached is half of it.
    whole, half = SEEN.replace(images=4), SEEN.replace(images=4, prefix_hit_fraction=0.5)
    added = []
    for task in (whole, half):
        seen, text = served("gemma3_12b", task), served("gemma3_12b", task.replace(images=0))
        added.append(seen.state.prefill_s - text.state.prefill_s)
    assert added[1] == pytest.approx(0.5 * added[0], rel=0.1)


def test_ranks_that_encode_images_of_their_own():
    many = SEEN.replace(images=8)
    model = "gemma3_12b"
    alone = [served(model, many, tp=1, encoder_data_parallel=own) for own in (False, True)]
    assert alone[0].ttft_s == alone[1].ttft_s
    shard, own = (served(model, many, tp=4, encoder_data_parallel=own) for own in (False, True))
    assert own.memory_weights_bytes > shard.memory_weights_bytes
    tower = 2 * sm.model(model).core.vision_parameters
    assert own.memory_weights_bytes - shard.memory_weights_bytes == pytest.approx(0.75 * tower)
    # No all-reduce within the layers: many small images are encoded sooner.
    step = {plan: plan.instance.step(prompts=4, prompt_tokens=8000, prompt_keys=2000, images=8)
            for plan in (shard, own)}  # fmt: skip
    assert step[own].encoder_s < step[shard].encoder_s


def test_a_plan_is_found_for_images():
    found = [
        sm.plan_serving("gemma3_12b", "dgx_h100", task, requests_per_s=20, ttft_s=1, tpot_s=0.05)
        for task in (SEEN.replace(images=0), SEEN.replace(images=8))
    ]
    text, seen = (plans[0] for plans in found)
    assert text.accelerators <= seen.accelerators
    assert seen.ttft_s <= 1


def test_a_step_sums_up_with_its_images():
    instance = served("mistral_small_3_2_24b", SEEN).instance
    step = instance.step(prompts=2, prompt_tokens=4000, prompt_keys=2000, images=2)
    causes = [value for name, value in step.to_dict().items() if name != "step_time_s"]
    assert step.encoder_s > 0
    assert sum(causes) == pytest.approx(step.step_time_s, rel=1e-9)
    assert instance.step(prompts=2, prompt_tokens=4000, prompt_keys=2000).encoder_s == 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("chunk", [None, 1024])
def test_the_closed_form_agrees_with_the_stream(model, chunk):
    rate = 0.5
    plan = sm.serve(
        model, "dgx_h100", SEEN.replace(images=2), sm.ServingLayout(tp=4), replicas=1,
        requests_per_s=rate, max_batched_tokens=chunk,
    )  # fmt: skip
    stream = request_stream(plan.task, requests=2000, requests_per_s=rate, seed=1)
    found = plan.simulate(stream)
    first = float(np.mean(found.first_token_s - stream.arrival_s))
    assert first == pytest.approx(plan.ttft_s, rel=0.05)


def test_what_cannot_be_asked_is_told():
    with pytest.raises(sm.ScaleModelError, match="images=1: must be 0: the model has no vision"):
        sm.serve("llama3_8b", "dgx_h100", SEEN)
    with pytest.raises(sm.ScaleModelError, match="image_height=0: must be the pixels"):
        served("qwen3_5_35b_a3b", TEXT.replace(images=1))
    with pytest.raises(sm.ScaleModelError, match="images=20: of 256 tokens each must fit"):
        served("gemma3_12b", SEEN.replace(images=20))
    asked = [sm.PromptRequest([*range(256)], 10)]
    with pytest.raises(sm.ScaleModelError, match="images=1: of 1024 tokens each must fit"):
        served("mistral_small_3_2_24b", SEEN).simulate(asked)


def test_commands_carry_the_limit_of_images():
    task = SEEN.replace(images=1.5)
    plan = served("qwen3_5_35b_a3b", task, encoder_data_parallel=True)
    assert """--limit-mm-per-prompt '{"image": 2}' --mm-encoder-tp-mode data""" in plan.launch()
    layout = sm.ServingLayout(tp=2, encoder_data_parallel=True)
    plan = sm.serve("qwen3_5_35b_a3b", "dgx_h100", task, layout, engine="sglang", replicas=1)
    assert """--limit-mm-data-per-request '{"image": 2}' --mm-enable-dp""" in plan.launch()
    assert "--limit-mm" not in served("qwen3_5_35b_a3b", TEXT).launch()
