"""Vision towers whose layers are those of CLIP and SigLIP, and what joins them to a decoder."""

from __future__ import annotations

from typing import Final

from scalemodel.resolve.hugging_face.reading import Config, count_at, layers_at, malformed

Vision = dict[str, object]

_PLAIN_BIASES: Final = dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), True)


def text_width(outer: Config) -> int | None:
    """Width of the decoder that a tower belongs to."""
    sections = ("text_config", "llm_config", "language_config")
    text = next((outer.section(key) for key in sections if key in outer.raw), outer)
    return text.count(count_at("hidden_size"))


def side_of(tower: Config, name: str, default: int) -> int:
    """A number, or the first of a list that gives one per side."""
    path, value = tower.value(name)
    listed = value if isinstance(value, (list, tuple)) and value else [value]
    if value is None:
        return default
    if any(n != listed[0] for n in listed) or not isinstance(listed[0], int):
        raise malformed(path, value, "a whole number, the same for both sides")
    return int(listed[0])


def plain_tower(tower: Config, outer: Config) -> Vision:
    """Layers of a plain vision transformer on square images, each patch a token of the decoder.

    Two matrices join it to the decoder (transformers: models/llava, models/llava_onevision).
    """
    patch = side_of(tower, "patch_size", 14)
    side = side_of(tower, "image_size", 336) // patch
    clip = tower.text("model_type", "").startswith("clip")
    if not tower.raw.get("vision_use_head"):
        # A head that pools all patches is no part of what a decoder reads; one whose file asks for
        # it is told that it is left out.
        tower.value("vision_use_head")
    return _PLAIN_BIASES | {
        "layers": tower.count(layers_at("num_hidden_layers", "depth")),
        "heads": tower.count(count_at("num_attention_heads", "num_heads")),
        "hidden": tower.count(count_at("hidden_size", "embed_dim")),
        "ffn": tower.count(count_at("intermediate_size")),
        "patch": patch,
        "channels": tower.number("num_channels", "in_channels", default=3, minimum=1),
        "norm": "layernorm",
        "patch_bias": not clip,
        "positions": tower.number("num_patches", default=side * side) + clip,
        "image_patches": side * side,
        "entry_norm": clip,
        "final_norm": True,
        "projector_inner": text_width(outer),
        "projector_bias": True,
    }


def _merged(read: Vision, merge: int, name: str) -> Vision:
    """With that many patches along a side of a token."""
    patches = read["image_patches"]
    assert isinstance(patches, int)
    if merge < 1 or patches % (merge * merge):
        raise malformed(name, merge, f"a divisor of the patches along a side of {patches}")
    return read | {"merge": merge}


def one_matrix(tower: Config, outer: Config) -> Vision:
    """transformers: models/paligemma, whose projector is one matrix."""
    return plain_tower(tower, outer) | {"projector_inner": 0}


def shuffled(tower: Config, outer: Config) -> Vision:
    """transformers: models/idefics3, models/smolvlm: patches side by side before one matrix."""
    factor = outer.number("scale_factor", default=2, minimum=1)
    read = plain_tower(tower, outer) | {"projector_inner": 0, "projector_bias": False}
    return _merged(read, factor, "scale_factor")


def gated_projector(tower: Config, outer: Config) -> Vision:
    """transformers: models/cohere2_vision, models/aya_vision: a gated block joins the decoder."""
    factor = outer.number("downsample_factor", default=2, minimum=1)
    width = outer.number("alignment_intermediate_size", default=0)
    read = plain_tower(tower, outer) | {"projector_inner": 0, "projector_gated": width // 2}
    return _merged(read, factor, "downsample_factor")


def liquid(tower: Config, outer: Config) -> Vision:
    """transformers: models/lfm2_vl: SigLIP 2 on images of any shape, two matrices behind a norm."""
    read = plain_tower(tower, outer)
    hidden = read["hidden"]
    assert isinstance(hidden, int)
    del read["image_patches"]
    normed = outer.flag("projector_use_layernorm", True)
    return read | {
        "merge": outer.number("downsample_factor", default=2, minimum=1),
        "projector_inner": outer.number("projector_hidden_size", default=hidden, minimum=1),
        "projector_bias": outer.flag("projector_bias", True),
        "projector_norm": 2 if normed else 0,
    }


def llama4(tower: Config, outer: Config) -> Vision:
    """transformers: models/llama4: patches side by side, two matrices, and one to the decoder."""
    ratio = tower.value("pixel_shuffle_ratio")[1]
    merge = round(1 / ratio) if isinstance(ratio, (int, float)) and 0 < ratio <= 1 else 2
    tower.value("vision_output_dim", "multi_modal_projector_bias")
    tower.value("projector_input_dim"), tower.value("projector_dropout")
    width = tower.number("projector_output_dim", default=4096, minimum=1)
    read = plain_tower(tower, outer)
    positions = read["positions"]
    assert isinstance(positions, int)
    read |= {
        "patch_bias": False,
        "positions": positions + 1,
        "entry_norm": True,
        "rotary": True,
        "projector_inner": width,
        "projector_second": width,
        "projector_bias": False,
    }
    return _merged(read, merge, "pixel_shuffle_ratio")


#: Positions of sound along a side of a token, as patches are counted: four of them in all.
_MERGED: Final = 2
#: What the class of a tower of tiles has where a file leaves it out (transformers,
#: MllamaVisionConfig).
_TILE_LAYERS: Final = (3, 7, 15, 23, 30)
_TILE_RATIOS: Final = 8


def tiles(tower: Config, outer: Config) -> Vision:
    """transformers: models/mllama: tiles of an image attend to each other, read in full.

    Every image counts as the most tiles that it may have, to which smaller ones are padded. Tables
    of positions are one for a tile, and one of all tiles for each shape of an image; outputs of
    inner layers stand beside that of the last in front of the projector.
    """
    patch = tower.number("patch_size", default=14, minimum=1)
    side = tower.number("image_size", default=448, minimum=1) // patch
    most = tower.number("max_num_tiles", default=4, minimum=1)
    shapes = tower.items("supported_aspect_ratios")
    ratios = _TILE_RATIOS if shapes is None else len(shapes)
    inner = tower.items("intermediate_layers_indices")
    features = 1 + len(_TILE_LAYERS if inner is None else inner)
    rows = side * side + 1  # with that of a class
    tower.value("vision_output_dim"), tower.value("num_hidden_layers")
    return {
        "layers": tower.number("num_hidden_layers", default=32, minimum=1)
        + tower.number("num_global_layers", default=8),
        "heads": tower.number("num_attention_heads", "attention_heads", default=16, minimum=1),
        "hidden": tower.number("hidden_size", default=1280, minimum=1),
        "ffn": tower.number("intermediate_size", default=5120, minimum=1),
        "patch": patch,
        "channels": tower.number("num_channels", default=3, minimum=1),
        "norm": "layernorm",
        "mlp_bias": True,
        "positions": rows * (1 + (ratios + 1) * most) + 2 * (ratios + 1) * most + 1,
        "image_patches": most * rows,
        "entry_norm": True,
        "final_norm": True,
        "feature_layers": features,
        "projector_bias": True,
    }


def sound(tower: Config, outer: Config) -> Vision:
    """transformers: models/voxtral: the encoder of Whisper on windows of 30 seconds, each an image.

    Four positions lie side by side before two matrices. The first of its two convolutions, 0.08 %
    of it, is left out; keys are given the bias that queries and values have.
    """
    hidden = tower.count(count_at("hidden_size", "d_model"))
    width = tower.count(count_at("intermediate_size", "encoder_ffn_dim"))
    positions = tower.number("max_source_positions", default=1500, minimum=1)
    assert hidden is not None
    assert width is not None
    if width != _MERGED * _MERGED * hidden or positions % (_MERGED * _MERGED):
        raise malformed("intermediate_size", width, f"four positions of {hidden} side by side")
    tower.value("num_mel_bins"), tower.value("num_key_value_heads")
    return _PLAIN_BIASES | {
        "layers": tower.count(layers_at("num_hidden_layers", "encoder_layers")),
        "heads": tower.count(count_at("num_attention_heads", "encoder_attention_heads")),
        "head_dim": tower.number("head_dim", default=0),
        "hidden": hidden,
        "ffn": width,
        "patch": 1,
        "channels": hidden,
        "temporal_patch": 3,  # what the second convolution reads of the first
        "norm": "layernorm",
        "patch_bias": True,
        "positions": positions,
        "image_patches": positions,
        "final_norm": True,
        "merge": _MERGED,
        "projector_inner": text_width(outer),
    }


def step(tower: Config, outer: Config) -> Vision:
    """transformers: models/step3p7: a scale of what every block adds, then two convolutions."""
    read = plain_tower(tower, outer)
    hidden = read["hidden"]
    assert isinstance(hidden, int)
    ratio = tower.value("mlp_ratio")[1]
    if read["ffn"] is None and isinstance(ratio, (int, float)):
        read["ffn"] = int(ratio * hidden)
    tower.value("layer_types"), outer.number("vision_output_dim", default=0)
    return read | {
        "patch_bias": False,
        "entry_norm": True,
        "final_norm": False,
        "layer_scale": True,
        "rotary": True,
        "merge": 4,
        "downsamplings": 2,
        "projector_inner": 0,
        "projector_bias": outer.flag("projector_bias", False),
    }


def glm_gated(tower: Config, outer: Config) -> Vision:
    """transformers: models/glm_ocr, models/glm5_next: gated blocks, a convolution, a block."""
    out = tower.number("out_hidden_size", default=1536, minimum=1)
    gated = tower.number("projection_intermediate_size", default=3 * out, minimum=1)
    biased = tower.flag("attention_bias", True)
    return {
        "layers": tower.count(layers_at("depth")),
        "heads": tower.count(count_at("num_heads")),
        "hidden": tower.count(count_at("hidden_size")),
        "ffn": tower.count(count_at("intermediate_size")),
        "patch": tower.number("patch_size", default=14, minimum=1),
        "channels": tower.number("in_channels", default=3, minimum=1),
        "gated": True,
        "norm": "rmsnorm",
        "qkv_bias": biased,
        "out_bias": biased,
        "mlp_bias": biased,
        "qk_norm": True,
        "rotary": True,
        "temporal_patch": tower.number("temporal_patch_size", default=2, minimum=1),
        "patch_bias": True,
        "final_norm": True,
        "merge": tower.number("spatial_merge_size", default=2, minimum=1),
        "projector_inner": out,
        "projector_second": out,
        "projector_gated": gated,
    }


def ernie(tower: Config, outer: Config) -> Vision:
    """transformers: models/ernie4_5_vl_moe: patches side by side, two matrices, then the decoder.

    What joins two frames of a video is left out.
    """
    hidden = tower.count(count_at("hidden_size", "embed_dim"))
    assert hidden is not None
    merge = tower.number("spatial_merge_size", default=2, minimum=1)
    wide = merge * merge * hidden
    tower.number("temporal_merge_size", default=2), tower.value("mlp_ratio")
    return _PLAIN_BIASES | {
        "layers": tower.count(layers_at("depth")),
        "heads": tower.count(count_at("num_heads")),
        "hidden": hidden,
        "ffn": tower.number("intermediate_size", default=4 * hidden, minimum=1),
        "patch": tower.count(count_at("patch_size")),
        "channels": tower.number("in_channels", "in_chans", default=3, minimum=1),
        "norm": "layernorm",
        "rotary": True,
        "final_norm": True,
        "merge": merge,
        "projector_inner": wide,
        "projector_second": wide,
        "projector_bias": True,
    }
