"""Designs asked of Optuna in batches, for spaces too large or too fine for a grid."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.codesign.study import (
    ASKED,
    Study,
    best_design,
    row_of,
    sign_of,
    table_of,
)
from scalemodel.codesign.vary import Hardware, Setting
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import Objective
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

_SPACINGS = ("log", "linear")
_KNOB = "strategy."


@dataclass(frozen=True)
class Optimisation:
    """What `optimise` found.

    Attributes
    ----------
    study : DataFrame
        Every asked design in the order of asking; columns as of `codesign`.
    best : Series or None
        Its best row; None where nothing fits anywhere.

    Examples
    --------
    >>> found = Optimisation(study=None, best=None)
    >>> found.best is None  # nothing fits anywhere
    True
    """

    study: pd.DataFrame
    best: pd.Series[Any] | None


def _optuna() -> Any:
    try:
        return importlib.import_module("optuna")
    except ImportError:
        raise ScaleModelError(
            'pip install "scalemodel[opt]"  (needed for codesign.optimise)', code="missing_extra"
        ) from None


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """No log lines and no notices about experimental parts while Optuna works."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


class _Axis:
    """A quantity that Optuna chooses: one of some settings, or anything between two."""

    def __init__(self, hardware: Hardware, path: str, given: Any) -> None:
        self.path, self.hardware = path, hardware
        self.ends: tuple[float, float] | None = None
        self.settings: list[Setting] = []
        if not (isinstance(given, tuple) and given and given[0] in _SPACINGS):
            self.settings = hardware.settings(path, given)
            return
        if len(given) != 3:
            raise ScaleModelError(f"{path}={given!r}: must be ('log' or 'linear', low, high)")
        low, high = (hardware.setting(path, end) for end in given[1:])
        if isinstance(low.value, str) or isinstance(high.value, str) or low.value >= high.value:
            raise ScaleModelError(f"{path}={given!r}: low must be below high")
        self.log = given[0] == "log"
        self.ends = low.value, high.value
        if self.log and low.value <= 0:
            raise ScaleModelError(f"{path}={given!r}: the ends of a log range must be above 0")

    def suggest(self, trial: Any) -> Setting:
        if self.ends is None:
            index: int = trial.suggest_categorical(self.path, list(range(len(self.settings))))
            return self.settings[index]
        value: float = trial.suggest_float(self.path, *self.ends, log=self.log)
        if self.hardware.quantity(self.path).dimension == "count":
            value = float(round(value))
        return self.hardware.at(self.path, value)


def _combinations(
    axes: Sequence[_Axis], knobs: Mapping[str, Sequence[Any]], most: int
) -> list[dict[str, int]]:
    """Every choice of Optuna's, where all are from lists and there are few enough; else none."""
    choices = {axis.path: range(len(axis.settings)) for axis in axes if axis.ends is None}
    choices.update({_KNOB + name: range(len(values)) for name, values in knobs.items()})
    if len(choices) < len(axes) + len(knobs) or math.prod(map(len, choices.values())) > most:
        return []
    rows = itertools.product(*choices.values())
    return [dict(zip(choices, row, strict=True)) for row in rows]


def optimise(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    vary: Mapping[str, Any],
    knobs: Mapping[str, Sequence[Any]] | None = None,
    objective: Objective = "step_time_s",
    trials: int = 200,
    batch: int = 20,
    seed: int = 0,
    sampler: Any = None,
    **question: Any,
) -> Optimisation:
    """Lets Optuna choose hardware (and strategy knobs), a batch at a time.

    Parameters
    ----------
    model, cluster, task, space, objective : as in `codesign`
    vary : mapping
        Path -> ``("log" or "linear", low, high)``, anything between, or a list to choose from.
        Numbers scale, texts set, as in `codesign`.
    knobs : mapping, optional
        Strategy field -> list of values for Optuna to choose from; the fields that are left are
        searched at every design as always.
    trials, batch : int
        Designs in all, and asked for at a time; a batch is evaluated in one call. Where `vary` and
        `knobs` hold lists only and `trials` suffice, every combination is asked for, once.
    seed : int
        The same seed asks for the same designs, on any number of threads.
    sampler : optuna sampler, optional
        Default: tree-structured Parzen estimators (TPE).
    **question
        ``constraints``, ``headroom``, ``stack``, ``threads``, ``progress`` as in `codesign`.

    Raises
    ------
    ScaleModelError : Optuna is missing; unknown path or knob; illegal value.

    Examples
    --------
    >>> import scalemodel as sm
    >>> from importlib.util import find_spec
    >>> if find_spec("optuna"):  # the extra ``opt``
    ...     task = sm.Training(global_batch=64, sequence=4096)
    ...     found = sm.codesign.optimise("llama3_8b", "dgx_h100", task, trials=2, batch=2,
    ...                                  vary={"accelerator.memory.bandwidth": [1, 2]})
    ...     assert found.best["accelerator.memory.bandwidth_scale"] == 2
    """
    optuna = _optuna()
    for name, number in (("trials", trials), ("batch", batch)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ScaleModelError(f"{name}={number!r}: must be a whole number from 1")
    asked = Study(model, cluster, task, space, objective=objective, **question)
    hardware, sign = asked.hardware, sign_of(asked.objective)
    if not vary and not knobs:
        raise ScaleModelError("vary={}: there is nothing to choose")
    axes = [_Axis(hardware, path, given) for path, given in vary.items()]
    chosen = {name: list(values) for name, values in (knobs or {}).items()}
    points: list[dict[str, Setting]] = []
    rows: list[dict[str, Any]] = []
    with _quiet(optuna):
        sampler = sampler or optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="minimize", sampler=sampler)
        every = _combinations(axes, chosen, trials)
        for choice in every:
            study.enqueue_trial(choice)
        trials = len(every) or trials
        while len(rows) < trials:
            fresh = [study.ask() for _ in range(min(batch, trials - len(rows)))]
            asked_points = [{axis.path: axis.suggest(trial) for axis in axes} for trial in fresh]
            plans = [
                {
                    name: values[trial.suggest_categorical(_KNOB + name, list(range(len(values))))]
                    for name, values in chosen.items()
                }
                for trial in fresh
            ]
            clusters = [
                hardware.build({path: setting.value for path, setting in point.items()})
                for point in asked_points
            ]
            answers = asked.answers(clusters, fixed=plans)
            for trial, answer, plan in zip(fresh, answers, plans, strict=True):
                study.tell(trial, math.inf if answer is None else sign * answer.objective)
                rows.append(
                    {**row_of(answer), **{ASKED + name: value for name, value in plan.items()}}
                )
            points += asked_points
    table = table_of(hardware, points, rows, asked.objective)
    return Optimisation(table, best_design(table))
