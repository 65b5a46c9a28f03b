"""Refits the free constants of software stacks to a table of measured training steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.stack_choice import FITTED_CONSTANTS, with_plain_constants
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Row, SkippedRowError, Table, read_table
from scalemodel.validation.training import INPUT_COLUMNS, Question, question

if TYPE_CHECKING:
    import pandas as pd

CONSTANTS = FITTED_CONSTANTS
#: How hard constants are held near the plain stack's, over the square root of a stack's runs and
#: the range of a constant: a scatter of 6 % of a run (fitted stacks have a mean error of 5.5 %)
#: over a spread of 15 % of the range of an efficiency between stacks, .4, times the root of the
#: weight that the robust fit leaves such a run, .45 for twice its scale; with less than .3 one
#: stack asks for the end of a range. Few runs cannot drive a constant there that way.
PULL = 0.3

#: What `measured_step_time_s` judges a row by, beside its time.
JUDGED_COLUMNS = ("status", "complete", "quality", "fitted")


class Run(NamedTuple):
    """A run that constants may be fitted to: complete, believed, in steady state."""

    question: Question
    step_time_s: float
    source: str
    gpu: str
    measured: _core.MeasuredRun


def may_be_fitted(row: Row) -> bool:
    """Whether constants of stacks may be fitted to a row: nothing in its ``fitted`` is against it.

    The column says ``no`` where nothing was fitted to a row, and ``accelerator`` where only its
    accelerator's efficiency was.
    """
    return row.text("fitted") in ("", "yes")


def is_unseen(row: Row) -> bool:
    """Whether a row's table says that no constant at all was fitted to it.

    ``interval`` says so, too, and that its error made the intervals of runs of its kind.
    """
    return row.text("fitted") in ("no", "interval")


def measured_step_time_s(row: Row) -> float | None:
    """Measured seconds of a row that may be scored."""
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
        predictor.constants(asked),
        "host_launch_s" in dict(asked.facts),
    )


def read_runs(table: Table) -> list[Run]:
    """The runs of a table that constants may be fitted to: all but those that say otherwise.

    The weight of a run falls with the square root of the number of runs of its source and
    accelerator, so that no long table decides alone.
    """
    columns = [*INPUT_COLUMNS, "source", *JUDGED_COLUMNS, "norm_step_time_s"]
    asked: list[tuple[Question, float, tuple[str, str]]] = []
    for row in table.select(tuple(columns)):
        step_time_s = measured_step_time_s(row)
        if step_time_s is None or not may_be_fitted(row):
            continue
        try:
            asked.append((question(row), step_time_s, (row.text("source"), row.text("gpu"))))
        except SkippedRowError:
            continue
    groups = Counter(group for _, _, group in asked)
    predictor = Predictor(guarded=False)
    runs = []
    for case, step_time_s, group in asked:
        measured = _measured_run(predictor, case, step_time_s, groups[group] ** -0.5)
        if measured is not None:
            runs.append(Run(case, step_time_s, *group, measured))
    return runs


def _start(name: str) -> _core.Stack:
    """The facts of a stack with the constants of the plain one: where runs say nothing."""
    return with_plain_constants(resolve.stack(name))


def fit(name: str, runs: Sequence[Run]) -> tuple[_core.Stack, list[float], list[float]]:
    """Fits the constants of a stack: the stack, their standard errors, predicted seconds."""
    stack, errors, predicted = _core.fit_stack(_start(name), [run.measured for run in runs], PULL)
    return stack, list(errors), list(predicted)


def fit_stacks(path: str | Path | None = None, *, stacks: list[str] | None = None) -> pd.DataFrame:
    """Fits every stack that a table of measured runs names.

    Parameters
    ----------
    path : str or Path, optional
        CSV with the columns of ``validate("training", ...)`` and ``norm_step_time_s``; rows
        that `may_be_fitted` speaks against are left alone. Without it, the published runs of the
        package.
    stacks : list of str, optional
        Only these stacks.

    Returns
    -------
    DataFrame
        One row per stack and constant: stack, constant, value, standard_error, runs,
        mape_fraction.

    Raises
    ------
    ScaleModelError : the file cannot be read or holds no run to fit to.
    """
    import pandas as pd

    runs = read_runs(published_table("training") if path is None else read_table(path))
    results = []
    for name in sorted({run.question.stack for run in runs}):
        if stacks is not None and name not in stacks:
            continue
        own = [run for run in runs if run.question.stack == name]
        fitted, errors, predicted = fit(name, own)
        mape = sum(
            abs(p / run.step_time_s - 1) for p, run in zip(predicted, own, strict=True)
        ) / len(own)
        results += [
            (name, constant, getattr(fitted, constant), error, len(own), mape)
            for constant, error in zip(CONSTANTS, errors, strict=True)
        ]
    if not results:
        raise ScaleModelError(f"{path}: holds no measured run to fit a stack to")
    return pd.DataFrame(
        results,
        columns=["stack", "constant", "value", "standard_error", "runs", "mape_fraction"],
    )


# -------------------------------------------------------------------------------------- catalogue
_WEAK = 0.5  # of an efficiency, or of the range of launch times: no more than a prior
_LAUNCH_RANGE_S = 12e-6
_LINE = r"^{key} = \{{.*\}}$"


def _written(row: Any) -> str:
    """The line of a constant in a stack's file: value, and how far the runs determine it."""
    runs, mean = f"{row.runs} published runs", f"mean error {100 * row.mape_fraction:.1f} %"
    launch = row.constant == "host_launch_s"
    key = "host_launch" if launch else row.constant
    value = f'"{1e6 * row.value:.2f} us"' if launch else f"{round(row.value, 3)}"
    error = 1e6 * row.standard_error if launch else row.standard_error
    if error == 0:
        source = f"at the bound of its physical range; fitted to {runs}, {mean}"
    elif row.standard_error > _WEAK * (_LAUNCH_RANGE_S if launch else 1.0):
        size = f"{error:.1f}" if launch else f"{error:.2f}"
        source = f"weakly determined by {runs}, +-{size}; pulled towards the plain stack's value"
    else:
        source = f"fitted to {runs}, {mean}; +-{error:.2f}"
    return f'{key} = {{ value = {value}, source = "{source}" }}'


def write_constants(fitted: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the constants that `fit_stacks` gave into the stacks' files; all else in them stays.

    Parameters
    ----------
    fitted : DataFrame
        Of `fit_stacks`.
    folder : Path
        Of the stacks' TOML files.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ScaleModelError : a file is missing or has no line for one of the constants.
    """
    written = []
    for name, rows in fitted.groupby("stack"):
        path = folder / f"{name}.toml"
        if not path.is_file():
            raise ScaleModelError(f"{path}: no such stack")
        before, header, behind = path.read_text(encoding="utf-8").partition("[stack]\n")
        # Sections behind it state some of its keys for other jobs.
        section, end, others = behind.partition("\n[")
        for row in rows.itertuples():
            line = _written(row)
            pattern = re.compile(_LINE.format(key=line.split(" = ")[0]), re.MULTILINE)
            found = pattern.findall(section)
            if len(found) != 1:
                raise ScaleModelError(f"{path}: needs one line for {row.constant}")
            section = section.replace(found[0], line)
        path.write_text(before + header + section + end + others, encoding="utf-8")
        written.append(path)
    catalog.forget()
    return written
