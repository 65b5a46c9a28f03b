"""One strategy evaluated: the question and the engine's answer, with its columns and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.answer import EngineAnswer, by_cause
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text
from scalemodel.resolve.clusters import Cluster
from scalemodel.resolve.models import Model
from scalemodel.resolve.stack_choice import stack_on
from scalemodel.resolve.stacks import StackLike
from scalemodel.resolve.tasks import Training

if TYPE_CHECKING:
    import pandas as pd

#: Columns of an estimate that say where the time of a step goes; they sum to ``step_time_s``.
TIME_COLUMNS = (
    "compute_s",
    "exposed_tp_s",
    "exposed_cp_s",
    "exposed_ep_s",
    "exposed_pp_s",
    "exposed_dp_s",
    "exposed_offload_s",
    "bubble_s",
    "optimizer_s",
    "overhead_s",
)

#: Columns that say what fills the fullest accelerator; they sum to ``memory_bytes``.
MEMORY_COLUMNS = (
    "memory_weights_bytes",
    "memory_gradients_bytes",
    "memory_optimizer_bytes",
    "memory_activations_bytes",
    "memory_logits_bytes",
    "memory_temporary_bytes",
    "memory_communication_bytes",
    "memory_gathered_bytes",
    "memory_reserve_bytes",
)


@catalog.kept(128)
def tables_for(model: Model, cluster: Cluster, task: Training, stack: StackLike) -> _core.Tables:
    """The cost tables of a question, built once and kept for the strategies to come."""
    return tables_by(model, cluster, task, stack_at(stack, cluster))


@catalog.kept(128)
def tables_by(model: Model, cluster: Cluster, task: Training, stack: _core.Stack) -> _core.Tables:
    """The cost tables of a question by just these constants and facts, wherever they hold."""
    if task.packs is None:
        return _core.Tables(model.core, cluster.core, task.core, stack)
    return _core.Tables(model.core, cluster.core, task.core, stack, task.packs)


def stack_at(stack: StackLike, cluster: Cluster) -> _core.Stack:
    """The stack as it is on a cluster: facts that exist there, constants that hold there."""
    entry = cluster.table.get("accelerator")
    known = entry if isinstance(entry, Mapping) else {}
    return stack_on(stack, str(known.get("architecture", "")), str(known.get("vendor", "")))


class Evaluation(EngineAnswer):
    """A strategy with the engine's answer. Made by `evaluate`; comparable, hashable, picklable.

    Every column of the answer is an attribute. For an illegal strategy the numbers are None and
    `verdict` says why; for one that does not fit they are filled all the same.

    Attributes
    ----------
    model, cluster, task, strategy, stack
        The question.
    core : _core.Estimate
        The engine's answer.
    """

    __slots__ = ("cluster", "core", "model", "stack", "strategy", "task")
    _PARTS = ("model", "cluster", "task", "strategy", "stack", "core")
    _MEMORY = MEMORY_COLUMNS

    cluster: Cluster
    core: _core.Estimate

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        task: Training,
        strategy: _core.Strategy,
        stack: StackLike,
        core: _core.Estimate,
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.task = task
        self.strategy = strategy
        self.stack = stack
        self.core = core

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ESTIMATE_FIELDS})

    @property
    def reason(self) -> str:
        """The reason code behind the verdict."""
        return str(self.core.verdict)

    def row(self) -> dict[str, Any]:
        """The strategy's fields, then every column of the answer, as in a row of `sm.sweep`.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> set(est.to_dict()) - set(est.row()) == {
        ...     "step_time_low_s", "step_time_high_s", "extrapolates"}
        True
        """
        row: dict[str, Any] = dict(self.strategy.to_dict())
        answer = self.core.to_dict()
        answer["verdict"] = self.verdict
        for key, value in answer.items():
            row[key] = value if key == "verdict" or not self.illegal else None
        row["cost_usd"] = self.cost_usd
        if self.illegal and self.strategy.dp:
            row["dp"] = self.strategy.dp
        return row

    def time_by_cause(self) -> dict[str, float]:
        """Seconds of the step by cause, which sum to the step time; empty for an illegal strategy.

        `launches` is the compute time that would go if the host launched every kernel at once, by
        asking again with ``host_launch_s = 0``; `compute` is what is left of ``compute_s``, with
        the latency at which an accelerator starts a kernel.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> parts = est.time_by_cause()
        >>> abs(parts["compute"] + parts["launches"] - est.compute_s) < 1e-12
        True
        """
        if self.illegal:
            return {}
        seconds = {column: float(getattr(self.core, column)) for column in TIME_COLUMNS}
        return by_cause(seconds, launches_s(self))

    def operators(self) -> pd.DataFrame:
        """Every kernel and collective of one layer of each kind and of the head, one micro-batch.

        Returns
        -------
        DataFrame
            Columns layer_kind, operator, m, n, k, batch, bytes, forward_s, backward_s; the times
            are before overlap. Empty for an illegal strategy.
        """
        import pandas as pd

        return pd.DataFrame(operator_rows(self), columns=list(_OPERATOR_COLUMNS))


Asked = TypeVar("Asked", bound=Evaluation)


def evaluate(
    model: Model, cluster: Cluster, task: Training, strategy: _core.Strategy, stack: StackLike
) -> Evaluation:
    """One strategy of a question that is resolved already."""
    core = tables_for(model, cluster, task, stack).estimate(strategy)
    return Evaluation(model, cluster, task, strategy, stack, core)


def launches_s(est: Evaluation, *, recomputed: bool = True) -> float:
    """Compute time that the same strategy would not have if launching a kernel took no time.

    A layer cannot run faster than the host launches its kernels. `recomputed`: with what
    recomputation launches again, which is a part of the time of recomputation too.
    """
    stack, strategy = stack_of(est), est.strategy
    if stack.host_launch_s == 0:
        return 0.0
    at_once = tables_for(est.model, est.cluster, est.task, stack.replace(host_launch_s=0.0))
    as_it_is = tables_for(est.model, est.cluster, est.task, est.stack)
    if not recomputed:
        strategy = strategy.replace(recompute="none", recompute_layers=0)
    launched = float(as_it_is.estimate(strategy).compute_s)
    return max(0.0, launched - float(at_once.estimate(strategy).compute_s))


_OPERATOR_COLUMNS = (
    "layer_kind",
    "operator",
    "m",
    "n",
    "k",
    "batch",
    "bytes",
    "forward_s",
    "backward_s",
)


def operator_rows(est: Evaluation) -> list[dict[str, Any]]:
    """Rows of `Evaluation.operators`, with their weight in a step.

    Further keys: ``layers_per_stage``, how often the operator occurs on the mean pipeline stage,
    and ``step_s``, its forward and backward time there over all micro-batches, before overlap.
    """
    if est.illegal:
        return []
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    layered, extra = est.model.core, int(est.model.shape.mtp_layers)
    kinds, stages = int(layered.kinds), est.strategy.pp
    count = [0] * kinds
    for layer in range(int(layered.layers)):
        count[layered.layer_kind(layer)] += 1
    count[layered.layer_kind(int(layered.layers) - 1)] += extra
    rows: list[dict[str, Any]] = []
    for kind, occurrences in enumerate([*count, 1 + extra]):
        label = f"layer {kind}" if kind < kinds else "head"
        per_stage = occurrences / stages
        for row in tables.operators(est.strategy, kind):
            each = row["forward_s"] + row["backward_s"]
            step_s = est.core.micro_batches * per_stage * each
            weight = {"layers_per_stage": per_stage, "step_s": step_s}
            rows.append({"layer_kind": label, **row, **weight})
    return rows


def stack_of(est: Evaluation) -> _core.Stack:
    """The constants of the software stack of an estimate."""
    return stack_at(est.stack, est.cluster)


def decoder_estimate(est: Asked, argument: str = "est") -> Asked:
    """The estimate of a decoder, or an error that names what was given instead.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate(sm.compose("vit_b"), sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=4096, sequence=197))
    >>> try:
    ...     decoder_estimate(est)
    ... except sm.ScaleModelError as error:
    ...     print(str(error).partition("): ")[2])
    must be an Estimate of a decoder; models of layer groups have no answer here
    """
    given: object = est
    if not isinstance(given, Evaluation):
        composed = isinstance(given, EngineAnswer)
        of = " of a decoder; models of layer groups have no answer here" if composed else ""
        raise ScaleModelError(f"{argument}={given!r}: must be an Estimate{of}")
    return est


def running_estimate(est: Asked, argument: str = "est") -> Asked:
    """As `decoder_estimate`, of a strategy that can run."""
    found = decoder_estimate(est, argument)
    if found.illegal:
        raise ScaleModelError(
            f"{argument}: its verdict is {found.verdict}; what cannot run has no answer here",
            code="illegal_strategy",
        )
    return found


def degrees_of(est: Evaluation) -> _core.Degrees:
    """Degrees as asked for, with those left open."""
    return _core.resolve_degrees(est.strategy, est.cluster.core, est.task.core)


_MEMORY_KINDS = (
    "activations",
    "weights",
    "gradients",
    "optimizer",
    "logits",
    "temporary",
    "communication",
    "gathered",
    "reserve",
)


def kinds_text(est: Evaluation) -> str:
    """Memory by kind, largest first, as ``weights 4.4 GiB | ...``."""
    sizes = {kind: float(getattr(est.core, f"memory_{kind}_bytes")) for kind in _MEMORY_KINDS}
    ordered = sorted(sizes, key=lambda kind: -sizes[kind])
    return " | ".join(f"{kind} {size_text(sizes[kind])}" for kind in ordered if sizes[kind] > 0)


_ESTIMATE_FIELDS = tuple(row["name"] for row in _core.Estimate.fields())
