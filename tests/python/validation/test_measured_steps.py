"""The project's own training steps on one H200: what no constant was fitted to is met."""

from __future__ import annotations

import statistics

import pytest

from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Row
from scalemodel.validation.training import question


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    table = published_table("training")
    rows = [dict(zip(table.header, cells, strict=True)) for cells in table.rows]
    own = [row for row in rows if row["row_id"].startswith("M")]
    assert {row["fitted"] for row in own} == {"no"}
    predictor = Predictor()
    asked = {row["row_id"]: question(Row(row)) for row in own}
    assert {one.stack for one in asked.values()} == {"pytorch_2026"}
    return {
        row["row_id"]: predictor.predict(asked[row["row_id"]]).step_time_s
        / float(row["norm_step_time_s"])
        - 1
        for row in own
    }


def test_steps_are_met_without_a_fit(errors: dict[str, float]) -> None:
    assert len(errors) == 16
    assert statistics.fmean(map(abs, errors.values())) < 0.075
    assert abs(statistics.median(errors.values())) < 0.05
    assert max(map(abs, errors.values())) < 0.18
