"""How far predictions are from published training runs, where the corpora are at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import scalemodel as sm
from scalemodel import resolve
from scalemodel.errors import ScaleModelError
from scalemodel.validation import Scores, score
from scalemodel.validation.fit import CONSTANTS, fit_stacks


@pytest.fixture(scope="module")
def scores(corpora: Path) -> Scores:
    return score(sm.validate("training", corpora / "train_measured.csv"))


def test_step_time_is_within_the_stated_error(scores: Scores) -> None:
    table = scores.to_dict()
    assert table["merged_macro_mape_fraction"] < 0.12
    assert table["macro_mape_fraction"] < 0.13
    assert abs(table["pooled"]["bias_fraction"]) < 0.02
    assert table["pooled"]["predicted"] >= 0.98 * table["pooled"]["rows"]


def test_out_of_memory_is_told_from_what_ran(scores: Scores) -> None:
    for source in scores.to_dict()["fits"]:
        assert source["balanced_accuracy"] > 0.89


def test_memory_is_within_the_stated_error(scores: Scores) -> None:
    errors = [source["mape_fraction"] for source in scores.to_dict()["memory"]]
    assert sum(errors) / len(errors) < 0.11


def test_named_stacks_beat_the_plain_one(corpora: Path, scores: Scores) -> None:
    plain = score(sm.validate("training", corpora / "train_measured.csv", stack="plain"))
    named = scores.to_dict()["merged_macro_mape_fraction"]
    assert named < plain.to_dict()["merged_macro_mape_fraction"]


def test_stack_constants_are_what_their_fit_gives(corpora: Path) -> None:
    fitted = fit_stacks(corpora / "train_measured.csv", stacks=["megatron_lm_2025", "maxtext"])
    assert set(fitted["stack"]) == {"megatron_lm_2025", "maxtext"}
    for row in fitted.itertuples():
        recorded = getattr(resolve.stack(row.stack), row.constant)
        scale = 25e-6 if row.constant == "host_launch_s" else 1.0
        assert abs(row.value - recorded) < 0.02 * scale
    assert set(fitted["constant"]) == set(CONSTANTS)


def test_a_table_without_measurements_cannot_be_fitted(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("gpu,n_gpus,global_batch,seq_len,micro_batch,model\nH100,8,8,4096,1,gpt2\n")
    with pytest.raises(ScaleModelError, match="holds no measured run"):
        fit_stacks(path)
