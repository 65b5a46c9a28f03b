"""The streams of a plan's own load: at its rate, or as many as it keeps running."""

from __future__ import annotations

import numpy as np

from scalemodel.base.background import in_background
from scalemodel.base.columns import random_of
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.serving.plan import ServingPlan
from scalemodel.serving.stream import (
    Arrivals,
    Balance,
    Lengths,
    RequestStream,
    ServedStream,
    request_stream,
    run_stream,
)


def simulate(
    plan: ServingPlan,
    stream: RequestStream | None,
    *,
    requests: int,
    arrivals: Arrivals,
    lengths: Lengths | None,
    seed: int,
    balance: Balance,
) -> ServedStream:
    """The stream of a plan, or one of its own load, through its replicas."""
    if plan.instance is None or plan.state is None:
        raise ScaleModelError(f"simulate: the plan does not run ({plan.verdict})")
    if stream is None and plan.asked_concurrency is not None:
        return keep_running(plan, requests, lengths=lengths, seed=seed)
    if stream is None:
        stream = request_stream(
            plan.task,
            requests=requests,
            requests_per_s=plan.asked_rate or float("inf"),
            arrivals=arrivals,
            lengths=lengths,
            seed=seed,
        )
    return run_stream(
        plan.instance, plan.task.mix, stream, plan.replicas, balance=balance, seed=seed
    )


def keep_running(
    plan: ServingPlan,
    requests: int,
    *,
    lengths: Lengths | None = None,
    seed: int = 0,
) -> ServedStream:
    """Requests that come to a replica as others leave it, as many running as the plan was asked.

    Before the first of them as many run as are kept running, each somewhere in its answer, and are
    followed by as many more: neither is part of the result, whose times between tokens alone
    (`itl_*`) are of all.

    Parameters
    ----------
    plan : ServingPlan
        One that runs, made with `concurrency`.
    requests, lengths, seed
        As for `request_stream`.
    """
    if plan.instance is None or plan.state is None or plan.asked_concurrency is None:
        raise ScaleModelError(f"simulate: the plan does not run ({plan.verdict})")
    task, copies = plan.task, plan.replicas
    slots = max(1, round(plan.asked_concurrency / copies))
    before = slots * copies
    drawn = request_stream(task, requests=requests + 2 * before, lengths=lengths, seed=seed)
    asked: RequestStream = in_background(lambda: _met_running(drawn, before, seed))
    limited = plan.instance_under({**plan.engine_limits, "max_running_sequences": slots})
    served = run_stream(limited, task.mix, asked, copies, balance="round_robin")
    # The queue stands for clients that send their next request as soon as the last one ends; it
    # reaches the scheduler while a step is under way, and waits for the next one.
    step = plan.state.step_time_s
    host = float(np.ceil(float(engine_constants(plan.engine).request_host_s) / step) * step)
    kept: ServedStream = in_background(lambda: _without_first(served, slots, copies, host))
    return kept


def _met_running(drawn: RequestStream, before: int, seed: int) -> RequestStream:
    """All at once, the first of them somewhere in their answers."""
    prompts, answers = drawn.input_tokens.copy(), drawn.output_tokens.copy()
    random = random_of(seed)
    # Who is met running has a long answer rather than a short one, and is anywhere in it. Drawn as
    # Generator.choice does.
    up_to = np.cumsum(answers)
    met = answers[np.searchsorted(up_to, random.random(before) * up_to[-1], side="right")]
    answers[:before] = np.maximum(1.0, np.round(met * random.uniform(0.0, 1.0, before)))
    prompts[:before] += met - answers[:before]
    return RequestStream(np.zeros(drawn.arrival_s.size), prompts, answers)


def _without_first(served: ServedStream, slots: int, copies: int, host: float) -> ServedStream:
    """Those behind the first and their followers, each of which came as another one ended."""
    asked = served.stream
    arrival = np.zeros(len(asked))
    for replica in range(copies):
        ends = np.sort(served.finished_s[replica::copies])
        arrival[replica::copies][slots:] = ends[: arrival[replica::copies].size - slots] - host
    before = slots * copies
    order = 2 * before + np.argsort(arrival[2 * before :], kind="stable")
    came, ended = arrival[order], served.finished_s[order]
    totals = served.totals.replace(
        preemptions=float(served.preemptions[order].sum()),
        in_system_s=float((ended - came).sum()),
        running_s=float((ended - served.first_token_s[order]).sum()),
        makespan_s=float(ended.max() - came[0]),
    )
    return ServedStream(
        RequestStream(came, asked.input_tokens[order], asked.output_tokens[order]),
        served.started_s[order],
        served.first_token_s[order],
        ended,
        served.preemptions[order],
        served.refused[order],
        totals,
        served.cache_tokens,
    )
