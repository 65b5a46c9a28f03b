"""Laws of predictions by constants that have not seen a run's source."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

import scalemodel as sm
from reference.corpora import few_runs
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation import left_out, score
from scalemodel.validation.fit import CONSTANTS, read_runs
from scalemodel.validation.rows import Table, read_table

OUTPUT = "predicted_step_time_s"


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a few published runs of every source."""
    return few_runs(tmp_path_factory.mktemp("few") / "runs.csv")


@pytest.fixture(scope="module")
def table(few: Path) -> Table:
    return read_table(few)


def changed(table: Table, column: str, change: Callable[[str], str], source: str) -> Table:
    """The table with a column of one source's rows changed."""
    at, of = table.header.index(column), table.header.index("source")
    rows = [
        [change(cell) if i == at and row[of] == source else cell for i, cell in enumerate(row)]
        for row in table.rows
    ]
    return Table(table.header, rows)


def predicted(table: Table) -> dict[str, list[float | None]]:
    """Left-out predictions by source."""
    found: dict[str, list[float | None]] = {}
    for name, row in zip(table.column("source"), left_out.predict_left_out(table), strict=True):
        found.setdefault(name, []).append(row.prediction.step_time_s)
    return found


def written(table: Table, path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([table.header, *table.rows])
    return path


def test_what_a_source_measured_reaches_no_prediction_of_it(table: Table) -> None:
    before = predicted(table)
    source = "bigscience-workshop/bigscience"
    slower = changed(
        table, "norm_step_time_s", lambda cell: str(1.5 * float(cell)) if cell else "", source
    )
    after = predicted(slower)
    assert after[source] == before[source]
    other = next(name for name in before if name.startswith("vTrain"))
    assert after[other] != before[other]


def test_rounds_of_a_benchmark_are_left_out_together(table: Table) -> None:
    before = predicted(table)
    faster = changed(
        table,
        "norm_step_time_s",
        lambda cell: str(0.5 * float(cell)) if cell else "",
        "MLPerf Training v4.0",
    )
    after = predicted(faster)
    for name in before:
        if name.startswith("MLPerf"):
            assert after[name] == before[name]


def test_origins_follow_the_rule(table: Table) -> None:
    runs = read_runs(table)
    refits = left_out.Refits(runs)
    several = refits.without("bigscience-workshop/bigscience", "megatron_deepspeed_2022")
    assert several.origin == "own"
    single = refits.without("mosaicml/llm-foundry", "llm_foundry_2023")
    assert single.origin == "mean"
    facts = resolve.stack("llm_foundry_2023")
    kept = {name: getattr(facts, name) for name in CONSTANTS}
    assert single.stack.replace(**kept) == facts
    alone = left_out.Refits([run for run in runs if run.source == "mosaicml/llm-foundry"])
    lonely = alone.without("mosaicml/llm-foundry", "llm_foundry_2023")
    assert lonely.origin == "plain"
    plain = resolve.stack("plain")
    assert all(getattr(lonely.stack, name) == getattr(plain, name) for name in CONSTANTS)


def test_left_out_rows_say_where_their_constants_come_from(few: Path) -> None:
    frame = sm.validate("training", few, left_out=True)
    filled = frame["skip_reason"] == ""
    assert filled.mean() > 0.95
    frame = frame[filled]
    named = sm.validate("training", few)[filled]
    assert frame["predicted_note"].str.contains("constants: ").all()
    assert (frame["predicted_stack"] == named["predicted_stack"]).all()
    assert (frame["predicted_low"] < frame[OUTPUT]).all()
    assert (frame["predicted_high"] > frame[OUTPUT]).all()


def test_a_table_of_one_source_has_no_interval(table: Table, tmp_path: Path) -> None:
    own = [row for row in table.rows if row[table.header.index("source")].startswith("vTrain")]
    path = written(Table(table.header, own), tmp_path / "runs.csv")
    frame = sm.validate("training", path, left_out=True)
    assert frame[OUTPUT].notna().all()
    assert frame["predicted_low"].isna().all()
    assert "inside the predicted interval: - %" in score(frame).text()


def test_left_out_belongs_to_training_without_a_stack(tmp_path: Path) -> None:
    with pytest.raises(ScaleModelError, match="left_out=True"):
        sm.validate("gemm", left_out=True)
    with pytest.raises(ScaleModelError, match="give one of the two"):
        sm.validate("training", stack="plain", left_out=True)
