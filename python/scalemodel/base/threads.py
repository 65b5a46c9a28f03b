"""Threads of a call, and how it reports progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scalemodel.base.errors import ScaleModelError


def worker_threads(threads: int | None) -> int:
    """Threads to use: the given number, or SCALEMODEL_NUM_THREADS, or one per usable core.

    Inside a worker process whose OMP_NUM_THREADS is 1 (as Dask and joblib set it): one.
    """
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 1024:
            raise ScaleModelError(f"threads={threads!r}: must be a whole number from 1 to 1024")
        return threads
    named = os.environ.get("SCALEMODEL_NUM_THREADS")
    if named is not None:
        if not named.isdigit() or not 1 <= int(named) <= 1024:
            raise ScaleModelError(
                f"SCALEMODEL_NUM_THREADS={named!r}: must be a whole number from 1 to 1024"
            )
        return int(named)
    if os.environ.get("OMP_NUM_THREADS") == "1":
        return 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def progress_bar(
    wanted: bool | Callable[[int, int], object], total: int, unit: str = " rows"
) -> Iterator[Callable[[int, int], object] | None]:
    """What the engine calls with (rows done, rows in all); a bar of tqdm where that is there."""
    if callable(wanted):
        yield wanted
        return
    if not isinstance(wanted, bool):
        raise ScaleModelError(
            f"progress={wanted!r}: must be True, False or a function of (done, total)"
        )
    if not wanted:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ScaleModelError(
            'progress=True: pip install "scalemodel[notebook]"  (needed for tqdm), or pass a '
            "function of (done, total)",
            code="missing_extra",
        ) from None
    with tqdm(total=total, unit=unit, unit_scale=True, leave=False) as bar:

        def update(done: int, _: int) -> None:
            bar.update(done - bar.n)

        yield update
        bar.update(total - bar.n)
