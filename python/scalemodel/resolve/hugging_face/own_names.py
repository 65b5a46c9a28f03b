"""Families of 2022-25 whose keys are their own, most with code that came beside the weights."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import (
    Config,
    count_at,
    layers_at,
    malformed,
    rows_at,
)
from scalemodel.resolve.hugging_face.steps import Architecture


def _look_past(config: Config, keys: tuple[str, ...]) -> None:
    """Keys that change no cost, or say once more what others do."""
    for key in keys:
        config.value(key)


# Keys of each family that are looked past.
# fmt: off
_GLM = (
    "apply_query_key_layer_scaling", "apply_residual_connection_post_layernorm",
    "attention_softmax_in_fp32", "bias_dropout_fusion", "fp32_residual_connection",
    "original_rope", "post_layer_norm", "quantization_bit", "pre_seq_len", "num_hidden_layers",
    "prefix_projection", "rope_ratio", "interleaved_qkv",
)
_QWEN = (
    "bf16", "fp16", "fp32", "seq_length", "use_dynamic_ntk", "use_flash_attn", "use_logn_attn",
    "use_cache_kernel", "use_cache_quantization", "onnx_safe", "softmax_in_fp32", "tokenizer_type",
    "rotary_emb_base",
)
_BAICHUAN = ("model_max_length", "z_loss_weight", "gradient_checkpointing")
_LLADA = (
    "activation_type", "alibi", "alibi_bias_max", "attention_layer_norm",
    "attention_layer_norm_with_affine", "bias_for_layer_norm", "block_group_size", "block_type",
    "flash_attention", "init_cutoff_factor", "init_fn", "input_emb_norm", "layer_norm_type",
    "layer_norm_with_affine", "mask_token_id", "mlp_ratio", "multi_query_attention", "precision",
    "rope", "rope_full_precision", "scale_logits", "include_qkv_bias", "embedding_size",
)
_DREAM = ("mask_token_id",)
_NEO = ("num_layers", "resid_dropout", "embed_dropout")
# fmt: on


def chatglm(config: Config, architecture: Architecture) -> None:
    """ChatGLM 2, ChatGLM 3 and GLM-4 (zai-org/glm-4-9b, modeling_chatglm.py): gated blocks."""
    _look_past(config, _GLM)
    heads = config.count(count_at("num_attention_heads"))
    groups = config.number("multi_query_group_num", default=1, minimum=1)
    several = config.flag("multi_query_attention", False)
    biased = config.flag("add_bias_linear", False)
    architecture |= {
        "layers": config.count(layers_at("num_layers", "num_hidden_layers")),
        "hidden": config.count(count_at("hidden_size")),
        "vocab": config.count(rows_at("padded_vocab_size", "vocab_size")),
        "heads": heads,
        "kv_heads": groups if several else heads,
        "head_dim": config.number("kv_channels", default=128, minimum=1),
        "ffn": config.count(count_at("ffn_hidden_size")),
        "norm": "rmsnorm" if config.flag("rmsnorm", True) else "layernorm",
        "qkv_bias": config.flag("add_qkv_bias", False) or biased,
        "out_bias": biased,
        "mlp_bias": biased,
    }
    config.value("vocab_size")


def qwen(config: Config, architecture: Architecture) -> None:
    """Qwen of 2023 (Qwen/Qwen-7B, modeling_qwen.py): half of the stated width for each matrix."""
    _look_past(config, _QWEN)
    heads = config.count(count_at("num_attention_heads"))
    width = config.count(count_at("intermediate_size"))
    assert width is not None
    biased = not config.flag("no_bias", True)
    architecture |= {
        "layers": config.count(layers_at("num_hidden_layers")),
        "hidden": config.count(count_at("hidden_size")),
        "vocab": config.count(rows_at("vocab_size")),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": config.number("kv_channels", default=128, minimum=1),
        "ffn": width // 2,
        "qkv_bias": True,
        "out_bias": biased,
        "mlp_bias": biased,
    }


def baichuan(config: Config, architecture: Architecture) -> None:
    """Baichuan (baichuan-inc/Baichuan2-13B-Base): the larger has no positions but by distance."""
    _look_past(config, _BAICHUAN)
    if config.value("max_position_embeddings")[1] is None:
        architecture["position"] = "alibi"


def llada(config: Config, architecture: Architecture) -> None:
    """LLaDA (GSAI-ML/LLaDA-8B-Base, arXiv 2502.09992): a Llama without a causal mask."""
    _look_past(config, _LLADA)
    heads = config.count(count_at("n_heads"))
    architecture |= {
        "layers": config.count(layers_at("n_layers")),
        "hidden": config.count(count_at("d_model")),
        "vocab": config.count(rows_at("embedding_size", "vocab_size")),
        "heads": heads,
        "kv_heads": config.number("n_kv_heads", default=heads or 1, minimum=1),
        "ffn": config.count(count_at("mlp_hidden_size")),
        "qkv_bias": config.flag("include_bias", False),
        "tied_embeddings": config.flag("weight_tying", False),
        "bidirectional": True,
    }
    config.value("vocab_size")


def both_ways(config: Config, architecture: Architecture) -> None:
    """Dream (Dream-org/Dream-v0-Base-7B, arXiv 2508.15487): a Qwen2 without a causal mask."""
    _look_past(config, _DREAM)
    architecture |= {"bidirectional": True, "qkv_bias": True}


def gpt_neo(config: Config, architecture: Architecture) -> None:
    """GPT-Neo (transformers, models/gpt_neo): kinds of attention by turns, few biases."""
    _look_past(config, _NEO)
    hidden = config.count(count_at("hidden_size"))
    heads = config.count(count_at("num_heads", "num_attention_heads"))
    layers = config.count(layers_at("num_layers", "num_hidden_layers"))
    assert hidden is not None
    assert layers is not None
    kinds = _kinds_of_attention(config, layers)
    architecture |= {
        "layers": layers,
        "hidden": hidden,
        "vocab": config.count(rows_at("vocab_size")),
        "positions": config.count(rows_at("max_position_embeddings")),
        "heads": heads,
        "kv_heads": heads,
        "ffn": config.number("intermediate_size", default=4 * hidden, minimum=1),
        "out_bias": True,
        "mlp_bias": True,
    }
    window = config.number("window_size", default=256, minimum=1)
    if "local" in kinds:
        architecture["mixers"] = "".join("W" if kind == "local" else "F" for kind in kinds)
        architecture["window"] = window


def _kinds_of_attention(config: Config, layers: int) -> list[object]:
    """One of every layer, from a list of them or from groups and how often each comes."""
    kinds = list(config.items("attention_layers") or ())
    name, groups = config.value("attention_types")
    if not kinds:
        for group in groups if isinstance(groups, (list, tuple)) else ():
            if not isinstance(group, (list, tuple)) or len(group) != 2:
                raise malformed(name, groups, "pairs of kinds and how often they come")
            turn, times = group
            if not isinstance(turn, (list, tuple)) or not isinstance(times, int):
                raise malformed(name, groups, "pairs of kinds and how often they come")
            kinds += list(turn) * min(times, layers)
    if kinds and len(kinds) != layers:
        raise malformed(name, groups, f"kinds of {layers} layers")
    return kinds


def xglm(config: Config, architecture: Architecture) -> None:
    """XGLM (transformers, models/xglm): positions are computed, every matrix has a bias."""
    heads = config.count(count_at("attention_heads"))
    architecture |= {
        "layers": config.count(layers_at("num_layers")),
        "hidden": config.count(count_at("d_model")),
        "vocab": config.count(rows_at("vocab_size")),
        "heads": heads,
        "kv_heads": heads,
        "ffn": config.count(count_at("ffn_dim")),
    }
