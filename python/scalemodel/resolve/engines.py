"""Serving engines: named versions of the catalogue, and formats of what they serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import parse_quantity, value_of
from scalemodel.resolve.attention import version_of
from scalemodel.resolve.reader import Reader, merged

DEFAULT_ENGINE = "vllm_v1"
_DIMENSIONS = {"_s": "s", "_bytes": "bytes"}
_FORMER_KEYS = {
    "most_tokens": "max_batched_tokens",
    "most_sequences": "max_running_sequences",
    "splits_prompts": "chunked_prefill",
    "mixes_phases": "mixed_batches",
}


@dataclass(frozen=True)
class WeightFormat:
    """How the weights of a served model are stored.

    Attributes
    ----------
    linear, experts : str
        Number formats of linear and of expert layers, as kernels are labelled.
    math : str
        Precision of the products.
    kept : str
        The format that stands in on an accelerator without these products: weights stay narrow
        and are widened on the way to 16-bit products. Empty: none.
    """

    linear: str
    experts: str
    math: str
    kept: str = ""


WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    "bf16": WeightFormat("bf16", "bfloat16", "bf16"),
    "fp16": WeightFormat("fp16", "bfloat16", "fp16"),
    "fp8": WeightFormat("fp8", "fp8", "fp8", "int8"),
    "fp8_block": WeightFormat("fp8_block", "fp8_block", "fp8", "int8"),
    "fp4": WeightFormat("nvfp4", "nvfp4", "fp4", "int4"),
    "int8": WeightFormat("int8_wo", "int8_wo", "bf16"),
    "int4": WeightFormat("int4_wo", "int4_wo", "bf16"),
    "mxfp4": WeightFormat("bf16", "w4a16_mxfp4", "bf16"),
}
CACHE_FORMATS = ("bf16", "fp16", "fp8", "fp4")


@catalog.kept(16)
def engine_table(name: str) -> dict[str, Any]:
    """The tables of an engine's entry, laid over those of the version it names as its `base`.

    Examples
    --------
    >>> engine_table("vllm_v1")["engine"]["block_tokens"]["value"]
    16
    """
    table = catalog.load("engines", name)
    return merged(engine_table(table["base"]), table) if "base" in table else table


@catalog.kept(64)
def engine(name: str | _core.Engine) -> _core.Engine:
    """The engine's constants of a catalogue entry; constants themselves are returned.

    Examples
    --------
    >>> engine("vllm").block_tokens
    16
    """
    if isinstance(name, _core.Engine):
        return name
    entry = catalog.find("engines", name)
    where = f"engines/{entry}.toml: engine"
    facts = Reader(engine_table(entry).get("engine", {}), where)
    facts.accept_former(_FORMER_KEYS)
    given: dict[str, Any] = {}
    for row in _core.Engine.fields():
        field = str(row["name"])
        suffix = next((end for end in _DIMENSIONS if field.endswith(end)), "")
        key = field.removesuffix(suffix)
        facts.known.add(key)
        if key in facts.table:
            cell = value_of(facts.table[key])
            known = parse_quantity(cell, _DIMENSIONS[suffix], f"{where}.{key}") if suffix else cell
            given[field] = known
    facts.finish()
    return _core.Engine(**given)


def grammar_backends(name: str) -> dict[str, str]:
    """Backends of guided decoding that an engine has, its default first, with its names of them.

    Examples
    --------
    >>> grammar_backends("vllm_v1")
    {'xgrammar': 'xgrammar', 'llguidance': 'guidance', 'outlines': 'outlines'}
    >>> grammar_backends("tensorrt_llm_triton_2024")
    {}
    """
    return dict(engine_table(name).get("guided", {}).get("backends", {}))


@catalog.kept(64)
def guided_decoding(
    name: str, fraction: float, new_fraction: float, backend: str | None
) -> _core.GuidedDecoding:
    """What guided requests cost the CPU of an engine.

    Parameters
    ----------
    name : str
        Catalogue name of the engine.
    fraction, new_fraction : float
        Of the requests, those that follow a grammar; of these, those whose grammar is new.
    backend : str, optional
        What fills the masks; the engine's default when left out.

    Raises
    ------
    ScaleModelError : the engine has no guided decoding, or not by this backend.

    Examples
    --------
    >>> guided_decoding("sglang_2025", 0.5, 0.0, None)
    GuidedDecoding(guided_fraction=0.5, mask_s=4e-05, advance_s=1.4e-05)
    """
    known = grammar_backends(name)
    if not known:
        raise ScaleModelError(f"guided_fraction={fraction:g}: {name} has no guided decoding")
    chosen = backend or next(iter(known))
    if chosen not in known:
        raise ScaleModelError(
            f"grammar_backend={chosen!r}: {name} has none of that name; must be one of "
            f"{', '.join(known)}"
        )
    table = catalog.load("reference", "guided_decoding")
    facts = table[chosen]
    waits = Reader(engine_table(name)["guided"], f"engines/{name}.toml: guided")
    return _core.GuidedDecoding(
        guided_fraction=fraction,
        mask_s=float(facts["mask"]["value"]),
        advance_s=float(table["tokens"]["advance"]["value"]),
        update_s=waits.quantity("update", "s", 0.0),
        compile_s=new_fraction * float(facts["compile"]["value"]),
    )


def engine_for(text: str) -> str:
    """Catalogue name of the engine that a text such as ``"TensorRT-LLM 0.17"`` means.

    The version whose first release is the latest not after the one named; the latest of all where
    the text names no release, but of those whose entry asks for one (`named_release_only`). Of
    engines that a text may mean, the one of the highest ``priority``: vLLM on Neuron is not vLLM.

    Raises
    ------
    ScaleModelError : no engine of the catalogue goes by such a name.

    Examples
    --------
    >>> engine_for("TensorRT-LLM 0.17"), engine_for("vLLM v0.11.0"), engine_for("SGLang")
    ('tensorrt_llm_2025', 'vllm_v1', 'sglang_2025')
    >>> engine_for("vLLM 0.24.0"), engine_for("vLLM"), engine_for("vLLM V1")
    ('vllm_2026', 'vllm_v1', 'vllm_v1')
    >>> engine_for("vLLM 0.9 (Neuron)")
    'neuronx_2025'
    """
    if text in catalog.names("engines"):
        return text
    lowered = text.lower()
    meant: dict[int, list[tuple[tuple[int, ...], str, tuple[int, ...]]]] = {}
    for name in catalog.names("engines"):
        table = catalog.load("engines", name)
        found = next((p for p in table.get("patterns", ()) if p in lowered), None)
        if found is not None:
            release = version_of(lowered.split(found, 1)[1].strip(" v-_/="))
            if len(release) < 2:  # "vLLM V1" names a design, "SGLang 2" nothing that was released
                release = ()
            if not release and table.get("named_release_only", False):
                continue
            version = version_of(str(table["version_from"])), name, release
            meant.setdefault(table.get("priority", 0), []).append(version)
    if not meant:
        return catalog.find("engines", text)
    versions = sorted(meant[max(meant)])
    reached = [name for first, name, release in versions if release and first <= release]
    return reached[-1] if reached else versions[0 if versions[0][2] else -1][1]
