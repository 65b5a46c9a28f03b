"""Published results that the package carries: cited, typed, predictable."""

from __future__ import annotations

import csv
import gzip
import math
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from scalemodel.base.errors import ScaleModelError
from scalemodel.validation import KINDS, published, scores_of, validate
from scalemodel.validation.errors import percent
from scalemodel.validation.operators.table import OPERATOR_KINDS, WORK_KINDS
from scalemodel.validation.prediction import OUTPUT_COLUMNS
from scalemodel.validation.rows import Table
from scalemodel.validation.training import INPUT_COLUMNS

PAGE = "python/scalemodel/validation/README.md"
TABLES = sorted({name for parts in published.PARTS.values() for name in parts})
LEAST_ROWS = {
    "wide_ep": 25,
    "composed": 63,
    "recompute": 30,
    "rl": 57,
    "moe_a2a": 69,
    "kv_transfer": 11,
    "training": 1700,
    "inference": 370,
    "serving_power": 560,
    "power": 15,
}
# Mean error over the tables of a kind that a change may not exceed, and share of rows that are
# predicted: nothing is known of the videos of a chat, and not all runs tell their micro-batch.
LARGEST_ERROR = {
    "training": (0.1, 0.92),
    "inference": (0.1, 0.9),
    "wide_ep": (0.25, 1.0),
    "composed": (0.1, 0.82),
    "rl": (0.25, 1.0),
    "moe_a2a": (0.08, 0.98),
    "kv_transfer": (0.1, 1.0),
    "power": (0.2, 1.0),
    "gemm": (0.1, 0.99),
    "attention": (0.1, 1.0),
    "moe": (0.12, 1.0),
    "elementwise": (0.25, 0.999),
    "collectives": (0.13, 0.997),
}
_RATES = ("tokens_per_s", "predicted_output_tokens_s")
_WATTS = ("power_W_per_gpu", "predicted_power_w_per_gpu")
LARGEST_FILE_BYTES = 600_000
LARGEST_PACKED_BYTES = 1_050_000


@pytest.fixture(scope="module")
def training() -> list[dict[str, str]]:
    return records(published.published_table("training"))


def records(table: Table) -> list[dict[str, str]]:
    return [dict(zip(table.header, row, strict=True)) for row in table.rows]


def test_every_source_is_an_address() -> None:
    found = published.sources()
    assert len({(line["source"], line["path"]) for line in found.values()}) == len(found)
    for line in found.values():
        assert set(line) == {"source", "path", "url"}
        assert len(line["source"]) > 8
        assert re.fullmatch(r"https://[\w./-]+", line["url"]), line


@pytest.mark.parametrize("name", TABLES)
def test_every_row_says_where_it_was_published(name: str) -> None:
    table = published.published_table(name)
    assert len(table.rows) >= LEAST_ROWS.get(name, 900)
    # Timings are repeated; two of one shape may be equal.
    assert len({tuple(row) for row in table.rows}) >= 0.98 * len(table.rows)
    assert all(table.column("source"))
    assert all(table.column("url"))
    if "row_id" in table.header:
        assert len(set(table.column("row_id"))) == len(table.rows)


def test_every_source_is_of_a_row() -> None:
    used: set[str] = set()
    for name in TABLES:
        path = published.path_of(name)
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        rows = list(csv.DictReader(text.decode("utf-8").splitlines()))
        used |= {row["source"] for row in rows}
    assert used == set(published.sources())


@pytest.mark.parametrize("name", TABLES)
def test_cells_are_numbers_and_short_words(name: str) -> None:
    """No remarks: whatever is longer than a label belongs to the page it was published on."""
    table = published.published_table(name)
    assert not {"notes", "note", "source_table"} & set(table.header)
    for column in set(table.header) - {"source", "source_path", "url"}:
        longest = max(table.column(column), key=len)
        assert len(longest) <= 68, (column, longest)


def test_compressed_tables_are_the_same_from_whoever_writes_them() -> None:
    for path in published.folder().glob("*.gz"):
        head = path.read_bytes()[:10]
        assert head[3] == 0, "no name of a file"
        assert head[4:8] == bytes(4), "no time"


def test_the_tables_are_small() -> None:
    paths = list(published.folder().iterdir())
    assert max(path.stat().st_size for path in paths) < LARGEST_FILE_BYTES
    packed = [
        path.stat().st_size if path.suffix == ".gz" else len(gzip.compress(path.read_bytes()))
        for path in paths
    ]
    assert sum(packed) < LARGEST_PACKED_BYTES


@cache
def validated(kind: str) -> pd.DataFrame:
    return validate(kind)


@pytest.mark.repeats
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_needed(kind: str) -> None:
    if kind in WORK_KINDS:  # the only ones of which the package has the constants alone
        with pytest.raises(ScaleModelError, match="carries no measurements of it") as caught:
            validate(kind)
        assert caught.value.code == "missing_table"
        return
    frame = validated(kind)
    assert len(frame) == sum(len(table.rows) for table in published.published_tables(kind))
    assert list(frame.columns)[-1] == "skip_reason"
    scores = scores_of(kind, frame)
    if kind == "recompute":  # compared change by change: test_validate_recompute
        assert scores.rows_predicted == len(frame)
        return
    largest, share = LARGEST_ERROR[kind]
    assert (frame["skip_reason"] == "").mean() >= share
    if kind == "inference":
        scores = scores_of(kind, frame[~beside_seven_others(frame)])
    assert scores.pooled.mape_fraction < largest
    assert abs(scores.pooled.bias_fraction) < 0.1


def beside_seven_others(frame: pd.DataFrame) -> pd.Series:
    """Runs on one B200 with a meter: eight servers shared a node's CPUs (ml-energy/benchmark)."""
    return (frame["avg_batch"] != "") & (frame["gpu"] == "B200") & (frame["num_gpus"] == "1")


def test_servers_that_share_their_cpus_let_the_accelerator_idle() -> None:
    """The slower such a run beside its prediction, the fewer watts it draws of those predicted."""
    frame = validated("inference")
    runs = frame[beside_seven_others(frame) & (frame["skip_reason"] == "")]
    number = {name: pd.to_numeric(runs[name]) for name in (*_RATES, *_WATTS)}
    slowdown = number["predicted_output_tokens_s"] / number["tokens_per_s"]
    watts = number["power_W_per_gpu"] / number["predicted_power_w_per_gpu"]
    assert len(runs) >= 110
    assert watts[slowdown < 1.2].mean() > 0.9
    assert watts[slowdown > 2].mean() < 0.65
    assert watts[slowdown > 3].max() < 0.7


@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_the_papers_state_the_errors_of_kernels(repository: Path, kind: str) -> None:
    scores = scores_of(kind, validated(kind))
    # Differences of two timings, some of them near zero, are told apart.
    subset = scores.subsets[-1 if kind == "elementwise" else 0]
    median, mean = percent(subset.median_fraction), percent(subset.pooled.mape_fraction)
    line = f"| `{kind}` | {subset.pooled.rows:,} | {median} | {mean} |"
    assert line in (repository / PAGE).read_text(encoding="utf-8")
    word = {"gemm": "GEMM", "moe": "experts"}.get(kind, kind)
    assert f"{word} {median} %" in (repository / "README.md").read_text(encoding="utf-8")


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(ScaleModelError, match="name='trainings' is no table of the package"):
        published.path_of("trainings")


def test_training_runs_are_of_many_kinds(training: list[dict[str, str]]) -> None:
    assert len({row["source"] for row in training}) >= 25
    assert {row["precision_class"] for row in training} >= {"16bit", "fp8", "fp4"}
    counts = [int(row["n_gpus"]) for row in training]
    assert min(counts) <= 8
    assert max(counts) > 10_000
    assert sum(row["status"] == "OOM" for row in training) == 346
    assert sum(bool(row["memory_GB"]) for row in training) >= 96
    assert {row["fitted"] for row in training} == {"yes", "no", "interval", "accelerator"}
    for row in training:
        if row["status"] == "ok" and row["complete"] == "yes" and row["quality"] in "AB":
            assert math.isfinite(float(row["norm_step_time_s"]))
            assert float(row["norm_step_time_s"]) > 0
        elif row["status"] != "ok":
            assert not row["norm_step_time_s"]


def test_training_rows_hold_no_predictions() -> None:
    names = set(published.published_table("training").header)
    assert not names & set(OUTPUT_COLUMNS)
    needed = {"gpu", "n_gpus", "global_batch", "seq_len", "micro_batch", "n_layers", "hidden"}
    assert needed <= names & set(INPUT_COLUMNS)


def test_serving_runs_are_offline_and_online() -> None:
    found = set(published.published_table("inference").column("scenario"))
    assert found == {"offline", "online"}


def test_the_path_of_a_table_can_be_read_as_any_file() -> None:
    path: Path = published.path_of("serving_power")
    alone, all_runs = validate("power", path), validated("power")
    watts = "predicted_power_w_per_gpu"
    assert alone[watts].tolist() == all_runs[watts].tolist()[-len(alone) :]
