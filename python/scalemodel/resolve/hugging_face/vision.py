"""Vision towers of Hugging Face configurations, by what their keys mean.

Each reader's model code is named beside it; a tower that none knows is left out and said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from scalemodel.resolve.hugging_face import towers
from scalemodel.resolve.hugging_face.reading import Config, count_at, layers_at, malformed
from scalemodel.resolve.hugging_face.towers import side_of

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
        "kv_heads": tower.number("num_key_value_heads", default=0),
    }


def _joined_qwen2_5(tower: Config, outer: Config) -> Vision:
    """transformers: models/hyperclovax_vision_v2: one more matrix from the tower's output."""
    out = tower.count(count_at("out_hidden_size"))
    return _qwen2_5(tower, outer) | {"projector_second": out}


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
    if not tower.raw.get("vision_use_head"):
        # The attention pooling of SigLIP, 3.6 % of it, is no part of released towers; one whose
        # file asks for it is told that it is left out.
        tower.value("vision_use_head")
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
    merging = outer.section("img_token_compression_config", optional=True)
    merging.value("image_token_compression_method")
    width = outer.number("projector_hidden_size", default=0)
    # transformers writes both numbers into the table of the tower.
    frames = tower.number("temporal_patch_size", default=2, minimum=1)
    merge = tower.number("spatial_merge_size", default=2, minimum=1)
    outer.value("merged_hidden_size")
    biases = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias", "rotary", "entry_norm"), True)
    return (
        _common(tower, layers="num_hidden_layers", heads="num_attention_heads")
        | biases
        | {
            "hidden": tower.count(count_at("hidden_size")),
            "ffn": tower.count(count_at("intermediate_size")),
            "norm": "layernorm",
            "temporal_patch": merging.number("temporal_patch_size", default=frames, minimum=1),
            "merge": merging.number("spatial_merge_size", default=merge, minimum=1),
            "patch_projector": width,
            "projector_inner": width,
            "projector_bias": outer.flag("multimodal_projector_bias", not merging.raw),
        }
    )


def _moon(tower: Config, outer: Config) -> Vision:
    """MoonViT of Kimi-VL and Kimi-K2.5 (their modeling_kimi_vl.py).

    The merger of Kimi-K3, ``patchmergerv2``, is read as that of Kimi-K2.5.
    """
    hidden = tower.count(count_at("hidden_size", "vt_hidden_size"))
    heads = tower.count(count_at("num_attention_heads", "vt_num_attention_heads"))
    assert hidden is not None
    assert heads is not None
    width = tower.number("qkv_hidden_size", default=hidden, minimum=1)
    if width % heads:
        raise malformed("qkv_hidden_size", width, f"a multiple of {heads} heads")
    tower.value("mm_hidden_size"), tower.value("text_hidden_size")
    sides = tower.items("merge_kernel_size") or (2, 2)
    merge = sides[0]
    if (
        any(side != merge for side in sides)
        or isinstance(merge, bool)
        or not isinstance(merge, int)
    ):
        raise malformed("merge_kernel_size", sides, "twice the same whole number")
    biased = tower.flag("linear_bias", True)
    norm = tower.text("norm_type", "layernorm")
    return {
        "layers": tower.count(layers_at("num_hidden_layers", "vt_num_hidden_layers")),
        "heads": heads,
        "head_dim": width // heads,
        "hidden": hidden,
        "ffn": tower.count(count_at("intermediate_size", "vt_intermediate_size")),
        "patch": tower.count(count_at(*_SIDE)),
        "channels": 3,
        "norm": "rmsnorm" if norm == "rmsnorm" else "layernorm",
        "qkv_bias": tower.flag("attn_bias", True),
        "out_bias": tower.flag("attn_bias", True),
        "mlp_bias": biased,
        "patch_bias": tower.flag("patch_embed_proj_bias", True),
        "rotary": True,
        "positions": tower.number("init_pos_emb_height", default=64, minimum=0)
        * tower.number("init_pos_emb_width", default=64, minimum=0),
        "final_norm": True,
        "merge": merge,
        "projector_inner": merge * merge * hidden,
        "projector_norm": 2,
        "projector_bias": True,
    }


def _intern(tower: Config, outer: Config) -> Vision:
    """InternViT (OpenGVLab/InternVL3, modeling_intern_vit.py) on tiles of one size.

    Each tile that the processor cuts counts as an image. Layer scales and the class token are not
    counted: 0.02 % of the tower.
    """
    hidden = tower.count(count_at("hidden_size"))
    text = next((outer.section(k) for k in ("text_config", "llm_config") if k in outer.raw), outer)
    patch = side_of(tower, "patch_size", 14)
    side = side_of(tower, "image_size", 448) // patch
    factor = outer.value("downsample_ratio")[1]
    merge = round(1 / factor) if isinstance(factor, (int, float)) and 0 < factor <= 1 else 2
    if not side or side % merge:
        raise malformed("downsample_ratio", factor, f"one over a divisor of {side}")
    biased = tower.flag("qkv_bias", tower.flag("attention_bias", True))
    tower.flag("use_mean_pooling", True), tower.flag("use_mask_token", False)
    tower.flag("use_absolute_position_embeddings", True)
    return {
        "layers": tower.count(layers_at("num_hidden_layers")),
        "heads": tower.count(count_at("num_attention_heads")),
        "hidden": hidden,
        "ffn": tower.count(count_at("intermediate_size")),
        "patch": patch,
        "channels": tower.number("num_channels", default=3, minimum=1),
        "norm": "rmsnorm" if tower.text("norm_type", "layer_norm") == "rms_norm" else "layernorm",
        "qkv_bias": biased,
        "out_bias": True,
        "mlp_bias": True,
        "qk_norm": tower.flag("qk_normalization", False) or tower.flag("use_qk_norm", False),
        "patch_bias": True,
        "positions": side * side + 1,
        "image_patches": side * side,
        "merge": merge,
        "projector_inner": text.count(count_at("hidden_size")),
        "projector_norm": 2,
        "projector_bias": True,
    }


def _glm(tower: Config, outer: Config) -> Vision:
    """transformers: models/glm4v, models/glm4v_moe: patches merged by a convolution, then a block.

    The layers of the tower are as wide inside as its output; ``intermediate_size`` is the width of
    that block.
    """
    hidden = tower.count(count_at("hidden_size"))
    out = tower.count(count_at("out_hidden_size"))
    patch = tower.number("patch_size", default=14, minimum=1)
    side = tower.number("image_size", default=336, minimum=1) // patch
    return _common(tower, layers="depth", heads="num_heads") | {
        "hidden": hidden,
        "ffn": out,
        "gated": True,
        "norm": "rmsnorm",
        "qkv_bias": tower.flag("attention_bias", False),
        "rotary": True,
        "temporal_patch": tower.number("temporal_patch_size", default=2, minimum=1),
        "patch_bias": True,
        "positions": side * side,
        "entry_norm": True,
        "final_norm": True,
        "merge": tower.number("spatial_merge_size", default=2, minimum=1),
        "projector_inner": out,
        "projector_second": out,
        "projector_gated": tower.count(count_at("intermediate_size")),
    }


_READERS: Final[Mapping[str, Callable[[Config, Config], Vision]]] = {
    "aya_vision": towers.gated_projector,
    "cohere2_vision": towers.gated_projector,
    "cohere_compass": _qwen3,
    "ernie4_5_moe_vl": towers.ernie,
    "ernie4_5_vl_moe": towers.ernie,
    "exaone4_5": _qwen2_5,
    "glm46v": _glm,
    "glm5_next": towers.glm_gated,
    "glm_ocr": towers.glm_gated,
    "glmga": _glm,
    "granite_docling": towers.shuffled,
    "hyperclovax_vision_v2": _joined_qwen2_5,
    "idefics3": towers.shuffled,
    "lfm2_vl": towers.liquid,
    "lfm3_vl": towers.liquid,
    "lighton_ocr": _pixtral,
    "llama4": towers.llama4,
    "llava": towers.plain_tower,
    "llava_next": towers.plain_tower,
    "llava_next_video": towers.plain_tower,
    "llava_onevision": towers.plain_tower,
    "mistral_large4": _pixtral,
    "mllama": towers.tiles,
    "paligemma": towers.one_matrix,
    "qianfan_ocr": _intern,
    "qwen2_5_omni": _qwen2_5,
    "qwen2_5_omni_thinker": _qwen2_5,
    "qwen3_omni_moe": _qwen3,
    "qwen3_omni_moe_thinker": _qwen3,
    "smolvlm": towers.shuffled,
    "step3p7": towers.step,
    "vipllava": towers.plain_tower,
    "voxtral": towers.sound,
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen4_exp": _qwen3,
    "qwen3_5_moe": _qwen3,
    "gemma3": _siglip,
    "shieldgemma2": _siglip,
    "gemma4": _gemma4,
    "mistral3": _pixtral,
    "glm4v": _glm,
    "glm4v_moe": _glm,
    "internvl": _intern,
    "internvl_chat": _intern,
    "kimi_k25": _moon,
    "kimi_k3": _moon,
    "kimi_vl": _moon,
    "minimax_m3_vl": _minimax_m3,
}

#: Where a tower is described that is not one of images.
SOUND: Final[Mapping[str, str]] = {"voxtral": "audio_config"}

# What changes no cost: how pixels are scaled, which function an activation is, tokens' ids.
_COSTLESS: Final = frozenset(
    {
        *("hidden_act", "hidden_activation", "rms_norm_eps", "layer_norm_eps", "attention_dropout"),
        *("initializer_range", "rope_parameters", "rope_theta", "tokens_per_second", "model_type"),
        *("image_size", "max_position_embeddings", "standardize", "use_clipped_linears"),
        # Said once more: by other keys of the tower, or by the decoder.
        *("default_output_length", "global_head_dim", "num_key_value_heads", "out_hidden_size"),
        *("attention_bias", "projection_dim", "img_token_compression_config"),
        # Of MoonViT: how positions are made and how frames of a video become tokens.
        *("activation_func", "init_pos_emb_time", "merge_type", "mlp_type", "mm_projector_type"),
        *("pos_emb_interpolation_mode", "pos_emb_type", "projector_hidden_act", "projector_ln_eps"),
        *("video_attn_type", "torch_dtype", "architectures", "transformers_version", "use_cache"),
        # Of InternViT: dropout and initial values, the whole norm of queries and keys.
        *("drop_path_rate", "dropout", "hidden_dropout_prob", "layer_scale_init_value", "auto_map"),
        *("initializer_factor", "projection_dropout", "use_flash_attn", "layer_norm_epsilon"),
        # Of CLIP's text half, of how positions are laid out, of how many frames are sampled.
        *("vocab_size", "initializer_factor", "position_embedding_type", "rope_mode"),
        *("vision_segment_max_frames",),
        # Of sound: what else the encoder of Whisper has keys for.
        *("activation_dropout", "activation_function", "layerdrop", "scale_embedding"),
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
    family = outer.text("model_type", default="")
    thinker = outer.section("thinker_config", optional=True)
    if thinker.raw:  # a model that also speaks: its towers stand a table deeper
        outer = thinker
    section = SOUND.get(family, "vision_config")
    if outer.value(section)[1] is None:
        return None, []
    read = _READERS.get(family)
    if read is None:
        return None, [section]
    tower = outer.section(section)
    states = {"num_hidden_layers", "depth"} & set(tower.raw)
    if read.__module__ == towers.__name__ and read is not towers.tiles and not states:
        return None, [section]  # left to the defaults of its class
    vision = read(tower, outer)
    unknown = [key for key in tower.unknown() if key.rpartition(".")[2] not in _COSTLESS]
    return {key: value for key, value in vision.items() if value is not None}, unknown
