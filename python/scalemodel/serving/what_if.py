"""What a fleet does when things change: more traffic, replicas that are lost, a start elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel._core import Outage
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import fleet_of
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import number_from_to
from scalemodel.serving.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("rate", "lost", "add")


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
        if not isinstance(case, Mapping):
            raise ScaleModelError(f"cases[{label!r}]: must be a mapping")
        changed = {**options, **{key: value for key, value in case.items() if key not in _KEYS}}
        stream = trace
        if "rate" in case:
            if not isinstance(trace, Trace):
                raise ScaleModelError(f"cases[{label!r}]: rate: the trace must be a Trace")
            stream = trace.scaled(case["rate"])
        lost = case.get("lost", 0)
        if lost:
            number_from_to(f"cases[{label!r}]: lost", lost, 1, replicas)
            middle = float(trace.arrival_s[0] + trace.arrival_s[-1]) / 2
            gone = Outage(begin_s=middle, end_s=1e12, first=0, count=lost)
            changed["outages"] = [*changed.get("outages", ()), gone]
        counts = [part.count for part in parts]
        counts[0] += case.get("add", 0)
        kinds = [(part.plan, count) for part, count in zip(parts, counts, strict=True)]
        served = simulate_fleet(stream, kinds, **changed)
        rows.append({"case": label, **served.summary()})
    return pd.DataFrame(rows)
