"""A study shows its points and their answers, and stays a table of all its columns."""

from __future__ import annotations

import pickle
import re

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.base.text import time_text
from scalemodel.codesign.study import design_strategy

TASK = sm.Training(global_batch=64, sequence=4096)
VARY = {
    "fabric.bandwidth": [1, 2],
    "accelerator.memory.capacity": ["10 GB", "75 GB"],
    "nodes": ["1", "2"],
}


@pytest.fixture(scope="module")
def study() -> pd.DataFrame:
    return sm.codesign("llama3_8b", "dgx_h100", TASK, {"cp": 1, "pp": 1}, vary=VARY)


def cells(text: str) -> list[list[str]]:
    return [re.split(r"  +", line) for line in text.splitlines()]


def test_a_printed_study_shows_points_and_answers(study: pd.DataFrame) -> None:
    header, *rows, foot = cells(str(study))
    assert header == [*VARY, "step", "MFU", "memory", "cost", "strategy"]
    assert len(rows) == len(study) == 8
    for row, (_, kept) in zip(rows, study.iterrows(), strict=True):
        assert row[0] == f"{kept['fabric.bandwidth'] / 1e9:.3g} GB/s".replace("50 ", "50.0 ")
        assert row[2] == f"{kept.nodes:.0f}"
        if kept.verdict != "ok":
            assert row[-1] == "infeasible"
            continue
        assert row[3].startswith(f"{time_text(kept.step_time_s)} (")
        assert row[-1].endswith(" none") or "recompute" in row[-1]
        assert f"dp{kept.dp}" in row[-1]
        assert ("tight" in row[5]) == (kept.memory_bytes > 0.95 * kept.memory_capacity_bytes)
    assert foot == [f"8 points, {study.shape[1]} columns: pd.DataFrame(study)"]
    assert {"infeasible", "ok"} == set(study.verdict)


def test_the_interval_of_a_point_is_that_of_its_estimate(study: pd.DataFrame) -> None:
    for _, row in study[study.verdict == "ok"].iterrows():
        est = sm.estimate(
            "llama3_8b", sm.codesign.design_cluster("dgx_h100", row), TASK, design_strategy(row)
        )
        assert est.interval() == (
            pytest.approx(row.step_time_low_s),
            pytest.approx(row.step_time_high_s),
            0.8,
        )
    assert study[study.verdict != "ok"].step_time_low_s.isna().all()


def test_a_notebook_shows_the_same(study: pd.DataFrame) -> None:
    html = study._repr_html_()  # type: ignore[operator]
    assert html.count("<tr>") == 1 + len(study)
    assert html.count("<th scope='col'") == len(VARY) + 5
    assert "overlap_tp" not in html


def test_every_column_stays_reachable(study: pd.DataFrame) -> None:
    whole = pd.DataFrame(study)
    assert type(whole) is pd.DataFrame
    assert whole.shape == study.shape
    assert list(whole.columns) == list(study.columns)
    assert "overlap_tp" in repr(list(study.columns))
    assert {"tp", "bubble_s", "memory_weights_bytes", "objective"} <= set(study.columns)


def test_parts_of_a_study_show_themselves(study: pd.DataFrame) -> None:
    fits = study[study.verdict == "ok"]
    assert "infeasible" in str(study)
    assert "infeasible" not in str(fits)
    assert len(cells(str(fits))) == len(fits) + 2
    part = study[["tp", "pp"]]
    assert repr(part) == repr(pd.DataFrame(part))
    assert "Empty" in repr(study.head(0))
    assert (study.step_time_s * 2).iloc[-1] == 2 * study.step_time_s.iloc[-1]


def test_a_study_travels(study: pd.DataFrame) -> None:
    again = pickle.loads(pickle.dumps(study))
    assert again.equals(study)
    assert str(again) == str(study)
    assert again.attrs == study.attrs
    assert str(study.copy()) == str(study)


def test_a_long_study_is_cut_and_says_so(study: pd.DataFrame) -> None:
    with pd.option_context("display.max_rows", 3):
        lines = str(study).splitlines()
    assert len(lines) == 1 + 3 + 1
    assert lines[-1].startswith("5 more points; 8 points, ")


def test_an_objective_and_a_cost_of_the_design_have_columns() -> None:
    study = sm.codesign(
        "llama3_8b",
        "dgx_h100",
        TASK,
        {"cp": 1, "pp": 1},
        vary={"fabric.bandwidth": [1, 2]},
        objective="tokens_per_s",
        design_cost={"fabric.bandwidth": "12 per GB/s"},
    )
    header, first, *_ = cells(str(study))
    assert header[-3:] == ["tokens_per_s", "design_cost", "strategy"]
    assert first[-2] == "600"
