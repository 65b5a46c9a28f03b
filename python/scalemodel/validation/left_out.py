"""Predictions of published runs by constants that have not seen their source.

A source is left out as a whole: neither its rows nor rows of another round of the same benchmark
(`scalemodel.validation.score.merged_source`) reach the constants that predict it. The four
constants of a stack are then

1. the stack's own, fitted to its runs from other sources, where there are at least `LEAST_RUNS`;
2. else the mean of those of all other stacks, each fitted to its runs from other sources: what
   the plain stack would be had the source never been published.

What a stack states as fact (fusions, overlaps, defaults) is kept: it is knowledge of the software,
not of a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.resolve.stack_choice import TRAVELLING_RUNS, with_plain_constants
from scalemodel.validation.fit import CONSTANTS, Run, fit, read_runs
from scalemodel.validation.prediction import Prediction, Predictor, check_columns
from scalemodel.validation.rows import SkippedRowError, Table
from scalemodel.validation.score import merged_source
from scalemodel.validation.training import INPUT_COLUMNS, Question, question

_ORIGINS = {
    "own": "the stack's runs from other sources",
    "mean": "mean of the other stacks without this source",
    "plain": "the plain stack's",
}
LEAST_RUNS = 3  # fewer say less about four constants than all other stacks do


class Constants(NamedTuple):
    """Constants of a stack; origin: its ``own`` runs, the ``mean`` of others or ``plain``."""

    stack: _core.Stack
    origin: str


class LeftOutRow(NamedTuple):
    """One row: its prediction, the source it was left out with, the origin of its constants."""

    prediction: Prediction
    source: str
    origin: str


@dataclass
class Refits:
    """Fits of stacks with sources left out; each is made once."""

    runs: Sequence[Run]

    def __post_init__(self) -> None:
        self._fits: dict[tuple[str, str], _core.Stack | None] = {}
        self._elsewhere: dict[tuple[str, str], Constants] = {}

    def _fit(self, name: str, source: str) -> _core.Stack | None:
        own = [run for run in self.runs if run.question.stack == name]
        kept = [run for run in own if merged_source(run.source) != source]
        # A stack that the source is no part of has one fit, whichever source is left out.
        key = (name, source if len(kept) < len(own) else "")
        if key not in self._fits:
            self._fits[key] = fit(name, kept)[0] if len(kept) >= LEAST_RUNS else None
        return self._fits[key]

    def without(self, source: str, name: str) -> Constants:
        """The constants of a stack when a source is left out."""
        own = self._fit(name, source)
        if own is not None:
            return Constants(own, "own")
        names = sorted({run.question.stack for run in self.runs} - {name})
        others = [fitted for other in names if (fitted := self._fit(other, source)) is not None]
        facts = resolve.stack(name)
        if not others:
            return Constants(with_plain_constants(facts), "plain")
        means = {
            constant: sum(getattr(fitted, constant) for fitted in others) / len(others)
            for constant in CONSTANTS
        }
        return Constants(facts.replace(**means), "mean")

    def without_architecture(self, architecture: str, name: str) -> Constants:
        """The constants of a stack on an architecture when its runs there are left out."""
        key = (name, architecture)
        if key not in self._elsewhere:
            own = [run for run in self.runs if run.question.stack == name]
            kept = [run for run in own if architecture_of(run.question) != architecture]
            self._elsewhere[key] = self._transferred(name, kept)
        return self._elsewhere[key]

    @staticmethod
    def _transferred(name: str, runs: Sequence[Run]) -> Constants:
        if len(runs) >= TRAVELLING_RUNS:
            fitted, errors, _ = fit(name, runs)
            if all(error > 0 for error in errors):  # none at an end of its range
                return Constants(fitted, "own")
        return Constants(with_plain_constants(resolve.stack(name)), "plain")


def architecture_of(asked: Question) -> str:
    """Architecture of the accelerators of a question."""
    return str(catalog.load("accelerators", asked.accelerator)["architecture"])


def predict_elsewhere(table: Table, runs: Sequence[Run]) -> list[Prediction]:
    """One prediction per row, each by constants that have not seen its architecture."""
    refits = Refits(runs)
    predictors: dict[tuple[str, str], Predictor] = {}
    found = []
    for row in table.select(INPUT_COLUMNS):
        try:
            asked = question(row)
        except SkippedRowError as skipped:
            found.append(Prediction(skip_reason=str(skipped)))
            continue
        key = (architecture_of(asked), asked.stack)
        if key not in predictors:
            stacks = {asked.stack: refits.without_architecture(*key).stack}
            predictors[key] = Predictor(stacks)
        found.append(predictors[key].predict(asked))
    return found


def predict_left_out(table: Table, runs: Sequence[Run] | None = None) -> list[LeftOutRow]:
    """One prediction per row of a table, in order, each by constants without its source."""
    check_columns(table)
    refits = Refits(read_runs(table) if runs is None else runs)
    sources = [merged_source(text) for text in table.column("source")]
    predictors: dict[tuple[str, str], tuple[Predictor, str]] = {}
    rows = []
    for row, source in zip(table.select(INPUT_COLUMNS), sources, strict=True):
        try:
            asked = question(row)
        except SkippedRowError as skipped:
            rows.append(LeftOutRow(Prediction(skip_reason=str(skipped)), source, ""))
            continue
        key = (source, asked.stack)
        if key not in predictors:
            constants = refits.without(source, asked.stack)
            stacks = {asked.stack: constants.stack}
            predictors[key] = Predictor(stacks), constants.origin
        predictor, origin = predictors[key]
        prediction = predictor.predict(asked)
        if not prediction.skip_reason:
            note = "; ".join(filter(None, (prediction.note, f"constants: {_ORIGINS[origin]}")))
            prediction = replace(prediction, note=note)
        rows.append(LeftOutRow(prediction, source, origin))
    return rows
