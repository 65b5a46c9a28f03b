"""Accelerators of a stage of training, pool by pool: what they draw, cost and embody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import scalemodel._core as _core
from scalemodel.economics import carbon
from scalemodel.economics.caps import capped_step
from scalemodel.economics.failures import nodes_of
from scalemodel.estimator.estimate import Estimate
from scalemodel.post_training.answer import PhasedStep
from scalemodel.resolve import Cluster
from scalemodel.resolve.power import clock_power
from scalemodel.resolve.prices import Price

#: Phases that move weights, states or logits: accelerators wait for links.
_TRANSFERS = ("collect", "swap", "logits", "refit", "switch")


def pools_of(answer: Estimate | PhasedStep) -> dict[str, Cluster]:
    """Clusters by what they do: those that train, generate and teach, where they are not the same.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> one, layout = sm.cluster("dgx_h100"), sm.Strategy(tp=2, recompute="full")
    >>> list(pools_of(sm.estimate_rl("llama3_8b", one, task, layout, rollout=one)))
    ['training', 'rollout']
    """
    if isinstance(answer, Estimate):
        return {"training": answer.cluster}
    step: Any = answer
    pools: dict[str, Cluster] = {"training": step.training.cluster}
    if not step.colocated:
        pools["rollout"] = step.serving.cluster
    if getattr(step, "teacher_apart", False):
        pools["teacher"] = step.teacher.cluster
    return pools


def nodes_in(pools: Mapping[str, Cluster]) -> float:
    """Nodes of all pools."""
    return sum(nodes_of(each) for each in pools.values())


def drawn_j(cluster: Cluster, time_s: float, accelerator_w: float, pue: float | None) -> float:
    """Joules at the meter of a pool whose accelerators draw as much in the mean."""
    core = cluster.core
    return float(
        _core.facility_energy_j(
            time_s,
            accelerator_w,
            core.accelerators,
            core.host_power_w,
            nodes_of(cluster),
            core.pue if pue is None else pue,
        )
    )


def waiting_j(pools: Mapping[str, Cluster], time_s: float, pue: float | None) -> float:
    """Joules at the meter of pools that stand still."""
    return sum(
        drawn_j(each, time_s, each.core.accelerator.power.idle_w, pue) for each in pools.values()
    )


def rent_usd(
    pools: Mapping[str, Cluster], prices: Mapping[str, Price | None], time_s: float
) -> float | None:
    """Price of all pools for a time; None where one of them has none."""
    total = 0.0
    for name, each in pools.items():
        price = prices[name]
        if price is None:
            return None
        total += _core.rental_cost_usd(time_s, each.accelerators, price.usd_per_s)
    return total


def embodied_kg(pools: Mapping[str, Cluster], time_s: float) -> float:
    """CO2e of making the machines, as far as a time uses them up."""
    life_s, used = carbon.life_s()
    return sum(
        each.accelerators * _core.amortised(carbon.embodied_kg(each), time_s, life_s, used)
        for each in pools.values()
    )


def _transfer_w(cluster: Cluster) -> float:
    power = cluster.core.accelerator.power
    waits = _core.StepPhases(exposed_s=1.0)
    return float(_core.step_under_cap(power, clock_power(), waits, power.limit_w).power_w)


def _busy(step: Any, pool: str) -> Iterator[tuple[str, float]]:
    """Phases of a step that a pool works in, and their seconds."""
    for phase, of, _, seconds in step.timeline().itertuples(index=False):
        if of == pool or (of == "both" and pool != "teacher"):
            yield phase, seconds


def _phase_w(step: Any, phase: str, cluster: Cluster) -> float:
    """Watts of an accelerator of a pool in a phase."""
    if phase == "rollout":
        return float(step.serving.power_w) / int(step.serving.accelerators)
    if phase in _TRANSFERS:
        return _transfer_w(cluster)
    return capped_step(step.teacher if phase == "teacher" else step.training, None).power_w


def before_s(step: PhasedStep) -> float:
    """Passes of a reference over the pairs of a step, made once before the first one."""
    return float(getattr(step, "precomputing_s", 0.0))


def phased_step_j(step: PhasedStep, pue: float | None = None) -> float:
    """Joules at the meter of a step of post-training, idle pools and passes `before_s` included.

    An optimizer step draws what the estimate of it draws, and so do the passes that score: their
    kernels are those of its forward pass. Generation draws what a replica draws that is as full as
    it gets: an upper bound for the last, longest answers of a round, which run almost alone.
    Weights, states and logits on their way draw what exposed communication draws; a pool that waits
    for another one draws what idle accelerators do.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> one, layout = sm.cluster("dgx_h100"), sm.Strategy(tp=2, recompute="full")
    >>> step = sm.estimate_rl("llama3_8b", one, task, layout)
    >>> bool(8 * 75 < phased_step_j(step) / step.step_time_s < 8 * 2 * 700)
    True
    """
    training: Any = step.training
    trains_w = capped_step(training, None).power_w
    total = drawn_j(training.cluster, before_s(step), trains_w, pue)
    for pool, cluster in pools_of(step).items():
        busy_s = 0.0
        for phase, seconds in _busy(step, pool):
            total += drawn_j(cluster, seconds, _phase_w(step, phase, cluster), pue)
            busy_s += seconds
        total += waiting_j({pool: cluster}, max(0.0, step.step_time_s - busy_s), pue)
    return total
