"""Vision towers of Hugging Face configurations, by what their keys mean.

Each reader's model code is named beside it; a tower that none knows is left out and said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from scalemodel.resolve.hugging_face.reading import Config, count_at, layers_at, malformed

Vision = dict[str, object]

_SIDE: Final = ("patch_size", "spatial_patch_size")


def _common(tower: Config, *, layers: str, heads: str) -> Vision:
    """What every tower states."""
    return {
        "layers": tower.count(layers_at(layers)),
        "heads": tower.count(count_at(heads)),
        "patch": tower.count(count_at(*_SIDE)),
        "channels": tower.number("in_channels", "num_channels", "in_chans", default=3, minimum=1),
    }


def _qwen(tower: Config) -> Vision:
    """Patches of two frames, laid side by side two by two before an MLP of their width."""
    merge = tower.number("spatial_merge_size", default=2, minimum=1)
    return _common(tower, layers="depth", heads="num_heads") | {
        "temporal_patch": tower.number("temporal_patch_size", default=2, minimum=1),
        "merge": merge,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "rotary": True,
        "projector_bias": True,
    }


def _wide(read: Vision, hidden: int) -> Vision:
    """With the projector of a tower that is `hidden` wide."""
    merge = read["merge"]
    assert isinstance(merge, int)
    return read | {"hidden": hidden, "projector_inner": merge * merge * hidden}


def _qwen2(tower: Config, outer: Config) -> Vision:
    """transformers: models/qwen2_vl; ``hidden_size`` is the width behind the projector."""
    hidden = tower.number("embed_dim", default=1280, minimum=1)
    ratio = tower.number("mlp_ratio", default=4, minimum=1)
    tower.value("hidden_size")
    return _wide(_qwen(tower), hidden) | {
        "ffn": ratio * hidden,
        "norm": "layernorm",
        "projector_norm": 2,
    }


def _qwen2_5(tower: Config, outer: Config) -> Vision:
    """transformers: models/qwen2_5_vl; windows of ``window_size`` pixels."""
    hidden = tower.count(count_at("hidden_size"))
    assert hidden is not None
    read = _wide(_qwen(tower), hidden)
    patch = read["patch"]
    assert isinstance(patch, int)
    side = tower.number("window_size", default=112, minimum=1) // patch
    return read | {
        "ffn": tower.count(count_at("intermediate_size")),
        "gated": True,
        "norm": "rmsnorm",
        "projector_norm": 1,
        "window": side * side,
        "full_layers": len(tower.items("fullatt_block_indexes") or ()),
    }


def _qwen3(tower: Config, outer: Config) -> Vision:
    """transformers: models/qwen3_vl, models/qwen3_5."""
    hidden = tower.count(count_at("hidden_size"))
    assert hidden is not None
    return _wide(_qwen(tower), hidden) | {
        "ffn": tower.count(count_at("intermediate_size")),
        "norm": "layernorm",
        "projector_norm": 2,
        "patch_bias": True,
        "positions": tower.number("num_position_embeddings", default=2304, minimum=0),
        "deepstack": len(tower.items("deepstack_visual_indexes") or ()),
    }


def _siglip(tower: Config, outer: Config) -> Vision:
    """transformers: models/siglip behind models/gemma3: square images, a number of tokens each."""
    read = _common(tower, layers="num_hidden_layers", heads="num_attention_heads")
    patch = read["patch"]
    assert isinstance(patch, int)
    side = tower.number("image_size", default=896, minimum=1) // patch
    tokens = outer.number("mm_tokens_per_image", default=256, minimum=1)
    along = round(tokens**0.5)
    if along * along != tokens or not side or side % along:
        raise malformed("mm_tokens_per_image", tokens, f"the square of a divisor of {side}")
    biases = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias", "patch_bias", "final_norm"), True)
    return (
        read
        | biases
        | {
            "hidden": tower.count(count_at("hidden_size")),
            "ffn": tower.count(count_at("intermediate_size")),
            "norm": "layernorm",
            "positions": side * side,
            "image_patches": side * side,
            "merge": side // along,
            "pooled": True,
            "projector_norm": 1,
        }
    )


def _gemma4(tower: Config, outer: Config) -> Vision:
    """transformers: models/gemma4: images of a number of tokens, each the mean of its patches."""
    pooled = tower.number("pooling_kernel_size", default=3, minimum=1)
    tokens = outer.number(
        "vision_soft_tokens_per_image",
        default=tower.number("default_output_length", default=280, minimum=1),
        minimum=1,
    )
    return _common(tower, layers="num_hidden_layers", heads="num_attention_heads") | {
        "hidden": tower.count(count_at("hidden_size")),
        "head_dim": tower.number("head_dim", default=0),
        "ffn": tower.count(count_at("intermediate_size")),
        "gated": True,
        "norm": "rmsnorm",
        "norms_per_layer": 4,
        "qk_norm": True,
        "rotary": True,
        # One table for rows and one for columns of patches.
        "positions": 2 * tower.number("position_embedding_size", default=10240, minimum=0),
        "image_patches": pooled * pooled * tokens,
        "merge": pooled,
        "pooled": True,
    }


def _pixtral(tower: Config, outer: Config) -> Vision:
    """transformers: models/pixtral behind models/mistral3, whose projector has three matrices."""
    hidden = tower.count(count_at("hidden_size"))
    text = outer.section("text_config")
    return _common(tower, layers="num_hidden_layers", heads="num_attention_heads") | {
        "hidden": hidden,
        "head_dim": tower.number("head_dim", default=0),
        "ffn": tower.count(count_at("intermediate_size")),
        "gated": True,
        "norm": "rmsnorm",
        "rotary": True,
        "entry_norm": True,
        "merge": outer.number("spatial_merge_size", default=2, minimum=1),
        "projector_inner": hidden,
        "projector_second": text.count(count_at("hidden_size")),
        "projector_norm": 1,
        "projector_bias": outer.flag("multimodal_projector_bias", False),
    }


def _minimax_m3(tower: Config, outer: Config) -> Vision:
    """A CLIP tower with rotary positions; an MLP on patches, and one on four of them side by side.

    transformers: models/minimax_m3_vl, whose count is 0.8656 billion parameters.
    """
    merging = outer.section("img_token_compression_config")
    merging.value("image_token_compression_method")
    width = outer.number("projector_hidden_size", default=0)
    biases = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias", "rotary", "entry_norm"), True)
    return (
        _common(tower, layers="num_hidden_layers", heads="num_attention_heads")
        | biases
        | {
            "hidden": tower.count(count_at("hidden_size")),
            "ffn": tower.count(count_at("intermediate_size")),
            "norm": "layernorm",
            "temporal_patch": merging.number("temporal_patch_size", default=2, minimum=1),
            "merge": merging.number("spatial_merge_size", default=2, minimum=1),
            "patch_projector": width,
            "projector_inner": width,
            "projector_bias": outer.flag("multimodal_projector_bias", False),
        }
    )


_READERS: Final[Mapping[str, Callable[[Config, Config], Vision]]] = {
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "gemma3": _siglip,
    "gemma4": _gemma4,
    "mistral3": _pixtral,
    "minimax_m3_vl": _minimax_m3,
}

# What changes no cost: how pixels are scaled, which function an activation is, tokens' ids.
_COSTLESS: Final = frozenset(
    {
        *("hidden_act", "hidden_activation", "rms_norm_eps", "layer_norm_eps", "attention_dropout"),
        *("initializer_range", "rope_parameters", "rope_theta", "tokens_per_second", "model_type"),
        *("image_size", "max_position_embeddings", "standardize", "use_clipped_linears"),
        # Said once more: by other keys of the tower, or by the decoder.
        *("default_output_length", "global_head_dim", "num_key_value_heads", "out_hidden_size"),
        *("attention_bias", "vision_use_head", "projection_dim", "img_token_compression_config"),
        # Of CLIP's text half, of how positions are laid out, of how many frames are sampled.
        *("vocab_size", "initializer_factor", "position_embedding_type", "rope_mode"),
        *("vision_segment_max_frames",),
    }
)


def vision_from_config(config: Mapping[str, object]) -> tuple[Vision | None, list[str]]:
    """The ``[vision]`` table of a Hugging Face ``config.json``.

    Returns
    -------
    vision : dict or None
        Fields of `VisionShape`; None where the model has no tower, or none that is known.
    unknown : list of str
        Keys that are not understood and may change the cost; ``vision_config`` whole, where the
        tower is not known.

    Raises
    ------
    ScaleModelError : a required key of a known tower is missing, or a value is not legal.

    Examples
    --------
    >>> vision_from_config({"model_type": "llama"})
    (None, [])
    """
    outer = Config(config)
    if outer.value("vision_config")[1] is None:
        return None, []
    family = outer.text("model_type", default="")
    read = _READERS.get(family)
    if read is None:
        return None, ["vision_config"]
    tower = outer.section("vision_config")
    vision = read(tower, outer)
    unknown = [key for key in tower.unknown() if key.rpartition(".")[2] not in _COSTLESS]
    return {key: value for key, value in vision.items() if value is not None}, unknown
