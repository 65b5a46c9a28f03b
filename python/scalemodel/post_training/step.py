"""A step of reinforcement learning: rollout, scoring, training and new weights, phase by phase."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.post_training.answer import RlEstimate
from scalemodel.post_training.task import Answered, Rl, Sequences, whole_number
from scalemodel.post_training.weights import (
    WAYS,
    RefitWay,
    reference,
    refit_time,
    switch_time,
)
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import Inference, number_from_to

Framework = Literal["nemo_rl", "verl", "areal"]
FRAMEWORKS = ("nemo_rl", "verl", "areal")
_DEFAULT_ENGINE = "vllm_v1"
#: Share of memory that the engine's own entry gives to weights and cache.
_USUAL_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model that learns from the sequences of a task, or scores them."""

    model: resolve.Model
    task: Sequences
    train: resolve.Cluster
    strategy: _core.Strategy
    stack: StackLike
    logprob_batch: int
    framework: str

    def of(self, model: ModelLike) -> Learner:
        """The same of another model that scores or learns."""
        return replace(self, model=resolve.model(model))

    def step(
        self, sequences: int, *, micro_batch: int = 1, recompute: str | None = None
    ) -> Estimate:
        """An optimizer step over sequences as the task batches them."""
        tokens, micro, batch = self.task.step_batch(
            sequences, self.strategy, int(self.train.accelerators), micro_batch
        )
        strategy = self.strategy.replace(micro_batch=micro)
        if recompute is not None:
            strategy = strategy.replace(recompute=recompute, recompute_layers=0)
        task = self.task.training(batch, tokens)
        return estimate(self.model, self.train, task, strategy, stack=self.stack)

    def scoring(self, recompute: str = "full") -> Estimate:
        """A step over all sequences in the micro-batches of a scoring pass."""
        return self.step(self.task.sequences, micro_batch=self.logprob_batch, recompute=recompute)

    def forward_s(self) -> float:
        """One forward pass over all sequences: what repeating it adds to a step."""
        parts = [self.scoring(recompute) for recompute in ("full", "none")]
        if any(part.illegal for part in parts):
            return math.inf
        factor = _core.head_factor(self.model.shape, self.model.active_parameters)
        return _core.forward_pass_time_s(parts[0].core, parts[1].core, factor)

    def sharded(self) -> bool:
        """Whether the ranks that train hold a shard of every matrix."""
        return str(self.strategy.sharding) in ("zero3", "hsdp")


@dataclass(frozen=True, kw_only=True)
class Generator(Learner):
    """A model that generates the answers of a task, and learns from them."""

    task: Answered
    rollout: resolve.Cluster
    layout: _core.ServingLayout
    engine: str
    memory_share: float
    partial: bool = False
    staleness: int = 0
    refit: RefitWay = "broadcast"
    stale_fraction: float = 1.0

    # -------------------------------------------------------------------------------- rollout
    def replicas(self) -> int:
        """Copies of the engine in its pool."""
        return self.rollout.accelerators // ranks_of(self.layout)

    def served(self, most: float = math.inf) -> Serving:
        """One replica, its running sequences bounded by its share of memory and by `most`."""
        task = Inference(
            input_tokens=self.task.prompt_tokens,
            output_tokens=self.task.generated_tokens,
            precision=_weights(self.task.rollout_precision),
            prefix_hit_fraction=1 - 1 / self.task.generations,
        )
        plan = serve(self.model, self.rollout, task, self.layout, engine=self.engine, replicas=1)
        if plan.verdict != "ok":
            return plan
        if self.memory_share < _USUAL_SHARE:
            held = _core.running_sequences(
                plan.max_concurrency, plan.memory_kv_cache_bytes, self.spared_bytes()
            )
            most = min(most, held)
        if most >= plan.max_running_sequences:
            return plan
        return serve(
            self.model,
            self.rollout,
            task,
            self.layout,
            engine=self.engine,
            replicas=1,
            max_running_sequences=int(most),
        )

    def spared_bytes(self) -> float:
        """Memory that the engine would take and its share leaves to others."""
        capacity = self.rollout.core.accelerator.memory_capacity_bytes
        return _core.spared_memory_bytes(_USUAL_SHARE, self.memory_share, capacity)

    def sustained_s(self, plan: Serving) -> float:
        """Of the answers of a step, by replicas that run as full as the staleness lets them."""
        answers = math.ceil(self.task.sequences * self.task.sampling.oversampling)
        flying = _core.answers_in_flight(answers, self.replicas(), self.staleness)
        if flying < plan.max_running_sequences:
            plan = self.served(flying)
        accepted = self.task.sampling.accepted_fraction
        return _core.sustained_rollout_s(
            self.task.sequences, self.replicas(), plan.requests_per_s, accepted
        )

    def round_s(self, plan: Serving, fraction: float = 1.0) -> float:
        """Until that part of a round is complete: of the replica that has the longest answer."""
        number = math.ceil(self.task.sequences * self.task.sampling.oversampling)
        answers = np.ceil(self.task.answers(number)[:: self.replicas()])
        order = np.random.default_rng(0).permutation(answers.size)
        prompts = np.full(answers.size, float(max(1, round(self.task.prompt_tokens))))
        stream = RequestStream(np.zeros(answers.size), prompts, answers[order])
        finished = np.sort(plan.simulate(stream).requests["finished_s"].to_numpy())
        awaited = math.ceil(fraction * finished.size)
        return float(finished[awaited - 1]) if awaited else 0.0

    def rollout_memory_bytes(self, plan: Serving) -> float:
        """Memory of an accelerator of the engine, by its share."""
        return float(plan.memory_bytes or math.inf) - self.spared_bytes()

    def no_rollout(self, generation: Generation) -> tuple[str, str] | None:
        """Verdict and reason where no replica runs."""
        if generation.serving.verdict != "ok":
            return str(generation.serving.verdict), "rollout: no replica fits"
        if math.isinf(generation.round_s):
            reason = f"rollout: memory_share={self.memory_share:g} holds weights, but no cache"
            return "out_of_memory", reason
        return None

    # ---------------------------------------------------------------------------- new weights
    def refit_s(self, *, colocated: bool) -> float:
        """New weights for all replicas."""
        return refit_time(
            self.model,
            self.train,
            self.rollout,
            self.layout,
            self.task.rollout_precision,
            way="ipc" if colocated else self.refit,
            framework=self.framework,
            sharded=self.sharded(),
        )

    def dispatch_s(self) -> float:
        """Padded answers handed to a pool and back by one controller."""
        per_token = reference("dispatch").number(self.framework)
        return _core.padded_dispatch_s(self.task.sequences, self.task.limit_tokens, per_token)

    def check(self) -> None:
        """Raises where the pool has no room for a replica."""
        if self.replicas() < 1:
            raise ScaleModelError(
                f"layout={self.layout!r}: a replica needs {ranks_of(self.layout)} accelerators, "
                f"the pool has {self.rollout.accelerators}"
            )


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


@named_arguments
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
    refit: RefitWay = "broadcast",
    stale_fraction: float = 1.0,
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
        Steps that answers may be older than the weights, and batches of them under way at once;
        needs `rollout`.
    engine : str
        As in `scalemodel.serve`.
    memory_share : float
        Of an accelerator, for weights and cache of the engine.
    logprob_batch : int
        Packs of a scoring pass.
    partial_rollouts : bool
        Generation goes on over an update of the weights; needs `staleness`.
    framework : str
        ``"nemo_rl"``, ``"verl"`` or ``"areal"``: how fast it scores and trains beside pre-training.
    refit : str
        How new weights reach a pool of its own: ``"broadcast"``, every matrix whole to every rank;
        ``"reshard"``, each rank its own part; ``"rdma"``, each rank its own experts and all else
        whole; ``"rdma_whole"``, each rank all of it over its own link.
    stale_fraction : float
        Of the answers of a step, that may be of older weights where rollouts are partial (verl's
        staleness_threshold): the trainer waits for the others.

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
    if refit not in WAYS:
        raise ScaleModelError(f"refit={refit!r}: must be one of {', '.join(WAYS)}")
    number_from_to("stale_fraction", stale_fraction, 0, 1)
    if stale_fraction < 1 and not partial_rollouts:
        raise ScaleModelError(
            f"stale_fraction={stale_fraction!r}: without partial_rollouts all answers of a step "
            "are of the same weights; must be 1"
        )
    if partial_rollouts and not lag:
        raise ScaleModelError(
            "partial_rollouts=True: answers of older weights need staleness of at least 1"
        )
    where = resolve.cluster(train)
    q = Question(
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
        staleness=lag,
        framework=framework,
        refit=refit,
        stale_fraction=float(stale_fraction),
    )
    q.check()
    return joined(q, learned(q), generated(q), colocated=colocated, staleness=lag)


@dataclass(frozen=True, kw_only=True)
class Question(Generator):
    """A step of reinforcement learning: everything but the phases."""

    task: Rl


class Learning(NamedTuple):
    """The pool that trains.

    Attributes
    ----------
    training, critic : Estimate, Estimate or None
        An optimizer step of either model.
    forward_s, critic_forward_s, reward_forward_s : float
        Passes over all answers of a step; 0: there is no such model.
    obstacle : str
        Which frozen or second model the layout does not cut, and why.
    """

    training: Estimate
    critic: Estimate | None
    forward_s: float
    critic_forward_s: float
    reward_forward_s: float
    obstacle: str = ""


class Generation(NamedTuple):
    """The pool that generates.

    Attributes
    ----------
    serving : Serving
        A replica.
    round_s, sustained_s, fresh_s : float
        Seconds of a round, of a step's answers sustained, and until those are complete that only
        the newest weights may give.
    """

    serving: Serving
    round_s: float
    sustained_s: float
    fresh_s: float = 0.0


def learned(q: Question) -> Learning:
    """An optimizer step of every model that learns, and a forward pass of every one that scores."""
    training = q.step(q.task.batch)
    if training.illegal:
        return Learning(training, None, math.inf, math.inf, math.inf)
    forward_s = q.forward_s()
    critic, critic_s, reward_s, obstacle = None, 0.0, 0.0, ""
    if q.task.critic:
        second = q if q.task.critic_model is None else q.of(q.task.critic_model)
        critic, critic_s = second.step(q.task.batch), second.forward_s()
        obstacle = f"critic: {why(critic)}" if critic.illegal else ""
    if q.task.reward_model is not None:
        frozen = q.of(q.task.reward_model)
        reward_s = frozen.forward_s()
        if math.isinf(reward_s):
            obstacle = f"reward_model: {why(frozen.step(q.task.batch))}"
    return Learning(training, critic, forward_s, critic_s, reward_s, obstacle)


def generated(q: Generator) -> Generation:
    """A replica of the engine, and seconds until the answers are there."""
    serving = q.served()
    if serving.verdict != "ok" or q.spared_bytes() >= serving.memory_kv_cache_bytes:
        return Generation(serving, math.inf, math.inf)
    sustained = q.sustained_s(serving)
    if not q.partial:
        return Generation(serving, q.round_s(serving), sustained)
    # Partial rollouts wait for no last answer: what is unfinished goes on in the next step.
    fresh = q.round_s(serving, 1 - q.stale_fraction) if q.stale_fraction < 1 else 0.0
    return Generation(serving, sustained, sustained, fresh)


def joined(
    q: Question,
    learning: Learning,
    generation: Generation,
    *,
    colocated: bool,
    staleness: int,
) -> RlEstimate:
    """The step of both pools."""
    training, serving = learning.training, generation.serving
    found = RlEstimate(
        task=q.task,
        colocated=colocated,
        staleness=staleness,
        accelerators=q.train.accelerators + (0 if colocated else q.rollout.accelerators),
        phases=_core.RlPhases.never(),
        step_time_s=math.inf,
        rollout_period_s=math.inf,
        training=training,
        critic=learning.critic,
        serving=serving,
        framework=q.framework,
        options={
            "memory_share": q.memory_share,
            "logprob_batch": q.logprob_batch,
            "partial_rollouts": q.partial,
            "refit": q.refit,
            "stale_fraction": q.stale_fraction,
        },
        rollout_memory_bytes=q.rollout_memory_bytes(serving),
        verdict=str(training.verdict),
        reason="" if training.verdict == "ok" else f"training: {why(training)}",
    )
    if obstacle := q.no_rollout(generation):
        return replace(found, verdict=obstacle[0], reason=obstacle[1])
    if training.illegal:
        return found
    if learning.obstacle:
        return replace(found, verdict="illegal:second_model", reason=learning.obstacle)
    if too_much := overflow(found.train_memory_bytes, training):
        found = replace(found, verdict="out_of_memory", reason=f"training: {too_much}")
    passes = _core.RlPasses(
        round_s=generation.round_s,
        sustained_s=generation.sustained_s,
        partial=q.partial,
        fresh_s=generation.fresh_s,
        stale_fraction=q.stale_fraction,
        sampling=q.task.sampling,
        forward_s=learning.forward_s,
        reward_forward_s=learning.reward_forward_s,
        critic_forward_s=learning.critic_forward_s,
        optimizer_step_s=training.step_time_s,
        critic_step_s=0.0 if learning.critic is None else learning.critic.step_time_s,
        optimizer_steps=q.task.optimizer_steps,
        logprob=q.task.logprob,
        reference=q.task.reference,
        learning_fraction=reference("learning").fraction(q.framework),
        dispatch_s=q.dispatch_s(),
        refit_s=q.refit_s(colocated=colocated),
        switch_s=switch_time(q.model, q.train) if colocated else 0.0,
    )
    phases = _core.rl_phases(passes)
    sustained = generation.sustained_s
    return replace(
        found,
        phases=phases,
        step_time_s=_core.rl_step_time_s(phases, sustained, staleness),
        rollout_period_s=_core.rollout_period_s(phases.rollout_s, sustained, staleness),
    )


def why(est: Estimate) -> str:
    """What stands in the way of a step."""
    if est.illegal:
        return str(est.message())
    return f"{size_text(est.memory_bytes)} of {size_text(est.memory_capacity_bytes)}"


def overflow(memory_bytes: float, est: Estimate | Serving) -> str:
    """Memory over that of an accelerator; empty where it fits."""
    capacity = float(est.cluster.core.accelerator.memory_capacity_bytes)
    if memory_bytes <= capacity:
        return ""
    return f"{size_text(memory_bytes)} of {size_text(capacity)}"
