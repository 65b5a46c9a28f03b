"""Parts of a predicted step by name, and the step that other values of them start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.post_training import RlEstimate, TuningEstimate, estimate_rl

_TASK: Final = (
    *("prompts", "generations", "limit_tokens", "train_batch", "algorithm", "oversampling"),
    *("reference", "logprob", "precision", "rollout_precision"),
)
_STRATEGY: Final = ("tp", "cp", "pp", "ep", "sharding", "recompute", "sequence_parallel")
_LAYOUT: Final = ("rollout_tp", "rollout_pp")
_OPTIONS: Final = (
    *("staleness", "memory_share", "logprob_batch", "partial_rollouts", "refit"),
    *("stale_fraction", "framework"),
)


def asked_of(step: RlEstimate) -> dict[str, Any]:
    """Everything of a step that settings may say.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> step = sm.estimate_rl("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2, recompute="full"))
    >>> asked = asked_of(step)
    >>> asked["prompts"], asked["tp"], asked["rollout_accelerators"]
    (16, 2, 0)
    """
    task, layout = step.task, step.serving.layout
    values: dict[str, Any] = {name: getattr(task, name) for name in _TASK}
    values["train_batch"] = task.batch
    values |= degrees_of(step.training.strategy)
    values |= {"rollout_tp": int(layout.tp), "rollout_pp": int(layout.pp)}
    values |= {"staleness": step.staleness, "framework": step.framework, **step.options}
    train, rollout = step.training.cluster, step.serving.cluster
    values["train_accelerators"] = int(train.accelerators)
    values["rollout_accelerators"] = 0 if step.colocated else int(rollout.accelerators)
    values["per_node"] = min(int(train.core.node_accelerators), step.accelerators)
    return values


def degrees_of(plan: _core.Strategy) -> dict[str, Any]:
    """What settings may say of how a model is cut."""
    return {name: getattr(plan, name) for name in _STRATEGY}


def started(step: RlEstimate, changes: Mapping[str, Any]) -> RlEstimate:
    """The step with some of its parts changed, predicted once more."""
    values = {**asked_of(step), **changes}
    apart = values["rollout_accelerators"] > 0
    task = {name: values[name] for name in _TASK}
    return estimate_rl(
        step.training.model,
        resolve.cluster(step.training.cluster, accelerators=values["train_accelerators"]),
        type(step.task)(**{**vars(step.task), **task}),
        step.training.strategy.replace(
            dp=0, micro_batch=1, **{name: values[name] for name in _STRATEGY}
        ),
        _core.ServingLayout(tp=values["rollout_tp"], pp=values["rollout_pp"]),
        rollout=resolve.cluster(step.serving.cluster, accelerators=values["rollout_accelerators"])
        if apart
        else None,
        engine=step.serving.engine,
        stack=step.training.stack,
        **{name: values[name] for name in _OPTIONS},
    )


class Reader:
    """Values of settings by their paths, turned into parts of a step."""

    def __init__(self, framework: str, texts: Mapping[str, str]) -> None:
        self._framework, self._texts = framework, texts
        self.values: dict[str, Any] = {}

    def text(self, path: str) -> str:
        """What stands at a path; empty where nothing does."""
        return self._texts.get(path, "")

    def take(self, name: str, path: str, kind: Callable[[str], Any]) -> None:
        """A part of the step from a path, where it is set."""
        if path not in self._texts or self._texts[path] in ("null", "None"):
            return
        try:
            self.values[name] = kind(self._texts[path])
        except (ValueError, KeyError):
            raise ScaleModelError(
                f"{self._framework}: {path}={self._texts[path]}: is no value of {name}",
                code="malformed_setting",
            ) from None

    def count(self, path: str, default: int) -> int:
        """A whole number at a path."""
        text = self.text(path)
        return int(text) if text.isdigit() else default


def flag(text: str) -> bool:
    """Whether a switch is on.

    Examples
    --------
    >>> flag("True"), flag("false")
    (True, False)
    """
    return {"true": True, "false": False}[text.lower()]


def spelled(value: object) -> str:
    """A value as YAML and overrides have it.

    Examples
    --------
    >>> spelled(True), spelled(None), spelled(0.5)
    ('true', 'null', '0.5')
    """
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def prompt_room(step: RlEstimate | TuningEstimate) -> int:
    """Tokens of the limit that are left to prompts."""
    return min(step.task.limit_tokens - 1, math.ceil(step.task.prompt_tokens))
