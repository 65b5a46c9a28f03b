"""Images and videos on request: what `serve` says of a generator."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError

IMAGE = sm.Generation(height=1024, width=1024)
GENERATORS = sorted(
    name for name in catalog.names("composed") if sm.compose(name).generation is not None
)


def made(model: str = "flux_1_dev", task: sm.Generation = IMAGE, **more: object):
    more.setdefault("concurrency", 1)
    return sm.serve(model, "dgx_h100", task, replicas=1, **more)


def test_every_generator_of_the_catalogue_answers() -> None:
    assert {"flux_1_dev", "sdxl_unet", "wan_2_1_t2v_14b", "hunyuan_video"} <= set(GENERATORS)
    for name in GENERATORS:
        video = sm.compose(name).generation.grid.frames > 1
        task = sm.Generation(height=480, width=832, frames=17 if video else 1, steps=4)
        plan = made(name, task)
        assert plan.verdict == "ok", name
        assert plan.samples_per_s == pytest.approx(1 / plan.latency_s)


def test_latency_is_the_sum_of_its_parts() -> None:
    plan = made(task=IMAGE.replace(steps=28))
    parts = plan.text_encoders_s + 28 * plan.denoising_step_s + plan.decoder_s
    assert plan.latency_s == pytest.approx(parts, rel=1e-9)
    assert min(plan.text_encoders_s, plan.decoder_s) > 0


def test_a_step_computes_what_the_parameters_ask_for() -> None:
    """FLUX at 1,024 x 1,024 pixels: 4,608 tokens through 11.9 B parameters, attention beside."""
    plan = made()
    flop = 2 * 4608 * 11.2e9 + 57 * 4 * 4608**2 * 3072
    floor_s = flop / 989e12
    assert floor_s < plan.denoising_step_s < 3 * floor_s


def test_steps_guidance_and_pixels_take_time() -> None:
    few, many = (made(task=IMAGE.replace(steps=steps)) for steps in (10, 20))
    assert many.latency_s - few.latency_s == pytest.approx(10 * few.denoising_step_s, rel=1e-6)
    plain, guided = (made(task=IMAGE.replace(guidance=flag)) for flag in (False, True))
    assert 1.5 < guided.denoising_step_s / plain.denoising_step_s < 2.05
    sides = [made(task=IMAGE.replace(height=s, width=s)).latency_s for s in (512, 1024, 2048)]
    assert all(small < large for small, large in pairwise(sides))


def test_a_model_has_the_guidance_and_steps_of_its_own_pipeline() -> None:
    assert made().steps == 28
    own = made("sdxl_unet")
    assert own.to_dict() == made("sdxl_unet", IMAGE.replace(guidance=True, steps=50)).to_dict()


def test_frames_of_a_video_share_places() -> None:
    videos = [
        made("wan_2_1_t2v_1_3b", sm.Generation(height=480, width=832, frames=frames, steps=4))
        for frames in (1, 4, 5, 81)
    ]
    one, four, five, many = (video.denoising_step_s for video in videos)
    assert one == four < five < many
    with pytest.raises(ScaleModelError, match="frames=5: must be 1: flux_1_dev makes images"):
        made(task=IMAGE.replace(frames=5))


def test_ranks_that_share_a_sample_shorten_it_and_ranks_beside_make_more() -> None:
    alone = made()
    shared = made(layout=sm.ServingLayout(cp=8))
    assert alone.latency_s / 8 < shared.latency_s < alone.latency_s / 3
    tensor = made(layout=sm.ServingLayout(tp=2))
    assert alone.latency_s / 2 < tensor.latency_s < alone.latency_s
    halves = made("sdxl_unet", layout=sm.ServingLayout(dp=2))
    assert halves.latency_s < made("sdxl_unet").latency_s
    copies = sm.serve("flux_1_dev", "dgx_h100", IMAGE, concurrency=8)
    assert copies.replicas == 8
    assert copies.samples_per_s == pytest.approx(8 * alone.samples_per_s)


def test_a_load_waits_and_too_much_of_it_never_settles() -> None:
    most = sm.serve("sdxl_unet", "dgx_h100", IMAGE, replicas=1).samples_per_s
    calm, busy = (
        sm.serve("sdxl_unet", "dgx_h100", IMAGE, replicas=1, requests_per_s=share * most)
        for share in (0.2, 0.8)
    )
    assert made("sdxl_unet").latency_s < calm.latency_s < busy.latency_s
    flooded = sm.serve("sdxl_unet", "dgx_h100", IMAGE, replicas=1, requests_per_s=2 * most)
    assert flooded.saturated
    assert flooded.latency_s is None


def test_more_at_once_pays_until_it_does_not() -> None:
    plan = sm.serve("sdxl_unet", "dgx_h100", IMAGE, replicas=1)
    assert plan.most_batch > 1
    assert plan.samples_per_s > made("sdxl_unet").samples_per_s


def test_text_encoders_take_memory() -> None:
    plan = made()
    assert plan.memory_text_encoders_bytes == pytest.approx(2 * (4.76e9 + 0.123e9), rel=0.02)
    assert plan.memory_bytes > 2 * 11.9e9 + plan.memory_text_encoders_bytes


def test_what_does_not_fit_is_a_verdict() -> None:
    task = sm.Generation(height=1024, width=1024)
    small = sm.serve("flux_1_dev", {"accelerator": "l4"}, task, concurrency=1, replicas=1)
    assert small.verdict == "out_of_memory"
    assert small.latency_s is None
    assert made(layout=sm.ServingLayout(cp=16)).verdict == "illegal:mesh"


def test_estimate_answers_and_answers_are_kept() -> None:
    plan = sm.estimate("flux_1_dev", "dgx_h100", IMAGE, sm.ServingLayout(cp=8))
    assert plan.fits
    again = pickle.loads(pickle.dumps(plan))
    assert again.to_dict() == plan.to_dict()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"height": 0, "width": 1}, "height=0: must be a whole number from 1"),
        ({"height": 64, "width": 64, "steps": 0}, "steps=0: must be a whole number from 1"),
        ({"height": 64, "width": 64, "guidance": 3}, "guidance=3: must be True, False or None"),
        ({"height": 64, "width": 64, "precision": "int3"}, "precision='int3': must be one of"),
    ],
)
def test_a_task_that_cannot_be_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ScaleModelError, match=says):
        sm.Generation(**given)


def test_a_model_that_generates_nothing_is_told_so() -> None:
    with pytest.raises(ScaleModelError, match=r"vit_l.*no table \[generation\]"):
        made("vit_l")
    with pytest.raises(ScaleModelError, match="concurrency=3: must be a multiple of the 2"):
        sm.serve("flux_1_dev", "dgx_h100", IMAGE, concurrency=3, replicas=2)


def test_an_entry_says_what_is_wrong_with_its_table() -> None:
    table = {"name": "mine", "group": [{"kind": "patch_embedding", "tokens": 64}]}
    for generation, says in (
        ({"pixels": 16, "steps": 1}, "generation.passes: missing"),
        ({"pixels": 16, "steps": 1, "passes": 3}, "generation.passes=3: must be a whole number"),
        ({"pixels": 0, "steps": 1, "passes": 1}, "generation.pixels=0"),
        ({"pixel": 16}, "generation.pixel: unknown key"),
    ):
        with pytest.raises(ScaleModelError, match=says):
            sm.compose({**table, "generation": generation})
