"""Models of recurrent layers alone: RWKV, and those of fla-org/flash-linear-attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from scalemodel.resolve.hugging_face.reading import (
    Config,
    count_at,
    layers_at,
    malformed,
    rows_at,
)
from scalemodel.resolve.hugging_face.steps import Architecture

#: Tokens of a chunk of the kernels (fla-org/flash-linear-attention, ops: chunk_size 64, of RWKV-6
#: 32).
_CHUNK = 64
_RWKV_CHUNK = 32
#: Of blocks whose width a file leaves out (fla-org/flash-linear-attention, GatedMLP).
_ROUNDED = 256


def _number(config: Config, name: str, default: float) -> float:
    path, value = config.value(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1000:
        raise malformed(path, value, "a number above 0, at most 1000")
    return value


def _stream(config: Config, architecture: Architecture) -> int:
    hidden = config.count(count_at("hidden_size"))
    assert hidden is not None
    architecture |= {
        "layers": config.count(layers_at("num_hidden_layers")),
        "hidden": hidden,
        "vocab": config.count(rows_at("vocab_size")),
        "mixers": "R",
        "position": "none",
        "tied_embeddings": config.flag("tie_word_embeddings", False),
    }
    return hidden


def _mixer(
    architecture: Architecture, kind: str, heads: int, keys: int, values: int, **more: object
) -> None:
    if heads < 1 or keys % heads or values % heads:
        raise malformed("num_heads", heads, f"a divisor of {keys} keys and {values} values")
    architecture |= {
        "recurrence": kind,
        "scan_heads": heads,
        "scan_key_dim": keys // heads,
        "scan_value_dim": values // heads,
        "scan_chunk": _CHUNK,
        "scan_norm": True,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": values // heads,
        **more,
    }


def _block(config: Config, architecture: Architecture, hidden: int, ratio: float = 4) -> None:
    """A gated block: two thirds of a multiple of the stream, in whole 256, unless stated."""
    stated = config.number("intermediate_size", default=0)
    ratio = _number(config, "hidden_ratio", ratio)
    width = _ROUNDED * -(-int(hidden * ratio * 2 / 3) // _ROUNDED)
    architecture["ffn"] = stated or width


def _look_past(config: Config, *keys: str) -> None:
    for key in keys:
        config.value(key)


_KERNELS = (
    *("attn_mode", "elementwise_affine", "norm_eps", "use_l2warp", "fuse_swiglu", "fuse_norm"),
    *("fuse_linear_cross_entropy", "qk_activation", "qk_norm", "allow_neg_eigval", "use_beta"),
    *("clamp_min", "feature_map", "gate_logit_normalizer", "gate_fn", "norm_bias", "norm_first"),
    *("safe_gate", "lower_bound", "conv_size", "output_gate_activation"),
)


def _width(config: Config, usual: bool) -> int:
    """Tokens of the short convolution; 0 where there is none."""
    size = config.number("conv_size", default=4, minimum=1)
    return size if config.flag("use_short_conv", usual) else 0


def _asked(config: Config, *names: str) -> list[str]:
    """Keys that ask for something that is not read."""
    return [name for name in names if config.flag(name, False)]


def _refused(config: Config, *names: str) -> list[str]:
    """Keys that leave something out that is read."""
    return [name for name in names if not config.flag(name, True)]


def _gla(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    heads = config.number("num_heads", default=4, minimum=1)
    keys = int(hidden * _number(config, "expand_k", 0.5))
    values = int(hidden * _number(config, "expand_v", 1))
    rank = config.number("gate_low_rank_dim", default=16, minimum=1)
    width = _width(config, False)
    _mixer(architecture, "gla", heads, keys, values, scan_rank=rank, conv_width=width)
    shared = config.number("num_kv_heads", default=heads, minimum=1) != heads
    unknown = _asked(config, "use_gv") + _refused(config, "use_gk", "use_output_gate")
    return unknown + (["num_kv_heads"] if shared else [])


def _retnet(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    heads = config.number("num_heads", default=8, minimum=1)
    keys = int(hidden * _number(config, "expand_k", 1))
    values = int(hidden * _number(config, "expand_v", 2))
    _mixer(architecture, "gla", heads, keys, values, conv_width=_width(config, False))
    shared = config.number("num_kv_heads", default=heads, minimum=1) != heads
    return _refused(config, "use_output_gate") + (["num_kv_heads"] if shared else [])


def _hgrn(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    inner = int(hidden * _number(config, "expand_ratio", 1))
    _mixer(architecture, "hgrn", inner, inner, inner, scan_chunk=0)
    return ["use_short_conv"] if _width(config, False) else []


def _hgrn2(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    state = config.number("expand_ratio", default=128, minimum=1)
    heads = config.number("num_heads", default=hidden // state, minimum=1)
    _mixer(architecture, "hgrn", heads, heads * state, hidden)
    return ["use_short_conv"] if _width(config, False) else []


def _delta(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    heads = config.number("num_heads", default=16, minimum=1)
    keys = int(hidden * _number(config, "expand_k", 1))
    values = int(hidden * _number(config, "expand_v", 1))
    normed = config.flag("use_output_norm", True)
    width = _width(config, True)
    _mixer(architecture, "delta", heads, keys, values, conv_width=width, scan_norm=normed)
    return _asked(config, "use_gate")


def _gated_delta(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    heads = config.number("num_heads", default=6, minimum=1)
    size = config.number("head_dim", default=256, minimum=1)
    wide = config.number("num_v_heads", default=heads, minimum=1)
    values = int(size * _number(config, "expand_v", 2))
    width = _width(config, True)
    more = {"conv_width": width, "scan_groups": heads}
    _mixer(architecture, "gated_delta", wide, wide * size, wide * values, **more)
    return _refused(config, "use_gate") + ([] if width else ["use_short_conv"])


def _kda(config: Config, architecture: Architecture, hidden: int) -> list[str]:
    heads = config.number("num_heads", default=16, minimum=1)
    size = config.number("head_dim", default=128, minimum=1)
    wide = config.number("num_v_heads", default=heads, minimum=1)
    values = int(size * _number(config, "expand_v", 1))
    width = _width(config, True)
    more = {"conv_width": width, "scan_rank": size, "scan_groups": heads}
    _mixer(architecture, "kimi_delta", wide, wide * size, wide * values, **more)
    return [] if width else ["use_short_conv"]


_KINDS: Final[Mapping[str, Callable[[Config, Architecture, int], list[str]]]] = {
    "gla": _gla,
    "retnet": _retnet,
    "hgrn": _hgrn,
    "hgrn2": _hgrn2,
    "delta": _delta,
    "gated_delta": _gated_delta,
    "kda": _kda,
}


def fla(kind: str) -> Callable[[Config, Architecture], list[str]]:
    """A model of one kind of layers, by the keys of its configuration class."""

    def step(config: Config, architecture: Architecture) -> list[str]:
        hidden = _stream(config, architecture)
        _look_past(config, *_KERNELS)
        _block(config, architecture, hidden, 2 if kind == "retnet" else 4)
        unknown = _KINDS[kind](config, architecture, hidden)
        config.flag("use_lower_bound", True)
        return unknown + _attending(config, architecture)

    return step


def _attending(config: Config, architecture: Architecture) -> list[str]:
    """Layers that attend, in a table of their own."""
    table = config.section("attn", optional=True)
    if not table.raw:
        return []
    layers = architecture["layers"]
    assert isinstance(layers, int)
    listed = table.items("layers") or ()
    if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < layers for i in listed):
        raise malformed("attn.layers", listed, f"a list of layers of {layers}")
    heads = table.number("num_heads", default=0)
    hidden = architecture["hidden"]
    assert isinstance(hidden, int)
    if not heads or hidden % heads:
        raise malformed("attn.num_heads", heads, f"a divisor of {hidden}")
    window = table.number("window_size", default=0)
    letter = "W" if window else "F"
    architecture |= {
        "mixers": "".join(letter if i in listed else "R" for i in range(layers)),
        "heads": heads,
        "kv_heads": table.number("num_kv_heads", default=heads, minimum=1),
        "head_dim": hidden // heads,
        "qkv_bias": table.flag("qkv_bias", False),
        "position": "rope",
        "window": window,
    }
    table.value("rope_theta")
    return table.unknown()


def rwkv4(config: Config, architecture: Architecture) -> None:
    """RWKV-4 (transformers, models/rwkv): averages of channels, a state of three numbers each."""
    hidden = _stream(config, architecture)
    inner = config.number("attention_hidden_size", default=hidden, minimum=1)
    _look_past(config, "context_length", "rescale_every", "layer_norm_epsilon")
    _mixer(architecture, "rwkv4", inner, 3 * inner, inner, scan_chunk=0, scan_norm=False)
    architecture |= {
        "ffn": config.number("intermediate_size", default=4 * hidden, minimum=1),
        "heads": 1,
        "kv_heads": 1,
        "head_dim": inner,
        "embedding_norm": True,
        "ffn_receptance": True,
    }


def rwkv6(config: Config, architecture: Architecture) -> None:
    """RWKV-5 and RWKV-6 (RWKV/rwkv-6-world-1b6, modeling_rwkv6.py; fla's models/rwkv6).

    Files of RWKV leave ranks out, which its code fixes by the width of the stream, and give the
    size of a head twice, once as their number.
    """
    hidden = _stream(config, architecture)
    _look_past(config, *_KERNELS, "rescale_every", "layer_norm_epsilon", "head_size_divisor")
    _look_past(config, "rwkv_version", "group_norm_eps", "context_length", "model_version")
    size = config.number("head_size", default=0)
    if size:  # RWKV's own files
        config.value("num_attention_heads"), config.value("head_dim")
        inner = config.number("attention_hidden_size", default=hidden, minimum=1)
        keys, heads = inner, inner // size
        wide = hidden >= _WIDE
        shift, decay = (64, 128) if wide else (32, 64)
        width = config.number("intermediate_size", default=0)
        width = width or int(hidden * 3.5) // 32 * 32
    else:
        heads = config.number("num_heads", "num_attention_heads", default=4, minimum=1)
        keys = int(hidden * _number(config, "expand_k", 0.5))
        inner = int(hidden * _number(config, "expand_v", 1))
        shift = config.number("proj_low_rank_dim", default=32, minimum=1)
        decay = config.number("gate_low_rank_dim", default=64, minimum=1)
        width = config.number("intermediate_size", default=0)
        width = width or int(hidden * _number(config, "hidden_ratio", 3.5)) // 32 * 32
    sixth = config.text("model_type", "rwkv6") == "rwkv6"
    rank = _SHIFTS * shift + decay if sixth else 0
    _mixer(architecture, "rwkv6", heads, keys, inner, scan_chunk=_RWKV_CHUNK, scan_rank=rank)
    architecture |= {"ffn": width, "embedding_norm": True, "ffn_receptance": True}


#: Width from which RWKV-6 has twice the ranks (BlinkDL/RWKV-LM, RWKV-v5/src/model.py).
_WIDE = 4096
#: Inputs of a mixer that are mixed with those of the token before.
_SHIFTS = 5
