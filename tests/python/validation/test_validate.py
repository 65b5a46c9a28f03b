"""Laws of `validate`: what a prediction may depend on, and what a table keeps."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reference.runs import LLAMA, RUNS, csv_text
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation import score, validate, write_csv
from scalemodel.validation.operators.table import OPERATOR_KINDS
from scalemodel.validation.prediction import OUTPUT_COLUMNS
from scalemodel.validation.rows import is_missing, number_in, read_table
from scalemodel.validation.training import INPUT_COLUMNS

LABELS = ("row_id", "source", "source_path", "source_table", "system")
MEASURED = (
    "step_time_s",
    "tflops_per_gpu",
    "tflops_kind",
    "mfu_pct",
    "hfu_pct",
    "tokens_per_s_gpu",
    "tokens_per_s_total",
    "samples_per_s",
    "memory_GB",
    "time_to_train_min",
    "aggregate_pflops",
    "norm_step_time_s",
    "norm_tokens_s_gpu",
    "norm_basis",
    "flops_per_token_model",
    "implied_model_tflops_gpu",
    "implied_mfu_vs_bf16_peak_pct",
    "notes",
)


def values(frame: pd.DataFrame) -> list[list[object]]:
    columns = [frame[name].astype(object) for name in OUTPUT_COLUMNS]
    return [[None if pd.isna(item) else item for item in row] for row in zip(*columns, strict=True)]


# ------------------------------------------------------------------------------------------ laws


def test_measurements_labels_and_accumulation_change_no_prediction(predicted) -> None:
    blanked = [row | dict.fromkeys((*MEASURED, "grad_accum"), "") for row in RUNS]
    renamed = [
        row | dict.fromkeys((*LABELS, "notes"), f"x{i}") | {"status": "OOM", "quality": "C"}
        for i, row in enumerate(RUNS)
    ]
    expected = values(predicted(*RUNS))
    assert not any(row[-1] for row in expected)
    assert values(predicted(*blanked)) == expected
    assert values(predicted(*renamed)) == expected


def test_no_forbidden_column_is_an_input() -> None:
    forbidden = {*LABELS, *MEASURED, "grad_accum", "status", "quality", "complete"}
    assert not forbidden & set(INPUT_COLUMNS)


def test_the_order_of_rows_and_columns_changes_no_prediction(predicted) -> None:
    expected = values(predicted(*RUNS))
    assert values(predicted(*reversed(RUNS))) == expected[::-1]
    turned = [dict(reversed(row.items())) for row in RUNS]
    assert values(predicted(*turned)) == expected


def test_the_name_of_a_model_changes_nothing_while_its_columns_are_complete(predicted) -> None:
    renamed = [row | {"model": "GPT-2"} for row in RUNS]
    assert values(predicted(*renamed)) == values(predicted(*RUNS))


def test_twice_the_same_answer(predicted) -> None:
    assert values(predicted(*RUNS, *RUNS)) == values(predicted(*RUNS)) * 2


def test_predictions_are_finite_positive_and_complete(predicted) -> None:
    frame = predicted(*RUNS, LLAMA | {"gpu": "no such part"})
    filled = frame["skip_reason"] == ""
    assert filled.tolist() == [True, True, True, False]
    for name in ("predicted_step_time_s", "predicted_memory_gb"):
        numbers = frame[name].to_numpy(dtype=float)
        assert (np.isfinite(numbers) == filled).all()
        assert (numbers[filled] > 0).all()
    assert (frame["predicted_fits"].notna() == filled).all()


# ---------------------------------------------------------------------------------------- tables


def test_input_columns_survive_as_text(tmp_path: Path) -> None:
    odd = LLAMA | {"row_id": "007", "notes": 'a "quoted", two\nline note', "split": " 1e3 "}
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(csv_text([odd, *RUNS]), encoding="utf-8")
    frame = validate("training", source)
    write_csv(frame, target)
    before, after = read_table(source), read_table(target)
    assert after.header == (*before.header, *OUTPUT_COLUMNS)
    assert [row[: len(before.header)] for row in after.rows] == before.rows
    assert set(after.column("predicted_fits")) <= {"true", "false", ""}
    assert not {"nan", "inf", "None"} & {cell for row in after.rows for cell in row}
    seconds = [float(text) for text in after.column("predicted_step_time_s")]
    assert seconds == frame["predicted_step_time_s"].tolist()
    again = validate("training", target)
    assert tuple(again.columns) == after.header
    assert values(again) == values(frame)


def test_short_long_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    text = csv_text([LLAMA])
    path.write_text("\ufeff" + text + "short\n\n" + text.splitlines()[1] + ",beyond\n")
    reasons = validate("training", path)["skip_reason"].tolist()
    assert [bool(reason) for reason in reasons] == [False, True, False]


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(csv_text([LLAMA]).splitlines()[0] + "\n")
    frame = validate("training", path)
    assert len(frame) == 0
    assert score(frame).core_rows == 0
    assert "coverage" in score(frame).text()


@pytest.mark.parametrize("column", ["gpu", "n_gpus", "global_batch", "seq_len", "micro_batch"])
def test_a_missing_required_column_is_named(tmp_path: Path, column: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(csv_text([{name: LLAMA[name] for name in LLAMA if name != column}]))
    with pytest.raises(ScaleModelError, match=repr(column)):
        validate("training", path)


def test_architecture_columns_are_needed_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        csv_text([{name: LLAMA[name] for name in LLAMA if name not in ("model", "hidden")}])
    )
    with pytest.raises(ScaleModelError, match="'hidden'"):
        validate("training", path)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    binary, empty = tmp_path / "binary.csv", tmp_path / "empty.csv"
    binary.write_bytes(b"gpu,n_gpus\n\xff\xfe\x00,1\n")
    empty.write_text("")
    for path in (binary, empty, tmp_path / "absent.csv", tmp_path):
        with pytest.raises(ScaleModelError, match="path="):
            validate("training", path)
    with pytest.raises(ScaleModelError, match="cannot be written"):
        write_csv(pd.DataFrame({"a": ["b"]}), tmp_path / "no" / "such" / "folder.csv")


@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_kinds_to_come_say_so(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalemodel.validation.available_kinds", tuple)
    with pytest.raises(ScaleModelError, match="not available yet; available: training"):
        validate(kind, "absent.csv")


def test_an_unknown_kind_or_stack_is_refused(predicted) -> None:
    with pytest.raises(ScaleModelError, match="kind='trainning'"):
        validate("trainning")
    with pytest.raises(ScaleModelError, match="no_such_stack"):
        predicted(LLAMA, stack="no_such_stack")


def test_a_stack_can_be_chosen(predicted) -> None:
    assert predicted(*RUNS, stack="plain")["predicted_stack"].tolist() == ["plain"] * len(RUNS)


# ----------------------------------------------------------------------------------------- cells


def test_missing_and_numeric_cells() -> None:
    assert all(is_missing(text) for text in ("", "  ", "unknown", "Unknown v", "n/a (one node)"))
    assert not any(is_missing(text) for text in ("none", "no", "0"))
    assert number_in("46068 MiB") == 46068
    assert number_in("interleaved (v not in table)") is None
    assert number_in("1e999") is None


def test_writing_numbers_differently_changes_nothing(predicted) -> None:
    shape = ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim", "ffn", "vocab", "seq_len")
    mesh = ("n_gpus", "gpus_per_node", "tp", "pp", "dp", "cp", "ep", "vpp")
    others = ("micro_batch", "global_batch", "year", "gpu_mem_GB", "nic_gbps_per_gpu")
    counts = (*shape, *mesh, *others)
    lenient = LLAMA | {name: f" {float(LLAMA[name])} " for name in counts}
    lenient |= {"gated_ffn": "1.0", "precision": "BF16", "seq_parallel": "True"}
    lenient |= {"recompute": " None ", "gpu": "NVIDIA H100 80GB"}
    plain = values(predicted(LLAMA))
    assert values(predicted(lenient)) == plain
    assert values(predicted(LLAMA | {"dp": "", "cp": "", "ep": "unknown", "vpp": ""})) == plain


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"gpu": ""}, "missing:gpu"),
        ({"gpu": "Abacus 9000"}, "unknown_accelerator:Abacus 9000"),
        ({"n_gpus": "unknown"}, "missing:n_gpus"),
        ({"seq_len": ""}, "missing:seq_len"),
        ({"micro_batch": "unknown"}, "missing:micro_batch"),
        ({"global_batch": "n/a"}, "missing:global_batch"),
        ({"hidden": "unknown", "model": "Mystery-9B"}, "unknown_architecture:Mystery-9B"),
        ({"hidden": "unknown", "model": ""}, "missing:hidden"),
        ({"moe_experts": "8"}, "missing:moe_topk"),
        ({"head_dim": "MLA"}, "missing:head_dim"),
        ({"arch_note": "Mamba2 hybrid"}, "unsupported:architecture"),
        ({"task": "DLRM train (MLPerf)", "seq_len": ""}, "unknown_architecture:some 8B"),
        ({"model_family": "ViT", "task": "ViT inference"}, "unsupported:task"),
        ({"task": "distillation"}, "unsupported:task"),
        ({"precision": "posit8"}, "unsupported:dtype"),
        ({"precision": "fp8", "gpu": "A100-80GB"}, "unsupported:dtype"),
        ({"tp": "3"}, "illegal:mesh"),
        ({"dp": "5"}, "illegal:mesh"),
        ({"global_batch": "3"}, "illegal:batch"),
        ({"micro_batch": "1.5"}, "illegal:micro_batch"),
        ({"n_gpus": "-16"}, "illegal:n_gpus"),
        ({"ep": "2"}, "illegal:ep_experts"),
    ],
)
def test_a_row_that_asks_nothing_says_why(predicted, cells: dict[str, str], reason: str) -> None:
    frame = predicted(LLAMA, LLAMA | cells)
    assert frame["skip_reason"].tolist() == ["", reason]
    assert frame["predicted_step_time_s"].isna().tolist() == [False, True]


def test_no_row_can_fail_the_run(predicted) -> None:
    chance = random.Random(20)
    junk = ["", "unknown", "0", "-1", "1e18", "1e400", "nan", "inf", "2.5", "3", "7", "x" * 300]
    junk += ["MLA qk128+64 v128", "FSDP=0", "interleaved", "full 400 layers", "\u00b2", "1,2,3"]
    junk += ["9" * 400, "modules: moe", "HSDP", "kernel=flash_attention2", "LoRA", "GB200", "fp4"]
    rows = []
    for _ in range(400):
        row = dict(chance.choice(RUNS))
        for name in chance.sample(INPUT_COLUMNS, chance.randint(1, 4)):
            row[name] = chance.choice(junk)
        rows.append(row)
    frame = predicted(*rows)
    assert ((frame["skip_reason"] == "") == frame["predicted_step_time_s"].notna()).all()
    kinds = {reason.split(":")[0] for reason in frame["skip_reason"]} - {""}
    allowed = {"missing", "unknown_accelerator", "unknown_architecture", "unsupported", "illegal"}
    assert kinds <= allowed
    assert all(":" in reason for reason in frame["skip_reason"] if reason)


# ---------------------------------------------------------------------------------------- corpus
def test_the_measured_corpus_is_covered(corpora: Path) -> None:
    frame = validate("training", corpora / "train_measured.csv")
    result = score(frame)
    assert result.core_predicted >= 0.98 * result.core_rows
    assert ((frame["skip_reason"] == "") == frame["predicted_step_time_s"].notna()).all()
    measured = [name for name in MEASURED if name in frame.columns]
    assert "norm_step_time_s" in measured


@pytest.mark.repeats
def test_the_corpus_may_be_blanked_renamed_and_shuffled(corpora: Path, tmp_path: Path) -> None:
    source = corpora / "train_measured.csv"
    table = read_table(source)
    order = list(range(len(table.rows)))
    random.Random(1).shuffle(order)
    changed = dict.fromkeys(MEASURED, "") | dict.fromkeys(LABELS, "x")
    path = tmp_path / "changed.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.header)
        for index in order:
            cells = zip(table.header, table.rows[index], strict=True)
            writer.writerow([changed.get(name, cell) for name, cell in cells])
    expected = values(validate("training", source))
    assert values(validate("training", path)) == [expected[index] for index in order]
