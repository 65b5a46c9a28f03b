"""Many fleets on one trace: `study_fleets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import FleetPart, fleet_of, policy_of
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.verdicts import layout_text

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd


_MOST_SHARDS = 1_000_000


def _label(parts: Sequence[FleetPart]) -> str:
    return " + ".join(
        f"{part.count} x {part.plan.cluster.name} {layout_text(part.plan.layout)}" for part in parts
    )


@dataclass(frozen=True)
class _Shard:
    """Some of the cases of a study, and the trace they are asked about."""

    trace: RequestStream
    cases: Sequence[tuple[str, Any, _core.RouterPolicy]]
    options: Mapping[str, Any]

    def rows(self) -> list[dict[str, Any]]:
        return [self._row(*case) for case in self.cases]

    def _row(self, label: str, fleet: Any, policy: _core.RouterPolicy) -> dict[str, Any]:
        served = simulate_fleet(self.trace, fleet, router=policy, **self.options)
        found = served.summary()
        hours = served.totals.makespan_s / 3600
        row = {"fleet": label, "router": policy.router, **found}
        if "cost_usd" in found:
            row["usd_per_hour"] = found["cost_usd"] / hours
        return row


@named_arguments
def study_fleets(
    trace: RequestStream,
    fleets: Sequence[Any] | Mapping[str, Any],
    *,
    routers: Sequence[str | _core.RouterPolicy] = ("least_loaded",),
    executor: Executor | None = None,
    shards: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The summary of many fleets, with each of several routers, on one trace.

    Parameters
    ----------
    trace : RequestStream
    fleets : sequence of fleets, or mapping of label to fleet
        Each as `simulate_fleet` takes it.
    routers : sequence of str or RouterPolicy
    executor : concurrent.futures.Executor, optional
        Runs the simulations, as it runs the shards of `search`: of `concurrent.futures`, Dask or
        anything else with such a `map`. A simulation releases the interpreter, so that threads do.
    shards : int, optional
        Parts that the simulations are dealt out in, each of which the trace travels to; default:
        one of each simulation. They change no bit.
    **options
        Of `simulate_fleet`, such as `limits`, `tiers` and `autoscaler`.

    Returns
    -------
    DataFrame, one row per fleet and router, routers varying faster
        Columns fleet, router, those of `ServedFleet.summary`, and usd_per_hour where prices are
        known; `plot.fleet_front` draws it.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    >>> trace = sm.request_stream(task, requests=600, requests_per_s=60)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     table = study_fleets(trace, [(plan, n) for n in (1, 2, 4)], executor=pool,
    ...                          limits={"ttft_s": 0.1})
    >>> bool((table.goodput_fraction.diff()[1:] >= 0).all())
    True
    """
    import pandas as pd

    if isinstance(fleets, Mapping):
        named = {str(label): fleet for label, fleet in fleets.items()}
    else:
        named = {_label(fleet_of(fleet)): fleet for fleet in fleets}
    if not named or not routers:
        raise ScaleModelError("fleets, routers: must name at least one each")
    policies = [policy_of(router) for router in routers]
    cases = [(label, fleet, policy) for label, fleet in named.items() for policy in policies]
    if shards is not None:
        whole = isinstance(shards, int) and not isinstance(shards, bool)
        if not whole or not 1 <= shards <= _MOST_SHARDS:
            raise ScaleModelError(f"shards={shards!r}: must be a whole number from 1 to 1e6")
    count = min(len(cases), shards or len(cases))
    # Dealt out in turn: cases that are alike, and take alike long, are neighbours.
    parts = [_Shard(trace, cases[part::count], options) for part in range(count)]
    # A plain function: some executors take no other callable.
    asked = (map if executor is None else executor.map)(_Shard.rows, parts)
    answers = list(asked)
    rows = [answers[place % count][place // count] for place in range(len(cases))]
    return pd.DataFrame(rows)
