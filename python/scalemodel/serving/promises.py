"""Whether instances hold limits of latency at a load: in steady state, then simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

import scalemodel._core as _core
from scalemodel.resolve import Cluster, Model
from scalemodel.serving.limits import LIMITS, slack_of
from scalemodel.serving.measured import (
    DRAIN,
    FEW_REQUESTS,
    MOST_REQUESTS,
    RATE,
    REQUESTS,
    WARM,
    Measured,
    loaded_stream,
    looked_at,
    measure,
)
from scalemodel.serving.plan import ServingPlan, instance_of, ranks_of
from scalemodel.serving.plan_stream import keep_running
from scalemodel.serving.stream import run_stream
from scalemodel.serving.task import Inference, number_from_to

_IDLE = 0.02  # of the load that an instance is asked for, where it is hardly loaded
_MOST_REPLICAS = 1_000_000
_RUNS = 4  # of sequences kept running, each with others to begin with
_MEAN_OF_MEDIAN = 1.5  # time between tokens, that no stream goes beyond
_GRAIN = 0.02  # of the replicas, that more of them may be than the fewest
_CLOSE = 1.03  # of a bisection over concurrency

SEQUENCES = "max_running_sequences"


def checked_load(requests_per_s: object, headroom: object) -> None:
    """Raises where a rate or its headroom is no number of its range."""
    if requests_per_s is not None:
        number_from_to("requests_per_s", requests_per_s, 1e-9, 1e9)
    number_from_to("headroom", headroom, 0, 10)


@dataclass(frozen=True)
class Promise:
    """What is promised: limits of latency of a task, and the load at which they hold."""

    model: Model
    cluster: Cluster
    task: Inference
    engine: str
    limits: Mapping[str, float]
    requests_per_s: float | None = None
    headroom: float = 0.1
    checked: bool = True

    @property
    def means(self) -> dict[str, float]:
        """Limits that a steady state is judged by: means, and percentiles that none is beyond."""
        return {mean: limit for mean, (limit, _) in self._behind.items()}

    def given(self, mean: str) -> str:
        """The limit that was given where a mean is judged by it."""
        return self._behind[mean][1] if mean in self._behind else mean

    @property
    def _behind(self) -> dict[str, tuple[float, str]]:
        found: dict[str, tuple[float, str]] = {}
        for name, limit in self.limits.items():
            metric, percent = LIMITS[name]
            if percent == 50:  # alone may be less than the mean, that of waits by far
                if metric != "tpot":
                    continue
                limit *= _MEAN_OF_MEDIAN
            mean = f"{metric}_s"
            found[mean] = min((limit, name), found.get(mean, (limit, name)))
        return found


@dataclass
class Candidate:
    """A layout with a size of a step, and what is known of it.

    Attributes
    ----------
    tokens : int or None
        Of a step; None where the engine tunes it.
    replicas, concurrency
        As few, or as many running in one instance, as the limits allow.
    binds : str
        The limit that keeps the plan from being smaller.
    missed, missed_value : float
        Of one that holds at no load: the value of the limit `binds`, over the limit and in seconds.
    values : mapping
        Means and percentiles at its load, simulated.
    """

    promise: Promise
    layout: _core.ServingLayout
    tokens: int | None
    replicas: int = 1
    concurrency: float | None = None
    binds: str = ""
    missed: float = 0.0
    missed_value: float = 0.0
    values: Mapping[str, float] = field(default_factory=dict, repr=False)
    state: _core.SteadyState | None = field(default=None, repr=False)

    @property
    def options(self) -> dict[str, int]:
        """Limits that its engine is started with."""
        return {} if self.tokens is None else {"max_batched_tokens": self.tokens}

    @property
    def ranks(self) -> int:
        """Accelerators of an instance."""
        return ranks_of(self.layout)

    def instance(self) -> _core.Instance:
        """One instance."""
        asked = self.promise
        return instance_of(
            asked.model, asked.cluster, asked.task, self.layout, asked.engine, self.options
        )[0]

    def miss(self, ratio: float, name: str, values: Mapping[str, float]) -> bool:
        """Notes what keeps the candidate from holding at any load; always False."""
        self.missed, self.binds = ratio, self.promise.given(name)
        self.missed_value = values.get(name, float("nan"))
        return False

    def judged(self, values: Mapping[str, float]) -> tuple[float, str]:
        """The largest ratio of a mean of a steady state to its limit, and the limit as given."""
        ratio, name = slack_of(values, self.promise.means)
        return ratio, self.promise.given(name)


def state_values(state: _core.SteadyState, task: Inference) -> dict[str, float]:
    """Means of a steady state by the names of limits."""
    rest = task.output_tokens - 1
    return {
        "ttft_s": float(state.ttft_s),
        "tpot_s": float(state.tpot_s),
        "e2e_s": float(state.ttft_s + rest * state.tpot_s),
    }


# ------------------------------------------------------------------------- at a rate of requests
def measure_rate(
    candidate: Candidate,
    rate: float,
    seed: int,
    requests: int = REQUESTS,
    limits: Mapping[str, float] | None = None,
) -> Measured:
    """One or a few instances with random arrivals at `rate` each."""
    task, instance = candidate.promise.task, candidate.instance()
    state = instance.steady_state_at(task.mix, rate)
    life = state.prefill_s + (task.output_tokens - 1) * state.tpot_s
    life = max(life, float(state.ttft_s) + (task.output_tokens - 1) * state.tpot_s)
    inside = rate * life
    # Replicas are alike and random arrivals at each stay random: a few of them stand for all.
    copies = int(np.clip(REQUESTS / 20 / max(inside, 1.0), 1, min(4, candidate.replicas)))
    stream = loaded_stream(task, copies * rate, life, requests, seed)
    served = run_stream(instance, task.mix, stream, copies, seed=seed, progress=False)
    return measure([served], life, limits)


def _broken_at(candidate: Candidate, load: float, replicas: int) -> tuple[float, str]:
    """The largest ratio of a mean to its limit in steady state, and the limit's name."""
    promise, instance = candidate.promise, candidate.instance()
    state = instance.steady_state_at(promise.task.mix, load / replicas)
    if state.saturated:
        return float("inf"), RATE
    return candidate.judged(state_values(state, promise.task))


def _fewest(
    holds: Callable[[int], bool], low: int, grain: float = 0.0, most: int = _MOST_REPLICAS
) -> int:
    """The fewest replicas from `low` that hold, 0 where none to `most` do; `grain` more at most."""
    if holds(low):
        return low
    fails, step = low, max(1, int(grain * low))
    while not holds(fails + step):
        fails, step = fails + step, 2 * step
        if fails > most:
            return 0
    return _between(holds, fails, fails + step, grain)


def _between(holds: Callable[[int], bool], fails: int, good: int, grain: float) -> int:
    """The fewest above `fails` that hold, up to `good`, which do."""
    while good - fails > max(1, int(grain * good)):
        middle = (good + fails) // 2
        fails, good = (fails, middle) if holds(middle) else (middle, good)
    return good


def carry_rate(candidate: Candidate, low: int = 1) -> bool:
    """The fewest replicas of which the closed form says that they hold, less than `low` never."""
    promise = candidate.promise
    assert promise.requests_per_s is not None
    load = promise.requests_per_s * (1 + promise.headroom)
    mix = promise.task.mix
    # At hardly any load nothing waits: what misses there misses everywhere.
    idle = candidate.instance().steady_state_at(mix, 1e-6)
    values = state_values(idle, promise.task)
    ratio, name = slack_of(values, promise.means)
    if ratio > 1:
        return candidate.miss(ratio, name, values)
    candidate.replicas = _fewest(lambda n: _broken_at(candidate, load, n)[0] <= 1, low)
    if not candidate.replicas:
        return candidate.miss(float("inf"), RATE, {})
    candidate.binds = _binds(candidate, load) or RATE
    rate = promise.requests_per_s / candidate.replicas
    candidate.state = candidate.instance().steady_state_at(mix, rate)
    return True


def _binds(candidate: Candidate, load: float) -> str:
    """The limit that fewer replicas would break; with one of them the one it comes nearest to."""
    if candidate.replicas > 1:
        return _broken_at(candidate, load, candidate.replicas - 1)[1]
    state = candidate.instance().steady_state_at(candidate.promise.task.mix, load)
    ratio, name = candidate.judged(state_values(state, candidate.promise.task))
    return name if ratio > state.utilisation else RATE


def settle(candidate: Candidate) -> None:
    """The steady state at the load itself, without headroom, and what is simulated there."""
    promise = candidate.promise
    assert promise.requests_per_s is not None
    rate = promise.requests_per_s / candidate.replicas
    candidate.state = candidate.instance().steady_state_at(promise.task.mix, rate)
    candidate.values = measure_rate(candidate, rate, seed=3).values


def check_rate(candidate: Candidate, most: int = _MOST_REPLICAS) -> bool:
    """Adds replicas until the limits hold in simulation, at the rate and its headroom.

    More than `most` are of no interest: then the answer is no, and no limit binds.
    """
    promise = candidate.promise
    assert promise.requests_per_s is not None
    load = promise.requests_per_s * (1 + promise.headroom)
    found: dict[int, Measured] = {}
    low = candidate.replicas

    def holds(replicas: int) -> bool:
        candidate.replicas = replicas
        found[replicas] = looked_at(
            lambda count: measure_rate(
                candidate, load / replicas, seed=1, requests=count, limits=promise.limits
            ),
            promise.limits,
        )
        return found[replicas].broken(promise.limits)[0] <= 1

    bounded = most < _MOST_REPLICAS
    if low > most or (bounded and not holds(most)):
        return _of_no_interest(candidate)
    if low not in found:
        holds(low)
    if found[low].broken(promise.limits)[0] > 1:
        if bounded:
            fewest = _between(holds, low, most, _GRAIN)
        else:
            calm = measure_rate(
                replace(candidate, replicas=1), _IDLE * load / low, seed=2, requests=FEW_REQUESTS
            )
            ratio, name = calm.broken(promise.limits, 0)
            if ratio > 1:
                return candidate.miss(ratio, name, calm.values)
            fewest = _fewest(holds, low + 1, _GRAIN, int(low / _IDLE))
            if not fewest:  # too unsure at any load
                last = found[max(found)]
                return candidate.miss(*last.broken(promise.limits), last.values)
        fewer = max(n for n in found if n < fewest)
        candidate.binds = found[fewer].broken(promise.limits)[1]
        candidate.replicas = fewest
    else:
        candidate.replicas = low
        if low == 1:
            ratio, name = found[low].broken(promise.limits)
            state = candidate.instance().steady_state_at(promise.task.mix, load)
            candidate.binds = name if ratio > state.utilisation else RATE
    settle(candidate)
    while slack_of(candidate.values, promise.limits)[0] > 1:
        candidate.replicas += 1
        settle(candidate)
    return candidate.replicas <= most or _of_no_interest(candidate)


def _of_no_interest(candidate: Candidate) -> bool:
    candidate.binds = ""
    return False


# -------------------------------------------------------------------------- kept running
def measure_running(
    candidate: Candidate,
    plan: ServingPlan,
    requests: int = REQUESTS,
    limits: Mapping[str, float] | None = None,
) -> Measured:
    """Instances that each keep as many running as their plan says."""
    assert plan.state is not None
    assert plan.asked_concurrency is not None
    task, concurrency = candidate.promise.task, plan.asked_concurrency
    count = requests // _RUNS + round((WARM + DRAIN + 2) * concurrency)
    runs = [keep_running(plan, min(count, MOST_REQUESTS), seed=1 + i) for i in range(_RUNS)]
    life = plan.state.prefill_s + (task.output_tokens - 1) * plan.state.tpot_s
    return replace(measure(runs, life, limits), grows=False)


def _alone(plan_of: Callable[[float], ServingPlan], name: str) -> float:
    """The mean behind a limit where one request runs alone."""
    plan = plan_of(1.0)
    assert plan.state is not None
    return state_values(plan.state, plan.task)[f"{LIMITS[name][0]}_s"]


def check_running(
    candidate: Candidate, plan_of: Callable[[float], ServingPlan], least: float = 1.0
) -> bool:
    """Keeps fewer running until the limits hold in simulation; `plan_of` a number of them.

    Fewer than `least` are of no interest: then the answer is no, and no limit binds.
    """
    promise = candidate.promise
    assert candidate.concurrency is not None
    last: dict[float, tuple[float, str]] = {}
    measured: dict[float, Measured] = {}

    def holds(concurrency: float) -> bool:
        plan = plan_of(concurrency)
        assert plan.state is not None
        closed = candidate.judged(state_values(plan.state, promise.task))
        if closed[0] > 1 or not promise.checked:
            last[concurrency] = closed
            return closed[0] <= 1
        found = looked_at(
            lambda count: measure_running(candidate, plan, count, promise.limits), promise.limits
        )
        measured[concurrency] = found
        last[concurrency] = found.broken(promise.limits)
        return last[concurrency][0] <= 1

    most = max(1.0, float(np.floor(candidate.concurrency)))
    if least > most or (least > 1 and not holds(least)):
        return _of_no_interest(candidate)
    good, fails = most, 0.0
    if most not in last:
        holds(most)
    if last[most][0] > 1:
        if least == 1 and (most == 1 or not holds(1.0)):
            ratio, name = last[1.0]
            values = measured[1.0].values if 1.0 in measured else {name: _alone(plan_of, name)}
            return candidate.miss(ratio, name, values)
        good, fails = least, most
        while fails / good > _CLOSE and fails - good > 1:
            middle = float(np.floor(np.sqrt(good * fails)))
            middle = min(max(middle, good + 1), fails - 1)
            good, fails = (middle, fails) if holds(middle) else (good, middle)
        candidate.binds = last[fails][1]
    candidate.concurrency = good
    if promise.checked:
        candidate.values = measure_running(candidate, plan_of(good)).values
    return True
