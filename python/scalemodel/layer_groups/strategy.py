"""Strategies per layer group, and the forward-only task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import choice, named_fields
from scalemodel.layer_groups.layers import KINDS
from scalemodel.layer_groups.model import ComposedModel, Slot
from scalemodel.resolve import Cluster
from scalemodel.resolve.tasks import Training

#: Kinds of group that a key of a strategy may stand for, by key.
FAMILIES: dict[str, tuple[str, ...]] = {
    "embedding": ("embedding_tables",),
    "mlp": ("mlp", "interaction"),
    "transformer": ("transformer", "token_embedding", "patch_embedding", "head"),
}

_DEFAULT_TABLES, _DEFAULT_LAYERS = "table_wise", "ddp"


@named_fields
@dataclass(frozen=True, kw_only=True)
class BatchInference(Training):
    """One forward pass over a batch: ranking queries, images or prompts.

    Takes the arguments of `Training` that a forward pass has a use for.

    Examples
    --------
    >>> BatchInference(global_batch=4096, sequence=1, precision="fp16").global_batch
    4096
    """


#: Parallelisms that a mesh is made of, as the engine spells them.
_PARALLELISMS = (
    *("tp", "ddp", "zero1", "fsdp", "ep", "table_wise", "row_wise", "column_wise", "hybrid"),
    *("sp", "cp"),
)


def _spelled_mesh(text: str) -> str:
    """A mesh with every parallelism as the engine spells it: ``FSDP`` is ``fsdp``.

    Raises
    ------
    ScaleModelError : a part that is none; the nearest ones are named.
    """
    parts = []
    for part in text.split("+") if text.strip() else ():  # one rank has no axis
        name, sign, degree = part.strip().partition("@")
        meant = choice(name, _PARALLELISMS)
        if meant not in _PARALLELISMS:
            raise ScaleModelError(
                f"mesh={text!r}: {name!r} is none of {', '.join(_PARALLELISMS)}; "
                f"{nearest(name, _PARALLELISMS)}"
            )
        parts.append(f"{meant}{sign}{degree}")
    return "+".join(parts)


@named_fields
@dataclass(frozen=True)
class GroupStrategy:
    """A mesh per layer group, and how their traffic is scheduled.

    Parameters
    ----------
    groups : mapping of str to str, or str
        Mesh of each group: parallelisms joined by ``+``, innermost first, each with ``@degree``; a
        degree left out once is what remains. Layers take ``tp``, ``ddp``, ``zero1`` (replicas with
        sharded optimizer states) and ``fsdp``, transformers and their ends ``sp`` (tensor
        parallelism that shards the sequence in between) and ``cp`` in front of ``ddp``,
        ``zero1`` or ``fsdp`` (shards the sequence, gathers keys and values), routed experts
        ``ep`` too; tables take ``table_wise``, ``row_wise``, ``column_wise``, ``hybrid`` and
        ``ddp``. Keys are group names,
        ``<name>.experts`` or ``experts`` for routed experts, ``embedding``, ``mlp`` (interactions
        too), ``transformer`` (token and patch embeddings and heads too), or ``*``; the most precise
        key wins. Without a key tables are table-wise, layers data-parallel and experts laid out as
        the layers around them. A text stands for every group that is not a table.
    micro_batches : int
        Passes a step is made of.
    queues : str
        ``"one"`` in-order queue of communication, or one ``"per_level"`` of the network.
    prefetch : str
        Units that sharded parameters are gathered ahead: ``"none"``, ``"one"``, ``"unlimited"``.
    backward_gather : str
        Whether the next unit's gather stands ``"before"`` or ``"behind"`` this unit's gradients.
    buckets : str
        What an all-reduce over replicas carries: gradients of a ``"unit"`` or of a ``"group"``.
    recompute : bool
        Layers run forward again before their backward pass; ends and tables do not.

    Examples
    --------
    >>> GroupStrategy({"embedding": "table_wise", "mlp": "tp@8+ddp"}).groups["mlp"]
    'tp@8+ddp'
    """

    groups: Mapping[str, str] | str = field(default_factory=dict)
    micro_batches: int = 1
    queues: Literal["one", "per_level"] = "per_level"
    prefetch: Literal["none", "one", "unlimited"] = "one"
    backward_gather: Literal["before", "behind"] = "before"
    buckets: Literal["unit", "group"] = "unit"
    recompute: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.groups, str):
            given = {"mlp": self.groups, "transformer": self.groups}
            object.__setattr__(self, "groups", given)
        if not isinstance(self.groups, Mapping) or not all(
            isinstance(key, str) and isinstance(mesh, str) and mesh.isascii()
            for key, mesh in self.groups.items()
        ):
            raise ScaleModelError(
                f"groups={self.groups!r}: must be a mesh such as 'tp@8+ddp' or a mapping of group "
                "names to meshes"
            )
        object.__setattr__(
            self, "groups", {key: _spelled_mesh(mesh) for key, mesh in self.groups.items()}
        )
        count = self.micro_batches
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 65535:
            raise ScaleModelError(
                f"micro_batches={count!r}: must be a whole number up to 65535, at least 1"
            )
        for name, legal in CHOICES.items():
            value = choice(getattr(self, name), legal)
            if value not in legal:
                raise ScaleModelError(
                    f"{name}={value!r}: must be one of {', '.join(legal)}, for example "
                    f"{name}={legal[0]!r}"
                )
            object.__setattr__(self, name, value)
        if not isinstance(self.recompute, bool):
            raise ScaleModelError(f"recompute={self.recompute!r}: must be True or False")

    def __hash__(self) -> int:
        assert isinstance(self.groups, Mapping)
        return hash((tuple(sorted(self.groups.items())), self._schedule()))

    def _schedule(self) -> tuple[Any, ...]:
        return (
            self.micro_batches,
            self.queues,
            self.prefetch,
            self.backward_gather,
            self.buckets,
            self.recompute,
        )

    def meshes(self, model: ComposedModel, accelerators: int) -> dict[str, str]:
        """The mesh of every slot of a model, degrees filled in.

        Examples
        --------
        >>> import scalemodel as sm
        >>> plan = GroupStrategy({"transformer": "fsdp@8+ddp"})
        >>> plan.meshes(sm.compose("llama3_8b"), 64)["transformer"]
        'fsdp@8+ddp@8'
        """
        assert isinstance(self.groups, Mapping)
        used: set[str] = set()
        found: dict[str, str] = {}
        for slot in model.slots:
            key = next((key for key in slot_keys(slot) if key in self.groups), None)
            if key is not None:
                used.add(key)
                text = self.groups[key]
            elif slot.experts:
                around = found[slot.name.removesuffix(".experts")]
                text = str(_core.mesh_of_experts(around, accelerators))
            else:
                tables = slot.kind == "embedding_tables"
                text = _DEFAULT_TABLES if tables else _DEFAULT_LAYERS
            if not _core.mesh_suits(text, slot.kind, slot.experts):
                what = "routed experts" if slot.experts else slot.kind
                raise ScaleModelError(
                    f"groups[{key or slot.name!r}]={text!r}: no mesh for {what} ({slot.name}); "
                    "see GroupStrategy for the parallelisms of each kind"
                )
            found[slot.name] = str(_core.mesh_text(text, accelerators))
        known = [key for slot in model.slots for key in slot_keys(slot)]
        for key in self.groups:
            if key not in known and key not in (*FAMILIES, *KINDS, "experts", "*"):
                raise ScaleModelError(
                    f"groups: {key!r}: no such group in {model.name}; {nearest(key, known)}"
                )
        return found

    def layout(self, indices: list[int]) -> _core.GroupLayout:
        """The engine's strategy with meshes as indices into its tables."""
        return _core.GroupLayout(
            indices,
            self.micro_batches,
            self.queues,
            self.prefetch,
            self.backward_gather,
            self.buckets,
            self.recompute,
        )


#: Fields of a schedule with named values, in the order of the engine.
CHOICES: dict[str, tuple[str, ...]] = {
    "queues": ("one", "per_level"),
    "prefetch": ("none", "one", "unlimited"),
    "backward_gather": ("before", "behind"),
    "buckets": ("unit", "group"),
}


def slot_keys(slot: Slot) -> list[str]:
    """Keys that set a slot, most precise first."""
    if slot.experts:
        return [slot.name, "experts"]
    families = [family for family, kinds in FAMILIES.items() if slot.kind in kinds]
    return [slot.name, slot.kind, *families, "*"]


def from_shorthand(strategy: _core.Strategy, cluster: Cluster, task: Training) -> GroupStrategy:
    """The group strategy that the usual (tp, dp, sharding) strategy stands for.

    Raises
    ------
    ScaleModelError : the strategy has a pipeline, or shards sequences another way than by
        gathering keys and values, which layer groups lack.

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.cluster("dgx_h100", nodes=8)
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> plan = from_shorthand(sm.Strategy(tp=8, sharding="zero3"), cluster, task)
    >>> plan.groups["transformer"], plan.groups["mlp"], plan.micro_batches
    ('sp@8+fsdp', 'tp@8+fsdp', 8)
    """
    if strategy.pp != 1:
        raise ScaleModelError(f"pp={strategy.pp}: layer groups have no pipeline")
    if strategy.cp > 1 and strategy.context != "all_gather":
        raise ScaleModelError(
            f"context={strategy.context!r}: layer groups shard sequences by 'all_gather'"
        )
    if strategy.recompute == "selective":
        raise ScaleModelError("recompute='selective': layer groups recompute whole units or none")
    if strategy.sharding == "hsdp":
        # Ranks that shard a sequence are among those that shard parameters.
        shard = _core.resolve_degrees(strategy, cluster.core, task.core).shard
        replicas = f"fsdp@{max(1, shard // strategy.cp)}+ddp"
    else:
        replicas = {"ddp": "ddp", "zero3": "fsdp"}.get(strategy.sharding, "zero1")
    dense = f"tp@{strategy.tp}+{replicas}" if strategy.tp > 1 else replicas
    inner = "sp" if strategy.sequence_parallel else "tp"
    axes = [f"{name}@{n}" for name, n in ((inner, strategy.tp), ("cp", strategy.cp)) if n > 1]
    groups = {
        "mlp": dense,
        "transformer": "+".join([*axes, replicas]),
        "embedding": "table_wise",
    }
    if strategy.ep > 1:
        groups["experts"] = f"ep@{strategy.ep}+{replicas}"
    # A step that does not divide evenly gets a verdict, not a number of passes.
    replicated = max(1, cluster.accelerators // (strategy.tp * strategy.cp))
    replica_batch = replicated * strategy.micro_batch
    passes = max(1, task.global_batch // replica_batch)
    return GroupStrategy(groups, micro_batches=passes, recompute=strategy.recompute == "full")
