"""Runs that differ in what is recomputed, beside those published and measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.validation import scores_of

RUN = {
    "model": "deepseek_v3",
    "gpu": "GB200",
    "n_gpus": "256",
    "precision": "BF16",
    "seq_len": "4096",
    "micro_batch": "1",
    "global_batch": "2048",
    "pp": "4",
    "ep": "64",
    "recompute_modules": "none",
    "group": "one",
}


def asked(tmp_path: Path, *changes: dict[str, str]) -> pd.DataFrame:
    path = tmp_path / "rows.csv"
    pd.DataFrame([{**RUN, **change} for change in changes]).to_csv(path, index=False)
    return sm.validate("recompute", path)


@pytest.fixture(scope="module")
def groups() -> dict[tuple[str, str], dict[str, float]]:
    scores = scores_of("recompute", sm.validate("recompute")).to_dict()
    assert scores["rows"] == scores["rows_predicted"] == 30
    return {(group["group"], group["quantity"]): group for group in scores["groups"]}


@pytest.mark.parametrize("model", ["llama3_2_1b", "llama3_2_3b", "gpt2_medium"])
def test_modules_measured_on_one_accelerator_cost_what_was_predicted(
    groups: dict[tuple[str, str], dict[str, float]], model: str
) -> None:
    assert groups[model, "time"]["mean_points"] < 3
    # A checkpoint of PyTorch around a feed-forward block drops the norm before it too.
    assert groups[model, "memory"]["mean_points"] < 7


@pytest.mark.parametrize("group", ["moonlight", "dsv3_memory"])
def test_published_savings_of_experts_are_met_within_two_points(
    groups: dict[tuple[str, str], dict[str, float]], group: str
) -> None:
    assert groups[group, "memory"]["mean_points"] < 2


def test_changes_are_those_against_the_first_row_of_a_group(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        {},
        {"recompute_modules": "mla_up_proj"},
        {"recompute_modules": "full", "group": "two"},
    )
    first, second, third = (row for _, row in found.iterrows())
    assert first.predicted_time_change_pct == third.predicted_time_change_pct == 0
    more = second.predicted_memory_gb - first.predicted_memory_gb
    assert second.predicted_memory_change_gb == pytest.approx(more)
    assert more < 0 < second.predicted_time_change_pct


def test_modules_add_up_in_any_order(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        {"recompute_modules": "layernorm+moe_act"},
        {"recompute_modules": "moe_act, layernorm"},
    )
    assert found.predicted_memory_gb.nunique() == found.predicted_step_time_s.nunique() == 1


def test_what_cannot_be_asked_is_skipped_with_a_reason(tmp_path: Path) -> None:
    found = asked(
        tmp_path,
        {"model": "no such model"},
        {"offload": "optimizer states"},
        {"n_gpus": ""},
    )
    reasons = list(found.skip_reason)
    assert reasons[0].startswith("unknown_architecture")
    assert reasons[1] == "unsupported:offload"
    assert reasons[2].startswith("missing")
    assert found.predicted_step_time_s.isna().all()


def test_assumptions_are_notes(tmp_path: Path) -> None:
    note = (
        asked(tmp_path, {"gpu": "", "micro_batch": "", "global_batch": ""}).iloc[0].predicted_note
    )
    for assumed in ("accelerator", "micro_batch 1", "16 micro-batches"):
        assert assumed in note
