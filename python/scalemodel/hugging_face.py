"""Read the architecture of a model from its Hugging Face ``config.json``, without weights.

One row of `_FAMILIES` per ``model_type``: what the model's code fixes, which key holds which
number, and the few steps that a plain renaming cannot say. The result is the ``[architecture]``
table of a catalogue entry.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from scalemodel.errors import ScaleModelError

__all__ = ["architecture_from_config"]

Architecture = dict[str, object]


def architecture_from_config(config: Mapping[str, object]) -> tuple[Architecture, list[str]]:
    """Architecture table of a Hugging Face ``config.json``.

    Parameters
    ----------
    config : mapping
        The parsed file. Of a model with a vision tower only ``text_config`` is read.

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
    outer = _Config(config)
    model_type = outer.text("model_type")
    unknown: list[str] = []
    if model_type in _WRAPPERS:
        inner = outer.section("text_config", inherit=("tie_word_embeddings",))
        inner.text("model_type", default="")
        family = _FAMILIES[_WRAPPERS[model_type]]
    else:
        inner = outer
        if model_type not in _FAMILIES:
            _unknown_family(model_type)
        family = _FAMILIES[model_type]

    architecture: Architecture = {"source": f"Hugging Face config.json, {model_type}"}
    architecture |= family.fixed
    for name, count in family.counts.items():
        value = inner.count(count)
        if value is not None:
            architecture[name] = value
    for names, key, default in family.flags:
        architecture |= dict.fromkeys(names, inner.flag(key, default))
    for step in family.steps:
        unknown += step(inner, architecture) or []
    _complete_heads(architecture)
    _check_experts(architecture)

    unknown += outer.unknown()
    if inner is not outer:
        unknown += inner.unknown()
    kept = {k: v for k, v in architecture.items() if k not in _DEFAULTS or v != _DEFAULTS[k]}
    return kept, sorted(set(unknown))


# --------------------------------------------------------------------------- reading with checks

_REQUIRED: Final = -1
_LARGEST: Final = 10_000_000
_LARGEST_ROWS: Final = 100_000_000
_LARGEST_LAYERS: Final = 10_000

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
    "shared_expert_gate": False,
    "first_dense_layers": 0,
    "moe_every": 1,
    "mtp_layers": 0,
    "attention_sinks": False,
    "head_bias": False,
}


@dataclass(frozen=True)
class _Count:
    """Where a whole number stands in a config: its key, then older spellings of it."""

    names: tuple[str, ...]
    default: int | None = _REQUIRED
    minimum: int = 1
    largest: int = _LARGEST


def _key(*names: str, default: int | None = _REQUIRED, minimum: int = 1) -> _Count:
    return _Count(names, default, minimum)


def _layers(*names: str) -> _Count:
    return _Count(names, largest=_LARGEST_LAYERS)


def _rows(*names: str, default: int | None = _REQUIRED) -> _Count:
    return _Count(names, default, 1, _LARGEST_ROWS)


class _Config:
    """One mapping of the file, which remembers the keys it was asked for.

    ``null`` means the same as an absent key, as in the transformers library.
    """

    def __init__(self, raw: object, path: str = "", inherited: Mapping[str, object] | None = None):
        if not isinstance(raw, Mapping):
            name = path.rstrip(".") or "config"
            raise _malformed(name, raw, "a mapping (a JSON object)")
        for key in raw:
            if not isinstance(key, str):
                raise _malformed(f"{path or 'config '}key", key, "a string")
        self._raw: Mapping[str, object] = raw
        self._path = path
        self._inherited = inherited or {}
        self._used: set[str] = set()

    def value(self, *names: str) -> tuple[str, object]:
        """Path and value of the first of `names` that is set; the value is None if none is."""
        found: tuple[str, object] | None = None
        for name in names:
            self._used.add(name)
            value = self._raw.get(name)
            if value is None:
                value = self._inherited.get(name)
            if value is not None and found is None:
                found = (self._path + name, value)
        return found or (self._path + names[0], None)

    def count(self, spec: _Count) -> int | None:
        name, value = self.value(*spec.names)
        if value is None:
            if spec.default == _REQUIRED:
                raise self._missing(spec.names)
            return spec.default
        legal = f"a whole number from {spec.minimum} to {spec.largest:,}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise _malformed(name, value, legal)
        if not spec.minimum <= value <= spec.largest:
            raise _malformed(name, value, legal)
        return int(value)

    def number(self, *names: str, default: int, minimum: int = 0) -> int:
        """As `count`, for a key that always has a default."""
        value = self.count(_key(*names, default=default, minimum=minimum))
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        path, value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _malformed(path, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        path, value = self.value(name)
        if value is None:
            if default is None:
                raise self._missing((name,))
            return default
        if not isinstance(value, str):
            raise _malformed(path, value, "a string")
        return value

    def items(self, name: str) -> Sequence[object] | None:
        path, value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise _malformed(path, value, "a list")
        return value

    def section(self, name: str, *, inherit: Iterable[str] = (), optional: bool = False) -> _Config:
        path, value = self.value(name)
        inherited = {key: self.value(key)[1] for key in inherit}
        if value is None and not optional:
            raise self._missing((name,))
        return _Config({} if value is None else value, path + ".", inherited)

    def unknown(self) -> list[str]:
        """Keys that nobody asked for and that may change the cost."""
        return [
            self._path + key
            for key, value in self._raw.items()
            if value is not None
            and key not in self._used
            and key not in _COSTLESS
            and not key.startswith("_")
        ]

    def _missing(self, names: tuple[str, ...]) -> ScaleModelError:
        wanted = " or ".join(f"`{self._path}{name}`" for name in names)
        near = difflib.get_close_matches(names[0], self._raw.keys() - self._used, n=1)
        hint = f"; did you mean `{near[0]}` to be `{names[0]}`?" if near else ""
        return ScaleModelError(f"config.json: required key {wanted} is missing{hint}")


def _show(value: object) -> str:
    try:
        return reprlib.repr(value)
    except Exception:  # an integer of thousands of digits, or an object that cannot print itself
        return f"<{type(value).__name__}>"


def _malformed(name: str, value: object, legal: str) -> ScaleModelError:
    return ScaleModelError(f"config.json: {name} = {_show(value)}; legal is {legal}")


def _unknown_family(model_type: str) -> NoReturn:
    known = sorted({*_FAMILIES, *_WRAPPERS})
    near = difflib.get_close_matches(model_type, known, n=3, cutoff=0.5)
    listed = near + [name for name in known if name not in near]
    raise ScaleModelError(
        f"config.json: model_type = {_show(model_type)} is not a known family; "
        f"known, nearest first: {', '.join(listed)}",
        code="unknown_family",
        details={"model_type": model_type},
    )


# ------------------------------------------------------------------ steps that renaming cannot say

_Step = Callable[[_Config, Architecture], "list[str] | None"]


def _whole(architecture: Architecture, name: str, default: int = 0) -> int:
    value = architecture.get(name, default)
    assert isinstance(value, int)
    return value


def _complete_heads(architecture: Architecture) -> None:
    hidden, heads = _whole(architecture, "hidden"), _whole(architecture, "heads")
    if "head_dim" not in architecture:
        if hidden % heads:
            raise ScaleModelError(
                f"config.json: hidden size {hidden} is not a multiple of {heads} attention heads; "
                "legal is a multiple, or an explicit `head_dim`"
            )
        architecture["head_dim"] = hidden // heads
    kv_heads = _whole(architecture, "kv_heads") if "kv_heads" in architecture else heads
    architecture["kv_heads"] = kv_heads
    if heads % kv_heads:
        raise ScaleModelError(
            f"config.json: {kv_heads} key/value heads do not divide {heads} attention heads; "
            "legal is a divisor of the attention heads"
        )


def _check_experts(architecture: Architecture) -> None:
    experts, active = _whole(architecture, "experts"), _whole(architecture, "experts_per_token")
    if experts and not 1 <= active <= experts:
        raise _malformed("experts per token", active, f"1 to the number of experts, {experts}")
    dense, layers = _whole(architecture, "first_dense_layers"), _whole(architecture, "layers")
    if dense > layers:
        raise _malformed("leading dense layers", dense, f"0 to the number of layers, {layers}")


def _four_times_hidden(config: _Config, architecture: Architecture) -> None:
    architecture.setdefault("ffn", 4 * _whole(architecture, "hidden"))


def _no_cross_attention(config: _Config, architecture: Architecture) -> list[str]:
    return ["add_cross_attention"] if config.flag("add_cross_attention", False) else []


def _two_offset_positions(config: _Config, architecture: Architecture) -> list[str]:
    """OPT keeps two rows before position 0, and may embed in a narrower space."""
    architecture["positions"] = _whole(architecture, "positions") + 2
    affine = config.flag("layer_norm_elementwise_affine", True)
    architecture["norm"] = "layernorm" if affine else "nonparametric"
    narrow = config.number("word_embed_proj_dim", default=_whole(architecture, "hidden"), minimum=1)
    return ["word_embed_proj_dim"] if narrow != architecture["hidden"] else []


def _multi_query(config: _Config, architecture: Architecture) -> None:
    if config.flag("multi_query", True):
        architecture["kv_heads"] = 1


def _falcon(config: _Config, architecture: Architecture) -> None:
    """Falcon-7B shares one norm; the new decoder gives attention and MLP a norm each."""
    _four_times_hidden(config, architecture)
    heads = _whole(architecture, "heads")
    kv_heads = config.number("num_kv_heads", "n_head_kv", default=heads, minimum=1)
    multi_query = config.flag("multi_query", True)
    new_decoder = config.flag("new_decoder_architecture", False)
    parallel = config.flag("parallel_attn", True)
    norms = config.number("num_ln_in_parallel_attn", default=2 if new_decoder else 1, minimum=1)
    if norms > 2:
        raise _malformed("num_ln_in_parallel_attn", norms, "1 or 2")
    architecture["kv_heads"] = kv_heads if new_decoder else 1 if multi_query else heads
    architecture["parallel_block"] = parallel
    architecture["norms_per_layer"] = norms if parallel else 2
    architecture["position"] = "alibi" if config.flag("alibi", False) else "rope"


def _mpt(config: _Config, architecture: Architecture) -> list[str]:
    hidden, heads = _whole(architecture, "hidden"), _whole(architecture, "heads")
    name, ratio = config.value("expansion_ratio")
    ratio = 4 if ratio is None else ratio
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1000:
        raise _malformed(name, ratio, "a number above 0, at most 1000")
    ffn = int(ratio * hidden)
    if not 1 <= ffn <= _LARGEST:
        raise _malformed(name, ratio, f"a ratio that makes an MLP 1 to {_LARGEST:,} wide")
    architecture["ffn"] = ffn
    bias = not config.flag("no_bias", True)
    architecture |= dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), bias)
    rms = "rms" in config.text("norm_type", default="low_precision_layernorm").lower()
    architecture["norm"] = "rmsnorm" if rms else "layernorm" if bias else "layernorm_nobias"

    attention = config.section("attn_config", optional=True)
    kind = attention.text("attn_type", default="multihead_attention")
    kv_heads = attention.number("kv_n_heads", default=heads, minimum=1)
    architecture["kv_heads"] = {"multiquery_attention": 1, "grouped_query_attention": kv_heads}.get(
        kind, heads
    )
    architecture["qk_norm_full"] = attention.flag("qk_ln", False)
    architecture["window"] = max(0, attention.number("sliding_window_size", default=0, minimum=-1))
    positions = config.count(_rows("max_seq_len", default=2048))
    if attention.flag("alibi", False):
        architecture["position"] = "alibi"
        config.flag("learned_pos_emb", True)
    elif attention.flag("rope", False):
        architecture["position"] = "rope"
        config.flag("learned_pos_emb", True)
    elif config.flag("learned_pos_emb", True):
        architecture |= {"position": "learned", "positions": positions}
    else:
        architecture["position"] = "none"
    return attention.unknown()


def _dbrx(config: _Config, architecture: Architecture) -> list[str]:
    attention = config.section("attn_config", optional=True)
    heads = _whole(architecture, "heads")
    architecture["kv_heads"] = attention.number("kv_n_heads", default=heads, minimum=1)
    ffn = config.section("ffn_config")
    width = ffn.count(_key("ffn_hidden_size"))
    architecture |= {
        "ffn": width,
        "expert_ffn": width,
        "experts": ffn.count(_key("moe_num_experts", default=4)),
        "experts_per_token": ffn.count(_key("moe_top_k", default=1)),
    }
    return attention.unknown() + ffn.unknown()


def _neox(config: _Config, architecture: Architecture) -> None:
    architecture["parallel_block"] = config.flag("use_parallel_residual", True)


def _stablelm(config: _Config, architecture: Architecture) -> None:
    parallel = config.flag("use_parallel_residual", False)
    architecture["parallel_block"] = parallel
    architecture["norms_per_layer"] = 1 if parallel else 2


def _attention_pattern(config: _Config, layers: int) -> tuple[bool, int] | None:
    """Say if some layer has a window, and n of "every n-th layer is full"; None if not stated."""
    listed = config.items("layer_types")
    if listed is None:
        return None
    known = ("full_attention", "sliding_attention", "chunked_attention")
    if len(listed) != layers or any(kind not in known for kind in listed):
        raise _malformed("layer_types", listed, f"a list of {layers} of {', '.join(known)}")
    full = [kind == "full_attention" for kind in listed]
    if all(full):
        return False, 0
    if not any(full):
        return True, 0
    every = full.index(True) + 1
    if full != [(layer + 1) % every == 0 for layer in range(layers)]:
        raise _malformed("layer_types", listed, "a regular list: every n-th layer is full")
    return True, every


def _sliding_window(every: int) -> _Step:
    """`sliding_window`, with every `every`-th layer full (0: none) unless `layer_types` differs."""

    def step(config: _Config, architecture: Architecture) -> None:
        window = config.number("sliding_window", default=0)
        period = config.number("sliding_window_pattern", "_sliding_window_pattern", default=every)
        pattern = _attention_pattern(config, _whole(architecture, "layers"))
        some, full_every = (True, period) if pattern is None else pattern
        if full_every == 1:
            some, full_every = False, 0
        architecture["window"] = window if some else 0
        architecture["full_attention_every"] = full_every if some and window else 0

    return step


def _qwen_window(config: _Config, architecture: Architecture) -> list[str]:
    """Qwen writes a window it does not use; when used, the first `max_window_layers` are full."""
    layers = _whole(architecture, "layers")
    window = config.number("sliding_window", default=0)
    full_layers = config.number("max_window_layers", default=layers)
    used = config.flag("use_sliding_window", False) and window > 0
    pattern = _attention_pattern(config, layers)
    if pattern is not None:
        some, every = pattern
        if some and window:
            architecture |= {"window": window, "full_attention_every": every}
        return []
    if used and full_layers == 0:
        architecture["window"] = window
    return ["max_window_layers"] if used and 0 < full_layers < layers else []


def _llama4(config: _Config, architecture: Architecture) -> None:
    """Chunked attention stands as a window; the layers without rotary embedding are full."""
    layers = _whole(architecture, "layers")
    chunk = config.number("attention_chunk_size", default=0)
    pattern = _attention_pattern(config, layers)
    interval = config.number("no_rope_layer_interval", default=4, minimum=1)
    rotary = config.items("no_rope_layers")
    if rotary:
        if len(rotary) != layers or any(flag not in (0, 1) for flag in rotary):
            raise _malformed("no_rope_layers", rotary, f"a list of {layers} of 0 or 1")
        first = rotary.index(0) + 1 if 0 in rotary else layers + 1
        if [bool(flag) for flag in rotary] != [(i + 1) % first != 0 for i in range(layers)]:
            raise _malformed("no_rope_layers", rotary, "a regular list: every n-th layer is 0")
        interval = first
    some, every = (interval > 1, interval) if pattern is None else pattern
    architecture["window"] = chunk if some else 0
    architecture["full_attention_every"] = every if some and chunk and every <= layers else 0

    moe_every = _whole(architecture, "moe_every")
    listed = config.items("moe_layers")
    if listed and list(listed) != list(range(moe_every - 1, layers, moe_every)):
        raise _malformed("moe_layers", listed, f"every {moe_every}-th layer")
    # The norm of queries and keys has no weights and no cost worth counting.
    config.flag("use_qk_norm", True)


def _leading_dense(config: _Config, architecture: Architecture) -> None:
    """`mlp_only_layers` of Qwen: only leading layers may be dense."""
    listed = config.items("mlp_only_layers")
    if listed:
        if any(isinstance(i, bool) for i in listed) or list(listed) != list(range(len(listed))):
            raise _malformed("mlp_only_layers", listed, "leading layers: 0, 1, 2, ...")
        architecture["first_dense_layers"] = len(listed)


def _qwen2_shared_expert(config: _Config, architecture: Architecture) -> None:
    width = config.number("shared_expert_intermediate_size", default=0)
    if width:
        architecture |= {"shared_experts": 1, "shared_ffn": width, "shared_expert_gate": True}


def _expert_width_is_ffn(config: _Config, architecture: Architecture) -> None:
    architecture["expert_ffn"] = architecture["ffn"]


def _latent_attention(config: _Config, architecture: Architecture) -> list[str]:
    """Multi-head latent attention: one head is a part without and a part with rotation."""
    rope = config.number("qk_rope_head_dim", default=64, minimum=1)
    plain = config.number("qk_nope_head_dim", default=128, minimum=1)
    architecture |= {
        "kv_heads": architecture["heads"],
        "head_dim": plain + rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": config.number("v_head_dim", default=128, minimum=1),
        "kv_lora_rank": config.count(_key("kv_lora_rank")),
        "q_lora_rank": config.number("q_lora_rank", default=0),
    }
    config.count(_key("num_key_value_heads", default=None))
    unknown = []
    if config.flag("attention_bias", False):
        unknown.append("attention_bias")
    if config.number("moe_layer_freq", default=1, minimum=1) != 1:
        unknown.append("moe_layer_freq")
    if not architecture.get("experts"):
        for name in ("experts_per_token", "shared_experts", "expert_ffn", "first_dense_layers"):
            architecture.pop(name, None)
        architecture["router_bias"] = False
    elif not architecture.get("expert_ffn"):
        raise _malformed("moe_intermediate_size", None, "a whole number above 0")
    return unknown


# ------------------------------------------------------------------------------------ the families


@dataclass(frozen=True)
class _Family:
    """What the code of a family fixes, where its numbers stand, and the remaining steps."""

    fixed: Architecture
    counts: Mapping[str, _Count]
    flags: tuple[tuple[tuple[str, ...], str, bool], ...] = ()
    steps: tuple[_Step, ...] = field(default=())


_BIASES: Final = ("qkv_bias", "out_bias", "mlp_bias")
_ALL_BIASES: Final[Architecture] = dict.fromkeys(_BIASES, True)


def _fixed(position: str, norm: str, gated: bool, norms: int = 2, **more: object) -> Architecture:
    return {
        "position": position,
        "norm": norm,
        "gated": gated,
        "norms_per_layer": norms,
        **more,
    }


def _tied(default: bool) -> tuple[tuple[str, ...], str, bool]:
    return ("tied_embeddings",), "tie_word_embeddings", default


_ATTENTION_BIAS: Final = (("qkv_bias", "out_bias"), "attention_bias", False)
_MLP_BIAS: Final = (("mlp_bias",), "mlp_bias", False)

_SHAPE: Final[Mapping[str, _Count]] = {
    "layers": _layers("num_hidden_layers"),
    "hidden": _key("hidden_size"),
    "vocab": _rows("vocab_size"),
    "heads": _key("num_attention_heads"),
    "kv_heads": _key("num_key_value_heads", default=None),
    "head_dim": _key("head_dim", default=None),
    "ffn": _key("intermediate_size"),
}
_SHAPE_OF_GPT2: Final[Mapping[str, _Count]] = {
    "layers": _layers("n_layer", "num_hidden_layers"),
    "hidden": _key("n_embd", "hidden_size"),
    "vocab": _rows("vocab_size"),
    "heads": _key("n_head", "num_attention_heads"),
    "ffn": _key("n_inner", default=None),
}
_LEARNED: Final = {"positions": _rows("n_positions", "max_position_embeddings", "n_ctx")}
_SHAPE_OF_BLOOM: Final[Mapping[str, _Count]] = {
    "layers": _layers("n_layer", "num_hidden_layers"),
    "hidden": _key("hidden_size", "n_embed"),
    "vocab": _rows("vocab_size"),
    "heads": _key("n_head", "num_attention_heads"),
}
_SHAPE_OF_FALCON: Final[Mapping[str, _Count]] = {
    "layers": _layers("num_hidden_layers", "n_layer"),
    "hidden": _key("hidden_size"),
    "vocab": _rows("vocab_size"),
    "heads": _key("num_attention_heads", "n_head"),
    "ffn": _key("ffn_hidden_size", default=None),
}
_SHAPE_OF_MPT: Final[Mapping[str, _Count]] = {
    "layers": _layers("n_layers"),
    "hidden": _key("d_model"),
    "vocab": _rows("vocab_size"),
    "heads": _key("n_heads"),
}
_MIXTRAL_EXPERTS: Final = {
    "experts": _key("num_local_experts", "num_experts"),
    "experts_per_token": _key("num_experts_per_tok", "experts_per_token"),
}
_QWEN_EXPERTS: Final = {
    "experts": _key("num_experts"),
    "experts_per_token": _key("num_experts_per_tok"),
    "expert_ffn": _key("moe_intermediate_size"),
    "moe_every": _key("decoder_sparse_step", default=1),
}
_DEEPSEEK_EXPERTS: Final = {
    "experts": _key("n_routed_experts", default=None),
    "experts_per_token": _key("num_experts_per_tok", default=None),
    "expert_ffn": _key("moe_intermediate_size", default=None),
    "shared_experts": _key("n_shared_experts", default=None, minimum=0),
    "first_dense_layers": _key("first_k_dense_replace", default=0, minimum=0),
    "mtp_layers": _key("num_nextn_predict_layers", default=0, minimum=0),
}
_SHAPE_OF_DEEPSEEK: Final = {
    **{k: v for k, v in _SHAPE.items() if k not in ("kv_heads", "head_dim")},
    **_DEEPSEEK_EXPERTS,
}
# gemma-3 files leave out what equals the default of the family's configuration class.
_SHAPE_OF_GEMMA3: Final = {
    **_SHAPE,
    "vocab": _rows("vocab_size", default=262208),
    "heads": _key("num_attention_heads", default=8),
    "kv_heads": _key("num_key_value_heads", default=4),
    "head_dim": _key("head_dim", default=256),
}

_LLAMA: Final = _Family(
    _fixed("rope", "rmsnorm", gated=True), _SHAPE, (_tied(False), _ATTENTION_BIAS, _MLP_BIAS)
)
_DEEPSEEK_V3: Final = _Family(
    _fixed("rope", "rmsnorm", gated=True, router_bias=True),
    _SHAPE_OF_DEEPSEEK,
    (_tied(False),),
    (_latent_attention,),
)
_FALCON: Final = _Family(
    _fixed("rope", "layernorm", gated=False),
    _SHAPE_OF_FALCON,
    (_tied(True), (_BIASES, "bias", False)),
    (_falcon,),
)

_FAMILIES: Final[Mapping[str, _Family]] = {
    "bloom": _Family(
        _fixed("alibi", "layernorm", gated=False, embedding_norm=True) | _ALL_BIASES,
        _SHAPE_OF_BLOOM,
        (_tied(True),),
        (_four_times_hidden,),
    ),
    "cohere": _Family(
        _fixed("rope", "layernorm_nobias", gated=True, norms=1, parallel_block=True),
        _SHAPE,
        (_tied(True), _ATTENTION_BIAS, (("qk_norm_full",), "use_qk_norm", False)),
    ),
    "dbrx": _Family(
        _fixed("rope", "layernorm_nobias", gated=True),
        _SHAPE_OF_MPT,
        (_tied(False),),
        (_dbrx,),
    ),
    "deepseek_v2": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE_OF_DEEPSEEK,
        (_tied(False),),
        (_latent_attention,),
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "falcon": _FALCON,
    "gemma": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, "head_dim": _key("head_dim", default=256)},
        (_tied(True), _ATTENTION_BIAS),
    ),
    "gemma2": _Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4),
        {**_SHAPE, "head_dim": _key("head_dim", default=256)},
        (_tied(True), _ATTENTION_BIAS),
        (_sliding_window(every=2),),
    ),
    "gemma3_text": _Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4, qk_norm=True),
        _SHAPE_OF_GEMMA3,
        (_tied(True), _ATTENTION_BIAS),
        (_sliding_window(every=6),),
    ),
    "gpt2": _Family(
        _fixed("learned", "layernorm", gated=False) | _ALL_BIASES,
        {**_SHAPE_OF_GPT2, **_LEARNED},
        (_tied(True),),
        (_four_times_hidden, _no_cross_attention),
    ),
    "gpt_bigcode": _Family(
        _fixed("learned", "layernorm", gated=False) | _ALL_BIASES,
        {**_SHAPE_OF_GPT2, **_LEARNED},
        (_tied(True),),
        (_four_times_hidden, _multi_query, _no_cross_attention),
    ),
    "gpt_neox": _Family(
        _fixed("rope", "layernorm", gated=False, mlp_bias=True),
        _SHAPE,
        (_tied(False), (("qkv_bias", "out_bias"), "attention_bias", True)),
        (_neox,),
    ),
    "gpt_oss": _Family(
        _fixed(
            "rope",
            "rmsnorm",
            gated=True,
            attention_sinks=True,
            router_bias=True,
            expert_bias=True,
        ),
        {**_SHAPE, **_MIXTRAL_EXPERTS, "head_dim": _key("head_dim", default=64)},
        (_tied(False), (("qkv_bias", "out_bias"), "attention_bias", True)),
        (_expert_width_is_ffn, _sliding_window(every=2)),
    ),
    "gptj": _Family(
        _fixed(
            "rope",
            "layernorm",
            gated=False,
            norms=1,
            mlp_bias=True,
            parallel_block=True,
            head_bias=True,
        ),
        _SHAPE_OF_GPT2,
        (_tied(False),),
        (_four_times_hidden,),
    ),
    "grok-1": _Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4),
        {**_SHAPE, **_MIXTRAL_EXPERTS},
        (_tied(True),),
        (_expert_width_is_ffn,),
    ),
    "kimi_k2": _DEEPSEEK_V3,
    "llama": _LLAMA,
    "llama4_text": _Family(
        _fixed("rope", "rmsnorm", gated=True, shared_experts=1),
        {
            **_SHAPE,
            **_MIXTRAL_EXPERTS,
            "head_dim": _key("head_dim", default=128),
            "ffn": _key("intermediate_size_mlp"),
            "expert_ffn": _key("intermediate_size"),
            "moe_every": _key("interleave_moe_layer_step", default=1),
        },
        (_tied(False), _ATTENTION_BIAS),
        (_llama4,),
    ),
    "mistral": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE,
        (_tied(False),),
        (_sliding_window(every=0),),
    ),
    "mixtral": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, **_MIXTRAL_EXPERTS},
        (_tied(False),),
        (_expert_width_is_ffn, _sliding_window(every=0)),
    ),
    "mpt": _Family(
        _fixed("alibi", "layernorm_nobias", gated=False),
        _SHAPE_OF_MPT,
        (_tied(True),),
        (_mpt,),
    ),
    "nemotron": _Family(
        _fixed("rope", "layernorm", gated=False),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS, _MLP_BIAS),
    ),
    "olmo2": _Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm_full=True),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS),
    ),
    "opt": _Family(
        _fixed("learned", "layernorm", gated=False),
        {
            **{k: v for k, v in _SHAPE.items() if k not in ("kv_heads", "head_dim")},
            "ffn": _key("ffn_dim"),
            "positions": _rows("max_position_embeddings"),
        },
        (_tied(True), (_BIASES, "enable_bias", True)),
        (_two_offset_positions,),
    ),
    "phi": _Family(
        _fixed(
            "rope",
            "layernorm",
            gated=False,
            norms=1,
            parallel_block=True,
            head_bias=True,
        )
        | _ALL_BIASES,
        _SHAPE,
        (_tied(False), (("qk_norm",), "qk_layernorm", False)),
    ),
    "phi3": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS),
        (_sliding_window(every=0),),
    ),
    "qwen2": _Family(
        _fixed("rope", "rmsnorm", gated=True, qkv_bias=True),
        _SHAPE,
        (_tied(False),),
        (_qwen_window,),
    ),
    "qwen2_moe": _Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, **_QWEN_EXPERTS},
        (_tied(False), (("qkv_bias",), "qkv_bias", True)),
        (_qwen_window, _leading_dense, _qwen2_shared_expert),
    ),
    "qwen3": _Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm=True),
        {**_SHAPE, "head_dim": _key("head_dim", default=128)},
        (_tied(False), _ATTENTION_BIAS),
        (_qwen_window,),
    ),
    "qwen3_moe": _Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm=True),
        {**_SHAPE, **_QWEN_EXPERTS},
        (_tied(False), _ATTENTION_BIAS),
        (_qwen_window, _leading_dense),
    ),
    "stablelm": _Family(
        _fixed("rope", "layernorm", gated=True),
        _SHAPE,
        (
            _tied(False),
            (("qkv_bias",), "use_qkv_bias", False),
            (("qk_norm_full",), "qk_layernorm", False),
        ),
        (_stablelm,),
    ),
}

# Models whose text part stands in `text_config`.
_WRAPPERS: Final[Mapping[str, str]] = {"gemma3": "gemma3_text", "llama4": "llama4_text"}

# Keys that change neither flop nor bytes worth counting: token ids, dropout, initialisation,
# rotary parameters, router arithmetic, training losses, bookkeeping of the library.
_COSTLESS: Final = frozenset({
    "activation_dropout", "activation_function", "alibi_bias_max",
    "apply_residual_connection_post_layernorm", "architectures", "attention_dropout",
    "attention_probs_dropout_prob", "attention_softmax_in_fp32", "attn_dropout", "attn_impl",
    "attn_logit_softcapping", "attn_output_multiplier", "attn_pdrop", "attn_scale",
    "attn_temperature_tuning", "attn_uses_sequence_id", "auto_map", "aux_loss_alpha",
    "bad_words_ids", "begin_suppress_tokens", "bias_dropout_fusion", "boi_token_id",
    "boi_token_index", "bos_token_id", "cache_implementation", "chunk_size_feed_forward",
    "classifier_dropout", "clip_qkv", "cross_attention_hidden_size", "decoder_start_token_id",
    "diversity_penalty", "do_layer_norm_before", "do_sample", "dropout", "dtype",
    "early_stopping", "emb_pdrop", "emb_scale", "embd_pdrop", "embedding_dropout",
    "embedding_fraction", "embedding_multiplier_scale", "encoder_no_repeat_ngram_size",
    "eoi_token_id", "eoi_token_index", "eos_token_id", "ep_size",
    "exponential_decay_length_penalty", "ffn_act_fn", "final_logit_softcapping",
    "finetuning_task", "floor_scale", "for_llm_compression", "forced_bos_token_id",
    "forced_eos_token_id", "fused_cross_entropy", "gradient_checkpointing", "hidden_act",
    "hidden_activation", "hidden_dropout", "hidden_dropout_prob", "id2label", "image_token_id",
    "image_token_index", "inference_runner", "init_config", "init_device", "init_std",
    "initial_context_length", "initializer_range", "is_decoder", "is_encoder_decoder",
    "label2id", "layer_norm_eps", "layer_norm_epsilon", "layer_norm_rms_epsilon", "layerdrop",
    "length_penalty", "local_rope_theta", "logit_scale", "logit_softcapping", "logits_scaling",
    "masked_softmax_fusion", "max_attn_value", "max_batch_size", "max_length",
    "max_position_embeddings", "max_seq_len", "max_sequence_length", "min_length",
    "mm_tokens_per_image", "model_max_length", "model_type", "moe_jitter_eps",
    "moe_loss_weight", "moe_normalize_expert_weights", "n_ctx", "n_group", "n_positions",
    "no_repeat_ngram_size", "norm_eps", "norm_epsilon", "norm_topk_prob", "num_beam_groups",
    "num_beams", "num_labels", "num_return_sequences", "offset_alibi",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states",
    "output_multiplier_scale", "output_past", "output_router_logits", "output_scores",
    "pad_token_id", "partial_rotary_factor", "pre_allocate_kv_cache", "prefix", "prefix_lm",
    "pretraining_tp", "problem_type", "query_pre_attn_scalar", "remove_invalid_values",
    "reorder_and_upcast_attn", "repetition_penalty", "resid_pdrop", "return_dict",
    "return_dict_in_generate", "rms_norm_eps", "rope_dail_config", "rope_hf_config",
    "rope_impl", "rope_local_base_freq", "rope_parameters", "rope_pct", "rope_percent",
    "rope_scaling", "rope_theta", "rotary", "rotary_dim", "rotary_emb_base", "rotary_pct",
    "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise",
    "runner_max_seq_len", "runner_max_sequence_length", "scale_attention_softmax_in_fp32",
    "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "scoring_func", "sep_token_id",
    "seq_aux", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
    "softmax_scale", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "suppress_tokens", "swiglu_limit",
    "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class",
    "tokenizer_name", "top_k", "top_p", "topk_group", "topk_method", "torch_dtype",
    "torchscript", "transformers_version", "typical_p", "uniform_expert_assignment",
    "unk_token_id", "use_bfloat16", "use_cache", "use_cache_quantization", "use_mrope",
    "use_return_dict", "validate_runner_input", "verbose", "z_loss_coefficient",
})  # fmt: skip
