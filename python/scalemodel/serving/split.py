"""Prompts on one pool of accelerators, answers on another, the cache sent between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.fleet_pools import transfer_s
from scalemodel.serving.launch import launch_serving
from scalemodel.serving.limits import limits_of, slack_of, warn_of_milliseconds
from scalemodel.serving.measured import (
    RATE,
    REQUESTS,
    Measured,
    loaded_stream,
    looked_at,
    measure,
)
from scalemodel.serving.plan import ENGINE_LIMITS, engine_limits, ranks_of
from scalemodel.serving.promises import Promise, checked_load
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.stream import (
    Arrivals,
    Lengths,
    RequestStream,
    ServedStream,
    request_stream,
    run_stream,
)
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from scalemodel.serving.limits import LatencyLimits

_OPTIONS = (
    "requests_per_s",
    "decode_cluster",
    "prefill",
    "decode",
    "prefill_replicas",
    "decode_replicas",
    "prefill_limits",
    "decode_limits",
    "headroom",
    "engine",
    "checked",
)
_IDLE_RATE = 1e-6  # requests per second, at which nothing waits
_GROWTH = 20  # replicas of which one more is tried at a time


@dataclass(frozen=True)
class SplitServing:
    """A prefill pool and a decode pool. Made by `serve_split`.

    Attributes
    ----------
    prefill, decode : Serving
        The pools, each in its steady state at the rate asked for.
    transfer_s : float
        Time to send the cache of one prompt from pool to pool.
    limits : dict
        Of latency, by name, as asked for.
    simulated : dict
        Means and percentiles at the rate, simulated, by the names of limits; empty without limits.
    missed : str
        The limit that does not hold, or ``requests_per_s`` where a pool cannot carry the rate;
        empty where all hold, or none was asked for.
    """

    prefill: Serving
    decode: Serving
    transfer_s: float
    limits: Mapping[str, float] = field(default_factory=dict, hash=False)
    simulated: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)
    missed: str = ""

    @property
    def verdict(self) -> str:
        """The first verdict of the two pools that is not ``ok``, else ``ok``."""
        return next((p.verdict for p in (self.prefill, self.decode) if not p.fits), "ok")

    @property
    def fits(self) -> bool:
        """Whether both pools run."""
        return self.verdict == "ok"

    def why_not(self) -> str:
        """What keeps a pool from running, and what would run; empty where both do."""
        pools = (("prefill", self.prefill), ("decode", self.decode))
        return "\n".join(f"{name}: {p.why_not()}" for name, p in pools if not p.fits)

    @property
    def holds(self) -> bool:
        """Whether both pools run and hold every limit that was asked for."""
        return self.fits and not self.missed

    @property
    def accelerators(self) -> int:
        """Of both pools."""
        return sum(p.replicas * ranks_of(p.layout) for p in (self.prefill, self.decode))

    @property
    def power_w(self) -> float | None:
        """Of the accelerators of both pools; None where a pool does not run."""
        if not self.fits:
            return None
        return float(self.prefill.power_w) + float(self.decode.power_w)

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """Price of both pools by the tokens of the answers; None without one, or a price."""
        prices = [float(p.cluster.core.price_usd_per_s) for p in (self.prefill, self.decode)]
        if not self.fits or not all(prices):
            return None
        pools = zip((self.prefill, self.decode), prices, strict=True)
        price = sum(float(pool.accelerators) * each for pool, each in pools)
        return 1e6 * price / (float(self.decode.requests_per_s) * self.decode.task.output_tokens)

    @property
    def ttft_s(self) -> float | None:
        """To the first token, which the prefill pool gives; None where it never settles."""
        return None if not self.fits else self.prefill.ttft_s

    @property
    def tpot_s(self) -> float | None:
        """Between tokens, the transfer spread over them."""
        if not self.fits:
            return None
        steps = max(1.0, self.decode.task.output_tokens - 1)
        return float(self.decode.tpot_s) + self.transfer_s / steps

    def to_dict(self) -> dict[str, Any]:
        """One flat row: verdict, accelerators, times, and the columns of both pools."""
        return {
            "verdict": self.verdict,
            "accelerators": self.accelerators,
            "power_w": self.power_w,
            "usd_per_million_output_tokens": self.usd_per_million_output_tokens,
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "transfer_s": self.transfer_s,
            **{f"prefill_{name}": value for name, value in self.prefill.to_dict().items()},
            **{f"decode_{name}": value for name, value in self.decode.to_dict().items()},
        }

    def simulate(
        self,
        stream: RequestStream | None = None,
        *,
        requests: int = 1000,
        arrivals: Arrivals = "poisson",
        lengths: Lengths | None = None,
        seed: int = 0,
    ) -> ServedStream:
        """The stream through both pools, request by request.

        Parameters
        ----------
        stream : RequestStream, optional
            Without it, one at the rate asked for.
        requests, arrivals, lengths, seed
            Of that stream, as for `request_stream`; `seed` also of the random choice of replicas.

        Examples
        --------
        >>> import scalemodel as sm
        >>> from scalemodel.serving import serve_split
        >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
        >>> plan = serve_split("llama3_8b", "dgx_h100", task, requests_per_s=8,
        ...                    prefill_replicas=2, decode_replicas=2)
        >>> served = plan.simulate(requests=100)
        >>> bool((served.finished_s > served.first_token_s).all())
        True
        """
        first, second = self.prefill, self.decode
        if first.instance is None or second.instance is None:
            raise ScaleModelError(f"simulate: the plan does not run ({self.verdict})")
        if stream is None:
            stream = request_stream(
                second.task,
                requests=requests,
                requests_per_s=first.asked_rate or float("inf"),
                arrivals=arrivals,
                lengths=lengths,
                seed=seed,
            )
        one = np.ones(len(stream))
        prompts = RequestStream(stream.arrival_s, stream.input_tokens, one)
        before = run_stream(first.instance, first.task.mix, prompts, first.replicas, seed=seed)
        ready = before.finished_s + self.transfer_s * stream.input_tokens / (
            self.decode.task.input_tokens
        )
        order = np.argsort(ready, kind="stable")
        rest = np.maximum(1.0, stream.output_tokens - 1)
        answers = RequestStream(ready[order], (stream.input_tokens + 1)[order], rest[order])
        after = run_stream(
            second.instance,
            second.task.mix,
            answers,
            second.replicas,
            prefilled=True,
            seed=seed + 1,
        )
        finished, preemptions = np.empty(len(stream)), np.empty(len(stream))
        refused = np.empty(len(stream), dtype=bool)
        finished[order], preemptions[order] = after.finished_s, after.preemptions
        refused[order] = after.refused
        return ServedStream(
            stream,
            before.started_s,
            before.first_token_s,
            finished,
            preemptions + before.preemptions,
            refused | before.refused,
            after.totals.replace(
                makespan_s=float(finished.max() - stream.arrival_s[0]),
                in_system_s=float((finished - stream.arrival_s).sum()),
            ),
        )

    def launch(self) -> str:
        """The commands that start an instance of each pool and their router, with every limit.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
        >>> plan = sm.serve_split("llama3_8b", "dgx_h100", task, requests_per_s=8, ttft_p99_s=1,
        ...                       decode_limits={"max_running_sequences": 64})
        >>> "--max-num-seqs 64 " in plan.launch(), "# limits at 8 requests/s: " in plan.launch()
        (True, True)
        """
        return launch_serving(self).script()


def _of_ranks(
    argument: str, given: Mapping[str, int] | None, layout: _core.ServingLayout, engine: str
) -> dict[str, int]:
    """Limits of an instance whose data-parallel ranks each have those given, or the engine's."""
    asked = dict(given or {})
    for name in asked:
        if name not in ENGINE_LIMITS:
            raise ScaleModelError(
                f"{argument}={name!r}: no such limit; {nearest(name, ENGINE_LIMITS)}"
            )
    limits, constants = engine_limits(**asked), engine_constants(engine)
    if layout.dp == 1:
        return limits
    if not constants.tunes_limits:
        own = {name: int(getattr(constants, name)) for name in ENGINE_LIMITS}
        limits = own | limits
    return {name: value * layout.dp for name, value in limits.items()}


@dataclass(frozen=True)
class _Pools:
    """The question of two pools, but for the rate and their replicas."""

    model: Model
    clusters: tuple[Cluster, Cluster]  # one and the same, or the own one of each pool
    task: Inference
    engine: str
    layouts: tuple[_core.ServingLayout, _core.ServingLayout]
    limits: tuple[dict[str, Any], dict[str, Any]]

    def shortage(self, copies: tuple[int, int]) -> str:
        """What the pools need beyond their clusters, or an empty text."""
        first, second = (
            n * ranks_of(layout) for n, layout in zip(copies, self.layouts, strict=True)
        )
        one, other = self.clusters
        if one is other:
            needs = [("the pools need", first + second, "the cluster", one)]
        else:
            needs = [
                ("the prefill pool needs", first, "its cluster", one),
                ("the decode pool needs", second, "its cluster", other),
            ]
        for who, count, where, cluster in needs:
            if count > cluster.accelerators:
                return f"{who} {count} accelerators, {where} has {cluster.accelerators}"
        return ""

    def at(self, rate: float, copies: tuple[int, int]) -> SplitServing:
        """Both pools in steady state."""
        tasks = (
            self.task.plain().replace(output_tokens=1),
            self.task.replace(prefilled=True),
        )
        first, second = (
            serve(
                self.model,
                self.clusters[pool],
                tasks[pool],
                self.layouts[pool],
                replicas=copies[pool],
                engine=self.engine,
                requests_per_s=rate,
                **self.limits[pool],
            )
            for pool in (0, 1)
        )
        runs = first.instance is not None and second.instance is not None
        return SplitServing(first, second, transfer_s(first, second) if runs else 0.0)


def _means(plan: SplitServing) -> dict[str, float]:
    """Means of both steady states by the names of limits."""
    ttft, tpot = plan.ttft_s or 0.0, plan.tpot_s or 0.0
    rest = plan.decode.task.output_tokens - 1
    return {"ttft_s": ttft, "tpot_s": tpot, "e2e_s": ttft + rest * tpot}


def _measured(plan: SplitServing, seed: int, requests: int = REQUESTS) -> Measured:
    """The pools at their rate, request by request."""
    rate, life = float(plan.prefill.asked_rate or 0.0), _means(plan)["e2e_s"]
    stream = loaded_stream(plan.decode.task, rate, life, requests, seed)
    return measure([plan.simulate(stream, seed=seed)], life)


#: The pool that more replicas of help a limit: prompts or answers.
_POOL_OF = {"ttft": 0, "tpot": 1}


def _missed(plan: SplitServing, promise: Promise) -> tuple[str, int]:
    """The limit that does not hold at the rate of a plan, and the pool it takes more of.

    -1 for no pool, where more replicas do not help.
    """
    if not plan.fits:
        return plan.verdict, -1
    pools = (plan.prefill, plan.decode)
    busier = int(plan.decode.utilisation_fraction > plan.prefill.utilisation_fraction)
    if pools[0].saturated or pools[1].saturated:
        return RATE, 0 if pools[0].saturated else 1
    ratio, name = slack_of(_means(plan), promise.means)
    name = promise.given(name)
    if ratio <= 1 and promise.checked:
        look = looked_at(lambda count: _measured(plan, 1, count), promise.limits)
        ratio, name = look.broken(promise.limits)
    return (name, _POOL_OF.get(name[:4], busier)) if ratio > 1 else ("", -1)


def _promised(
    pools: _Pools, promise: Promise, copies: tuple[int, int], grows: tuple[bool, bool]
) -> SplitServing:
    """The pools with as many replicas as the limits take, where their number is open."""
    rate, limits = float(promise.requests_per_s or 0.0), dict(promise.limits)
    idle = pools.at(_IDLE_RATE, copies)
    ratio, name = slack_of(_means(idle), promise.means) if idle.fits else (0.0, "")
    if ratio > 1:  # What misses where nothing waits misses with any number of replicas.
        return replace(pools.at(rate, copies), limits=limits, missed=promise.given(name))
    while True:
        plan, values = pools.at(rate, copies), dict[str, float]()
        missed, pool = _missed(pools.at(rate * (1 + promise.headroom), copies), promise)
        if plan.fits and promise.checked and plan.ttft_s is not None:
            values = dict(_measured(plan, 3).values)
            ratio, name = slack_of(values, promise.limits)
            if not missed and ratio > 1:
                missed, pool = name, _POOL_OF.get(name[:4], 1)
        more = list(copies)
        if pool >= 0:
            more[pool] += 1 + more[pool] // _GROWTH
        room = not pools.shortage((more[0], more[1]))
        if not missed or pool < 0 or not grows[pool] or not room:
            return replace(plan, limits=limits, simulated=values, missed=missed)
        copies = (more[0], more[1])


@named_arguments
def serve_split(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    requests_per_s: float,
    decode_cluster: str | Path | Mapping[str, Any] | Cluster | None = None,
    prefill: _core.ServingLayout | None = None,
    decode: _core.ServingLayout | None = None,
    prefill_replicas: int | None = None,
    decode_replicas: int | None = None,
    prefill_limits: Mapping[str, int] | None = None,
    decode_limits: Mapping[str, int] | None = None,
    headroom: float = 0.1,
    engine: str = DEFAULT_ENGINE,
    checked: bool = True,
    **limits: Unpack[LatencyLimits],
) -> SplitServing:
    """Prefill and decode on pools of their own, at a rate of requests, limits of latency held.

    The cache of a prompt crosses the network between the pools: every rank of a prefill instance
    sends its part, and every rank of a decode instance receives its own, over one port each; the
    slower side decides.

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve`.
    decode_cluster
        The cluster of the decode pool, where it is not the one of the prefill pool: accelerators
        of another kind, whose engine must keep the cache in the same format.
    requests_per_s : float
        Over all replicas, arriving at random.
    prefill, decode : ServingLayout, optional
        Degrees of an instance of each pool.
    prefill_replicas, decode_replicas : int, optional
        Left out: 1, or as many within the cluster as the limits of latency take.
    prefill_limits, decode_limits : mapping, optional
        What the engine is started with, `max_batched_tokens` and `max_running_sequences`, of one
        data-parallel rank: engines with data-parallel attention schedule each by itself. The
        engine's own when left out, which each rank has too.
    headroom : float
        As for `plan_serving`: limits of latency hold at (1 + headroom) times the rate.
    checked : bool
        Whether limits of latency are checked by simulation, not in steady state alone.
    **limits : float, optional
        Of latency, as for `plan_serving`. A plan that does not hold them is an answer too: `missed`
        names the limit.

    Raises
    ------
    ScaleModelError : as `serve`; the pools together need more accelerators than the cluster has.

    Warns
    -----
    UserWarning : a limit so long that it is meant in milliseconds.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=200, precision="fp8",
    ...                     kv_precision="fp8")
    >>> layout = sm.ServingLayout(tp=2)
    >>> plan = sm.serve_split("llama3_70b", sm.cluster("dgx_h100", nodes=2), task, prefill=layout,
    ...                       decode=layout, requests_per_s=4, ttft_p99_s=3, tpot_p90_s=0.03)
    >>> plan.holds, plan.prefill.replicas, plan.simulated["ttft_p99_s"] < 3
    (True, 3, True)

    Prompts on accelerators that compute, answers on others that hold much:

    >>> unlike = sm.serve_split("llama3_8b", "dgx_h100", task, decode_cluster="h20_node",
    ...                         requests_per_s=4)
    >>> unlike.verdict, unlike.prefill.cluster.name, unlike.decode.cluster.name
    ('ok', 'dgx_h100', 'h20_node')
    """
    latency = limits_of(limits, _OPTIONS)
    warn_of_milliseconds(latency)
    checked_load(requests_per_s, headroom)
    chosen, name = resolve.model(model), engine_for(engine)
    if chosen.reads_source:
        raise ScaleModelError(
            f"model={chosen.name!r}: reads its source with an encoder where it writes the "
            "answer; serve it whole"
        )
    where = _cluster_of(cluster)
    other = where if decode_cluster is None else _cluster_of(decode_cluster)
    layouts = (prefill or _core.ServingLayout(), decode or _core.ServingLayout())
    own = (
        _of_ranks("prefill_limits", prefill_limits, layouts[0], name),
        _of_ranks("decode_limits", decode_limits, layouts[1], name),
    )
    pools = _Pools(chosen, (where, other), task, name, layouts, own)
    copies = (
        1 if prefill_replicas is None else prefill_replicas,
        1 if decode_replicas is None else decode_replicas,
    )
    shortage = pools.shortage(copies)
    if shortage:
        raise ScaleModelError(
            f"prefill_replicas={copies[0]}, decode_replicas={copies[1]}: {shortage}"
        )
    if not latency:
        return pools.at(requests_per_s, copies)
    promise = Promise(chosen, where, task, name, latency, requests_per_s, headroom, checked)
    return _promised(pools, promise, copies, (prefill_replicas is None, decode_replicas is None))


def _cluster_of(given: str | Path | Mapping[str, Any] | Cluster) -> Cluster:
    return given if isinstance(given, Cluster) else resolve.cluster(given)
