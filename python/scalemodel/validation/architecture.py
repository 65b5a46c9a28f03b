"""Published runs: the architecture of a row, from its columns or the model that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.validation.labels import understood
from scalemodel.validation.rows import Row, SkippedRowError

ARCHITECTURE_COLUMNS = ("n_layers", "hidden", "n_heads", "ffn", "vocab")

_LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512}  # DeepSeek-V2, arXiv:2405.04434, section 3.1


@dataclass(frozen=True)
class Family:
    """Conventions of a model family for what the columns do not tell."""

    position: str
    norm: str
    gated: bool
    biases: bool
    tied_embeddings: bool


_GPT = Family("learned", "layernorm", gated=False, biases=True, tied_embeddings=True)
_LLAMA = Family("rope", "rmsnorm", gated=True, biases=False, tied_embeddings=False)
_FAMILIES = {
    "gpt": _GPT,
    "mpt": _GPT,
    "opt": _GPT,
    "nemotron": Family("rope", "layernorm", gated=False, biases=False, tied_embeddings=False),
    "bloom": Family("alibi", "layernorm", gated=False, biases=True, tied_embeddings=True),
    "llama": _LLAMA,
    "moe": _LLAMA,
}


def _latent_attention(head_dim: str, arch_note: str, notes: list[str]) -> dict[str, int]:
    """Multi-head latent attention of a head_dim cell such as ``MLA qk128+64 v128``."""
    sizes = re.search(r"qk\s*(\d+)\s*\+\s*(\d+)\s*v\s*(\d+)", head_dim, re.IGNORECASE)
    if sizes is None:
        raise SkippedRowError("missing:head_dim")
    nope, rope, value = (int(size) for size in sizes.groups())
    table = {"head_dim": nope + rope, "qk_rope_head_dim": rope, "v_head_dim": value}
    for key, default in _LATENT.items():
        stem = key.removesuffix("_rank")
        rank = re.search(rf"{stem}(?:_rank)?\s*=?\s*(\d+)", arch_note, re.IGNORECASE)
        table[key] = int(rank.group(1)) if rank else default
        if rank is None:
            notes.append(f"{key} {default} assumed")
    return table


def _noted_latent(note: str) -> dict[str, int]:
    """Latent attention by sizes in a note: ``MLA (kv rank 512, rope 64, nope 128, v 128)``.

    Nothing where the note leaves one of them out; without a rank queries are projected at once.
    """
    if not re.search(r"\bmla\b", note):
        return {}
    found = {
        name: re.search(rf"\b{pattern}\s*=?\s*(\d+)", note)
        for name, pattern in (
            ("kv_lora_rank", r"kv(?:[_ ]lora)?[_ ]rank"),
            ("qk_rope_head_dim", "rope"),
            ("nope", "nope"),
            ("v_head_dim", "v"),
        )
    }
    if any(size is None for size in found.values()):
        return {}
    sizes = {name: int(size.group(1)) for name, size in found.items() if size is not None}
    query = re.search(r"\bq(?:[_ ]lora)?[_ ]rank\s*=?\s*(\d+)", note)
    sizes["head_dim"] = sizes.pop("nope") + sizes["qk_rope_head_dim"]
    return sizes | {"q_lora_rank": int(query.group(1)) if query else 0}


def _head_dim(size: float, notes: list[str]) -> int:
    """A whole head size; a fraction, of an uneven count, stands for an aligned one."""
    if size == int(size):
        return int(size)
    aligned = max(8, 8 * round(size / 8))
    notes.append(f"head_dim {size:g} taken as {aligned}")
    return aligned


def _attention(row: Row, base: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    heads = row.count("n_heads") or base.get("heads")
    if heads is None:
        raise SkippedRowError("missing:n_heads")
    table["heads"] = heads
    kv_heads = row.count("n_kv_heads")
    if kv_heads is None and "kv_heads" not in base:
        kv_heads = heads
        notes.append("n_kv_heads = n_heads assumed")
    if kv_heads is not None:
        table["kv_heads"] = kv_heads
    head_dim = row.text("head_dim")
    if head_dim.lower().startswith("mla"):
        table |= _latent_attention(head_dim, row.text("arch_note"), notes)
    elif (size := row.number("head_dim")) is not None and size >= 1:
        table["head_dim"] = _head_dim(size, notes)
    elif "head_dim" not in base:
        table["head_dim"] = max(1, round((row.count("hidden") or base["hidden"]) / heads))
    note = row.text("arch_note").lower()
    if not head_dim.lower().startswith("mla"):
        table |= _noted_latent(note)
    if window := re.search(r"sliding[- ]window\D{0,12}(\d+)", note):
        table["window"] = int(window.group(1))
        table["full_attention_every"] = 2 if "alternat" in note else 0
    return table


def _experts(row: Row, ffn: int) -> dict[str, Any]:
    experts = row.count("moe_experts", least=0) or 0
    if experts == 0:
        return {}
    note = row.text("arch_note").lower()
    dense = re.search(r"(\d+)\s+dense\s+layer", note)
    first = re.search(r"\bfirst (?:layer (?:is )?dense|dense layer)\b", note)
    every = re.search(r"moe every (\d+)(?:st|nd|rd|th)? layer|moe every layer", note)
    return {
        "experts": experts,
        "experts_per_token": row.required_count("moe_topk"),
        "shared_experts": row.count("moe_shared", least=0) or 0,
        "expert_ffn": row.count("moe_ffn") or ffn,
        "first_dense_layers": int(dense.group(1)) if dense else int(first is not None),
        "moe_every": int(every.group(1) or 1) if every else 1,
    }


def _conventions(row: Row, gated: bool | None) -> Family:
    """Conventions of the row's family; a family without an entry follows its gated MLP."""
    family = row.text("model_family").lower()
    return _FAMILIES.get(family, _GPT if gated is False else _LLAMA)


@catalog.kept(1024)
def _catalogue_name(name: str) -> str | None:
    """Entry that a model's name means: tables name a model that is unknown in many rows."""
    try:
        return understood("models", name)[0]
    except ScaleModelError:
        return None


def _catalogue_architecture(name: str) -> dict[str, Any] | None:
    """Architecture of a catalogue model, or None when the catalogue does not know the name."""
    entry = _catalogue_name(name)
    if entry is None:
        return None
    try:
        table = catalog.load("models", entry)["architecture"]
    except (ScaleModelError, KeyError):
        return None
    return {key: value for key, value in table.items() if key != "source"}


_SAME_PARAMETERS = 0.01  # relative; nominal sizes are farther off, exact counts are not


def _tied_embeddings(row: Row, table: Mapping[str, Any]) -> bool | None:
    """Whether the head shares the embedding's weights, by the parameters that the row states.

    None where neither count comes near what is stated, or both do.
    """
    from scalemodel import resolve

    stated = row.number("params_B")
    if stated is None:
        return None
    near = []
    for tied in (False, True):
        card = {"name": "row", "architecture": {**table, "tied_embeddings": tied}}
        try:
            count = resolve.model(card).parameters
        except ScaleModelError:
            return None
        if abs(1e9 * stated - count) <= _SAME_PARAMETERS * count:
            near.append(tied)
    return near[0] if len(near) == 1 else None


#: What no column tells of a model.
_UNLISTED = (
    *("qkv_bias", "out_bias", "expert_bias", "router_bias", "attention_sinks"),
    *("clamped_activation", "kv_shared_ffn", "bidirectional", "head_transform"),
    *("attention_experts", "expert_groups", "groups_per_token"),
)
_SIZES = ("hidden", "heads", "vocab", "experts")


def _unlisted(row: Row, table: Mapping[str, Any]) -> dict[str, Any]:
    """What no column tells, from the catalogue's model of that name if it has the row's sizes."""
    known = _catalogue_architecture(row.text("model")) or {}
    if any(known.get(size, 0) != table.get(size, 0) for size in _SIZES):
        return {}
    return {key: known[key] for key in _UNLISTED if key in known}


#: Multi-token prediction as recipes of hybrid models train it: one block, run twice a step, each
#: time with the whole head (NVIDIA-NeMo/Megatron-Bridge, perf_recipes/nemotronh, mtp_num_layers).
_REPEATED_PREDICTION = 2
_RECURRENT = frozenset("RPpZ")  # letters of mixers that keep a state


def _named(row: Row, found: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Architecture of a model that its name tells and columns cannot, or do not."""
    notes.append("architecture of the named model")
    stated = re.search(r"mtp_num_layers\s*=\s*(\d+)", row.text("other_flags"))
    if stated:
        found["mtp_layers"] = int(stated[1])
    elif found.get("mtp_layers") and _RECURRENT & set(str(found.get("mixers", ""))):
        found["mtp_layers"] = _REPEATED_PREDICTION
    return found


def _hybrid(row: Row, notes: list[str]) -> dict[str, Any]:
    """Architecture of a model with recurrent mixers: columns cannot tell it, its name can."""
    found = _catalogue_architecture(row.text("model"))
    if found is None:
        raise SkippedRowError("unsupported:architecture")
    return _named(row, found, notes)


def architecture(row: Row, notes: list[str]) -> dict[str, Any]:
    """Architecture of a row: its columns, then the catalogue entry of its model name.

    Raises
    ------
    SkippedRowError
        The columns are incomplete, or say that the layers are not a transformer's, and no
        catalogue model has the name.
    """
    note = row.text("arch_note").lower()
    if "mamba" in note or row.text("model_family").lower() == "hybrid":
        return _hybrid(row, notes)
    base: dict[str, Any] = {}
    incomplete = [name for name in ARCHITECTURE_COLUMNS if row.number(name) is None]
    if incomplete:
        found = _catalogue_architecture(row.text("model"))
        if found is None:
            if row.text("model"):
                raise SkippedRowError(f"unknown_architecture:{row.text('model')}")
            raise SkippedRowError(f"missing:{incomplete[0]}")
        if len(incomplete) == len(ARCHITECTURE_COLUMNS):
            return _named(row, found, notes)
        base = found
        notes.append("architecture of the named model")
    table: dict[str, Any] = {}
    for key, column in (("layers", "n_layers"), ("hidden", "hidden"), ("vocab", "vocab")):
        value = row.count(column)
        if value is not None or key not in base:
            table[key] = row.required_count(column) if value is None else value
    table |= _attention(row, base, notes)
    ffn = row.count("ffn")
    if ffn is None and "ffn" not in base:
        raise SkippedRowError("missing:ffn")
    if ffn is not None:
        table["ffn"] = ffn
    gated = row.flag("gated_ffn")
    if gated is not None:
        table["gated"] = gated
    if not base:
        family = _conventions(row, gated)
        table |= {
            "gated": family.gated if gated is None else gated,
            "position": family.position,
            "norm": family.norm,
            "tied_embeddings": family.tied_embeddings,
            "qkv_bias": family.biases,
            "out_bias": family.biases,
            "mlp_bias": family.biases,
        }
        if family.position == "learned":
            table["positions"] = row.required_count("seq_len")
    table |= _experts(row, ffn if ffn is not None else base["ffn"])
    if not base:
        table |= _unlisted(row, table)
        tied = _tied_embeddings(row, table)
        if tied is not None:
            table["tied_embeddings"] = tied
    dense = table.get("first_dense_layers", 0)
    if row.text("params_B").lower() == "proxy" and dense > 1:
        # The full model has dozens of layers behind these; a few-layer proxy of it keeps one.
        table["first_dense_layers"] = 1
        notes.append(f"proxy: 1 of {dense} leading dense layers kept")
    if re.search(r"\bmtp\b", row.text("other_flags"), re.IGNORECASE):
        table["mtp_layers"] = 1
    return base | table
