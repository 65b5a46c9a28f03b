"""One estimate: `estimate` and the `Estimate` it returns."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import count_text, percent_text, size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator import diagnosis, explain
from scalemodel.estimator.diagnosis import Fix
from scalemodel.estimator.evaluation import Evaluation, tables_for
from scalemodel.estimator.explain import Explanation
from scalemodel.estimator.summary import summary_text
from scalemodel.estimator.uncertainty import Interval, extrapolations, interval_of
from scalemodel.estimator.verdicts import verdict_message, what_is_wrong
from scalemodel.layer_groups.model import ComposedModel, compose, is_composed, refuse_ablation
from scalemodel.layer_groups.strategy import BatchInference
from scalemodel.resolve.clusters import Cluster, Network
from scalemodel.resolve.models import Model
from scalemodel.resolve.positions import warn_of_sequence
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.resolve.tasks import Training

if TYPE_CHECKING:
    from scalemodel.estimator.timeline import Timeline
    from scalemodel.layer_groups.estimate import GroupEstimate
    from scalemodel.layer_groups.strategy import GroupStrategy
    from scalemodel.serving.batches import BatchServing
    from scalemodel.serving.generation import GenerationServing
    from scalemodel.serving.serve import Serving
    from scalemodel.serving.task import Inference

#: What `Estimate.to_dict` adds to the columns of a sweep.
INTERVAL_COLUMNS = ("step_time_low_s", "step_time_high_s", "extrapolates")


class Estimate(Evaluation):
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

    __slots__ = ()

    def __repr__(self) -> str:
        if self.illegal:
            return f"Estimate({self.verdict}: {what_is_wrong(self)})"
        core, interval = self.core, self.interval()
        shape = f", model read as {self.model.read_as}" if self.model.read_as else ""
        between = ""
        if interval is not None:
            between = f" ({time_text(interval.low_s)} to {time_text(interval.high_s)})"
        return (
            f"Estimate({self.verdict}, step {time_text(core.step_time_s)}{between}, "
            f"{count_text(core.tokens_per_s)} tokens/s, MFU {percent_text(core.mfu_fraction)}, "
            f"{size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}{shape})"
        )

    def __str__(self) -> str:
        return repr(self) if self.fits else verdict_message(self)

    def summary(self) -> str:
        """The estimate on one screen, as the command line prints it.

        Question, speed, energy and cost, time by cause, memory by kind, verdict, what limits the
        step and the next best knobs; for a strategy that cannot run, why and what helps.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> [line.split(" ")[0] for line in est.summary().splitlines()]
        ['llama3_8b', 'step', 'power', 'time', 'memory', 'verdict', 'limited', 'next']
        """
        return summary_text(self)

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
        return interval_of(self)

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
        'no measured run on accelerators of AMD'
        """
        return extrapolations(self)

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
        from scalemodel.estimator.timeline import Timeline

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
        from scalemodel.estimator.timeline import draw_slowdown

        return draw_slowdown(self, seed)

    def trace(self, path: str | PathLike[str], *, operators: bool = False) -> Path:
        """Write the timeline as a trace for Chrome or Perfetto; see `Timeline.trace`."""
        return self.timeline().trace(path, operators=operators)

    def fixes(self, count: int = 5) -> list[Fix]:
        """Changes that make the strategy run, fastest first; see `diagnosis.fixes`."""
        return diagnosis.fixes(self, count)

    def next_knobs(self, count: int = 3) -> list[Fix]:
        """Single changes that make the step faster, best first; see `diagnosis.next_knobs`."""
        return diagnosis.next_knobs(self, count)

    def message(self) -> str:
        """The verdict in words: what, why, the numbers and the changes that help."""
        return diagnosis.message(self)

    def _repr_html_(self) -> str:

        return explain.estimate_html(self)


@overload
def estimate(
    model: ComposedModel,
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training,
    strategy: GroupStrategy | _core.Strategy | None = None,
    *,
    stack: StackLike = DEFAULT_STACK,
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
    stack: StackLike = DEFAULT_STACK,
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
@named_arguments
def estimate(
    model: str | Path | Model | dict[str, Any] | ComposedModel,
    cluster: str | Path | Cluster | dict[str, Any],
    task: Training | Inference,
    strategy: GroupStrategy | _core.Strategy | _core.ServingLayout | None = None,
    *,
    stack: StackLike = DEFAULT_STACK,
    network: Network = None,
    ablation: _core.Ablation | None = None,
) -> Estimate | GroupEstimate | Serving | BatchServing | GenerationServing:
    """Predicts one training step of a model on a cluster, or what a deployment of it serves.

    Parameters
    ----------
    model, cluster : object or anything `sm.model` and `sm.cluster` take
        Or a model of layer groups, as `sm.compose` makes it.
    task : Training, FineTuning or Inference
        Or BatchInference, which layer groups answer: those of a decoder too.
    strategy : Strategy, optional
        Default: everything data-parallel with sharded optimizer states. A model of layer groups
        takes a GroupStrategy; a Strategy of tp, ep and data parallelism fills all of its groups.
        Inference takes a ServingLayout, or the same degrees of a Strategy.
    stack : str or Stack
        Named software stack of the catalogue, or its constants with some replaced; of Inference the
        name of an engine, the default one if left out.
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

    Warns
    -----
    UserWarning : sequences longer than the positions that the model has learned.

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
    if isinstance(task, BatchInference):
        model = compose(cast("Any", model))
    if is_composed(model):
        from scalemodel.layer_groups.estimate import estimate_groups

        plan = cast("GroupStrategy | _core.Strategy | None", strategy)
        return estimate_groups(model, cluster, task, plan, stack, ablation)
    model = resolve.model(cast("str | Path | Model | dict[str, Any]", model))
    refuse_ablation(ablation)
    warn_of_sequence(model, task)
    if strategy is None:
        strategy = _core.Strategy()
    if not isinstance(strategy, _core.Strategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a Strategy")
    core = tables_for(model, cluster, task, stack).estimate(strategy)
    return Estimate(model, cluster, task, strategy, stack, core)
