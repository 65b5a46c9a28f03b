"""The check of words finds what has no place in the repository, and the repository is clean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def check_words(repository: Path) -> Path:
    """The checking script, which a source distribution may lack."""
    script = repository / ".ci" / "check_words.py"
    if not script.exists() or shutil.which("git") is None:
        pytest.skip("this source tree has no .ci, or git is not installed")
    return script


def offences(script: Path, root: Path) -> list[str]:
    """Lines the script prints about a repository; none when it exits with 0."""
    done = subprocess.run([sys.executable, script, root], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines() if done.returncode else []


def repository_with(root: Path, name: str, text: str) -> Path:
    """A git repository of one file."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("a matrix product", "GEMM"),
        ("rows are looked up in a look-up", "lookup"),
        ("what stays in the open", "exposed"),
        ("engines of that era", "version"),
        ("int kMostRanks = 8;", "kMax..."),
        ("engine.splits_prompts", "chunked_prefill"),
        ("an evicted sequence starts again", "preempted"),
    ],
)
def test_a_word_of_our_own_is_reported_with_the_field_s(
    check_words: Path, tmp_path: Path, text: str, instead: str
) -> None:
    (line,) = offences(check_words, repository_with(tmp_path, "cpp/x.cpp", f"\n// {text}\n"))
    assert line.startswith("cpp/x.cpp:2: ")
    assert instead in line


def test_a_former_key_may_be_read_where_it_is_quoted(check_words: Path, tmp_path: Path) -> None:
    text = 'formers = {"splits_prompts": "chunked_prefill"}\n'
    assert offences(check_words, repository_with(tmp_path, "python/x.py", text)) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("cpp/x.cpp", "// TO" + "DO\n", "unfinished work"),
        ("tests/x.py", "path = '/" + "home/me'\n", "a path of one machine"),
        ("tests/x.py", "path = '../sha" + "red'\n", "a path outside the repository"),
        ("notes.txt", "\n", "may not stand at the top"),
        ("tests/x.txt", "x" * 1_000_001, "bytes, more than"),
    ],
)
def test_other_offences_are_reported(
    check_words: Path, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (line,) = offences(check_words, repository_with(tmp_path, name, text))
    assert line.startswith(name)
    assert complaint in line
