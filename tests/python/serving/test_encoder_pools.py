"""Pools of encoders beside the instances that read their images; prompts of known content."""

from __future__ import annotations

from itertools import pairwise

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

SEEN = sm.Inference(
    input_tokens=3000, output_tokens=100, images=2, image_height=896, image_width=896
)
MODEL = "gemma3_12b"


def pool(rate: float, **more: object):
    return sm.serve_encoders(MODEL, "dgx_h100", SEEN, requests_per_s=rate, **more)


def test_a_pool_grows_with_its_load() -> None:
    pools = [pool(rate) for rate in (1, 20, 100, 200)]
    assert [each.verdict for each in pools] == ["ok"] * 4
    assert all(few.replicas <= more.replicas for few, more in pairwise(pools))
    assert pools[0].replicas < pools[-1].replicas
    for each, rate in zip(pools, (1, 20, 100, 200), strict=True):
        assert not each.saturated
        assert each.images_per_s == pytest.approx(2 * rate)
        assert each.latency_s > each.sending_s


def test_one_encoder_less_does_not_settle_or_holds_no_limit() -> None:
    found = pool(200)
    assert pool(200, replicas=found.replicas - 1).saturated
    limit = 0.6 * found.latency_s
    tight = pool(200, latency_s=limit)
    assert tight.latency_s <= limit < pool(200, replicas=tight.replicas - 1).latency_s


def test_instances_beside_a_pool_encode_nothing() -> None:
    whole = sm.serve(MODEL, "dgx_h100", SEEN, requests_per_s=2)
    spared = sm.serve(MODEL, "dgx_h100", SEEN.replace(encoder_hit_fraction=1), requests_per_s=2)
    assert spared.ttft_s < whole.ttft_s


def test_what_is_sent_is_the_tokens_of_the_decoder() -> None:
    shape = sm.model(MODEL).shape
    assert pool(1).encoding_bytes == 2 * 256 * shape.hidden


def test_too_few_accelerators_and_too_short_a_limit_are_named() -> None:
    assert pool(1e6).verdict == "illegal:mesh"
    with pytest.raises(ScaleModelError, match="latency_s=1e-06: an image alone takes"):
        pool(1, latency_s=1e-6)
    with pytest.raises(ScaleModelError, match="must be an Inference with images"):
        sm.serve_encoders(MODEL, "dgx_h100", SEEN.replace(images=0), requests_per_s=1)


#: Without windows, whose blocks a stream of known content cannot count.
FULL = "mistral_small_3_2_24b"
LONG = SEEN.replace(input_tokens=5000)


def asked(count: int, **more: object) -> list[sm.PromptRequest]:
    return [
        sm.PromptRequest(5000, 50, block_names=[f"{i}.{b}" for b in range(10)], arrival=i, **more)
        for i in range(count)
    ]


def test_prompts_of_known_content_have_images() -> None:
    plan = sm.serve(FULL, "dgx_h100", LONG, requests_per_s=1, engine="vllm", replicas=1)
    means = {
        images: plan.simulate(asked(12, images=images), name_tokens=512).summary()["ttft_mean_s"]
        for images in (0, 1, 2, 4, None)
    }
    assert means[0] < means[1] < means[2] < means[4]
    assert means[None] == means[2]


def test_images_in_shared_blocks_are_encoded_once() -> None:
    plan = sm.serve(FULL, "dgx_h100", LONG, requests_per_s=1, engine="vllm", replicas=1)
    same = [
        sm.PromptRequest(5000, 50, block_names=[*range(10)], arrival=i, images=2) for i in range(12)
    ]
    shared = plan.simulate(same, name_tokens=512).summary()
    apart = plan.simulate(asked(12, images=2), name_tokens=512).summary()
    assert shared["ttft_mean_s"] < 0.6 * apart["ttft_mean_s"]


def test_a_plan_for_text_has_no_prompts_with_images() -> None:
    plan = sm.serve(FULL, "dgx_h100", LONG.replace(images=0), engine="vllm", replicas=1)
    with pytest.raises(ScaleModelError, match="images=1: must be 0: the plan's task has no images"):
        plan.simulate(asked(2, images=1), name_tokens=512)
    with pytest.raises(ScaleModelError, match="images=-1: must be a number from 0"):
        sm.PromptRequest(10, 1, images=-1)


def test_images_of_a_prompt_must_fit_into_it() -> None:
    plan = sm.serve(FULL, "dgx_h100", LONG, requests_per_s=1, engine="vllm", replicas=1)
    with pytest.raises(ScaleModelError, match="images=5: of 1024 tokens each must fit into its"):
        plan.simulate(asked(2, images=5), name_tokens=512)
