"""A training job as scalemodel asks it, between the settings of one framework and of another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import degrees_of, running_estimate, stack_of
from scalemodel.interop.settings.launches import RENDEZVOUS
from scalemodel.interop.settings.layouts import chunk_layers
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import Case


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
    stack : Stack
        The software stack asked for, with the facts that the settings state: what they overlap and
        fuse, how experts exchange tokens, in what format gradients add up.
    optimizer : str
        The one that settings without a task name (DeepSpeed); empty where they name none.

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
    stack: _core.Stack = field(default_factory=lambda: resolve.stack(DEFAULT_STACK))
    optimizer: str = ""


@dataclass(frozen=True)
class Job:
    """An estimate with everything left open filled in, as writers of settings need it.

    `shard_degree` ranks is what the sharding partitions over.
    """

    model: Model
    cluster: Cluster
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
        return self.case.precision

    @property
    def case(self) -> Case:
        """The job as the rules of frameworks ask about it."""
        return Case(self.model, self.cluster, self.task, self.strategy, self.stack)

    @property
    def nodes(self) -> int:
        """Nodes of the job."""
        return -(-self.accelerators // self.processes)

    @property
    def processes(self) -> int:
        """Processes of one node."""
        return min(self.per_node, self.accelerators)

    @property
    def architecture(self) -> str:
        """Architecture of the accelerator, as the catalogue names it; empty where it does not."""
        entry = self.cluster.table.get("accelerator")
        return str(entry.get("architecture", "")) if isinstance(entry, Mapping) else ""

    @property
    def overlaps_tp(self) -> bool:
        """Whether tensor-parallel communication is hidden, by the strategy or else by the stack."""
        return self.case.overlaps_tp

    @property
    def gradients_fp32(self) -> bool:
        """Whether gradients are accumulated and reduced in FP32."""
        chosen = self.task.gradient_precision
        return bool(self.stack.gradients_fp32) if chosen == "stack" else chosen == "fp32"

    @property
    def chunk_layers(self) -> list[int]:
        """Layers of every pipeline chunk."""
        chunks = self.strategy.pp * self.strategy.vpp
        return chunk_layers(self.model.shape.layers, chunks, bool(self.stack.ends_as_layers))

    def switched(self, name: str) -> bool:
        """Whether a switch is on, by the strategy or else by the software stack."""
        choice = getattr(self.strategy, name)
        return bool(getattr(self.stack, name)) if choice == "stack" else choice == "on"

    def torchrun(self, *script: str) -> tuple[str, ...]:
        """Command that starts a script on every accelerator of this node."""
        words = ["torchrun", f"--nproc-per-node={self.processes}", f"--nnodes={self.nodes}"]
        if self.nodes > 1:
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
        cluster=est.cluster,
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
