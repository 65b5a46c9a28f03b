"""Shards on the command line: merged they are the whole, and what does not fit is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command_line import (
    QUESTION,
    SMALL,
    SPACE,
    TOO_LARGE,
    asked,
    assert_same_rows,
    best,
    read_rows,
    shard_rows,
    swept,
)
from scalemodel.search import ranking_file


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("prune", [True, False])
def test_merged_rankings_are_the_ranking(run: Any, tmp_path: Path, count: int, prune: bool) -> None:
    question = ["search", *QUESTION, *SMALL, "--top", 25] + ([] if prune else ["--no-prune"])
    files = []
    for i in range(count, 0, -1):
        files.append(tmp_path / f"{i}.json")
        ran = run(*question, "--shard", f"{i}/{count}", "--out", files[-1], "--json")
        assert ran.code == 0
    merged = run("merge", *files, "--json", "--out", tmp_path / "merged.json")
    whole = run(*question, "--json", "--out", tmp_path / "whole.json")
    assert merged.code == whole.code == 0
    assert merged.document["ranking"] == whole.document["ranking"]
    assert merged.document["rows"] == whole.document["rows"]
    python = best(top=25, prune=prune)
    read = ranking_file.read(tmp_path / "merged.json").ranking
    assert list(read) == list(python)
    if not prune:  # counts of what was skipped depend on the cut
        assert merged.out == whole.out
        assert (tmp_path / "merged.json").read_text() == (tmp_path / "whole.json").read_text()
        assert read == python


def test_more_shards_than_rows_are_fine(run: Any, tmp_path: Path) -> None:
    narrow = [*QUESTION, *SMALL, "--tp", 2, "--sharding", "zero1", "--recompute", "none"]
    narrow += ["--regather", "on", "--offload-optimizer", "off", "--sequence-parallel", "on"]
    narrow += ["--micro-batch", 1, "--placement", "tp-cp-dp-pp"]
    size = int(run("search", *narrow, "--count").out)
    assert 1 <= size <= 4
    names = range(1, size + 4)
    for kind in ("json", "csv"):
        for i in names:
            command = "search" if kind == "json" else "sweep"
            shard = ["--shard", f"{i}/{size + 3}", "--out", tmp_path / f"{i}.{kind}"]
            assert run(command, *narrow, *shard).code == 0
    files = [tmp_path / f"{i}.json" for i in names]
    assert run("merge", *files, "--json").document["size"] == size
    files = [tmp_path / f"{i}.csv" for i in names]
    assert run("merge", *files, "--out", tmp_path / "all.csv").code == 0
    assert len(read_rows(tmp_path / "all.csv")) == size


def write_shards(run: Any, folder: Path, kind: str, count: int, *further: object) -> list[Path]:
    files = [folder / f"{i}.{kind}" for i in range(1, count + 1)]
    command = "search" if kind == "json" else "sweep"
    for i, path in enumerate(files, start=1):
        shard = ["--shard", f"{i}/{count}", "--out", path]
        assert run(command, *QUESTION, *SMALL, *further, *shard).code == 0
    return files


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_merged_sweeps_are_the_sweep(
    run: Any, tmp_path: Path, kind: str, count: int, chunks: int
) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    files = write_shards(run, tmp_path, kind, count)
    out = tmp_path / f"merged.{kind}"
    ran = run("merge", *reversed(files), "--out", out)
    assert ran.code == 0
    size = SPACE.size(*asked())
    assert f"{size:,}" in ran.out
    assert_same_rows(read_rows(out), swept())
    whole = tmp_path / f"whole.{kind}"
    run("sweep", *QUESTION, *SMALL, "--out", whole)
    if kind == "csv":
        assert out.read_bytes() == whole.read_bytes()
        assert ran.err.startswith("scalemodel: warning: CSV files do not say")
    else:
        import pyarrow.parquet

        assert pyarrow.parquet.read_table(out).equals(
            pyarrow.parquet.read_table(whole), check_metadata=True
        )
        assert ran.err == ""


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_merging_is_associative(run: Any, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    a, b, c, d = write_shards(run, tmp_path, kind, 4)
    ac, bd, all_of_them = (tmp_path / f"{name}.{kind}" for name in ("ac", "bd", "all"))
    assert run("merge", c, a, "--partial", "--out", ac).code == 0
    assert run("merge", b, d, "--partial", "--out", bd).code == 0
    assert run("merge", bd, ac, "--out", all_of_them).code == 0
    at_once = tmp_path / f"at_once.{kind}"
    assert run("merge", a, b, c, d, "--out", at_once).code == 0
    if kind == "parquet":
        assert_same_rows(read_rows(all_of_them), read_rows(at_once))
    else:
        assert all_of_them.read_bytes() == at_once.read_bytes()


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_shards_that_are_missing_or_doubled_are_named(run: Any, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    a, b, c = write_shards(run, tmp_path, kind, 3)
    out = tmp_path / f"out.{kind}"
    (_, first), (_, second), (_, size) = shard_rows(3)
    ran = run("merge", a, c, "--out", out)
    assert ran.code == 2
    assert f"rows {first:,} to {second - 1:,} are missing" in ran.err
    ran = run("merge", b, c, "--out", out)
    assert ran.code == 2
    assert f"rows 0 to {first - 1:,} are missing" in ran.err
    ran = run("merge", a, b, c, b, "--out", out)
    assert ran.code == 2
    assert "both hold rows" in ran.err
    assert ran.err.count("2." + kind) == 2
    assert not out.exists()
    if kind != "csv":
        ran = run("merge", a, b, "--out", out)
        assert ran.code == 2
        assert f"{size - 1:,} are missing" in ran.err
        assert run("merge", a, b, "--partial", "--out", out).code == 0


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_shards_of_different_questions_are_not_mixed(run: Any, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x").mkdir()
    a, _ = write_shards(run, tmp_path, kind, 2)
    _, b = write_shards(run, tmp_path / "x", kind, 2, "--stack", "nemo_mcore_2024_25")
    ran = run("merge", a, b, "--out", tmp_path / f"out.{kind}")
    assert ran.code == 2
    assert "answer different questions: stack differ" in ran.err


def test_sweeps_of_different_columns_are_not_mixed(run: Any, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    a, _ = write_shards(run, tmp_path, "csv", 2)
    _, b = write_shards(run, tmp_path / "x", "csv", 2, "--columns", "tp")
    ran = run("merge", a, b, "--out", tmp_path / "out.csv")
    assert ran.code == 2
    assert "have different columns" in ran.err


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "first column must be row"),
        ("a,b\n1,2\n", "first column must be row"),
        ("row,tp\n0,1\nx,2\n", "is no row"),
        ("row,tp\n0,1\n1,2", "cut short"),
        ("row,tp\n1,1\n0,2\n", "ascending"),
        ("row,tp\n0,1\n0,2\n", "both hold rows"),
    ],
)
def test_csv_that_is_no_sweep_is_refused(
    run: Any, tmp_path: Path, content: str, named: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8")
    ran = run("merge", path, "--out", tmp_path / "out.csv")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert named in ran.err


def test_parquet_that_is_no_sweep_is_refused(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path, out = tmp_path / "a.parquet", tmp_path / "out.parquet"
    path.write_text("nothing of the kind", encoding="utf-8")
    assert run("merge", path, "--out", out).code == 2
    pd.DataFrame({"row": [0], "tp": [1]}).to_parquet(path)
    ran = run("merge", path, "--out", out)
    assert ran.code == 2
    assert "holds no sweep of scalemodel" in ran.err


def test_merging_reports_in_json_and_csv(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    files = write_shards(run, tmp_path, "parquet", 2)
    out, size = tmp_path / "out.parquet", SPACE.size(*asked())
    document = run("merge", *files, "--out", out, "--json").document
    assert document == {
        "out": str(out),
        "rows": [[0, size]],
        "rows_written": size,
        "space_rows": size,
    }
    (row,) = run("merge", *files, "--out", out, "--csv").rows
    assert row == {"rows_written": str(size), "space_rows": str(size)}


def test_a_shard_without_an_answer_is_no_failure(run: Any, tmp_path: Path) -> None:
    files = [tmp_path / "1.json", tmp_path / "2.json"]
    for i, path in enumerate(files, start=1):
        assert run("search", *TOO_LARGE, "--shard", f"{i}/2", "--out", path).code == 0
    ran = run("merge", *files)
    assert ran.code == 4  # now it is known that nothing fits
    assert ran.out == run("search", *TOO_LARGE).out
