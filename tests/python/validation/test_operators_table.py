"""Laws of `validate` for kernels and collectives, with a predictor made for the purpose."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli import main
from scalemodel.validation import OperatorScores, scores_of, validate, write_csv
from scalemodel.validation.errors import summarised
from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.operators.score import part_labels, score, short_source
from scalemodel.validation.operators.table import (
    OPERATOR_KINDS,
    OUTPUT_COLUMNS,
    UNREADABLE_COLUMNS,
    available_kinds,
    predict,
    predictor_of,
)
from scalemodel.validation.rows import Row, Table

HEADER = ("gpu", "dtype", "m", "n", "k", "time_us", "source", "split")
ROWS = [
    ["H100", "bfloat16", "128", "128", "128", "10", "a/b@1:x.csv", "fit"],
    ["H100", "bfloat16", "256", "128", "128", "20", "a/b@1:y.csv", "fit"],
    ["H100", "fp8", "512", "128", "128", "40", "a/b:z", "test"],
    ["B200", "bfloat16", "1024", "128", "128", "", "c", "test"],
    ["no such", "bfloat16", "1024", "128", "128", "80", "c", "test"],
]


def row_of(row: Row) -> OperatorPrediction:
    if row.text("gpu") == "no such":
        return OperatorPrediction(None, "unknown_accelerator:no such")
    m = row.number("m")
    return OperatorPrediction(None, "missing:m") if m is None else OperatorPrediction(0.1 * m)


def predict_rows(rows: Sequence[Row]) -> list[OperatorPrediction]:
    return [row_of(row) for row in rows]


FAKE = SimpleNamespace(REQUIRED=("gpu", "dtype", "m", "n", "k"), predict=predict_rows)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalemodel.validation.operators.table.predictor_of", lambda kind: FAKE)
    monkeypatch.setattr("scalemodel.validation.available_kinds", lambda: OPERATOR_KINDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "t.csv", HEADER, ROWS)


def written(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return path


# ------------------------------------------------------------------------------------------ laws
def test_a_prediction_or_a_reason_never_both_never_neither(path: Path) -> None:
    frame = validate("gemm", path)
    assert list(frame.columns) == [*HEADER, *OUTPUT_COLUMNS]
    for time_us, reason in zip(frame.predicted_time_us, frame.skip_reason, strict=True):
        assert (reason == "") == (not math.isnan(time_us))
    assert frame.predicted_time_us[0] == pytest.approx(12.8)
    assert frame.skip_reason[4] == "unknown_accelerator:no such"


@pytest.mark.parametrize("time_us", [math.nan, math.inf, -1.0, 0.0])
def test_no_time_that_is_not_one_leaves(time_us: float) -> None:
    liar = SimpleNamespace(
        REQUIRED=(), predict=lambda rows: [OperatorPrediction(time_us, note="n") for _ in rows]
    )
    (item,) = predict("gemm", Table(("gpu",), [["H100"]]), predictor=liar)
    assert item == OperatorPrediction(None, "illegal:time", "n")


def test_silence_is_a_reason_too() -> None:
    silent = SimpleNamespace(REQUIRED=(), predict=lambda rows: [OperatorPrediction(None)])
    (item,) = predict("gemm", Table(("gpu",), [["H100"]]), predictor=silent)
    assert item.skip_reason == "illegal:time"


def test_a_predictor_that_loses_rows_is_found_out() -> None:
    short = SimpleNamespace(REQUIRED=(), predict=lambda rows: [])
    with pytest.raises(RuntimeError, match="0 predictions of 1 rows"):
        predict("gemm", Table(("gpu",), [["H100"]]), predictor=short)


def test_measurements_and_labels_never_reach_a_predictor() -> None:
    seen: list[set[str]] = []

    def spy(rows: Sequence[Row]) -> list[OperatorPrediction]:
        seen.extend(set(row.cells) for row in rows)
        return [OperatorPrediction(1.0) for _ in rows]

    header = ("gpu", "source", *UNREADABLE_COLUMNS)
    predict(
        "gemm",
        Table(header, [["x"] * len(header)]),
        predictor=SimpleNamespace(REQUIRED=("gpu",), predict=spy),
    )
    assert seen == [{"gpu", "source"}]


def test_input_columns_survive_as_text(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    write_csv(validate("gemm", path), out)
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert [row[: len(HEADER)] for row in rows] == [list(HEADER), *ROWS]
    assert rows[4][len(HEADER)] == repr(0.1 * 1024)
    again = validate("gemm", out)
    pd.testing.assert_frame_equal(again, validate("gemm", path))


# ---------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("column", FAKE.REQUIRED)
def test_a_missing_required_column_is_named(tmp_path: Path, column: str) -> None:
    kept = [i for i, name in enumerate(HEADER) if name != column]
    rows = [[row[i] for i in kept] for row in ROWS]
    path = written(tmp_path / "t.csv", [HEADER[i] for i in kept], rows)
    with pytest.raises(ScaleModelError, match=f"'{column}' is missing") as caught:
        validate("gemm", path)
    assert caught.value.code == "missing_column"


def test_a_kind_of_two_schemas_judges_by_the_header() -> None:
    both = SimpleNamespace(
        REQUIRED=("gpu",),
        required_columns=lambda header: ("mode",) if "op" in header else ("inter",),
        predict=lambda rows: [OperatorPrediction(1.0) for _ in rows],
    )
    assert predict("moe", Table(("inter",), [["1"]]), predictor=both)[0].time_us == 1.0
    for header, column in ((("gpu",), "inter"), (("op",), "mode")):
        with pytest.raises(ScaleModelError, match=f"'{column}' is missing"):
            predict("moe", Table(header, [["1"]]), predictor=both)


def test_a_stack_makes_no_sense_for_a_kernel(path: Path) -> None:
    with pytest.raises(ScaleModelError, match="stack='plain': kind 'gemm' has none"):
        validate("gemm", path, stack="plain")


@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_modules_of_kinds_that_are_there_hold_what_is_needed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert kind in available_kinds()
    module = predictor_of(kind)
    assert module.REQUIRED
    assert module.predict([]) == []
    (item,) = module.predict([Row({})])  # a row of nothing has a reason
    assert item.time_us is None
    assert item.skip_reason


# ---------------------------------------------------------------------------------------- scores
def test_groups_macro_pooled_and_coverage(path: Path) -> None:
    scores = scores_of("gemm", validate("gemm", path))
    assert isinstance(scores, OperatorScores)
    groups = {(row.label, row.part): row for row in scores.groups}
    assert set(groups) == {("a/b", "H100"), ("c", "no such")}
    errors = [12.8 / 10 - 1, 25.6 / 20 - 1, 51.2 / 40 - 1]
    group = groups["a/b", "H100"]
    assert group.mape_fraction == pytest.approx(sum(errors) / 3)
    assert group.kendall_tau == 1
    assert group.bias_fraction == pytest.approx(0.28)
    assert (group.rows, group.predicted, group.skipped) == (3, 3, 0)
    assert math.isnan(groups["c", "no such"].mape_fraction)
    assert {(row.label, row.part) for row in scores.parts} == {
        ("H100", "bfloat16"),
        ("H100", "fp8"),
        ("no such", "bfloat16"),
    }
    assert (scores.rows, scores.rows_predicted) == (5, 4)
    assert (scores.measured_rows, scores.measured_predicted) == (4, 3)
    assert scores.skip_reasons == {"unknown_accelerator:no such": 1}


def many(kind: str = "gemm", **cells: object) -> pd.DataFrame:
    base = {"source": "s", "gpu": "H100", "dtype": "x", "op": "add", "skip_reason": ""}
    return pd.DataFrame(
        [
            {**base, "time_us": f"{10 * (i + 1)}", "predicted_time_us": 11.0 * (i + 1), **cells}
            for i in range(6)
        ]
    )


def test_small_groups_stay_out_of_the_macro_line() -> None:
    frame = pd.concat([many(), many(gpu="B200", predicted_time_us=1e9).iloc[:4]])
    scores = score("gemm", frame)
    assert scores.macro_mape_fraction == pytest.approx(0.1)
    assert scores.subsets[0].macro_groups == 1
    assert scores.pooled.mape_fraction > 1


def test_multiplications_are_told_by_length() -> None:
    scores = score("gemm", many())
    rows = {subset.name: subset.pooled.rows for subset in scores.subsets}
    assert rows == {"all rows": 6, "above 20 us": 4, "up to 20 us": 2}


def test_differences_of_timings_are_told_apart() -> None:
    frame = pd.concat([many("elementwise"), many("elementwise", op="computescale_x")])
    scores = score("elementwise", frame)
    rows = {subset.name: subset.pooled.rows for subset in scores.subsets}
    assert rows == {"all rows": 12, "without computescale": 6}


@pytest.mark.parametrize(
    "kind, header, labels",
    [
        ("gemm", ("gpu", "dtype"), ("gpu", "dtype")),
        ("attention", ("gpu", "phase"), ("gpu", "phase")),
        ("moe", ("gpu", "dtype"), ("gpu", "dtype")),
        ("moe", ("gpu", "mode"), ("gpu", "mode")),
        ("collectives", ("system", "op"), ("system", "op")),
    ],
)
def test_the_second_table(kind: str, header: Sequence[str], labels: tuple[str, str]) -> None:
    assert part_labels(kind, header) == labels


def test_sources_are_cut() -> None:
    assert short_source("a/b@1:c") == short_source("a/b:c@1") == short_source("a/b") == "a/b"


def test_an_empty_table_has_no_errors() -> None:
    frame = many().iloc[:0]
    document = score("gemm", frame).to_dict()
    assert document["macro_mape_fraction"] is None
    assert document["groups"] == []
    assert math.isnan(summarised([]).mape_fraction)
    json.dumps(document, allow_nan=False)


# ----------------------------------------------------------------------------------- the command
def test_the_command_prints_writes_and_reports(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    assert main(["validate", "--kind", "gemm", str(path), "--out", str(out)]) == 0
    text = capsys.readouterr().out
    assert "all rows: macro MAPE - % over 0 groups" in text
    assert "coverage: measured 3 of 4 rows (75.0 %); all 4 of 5 rows (80.0 %)" in text
    assert "unknown_accelerator:no such" in text
    assert out.read_text(encoding="utf-8").startswith(",".join(HEADER))
    assert main(["validate", "--kind", "gemm", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["kind"] == "gemm"
    assert main(["validate", "--kind", "gemm", str(path), "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["table"] for row in rows} == {"groups", "parts", "pooled"}
    pooled = next(row for row in rows if row["table"] == "pooled")
    assert float(pooled["mape_fraction"]) == pytest.approx(document["pooled"]["mape_fraction"])


def test_the_command_names_a_missing_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.csv", ("gpu", "m"), [["H100", "1"]])
    assert main(["validate", "--kind", "gemm", str(path)]) == 2
    assert "'dtype'" in capsys.readouterr().err
