"""Kernels that a version of a serving engine runs on an accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.resolve.accelerators import accelerator_table, sheet_peak
from scalemodel.resolve.attention import AttentionEntry, AttentionKernels
from scalemodel.resolve.clusters import Cluster
from scalemodel.resolve.engine_kernels import (
    dispatch_kernel,
    encoder_kernel,
    expert_kernel,
    in_a_model,
    in_reserved_rows,
    is_own,
    received_experts,
)
from scalemodel.resolve.engines import (
    CACHE_FORMATS,
    WEIGHT_FORMATS,
    WeightFormat,
    engine,
    engine_table,
)
from scalemodel.resolve.kernels import GEMM_TYPES, gemm_kernel
from scalemodel.resolve.networks import custom_all_reduce
from scalemodel.resolve.reader import Reader


def _native(kernel: Any) -> Any:
    """An attention kernel that reads an 8-bit cache as it is: half the bytes, half the time."""
    if isinstance(kernel, _core.DecodeKernel):
        half = kernel.replace(fp8_math=2.0, fp8_block=0.5, fp8_rows_s=0.0)
        return half.replace(fp8_launch_s=0.0, fp8_memory=1.0, fp8_passes=0.0)
    return kernel


def _reading_narrow(own: Any, other: Any) -> Any:
    """A decode kernel of 16-bit caches with the one that an engine has beside it for 8-bit ones."""
    return own.replace(
        fp8_math=other.fp8_math * other.tensor_fraction / own.tensor_fraction,
        fp8_rows_s=other.fp8_rows_s,
        fp8_launch_s=max(0.0, other.launch_s + other.fp8_launch_s - own.launch_s),
        fp8_block=other.fp8_block * other.block_s / own.block_s,
        fp8_memory=other.fp8_memory * other.memory_fraction / own.memory_fraction,
        fp8_passes=other.fp8_passes,
    )


def _single_batch(accelerator: str, form: WeightFormat, want: Mapping[str, Any]) -> dict[str, Any]:
    """What of a batch is computed beside its own exchange; nothing where the engine has no way."""
    built_for = str(accelerator_table(accelerator).get("architecture", ""))
    blocks = Reader(want, "kernels.dispatch.single_batch").number(built_for, 0.0)
    if not blocks:
        return {}
    return {
        "combine_blocks": blocks,
        "down_overlaps": f"{built_for}_{form.experts}" in want["down"],
        "shared_overlaps_dispatch": built_for in want["beside_dispatch"],
    }


def _dispatch(accelerator: str, form: WeightFormat, want: Mapping[str, Any]) -> dict[str, Any]:
    """Kernels that send tokens to their experts, and those for many tokens."""
    if not want:
        return {}
    least = Reader(want, "kernels.dispatch").number("least_ranks", 1.0)
    found: dict[str, Any] = {"sends_tokens": True, "dispatch_ranks": int(least)}
    for op in ("dispatch", "combine"):
        found[op] = dispatch_kernel(accelerator, want["modes"], op).record
        if "many" in want:
            found[f"many_{op}"] = dispatch_kernel(accelerator, want["many"], op).record
    if value_of(want.get("narrow", False)):
        # Tokens travel as the experts' products take them.
        narrow = min(GEMM_TYPES[form.linear].activation_bytes, found["dispatch"].value_bytes)
        found["dispatch"] = found["dispatch"].replace(value_bytes=narrow)
    if "many" in want:
        blocks = Reader(want, "kernels.dispatch").number("blocks")
        few = Reader(want, "kernels.dispatch").number("few_tokens", 0.0)
        found |= {"sends_many": True, "few_tokens": few, "dispatch_blocks": blocks}
    return found | _single_batch(accelerator, form, want.get("single_batch", {}))


@dataclass(frozen=True)
class KernelChoice:
    """Which kernels an engine runs, as its entry says: implementation by what it computes."""

    products: str
    attention: Mapping[str, Any]
    experts: Mapping[str, Any]
    dispatch: Mapping[str, Any]
    all_reduce: Mapping[str, Any]
    binds_host: bool

    @classmethod
    def of_engine(cls, name: str) -> KernelChoice:
        """Read from the catalogue."""
        runs = engine_table(name)
        want = runs.get("kernels", {})
        return cls(
            products=str(want.get("products", "")),
            attention=want.get("attention", {}),
            experts=want.get("experts", {}),
            dispatch=want.get("dispatch", {}),
            all_reduce=want.get("all_reduce", {}),
            binds_host=bool(value_of(runs.get("defaults", {}).get("bound_host", False))),
        )


def _linear_constants(
    accelerator: str, form: WeightFormat, stack: str, fused_quantisation: bool, notes: list[str]
) -> dict[str, Any]:
    """GEMMs of weights in a format."""
    kind = GEMM_TYPES[form.linear]
    # The library's own narrow products, with static scales, are the wide ones at their rate.
    narrow = stack == "library" and form.linear in ("bf16", "fp16", "fp8", "fp8_block", "nvfp4")
    products = None if narrow else gemm_kernel(accelerator, form.linear, stack)
    if products is not None and products.constants.host_floor_s > products.constants.launch_s:
        # The loop that timed them waited for its CPU, which tells nothing of graphs of kernels.
        other = gemm_kernel(accelerator, form.linear)
        products = other if other is not None and not other.constants.host_floor_s else products
    if products is not None and products.note and kind.weight_bytes < kind.activation_bytes:
        # Products that widen their weights on the way are the wide ones with less to read; those of
        # another architecture would bring its cache along.
        wide = gemm_kernel(accelerator, "bf16")
        if wide is not None:
            products = replace(wide, format=products.format, note=f"{form.linear} as bf16 products")
    if products is None:
        unscaled = _core.GemmFormat(
            activation_bytes=kind.activation_bytes,
            weight_bytes=kind.weight_bytes,
            peak_flop_per_s=1.0,
        )
        return {"linear_format": unscaled}
    linear = products.constants
    if fused_quantisation:
        # One kernel where the benchmark of a narrow format timed two.
        launch = min(linear.launch_s, products.accelerator.gemm.dense16.launch_s)
        linear = linear.replace(launch_s=launch)
    if products.note:
        notes.append(products.note)
    return {
        "tiled": True,
        "linear": linear,
        "linear_gemm": products.accelerator.gemm,
        "linear_format": products.format.replace(warm=False),
    }


def _asked_for(
    attention: AttentionKernels, phase: str, asked: Mapping[str, Any], group: int
) -> AttentionEntry:
    """The kernel of a phase that an entry of an engine asks for, or the nearest to it."""
    return attention.of_engine(
        phase,
        engine=str(asked.get("engine", "")),
        kernel=str(asked.get("kernel", "")),
        version=str(asked.get("version", "")),
        group=group,
    )


def _latent_narrow(accelerator: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    built_for = str(accelerator_table(accelerator).get("architecture", ""))
    found: Mapping[str, Any] = asked.get("latent_narrow", {}).get(built_for, {})
    return found


def reads_latent_narrow(accelerator: str, engine_name: str) -> bool:
    """Whether an engine has a decode kernel beside its own for latents in 8 bits.

    Examples
    --------
    >>> reads_latent_narrow("h20", "sglang_2025"), reads_latent_narrow("b200", "sglang_2025")
    (True, False)
    """
    return bool(_latent_narrow(accelerator, KernelChoice.of_engine(engine_name).attention))


def _attention_constants(
    attention: AttentionKernels,
    accelerator: str,
    asked: Mapping[str, Any],
    group: int,
    latent: bool,
    notes: list[str],
) -> dict[str, Any]:
    """Attention of prefill and decode."""
    constants = {}
    for phase in ("prefill", "decode"):
        prompts = latent and phase == "prefill"
        wanted = asked.get("latent_prompts", asked) if prompts else asked
        entry = _asked_for(attention, f"mla_{phase}" if latent else phase, wanted, group)
        own = not (asked.get("native_cache") and entry.engine != asked["engine"])
        constants[phase] = entry.constants if own else _native(entry.constants)
        narrow = _latent_narrow(accelerator, asked) if latent and phase == "decode" else {}
        if narrow:
            other = _asked_for(attention, "mla_decode", narrow, group)
            constants[phase] = _reading_narrow(constants[phase], other.constants)
        if entry.accelerator != accelerator:
            notes.append(f"{phase} attention of {entry.accelerator}")
    return constants


def _expert_constants(
    accelerator: str, form: WeightFormat, asked: Mapping[str, Any], dispatch: Mapping[str, Any]
) -> dict[str, Any]:
    """GEMMs of experts."""
    stored = asked.get("formats", {}).get(form.experts, form.experts)
    # Kernels that widen 8-bit weights are those that widen 4-bit ones, with twice as much to read.
    widened = "int4_wo" if stored == "int8_wo" else stored
    chosen = expert_kernel(accelerator, widened, asked)
    measured = is_own(chosen, accelerator, asked.get("engine", ""))
    experts = in_a_model(chosen, accelerator)
    if widened != stored:
        experts = experts.replace(weight_bytes=GEMM_TYPES[stored].weight_bytes)
    # Releases that run another kernel than the one that was timed, on some architectures.
    built_for = str(accelerator_table(accelerator).get("architecture", ""))
    paces = Reader(asked.get("pace", {}), "kernels.experts.pace")
    pace = paces.number(f"{built_for}_{stored}", 1.0)
    if pace != 1:
        experts = experts.replace(
            compute_fraction=pace * experts.compute_fraction,
            memory_fraction=pace * experts.memory_fraction,
        )
    experts = in_reserved_rows(accelerator, experts, asked, f"{built_for}_{stored}")
    same_format = form.linear == form.experts or form.experts == "bfloat16"
    as_linear = bool(asked.get("else_linear") and not measured and same_format)
    received = received_experts(accelerator, stored, dispatch)
    return {
        "experts": experts,
        "experts_as_linear": as_linear,
        "received_experts": in_a_model(received, accelerator) if received else experts,
    }


def _all_reduce_constants(
    accelerator: str, table: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, Any]:
    """An engine's own all-reduce, where it has been timed on the accelerator's links."""
    link = str(value_of(table.get("scale_up", {}).get("class", "")))
    if not asked or not link:
        return {}
    own = custom_all_reduce(link, str(asked["kernel"]), str(asked["version"]), accelerator)
    return {} if own is None else {"own_all_reduce": True, "all_reduce": own}


def encoder_fields(accelerator: str, engine_name: str) -> dict[str, Any]:
    """Attention of encoders, where it has been timed on the accelerator.

    Examples
    --------
    >>> sorted(encoder_fields("h100_sxm_80gb", "vllm_v1"))
    ['encoder', 'encodes']
    """
    asked = KernelChoice.of_engine(engine_name).attention
    own = encoder_kernel(accelerator, str(asked.get("engine", "")))
    return {} if own is None else {"encodes": True, "encoder": own}


@dataclass(frozen=True)
class KernelFields:
    """Fields of `_core.ServingKernels` that depend on the same things.

    Attributes
    ----------
    fields : mapping
        Values by name; other fields are not theirs.
    notes : tuple of str
        What stands in for what was not measured.
    """

    fields: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@catalog.kept(512)
def _weight_fields(accelerator: str, engine_name: str, weights: str) -> KernelFields:
    """What multiplies weights of a format, and sends tokens to those that do."""
    form, notes = WEIGHT_FORMATS[weights], []
    table = accelerator_table(accelerator)
    if form.math in ("fp8", "fp4") and form.math not in table.get("compute", {}):
        notes.append(f"{weights} weights widened to 16-bit products")
        form = WEIGHT_FORMATS[form.kept]
    choice = KernelChoice.of_engine(engine_name)
    fused = engine(engine_name).fused_quantisation
    fields = {
        **_linear_constants(accelerator, form, choice.products, fused, notes),
        **_expert_constants(accelerator, form, choice.experts, choice.dispatch),
        **_dispatch(accelerator, form, choice.dispatch),
        **_all_reduce_constants(accelerator, table, choice.all_reduce),
        "math": form.math,
    }
    if not choice.binds_host:
        slowdown = Reader(table.get("host", {}), f"accelerators/{accelerator}.toml: host")
        fields["host_slowdown"] = slowdown.number("serving_slowdown", 1.0)
    return KernelFields(fields, tuple(notes))


@catalog.kept(64)
def _attention_of(accelerator: str) -> AttentionKernels:
    return AttentionKernels(accelerator)


@catalog.kept(512)
def attention_fields(accelerator: str, engine_name: str, group: int, latent: bool) -> KernelFields:
    """Kernels that attend to the keys of a model; arguments as of `serving_kernels`.

    Examples
    --------
    >>> sorted(attention_fields("h100_sxm_80", "vllm_v1", 8, False).fields)
    ['decode', 'prefill']
    """
    asked = KernelChoice.of_engine(engine_name).attention
    notes: list[str] = []
    fields = _attention_constants(
        _attention_of(accelerator), accelerator, asked, group, latent, notes
    )
    return KernelFields(fields, tuple(notes))


def cache_fields(accelerator: str, cache: str, math: str) -> KernelFields:
    """How keys and values are stored, and multiplied where weights are in the format `math`.

    Examples
    --------
    >>> cache_fields("h100_sxm_80", "fp8", "fp8").fields
    {'cache': 'fp8', 'attention': 'fp8'}
    """
    peaks = accelerator_table(accelerator).get("compute", {})
    narrow = cache == "fp8" and "fp8" in peaks and math in ("fp8", "fp4")
    return KernelFields({"cache": cache, "attention": "fp8"} if narrow else {"cache": cache})


@catalog.kept(256)
def serving_kernels(
    accelerator: str, engine_name: str, weights: str, cache: str, group: int, latent: bool
) -> tuple[_core.ServingKernels, str]:
    """Kernels that an engine runs on an accelerator, and a note where others stand in.

    Parameters
    ----------
    accelerator : str
        Catalogue name.
    engine_name : str
        Catalogue name of the engine.
    weights, cache : str
        A key of `WEIGHT_FORMATS`; one of `CACHE_FORMATS`.
    group : int
        Query heads per key/value head.
    latent : bool
        Multi-head latent attention.

    Raises
    ------
    ScaleModelError : unknown format, or one the accelerator cannot multiply.

    Examples
    --------
    >>> constants, note = serving_kernels("h100_sxm_80", "vllm_v1", "fp8", "fp8", 8, False)
    >>> constants.cache, constants.linear_format.weight_bytes
    ('fp8', 1.0)
    """
    if weights not in WEIGHT_FORMATS:
        legal = ", ".join(WEIGHT_FORMATS)
        raise ScaleModelError(f"precision={weights!r}: must be one of {legal}", code="precision")
    if cache not in CACHE_FORMATS:
        legal = ", ".join(CACHE_FORMATS)
        raise ScaleModelError(f"kv_precision={cache!r}: must be one of {legal}", code="precision")
    products = _weight_fields(accelerator, engine_name, weights)
    parts = (
        products,
        attention_fields(accelerator, engine_name, group, latent),
        cache_fields(accelerator, cache, products.fields["math"]),
    )
    fields = {name: value for part in parts for name, value in part.fields.items()}
    notes = [note for part in parts for note in part.notes]
    return _core.ServingKernels().replace(**fields), "; ".join(notes)


def kernels_lender(cluster: Cluster) -> str:
    """Catalogue accelerator whose kernels a cluster's runs: itself, its base, else the nearest."""
    known = catalog.names("accelerators")
    table = cluster.table.get("accelerator", {})
    if cluster.accelerator in known:
        return cluster.accelerator
    if not isinstance(table, Mapping):
        return catalog.find("accelerators", cluster.accelerator)
    for key in ("base", "kernels"):
        name = table.get(key)
        if isinstance(name, str) and name in known:
            return name
    own = (str(table.get("architecture", "")), int(str(value_of(table.get("year", 2023)))))

    def apart(name: str) -> tuple[bool, bool, int]:
        entry = catalog.load("accelerators", name)
        measured = f"{name}_attention" in catalog.names("kernels")
        return (entry["architecture"] != own[0], not measured, abs(entry["year"] - own[1]))

    return min(known, key=apart)


def _product_format(cluster: Cluster, weights: str, math: str) -> str:
    """`math`, or the 16-bit format that the accelerator has instead for weights stored narrow."""
    peaks = dict(zip(_core.precisions(), cluster.core.accelerator.peak_flop_per_s, strict=True))
    if peaks[math] > 0:
        return math
    wide = [name for name in ("bf16", "fp16") if peaks[name] > 0]
    if wide and weights not in ("bf16", "fp16"):
        return wide[0]
    legal = f"must be {wide[0]}, or narrower weights that are widened to it" if wide else "none can"
    raise ScaleModelError(
        f"precision={weights!r}: {cluster.accelerator} has no {math} products; {legal}",
        code="precision",
    )


def kernels_for(
    cluster: Cluster,
    engine_name: str,
    shape: _core.DecoderShape,
    weights: str,
    cache: str,
    *,
    images: bool = False,
) -> tuple[_core.ServingKernels, str]:
    """`serving_kernels` for the attention of a model, at the rates of a cluster's accelerator.

    An accelerator that is not in the catalogue runs the kernels of its base, or of the nearest one.
    With `images`, kernels of vision towers are among them.

    Raises
    ------
    ScaleModelError : the accelerator has no products of that format.
    """
    group, latent = attention_kind(shape)
    lender = kernels_lender(cluster)
    constants, note = serving_kernels(lender, engine_name, weights, cache, group, latent)
    own = weight_fields(cluster, engine_name, weights).fields
    constants = constants.replace(math=own["math"], linear_format=own["linear_format"])
    if images:
        constants = constants.replace(**encoder_fields(lender, engine_name))
    if lender != cluster.accelerator:
        note = "; ".join(filter(None, (f"kernels of {lender}", note)))
    return constants, note


def attention_kind(shape: _core.DecoderShape) -> tuple[int, bool]:
    """Query heads per key/value head, and whether attention is latent: what its kernels go by.

    Examples
    --------
    >>> import scalemodel as sm
    >>> attention_kind(sm.model("llama3_70b").shape), attention_kind(sm.model("deepseek_v3").shape)
    ((8, False), (1, True))
    """
    return max(1, shape.heads // (shape.kv_heads or shape.heads)), shape.kv_lora_rank > 0


def weight_fields(cluster: Cluster, engine_name: str, weights: str) -> KernelFields:
    """What multiplies weights of a format, at the rates of a cluster's accelerator.

    Raises
    ------
    ScaleModelError : the accelerator has no products of that format.

    Examples
    --------
    >>> import scalemodel as sm
    >>> weight_fields(sm.cluster("dgx_h100"), "vllm_v1", "fp8").fields["math"]
    'fp8'
    """
    lender = kernels_lender(cluster)
    part = _weight_fields(lender, engine_name, weights)
    math, narrow = part.fields["math"], part.fields["linear_format"]
    math = _product_format(cluster, weights, math)
    sheet = sheet_peak(accelerator_table(lender), math)
    own = cluster.core.accelerator.peak_flop_per_s[_core.precisions().index(math)]
    if sheet > 0 and own not in (0, sheet):
        narrow = narrow.replace(peak_flop_per_s=narrow.peak_flop_per_s * own / sheet)
    return KernelFields({**part.fields, "math": math, "linear_format": narrow}, part.notes)
