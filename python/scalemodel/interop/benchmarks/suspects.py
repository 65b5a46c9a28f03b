"""What would explain a benchmark that is slower, or faster, than predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import percent_text
from scalemodel.codesign.vary import PEAK, Hardware
from scalemodel.interop.benchmarks.prediction import MEANS, Prediction, measured_values, predict
from scalemodel.interop.benchmarks.record import BenchRun

_SHARES: Final = (0.75, 0.5)  # of a rate that is left
_HITS: Final = (0.25, 0.5, 0.75, 0.9)  # of a prompt, found in the cache
_LEAST: Final = 0.25  # of the difference, that a suspect explains
_REACHED: Final = 0.9  # of the rate that was asked
_CHUNK: Final = 1.15  # gaps between chunks over time per token: chunks of several tokens
_BURST: Final = 0.1  # median gap over time per token: chunks arrive together
_WAVES: Final = 5.0  # requests per place, fewer of which never settle


class BenchSuspect(NamedTuple):
    """One thing that would bring a benchmark and its prediction together.

    Attributes
    ----------
    cause : str
    explained_fraction : float or None
        Of the difference in rate, TTFT and TPOT together; None for what the file itself shows.
    check : str
        Where to look.
    """

    cause: str
    explained_fraction: float | None
    check: str


def _distance(values: dict[str, float], run: BenchRun) -> float:
    """Sum over rate, TTFT and TPOT of the logarithm of measured over predicted."""
    measured = measured_values(run)
    return sum(
        abs(math.log(measured[name] / values[name]))
        for name in MEANS
        if measured.get(name) and values.get(name)
    )


def shown(run: BenchRun, prediction: Prediction) -> Iterator[BenchSuspect]:
    """What the file itself shows to be unlike what is predicted."""
    if run.failed:
        share = percent_text(run.failed / (run.failed + run.completed))
        yield BenchSuspect(
            f"{run.failed} requests failed ({share}): rates are of the others alone",
            None,
            "errors of the client, log of the server",
        )
    latency = run.latency.mean or 0.0
    if run.asked_rate is not None and run.asked_concurrency is None:
        # The last request comes when all have been sent, and then takes its time.
        reachable = run.completed / (run.completed / run.asked_rate + latency)
        if run.requests_per_s < _REACHED * reachable:
            yield BenchSuspect(
                f"load not reached: {run.requests_per_s:.3g} of {run.asked_rate:.3g} requests/s",
                None,
                "the client's processor, its connections, or a server that is full",
            )
    if not prediction.settles and run.asked_rate is not None:
        yield BenchSuspect(
            "more is asked than the plan is predicted to serve: times grow with the run",
            None,
            "a lower rate, or more replicas",
        )
    held = run.asked_concurrency
    if held is not None and run.completed < _WAVES * held:
        yield BenchSuspect(
            f"short run: {run.completed} requests at {held:g} at once; filling and draining count",
            None,
            "more requests, or a warm-up that is left out",
        )
    yield from _chunks(run, prediction)


def _chunks(run: BenchRun, prediction: Prediction) -> Iterator[BenchSuspect]:
    tpot, drafts = run.tpot.mean, prediction.plan.task.speculative_tokens
    tokens = run.chunk_tokens
    if tokens is None and tpot and run.itl.mean:
        tokens = run.itl.mean / tpot
    if tokens is not None and tokens > _CHUNK and not drafts:
        yield BenchSuspect(
            f"{tokens:.2g} tokens a chunk (ITL over TPOT): speculative decoding, or answers that "
            "are sent every few tokens",
            None,
            "speculative-config, stream-interval of the server",
        )
    if tpot and run.itl.median is not None and run.itl.median < _BURST * tpot:
        yield BenchSuspect(
            "most chunks arrive together: the client or a proxy holds them back, so that ITL and "
            "TTFT are not of the engine alone",
            None,
            "the client's processor, buffering of a proxy",
        )


def _variants(prediction: Prediction) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    """Kind, cause, changes of the question and where to look."""
    plan = prediction.plan
    task = plan.task
    if task.prefix_hit_fraction:
        yield (
            "prefix",
            "prompts are not found in the cache",
            {"prefix_hit_fraction": 0.0},
            "prefix caching of the server; room for the cache",
        )
    for share in _HITS:
        if share != task.prefix_hit_fraction:
            yield (
                "prefix",
                f"{share:.0%} of every prompt is found in the cache",
                {"prefix_hit_fraction": share},
                "prefix_cache_hits of the server; prompts that repeat",
            )
    for drafts in (0, 1, 3):
        if drafts != task.speculative_tokens:
            yield (
                "drafts",
                f"{drafts} draft tokens a step" if drafts else "no drafts are made",
                {"speculative_tokens": drafts},
                "speculative-config of the server",
            )
    other = "bf16" if task.kv_precision == "fp8" else "fp8"
    yield "cache", f"a KV cache in {other}", {"kv_precision": other}, "kv-cache-dtype"
    if plan.model.shape.experts and (task.imbalance or 1.0) < 2:
        yield "experts", "experts twice as unevenly loaded", {"imbalance": 2.0}, "expert balance"
    for name in ("max_running_sequences", "max_batched_tokens"):
        own = int(getattr(plan, name))
        for share in (0.5, 0.25):
            if own * share >= 1:
                limit = max(1, int(own * share))
                yield name, f"{name} of {limit}", {name: limit}, "limits of the server"
    hardware = Hardware(plan.cluster)
    for path, kind, check in (
        ("accelerator.memory.bandwidth", "memory bandwidth", "a memory copy; sharing, ECC"),
        (PEAK, "clock", "clocks and their reasons; power cap, heat"),
        ("scale_up.bandwidth", "links of the domain", "nccl-tests on one node"),
    ):
        if path not in hardware.quantities or not hardware.quantity(path).scales:
            continue
        for share in _SHARES:
            cluster = hardware.build(hardware.design({path: share}))
            yield kind, f"{kind} at {share:.0%} of the catalogue's", {"cluster": cluster}, check


def _changed(prediction: Prediction, run: BenchRun, changes: dict[str, Any]) -> Prediction:
    options = {
        name: value
        for name, value in changes.items()
        if name in ("cluster", "max_running_sequences", "max_batched_tokens")
    }
    fields = {name: value for name, value in changes.items() if name not in options}
    return predict(prediction.plan, replace(prediction.plan.task, **fields), run, **options)


def supposed(run: BenchRun, prediction: Prediction, count: int = 3) -> list[BenchSuspect]:
    """What would explain the difference: the same plan with one thing changed, the best first.

    They are hypotheses to check, not a diagnosis: several may explain the same numbers.
    """
    apart = _distance(prediction.values, run)
    if apart < 1e-6:
        return []
    best: dict[str, BenchSuspect] = {}
    for kind, cause, changes, check in _variants(prediction):
        try:
            other = _changed(prediction, run, changes)
        except ScaleModelError:
            continue  # The plan does not run so, or the accelerator lacks the format.
        explained = 1 - _distance(other.values, run) / apart
        if explained >= max(_LEAST, best[kind].explained_fraction or 0 if kind in best else 0):
            best[kind] = BenchSuspect(cause, explained, check)
    return sorted(best.values(), key=lambda each: -(each.explained_fraction or 0))[:count]
