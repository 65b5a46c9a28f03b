"""A training job as scalemodel asks it, between the settings of one framework and of another."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import degrees_of, running_estimate, stack_of
from scalemodel.resolve import Model
from scalemodel.resolve.tasks import Training

#: The one word that a shell fills in, from the variables that cluster schedulers set.
RENDEZVOUS: Final = "--rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT"
#: Line that ends a file within a script.
_END: Final = "END"


@dataclass(frozen=True)
class Settings:
    """What the settings of a framework say. Made by `read_settings`.

    Attributes
    ----------
    framework : str
    model : Model or None
        None where the settings name no architecture (DeepSpeed, Accelerate, torchtitan).
    task : Training or None
        None where batch or sequence is not among the settings.
    strategy : Strategy
    accelerators : int
        0 where the settings do not tell.
    unread : tuple of str
        Settings that were given and not understood; most say nothing about cost.

    Examples
    --------
    >>> import scalemodel as sm
    >>> read = sm.read_settings("deepspeed", {"zero_optimization": {"stage": 2}}, accelerators=8)
    >>> read.strategy.sharding, read.model is None
    ('zero2', True)
    """

    framework: str
    model: Model | None
    task: Training | None
    strategy: _core.Strategy
    accelerators: int = 0
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """How to start an estimated strategy in a framework. Made by `launch`.

    Attributes
    ----------
    framework : str
    command : tuple of str
        Words of the command line, for one node; the same on every node.
    environment : dict
        Variables to set.
    files : dict
        Text of configuration files by name.
    notes : tuple of str
        What the framework cannot express, or takes by default differently.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> job = sm.launch(est, "megatron")
    >>> job.framework, "--tensor-model-parallel-size" in job.command
    ('megatron', True)
    """

    framework: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(hash=False)
    files: dict[str, str] = field(hash=False)
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return self.script()

    def script(self) -> str:
        r"""The whole as a shell script.

        Examples
        --------
        >>> Launch("megatron", ("torchrun", "train.py", "--bf16"), {"A": "1"}, {}, ()).script()
        'export A=1\ntorchrun train.py \\\n  --bf16\n'
        """
        lines = [f"# {plain(note)}" for note in self.notes]
        for name, text in self.files.items():
            lines += [f"cat > {shlex.quote(name)} <<'{_END}'", _document(text), _END]
        lines += [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        words: list[str] = []
        for word in self.command:
            quoted = word if word == RENDEZVOUS else shlex.quote(word)
            words.append(f"\\\n  {quoted}" if word.startswith("--") else quoted)
        return "\n".join([*lines, " ".join(words)]) + "\n"


def _document(text: str) -> str:
    """The lines of a file as a shell copies them, up to the line that ends them."""
    lines = text.rstrip("\n").split("\n")
    if _END in lines:
        raise ScaleModelError(f"files: a line is {_END!r}: would end the file within a script")
    return "\n".join(lines)


@dataclass(frozen=True)
class Job:
    """An estimate with everything left open filled in, as writers of settings need it.

    `shard_degree` ranks share out what the sharding shares out.
    """

    model: Model
    task: Training
    strategy: _core.Strategy
    stack: _core.Stack
    accelerators: int
    per_node: int
    dp: int
    etp: int
    shard_degree: int

    @property
    def precision(self) -> str:
        """Format of the linear layers."""
        chosen = self.strategy.linear_precision
        return self.task.precision if chosen == "task" else chosen

    def switched(self, name: str) -> bool:
        """Whether a switch is on, by the strategy or else by the software stack."""
        choice = getattr(self.strategy, name)
        return bool(getattr(self.stack, name)) if choice == "stack" else choice == "on"

    def torchrun(self, *script: str) -> tuple[str, ...]:
        """Command that starts a script on every accelerator of this node."""
        per_node = min(self.per_node, self.accelerators)
        nodes = -(-self.accelerators // per_node)
        words = ["torchrun", f"--nproc-per-node={per_node}", f"--nnodes={nodes}"]
        if nodes > 1:
            words += ["--rdzv-backend=c10d", RENDEZVOUS]
        return (*words, *script)


def job_of(est: Estimate) -> Job:
    """The job an estimate speaks of.

    Raises
    ------
    ScaleModelError : the strategy cannot run.
    """
    est = running_estimate(est)
    degrees = degrees_of(est)
    return Job(
        model=est.model,
        task=est.task,
        strategy=est.strategy,
        stack=stack_of(est),
        accelerators=est.cluster.accelerators,
        per_node=int(est.cluster.core.node_accelerators),
        dp=degrees.dp,
        etp=degrees.etp,
        shard_degree=degrees.shard,
    )


def model_of(architecture: dict[str, object], name: str) -> Model:
    """The model of an architecture read from settings."""
    return resolve.model({"name": name, "architecture": architecture})
