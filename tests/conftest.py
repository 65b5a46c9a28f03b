"""How hypothesis runs everywhere, no figure that outlives its test, which tests count lines, and
lines of tests at the end of pytest's report.

Here and not further down: where tests run in several processes, only this file is read in the one
that reports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator

import pytest
from hypothesis import settings

SUMMARY_LINE = "summary line"

# An id that no catalogue has is asked of the Hugging Face Hub where its library is installed.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# No time limit per example, and repeatable where CI is set.
settings.register_profile("scalemodel", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("scalemodel")


class ClosedFigures:
    """Closes what a test left open, so that none finds the figures of another.

    Registered rather than written as a fixture: the examples of docstrings, which are no place to
    tidy up in, lie outside of this directory.
    """

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        """After all fixtures have ended."""
        if pyplot := sys.modules.get("matplotlib.pyplot"):
            pyplot.close("all")


class PausedCoverage:
    """Counts no lines where a test runs the same ones over and over, each of which others run too:
    counting takes three times as long as the test.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Its fixtures included."""
        counting = getattr(item.config.pluginmanager.getplugin("_cov"), "cov_controller", None)
        marked = item.get_closest_marker("repeats") is not None
        repeats = marked or {"laws", "fuzz", "test_accuracy.py"} & set(item.path.parts)
        if counting is None or not repeats:
            return (yield)
        counting.pause()
        try:
            return (yield)
        finally:
            counting.resume()


def pytest_configure(config: pytest.Config) -> None:
    """Where this file is read late, too."""
    config.pluginmanager.register(ClosedFigures())
    config.pluginmanager.register(PausedCoverage())
    # Several processes take files in their order, not those of many tests first: see below.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The build of the C++ tests first: nothing takes longer, and the others run beside it."""
    items.sort(key=lambda item: item.path.name != "test_cpp.py")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Keeps what a run leaves out, for a test that looks at all that there is."""
    if items:
        option = items[0].config.option
        option.left_out = [*getattr(option, "left_out", ()), *items]


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
