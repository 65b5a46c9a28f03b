"""Refits the free constants of software stacks to a table of measured training steps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel import _core, resolve
from scalemodel.errors import ScaleModelError
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.rows import SkippedRowError, read_table
from scalemodel.validation.training import INPUT_COLUMNS, Question, question

if TYPE_CHECKING:
    import pandas as pd

CONSTANTS = ("gemm_efficiency", "memory_efficiency", "host_launch_s", "overlap_efficiency")


def _measured_step_time_s(row: Any) -> float | None:
    """Measured seconds of a row that may be fitted to: complete, believed, steady state."""
    if row.text("status") not in ("", "ok") or row.text("complete") not in ("", "yes"):
        return None
    if row.text("quality") not in ("", "A", "B"):
        return None
    value = row.number("norm_step_time_s")
    return float(value) if value is not None and value > 0 else None


def _measured_run(
    predictor: Predictor, asked: Question, step_time_s: float, weight: float
) -> _core.MeasuredRun | None:
    estimates = predictor.candidates(asked)
    if not estimates:
        return None
    first = estimates[0]
    return _core.MeasuredRun(
        first.model.core,
        first.cluster.core,
        first.task.core,
        [estimate.strategy for estimate in estimates],
        step_time_s,
        weight,
    )


def _start(name: str) -> _core.Stack:
    """The facts of a stack with the constants of the plain one: where runs say nothing."""
    plain = resolve.stack("plain")
    return resolve.stack(name).replace(
        **{constant: getattr(plain, constant) for constant in CONSTANTS}
    )


def fit_stacks(path: str | Path, *, stacks: list[str] | None = None) -> pd.DataFrame:
    """Fits every stack that a table of measured runs names.

    Parameters
    ----------
    path : str or Path
        CSV with the columns of ``validate("training", ...)`` and ``norm_step_time_s``.
    stacks : list of str, optional
        Only these stacks.

    Returns
    -------
    DataFrame
        One row per stack and constant: stack, constant, value, standard_error, runs,
        mape_fraction. The weight of a run falls with the square root of the number of runs of its
        source and accelerator, so that no long table decides alone.

    Raises
    ------
    ScaleModelError : the file cannot be read or holds no run to fit to.
    """
    import pandas as pd

    table = read_table(path)
    columns = [*INPUT_COLUMNS, "source", "status", "complete", "quality", "norm_step_time_s"]
    asked: list[tuple[Question, float, tuple[str, str]]] = []
    for row in table.select(tuple(columns)):
        step_time_s = _measured_step_time_s(row)
        if step_time_s is None:
            continue
        try:
            asked.append((question(row), step_time_s, (row.text("source"), row.text("gpu"))))
        except SkippedRowError:
            continue
    groups = Counter(group for _, _, group in asked)
    predictor = Predictor()
    results = []
    for name in sorted({item[0].stack for item in asked}):
        if stacks is not None and name not in stacks:
            continue
        runs, measured = [], []
        for case, step_time_s, group in asked:
            if case.stack == name:
                run = _measured_run(predictor, case, step_time_s, groups[group] ** -0.5)
                if run is not None:
                    runs.append(run)
                    measured.append(step_time_s)
        if not runs:
            continue
        fitted, errors, predicted = _core.fit_stack(_start(name), runs)
        mape = sum(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True)) / len(runs)
        results += [
            (name, constant, getattr(fitted, constant), error, len(runs), mape)
            for constant, error in zip(CONSTANTS, errors, strict=True)
        ]
    if not results:
        raise ScaleModelError(f"{path}: holds no measured run to fit a stack to")
    return pd.DataFrame(
        results,
        columns=["stack", "constant", "value", "standard_error", "runs", "mape_fraction"],
    )
