"""Many strategies per layer group at once: the space of meshes, its sweep and its best rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.answer import verdict_text
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.progress import Progress, watched
from scalemodel.base.threads import worker_threads
from scalemodel.base.words import named_fields
from scalemodel.layer_groups.estimate import (
    GroupEstimate,
    checked_ablation,
    checked_task,
    group_tables,
)
from scalemodel.layer_groups.layers import KINDS
from scalemodel.layer_groups.model import ComposedModel, Slot
from scalemodel.layer_groups.strategy import CHOICES, FAMILIES, GroupStrategy, slot_keys
from scalemodel.resolve import Cluster
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.tasks import Training
from scalemodel.search.group_view import view_html, view_text
from scalemodel.search.objective import (
    GROUP_COLUMNS,
    Objective,
    headroom_fraction,
    limits_of,
    objective_terms,
)
from scalemodel.search.space import as_texts

if TYPE_CHECKING:
    import pandas as pd


_LAYERS = ("tp", "ddp", "zero1", "fsdp")
_TRANSFORMERS = (*_LAYERS, "sp")
_TABLES = ("table_wise", "row_wise", "column_wise", "hybrid", "ddp")
_EXPERTS = ("ep", "tp", "ddp", "fsdp")
_FAMILY_MESHES = {"embedding": _TABLES, "mlp": _LAYERS, "transformer": _TRANSFORMERS}


def _automatic(names: Sequence[str], accelerators: int, node: int) -> list[str]:
    """One parallelism over all ranks, or one inside the node and another one across nodes."""
    meshes = list(names)
    if 1 < node < accelerators and accelerators % node == 0:
        for inner, outer in itertools.permutations(names, 2):
            meshes.append(f"{inner}@{node}+{outer}@{accelerators // node}")
    return meshes


@named_fields
@dataclass(frozen=True)
class GroupSpace:
    """Values of the meshes and schedules that a search of group strategies combines.

    Parameters
    ----------
    groups : mapping of str to str or sequence of str
        Meshes to try, by the keys of `GroupStrategy`. Groups under one key share a mesh; without a
        key: all groups of a family (tables, MLPs with interactions, transformer layers with their
        ends, experts) take every parallelism over all ranks, and every pair of them inside and
        across nodes.
    micro_batches, queues, prefetch, backward_gather, buckets, recompute
        Values of the fields of `GroupStrategy`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> space = GroupSpace({"transformer": ["ddp", "fsdp", "tp@8+ddp"]}, recompute=(False, True))
    >>> space.size(sm.compose("llama3_8b"), sm.cluster("dgx_h100", nodes=4))
    6
    """

    groups: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    micro_batches: Sequence[int] = (1,)
    queues: Sequence[str] = ("per_level",)
    prefetch: Sequence[str] = ("one",)
    backward_gather: Sequence[str] = ("before",)
    buckets: Sequence[str] = ("unit",)
    recompute: Sequence[bool] = (False,)

    def __post_init__(self) -> None:
        if not isinstance(self.groups, Mapping):
            raise ScaleModelError(
                f"groups={self.groups!r}: must be a mapping of group names to meshes"
            )
        listed = {key: as_texts(meshes, f"groups[{key!r}]") for key, meshes in self.groups.items()}
        object.__setattr__(self, "groups", listed)
        for name in ("micro_batches", "recompute", *CHOICES):
            value = getattr(self, name)
            values = value if isinstance(value, (list, tuple)) else (value,)
            object.__setattr__(self, name, tuple(values))
            for item in values:
                GroupStrategy(**{name: item})  # refuses what no strategy may have

    def variables(
        self, model: ComposedModel, cluster: Cluster
    ) -> tuple[list[list[str]], list[int]]:
        """Meshes to try for each variable, and the variable of each slot."""
        known = {key for slot in model.slots for key in slot_keys(slot)}
        for key in self.groups:
            if key not in known and key not in (*FAMILIES, *KINDS, "experts", "*"):
                raise ScaleModelError(
                    f"groups: {key!r}: no such group in {model.name}; {nearest(key, known)}"
                )
        variables: dict[str, list[str]] = {}
        of_slot: list[str] = []
        for slot in model.slots:
            given = next((key for key in slot_keys(slot) if key in self.groups), None)
            if given is not None:
                # One key may cover slots of kinds that take different meshes.
                key, suited = given, [mesh for mesh in self.groups[given] if _suits(mesh, slot)]
                if not suited:
                    raise ScaleModelError(
                        f"groups[{key!r}]={list(self.groups[key])!r}: no mesh for {slot.name}"
                    )
            else:
                key, names = _family(slot)
                suited = _automatic(names, cluster.accelerators, cluster.core.node_accelerators)
            filled = [str(_core.mesh_text(mesh, cluster.accelerators)) for mesh in suited]
            name = key if variables.get(key, filled) == filled else slot.name
            variables[name] = list(dict.fromkeys(filled))
            of_slot.append(name)
        order = list(variables)
        return list(variables.values()), [order.index(name) for name in of_slot]

    def size(self, model: ComposedModel, cluster: Cluster) -> int:
        """Strategies in the space, legal or not."""
        rows = 1
        for values in self.variables(model, cluster)[0]:
            rows *= len(values)
        for name in ("micro_batches", "recompute", *CHOICES):
            rows *= len(getattr(self, name))
        return rows


def _suits(mesh: str, slot: Slot) -> bool:
    return bool(_core.mesh_suits(mesh, slot.kind, slot.experts))


def _family(slot: Slot) -> tuple[str, Sequence[str]]:
    if slot.experts:
        return "experts", _EXPERTS
    for family, kinds in FAMILIES.items():
        if slot.kind in kinds:
            return family, _FAMILY_MESHES[family]
    return slot.kind, _LAYERS


@dataclass(frozen=True)
class _Question:
    """What is searched, and the engine's tables and space of it."""

    model: ComposedModel
    cluster: Cluster
    task: Training
    stack: str
    ablation: _core.Ablation
    tables: _core.GroupTables
    space: _core.GroupSpace
    objective: tuple[tuple[str, float], ...] = (("step_time_s", 1.0),)
    constraints: tuple[str, ...] = ()
    headroom: float = 0.0
    framework: str | None = None


def _question(
    model: ComposedModel,
    cluster: Cluster,
    task: Training,
    space: object,
    stack: str,
    ablation: _core.Ablation | None,
) -> _Question:
    checked_task(task)
    if space is None:
        space = GroupSpace()
    elif isinstance(space, Mapping):
        space = GroupSpace(**space)
    elif not isinstance(space, GroupSpace):
        raise ScaleModelError(
            f"space={space!r}: must be a GroupSpace or a mapping of its arguments"
        )
    left_out = checked_ablation(ablation)
    meshes, of_slot = space.variables(model, cluster)
    listed = tuple(dict.fromkeys(mesh for values in meshes for mesh in values))
    counts = tuple(dict.fromkeys(space.micro_batches))
    tables = group_tables(model, cluster, task, stack, left_out, listed, counts)
    rows = _core.GroupSpace(
        tables,
        meshes,
        of_slot,
        list(counts),
        list(space.queues),
        list(space.prefetch),
        list(space.backward_gather),
        list(space.buckets),
        list(space.recompute),
    )
    return _Question(model, cluster, task, stack, left_out, tables, rows)


def _check_here(elsewhere: bool) -> None:
    if elsewhere:
        raise ScaleModelError("executor: models of layer groups are searched in threads only")


class _Hit(NamedTuple):
    score: float
    row: int
    layout: tuple[Any, ...]
    core: _core.GroupEstimate


class GroupRanking(Sequence[GroupEstimate]):
    """The best group strategies of a search, best first.

    Attributes
    ----------
    size : int
        Strategies that were evaluated.
    counts : dict
        Of those, how many by verdict.
    constrained : int
        Strategies that run but break a constraint or leave too little memory free.

    Printed, and in a notebook, it is a table of the best; `table` has every column.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=4096, sequence=197)
    >>> best = sm.search(sm.compose("vit_b"), sm.cluster("dgx_h100"), task)
    >>> best[0].verdict, best.size == sum(best.counts.values())
    ('ok', True)
    """

    def __init__(
        self,
        question: _Question,
        hits: tuple[_Hit, ...],
        size: int,
        counts: Mapping[str, int],
        constrained: int,
    ) -> None:
        self.question = question
        self._hits = hits
        self.size = size
        self.pruned = 0
        self.constrained = constrained
        self.counts = {verdict_text(reason): number for reason, number in counts.items()}

    def __len__(self) -> int:
        return len(self._hits)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._estimate(hit) for hit in self._hits[index]]
        if not self._hits:
            raise IndexError(self.why_infeasible())
        return self._estimate(self._hits[index])

    def __iter__(self) -> Iterator[GroupEstimate]:
        return (self._estimate(hit) for hit in self._hits)

    def _estimate(self, hit: _Hit) -> GroupEstimate:
        q = self.question
        texts, passes, queues, prefetch, gather, buckets, recompute = hit.layout
        meshes = {slot.name: mesh for slot, mesh in zip(q.model.slots, texts, strict=True)}
        strategy = GroupStrategy(meshes, passes, queues, prefetch, gather, buckets, recompute)
        return GroupEstimate(
            q.model, q.cluster, q.task, strategy, q.stack, q.ablation, meshes, hit.core
        )

    def __repr__(self) -> str:
        best = f", best {self[0]!r}" if self._hits else f": {self.why_infeasible()}"
        return f"GroupRanking({len(self)} of {self.size:,} strategies{best})"

    def __str__(self) -> str:
        return view_text(self)

    def _repr_html_(self) -> str:
        return view_html(self)

    @property
    def evaluated(self) -> int:
        """Strategies that were evaluated: all of them."""
        return self.size

    def why_infeasible(self) -> str:
        """What became of the strategies, and how many a limit keeps out."""
        q = self.question
        parts = [f"{number:,} {verdict}" for verdict, number in self.counts.items()]
        if self.constrained:
            broke = ["broke a constraint"] if q.constraints or not q.headroom else []
            free = f"left less than {100 * q.headroom:g} % of memory free (headroom)"
            broke += [free] if q.headroom else []
            parts.append(f"{self.constrained:,} {' or '.join(broke)}")
        left = "no strategy is left" if not self._hits else f"{len(self):,} are left"
        return f"{left} of {self.size:,}: {', '.join(parts)}"

    def why_pruned(self) -> str:
        """Why strategies were left out: none is."""
        return "none"

    @property
    def table(self) -> pd.DataFrame:
        """One row per strategy, best first: the columns of `sweep` and `row`."""
        import pandas as pd

        return pd.DataFrame(
            [{**self._estimate(hit).to_dict(), "row": hit.row} for hit in self._hits]
        )


def search_groups(
    model: ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: object,
    stack: str,
    ablation: _core.Ablation | None,
    *,
    objective: Objective,
    top: int,
    constraints: Sequence[str] | str,
    headroom: float,
    threads: int | None,
    progress: Progress,
    elsewhere: bool,
) -> GroupRanking:
    """What `sm.search` answers for a model of layer groups: every row is evaluated."""
    _check_here(elsewhere)
    question = replace(
        _question(model, resolve.cluster(cluster), task, space, stack, ablation),
        objective=tuple(objective_terms(objective, GROUP_COLUMNS)),
        constraints=as_texts(constraints, "constraints"),
        headroom=headroom_fraction(headroom),
    )
    terms = list(question.objective)
    limits = limits_of(question.constraints, question.headroom, GROUP_COLUMNS)
    size = int(question.space.size)
    with watched(progress, size, " rows") as report:
        answer = _core.search_groups(
            *(question.tables, question.space, terms, limits, top, False),
            worker_threads(threads),
            report,
        )
    hits = tuple(_Hit(*hit) for hit in answer["hits"])
    return GroupRanking(question, hits, size, answer["verdicts"], answer["constrained"])


def sweep_groups(
    model: ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: object,
    stack: str,
    ablation: _core.Ablation | None,
    *,
    columns: Sequence[str] | None,
    threads: int | None,
    progress: Progress,
    elsewhere: bool,
) -> pd.DataFrame:
    """What `sm.sweep` answers for a model of layer groups: its legal strategies."""
    import pandas as pd

    _check_here(elsewhere)
    question = _question(model, resolve.cluster(cluster), task, space, stack, ablation)
    with watched(progress, int(question.space.size), " rows") as report:
        estimates, meshes, names, passes, knobs = _core.sweep_groups(
            question.tables, question.space, None, worker_threads(threads), report
        )
    table: dict[str, Any] = {}
    for index, slot in enumerate(question.model.slots):
        table[f"mesh_{slot.name}"] = pd.Categorical.from_codes(
            meshes[:, index], categories=pd.Index(names)
        )
    table["micro_batches"] = passes
    for index, (name, legal) in enumerate(CHOICES.items()):
        table[name] = pd.Categorical.from_codes(knobs[:, index], categories=pd.Index(legal))
    table["recompute"] = knobs[:, len(CHOICES)] != 0
    for name, column in estimates.items():
        if isinstance(column, tuple):
            codes, texts = column
            labels = [verdict_text(text) for text in texts]
            column = pd.Categorical.from_codes(codes, categories=pd.Index(labels))
        table[name] = column
    if not question.cluster.core.price_usd_per_s > 0:
        table["cost_usd"] = pd.array([None] * len(passes), dtype="Float64")
    frame = pd.DataFrame(table)
    frame.index.name = "row"
    frame = frame[frame.verdict.isin(["ok", "out_of_memory"])]
    if columns is None:
        return frame
    columns = as_texts(columns, "columns")
    for name in columns:
        if name not in frame.columns:
            raise ScaleModelError(f"columns={name!r}: no such column; {nearest(name, table)}")
    return frame[list(columns)]
