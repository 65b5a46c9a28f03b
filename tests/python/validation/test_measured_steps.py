"""The project's own training steps on one H200 and one H100: met by facts alone, and unseen."""

from __future__ import annotations

import statistics

import pytest

import scalemodel._core as _core
from scalemodel.resolve.stack_choice import with_plain_constants
from scalemodel.resolve.stacks import stack
from scalemodel.validation.fit import fit, read_runs
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Row, Table
from scalemodel.validation.training import question

NAME = "pytorch_2026"


def measured(gpu: str, *, seen: bool = True) -> Table:
    """The project's own rows of an accelerator; those that constants were fitted to, or others."""
    table = published_table("training")
    columns = ("row_id", "gpu", "fitted")
    number, name, fitted = (table.header.index(column) for column in columns)
    rows = [
        cells
        for cells in table.rows
        if cells[number].startswith("M") and gpu in cells[name] and (cells[fitted] == "yes") is seen
    ]
    return Table(table.header, rows)


@pytest.fixture(scope="module")
def own() -> Table:
    return measured("H200")


def records(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.header, cells, strict=True)) for cells in table.rows]


def errors(rows: list[dict[str, str]], constants: _core.Stack) -> list[float]:
    """Predicted over measured seconds, less 1."""
    predictor = Predictor({NAME: constants}, guarded=False)
    asked = [question(Row(row)) for row in rows]
    assert {one.stack for one in asked} == {NAME}
    return [
        predictor.predict(one).step_time_s / float(row["norm_step_time_s"]) - 1
        for one, row in zip(asked, rows, strict=True)
    ]


def test_facts_alone_meet_steps_within_eight_percent(own: Table) -> None:
    found = errors(records(own), with_plain_constants(stack(NAME)))
    assert len(found) == 28
    assert statistics.fmean(map(abs, found)) < 0.08
    assert max(map(abs, found)) < 0.2


def test_models_that_no_constant_has_seen_are_met_within_six_percent(own: Table) -> None:
    place = own.header.index("model")

    def model_of(cells: list[str]) -> str:
        return cells[place].partition(",")[0]

    models = sorted({model_of(cells) for cells in own.rows})
    assert len(models) == 9
    found: list[float] = []
    for model in models:
        seen = Table(own.header, [cells for cells in own.rows if model_of(cells) != model])
        constants, _, _ = fit(NAME, read_runs(seen))
        unseen = Table(own.header, [cells for cells in own.rows if model_of(cells) == model])
        found += errors(records(unseen), constants)
    assert statistics.fmean(map(abs, found)) < 0.06
    assert abs(statistics.median(found)) < 0.02


@pytest.mark.parametrize(("seen", "unseen"), [("H200", "H100"), ("H100", "H200")])
def test_an_accelerator_that_no_constant_has_seen_is_met_within_eight_percent(
    seen: str, unseen: str
) -> None:
    constants, _, _ = fit(NAME, read_runs(measured(seen)))
    found = errors(records(measured(unseen)), constants)
    assert len(found) == 28
    assert statistics.fmean(map(abs, found)) < 0.08
    assert abs(statistics.median(found)) < 0.05


def test_steps_measured_after_the_fit_are_met_muon_among_them() -> None:
    rows = records(measured("H200", seen=False))
    assert len(rows) == 6
    found = errors(rows, stack(NAME))
    by_muon = ["muon" in row["other_flags"] for row in rows]
    assert sum(by_muon) == 4
    assert statistics.fmean(map(abs, found)) < 0.08
    assert max(map(abs, found)) < 0.15


@pytest.mark.parametrize(("row_id", "adam", "muon"), [("T1420", 1051, 1029), ("T1407", 713, 686)])
def test_muon_lengthens_a_step_as_published(row_id: str, adam: float, muon: float) -> None:
    """TFLOP/s of a model on GB300 with either, the Newton-Schulz steps not counted.

    Source: developer.nvidia.com/blog/advancing-emerging-optimizers-for-accelerated-llm-training-
    with-nvidia-megatron, table 1 (Megatron-Bridge 26.02).
    """
    row = next(each for each in records(published_table("training")) if each["row_id"] == row_id)

    def step_s(optimizer: str) -> float:
        asked = question(Row({**row, "other_flags": f"optimizer={optimizer}"}))
        return Predictor().predict(asked).step_time_s

    assert step_s("muon") / step_s("adam") == pytest.approx(adam / muon, abs=0.01)


def test_the_recipe_says_the_optimizer_where_a_run_does_not() -> None:
    row = next(each for each in records(published_table("training")) if each["row_id"] == "T1420")
    assert dict(question(Row(row)).task)["optimizer"] == "muon"
    assert dict(question(Row({**row, "other_flags": "optimizer=adam"})).task)["optimizer"] == "adam"
    assert "optimizer" not in dict(question(Row({**row, "model": "DeepSeek-V3"})).task)
