"""How the errors of a validated table count: groups, rounds, order, memory, intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reference.runs import RUNS
from scalemodel.validation import score, write_csv
from scalemodel.validation.score import cases, kendall_tau_b


def scored(rows: list[dict[str, object]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    frame["predicted_fits"] = frame["predicted_fits"].astype("boolean")
    return frame


def run(source: str, measured: float, error: float | None, **cells: object) -> dict[str, object]:
    return {
        "source": source,
        "gpu": "H100",
        "task": "pretrain",
        "model_family": "Llama",
        "status": "ok",
        "quality": "A",
        "complete": "yes",
        "norm_step_time_s": str(measured),
        "memory_GB": "",
        "source_path": "sheet",
        "predicted_step_time_s": np.nan if error is None else measured * (1 + error),
        "predicted_memory_gb": np.nan if error is None else 10.0,
        "predicted_fits": None if error is None else True,
        "skip_reason": "missing:micro_batch" if error is None else "",
    } | cells


def test_kendall_matches_its_definition() -> None:
    chance = np.random.default_rng(3)
    for _ in range(20):
        x, y = chance.integers(0, 6, 15), chance.integers(0, 6, 15)
        pairs = [(i, j) for i in range(15) for j in range(i)]
        concordant = sum(np.sign((x[i] - x[j]) * (y[i] - y[j])) for i, j in pairs)
        untied = [sum(z[i] != z[j] for i, j in pairs) for z in (x, y)]
        expected = concordant / np.sqrt(untied[0] * untied[1])
        assert kendall_tau_b(x.tolist(), y.tolist()) == pytest.approx(expected)
    assert np.isnan(kendall_tau_b([1, 1], [1, 2]))
    assert np.isnan(kendall_tau_b([], []))


def test_errors_per_group_and_macro() -> None:
    rows = [run("a", 1 + i, 0.1) for i in range(10)]
    rows += [run("b", 1 + i, -0.3) for i in range(5)]
    rows += [run("small", 1.0, 9.0)]
    rows += [run("b", 3.0, None)]
    result = score(scored(rows))
    errors = {row.label: row for row in result.groups}
    assert errors["a"].mape_fraction == pytest.approx(0.1)
    assert errors["b"].bias_fraction == pytest.approx(-0.3)
    assert (errors["b"].rows, errors["b"].predicted, errors["b"].skipped) == (6, 5, 1)
    assert errors["a"].kendall_tau == pytest.approx(1)
    assert result.macro_mape_fraction == pytest.approx(0.2)
    assert result.macro_groups == 2
    assert result.pooled.mape_fraction == pytest.approx((10 * 0.1 + 5 * 0.3 + 9) / 16)
    assert (result.core_rows, result.core_predicted) == (17, 16)
    assert result.skip_reasons == {"missing:micro_batch": 1}


def test_rounds_of_mlperf_are_one_source_in_the_merged_macro_only() -> None:
    rows = [run("MLPerf Training v3.0", 1 + i, 0.4, task="LoRA (MLPerf)") for i in range(3)]
    rows += [run("MLPerf Training v4.1", 1 + i, 0.2) for i in range(3)]
    rows += [run("a", 1 + i, 0.1) for i in range(5)]
    result = score(scored(rows))
    assert result.macro_mape_fraction == pytest.approx(0.1)
    assert result.merged_macro_mape_fraction == pytest.approx((0.1 + 0.3) / 2)
    assert [row.label for row in result.merged] == ["MLPerf Training (all rounds)"]
    assert {row.label for row in result.kinds} == {"pretrain", "LoRA (MLPerf)"}


def test_rows_outside_the_core_stand_apart() -> None:
    rows = [run("a", 1.0, 0.1), run("a", 1.0, 0.5, quality="C"), run("a", 1.0, 0.5, complete="no")]
    rows += [run("d", 1.0, None, task="DLRM train (MLPerf)", quality="C")]
    result = score(scored(rows))
    assert result.core_rows == 1
    assert [(row.label, row.rows) for row in result.others] == [
        ("DLRM (MLPerf)", 1),
        ("pretrain", 2),
    ]
    bare = score(scored(rows).drop(columns=["quality", "complete"]))
    assert bare.core_rows == 4


def test_memory_out_of_memory_and_regret() -> None:
    def layout(measured: float, error: float, *, fits: bool, failed: bool = False):
        cells = {"status": "OOM", "norm_step_time_s": ""} if failed else {}
        return run("a", measured, error, predicted_fits=fits, memory_GB="8", **cells)

    rows = [
        layout(1.0, 0.0, fits=True, failed=True),  # picked first, ran out of memory
        layout(2.0, 0.5, fits=True),
        layout(2.5, 0.0, fits=True),  # picked next
        layout(9.0, 0.0, fits=False, failed=True),
        layout(1.5, 0.0, fits=False),
        run("no failures", 1.0, 0.0),
    ]
    result = score(scored(rows))
    (fit,) = result.fits
    assert fit.out_of_memory_recall == pytest.approx(1 / 2)
    assert fit.ran_recall == pytest.approx(2 / 3)
    assert fit.balanced_accuracy == pytest.approx(7 / 12)
    (memory,) = result.memory
    assert (memory.rows, memory.bias_fraction) == (3, pytest.approx(0.25))
    (sheet,) = result.sheets
    assert (sheet.rows, sheet.misses) == (3, 1)
    assert sheet.regret_fraction == pytest.approx(2.5 / 1.5 - 1)
    text = result.text()
    for words in ("balanced accuracy", "macro over sources", "regret", "macro MAPE", "coverage"):
        assert words in text
    assert result.to_dict()["groups"][0]["kendall_tau"] is not None


def test_the_worst_groups_stand_first_and_alone() -> None:
    rows = []
    for index in range(14):
        rows += [run("a", 1.0 + i, 0.05 * index, model=f"m{index}", gpu="H100") for i in range(3)]
    rows += [run("odd", 1.0, 9.0, model="one")]
    result = score(scored(rows))
    assert [row.part for row in result.worst] == [f"H100 m{index}" for index in range(13, 3, -1)]
    assert "worst groups" in result.text()
    assert len(result.tables()["worst"]) == 10


def test_what_lies_inside_its_interval_is_counted() -> None:
    rows = [
        run("a", 1.0, 0.1, predicted_low=0.9, predicted_high=1.3),
        run("a", 1.0, 0.1, predicted_low=1.05, predicted_high=1.3),
        run("a", 1.0, 0.1, predicted_low=0.5, predicted_high=0.9),
        run("a", 1.0, 0.1, predicted_low=0.5, predicted_high=1.0),
        run("a", 1.0, None, predicted_low=None, predicted_high=None),
    ]
    result = score(scored(rows))
    assert result.covered_fraction == pytest.approx(0.5)
    assert "inside the predicted interval: 50.0 %" in result.text()


def test_scores_read_a_written_table(tmp_path: Path, predicted) -> None:
    frame = predicted(*RUNS)
    write_csv(frame, tmp_path / "out.csv")
    again = pd.read_csv(tmp_path / "out.csv", dtype={"norm_step_time_s": str, "memory_GB": str})
    assert [case.predicted_s for case in cases(again)] == [
        case.predicted_s for case in cases(frame)
    ]
    assert score(again).core_predicted == score(frame).core_predicted == len(RUNS)
