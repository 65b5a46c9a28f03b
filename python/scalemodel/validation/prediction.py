"""Published training runs: a question becomes an estimate, the estimate a prediction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel._core import Strategy
from scalemodel.base.errors import ScaleModelError
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_by
from scalemodel.estimator.uncertainty import Situation, Uncertainty, situation_of
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.stack_choice import (
    facts_on,
    holds_on,
    logged_gigabyte,
    with_constants,
    with_plain_constants,
)
from scalemodel.resolve.tasks import FineTuning, Training
from scalemodel.validation import composed
from scalemodel.validation.architecture import ARCHITECTURE_COLUMNS
from scalemodel.validation.place import Place, cluster_of
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns
from scalemodel.validation.training import INPUT_COLUMNS, Question, is_language_model, question

if TYPE_CHECKING:
    import scalemodel._core as _core
    from scalemodel.resolve.tasks import Precision

REQUIRED_COLUMNS = ("gpu", "n_gpus", "global_batch")
LLM_COLUMNS = ("seq_len", "micro_batch")
OUTPUT_COLUMNS = (
    "predicted_step_time_s",
    "predicted_memory_gb",
    "predicted_fits",
    "predicted_low",
    "predicted_high",
    "predicted_extrapolates",
    "predicted_stack",
    "predicted_note",
    "skip_reason",
)

_GIB = 2.0**30

#: Ends of the interval of a step time in seconds, and in what the row extrapolates.
Bounds = tuple[float | None, float | None, str]


@dataclass(frozen=True)
class Prediction:
    """What the model says about one row; a row that is skipped has a reason and nothing else."""

    step_time_s: float | None = None
    memory_gb: float | None = None
    fits: bool | None = None
    stack: str = ""
    note: str = ""
    skip_reason: str = ""
    situation: Situation | None = None

    def interval(self, uncertainty: Uncertainty) -> Bounds:
        """Ends of the interval of the step time, and in what the row extrapolates."""
        if self.situation is None or self.step_time_s is None:
            return None, None, ""
        reasons = "; ".join(uncertainty.reasons(self.situation).values())
        interval = uncertainty.interval(self.situation, self.step_time_s)
        return (None, None, reasons) if interval is None else (*interval[:2], reasons)


class Predictor:
    """Answers questions; remembers models, clusters and whole answers, because rows repeat.

    Parameters
    ----------
    stacks : mapping of str to _core.Stack, optional
        Constants to take in place of the catalogue's, by name of a stack.
    guarded : bool
        Whether the catalogue's fitted constants give way to plain ones on architectures where
        they do not hold (`scalemodel.resolve.stack_choice.holds_on`); those of `stacks` never do.
    """

    def __init__(
        self, stacks: Mapping[str, _core.Stack] | None = None, *, guarded: bool = True
    ) -> None:
        self._stacks = dict(stacks or {})
        self._guarded = guarded
        self._models: dict[object, Model] = {}
        self._clusters: dict[object, Cluster] = {}
        self._answers: dict[Question, Prediction] = {}

    def predict(self, question: Question) -> Prediction:
        """Prediction for a question; what the engine refuses becomes a skip reason."""
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = self._answer(question)
        return answer

    def candidates(self, question: Question) -> list[Estimate]:
        """Estimates of every recomputation a row leaves open, lightest first."""
        for precision in question.precisions:
            found = []
            try:
                for recompute in self._recomputations(question):
                    estimate = self._estimate(question, precision, recompute)
                    if recompute == "full" and len(question.recomputations) > 1 and estimate.fits:
                        estimate = self._fewest_layers(question, precision, estimate)
                    found.append(estimate)
            except SkippedRowError:
                continue
            return found
        return []

    def _answer(self, question: Question) -> Prediction:
        refusal = "unsupported:dtype"
        for precision in question.precisions:
            try:
                return self._with_precision(question, precision)
            except SkippedRowError as skipped:
                refusal = str(skipped)
                if refusal != "unsupported:dtype":
                    break
        return Prediction(skip_reason=refusal)

    def _with_precision(self, question: Question, precision: Precision) -> Prediction:
        notes = list(question.notes)
        if self._is_stranger(question):
            notes.append(f"plain constants: those of {question.stack} were not fitted there")
        if precision != question.precisions[0]:
            notes.append(f"precision {precision}: no {question.precisions[0]} on this accelerator")
        for recompute in self._recomputations(question):
            estimate = self._estimate(question, precision, recompute)
            if estimate.fits:
                break
        if len(question.recomputations) > 1:
            if recompute == "full" and estimate.fits:
                estimate = self._fewest_layers(question, precision, estimate)
            why = "lightest that fits" if estimate.fits else "none fits"
            layers = estimate.strategy.recompute_layers
            notes.append(
                f"recompute {recompute}{f' of {layers} layers' if layers else ''} assumed: {why}"
            )
        step_time_s = _positive(estimate.step_time_s, "step_time")
        return Prediction(
            step_time_s=step_time_s,
            memory_gb=self._logged_memory(question, estimate),
            fits=self._can_fit(question, precision, estimate),
            stack=question.stack,
            note="; ".join(notes),
            situation=situation_of(estimate)._replace(
                evidence=question.evidence, stack=question.stack
            ),
        )

    def _logged_memory(self, question: Question, estimate: Estimate) -> float:
        """What the log of a run prints as gigabytes of memory.

        Where one rank prints for all, its experts have the mean load, not that of the busiest rank.
        """
        constants, task, core = self._constants(question), estimate.task, estimate.core
        if constants.memory_report == "last_stage" and task.imbalance > 1:
            task = replace(task, imbalance=1.0)
            tables = tables_by(estimate.model, estimate.cluster, task, constants)
            core = tables.estimate(estimate.strategy)
        else:
            tables = tables_by(estimate.model, estimate.cluster, task, constants)
        memory_bytes = tables.reported_memory_bytes(estimate.strategy, core)
        return _positive(memory_bytes, "memory") / logged_gigabyte(question.stack)

    def _constants(self, question: Question) -> _core.Stack:
        """The stack of a question; the catalogue's fitted constants only where they hold."""
        architecture = catalog.load("accelerators", question.accelerator)["architecture"]
        constants = facts_on(question.stack, architecture)
        given = self._stacks.get(question.stack)
        if given is not None:
            constants = with_constants(constants, given)
        elif self._is_stranger(question):
            constants = with_plain_constants(constants)
        return constants.replace(**dict(question.facts))

    def constants(self, question: Question) -> _core.Stack:
        """The stack that a question is answered with, the facts of its run included."""
        return self._constants(question)

    def _is_stranger(self, question: Question) -> bool:
        """Whether the constants of a question were fitted on other architectures only."""
        return (
            self._guarded
            and question.stack not in self._stacks
            and not holds_on(question.stack, question.accelerator)
        )

    def _can_fit(self, question: Question, precision: Precision, chosen: Estimate) -> bool:
        """Whether the run fits as it was chosen, or with what a recipe's modules may stand for."""
        return bool(chosen.fits) or any(
            self._estimate(question, precision, recompute).fits
            for recompute in question.spare_recomputations
        )

    def _recomputations(self, question: Question) -> tuple[str, ...]:
        """What a row leaves open, lightest first, as far as the framework accepts it.

        Megatron-Core refuses to overlap the exchange of experts and to run whole layers again.
        """
        constants = self._constants(question)
        ranks = dict(question.strategy).get("ep", 1)
        pairs = constants.overlap_ep_between and ranks > question.node_accelerators
        left = tuple(r for r in question.recomputations if not (pairs and r == "full"))
        return left or tuple(question.recomputations)

    def _fewest_layers(self, question: Question, precision: Precision, full: Estimate) -> Estimate:
        """The estimate that recomputes as few layers per pipeline rank as memory allows."""
        low, high, best = 1, full.model.shape.layers // full.strategy.pp, full
        while low < high:
            middle = (low + high) // 2
            trial = self._estimate(question, precision, "full", recompute_layers=middle)
            if trial.fits:
                high, best = middle, trial
            else:
                low = middle + 1
        return best

    def _estimate(
        self, question: Question, precision: Precision, recompute: str, recompute_layers: int = 0
    ) -> Estimate:
        task_of = Training if question.method == "pretrain" else FineTuning
        arguments = dict(question.task)
        if question.method != "pretrain":
            arguments["method"] = question.method
        constants = self._constants(question)
        try:
            model, cluster = self._model(question), self._cluster(question)
            task = task_of(precision=precision, **arguments)
            strategy = Strategy(
                **{"recompute_layers": recompute_layers, **dict(question.strategy)},
                recompute=recompute,
            )
            core = tables_by(model, cluster, task, constants).estimate(strategy)
            estimate = Estimate(model, cluster, task, strategy, question.stack, core)
        except ScaleModelError as error:
            raise _refused(f"illegal:{error.code}") from None
        except (ValueError, TypeError, OverflowError):
            # Numbers beyond what the engine's integers hold.
            raise SkippedRowError("illegal:malformed") from None
        if str(estimate.verdict).startswith("illegal"):
            raise _refused(str(estimate.verdict))
        return estimate

    def _model(self, question: Question) -> Model:
        model = self._models.get(question.model)
        if model is None:
            # The name of the row stays out, so that it cannot matter.
            model = resolve.model({"name": "row", "architecture": dict(question.model)})
            self._models[question.model] = model
        return model

    def _cluster(self, question: Question) -> Cluster:
        where = Place(
            question.accelerator,
            question.node_accelerators,
            question.scale_up,
            question.fabric,
            question.accelerators,
        )
        cluster = self._clusters.get(where)
        if cluster is None:
            cluster = self._clusters[where] = cluster_of(where)
        return cluster


def _positive(value: float | None, what: str) -> float:
    if value is None or not math.isfinite(value) or value <= 0:
        raise SkippedRowError(f"illegal:{what}")
    return float(value)


def _refused(reason: str) -> SkippedRowError:
    """Skip reason of a refusal: a missing rate is a matter of the number format."""
    return SkippedRowError("unsupported:dtype" if "precision" in reason else reason)


def predict_groups(
    row: Row, *, stack: str | None = None, constants: Mapping[str, _core.Stack] | None = None
) -> Prediction:
    """Prediction of a row whose model is composed of layer groups; it has no interval.

    Raises
    ------
    SkippedRowError
        The row cannot be asked or is refused; the text of the exception is the skip reason.
    """
    asked = composed.question(row, stack=stack)
    estimate, note = composed.answer(asked, (constants or {}).get(asked.stack))
    return Prediction(
        step_time_s=_positive(estimate.step_time_s, "step_time"),
        memory_gb=_positive(estimate.memory_bytes, "memory") / _GIB,
        fits=estimate.verdict == "ok",
        stack=asked.stack,
        note=note,
    )


def check_columns(table: Table) -> None:
    """Refuse a table that lacks a column every row would need.

    Raises
    ------
    ScaleModelError
        Names the column.
    """
    needed = list(REQUIRED_COLUMNS)
    tasks, families = table.column("task"), table.column("model_family")
    if any(is_language_model(*pair) for pair in zip(tasks, families, strict=True)):
        needed += LLM_COLUMNS
        if "model" not in table.header:
            needed += ARCHITECTURE_COLUMNS
    listed = ", ".join((*REQUIRED_COLUMNS, *LLM_COLUMNS))
    why = f"kind 'training' needs {listed} and model or {', '.join(ARCHITECTURE_COLUMNS)}"
    require_columns(table, needed, why)


def predict(
    table: Table,
    *,
    stack: str | None = None,
    constants: Mapping[str, _core.Stack] | None = None,
) -> list[Prediction]:
    """One prediction per row of a table, in order; no row can fail the run.

    Parameters
    ----------
    table : Table
    stack : str, optional
        Of every row.
    constants : mapping of str to _core.Stack, optional
        In place of the catalogue's, by name of a stack.
    """
    check_columns(table)
    predictor = Predictor(constants)
    predictions = []
    for row in table.select(INPUT_COLUMNS):
        try:
            if is_language_model(row.text("task"), row.text("model_family")):
                prediction = predictor.predict(question(row, stack=stack))
            else:
                prediction = predict_groups(row, stack=stack, constants=constants)
        except SkippedRowError as skipped:
            prediction = Prediction(skip_reason=str(skipped))
        predictions.append(prediction)
    return predictions
