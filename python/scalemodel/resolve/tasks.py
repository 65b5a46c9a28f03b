"""What is to be done: `Training` and `FineTuning`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import scalemodel._core as _core
from scalemodel.base.text import count_text
from scalemodel.base.words import by_name, named_fields, spelled
from scalemodel.resolve.lengths import Lengths, kept, order_of, tokens_of

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
OptimizerName = Literal[
    "adam", "sgd", "sgd_momentum", "muon", "lion", "adafactor", "adam_8bit", "shampoo", "soap"
]
AttentionName = Literal[
    "stack", "unfused", "fused_softmax", "flash1", "flash2", "flash3", "flash_triton"
]
Choice = Literal["stack", "on", "off"] | bool | None
PackingName = Literal["plain", "balanced", "dynamic_cp"]

#: Tokens of a step beyond which the batch was hardly given in sequences: sixty times that of
#: DeepSeek-V3 (15,360 sequences of 4,096 tokens, arXiv:2412.19437, section 4.2).
_MOST_TOKENS: Final = 4e9
_FIELDS: Final = by_name(_core.Task.fields())


@named_fields
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
        BF16. Case does not matter, and names such as ``"bfloat16"`` or ``"mxfp8"`` are understood,
        here as in every choice.
    attention : str
        Attention kernel; ``"stack"`` takes the software stack's.
    gradient_precision : str
        Format in which gradients are accumulated and reduced.
    fused_norm, dropout : bool or None
        None takes the software stack's choice.
    optimizer : str
        ``"adam"``, ``"sgd"``, ``"sgd_momentum"``, ``"muon"``, ``"lion"``, ``"adafactor"``,
        ``"adam_8bit"``, ``"shampoo"`` or ``"soap"``. Muon orthogonalises the matrices of layers by
        five Newton-Schulz steps and leaves the rest to Adam. Shampoo, as Distributed Shampoo does
        it, keeps two FP32 factors and their inverse roots of every block of at most 1,024 x 1,024
        values and computes the roots at every 100th step; its step is as long as Adam's. SOAP, as
        its authors' code does it, keeps factors and eigenbases of whole matrices, none of a side
        beyond 10,000, and computes the bases at every 10th step. What such steps cost is spread
        over all. Ranks that shard the states of these three own whole matrices or blocks, replicas
        repeat each other's, and a tensor-parallel shard counts as a matrix of its own.
    master_bytes, moment_bytes : int
        Bytes of the optimizer's copy of a weight (0: none) and of one of its states; those of
        ``"adam_8bit"`` are a byte and a share of their block's scale.
    imbalance : float
        Load of the busiest expert rank over the mean.
    batch_is_limit : bool
        `global_batch` is the most: each replica takes ``global_batch // dp`` sequences, so that
        strategies of different data-parallel degrees differ in batch. Compare them by throughput.
    images : int
        Images of a sequence, of a model with a vision tower; their tokens are among the sequence's.
        The tower stands on the first stage, and without images it is left out. Where layers attend
        to an image apart (Llama 3.2 Vision) every sequence has one, and none of its tokens. Of
        sound (Voxtral) a window of 30 seconds is an image.
    image_height, image_width : int
        Pixels of an image; towers that scale every image to one size ignore them.
    source_tokens : int
        Tokens of what the encoder of an encoder-decoder model reads of every sequence; when left
        out, as many as the sequence has, or as the model reads of every source. The encoder stands
        on the first stage.
    frozen_vision : bool
        The tower does not learn, its projector does. Beside adapters neither learns.
    lengths : sequence of int, path or str, optional
        Tokens of documents that are packed into the sequences, those of a batch or a sample: as
        numbers, a file of them (JSON, or separated by spaces, commas or lines), or
        ``"mean=1000,spread=0.8"``, log-normal lengths that `sequence` cuts, whose logarithm has
        that standard deviation. Attention stays within a document, documents are padded to what
        context and tensor ranks divide, and `global_batch` counts packs. When left out, each
        sequence is one document.
    packing : str
        ``"plain"``: data-parallel ranks take packs as they come, and wait for the one with most
        attention; ``"balanced"``: packs of like attention at once, light ones beside heavy ones;
        ``"dynamic_cp"``: so too, and a document over as few context ranks as hold it. A timeline
        is that of a mean rank.

    Raises
    ------
    ScaleModelError : a value out of range, or a document of no token or beyond the sequence; the
        message names the argument.

    Warns
    -----
    UserWarning : a step of more than a billion tokens; the batch is in sequences.

    Examples
    --------
    >>> Training(global_batch=1024, sequence=8192).precision
    'bf16'
    >>> Training(global_batch=1024, sequence=8192, precision="MXFP8").precision
    'fp8'
    >>> packed = Training(global_batch=64, sequence=8192, lengths=[8192, 4096, 2048, 2048])
    >>> packed.lengths, packed.packing
    ((8192, 4096, 2048, 2048), 'plain')
    """

    global_batch: int
    sequence: int
    precision: Precision = "bf16"
    attention: AttentionName = "stack"
    gradient_precision: Literal["stack", "fp32", "bf16"] = "stack"
    fused_norm: Choice = None
    dropout: Choice = None
    optimizer: OptimizerName = "adam"
    master_bytes: int = 4
    moment_bytes: int = 4
    imbalance: float = 1.0
    batch_is_limit: bool = False
    images: int = 0
    image_height: int = 0
    image_width: int = 0
    frozen_vision: bool = False
    source_tokens: int = 0
    lengths: Lengths = None
    packing: PackingName = "plain"
    core: _core.Task = field(init=False, repr=False, compare=False)
    packs: _core.Packing | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        lengths, order = own.pop("lengths"), own.pop("packing")
        given = spelled(own, _FIELDS)
        object.__setattr__(self, "core", _core.Task(**given))
        for name in given:  # as the engine spells it
            if given[name] is not own[name]:
                object.__setattr__(self, name, given[name])
        order = order_of(order, lengths is not None)
        object.__setattr__(self, "packing", order)
        packs = None
        if lengths is not None:
            lengths = kept(lengths)
            object.__setattr__(self, "lengths", lengths)
            packs = _core.Packing(tokens_of(lengths, self.sequence), order)
        object.__setattr__(self, "packs", packs)
        tokens = self.global_batch * self.sequence
        if tokens > _MOST_TOKENS:
            sequences = int(self.global_batch // self.sequence)
            instead = f"; did you mean global_batch={sequences}?" if sequences else ""
            warnings.warn(
                f"global_batch={self.global_batch}: is in sequences, so that a step of sequences "
                f"of {self.sequence} tokens holds {count_text(tokens)} tokens{instead}",
                stacklevel=4,  # past this, the generated constructor and what checks its names
            )

    def replace(self, **changes: Any) -> Training:
        """A copy with the given fields changed."""
        return replace(self, **changes)


@named_fields
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
        ``"qkv"`` (what makes queries, keys and values), ``"attention"`` (its output too) or
        ``"all"`` (feed-forward layers too).

    Examples
    --------
    >>> FineTuning(global_batch=8, sequence=4096, method="lora").lora_rank
    16
    """

    method: Literal["full", "lora"] = "full"
    lora_rank: int = 16
    lora_targets: Literal["qkv", "attention", "all"] = "attention"
