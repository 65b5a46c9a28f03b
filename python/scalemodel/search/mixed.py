"""Which part of a job runs on which kind of accelerator: `search_mixed`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.estimator.mixed import (
    PLACEMENTS,
    SPLITS,
    MixedCluster,
    MixedEstimate,
    answer_mixed,
    mixed_cluster,
    share_of,
)
from scalemodel.resolve import Model
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.space import Space, as_texts

OBJECTIVES = ("step_time_s", "energy_j", "cost_usd")

#: What is tried where no space is given: every degree, but one kind of everything else. Searching
#: for layers takes seconds where stages are many.
#: Schedules of whole stages that end a step together.
_WHOLE_STAGES = ("gpipe", "1f1b", "zero_bubble")
_USUAL = Space(
    cp=1,
    vpp=1,
    micro_batch=[1, 2, 4],
    sharding="zero1",
    recompute=["none", "selective", "full"],
    placement="tp-cp-dp-pp",
    sequence_parallel=True,
    regather=True,
    offload_optimizer=False,
    where=("tp <= domain", "pp <= 16"),
)


@named_arguments
def search_mixed(
    model: str | Path | Model | dict[str, Any],
    cluster: MixedCluster | str | Path,
    task: Training,
    space: Space | None = None,
    *,
    objective: str = "step_time_s",
    placements: Sequence[str] = PLACEMENTS,
    leave_out: bool = True,
    split: str = "searched",
    top: int = 10,
    stack: str = DEFAULT_STACK,
) -> list[MixedEstimate]:
    """The best ways to run a training step on accelerators of several kinds.

    Every strategy of the space is tried with kinds as pipeline stages, in every order, and as
    data-parallel replicas, with layers or micro-batches distributed for each; and, because a slow
    kind may cost more than it brings, on every choice of kinds. Every strategy is asked once with
    balanced layers; layers are then searched for, most promising first, until nothing that is left
    can beat the last of the best.

    Parameters
    ----------
    model : object or anything `sm.model` takes
    cluster : MixedCluster, or anything `sm.mixed_cluster` takes from a file
        Its own placement does not matter.
    task : Training or FineTuning
    space : Space, optional
        Strategies to try, with the automatic values of the first kind. Default: all degrees up
        to 16 stages without context parallelism, micro-batches of 1 to 4, ZeRO-1, every
        recomputation. Kinds as stages take its strategies with whole stages (``vpp=1``, no
        DualPipe).
    objective : {"step_time_s", "energy_j", "cost_usd"}
        What is to be smallest, for the step with the batch of the task.
    placements : sequence of {"stages", "replicas"}
        What kinds may hold.
    leave_out : bool
        Whether kinds may stay unused.
    split : {"searched", "balanced", "even"}
        How layers and micro-batches are distributed; see `estimate_mixed`.
    top : int
        Longest answer.
    stack : str
        Named software stack of the catalogue.

    Returns
    -------
    list of MixedEstimate
        Those that fit, best first; each says on which parts, in which order, with what split.

    Raises
    ------
    ScaleModelError : a malformed argument; the message names it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> both = sm.mixed_cluster({"dgx_a100": 2, "dgx_h100": 2})
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> space = sm.Space(tp=[4, 8], pp=[2, 4], cp=1, vpp=1, micro_batch=1, sharding="zero1",
    ...                  recompute="none", placement="tp-cp-dp-pp", sequence_parallel=True,
    ...                  regather=True, offload_optimizer=False)
    >>> best = sm.search_mixed("llama3_8b", both, task, space)
    >>> best[0].step_time_s == min(est.step_time_s for est in best)
    True
    """
    if not isinstance(cluster, MixedCluster):
        cluster = mixed_cluster(cluster)
    if objective not in OBJECTIVES:
        raise ScaleModelError(f"objective={objective!r}: must be one of {', '.join(OBJECTIVES)}")
    allowed = as_texts(placements, "placements")
    if not allowed or not set(allowed) <= set(PLACEMENTS):
        raise ScaleModelError(
            f"placements={placements!r}: must be one or more of {', '.join(PLACEMENTS)}"
        )
    if split not in SPLITS:
        raise ScaleModelError(f"split={split!r}: must be one of {', '.join(SPLITS)}")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ScaleModelError(f"top={top!r}: must be a positive whole number")
    if space is not None and not isinstance(space, Space):
        raise ScaleModelError(f"space={space!r}: must be a Space")
    known = resolve.model(model)
    options: dict[str, Any] = {"stack": stack}
    candidates: list[tuple[float, MixedEstimate]] = []
    for mixed in _arrangements(cluster, allowed, leave_out):
        whole = resolve.cluster(mixed.parts[0], accelerators=mixed.accelerators)
        for strategy in (space or _USUAL).strategies(known, whole, task):
            if not _holds(mixed, strategy):
                continue
            first = "balanced" if split == "searched" else split
            quick, least_s = answer_mixed(known, mixed, task, strategy, split=first, **options)
            if quick.step_time_s is not None:
                candidates.append((_least(quick, objective, least_s), quick))

    def value(estimate: MixedEstimate) -> float:
        return float(getattr(estimate, objective))

    fitting = [quick for _, quick in candidates if quick.verdict == "ok"]
    best = sorted(fitting, key=value)[:top]
    if split != "searched":
        return best
    # A searched split takes no longer than the balanced one, though it may draw more.
    known_enough = len(best) == top and objective != "energy_j"
    enough = value(best[-1]) if known_enough else math.inf
    best = []
    for least, quick in sorted(candidates, key=lambda candidate: candidate[0]):
        if least > enough or least == math.inf:
            break
        found = answer_mixed(known, quick.cluster, task, quick.strategy, split=split, **options)[0]
        if found.verdict == "ok":
            best = sorted([*best, found], key=value)[:top]
        if len(best) == top:
            enough = min(enough, value(best[-1]))
    return best


def _least(estimate: MixedEstimate, objective: str, least_s: float) -> float:
    """What no split of the layers can beat: of energy, if all were idle for the least time."""
    if objective == "step_time_s":
        return least_s
    if objective == "cost_usd":
        return least_s * float(estimate.cost_usd or 0) / float(estimate.step_time_s or 1)
    return sum(
        _core.facility_energy_j(
            least_s,
            part.core.accelerator.power.idle_w,
            part.accelerators,
            part.core.host_power_w,
            part.nodes,
            part.core.pue,
        )
        for part in estimate.cluster.parts
    )


def _arrangements(
    cluster: MixedCluster, placements: Sequence[str], leave_out: bool
) -> Iterator[MixedCluster]:
    """Choices of kinds; in every order where they are stages, which differ at the ends."""
    count = len(cluster.parts)
    for size in range(1 if leave_out else count, count + 1):
        for chosen in combinations(cluster.parts, size):
            if "stages" in placements:
                for order in permutations(chosen):
                    yield MixedCluster(order, "stages")
            if "replicas" in placements:
                yield MixedCluster(chosen, "replicas")


def _holds(cluster: MixedCluster, strategy: _core.Strategy) -> bool:
    """Whether every part holds whole stages or replicas of a strategy."""
    if cluster.placement == "stages" and (
        strategy.vpp > 1 or strategy.schedule not in _WHOLE_STAGES or strategy.pp == 1
    ):
        return False
    shares = [share_of(cluster, part, strategy) for part in cluster.parts]
    return all(share >= 1 and share == round(share) for share in shares)
