"""Ctrl-C while the program is still loading: it ends quietly, as it does later.

A library leaves signals alone. Only where `scalemodel` is the program of the process is the signal
taken over, from the first import to the command line, which handles the interruption itself.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

#: Exit code of an interrupted program.
INTERRUPTED = 130


def _quit(*_: object) -> NoReturn:
    os._exit(INTERRUPTED)


def _is_program() -> bool:
    """Whether the process was started as ``scalemodel`` or ``python -m scalemodel``."""
    name: str = (getattr(sys, "argv", None) or [""])[0]
    if name != "-m":  # while Python looks for the module it runs
        return os.path.basename(name) == "scalemodel"
    words = sys.orig_argv
    return words[words.index("-m") + 1 :][:1] == ["scalemodel"] if "-m" in words else False


def restore() -> None:
    """An interruption is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _quit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# At the import of this module, which is the package's first.
if _is_program() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _quit)
