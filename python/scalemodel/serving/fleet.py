"""A trace through a fleet: `simulate_fleet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel._core import Autoscaler, CacheTier, Failures, Outage, RouterPolicy, Shedding
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.threads import progress_bar
from scalemodel.base.words import named_arguments
from scalemodel.serving.fleet_parts import (
    FleetPart,
    class_limits,
    fleet_of,
    optional_column,
    policy_of,
    priorities_of,
)
from scalemodel.serving.served_fleet import ServedFleet
from scalemodel.serving.stream import RequestStream
from scalemodel.serving.task import number_from_to

_MOST_STORE_TOKENS = 1e15


@named_arguments
def simulate_fleet(
    trace: RequestStream,
    fleet: Any,
    *,
    router: str | RouterPolicy = "round_robin",
    limits: Mapping[Any, Any] | None = None,
    prefix_cache: bool = True,
    store_tokens: float = 0.0,
    tiers: Sequence[CacheTier] = (),
    autoscaler: Autoscaler | None = None,
    failures: Failures | None = None,
    outages: Sequence[Outage] = (),
    priority: Mapping[int, int] | npt.ArrayLike | None = None,
    shedding: Shedding | None = None,
    seed: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> ServedFleet:
    """Serve a trace on a fleet, request by request, with prefix caches that fill as it runs.

    One replica without a cache gives what `Serving.simulate` gives, to the last bit. A replica
    keeps the blocks of prompts, by name, in what running sequences leave of its KV cache, the least
    recently used leaving first; tokens found there are not computed again.

    Parameters
    ----------
    trace : RequestStream
        Arrivals and lengths. Where it has columns `block_offsets`, `block_ids` and `block_tokens`,
        the blocks of request i are ``block_ids[block_offsets[i]:block_offsets[i + 1]]``, equal ids
        standing for equal tokens up to and including the block; `session` and `tenant` number the
        sessions (below 0: none) and tenants.
    fleet : Serving, or sequence of Serving or of pairs (Serving, count)
        Replicas: copies of the instance of a plan, as many as it has, or as given.
    router : str or RouterPolicy
        ``"round_robin"``, ``"random"``, ``"least_loaded"`` (fewest requests), ``"power_of_two"``,
        ``"prefix_aware"`` (SGLang's cache_aware), ``"kv_cost"`` (Dynamo's cost),
        ``"session_sticky"`` or ``"weighted_scorers"`` (of llm-d and the Gateway API inference
        extension, by metrics as old as `scrape_interval_s` of the policy).
    limits : mapping, optional
        What each request is held to: ``ttft_s``, ``tpot_s``, ``e2e_s``; or such a mapping by
        tenant.
    prefix_cache : bool
        Without it prompts hit as the task of their plan says (`prefix_hit_fraction`).
    store_tokens : float
        Tokens of a store of prefixes beside the KV cache of each replica, in its place; 0: none.
    tiers : sequence of CacheTier
        Below the KV cache of each replica, the nearest first, as `cache_tiers` makes them: what
        they hold of a prompt is loaded, behind other loads of the tier, instead of computed.
    autoscaler : Autoscaler, optional
        Starts and stops replicas, between its `min_replicas` and all of the fleet, in their order;
        a started one takes requests after `startup_s`, with an empty cache, a stopped one ends
        what it has. Without it all of them run all the time.
    failures : Failures, optional
        How often replicas fail, how long they are away, and how often a request that one loses is
        sent again. Default: none fails by itself, an outage is followed by the usual restart.
    outages : sequence of Outage
        Replicas that are down for a time, such as those of a rack.
    priority : mapping of tenant to int, or column of int, optional
        The lowest number is served first, equal ones in order of arrival; where a KV cache is full
        the last of the highest number is preempted. Tenants that are not named have 0.
    shedding : Shedding, optional
        When requests are turned away as they come.
    seed : int
        Of random choices, failures and hashes of sessions.
    progress : bool or callable
        As for `search`: a bar, or a function of requests done and all.

    Returns
    -------
    ServedFleet

    Raises
    ------
    ScaleModelError : a column that does not fit, an unknown router, a plan that does not run.

    References
    ----------
    SGLang model gateway, policy cache_aware; NVIDIA Dynamo, KV router; Gateway API inference
    extension, scorers; Mitzenmacher, IEEE Trans.
    Parallel Distrib. Syst. 12 (2001) 1094-1104; Kubernetes, Horizontal Pod Autoscaling.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=500, output_tokens=100)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=4)
    >>> trace = sm.request_stream(task, requests=1000, requests_per_s=60)
    >>> found = sm.simulate_fleet(trace, plan, router="least_loaded")
    >>> len(found.requests), len(found.replicas), found.summary()["refused"]
    (1000, 4, 0.0)
    """
    if not isinstance(trace, RequestStream):
        raise ScaleModelError(f"trace={trace!r}: must be a RequestStream, or a Trace")
    parts, policy = fleet_of(fleet), policy_of(router)
    number_from_to("store_tokens", store_tokens, 0, _MOST_STORE_TOKENS)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ScaleModelError(f"seed={seed!r}: must be a whole number from 0")
    if autoscaler is not None and not isinstance(autoscaler, Autoscaler):
        raise ScaleModelError(f"autoscaler={autoscaler!r}: must be an Autoscaler")
    for name, given, kind in (
        ("tiers", tiers, CacheTier),
        ("outages", outages, Outage),
        ("failures", [failures] if failures is not None else [], Failures),
        ("shedding", [shedding] if shedding is not None else [], Shedding),
    ):
        for each in given:
            if not isinstance(each, kind):
                raise ScaleModelError(f"{name}: {each!r}: must be of {kind.__name__}")
    for outage in outages:
        if outage.end_s < outage.begin_s:
            raise ScaleModelError(
                f"outages: end_s={outage.end_s:g} is before begin_s={outage.begin_s:g}"
            )
    by_class, ordered = class_limits(limits, trace), priorities_of(priority, trace)
    offsets = optional_column(trace, "block_offsets", np.int64)
    ids = optional_column(trace, "block_ids", np.uint64)
    if not prefix_cache:
        offsets, ids = offsets[:0], ids[:0]
    session = optional_column(trace, "session", np.int64)
    tenant = optional_column(trace, "tenant", np.int64)
    if tenant.size not in (0, len(trace)):
        raise ScaleModelError("tenant: must be as long as arrival_s")
    if policy.router == "session_sticky" and not session.size:
        raise ScaleModelError("router='session_sticky': the trace has no sessions")
    with progress_bar(progress, len(trace), " requests") as report:
        rows, totals, total, events, fates, tier_totals, failed = _core.simulate_fleet(
            [part.instance for part in parts],
            [part.plan.task.mix for part in parts],
            [part.count for part in parts],
            trace.arrival_s,
            trace.input_tokens,
            trace.output_tokens,
            session=session,
            block_offsets=offsets,
            block_ids=ids,
            block_tokens=float(getattr(trace, "block_tokens", 0) or 0),
            policy=policy,
            seed=seed,
            store_tokens=float(store_tokens),
            autoscaler=autoscaler,
            tiers=list(tiers),
            priority=ordered,
            failures=failures or Failures(),
            outages=list(outages),
            shedding=shedding,
            progress=report,
        )
    return ServedFleet(
        trace,
        rows[:, 0],
        rows[:, 1],
        rows[:, 2],
        rows[:, 3],
        rows[:, 4] > 0,
        total,
        _cache_tokens(parts),
        replica=rows[:, 6].astype(np.int32),
        cached_tokens=rows[:, 5],
        parts=parts,
        policy=policy,
        part_totals=tuple(totals),
        limits=by_class,
        scale_events=events,
        fates=fates,
        priority=ordered,
        tiers=tuple(tiers),
        tier_totals=tuple(tier_totals),
        failures=failed,
    )


def _cache_tokens(parts: Sequence[FleetPart]) -> float:
    """Tokens that the KV caches of all replicas hold, in requests of the mean lengths."""
    tokens = 0.0
    for part in parts:
        task = part.plan.task
        capacity = part.instance.capacity(task.input_tokens, task.output_tokens)
        length = task.input_tokens + task.output_tokens
        tokens += part.count * capacity.cached_sequences * length
    return tokens
