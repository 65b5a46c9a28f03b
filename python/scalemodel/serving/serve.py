"""One serving plan in its steady state: `serve` and the `Serving` it returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from scalemodel import _core, catalog, resolve
from scalemodel.answer import ColumnAnswer
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import is_composed
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for, kernels_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.energy import accelerator_power_w, decode_load
from scalemodel.serving.task import Inference, number_from_to

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.groups import ComposedModel, GroupStrategy
    from scalemodel.serving.batches import BatchServing
    from scalemodel.serving.stream import Arrivals, Balance, Lengths, RequestStream, ServedStream

_MANY = 1e9  # sequences, or requests per second

#: Columns of a step by cause; they sum to ``step_time_s``.
STEP_COLUMNS = tuple(
    str(row["name"]) for row in _core.StepTime.fields() if row["name"] != "step_time_s"
)

#: Columns that say what fills the fullest accelerator.
MEMORY_COLUMNS = (
    "memory_weights_bytes",
    "memory_activations_bytes",
    "memory_reserve_bytes",
    "memory_cache_bytes",
)


@catalog.kept(256)
def deployment_for(
    model: Model,
    cluster: Cluster,
    precision: str,
    kv_precision: str,
    imbalance: float,
    layout: _core.ServingLayout,
    engine: str,
    constants: _core.Engine | None = None,
) -> tuple[_core.Deployment, str]:
    """One instance, tabulated, and a note on the kernels that stand in for others.

    `constants` take the place of the engine's own.
    """
    kernels, note = kernels_for(cluster, engine, model.shape, precision, kv_precision)
    built = _core.Deployment(
        model.core,
        cluster.core,
        engine_constants(engine) if constants is None else constants,
        kernels,
        layout,
        imbalance,
    )
    return built, note


def _deployment_of(
    model: Model, cluster: Cluster, task: Inference, layout: _core.ServingLayout, engine: str
) -> tuple[_core.Deployment, str]:
    """The instance that serves a task, and the note on its kernels."""
    return deployment_for(
        model, cluster, task.precision, task.kv_precision, float(task.imbalance), layout, engine
    )


class Serving(ColumnAnswer):
    """What a serving plan delivers. Made by `serve`.

    Every column of `to_dict` is an attribute; the numbers are None for a plan that cannot run.

    Attributes
    ----------
    model, cluster, task, layout, engine, replicas
        The question; `engine` is the catalogue name.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``.
    asked_rate : float or None
        Requests per second that were asked for, over all replicas.
    note : str
        Kernels of other accelerators or formats that stand in for unmeasured ones.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=16)
    >>> plan.verdict, plan.replicas
    ('ok', 8)
    """

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        task: Inference,
        layout: _core.ServingLayout,
        engine: str,
        replicas: int,
        verdict: str,
        note: str = "",
        deployment: _core.Deployment | None = None,
        state: _core.SteadyState | None = None,
        asked_rate: float | None = None,
    ) -> None:
        self.model = model
        self.cluster = cluster
        self.task = task
        self.layout = layout
        self.engine = engine
        self.replicas = replicas
        self.verdict = verdict
        self.note = note
        self.deployment = deployment
        self.state = state
        self.asked_rate = asked_rate
        self._columns = self._answer()

    def __getstate__(self) -> dict[str, Any]:
        # The tables of an instance follow from the question.
        return {**self.__dict__, "deployment": self.deployment is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        if state["deployment"]:
            self.deployment, _ = _deployment_of(
                self.model, self.cluster, self.task, self.layout, self.engine
            )
        else:
            self.deployment = None

    def __repr__(self) -> str:
        if not self.fits:
            return f"Serving({self.verdict})"
        ttft = "never settles" if self.saturated else f"{1e3 * self.ttft_s:.3g} ms"
        return (
            f"Serving({self.verdict}, {self.output_tokens_per_s:.4g} tokens/s, TTFT {ttft}, "
            f"TPOT {1e3 * self.tpot_s:.3g} ms, {self.concurrency:.4g} running)"
        )

    def _answer(self) -> dict[str, Any]:
        names = (*_ANSWER, *MEMORY_COLUMNS, *STEP_COLUMNS)
        if self.state is None or self.deployment is None:
            return dict.fromkeys(names)
        state, task = self.state, self.task
        capacity = self.deployment.capacity(task.input_tokens, task.output_tokens)
        requests = self.replicas * state.requests_per_s
        accelerators = self.replicas * ranks_of(self.layout)
        price = accelerators * float(self.cluster.core.price_usd_per_s)
        output = requests * task.output_tokens
        answer = {
            "concurrency": self.replicas * state.concurrency,
            "most_concurrency": self.replicas * capacity.most_sequences,
            "requests_per_s": requests,
            "output_tokens_per_s": output,
            "tokens_per_s": requests * (task.input_tokens + task.output_tokens),
            "output_tokens_per_s_per_accelerator": output / accelerators,
            "ttft_s": None if state.saturated else state.ttft_s,
            "tpot_s": state.tpot_s,
            "latency_s": None
            if state.saturated
            else state.ttft_s + (task.output_tokens - 1) * state.tpot_s,
            "utilisation_fraction": state.utilisation,
            "saturated": state.saturated,
            "accelerators": accelerators,
            "usd_per_million_output_tokens": 1e6 * price / output if price and output else None,
            "step_time_s": state.step_time_s,
            "memory_bytes": sum(getattr(capacity, name) for name in MEMORY_COLUMNS),
        }
        answer |= {name: getattr(capacity, name) for name in MEMORY_COLUMNS}
        load = decode_load(
            self.model, self.cluster, task, self.layout, self.deployment, state.concurrency
        )
        power_w = accelerators * accelerator_power_w(self.cluster, load)
        answer |= {"power_w": power_w, "output_tokens_per_j": output / power_w}
        step = self.step()
        return answer | {name: getattr(step, name) for name in STEP_COLUMNS}

    def step(self) -> _core.StepTime:
        """A step without prompts at the mean context and the concurrency of one instance."""
        if self.deployment is None or self.state is None:
            raise ScaleModelError(f"step: the plan does not run ({self.verdict})")
        task = self.task
        return self.deployment.step(
            sequences=self.state.concurrency,
            context=task.input_tokens + (task.output_tokens + 1) / 2,
            queries=1 + task.speculative_tokens,
            drafts=task.speculative_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """The layout's fields, the verdict and every column of the answer.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
        >>> row = sm.serve("llama3_8b", "dgx_h100", task, concurrency=32).to_dict()
        >>> row["tp"], row["verdict"], row["tpot_s"] < 0.05
        (1, 'ok', True)
        """
        return {
            **self.layout.to_dict(),
            "replicas": self.replicas,
            "verdict": self.verdict,
            **self._columns,
        }

    def simulate(
        self,
        stream: RequestStream | None = None,
        *,
        requests: int = 1000,
        arrivals: Arrivals = "poisson",
        lengths: Lengths = "fixed",
        seed: int = 0,
        balance: Balance = "random",
    ) -> ServedStream:
        """Serve a stream request by request: queues, batches, evictions, percentiles.

        Parameters
        ----------
        stream : RequestStream, optional
            A trace, or what `request_stream` makes. Without it, one of the plan's own rate; all
            at once where no rate was asked for.
        requests, arrivals, lengths, seed
            Of that stream, as for `request_stream`; `seed` also of the random choice of replicas.
        balance : str
            How a load balancer spreads the stream over the replicas: ``"random"``, which leaves
            Poisson arrivals at each, as `requests_per_s` of `serve` takes them, or
            ``"round_robin"``, which makes them more even and waits shorter.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=1000, output_tokens=100)
        >>> plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=16)
        >>> served = plan.simulate(requests=400, lengths="exponential")
        >>> len(served.requests), served.summary()["refused"]
        (400, 0.0)
        """
        from scalemodel.serving.stream import simulate

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
        vllm serve llama3_70b --tensor-parallel-size 4 ...
        """
        from scalemodel.serving.launch import launch_command

        return launch_command(self)

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


_ANSWER = (
    "concurrency",
    "most_concurrency",
    "requests_per_s",
    "output_tokens_per_s",
    "tokens_per_s",
    "output_tokens_per_s_per_accelerator",
    "ttft_s",
    "tpot_s",
    "latency_s",
    "utilisation_fraction",
    "saturated",
    "accelerators",
    "usd_per_million_output_tokens",
    "step_time_s",
    "memory_bytes",
    "power_w",
    "output_tokens_per_j",
)


def ranks_of(layout: _core.ServingLayout) -> int:
    """Accelerators of one instance."""
    return int(layout.tp * layout.dp * layout.cp * layout.pp)


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
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    layout: _core.ServingLayout | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
) -> Serving: ...
def serve(
    model: str | Path | Mapping[str, Any] | Model | ComposedModel,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    layout: _core.ServingLayout | GroupStrategy | _core.Strategy | None = None,
    *,
    engine: str = DEFAULT_ENGINE,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
) -> Serving | BatchServing:
    """What a serving plan delivers in its steady state.

    Parameters
    ----------
    model, cluster
        As for `estimate`. A model of layer groups (an encoder, a ranking model) answers with one
        forward pass over whoever came, on the whole cluster; see `serve_batches`.
    task : Inference
    layout : ServingLayout, optional
        Degrees of one instance; a single accelerator when left out. A GroupStrategy for a model of
        layer groups.
    engine : str
        Engine and era: a catalogue name, or a text such as ``"TensorRT-LLM 1.0"``.
    concurrency : float, optional
        Sequences kept running, over all replicas. Neither this nor `requests_per_s`: as many as
        memory and the engine allow.
    requests_per_s : float, optional
        Requests that arrive at random (Poisson), over all replicas.
    replicas : int, optional
        Instances, each a copy; as many as the cluster holds when left out.

    Returns
    -------
    Serving
        A plan that cannot run is an answer with a verdict, not an error. A BatchServing for a model
        of layer groups.

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
    """
    if not isinstance(task, Inference):
        raise ScaleModelError(f"task={task!r}: must be an Inference")
    if concurrency is not None and requests_per_s is not None:
        raise ScaleModelError("concurrency, requests_per_s: give one of the two")
    for argument, value in (("concurrency", concurrency), ("requests_per_s", requests_per_s)):
        if value is not None:
            number_from_to(argument, value, 0, _MANY)
    if is_composed(model):
        return _serve_groups(
            model, cluster, task, layout, engine, replicas, concurrency, requests_per_s
        )
    chosen = resolve.model(cast("str | Path | Mapping[str, Any] | Model", model))
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    name = engine_for(engine)
    plan = _core.ServingLayout() if layout is None else layout
    if not isinstance(plan, _core.ServingLayout):
        raise ScaleModelError(f"layout={layout!r}: must be a ServingLayout")
    copies = max(1, where.accelerators // ranks_of(plan)) if replicas is None else replicas
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ScaleModelError(f"replicas={replicas!r}: must be a whole number from 1")
    question = (chosen, where, task, plan, name, copies)
    reason = str(_core.check_serving_layout(chosen.core, plan, where.core))
    if reason == "ok" and copies * ranks_of(plan) > where.accelerators:
        reason = "mesh"
    if reason != "ok":
        return Serving(*question, f"illegal:{reason}")
    deployment, note = _deployment_of(chosen, where, task, plan, name)
    capacity = deployment.capacity(task.input_tokens, task.output_tokens)
    if capacity.most_sequences < 1:
        return Serving(*question, "out_of_memory", note)
    if requests_per_s is not None:
        state = deployment.steady_state_at(task.mix, requests_per_s / copies)
    else:
        most = capacity.most_sequences if concurrency is None else concurrency / copies
        state = deployment.steady_state(task.mix, most)
    return Serving(*question, "ok", note, deployment, state, requests_per_s)


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
    from scalemodel.serving.batches import serve_batches

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
    model: Any, cluster: Any, task: Any, strategy: Any, engine: str | None
) -> Serving | BatchServing:
    """What `sm.estimate` answers for an Inference: `serve` at as much as memory allows."""
    if not isinstance(task, Inference):
        raise ScaleModelError(f"task={task!r}: must be a Training, FineTuning or Inference")
    if is_composed(model):
        return serve(model, cluster, task, strategy)
    if isinstance(strategy, _core.Strategy):
        degrees = {name: int(getattr(strategy, name)) for name in _SHARED_DEGREES}
        strategy = _core.ServingLayout(**degrees)
    return serve(model, cluster, task, strategy, engine=engine or DEFAULT_ENGINE)
