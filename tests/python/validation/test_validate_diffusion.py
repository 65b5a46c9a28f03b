"""Published steps and generations of image and video models, beside those of the engine."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.validation import scores_of

STEP = {
    "row_id": "1",
    "task": "train",
    "kind": "image_dit",
    "model": "FLUX.1-schnell (11.9 B)",
    "source": "MLCommons training",
    "gpu": "B200-SXM",
    "n_gpus": "32",
    "precision": "mxfp8",
    "global_batch": "1024",
    "micro_batch": "32",
    "tokens_per_sample": "512",
    "resolution": "256x256",
    "sharding": "DDP + sharded optimizer",
}
VIDEO = {
    "row_id": "2",
    "task": "serve",
    "kind": "video_dit",
    "model": "HunyuanVideo (13 B)",
    "framework": "xDiT",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "4",
    "precision": "bf16",
    "global_batch": "1",
    "resolution": "1280x720",
    "frames": "129",
    "denoise_steps": "50",
    "guidance": "embedded (one pass per step)",
    "ulysses": "4",
    "ring": "1",
    "latency_s": "514",
}
RATE = {
    "row_id": "3",
    "task": "serve",
    "kind": "unet",
    "model": "SDXL 1.0 base",
    "framework": "TensorRT",
    "gpu": "L40S",
    "n_gpus": "8",
    "precision": "fp8",
    "resolution": "1024x1024",
    "denoise_steps": "20",
    "guidance": "pair of passes",
}


def asked(tmp_path: Path, *rows: dict[str, str]) -> pd.DataFrame:
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).fillna("").to_csv(path, index=False)
    return sm.validate("composed", path)


def test_steps_latencies_and_rates_are_predicted(tmp_path: Path) -> None:
    found = asked(tmp_path, STEP, VIDEO, RATE)
    assert list(found.skip_reason) == ["", "", ""]
    assert found.predicted_step_time_s.notna().tolist() == [True, False, False]
    assert found.predicted_latency_s.notna().tolist() == [False, True, True]
    assert (found.predicted_samples_per_s > 0).all()
    scores = scores_of("composed", found)
    assert "coverage: 3 of 3" in scores.text()


def test_what_was_measured_changes_nothing(tmp_path: Path) -> None:
    found = asked(tmp_path, VIDEO, {**VIDEO, "latency_s": "9", "memory_MB": "7"})
    assert found.predicted_latency_s.nunique() == 1


def test_samples_steps_and_ranks_weigh_as_they_should(tmp_path: Path) -> None:
    rows = [
        VIDEO,
        {**VIDEO, "denoise_steps": "100"},
        {**VIDEO, "n_gpus": "8", "ulysses": "8"},
        {**VIDEO, "guidance": "pair of passes"},
        {**VIDEO, "guidance": "pair of passes", "n_gpus": "8", "cfg_parallel": "2"},
    ]
    usual, steps, ranks, pair, halves = asked(tmp_path, *rows).predicted_latency_s
    assert 1.97 * usual < steps < 1.99 * usual  # the text is encoded, the video decoded once
    assert 0.5 * usual < ranks < 0.6 * usual
    assert 1.9 * usual < pair < 2.1 * usual
    assert halves == pytest.approx(usual, rel=0.02)
    fast, slow = asked(
        tmp_path, STEP, {**STEP, "resolution": "512x512", "tokens_per_sample": "1280"}
    ).predicted_step_time_s
    assert 2 * fast < slow < 3.5 * fast


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "Nothing-1"}, "unknown_architecture:Nothing-1"),
        ({"model": ""}, "missing:model"),
        ({"gpu": "Nothing-1"}, "unknown_accelerator:Nothing-1"),
        ({"resolution": "", "tokens_per_sample": ""}, "missing:resolution"),
        ({"pp": "4"}, "unsupported:mesh"),
        ({"global_batch": "1023"}, "illegal:batch"),
        ({"tp": "64", "micro_batch": ""}, "illegal:mesh"),
        ({"model": "bert_large", "tokens_per_sample": ""}, "unknown_architecture:latents"),
        ({"resolution": "4x4", "tokens_per_sample": ""}, "illegal:malformed"),
        ({"global_batch": ""}, "missing:global_batch"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(
    changes: dict[str, str], reason: str, tmp_path: Path
) -> None:
    assert list(asked(tmp_path, {**STEP, **changes}).skip_reason) == [reason]


def test_columns_that_every_row_needs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("row_id,task\n1,train\n", encoding="utf-8")
    with pytest.raises(sm.ScaleModelError, match="needs task, model, gpu, n_gpus"):
        sm.validate("composed", path)


# -------------------------------------------------------------------------------- published runs
def test_published_runs_are_met_within_ten_percent() -> None:
    found = sm.validate("composed")
    assert set(found.skip_reason) == {"", "missing:denoise_steps"}
    groups = scores_of("composed", found).to_dict()
    assert groups["pooled"]["predicted"] >= 57
    assert groups["pooled"]["mape_fraction"] < 0.1
    assert abs(groups["pooled"]["bias_fraction"]) < 0.05
