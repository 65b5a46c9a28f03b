"""What a step of reinforcement learning is to do: prompts, answers, and the passes over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_fields
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.tasks import Precision, Training
from scalemodel.serving.task import number_from_to

Algorithm = Literal["grpo", "ppo", "dapo", "rloo"]
_ALGORITHMS = ("grpo", "ppo", "dapo", "rloo")


@named_fields
@dataclass(frozen=True, kw_only=True)
class Sequences:
    """Prompts with an answer each, as a step of post-training takes them.

    Answers have log-normal lengths that end at the limit; `generated_tokens` is their mean, the cut
    ones included.

    Parameters
    ----------
    prompt_tokens, generated_tokens : float
        Of a prompt; of an answer in the mean.
    limit_tokens : int
        Of prompt and answer together at most.
    spread : float
        Standard deviation of the logarithm of the lengths of answers before the limit cuts them;
        0: all are of one length.
    precision : str
        Format of GEMMs in training.

    Raises
    ------
    ScaleModelError : a value out of range, or answers that the limit has no room for.

    Examples
    --------
    >>> both = Sequences(prompt_tokens=96, generated_tokens=100, limit_tokens=4096, spread=0)
    >>> both.answers(4).tolist(), both.mean_length()
    ([100.0, 100.0, 100.0, 100.0], 196.0)
    """

    prompt_tokens: float
    generated_tokens: float
    limit_tokens: int
    spread: float = 0.8
    precision: Precision = "bf16"

    def __post_init__(self) -> None:
        whole_number("limit_tokens", self.limit_tokens)
        for name in ("prompt_tokens", "generated_tokens"):
            number_from_to(name, getattr(self, name), 1, 1e8)
        number_from_to("spread", self.spread, 0, 3)
        room = self.limit_tokens - self.prompt_tokens
        if self.generated_tokens > room:
            raise ScaleModelError(
                f"generated_tokens={self.generated_tokens!r}: limit_tokens leaves {room:g} for an "
                "answer; its mean cannot be longer"
            )

    @property
    def sequences(self) -> int:
        """Prompts with an answer each, of a step."""
        return 1

    @property
    def samples(self) -> int:
        """What a step is counted in."""
        return self.sequences

    @property
    def batch(self) -> int:
        """Sequences of an optimizer step."""
        return self.sequences

    @property
    def optimizer_steps(self) -> int:
        """Updates of the weights in a step."""
        return -(-self.sequences // self.batch)

    def answers(self, count: int | None = None) -> npt.NDArray[np.float64]:
        """Lengths of answers in tokens, as many as asked for: even quantiles, the longest first.

        Examples
        --------
        >>> task = Rl(prompts=1, generations=4, prompt_tokens=96, generated_tokens=100,
        ...           limit_tokens=4096, spread=0)
        >>> task.answers().tolist()
        [100.0, 100.0, 100.0, 100.0]
        """
        room = self.limit_tokens - self.prompt_tokens
        return _core.answer_lengths(
            self.generated_tokens, room, self.spread, count or self.sequences
        )

    def equal_length(self) -> float:
        """Length of equal sequences whose attention costs as much as that of the real ones.

        Packed sequences attend to their own tokens alone: the sum of the squares of their lengths
        counts, so that tokens over sequences of E[l^2] / E[l] each cost the same. Measured within
        0.5 to 4.1 % of a step on one H200 (tests/benchmarks/packed_steps.py).
        """
        return self.sequence_lengths()[1]

    def mean_length(self) -> float:
        """Tokens of a sequence, prompt and answer, in the mean."""
        return self.sequence_lengths()[0]

    def sequence_lengths(self) -> tuple[float, float]:
        """`mean_length` and `equal_length`."""
        mean, equal = _core.sequence_lengths(self.prompt_tokens, self.answers())
        return float(mean), float(equal)

    def step_batch(
        self, sequences: int, strategy: _core.Strategy, accelerators: int, packs: int
    ) -> tuple[int, int, int]:
        """Tokens of a sequence, sequences of a micro-batch and of the batch, for an estimate.

        Packed sequences as equal ones of the same attention, `packs` of the limit's tokens at once.
        """
        mean, equal = self.sequence_lengths()
        each, packed, batch = _core.packed_batch(
            mean,
            equal,
            sequences,
            packs * self.limit_tokens,
            tp=strategy.tp,
            cp=strategy.cp,
            replicas=max(1, accelerators // (strategy.tp * strategy.cp * strategy.pp)),
        )
        return int(each), int(packed), int(batch)

    def training(self, batch: int, tokens: int) -> Training:
        """An optimizer step over that many sequences of that many tokens."""
        return Training(global_batch=batch, sequence=tokens, precision=self.precision)


@named_fields
@dataclass(frozen=True, kw_only=True)
class Answered(Sequences):
    """Sequences whose answers a model may generate itself, several to a prompt.

    Parameters
    ----------
    prompts, generations : int
        Prompts of a step, and answers to each of them.
    train_batch : int, optional
        Sequences of an optimizer step; all of them when left out.
    rollout_precision : str
        Format of GEMMs in generation.
    """

    prompts: int
    generations: int
    train_batch: int | None = None
    rollout_precision: Precision = "bf16"

    def __post_init__(self) -> None:
        for name in ("prompts", "generations"):
            whole_number(name, getattr(self, name))
        if self.train_batch is not None:
            whole_number("train_batch", self.train_batch)
        super().__post_init__()
        if self.batch > self.sequences:
            raise ScaleModelError(
                f"train_batch={self.train_batch!r}: prompts times generations make "
                f"{self.sequences} sequences; it must be at most as many"
            )

    @property
    def sequences(self) -> int:
        """Answers of a step."""
        return self.prompts * self.generations

    @property
    def batch(self) -> int:
        """Sequences of an optimizer step."""
        return self.train_batch or self.sequences

    @property
    def sampling(self) -> _core.DynamicSampling:
        """Prompts that are rejected and drawn again: none."""
        return _core.DynamicSampling()


@named_fields
@dataclass(frozen=True, kw_only=True)
class Rl(Answered):
    """A step of reinforcement learning on a language model.

    Answers have log-normal lengths that end at the limit; `generated_tokens` is the mean of what
    is generated, the cut ones included.

    Parameters
    ----------
    prompts, generations : int
        Prompts of a step, and answers to each of them.
    prompt_tokens, generated_tokens : float
        Of a prompt; of an answer in the mean.
    limit_tokens : int
        Of prompt and answer together at most.
    spread : float
        Standard deviation of the logarithm of the lengths of answers before the limit cuts them;
        0: all are of one length.
    train_batch : int, optional
        Sequences of an optimizer step; all of them when left out.
    algorithm : str
        ``"grpo"``, ``"dapo"``, ``"rloo"``, or ``"ppo"``, whose critic scores and learns as the
        policy does.
    accepted_fraction : float
        Of prompts whose answers differ in reward; the others are drawn again (``"dapo"``).
    oversampling : float
        Prompts of a round of generation over those of a step (``"dapo"``).
    reference : bool
        Log-probabilities of a reference model are wanted too: one more forward pass.
    logprob : bool
        Log-probabilities of the policy are computed; False: the engine hands on its own.
    reward_model, critic_model : model, optional
        One that scores all answers that were generated, else they are verified at no cost; a critic
        of another size than the policy (``"ppo"``).
    precision, rollout_precision : str
        Formats of GEMMs in training and in generation.

    Raises
    ------
    ScaleModelError : a value out of range, or answers that the limit has no room for.

    Examples
    --------
    >>> task = Rl(prompts=64, generations=32, prompt_tokens=132, generated_tokens=1060,
    ...           limit_tokens=4096, train_batch=512)
    >>> task.sequences, task.optimizer_steps, round(float(task.answers().mean()))
    (2048, 4, 1060)
    """

    algorithm: Algorithm = "grpo"
    accepted_fraction: float = 1.0
    oversampling: float = 1.0
    reference: bool = True
    logprob: bool = True
    reward_model: ModelLike | None = None
    critic_model: ModelLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.algorithm not in _ALGORITHMS:
            legal = ", ".join(_ALGORITHMS)
            raise ScaleModelError(f"algorithm={self.algorithm!r}: must be one of {legal}")
        number_from_to("accepted_fraction", self.accepted_fraction, 1e-3, 1)
        number_from_to("oversampling", self.oversampling, 1, 1e3)
        for name in ("accepted_fraction", "oversampling"):
            if getattr(self, name) != 1 and self.algorithm != "dapo":
                raise ScaleModelError(
                    f"{name}={getattr(self, name)!r}: algorithm={self.algorithm!r} trains on every "
                    "prompt; must be 1, or algorithm='dapo'"
                )
        if self.critic_model is not None and not self.critic:
            raise ScaleModelError(
                f"critic_model={self.critic_model!r}: algorithm={self.algorithm!r} has no critic; "
                "algorithm='ppo' has"
            )

    @property
    def critic(self) -> bool:
        """Whether a second model scores the answers and learns."""
        return self.algorithm == "ppo"

    @property
    def sampling(self) -> _core.DynamicSampling:
        """Prompts that are rejected and drawn again."""
        return _core.DynamicSampling(
            accepted_fraction=self.accepted_fraction, oversampling=self.oversampling
        )


def whole_number(name: str, value: Any) -> None:
    """Raises where a value is no whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000_000:
        raise ScaleModelError(f"{name}={value!r}: must be a whole number from 1 to 1e9")
