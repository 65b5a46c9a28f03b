"""Read the architecture of a model from its Hugging Face ``config.json``, without weights.

One row of `families.FAMILIES` per ``model_type``: what the model's code fixes, which key holds
which number, and the few steps that a plain renaming cannot say. The result is the
``[architecture]`` table of a catalogue entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, NoReturn

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face.decoders import (
    ALIASES,
    DECODERS,
    family_of,
    nearest_family,
)
from scalemodel.resolve.hugging_face.families import FAMILIES, VERSIONED, WRAPPERS
from scalemodel.resolve.hugging_face.reading import Config, malformed, shown
from scalemodel.resolve.hugging_face.steps import Architecture, check_experts, complete_heads
from scalemodel.resolve.hugging_face.vision import SOUND, vision_from_config

__all__ = ["architecture_from_config", "vision_from_config"]

# Left out of the result when they hold; the schema says the same.
_DEFAULTS: Final[Mapping[str, object]] = {
    "qkv_bias": False,
    "out_bias": False,
    "mlp_bias": False,
    "qk_norm": False,
    "qk_norm_full": False,
    "window": 0,
    "full_attention_every": 0,
    "parallel_block": False,
    "embedding_norm": False,
    "experts": 0,
    "experts_per_token": 0,
    "shared_experts": 0,
    "expert_ffn": 0,
    "shared_ffn": 0,
    "router_bias": False,
    "expert_bias": False,
    "clamped_activation": False,
    "shared_expert_gate": False,
    "first_dense_layers": 0,
    "moe_every": 1,
    "mtp_layers": 0,
    "attention_sinks": False,
    "head_bias": False,
    "mixers": "",
    "feed_forwards": "",
    "attention_gate": "none",
    "attention_experts": False,
    "shared_values": False,
    "expert_latent": 0,
    "zero_experts": 0,
    "expert_groups": 0,
    "groups_per_token": 0,
    "residual_streams": 1,
    "attention_residuals": 0,
    "scan_norm": False,
    "scan_bias": False,
    "conv_bias": False,
    "scan_rank": 0,
    "near_ratio": 0,
    "far_ratio": 0,
    "layer_embedding": 0,
    "ngram_rows": 0,
    "residual_rank": 0,
    "scan_full_decay": False,
    "kv_shared_ffn": 0,
    "shared_blocks": 0,
    "shared_rank": 0,
    "shared_attention_rank": 0,
    "bidirectional": False,
    "head_transform": False,
    "kv_shared_layers": 0,
    "encoder_moe_every": 0,
    "encoder_vocab": 0,
    "second_ffn": 0,
    "kv_sources": "",
    "loop_start": 0,
    "loop_layers": 0,
    "loop_passes": 1,
    "fused_mixers": False,
    "norm_rank": 0,
    "router_rank": 0,
    "ffn_receptance": False,
    "stream_rank": 0,
}


#: Where the language model of a larger one is described.
_TEXT_SECTIONS: Final = ("text_config", "llm_config", "language_config")


def architecture_from_config(
    config: Mapping[str, object], *, approximate: bool = False
) -> tuple[Architecture, list[str]]:
    """Architecture table of a Hugging Face ``config.json``.

    Parameters
    ----------
    config : mapping
        The parsed file. Of a model with a vision tower only ``text_config`` is read; the tower is
        what `vision_from_config` reads.
    approximate : bool
        Read an unknown family as the nearest known shape, which ``source`` of the result names.

    Returns
    -------
    architecture : dict
        The ``[architecture]`` table of a catalogue entry; keys at their default are left out.
    unknown : list of str
        Keys that are not understood and may change the cost, sorted; nested keys are dotted.

    Raises
    ------
    ScaleModelError : the family is unknown, a required key is missing, or a value is not legal;
        the message names the key and its value.

    Examples
    --------
    >>> architecture, unknown = architecture_from_config(
    ...     {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    ...      "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    ...      "vocab_size": 128256, "rope_theta": 500000.0, "hidden_layers": 32})
    >>> architecture["layers"], architecture["kv_heads"], architecture["head_dim"]
    (32, 8, 128)
    >>> unknown
    ['hidden_layers']
    """
    outer = Config(config)
    model_type = outer.text("model_type")
    whole, unknown = outer, []
    thinker = outer.section("thinker_config", optional=True)
    if thinker.raw:  # a model that also speaks: its language model stands a table deeper
        outer = thinker
    outer.value("vision_config"), outer.value("downsample_ratio")
    if model_type in SOUND:  # its tower is what `vision_from_config` reads
        outer.value("audio_config")
    section = next((key for key in _TEXT_SECTIONS if outer.value(key)[1] is not None), "")
    if model_type in WRAPPERS or section:
        inner = outer.section(section or "text_config", inherit=("tie_word_embeddings",))
    else:
        inner = outer
    if inner is not outer:  # what some files say of the language model once more, its section wins
        for key in outer.raw.keys() & inner.raw.keys():
            outer.value(key)
    text_type = inner.text("model_type", default="") if inner is not outer else model_type
    if inner is outer and model_type in VERSIONED:
        text_type = _of_version(outer, VERSIONED[model_type])
    named = outer.items("architectures") or ()
    classes = [name for name in named if isinstance(name, str)]
    known = family_of(*classes, text_type, WRAPPERS.get(model_type, model_type))
    source = f"Hugging Face config.json, {model_type}"
    if known is None:
        if not approximate:
            _unknown_family(model_type)
        shape, known = nearest_family(inner.raw)
        source += f", an unknown family read as {shape}"
    family = known

    architecture: Architecture = {"source": source}
    architecture |= family.fixed
    for name, count in family.counts.items():
        value = inner.count(count)
        if value is not None:
            architecture[name] = value
    for names, key, default in family.flags:
        architecture |= dict.fromkeys(names, inner.flag(key, default))
    for step in family.steps:
        unknown += step(inner, architecture) or []
    if inner.value("swiglu_limit")[1] is not None:
        architecture["clamped_activation"] = True
    tied = whole.value("tie_word_embeddings")[1]
    if inner is not whole and isinstance(tied, bool):  # what the whole model says wins
        architecture["tied_embeddings"] = tied
    complete_heads(architecture)
    check_experts(architecture)

    for table in {id(table): table for table in (whole, outer, inner)}.values():
        unknown += table.unknown()
    kept = {k: v for k, v in architecture.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
    return kept, sorted(set(unknown))


def _of_version(config: Config, families: Mapping[str, str]) -> str:
    """The family of the language model that a version of a model with images has."""
    name, version = config.value("version")
    for key in ("slice_config", "slice_mode", "query_num", "batch_vision_input", "use_image_id"):
        config.value(key)
    config.value("drop_vision_last_layer"), config.value("vision_batch_size")
    family = families.get(str(version))
    if family is None:
        raise malformed(name, version, f"one of {', '.join(families)}")
    return family


def _unknown_family(model_type: str) -> NoReturn:
    names = {*FAMILIES, *WRAPPERS, *DECODERS, *ALIASES, *VERSIONED}
    known = sorted(name for name in names if not name.endswith("ForCausalLM"))
    near = difflib.get_close_matches(model_type, known, n=3, cutoff=0.5)
    listed = near + [name for name in known if name not in near]
    raise ScaleModelError(
        f"config.json: model_type = {shown(model_type)} is not a known family; "
        f"known, nearest first: {', '.join(listed)}; `approximate=True` reads it as the shape that "
        "its keys describe",
        code="unknown_family",
        details={"model_type": model_type},
    )
