"""Work of a library that hears no interrupt: it is done beside the thread that does."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any


def in_background(work: Callable[[], Any], cancel: Callable[[], object] | None = None) -> Any:
    """What `work` returns or raises; an interrupt leaves it at once.

    Such work goes on behind an interrupt until it ends by itself or `cancel` has told it to: what
    cannot be told should have a limit of time. It must let go of the interpreter's lock.

    Examples
    --------
    >>> in_background(lambda: 6 * 7)
    42
    """
    answers: list[Any] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as failure:
            failures.append(failure)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        if cancel is not None:
            cancel()
        raise
    if failures:
        raise failures[0]
    return answers[0]
