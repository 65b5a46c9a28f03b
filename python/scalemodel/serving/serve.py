"""One serving plan in its steady state: `serve` and the `Serving` it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.layer_groups.model import ComposedModel, is_composed
from scalemodel.layer_groups.strategy import GroupStrategy
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.serving.batches import BatchServing, serve_batches
from scalemodel.serving.generation import (
    GENERATION_STACK,
    Generation,
    GenerationServing,
    serve_generation,
)
from scalemodel.serving.launch import launch_command
from scalemodel.serving.plan import (
    STEP_COLUMNS,
    draft_for,
    drafts_of,
    engine_limits,
    instance_of,
)
from scalemodel.serving.plan_stream import simulate
from scalemodel.serving.pools import copies_of, expert_cluster_of, pool_table
from scalemodel.serving.prompts import simulate_prompts
from scalemodel.serving.schedule import PromptRequest
from scalemodel.serving.stream import (
    Arrivals,
    Balance,
    Lengths,
    RequestStream,
    ServedStream,
)
from scalemodel.serving.task import Inference, number_from_to
from scalemodel.serving.uncertainty import (
    QUANTITIES,
    ServingInterval,
    ServingSituation,
    interval_around,
)
from scalemodel.serving.verdicts import ToldPlan

if TYPE_CHECKING:
    import pandas as pd

_MANY = 1e9  # sequences, or requests per second


class Serving(ToldPlan):
    """What a serving plan delivers. Made by `serve`.

    Every column of `to_dict` is an attribute; the numbers are None for a plan that cannot run.

    Attributes
    ----------
    model, cluster, task, layout, engine, replicas
        The question; `engine` is the catalogue name.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``.
    asked_rate, asked_concurrency : float or None
        Requests per second, or sequences kept running, that were asked for, over all replicas.
    engine_limits : dict
        The limits of the engine that were asked for, `max_batched_tokens` and
        `max_running_sequences`; the columns of these names are those in force.
    options : dict
        The options of `serve` that give this plan again.
    limits, simulated, binds
        Of a plan that `plan_serving` found: its limits by name; means and percentiles at its load,
        simulated, by the names of limits; the limit that keeps it from being smaller.
    note : str
        Kernels of other accelerators or formats that stand in for unmeasured ones, and the shape
        that a model of an unknown family was read as.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=16)
    >>> plan.verdict, plan.replicas
    ('ok', 8)
    """

    def __repr__(self) -> str:
        shape = f", model read as {self.model.read_as}" if self.model.read_as else ""
        if not self.fits:
            return f"Serving({self.verdict}{shape})"
        ttft = "never settles" if self.saturated else f"{1e3 * self.ttft_s:.3g} ms"
        return (
            f"Serving({self.verdict}, {self.output_tokens_per_s:.4g} tokens/s, TTFT {ttft}, "
            f"TPOT {1e3 * self.tpot_s:.3g} ms, {self.concurrency:.4g} running{shape})"
        )

    def simulate(
        self,
        stream: RequestStream | Sequence[PromptRequest] | None = None,
        *,
        requests: int = 1000,
        arrivals: Arrivals = "poisson",
        lengths: Lengths | None = None,
        seed: int = 0,
        balance: Balance = "random",
        name_tokens: int | None = None,
    ) -> ServedStream:
        """Serve a stream request by request: queues, batches, preemptions, percentiles.

        Parameters
        ----------
        stream : RequestStream or sequence of PromptRequest, optional
            A trace, or what `request_stream` makes. Without it, one of the plan's own load: its
            rate, or as many kept running as were asked for, one coming as another leaves; all at
            once where neither was. Requests whose content is known (`PromptRequest`) find what
            they share in the prefix cache of their replica, block by block, as `replay_schedule`
            has it; the task's own `prefix_hit_fraction` does not count then.
        requests, arrivals, lengths, seed
            Of that stream, as for `request_stream`; `seed` also of the random choice of replicas.
        balance : str
            How a load balancer spreads the stream over the replicas: ``"random"``, which leaves
            Poisson arrivals at each, as `requests_per_s` of `serve` takes them, or
            ``"round_robin"``, which makes them more even and waits shorter.
        name_tokens : int, optional
            Tokens of each of the `block_names` of requests, as for `replay_schedule`.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=16)
        >>> served = plan.simulate(requests=400, lengths="exponential")
        >>> len(served.requests), served.summary()["refused"]
        (400, 0.0)
        """
        if stream is not None and not isinstance(stream, RequestStream):
            return simulate_prompts(
                self, list(stream), name_tokens=name_tokens, balance=balance, seed=seed
            )
        return simulate(
            self,
            stream,
            requests=requests,
            arrivals=arrivals,
            lengths=lengths,
            seed=seed,
            balance=balance,
        )

    def launch(self) -> str:
        """The command that starts one instance of the plan with its engine.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=100, precision="fp8")
        >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4))
        >>> print(plan.launch())
        vllm serve ... --tensor-parallel-size 4 ...
        """
        return launch_command(self)

    def interval(self, quantity: str = "rate") -> ServingInterval | None:
        """Where a measurement would lie four times in five, by comparable published runs.

        Runs are comparable by load (requests that arrive, a number kept running, as much as fits),
        kind of model (dense or experts) and accelerator architecture. Where none was published, or
        none of the engine, ``borrowed`` of the answer says what others stand for, and the interval
        is as wide as the widest of theirs. None for a plan that does not run or settle.

        Parameters
        ----------
        quantity : str
            ``"rate"`` of output tokens per second, ``"ttft"`` or ``"tpot"`` in seconds.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=16)
        >>> plan.interval("tpot").low < plan.tpot_s < plan.interval("tpot").high
        True
        """
        if quantity not in QUANTITIES:
            raise ScaleModelError(f"quantity={quantity!r}: must be one of {', '.join(QUANTITIES)}")
        if not self.fits:
            return None
        predicted = {"rate": self.output_tokens_per_s, "ttft": self.ttft_s, "tpot": self.tpot_s}
        held = self.asked_concurrency is not None
        load = "running" if held else "offline" if self.asked_rate is None else "online"
        entry = self.cluster.table.get("accelerator")
        situation = ServingSituation(
            load,
            "experts" if self.model.shape.experts else "dense",
            str(entry.get("architecture", "")) if isinstance(entry, Mapping) else "",
            f"{self.engine} with an expert pool" if self.layout.expert_ranks else self.engine,
        )
        return interval_around(situation, quantity, predicted[quantity])

    def pools(self) -> pd.DataFrame:
        """What the pools of attention and experts, and the ways between, are busy with in a step.

        Returns
        -------
        DataFrame indexed by ``attention, experts, dispatch, combine``
            ``accelerators`` of one instance (none of a way), ``busy_s`` of a step without prompts,
            and ``busy_fraction`` of it. The pool with the larger share sets the pace.

        Raises
        ------
        ScaleModelError : the plan does not run, or its experts have no pool of their own.

        Examples
        --------
        >>> import scalemodel as sm
        >>> layout = sm.ServingLayout(dp=8, ep=8, expert_ranks=8, micro_batches=3)
        >>> task = sm.Inference(input_tokens=2000, output_tokens=500, precision="fp8",
        ...                     prefilled=True)
        >>> plan = sm.serve("qwen3_235b_a22b", sm.cluster("dgx_h100", nodes=2), task, layout)
        >>> bool((plan.pools().busy_fraction <= 1).all())
        True
        """
        if not self.layout.expert_ranks:
            raise ScaleModelError("pools: experts lie with attention; give expert_ranks from 1")
        if self.instance is None or self.state is None:
            raise ScaleModelError(f"pools: the plan does not run ({self.verdict})")
        load = self.instance.pool_load(self.step_mix, self.state.concurrency)
        return pool_table(self.layout, load)

    def explain(self) -> pd.DataFrame:
        """Where the time of a step without prompts goes: one row per cause, largest first.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> table = sm.serve("llama3_8b", "dgx_h100", task, concurrency=1).explain()
        >>> table.cause[0]
        'linear'
        """
        import pandas as pd

        step = self.step()
        rows = [
            (name.removesuffix("_s"), getattr(step, name), getattr(step, name) / step.step_time_s)
            for name in STEP_COLUMNS
        ]
        rows.sort(key=lambda row: -row[1])
        return pd.DataFrame(rows, columns=["cause", "time_s", "share_fraction"])


@overload
def serve(
    model: ComposedModel,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    layout: GroupStrategy | _core.Strategy | None = None,
    *,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
) -> BatchServing: ...
@overload
def serve(
    model: ComposedModel | str,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Generation,
    layout: _core.ServingLayout | None = None,
    *,
    engine: str = GENERATION_STACK,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
) -> GenerationServing: ...
@overload
def serve(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    layout: _core.ServingLayout | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
    max_batched_tokens: int | None = None,
    max_running_sequences: int | None = None,
    expert_cluster: str | Path | Mapping[str, Any] | Cluster | None = None,
) -> Serving: ...
@named_arguments
def serve(
    model: str | Path | Mapping[str, Any] | Model | ComposedModel,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference | Generation,
    layout: _core.ServingLayout | GroupStrategy | _core.Strategy | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
    max_batched_tokens: int | None = None,
    max_running_sequences: int | None = None,
    expert_cluster: str | Path | Mapping[str, Any] | Cluster | None = None,
) -> Serving | BatchServing | GenerationServing:
    """What a serving plan delivers in its steady state.

    Parameters
    ----------
    model, cluster
        As for `estimate`. A model of layer groups (an encoder, a ranking model) answers with one
        forward pass over the requests that have arrived, on the whole cluster; see `serve_batches`.
        A generator of images or videos (``"flux_1_dev"``) answers a `Generation`.
    task : Inference or Generation
    layout : ServingLayout, optional
        Degrees of one instance; a single accelerator when left out. A GroupStrategy for a model of
        layer groups.
    engine : str
        Engine and version: a catalogue name, or a text such as ``"TensorRT-LLM 1.0"``.
    concurrency : float, optional
        Sequences kept running, over all replicas. Neither this nor `requests_per_s`: as many as
        memory and the engine allow.
    requests_per_s : float, optional
        Requests that arrive at random (Poisson), over all replicas.
    replicas : int, optional
        Instances, each a copy; as many as the cluster holds when left out.
    max_batched_tokens, max_running_sequences : int, optional
        Tokens of a step and sequences of an instance at most, as the engine is started with; the
        engine's own limits when left out.
    expert_cluster : str, path, mapping or Cluster, optional
        Where the ``expert_ranks`` of the layout lie, that hold the experts alone; on `cluster`
        beside attention when left out. Its kernels are those of `engine` too.

    Returns
    -------
    Serving
        A plan that cannot run is an answer with a verdict, not an error. A BatchServing for a model
        of layer groups, a GenerationServing for a Generation.

    Raises
    ------
    ScaleModelError
        An unknown name, a number out of range, both `concurrency` and `requests_per_s`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=2000, output_tokens=200, precision="fp8",
    ...                     kv_precision="fp8")
    >>> plan = sm.serve("llama3_70b", "dgx_h100", task, sm.ServingLayout(tp=4), requests_per_s=2)
    >>> plan.verdict, plan.replicas, plan.tpot_s < 0.05
    ('ok', 2, True)
    >>> sm.serve("llama3_70b", "dgx_h100", task.replace(precision="bf16")).verdict
    'out_of_memory'

    Attention and experts on pools of their own, of unlike accelerators (attention-FFN
    disaggregation: MegaScale-Infer, Step-3), and how busy they are:

    >>> layout = sm.ServingLayout(dp=8, ep=8, expert_ranks=8, micro_batches=3)
    >>> decode = sm.Inference(input_tokens=600, output_tokens=160, prefilled=True)
    >>> plan = sm.serve("mixtral_8x22b", "h20_node", decode, layout.replace(tp=8, dp=1, ep=4),
    ...                 expert_cluster="dgx_h100", concurrency=600)
    >>> plan.verdict, plan.accelerators, list(plan.pools().index)
    ('ok', 16, ['attention', 'experts', 'dispatch', 'combine'])
    """
    if not isinstance(task, (Inference, Generation)):
        raise ScaleModelError(f"task={task!r}: must be an Inference or a Generation")
    if concurrency is not None and requests_per_s is not None:
        raise ScaleModelError("concurrency, requests_per_s: give one of the two")
    for argument, value in (("concurrency", concurrency), ("requests_per_s", requests_per_s)):
        if value is not None:
            number_from_to(argument, value, 0, _MANY)
    limits = engine_limits(max_batched_tokens, max_running_sequences)
    if isinstance(task, Generation):
        if limits:
            raise ScaleModelError(f"{next(iter(limits))}: a Generation has no engine")
        return serve_generation(
            cast(Any, model),
            cluster,
            task,
            cast(Any, layout),
            concurrency=concurrency,
            requests_per_s=requests_per_s,
            replicas=replicas,
            stack=GENERATION_STACK if engine == DEFAULT_ENGINE else engine,
        )
    if is_composed(model):
        if limits:
            raise ScaleModelError(f"{next(iter(limits))}: models of layer groups have no engine")
        if expert_cluster is not None:
            raise ScaleModelError("expert_cluster: models of layer groups have no expert pool")
        return _serve_groups(
            model, cluster, task, layout, engine, replicas, concurrency, requests_per_s
        )
    chosen = resolve.model(cast("str | Path | Mapping[str, Any] | Model", model))
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    task = task.read_by(chosen)
    name = engine_for(engine)
    plan = _core.ServingLayout() if layout is None else layout
    if not isinstance(plan, _core.ServingLayout):
        raise ScaleModelError(f"layout={layout!r}: must be a ServingLayout")
    apart = expert_cluster_of(plan, expert_cluster, task)
    copies = copies_of(plan, where, apart) if replicas is None else replicas
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ScaleModelError(f"replicas={replicas!r}: must be a whole number from 1")
    question = (chosen, where, task, plan, name, copies)
    asked: dict[str, Any] = {
        "asked_rate": requests_per_s,
        "asked_concurrency": concurrency,
        "engine_limits": limits,
        "expert_cluster": apart,
    }
    reason = str(
        _core.check_serving_layout(
            chosen.core, plan, where.core, None if apart is None else apart.core
        )
    )
    if reason == "ok":
        reason = _check_drafts(chosen, where, task, plan, name)
    if reason == "ok" and copies > copies_of(plan, where, apart):
        reason = "mesh"
    if reason != "ok":
        return Serving(*question, f"illegal:{reason}", **asked)
    instance, note = instance_of(chosen, where, task, plan, name, limits, apart)
    capacity = instance.capacity(task.input_tokens, task.output_tokens)
    if capacity.max_running_sequences < 1:
        return Serving(*question, "out_of_memory", note=note, **asked)
    if requests_per_s is not None:
        state = instance.steady_state_at(task.mix, requests_per_s / copies)
    else:
        most = capacity.max_running_sequences if concurrency is None else concurrency / copies
        state = instance.steady_state(task.mix, most)
    return Serving(*question, "ok", note=note, instance=instance, state=state, **asked)


def _check_drafts(
    model: Model, cluster: Cluster, task: Inference, layout: _core.ServingLayout, engine: str
) -> str:
    """``ok``, or why what drafts cannot be spread beside the layout."""
    if task.draft_tp and layout.tp % task.draft_tp:
        raise ScaleModelError(f"draft_tp={task.draft_tp}: must divide tp={layout.tp} of the layout")
    draft = draft_for(model, cluster, engine, drafts_of(task))
    return str(_core.check_draft(draft, layout, cluster.core))


def _serve_groups(
    model: ComposedModel,
    cluster: Any,
    task: Inference,
    strategy: Any,
    engine: str,
    replicas: int | None,
    concurrency: float | None,
    requests_per_s: float | None,
) -> BatchServing:
    """`serve` of a model of layer groups: one instance, the whole cluster, no engine."""
    if engine != DEFAULT_ENGINE:
        raise ScaleModelError(f"engine={engine!r}: models of layer groups have none")
    if replicas not in (None, 1):
        raise ScaleModelError(f"replicas={replicas!r}: models of layer groups fill the cluster")
    batch: Any = concurrency
    if isinstance(concurrency, float) and concurrency.is_integer():
        batch = int(concurrency)
    return serve_batches(model, cluster, task, strategy, batch=batch, requests_per_s=requests_per_s)


#: Fields of a Strategy that a layout has too.
_SHARED_DEGREES = ("tp", "pp", "ep", "cp")


def estimate_serving(
    model: Any, cluster: Any, task: Any, strategy: Any, engine: object
) -> Serving | BatchServing | GenerationServing:
    """What `sm.estimate` answers for an Inference: `serve` at as much as memory allows."""
    if not isinstance(task, (Inference, Generation)):
        raise ScaleModelError(f"task={task!r}: must be a Training, FineTuning or Inference")
    if engine is not None and not isinstance(engine, str):
        raise ScaleModelError(f"stack={engine!r}: must name an engine where a model is served")
    if isinstance(task, Generation):
        return serve(model, cluster, task, strategy, engine=engine or GENERATION_STACK)
    if is_composed(model):
        return serve(model, cluster, task, strategy)
    if isinstance(strategy, _core.Strategy):
        degrees: dict[str, Any] = {name: int(getattr(strategy, name)) for name in _SHARED_DEGREES}
        strategy = _core.ServingLayout(**degrees)
    return serve(model, cluster, task, strategy, engine=engine or DEFAULT_ENGINE)
