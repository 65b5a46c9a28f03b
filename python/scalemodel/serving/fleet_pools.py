"""A trace through two fleets, one for prompts and one for answers: `simulate_pools`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel._core import Autoscaler, CacheTier, Failures, Outage, RouterPolicy
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.serving.fleet import simulate_fleet
from scalemodel.serving.fleet_parts import FleetPart, fleet_of
from scalemodel.serving.plan import ServingPlan, ranks_of
from scalemodel.serving.served_fleet import ServedFleet
from scalemodel.serving.stream import Column, RequestStream, ServedStream

if TYPE_CHECKING:
    import pandas as pd

_MOST_DELAY_S = 1e6  # that `Failures` take


@dataclass(frozen=True, eq=False, repr=False)
class ServedPools(ServedStream):
    """What became of a trace in a prefill and a decode pool. Made by `simulate_pools`.

    Everything that a `ServedStream` has, and

    Attributes
    ----------
    prefill : ServedFleet
        The prompts, each with its first token.
    decode : ServedFleet or None
        The rest of the answers, in the order in which their caches came; None where no prompt was
        served.
    transfer_s : array of float
        That the cache of each prompt took from pool to pool.
    """

    prefill: ServedFleet | None = None
    decode: ServedFleet | None = None
    transfer_s: Column = dataclasses.field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        counts = " and ".join(
            " + ".join(f"{part.count} x {part.plan.cluster.name}" for part in pool.parts)
            for pool in self._pools
        )
        return super().__repr__().replace("ServedStream(", "ServedPools(", 1)[:-1] + (
            f"\n  prompts and answers on {counts})"
        )

    @property
    def _pools(self) -> list[ServedFleet]:
        return [pool for pool in (self.prefill, self.decode) if pool is not None]

    @property
    def parts(self) -> tuple[FleetPart, ...]:
        """Of both pools; `plan.task.prefilled` of those that decode."""
        return tuple(part for pool in self._pools for part in pool.parts)

    @cached_property
    def replicas(self) -> pd.DataFrame:
        """One row per replica, as of a `ServedFleet`, with its pool: prefill or decode."""
        import pandas as pd

        names = ("prefill", "decode")
        tables = [
            pool.replicas.assign(pool=name) for name, pool in zip(names, self._pools, strict=False)
        ]
        return pd.concat(tables, ignore_index=True)

    def summary(self) -> dict[str, float]:
        """Rates, means and percentiles, as of a stream, and what the pools add.

        hit_fraction (prompt tokens found in prefix caches), transfer_mean_s, prefill_ and
        decode_busy_fraction, accelerators, energy_j, cost_usd and usd_per_million_output_tokens
        (of the time that replicas are online; without them where a price is not known). Where
        replicas fail also failures, retried and lost of both pools, as of a `ServedFleet`.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
        >>> trace = sm.request_stream(task, requests=200, requests_per_s=10)
        >>> prompts, answers = (sm.serve("llama3_8b", "dgx_h100", each, replicas=2)
        ...                     for each in (task, task.replace(prefilled=True)))
        >>> found = sm.simulate_pools(trace, prompts, answers).summary()
        >>> found["accelerators"], found["decode_busy_fraction"] > 0
        (4.0, True)
        """
        found = super().summary()
        pools = [pool.summary() for pool in self._pools]
        found["hit_fraction"] = pools[0]["hit_fraction"]
        found["transfer_mean_s"] = float(self.transfer_s[~self.refused].mean())
        for name, pool in zip(("prefill", "decode"), pools, strict=False):
            found[f"{name}_busy_fraction"] = pool["busy_fraction"]
        for name in ("accelerators", "energy_j"):
            found[name] = sum(pool[name] for pool in pools)
        for name in ("failures", "retried", "lost"):
            if any(name in pool for pool in pools):
                found[name] = sum(pool.get(name, 0.0) for pool in pools)
        if all("cost_usd" in pool for pool in pools):
            found["cost_usd"] = sum(pool["cost_usd"] for pool in pools)
            tokens = float(self.stream.output_tokens[~self.refused].sum())
            if tokens:
                found["usd_per_million_output_tokens"] = 1e6 * found["cost_usd"] / tokens
        return found


@named_arguments
def simulate_pools(
    trace: RequestStream,
    prefill: Any,
    decode: Any,
    *,
    router: str | RouterPolicy = "least_loaded",
    decode_router: str | RouterPolicy = "least_loaded",
    store_tokens: float = 0.0,
    tiers: Sequence[CacheTier] = (),
    autoscaler: Autoscaler | None = None,
    decode_autoscaler: Autoscaler | None = None,
    failures: Failures | None = None,
    outages: Sequence[Outage] = (),
    decode_outages: Sequence[Outage] = (),
    seed: int = 0,
    progress: bool | Callable[[int, int], object] = False,
) -> ServedPools:
    """Serve a trace with prompts and answers on replicas of their own, request by request.

    A prompt finds a replica of the prefill pool, which gives the first token, leaves for one of the
    decode pool with the keys and values of all of it, and goes on there. Prompts do not wait for
    decode replicas, so that the first pool knows nothing of the second.

    Parameters
    ----------
    trace : RequestStream
        As for `simulate_fleet`; blocks of prompts are kept by the prefill pool.
    prefill, decode
        Fleets as for `simulate_fleet`; tasks of the second have ``prefilled=True``.
    router, decode_router
        Of each pool, as for `simulate_fleet`.
    store_tokens, tiers
        Of the prefill pool, as for `simulate_fleet`.
    autoscaler, decode_autoscaler : Autoscaler, optional
        Each pool starts and stops replicas by its own load.
    failures : Failures, optional
        Of the replicas of both pools, as for `simulate_fleet`. A prompt that its replica loses is
        computed by another; a request that is lost while it decodes comes back behind a prompt
        computed anew, which takes as long as the first time did in the mean. That second prompt
        loads the prefill pool no further: few of many requests are lost.
    outages, decode_outages : sequence of Outage
        Of each pool, whose replicas are numbered apart.
    seed, progress
        As for `simulate_fleet`.

    Returns
    -------
    ServedPools

    Raises
    ------
    ScaleModelError : as `simulate_fleet`; a plan in the wrong pool.

    References
    ----------
    DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
    >>> trace = sm.request_stream(task, requests=200, requests_per_s=10)
    >>> prompts, answers = (sm.serve("llama3_8b", "dgx_h100", each, replicas=2)
    ...                     for each in (task, task.replace(prefilled=True)))
    >>> served = sm.simulate_pools(trace, prompts, answers)
    >>> bool((served.first_token_s < served.finished_s).all())
    True
    """
    senders, receivers = fleet_of(prefill), fleet_of(decode)
    for name, parts, prefilled in (("prefill", senders, False), ("decode", receivers, True)):
        for part in parts:
            if part.plan.task.prefilled is not prefilled:
                raise ScaleModelError(
                    f"{name}: tasks of its plans must have prefilled={prefilled}, and one has not"
                )
    if not isinstance(trace, RequestStream):
        raise ScaleModelError(f"trace={trace!r}: must be a RequestStream, or a Trace")
    for outage in decode_outages:
        if not isinstance(outage, Outage) or outage.end_s < outage.begin_s:
            raise ScaleModelError(
                f"decode_outages: {outage!r}: must be an Outage that does not end before it begins"
            )
    before = prompts_served(
        trace,
        _pairs(senders),
        router=router,
        store_tokens=store_tokens,
        tiers=tiers,
        autoscaler=autoscaler,
        failures=failures,
        outages=outages,
        seed=seed,
        progress=progress,
    )
    return answered(
        trace,
        before,
        receivers,
        router=decode_router,
        autoscaler=decode_autoscaler,
        failures=failures,
        outages=decode_outages,
        seed=seed + 1,
        progress=progress,
    )


def _pairs(parts: Sequence[FleetPart]) -> list[tuple[ServingPlan, int]]:
    return [(part.plan, part.count) for part in parts]


def prompts_served(trace: RequestStream, fleet: Any, **options: Any) -> ServedFleet:
    """The prompts of a trace in a prefill pool, each with its first token."""
    ones = dataclasses.replace(trace, output_tokens=np.ones(len(trace)))
    return simulate_fleet(ones, fleet, **options)


def answered(
    trace: RequestStream,
    before: ServedFleet,
    decode: Sequence[FleetPart],
    *,
    failures: Failures | None = None,
    outages: Sequence[Outage] = (),
    **options: Any,
) -> ServedPools:
    """The rest of the answers to prompts that a prefill pool has served."""
    transfer = _transfers(trace, before, decode)
    ready = before.finished_s + transfer
    served = np.flatnonzero(~before.refused)
    if served.size and (failures is not None or outages):
        # What was decoded is gone with the cache: the prompt is computed and sent once more.
        first = float((ready[served] - trace.arrival_s[served]).mean())
        usual = failures or Failures()
        delay_s = min(usual.retry_delay_s + first, _MOST_DELAY_S)
        options["failures"] = usual.replace(retry_delay_s=delay_s)
        options["outages"] = outages
    order = served[np.argsort(ready[served], kind="stable")]
    started, finished = before.started_s, before.finished_s.copy()
    preemptions, refused = before.preemptions.copy(), before.refused.copy()
    totals, after = before.totals, None
    if order.size:
        answers: dict[str, Any] = {
            "arrival_s": ready[order],
            "input_tokens": trace.input_tokens[order] + 1,
            "output_tokens": np.maximum(1.0, trace.output_tokens[order] - 1),
        }
        after = simulate_fleet(_stream_of(trace, answers, order), _pairs(decode), **options)
        finished[order] = after.finished_s
        preemptions[order] += after.preemptions
        refused[order] |= after.refused
        totals = after.totals
    return ServedPools(
        trace,
        started,
        before.first_token_s,
        finished,
        preemptions,
        refused,
        totals.replace(
            makespan_s=float(finished.max() - trace.arrival_s[0]),
            in_system_s=float((finished - trace.arrival_s).sum()),
        ),
        before.cache_tokens if after is None else after.cache_tokens,
        prefill=before,
        decode=after,
        transfer_s=transfer,
    )


def _stream_of(trace: Any, columns: dict[str, Any], order: Any) -> RequestStream:
    """Requests of a decode pool: without blocks, with the sessions and tenants of the trace."""
    named = {name: getattr(trace, name, None) for name in ("session", "tenant")}
    own = {name: column[order] for name, column in named.items() if column is not None}
    if not own:
        return RequestStream(**columns)
    blank: dict[str, Any] = dict.fromkeys(("turn", "tool_wait_s", "block_offsets", "block_ids"))
    blank["block_tokens"] = 0
    has = {each.name for each in dataclasses.fields(trace)}
    given = {name: value for name, value in (blank | columns | own).items() if name in has}
    found: RequestStream = dataclasses.replace(trace, **given)
    return found


def _transfers(trace: RequestStream, before: ServedFleet, decode: Sequence[FleetPart]) -> Column:
    """Seconds that the cache of each prompt takes, to the slowest kind of the decode pool."""
    each = np.array(
        [
            max(transfer_s(part.plan, other.plan) for other in decode) / part.plan.task.input_tokens
            for part in before.parts
        ]
    )
    kinds = np.array([int(part.kind) for part in before.part_totals])[before.replica]
    return np.asarray(each[kinds] * trace.input_tokens)


def transfer_s(first: ServingPlan, second: ServingPlan) -> float:
    """Seconds until the cache of one prompt has left its instance and reached the other.

    Every rank of an instance sends or receives its part over one port; the slower side decides.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task)
    >>> 0 < transfer_s(plan, plan) < 0.02
    True
    """
    times = []
    for plan in (first, second):
        instance = plan.instance
        if instance is None:
            return 0.0
        blocks = instance.cache_blocks(plan.task.input_tokens)
        size = blocks * instance.capacity(1, 1).block_bytes
        times.append(_core.p2p_time_s(size, 2, ranks_of(plan.layout), plan.cluster.core))
    return float(max(times))
