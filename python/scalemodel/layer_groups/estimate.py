"""One estimate of a model of layer groups."""

from __future__ import annotations

from typing import Any

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.answer import EngineAnswer, by_cause
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text
from scalemodel.layer_groups.model import ComposedModel
from scalemodel.layer_groups.strategy import BatchInference, GroupStrategy, from_shorthand
from scalemodel.resolve import Cluster
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.tasks import Training

#: Columns that say where the time of a step goes; they sum to ``step_time_s``.
TIME_COLUMNS = (
    "compute_s",
    "exposed_tp_s",
    "exposed_cp_s",
    "exposed_ep_s",
    "exposed_dp_s",
    "exposed_exchange_s",
    "exposed_reshard_s",
    "optimizer_s",
    "overhead_s",
)

#: Columns that say what fills the fullest accelerator; they sum to ``memory_bytes``.
MEMORY_COLUMNS = (
    "memory_weights_bytes",
    "memory_tables_bytes",
    "memory_gradients_bytes",
    "memory_optimizer_bytes",
    "memory_activations_bytes",
    "memory_logits_bytes",
    "memory_gathered_bytes",
    "memory_communication_bytes",
    "memory_reserve_bytes",
)


def _lookup_fraction() -> float:
    """Share of memory bandwidth that pooled lookups of embedding tables reach."""
    entry = Reader(catalog.load("reference", "embedding_lookups"), "reference/embedding_lookups")
    return entry.sub("tables").fraction("memory_fraction")


@catalog.kept(64)
def group_tables(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    stack: str | _core.Stack,
    ablation: _core.Ablation,
    meshes: tuple[str, ...],
    micro_batches: tuple[int, ...],
) -> _core.GroupTables:
    """Costs of every group under every mesh, kept for the strategies to come."""
    return _core.GroupTables(
        model.core,
        cluster.core,
        task.core,
        resolve.stack(stack),
        ablation,
        _lookup_fraction(),
        list(meshes),
        list(micro_batches),
        isinstance(task, BatchInference),
    )


class GroupEstimate(EngineAnswer):
    """What one step of a model of layer groups takes; every column of `to_dict` is an attribute.

    For an illegal strategy the numbers are None and `message` says why; for one that does not fit
    they are filled all the same.

    Attributes
    ----------
    model, cluster, task, strategy, stack, ablation
        The question.
    meshes : dict of str to str
        Mesh of every slot.
    core : _core.GroupEstimate
        The engine's answer.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=4096, sequence=197)
    >>> plan = sm.GroupStrategy({"transformer": "fsdp"})
    >>> est = sm.estimate(sm.compose("vit_b"), sm.cluster("dgx_h100"), task, plan)
    >>> est.verdict, est.meshes["transformer"]
    ('ok', 'fsdp@8')
    """

    __slots__ = ("ablation", "cluster", "core", "meshes", "model", "stack", "strategy", "task")

    _PARTS = ("model", "cluster", "task", "strategy", "stack", "ablation", "meshes", "core")
    _MEMORY = MEMORY_COLUMNS

    cluster: Cluster
    core: _core.GroupEstimate

    def __init__(
        self,
        model: ComposedModel,
        cluster: Cluster,
        task: Training,
        strategy: GroupStrategy,
        stack: str | _core.Stack,
        ablation: _core.Ablation,
        meshes: dict[str, str],
        core: _core.GroupEstimate,
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.task = task
        self.strategy = strategy
        self.stack = stack
        self.ablation = ablation
        self.meshes = meshes
        self.core = core

    @property
    def network(self) -> str:
        """What is assumed of the network between domains.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate(sm.compose("llama3_8b"), sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=16, sequence=4096), sm.GroupStrategy("fsdp"))
        >>> est.network.partition(":")[0]
        'ideal fabric assumed'
        """
        from scalemodel.resolve.clusters import network_text

        return network_text(self.cluster)

    def __repr__(self) -> str:
        if self.illegal:
            return f"GroupEstimate({self.verdict})"
        return (
            f"GroupEstimate({self.verdict}, step {self.core.step_time_s:.4g} s, "
            f"{self.core.samples_per_s:.4g} samples/s, exposed "
            f"{self.core.exposed_fraction:.1%}, {self.core.memory_bytes / 2**30:.1f} GiB)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Mesh of every slot, the schedule, then every column of the answer.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate(sm.compose("llama3_8b"), sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=16, sequence=4096), sm.GroupStrategy("fsdp"))
        >>> est.to_dict()["mesh_transformer"]
        'fsdp@8'
        """
        s = self.strategy
        row: dict[str, Any] = {f"mesh_{name}": mesh for name, mesh in self.meshes.items()}
        for name in (
            "micro_batches",
            "queues",
            "prefetch",
            "backward_gather",
            "buckets",
            "recompute",
        ):
            row[name] = getattr(s, name)
        for key, value in self.core.to_dict().items():
            row[key] = None if self.illegal else value
        row["verdict"] = self.verdict
        row["cost_usd"] = self.cost_usd
        return row

    def message(self) -> str:
        """The verdict in words: what, why and the numbers.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task, plan = sm.Training(global_batch=16, sequence=4096), sm.GroupStrategy("tp@16")
        >>> est = sm.estimate(sm.compose("llama3_8b"), sm.cluster("dgx_h100"), task, plan)
        >>> est.message().partition(":")[2].partition(":")[0]
        'mesh   a mesh does not suit 8 accelerators or its group'
        """
        return message(self)

    def time_by_cause(self) -> dict[str, float]:
        """Seconds of the step by cause, as of a decoder; empty for an illegal strategy.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate(sm.compose("llama3_8b"), sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=16, sequence=4096), sm.GroupStrategy("fsdp"))
        >>> parts = est.time_by_cause()
        >>> abs(parts["compute"] + parts["launches"] - est.compute_s) < 1e-12
        True
        """
        if self.illegal:
            return {}
        seconds = {column: float(getattr(self.core, column)) for column in TIME_COLUMNS}
        stack = resolve.stack(self.stack)
        if stack.host_launch_s == 0:
            return by_cause(seconds, 0.0)
        asked = (self.model, self.cluster, self.task)
        at_once = _answer(
            *asked, self.strategy, stack.replace(host_launch_s=0.0), self.ablation, self.meshes
        )
        return by_cause(seconds, max(0.0, float(self.core.compute_s) - float(at_once.compute_s)))


def checked_task(task: object) -> Training:
    """The task, or an error that names it."""
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training, FineTuning or BatchInference")
    if task.optimizer in ("muon", "shampoo", "soap"):
        raise ScaleModelError(
            f"optimizer={task.optimizer!r}: composed models take the other optimizers; "
            "Muon, Shampoo and SOAP are computed for language models",
            code="unsupported_optimizer",
        )
    if task.lengths is not None:
        raise ScaleModelError(
            "lengths: composed models take samples of one length; packs are computed for "
            "language models",
            code="unsupported_lengths",
        )
    return task


def checked_ablation(ablation: object) -> _core.Ablation:
    """The ablation, or one that leaves nothing out."""
    if ablation is None:
        return _core.Ablation()
    if not isinstance(ablation, _core.Ablation):
        raise ScaleModelError(f"ablation={ablation!r}: must be an Ablation")
    return ablation


def estimate_groups(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    strategy: GroupStrategy | _core.Strategy | None,
    stack: str | _core.Stack,
    ablation: _core.Ablation | None,
) -> GroupEstimate:
    """What `sm.estimate` answers for a model of layer groups."""
    checked_task(task)
    if strategy is None:
        strategy = GroupStrategy()
    if isinstance(strategy, _core.Strategy):
        strategy = from_shorthand(strategy, cluster, task)
    if not isinstance(strategy, GroupStrategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a GroupStrategy or Strategy")
    left_out = checked_ablation(ablation)
    meshes = strategy.meshes(model, cluster.accelerators)
    core = _answer(model, cluster, task, strategy, stack, left_out, meshes)
    return GroupEstimate(model, cluster, task, strategy, stack, left_out, meshes, core)


def _answer(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    strategy: GroupStrategy,
    stack: str | _core.Stack,
    ablation: _core.Ablation,
    meshes: dict[str, str],
) -> _core.GroupEstimate:
    """The engine's answer to a question that is resolved already."""
    listed = tuple(dict.fromkeys(meshes.values()))
    counts = (strategy.micro_batches,)
    tables = group_tables(model, cluster, task, stack, ablation, listed, counts)
    return tables.estimate(strategy.layout([listed.index(mesh) for mesh in meshes.values()]))


#: What is wrong and what would be legal, by reason code; fields of `_facts` in braces.
_ILLEGAL = {
    "mesh": "a mesh does not suit {accelerators} accelerators or its group: {meshes}.\n"
    "  The degrees of a mesh multiply to {accelerators}; tp and sp exclude each other, and cp "
    "stands right before ddp, zero1 or fsdp.",
    "batch": "{global_batch} samples in {micro_batches} micro-batches cannot be split evenly: "
    "{meshes}.\n"
    "  The ranks of a mesh, without those of tp, sp and cp, times the micro-batches divide the "
    "batch; or give the task batch_is_limit=True.",
    "tp_heads": "tp or sp of a mesh does not divide the attention heads: {meshes}.\n"
    "  Each rank takes whole heads.",
    "tp_ffn": "tp or sp of a mesh does not divide the width of a layer: {meshes}.\n"
    "  Each rank takes as many columns as every other.",
    "etp_ffn": "tp of a mesh does not divide the width of an expert: {meshes}.\n"
    "  Each rank takes as many columns as every other.",
    "ep_experts": "ep of a mesh does not divide the experts: {meshes}.\n"
    "  Each rank takes whole experts.",
    "precision": "{accelerator} has no {precision} rate.\n  It computes in {precisions}.",
}


def _facts(est: GroupEstimate) -> dict[str, object]:
    peaks = est.cluster.core.accelerator.peak_flop_per_s
    return {
        "accelerators": est.cluster.accelerators,
        "accelerator": est.cluster.accelerator,
        "global_batch": est.task.global_batch,
        "micro_batches": est.strategy.micro_batches,
        "meshes": ", ".join(f"{name} {mesh}" for name, mesh in est.meshes.items()),
        "precision": est.task.precision,
        "precisions": ", ".join(
            name for name, peak in zip(_core.precisions(), peaks, strict=True) if peak > 0
        ),
    }


def message(est: GroupEstimate) -> str:
    """What the verdict says and why.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=100, sequence=197)
    >>> est = sm.estimate(sm.compose("vit_b"), sm.cluster("dgx_h100"), task)
    >>> print(message(est).partition(":")[2].partition(":")[0])
    batch   100 samples in 1 micro-batches cannot be split evenly
    """
    if est.illegal:
        return f"{est.verdict}   {_ILLEGAL[str(est.core.verdict)].format_map(_facts(est))}"
    core = est.core
    used, capacity = core.memory_bytes, core.memory_capacity_bytes
    text = f"needs {size_text(used)} per accelerator, {est.cluster.accelerator} has "
    if used <= capacity:
        return f"ok   {text}{size_text(capacity)} -> {size_text(capacity - used)} spare."
    kinds = est.memory().sort_values("bytes", ascending=False)
    listed = " | ".join(
        f"{kind} {size_text(size)}"
        for kind, size in zip(kinds["kind"], kinds["bytes"], strict=True)
        if size > 0
    )
    over = size_text(used - capacity)
    return f"{est.verdict}   {text}{size_text(capacity)} -> {over} too much.\n  {listed}"
