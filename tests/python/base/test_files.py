"""What is written is whole or not there: two writers, full disks, links, killed processes."""

from __future__ import annotations

import functools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
import scalemodel._core as _core
from command_line import QUESTION, SMALL, run_command
from scalemodel.base import files
from scalemodel.base.files import write_whole
from scalemodel.cli import searches

KINDS = ["csv", "parquet"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    return functools.partial(run_command, capsys)


def command(*words: object, head: str = "", **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, after some lines of Python."""
    script = f"{head}\nimport sys\nfrom scalemodel import cli\nsys.exit(cli.main())"
    arguments = [sys.executable, "-c", script, *map(str, words)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(arguments, **options)


# ------------------------------------------------------------------------------------ two writers
def test_a_file_has_one_writer(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with files.replacing(path) as draft:
        draft.write_text("first")
        busy = pytest.raises(sm.ScaleModelError, match="another process is writing it")
        with busy, files.replacing(path):
            pytest.fail("two writers")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_the_second_sweep_to_a_file_is_refused_before_it_works(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    head = "from scalemodel.cli import searches; searches.CHUNK_ROWS = 1"  # the first takes long
    first = command("sweep", *QUESTION, "--out", path, head=head)
    try:
        draft = tmp_path / ".rows.csv.incomplete"
        while not draft.exists():
            assert first.poll() is None
            time.sleep(0.01)
        second = run("sweep", *QUESTION, *SMALL, "--out", path)
        assert (second.code, second.out) == (2, "")
        assert f"out='{path}': another process is writing it" in second.err
        assert first.poll() is None
        assert draft.exists()
    finally:
        first.kill()
        first.communicate()
    assert run("sweep", *QUESTION, *SMALL, "--out", path).code == 0
    assert os.listdir(tmp_path) == ["rows.csv"]


# ------------------------------------------------------------------------------- disks and links
def test_a_link_stays_a_link(run: Any, tmp_path: Path) -> None:
    target, link = tmp_path / "kept" / "rows.csv", tmp_path / "rows.csv"
    target.parent.mkdir()
    link.symlink_to(target)
    assert run("sweep", *QUESTION, *SMALL, "--out", link).code == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("row,")
    assert os.listdir(target.parent) == ["rows.csv"]


def test_devices_are_written_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "page.html").symlink_to("/dev/null")
    with files.replacing(tmp_path / "page.html") as draft:
        draft.write_text("text")
    assert Path("/dev/null").is_char_device()


# Files of this process end after 4,096 bytes, as those on a full disk do.
FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["sweep"], "rows.csv"),
        (["sweep"], "rows.parquet"),
        (["search"], "best.json"),
        (["report", "--top", "2"], "page.html"),
    ],
)
def test_a_full_disk_leaves_what_was_there(words: list[str], name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("before")
    process = command(words[0], *QUESTION, *SMALL, *words[1:], "--out", path, head=FULL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert err == f"scalemodel: error: out='{path}': cannot be written (File too large)\n"
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == [name]


def test_a_full_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        process = command("estimate", *QUESTION, "--json", stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == (
        "scalemodel: error: standard output: cannot be written (No space left on device)\n"
    )


# ----------------------------------------------------------------------------------------- resume
CHUNK = 100
# The process kills itself before it asks for its fourth chunk.
KILLED = f"""
import os, signal
from scalemodel import _core
from scalemodel.cli import searches
searches.CHUNK_ROWS = {CHUNK}
whole = _core.sweep
def sweep(tables, rows, first, *further):
    if first >= {3 * CHUNK}:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(tables, rows, first, *further)
_core.sweep = sweep
"""


def killed(path: Path, *words: object) -> None:
    """What a sweep leaves that is killed after three chunks."""
    process = command("sweep", *QUESTION, *SMALL, "--out", path, *words, head=KILLED)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert not path.exists()


@pytest.fixture
def asked_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """First rows of the chunks that the engine is asked for, in chunks of `CHUNK` rows."""
    whole, firsts = _core.sweep, []

    def sweep(tables: Any, rows: Any, first: int, *further: Any) -> Any:
        firsts.append(first)
        return whole(tables, rows, first, *further)

    monkeypatch.setattr(searches, "CHUNK_ROWS", CHUNK)
    monkeypatch.setattr(_core, "sweep", sweep)
    return firsts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [(), ("--columns", "tp", "step_time_s")], ids=["all", "two"])
def test_a_killed_sweep_goes_on_where_it_was(
    run: Any, tmp_path: Path, kind: str, columns: tuple[str, ...], asked_rows: list[int]
) -> None:
    path, whole = tmp_path / f"rows.{kind}", tmp_path / f"whole.{kind}"
    killed(path, *columns)
    resumed = run("sweep", *QUESTION, *SMALL, *columns, "--out", path, "--resume")
    assert resumed.code == 0
    assert asked_rows[0] == 3 * CHUNK
    uncut = run("sweep", *QUESTION, *SMALL, *columns, "--out", whole)
    assert path.read_bytes() == whole.read_bytes()
    assert resumed.out.replace(str(path), "FILE") == uncut.out.replace(str(whole), "FILE")
    assert sorted(os.listdir(tmp_path)) == sorted([path.name, whole.name])


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_chunk_is_written_again(
    run: Any, tmp_path: Path, kind: str, asked_rows: list[int]
) -> None:
    path, whole = tmp_path / f"rows.{kind}", tmp_path / f"whole.{kind}"
    killed(path)
    chunks, journal = (tmp_path / f".{path.name}.{name}" for name in ("chunks", "journal"))
    chunks.write_bytes(chunks.read_bytes()[:-7])
    journal.write_bytes(journal.read_bytes() + b'{"rows": 4')
    assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 0
    assert asked_rows[0] == 2 * CHUNK
    assert run("sweep", *QUESTION, *SMALL, "--out", whole).code == 0
    assert path.read_bytes() == whole.read_bytes()


def test_every_row_may_be_there_already(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "rows.parquet", tmp_path / "whole.parquet"
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 130
    monkeypatch.undo()
    assert not path.exists()
    assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 0
    assert run("sweep", *QUESTION, *SMALL, "--out", whole).code == 0
    assert path.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--pp", "1", "2", "--cp", "1", "--micro-batch", "1", "2"], "space differ"),
        ([*SMALL, "--columns", "tp"], "columns differ"),
        ([*SMALL, "--shard", "1/2"], "is of another shard"),
    ],
)
def test_a_draft_of_another_question_is_refused_and_kept(
    run: Any, tmp_path: Path, words: list[str], reason: str, asked_rows: list[int]
) -> None:
    path = tmp_path / "rows.csv"
    killed(path)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}
    ran = run("sweep", *QUESTION, *words, "--out", path, "--resume")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert reason in ran.err
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
    assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 0
    assert asked_rows[0] == 3 * CHUNK


def test_a_damaged_draft_is_refused(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    killed(path)
    journal = tmp_path / ".rows.csv.journal"
    journal.write_bytes(journal.read_bytes().replace(b'"rows": 200', b'"lines": 200'))
    ran = run("sweep", *QUESTION, *SMALL, "--out", path, "--resume")
    assert (ran.code, "is damaged" in ran.err) == (2, True)
    assert run("sweep", *QUESTION, *SMALL, "--out", path).code == 0  # starts anew
    assert os.listdir(tmp_path) == ["rows.csv"]


def test_an_interrupted_sweep_that_may_resume_keeps_its_draft(
    run: Any, tmp_path: Path, asked_rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = tmp_path / "rows.csv", _core.sweep

    def interrupted(tables: Any, rows: Any, first: int, *further: Any) -> Any:
        if first >= 2 * CHUNK:
            raise KeyboardInterrupt
        return whole(tables, rows, first, *further)

    with monkeypatch.context() as patch:
        patch.setattr(_core, "sweep", interrupted)
        assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 130
    asked_rows.clear()
    assert run("sweep", *QUESTION, *SMALL, "--out", path, "--resume").code == 0
    assert asked_rows[0] == 2 * CHUNK


def test_only_files_are_resumed(run: Any) -> None:
    ran = run("sweep", *QUESTION, *SMALL, "--resume")
    assert (ran.code, "--out" in ran.err) == (2, True)


# ---------------------------------------------------------------------------------------- signals
#: Interrupts its own process when a certain module is asked for; Python loads it by itself.
INTERRUPTING = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize(
    "module", ["scalemodel._core", "numpy", "scalemodel.resolve.models", "scalemodel.cli.searches"]
)
def test_an_interruption_of_the_imports_is_quiet(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(module=module))
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "scalemodel", "sweep", *QUESTION, "--count"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        # Whoever started these tests in the background has interruptions ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr, done.stdout) == (130, "", "")


def test_a_short_file_is_whole_or_not_there(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (tmp_path / "old").write_text("old")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        for name in ("new", "old"):
            with pytest.raises(OSError):
                write_whole(tmp_path / name, bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert sorted(os.listdir(tmp_path)) == ["old"]
    assert (tmp_path / "old").read_text() == "old"


def test_an_interrupted_short_file_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "new", "text")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has this device")
def test_a_full_disk_is_told_of() -> None:
    with pytest.raises(OSError):
        write_whole("/dev/full", "text")
