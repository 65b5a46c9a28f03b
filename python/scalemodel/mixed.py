"""Clusters with accelerators of several kinds: the slowest paces those that wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from scalemodel import _core, resolve
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import DEFAULT_STACK, tables_for, verdict_text
from scalemodel.resolve import Cluster, Model
from scalemodel.tasks import Training

PLACEMENTS = ("stages", "replicas")
SPLITS = ("even", "balanced")


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
    """One training step on a mixed cluster. Made by `estimate_mixed`.

    Attributes
    ----------
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

    Examples
    --------
    >>> import scalemodel as sm
    >>> cluster = sm.mixed_cluster({"dgx_h100": 1, "dgx_a100": 1})
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> est = sm.estimate_mixed("llama3_8b", cluster, task, sm.Strategy(tp=4, pp=2))
    >>> est.verdict, sum(est.layers)
    ('ok', 32)
    """

    verdict: str
    step_time_s: float | None
    tokens_per_s: float | None
    layers: tuple[int, ...]
    micro_batches: tuple[float, ...]
    part_times_s: tuple[float, ...]
    memory_bytes: tuple[float, ...]


def mixed_cluster(nodes: Mapping[str, int], *, placement: str = "stages") -> MixedCluster:
    """A cluster with nodes of several kinds.

    Parameters
    ----------
    nodes : mapping of str to int
        Nodes of each cluster of the catalogue, or of a ``.toml`` entry; the first pipeline stages
        run on the first of them.
    placement : {"stages", "replicas"}
        Whether a kind holds pipeline stages or whole data-parallel replicas.

    Raises
    ------
    ScaleModelError : unknown name, no nodes, another placement.

    Examples
    --------
    >>> import scalemodel as sm
    >>> sm.mixed_cluster({"dgx_h100": 2, "dgx_a100": 6}).accelerators
    64
    """
    if placement not in PLACEMENTS:
        raise ScaleModelError(f"placement={placement!r}: must be one of {', '.join(PLACEMENTS)}")
    if not isinstance(nodes, Mapping) or not nodes:
        raise ScaleModelError(f"nodes={nodes!r}: must map names of clusters to numbers of nodes")
    return MixedCluster(
        tuple(resolve.cluster(name, nodes=count) for name, count in nodes.items()), placement
    )


def estimate_mixed(
    model: str | Path | Model | dict[str, Any],
    cluster: MixedCluster,
    task: Training,
    strategy: _core.Strategy,
    *,
    split: str = "balanced",
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
    split : {"balanced", "even"}
        Whether layers (stages) or micro-batches (replicas) are shared out so that the slowest part
        takes the least time, or evenly.
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
    if split not in SPLITS:
        raise ScaleModelError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
    by_stage = cluster.placement == "stages"
    shares = _shares(cluster, strategy)
    known = resolve.model(model)
    whole = [resolve.cluster(part, accelerators=cluster.accelerators) for part in cluster.parts]
    if not by_stage:
        fabric = reduce(_core.slowest_fabric, [part.core.fabric for part in whole])
        whole = [replace(part, core=_with_fabric(part.core, fabric)) for part in whole]
    tables = [tables_for(known, part, task, stack) for part in whole]
    run = _core.mixed_by_stage if by_stage else _core.mixed_by_replica
    step = run(tables, shares, strategy, split == "balanced")
    runs = step.step_time_s > 0
    tokens = task.core.global_batch * task.core.sequence
    return MixedEstimate(
        verdict=verdict_text(str(step.verdict)),
        step_time_s=step.step_time_s if runs else None,
        tokens_per_s=tokens / step.step_time_s if runs else None,
        layers=tuple(step.layers),
        micro_batches=tuple(step.micro_batches),
        part_times_s=tuple(step.times_s),
        memory_bytes=tuple(step.memory_bytes),
    )


def _shares(cluster: MixedCluster, strategy: _core.Strategy) -> list[int]:
    """Stages or replicas of each part."""
    what = cluster.placement
    replica = strategy.tp * strategy.cp * strategy.pp
    per_share = cluster.accelerators / strategy.pp if what == "stages" else replica
    shares = []
    for part in cluster.parts:
        share = part.accelerators / per_share
        if share < 1 or share != round(share):
            raise ScaleModelError(
                f"strategy={strategy!r}: {part.accelerators} accelerators of {part.name} hold "
                f"{share:g} {what}; must be a whole number"
            )
        shares.append(round(share))
    return shares


def _with_fabric(core: _core.Cluster, fabric: _core.Fabric) -> _core.Cluster:
    values = {row["name"]: getattr(core, row["name"]) for row in _core.Cluster.fields()}
    return _core.Cluster(**(values | {"fabric": fabric}))
