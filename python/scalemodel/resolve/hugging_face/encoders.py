"""Encoders of words, whose tokens see both ways, and encoders with a decoder behind them."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import Config, count_at, layers_at, rows_at
from scalemodel.resolve.hugging_face.steps import Architecture


def _stream(config: Config, architecture: Architecture) -> None:
    heads = config.count(count_at("num_attention_heads", "n_heads"))
    architecture |= {
        "layers": config.count(layers_at("num_hidden_layers", "n_layers")),
        "hidden": config.count(count_at("hidden_size", "dim")),
        "vocab": config.count(rows_at("vocab_size")),
        "heads": heads,
        "kv_heads": config.number("num_key_value_heads", default=heads or 1, minimum=1),
        "ffn": config.count(count_at("intermediate_size", "hidden_dim")),
        "bidirectional": True,
    }
    size = config.count(count_at("head_dim", default=None))
    if size is not None:
        architecture["head_dim"] = size


def bert(config: Config, architecture: Architecture) -> None:
    """BERT and its like (transformers, models/bert, models/roberta, models/distilbert).

    Tables of positions and of kinds of token are looked up together, and one norm follows them.
    """
    _stream(config, architecture)
    kinds = config.number("type_vocab_size", default=0)
    config.flag("sinusoidal_pos_embds", False), config.text("position_embedding_type", "absolute")
    positions = config.count(rows_at("max_position_embeddings", default=512)) or 512
    architecture |= {"position": "learned", "positions": positions + kinds}


def modern_bert(config: Config, architecture: Architecture) -> None:
    """ModernBERT (transformers, models/modernbert): windows but in every n-th layer from the first.

    A window is as wide to one side as to the other, ``local_attention`` in all.
    """
    _stream(config, architecture)
    layers = architecture["layers"]
    assert isinstance(layers, int)
    every = config.number("global_attn_every_n_layers", default=3, minimum=1)
    listed = config.items("layer_types")
    full = [i % every == 0 for i in range(layers)]
    if listed is not None:
        full = [kind == "full_attention" for kind in listed[:layers]]
    attention, block = config.flag("attention_bias", False), config.flag("mlp_bias", False)
    config.flag("norm_bias", False), config.flag("classifier_bias", False)
    architecture |= {
        "mixers": "".join("F" if whole else "W" for whole in full),
        "window": config.number("local_attention", "sliding_window", default=128, minimum=1),
        "qkv_bias": attention,
        "out_bias": attention,
        "mlp_bias": block,
        "head_bias": config.flag("decoder_bias", True),
    }


def both_ways(config: Config, architecture: Architecture) -> None:
    """A decoder whose tokens see those behind them too."""
    architecture["bidirectional"] = True


def bart(config: Config, architecture: Architecture) -> list[str]:
    """BART and its like (transformers, models/bart, models/marian): an encoder and a decoder.

    The encoder has the heads and widths of the decoder in every released model; a file in which
    they differ is told so. The encoder's table of positions is left out.
    """
    for key, name in (("attention_heads", "heads"), ("ffn_dim", "ffn")):
        architecture[name] = config.count(count_at(f"decoder_{key}"))
    architecture |= {
        "layers": config.count(layers_at("decoder_layers")),
        "encoder_layers": config.count(layers_at("encoder_layers")),
        "hidden": config.count(count_at("d_model")),
        "vocab": config.count(rows_at("vocab_size")),
        "positions": config.count(rows_at("max_position_embeddings", default=1024)),
        "kv_heads": architecture["heads"],
    }
    config.count(layers_at("num_hidden_layers", default=None))
    config.flag("share_encoder_decoder_embeddings", True)
    config.number("decoder_vocab_size", default=0), config.flag("static_position_embeddings", True)
    return [
        f"encoder_{key}"
        for key, name in (("attention_heads", "heads"), ("ffn_dim", "ffn"))
        if config.count(count_at(f"encoder_{key}")) != architecture[name]
    ]


def t5gemma(config: Config, architecture: Architecture) -> list[str]:
    """T5Gemma (transformers, models/t5gemma): a Gemma 2 that attends to what another encodes.

    The encoder has the heads and widths of the decoder in the balanced models; a file in which they
    differ is told so. Windows of the encoder are read as the whole source.
    """
    decoder, encoder = config.section("decoder"), config.section("encoder")
    heads = decoder.count(count_at("num_attention_heads"))
    layers = decoder.count(layers_at("num_hidden_layers"))
    assert layers is not None
    listed = decoder.items("layer_types")
    window = decoder.number("sliding_window", default=4096)
    turns = ["sliding_attention", "full_attention"] * layers
    kinds = list(turns[:layers] if listed is None else listed[:layers])
    architecture |= {
        "layers": layers,
        "encoder_layers": encoder.count(layers_at("num_hidden_layers")),
        "hidden": decoder.count(count_at("hidden_size")),
        "vocab": decoder.count(rows_at("vocab_size")),
        "heads": heads,
        "kv_heads": decoder.number("num_key_value_heads", default=heads or 1, minimum=1),
        "head_dim": decoder.number("head_dim", default=256, minimum=1),
        "ffn": decoder.count(count_at("intermediate_size")),
        "mixers": "".join("F" if kind == "full_attention" else "W" for kind in kinds),
        "window": window,
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }
    architecture["encoder_vocab"] = encoder.number("vocab_size", default=0)
    config.value("vocab_size"), config.value("classifier_dropout_rate")
    decoder.value("cross_attention_hidden_size"), decoder.flag("attention_bias", False)
    decoder.flag("tie_word_embeddings", True)
    return decoder.unknown() + [
        f"encoder.{key}"
        for key in ("hidden_size", "num_attention_heads", "intermediate_size", "head_dim")
        if encoder.value(key)[1] not in (None, decoder.value(key)[1])
    ]


#: How a router is trained, and what becomes of tokens that an expert has no room for.
_ROUTER = (
    *("expert_capacity", "router_bias", "router_type", "router_ignore_padding_tokens"),
    *("router_z_loss_coef", "normalize_router_prob_before_dropping", "moe_token_dropout"),
    *("batch_prioritized_routing", "moe_eval_capacity_token_fraction", "second_expert_policy"),
    *("add_router_probs", "router_dtype"),
)


def many_languages(config: Config, architecture: Architecture) -> list[str]:
    """M2M-100 and NLLB (transformers, models/m2m_100, models/nllb_moe): a BART without tables.

    Positions are computed; of NLLB-MoE every n-th layer of both halves has experts, two a token.
    """
    unknown = bart(config, architecture)
    del architecture["positions"]
    experts = config.count(count_at("num_experts", default=None))
    steps = [config.number(f"{half}_sparse_step", default=0) for half in ("encoder", "decoder")]
    if experts is None or not any(steps):
        return unknown
    for key in _ROUTER:
        config.value(key)
    encoder, decoder = steps
    architecture |= {
        "experts": experts,
        "experts_per_token": 2,
        "expert_ffn": architecture["ffn"],
        "expert_bias": True,
        "moe_every": decoder or 1,
        "encoder_moe_every": encoder,
    }
    if not decoder:
        architecture["feed_forwards"] = "D"
    return unknown
