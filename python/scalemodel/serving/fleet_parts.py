"""What a fleet is made of, and what its requests are held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel._core import RouterPolicy
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import choice
from scalemodel.serving.limits import METRICS
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import number_from_to

if TYPE_CHECKING:
    pass

#: How a request finds its replica.
ROUTERS = (
    "round_robin",
    "random",
    "least_loaded",
    "power_of_two",
    "prefix_aware",
    "kv_cost",
    "session_sticky",
    "weighted_scorers",
)
#: What each request may be held to: the columns of `METRICS`.
REQUEST_LIMITS = tuple(f"{metric}_s" for metric in METRICS)
_MOST_REPLICAS = 100_000


@dataclass(frozen=True)
class FleetPart:
    """Replicas of one kind: copies of the instance of a serving plan."""

    plan: ServingPlan
    count: int

    @property
    def instance(self) -> _core.Instance:
        """The tables of one replica."""
        assert self.plan.instance is not None
        return self.plan.instance

    @property
    def accelerators(self) -> int:
        """Of all replicas."""
        return self.count * ranks_of(self.plan.layout)

    @property
    def price_usd_per_s(self) -> float:
        """Of all replicas; 0 where the price of the accelerator is not known."""
        return self.accelerators * float(self.plan.cluster.core.price_usd_per_s)


def fleet_of(fleet: Any) -> tuple[FleetPart, ...]:
    """The parts of a fleet: a plan with its own replicas, or pairs of plans and counts.

    Raises
    ------
    ScaleModelError : something else, a plan that does not run, or no replica at all.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task)
    >>> [part.count for part in fleet_of([(plan, 3), plan])]
    [3, 8]
    """
    given = [fleet] if isinstance(fleet, ServingPlan) else fleet
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int):
        given = [given]
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise ScaleModelError(
            f"fleet={fleet!r}: must be a Serving, or Servings or pairs (Serving, count)"
        )
    parts = []
    for each in given:
        plan, count = each if isinstance(each, tuple) and len(each) == 2 else (each, None)
        if not isinstance(plan, ServingPlan):
            raise ScaleModelError(f"fleet: {plan!r}: must be a Serving, as `serve` makes it")
        if plan.instance is None:
            raise ScaleModelError(f"fleet: a plan does not run ({plan.verdict})")
        number = plan.replicas if count is None else count
        whole = isinstance(number, int) and not isinstance(number, bool)
        if not whole or not 0 <= number <= _MOST_REPLICAS:
            raise ScaleModelError(f"fleet: count={count!r}: must be a whole number from 0 to 1e5")
        parts.append(FleetPart(plan, number))
    if not sum(part.count for part in parts):
        raise ScaleModelError("fleet: must have at least one replica")
    return tuple(parts)


def policy_of(router: Any) -> RouterPolicy:
    """The policy that a name stands for, with its usual settings.

    Examples
    --------
    >>> policy_of("least_loaded").router
    'least_loaded'
    """
    if isinstance(router, RouterPolicy):
        return router
    named = choice(router, ROUTERS)
    if named not in ROUTERS:
        raise ScaleModelError(
            f"router={router!r}: must be a RouterPolicy or one of {', '.join(ROUTERS)}"
        )
    return RouterPolicy(router=named)


def request_limits(limits: Any) -> dict[str, float]:
    """What each request is held to, checked.

    Examples
    --------
    >>> request_limits({"ttft_s": 0.5, "tpot_s": None})
    {'ttft_s': 0.5}
    """
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise ScaleModelError(f"limits={limits!r}: must map {', '.join(REQUEST_LIMITS)} to seconds")
    found = {}
    for name, value in limits.items():
        if name not in REQUEST_LIMITS:
            raise ScaleModelError(f"limits: {name!r}: must be one of {', '.join(REQUEST_LIMITS)}")
        if value is None:
            continue
        number_from_to(f"limits: {name}", value, 1e-9, 1e9)
        found[name] = float(value)
    return found


def class_limits(limits: Any, trace: RequestStream) -> dict[int | None, dict[str, float]]:
    """Limits by tenant; those under None hold for every tenant without its own."""
    if isinstance(limits, Mapping) and any(isinstance(value, Mapping) for value in limits.values()):
        if getattr(trace, "tenant", None) is None:
            raise ScaleModelError("limits: are by tenant, and the trace has none")
        for tenant in limits:
            if isinstance(tenant, bool) or not isinstance(tenant, (int, np.integer)):
                raise ScaleModelError(f"limits: {tenant!r}: must be the number of a tenant")
        return {int(tenant): request_limits(own) for tenant, own in limits.items()}
    return {None: request_limits(limits)}


def optional_column(trace: RequestStream, name: str, kind: Any) -> npt.NDArray[Any]:
    """A column that a trace may have; empty where it has none."""
    value = getattr(trace, name, None)
    if value is None:
        return np.empty(0, dtype=kind)
    column = np.asarray(value)
    if column.ndim != 1 or column.dtype.kind not in "iu":
        raise ScaleModelError(f"{name}: must be a column of whole numbers")
    return np.ascontiguousarray(column, dtype=kind)


def priorities_of(priority: Any, trace: RequestStream) -> npt.NDArray[np.int32]:
    """The priority of each request; empty where all are equal."""
    if priority is None:
        return np.empty(0, np.int32)
    if isinstance(priority, Mapping):
        tenant = optional_column(trace, "tenant", np.int64)
        if not tenant.size:
            raise ScaleModelError("priority: is by tenant, and the trace has none")
        column = np.zeros(len(trace), np.int32)
        for name, value in priority.items():
            number_from_to(f"priority: {name}", value, -1e9, 1e9)
            column[tenant == name] = value
        return column
    given = np.asarray(priority)
    if given.shape != (len(trace),) or given.dtype.kind not in "iu":
        raise ScaleModelError("priority: must be whole numbers, one of each request")
    return np.ascontiguousarray(given, dtype=np.int32)
