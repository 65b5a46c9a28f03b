"""The timeline of a step: what runs when on each pipeline stage, and what memory holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import write_whole
from scalemodel.estimator.evaluation import Evaluation, tables_for
from scalemodel.estimator.verdicts import verdict_message

if TYPE_CHECKING:
    import pandas as pd


_EVENT_COLUMNS = (
    "rank",
    "stream",
    "name",
    "kind",
    "chunk",
    "micro_batch",
    "start_s",
    "duration_s",
    "bytes",
)

_BLOCK = 1 << 16  # events named at a time


class Timeline:
    """One training step as events on one representative rank per pipeline stage.

    Made by `Estimate.timeline`, with the costs of that estimate; picklable.

    Attributes
    ----------
    estimate : Estimate
        The question and its closed-form answer.
    options : _core.TimelineOptions
        Order of traffic, slices, compression, contention.
    slowdown : tuple of float
        Factor of each stage's kernels; empty where nothing straggles.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
    >>> timeline = est.timeline()
    >>> bool(abs(timeline.step_time_s / est.step_time_s - 1) < 0.03)
    True
    >>> slower = est.timeline(slowdown=[1, 1, 1, 1.5])
    >>> bool(slower.step_time_s > 1.2 * timeline.step_time_s)
    True
    """

    def __init__(
        self,
        est: Evaluation,
        options: _core.TimelineOptions,
        slowdown: Sequence[float] = (),
    ) -> None:
        if est.illegal:
            raise ScaleModelError(verdict_message(est), code=est.reason)
        self.estimate = est
        self.options = options
        self.slowdown = _checked_slowdown(slowdown, est.strategy.pp)
        self._tables = tables_for(est.model, est.cluster, est.task, est.stack)
        self.core = _core.timeline(self._tables, est.strategy, options, list(self.slowdown))

    def __repr__(self) -> str:
        return (
            f"Timeline(step {self.step_time_s:.4g} s, {self.core.stages} ranks, "
            f"{self.core.passes} passes)"
        )

    def __reduce__(self) -> tuple[type[Timeline], tuple[object, ...]]:
        return type(self), (self.estimate, self.options, self.slowdown)

    @property
    def step_time_s(self) -> float:
        """One optimizer step, from its first event to the end of its last."""
        return float(self.core.step_time_s)

    @property
    def period_s(self) -> float:
        """From the start of a step to that of the next: what the estimate calls its step time.

        Less than `step_time_s` under ``schedule="zero_bubble_2p"``, whose stages start their next
        step without waiting for each other (arXiv 2401.10241, section 4); else the same.
        """
        return float(self.core.period_s)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Every event by rank and stream, then in time.

        Columns rank, stream, name, kind, chunk, micro_batch, start_s, duration_s, bytes. Events of
        one stream do not overlap. A pass begins with its kernels; an event of a communicator ends
        where its exposed part does and lies, as far as it is hidden, under the kernels. `chunk` and
        `micro_batch` are -1 where they mean nothing.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> events = est.timeline().events
        >>> events[events.kind == "forward"].groupby("rank").size().tolist()
        [64, 64, 64, 64]
        """
        return _event_table(self.core.events(), self.core.chunks_per_stage)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Bytes of every kind on each rank, one row per change, by rank and then in time.

        Columns rank, time_s, ``memory_<kind>_bytes`` and their sum ``memory_bytes``. The last row
        of a rank is what it holds between steps.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> memory = est.timeline().memory
        >>> int(memory.groupby("rank").memory_bytes.max().idxmax()) == est.fullest_stage
        True
        """
        import pandas as pd

        return pd.DataFrame(self.core.memory())

    def critical_path(self) -> pd.DataFrame:
        """Chain of events that makes the step as long as it is.

        Returns
        -------
        DataFrame
            Columns of `events`, in time. Each row starts where the one before it ends; the
            durations sum to `step_time_s`.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> timeline = est.timeline()
        >>> bool(abs(timeline.critical_path().duration_s.sum() - timeline.step_time_s) < 1e-9)
        True
        """
        return _event_table(self.core.critical_path(), self.core.chunks_per_stage)

    def trace(self, path: str | os.PathLike[str], *, operators: bool = False) -> Path:
        """Write the events as JSON that chrome://tracing and ui.perfetto.dev open.

        Parameters
        ----------
        path : path
            File to write; by custom it ends in ``.json``.
        operators : bool
            Break every pass down into the kernels of its layers: larger files.

        Returns
        -------
        Path
            Of the file: a process per rank, a thread per stream, arrows along transfers, memory as
            a counter.

        Examples
        --------
        >>> import json, tempfile, scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = est.timeline().trace(folder + "/step.json")
        ...     sorted(json.loads(file.read_text()))
        ['displayTimeUnit', 'traceEvents']
        """
        strategy = self.estimate.strategy if operators else None
        file = Path(path)
        write_whole(file, self.core.trace(self._tables, strategy))
        return file


def draw_slowdown(est: Evaluation, seed: int) -> list[float]:
    """Factors by which the stages of the slowest replica straggle; see `Estimate.draw_slowdown`."""
    if est.illegal:
        raise ScaleModelError(verdict_message(est), code=est.reason)
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
        raise ScaleModelError(f"seed={seed!r}: must be a whole number from 0 to 2**63 - 1")
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    return list(_core.draw_slowdown(tables, est.strategy, int(seed)))


def _checked_slowdown(slowdown: Sequence[float], stages: int) -> tuple[float, ...]:
    """Factors as floats, one per stage, or none."""
    legal = f"must be {stages} numbers > 0, one per pipeline stage"
    try:
        factors = tuple(float(factor) for factor in slowdown)
    except (TypeError, ValueError):
        raise ScaleModelError(f"slowdown={slowdown!r}: {legal}") from None
    wrong = not all(np.isfinite(factors)) or any(factor <= 0 for factor in factors)
    if wrong or (factors and len(factors) != stages):
        raise ScaleModelError(f"slowdown={slowdown!r}: {legal}")
    return factors


def _event_table(columns: dict[str, Any], chunks: int) -> pd.DataFrame:
    """Columns of the engine with names in place of codes."""
    import pandas as pd

    kinds, streams = list(_core.ACTIVITIES), list(_core.STREAMS)
    kind_codes, chunk_codes = columns["kind"], columns["chunk"]
    events, width = len(kind_codes), chunks + 1
    # In blocks that a cache holds: what is new for millions of events is their codes alone.
    blocks = [slice(begin, begin + _BLOCK) for begin in range(0, events, _BLOCK)]

    def codes_of(block: slice) -> Any:
        return kind_codes[block].astype(np.int32) * width + chunk_codes[block] + 1

    counts = np.zeros(len(kinds) * width, dtype=np.int64)
    for block in blocks:
        counts += np.bincount(codes_of(block), minlength=len(counts))
    name_of_code = np.zeros(len(counts), dtype=np.int16)
    names: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        kind, chunk = kinds[code // width], code % width - 1
        words = kind.replace("_", " ")
        # With one chunk, events with and without it read alike: categories must not.
        name = f"{words}, chunk {chunk}" if chunk >= 0 and chunks > 1 else words
        name_of_code[code] = names.setdefault(name, len(names))
    name_codes = np.empty(events, dtype=np.min_scalar_type(-max(1, len(names))))
    for block in blocks:
        name_codes[block] = name_of_code[codes_of(block)]
    named = {
        "stream": (columns["stream"], streams),
        "kind": (columns["kind"], kinds),
        "name": (name_codes, list(names)),
    }
    found: dict[str, Any] = {}
    for column in _EVENT_COLUMNS:
        if column in named:
            column_codes, values = named[column]
            dtype = pd.CategoricalDtype(values)
            found[column] = pd.Categorical.from_codes(column_codes, dtype=dtype)
        else:
            found[column] = columns[column]
    return pd.DataFrame(found, copy=False)
