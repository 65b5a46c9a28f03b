"""Settings of training frameworks: read into a question, written from an estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.text import size_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import stack_of
from scalemodel.interop.settings import (
    accelerate,
    deepspeed,
    megatron,
    megatron_bridge,
    megatron_reader,
    nemo,
    torchtitan,
)
from scalemodel.interop.settings.differences import differences, refused
from scalemodel.interop.settings.launches import Launch
from scalemodel.interop.settings.question import Job, Settings, job_of
from scalemodel.interop.settings.schedulers import SCHEDULERS
from scalemodel.interop.settings.sources import stack_of_script, values_of
from scalemodel.resolve.stacks import stack_text
from scalemodel.search.framework_optimizers import check_optimizer
from scalemodel.search.framework_rules import FRAMEWORKS

__all__ = ["Launch", "Settings", "launch", "read_settings"]

_Reader = Callable[[dict[str, Any], int, _core.Stack], Settings]
_WRITERS: Final[dict[str, Callable[[Job], Launch]]] = {
    "megatron": megatron.write,
    "megatron_bridge": megatron_bridge.write,
    "nemo": nemo.write,
    "torchtitan": torchtitan.write,
    "deepspeed": deepspeed.write,
    "accelerate": accelerate.write,
}
#: The stack whose kernels and numbers a job has where none is named: the framework's latest.
_USUAL_STACK: Final = {
    "megatron": "megatron_lm_2025",
    "megatron_bridge": "megatron_bridge_2026_06",
    "nemo": "nemo_mcore_2024_25",
    "torchtitan": "torchtitan_2025",
    "deepspeed": "plain",
    "accelerate": "plain",
}


def _megatron_reader(framework: str) -> _Reader:
    """NeMo and Megatron-Bridge keep Megatron-Core's names in tables of their own."""

    def read(values: dict[str, Any], accelerators: int, base: _core.Stack) -> Settings:
        return megatron_reader.read(values, accelerators, base, framework)

    return read


_READERS: Final[dict[str, _Reader]] = {
    "megatron": _megatron_reader("megatron"),
    "megatron_bridge": _megatron_reader("megatron_bridge"),
    "nemo": _megatron_reader("nemo"),
    "torchtitan": torchtitan.read,
    "deepspeed": deepspeed.read,
    "accelerate": accelerate.read,
}


def _known(argument: str, value: object, names: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in names:
        raise ScaleModelError(
            f"{argument}={value!r}: unknown; {nearest(str(value), names)}",
            code=f"unknown_{argument}",
        )
    return value


def _fit(est: Estimate) -> list[str]:
    if est.fits:
        return []
    core = est.core
    return [
        f"predicted not to fit: it needs {size_text(core.memory_bytes)} of "
        f"{size_text(core.memory_capacity_bytes)} per accelerator"
    ]


def _predicted(est: Estimate) -> str:
    stack = stack_text(est.stack)
    return (
        f"predicted: {est.core.step_time_s:.4g} s a step, {size_text(est.core.memory_bytes)} per "
        f"accelerator, software stack {stack}"
    )


@named_arguments
def launch(est: Estimate, framework: str, *, scheduler: str | None = None) -> Launch:
    """How to start the strategy of an estimate in a training framework.

    What is written is read back, and estimated once more: every fact of the software stack, knob or
    part of the task that the settings do not say is a note that names it and what a step then
    takes.

    Parameters
    ----------
    est : Estimate
        Of a strategy that can run.
    framework : {"megatron", "megatron_bridge", "nemo", "torchtitan", "deepspeed", "accelerate"}
    scheduler : {"slurm", "jobset", "pytorchjob"}, optional
        Write `script` for ``sbatch``, or as a job of Kubernetes. Default: a shell script to be
        started on every node.

    Returns
    -------
    Launch
        Command, environment and files. Iterations, data and learning rate stand in one marked
        block, with placeholders.

    Raises
    ------
    ScaleModelError : unknown framework or scheduler, a strategy that cannot run, or an optimizer
        that the framework does not have; the message lists those it has.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2, pp=2))
    >>> "--tensor-model-parallel-size" in sm.launch(est, "megatron").command
    True
    >>> sm.read_settings("megatron", sm.launch(est, "megatron").script()).model.parameters
    8030261248
    """
    framework = _known("framework", framework, FRAMEWORKS)
    if scheduler is not None:
        scheduler = _known("scheduler", scheduler, SCHEDULERS)
    job = job_of(est)
    check_optimizer(framework, job.task)
    written = _WRITERS[framework](job)
    read = read_settings(
        framework, written.script(), accelerators=job.accelerators, stack=stack_of(est)
    )
    notes = [
        *_fit(est),
        *refused(est, framework),
        *written.notes,
        *differences(est, read),
    ]
    return replace(
        written,
        notes=tuple(notes),
        predicted=_predicted(est),
        scheduler=scheduler or "",
        name=job.model.name,
        nodes=job.nodes,
        per_node=job.processes,
    )


@named_arguments
def read_settings(
    framework: str,
    source: object,
    *,
    accelerators: int = 0,
    stack: str | _core.Stack | None = None,
) -> Settings:
    """Model, task, strategy and software stack of a job set up in a training framework.

    Parameters
    ----------
    framework : {"megatron", "megatron_bridge", "nemo", "torchtitan", "deepspeed", "accelerate"}
    source : str, Path, sequence, mapping or object
        A configuration (JSON, TOML, YAML, a recipe in Python), a command or a whole script that
        writes files and starts a command, as a file or as text; the words of a command; a mapping;
        or an object with attributes such as an ``argparse.Namespace``. Variables that a script sets
        are filled in. YAML other than `launch` writes needs PyYAML.
    accelerators : int
        Of the job, where the settings do not tell; needed for the groups of a hybrid sharding.
    stack : str or Stack, optional
        Kernels and numbers of the software, which no setting states. Default: the one that a script
        of `launch` was predicted with, else the latest of the framework, or the plain one.

    Returns
    -------
    Settings
        ``model`` or ``task`` is None where the framework keeps them elsewhere. ``stack`` holds what
        the settings overlap, fuse and exchange: ``sm.estimate(read.model, cluster, read.task,
        read.strategy, stack=read.stack)`` is the estimate of the job.

    Raises
    ------
    ScaleModelError : unknown framework, unreadable file, or a setting that is missing or wrong; the
        message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> read = sm.read_settings("deepspeed", {"train_micro_batch_size_per_gpu": 4,
    ...                                       "zero_optimization": {"stage": 3}})
    >>> read.strategy.sharding, read.strategy.micro_batch
    ('zero3', 4)
    """
    reader = _READERS[_known("framework", framework, FRAMEWORKS)]
    if isinstance(accelerators, bool) or not isinstance(accelerators, int) or accelerators < 0:
        raise ScaleModelError(f"accelerators={accelerators!r}: must be a whole number from 0")
    if stack is None:
        stack = stack_of_script(framework, source) or _USUAL_STACK[framework]
    base = resolve.stack(stack)
    return reader(values_of(framework, source), accelerators, base)
