"""Progress of work that takes longer than a second, told where somebody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from scalemodel.base.threads import progress_bar

#: What an argument `progress` takes: None tells on a terminal and in a notebook once a second has
#: passed, True shows a bar of tqdm, False nothing; or a function of (done, total).
Progress: TypeAlias = bool | Callable[[int, int], object] | None
#: Seconds before anything is told, and between two lines.
_PATIENCE_S, _BETWEEN_S = 1.0, 0.1


def _kernel() -> Any:
    """IPython where this process is the kernel of a notebook, else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return ipython if hasattr(shell, "kernel") else None


class _Line:
    """One line that is written over: on the error stream of a terminal, or in a notebook."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._began = self._told = time.monotonic()
        self._kernel = _kernel()
        self._shown: Any = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began < _PATIENCE_S or (done < total and now - self._told < _BETWEEN_S):
            return
        self._told = now
        self._write(f"{done:,} of {total:,}{self._unit}, {now - self._began:.0f} s")

    def _write(self, text: str) -> None:
        if self._kernel is None:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True
        elif self._shown is None:
            shown = self._kernel.display.HTML(text)
            self._shown = self._kernel.display.display(shown, display_id=True)
        else:
            self._shown.update(self._kernel.display.HTML(text))

    def close(self) -> None:
        """Take the line away."""
        if self._shown is not None:
            self._write("")


def _somebody_watches() -> bool:
    return _kernel() is not None or bool(getattr(sys.stderr, "isatty", lambda: False)())


#: Where nothing is told, which is what every shard of a search asks for.
_SILENT: AbstractContextManager[None] = nullcontext()


def watched(
    progress: Progress, total: int, unit: str
) -> AbstractContextManager[Callable[[int, int], object] | None]:
    """A function of work done and work in all, or None where nothing is told.

    Parameters
    ----------
    progress : bool, function or None
        See `Progress`.
    total : int
        Work in all.
    unit : str
        What is counted, with a space before it.

    Raises
    ------
    ScaleModelError : `progress` is none of these, or True without tqdm.

    Examples
    --------
    >>> seen = []
    >>> with watched(lambda done, total: seen.append((done, total)), 2, " points") as tell:
    ...     tell(1, 2)
    >>> seen
    [(1, 2)]
    """
    if progress is False:
        return _SILENT
    if progress is not None:
        return progress_bar(progress, total, unit)
    return _line(unit) if _somebody_watches() else _SILENT


@contextmanager
def _line(unit: str) -> Iterator[_Line]:
    line = _Line(unit)
    try:
        yield line
    finally:
        line.close()
