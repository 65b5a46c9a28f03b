"""Errors of predicted generations, exchanges, transfers and rates: per what ran, and pooled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from scalemodel.validation.errors import (
    GroupErrors,
    cells_of,
    error_lines,
    grouped,
    positive,
    share_text,
    without_nan,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SecondsScores:
    """All scores of a table of composed models, exchanges or rates; `text` prints them."""

    groups: list[GroupErrors]
    pooled: GroupErrors
    rows: int
    rows_predicted: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and dicts; NaN becomes None."""
        return {name: without_nan(value) for name, value in asdict(self).items()}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The tables of errors by name, all with the same columns."""
        document = self.to_dict()
        return {"groups": document["groups"], "pooled": [document["pooled"]]}

    def text(self) -> str:
        """Tables for a terminal; errors in percent."""
        lines = error_lines([*self.groups, self.pooled], ("runs", "gpu"), ranked=False)
        return "\n".join([*lines, "", f"coverage: {share_text(self.rows_predicted, self.rows)}"])


def _pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, float, float | None]]:
    """Run and model, accelerator, measured and predicted seconds of every measured row.

    A row that states a rate alone is compared by the seconds of a sample.
    """
    names = (
        *("task", "model", "gpu", "step_time_s", "latency_s", "samples_per_s"),
        *("predicted_step_time_s", "predicted_latency_s", "predicted_samples_per_s"),
    )
    present = [name if name in frame.columns else None for name in names]
    blank = [""] * len(frame)
    cells = [blank if name is None else cells_of(frame, name) for name in present]
    for task, model, gpu, *numbers in zip(*cells, strict=True):
        step, latency, rate, step_found, latency_found, rate_found = map(positive, numbers)
        run = f"{task} {model}"
        if step is not None:
            yield run, str(gpu), step, step_found
        elif latency is not None:
            yield run, str(gpu), latency, latency_found
        elif rate is not None:
            yield run, str(gpu), 1 / rate, None if rate_found is None else 1 / rate_found


def _exchange_pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, float, float | None]]:
    """Library or system, accelerator, measured and predicted time of every measured row.

    A row that states a rate alone is compared by the time of a gigabyte.
    """
    names = (
        *("library", "kernel", "system", "gpu", "latency_us", "duration_ms", "bandwidth_GB_s"),
        *("predicted_latency_us", "predicted_bandwidth_GB_s"),
    )
    blank = [""] * len(frame)
    cells = [cells_of(frame, name) if name in frame.columns else blank for name in names]
    for library, kernel, system, gpu, *numbers in zip(*cells, strict=True):
        latency, duration, rate, latency_found, rate_found = map(positive, numbers)
        what = str(system) or f"{library}, {kernel}"
        if latency is None and duration is not None:
            latency = 1e3 * duration
        if latency is not None:
            yield what, str(gpu), latency, latency_found
        elif rate is not None:
            yield what, str(gpu), 1 / rate, None if rate_found is None else 1 / rate_found


def _rate_pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, float, float | None]]:
    """Engine and phase, accelerator, measured and predicted rate of every row that states one.

    A load bounds a capacity from below: one that is within it says nothing of an error.
    """
    names = (
        *("engine", "phase", "gpu", "tokens_per_s_gpu", "predicted_tokens_per_s_gpu"),
        "predicted_utilisation_fraction",
    )
    blank = [""] * len(frame)
    cells = [cells_of(frame, name) if name in frame.columns else blank for name in names]
    for engine, phase, gpu, rate, rate_found, used in zip(*cells, strict=True):
        measured, load = positive(rate), positive(used)
        if measured is not None and not (load is not None and load <= 1):
            yield f"{engine}, {phase}", str(gpu), measured, positive(rate_found)


def rates(frame: pd.DataFrame) -> SecondsScores:
    """Compare the rates of deployments with wide expert parallelism with those beside them."""
    return _scores(frame, list(_rate_pairs(frame)))


_PHASES = ("step_time", "rollout", "logprob", "train", "refit")


def _phase_pairs(frame: pd.DataFrame) -> Iterable[tuple[str, str, float, float | None]]:
    """Framework, model and phase, accelerator, measured and predicted seconds where published."""
    names = ("framework", "model", "gpu", "quality")
    labels = [cells_of(frame, name) for name in names]
    for phase in _PHASES:
        cells = [cells_of(frame, f"{kind}{phase}_s") for kind in ("", "predicted_")]
        for framework, model, gpu, quality, measured, found in zip(*labels, *cells, strict=True):
            seconds = positive(measured)
            if seconds is not None and str(quality) != "C":
                run = f"{framework} {model}: {phase.removesuffix('_time')}"
                yield run, str(gpu), seconds, positive(found)


def phases(frame: pd.DataFrame) -> SecondsScores:
    """The same of steps of reinforcement learning, phase by phase; pooled over whole steps."""
    pairs = list(_phase_pairs(frame))
    scores = _scores(frame, pairs)
    steps = [pair for pair in pairs if pair[0].endswith(": step")]
    return replace(scores, pooled=_scores(frame, steps).pooled)


def score(frame: pd.DataFrame) -> SecondsScores:
    """Compare the seconds of `validate` with those beside them."""
    return _scores(frame, list(_pairs(frame)))


def exchanges(frame: pd.DataFrame) -> SecondsScores:
    """The same of exchanges with experts and transfers of KV caches."""
    return _scores(frame, list(_exchange_pairs(frame)))


def _scores(
    frame: pd.DataFrame, pairs: list[tuple[str, str, float, float | None]]
) -> SecondsScores:
    return SecondsScores(
        groups=[
            GroupErrors.of(*labels, [pair[2:] for pair in group], ranked=False)
            for labels, group in grouped(pairs, lambda pair: pair[:2]).items()
        ],
        pooled=GroupErrors.of("all measured rows", "", [pair[2:] for pair in pairs], ranked=False),
        rows=len(frame),
        rows_predicted=sum(cell == "" for cell in cells_of(frame, "skip_reason")),
    )
