"""What a step of preference tuning or of distillation is to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import choice, named_fields
from scalemodel.post_training.task import Answered, Sequences, whole_number
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.tasks import FineTuning, Training

PreferenceMethod = Literal["dpo", "ipo", "kto", "simpo", "orpo", "reward"]
LoraTargets = Literal["qkv", "attention", "all"]
#: Passes without gradients of a method over the sequences of a step: of a frozen reference, and of
#: the policy itself. KTO estimates its divergence on answers to other prompts, by both models
#: (arXiv 2402.01306; huggingface/trl, KTOTrainer.forward). IPO (arXiv 2310.12036) has DPO's
#: (arXiv 2305.18290), SimPO (arXiv 2405.14734) and ORPO (arXiv 2403.07691) have no reference.
_PASSES: dict[str, tuple[int, int]] = {
    "dpo": (1, 0),
    "ipo": (1, 0),
    "kto": (2, 1),
    "simpo": (0, 0),
    "orpo": (0, 0),
    "reward": (0, 0),
}
_TARGETS = ("qkv", "attention", "all")


@named_fields
@dataclass(frozen=True, kw_only=True)
class Tuned(Sequences):
    """Sequences that all weights of a model learn from, or low-rank adapters.

    Parameters
    ----------
    lora_rank : int
        Rank of the adapters; 0: all weights learn.
    lora_targets : str
        As in `FineTuning`.
    """

    lora_rank: int = 0
    lora_targets: LoraTargets = "attention"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora_rank != 0:
            whole_number("lora_rank", self.lora_rank)
        _spell(self, "lora_targets", _TARGETS)

    def training(self, batch: int, tokens: int) -> Training:
        """An optimizer step over that many sequences of that many tokens."""
        if not self.lora_rank:
            return super().training(batch, tokens)
        return FineTuning(
            global_batch=batch,
            sequence=tokens,
            precision=self.precision,
            method="lora",
            lora_rank=self.lora_rank,
            lora_targets=self.lora_targets,
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Preference(Tuned):
    """A step of preference tuning: a chosen and a rejected answer to every prompt.

    Both answers pass the model, with the prompt each: twice as many sequences as pairs. The
    micro-batch of a strategy counts pairs. Supervised fine-tuning on answers that all are good is
    `Training`.

    Parameters
    ----------
    pairs : int
        Of an optimizer step.
    prompt_tokens, generated_tokens, limit_tokens, spread
        Tokens of a prompt, of an answer in the mean, of both at most, and how far the lengths of
        answers spread, as in `Rl`; chosen and rejected ones are alike.
    method : str
        ``"dpo"`` and ``"ipo"``, whose loss wants log-probabilities of a frozen reference;
        ``"kto"``, which compares answers to other prompts too (a pair is two single answers);
        ``"simpo"`` and ``"orpo"``, without a reference; ``"reward"``, a reward model, which ends in
        a score in place of words.
    precomputed_reference : bool
        The log-probabilities of the reference were computed in a pass of their own before.
    packing : bool
        Sequences are packed up to `limit_tokens`; else each is padded, and pads cost what tokens
        do.
    pad_to : str
        The longest that a ``"micro_batch"`` is expected to have (TRL), or a ``"batch"`` of all
        accelerators (NeMo-RL).
    lora_rank, lora_targets, precision
        As in `FineTuning`. The reference of adapters is the model without them.

    Raises
    ------
    ScaleModelError : a value out of range, or answers that the limit has no room for.

    Examples
    --------
    >>> task = Preference(pairs=128, prompt_tokens=200, generated_tokens=300, limit_tokens=2048)
    >>> task.sequences, task.reference_passes
    (256, 1)
    """

    pairs: int
    method: PreferenceMethod = "dpo"
    precomputed_reference: bool = False
    packing: bool = False
    pad_to: Literal["micro_batch", "batch"] = "micro_batch"

    def __post_init__(self) -> None:
        whole_number("pairs", self.pairs)
        super().__post_init__()
        _spell(self, "method", tuple(_PASSES), "; supervised fine-tuning is FineTuning")
        _spell(self, "pad_to", ("micro_batch", "batch"))
        for name in ("precomputed_reference", "packing"):
            _switch(name, getattr(self, name))
        if self.precomputed_reference and not _PASSES[self.method][0]:
            legal = ", ".join(name for name, (passes, _) in _PASSES.items() if passes)
            raise ScaleModelError(
                f"precomputed_reference=True: method={self.method!r} has no reference; "
                f"those with one are {legal}"
            )

    @property
    def sequences(self) -> int:
        """Answers of a step, chosen and rejected."""
        return 2 * self.pairs

    @property
    def samples(self) -> int:
        """Pairs of a step."""
        return self.pairs

    @property
    def reference_passes(self) -> int:
        """Forward passes of a frozen reference in a step."""
        return 0 if self.precomputed_reference else self.wanted_reference_passes

    @property
    def wanted_reference_passes(self) -> int:
        """The same, whenever they are made."""
        return _PASSES[self.method][0]

    @property
    def policy_passes(self) -> int:
        """Passes without gradients of the model that learns."""
        return _PASSES[self.method][1]

    def step_batch(
        self, sequences: int, strategy: _core.Strategy, accelerators: int, packs: int
    ) -> tuple[int, int, int]:
        """Tokens of a sequence, sequences of a micro-batch and of the batch, for an estimate."""
        if self.packing:
            return super().step_batch(sequences, strategy, accelerators, packs)
        together = 2 * int(strategy.micro_batch) * packs
        each, micro, batch = _core.padded_batch(
            self.prompt_tokens + self.answers(),
            sequences,
            together,
            group=together if self.pad_to == "micro_batch" else sequences,
            tp=strategy.tp,
            cp=strategy.cp,
            replicas=max(1, accelerators // (strategy.tp * strategy.cp * strategy.pp)),
        )
        return int(each), int(micro), int(batch)


@named_fields
@dataclass(frozen=True, kw_only=True)
class Distillation(Answered, Tuned):
    """A step of distillation: a student learns from the logits of a teacher.

    Both models share their tokens. The loss costs the student what that of words does.

    Parameters
    ----------
    teacher : model
        Any model of the catalogue, or what else names one.
    prompts, generations : int
        Prompts of a step, and answers to each of them.
    prompt_tokens, generated_tokens, limit_tokens, spread
        Tokens of a prompt, of an answer in the mean, of both at most, and how far the lengths of
        answers spread, as in `Rl`; sequences are packed.
    on_policy : bool
        The student generates the answers; else they are given.
    top_k : int, optional
        Logits of a token that the teacher hands on, with the numbers of their tokens, at most its
        vocabulary; all of them when None.
    train_batch, precision, rollout_precision
        As in `Rl`.
    lora_rank, lora_targets
        As in `FineTuning`.

    Raises
    ------
    ScaleModelError : a value out of range, or answers that the limit has no room for.

    Examples
    --------
    >>> task = Distillation(teacher="qwen3_32b", prompts=64, prompt_tokens=200,
    ...                     generated_tokens=2000, limit_tokens=8192)
    >>> task.sequences, task.top_k, task.on_policy
    (64, 64, False)
    """

    teacher: ModelLike
    generations: int = 1
    on_policy: bool = False
    top_k: int | None = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _switch("on_policy", self.on_policy)
        if self.top_k is not None:
            whole_number("top_k", self.top_k)


def _spell(task: Tuned, name: str, legal: tuple[str, ...], otherwise: str = "") -> None:
    """Has a choice as it is spelled here; raises where it is none."""
    value = choice(getattr(task, name), legal)
    if value not in legal:
        raise ScaleModelError(f"{name}={value!r}: must be one of {', '.join(legal)}{otherwise}")
    object.__setattr__(task, name, value)


def _switch(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ScaleModelError(f"{name}={value!r}: must be True or False")
