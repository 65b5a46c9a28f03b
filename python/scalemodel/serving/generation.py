"""Images and videos generated on request: text encoders, denoising steps, decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.answer import ColumnAnswer
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import choice, named_fields
from scalemodel.layer_groups.estimate import GroupEstimate, estimate_groups
from scalemodel.layer_groups.generation import GenerationFacts
from scalemodel.layer_groups.model import ComposedModel, compose
from scalemodel.layer_groups.strategy import BatchInference, GroupStrategy
from scalemodel.resolve import Cluster
from scalemodel.resolve.tasks import Precision
from scalemodel.serving.batches import doublings
from scalemodel.serving.verdicts import why_too_large

#: The stack of a generator where none is named (xdit-project/xDiT).
GENERATION_STACK = "xdit"
_MOST_PIXELS = 1_000_000
_MOST_STEPS = 100_000
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


@named_fields
@dataclass(frozen=True, kw_only=True)
class Generation:
    """Images, or videos, to generate from texts.

    Parameters
    ----------
    height, width : int
        Pixels.
    frames : int
        Of a video; 1: an image.
    steps : int, optional
        Denoising steps; those of the model's own pipeline when left out.
    guidance : bool, optional
        Classifier-free guidance: two forward passes a step, with the text and without. When left
        out, as the model's own pipeline has it.
    precision : str
        Format of matrix multiplications; the decoder stays in 16 bits.

    Raises
    ------
    ScaleModelError : a value out of range; the message names the argument.

    Examples
    --------
    >>> Generation(height=1024, width=1024, steps=28).frames
    1
    """

    height: int
    width: int
    frames: int = 1
    steps: int | None = None
    guidance: bool | None = None
    precision: Precision = "bf16"

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", choice(self.precision, _PRECISIONS))
        if self.precision not in _PRECISIONS:
            legal = ", ".join(_PRECISIONS)
            raise ScaleModelError(f"precision={self.precision!r}: must be one of {legal}")
        for name, most in (
            ("height", _MOST_PIXELS),
            ("width", _MOST_PIXELS),
            ("frames", _MOST_PIXELS),
            ("steps", _MOST_STEPS),
        ):
            value = getattr(self, name)
            if name == "steps" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise ScaleModelError(f"{name}={value!r}: must be a whole number from 1 to {most}")
        if self.guidance is not None and not isinstance(self.guidance, bool):
            raise ScaleModelError(f"guidance={self.guidance!r}: must be True, False or None")

    def replace(self, **changes: Any) -> Generation:
        """A copy with the given fields changed."""
        return replace(self, **changes)


_ANSWER = (
    "batch",
    "most_batch",
    "latency_s",
    "samples_per_s",
    "samples_per_s_per_accelerator",
    "steps",
    "denoising_step_s",
    "text_encoders_s",
    "decoder_s",
    "utilisation_fraction",
    "saturated",
    "replicas",
    "accelerators",
    "memory_bytes",
    "memory_weights_bytes",
    "memory_text_encoders_bytes",
    "power_w",
    "samples_per_j",
    "usd_per_thousand_samples",
)


class GenerationServing(ColumnAnswer):
    """What a cluster generates. Made by `serve` of a generator and a `Generation`.

    Every column of `to_dict` is an attribute; the numbers are None where nothing can run.

    Attributes
    ----------
    model, cluster, task, layout, stack
        The question.
    verdict : str
        ``ok``, ``out_of_memory`` or ``illegal:<reason>``.
    full : GroupEstimate or None
        One denoising step of the largest batch: its memory, its time by cause.
    note : str
        What is not counted.
    """

    def __init__(
        self,
        model: ComposedModel,
        cluster: Cluster,
        task: Generation,
        layout: _core.ServingLayout,
        stack: str,
        verdict: str,
        *,
        full: GroupEstimate | None = None,
        note: str = "",
        wrong: str = "",
        answer: dict[str, Any] | None = None,
    ) -> None:
        self.model, self.cluster, self.task, self.layout = model, cluster, task, layout
        self._wrong = wrong
        self.stack, self.verdict, self.full, self.note = stack, verdict, full, note
        self._columns = dict.fromkeys(_ANSWER) if answer is None else answer

    def __repr__(self) -> str:
        if not self.fits:
            return f"GenerationServing({self.verdict})"
        late = "never settles" if self.saturated else f"{self.latency_s:.3g} s"
        what = "images" if self.task.frames == 1 else "videos"
        return (
            f"GenerationServing({self.verdict}, {self.samples_per_s:.4g} {what}/s, latency {late}, "
            f"{self.batch:.4g} at once)"
        )

    def why_not(self) -> str:
        """What keeps every generation from running; empty where one runs.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task, layout = sm.Generation(height=1024, width=1024), sm.ServingLayout(tp=16)
        >>> sm.serve("flux1_dev", "dgx_h100", task, layout).why_not()
        '1 x 16 accelerators are more than the 8 of the cluster.'
        """
        return self._wrong

    def to_dict(self) -> dict[str, Any]:
        """The layout's fields, the verdict and every column of the answer."""
        return {**self.layout.to_dict(), "verdict": self.verdict, **self._columns}


class Pass(NamedTuple):
    """Samples that go through a generation together."""

    denoising: GroupEstimate
    parts: _core.GenerationPass
    text_bytes: float

    @property
    def total_s(self) -> float:
        """Seconds from the text to the pixels."""
        return float(_core.generation_time(self.parts))


def sized(model: ComposedModel, facts: GenerationFacts, task: Generation) -> ComposedModel:
    """The model on the latents of a task.

    Raises
    ------
    ScaleModelError : a video of a model of images.

    Examples
    --------
    >>> import scalemodel as sm
    >>> flux = sm.compose("flux_1_dev")
    >>> small = sized(flux, flux.generation, Generation(height=512, width=512))
    >>> [group.tokens for group in small.groups if group.name == "double_blocks"]
    [1536.0]
    """
    if task.frames > 1 and facts.grid.frames == 1:
        raise ScaleModelError(f"frames={task.frames}: must be 1: {model.name} makes images")
    places = _core.latent_places(facts.grid, task.height, task.width, task.frames)
    return model.with_tokens(places)


def part_of(cluster: Cluster, accelerators: int) -> Cluster:
    """Some accelerators of a cluster."""
    if accelerators == cluster.accelerators:
        return cluster
    return replace(cluster, core=cluster.core.replace(accelerators=accelerators))


def mesh_of(layout: _core.ServingLayout) -> str:
    """The mesh of one instance. Stages of patches stand as shards of the sequence.

    Examples
    --------
    >>> import scalemodel as sm
    >>> mesh_of(sm.ServingLayout(cp=4, dp=2))
    'cp@4+ddp@2'
    """
    degrees = (("tp", layout.tp), ("cp", layout.cp * layout.pp))
    axes = [f"{name}@{degree}" for name, degree in degrees if degree > 1]
    return "+".join([*axes, f"ddp@{layout.dp}"])


Ask = Callable[[ComposedModel, Cluster, BatchInference, GroupStrategy], GroupEstimate]


def _asked(stack: str | _core.Stack) -> Ask:
    def ask(
        model: ComposedModel, cluster: Cluster, task: BatchInference, strategy: GroupStrategy
    ) -> GroupEstimate:
        return estimate_groups(model, cluster, task, strategy, stack, None)

    return ask


def generation_pass(
    model: ComposedModel,
    instance: Cluster,
    task: Generation,
    mesh: str,
    stack: str | _core.Stack,
    batch: int,
    ask: Ask | None = None,
) -> Pass:
    """One generation of `batch` samples on one instance.

    Parameters
    ----------
    model : ComposedModel
        Sized to the task, see `sized`.
    instance : Cluster
        The accelerators of one instance, which `mesh` fills.
    ask : callable, optional
        Estimates instead of `estimate_groups`.

    Raises
    ------
    ScaleModelError : as `estimate_groups`.
    """
    facts = model.generation
    assert facts is not None
    ask = ask or _asked(stack)
    guided = facts.passes > 1 if task.guidance is None else task.guidance
    passes = 2 if guided else 1
    denoising = ask(
        model,
        instance,
        BatchInference(global_batch=batch * passes, sequence=1, precision=task.precision),
        GroupStrategy({"*": mesh}),
    )
    one = part_of(instance, 1)
    texts_s = text_bytes = decoder_s = 0.0
    if not denoising.illegal:
        for name in facts.text_encoders:
            question = BatchInference(
                global_batch=batch * passes, sequence=facts.text_tokens, precision="bf16"
            )
            encoder = ask(_encoder(name), one, question, GroupStrategy("ddp"))
            texts_s += encoder.step_time_s
            text_bytes += encoder.memory_weights_bytes
        if facts.decoder:
            pixels = compose(facts.decoder).with_tokens(task.height * task.width * task.frames)
            question = BatchInference(global_batch=batch, sequence=1, precision="bf16")
            decoder_s = ask(pixels, one, question, GroupStrategy("ddp")).step_time_s
    parts = _core.GenerationPass(
        encoders_s=texts_s,
        denoising_s=0.0 if denoising.illegal else denoising.step_time_s,
        decoder_s=decoder_s,
        steps=task.steps or facts.steps,
    )
    return Pass(denoising, parts, text_bytes)


def _encoder(name: str) -> ComposedModel:
    """A text encoder: of a decoder of words, the layers without its head."""
    model = compose(name)
    return replace(model, groups=tuple(g for g in model.groups if g.name != "head"))


def uncounted(facts: GenerationFacts, layout: _core.ServingLayout) -> str:
    """What a prediction leaves out, or takes for something else."""
    notes = []
    if layout.pp > 1:
        notes.append("stages of patches as a split sequence")
    left_out = [] if facts.text_encoders else ["text encoders"]
    left_out += [] if facts.decoder else ["decoder of the latents"]
    if left_out:
        notes.append(f"{' and '.join(left_out)} not counted")
    return "; ".join(notes)


def serve_generation(
    model: ComposedModel | str,
    cluster: Any,
    task: Generation,
    layout: _core.ServingLayout | None = None,
    *,
    concurrency: float | None = None,
    requests_per_s: float | None = None,
    replicas: int | None = None,
    stack: str = GENERATION_STACK,
) -> GenerationServing:
    """What a cluster generates: images or videos a second, and the seconds of one.

    An instance of ``tp`` x ``cp`` x ``pp`` x ``dp`` accelerators takes a batch of samples through
    all steps at once: tensor ranks split the layers, context ranks the tokens of a sample (as
    stages of patches do, for which they stand), data-parallel ranks the batch with both passes of
    guidance. Text encoders and decoder run on one of them, before and after.

    Parameters
    ----------
    model : ComposedModel or str
        A generator of the catalogue, or one whose entry has a table ``[generation]``.
    cluster, task, layout
        As for `serve`.
    concurrency : int, optional
        Samples that are generated at once, over all replicas; when left out, doublings while they
        fit and gain 2 % in samples per second, or under `requests_per_s` what has arrived in the
        meantime.
    requests_per_s : float, optional
        Samples that are asked for at random times, over all replicas.
    replicas : int, optional
        Instances; as many as the cluster holds when left out.
    stack : str
        As for `estimate`.

    Raises
    ------
    ScaleModelError
        An unknown name, a number out of range, a model that generates nothing.

    Examples
    --------
    >>> import scalemodel as sm
    >>> image = sm.Generation(height=1024, width=1024)
    >>> alone, shared = (
    ...     sm.serve("flux_1_dev", "dgx_h100", image, layout, concurrency=1, replicas=1)
    ...     for layout in (sm.ServingLayout(), sm.ServingLayout(cp=8)))
    >>> alone.verdict, 3 < alone.latency_s / shared.latency_s < 8
    ('ok', True)
    """
    chosen = compose(model)
    where = cluster if isinstance(cluster, Cluster) else resolve.cluster(cluster)
    facts = chosen.generation
    if facts is None:
        raise ScaleModelError(
            f"model={chosen.name!r}: its entry has no table [generation]; a Generation is of a "
            "model that makes images or videos"
        )
    plan = _core.ServingLayout() if layout is None else layout
    if not isinstance(plan, _core.ServingLayout):
        raise ScaleModelError(f"layout={layout!r}: must be a ServingLayout")
    ranks = int(plan.tp * plan.cp * plan.pp * plan.dp)
    copies = max(1, where.accelerators // ranks) if replicas is None else replicas
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 1:
        raise ScaleModelError(f"replicas={replicas!r}: must be a whole number from 1")
    batch = _batch(concurrency, copies)
    of_task = sized(chosen, facts, task)
    question = (chosen, where, task, plan, stack)
    if plan.ep > 1 or plan.redundant_experts:
        said = "ep and redundant_experts: a denoiser has no experts that ranks could hold."
        return GenerationServing(*question, "illegal:ep_experts", wrong=said)
    if copies * ranks > where.accelerators:
        most = where.accelerators
        said = f"{copies} x {ranks} accelerators are more than the {most} of the cluster."
        return GenerationServing(*question, "illegal:mesh", wrong=said)
    instance, mesh = part_of(where, ranks), mesh_of(plan)
    made: dict[int, Pass] = {}

    def of(count: int) -> Pass:
        if count not in made:
            made[count] = generation_pass(of_task, instance, task, mesh, stack, count)
        return made[count]

    def fits(found: Pass) -> str:
        verdict = str(found.denoising.verdict)
        room = float(where.core.accelerator.memory_capacity_bytes)
        if verdict == "ok" and found.denoising.memory_bytes + found.text_bytes > room:
            return "out_of_memory"
        return verdict

    def seconds(count: int) -> float | None:
        return of(count).total_s if fits(of(count)) == "ok" else None

    most = doublings(seconds) if batch is None else batch
    full = of(most)
    note = uncounted(facts, plan)
    if fits(full) != "ok":
        said = full.denoising.message()
        if full.denoising.verdict == "ok":
            needed = full.denoising.memory_bytes + full.text_bytes
            said = why_too_large(needed, where, "A denoising step beside its text encoders")
        return GenerationServing(*question, fits(full), full=full.denoising, note=note, wrong=said)
    lone = of(1)
    answer = _answer(where, copies, ranks, most, full, lone, requests_per_s)
    return GenerationServing(*question, "ok", full=full.denoising, note=note, answer=answer)


def _batch(concurrency: float | None, copies: int) -> int | None:
    """Samples of an instance at once, of those of all."""
    if concurrency is None:
        return None
    whole = not isinstance(concurrency, bool) and concurrency == int(concurrency)
    if not whole or concurrency < copies or concurrency % copies:
        raise ScaleModelError(
            f"concurrency={concurrency!r}: must be a multiple of the {copies} replicas"
        )
    return int(concurrency) // copies


def _answer(
    cluster: Cluster,
    copies: int,
    ranks: int,
    most: int,
    full: Pass,
    lone: Pass,
    requests_per_s: float | None,
) -> dict[str, Any]:
    """The columns of a plan that runs."""
    cost = _core.batch_pass(lone.total_s, full.total_s, 1, most)
    if requests_per_s is None:
        state = _core.full_batches(cost)
    else:
        state = _core.batch_state_at(cost, requests_per_s / copies)
    made = copies * float(state.leaving_per_s)
    accelerators = copies * ranks
    idle_w = float(cluster.core.accelerator.power.idle_w)
    alone_w, full_w = float(lone.denoising.power_w), float(full.denoising.power_w)
    power_w = accelerators * float(_core.batch_power_w(cost, state, alone_w, full_w, idle_w))
    price = accelerators * float(cluster.core.price_usd_per_s)
    parts, memory = full.parts, cast(Any, full.denoising)
    return {
        "batch": float(state.batch),
        "most_batch": most,
        "latency_s": None if state.saturated else float(state.latency_s),
        "samples_per_s": made,
        "samples_per_s_per_accelerator": made / accelerators,
        "steps": int(parts.steps),
        "denoising_step_s": float(parts.denoising_s),
        "text_encoders_s": float(parts.encoders_s),
        "decoder_s": float(parts.decoder_s),
        "utilisation_fraction": float(state.utilisation),
        "saturated": bool(state.saturated),
        "replicas": copies,
        "accelerators": accelerators,
        "memory_bytes": memory.memory_bytes + full.text_bytes,
        "memory_weights_bytes": memory.memory_weights_bytes,
        "memory_text_encoders_bytes": full.text_bytes,
        "power_w": power_w,
        "samples_per_j": made / power_w,
        "usd_per_thousand_samples": 1e3 * price / made if price else None,
    }
