"""What is to be done: `Training` and `FineTuning`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import scalemodel._core as _core

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
AttentionName = Literal[
    "stack", "unfused", "fused_softmax", "flash1", "flash2", "flash3", "flash_triton"
]
Choice = Literal["stack", "on", "off"] | bool | None


@dataclass(frozen=True, kw_only=True)
class Training:
    """One pre-training step.

    Parameters
    ----------
    global_batch : int
        Sequences per optimizer step.
    sequence : int
        Tokens per sequence.
    precision : str
        Format of matrix multiplications; FP8 and FP4 keep attention, norms, embedding and head in
        BF16.
    attention : str
        Attention kernel; ``"stack"`` takes the software stack's.
    gradient_precision : str
        Format in which gradients are accumulated and reduced.
    fused_norm, dropout : bool or None
        None takes the software stack's choice.
    optimizer : str
        ``"adam"``, ``"sgd"`` or ``"sgd_momentum"``.
    master_bytes, moment_bytes : int
        Bytes of the optimizer's copy of a weight (0: none) and of one of its states.
    imbalance : float
        Load of the busiest expert rank over the mean.
    batch_is_limit : bool
        `global_batch` is the most: each replica takes ``global_batch // dp`` sequences, so that
        strategies of different data-parallel degrees differ in batch. Compare them by throughput.

    Raises
    ------
    ScaleModelError : a value out of range; the message names the argument.

    Examples
    --------
    >>> Training(global_batch=1024, sequence=8192).precision
    'bf16'
    """

    global_batch: int
    sequence: int
    precision: Precision = "bf16"
    attention: AttentionName = "stack"
    gradient_precision: Literal["stack", "fp32", "bf16"] = "stack"
    fused_norm: Choice = None
    dropout: Choice = None
    optimizer: Literal["adam", "sgd", "sgd_momentum"] = "adam"
    master_bytes: int = 4
    moment_bytes: int = 4
    imbalance: float = 1.0
    batch_is_limit: bool = False
    core: _core.Task = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        object.__setattr__(self, "core", _core.Task(**given))

    def replace(self, **changes: Any) -> Training:
        """A copy with the given fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class FineTuning(Training):
    """One fine-tuning step: all weights, or low-rank adapters beside frozen ones.

    Parameters
    ----------
    method : str
        ``"full"`` or ``"lora"``; with adapters the base weights get no gradient, no optimizer
        state and no weight-gradient products.
    lora_rank : int
        Rank of the adapters.
    lora_targets : str
        ``"attention"`` (its projections) or ``"all"`` (feed-forward layers too).

    Examples
    --------
    >>> FineTuning(global_batch=8, sequence=4096, method="lora").lora_rank
    16
    """

    method: Literal["full", "lora"] = "full"
    lora_rank: int = 16
    lora_targets: Literal["attention", "all"] = "attention"
