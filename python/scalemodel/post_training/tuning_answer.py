"""What a step of preference tuning or of distillation takes: the answer of `estimate_tuning`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.estimator.estimate import Estimate
from scalemodel.post_training.answer import PhasedStep, finite
from scalemodel.post_training.tuning_tasks import Distillation, Preference
from scalemodel.serving.serve import Serving

Place = Literal["shared", "host", "resident", "apart"]


@dataclass(frozen=True, repr=False)
class TuningEstimate(PhasedStep):
    """What a step takes, phase by phase. Made by `estimate_tuning`.

    Attributes
    ----------
    task : Preference or Distillation
    phases : TuningPhases
        Seconds of each, infinite where the step cannot run: generation by the student, frozen
        weights from the host, log-probabilities of the reference, those of the policy without
        gradients, logits of the teacher, handing them on, all optimizer steps, new weights for the
        engine, sleeping and waking.
    step_time_s : float
        Of a whole step: the sum of the phases, or the longer of both pools where the teacher has
        accelerators of its own.
    frozen : str
        Where the weights of the reference or the teacher are between their passes: ``"shared"``,
        there are none of their own; ``"host"``, ``"resident"`` or ``"apart"``.
    colocated : bool
        Whether the accelerators that train generate too.
    accelerators : int
        Of all pools.
    training : Estimate
        One optimizer step of the model that learns.
    teacher : Estimate or None
        The teacher in the layout that it scores in; its step is never made.
    serving : Serving or None
        One replica of the student's engine.
    train_memory_bytes, teacher_memory_bytes, rollout_memory_bytes : float
        Of the fullest accelerator that trains, that scores (0: no teacher), and of the engine by
        its share (0: no rollout).
    logit_bytes_per_token : float
        That the teacher hands on.
    precomputing_s : float
        Of the reference's passes over the pairs of a step, made once in a pass before the first
        (``precomputed_reference``); 0 where steps make their own.
    framework, options : str, dict
        As they were asked for: memory_share, logprob_batch, refit.
    verdict, reason : str
        ``"ok"``, or what stands in the way and where. Numbers of a step that does not fit are
        filled all the same.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Preference(pairs=128, prompt_tokens=200, generated_tokens=300, limit_tokens=2048)
    >>> step = sm.estimate_tuning("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2))
    >>> step.verdict, 0.2 < step.phases.reference_s / step.phases.train_s < 0.4
    ('ok', True)
    """

    task: Preference | Distillation
    frozen: Place
    colocated: bool
    accelerators: int
    phases: _core.TuningPhases
    step_time_s: float
    training: Estimate
    verdict: str
    reason: str = ""
    teacher: Estimate | None = None
    serving: Serving | None = None
    train_memory_bytes: float = 0.0
    teacher_memory_bytes: float = 0.0
    rollout_memory_bytes: float = 0.0
    logit_bytes_per_token: float = 0.0
    precomputing_s: float = 0.0
    framework: str = "plain"
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def teacher_apart(self) -> bool:
        """Whether a teacher scores on accelerators of its own."""
        return self.frozen == "apart"

    @property
    def extrapolates(self) -> tuple[str, ...]:
        """That no step of the kind was ever measured: it has no `interval`, its training has.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Preference(pairs=128, prompt_tokens=200, generated_tokens=300,
        ...                      limit_tokens=2048)
        >>> step = sm.estimate_tuning("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2))
        >>> step.extrapolates, step.interval() is None, step.training.interval() is None
        (('no measured step of preference tuning',), True, False)
        """
        kind = "preference tuning" if isinstance(self.task, Preference) else "distillation"
        return (f"no measured step of {kind}", *self.training.extrapolates)

    def _pools(self) -> Sequence[str]:
        teacher = "teacher" if self.teacher_apart else "training"
        rollout = "training" if self.colocated else "rollout"
        between = "training" if self.colocated else "both"
        return (
            rollout,
            *3 * ("training",),
            *2 * (teacher,),
            "training",
            *2 * (between,),
        )

    def _starts_s(self) -> npt.NDArray[np.float64]:
        return _core.tuning_starts_s(self.phases, self.teacher_apart)

    def _memory(self) -> Iterable[tuple[str, float, Estimate | Serving]]:
        if self.serving is not None:
            yield "rollout", self.rollout_memory_bytes, self.serving
        if self.teacher is not None:
            yield "teacher", self.teacher_memory_bytes, self.teacher
        yield "train", self.train_memory_bytes, self.training

    def to_dict(self) -> dict[str, Any]:
        """One flat row: verdict, step, phases and memory; None where the step cannot run."""
        return finite(
            {
                "verdict": self.verdict,
                "reason": self.reason,
                "frozen": self.frozen,
                "colocated": self.colocated,
                "accelerators": self.accelerators,
                "step_time_s": self.step_time_s,
                "samples_per_s": self.samples_per_s,
                "tokens_per_s_per_accelerator": self.tokens_per_s_per_accelerator,
                **self.phases.to_dict(),
                "precomputing_s": self.precomputing_s,
                "logit_bytes_per_token": self.logit_bytes_per_token,
                "rollout_memory_bytes": self.rollout_memory_bytes,
                "teacher_memory_bytes": self.teacher_memory_bytes,
                "train_memory_bytes": self.train_memory_bytes,
                **self._ends(),
            }
        )
