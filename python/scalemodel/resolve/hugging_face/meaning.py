"""Reading by meaning: the numbers of a decoder by every key that configurations know them by.

One step for all families whose configurations differ in names rather than in what they say. What
their code fixes beside the file stands in their rows of `families`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scalemodel.resolve.hugging_face.mixers import recurrence_of
from scalemodel.resolve.hugging_face.own_layers import numbers_of_single_layers
from scalemodel.resolve.hugging_face.patterns import feed_forwards_of, halves, mixers_of
from scalemodel.resolve.hugging_face.reading import (
    EXPERT_WIDTH,
    EXPERTS,
    SHARED,
    TOPK,
    Config,
    count_at,
    layers_at,
    malformed,
    rows_at,
)
from scalemodel.resolve.hugging_face.steps import Architecture, latent_attention

_SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "shared_experts_intermediate_size",
    "share_expert_dim",
)
_FFN = (
    "dense_intermediate_size",
    "ffn_hidden_size",
    "intermediate_size",
    "intermediate_size_mlp",
    "block_ff_dim",
)
_LATENT = ("moe_latent_size", "routed_expert_hidden_size", "moe_hidden_size")
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")
#: Activations between two matrices; all others gate one with another.
_UNGATED = ("relu2", "xielu", "relu", "relu_squared")


def _number(config: Config, *names: str, default: int = 0) -> int:
    """A whole number, or the mean of a list that gives one per layer."""
    name, value = config.value(*names)
    if not isinstance(value, (list, tuple)):
        return config.number(*names, default=default)
    numbers = [n for n in value if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    if not numbers or len(numbers) != len(value):
        raise malformed(name, value, "a whole number, or a list of them, one per layer")
    return round(sum(numbers) / len(numbers))


def _whole(architecture: Architecture, name: str) -> int:
    value = architecture.get(name, 0)
    assert isinstance(value, int)
    return value


def _stream(config: Config, architecture: Architecture) -> None:
    listed = config.items("layers_block_type")
    layers = config.count(
        layers_at("num_hidden_layers", "num_layers", "n_layer", default=len(listed or ()) or None)
    )
    if layers is None:
        config.count(layers_at("num_hidden_layers"))  # refuses: the key is missing
    architecture["layers"] = layers
    architecture["hidden"] = config.count(count_at("hidden_size", "d_model", "n_embd", "block_dim"))
    architecture.setdefault("vocab", None)
    default = architecture["vocab"]  # of its class
    assert default is None or isinstance(default, int)
    rows = rows_at("vocab_size", default=default) if default else rows_at("vocab_size")
    architecture["vocab"] = config.count(rows)
    for key in ("hidden_act", "mlp_hidden_act", "activation", "hidden_activation"):
        if str(config.value(key)[1]).lower() in _UNGATED:
            architecture["gated"] = False


#: Position encodings of decoders by what files call them.
_POSITIONS: Final = {
    "rope": "rope",
    "rope_gptj": "rope",
    "rotary": "rope",
    "nope": "none",
    "none": "none",
}


def _attention(config: Config, architecture: Architecture) -> list[str]:
    names = ("num_attention_heads", "n_head", "n_heads")
    heads = config.count(count_at(*names, default=None))
    if heads is None:
        return []
    architecture["heads"] = heads
    if config.count(count_at("kv_lora_rank", default=None)) is not None:
        unknown = _latent(config, architecture)
    else:
        unknown = []
        # A layer of its own may give heads to those without a window.
        kv_heads = config.number("num_key_value_heads", "num_attention_groups", default=heads)
        size = config.count(count_at("head_dim", "attention_head_dim", default=None))
        hidden = _whole(architecture, "hidden")
        size = size or hidden // heads
        architecture |= {
            "kv_heads": kv_heads or heads,
            "head_dim": size,
            "v_head_dim": config.number("v_head_dim", default=size, minimum=1),
        }
        low_rank = config.count(count_at("q_lora_rank", "share_q_dim", default=None))
        if low_rank is not None:
            architecture["q_lora_rank"] = low_rank
    gated = config.flag("attn_output_gate", False) or config.flag("mla_use_output_gate", False)
    if gated or config.flag("attention_output_gate", False):
        architecture["attention_gate"] = "values"
    if config.flag("use_head_wise_attn_gate", False) or config.flag("use_attention_gate", False):
        architecture["attention_gate"] = "heads"
    normed = config.value("use_qk_norm")[1]
    if isinstance(normed, bool) and not architecture.get("qk_norm_full"):
        architecture["qk_norm"] = normed
    encoding = config.text("position_embedding_type", "")
    if encoding in _POSITIONS:
        architecture["position"] = _POSITIONS[encoding]
    elif encoding:
        unknown.append("position_embedding_type")
    return unknown


def _latent(config: Config, architecture: Architecture) -> list[str]:
    """Multi-head latent attention; its experts are read with all others."""
    experts = dict(architecture)
    unknown = latent_attention(config, architecture)
    for key in ("experts_per_token", "shared_experts", "expert_ffn", "router_bias"):
        if key in experts:
            architecture[key] = experts[key]
    config.value("head_dim", "qk_head_dim")  # halves and sums of what was read
    return [key for key in unknown if key != "moe_layer_freq"]


def _groups(config: Config) -> Architecture:
    """Groups of experts of which a token visits a few; one group, or all of them, limit nothing."""
    groups = config.number("n_group", "num_expert_group", default=1)
    visited = config.number("topk_group", default=groups)
    limited = 1 <= visited < groups
    return {"expert_groups": groups, "groups_per_token": visited} if limited else {}


def _experts(config: Config, architecture: Architecture) -> None:
    layers = _whole(architecture, "layers")
    ffn = _number(config, *_FFN)
    if ffn:
        architecture["ffn"] = ffn
    experts = _number(config, *EXPERTS)
    topk = _number(config, *TOPK)
    width, shared_width = (
        _number(config, *EXPERT_WIDTH, "intermediate_size"),
        _number(config, *_SHARED_WIDTH),
    )
    shared = _number(config, *SHARED, default=1 if shared_width else 0)
    latent = config.number(*_LATENT, default=0)
    zero = config.number("zero_expert_num", "num_zero_experts", default=0)
    pattern = architecture.get("feed_forwards") or feed_forwards_of(config, layers)
    config.items("mlp_layer_types")
    if "E" not in str(pattern):
        experts = 0  # what a class has for them by itself
    if experts <= 1 and shared_width and not topk:  # a dense block by the name of a shared one
        architecture["ffn"] = shared_width
        return
    if experts <= 1:
        return
    if architecture.get("kv_lora_rank") and not _number(config, *EXPERT_WIDTH):
        # Families with latent attention have dense layers of another width.
        raise malformed("moe_intermediate_size", None, "a whole number above 0")
    architecture |= {
        "experts": experts,
        "experts_per_token": topk or 1,
        "expert_ffn": width,
        "shared_experts": shared,
        "expert_latent": latent,
        "zero_experts": zero,
        **_groups(config),
    }
    if shared_width and shared:
        architecture["shared_ffn"] = shared_width
    if "E" in str(pattern):
        architecture.setdefault("feed_forwards", pattern)
    if "D" not in str(pattern):
        architecture.pop("ffn", None)


def _shortened(architecture: Architecture) -> None:
    """Patterns in the numbers that older families give, where these say as much."""
    layers = _whole(architecture, "layers")
    blocks, mixers = (
        str(architecture.get("feed_forwards") or ""),
        str(architecture.get("mixers") or ""),
    )
    dense = blocks.count("D")
    if blocks and blocks == "D" * dense + "E" * (layers - dense):
        del architecture["feed_forwards"]
        architecture["first_dense_layers"] = dense
        if not dense:
            architecture.pop("ffn", None)
    same = not any(key.startswith("window_") for key in architecture)
    if not mixers or set(mixers) - {"F", "W"} or not same or architecture.get("shared_values"):
        return
    every = mixers.index("F") + 1 if "F" in mixers else 0
    if not architecture.get("window") or set(mixers) == {"F"}:
        del architecture["mixers"]
        architecture["window"] = 0
    elif mixers == "".join("F" if every and (i + 1) % every == 0 else "W" for i in range(layers)):
        del architecture["mixers"]
        architecture["full_attention_every"] = every


def _window(config: Config, architecture: Architecture) -> None:
    """The window of the layers that have one, and their heads where these differ."""
    keys = ("sliding_window", "sliding_window_size", "attention_window_size")
    none = config.value(*keys)[1] == -1  # as some files say that there is no window
    window = 0 if none else config.number(*keys, default=0)
    config.value("sliding_window_size")
    kinds = config.section("efficient_attention_config", optional=True)
    window = window or kinds.section("swa", optional=True).number("window_size", default=0)
    chunk = config.number("attention_chunk_size", default=0)
    used = config.flag("use_sliding_window", True)
    config.number("max_window_layers", default=0)
    mixers = str(architecture.get("mixers") or "")
    if not any(letter in mixers for letter in "WCHp"):
        return
    architecture["window"] = (window or chunk) if used else 0
    for key, names in {
        "window_heads": ("swa_num_attention_heads", "num_sliding_attention_heads"),
        "window_kv_heads": ("swa_num_key_value_heads", "num_sliding_attention_groups"),
        "window_head_dim": ("swa_head_dim",),
        "window_v_head_dim": ("swa_v_head_dim",),
    }.items():
        value = config.count(count_at(*names, default=None))
        if value is not None:
            architecture[key] = value
    other = config.section("attention_other_setting", optional=True)
    if other.raw:  # Step: a table of its own for the layers with a window
        other.value("attention_type"), other.value("true_head_dim")
        for key, name in {
            "window_heads": "num_attention_heads",
            "window_kv_heads": "num_attention_groups",
            "window_head_dim": "head_dim",
        }.items():
            value = other.count(count_at(name, default=None))
            if value is not None:
                architecture[key] = value
    full = {
        "kv_heads": config.count(count_at("num_global_key_value_heads", default=None)),
        "head_dim": config.count(count_at("global_head_dim", default=None)),
    }
    for key, value in full.items():
        if value is not None:  # the plain keys are those of the layers with a window
            architecture[f"window_{key}"] = architecture[key]
            architecture[key] = value
    if full["head_dim"] is not None:
        architecture["v_head_dim"] = full["head_dim"]
    if config.flag("attention_k_eq_v", False):
        architecture["shared_values"] = True


def _selected_keys(config: Config) -> int | None:
    """Keys of a query that an indexer selects: one by one, or in blocks."""
    blocks = config.number("index_topk_blocks", default=0)
    size = config.number("index_block_size", default=128, minimum=1)
    config.value("index_local_blocks")
    return blocks * size if blocks else config.count(count_at("index_topk", "indexer_budget"))


def _indexer(config: Config, architecture: Architecture) -> None:
    mixers = str(architecture.get("mixers") or "")
    sparse = config.section("sparse_attention_config", optional=True)
    sparse.value("sparse_disable_index_value"), sparse.value("sparse_score_type")
    sparse.value("use_sparse_attention"), sparse.value("sparse_init_block")
    sparse.value("sparse_local_block"), sparse.value("sparse_attention_freq")
    blocks = sparse.number("sparse_topk_blocks", default=0)
    if blocks and "I" in mixers:
        architecture |= {
            "index_heads": sparse.count(count_at("sparse_num_index_heads")),
            "index_dim": sparse.count(count_at("sparse_index_dim")),
            "index_topk": blocks * sparse.number("sparse_block_size", default=128, minimum=1),
        }
    elif any(letter in mixers for letter in "ISC"):
        architecture |= {
            "index_heads": config.count(count_at("index_n_heads", "indexer_n_heads")),
            "index_dim": config.count(count_at("index_head_dim", "indexer_head_dim")),
            "index_topk": _selected_keys(config),
        }
    listed = config.items("compress_ratios")
    rates = config.section("compress_rates", optional=True)
    near = rates.number("compressed_sparse_attention", default=0)
    far = rates.number("heavily_compressed_attention", default=0)
    if listed is None and not rates.raw:
        return
    if listed is not None:
        ratios = sorted({int(str(r)) for r in listed[: len(mixers)] if r})
        near = ratios[0] if ratios else 0
        far = ratios[-1] if len(ratios) > 1 else 0
    architecture |= {
        "near_ratio": near,
        "far_ratio": far,
        "output_groups": config.number("o_groups", default=1, minimum=1),
        "output_rank": config.count(count_at("o_lora_rank")),
        "shared_values": True,
        "attention_sinks": True,
    }
    config.number("qk_rope_head_dim", default=0)


def decoder(
    *, mixers: str = "", alone: bool = False
) -> Callable[[Config, Architecture], list[str] | None]:
    """Read everything by meaning.

    Parameters
    ----------
    mixers : str
        Letter of all layers where the code of the family fixes it.
    alone : bool
        The layers have a mixer and no feed-forward block.
    """

    def step(config: Config, architecture: Architecture) -> list[str]:
        _stream(config, architecture)
        layers = _whole(architecture, "layers")
        both = halves(config, layers)
        if both is not None:
            architecture["mixers"], architecture["feed_forwards"] = both
        elif mixers:
            architecture["mixers"] = mixers
        else:
            found = mixers_of(config, layers)
            if found is None and config.value("mamba_d_state")[1] is not None:
                found = "R" * layers  # nothing says that some layer attends
            if found is not None:
                architecture["mixers"] = found
        if alone:
            architecture["feed_forwards"] = "-"
        unknown = [] if alone else _attention(config, architecture)
        if any(letter in str(architecture.get("mixers", "")) for letter in "RPpZ"):
            recurrence_of(config, architecture)
        if alone:
            if "scan_heads" not in architecture:
                raise malformed("state_size", None, "the state of a recurrent mixer, or `n_head`")
            architecture |= {"heads": architecture["scan_heads"], "head_dim": 1}
        else:
            _experts(config, architecture)
        _window(config, architecture)
        unknown += numbers_of_single_layers(config, architecture)
        _indexer(config, architecture)
        architecture["mtp_layers"] = config.number(*_MTP, default=0)
        architecture["residual_streams"] = config.number("hc_mult", default=1, minimum=1)
        architecture["attention_residuals"] = config.number("attn_res_block_size", default=0)
        config.value("mtp_hybrid_override_pattern", "mtp_use_dedicated_embeddings")
        _shortened(architecture)
        return unknown

    return step
