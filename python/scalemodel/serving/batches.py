"""Requests answered by one forward pass: images to encode, items to rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.answer import ColumnAnswer
from scalemodel.base.errors import ScaleModelError
from scalemodel.layer_groups.estimate import GroupEstimate, estimate_groups
from scalemodel.layer_groups.strategy import BatchInference
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.serving.task import Inference

if TYPE_CHECKING:
    from scalemodel.layer_groups import ComposedModel, GroupStrategy
    from scalemodel.resolve import Cluster

_MOST_DOUBLINGS = 16
_LEAST_GAIN = 1.02  # in requests per second, for a batch of twice the size

_ANSWER = (
    "batch",
    "most_batch",
    "pass_time_s",
    "requests_per_s",
    "requests_per_s_per_accelerator",
    "latency_s",
    "utilisation_fraction",
    "saturated",
    "accelerators",
    "memory_bytes",
    "power_w",
    "requests_per_j",
    "usd_per_million_requests",
)


class BatchServing(ColumnAnswer):
    """What a cluster answers with forward passes. Made by `serve` of a model of layer groups.

    Every column of `to_dict` is an attribute; the numbers are None where nothing can run.

    Attributes
    ----------
    task, stack
        The question.
    full : GroupEstimate
        The largest pass, or the one whose verdict says why none runs: memory, time by cause.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``.
    """

    def __init__(
        self, task: Inference, stack: str, full: GroupEstimate, answer: dict[str, Any] | None
    ) -> None:
        self.task = task
        self.stack = stack
        self.full = full
        self.verdict = full.verdict if answer is None else "ok"
        self._columns = dict.fromkeys(_ANSWER) if answer is None else answer

    def __repr__(self) -> str:
        if not self.fits:
            return f"BatchServing({self.verdict})"
        late = "never settles" if self.saturated else f"{1e3 * self.latency_s:.3g} ms"
        return (
            f"BatchServing({self.verdict}, {self.requests_per_s:.4g} requests/s, latency {late}, "
            f"batches of {self.batch:.4g})"
        )

    def why_not(self) -> str:
        """What keeps every pass from running, by kind of memory or what is illegal; else empty.

        Examples
        --------
        >>> import scalemodel as sm
        >>> image = sm.Inference(input_tokens=197, output_tokens=1)
        >>> print(sm.serve(sm.compose("vit_120b"), "dgx_a100", image).why_not())
        out_of_memory   needs ... a100_sxm_80 has 80.0 GiB -> ... too much.
        ...
        """
        return "" if self.fits else self.full.message()

    def to_dict(self) -> dict[str, Any]:
        """The verdict and every column of the answer."""
        return {"verdict": self.verdict, **self._columns}


def doublings(seconds: Callable[[int], float | None], least: int = 1) -> int:
    """The largest of a batch and its doublings that fits and pays; the least where none does.

    Parameters
    ----------
    seconds : callable
        Of a pass over a batch of that size; None where it does not fit.

    Examples
    --------
    >>> doublings(lambda batch: 1 + 0.1 * batch if batch <= 100 else None)
    64
    >>> doublings(lambda batch: 1.0 * batch)
    1
    """
    batch, here = least, seconds(least)
    for _ in range(_MOST_DOUBLINGS):
        twice = seconds(2 * batch)
        if here is None or twice is None or 2 * here < _LEAST_GAIN * twice:
            break
        batch, here = 2 * batch, twice
    return batch


class _Passes:
    """Forward passes of a model over batches of any size."""

    def __init__(
        self,
        model: ComposedModel,
        cluster: Cluster,
        task: Inference,
        strategy: GroupStrategy | _core.Strategy | None,
        stack: str,
    ) -> None:
        self.model, self.cluster, self.task = model, cluster, task
        self.strategy, self.stack = strategy, stack
        self._made: dict[int, GroupEstimate] = {}

    def of(self, batch: int) -> GroupEstimate:
        if batch not in self._made:
            self._made[batch] = self._estimate(batch)
        return self._made[batch]

    def _estimate(self, batch: int) -> GroupEstimate:
        tokens = self.task.input_tokens
        if tokens != int(tokens):
            raise ScaleModelError(f"input_tokens={tokens!r}: must be whole for layer groups")
        asked = BatchInference(
            global_batch=batch, sequence=int(tokens), precision=cast(Any, self.task.precision)
        )
        return estimate_groups(self.model, self.cluster, asked, self.strategy, self.stack, None)

    def seconds(self, batch: int) -> float | None:
        found = self.of(batch)
        return found.step_time_s if found.verdict == "ok" else None


def serve_batches(
    model: ComposedModel,
    cluster: Any,
    task: Inference,
    strategy: GroupStrategy | _core.Strategy | None = None,
    *,
    requests_per_s: float | None = None,
    batch: int | None = None,
    most_batch: int | None = None,
    stack: str = DEFAULT_STACK,
) -> BatchServing:
    """What a cluster answers with forward passes of a model of layer groups.

    Parameters
    ----------
    model : ComposedModel
        An encoder, a ranking model: as `sm.compose` makes it.
    cluster
        As for `estimate`.
    task : Inference
        Of one output token: the answer; `input_tokens` are those of a request, 1 for an image or
        an item to rank.
    strategy : GroupStrategy, optional
        As for `estimate`.
    requests_per_s : float, optional
        That arrive at random. A pass takes the requests that arrived during the one before.
    batch : int, optional
        Requests of every pass instead, one pass after another; neither: passes of `most_batch`.
    most_batch : int, optional
        At most. When left out, doublings while they fit and gain 2 % in requests per second.
    stack : str
        As for `estimate`.

    Raises
    ------
    ScaleModelError
        An unknown name, a number out of range, more than one output token, both `requests_per_s`
        and `batch`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> image = sm.Inference(input_tokens=1, output_tokens=1)
    >>> plan = sm.serve(sm.compose("vit_l"), "dgx_h100", image, requests_per_s=2000)
    >>> plan.verdict, plan.latency_s < 0.1, plan.batch < plan.most_batch
    ('ok', True, True)
    """
    if task.output_tokens != 1:
        raise ScaleModelError(
            f"output_tokens={task.output_tokens!r}: models of layer groups answer with one pass, "
            "that is 1"
        )
    if batch is not None and requests_per_s is not None:
        raise ScaleModelError("batch, requests_per_s: give one of the two")
    where = resolve.cluster(cluster)
    passes = _Passes(model, where, task, strategy, stack)
    least = where.accelerators
    for name, value in (("batch", batch), ("most_batch", most_batch)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ScaleModelError(f"{name}={value!r}: must be a whole number")
    asked = batch if batch is not None else most_batch
    most = doublings(passes.seconds, least) if asked is None else asked
    full = passes.of(most)
    if full.verdict != "ok":
        return BatchServing(task, stack, full, None)
    lone = passes.of(min(least, most))
    if lone.verdict != "ok":
        return BatchServing(task, stack, lone, None)
    padded = min(least, most)
    cost = _core.batch_pass(lone.step_time_s, full.step_time_s, padded, most)
    if requests_per_s is None:
        state = _core.full_batches(cost)
    else:
        state = _core.batch_state_at(cost, requests_per_s)
    rate, idle_w = float(state.leaving_per_s), float(where.core.accelerator.power.idle_w)
    each_w = _core.batch_power_w(cost, state, lone.power_w, full.power_w, idle_w)
    power_w = where.accelerators * float(each_w)
    price = where.accelerators * float(where.core.price_usd_per_s)
    answer = {
        "batch": state.batch,
        "most_batch": most,
        "pass_time_s": state.pass_s,
        "requests_per_s": rate,
        "requests_per_s_per_accelerator": rate / where.accelerators,
        "latency_s": None if state.saturated else state.latency_s,
        "utilisation_fraction": state.utilisation,
        "saturated": state.saturated,
        "accelerators": where.accelerators,
        "memory_bytes": full.memory_bytes,
        "power_w": power_w,
        "requests_per_j": rate / power_w,
        "usd_per_million_requests": 1e6 * price / rate if price else None,
    }
    return BatchServing(task, stack, full, answer)
