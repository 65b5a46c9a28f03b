"""Where a job that settings start differs from the one that was predicted, in seconds."""

from __future__ import annotations

from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.text import size_text
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import stack_of
from scalemodel.interop.settings.facts import FACTS, MEANINGS
from scalemodel.interop.settings.question import Settings
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import Case
from scalemodel.search.framework_rules import RULES

#: Differences of step time or memory that are worth a note, as a fraction.
_WORTH: Final = 1e-3
_KNOBS: Final = {str(row["name"]): str(row["meaning"]) for row in _core.Strategy.fields()}
_TASK: Final = ("global_batch", "sequence", "precision", "attention", "optimizer", "images")


def _asked(est: Estimate, **changed: Any) -> Estimate:
    """The estimate with parts of its question changed."""
    parts: dict[str, Any] = {
        name: getattr(est, name) for name in ("model", "cluster", "task", "strategy", "stack")
    }
    parts |= changed
    answer: Estimate = estimate(**parts)
    return answer


def _change(est: Estimate, other: Estimate) -> str:
    """What another estimate differs in: empty where it is the same within a thousandth."""
    if other.illegal:
        return f"cannot run ({other.verdict})"
    step, memory = other.core.step_time_s, other.core.memory_bytes
    found = []
    if abs(step / est.core.step_time_s - 1) > _WORTH:
        found.append(f"a step takes {step:.4g} s instead of {est.core.step_time_s:.4g} s")
    if abs(memory / est.core.memory_bytes - 1) > _WORTH:
        found.append(f"it needs {size_text(memory)} instead of {size_text(est.core.memory_bytes)}")
    return ", ".join(found)


def _value(value: object) -> str:
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )


def _facts(est: Estimate, read: Settings) -> list[str]:
    stack = stack_of(est)
    notes = []
    for name, meaning in MEANINGS.items():
        asked, started = getattr(stack, name), getattr(read.stack, name)
        if asked == started:
            continue
        change = _change(est, _asked(est, stack=stack.replace(**{name: started})))
        if change:
            why = FACTS[read.framework][name].why
            notes.append(
                f"not expressed: {name}={_value(asked)} ({meaning}{'; ' + why if why else ''}): "
                f"with {name}={_value(started)} {change}"
            )
    return notes


def _knobs(est: Estimate, read: Settings) -> list[str]:
    notes = []
    for name, meaning in _KNOBS.items():
        asked, started = getattr(est.strategy, name), getattr(read.strategy, name)
        if asked == started or name == "dp":
            continue
        other = _asked(est, strategy=est.strategy.replace(**{name: started}))
        change = _change(est, other)
        if change:
            notes.append(
                f"not expressed: {name}={_value(asked)} ({meaning}): "
                f"with {name}={_value(started)} {change}"
            )
    return notes


def _task(est: Estimate, read: Settings) -> Training:
    """The task that settings start; what they leave open is as it was predicted."""
    task: Training = est.task if read.task is None else read.task
    if read.model is not None and not read.model.reads_source:
        task = task.replace(source_tokens=0)  # a decoder that is started alone reads no source
    return task.replace(optimizer=read.optimizer) if read.optimizer else task


def _tasks(est: Estimate, read: Settings) -> list[str]:
    notes = []
    task = _task(est, read)
    for name in _TASK:
        asked, started = getattr(est.task, name), getattr(task, name)
        if asked == started:
            continue
        change = _change(est, _asked(est, task=est.task.replace(**{name: started})))
        if change:
            notes.append(f"not expressed: {name}={asked}: with {name}={started} {change}")
    if est.task.lengths is not None and task.lengths is None:
        whole = est.task.replace(lengths=None, packing="plain")
        if change := _change(est, _asked(est, task=whole)):
            notes.append(
                f"not expressed: lengths of packed documents, packing={est.task.packing}: with "
                f"documents as long as the sequence {change}"
            )
    return notes


def started(est: Estimate, read: Settings) -> Estimate:
    """The estimate of what settings start; what they leave open is as it was predicted."""
    return _asked(
        est,
        model=read.model or est.model,
        task=_task(est, read),
        strategy=read.strategy,
        stack=read.stack,
    )


def differences(est: Estimate, read: Settings) -> list[str]:
    """Notes on what settings do not say, each with what a step then takes.

    Every fact of the stack, knob and part of the task is changed alone to what the settings start;
    a first note tells what all of them take together.
    """
    together = _change(est, started(est, read))
    if not together:
        return []
    notes = [*_facts(est, read), *_knobs(est, read), *_tasks(est, read)]
    if read.model is not None:
        # A decoder that is started alone reads no images, which have a note of their own.
        sees = est.task.images == 0 or read.model.vision is not None
        seen = est if sees else _asked(est, task=est.task.replace(images=0))
        hears = read.model.reads_source or not seen.task.source_tokens
        alone = seen.task if hears else seen.task.replace(source_tokens=0)
        if change := _change(seen, _asked(seen, model=read.model, task=alone)):
            notes.append(f"not expressed: parts of the model: {change}")
    return [f"differs from the prediction, all in all: {together}", *notes]


def refused(est: Estimate, framework: str) -> list[str]:
    """Notes on what a framework refuses about a strategy."""
    case = Case(est.model, est.cluster, est.task, est.strategy, stack_of(est))
    return [
        f"{framework} refuses this: {rule.says} ({rule.source})"
        for rule in RULES[framework]
        if rule.breaks(case)
    ]
