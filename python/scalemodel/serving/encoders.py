"""Images of prompts: pools that encode nothing else, and those of requests of known content."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.answer import ColumnAnswer
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_arguments
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.engines import DEFAULT_ENGINE, engine_for
from scalemodel.serving.batches import doublings
from scalemodel.serving.plan import ServingPlan, instance_of, ranks_of
from scalemodel.serving.task import Inference, number_from_to
from scalemodel.serving.verdicts import why_illegal, why_too_large

_MOST_REPLICAS = 1_000_000

_ANSWER = (
    "replicas",
    "accelerators",
    "images_per_s",
    "images_per_s_per_accelerator",
    "batch",
    "most_batch",
    "step_time_s",
    "sending_s",
    "latency_s",
    "utilisation_fraction",
    "saturated",
    "encoding_bytes",
    "memory_bytes",
    "usd_per_million_images",
)


class EncoderPool(ColumnAnswer):
    """What a pool of encoders delivers. Made by `serve_encoders`.

    Every column of `to_dict` is an attribute; the numbers are None where nothing can run.

    Attributes
    ----------
    model, cluster, task, layout, engine
        The question.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``.
    """

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        task: Inference,
        layout: _core.ServingLayout,
        engine: str,
        verdict: str,
        answer: dict[str, Any] | None = None,
        wrong: str = "",
    ) -> None:
        self.model, self.cluster, self.task = model, cluster, task
        self.layout, self.engine, self.verdict = layout, engine, verdict
        self._wrong = wrong
        self._columns = dict.fromkeys(_ANSWER) if answer is None else answer

    def __repr__(self) -> str:
        if not self.fits:
            return f"EncoderPool({self.verdict})"
        late = "never settles" if self.saturated else f"{1e3 * self.latency_s:.3g} ms"
        return (
            f"EncoderPool({self.verdict}, {self.replicas} x {ranks_of(self.layout)} accelerators, "
            f"{self.images_per_s:.4g} images/s, latency {late})"
        )

    def why_not(self) -> str:
        """What keeps the pool from running, and what would be legal; empty where it runs.

        Examples
        --------
        >>> import scalemodel as sm
        >>> seen = sm.Inference(input_tokens=2000, output_tokens=100, images=2)
        >>> question = ("gemma3_12b", "dgx_h100", seen)
        >>> sm.serve_encoders(*question, requests_per_s=1, replicas=9).why_not()
        '9 x 1 accelerators are more than the 8 of the cluster.'
        """
        return self._wrong

    def to_dict(self) -> dict[str, Any]:
        """The layout's fields, the verdict and every column of the answer."""
        return {**self.layout.to_dict(), "verdict": self.verdict, **self._columns}


@named_arguments
def serve_encoders(
    model: Any,
    cluster: Any,
    task: Inference,
    layout: _core.ServingLayout | None = None,
    *,
    requests_per_s: float,
    replicas: int | None = None,
    latency_s: float | None = None,
    engine: str = DEFAULT_ENGINE,
) -> EncoderPool:
    """The pool that encodes the images of requests for instances that do not (EPD serving).

    Images that arrive while a step encodes others are in the next one. The instances beside the
    pool are asked for with ``encoder_hit_fraction=1`` of their task: they find encodings.

    Parameters
    ----------
    model, cluster, engine
        As for `serve`; a model that reads images.
    task : Inference
        With `images`.
    layout : ServingLayout, optional
        Tensor ranks of one encoder, whole images to each with ``encoder_data_parallel``; one
        accelerator when left out.
    requests_per_s : float
        Requests, each with the images of the task, that arrive at random.
    replicas : int, optional
        Encoders; when left out, the fewest that settle, within `latency_s` if it is given.
    latency_s : float, optional
        Of an image at most, its waiting and its way to the instance that reads it included.

    Raises
    ------
    ScaleModelError
        A model without a tower, a task without images, a number out of range.

    References
    ----------
    Singh et al., Efficiently serving large multimodal models using EPD disaggregation, arXiv
    2501.05460.

    Examples
    --------
    >>> import scalemodel as sm
    >>> seen = sm.Inference(input_tokens=2000, output_tokens=100, images=2)
    >>> few, many = (sm.serve_encoders("gemma3_12b", "dgx_h100", seen, requests_per_s=rate)
    ...              for rate in (10, 150))
    >>> few.verdict, few.replicas, many.replicas > 1
    ('ok', 1, True)
    """
    chosen = resolve.model(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    if not isinstance(task, Inference) or not task.images:
        raise ScaleModelError(f"task={task!r}: must be an Inference with images")
    number_from_to("requests_per_s", requests_per_s, 1e-9, 1e9)
    if latency_s is not None:
        number_from_to("latency_s", latency_s, 0, 1e9)
    plan = _core.ServingLayout() if layout is None else layout
    name = engine_for(engine)
    question = (chosen, where, task, plan, name)
    reason = str(_core.check_serving_layout(chosen.core, plan, where.core))
    if reason != "ok":
        said = why_illegal(reason, chosen, where, plan, 1)
        return EncoderPool(*question, f"illegal:{reason}", wrong=said)
    instance, _ = instance_of(chosen, where, task, plan, name)
    room = float(where.core.accelerator.memory_capacity_bytes)

    def seconds(images: int) -> float | None:
        step = instance.encode(images)
        return float(step.time_s) if step.memory_bytes <= room else None

    most = doublings(seconds)
    lone, full = instance.encode(1), instance.encode(most)
    if full.memory_bytes > room:
        said = why_too_large(full.memory_bytes, where, f"A step of {most} images")
        return EncoderPool(*question, "out_of_memory", wrong=said)
    cost = _core.batch_pass(lone.time_s, full.time_s, 1, most)
    rate = requests_per_s * task.images
    copies = _replicas(cost, rate, lone.sending_s, latency_s) if replicas is None else replicas
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ScaleModelError(f"replicas={replicas!r}: must be a whole number from 1")
    ranks = ranks_of(plan)
    if copies * ranks > where.accelerators:
        said = why_illegal("mesh", chosen, where, plan, copies)
        return EncoderPool(*question, "illegal:mesh", wrong=said)
    state = _core.batch_state_at(cost, rate / copies)
    made = copies * float(state.leaving_per_s)
    price = copies * ranks * float(where.core.price_usd_per_s)
    answer = {
        "replicas": copies,
        "accelerators": copies * ranks,
        "images_per_s": made,
        "images_per_s_per_accelerator": made / (copies * ranks),
        "batch": float(state.batch),
        "most_batch": most,
        "step_time_s": float(state.pass_s),
        "sending_s": float(lone.sending_s),
        "latency_s": None if state.saturated else float(state.latency_s) + float(lone.sending_s),
        "utilisation_fraction": float(state.utilisation),
        "saturated": bool(state.saturated),
        "encoding_bytes": float(lone.encoding_bytes),
        "memory_bytes": float(full.memory_bytes),
        "usd_per_million_images": 1e6 * price / made if price else None,
    }
    return EncoderPool(*question, "ok", answer)


def _replicas(cost: _core.BatchPass, rate: float, sending_s: float, latency_s: float | None) -> int:
    """The fewest encoders that settle, within a latency if one is given."""

    def holds(copies: int) -> bool:
        state = _core.batch_state_at(cost, rate / copies)
        if state.saturated:
            return False
        return latency_s is None or float(state.latency_s) + sending_s <= latency_s

    if latency_s is not None and cost.alone_s + sending_s > latency_s:
        raise ScaleModelError(
            f"latency_s={latency_s!r}: an image alone takes {cost.alone_s + sending_s:.3g} s; "
            "must be more"
        )
    high = 1
    while not holds(high) and high < _MOST_REPLICAS:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = math.ceil((low + high) / 2)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def images_of(requests: Sequence[Any], plan: ServingPlan) -> npt.NDArray[np.float64]:
    """Images of requests of known content that have to be encoded; empty where none has any.

    Raises
    ------
    ScaleModelError : a request has images and the plan was made for none, or more than its prompt
        has room for.
    """
    task = plan.task
    if not task.images:
        for each in requests:
            if each.images:
                raise ScaleModelError(
                    f"images={each.images!r}: must be 0: the plan's task has no images; give "
                    "Inference(images=...)",
                    code="malformed",
                )
        return np.empty(0)
    tokens = plan.model.image_tokens(task.image_height, task.image_width)
    own = [task.images if each.images is None else each.images for each in requests]
    for each, count in zip(requests, own, strict=True):
        if count * tokens > each.input_tokens:
            raise ScaleModelError(
                f"images={count!r}: of {tokens} tokens each must fit into its prompt of "
                f"{each.input_tokens}",
                code="malformed",
            )
    return np.array(own, dtype=np.float64) * (1 - task.encoder_hit_fraction)
