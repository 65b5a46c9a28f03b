"""Work over a second tells how far it is, to those who watch and to nobody else."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base import progress
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import watched

TASK = sm.Training(global_batch=64, sequence=4096)
SPACE = sm.Space(tp=[1, 2], pp=1, cp=1, micro_batch=1, sharding="zero1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    return clock


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    # Not of the whole process: pytest puts its own stream there between setting up and the test.
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules=sys.modules))
    return stream


def test_a_terminal_sees_a_line_after_a_second(clock: Clock, terminal: Terminal) -> None:
    with watched(None, 10, " points") as tell:
        assert tell is not None
        tell(1, 10)
        assert terminal.getvalue() == ""
        clock.now += 1.5
        tell(2, 10)
        assert terminal.getvalue().endswith("2 of 10 points, 2 s")
        clock.now += 0.01
        tell(3, 10)
        assert "3 of 10" not in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_quick_work_says_nothing(clock: Clock, terminal: Terminal) -> None:
    with watched(None, 10, " points") as tell:
        assert tell is not None
        for done in range(11):
            tell(done, 10)
    assert terminal.getvalue() == ""


def test_the_line_goes_where_work_fails(clock: Clock, terminal: Terminal) -> None:
    def fail() -> None:
        with watched(None, 2, " points") as tell:
            assert tell is not None
            clock.now += 2
            tell(1, 2)
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert "1 of 2" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_without_a_terminal_nothing_is_written(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stream, modules=sys.modules))
    with watched(None, 2, " points") as tell:
        assert tell is None


def test_a_notebook_sees_a_line_that_goes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(text: str, display_id: bool) -> Any:
        assert display_id
        shown.append(text)
        return SimpleNamespace(update=shown.append)

    notebook = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=object()),
        display=SimpleNamespace(display=display, HTML=str),
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with watched(None, 3, " sections") as tell:
        assert tell is not None
        for done in range(1, 4):
            clock.now += 1
            tell(done, 3)
    assert shown == ["1 of 3 sections, 1 s", "2 of 3 sections, 2 s", "3 of 3 sections, 3 s", ""]


@pytest.mark.parametrize(
    "work",
    [
        lambda tell: sm.codesign(
            "llama3_8b",
            "dgx_h100",
            TASK,
            SPACE,
            vary={"fabric.bandwidth": [1, 2, 3]},
            progress=tell,
        ),
        lambda tell: sm.codesign.sensitivity(
            "llama3_8b", "dgx_h100", TASK, SPACE, paths="accelerator.peak", progress=tell
        ),
        lambda tell: sm.report("llama3_8b", sm.cluster("dgx_h100"), TASK, SPACE, progress=tell),
        lambda tell: sm.explain_choice(
            sm.search("llama3_8b", sm.cluster("dgx_h100"), TASK), progress=tell
        ),
    ],
    ids=["codesign", "sensitivity", "report", "explain_choice"],
)
def test_verbs_that_take_long_tell_a_function(work: Callable[[Any], object]) -> None:
    told: list[tuple[int, int]] = []
    work(lambda done, total: told.append((done, total)))
    assert len(told) > 1
    totals = {total for _, total in told}
    assert len(totals) == 1
    assert told == sorted(told)
    assert told[-1][0] >= told[-1][1] - 1


def test_what_is_no_progress_is_named() -> None:
    with (
        pytest.raises(ScaleModelError, match="progress="),
        watched("yes", 1, " points"),  # type: ignore[arg-type]
    ):
        pass
