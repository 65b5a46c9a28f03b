"""Prompts on one pool of accelerators, answers on another, the cache sent between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE
from scalemodel.serving.plan import ranks_of
from scalemodel.serving.serve import Serving, serve
from scalemodel.serving.stream import RequestStream, ServedStream, run_stream
from scalemodel.serving.task import Inference


@dataclass(frozen=True)
class SplitServing:
    """A prefill pool and a decode pool. Made by `serve_split`.

    Attributes
    ----------
    prefill, decode : Serving
        The pools, each in its steady state at the rate asked for.
    transfer_s : float
        Time to send the cache of one prompt from pool to pool.
    """

    prefill: Serving
    decode: Serving
    transfer_s: float

    @property
    def verdict(self) -> str:
        """The first verdict of the two pools that is not ``ok``, else ``ok``."""
        return next((p.verdict for p in (self.prefill, self.decode) if not p.fits), "ok")

    @property
    def fits(self) -> bool:
        """Whether both pools run."""
        return self.verdict == "ok"

    @property
    def accelerators(self) -> int:
        """Of both pools."""
        return sum(p.replicas * ranks_of(p.layout) for p in (self.prefill, self.decode))

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
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "transfer_s": self.transfer_s,
            **{f"prefill_{name}": value for name, value in self.prefill.to_dict().items()},
            **{f"decode_{name}": value for name, value in self.decode.to_dict().items()},
        }

    def simulate(self, stream: RequestStream) -> ServedStream:
        """The stream through both pools, request by request.

        Examples
        --------
        >>> import scalemodel as sm
        >>> from scalemodel.serving import request_stream, serve_split
        >>> task = sm.Inference(input_tokens=2000, output_tokens=200)
        >>> plan = serve_split("llama3_8b", "dgx_h100", task, requests_per_s=8,
        ...                    prefill_replicas=2, decode_replicas=2)
        >>> served = plan.simulate(request_stream(task, requests=100, requests_per_s=8))
        >>> bool((served.finished_s > served.first_token_s).all())
        True
        """
        first, second = self.prefill, self.decode
        if first.deployment is None or second.deployment is None:
            raise ScaleModelError(f"simulate: the plan does not run ({self.verdict})")
        one = np.ones(len(stream))
        prompts = RequestStream(stream.arrival_s, stream.input_tokens, one)
        before = run_stream(first.deployment, first.task.mix, prompts, first.replicas)
        ready = before.finished_s + self.transfer_s * stream.input_tokens / (
            self.decode.task.input_tokens
        )
        order = np.argsort(ready, kind="stable")
        rest = np.maximum(1.0, stream.output_tokens - 1)
        answers = RequestStream(ready[order], (stream.input_tokens + 1)[order], rest[order])
        after = run_stream(
            second.deployment, second.task.mix, answers, second.replicas, prefilled=True, seed=1
        )
        finished, evictions = np.empty(len(stream)), np.empty(len(stream))
        refused = np.empty(len(stream), dtype=bool)
        finished[order], evictions[order] = after.finished_s, after.evictions
        refused[order] = after.refused
        return ServedStream(
            stream,
            before.started_s,
            before.first_token_s,
            finished,
            evictions + before.evictions,
            refused | before.refused,
            after.totals.replace(
                makespan_s=float(finished.max() - stream.arrival_s[0]),
                in_system_s=float((finished - stream.arrival_s).sum()),
            ),
        )


def serve_split(
    model: str | Path | Mapping[str, Any] | Model,
    cluster: str | Path | Mapping[str, Any] | Cluster,
    task: Inference,
    *,
    requests_per_s: float,
    prefill: _core.ServingLayout | None = None,
    decode: _core.ServingLayout | None = None,
    prefill_replicas: int = 1,
    decode_replicas: int = 1,
    engine: str = DEFAULT_ENGINE,
) -> SplitServing:
    """Prefill and decode on pools of their own, at a rate of requests.

    The cache of a prompt crosses the network between the pools: every rank of a prefill instance
    sends its part to the decode instance, over its own port.

    Parameters
    ----------
    model, cluster, task, engine
        As for `serve`.
    requests_per_s : float
        Over all replicas, arriving at random.
    prefill, decode : ServingLayout, optional
        Degrees of an instance of each pool.
    prefill_replicas, decode_replicas : int

    Raises
    ------
    ScaleModelError : as `serve`; the pools together need more accelerators than the cluster has.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=4000, output_tokens=200, precision="fp8",
    ...                     kv_precision="fp8")
    >>> plan = serve_split("llama3_70b", "dgx_h100", task, requests_per_s=1,
    ...                    prefill=sm.ServingLayout(tp=4), decode=sm.ServingLayout(tp=4))
    >>> plan.verdict, plan.accelerators, plan.tpot_s < 0.05
    ('ok', 8, True)
    """
    chosen = resolve.model(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    pools = [prefill or _core.ServingLayout(), decode or _core.ServingLayout()]
    needed = prefill_replicas * ranks_of(pools[0]) + decode_replicas * ranks_of(pools[1])
    if needed > where.accelerators:
        raise ScaleModelError(
            f"prefill_replicas={prefill_replicas}, decode_replicas={decode_replicas}: the pools "
            f"need {needed} accelerators, the cluster has {where.accelerators}"
        )
    first = serve(
        chosen,
        where,
        task.replace(output_tokens=1, speculative_tokens=0),
        pools[0],
        replicas=prefill_replicas,
        engine=engine,
        requests_per_s=requests_per_s,
    )
    # An answer arrives with its prompt in the cache: one token of it is left to compute.
    cached = 1 - 1 / max(task.input_tokens, 2.0)
    held = task.replace(prefix_hit_fraction=min(0.999, cached))
    second = serve(
        chosen,
        where,
        held,
        pools[1],
        replicas=decode_replicas,
        engine=engine,
        requests_per_s=requests_per_s,
    )
    transfer_s = 0.0
    if first.deployment is not None and second.deployment is not None:
        transfer_s = _transfer(first, where)
    return SplitServing(first, second, transfer_s)


def _transfer(first: Serving, cluster: Cluster) -> float:
    """Seconds until the cache of one prompt has left its instance."""
    deployment = first.deployment
    if deployment is None:
        return 0.0
    size = deployment.cache_blocks(first.task.input_tokens) * deployment.capacity(1, 1).block_bytes
    return float(_core.p2p_time_s(size, 2, ranks_of(first.layout), cluster.core))
