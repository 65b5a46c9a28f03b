"""Clusters with accelerators of several kinds: the slowest paces those that wait for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.answer import verdict_text
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.clusters import PARTS_KEY
from scalemodel.resolve.positions import warn_of_sequence
from scalemodel.resolve.reader import Reader, is_path
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training

PLACEMENTS = ("stages", "replicas")
SPLITS = ("even", "balanced", "searched")


@dataclass(frozen=True)
class MixedCluster:
    """Nodes of several kinds in one job. Made by `mixed_cluster`.

    Attributes
    ----------
    parts : tuple of Cluster
        Each kind with the nodes there are of it, in the order of the pipeline.
    placement : {"stages", "replicas"}
        What a kind holds: pipeline stages, or whole data-parallel replicas.

    Examples
    --------
    >>> import scalemodel as sm
    >>> [part.nodes for part in sm.mixed_cluster({"dgx_h100": 1, "dgx_a100": 2}).parts]
    [1.0, 2.0]
    """

    parts: tuple[Cluster, ...]
    placement: str

    @property
    def accelerators(self) -> int:
        """Accelerators of the job."""
        return sum(part.accelerators for part in self.parts)


@dataclass(frozen=True)
class MixedEstimate:
    """One training step on a mixed cluster. Made by `estimate_mixed` and `search_mixed`.

    Attributes
    ----------
    cluster : MixedCluster
    strategy : Strategy
        The question.
    split : str
        How layers or micro-batches were distributed; ``given`` if the question said.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``; if illegal, the numbers are empty.
    step_time_s, tokens_per_s : float or None
        One optimizer step, and the tokens of it in a second.
    layers : tuple of int
        Of each pipeline stage, where kinds hold stages.
    micro_batches : tuple of float
        Per step and part, of its busiest replica.
    part_times_s : tuple of float
        The step of each part alone (replicas), or the end of its last stage's gradients (stages).
    memory_bytes : tuple of float
        Of the fullest accelerator of each part.
    power_w : tuple of float
        Mean of one accelerator of each part.
    energy_j, cost_usd : float or None
        Of the step: at the facility's meter, and every part at the price of its own cluster.

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.mixed_cluster({"dgx_h100": 1, "dgx_a100": 1})
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> est = sm.estimate_mixed("llama3_8b", cluster, task, sm.Strategy(tp=4, pp=2))
    >>> est.verdict, sum(est.layers)
    ('ok', 32)
    """

    cluster: MixedCluster
    strategy: _core.Strategy
    split: str
    verdict: str
    step_time_s: float | None
    tokens_per_s: float | None
    layers: tuple[int, ...]
    micro_batches: tuple[float, ...]
    part_times_s: tuple[float, ...]
    memory_bytes: tuple[float, ...]
    power_w: tuple[float, ...]
    energy_j: float | None
    cost_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """The answer as one flat row: the parts, the strategy's fields, then every figure.

        Examples
        --------
        >>> import scalemodel as sm
        >>> both = sm.mixed_cluster({"dgx_h100": 4, "dgx_a100": 4})
        >>> est = sm.estimate_mixed("llama3_8b", both, sm.Training(global_batch=256, sequence=4096),
        ...                         sm.Strategy(tp=4, pp=4))
        >>> row = est.to_dict()
        >>> row["parts"], row["placement"], row["pp"], row["verdict"]
        ('4 dgx_h100 + 4 dgx_a100', 'stages', 4, 'ok')
        """
        parts = " + ".join(f"{part.nodes:g} {part.name}" for part in self.cluster.parts)
        fields = [str(field["name"]) for field in _core.Strategy.fields()]
        plan = {name: getattr(self.strategy, name) for name in fields}
        plan["mesh"] = plan.pop("placement")
        asked = ("cluster", "strategy")
        figures = {key: value for key, value in vars(self).items() if key not in asked}
        return {"parts": parts, "placement": self.cluster.placement, **plan, **figures}


@named_arguments
def mixed_cluster(
    source: Mapping[str, int] | str | Path, *, placement: str | None = None
) -> MixedCluster:
    """A cluster with nodes of several kinds.

    Parameters
    ----------
    source : mapping of str to int, or path or name of an entry
        Nodes of each cluster of the catalogue, or of a ``.toml`` entry; the first pipeline stages
        run on the first of them. Or a cluster file with a ``[[part]]`` per kind: ``cluster``, what
        `sm.cluster` takes, its size in ``nodes``; and ``placement`` above them.
    placement : {"stages", "replicas"}, optional
        Whether a kind holds pipeline stages or whole data-parallel replicas. Default: what the
        file says, else stages.

    Raises
    ------
    ScaleModelError : unknown name or key, no nodes, another placement.

    Examples
    --------
    >>> import scalemodel as sm
    >>> sm.mixed_cluster({"dgx_h100": 2, "dgx_a100": 6}).accelerators
    64
    """
    if isinstance(source, (str, Path)):
        parts, written = _read_parts(str(source))
    elif isinstance(source, Mapping) and source:
        parts, written = [(name, count) for name, count in source.items()], PLACEMENTS[0]
    else:
        raise ScaleModelError(
            f"source={source!r}: must map names of clusters to numbers of nodes, or name a file"
        )
    placed = written if placement is None else placement
    if placed not in PLACEMENTS:
        raise ScaleModelError(f"placement={placed!r}: must be one of {', '.join(PLACEMENTS)}")
    return MixedCluster(tuple(resolve.cluster(name, nodes=count) for name, count in parts), placed)


def _read_parts(source: str) -> tuple[list[tuple[Any, int]], str]:
    """Clusters and nodes of the parts of a file, and its placement."""
    if is_path(source, (".toml",), ("clusters",)):
        table = catalog.read_toml(Path(source))
    else:
        table = dict(catalog.load("clusters", catalog.find("clusters", source)))
    listed = table.get(PARTS_KEY)
    if not isinstance(listed, list) or not listed:
        raise ScaleModelError(f"{source}: has no [[{PARTS_KEY}]]; must list a part per kind")
    top = Reader(table, source)
    placement = top.text("placement", PLACEMENTS[0])
    top.finish("name", "title", "aliases", PARTS_KEY)
    parts = []
    for number, entry in enumerate(listed, 1):
        reader = Reader(entry, f"{source}.{PARTS_KEY}[{number}]")
        count = reader.count("nodes")
        reader.finish("cluster")
        if "cluster" not in entry:
            raise ScaleModelError(f"{reader.where}.cluster: missing")
        parts.append((entry["cluster"], count))
    return parts, placement


@named_arguments
def estimate_mixed(
    model: str | Path | Model | dict[str, Any],
    cluster: MixedCluster,
    task: Training,
    strategy: _core.Strategy,
    *,
    split: str | Sequence[int] = "balanced",
    stack: str = DEFAULT_STACK,
) -> MixedEstimate:
    """Predict one training step on a mixed cluster.

    Kinds that hold stages run one pipeline, simulated because its stages differ; transfers between
    kinds go at the speed of the slower network. Kinds that hold replicas wait for each other where
    gradients are reduced, over a network that is the worse of both in every property.

    Parameters
    ----------
    model : object or anything `sm.model` takes
    cluster : MixedCluster
    task : Training or FineTuning
    strategy : Strategy
        Degrees over all accelerators. Stages must be whole (``vpp=1``, no DualPipe).
    split : {"balanced", "even", "searched"} or sequence of int
        Whether layers (stages) or micro-batches (replicas) are distributed so that the slowest part
        takes the least time, or evenly. ``searched`` also moves layers until each kind has room
        for its own and the simulated step gets no shorter. Or the layers of every stage.
    stack : str
        Named software stack of the catalogue.

    Raises
    ------
    ScaleModelError : a kind does not hold a whole number of stages or replicas, or a malformed
        argument.

    Examples
    --------
    >>> import scalemodel as sm
    >>> half_each = sm.mixed_cluster({"dgx_h100": 4, "dgx_a100": 4})
    >>> question = ("llama3_8b", half_each, sm.Training(global_batch=256, sequence=4096),
    ...             sm.Strategy(tp=4, pp=4))
    >>> est = sm.estimate_mixed(*question)
    >>> est.layers[0] > est.layers[-1]
    True
    >>> est.step_time_s < sm.estimate_mixed(*question, split="even").step_time_s
    True
    """
    if not isinstance(cluster, MixedCluster):
        raise ScaleModelError(f"cluster={cluster!r}: must be a MixedCluster; see mixed_cluster")
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    if not isinstance(strategy, _core.Strategy):
        raise ScaleModelError(f"strategy={strategy!r}: must be a Strategy")
    chosen = resolve.model(model)
    warn_of_sequence(chosen, task)
    return answer_mixed(chosen, cluster, task, strategy, split=split, stack=stack)[0]


def answer_mixed(
    model: Model,
    cluster: MixedCluster,
    task: Training,
    strategy: _core.Strategy,
    *,
    split: str | Sequence[int],
    stack: str,
) -> tuple[MixedEstimate, float]:
    """The estimate, and seconds that no split of the layers can beat: inf where none fits."""
    by_stage = cluster.placement == "stages"
    given = _given_layers(split) if by_stage else None
    if given is None and split not in SPLITS:
        also = ", or the layers of every stage" if by_stage else ""
        raise ScaleModelError(f"split={split!r}: must be one of {', '.join(SPLITS)}{also}")
    shares = [_whole_share(cluster, part, strategy) for part in cluster.parts]
    whole = [resolve.cluster(part, accelerators=cluster.accelerators) for part in cluster.parts]
    if not by_stage:
        fabric = reduce(_core.slowest_fabric, [part.core.fabric for part in whole])
        whole = [replace(part, core=_with_fabric(part.core, fabric)) for part in whole]
    tables = [tables_for(model, part, task, stack) for part in whole]
    if given is not None:
        step = _core.mixed_with_layers(tables, shares, strategy, given)
    else:
        run = _core.mixed_by_stage if by_stage else _core.mixed_by_replica
        step = run(tables, shares, strategy, str(split))
    runs = step.step_time_s > 0
    tokens = task.core.global_batch * task.core.sequence
    estimate = MixedEstimate(
        cluster=cluster,
        strategy=strategy,
        split=str(split) if given is None else "given",
        verdict=verdict_text(str(step.verdict)),
        step_time_s=step.step_time_s if runs else None,
        tokens_per_s=tokens / step.step_time_s if runs else None,
        layers=tuple(step.layers),
        micro_batches=tuple(step.micro_batches),
        part_times_s=tuple(step.times_s),
        memory_bytes=tuple(step.memory_bytes),
        power_w=tuple(step.power_w),
        energy_j=step.energy_j if runs else None,
        cost_usd=step.cost_usd if runs else None,
    )
    return estimate, step.least_time_s if step.may_fit else math.inf


def _given_layers(split: object) -> list[int] | None:
    """Layers of every stage, if that is what `split` gives."""
    if isinstance(split, str) or not isinstance(split, Sequence):
        return None
    for layers in split:
        if isinstance(layers, bool) or not isinstance(layers, int) or not 0 < layers < 2**31:
            raise ScaleModelError(f"split={split!r}: must hold positive whole numbers")
    return list(split)


def share_of(cluster: MixedCluster, part: Cluster, strategy: _core.Strategy) -> float:
    """Stages or replicas that a part holds."""
    if cluster.placement == "stages":
        return part.accelerators * int(strategy.pp) / cluster.accelerators
    return part.accelerators / (strategy.tp * strategy.cp * strategy.pp)


def _whole_share(cluster: MixedCluster, part: Cluster, strategy: _core.Strategy) -> int:
    share = share_of(cluster, part, strategy)
    if share < 1 or share != round(share):
        raise ScaleModelError(
            f"strategy={strategy!r}: {part.accelerators} accelerators of {part.name} hold "
            f"{share:g} {cluster.placement}; must be a whole number"
        )
    return round(share)


def _with_fabric(core: _core.Cluster, fabric: _core.Fabric) -> _core.Cluster:
    values = {row["name"]: getattr(core, row["name"]) for row in _core.Cluster.fields()}
    return _core.Cluster(**(values | {"fabric": fabric}))
