"""Published steps of reinforcement learning, phase by phase."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import catalog
from scalemodel.validation import scores_of
from scalemodel.validation.rl_intervals import rl_spread


@pytest.fixture(scope="module")
def groups() -> dict[str, list[dict[str, float]]]:
    scores = scores_of("rl", sm.validate("rl")).to_dict()
    assert scores["rows"] == scores["rows_predicted"] == 57
    assert scores["pooled"]["mape_fraction"] < 0.16
    found: dict[str, list[dict[str, float]]] = {}
    for group in scores["groups"]:
        found.setdefault(group["label"], []).append(group)
    return found


@pytest.mark.parametrize(
    ("run", "largest"),
    [
        ("NeMo-RL DeepSeek-V3: step", 0.13),
        ("NeMo-RL Llama3.1-8B-Instruct: step", 0.18),
        ("NeMo-RL Qwen3-32B: step", 0.06),
        ("verl Qwen2.5-Math-7B: step", 0.21),
        ("verl Qwen2.5-Math-7B: rollout", 0.3),
        ("verl Qwen2.5-Math-7B: logprob", 0.2),
        ("verl Qwen2.5-Math-7B: train", 0.19),
    ],
)
def test_published_steps_are_met(
    groups: dict[str, list[dict[str, float]]], run: str, largest: float
) -> None:
    rows = sum(group["predicted"] for group in groups[run])
    errors = sum(group["predicted"] * group["mape_fraction"] for group in groups[run])
    assert errors / rows < largest


def test_no_published_phase_reaches_a_prediction(tmp_path: Path) -> None:
    row = {
        "framework": "NeMo-RL",
        "model": "Llama3.1-8B-Instruct",
        "layout": "colocated",
        "gpu": "H100-80GB",
        "n_gpus": "16",
        "max_total_tokens": "4096",
        "mean_generated_tokens": "1000",
        "prompts_per_step": "64",
        "generations_per_prompt": "16",
        "train_pp": "2",
    }
    told = {**row, "step_time_s": "1", "rollout_s": "2", "train_s": "3", "notes": "fast"}
    path = tmp_path / "rows.csv"
    pd.DataFrame([row, told, {**row, "gpu": "no such"}, {**row, "n_gpus": ""}]).to_csv(
        path, index=False
    )
    found = sm.validate("rl", path)
    assert found.predicted_step_time_s[0] == found.predicted_step_time_s[1]
    assert "recompute full assumed" in found.predicted_note[0]
    assert found.skip_reason[2].startswith("un")
    assert found.skip_reason[3] == "missing:n_gpus"
    assert found.predicted_step_time_s[2:].isna().all()


def test_the_interval_of_the_catalogue_is_that_of_the_published_steps() -> None:
    """Changed predictions change it: write what `rl_spread` says into post_training.toml."""
    spread = rl_spread(sm.validate("rl"))
    known = catalog.load("reference", "post_training")["interval"]["factor"]
    assert known["value"] == pytest.approx(spread.factor, rel=1e-3)
    assert known["source"].startswith(f"{spread.rows} published steps of {spread.groups} ")
