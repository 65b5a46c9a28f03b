"""Published runs of image and video generation: a row becomes a question of layer groups.

A training row is a step over noised latents; a serving row generates one sample, or as many as its
accelerators can, by the denoising steps that it states.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.layer_groups import (
    ComposedModel,
    GroupEstimate,
    GroupStrategy,
    compose,
)
from scalemodel.layer_groups.estimate import estimate_groups
from scalemodel.resolve.stack_choice import stack_for, unstated
from scalemodel.resolve.stacks import eager_facts
from scalemodel.resolve.tasks import Precision, Training
from scalemodel.serving.generation import Generation, generation_pass
from scalemodel.validation.place import Place, cluster_of, place
from scalemodel.validation.rows import Row, SkippedRowError, Table, require_columns
from scalemodel.validation.sharding_text import sharding_name

if TYPE_CHECKING:
    from typing import Literal

    Prefetch = Literal["none", "one", "unlimited"]
    Buckets = Literal["unit", "group"]

REQUIRED_COLUMNS = ("task", "model", "gpu", "n_gpus")
INPUT_COLUMNS = (
    *REQUIRED_COLUMNS,
    *(
        "source",
        "framework",
        "year",
        "precision",
        "kind",
        "global_batch",
        "micro_batch",
        "tokens_per_sample",
    ),
    *("resolution", "frames", "denoise_steps", "guidance", "tp", "sp", "pp", "cp", "ulysses"),
    *("ring", "cfg_parallel", "sharding", "compiled", "recompute", "gpu_mem_GB", "gpus_per_node"),
    *("nic_gbps_per_gpu", "network", "nvlink"),
)
OUTPUT_COLUMNS = (
    *("predicted_step_time_s", "predicted_latency_s", "predicted_samples_per_s"),
    *("predicted_note", "skip_reason"),
)
#: Samples at a time of an accelerator that generates as many as it can, where a row says nothing.
_OFFLINE_BATCH = 8
_SHARDINGS = {"ddp": "ddp", "zero1": "zero1", "zero2": "zero1", "zero3": "fsdp", "hsdp": "fsdp"}


class Prediction(NamedTuple):
    """What a row would show."""

    step_time_s: float | None = None
    latency_s: float | None = None
    samples_per_s: float | None = None
    note: str = ""
    skip_reason: str = ""


def _model(row: Row) -> ComposedModel:
    name = row.text("model")
    try:
        return compose(catalog.find("composed", name))
    except ScaleModelError:
        raise SkippedRowError(f"unknown_architecture:{name}" if name else "missing:model") from None


def _sized(model: ComposedModel, row: Row) -> ComposedModel:
    """The model on samples of the row's size."""
    size = re.search(r"(\d+)\s*[x*]\s*(\d+)", row.text("resolution"))
    tokens = row.number("tokens_per_sample")
    if size is None and tokens is None:
        raise SkippedRowError("missing:resolution")
    if size is not None:
        if model.generation is None:
            raise SkippedRowError("unknown_architecture:latents")
        frames = round(row.number("frames") or 1)
        patches = _core.latent_places(
            model.generation.grid, int(size[1]), int(size[2]), max(1, frames)
        )
        if tokens is not None and tokens > patches:  # text beside the patches
            return _with_text(model.with_tokens(patches), patches, tokens)
        return model.with_tokens(patches)
    assert tokens is not None
    return model.with_tokens(tokens)


def _with_text(model: ComposedModel, patches: float, tokens: float) -> ComposedModel:
    groups = [
        replace(group, tokens=tokens)  # type: ignore[call-arg]
        if getattr(group, "tokens", 0) > patches
        else group
        for group in model.groups
    ]
    return replace(model, groups=tuple(groups))


def _precision(row: Row) -> tuple[Precision, str]:
    text = row.text("precision").lower()
    if "fp8" in text:
        return "fp8", ""
    if "bf16" in text:
        return "bf16", ""
    if "fp16" in text:
        return "fp16", ""
    return "bf16", "precision bf16 assumed"


def _place(row: Row, notes: list[str]) -> Place:
    """Where a row ran. Of racks equal parts were used: 64 of 72 accelerators, of 512 in all."""
    where = place(row, notes)
    domain = int(cluster_of(where).core.scale_up.domain)
    if domain <= where.node_accelerators or where.accelerators % domain == 0:
        return where
    part = max(size for size in range(1, domain + 1) if where.accelerators % size == 0)
    return replace(where, scale_up=(("domain", part),))


def _degree(row: Row, name: str) -> int:
    return row.count(name) or 1


def _mesh(layers: str, tp: int, cp: int, ranks: int) -> str:
    axes = [f"{name}@{degree}" for name, degree in (("tp", tp), ("cp", cp)) if degree > 1]
    rest = ranks // (tp * cp)
    return "+".join([*axes, f"{layers}@{rest}"])


def _training(row: Row) -> Prediction:
    notes: list[str] = []
    where = _place(row, notes)
    ranks, tp, cp = where.accelerators, _degree(row, "tp"), _degree(row, "cp")
    if _degree(row, "pp") > 1:
        raise SkippedRowError("unsupported:mesh")
    if ranks % (tp * cp):
        raise SkippedRowError("illegal:mesh")
    replicas = ranks // (tp * cp)
    batch = row.required_count("global_batch")
    micro_batch = row.count("micro_batch") or -(-batch // replicas)
    year = row.number("year")
    name = (
        "mlperf_diffusion"
        if re.search(r"mlperf|mlcommons", row.text("source").lower())
        else stack_for(row.text("framework"), None if year is None else round(year), "")
    )
    habits = unstated(name)
    precision, note = _precision(row)
    notes += [note] if note else []
    sharding = _SHARDINGS[sharding_name(row.text("sharding").lower())]
    strategy = GroupStrategy(
        {"*": _mesh(sharding, tp, cp, ranks)},
        micro_batches=max(1, batch // (micro_batch * replicas)),
        prefetch=cast("Prefetch", habits.get("prefetch", "one")),
        buckets=cast("Buckets", habits.get("buckets", "unit")),
        recompute=row.text("recompute").lower() == "full",
    )
    task = Training(global_batch=batch, sequence=1, precision=precision)
    found = _asked(_sized(_model(row), row), where, task, strategy, name)
    return Prediction(
        step_time_s=float(found.step_time_s),
        samples_per_s=batch / float(found.step_time_s),
        note="; ".join(notes),
    )


def _asked(
    model: ComposedModel,
    where: Place,
    task: Training,
    strategy: GroupStrategy,
    stack: str | _core.Stack,
) -> GroupEstimate:
    try:
        found = estimate_groups(model, cluster_of(where), task, strategy, stack, None)
    except ScaleModelError as error:
        raise SkippedRowError(f"illegal:{error.code}") from None
    if found.illegal:
        raise SkippedRowError(found.verdict)
    return found


def _serving_stack(row: Row) -> str | _core.Stack:
    """The stack of a serving row.

    Without a compiler, norms, rotations and activations are made of small kernels
    (huggingface/diffusers, models/normalization.py and embeddings.py).
    """
    framework = row.text("framework").lower()
    if not re.search(r"xdit|step|diffusers", framework):
        return "tensorrt_diffusion"
    if "compile" in row.text("compiled").lower():
        return "xdit"
    return resolve.stack("xdit").replace(fused_norm=False, **eager_facts())


def _serving(row: Row) -> Prediction:
    notes: list[str] = []
    where = _place(row, notes)
    steps = row.required_count("denoise_steps")
    passes = 2 if re.search(r"pair|cfg|two", row.text("guidance").lower()) else 1
    model = _sized(_model(row), row)
    precision, note = _precision(row)
    notes += [note] if note else []
    tp, halves = _degree(row, "tp"), _degree(row, "cfg_parallel")
    cp = _degree(row, "ulysses") * _degree(row, "ring") * _degree(row, "cp") * _degree(row, "pp")
    if _degree(row, "pp") > 1:
        notes.append("stages of patches as a split sequence")
    alone = where.accelerators > 1 and tp * halves * cp == 1
    batch = row.count("global_batch") or _OFFLINE_BATCH
    if alone:  # every accelerator generates samples of its own
        where = replace(where, accelerators=1, node_accelerators=1)
    facts = model.generation
    if facts is None:
        raise SkippedRowError("unknown_architecture:latents")
    size = re.search(r"(\d+)\s*[x*]\s*(\d+)", row.text("resolution"))
    frames = max(1, round(row.number("frames") or 1))
    if size is None or not facts.decoder:
        facts = replace(facts, decoder="")
        notes.append("decoder of the latents not counted")
    task = Generation(
        height=int(size[1]) if size else 1,
        width=int(size[2]) if size else 1,
        frames=frames if facts.grid.frames > 1 else 1,
        steps=steps,
        guidance=passes == 2,
        precision=precision,
    )
    made = generation_pass(
        replace(model, generation=facts),
        cluster_of(where),
        task,
        _mesh("ddp", tp, cp, where.accelerators),
        _serving_stack(row),
        batch,
    )
    if made.denoising.illegal:
        raise SkippedRowError(made.denoising.verdict)
    latency_s = made.total_s
    instances = row.required_count("n_gpus") // where.accelerators
    rate = instances * batch / latency_s
    if not row.text("global_batch"):
        notes.append(f"{batch} samples at a time assumed")
    return Prediction(latency_s=latency_s, samples_per_s=rate, note="; ".join(notes))


def predict(table: Table) -> list[Prediction]:
    """One prediction per row of a table, in order; no row can fail the run."""
    require_columns(table, REQUIRED_COLUMNS, f"kind 'composed' needs {', '.join(REQUIRED_COLUMNS)}")
    predictions = []
    for row in table.select(INPUT_COLUMNS):
        try:
            serves = row.text("task").lower().startswith("serv")
            predictions.append(_serving(row) if serves else _training(row))
        except SkippedRowError as skipped:
            predictions.append(Prediction(skip_reason=str(skipped)))
        except ScaleModelError as error:  # a size or a place that the model cannot have
            predictions.append(Prediction(skip_reason=f"illegal:{error.code}"))
    return predictions
