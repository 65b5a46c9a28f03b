"""Stages of training, from pre-training to reinforcement learning, as one plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments, named_fields
from scalemodel.economics import carbon
from scalemodel.economics.arguments import checked, one_of
from scalemodel.economics.buying import Prices, price_for
from scalemodel.economics.failures import Reliability
from scalemodel.economics.failures import reliability as reliability_of
from scalemodel.economics.pools import (
    before_s,
    embodied_kg,
    nodes_in,
    phased_step_j,
    pools_of,
    rent_usd,
    waiting_j,
)
from scalemodel.economics.run import bounds, price_on, training_run, without_price
from scalemodel.economics.stage_plan import StagePlan, StageRun
from scalemodel.economics.storage import checkpoint_sizes, read_bytes_per_s
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import decoder_estimate
from scalemodel.estimator.verdicts import what_is_wrong
from scalemodel.post_training.answer import PhasedStep, RlEstimate
from scalemodel.post_training.tuning_answer import TuningEstimate
from scalemodel.resolve import Cluster
from scalemodel.resolve.prices import Price

_HOUR_S: Final = 3600.0
#: Rounding of a stage that is exactly one step long.
_LEAST_STEPS: Final = 1 - 1e-9


@named_fields
@dataclass(frozen=True)
class Stage:
    """One stage of training for `plan_stages`: the answer for one step of it, and its work.

    Parameters
    ----------
    name : str
    answer : Estimate, RlEstimate or TuningEstimate
        Of pre-training, longer contexts, annealing or supervised fine-tuning; of reinforcement
        learning; of preference tuning or distillation.
    tokens, samples, steps : float
        Exactly one: tokens; sequences, answers or pairs; or steps.
    after : str or sequence of str, optional
        Stages whose weights it starts from; none: it starts at once. Default: the one before it.
    reliability, price, grid, pue : optional
        Of this stage, in place of those of the plan.

    Raises
    ------
    ScaleModelError : another answer, no work or twice; the message names the argument.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> sm.Stage("pretrain", est, tokens=1e12).amount
    ('tokens', 1000000000000.0)
    """

    name: str
    answer: Estimate | RlEstimate | TuningEstimate
    tokens: float | None = None
    samples: float | None = None
    steps: float | None = None
    after: str | Sequence[str] | None = None
    reliability: Reliability | str | float | None = None
    price: Prices = None
    grid: str | float | None = None
    pue: str | float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ScaleModelError(f"name={self.name!r}: must be a text, such as 'pretrain'")
        if not isinstance(self.answer, PhasedStep):
            try:
                decoder_estimate(self.answer, "answer")
            except ScaleModelError as error:
                raise ScaleModelError(
                    f"{error}, or one of estimate_rl or estimate_tuning"
                ) from None
        _ = self.amount

    @property
    def amount(self) -> tuple[str, float]:
        """What its work is counted in, and how much."""
        wants = {"tokens": self.tokens, "samples": self.samples, "steps": self.steps}
        wanted = one_of(**wants)
        return wanted, checked(wanted, wants[wanted], 1e-9)

    def work(self) -> Work:
        """Steps, tokens and samples of the whole stage."""
        wanted, amount = self.amount
        answer: Any = self.answer
        if isinstance(answer, PhasedStep):
            samples = float(answer.task.samples)
            each = {"tokens": answer.task.sequences * answer.task.mean_length()}
        else:
            samples = float(answer.task.global_batch)
            each = {"tokens": samples * answer.task.sequence}
        each |= {"samples": samples, "steps": 1.0}
        # Of what was asked for as asked, without a way there and back.
        return Work(
            **{
                name: amount if name == wanted else amount / each[wanted] * size
                for name, size in each.items()
            }
        )


class Work(NamedTuple):
    """Steps of a stage, and tokens and samples in them."""

    steps: float
    tokens: float
    samples: float


@dataclass(frozen=True)
class _Terms:
    """What the plan says of all stages."""

    reliability: Reliability | str | float
    price: Prices
    grid: str | float
    pue: str | float | None

    def of(self, stage: Stage) -> _Terms:
        """Those of a stage, where it has its own."""
        own = {name: getattr(stage, name) for name in vars(self)}
        return replace(self, **{name: each for name, each in own.items() if each is not None})

    @property
    def pue_number(self) -> float | None:
        return None if self.pue is None else carbon.pue_of(self.pue)

    def prices(self, pools: dict[str, Cluster]) -> dict[str, Price | None]:
        """Price of an accelerator of each pool."""
        return {name: price_on(each, self._price(each)) for name, each in pools.items()}

    def price_source(self, pools: dict[str, Cluster]) -> str:
        """The prices, or what to pass where one is missing."""
        found = {
            str(price) if price else without_price(pools[name], self._price(pools[name]))
            for name, price in self.prices(pools).items()
        }
        return "; ".join(sorted(found))

    def _price(self, cluster: Cluster) -> str | float | None:
        return price_for(self.price, cluster.name, cluster)


def _obstacle(answer: Any) -> str:
    """Why a stage cannot run; empty where it can."""
    if answer.verdict == "ok":
        return ""
    return answer.reason if isinstance(answer, PhasedStep) else what_is_wrong(answer)


def _trained(stage: Stage, run: StageRun, terms: _Terms) -> StageRun:
    """Of a step without phases: its training run."""
    est: Any = stage.answer
    found = training_run(
        est,
        tokens=stage.work().tokens,
        reliability=terms.reliability,
        price=price_for(terms.price, est.cluster.name, est.cluster),
        grid=terms.grid,
        pue=terms.pue,
    )
    shared = (
        "reliability",
        "time_s",
        "time_low_s",
        "time_high_s",
        "accelerator_hours",
        "ettr_fraction",
        "failures",
        "energy_j",
        "cost_usd",
        "price_source",
        "operational_kg",
        "embodied_kg",
    )
    return replace(run, **{name: getattr(found, name) for name in shared})


def _phased(stage: Stage, run: StageRun, terms: _Terms) -> StageRun:
    """Of a step of post-training, on all its pools; a failure of any of them stops the job."""
    step: Any = stage.answer
    pools, work = pools_of(step), stage.work()
    if work.steps < _LEAST_STEPS:
        wanted, amount = stage.amount
        raise ScaleModelError(
            f"{wanted}={amount:g}: is less than one step ({step.task.samples:,} samples); must be "
            "at least that"
        )
    job = terms.reliability
    if not isinstance(job, Reliability):
        job = reliability_of(nodes_in(pools), failures=job)
    if job.ettr_fraction <= 0:
        raise ScaleModelError(f"reliability={job!r}: no run of this kind makes progress")
    pue = terms.pue_number
    step_s = step.step_time_s + before_s(step)
    time_s = _core.training_time_s(work.steps, 1 / step_s, job.ettr_fraction)
    energy_j = _core.energy_over_run_j(phased_step_j(step, pue), step_s, time_s)
    low_s, high_s = bounds(step, job, time_s)
    return replace(
        run,
        reliability=job,
        time_s=time_s,
        time_low_s=low_s,
        time_high_s=high_s,
        accelerator_hours=run.accelerators * time_s / _HOUR_S,
        ettr_fraction=job.ettr_fraction,
        failures=time_s / job.mttf_s,
        energy_j=energy_j,
        cost_usd=rent_usd(pools, terms.prices(pools), time_s),
        price_source=terms.price_source(pools),
        operational_kg=_core.operational_kg(energy_j, carbon.grid_g_per_kwh(terms.grid)),
        embodied_kg=embodied_kg(pools, time_s),
    )


def _run_of(stage: Stage, after: tuple[str, ...], terms: _Terms) -> StageRun:
    """A stage by itself, without its hand-over and its place."""
    answer: Any = stage.answer
    pools = pools_of(answer) if answer.verdict == "ok" else {}
    most = answer.accelerators if isinstance(answer, PhasedStep) else answer.cluster.accelerators
    run = StageRun(
        name=stage.name,
        task=type(answer.task).__name__,
        verdict=answer.verdict,
        reason=_obstacle(answer),
        after=after,
        accelerators=int(most),
        answer=answer,
    )
    if not pools:
        return run
    run = replace(run, **stage.work()._asdict())
    try:
        return (_phased if isinstance(answer, PhasedStep) else _trained)(stage, run, terms)
    except ScaleModelError as error:
        raise ScaleModelError(f"stage {stage.name!r}: {error}", code=error.code) from None


class _Handover(NamedTuple):
    """How a stage gets its weights."""

    switch_s: float | None
    node_bytes_per_s: float
    shared_bytes_per_s: float

    def time_s(self, run: StageRun, before: Sequence[StageRun]) -> float:
        """A last checkpoint of the stages before, a start, and reading what they left.

        The whole state is read, each byte once, by the nodes that go on to train, whatever their
        layout: shards of the old layout are pieces of the new one (PyTorch's distributed
        checkpoints reshard so as they load). Where only weights are wanted it is an upper bound.
        """
        if not before:
            return 0.0
        if self.switch_s is not None:
            return self.switch_s
        assert run.reliability is not None
        state = sum(checkpoint_sizes(_training_of(each))[0] for each in before)
        nodes = nodes_in({"training": _training_of(run).cluster})
        rates = self.node_bytes_per_s, self.shared_bytes_per_s
        reload_s = _core.reload_time_s(state, nodes, *rates)
        written_s = max(each.reliability.job.write_s for each in before if each.reliability)
        return float(written_s + _core.waiting(run.reliability.job, 0, reload_s).returns_s)


def _training_of(run: StageRun) -> Estimate:
    answer: Any = run.answer
    found: Estimate = answer.training if isinstance(answer, PhasedStep) else answer
    return found


def _handed_over(run: StageRun, switch_s: float, terms: _Terms) -> StageRun:
    """A stage with its hand-over: its accelerators stand idle and are paid."""
    if not switch_s:
        return replace(run, switch_s=0.0)
    pools = pools_of(run.answer)
    energy_j = waiting_j(pools, switch_s, terms.pue_number)
    more = {
        "time_s": switch_s,
        "time_low_s": switch_s,
        "time_high_s": switch_s,
        "accelerator_hours": run.accelerators * switch_s / _HOUR_S,
        "energy_j": energy_j,
        "cost_usd": rent_usd(pools, terms.prices(pools), switch_s),
        "operational_kg": _core.operational_kg(energy_j, carbon.grid_g_per_kwh(terms.grid)),
        "embodied_kg": embodied_kg(pools, switch_s),
    }
    sums: dict[str, Any] = {
        name: None if getattr(run, name) is None or each is None else getattr(run, name) + each
        for name, each in more.items()
    }
    return replace(run, switch_s=switch_s, **sums)


def _ends(runs: Iterable[StageRun], which: str) -> dict[str, float | None]:
    """When each stage ends, by one of its times; None after one that has none."""
    ends: dict[str, float | None] = {}
    for run in runs:
        begins, lasts = _begins(run, ends), getattr(run, which)
        ends[run.name] = None if begins is None or lasts is None else begins + lasts
    return ends


def _begins(run: StageRun, ends: dict[str, float | None]) -> float | None:
    before = [ends[name] for name in run.after]
    known = [each for each in before if each is not None]
    return max(known, default=0.0) if len(known) == len(before) else None


def _last(ends: dict[str, float | None]) -> float | None:
    known = [each for each in ends.values() if each is not None]
    return max(known) if len(known) == len(ends) else None


def _order(stages: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """Stages before each, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for stage in stages:
        if stage.name in found:
            raise ScaleModelError(
                f"stages: {stage.name!r} stands twice; every stage needs a name of its own"
            )
        known, after = list(found), stage.after
        if after is None:
            found[stage.name] = tuple(known[-1:])
            continue
        names = (after,) if isinstance(after, str) else tuple(after)
        for name in names:
            if name not in found:
                legal = ", ".join(map(repr, known)) or "no stage, for it is the first"
                raise ScaleModelError(
                    f"after={name!r}: of stage {stage.name!r}; must be a stage before it: {legal}"
                )
        found[stage.name] = names
    return found


@named_arguments
def plan_stages(
    stages: Iterable[Stage],
    *,
    reliability: Reliability | str | float = "llama_3",
    price: Prices = None,
    grid: str | float = "world",
    pue: str | float | None = None,
    switch_s: float | None = None,
    read: str | float = "object_store",
    shared_bytes_per_s: float = 0.0,
) -> StagePlan:
    """Stages of training as one plan: when each begins, what it takes, and which costs most.

    A stage of an `Estimate` takes what its `training_run` takes. One of post-training takes its
    steps on all its pools, a failure in any of which stops it; its energy is that of the training
    estimate and of the engine's power, phase by phase. A stage begins when those before it have
    ended, with a hand-over: a last checkpoint of theirs, a start as after a failure, and reading
    the state, in which its accelerators idle and are paid. A stage that does not fit or cannot run
    is the verdict of the plan.

    Parameters
    ----------
    stages : iterable of Stage
        In their order; on clusters of their own where their answers are.
    reliability : Reliability, str or float
        Made by `sm.reliability`, for every stage alike, or failures per node-day or the name of a
        preset. 0: none.
    price : str, float or mapping
        As of `sm.training_run`, or one for each name of a cluster or accelerator.
    grid, pue
        As of `sm.training_run`.
    switch_s : float, optional
        Of each hand-over, 0: none. Default: from checkpoint, start and reading.
    read : str or float
        Where checkpoints are: ``"object_store"``, ``"disk"``, ``"block_volume"``, or bytes per
        second of a node that reads.
    shared_bytes_per_s : float
        What the storage delivers to all nodes together; 0: it does not limit them.

    Raises
    ------
    ScaleModelError : no stages, two of one name, a stage shorter than a step, or an argument is
        malformed.

    Examples
    --------
    >>> import scalemodel as sm
    >>> one, layout = sm.cluster("dgx_h100"), sm.Strategy(tp=2, recompute="full")
    >>> est = sm.estimate("llama3_8b", one, sm.Training(global_batch=64, sequence=8192), layout)
    >>> answers = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...                 limit_tokens=4096)
    >>> step = sm.estimate_rl("llama3_8b", one, answers, layout)
    >>> plan = sm.plan_stages([sm.Stage("anneal", est, tokens=1e10),
    ...                        sm.Stage("rl", step, steps=200)], price=2.5)
    >>> plan.verdict, plan.costliest, 0 < plan.switch_s < 3600
    ('ok', 'anneal', True)
    >>> plan.cost_usd == sum(stage.cost_usd for stage in plan.stages)
    True
    """
    given = [stages] if isinstance(stages, Stage) else list(stages)
    for each in given:
        if not isinstance(each, Stage):
            raise ScaleModelError(
                f"stages: {each!r} must be a Stage, such as sm.Stage('pretrain', est, tokens=1e12)"
            )
    if not given:
        raise ScaleModelError("stages=[]: at least one is needed, made by sm.Stage")
    terms = _Terms(reliability, price, grid, pue)
    handover = _Handover(
        None if switch_s is None else checked("switch_s", switch_s, 0, 1e9),
        read_bytes_per_s(read),
        checked("shared_bytes_per_s", shared_bytes_per_s, 0, 1e18),
    )
    after = _order(given)
    runs: dict[str, StageRun] = {}
    for stage in given:
        own = terms.of(stage)
        run = _run_of(stage, after[stage.name], own)
        before = [runs[name] for name in run.after]
        if all(each.verdict == "ok" for each in (run, *before)):
            run = _handed_over(run, handover.time_s(run, before), own)
        runs[stage.name] = run
    return _placed(list(runs.values()))


def _placed(runs: Sequence[StageRun]) -> StagePlan:
    """The stages in time."""
    ends = _ends(runs, "time_s")
    placed = tuple(replace(run, start_s=_begins(run, ends), end_s=ends[run.name]) for run in runs)
    low, high = (_last(_ends(runs, which)) for which in ("time_low_s", "time_high_s"))
    return StagePlan(placed, _last(ends), low, high)
