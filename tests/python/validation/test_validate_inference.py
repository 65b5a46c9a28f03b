"""Kind inference of `validate`: laws of the table, then errors on published runs."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.validation import scores_of, validate, write_csv
from scalemodel.validation.inference import format_of, model_of
from scalemodel.validation.published import path_of
from scalemodel.validation.rows import SkippedRowError

HEADER = ("model", "gpu", "n_gpus", "isl", "osl", "precision")
ROW = ("Llama 3.1 8B", "H100", "1", "500", "100", "fp8")


def written(path: Path, header: tuple[str, ...], *rows: tuple[str, ...]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def one(path: Path, **cells: str) -> pd.Series:
    """The row above with the given cells in place of its own, or beside them."""
    given = dict(zip(HEADER, ROW, strict=True)) | cells
    table = validate("inference", written(path / "t.csv", tuple(given), tuple(given.values())))
    return table.iloc[0]


@pytest.mark.repeats
def test_blind_shuffled_and_renamed_rows_predict_the_same(tmp_path: Path) -> None:
    curated = path_of("inference")
    frame = pd.read_csv(curated, dtype=str, keep_default_na=False)
    plain = validate("inference", curated)
    predicted = [name for name in plain.columns if name.startswith("predicted_")]
    blind = frame.copy()
    for name in ("output_tokens_s", "ttft_ms", "tpot_ms", "row_id", "year", "quality"):
        blind[name] = ""
    blind["source"] = "elsewhere"
    order = list(reversed(range(len(frame))))
    blind.iloc[order].to_csv(tmp_path / "blind.csv", index=False)
    again = validate("inference", tmp_path / "blind.csv")
    pd.testing.assert_frame_equal(
        plain[predicted].iloc[order].reset_index(drop=True), again[predicted]
    )


def test_rows_come_back_unchanged_and_in_order(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", (*HEADER, "split"), (*ROW, "held"), (*ROW[:2], *[""] * 5))
    frame = validate("inference", path)
    write_csv(frame, tmp_path / "out.csv")
    back = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert list(back.columns[:7]) == [*HEADER, "split"]
    assert back.columns[-1] == "skip_reason"
    assert back.loc[0, "split"] == "held"
    assert back.loc[1, "skip_reason"] == "missing:n_gpus"
    filled = back["predicted_output_tokens_s"] != ""
    assert (filled == (back["skip_reason"] == "")).all()
    assert all(math.isfinite(float(cell)) for cell in back.loc[filled, "predicted_ttft_ms"])


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": ""}, "missing:gpu"),
        ({"gpu": "Abacus"}, "unknown_accelerator:Abacus"),
        ({"model": "Nobody 7B"}, "unknown_architecture:Nobody 7B"),
        ({"precision": "ternary"}, "unsupported:dtype"),
        ({"precision": ""}, "missing:precision"),
        ({"n_gpus": "2", "tp": "1", "pp": "1", "dp": "1"}, "illegal:mesh"),
        # Heads of attention are padded to what tp divides, those of a recurrence are not.
        ({"model": "Nemotron-H-8B", "n_gpus": "3", "tp": "3"}, "illegal:tp_heads"),
        ({"isl": "-4"}, "illegal:isl"),
        ({"model": "Llama 3.1 405B"}, "illegal:out_of_memory"),
    ],
)
def test_skipped_rows_say_why(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    assert one(tmp_path, **cells)["skip_reason"] == reason


def test_what_a_row_asks_decides_what_is_predicted(tmp_path: Path) -> None:
    offline = one(tmp_path, num_requests="2000")
    slow = one(tmp_path, qps_target="1", scenario="online serving", num_requests="200")
    few = one(tmp_path, concurrency_or_batch="4", num_requests="200")
    assert offline["predicted_output_tokens_s"] > few["predicted_output_tokens_s"]
    assert slow["predicted_output_tokens_s"] == pytest.approx(100, rel=0.25)
    assert slow["predicted_tpot_ms"] < offline["predicted_tpot_ms"]
    assert few["predicted_batch"] <= 4
    assert offline["skip_reason"] == ""


def test_missing_columns_and_unknown_engines_are_told(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", HEADER[:-1], ROW[:-1])
    with pytest.raises(sm.ScaleModelError, match="precision"):
        validate("inference", path)
    path = written(tmp_path / "t.csv", HEADER, ROW)
    with pytest.raises(sm.ScaleModelError, match="engine"):
        validate("inference", path, stack="none of them")
    with pytest.raises(sm.ScaleModelError, match="left_out"):
        validate("inference", path, left_out=True)
    for wrong in ("yes", 1, None, ["SGLang"]):
        with pytest.raises(sm.ScaleModelError, match=r"left_out=.*: must be True or False"):
            validate("inference", path, left_out=wrong)
    forced = validate("inference", path, stack="SGLang")
    assert forced.loc[0, "predicted_engine"] == "sglang_2025"


def test_names_and_formats_are_read_leniently() -> None:
    assert model_of("meta-llama/Llama-3.3-70B-Instruct") == "llama3_1_70b"
    assert model_of("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8") == "qwen3_235b_a22b"
    assert model_of("google/gemma-3-12b-it") == "gemma3_12b"
    with pytest.raises(SkippedRowError, match="unknown_architecture"):
        model_of("nobody/Nothing-7B")
    assert format_of("NVFP4") == "fp4"
    assert format_of("w4a16 (awq)") == "int4"
    assert format_of("FP8-block") == "fp8_block"
    assert format_of("?") is None


def test_runs_with_a_meter_also_get_watts_and_joules(tmp_path: Path) -> None:
    header = (
        "model",
        "gpu",
        "num_gpus",
        "avg_batch",
        "avg_output_len",
        "weight_precision",
        "total_params_b",
        "parallelization",
    )
    row = (
        "Qwen/Qwen3-14B",
        "H100",
        "2",
        "64",
        "900",
        "bfloat16",
        "14",
        '{"tensor_parallel": 2, "data_parallel": 1, "expert_parallel": 1}',
    )
    found = validate("inference", written(tmp_path / "t.csv", header, row)).iloc[0]
    watts, rate = found["predicted_power_w_per_gpu"], found["predicted_output_tokens_s"]
    assert found["predicted_j_per_token"] == pytest.approx(2 * watts / rate)
    assert 100 < watts < 700
    assert "assumed" in found["predicted_note"]


# ------------------------------------------------------------------------------ published runs
def test_published_runs_are_met() -> None:
    """All that the package carries, with and without a power meter beside them."""
    frame = validate("inference")
    scores = scores_of("inference", frame)
    metered = frame["avg_batch"] != ""
    assert metered.sum() == 564
    assert (frame["skip_reason"][~metered] == "").all()
    unknown = {
        reason for reason in scores.skip_reasons if reason.startswith("unknown_architecture")
    }
    assert set(scores.skip_reasons) - unknown == {"missing:isl"}
    unsaid = frame[frame["skip_reason"] == "missing:isl"]
    assert set(unsaid["task"]) == {"sourcegraph-fim", "video-chat"}  # prompts of any length
    engines = [row for row in scores.groups if row.label == "NVIDIA/TensorRT-LLM"]
    assert len(engines) == 8
    assert all(row.predicted == row.rows and row.mape_fraction < 0.13 for row in engines)
    alone = scores_of("inference", frame[~metered])
    assert alone.pooled.mape_fraction < 0.1
    assert {row.quantity for row in alone.situations} == {"output_tokens_s", "ttft_ms", "tpot_ms"}
    assert "J_per_token" in {row.quantity for row in scores.situations}
    assert len(scores.situations) > len(alone.situations)
    assert scores.pooled.rows == len(frame)
    assert scores.text().count("\n") > 10


def test_maximum_throughput_of_tensorrt_llm(corpora: Path) -> None:
    frame = validate("inference", corpora / "infer_measured.csv")
    # Rows of the releases that constants were fitted to; others have ids of their own.
    offline = frame[frame["scenario"].str.startswith("offline") & frame["row_id"].str.match("I")]
    scores = scores_of("inference", offline)
    assert scores.rows_predicted == len(offline) == 297
    assert scores.macro_model_mape_fraction < 0.12
    assert abs(scores.pooled.bias_fraction) < 0.05
    for row in scores.models:
        assert row.kendall_tau >= 0.85


def test_first_tokens_of_requests_that_come_at_once() -> None:
    """Every prompt costs the CPU in its step, however long it is and on whatever accelerator."""
    frame = validate("inference", path_of("inference"))
    scores = scores_of("inference", frame[frame["qps_target"] == "inf"])
    times = [row for row in scores.situations if row.quantity == "ttft_ms"]
    assert sum(row.rows for row in times) == 9
    assert all(row.mape_fraction < 0.05 for row in times)


def test_checkpoints_in_mxfp4_stay_so_where_a_table_says_fp8(tmp_path: Path) -> None:
    eight, four = (
        one(tmp_path, model="gpt-oss-20b", precision=precision) for precision in ("fp8", "mxfp4")
    )
    assert eight.predicted_output_tokens_s == four.predicted_output_tokens_s
    assert "MXFP4" in eight.predicted_note


@pytest.mark.parametrize("gpu", ["A100-PCIe-80GB", "L40S", "RTX-PRO-6000-Server"])
def test_ranks_that_meet_over_pcie(gpu: str) -> None:
    """No constant of these cards' networks was fitted to serving."""
    frame = validate("inference", path_of("inference"))
    frame = frame[frame["gpu"] == gpu]
    assert frame["n_gpus"].astype(int).max() == 8
    scores = scores_of("inference", frame)
    assert scores.pooled.mape_fraction < 0.12
    assert abs(scores.pooled.bias_fraction) < 0.12


def test_first_tokens_and_gaps_below_saturation(corpora: Path) -> None:
    frame = validate("inference", corpora / "infer_measured.csv")
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    online = frame["scenario"].str.startswith("online")
    finite = online & numbers["qps_target"].lt(1e9)
    stable = finite & ~(frame["model"].str.contains("70B") & numbers["qps_target"].ge(32))
    assert stable.sum() == 42
    for column, limit in (("ttft_ms", 0.2), ("tpot_ms", 0.12)):
        errors = numbers[f"predicted_{column}"] / numbers[column] - 1
        assert errors[stable].abs().mean() <= limit


def test_runs_of_the_energy_leaderboard(corpora: Path) -> None:
    frame = validate("inference", corpora / "inference_power_measured.csv")
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    for task, gpu, rate, gap in (
        ("gpqa", "H100", 0.18, 0.15),
        ("lm-arena-chat", "H100", 0.18, 0.15),
        ("lm-arena-chat", "B200", 0.30, 0.22),
    ):
        rows = frame["task"].eq(task) & frame["gpu"].eq(gpu) & frame["skip_reason"].eq("")
        tokens = numbers["predicted_output_tokens_s"] / numbers["tokens_per_s"] - 1
        gaps = numbers["predicted_itl_ms"] / numbers["median_itl_ms"] - 1
        assert rows.sum() > 50
        assert tokens[rows].abs().mean() <= rate
        assert gaps[rows].abs().mean() <= gap
