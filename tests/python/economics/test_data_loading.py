"""Data loading: samples against what storage, network, cores and links pass."""

from __future__ import annotations

import math
from typing import Any

import pytest

import scalemodel as sm


@pytest.fixture(scope="module")
def est() -> sm.Estimate:
    task = sm.Training(global_batch=256, sequence=8192)
    cluster = sm.cluster("dgx_h100", nodes=4)
    return sm.estimate("llama3_8b", cluster, task, sm.Strategy(sharding="zero3"))


def test_text_is_read_in_the_bytes_of_its_vocabulary(est: sm.Estimate) -> None:
    found = sm.data_loading(est)
    assert (found.verdict, found.reason, found.exposed_s) == ("ok", "", 0)
    assert found.sample_bytes == 8192 * 4  # 128,256 tokens do not fit into 2 bytes
    small = sm.estimate("llama2_7b", est.cluster, est.task, sm.Strategy(sharding="zero3"))
    assert sm.data_loading(small).sample_bytes == 8192 * 2
    assert "decode" not in found.rates_per_s
    assert found.read_bytes_per_s * 4 == pytest.approx(found.needed_per_s * found.sample_bytes)


def test_images_per_core_are_those_of_the_benchmark(est: sm.Estimate) -> None:
    # 1,596 images per second of ImageNet's validation set by 8 cores.
    mean = 6_744_924_160 / 50_000
    one = sm.data_loading(est, images=1, image_bytes=mean, cores=8)
    assert one.rates_per_s["decode"] == pytest.approx(4 * 1596, rel=0.01)
    alone = sm.data_loading(est, images=1, image_bytes=mean, cores=1, decode="decoder")
    assert alone.rates_per_s["decode"] == pytest.approx(4 * 621, rel=0.01)


def test_video_frames_per_core_are_those_of_the_benchmark(est: sm.Estimate) -> None:
    found = sm.data_loading(est, frames=100, frame_height=270, frame_width=480, cores=1)
    assert 4 / found.rates_per_s["decode"] == pytest.approx(53.1e-3, rel=0.01)


def test_the_slowest_part_makes_steps_wait(est: sm.Estimate) -> None:
    for asked, part in (
        ({"images": 1000, "read": 1e6}, "storage"),
        ({"images": 1000, "shared_bytes_per_s": 1e6}, "storage"),
        ({"images": 1000, "cores": 1}, "decode"),
    ):
        found = sm.data_loading(est, **asked)
        assert (found.verdict, found.bound) == (part, part)
        assert found.available_per_s == min(found.rates_per_s.values())
        waits = est.task.global_batch / found.available_per_s - est.step_time_s
        assert found.exposed_s == pytest.approx(waits)
        assert found.step_time_s == pytest.approx(est.step_time_s + waits)


def test_the_cores_needed_keep_up_and_fewer_do_not(est: sm.Estimate) -> None:
    needed = sm.data_loading(est, images=1000).cores_needed
    assert sm.data_loading(est, images=1000, cores=1.001 * needed).verdict == "ok"
    assert sm.data_loading(est, images=1000, cores=0.9 * needed).verdict == "decode"


def test_without_prefetch_the_whole_loading_is_exposed(est: sm.Estimate) -> None:
    ahead, late = (sm.data_loading(est, images=10, prefetch=n) for n in (2, 0))
    assert ahead.exposed_s == 0 < late.exposed_s
    assert late.verdict == "no_prefetch"
    assert late.exposed_s == pytest.approx(est.task.global_batch / late.available_per_s)
    full = sm.data_loading(est, frames=3000, prefetch=1000)
    assert full.verdict == "host_memory"
    assert "prefetch=1000" in full.reason


def test_ranks_of_one_replica_read_for_all_of_it() -> None:
    task = sm.Training(global_batch=64, sequence=8192)
    cluster = sm.cluster("dgx_h100", nodes=8)
    est = sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=8, pp=4))
    assert sm.data_loading(est).nodes == 2


def test_an_answer_is_plain_numbers(est: sm.Estimate) -> None:
    record = sm.data_loading(est, images=2).to_dict()
    assert all(math.isfinite(rate) for rate in record["rates_per_s"].values())
    assert "needed" in str(sm.data_loading(est))


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"read": "host_memory"}, "read='host_memory'"),
        ({"read": "tape"}, "read='tape'"),
        ({"decode": "gpu"}, "decode='gpu'"),
        ({"cores": 0}, "cores=0"),
        ({"frames": -1}, "frames=-1"),
    ],
)
def test_bad_questions_name_the_argument(
    est: sm.Estimate, asked: dict[str, Any], named: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=named):
        sm.data_loading(est, **asked)
