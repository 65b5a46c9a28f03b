"""The Hugging Face loader: published files give the catalogue's architectures; bad ones say why."""

from __future__ import annotations

import copy
import math
import sys
from importlib import resources
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.errors import ScaleModelError
from scalemodel.hugging_face import architecture_from_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Config = dict[str, Any]


def catalogue_architecture(name: str) -> Config:
    path = resources.files("scalemodel") / "catalog" / "models" / f"{name}.toml"
    table: Config = tomllib.loads(path.read_text(encoding="utf-8"))["architecture"]
    return table


def llama(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> Config:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": ffn,
        "max_position_embeddings": 8192,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv_heads,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.0.dev0",
        "use_cache": True,
        "vocab_size": vocab,
    }


DEEPSEEK_V3: Config = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "aux_loss_alpha": 0.001,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "initializer_range": 0.02,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "pretraining_tp": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "factor": 40, "type": "yarn"},
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
    "use_cache": True,
    "v_head_dim": 128,
    "vocab_size": 129280,
}

GPT_OSS_120B: Config = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": 200002,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "max_position_embeddings": 131072,
    "model_type": "gpt_oss",
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "output_router_logits": False,
    "pad_token_id": 199999,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "rope_type": "yarn"},
    "rope_theta": 150000,
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": 201088,
}

LLAMA4_MAVERICK: Config = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "boi_token_index": 200080,
    "eoi_token_index": 200081,
    "image_token_index": 200092,
    "model_type": "llama4",
    "text_config": {
        "_attn_implementation_autoset": True,
        "attention_bias": False,
        "attention_chunk_size": 8192,
        "attention_dropout": 0.0,
        "bos_token_id": 200000,
        "cache_implementation": "hybrid",
        "eos_token_id": [200001, 200007, 200008],
        "for_llm_compression": False,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "initializer_range": 0.02,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 1048576,
        "model_type": "llama4_text",
        "moe_layers": list(range(1, 48, 2)),
        "no_rope_layers": [1, 1, 1, 0] * 12,
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "output_router_logits": False,
        "pad_token_id": 200018,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 500000.0,
        "router_aux_loss_coef": 0.001,
        "router_jitter_noise": 0.0,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_qk_norm": False,
        "vocab_size": 202048,
    },
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def without(config: Config, *keys: str, **changes: Any) -> Config:
    return {k: v for k, v in config.items() if k not in keys} | changes


# Catalogue entry -> the values of its published config.json.
PUBLISHED: dict[str, Config] = {
    "llama2_7b": without(llama(32, 4096, 32, 32, 11008, 32000), "mlp_bias"),
    "llama3_8b": llama(32, 4096, 32, 8, 14336, 128256),
    "llama3_70b": llama(80, 8192, 64, 8, 28672, 128256),
    "llama3_1_405b": llama(126, 16384, 128, 8, 53248, 128256)
    | {"rope_scaling": {"factor": 8.0, "rope_type": "llama3"}},
    "llama3_2_1b": llama(16, 2048, 32, 8, 8192, 128256)
    | {"head_dim": 64, "tie_word_embeddings": True},
    "yi_34b": without(llama(60, 7168, 56, 8, 20480, 64000), "attention_bias", "mlp_bias"),
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v2": without(
        DEEPSEEK_V3,
        "num_nextn_predict_layers",
        model_type="deepseek_v2",
        first_k_dense_replace=1,
        hidden_size=5120,
        intermediate_size=12288,
        moe_intermediate_size=1536,
        n_routed_experts=160,
        n_shared_experts=2,
        num_experts_per_tok=6,
        num_hidden_layers=60,
        scoring_func="softmax",
        topk_method="group_limited_greedy",
        vocab_size=102400,
    ),
    "deepseek_v2_lite": without(
        DEEPSEEK_V3,
        "num_nextn_predict_layers",
        model_type="deepseek_v2",
        first_k_dense_replace=1,
        hidden_size=2048,
        intermediate_size=10944,
        moe_intermediate_size=1408,
        n_routed_experts=64,
        n_shared_experts=2,
        num_attention_heads=16,
        num_experts_per_tok=6,
        num_hidden_layers=27,
        num_key_value_heads=16,
        q_lora_rank=None,
        topk_method="greedy",
        vocab_size=102400,
    ),
    "kimi_k2": without(
        DEEPSEEK_V3,
        model_type="kimi_k2",
        first_k_dense_replace=1,
        n_group=1,
        n_routed_experts=384,
        num_attention_heads=64,
        num_key_value_heads=64,
        num_nextn_predict_layers=0,
        topk_group=1,
        vocab_size=163840,
    ),
    "gpt_oss_120b": GPT_OSS_120B,
    "gpt_oss_20b": GPT_OSS_120B
    | {
        "num_hidden_layers": 24,
        "num_local_experts": 32,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
    "llama4_maverick": LLAMA4_MAVERICK,
    "llama4_scout": LLAMA4_MAVERICK
    | {
        "text_config": LLAMA4_MAVERICK["text_config"]
        | {
            "interleave_moe_layer_step": 1,
            "moe_layers": list(range(48)),
            "no_rope_layers": [],
            "num_local_experts": 16,
            "use_qk_norm": True,
        }
    },
    "gpt2_xl": {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": 50256,
        "embd_pdrop": 0.1,
        "eos_token_id": 50256,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 1600,
        "n_head": 25,
        "n_layer": 48,
        "n_positions": 1024,
        "output_past": True,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "vocab_size": 50257,
    },
    "starcoder_15b": {
        "activation_function": "gelu",
        "attention_softmax_in_fp32": True,
        "attn_pdrop": 0.1,
        "inference_runner": 0,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt_bigcode",
        "multi_query": True,
        "n_embd": 6144,
        "n_head": 48,
        "n_inner": 24576,
        "n_layer": 40,
        "n_positions": 8192,
        "scale_attn_weights": True,
        "vocab_size": 49152,
    },
    "gpt_neox_20b": {
        "attention_probs_dropout_prob": 0,
        "hidden_act": "gelu_fast",
        "hidden_dropout_prob": 0,
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 2048,
        "model_type": "gpt_neox",
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": 50432,
    },
    "gptj_6b": {
        "activation_function": "gelu_new",
        "model_type": "gptj",
        "n_embd": 4096,
        "n_head": 16,
        "n_inner": None,
        "n_layer": 28,
        "n_positions": 2048,
        "rotary": True,
        "rotary_dim": 64,
        "tie_word_embeddings": False,
        "vocab_size": 50400,
    },
    "opt_6_7b": {
        "_remove_final_layer_norm": False,
        "activation_dropout": 0.0,
        "activation_function": "relu",
        "do_layer_norm_before": True,
        "dropout": 0.1,
        "ffn_dim": 16384,
        "hidden_size": 4096,
        "init_std": 0.02,
        "layerdrop": 0.0,
        "max_position_embeddings": 2048,
        "model_type": "opt",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "prefix": "</s>",
        "vocab_size": 50272,
        "word_embed_proj_dim": 4096,
    },
    "bloom_176b": {
        "apply_residual_connection_post_layernorm": False,
        "attention_dropout": 0.0,
        "attention_softmax_in_fp32": True,
        "hidden_dropout": 0.0,
        "layer_norm_epsilon": 1e-05,
        "masked_softmax_fusion": True,
        "model_type": "bloom",
        "n_embed": 14336,
        "n_layer": 70,
        "num_attention_heads": 112,
        "pretraining_tp": 4,
        "seq_length": 2048,
        "skip_bias_add": True,
        "skip_bias_add_qkv": False,
        "slow_but_exact": False,
        "vocab_size": 250880,
    },
    "falcon_7b": {
        "alibi": False,
        "attention_dropout": 0.0,
        "bias": False,
        "hidden_dropout": 0.0,
        "hidden_size": 4544,
        "layer_norm_epsilon": 1e-05,
        "model_type": "falcon",
        "multi_query": True,
        "new_decoder_architecture": False,
        "num_attention_heads": 71,
        "num_hidden_layers": 32,
        "parallel_attn": True,
        "vocab_size": 65024,
    },
    "falcon_40b": {
        "alibi": False,
        "bias": False,
        "hidden_size": 8192,
        "model_type": "falcon",
        "new_decoder_architecture": True,
        "num_attention_heads": 128,
        "num_hidden_layers": 60,
        "num_kv_heads": 8,
        "parallel_attn": True,
        "vocab_size": 65024,
    },
    "mosaicml_mpt_7b": {
        "attn_config": {
            "alibi": True,
            "alibi_bias_max": 8,
            "attn_impl": "torch",
            "attn_pdrop": 0,
            "attn_type": "multihead_attention",
            "attn_uses_sequence_id": False,
            "clip_qkv": None,
            "prefix_lm": False,
            "qk_ln": False,
            "softmax_scale": None,
        },
        "d_model": 4096,
        "emb_pdrop": 0,
        "embedding_fraction": 1.0,
        "expansion_ratio": 4,
        "init_config": {"name": "kaiming_normal_"},
        "init_device": "cpu",
        "learned_pos_emb": True,
        "logit_scale": None,
        "max_seq_len": 2048,
        "model_type": "mpt",
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": True,
        "norm_type": "low_precision_layernorm",
        "resid_pdrop": 0,
        "vocab_size": 50432,
    },
    "mpt_7b": {
        "attn_config": {"alibi": False, "attn_impl": "flash"},
        "d_model": 4096,
        "expansion_ratio": 4,
        "learned_pos_emb": True,
        "max_seq_len": 2048,
        "model_type": "mpt",
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": False,
        "vocab_size": 50368,
    },
    "mistral_7b": without(
        llama(32, 4096, 32, 8, 14336, 32000),
        "attention_bias",
        "mlp_bias",
        model_type="mistral",
        sliding_window=4096,
    ),
    "mistral_nemo_12b": without(
        llama(40, 5120, 32, 8, 14336, 131072),
        "attention_bias",
        "mlp_bias",
        model_type="mistral",
        head_dim=128,
        sliding_window=None,
    ),
    "mixtral_8x7b": without(
        llama(32, 4096, 32, 8, 14336, 32000),
        "attention_bias",
        "mlp_bias",
        model_type="mixtral",
        num_experts_per_tok=2,
        num_local_experts=8,
        output_router_logits=False,
        router_aux_loss_coef=0.02,
        sliding_window=None,
    ),
    "qwen2_7b": without(
        llama(28, 3584, 28, 4, 18944, 152064),
        "attention_bias",
        "mlp_bias",
        model_type="qwen2",
        max_window_layers=28,
        sliding_window=131072,
        use_sliding_window=False,
    ),
    "qwen2_57b_a14b": without(
        llama(28, 3584, 28, 4, 18944, 151936),
        "attention_bias",
        "mlp_bias",
        model_type="qwen2_moe",
        decoder_sparse_step=1,
        max_window_layers=28,
        moe_intermediate_size=2560,
        norm_topk_prob=False,
        num_experts=64,
        num_experts_per_tok=8,
        shared_expert_intermediate_size=20480,
        sliding_window=65536,
        use_sliding_window=False,
    ),
    "qwen3_8b": without(
        llama(36, 4096, 32, 8, 12288, 151936),
        "mlp_bias",
        model_type="qwen3",
        head_dim=128,
        max_window_layers=36,
        sliding_window=None,
        use_sliding_window=False,
    ),
    "qwen3_30b_a3b": without(
        llama(48, 2048, 32, 4, 6144, 151936),
        "mlp_bias",
        model_type="qwen3_moe",
        decoder_sparse_step=1,
        head_dim=128,
        max_window_layers=48,
        mlp_only_layers=[],
        moe_intermediate_size=768,
        norm_topk_prob=True,
        num_experts=128,
        num_experts_per_tok=8,
        sliding_window=None,
        use_sliding_window=False,
    ),
    "gemma_7b": without(
        llama(28, 3072, 16, 16, 24576, 256000),
        "mlp_bias",
        "tie_word_embeddings",
        model_type="gemma",
        head_dim=256,
        hidden_activation=None,
    ),
    "gemma2_27b": without(
        llama(46, 4608, 32, 16, 36864, 256000),
        "mlp_bias",
        "tie_word_embeddings",
        model_type="gemma2",
        attn_logit_softcapping=50.0,
        cache_implementation="hybrid",
        final_logit_softcapping=30.0,
        head_dim=128,
        query_pre_attn_scalar=144,
        sliding_window=4096,
    ),
    "gemma3_12b": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": 255999,
        "eoi_token_index": 256000,
        "image_token_index": 262144,
        "initializer_range": 0.02,
        "mm_tokens_per_image": 256,
        "model_type": "gemma3",
        "text_config": {
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "model_type": "gemma3_text",
            "num_attention_heads": 16,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "torch_dtype": "bfloat16",
    },
    "phi_2": {
        "attention_dropout": 0.0,
        "embd_pdrop": 0.0,
        "hidden_act": "gelu_new",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "max_position_embeddings": 2048,
        "model_type": "phi",
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "partial_rotary_factor": 0.4,
        "qk_layernorm": False,
        "tie_word_embeddings": False,
        "vocab_size": 51200,
    },
    "phi_3_medium": without(
        llama(40, 5120, 40, 10, 17920, 32064),
        "mlp_bias",
        model_type="phi3",
        embd_pdrop=0.0,
        original_max_position_embeddings=4096,
        resid_pdrop=0.0,
        sliding_window=2047,
    ),
    "minitron_8b": {
        "attention_bias": False,
        "head_dim": 128,
        "hidden_act": "relu2",
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "mlp_bias": False,
        "model_type": "nemotron",
        "norm_eps": 1e-05,
        "num_attention_heads": 48,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
        "vocab_size": 256000,
    },
    "grok_1": {
        "attn_output_multiplier": 0.08838834764831845,
        "embedding_multiplier_scale": 78.38367176906169,
        "hidden_size": 6144,
        "intermediate_size": 32768,
        "max_attn_value": 30.0,
        "max_position_embeddings": 8192,
        "model_type": "grok-1",
        "num_attention_heads": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "output_multiplier_scale": 0.5773502691896257,
        "rms_norm_eps": 1e-05,
        "vocab_size": 131072,
    },
    "dbrx": {
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "", "rope_theta": 500000},
        "d_model": 6144,
        "emb_pdrop": 0.0,
        "ffn_config": {
            "ffn_hidden_size": 10752,
            "model_type": "",
            "moe_jitter_eps": 0,
            "moe_loss_weight": 0.05,
            "moe_num_experts": 16,
            "moe_top_k": 4,
        },
        "max_seq_len": 32768,
        "model_type": "dbrx",
        "n_heads": 48,
        "n_layers": 40,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    "glm4_5_air_106b": {
        "architectures": ["Glm4MoeForCausalLM"],
        "attention_bias": True,
        "eos_token_id": [151329, 151336, 151338],
        "first_k_dense_replace": 1,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "max_position_embeddings": 131072,
        "model_type": "glm4_moe",
        "moe_intermediate_size": 1408,
        "n_group": 1,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 96,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 46,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "routed_scaling_factor": 1.0,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "use_cache": True,
        "use_qk_norm": False,
        "vocab_size": 151552,
    },
    "olmoe_1b_7b": {
        "attention_bias": False,
        "clip_qkv": None,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 1024,
        "model_type": "olmoe",
        "norm_topk_prob": False,
        "num_attention_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 16,
        "num_key_value_heads": 16,
        "router_aux_loss_coef": 0.01,
        "tie_word_embeddings": False,
        "vocab_size": 50304,
    },
    "olmo2_32b": without(
        llama(64, 5120, 40, 8, 27648, 100352), "mlp_bias", "pretraining_tp", model_type="olmo2"
    ),
    "stablelm2_1_6b": {
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "layer_norm_eps": 1e-05,
        "model_type": "stablelm",
        "num_attention_heads": 32,
        "num_hidden_layers": 24,
        "num_key_value_heads": 32,
        "partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
        "use_qkv_bias": True,
        "vocab_size": 100352,
    },
    "command_r_plus_104b": {
        "attention_bias": False,
        "hidden_size": 12288,
        "intermediate_size": 33792,
        "layer_norm_eps": 1e-05,
        "logit_scale": 0.8333333333333334,
        "model_type": "cohere",
        "num_attention_heads": 96,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "use_qk_norm": True,
        "vocab_size": 256000,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_gives_the_catalogue_architecture(name: str) -> None:
    architecture, unknown = architecture_from_config(PUBLISHED[name])
    expected = catalogue_architecture(name)
    assert without(architecture, "source") == without(expected, "source")
    assert unknown == []


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (  # Granite 3.1 8B
            llama(40, 4096, 32, 8, 12800, 49155)
            | {"model_type": "granite", "tie_word_embeddings": True}
            | {"attention_multiplier": 0.0078125, "embedding_multiplier": 12.0}
            | {"logits_scaling": 16.0, "residual_multiplier": 0.22},
            8.17e9,
        ),
        (  # SmolLM3 3B
            llama(36, 2048, 16, 4, 11008, 128256)
            | {"model_type": "smollm3", "tie_word_embeddings": True}
            | {"layer_types": ["full_attention"] * 36, "no_rope_layers": [1, 1, 1, 0] * 9}
            | {"no_rope_layer_interval": 4, "use_sliding_window": False, "max_window_layers": 28},
            3.08e9,
        ),
    ],
)
def test_kin_of_llama_have_their_published_parameters(config: Config, parameters: float) -> None:
    _, unknown = architecture_from_config(config)
    assert unknown == []
    assert sm.model(config).parameters == pytest.approx(parameters, rel=0.002)


def test_the_config_is_left_as_it_was() -> None:
    config = copy.deepcopy(LLAMA4_MAVERICK)
    architecture_from_config(config)
    assert config == LLAMA4_MAVERICK


def test_unknown_keys_are_reported_with_their_path() -> None:
    config = copy.deepcopy(PUBLISHED["mosaicml_mpt_7b"])
    config |= {"quantization_config": {"bits": 4}, "state_size": 128, "_name_or_path": "x"}
    config["attn_config"]["latent_rank"] = 16
    _, unknown = architecture_from_config(config)
    assert unknown == ["attn_config.latent_rank", "quantization_config", "state_size"]


def test_the_vision_tower_of_a_wrapped_model_is_reported() -> None:
    _, unknown = architecture_from_config(
        LLAMA4_MAVERICK | {"vision_config": {"hidden_size": 1408}}
    )
    assert unknown == ["vision_config"]


def test_an_unknown_family_lists_the_nearest_first() -> None:
    with pytest.raises(ScaleModelError, match=r"qwen4.*nearest first: qwen\d") as caught:
        architecture_from_config({"model_type": "qwen4"})
    assert "deepseek_v3" in str(caught.value)
    assert caught.value.code == "unknown_family"


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size", "model_type"])
def test_a_missing_required_key_is_named(key: str) -> None:
    with pytest.raises(ScaleModelError, match=f"`{key}` is missing"):
        architecture_from_config(without(PUBLISHED["llama3_8b"], key))


def test_a_misspelt_required_key_is_suggested() -> None:
    config = without(PUBLISHED["llama3_8b"], "num_hidden_layers", num_hiden_layers=32)
    with pytest.raises(ScaleModelError, match="did you mean `num_hiden_layers`"):
        architecture_from_config(config)


@pytest.mark.parametrize(
    "value",
    ["32", 32.0, True, math.nan, math.inf, -1, 0, 10**8, 10**5000, [32], {"a": 1}],
    ids=lambda value: type(value).__name__,
)
def test_a_number_that_is_none_is_refused_by_name(value: object) -> None:
    with pytest.raises(ScaleModelError, match=r"num_attention_heads = .*legal is"):
        architecture_from_config(PUBLISHED["llama3_8b"] | {"num_attention_heads": value})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama3_8b", {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'"),
        ("llama3_8b", {"num_key_value_heads": 5}, "5 key/value heads do not divide 32"),
        ("llama3_8b", {"hidden_size": 4097}, "4097 is not a multiple of 32"),
        ("llama3_8b", {"model_type": 3}, "model_type = 3"),
        ("mixtral_8x7b", {"num_experts_per_tok": 9}, "experts per token = 9"),
        ("deepseek_v3", {"first_k_dense_replace": 62}, "leading dense layers = 62"),
        ("deepseek_v3", {"moe_intermediate_size": None}, "moe_intermediate_size"),
        ("gpt_oss_120b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt_oss_120b", {"layer_types": "full"}, "layer_types = 'full'"),
        ("llama4_scout", {"text_config": []}, r"text_config = \[\]"),
        ("llama4_scout", {"text_config": None}, "`text_config` is missing"),
        ("mosaicml_mpt_7b", {"attn_config": [1]}, r"attn_config = \[1\]"),
        ("mosaicml_mpt_7b", {"expansion_ratio": math.nan}, "expansion_ratio = nan"),
        ("dbrx", {"ffn_config": {}}, "`ffn_config.ffn_hidden_size` is missing"),
        ("falcon_40b", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn = 3"),
        ("qwen3_30b_a3b", {"mlp_only_layers": [5]}, "mlp_only_layers"),
    ],
)
def test_an_illegal_value_is_refused_by_name(name: str, changes: Config, message: str) -> None:
    with pytest.raises(ScaleModelError, match=message):
        architecture_from_config(PUBLISHED[name] | changes)


@pytest.mark.parametrize("config", [None, [], "llama", 3, [{"model_type": "llama"}]])
def test_anything_but_a_mapping_is_refused(config: Any) -> None:
    with pytest.raises(ScaleModelError, match="a mapping"):
        architecture_from_config(config)


def test_keys_that_the_schema_cannot_say_are_reported() -> None:
    windows = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    _, unknown = architecture_from_config(PUBLISHED["qwen2_7b"] | windows)
    assert unknown == ["max_window_layers"]
    _, unknown = architecture_from_config(PUBLISHED["opt_6_7b"] | {"word_embed_proj_dim": 512})
    assert unknown == ["word_embed_proj_dim"]


def test_a_window_on_every_layer() -> None:
    used = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
    architecture, unknown = architecture_from_config(PUBLISHED["qwen2_7b"] | used)
    assert (architecture["window"], unknown) == (4096, [])
    assert "full_attention_every" not in architecture


def test_older_spellings_of_falcon() -> None:
    old = without(PUBLISHED["falcon_40b"], "num_hidden_layers", "num_kv_heads", n_layer=60)
    old |= {"n_head_kv": 8}
    assert architecture_from_config(old) == architecture_from_config(PUBLISHED["falcon_40b"])


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -2, -1, 0, 1, 2, 3, 7, 64, 128, 4096, 10**8, 10**12, 10**400, 10**5000,
    0.0, -1.5, 32.0, math.nan, math.inf, "", "32", "llama", "full_attention", [], [0], [1, "a"],
    [None], [0, 1, 2], ["full_attention"], ["sliding_attention"] * 40, [1, 1, 1, 0] * 12, {},
    {"a": 1}, {3: 4}, {"model_type": []}, {"num_hidden_layers": 2}, (1, 2), b"32", object(),
)  # fmt: skip


def mutate(random: Random, config: Config) -> Config:
    """A copy of `config` with up to four keys, nested ones too, changed, removed or added."""
    mutant = copy.deepcopy(config)
    for _ in range(random.randint(1, 4)):
        target: Any = mutant
        nested = [value for value in mutant.values() if isinstance(value, dict)]
        if nested and random.random() < 0.5:
            target = random.choice(nested)
        key = random.choice([*target, "added"])
        action = random.choice(["change", "remove", "add", "swap family"])
        if action == "change":
            target[key] = copy.deepcopy(random.choice(ODD_VALUES))
        elif action == "remove":
            target.pop(key, None)
        elif action == "add":
            added = random.choice(["hidden_layers", "sliding_window", "layer_types", "", 3, None])
            target[added] = copy.deepcopy(random.choice(ODD_VALUES))
        else:
            mutant["model_type"] = random.choice(list(PUBLISHED.values()))["model_type"]
    return mutant


def answers_or_refuses(config: Config) -> bool:
    """True for a sound architecture, False for a refusal; anything else escapes as a failure."""
    try:
        architecture, unknown = architecture_from_config(config)
    except ScaleModelError:
        return False
    assert unknown == sorted(set(unknown))
    heads, kv_heads = architecture["heads"], architecture["kv_heads"]
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    assert heads % kv_heads == 0
    for value in architecture.values():
        assert isinstance(value, (bool, int, str))
        assert isinstance(value, str) or 0 <= value <= 10**8 + 2
    return True


def test_ten_thousand_mutated_configs_give_an_answer_or_a_reason() -> None:
    random = Random(20240229)
    published = list(PUBLISHED.values())
    answers = sum(
        answers_or_refuses(mutate(random, random.choice(published))) for _ in range(10_000)
    )
    # Both outcomes are common, or the mutations test nothing.
    assert 1_000 < answers < 9_000


@settings(max_examples=300, deadline=None)
@given(random=st.randoms(use_true_random=False), name=st.sampled_from(sorted(PUBLISHED)))
def test_a_mutated_config_gives_an_answer_or_a_reason(random: Random, name: str) -> None:
    answers_or_refuses(mutate(random, PUBLISHED[name]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(PUBLISHED)),
    values=st.lists(json_values, min_size=1, max_size=3),
    data=st.data(),
)
def test_any_json_value_gives_an_answer_or_a_reason(
    name: str, values: list[Any], data: st.DataObject
) -> None:
    keys = st.sampled_from(sorted(PUBLISHED[name]))
    answers_or_refuses(PUBLISHED[name] | {data.draw(keys): value for value in values})
