"""A step of reinforcement learning: rollout, scoring, training and new weights, phase by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text, time_text
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.post_training.task import Rl, whole_number
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.reader import Reader
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.resolve.tasks import Training
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import Inference, number_from_to

if TYPE_CHECKING:
    import pandas as pd

Framework = Literal["nemo_rl", "verl"]
FRAMEWORKS = ("nemo_rl", "verl")
_DEFAULT_ENGINE = "vllm_v1"
#: Share of memory that the engine's own entry gives to weights and cache.
_USUAL_SHARE = 0.9
_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5, "fp32": 4, "tf32": 4}
#: Bytes of a parameter that leave the accelerator while it generates: FP32 master and moments,
#: gradients in FP32 (NVIDIA-NeMo/RL, verl: offload of optimizer and gradients).
_SLEEPING_BYTES = 16


class Phases(NamedTuple):
    """Seconds of the phases of a step.

    Attributes
    ----------
    rollout_s, logprob_s, reference_s, critic_s, train_s, refit_s, switch_s : float
        Generation; log-probabilities of the policy; of the reference; the critic's scores; all
        optimizer steps, the critic's too; new weights for the engine; sleeping and waking.
    """

    rollout_s: float
    logprob_s: float
    reference_s: float
    critic_s: float
    train_s: float
    refit_s: float
    switch_s: float

    @property
    def learning_s(self) -> float:
        """Of the pool that trains: all passes over the answers."""
        return self.logprob_s + self.reference_s + self.critic_s + self.train_s

    @property
    def between_s(self) -> float:
        """Neither pool works meanwhile: new weights, sleeping and waking."""
        return self.refit_s + self.switch_s


@dataclass(frozen=True, repr=False)
class RlEstimate:
    """What a step takes, phase by phase. Made by `estimate_rl`.

    Attributes
    ----------
    task : Rl
    colocated : bool
        Whether the same accelerators generate and train.
    staleness : int
        Steps that the policy may be older than the weights it trains.
    accelerators : int
        Of both pools.
    phases : Phases
        Seconds of each; infinite where the step cannot run.
    step_time_s : float
        Of a whole step: the sum where one phase waits for the other, else the longer of both pools
        with the new weights.
    training, serving : Estimate, Serving
        One optimizer step, and one replica of the engine.
    verdict, reason : str
        ``"ok"``, or what stands in the way and where. Numbers of a training step that does not fit
        are filled all the same.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> step = sm.estimate_rl("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2, recompute="full"))
    >>> step.verdict, 0.2 < step.phases.rollout_s / step.step_time_s < 0.9
    ('ok', True)
    """

    task: Rl
    colocated: bool
    staleness: int
    accelerators: int
    phases: Phases
    step_time_s: float
    training: Estimate
    serving: Serving
    verdict: str
    reason: str = ""

    @property
    def samples_per_s(self) -> float:
        """Answers trained on, a second."""
        return self.task.sequences / self.step_time_s

    @property
    def tokens_per_s_per_accelerator(self) -> float:
        """Tokens of prompts and answers a second, over the accelerators of both pools."""
        return self.samples_per_s * self.task.mean_length() / self.accelerators

    def breakdown(self) -> pd.DataFrame:
        """Phases in order: phase, pool, time_s. Pools that run beside each other overlap."""
        import pandas as pd

        pools = ("rollout", "training", "training", "training", "training", "both", "both")
        rows = [
            (name.removesuffix("_s"), "both" if self.colocated else pool, seconds)
            for (name, seconds), pool in zip(self.phases._asdict().items(), pools, strict=True)
        ]
        return pd.DataFrame(rows, columns=["phase", "pool", "time_s"])

    def memory(self) -> pd.DataFrame:
        """Memory of the fullest accelerator: phase, memory_bytes, capacity_bytes, fits."""
        import pandas as pd

        rows = [
            (name, float(held.memory_bytes), float(self.training.memory_capacity_bytes))
            for name, held in (("rollout", self.serving), ("train", self.training))
        ]
        frame = pd.DataFrame(rows, columns=["phase", "memory_bytes", "capacity_bytes"])
        frame["fits"] = frame.memory_bytes <= frame.capacity_bytes
        return frame

    def __repr__(self) -> str:
        if not math.isfinite(self.step_time_s):
            return f"RlEstimate({self.verdict}: {self.reason})"
        parts = ", ".join(
            f"{name.removesuffix('_s')} {time_text(seconds)}"
            for name, seconds in self.phases._asdict().items()
            if seconds > 0
        )
        said = "" if self.verdict == "ok" else f"{self.verdict}, {self.reason}: "
        return f"RlEstimate({said}step {time_text(self.step_time_s)}: {parts})"


@dataclass(frozen=True)
class _Question:
    """Everything but the phases."""

    model: resolve.Model
    task: Rl
    train: resolve.Cluster
    rollout: resolve.Cluster
    strategy: _core.Strategy
    layout: _core.ServingLayout
    engine: str
    stack: StackLike
    memory_share: float
    logprob_batch: int
    partial: bool
    framework: str

    # ------------------------------------------------------------------------------- training
    def step(
        self, sequences: int, *, micro_batch: int = 1, recompute: str | None = None
    ) -> Estimate:
        """An optimizer step over packed sequences, as equal ones of the same attention."""
        # Lengths are padded to what context and tensor ranks divide (Megatron-Core, packed runs).
        multiple = (2 * self.strategy.cp if self.strategy.cp > 1 else 1) * self.strategy.tp
        each = multiple * max(1, math.ceil(self.task.equal_length() / multiple))
        strategy = self.strategy
        replicas = max(1, self.train.accelerators // (strategy.tp * strategy.cp * strategy.pp))
        equal = sequences * self.task.mean_length() / each
        # A pack holds as much as its limit, or all that is there for a replica.
        packed = max(1, min(round(micro_batch * self.task.limit_tokens / each), equal // replicas))
        strategy = strategy.replace(micro_batch=int(packed))
        if recompute is not None:
            strategy = strategy.replace(recompute=recompute, recompute_layers=0)
        wave = int(packed) * replicas
        batch = math.ceil(equal / wave) * wave
        task = Training(global_batch=batch, sequence=each, precision=self.task.precision)
        return estimate(self.model, self.train, task, strategy, stack=self.stack)

    def forward_s(self) -> float:
        """One forward pass over all sequences: what repeating it adds to a step."""
        parts = [
            self.step(self.task.sequences, micro_batch=self.logprob_batch, recompute=recompute)
            for recompute in ("full", "none")
        ]
        if any(part.illegal for part in parts):
            return math.nan
        repeated, plain = (
            float(
                part.compute_s
                + part.exposed_tp_s
                + part.exposed_ep_s
                + part.exposed_cp_s
                + part.bubble_s
            )
            for part in parts
        )
        return repeated - plain

    # -------------------------------------------------------------------------------- rollout
    def replicas(self) -> int:
        return self.rollout.accelerators // ranks_of(self.layout)

    def served(self) -> Serving:
        """One replica, its running sequences bounded by its share of memory."""
        task = Inference(
            input_tokens=self.task.prompt_tokens,
            output_tokens=self.task.generated_tokens,
            precision=_weights(self.task.rollout_precision),
            prefix_hit_fraction=1 - 1 / self.task.generations,
        )
        plan = serve(self.model, self.rollout, task, self.layout, engine=self.engine, replicas=1)
        if plan.verdict != "ok" or self.memory_share >= _USUAL_SHARE:
            return plan
        capacity = self.rollout.core.accelerator.memory_capacity_bytes
        less = (_USUAL_SHARE - self.memory_share) * capacity
        kept = max(0.0, 1 - less / plan.memory_kv_cache_bytes)
        most = max(1, int(kept * plan.max_concurrency))
        return serve(
            self.model,
            self.rollout,
            task,
            self.layout,
            engine=self.engine,
            replicas=1,
            max_running_sequences=min(most, int(plan.max_running_sequences)),
        )

    def rollout_s(self, plan: Serving) -> float:
        """Until the last answer is complete: of the replica that has the longest one.

        Partial rollouts wait for no last answer: what is unfinished goes on in the next step, and
        replicas run as full as they can.
        """
        if self.partial:
            return float(self.task.sequences / (self.replicas() * plan.requests_per_s))
        answers = np.ceil(self.task.answers()[:: self.replicas()])
        order = np.random.default_rng(0).permutation(answers.size)
        prompts = np.full(answers.size, float(max(1, round(self.task.prompt_tokens))))
        stream = RequestStream(np.zeros(answers.size), prompts, answers[order])
        return float(plan.simulate(stream).requests["finished_s"].max())

    # ------------------------------------------------------------------------------ new weights
    def switch_s(self) -> float:
        """Optimizer states and gradients to the host and back, and an engine that wakes."""
        size = _SLEEPING_BYTES * self.model.parameters / self.train.accelerators
        host = self.train.core.accelerator.host_bandwidth_bytes_per_s
        moved = 2 * size / host if host > 0 else 0.0
        return moved + _reference("switch").number("wake")


def _reference(part: str) -> Reader:
    table = Reader(catalog.load("reference", "post_training"), "reference/post_training")
    return table.sub(part)


def refit_time(
    model: resolve.Model,
    pool: resolve.Cluster,
    layout: _core.ServingLayout,
    precision: str,
    *,
    colocated: bool,
) -> float:
    """Seconds of new weights for all replicas: a receiver's bytes over its link, and its tensors.

    Pools apart send every receiver its part. On the same accelerators each rank gathers the whole
    model, tensor by tensor, and keeps its part, over the network where training spans several
    domains (NVIDIA-NeMo/RL, design documents: 36.8 s for DeepSeek-V3 on H100 where every rank
    receives all experts, 2.6 s where each receives its own). Without any link it is a copy in
    memory.
    """
    fixed, place = _reference("refit"), pool.core
    fast = colocated and place.scale_up.domain >= pool.accelerators
    links = (place.scale_up,) if fast else (place.fabric, place.scale_up)
    rates = [link.p2p_fraction * link.bandwidth_bytes_per_s for link in links]
    copied = place.accelerator.memory_bandwidth_bytes_per_s / 2
    rate = next((rate for rate in rates if rate > 0), copied)
    matrices = model.shape.layers * (7 + 3 * int(model.shape.experts))
    size = model.parameters * _BYTES[precision] / (1 if colocated else ranks_of(layout))
    return fixed.number("start") + matrices * fixed.number("tensor") + size / rate


def _weights(precision: str) -> Any:
    return "bf16" if precision in ("tf32", "fp32", "fp16") else precision


def _whole_steps(staleness: object, *, colocated: bool) -> int:
    if isinstance(staleness, bool) or not isinstance(staleness, int) or not 0 <= staleness <= 1000:
        raise ScaleModelError(f"staleness={staleness!r}: must be a whole number from 0 to 1000")
    if staleness and colocated:
        raise ScaleModelError(
            f"staleness={staleness}: accelerators that generate and train in turn have none; "
            "give a pool of its own (rollout=)"
        )
    return staleness


def estimate_rl(
    model: ModelLike,
    train: ClusterLike,
    task: Rl,
    strategy: _core.Strategy | None = None,
    layout: _core.ServingLayout | None = None,
    *,
    rollout: ClusterLike | None = None,
    staleness: int = 0,
    engine: str = _DEFAULT_ENGINE,
    stack: StackLike = DEFAULT_STACK,
    memory_share: float = 0.6,
    logprob_batch: int = 1,
    partial_rollouts: bool = False,
    framework: Framework = "nemo_rl",
) -> RlEstimate:
    """A whole step of reinforcement-learning post-training.

    Rollout is a closed batch through the engine's simulation: batches shrink as answers end, and
    the longest ones run almost alone. Scoring passes are forward passes of the training layout,
    training is an optimizer step per `Rl.train_batch` sequences, packed. Phases follow one another
    on the same accelerators, and where the staleness is 0; else the longer pool decides.

    Parameters
    ----------
    model, train, stack
        As in `scalemodel.estimate`; `train` is the cluster that trains.
    task : Rl
    strategy : Strategy, optional
        Of training; its micro-batch is set by the packs.
    layout : ServingLayout, optional
        Of one replica of the engine.
    rollout : cluster, optional
        Accelerators that generate; those that train when left out (colocated).
    staleness : int
        Steps that answers may be older than the weights; needs `rollout`.
    engine : str
        As in `scalemodel.serve`.
    memory_share : float
        Of an accelerator, for weights and cache of the engine.
    logprob_batch : int
        Packs of a scoring pass.
    partial_rollouts : bool
        Generation goes on over an update of the weights; needs `staleness`.
    framework : str
        ``"nemo_rl"`` or ``"verl"``: how fast it scores and trains beside pre-training.

    Returns
    -------
    RlEstimate
        With a verdict where a pool does not hold its part.

    Raises
    ------
    ScaleModelError
        A value out of range, staleness of one pool, a pool smaller than a replica.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> one = sm.cluster("dgx_h100")
    >>> apart = sm.estimate_rl("llama3_8b", one, task, sm.Strategy(tp=2, recompute="full"),
    ...                        rollout=one, staleness=1)
    >>> apart.step_time_s < apart.phases.rollout_s + apart.phases.learning_s
    True
    """
    if not isinstance(task, Rl):
        raise ScaleModelError(f"task={task!r}: must be an Rl")
    colocated = rollout is None
    lag = _whole_steps(staleness, colocated=colocated)
    number_from_to("memory_share", memory_share, 0.01, 1)
    whole_number("logprob_batch", logprob_batch)
    if framework not in FRAMEWORKS:
        legal = ", ".join(FRAMEWORKS)
        raise ScaleModelError(f"framework={framework!r}: must be one of {legal}")
    if partial_rollouts and not lag:
        raise ScaleModelError(
            "partial_rollouts=True: answers of older weights need staleness of at least 1"
        )
    where = resolve.cluster(train)
    q = _Question(
        model=resolve.model(model),
        task=task,
        train=where,
        rollout=where if rollout is None else resolve.cluster(rollout),
        strategy=strategy or _core.Strategy(),
        layout=layout or _core.ServingLayout(),
        engine=engine,
        stack=stack,
        memory_share=memory_share,
        logprob_batch=logprob_batch,
        partial=partial_rollouts,
        framework=framework,
    )
    if q.replicas() < 1:
        raise ScaleModelError(
            f"layout={q.layout!r}: a replica needs {ranks_of(q.layout)} accelerators, the pool has "
            f"{q.rollout.accelerators}"
        )
    return _joined(q, colocated=colocated, staleness=lag)


def _joined(q: _Question, *, colocated: bool, staleness: int) -> RlEstimate:
    training, serving = q.step(q.task.batch), q.served()
    found = RlEstimate(
        task=q.task,
        colocated=colocated,
        staleness=staleness,
        accelerators=q.train.accelerators + (0 if colocated else q.rollout.accelerators),
        phases=Phases(*7 * (math.inf,)),
        step_time_s=math.inf,
        training=training,
        serving=serving,
        verdict=str(training.verdict),
        reason="" if training.verdict == "ok" else f"training: {_why(training)}",
    )
    if serving.verdict != "ok":
        return replace(found, verdict=str(serving.verdict), reason="rollout: no replica fits")
    if training.illegal:
        return found
    share = _reference("learning").fraction(q.framework)
    forward, copies = q.forward_s() / share, 2 if q.task.critic else 1
    phases = Phases(
        rollout_s=q.rollout_s(serving),
        logprob_s=forward,
        reference_s=forward if q.task.reference else 0.0,
        critic_s=forward if q.task.critic else 0.0,
        train_s=copies * q.task.optimizer_steps * float(training.step_time_s) / share,
        refit_s=refit_time(
            q.model, q.rollout, q.layout, q.task.rollout_precision, colocated=colocated
        ),
        switch_s=q.switch_s() if colocated else 0.0,
    )
    apart = max(phases.rollout_s, phases.learning_s)
    busy = apart if staleness else phases.rollout_s + phases.learning_s
    return replace(found, phases=phases, step_time_s=busy + phases.between_s)


def _why(est: Estimate) -> str:
    if est.illegal:
        return str(est.message())
    return f"{size_text(est.memory_bytes)} of {size_text(est.memory_capacity_bytes)}"
