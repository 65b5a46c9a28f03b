"""What single families of 2026 do that no key of theirs says, and older ones beside them."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import Config, count_at, malformed, rows_at
from scalemodel.resolve.hugging_face.steps import Architecture, attends_alone


def _whole(architecture: Architecture, name: str) -> int:
    value = architecture.get(name, 0)
    assert isinstance(value, int)
    return value


def arctic(config: Config, architecture: Architecture) -> None:
    """Arctic (Snowflake/snowflake-arctic-base, modeling_arctic.py): a dense block beside experts.

    It is as wide as the stream.
    """
    for key in ("moe_layer_frequency", "use_residual", "moe_eval_capacity_factor", "enc_index"):
        config.value(key)
    for key in ("moe_train_capacity_factor", "moe_min_capacity", "moe_token_dropping", "use_fused"):
        config.value(key)
    config.value("moe_expert_parallel_size"), config.value("enable_expert_tensor_parallelism")
    if config.flag("parallel_attn_mlp_res", True):
        architecture |= {"shared_experts": 1, "shared_ffn": _whole(architecture, "hidden")}


def gated_norms(config: Config, architecture: Architecture) -> None:
    """A.X K2 (transformers, models/axk2): norms with a gate, a gate that comes with queries."""
    architecture["norm_rank"] = config.number("gated_norm_rank", default=16)


def two_maps(config: Config, architecture: Architecture) -> None:
    """Diff Transformer (transformers, models/diffllama; arXiv 2410.05258): maps in pairs.

    The four vectors that weigh them, and the values that both maps of a pair read, are left out.
    """
    config.value("lambda_std_dev")


def shared_keys(config: Config, architecture: Architecture) -> None:
    """Hunyuan-Large (arXiv 2411.02265): layers that use the keys and values of the one before."""
    factor = config.number("cla_share_factor", default=2, minimum=1)
    if config.flag("use_cla", False) and factor > 1:
        architecture["kv_sources"] = "O" + "S" * (factor - 1)


def full_gate(config: Config, architecture: Architecture) -> None:
    """Ling 3 (transformers, models/bailing_hybrid): the gate of a delta rule is one matrix."""
    config.value("short_conv_kernel_size")
    if architecture.get("recurrence") == "kimi_delta":
        architecture["scan_rank"] = 0


def inkling2(config: Config, architecture: Architecture) -> None:
    """Inkling 2 (transformers, models/inkling2): snapshots of the stream, positions in attention.

    Scores of relative positions and convolutions of a few tokens are left out: 0.1 %.
    """
    for key in ("d_rel", "rel_extent", "conv_kernel_size", "number_of_conv_states"):
        config.value(key)
    for key in ("log_scaling_alpha", "log_scaling_n_floor", "mlp_gate_softcap", "mlp_up_softcap"):
        config.value(key)
    for key in ("qk_l2_clip_threshold", "rel_l2_clip_threshold", "unpadded_vocab_size"):
        config.value(key)
    blocks = config.number("n_layers_per_attn_res_block", default=0)
    architecture["attention_residuals"] = blocks
    attends_alone(architecture)


def doubled_keys(config: Config, architecture: Architecture) -> None:
    """MiMo-V2 (transformers, models/mimo_v2_flash): twice the heads of keys behind a window.

    Files as released say so; those that the library writes leave it to its class.
    """
    if "W" in str(architecture.get("mixers")) and "window_kv_heads" not in architecture:
        architecture["window_kv_heads"] = 2 * _whole(architecture, "kv_heads")


def modern_bert_decoder(config: Config, architecture: Architecture) -> None:
    """ModernBERT as a decoder (transformers, models/modernbert_decoder): tokens see none behind.

    A window is as wide as all of ``local_attention``.
    """
    architecture["bidirectional"] = False


def gated_residuals(config: Config, architecture: Architecture) -> None:
    """Muse Spark (transformers, models/muse_spark): gates on what blocks add to the stream.

    The norms of what experts read and write are left out.
    """
    config.value("residual_gate_temperature")
    architecture["norms_per_layer"] = 5  # three, and two gates as wide as one


def shared_heads(config: Config, architecture: Architecture) -> None:
    """PLaMo (pfnet/plamo-13b, modeling_plamo.py): heads share keys in groups of a size."""
    heads, size = (
        _whole(architecture, "heads"),
        config.number("n_shared_head", default=8, minimum=1),
    )
    if heads % size:
        raise malformed("n_shared_head", size, f"a divisor of {heads} heads")
    architecture["kv_heads"] = heads // size


def plamo3(config: Config, architecture: Architecture) -> None:
    """PLaMo 3 (pfnet/plamo-3-nict-8b-base): windows but in every n-th layer."""
    layers = _whole(architecture, "layers")
    listed = config.items("interleaved_sliding_window")
    window = config.number("window_size", "sliding_window", default=0)
    period = config.number("sliding_window_pattern", default=8, minimum=1)
    if listed:
        sizes = [n for n in listed if isinstance(n, int) and not isinstance(n, bool) and n > 0]
        turns = [listed[i % len(listed)] for i in range(layers)]
        architecture["mixers"] = "".join("W" if n else "F" for n in turns)
        architecture["window"] = max(sizes, default=0)
    elif window:
        architecture["mixers"] = "".join(
            "F" if (i + 1) % period == 0 else "W" for i in range(layers)
        )
        architecture["window"] = window
    architecture.pop("full_attention_every", None)


def biased_output(config: Config, architecture: Architecture) -> None:
    """TeleChat (Tele-AI/TeleChat2-35B, modeling_telechat2.py): a bias behind attention.

    That behind the block is left out.
    """
    for key in ("apply_residual_connection_post_layernorm", "attention_softmax_in_fp32"):
        config.value(key)
    for key in ("embed_layernorm", "flash_attn", "logn", "training_seqlen", "seq_length"):
        config.value(key)
    architecture["out_bias"] = True


def qwen4(config: Config, architecture: Architecture) -> None:
    """Qwen4-Exp (transformers, models/qwen4_exp): streams mixed in a low rank, tables of runs.

    Some layers look runs of tokens up in tables, each a prime number of rows above the one that the
    file gives. Their projections and convolutions are left out: 0.1 % of them. Keys of an
    indexer, which stand for blocks of tokens, are read as one a token.
    """
    hidden = _whole(architecture, "hidden")
    architecture |= {
        "residual_streams": config.number("hc_count", default=4, minimum=1),
        "stream_rank": config.number("hc_lowrank", default=320, minimum=1),
    }
    for key in ("output_gate_type", "seed", "split_ngram_parts", "ple_conv_kernel_size"):
        config.value(key)
    config.value("make_ngram_vocab_size_divisible_by"), config.value("number_of_conv_states")
    mixers = str(architecture.get("mixers") or "")
    indexed = config.count(count_at("indexer_n_heads", default=None))
    config.value("indexer_kv_heads")
    if indexed is not None and "F" in mixers:  # as the released file calls layers with an indexer
        architecture |= {
            "mixers": mixers.replace("F", "I"),
            "index_heads": indexed,
            "index_dim": config.count(count_at("indexer_head_dim")),
            "index_topk": config.count(count_at("indexer_budget")),
        }
    listed = config.items("ple_layer_ids") or ()
    width = config.number("ple_embed_dim", default=hidden, minimum=1)
    config.value("ngram_size"), config.value("heads_per_ngram")
    rows = config.count(rows_at("ngram_vocab_size_base", default=20_000_000)) or 0
    # Tables of a layer are `width` wide together; here they are counted as wide as the stream.
    architecture["ngram_rows"] = len(set(map(str, listed))) * rows * width // hidden
