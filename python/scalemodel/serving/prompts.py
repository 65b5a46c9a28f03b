"""A stream of requests whose content is known, through the replicas of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.base.columns import random_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.plan import ServingPlan
from scalemodel.serving.schedule import PromptRequest, StepSchedule, replay_schedule
from scalemodel.serving.stream import Balance, RequestStream, ServedStream

_QUANTILES = {"itl_median_s": 0.5, "itl_p90_s": 0.9, "itl_p99_s": 0.99}


def _shares(count: int, replicas: int, balance: Balance, seed: int) -> list[npt.NDArray[np.int64]]:
    """Places of the requests of every replica that has any."""
    if balance == "random":
        chosen = random_of(seed).integers(replicas, size=count)
    elif balance == "round_robin":
        chosen = np.arange(count) % replicas
    else:
        raise ScaleModelError(f"balance={balance!r}: must be one of random, round_robin")
    shares = [np.flatnonzero(chosen == replica) for replica in range(replicas)]
    return [share for share in shares if share.size]


def _totals(
    schedules: Sequence[StepSchedule], latency_s: float, span_s: float
) -> _core.StreamTotals:
    """Sums over replicas; a sequence that decodes sees the time of its step between two tokens."""
    steps = np.concatenate([each.steps["time"].to_numpy() for each in schedules])
    decoding = np.concatenate([each.steps["decode_sequences"].to_numpy() for each in schedules])
    order = np.argsort(steps, kind="stable")
    below = np.cumsum(decoding[order])
    gaps = {
        name: float(steps[order][np.searchsorted(below, share * below[-1])]) if below[-1] else 0.0
        for name, share in _QUANTILES.items()
    }
    return _core.StreamTotals(
        steps=float(steps.size),
        running_s=float((steps * decoding).sum()),
        in_system_s=latency_s,
        preemptions=float(sum(each.summary()["preemptions"] for each in schedules)),
        busy_s=float(steps.sum()),
        makespan_s=span_s,
        **gaps,
    )


def simulate_prompts(
    plan: ServingPlan,
    requests: Sequence[PromptRequest],
    *,
    name_tokens: int | None,
    balance: Balance,
    seed: int,
) -> ServedStream:
    """Requests whose content is known, each replica with a prefix cache of its own.

    Raises
    ------
    ScaleModelError : as `replay_schedule`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Inference(input_tokens=520, output_tokens=50)
    >>> plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=2)
    >>> asked = [sm.PromptRequest([*range(512), 1000 + i], 50, arrival=i / 8) for i in range(40)]
    >>> served = simulate_prompts(plan, asked, name_tokens=None, balance="random", seed=0)
    >>> len(served.requests), served.summary()["preemptions"]
    (40, 0.0)
    """
    if not requests or not all(isinstance(each, PromptRequest) for each in requests):
        raise ScaleModelError("requests: must be PromptRequests, one at least", code="malformed")
    if any(each.arrival < before.arrival for before, each in pairwise(requests)):
        raise ScaleModelError("requests: must be in order of arrival", code="malformed")
    shares = _shares(len(requests), plan.replicas, balance, seed)
    schedules = [
        replay_schedule([requests[i] for i in share], plan=plan, name_tokens=name_tokens)
        for share in shares
    ]
    table = np.empty((len(requests), schedules[0].request_table.shape[1]))
    for share, schedule in zip(shares, schedules, strict=True):
        table[share] = schedule.request_table
    started, first, finished, _, preemptions, refused = table.T
    arrival = np.array([each.arrival for each in requests], dtype=np.float64)
    kept = refused == 0
    stream = RequestStream(
        arrival,
        np.array([each.input_tokens for each in requests], dtype=np.float64),
        np.array([each.output_tokens for each in requests], dtype=np.float64),
    )
    span_s = max(float(finished.max() - arrival[0]), 0.0)
    limits = schedules[0].limits
    return ServedStream(
        stream,
        started,
        first,
        finished,
        preemptions,
        ~kept,
        _totals(schedules, float((finished - arrival)[kept].sum()), span_s),
        float(plan.replicas * limits.blocks * limits.block_tokens),
    )
