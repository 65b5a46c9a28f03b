"""What a fleet does when things change: more traffic, replicas that are lost, a start elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel._core import Outage
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import fleet_of
from scalemodel.serving.fleet_plan import FleetPlan, plan_fleet
from scalemodel.serving.fleet_pools import simulate_pools
from scalemodel.serving.fleet_search import Served, tiers_of, values_of
from scalemodel.serving.limits import slack_of
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import number_from_to
from scalemodel.serving.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("rate", "lost", "add")
#: Of a case of `what_if_plan`; what else it has are options of `plan_fleet`.
_PLAN_KEYS = ("rate", "lost", "clusters", "limits")
#: Options that say what goes wrong, which `plan_fleet` shares with `simulate_fleet`.
_WRONGS = ("failures", "outages", "store_tokens", "seed")


@named_arguments
def what_if_fleet(
    trace: RequestStream,
    fleet: Any,
    cases: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The summary of a fleet as it is, and in other cases.

    Parameters
    ----------
    trace : RequestStream
    fleet : as for `simulate_fleet`
    cases : mapping of label to mapping, optional
        What is different. `rate`: of the traffic, as a factor (a `Trace`, by copies of its
        sessions, as `Trace.scaled` makes them). `lost`: replicas that fail in the middle of the
        trace and do not come back, the first of the fleet. `add`: replicas more of its first kind.
        Anything else is an option of `simulate_fleet`. Default: double the traffic, and half of the
        replicas lost.
    **options
        Of `simulate_fleet`, of all cases.

    Returns
    -------
    DataFrame, one row per case, the first as it is
        Column case, and those of `ServedFleet.summary`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=4)
    >>> drawn = sm.request_stream(task, requests=1000, requests_per_s=60)
    >>> trace = sm.Trace(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    >>> table = what_if_fleet(trace, plan, router="least_loaded")
    >>> table["case"].tolist()
    ['as it is', 'double traffic', 'half lost']
    >>> bool((table.ttft_p99_s[1:] > table.ttft_p99_s[0]).all())
    True
    """
    import pandas as pd

    parts = fleet_of(fleet)
    replicas = sum(part.count for part in parts)
    if cases is None:
        cases = {"double traffic": {"rate": 2.0}, "half lost": {"lost": max(1, replicas // 2)}}
    rows = []
    for label, case in {"as it is": {}, **cases}.items():
        _check_case(label, case)
        changed = {**options, **{key: value for key, value in case.items() if key not in _KEYS}}
        stream = _scaled(trace, label, case)
        if case.get("lost", 0):
            number_from_to(f"cases[{label!r}]: lost", case["lost"], 1, replicas)
            changed["outages"] = [*changed.get("outages", ()), _gone(stream, case["lost"])]
        counts = [part.count for part in parts]
        counts[0] += case.get("add", 0)
        kinds = [(part.plan, count) for part, count in zip(parts, counts, strict=True)]
        served = simulate_fleet(stream, kinds, **changed)
        rows.append({"case": label, **served.summary()})
    return pd.DataFrame(rows)


def _check_case(label: str, case: Any) -> None:
    if not isinstance(case, Mapping):
        raise ScaleModelError(f"cases[{label!r}]: must be a mapping")


def _scaled(trace: RequestStream, label: str, case: Mapping[str, Any]) -> RequestStream:
    """The traffic of a case."""
    if "rate" not in case:
        return trace
    if not isinstance(trace, Trace):
        raise ScaleModelError(f"cases[{label!r}]: rate: the trace must be a Trace")
    return trace.scaled(case["rate"])


def _gone(trace: RequestStream, replicas: int) -> Outage:
    """The first replicas are lost in the middle of a trace and do not come back."""
    middle = float(trace.arrival_s[0] + trace.arrival_s[-1]) / 2
    return Outage(begin_s=middle, end_s=1e12, first=0, count=replicas)


@named_arguments
def what_if_plan(
    trace: RequestStream | Mapping[str, RequestStream],
    models: Any,
    clusters: Any,
    limits: Mapping[str, float],
    cases: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Whether the cheapest fleet outlives other cases, and what the cheapest would be in them.

    Parameters
    ----------
    trace, models, clusters, limits
        As for `plan_fleet`.
    cases : mapping of label to mapping, optional
        What is different. `rate`: of the traffic, as a factor (of a `Trace`). `lost`: replicas
        that fail in the middle of the trace and do not come back, the first of the fleet or of each
        pool, such as those of a rack. `clusters`, `limits`: in place of the ones given, such as
        those with a new accelerator among them. Anything else is an option of `plan_fleet`.
        Default: double the traffic, and one replica lost.
    **options
        Of `plan_fleet`, of all cases.

    Returns
    -------
    DataFrame, one row per model and case, the first as it is
        Columns model, case; of the fleet that is planned as it is, in that case: keeps (its
        limits), and the limit that `binds` with the `ratio` of its value to it (infinite where
        requests are refused); of the cheapest fleet for that case: fleet (empty where there is
        none), router, tiers, autoscaled, usd_per_hour, change (of the price, as a fraction),
        message.

    Raises
    ------
    ScaleModelError : as `plan_fleet`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=1000, output_tokens=200)
    >>> drawn = sm.request_stream(task, requests=600, requests_per_s=60)
    >>> trace = sm.Trace(drawn.arrival_s, drawn.input_tokens, drawn.output_tokens)
    >>> cases = {"double": {"rate": 2}, "H200 too": {"clusters": ["dgx_h100", "dgx_h200"]}}
    >>> table = what_if_plan(trace, "llama3_8b", "dgx_h100", {"tpot_s": 0.02}, cases)
    >>> table.keeps.tolist(), bool(table.usd_per_hour[1] > table.usd_per_hour[0])
    ([True, False, True], True)
    """
    import pandas as pd

    if cases is None:
        cases = {"double traffic": {"rate": 2.0}, "one lost": {"lost": 1}}
    rows: list[dict[str, Any]] = []
    planned: dict[str, FleetPlan] = {}
    for label, case in {"as it is": {}, **cases}.items():
        _check_case(label, case)
        own = {**options, **{key: value for key, value in case.items() if key not in _PLAN_KEYS}}
        traces = (
            {name: _scaled(each, label, case) for name, each in trace.items()}
            if isinstance(trace, Mapping)
            else _scaled(trace, label, case)
        )
        if case.get("lost", 0):
            first = next(iter(traces.values())) if isinstance(traces, dict) else traces
            number_from_to(f"cases[{label!r}]: lost", case["lost"], 1, 100_000)
            own["outages"] = [*own.get("outages", ()), _gone(first, case["lost"])]
        kept = case.get("limits", limits)
        found = plan_fleet(traces, models, case.get("clusters", clusters), kept, **own)
        for name, plan in _by_model(found, models).items():
            stream = traces[name] if isinstance(traces, dict) else traces
            before = planned.setdefault(name, plan)
            wrongs = {key: own[key] for key in _WRONGS if key in own}
            row = {"model": name, "case": label, **_outlived(before, stream, plan.limits, wrongs)}
            rows.append(row | _answer_of(plan, before))
    return pd.DataFrame(rows)


def _by_model(found: FleetPlan | dict[str, FleetPlan], models: Any) -> dict[str, FleetPlan]:
    if isinstance(found, dict):
        return found
    name = getattr(models, "name", models)
    return {name if isinstance(name, str) else "model": found}


def _outlived(
    plan: FleetPlan, trace: RequestStream, limits: Mapping[str, float], wrongs: Mapping[str, Any]
) -> dict[str, Any]:
    """Whether a planned fleet keeps limits on a trace, and which of them it is nearest to."""
    if not plan.fits:
        return {"keeps": False, "binds": plan.binds, "ratio": float("nan")}
    pairs = [(part.plan, part.count) for part in plan.parts]
    answers = [pair for pair in pairs if pair[0].task.prefilled]
    prompts = [pair for pair in pairs if not pair[0].task.prefilled] if answers else pairs
    given = {"tiers": tiers_of(plan.tiers, prompts), "autoscaler": plan.autoscaler, **wrongs}
    served: Served
    if answers:
        given["decode_outages"] = given.get("outages", ())
        given["decode_autoscaler"] = plan.decode_autoscaler
        served = simulate_pools(trace, prompts, answers, router=plan.router, **given)
    else:
        served = simulate_fleet(trace, pairs, router=plan.router, **given)
    ratio, name = slack_of(values_of(served, limits), limits)
    if served.refused.any():
        ratio, name = float("inf"), "refused"
    return {"keeps": ratio <= 1, "binds": name, "ratio": ratio}


def _answer_of(plan: FleetPlan, before: FleetPlan) -> dict[str, Any]:
    fits = plan.fits and before.fits
    price = plan.usd_per_hour if plan.fits else float("nan")
    return {
        "fleet": " + ".join(f"{count} x {name}" for name, count in plan.counts.items()),
        "router": plan.router,
        "tiers": plan.tiers,
        "autoscaled": plan.autoscaler is not None or plan.decode_autoscaler is not None,
        "usd_per_hour": price,
        "change": price / before.usd_per_hour - 1 if fits else float("nan"),
        "message": plan.message,
    }
