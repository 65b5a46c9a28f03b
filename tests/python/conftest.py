"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SUMMARY_LINE = "summary line"


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Directory of the measurement corpora, which the repository does not carry."""
    directory = Path(os.environ.get("SCALEMODEL_DATA") or REPOSITORY / "../shared/data").resolve()
    if not directory.is_dir():
        pytest.skip("measurement corpora not present")
    return directory


@pytest.fixture
def summary_line(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Add a line to the end of pytest's report, for results pytest cannot count itself."""

    def add(line: str) -> None:
        # A property of the test travels with its report, from other processes too.
        request.node.user_properties.append((SUMMARY_LINE, line))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the lines collected by `summary_line`."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "call":
                continue
            for name, line in report.user_properties:
                if name == SUMMARY_LINE:
                    terminalreporter.write_line(line)
