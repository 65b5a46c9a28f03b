"""Ways to run a fleet and what goes wrong in it, as `plan_fleet` takes them: checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalemodel._core import Autoscaler, Failures, Outage
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.tiers import tier_setups


def wrongs_of(failures: Any, outages: Any) -> dict[str, Any]:
    """What goes wrong, checked; empty where nothing does.

    Examples
    --------
    >>> wrongs_of(Failures(mtbf_s=0.0), [])
    {}
    """
    if failures is not None and not isinstance(failures, Failures):
        raise ScaleModelError(f"failures={failures!r}: must be Failures")
    for outage in outages:
        if not isinstance(outage, Outage):
            raise ScaleModelError(f"outages: {outage!r}: must be of Outage")
    if not outages and (failures is None or not failures.mtbf_s):
        return {}
    return {"failures": failures or Failures(), "outages": list(outages)}


def check_ways(tiers: Any, autoscalers: Any, stock: Any) -> None:
    """Refuses ways to run a fleet that are none."""
    if isinstance(tiers, str) or not tiers:
        raise ScaleModelError(f"tiers={tiers!r}: must be a sequence of set-ups, None for no tiers")
    names = tier_setups()
    for setup in tiers:
        if setup is not None and setup not in names:
            raise ScaleModelError(f"tiers: {setup!r}: must be None or one of {', '.join(names)}")
    if isinstance(autoscalers, Autoscaler):
        raise ScaleModelError("autoscalers: must be a sequence of Autoscaler, and is one")
    for each in autoscalers:
        if not isinstance(each, Autoscaler):
            raise ScaleModelError(f"autoscalers: {each!r}: must be an Autoscaler")
    if stock is not None and autoscalers:
        raise ScaleModelError("autoscalers: a stock is shared by fleets that run all the time")


def check_stock(stock: Any) -> None:
    """Refuses what is no stock of accelerators."""
    if not isinstance(stock, Mapping):
        raise ScaleModelError(f"stock={stock!r}: must map names of clusters to accelerators")
    for name, number in stock.items():
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or number < 0:
            raise ScaleModelError(f"stock[{name!r}]={number!r}: must be a whole number from 0")
