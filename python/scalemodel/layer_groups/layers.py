"""Layer groups a model is composed of: names and numbers; what they cost is the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_fields
from scalemodel.layer_groups.group import Group, count_of, flag_of, number_of, tokens_of


def _per_table(group: EmbeddingTables, name: str) -> list[float]:
    value = getattr(group, name)
    values = value if isinstance(value, (list, tuple)) else [value] * group.tables
    if len(values) != group.tables or any(
        isinstance(item, bool) or not isinstance(item, (int, float)) for item in values
    ):
        raise ScaleModelError(
            f"{group.name}: {name}={value!r}: must be a number or one for each of the "
            f"{group.tables} tables"
        )
    return [float(item) for item in values]


@named_fields
@dataclass(frozen=True, kw_only=True)
class EmbeddingTables(Group):
    """Embedding tables; the rows of a sample are summed table by table.

    Parameters
    ----------
    tables : int
    rows, pooling : float or sequence of one per table
        Entries of a table; rows looked up per sample.
    dim : int
        Values of a row.
    value_bytes : float
        Of a stored value.
    output_bytes : float
        Of a pooled value, and of its gradient, as they travel.
    optimizer : str
        ``"rowwise_adagrad"`` (4 bytes of state a row), ``"sgd"``, ``"adagrad"`` or ``"adam"``.

    Examples
    --------
    >>> EmbeddingTables(tables=4096, rows=2_080_000, dim=94, pooling=15).core.parameters
    800849920000.0
    """

    kind: ClassVar[str] = "embedding_tables"
    tables: int = 1
    rows: float | Sequence[float] = 1
    dim: int = 1
    pooling: float | Sequence[float] = 1
    value_bytes: float = 4
    output_bytes: float = 4
    optimizer: Literal["rowwise_adagrad", "sgd", "adagrad", "adam"] = "rowwise_adagrad"

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        tables, dim = count_of(self, "tables"), count_of(self, "dim")
        if tables > 1_000_000:
            raise ScaleModelError(f"{self.name}: tables={tables}: must be at most 1e6")
        rows, pooling = _per_table(self, "rows"), _per_table(self, "pooling")
        shapes: dict[tuple[float, float], int] = {}
        for shape in zip(rows, pooling, strict=True):
            shapes[shape] = shapes.get(shape, 0) + 1
        classes = [(float(count), *shape) for shape, count in shapes.items()]
        value_bytes, output_bytes = number_of(self, "value_bytes"), number_of(self, "output_bytes")
        for name, size in (("value_bytes", value_bytes), ("output_bytes", output_bytes)):
            if not 0.25 <= size <= 16:
                raise ScaleModelError(f"{self.name}: {name}={size}: must be from 0.25 to 16")
        if self.optimizer not in ("rowwise_adagrad", "sgd", "adagrad", "adam"):
            raise ScaleModelError(
                f"{self.name}: optimizer={self.optimizer!r}: must be rowwise_adagrad, sgd, "
                "adagrad or adam"
            )
        return _core.embedding_tables_group(
            self.name, classes, dim, value_bytes, output_bytes, self.optimizer
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Mlp(Group):
    """Layers ``widths[0] x widths[1]``, ``widths[1] x widths[2]``...; tensor-parallel in pairs.

    Parameters
    ----------
    widths : sequence of int
    repeat : int
        How often the whole sequence of layers occurs.
    bias : bool
    experts, experts_per_sample : int
        Routed experts of every layer, and those of a sample; 0: dense.

    Examples
    --------
    >>> Mlp(name="top_mlp", widths=(1024, 1024, 512, 1)).core.parameters
    1573376.0
    """

    kind: ClassVar[str] = "mlp"
    widths: Sequence[int] = ()
    repeat: int = 1
    bias: bool = False
    experts: int = 0
    experts_per_sample: int = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        widths = list(self.widths) if isinstance(self.widths, (list, tuple)) else [self.widths]
        if any(isinstance(w, bool) or not isinstance(w, int) or w >= 2**31 for w in widths):
            raise ScaleModelError(f"{self.name}: widths={self.widths!r}: must be whole numbers")
        return _core.mlp_group(
            **self._given(
                "repeat", "experts", "experts_per_sample", widths=widths, bias=flag_of(self, "bias")
            )
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Interaction(Group):
    """How the features of a recommendation model meet.

    Parameters
    ----------
    how : str
        ``"dot"``: all pairs; ``"cross"``: DCN-v2 layers of rank `rank` (0: full) on the
        concatenation; ``"concat"``: side by side.
    features : int
        Vectors: one per table and one of the bottom MLP.
    dim : int
        Values of a vector.
    layers, rank : int
        Of ``"cross"``.

    Examples
    --------
    >>> Interaction(how="cross", features=27, dim=128, layers=3, rank=512).core.parameters
    10627200.0
    """

    kind: ClassVar[str] = "interaction"
    how: Literal["dot", "cross", "concat"] = "dot"
    features: int = 1
    dim: int = 1
    layers: int = 1
    rank: int = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        if self.how not in ("dot", "cross", "concat"):
            raise ScaleModelError(
                f"{self.name}: how={self.how!r}: must be one of dot, cross, concat"
            )
        return _core.interaction_group(
            **self._given("features", "dim", "layers", "rank", kind=self.how)
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Transformer(Group):
    """Equal transformer layers: an attention and a feed-forward block each.

    Parameters
    ----------
    layers, hidden, heads, kv_heads, head_dim, ffn : int
        `kv_heads` 0: as many as heads; `head_dim` 0: hidden / heads.
    v_head_dim : int
        Of values; 0: `head_dim`.
    q_lora_rank, kv_lora_rank, rope_head_dim : int
        Latent attention: ranks of queries (0: full) and of keys with values, rotary part of
        `head_dim`; all 0: none.
    gated, causal, rotary, bias : bool
        `bias` stands for layer norms and biases, without it there are RMS norms and none.
    norms_per_layer : int
    experts, experts_per_token, shared_ffn : int
        Routed experts of width `ffn`, and a shared one beside them.
    modulation, modulation_vectors : int
        Width of the condition of adaptive norms (diffusion transformers; 0: none), and vectors
        that a layer makes of it, over its modalities.
    modalities : int
        Kinds of tokens that attend to each other, each with weights of its own.
    qk_norm, parallel : bool
        Norms of queries and keys; attention and feed-forward block side by side.
    linear : bool
        Linear attention: keys and values are summed up before queries read them.
    depthwise : int
        Width of a convolution, channel by channel, inside the feed-forward block; 0: none.
    context_tokens, context_width : float, int
        Tokens of another sequence that every layer attends to as well, and their width; 0: none.
    window : int
        Sliding window; 0: full.
    tokens : float
        Per sample; 0: the sequence of the task.

    Examples
    --------
    >>> Transformer(layers=24, hidden=1024, heads=16, ffn=4096, bias=True, causal=False,
    ...             tokens=197).core.parameters
    302309376.0
    """

    kind: ClassVar[str] = "transformer"
    layers: int = 1
    hidden: int = 1
    heads: int = 1
    kv_heads: int = 0
    head_dim: int = 0
    v_head_dim: int = 0
    q_lora_rank: int = 0
    kv_lora_rank: int = 0
    rope_head_dim: int = 0
    ffn: int = 1
    gated: bool = False
    causal: bool = True
    rotary: bool = False
    bias: bool = False
    norms_per_layer: int = 2
    experts: int = 0
    experts_per_token: int = 0
    shared_ffn: int = 0
    modulation: int = 0
    modulation_vectors: int = 6
    modalities: int = 1
    qk_norm: bool = False
    parallel: bool = False
    linear: bool = False
    depthwise: int = 0
    context_tokens: float = 0
    context_width: int = 0
    window: int = 0
    tokens: float = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        counts = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "norms_per_layer")
        latent = ("v_head_dim", "q_lora_rank", "kv_lora_rank", "rope_head_dim")
        more = ("experts", "experts_per_token", "shared_ffn", "window")
        diffusion = ("modulation", "modulation_vectors", "modalities", "depthwise", "context_width")
        named = ("gated", "causal", "rotary", "bias", "qk_norm", "parallel", "linear")
        flags = {name: flag_of(self, name) for name in named}
        return _core.transformer_group(
            **self._given(*counts, *latent, *more, *diffusion, **flags),
            context_tokens=tokens_of(self, "context_tokens"),
            tokens=tokens_of(self),
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Convolution(Group):
    """Layers of a convolutional network over one map: a level of a U-Net, both its ways.

    Parameters
    ----------
    blocks : sequence of (int, int)
        Residual blocks: channels in and out. Norm and 3 x 3 convolution twice, a 1 x 1 convolution
        beside them where the channels change.
    convolutions : sequence of (int, int, int)
        Convolutions alone: channels in and out, width of the kernel.
    condition : int
        Width of what every block adds once per sample (a time step); 0: nothing.
    tokens : float
        Places of the map, of every frame.
    frames : int
        Frames of a video that a kernel reaches over; those of 1 x 1 beside a block reach over one.

    Examples
    --------
    >>> Convolution(blocks=((320, 320),), condition=1280, tokens=4096).core.parameters
    2255040.0
    """

    kind: ClassVar[str] = "convolution"
    blocks: Sequence[Sequence[int]] = ()
    convolutions: Sequence[Sequence[int]] = ()
    condition: int = 0
    tokens: float = 1
    frames: int = 1

    def __post_init__(self) -> None:
        for name, width in (("blocks", 2), ("convolutions", 3)):
            rows = getattr(self, name)
            if not isinstance(rows, (list, tuple)) or not all(
                isinstance(row, (list, tuple))
                and len(row) == width
                and all(
                    isinstance(size, int) and not isinstance(size, bool) and 0 < size < 2**20
                    for size in row
                )
                for row in rows
            ):
                raise ScaleModelError(
                    f"{self.name or self.kind}: {name}={rows!r}: must be rows of {width} whole "
                    "numbers from 1 to 2**20"
                )
            object.__setattr__(self, name, tuple(tuple(row) for row in rows))
        super().__post_init__()

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        return _core.convolution_group(
            **self._given("condition", "frames"),
            blocks=list(self.blocks),
            convolutions=list(self.convolutions),
            tokens=tokens_of(self),
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class TokenEmbedding(Group):
    """Token embedding and, where `positions` is above 0, a learned position table.

    Examples
    --------
    >>> TokenEmbedding(vocab=32000, hidden=4096).core.parameters
    131072000.0
    """

    kind: ClassVar[str] = "token_embedding"
    vocab: int = 1
    hidden: int = 1
    positions: int = 0
    tokens: float = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        return _core.token_embedding_group(
            **self._given("vocab", "hidden", "positions", tokens=tokens_of(self))
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class PatchEmbedding(Group):
    """Image patches of `patch_values` values each, projected to `hidden`, with positions.

    Examples
    --------
    >>> PatchEmbedding(patch_values=768, hidden=1024, tokens=197).core.parameters
    989184.0
    """

    kind: ClassVar[str] = "patch_embedding"
    patch_values: int = 1
    hidden: int = 1
    tokens: float = 1

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        return _core.patch_embedding_group(
            **self._given("patch_values", "hidden", tokens=tokens_of(self))
        )


@named_fields
@dataclass(frozen=True, kw_only=True)
class Head(Group):
    """Classes or vocabulary, with final norm and loss.

    Parameters
    ----------
    hidden, outputs : int
    tied : bool
        Weights are the token embedding's.
    loss, norm, bias : bool
    every_token : bool
        False: one token of a sample is classified.
    tokens : float
        Per sample; 0: the sequence of the task.

    Examples
    --------
    >>> Head(hidden=1024, outputs=1000, tokens=197, every_token=False).core.parameters
    1025024.0
    """

    kind: ClassVar[str] = "head"
    hidden: int = 1
    outputs: int = 1
    tied: bool = False
    loss: bool = True
    every_token: bool = True
    norm: bool = True
    bias: bool = False
    tokens: float = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        flags = {
            name: flag_of(self, name) for name in ("tied", "loss", "every_token", "norm", "bias")
        }
        return _core.head_group(**self._given("hidden", "outputs", **flags, tokens=tokens_of(self)))


KINDS: dict[str, type[Group]] = {
    group.kind: group
    for group in (
        EmbeddingTables,
        Mlp,
        Interaction,
        Transformer,
        Convolution,
        TokenEmbedding,
        PatchEmbedding,
        Head,
    )
}


def group_from_table(table: dict[str, Any], where: str) -> Group:
    """The group that a ``[[group]]`` table of a TOML entry describes."""
    from scalemodel.base.errors import nearest
    from scalemodel.base.units import value_of

    given: dict[str, Any] = {key: value_of(cell) for key, cell in table.items() if key != "source"}
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ScaleModelError(f"{where}.kind={kind!r}: {nearest(str(kind), KINDS)}")
    legal = [item.name for item in fields(KINDS[kind])]
    for key in given:
        if key not in legal:
            raise ScaleModelError(
                f"{where}.{key}: unknown key; {nearest(key, legal)}", code="unknown_key"
            )
    try:
        return KINDS[kind](**given)
    except ScaleModelError as error:
        raise ScaleModelError(f"{where}: {error}", code=error.code) from None
