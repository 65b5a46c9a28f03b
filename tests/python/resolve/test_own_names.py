"""Configurations whose keys are their own: what is read is the entry of the catalogue."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

CONFIGS: dict[str, dict[str, Any]] = {
    "chatglm3_6b": {
        "model_type": "chatglm",
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "ffn_hidden_size": 13696,
        "hidden_size": 4096,
        "kv_channels": 128,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "num_attention_heads": 32,
        "num_layers": 28,
        "padded_vocab_size": 65024,
        "post_layer_norm": True,
        "rmsnorm": True,
        "seq_length": 8192,
        "tie_word_embeddings": False,
        "original_rope": True,
        "layernorm_epsilon": 1e-5,
    },
    "glm_4_9b": {
        "model_type": "chatglm",
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "ffn_hidden_size": 13696,
        "hidden_size": 4096,
        "kv_channels": 128,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "num_attention_heads": 32,
        "num_layers": 40,
        "padded_vocab_size": 151552,
        "vocab_size": 151552,
        "rmsnorm": True,
        "seq_length": 8192,
        "rope_ratio": 1,
        "tie_word_embeddings": False,
    },
    "baichuan2_13b": {
        "model_type": "baichuan",
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 13696,
        "model_max_length": 4096,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "vocab_size": 125696,
        "z_loss_weight": 0,
    },
    "baichuan_7b": {
        "model_type": "baichuan",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
        "vocab_size": 64000,
    },
    "llada_8b": {
        "model_type": "llada",
        "d_model": 4096,
        "n_heads": 32,
        "n_kv_heads": 32,
        "n_layers": 32,
        "mlp_hidden_size": 12288,
        "embedding_size": 126464,
        "vocab_size": 126464,
        "weight_tying": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "block_type": "llama",
        "rope": True,
        "alibi": False,
        "mlp_ratio": 4,
        "mask_token_id": 126336,
    },
    "dream_7b": {
        "model_type": "Dream",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "num_hidden_layers": 28,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "mask_token_id": 151666,
        "max_window_layers": 28,
        "use_sliding_window": False,
        "sliding_window": None,
    },
    "gpt_neo_1_3b": {
        "model_type": "gpt_neo",
        "hidden_size": 2048,
        "num_heads": 16,
        "num_layers": 24,
        "vocab_size": 50257,
        "max_position_embeddings": 2048,
        "window_size": 256,
        "attention_layers": ["global", "local"] * 12,
        "attention_types": [[["global", "local"], 12]],
        "intermediate_size": None,
        "resid_dropout": 0,
        "embed_dropout": 0,
    },
    "codegen_6b": {
        "model_type": "codegen",
        "n_embd": 4096,
        "n_head": 16,
        "n_layer": 33,
        "n_positions": 2048,
        "n_ctx": 2048,
        "n_inner": None,
        "rotary_dim": 64,
        "vocab_size": 51200,
        "tie_word_embeddings": False,
    },
    "minicpm_2b": {
        "model_type": "minicpm",
        "hidden_size": 2304,
        "intermediate_size": 5760,
        "num_attention_heads": 36,
        "num_key_value_heads": 36,
        "num_hidden_layers": 40,
        "vocab_size": 122753,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
    },
    "minicpm4_8b": {
        "model_type": "minicpm",
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "num_hidden_layers": 32,
        "vocab_size": 73448,
        "scale_emb": 12,
        "dim_model_base": 256,
        "scale_depth": 1.4,
        "tie_word_embeddings": False,
    },
    "internlm_7b": {
        "model_type": "internlm",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 103168,
        "bias": True,
        "tie_word_embeddings": False,
        "rotary": {"base": 10000, "type": "dynamic"},
    },
    "xverse_13b": {
        "model_type": "xverse",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "vocab_size": 100278,
        "tie_word_embeddings": False,
    },
    "skywork_13b": {
        "model_type": "skywork",
        "hidden_size": 4608,
        "intermediate_size": 12288,
        "num_attention_heads": 36,
        "num_key_value_heads": 36,
        "num_hidden_layers": 52,
        "vocab_size": 65519,
        "tie_word_embeddings": False,
    },
    "orion_14b": {
        "model_type": "orion",
        "hidden_size": 5120,
        "intermediate_size": 15360,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "num_hidden_layers": 40,
        "vocab_size": 84608,
        "tie_word_embeddings": False,
        "attention_bias": False,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_read_as_its_entry(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read, known = sm.model(CONFIGS[name]), sm.model(name)
    # The vocabulary of XVERSE is padded in its entry.
    assert read.parameters == pytest.approx(
        known.parameters, rel=0 if name != "xverse_13b" else 3e-4
    )
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "gated", "norm"):
        assert getattr(read.shape, field) == getattr(known.shape, field), field
    for field in (
        "position",
        "qkv_bias",
        "out_bias",
        "mlp_bias",
        "tied_embeddings",
        "bidirectional",
    ):
        assert getattr(read.shape, field) == getattr(known.shape, field), field


def test_a_window_by_turns_is_the_same_however_it_is_said() -> None:
    read, known = sm.model(CONFIGS["gpt_neo_1_3b"]), sm.model("gpt_neo_1_3b")
    assert [read.core.layer_kind(i) for i in range(24)] == [0, 1] * 12
    assert read.core.kinds == known.core.kinds == 2
    assert read.shape.window == known.shape.window == 256
    groups = {**CONFIGS["gpt_neo_1_3b"]}
    del groups["attention_layers"]
    assert sm.model(groups).shape == read.shape
    with pytest.raises(ScaleModelError, match="attention_types"):
        sm.model({**groups, "attention_types": [[["global", "local"], 3]]})


def test_a_tower_by_the_name_of_its_weights_is_left_out_and_said_so() -> None:
    config = {
        "model_type": "llava_llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "mm_vision_tower": "openai/clip-vit-large-patch14-336",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 32000,
    }
    with pytest.warns(UserWarning, match="left out: mm_vision_tower"):
        assert sm.model(config).parameters == sm.model("llama2_7b").parameters
