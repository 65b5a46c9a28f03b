"""What a plan should measure under the load of a benchmark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.benchmarks.record import BenchRun
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.task import Inference
from scalemodel.serving.uncertainty import ServingInterval

#: Quantities with an interval, and the name of theirs; in the order of the table.
MEANS: Final = {"output_tokens_per_s": "rate", "ttft_mean_s": "ttft", "tpot_mean_s": "tpot"}
_TIMES: Final = ("ttft", "tpot")
_STATISTICS: Final = ("mean", "median", "p99")
#: Requests that are served one by one for percentiles.
_FEWEST: Final = 200
_LARGEST: Final = 20_000


class Prediction(NamedTuple):
    """A plan under the load of a run.

    Attributes
    ----------
    plan : Serving
    values : dict
        Quantity -> value, as `measured_values` names them.
    intervals : dict
        Quantity -> interval.
    settles : bool
        False where more is asked than the plan serves, so that times grow with the run.
    """

    plan: Serving
    values: dict[str, float]
    intervals: dict[str, ServingInterval]
    settles: bool


def measured_values(run: BenchRun) -> dict[str, float]:
    """Quantities that a run has.

    Examples
    --------
    >>> run = BenchRun("vllm", "", "", 10, 0, 5.0, 2.0, 40.0, 100.0, 20.0)
    >>> measured_values(run)
    {'requests_per_s': 2.0, 'output_tokens_per_s': 40.0}
    """
    found = {
        "requests_per_s": run.requests_per_s,
        "output_tokens_per_s": run.output_tokens_per_s,
    }
    for name in _TIMES:
        spread = getattr(run, name)
        for statistic in _STATISTICS:
            value = getattr(spread, statistic)
            if value:
                found[f"{name}_{statistic}_s"] = value
    return found


def load_of(run: BenchRun) -> dict[str, float]:
    """The load of a run as `serve` is asked about it; empty: all requests come at once.

    Requests that are limited both in rate and in number at once come at that rate where no more
    than that number ran, as far as Little's law tells.
    """
    if run.asked_concurrency is None:
        return {} if run.asked_rate is None else {"requests_per_s": run.asked_rate}
    held = min(run.asked_concurrency, float(run.completed + run.failed))
    latency = run.latency.mean
    if run.asked_rate is not None and latency and run.requests_per_s * latency < 0.9 * held:
        return {"requests_per_s": run.asked_rate}
    return {"concurrency": held}


def predict(
    plan: Serving, task: Inference, run: BenchRun, *, cluster: Any = None, **limits: int
) -> Prediction:
    """The plan under the load of a run, by the closed form, or request by request.

    Parameters
    ----------
    plan : Serving
        Model, layout, engine and replicas.
    task : Inference
        Of the lengths of the run.
    run : BenchRun
    cluster : Cluster, optional
        In place of the plan's own.
    limits
        Of the engine, in place of the plan's own.
    """
    load = load_of(run)
    options: dict[str, Any] = {**plan.engine_limits, **limits, **load}
    under = serve(
        plan.model,
        cluster or plan.cluster,
        task,
        plan.layout,
        engine=plan.engine,
        replicas=plan.replicas,
        **options,
    )
    if under.state is None:
        raise ScaleModelError(f"plan: does not run under the load of the file ({under.verdict})")
    settles = bool(load) and not under.saturated
    values = {
        "requests_per_s": float(under.requests_per_s),
        "output_tokens_per_s": float(under.output_tokens_per_s),
        "tpot_mean_s": float(under.tpot_s),
    }
    if settles:
        values["ttft_mean_s"] = float(under.ttft_s)
    else:
        values |= _served(under, run)
    intervals = {}
    for quantity, kind in MEANS.items():
        interval = under.interval(kind) or under.interval("tpot" if kind == "ttft" else kind)
        if interval is None:
            continue
        # Around what is predicted for this run, as wide as that of the steady state.
        wide = (interval.high / interval.low) ** 0.5
        value = values[quantity]
        intervals[quantity] = interval._replace(low=value / wide, high=value * wide)
    return Prediction(under, values, intervals, settles)


def _served(plan: Serving, run: BenchRun) -> dict[str, float]:
    """Means of as many requests as the run had, served one by one."""
    count = max(1, min(run.completed, _LARGEST))
    found = plan.simulate(requests=count).summary()
    names = ("requests_per_s", "output_tokens_per_s", "ttft_mean_s", "tpot_mean_s")
    return {name: found[name] for name in names if found.get(name)}


def percentiles(prediction: Prediction, run: BenchRun) -> dict[str, float]:
    """Medians and 99th percentiles of the requests of a run, served one by one."""
    count = max(_FEWEST, min(run.completed, _LARGEST)) if prediction.settles else run.completed
    found = prediction.plan.simulate(requests=min(count, _LARGEST)).summary()
    names = [f"{name}_{statistic}_s" for name in _TIMES for statistic in _STATISTICS[1:]]
    return {name: found[name] for name in names if found.get(name)}


def task_of(run: BenchRun, task: Inference) -> Inference:
    """A task with the lengths of a run, spread as there; as in the task where it does not tell."""
    spreads = {
        name: getattr(run, name) for name in ("input_spread", "output_spread") if getattr(run, name)
    }
    return replace(
        task,
        **spreads,
        input_tokens=max(1.0, run.input_tokens),
        output_tokens=max(1.0, run.output_tokens),
    )
