"""What single families of 2025-26 do that no key of theirs says."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import (
    Config,
    count_at,
    layers_at,
    malformed,
    rows_at,
)
from scalemodel.resolve.hugging_face.steps import Architecture, attends_alone


def _whole(architecture: Architecture, name: str) -> int:
    value = architecture.get(name, 0)
    assert isinstance(value, int)
    return value


def one_bias(config: Config, architecture: Architecture) -> None:
    """One switch for all biases."""
    biased = config.flag("use_bias", False)
    architecture |= dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), biased)


def query_bias(config: Config, architecture: Architecture) -> None:
    """A bias on queries, keys and values, and another switch for the output."""
    architecture["qkv_bias"] = config.flag("attention_bias", True)
    architecture["out_bias"] = config.flag("attention_out_bias", False)
    architecture["mlp_bias"] = config.flag("mlp_bias", False)


def query_bias_where_said(config: Config, architecture: Architecture) -> None:
    """A bias on queries, keys and values alone, where the file asks for one."""
    architecture["qkv_bias"] = config.flag("attention_bias", False)


def glm4_moe(config: Config, architecture: Architecture) -> None:
    """Norms of queries and keys where the file asks for them, heads of 128 unless it says else."""
    query_bias_where_said(config, architecture)
    architecture["qk_norm"] = config.flag("use_qk_norm", False)
    if config.value("head_dim")[1] is None:
        architecture["head_dim"] = 128
    architecture.pop("v_head_dim", None)  # as wide as the others


def bailing(config: Config, architecture: Architecture) -> None:
    """Ling and Ring: a switch for all biases of attention, and one for queries, keys and values."""
    biased = config.flag("use_bias", False)
    architecture["qkv_bias"] = config.flag("use_qkv_bias", False) or biased
    architecture["out_bias"] = biased


def head_bias(config: Config, architecture: Architecture) -> None:
    """PhiMoE: a switch for the bias of the head."""
    architecture["head_bias"] = config.flag("lm_head_bias", False)


def fixed_norms(config: Config, architecture: Architecture) -> None:
    """Apertus: what its file says of norms is what its code has."""
    config.flag("qk_norm", True), config.flag("post_norm", False)


def falcon_h1(config: Config, architecture: Architecture) -> None:
    """The norm inside the mixer is off unless switched on."""
    architecture["scan_norm"] = config.flag("mamba_rms_norm", False)


def adjusted_width(config: Config, architecture: Architecture) -> None:
    """Two thirds of the stated width, rounded up to whole blocks, where the file says so."""
    if config.value("tie_word_embeddings")[1] is None:
        architecture["tied_embeddings"] = config.flag("tie_embedding", True)
    # Said once more for the convolution, whose width is that of the stream.
    config.value("block_dim", "num_heads", "conv_dim_out"), config.flag("block_use_swiglu", True)
    block = config.number("block_multiple_of", default=256, minimum=1)
    name, factor = config.value("block_ffn_dim_multiplier")
    if config.flag("block_auto_adjust_ff_dim", True):
        if factor is not None and (
            isinstance(factor, bool) or not isinstance(factor, (int, float))
        ):
            raise malformed(name, factor, "a number")
        width = int(2 * _whole(architecture, "ffn") / 3)
        width = int((1.0 if factor is None else float(factor)) * width)
        architecture["ffn"] = block * -(-width // block)


def dense_beside_experts(config: Config, architecture: Architecture) -> None:
    """Gemma 4: the dense block of a layer runs beside its experts, as a shared one does."""
    config.flag("enable_moe_block", True)
    if architecture.get("experts"):
        architecture |= {
            "shared_experts": 1,
            "shared_ffn": _whole(architecture, "ffn")
            or config.number("intermediate_size", default=0),
            "norms_per_layer": 7,
        }
    config.flag("use_double_wide_mlp", False)
    width = config.number("hidden_size_per_layer_input", default=0)
    rows = config.count(rows_at("vocab_size_per_layer_input", default=None))
    shared = config.number("num_kv_shared_layers", default=0)
    architecture["kv_shared_layers"] = shared
    if width and rows:
        architecture |= {"layer_embedding": width, "layer_embedding_rows": rows}


def layer_embeddings(config: Config, architecture: Architecture) -> None:
    """Gemma 3n: every layer looks up values of its own; streams and a learned residual."""
    architecture["layer_embedding"] = config.number("hidden_size_per_layer_input", default=0)
    rows = config.count(rows_at("vocab_size_per_layer_input", default=None))
    architecture["layer_embedding_rows"] = rows or architecture["vocab"]
    architecture["residual_streams"] = config.number("altup_num_inputs", default=1, minimum=1)
    architecture["residual_rank"] = config.number("laurel_rank", default=0)
    architecture["kv_shared_layers"] = config.number("num_kv_shared_layers", default=0)
    config.items("activation_sparsity_pattern")


def t5(config: Config, architecture: Architecture) -> list[str]:
    """T5 (transformers, models/t5): an encoder and a decoder of like layers.

    Biases of relative positions, a table of 32 x heads each, are not counted.
    """
    layers = config.count(layers_at("num_layers", "num_hidden_layers"))
    activation = config.text("feed_forward_proj", "relu")
    config.value("dense_act_fn"), config.flag("is_gated_act", False)
    config.value("relative_attention_num_buckets", "relative_attention_max_distance")
    architecture |= {
        "layers": config.count(layers_at("num_decoder_layers", default=layers)),
        "encoder_layers": layers,
        "hidden": config.count(count_at("d_model", "hidden_size")),
        "vocab": config.count(rows_at("vocab_size")),
        "heads": config.count(count_at("num_heads", "num_attention_heads")),
        "head_dim": config.count(count_at("d_kv", default=64)),
        "ffn": config.count(count_at("d_ff")),
        "gated": activation.startswith("gated"),
    }
    architecture["kv_heads"] = architecture["heads"]
    return []


#: How a router of Switch is trained, and what becomes of tokens that an expert has no room for.
_SWITCH_ROUTER = (
    *("expert_capacity", "router_type", "router_bias", "router_ignore_padding_tokens"),
    *("router_z_loss_coef", "add_router_probs", "batch_prioritized_routing", "router_dtype"),
)


def switch(config: Config, architecture: Architecture) -> list[str]:
    """Switch (transformers, models/switch_transformers): experts by turns, one a token.

    What a file gives as layers with experts of each half is how often they come.
    """
    unknown = t5(config, architecture)
    every = {}
    for half, name in (("encoder", "encoder_layers"), ("decoder", "layers")):
        layers = _whole(architecture, name)
        sparse = config.number(f"num_sparse_{half}_layers", default=layers // 2)
        usual = layers // sparse if sparse else 0
        every[half] = config.number(f"{half}_sparse_step", default=usual)
    for key in _SWITCH_ROUTER:
        config.value(key)
    architecture |= {
        "experts": config.count(count_at("num_experts")),
        "experts_per_token": config.number("num_selected_experts", default=1, minimum=1),
        "expert_ffn": architecture["ffn"],
        "moe_every": every["decoder"] or 1,
        "encoder_moe_every": every["encoder"],
    }
    if not every["decoder"]:
        architecture["feed_forwards"] = "D"
    return unknown


def whisper(config: Config, architecture: Architecture) -> list[str]:
    """Whisper (transformers, models/whisper): windows of sound, two frames of 10 ms a position.

    The encoder has the heads and widths of the decoder in every released size; a file in which they
    differ is told so.
    """
    pairs = (("attention_heads", "heads"), ("ffn_dim", "ffn"))
    for key, name in pairs:
        architecture[name] = config.count(count_at(f"decoder_{key}"))
    architecture |= {
        "layers": config.count(layers_at("decoder_layers")),
        "encoder_layers": config.count(layers_at("encoder_layers")),
        "encoder_positions": config.count(rows_at("max_source_positions", default=1500)),
        "encoder_channels": config.number("num_mel_bins", default=80, minimum=1),
        "encoder_stride": 2,
        "hidden": config.count(count_at("d_model")),
        "vocab": config.count(rows_at("vocab_size")),
        "positions": config.count(rows_at("max_target_positions", default=448)),
        "kv_heads": architecture["heads"],
    }
    config.count(layers_at("num_hidden_layers", default=None))
    return [
        f"encoder_{key}"
        for key, name in pairs
        if config.count(count_at(f"encoder_{key}")) != architecture[name]
    ]


def two_blocks_a_layer(config: Config, architecture: Architecture) -> None:
    """LongCat: two attentions and two dense blocks a layer, and experts beside the first of them.

    Written as two layers: the experts' shared block is the first dense one.
    """
    layers = _whole(architecture, "layers")
    architecture |= {
        "layers": 2 * layers,
        "feed_forwards": "ED",
        "shared_experts": 1,
        "shared_ffn": config.count(count_at("ffn_hidden_size", "intermediate_size")),
    }
    architecture["ffn"] = architecture["shared_ffn"]


def runs_of_tokens(config: Config, architecture: Architecture) -> None:
    """LongCat-Flash-Lite: tables for runs of tokens, a multiple of the vocabulary each.

    They are as wide as the stream together, however many runs and splits of each there are.
    """
    ratio = config.number("ngram_vocab_size_ratio", default=0)
    config.value("emb_neighbor_num"), config.value("emb_split_num")
    architecture["ngram_rows"] = ratio * _whole(architecture, "vocab")


def inner_norms(config: Config, architecture: Architecture) -> None:
    """BitNet: norms inside attention and the block, and gates however they are activated."""
    architecture |= {"norms_per_layer": 4, "gated": True}


def one_attention_bias(config: Config, architecture: Architecture) -> None:
    """InternLM: `bias` is that of attention, `qkv_bias` of its inputs where it stands alone."""
    biased = config.flag("bias", False)
    architecture["qkv_bias"] = config.flag("qkv_bias", biased)
    architecture["out_bias"] = biased


def dense_beside_routed(config: Config, architecture: Architecture) -> None:
    """Grok-2 (sgl-project/sglang, models/grok.py): a dense block beside the experts of a layer.

    It is as wide as `intermediate_size` says, which the experts are where it is left out.
    """
    if config.flag("residual_moe", False):
        architecture |= {
            "shared_experts": 1,
            "shared_ffn": config.count(count_at("intermediate_size")),
        }
    config.number("global_attn_every_n", default=1)


def positions_in_attention(config: Config, architecture: Architecture) -> None:
    """Inkling: scores of relative positions, and convolutions of a few tokens around the blocks.

    Both are left out: 0.05 % of the parameters.
    """
    attends_alone(architecture)
    config.value("d_rel", "rel_extent"), config.value("conv_kernel_size", "number_of_conv_states")


def gate_where_said(config: Config, architecture: Architecture) -> None:
    """Laguna: a gate on the output of attention, one number per head or one per value."""
    name, gate = config.value("gating")
    config.items("gating_types")
    if gate not in (None, True, False, "per-head", "per-element"):
        raise malformed(name, gate, "true, false, 'per-head' or 'per-element'")
    if gate:
        architecture["attention_gate"] = "values" if gate == "per-element" else "heads"


def sandwich(config: Config, architecture: Architecture) -> None:
    """LFM3: norms behind the blocks too, where the file says so."""
    architecture["norms_per_layer"] = 4 if config.flag("use_sandwich_norm", False) else 2
    config.flag("attention_bias", False)


def all_biases(config: Config, architecture: Architecture) -> None:
    """Every matrix of a layer has a bias."""
    architecture |= dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), True)
    architecture["qk_norm"] = config.flag("qk_layernorm", True)


def every_bias(config: Config, architecture: Architecture) -> None:
    """StarCoder2: one switch for all biases, on unless switched off."""
    biased = config.flag("use_bias", True)
    architecture |= dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), biased)


def rwkv7(config: Config, architecture: Architecture) -> None:
    """RWKV-7 (fla-org/flash-linear-attention, models/rwkv7): blocks of two matrices of four widths.

    The first layer has a norm of its own in front, and no share of earlier values.
    """
    hidden = _whole(architecture, "hidden")
    width = config.number("intermediate_size", default=0)
    ratio = config.number("hidden_ratio", default=4, minimum=1)
    architecture |= {
        "ffn": width or ratio * hidden,
        "gated": False,
        "embedding_norm": config.flag("norm_first", True),
        "heads": architecture["scan_heads"],
        "kv_heads": architecture["scan_heads"],
        "head_dim": architecture["scan_key_dim"],
        "position": "none",
    }


def zamba2(config: Config, architecture: Architecture) -> list[str]:
    """Zamba2 (transformers, models/zamba2): Mamba-2 throughout, blocks of attention shared.

    A shared block reads the stream and the token embedding side by side; every layer that uses it
    adds a low rank of its own to its projections.
    """
    mixers = str(architecture["mixers"])
    width = config.number("attention_hidden_size", default=2 * _whole(architecture, "hidden"))
    heads = _whole(architecture, "heads")
    rank = config.number("adapter_rank", "lora_rank", default=128)
    attention = config.flag("use_shared_attention_adapter", False)
    config.items("hybrid_layer_ids")
    config.number("attention_head_dim", default=0), config.value("kv_channels", "num_query_groups")
    config.flag("use_mem_eff_path", False), config.flag("use_long_context", False)
    architecture |= {
        "mixers": mixers.replace("P", "Z"),
        "feed_forwards": "".join("D" if letter == "P" else "-" for letter in mixers),
        "head_dim": width // heads,
        "v_head_dim": width // heads,
        "norms_per_layer": 1,
        "position": "rope" if config.flag("use_mem_rope", False) else "none",
        "shared_blocks": config.number("num_mem_blocks", default=1, minimum=1),
        "shared_rank": rank,
        "shared_attention_rank": rank if attention else 0,
    }
    return ["add_bias_linear"] if config.flag("add_bias_linear", False) else []


def norms_behind(config: Config, architecture: Architecture) -> None:
    """HyperCLOVA X: norms behind the blocks too, where the file says so."""
    architecture["norms_per_layer"] = 4 if config.flag("use_post_norm", False) else 2


def experts_of_text(config: Config, architecture: Architecture) -> list[str]:
    """ERNIE 4.5 VL: experts of text, which stand first in the lists, beside such of images.

    A token meets those of its kind alone; experts of images are left out, and said so.
    """
    widths = config.items("moe_intermediate_size")
    if widths is None:
        return []
    if len(widths) != 2:
        raise malformed("moe_intermediate_size", widths, "widths of experts of text and of images")
    architecture["expert_ffn"] = widths[0]
    return ["moe_intermediate_size (experts of images left out)"]


def recurrent_gemma(config: Config, architecture: Architecture) -> None:
    """RecurrentGemma (transformers, models/recurrent_gemma): half of the stated width, biases.

    Queries, keys and values have one where the file says so; all other matrices have one.
    """
    for key in ("ffn", "expert_ffn"):
        if key in architecture:
            architecture[key] = _whole(architecture, key) // 2
    architecture |= {
        "qkv_bias": config.flag("attention_bias", False),
        "out_bias": True,
        "mlp_bias": True,
    }
    config.value("logits_soft_cap", "w_init_variance_scale")
    config.value("final_w_init_variance_scale"), config.flag("embeddings_scale_by_sqrt_dim", True)


#: Layers of Llama 3.2 Vision that attend to images where a file leaves them out (transformers,
#: MllamaTextConfig).
_CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)


def cross_attention(config: Config, architecture: Architecture) -> None:
    """Llama 3.2 Vision (transformers, models/mllama): some layers attend to an image alone.

    The token embedding has eight rows that the head lacks, which are left out, as are the two
    numbers that gate each of those layers.
    """
    listed = config.items("cross_attention_layers")
    layers = _whole(architecture, "layers")
    chosen = _CROSS_LAYERS if listed is None else listed
    if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < layers for i in chosen):
        raise malformed("cross_attention_layers", listed, f"a list of layers of {layers}")
    if not chosen:
        raise malformed("cross_attention_layers", listed, "a list of at least one layer")
    architecture["mixers"] = "".join("X" if i in chosen else "F" for i in range(layers))
    if config.value("num_key_value_heads")[1] is None:
        architecture["kv_heads"] = 8


def attention_experts(config: Config, architecture: Architecture) -> None:
    """JetMoE (transformers, models/jetmoe): experts project queries and the output too."""
    heads = _whole(architecture, "kv_heads") * _whole(architecture, "experts_per_token")
    size = config.number("kv_channels", default=128, minimum=1)
    architecture |= {
        "attention_experts": True,
        "heads": heads,
        "head_dim": size,
        "v_head_dim": size,
        "out_bias": True,
    }


#: Keys of xLSTM that say which kernel runs, in which format, and how gates and logits are capped.
_XLSTM_KERNELS = (
    *(
        "norm_reduction_force_float32",
        "add_out_norm",
        "autocast_kernel_dtype",
        "eps",
        "weight_mode",
    ),
    *("inference_state_dtype", "return_last_states", "output_logit_soft_cap", "embedding_dim"),
    *("max_inference_chunksize", "num_blocks", "use_bias"),
)


def xlstm(config: Config, architecture: Architecture) -> None:
    """A gated block some times as wide as the stream (transformers, models/xlstm)."""
    name, ratio = config.value("ffn_proj_factor")
    ratio = 2.667 if ratio is None else ratio
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1000:
        raise malformed(name, ratio, "a number above 0, at most 1000")
    block = config.number("ffn_round_up_to_multiple_of", default=64, minimum=1)
    for key in _XLSTM_KERNELS:
        config.value(key)
    architecture |= {
        "ffn": block * -(-int(ratio * _whole(architecture, "hidden")) // block),
        "heads": architecture["scan_heads"],
        "kv_heads": architecture["scan_heads"],
        "head_dim": architecture["scan_value_dim"],
        "v_head_dim": architecture["scan_value_dim"],
    }
