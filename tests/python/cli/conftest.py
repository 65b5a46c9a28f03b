"""Fixtures of the tests of the command line."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from command_line import run_command
from scalemodel.cli import searches
from scalemodel.search import table_draft


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """A command run in this process: its exit code and both streams."""
    return functools.partial(run_command, capsys)


@pytest.fixture(params=[37, 200_000], ids=["many_chunks", "one_chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows that are handed on at once."""
    monkeypatch.setattr(searches, "CHUNK_ROWS", request.param)
    monkeypatch.setattr(table_draft, "_GROUP_ROWS", request.param)
    monkeypatch.setattr(table_draft, "_RECORD_ROWS", 0)
    return int(request.param)
