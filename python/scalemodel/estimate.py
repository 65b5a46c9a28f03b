"""One estimate: `estimate` and the `Estimate` it returns."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast, overload

from scalemodel import _core, catalog, resolve
from scalemodel.answer import EngineAnswer
from scalemodel.errors import ScaleModelError
from scalemodel.resolve import Cluster, Model, Network
from scalemodel.tasks import Training

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.diagnosis import Fix
    from scalemodel.explain import Explanation
    from scalemodel.groups import ComposedModel, GroupEstimate, GroupStrategy
    from scalemodel.serving import BatchServing, Inference, Serving
    from scalemodel.timeline import Timeline
    from scalemodel.uncertainty import Interval

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

#: What `Estimate.to_dict` adds to the columns of a sweep.
INTERVAL_COLUMNS = ("step_time_low_s", "step_time_high_s", "extrapolates")

DEFAULT_STACK = "plain"


@catalog.kept(128)
def tables_for(
    model: Model, cluster: Cluster, task: Training, stack: str | _core.Stack
) -> _core.Tables:
    """The cost tables of a question, built once and kept for the strategies to come."""
    return _core.Tables(model.core, cluster.core, task.core, resolve.stack(stack))


def verdict_text(reason: str) -> str:
    """Verdict of a reason code: ``ok``, ``out_of_memory`` or ``illegal:<reason>``."""
    return reason if reason in ("ok", "out_of_memory") else f"illegal:{reason}"


class Estimate(EngineAnswer):
    """What one training step takes. Made by `estimate`; comparable, hashable, picklable.

    Every column of `to_dict` is an attribute. For an illegal strategy the numbers are None and
    `verdict` says why; for one that does not fit they are filled all the same.

    Attributes
    ----------
    model, cluster, task, strategy, stack
        The question.
    core : _core.Estimate
        The engine's answer.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> est.verdict, est.dp, 0.3 < est.mfu_fraction < 0.6
    ('ok', 4, True)
    """

    __slots__ = ("cluster", "core", "model", "stack", "strategy", "task")
    _PARTS = ("model", "cluster", "task", "strategy", "stack", "core")

    core: _core.Estimate

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        task: Training,
        strategy: _core.Strategy,
        stack: str,
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

    def __repr__(self) -> str:
        if self.illegal:
            return f"Estimate({self.verdict})"
        interval = self.interval()
        between = f" ({interval.low_s:.4g} to {interval.high_s:.4g})" if interval else ""
        return (
            f"Estimate({self.verdict}, step {self.step_time_s:.4g} s{between}, "
            f"{self.tokens_per_s:.4g} tokens/s, MFU {self.mfu_fraction:.1%}, "
            f"{self.memory_bytes / 2**30:.1f} GiB)"
        )

    @property
    def verdict(self) -> str:
        """``ok``, ``out_of_memory`` or ``illegal:<reason>``."""
        return verdict_text(str(self.core.verdict))

    @property
    def reason(self) -> str:
        """The reason code behind the verdict."""
        return str(self.core.verdict)

    @property
    def illegal(self) -> bool:
        """Whether the strategy cannot run at all."""
        return self.core.verdict not in ("ok", "out_of_memory")

    @property
    def fits(self) -> bool:
        """Whether the strategy runs within the memory of the accelerator."""
        return bool(self.core.verdict == "ok")

    @property
    def cost_usd(self) -> float | None:
        """Price of the step; None where the catalogue has no price for the accelerator."""
        known = self.cluster.core.price_usd_per_s > 0 and not self.illegal
        return float(self.core.cost_usd) if known else None

    def interval(self) -> Interval | None:
        """Where a measured step would lie four times in five, by comparable published runs.

        Runs are comparable by accelerator architecture, number format and size of the job; their
        predictions used constants that had not seen them. An estimate that `extrapolates` has a
        wider interval. None for an illegal strategy.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> est.interval().low_s < est.step_time_s < est.interval().high_s
        True
        """
        from scalemodel import uncertainty

        if self.illegal:
            return None
        situation = uncertainty.situation_of(self)
        return uncertainty.embedded().interval(situation, float(self.core.step_time_s))

    @property
    def step_time_low_s(self) -> float | None:
        """Lower end of `interval`."""
        interval = self.interval()
        return None if interval is None else interval.low_s

    @property
    def step_time_high_s(self) -> float | None:
        """Upper end of `interval`."""
        interval = self.interval()
        return None if interval is None else interval.high_s

    @property
    def extrapolates(self) -> tuple[str, ...]:
        """In what the question lies beyond every measured run; empty inside what was measured.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Training(global_batch=64, sequence=8192)
        >>> sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task).extrapolates
        ()
        >>> sm.estimate("llama3_8b", sm.cluster({"accelerator": "MI300X"}), task).extrapolates[0]
        'no measured run on architecture cdna3'
        """
        from scalemodel import uncertainty

        reasons = uncertainty.embedded().reasons(uncertainty.situation_of(self))
        return tuple(reasons.values())

    def to_dict(self) -> dict[str, Any]:
        """The columns of a sweep, then the interval of the step time and what extrapolates.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> list(est.to_dict())[:3], est.to_dict()["verdict"]
        (['tp', 'cp', 'pp'], 'ok')
        """
        interval = self.interval()
        low_s, high_s = (None, None) if interval is None else interval[:2]
        ends = (low_s, high_s, "; ".join(self.extrapolates))
        return {**self.row(), **dict(zip(INTERVAL_COLUMNS, ends, strict=True))}

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

    def breakdown(self) -> pd.DataFrame:
        """Seconds and share of the step by cause; the seconds sum to the step time.

        Returns
        -------
        DataFrame
            Columns cause, time_s, share_fraction; empty for an illegal strategy.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> bool(abs(est.breakdown().time_s.sum() - est.step_time_s) < 1e-9)
        True
        """
        import pandas as pd

        rows = []
        if not self.illegal:
            step = self.core.step_time_s
            for column in TIME_COLUMNS:
                time_s = getattr(self.core, column)
                rows.append((column.removesuffix("_s"), time_s, time_s / step))
        return pd.DataFrame(rows, columns=["cause", "time_s", "share_fraction"])

    def memory(self) -> pd.DataFrame:
        """Bytes and share of the capacity by kind on the fullest accelerator.

        Returns
        -------
        DataFrame
            Columns kind, bytes, share_fraction; empty for an illegal strategy.
        """
        import pandas as pd

        rows = []
        if not self.illegal:
            capacity = self.core.memory_capacity_bytes
            for column in MEMORY_COLUMNS:
                size = getattr(self.core, column)
                kind = column.removeprefix("memory_").removesuffix("_bytes")
                rows.append((kind, size, size / capacity))
        return pd.DataFrame(rows, columns=["kind", "bytes", "share_fraction"])

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

    def explain(self, term: str | None = None) -> Explanation:
        """Where every number comes from: value, formula, inputs and source, as a tree.

        Parameters
        ----------
        term : str, optional
            A term such as ``"memory"``, ``"compute.layer 0.qkv"`` or a column; default: all.

        Raises
        ------
        ScaleModelError : no such term; the message names the nearest ones.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> est.explain("bubble").unit
        's'
        """
        from scalemodel import explain

        return explain.explain(self, term)

    def timeline(
        self,
        *,
        priority: str = "fifo",
        slices: int = 1,
        gradient_compression: float = 1.0,
        contention: bool = True,
        slowdown: Sequence[float] = (),
    ) -> Timeline:
        """Simulate the step event by event, on one representative rank per pipeline stage.

        Parameters
        ----------
        priority : {"fifo", "by_need"}
            Order of gradient traffic. ``"by_need"``: what the next step needs first goes first,
            and the rest may hide under the next step's first forward pass; it supposes updates
            layer by layer.
        slices : int
            Buckets of gradients and parameters per layer.
        gradient_compression : float
            Bytes of a reduced gradient over those of a plain one, 1 = not compressed. Compressing
            and restoring take the time of reading and writing both at memory bandwidth.
        contention : bool
            Whether communication slows the kernels it hides under.
        slowdown : sequence of float
            Stragglers: for each pipeline stage, the factor by which its kernels take longer; see
            `draw_slowdown`.

        Returns
        -------
        Timeline
            On equal stages without stragglers its step time is that of the estimate.

        Raises
        ------
        ScaleModelError : the strategy cannot run, or an option is out of range.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> est.timeline().critical_path().kind.iloc[0]
        'forward'
        """
        from scalemodel.timeline import Timeline

        options = _core.TimelineOptions(
            priority=priority,
            slices=slices,
            gradient_compression=gradient_compression,
            contention=contention,
        )
        return Timeline(self, options, slowdown)

    def draw_slowdown(self, seed: int = 0) -> list[float]:
        """Draw by how much the stages of the slowest replica straggle.

        Every rank's kernels take a factor of their own, drawn from a normal distribution with the
        stack's ``kernel_spread`` as its standard deviation; ranks that wait for each other in
        every layer take the largest of theirs. The estimate holds the expected value.

        Parameters
        ----------
        seed : int, >= 0
            Of the draw.

        Returns
        -------
        list of float
            A factor per pipeline stage, for ``timeline(slowdown=...)``; all 1 without a spread.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2, pp=4))
        >>> est.draw_slowdown(seed=1)
        [1.0, 1.0, 1.0, 1.0]
        """
        from scalemodel.timeline import draw_slowdown

        return draw_slowdown(self, seed)

    def trace(self, path: str | PathLike[str], *, operators: bool = False) -> Path:
        """Write the timeline as a trace for Chrome or Perfetto; see `Timeline.trace`."""
        return self.timeline().trace(path, operators=operators)

    def fixes(self, count: int = 5) -> list[Fix]:
        """Changes that make the strategy run, fastest first; see `diagnosis.fixes`."""
        from scalemodel import diagnosis

        return diagnosis.fixes(self, count)

    def next_knobs(self, count: int = 3) -> list[Fix]:
        """Single changes that make the step faster, best first; see `diagnosis.next_knobs`."""
        from scalemodel import diagnosis

        return diagnosis.next_knobs(self, count)

    def message(self) -> str:
        """The verdict in words: what, why, the numbers and the changes that help."""
        from scalemodel import messages

        return messages.message(self)

    def _repr_html_(self) -> str:
        from scalemodel import explain

        return explain.estimate_html(self)


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


def operator_rows(est: Estimate) -> list[dict[str, Any]]:
    """Rows of `Estimate.operators`, with their weight in a step.

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


def stack_of(est: Estimate) -> _core.Stack:
    """The constants of the software stack of an estimate."""
    return resolve.stack(est.stack)


def is_composed(model: object) -> TypeGuard[ComposedModel]:
    """Whether a model is one of layer groups; does not load what such models need."""
    return type(model).__name__ == "ComposedModel"


def decoder_estimate(est: object, argument: str = "est") -> Estimate:
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
    if isinstance(est, Estimate):
        return est
    composed = isinstance(est, EngineAnswer)
    of = " of a decoder; models of layer groups have no answer here" if composed else ""
    raise ScaleModelError(f"{argument}={est!r}: must be an Estimate{of}")


def running_estimate(est: object, argument: str = "est") -> Estimate:
    """As `decoder_estimate`, of a strategy that can run."""
    found = decoder_estimate(est, argument)
    if found.illegal:
        raise ScaleModelError(
            f"{argument}: its verdict is {found.verdict}; what cannot run has no answer here",
            code="illegal_strategy",
        )
    return found


def refuse_ablation(ablation: object) -> None:
    """A model that is not one of layer groups has no ablation."""
    if ablation is not None:
        raise ScaleModelError("ablation: only models of layer groups have one; see sm.compose")


_ESTIMATE_FIELDS = tuple(row["name"] for row in _core.Estimate.fields())


@overload
def estimate(
    model: ComposedModel,
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training,
    strategy: GroupStrategy | _core.Strategy | None = None,
    *,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    ablation: _core.Ablation | None = None,
) -> GroupEstimate: ...
@overload
def estimate(
    model: str | Path | Model | dict[str, Any],
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training,
    strategy: _core.Strategy | None = None,
    *,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    ablation: None = None,
) -> Estimate: ...
@overload
def estimate(
    model: str | Path | Model | dict[str, Any],
    cluster: str | Path | Cluster | dict[str, Any],
    task: Inference,
    strategy: _core.ServingLayout | _core.Strategy | None = None,
    *,
    stack: str = DEFAULT_STACK,
) -> Serving: ...
def estimate(
    model: str | Path | Model | dict[str, Any] | ComposedModel,
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training | Inference,
    strategy: GroupStrategy | _core.Strategy | _core.ServingLayout | None = None,
    *,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    ablation: _core.Ablation | None = None,
) -> Estimate | GroupEstimate | Serving | BatchServing:
    """Predicts one training step of a model on a cluster, or what a deployment of it serves.

    Parameters
    ----------
    model, cluster : object or anything `sm.model` and `sm.cluster` take
        Or a model of layer groups, as `sm.compose` makes it.
    task : Training, FineTuning or Inference
        Of a model of layer groups also BatchInference.
    strategy : Strategy, optional
        Default: everything data-parallel with sharded optimizer states. A model of layer groups
        takes a GroupStrategy; a Strategy of tp, ep and data parallelism fills all of its groups.
        Inference takes a ServingLayout, or the same degrees of a Strategy.
    stack : str
        Named software stack of the catalogue; of Inference an engine, the default one if left out.
    network : NetworkReport or mapping of axis to share, optional
        What the network leaves of its bandwidth to each axis, as `sm.route` reports it. Default:
        that of the cluster's entry, usually all of it: an ideal fabric without collisions. In a
        model of layer groups dp is the share of ddp, zero1 and fsdp, ep also that of shards of
        embedding tables.
    ablation : Ablation, optional
        What to leave out of the physics of a model of layer groups.

    Returns
    -------
    Estimate
        With a verdict; a strategy that cannot run is an answer too. A GroupEstimate for a model of
        layer groups, and of Inference what `serve` returns: the steady state that memory allows.

    Raises
    ------
    ScaleModelError : unknown name or malformed argument.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_70b", sm.cluster("dgx_h100", nodes=64),
    ...                   sm.Training(global_batch=1024, sequence=8192),
    ...                   sm.Strategy(tp=8, pp=4))
    >>> est.verdict
    'ok'
    """
    if not isinstance(task, Training):
        from scalemodel.serving.serve import estimate_serving

        if network is not None:
            raise ScaleModelError(f"network={network!r}: must be left out where a model is served")
        refuse_ablation(ablation)
        engine = None if stack == DEFAULT_STACK else stack
        return estimate_serving(model, cluster, task, strategy, engine)
    cluster = resolve.with_network(resolve.cluster(cluster), network)
    if is_composed(model):
        from scalemodel.groups.estimate import estimate_groups

        plan = cast("GroupStrategy | _core.Strategy | None", strategy)
        return estimate_groups(model, cluster, task, plan, stack, ablation)
    model = resolve.model(cast("str | Path | Model | dict[str, Any]", model))
    refuse_ablation(ablation)
    if strategy is None:
        strategy = _core.Strategy()
    if not isinstance(strategy, _core.Strategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a Strategy")
    core = tables_for(model, cluster, task, stack).estimate(strategy)
    return Estimate(model, cluster, task, strategy, stack, core)
