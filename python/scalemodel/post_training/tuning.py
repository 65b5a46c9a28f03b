"""A step of preference tuning or of distillation: passes, frozen models, logits handed on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import size_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate
from scalemodel.post_training.step import (
    FRAMEWORKS,
    Generation,
    Generator,
    Learner,
    generated,
    overflow,
    why,
)
from scalemodel.post_training.task import whole_number
from scalemodel.post_training.tuning_answer import Place, TuningEstimate
from scalemodel.post_training.tuning_tasks import Distillation, Preference
from scalemodel.post_training.weights import WAYS, RefitWay, reference, switch_time
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.serving.serve import Serving
from scalemodel.serving.task import number_from_to

TuningFramework = Literal["plain", "nemo_rl", "verl", "areal"]
TUNING_FRAMEWORKS = ("plain", *FRAMEWORKS)
_PLACES = ("host", "resident")


@named_arguments
def estimate_tuning(
    model: ModelLike,
    cluster: ClusterLike,
    task: Preference | Distillation,
    strategy: _core.Strategy | None = None,
    layout: _core.ServingLayout | None = None,
    *,
    frozen: Literal["host", "resident"] = "host",
    teacher_strategy: _core.Strategy | None = None,
    teacher_cluster: ClusterLike | None = None,
    rollout: ClusterLike | None = None,
    engine: str = "vllm_v1",
    stack: StackLike = DEFAULT_STACK,
    memory_share: float = 0.6,
    logprob_batch: int = 1,
    framework: TuningFramework = "plain",
    refit: RefitWay = "broadcast",
) -> TuningEstimate:
    """A whole step of preference tuning or of distillation.

    Passes without gradients are forward passes of a training layout, training is an optimizer step
    over all sequences. Phases follow one another on the same accelerators. A teacher on
    accelerators of its own works one step ahead of its student, and the longer of both decides.
    Where the student generates the answers, its rollout is that of `estimate_rl`; the pools of both
    wait for each other. Supervised fine-tuning, which has no frozen model, is `estimate` of
    `Training` or `FineTuning`.

    Parameters
    ----------
    model, cluster, stack
        As in `scalemodel.estimate`: the model that learns, and the cluster that trains it.
    task : Preference or Distillation
    strategy : Strategy, optional
        Of training. Its micro-batch counts pairs of `Preference`; packs set it elsewhere.
    layout : ServingLayout, optional
        Of one replica of the student's engine.
    frozen : str
        Where the weights of a reference or a teacher on the same accelerators are between their
        passes. ``"host"``: they are copied in, and the policy's weights, or the optimizer states of
        a student, give way meanwhile; ``"resident"``: beside those of the model that learns,
        sharded as it is. The reference of adapters has none of its own.
    teacher_strategy : Strategy, optional
        Of the teacher; that of training when left out.
    teacher_cluster : cluster, optional
        Accelerators of the teacher's own; those that train when left out.
    rollout : cluster, optional
        Accelerators that generate; those that train when left out (colocated).
    engine, memory_share, refit
        As in `estimate_rl`.
    logprob_batch : int
        Micro-batches of training, or packs, that a pass without gradients takes at once.
    framework : str
        ``"plain"``: scoring and training are as fast as pre-training with the same stack;
        ``"nemo_rl"``, ``"verl"`` and ``"areal"`` as in `estimate_rl`.

    Returns
    -------
    TuningEstimate
        With a verdict where a pool does not hold its part.

    Raises
    ------
    ScaleModelError
        A value out of range, a pool smaller than a replica, or an argument of a teacher or of a
        rollout that the task has not.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Distillation(teacher="llama3_70b", prompts=64, prompt_tokens=200,
    ...                        generated_tokens=800, limit_tokens=4096)
    >>> one = sm.cluster("dgx_h100")
    >>> turns = sm.estimate_tuning("llama3_8b", one, task, sm.Strategy(tp=8))
    >>> apart = sm.estimate_tuning("llama3_8b", one, task, sm.Strategy(tp=8), teacher_cluster=one)
    >>> apart.step_time_s == max(apart.phases.teaching_s, apart.phases.learning_s)
    True
    >>> apart.step_time_s < turns.step_time_s
    True
    """
    if not isinstance(task, (Preference, Distillation)):
        raise ScaleModelError(f"task={task!r}: must be a Preference or a Distillation")
    for name, given, legal in (
        ("frozen", frozen, _PLACES),
        ("framework", framework, TUNING_FRAMEWORKS),
        ("refit", refit, WAYS),
    ):
        if given not in legal:
            raise ScaleModelError(f"{name}={given!r}: must be one of {', '.join(legal)}")
    number_from_to("memory_share", memory_share, 0.01, 1)
    whole_number("logprob_batch", logprob_batch)
    _refuse_what_is_not_there(
        task,
        teacher={"teacher_strategy": teacher_strategy, "teacher_cluster": teacher_cluster},
        generation={"layout": layout, "rollout": rollout},
    )
    learner = Learner(
        model=resolve.model(model),
        task=task,
        train=resolve.cluster(cluster),
        strategy=strategy or _core.Strategy(),
        stack=stack,
        logprob_batch=logprob_batch,
        framework=framework,
    )
    options = {"memory_share": memory_share, "logprob_batch": logprob_batch, "refit": refit}
    if isinstance(task, Preference):
        return _preference(learner, task, frozen, options)
    teacher = replace(
        learner.of(task.teacher),
        train=learner.train if teacher_cluster is None else resolve.cluster(teacher_cluster),
        strategy=teacher_strategy or learner.strategy,
    )
    words = int(teacher.model.shape.vocab)
    if task.top_k is not None and task.top_k > words:
        raise ScaleModelError(
            f"top_k={task.top_k}: the vocabulary of teacher={teacher.model.name!r} has {words} "
            "tokens; must be at most as many, or None for all"
        )
    place: Place = frozen if teacher_cluster is None else "apart"
    if not task.on_policy:
        return _distillation(learner, task, teacher, place, options)
    q = Generator(
        **vars(learner),
        rollout=learner.train if rollout is None else resolve.cluster(rollout),
        layout=layout or _core.ServingLayout(),
        engine=engine,
        memory_share=memory_share,
        refit=refit,
    )
    q.check()
    return _distillation(q, task, teacher, place, options, colocated=rollout is None)


def _refuse_what_is_not_there(
    task: Preference | Distillation, teacher: dict[str, Any], generation: dict[str, Any]
) -> None:
    for name, given in teacher.items():
        if given is not None and isinstance(task, Preference):
            raise ScaleModelError(
                f"{name}={given!r}: a Preference has no teacher; a Distillation has"
            )
    for name, given in generation.items():
        if given is not None and not getattr(task, "on_policy", False):
            raise ScaleModelError(
                f"{name}={given!r}: the sequences are given, nothing is generated; "
                "Distillation(on_policy=True) generates"
            )


def _paced(learner: Learner) -> float:
    return reference("learning").fraction(learner.framework)


def _found(
    learner: Learner, training: Estimate, place: Place, options: dict[str, Any], **more: Any
) -> TuningEstimate:
    """The answer before its phases."""
    fits = training.verdict == "ok"
    return TuningEstimate(
        task=learner.task,  # type: ignore[arg-type]
        frozen=place,
        phases=_core.TuningPhases.never(),
        step_time_s=math.inf,
        training=training,
        framework=learner.framework,
        options=options,
        verdict=str(training.verdict),
        reason="" if fits else f"training: {why(training)}",
        **more,
    )


def _timed(found: TuningEstimate, passes: _core.TuningPasses) -> TuningEstimate:
    phases = _core.tuning_phases(passes)
    step_s = _core.tuning_step_time_s(phases, found.teacher_apart)
    return replace(found, phases=phases, step_time_s=step_s)


def _overflowing(found: TuningEstimate) -> TuningEstimate:
    """With the verdict of the pool that does not hold its part."""
    pools: list[tuple[str, float, Estimate | Serving]] = [
        ("training", found.train_memory_bytes, found.training)
    ]
    if found.teacher is not None:
        pools.append(("teacher", found.teacher_memory_bytes, found.teacher))
    if found.serving is not None:
        pools.append(("rollout", found.rollout_memory_bytes, found.serving))
    for pool, held, est in pools:
        if too_much := overflow(held, est):
            return replace(found, verdict="out_of_memory", reason=f"{pool}: {too_much}")
    return found


def _preference(
    learner: Learner, task: Preference, frozen: Place, options: dict[str, Any]
) -> TuningEstimate:
    if task.method == "reward":
        learner = replace(learner, model=learner.model.with_scalar_head())
    training = learner.step(task.batch)
    place = frozen if task.reference_passes and not task.lora_rank else "shared"
    found = _found(
        learner,
        training,
        place,
        options,
        colocated=True,
        accelerators=int(learner.train.accelerators),
        train_memory_bytes=_core.memory_beside_frozen_bytes(
            training.core.memory_bytes, training.core.memory_weights_bytes, 0, place
        ),
    )
    if training.illegal:
        return found
    scores = task.wanted_reference_passes + task.policy_passes
    forward_s = learner.forward_s() if scores else 0.0
    if math.isinf(forward_s):
        return replace(
            found, verdict="illegal:scoring", reason=f"scoring: {why(learner.scoring())}"
        )
    passes = _core.TuningPasses(
        forward_s=forward_s,
        reference_passes=task.reference_passes,
        policy_passes=task.policy_passes,
        swap_s=_core.reference_swap_time_s(training.core, learner.train.core, place),
        optimizer_step_s=training.step_time_s,
        learning_fraction=_paced(learner),
    )
    before = task.wanted_reference_passes if task.precomputed_reference else 0
    found = replace(found, precomputing_s=before * forward_s / _paced(learner))
    return _timed(_overflowing(found), passes)


def _distillation(
    learner: Learner,
    task: Distillation,
    teacher: Learner,
    place: Place,
    options: dict[str, Any],
    *,
    colocated: bool = True,
) -> TuningEstimate:
    training, scoring = learner.step(task.batch), teacher.scoring()
    per_token = _core.logit_bytes(teacher.model.shape.vocab, task.top_k or 0, _logit_format())
    found = _found(
        learner,
        training,
        place,
        options,
        teacher=scoring,
        colocated=colocated,
        accelerators=_accelerators(learner, teacher, place, colocated=colocated),
        train_memory_bytes=_core.memory_beside_frozen_bytes(
            training.core.memory_bytes,
            scoring.core.memory_weights_bytes,
            _received(training, task, per_token),
            place,
        ),
        teacher_memory_bytes=_core.teaching_memory_bytes(scoring.core, training.core, place),
        logit_bytes_per_token=per_token,
    )
    rollout: dict[str, float] = {}
    if isinstance(learner, Generator):
        generation = generated(learner)
        found = replace(
            found,
            serving=generation.serving,
            rollout_memory_bytes=_core.memory_beside_frozen_bytes(
                learner.rollout_memory_bytes(generation.serving),
                scoring.core.memory_weights_bytes if colocated else 0,
                0,
                place,
            ),
        )
        if obstacle := learner.no_rollout(generation):
            return replace(found, verdict=obstacle[0], reason=obstacle[1])
        rollout = _rollout(learner, generation, colocated=colocated)
    if training.illegal:
        return found
    teacher_s = teacher.forward_s()
    if math.isinf(teacher_s):
        return replace(found, verdict="illegal:teacher", reason=f"teacher: {why(scoring)}")
    pool, asleep = learner.train.core, bool(rollout) and colocated
    all_bytes = per_token * task.sequences * task.mean_length()
    passes = _core.TuningPasses(
        teacher_forward_s=teacher_s,
        # States are away already where the engine has just slept.
        swap_s=_core.teacher_swap_time_s(scoring.core, training.core, asleep, pool, place),
        logits_s=_core.logit_time_s(all_bytes, teacher.train.core, pool, place),
        optimizer_step_s=training.step_time_s,
        optimizer_steps=task.optimizer_steps,
        learning_fraction=_paced(learner),
        **rollout,
    )
    held, most = _core.node_logits_bytes(all_bytes, pool), float(pool.host_memory_bytes)
    if place == "host" and held > most:
        reason = f"logits: {size_text(held)} of {size_text(most)} of a node's host memory"
        found = replace(found, verdict="out_of_memory", reason=reason)
    return _timed(_overflowing(found), passes)


def _accelerators(learner: Learner, teacher: Learner, place: Place, *, colocated: bool) -> int:
    """Of all pools."""
    pools = [learner.train]
    if place == "apart":
        pools.append(teacher.train)
    if isinstance(learner, Generator) and not colocated:
        pools.append(learner.rollout)
    return sum(int(pool.accelerators) for pool in pools)


def _rollout(q: Generator, generation: Generation, *, colocated: bool) -> dict[str, float]:
    """Phases of generation."""
    return {
        "rollout_s": generation.round_s + q.dispatch_s(),
        "refit_s": q.refit_s(colocated=colocated),
        "switch_s": switch_time(q.model, q.train) if colocated else 0.0,
    }


def _received(training: Estimate, task: Distillation, per_token_bytes: float) -> float:
    plan = training.strategy
    return _core.received_logits_bytes(
        per_token_bytes,
        plan.micro_batch * training.task.sequence,
        whole=task.top_k is None,
        tp=plan.tp,
        cp=plan.cp,
    )


def _logit_format() -> _core.LogitFormat:
    sizes = reference("logits")
    return _core.LogitFormat(value_bytes=sizes.number("number"), index_bytes=sizes.number("token"))
