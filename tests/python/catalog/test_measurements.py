"""Published results that the catalogue carries: cited, typed, predictable."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import pytest

import scalemodel as sm
from scalemodel.validation import KINDS, scores_of
from scalemodel.validation.prediction import OUTPUT_COLUMNS
from scalemodel.validation.training import INPUT_COLUMNS

FOLDER = Path(sm.__file__).parent / "catalog" / "measurements"
# Mean error over the table that a change may not exceed: training with its hardest rows, kernels
# and collectives of every accelerator and system alike.
LARGEST_ERROR = {
    "training": 0.18,
    "inference": 0.15,
    "gemm": 0.22,
    "attention": 0.2,
    "moe": 0.15,
    "elementwise": 0.1,
    "collectives": 0.35,
    "power": 0.09,
}


def rows_of(kind: str) -> list[dict[str, str]]:
    with (FOLDER / f"{kind}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_says_where_it_was_published(kind: str) -> None:
    rows = rows_of(kind)
    assert len(rows) >= (15 if kind == "power" else 20)
    assert len({row["row_id"] for row in rows}) == len(rows)
    assert len({tuple(row[name] for name in row if name != "row_id") for row in rows}) == len(rows)
    for row in rows:
        assert row["source"].strip()
        assert re.match(r"https://|$", row["url"])
        if "citation" in row:
            assert len(row["citation"]) > 10
            assert row["url"]
    if kind == "power":  # nodes were metered of one generation only
        assert {row["accelerator"] for row in rows} == {"H100-SXM5", "H200-SXM"}
    else:
        assert len({row["gpu"] for row in rows}) >= 4


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_needed(kind: str) -> None:
    frame = sm.validate(kind)
    assert len(frame) == len(rows_of(kind))
    assert (frame["skip_reason"] == "").all()
    pooled = scores_of(kind, frame).pooled
    assert pooled.predicted > 0
    assert pooled.mape_fraction < LARGEST_ERROR[kind]
    assert abs(pooled.bias_fraction) < 0.1


def test_training_runs_are_balanced() -> None:
    rows = rows_of("training")
    assert len(rows) >= 60
    assert len({row["source"] for row in rows}) >= 12
    assert {row["precision_class"] for row in rows} == {"16bit", "fp8", "fp4"}
    counts = [int(row["n_gpus"]) for row in rows]
    assert min(counts) <= 8
    assert max(counts) > 2048
    for name in ("source", "gpu"):
        most = max(sum(row[name] == value for row in rows) for value in {r[name] for r in rows})
        assert most <= len(rows) / 2
    assert sum(row["status"] == "OOM" for row in rows) >= 5
    assert sum(bool(row["memory_GB"]) for row in rows) >= 8
    for row in rows:
        if row["status"] == "ok":
            assert math.isfinite(float(row["norm_step_time_s"]))
            assert float(row["norm_step_time_s"]) > 0
        else:
            assert not row["norm_step_time_s"]


def test_training_rows_hold_no_predictions() -> None:
    (header, *_) = (FOLDER / "training.csv").read_text(encoding="utf-8").splitlines()
    names = header.split(",")
    assert not set(names) & set(OUTPUT_COLUMNS)
    needed = {"gpu", "n_gpus", "global_batch", "seq_len", "micro_batch", "n_layers", "hidden"}
    assert needed <= set(names) & set(INPUT_COLUMNS)


def test_serving_runs_are_offline_and_online() -> None:
    assert {row["scenario"].split(",")[0] for row in rows_of("inference")} == {"offline", "online"}
