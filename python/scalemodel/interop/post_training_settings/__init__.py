"""Settings of NVIDIA-NeMo/RL and verl: written from a predicted step, and read back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.reading import read_text
from scalemodel.base.text import time_text
from scalemodel.base.words import named_arguments
from scalemodel.interop.post_training_settings import (
    nemo_rl,
    tuning,
    tuning_values,
    values,
    verl,
)
from scalemodel.interop.serving_settings.yaml_reader import read_yaml
from scalemodel.interop.settings.given import paths
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.sources import written_files
from scalemodel.post_training import RlEstimate, TuningEstimate
from scalemodel.post_training.answer import PhasedStep

__all__ = ["RlSettings", "TuningSettings", "launch_rl", "launch_tuning", "read_rl", "read_tuning"]

_FRAMEWORKS: Final = {"nemo_rl": nemo_rl, "verl": verl}
#: Differences of a step that are worth a note, as a fraction.
_WORTH: Final = 1e-3
_NOTE: Final = re.compile(r"not expressed: (\w+)")
_OVERRIDE: Final = re.compile(r"(?:^|\s)\+{0,2}([A-Za-z_]\w*(?:\.\w+)+)=(\S+)")


@dataclass(frozen=True)
class RlSettings:
    """What settings of a post-training framework say. Made by `read_rl`.

    Attributes
    ----------
    framework : str
    values : dict
        Arguments of `Rl`, `Strategy` and `estimate_rl` by name, accelerators of both pools as
        ``train_accelerators`` and ``rollout_accelerators``; those alone that the settings say.

    Examples
    --------
    >>> read = read_rl("verl", "python3 -m verl.trainer.main_ppo data.train_batch_size=512")
    >>> read.values
    {'prompts': 512}
    """

    framework: str
    values: dict[str, Any]

    def estimate(self, like: RlEstimate) -> RlEstimate:
        """The step that the settings start; what they leave open is as in `like`."""
        return values.started(like, self.values)


@dataclass(frozen=True)
class TuningSettings:
    """What settings say of preference tuning or of distillation. Made by `read_tuning`.

    Attributes
    ----------
    framework : str
    values : dict
        Arguments of `Preference` or `Distillation`, `Strategy` and `estimate_tuning` by name, those
        of the teacher's own layout behind ``teacher_``, accelerators of the pools as
        ``train_accelerators``, ``teacher_accelerators`` and ``rollout_accelerators``; those alone
        that the settings say.

    Examples
    --------
    >>> read = read_tuning("nemo_rl", {"dpo": {"max_num_steps": 10}, "policy": {
    ...     "train_global_batch_size": 128}})
    >>> read.values["method"], read.values["pairs"]
    ('dpo', 128)
    """

    framework: str
    values: dict[str, Any]

    def estimate(self, like: TuningEstimate) -> TuningEstimate:
        """The step that the settings start; what they leave open is as in `like`.

        Raises
        ------
        ScaleModelError : the settings are of another kind of step, or name a value out of range.
        """
        return tuning_values.started(like, self.values)


@named_arguments
def launch_rl(step: RlEstimate, framework: str) -> Launch:
    """How to start a predicted step of reinforcement learning in a framework.

    What is written is read back and predicted once more: every part that the settings do not say
    is a note that names it, with what a step then takes.

    Parameters
    ----------
    step : RlEstimate
        Of `estimate_rl` or `search_rl`, that can run.
    framework : {"nemo_rl", "verl"}

    Returns
    -------
    Launch
        Data, rewards and learning rate are of the run, and placeholders.

    Raises
    ------
    ScaleModelError : an unknown framework, or a step that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> step = sm.estimate_rl("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2, recompute="full"))
    >>> job = sm.launch_rl(step, "verl")
    >>> "actor_rollout_ref.rollout.n=16" in job.command
    True
    >>> again = sm.read_rl("verl", job.script()).estimate(step)
    >>> abs(again.step_time_s / step.step_time_s - 1) < 0.01
    True
    """
    if not isinstance(step, RlEstimate):
        raise ScaleModelError(f"step={step!r}: must be an RlEstimate")
    writer = _module(framework)
    _check_runs(step)
    written: Launch = writer.write(step, values.asked_of(step))
    read = read_rl(framework, written.script())
    return _told(step, written, _differences(step, values.asked_of(step), read))


@named_arguments
def launch_tuning(step: TuningEstimate, framework: str) -> Launch:
    """How to start a predicted step of preference tuning or of distillation in a framework.

    What is written is read back and predicted once more: every part that the settings do not say
    is a note that names it.

    Parameters
    ----------
    step : TuningEstimate
        Of `estimate_tuning`, that can run.
    framework : {"nemo_rl", "verl"}
        NeMo-RL has DPO, reward models and on-policy distillation, verl the last alone, with a
        teacher on accelerators of its own.

    Returns
    -------
    Launch
        Data and learning rate are of the run, and placeholders.

    Raises
    ------
    ScaleModelError
        An unknown framework or one that has nothing of the kind, or a step that cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Preference(pairs=128, prompt_tokens=200, generated_tokens=300, limit_tokens=2048,
    ...                      pad_to="batch")
    >>> step = sm.estimate_tuning("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2))
    >>> job = sm.launch_tuning(step, "nemo_rl")
    >>> print(job.command[2])
    examples/run_dpo.py
    >>> sm.read_tuning("nemo_rl", job.script()).estimate(step).step_time_s == step.step_time_s
    True
    """
    if not isinstance(step, TuningEstimate):
        raise ScaleModelError(f"step={step!r}: must be a TuningEstimate")
    _module(framework)
    _check_runs(step)
    written = tuning.write(step, framework)
    read = read_tuning(framework, written.script())
    return _told(step, written, _differences(step, tuning_values.asked_of(step), read))


@named_arguments
def read_rl(framework: str, source: str | Path | Mapping[str, Any]) -> RlSettings:
    """What settings of a post-training framework say of a step.

    Parameters
    ----------
    framework : {"nemo_rl", "verl"}
    source : str, Path or mapping
        YAML, a command with overrides, or a script that writes the one and starts the other, as a
        text or a file; or nested tables. Overrides win.

    Raises
    ------
    ScaleModelError : an unknown framework, a file that cannot be read, or a value that is none.

    Examples
    --------
    >>> read_rl("nemo_rl", {"grpo": {"num_prompts_per_step": 64}}).values
    {'prompts': 64}
    """
    return RlSettings(framework, _module(framework).read(_settings_of(framework, source)))


@named_arguments
def read_tuning(framework: str, source: str | Path | Mapping[str, Any]) -> TuningSettings:
    """What settings of a post-training framework say of preference tuning or of distillation.

    Parameters
    ----------
    framework : {"nemo_rl", "verl"}
    source : str, Path or mapping
        As of `read_rl`. NeMo-RL: of run_dpo.py, run_rm.py or run_distillation.py, on top of the
        repository's own; verl: of distillation, which is on policy.

    Raises
    ------
    ScaleModelError
        An unknown framework, a file that cannot be read, settings of another kind of step, or a
        value that is none.

    Examples
    --------
    >>> read_tuning("verl", "python3 -m verl.trainer.main_ppo distillation.nnodes=2 "
    ...             "distillation.n_gpus_per_node=8").values["teacher_accelerators"]
    16
    """
    _module(framework)
    return TuningSettings(framework, tuning_values.read(framework, _settings_of(framework, source)))


def _settings_of(framework: str, source: str | Path | Mapping[str, Any]) -> dict[str, str]:
    """Settings by their paths; overrides of a command win."""
    if isinstance(source, Mapping):
        return _texts(paths(source))
    text = source if _is_text(source) else read_text(Path(source), argument=f"{framework}: ")
    files, rest = written_files(str(text))
    table: dict[str, object] = {}
    for name, held in files:
        if name.endswith((".yaml", ".yml")):
            table |= paths(_table(read_yaml(held, f"{framework}: {name}"), framework))
    found = _OVERRIDE.findall(re.sub(r"\\\s*\n", " ", rest))
    if not files and not found:
        table |= paths(_table(read_yaml(str(text), framework), framework))
    return _texts({**table, **dict(found)})


def _is_text(source: str | Path) -> bool:
    return isinstance(source, str) and ("\n" in source or "=" in source or ": " in source)


def _table(read: object, framework: str) -> Mapping[str, Any]:
    if not isinstance(read, Mapping):
        raise ScaleModelError(f"{framework}: must hold a table", code="unreadable_file")
    return read


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).strip("'\"") for name, value in settings.items()}


def _module(framework: str) -> Any:
    if framework not in _FRAMEWORKS:
        raise ScaleModelError(
            f"framework={framework!r}: unknown; {nearest(str(framework), tuple(_FRAMEWORKS))}",
            code="unknown_framework",
        )
    return _FRAMEWORKS[framework]


def _check_runs(step: PhasedStep) -> None:
    if not math.isfinite(step.step_time_s):
        raise ScaleModelError(f"step: cannot run ({step.verdict}: {step.reason})")


def _told(step: PhasedStep, written: Launch, differences: list[str]) -> Launch:
    """With notes on what its settings leave out, each once."""
    said = {found[1] for note in written.notes if (found := _NOTE.match(note))}
    more = [
        note for note in differences if not (found := _NOTE.match(note)) or found[1] not in said
    ]
    return _named(step, replace(written, notes=(*written.notes, *more)))


def _named(step: PhasedStep, written: Launch) -> Launch:
    """With what is predicted of it."""
    train = step.training.cluster
    per_node = min(int(train.core.node_accelerators), step.accelerators)
    return replace(
        written,
        notes=(*_fit(step), *written.notes),
        predicted=f"predicted: {time_text(step.step_time_s)} a step",
        name=str(step.training.model.name),
        nodes=-(-step.accelerators // per_node),
        per_node=per_node,
    )


def _fit(step: PhasedStep) -> list[str]:
    return [] if step.verdict == "ok" else [f"predicted {step.verdict}: {step.reason}"]


def _differences(
    step: PhasedStep, asked: Mapping[str, Any], read: RlSettings | TuningSettings
) -> list[str]:
    """What the settings do not say, each with what a step then takes."""
    notes = []
    for name, value in asked.items():
        if name not in read.values or read.values[name] == value:
            continue
        change = _change(step, replace(read, values={name: read.values[name]}))
        if change:
            notes.append(f"not expressed: {name}={value}: with {read.values[name]} {change}")
    together = _change(step, read)
    return [f"differs from the prediction, all in all: {together}", *notes] if together else notes


def _change(step: Any, read: RlSettings | TuningSettings) -> str:
    try:
        other: PhasedStep = read.estimate(step)
    except ScaleModelError as error:
        return f"cannot be predicted ({error})"
    if not math.isfinite(other.step_time_s):
        return f"cannot run ({other.verdict})"
    if abs(other.step_time_s / step.step_time_s - 1) <= _WORTH:
        return ""
    return f"a step takes {time_text(other.step_time_s)} instead of {time_text(step.step_time_s)}"
