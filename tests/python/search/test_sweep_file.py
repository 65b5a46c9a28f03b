"""Sweeps that go to a file as they come."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
import scalemodel._core as _core
from command_line import QUESTION, SMALL, run_command
from scalemodel.search import sweep_file, table_draft

KINDS = ["csv", "parquet"]
CHUNK = 37
SPACE = sm.Space(tp=(1, 2, 4), pp=1, cp=1)


def asked() -> Any:
    return "llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=8192), SPACE


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return tmp_path / f"rows.{request.param}"


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_file, "CHUNK_ROWS", CHUNK)
    monkeypatch.setattr(table_draft, "_GROUP_ROWS", 2 * CHUNK)
    monkeypatch.setattr(table_draft, "_RECORD_ROWS", 0)


def read(path: Path) -> pd.DataFrame:
    frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    return frame.set_index("row")


def assert_same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        found, wanted, check_dtype=False, check_categorical=False, rtol=0, atol=0
    )


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("columns", [None, ["step_time_s", "tp"], ["verdict"]])
def test_a_file_holds_the_rows_of_the_table(path: Path, columns: list[str] | None) -> None:
    whole = sm.sweep(*asked())
    written = sm.sweep(*asked(), columns=columns, out=path)
    assert_same(read(path), sm.sweep(*asked(), columns=columns))
    assert (written.path, written.rows) == (path, len(whole))
    assert written.rows > 3 * CHUNK
    assert written.counts == whole.verdict.value_counts()[lambda n: n > 0].to_dict()
    assert written.fastest == whole.tokens_per_s.where(whole.verdict == "ok").idxmax()
    assert os.listdir(path.parent) == [path.name]


def test_a_space_without_strategies_has_an_empty_file(path: Path) -> None:
    model, cluster, task, _ = asked()
    none = sm.Space(tp=7)
    written = sm.sweep(model, cluster, task, none, out=str(path))
    assert (written.rows, written.counts, written.fastest) == (0, {}, None)
    assert list(read(path).columns) == list(sm.sweep(model, cluster, task, none).columns)


def test_the_command_line_writes_the_same_file(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / f"other{path.suffix}"
    assert run_command(capsys, "sweep", *QUESTION, *SMALL, "--out", other).code == 0
    model, cluster, task, _ = asked()
    sm.sweep(model, cluster, task, sm.Space(pp=1, cp=1, micro_batch=(1, 2)), out=path)
    assert path.read_bytes() == other.read_bytes()


@pytest.mark.usefixtures("short_chunks")
def test_memory_holds_one_part_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, told = [], []
    whole = _core.sweep

    def counted(tables: Any, rows: Any, first: int, last: int, *further: Any) -> Any:
        sizes.append(last - first)
        return whole(tables, rows, first, last, *further)

    monkeypatch.setattr(_core, "sweep", counted)
    written = sm.sweep(*asked(), out=path, progress=lambda done, of: told.append((done, of)))
    assert sum(sizes) == written.rows
    assert max(sizes) == CHUNK
    assert told == sorted(told)
    assert told[-1] == (written.rows, written.rows)
    assert {of for _, of in told} == {written.rows}


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("kept", [False, True])
def test_an_interrupt_leaves_what_was_there(
    path: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept:
        path.write_text("before")
    whole = _core.sweep

    def interrupted(tables: Any, rows: Any, first: int, *further: Any) -> Any:
        if first >= 3 * CHUNK:
            signal.raise_signal(signal.SIGINT)
        return whole(tables, rows, first, *further)

    monkeypatch.setattr(_core, "sweep", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            sm.sweep(*asked(), out=path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.listdir(path.parent) == ([path.name] if kept else [])
    assert not kept or path.read_text() == "before"


@pytest.mark.parametrize("limit", [4096, 60_000])
def test_a_full_disk_is_said_and_leaves_nothing(path: Path, limit: int) -> None:
    """Files of this process end after some bytes, in the first part or at the end of the table."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(sm.ScaleModelError, match="cannot be written") as caught:
            sm.sweep(*asked(), out=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert caught.value.code == "unwritable_file"
    assert str(caught.value) == f"out={str(path)!r}: cannot be written (File too large)"
    assert os.listdir(path.parent) == []


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    sweep: Any = sm.sweep
    out = tmp_path / "rows.csv"
    for wrong in (tmp_path / "rows.txt", 7, True):
        with pytest.raises(sm.ScaleModelError, match=r"out=.*: must"):
            sweep(*asked(), out=wrong)
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(sm.ScaleModelError, match=r"out=.*leave out executor and shards"),
    ):
        sweep(*asked(), out=out, executor=pool)
    composed = sm.compose("two", groups=[sm.Mlp(name="mlp", widths=(64, 64))])
    with pytest.raises(sm.ScaleModelError, match=r"out=.*decoders only"):
        sweep(composed, asked()[1], asked()[2], out=out)
    missing = tmp_path / "none" / "rows.csv"
    with pytest.raises(sm.ScaleModelError, match="cannot be written"):
        sweep(*asked(), out=missing)
    assert os.listdir(tmp_path) == []
