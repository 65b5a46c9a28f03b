"""How a program that asks a framework answers: one line of JSON for each job that it reads.

The programs of this folder run by interpreters of their own, which see this folder alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def answer(
    check: Callable[[dict[str, Any]], None], prepare: Callable[[], None] = lambda: None
) -> None:
    """Check each job of the list on standard input: an empty line, or what is refused.

    A job finds the variables as they were before the first, and what was prepared once.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the framework prints is no answer
    prepare()
    for job in json.load(sys.stdin):
        says = ""
        before = dict(os.environ)
        try:
            check(job)
        except (SystemExit, Exception) as error:
            says = f"{type(error).__name__}: {error}"
        os.environ.clear()
        os.environ.update(before)
        print(json.dumps(says), file=answers, flush=True)
