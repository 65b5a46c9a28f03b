"""Models composed of layer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments
from scalemodel.layer_groups.generation import GenerationFacts, facts_from
from scalemodel.layer_groups.group import Group
from scalemodel.layer_groups.layers import (
    Convolution,
    PatchEmbedding,
    group_from_table,
)
from scalemodel.resolve.reader import is_path


class Slot(NamedTuple):
    """Groups that share a mesh."""

    name: str
    kind: str
    experts: bool


@dataclass(frozen=True)
class DecoderPart(Group):
    """One layer group of a decoder of the catalogue."""

    kind = "decoder"
    shape: _core.DecoderShape = field(default_factory=_core.DecoderShape)
    part: int = 0
    layers: int = 0

    @property
    def core(self) -> _core.LayerGroup:
        """The engine's group."""
        group = _core.decoder_groups(self.shape)[self.part]
        return group.with_repeat(self.layers) if self.layers else group


@dataclass(frozen=True)
class ComposedModel:
    """An ordered list of layer groups. Made by `compose`; hashable, picklable.

    Attributes
    ----------
    name, title : str
    groups : tuple of Group
        In the order they run.
    generation : GenerationFacts or None
        What stands around the step of a model that makes images or videos.

    Examples
    --------
    >>> import scalemodel as sm
    >>> [group.name for group in sm.compose("vit_b").groups]
    ['patch_embedding', 'transformer', 'head']
    """

    name: str
    groups: tuple[Group, ...]
    title: str = field(default="", compare=False)
    generation: GenerationFacts | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for key in ("name", "title"):
            object.__setattr__(self, key, plain(getattr(self, key)))

    @property
    def label(self) -> str:
        """Its name as answers give it."""
        return self.name

    def _producers(self, index: int) -> list[int]:
        group = self.groups[index]
        if group.after is None:
            return [index - 1] if index > 0 else []
        names = [other.name for other in self.groups[:index]]
        for name in group.after:
            if name not in names:
                raise ScaleModelError(
                    f"{self.name}: {group.name}: after={name!r}: must come before it; "
                    f"{nearest(name, names)}"
                )
        return [names.index(name) for name in group.after]

    @cached_property
    def core(self) -> _core.ComposedModel:
        """The engine's groups."""
        return _core.ComposedModel(
            [
                (
                    group.core,
                    self._producers(index),
                    group.mesh or group.name,
                    group.trained,
                    float(group.frozen_bytes),
                )
                for index, group in enumerate(self.groups)
            ]
        )

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What a strategy gives a mesh to."""
        return tuple(Slot(*row) for row in self.core.slots)

    @property
    def parameters(self) -> int:
        """Parameters of all groups.

        Examples
        --------
        >>> import scalemodel as sm
        >>> sm.compose("llama3_8b").parameters == sm.model("llama3_8b").parameters
        True
        """
        return int(self.core.parameters)

    @property
    def active_parameters(self) -> int:
        """Parameters that one sample (or token) meets; of tables, those of the looked-up rows."""
        return int(self.core.active_parameters)

    def freeze(self, *names: str, weight_bytes: float = 0.0, **layers: int) -> ComposedModel:
        """The model with some groups, or the first layers of some, not trained.

        Parameters
        ----------
        *names : str
            Groups that are frozen whole.
        weight_bytes : float
            Bytes of a frozen weight, for example 0.5 for 4-bit weights; 0: as when trained.
        **layers : int
            Layers of a group, counted from the input, that are frozen.

        Examples
        --------
        >>> import scalemodel as sm
        >>> part = sm.compose("llama3_8b").freeze("token_embedding", transformer=24)
        >>> [(group.name, group.trained) for group in part.groups]
        [('token_embedding', False), ('transformer_frozen', False), ('transformer', True), \
('head', True)]
        """
        known = [group.name for group in self.groups]
        for name in (*names, *layers):
            if name not in known:
                raise ScaleModelError(f"freeze: {name!r}: no such group; {nearest(name, known)}")
        groups: list[Group] = []
        for index, group in enumerate(self.groups):
            frozen = replace(group, trained=False, frozen_bytes=weight_bytes)
            if group.name in names:
                groups.append(frozen)
            elif group.name in layers:
                groups += self._split(index, layers[group.name], frozen)
            else:
                groups.append(group)
        return replace(self, groups=tuple(groups))

    def with_tokens(self, tokens: float) -> ComposedModel:
        """The model on samples of another size: images of more pixels, longer videos.

        Parameters
        ----------
        tokens : float
            Patches of a sample; of a U-Net, places of its widest map. Tokens that patches are
            joined with, or attend to, stay as many.

        Raises
        ------
        ScaleModelError : the model has neither patches nor maps, or `tokens` is no number.

        Examples
        --------
        >>> import scalemodel as sm
        >>> small = sm.compose("flux_1_dev").with_tokens(256)
        >>> [group.tokens for group in small.groups if group.name == "single_blocks"]
        [768]
        """
        patches = [group.tokens for group in self.groups if isinstance(group, PatchEmbedding)]
        maps = [group.tokens for group in self.groups if isinstance(group, Convolution)]
        if not patches and not maps:
            raise ScaleModelError(f"{self.name}: tokens={tokens!r}: it has no patches or maps")
        if isinstance(tokens, bool) or not isinstance(tokens, (int, float)) or not tokens >= 1:
            raise ScaleModelError(f"tokens={tokens!r}: must be a number of at least 1")
        widest = max(patches or maps)
        groups = []
        for group in self.groups:
            own = getattr(group, "tokens", 0)
            if maps and own:
                sized = max(1, own * tokens / widest)
            else:
                sized = own - widest + tokens if own >= widest else own
            groups.append(replace(group, tokens=sized) if sized != own else group)  # type: ignore[call-arg]
        return replace(self, groups=tuple(groups))

    def _split(self, index: int, count: int, frozen: Group) -> list[Group]:
        group = self.groups[index]
        total = int(getattr(group, "layers", 0) or 0)
        if isinstance(group, DecoderPart) and not total:
            total = int(group.core.repeat)
        if not isinstance(count, int) or not 0 <= count <= total:
            raise ScaleModelError(
                f"freeze: {group.name}={count!r}: must be a whole number from 0 to {total}"
            )
        if count == 0:
            return [group]
        if count == total:
            return [frozen]
        mesh = group.mesh or group.name
        name = f"{group.name}_frozen"
        lower: dict[str, Any] = {"name": name, "mesh": mesh, "layers": count}
        upper: dict[str, Any] = {"mesh": mesh, "layers": total - count, "after": (name,)}
        return [replace(frozen, **lower), replace(group, **upper)]

    def __getstate__(self) -> dict[str, object]:
        kept = ("name", "groups", "title", "generation")
        return {key: getattr(self, key) for key in kept}

    def __repr__(self) -> str:
        return (
            f"ComposedModel({self.name!r}, {len(self.groups)} groups, "
            f"{self.parameters / 1e9:.3g}B parameters)"
        )


def _checked(name: str, groups: Sequence[Group], title: str) -> ComposedModel:
    names = [group.name for group in groups]
    for item in names:
        if names.count(item) > 1:
            raise ScaleModelError(f"{name}: two groups are called {item!r}")
    composed = ComposedModel(name, tuple(groups), title or name)
    composed.core  # noqa: B018  a malformed model is an error at once
    return composed


def _of_decoder(model: resolve.Model) -> ComposedModel:
    if model.reads_source:
        raise ScaleModelError(
            f"model={model.name!r}: an encoder and a decoder that attends to it are no chain of "
            "layer groups; estimate and serve take the model itself"
        )
    if model.scalar_head:
        raise ScaleModelError(
            f"model={model.name!r}: ends in one score in place of words, for which layer groups "
            "have no head; must have an LM head"
        )
    parts = _core.decoder_groups(model.shape)
    groups = [
        DecoderPart(name=part.name, shape=model.shape, part=index)
        for index, part in enumerate(parts)
    ]
    return _checked(model.name, groups, model.title)


_ENTRY_KEYS = (
    *("name", "title", "family", "aliases", "group", "parameters", "source", "note"),
    "generation",
)


def from_table(table: Mapping[str, Any], where: str) -> ComposedModel:
    """The model of a TOML entry with ``[[group]]`` tables."""
    for key in table:
        if key not in _ENTRY_KEYS:
            raise ScaleModelError(
                f"{where}: {key}: unknown key; {nearest(str(key), _ENTRY_KEYS)}",
                code="unknown_key",
            )
    groups = table.get("group")
    if not isinstance(groups, Sequence) or not all(isinstance(g, Mapping) for g in groups):
        raise ScaleModelError(f"{where}: group: must be a list of tables [[group]]")
    name = str(table.get("name", where))
    built = [
        group_from_table(dict(group), f"{where}: group[{index}]")
        for index, group in enumerate(groups)
    ]
    model = _checked(name, built, str(table.get("title", name)))
    return replace(model, generation=facts_from(table.get("generation"), where))


@catalog.kept(256)
def _of_catalogue(name: str) -> ComposedModel:
    return from_table(catalog.load("composed", name), f"composed/{name}.toml")


@named_arguments
def compose(
    source: str | Path | Mapping[str, Any] | resolve.Model | ComposedModel,
    *,
    groups: Sequence[Group] | None = None,
) -> ComposedModel:
    """A model as an ordered list of layer groups.

    Parameters
    ----------
    source : str, Path, mapping or Model
        With `groups`: the model's name. Without: a catalogue name of a composed model or of a
        decoder, the path of a ``.toml`` entry, a mapping with the keys of one, or a `Model`. An
        entry holds ``[[group]]`` tables in the order they run; each has a ``kind``
        (embedding_tables, mlp, interaction, transformer, convolution, token_embedding,
        patch_embedding, head) and the arguments of the class of that kind: ``EmbeddingTables, Mlp,
        Interaction, Transformer, Convolution, TokenEmbedding, PatchEmbedding, Head``.
    groups : sequence of Group, optional

    Raises
    ------
    ScaleModelError : unknown name, kind or key, a malformed number; the message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> dlrm = compose("small_dlrm", groups=[
    ...     sm.EmbeddingTables(name="embedding", tables=26, rows=1e6, dim=128, pooling=10),
    ...     sm.Mlp(name="bottom_mlp", widths=(13, 512, 256, 128), after=()),
    ...     sm.Interaction(name="interaction", features=27, dim=128,
    ...                    after=("embedding", "bottom_mlp")),
    ...     sm.Mlp(name="top_mlp", widths=(479, 1024, 1024, 512, 256, 1)),
    ... ])
    >>> dlrm
    ComposedModel('small_dlrm', 4 groups, 3.33B parameters)
    >>> compose({"name": "tiny", "group": [{"kind": "mlp", "widths": [8, 8]}]}).parameters
    64
    """
    if groups is not None:
        if not isinstance(source, str):
            raise ScaleModelError(f"name={source!r}: must be a text")
        for group in groups:
            if not isinstance(group, Group):
                raise ScaleModelError(
                    f"groups: {group!r}: must be an EmbeddingTables, Mlp, Interaction, "
                    "Transformer, Convolution, TokenEmbedding, PatchEmbedding or Head"
                )
        return _checked(source, groups, source)
    if isinstance(source, ComposedModel):
        return source
    if isinstance(source, resolve.Model):
        return _of_decoder(source)
    if isinstance(source, Mapping):
        if "group" in source:
            return from_table(source, str(source.get("name", "model")))
        return _of_decoder(resolve.model(source))
    if isinstance(source, str) and is_catalogued(source):
        return _of_catalogue(catalog.find("composed", source))
    if is_path(source, (".toml",), ("composed", "models")):
        table = catalog.read_toml(Path(source))
        if "group" in table:
            return from_table(table, str(source))
    return _of_decoder(resolve.model(source))


def is_catalogued(label: str) -> bool:
    """Whether `label` names a composed model of the catalogue."""
    try:
        catalog.find("composed", label)
    except ScaleModelError:
        return False
    return True


def is_composed(model: object) -> TypeGuard[ComposedModel]:
    """Whether a model is one of layer groups."""
    return isinstance(model, ComposedModel)


def refuse_ablation(ablation: object) -> None:
    """A model that is not one of layer groups has no ablation."""
    if ablation is not None:
        raise ScaleModelError("ablation: only models of layer groups have one; see sm.compose")
