"""Hybrids of attention and state spaces, and models whose parts are shared, by their own keys."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import Config, count_at, malformed
from scalemodel.resolve.hugging_face.steps import Architecture, attends_alone


def _whole(architecture: Architecture, name: str) -> int:
    value = architecture.get(name, 0)
    assert isinstance(value, int)
    return value


def zamba(config: Config, architecture: Architecture) -> None:
    """Zamba (transformers, models/zamba): Mamba throughout, one block of attention shared.

    It reads the stream and the token embedding side by side, and every use has a matrix of its own
    behind it.
    """
    layers = _whole(architecture, "layers")
    width = config.number("attention_hidden_size", default=2 * _whole(architecture, "hidden"))
    heads = _whole(architecture, "heads")
    size = config.number("attention_head_dim", default=width // heads, minimum=1)
    inner = _whole(architecture, "hidden") * config.number("mamba_expand", default=2, minimum=1)
    rank = config.value("mamba_dt_rank")[1]
    whole = isinstance(rank, int) and not isinstance(rank, bool)
    period = config.number("attn_layer_period", default=6, minimum=1)
    offset = config.number("attn_layer_offset", default=4)
    mixers = str(architecture.get("mixers") or "")
    if "P" not in mixers:  # what the file leaves to its class
        mixers = "RRP" + "".join("P" if i % period == offset else "R" for i in range(layers - 3))
    config.value("n_mamba_heads"), config.value("hidden_mamba_act")
    architecture |= {
        "mixers": mixers.replace("P", "Z").replace("F", "Z"),
        "feed_forwards": "".join("D" if letter in "PF" else "-" for letter in mixers),
        "head_dim": size,
        "v_head_dim": size,
        "norms_per_layer": 1,
        "shared_blocks": 1,
        "recurrence": "mamba1",
        "scan_heads": inner,
        "scan_groups": 0,
        "scan_value_dim": 1,
        "scan_rank": rank if whole else -(-_whole(architecture, "hidden") // 16),
        "scan_chunk": 0,
        "scan_norm": False,
    }


def plamo2(config: Config, architecture: Architecture) -> None:
    """PLaMo 2 (pfnet/plamo-2-8b, modeling_plamo.py): Mamba and attention with a window in turn.

    Time steps and projections of the state come from what is convolved, one time step a head.
    """
    layers, hidden = _whole(architecture, "layers"), _whole(architecture, "hidden")
    size = config.count(count_at("hidden_size_per_head", default=128))
    step = config.number("mamba_step", default=2, minimum=1)
    if layers <= step // 2:
        scans = [i != layers - 1 for i in range(layers)]
    else:
        scans = [i % step != step // 2 for i in range(layers)]
    if not config.flag("mamba_enabled", True):
        scans = [False] * layers
    full = config.items("full_attention_idx") or ()
    window = config.number("attention_window_size", default=2048)
    config.value("eval_attention_n_bit"), config.value("eval_mlp_n_bit")
    (
        config.value("linear_type"),
        config.value("use_predefined_initial_state"),
        config.value("pad_vocab"),
    )
    heads = config.number("mamba_num_heads", default=64, minimum=1)
    architecture |= {
        "mixers": "".join(
            "R" if scan else "F" if i in full or not window else "W" for i, scan in enumerate(scans)
        ),
        "window": window,
        "head_dim": size,
        "v_head_dim": size,
        "recurrence": "mamba2",
        "scan_heads": heads,
        "scan_groups": 1,
        "scan_value_dim": size,
        "scan_key_dim": config.number("mamba_d_state", default=64, minimum=1),
        "scan_rank": max(64, hidden // 16),
        "scan_chunk": config.number("mamba_chunk_size", default=256, minimum=1),
        "scan_norm": True,
        "conv_width": config.number("mamba_d_conv", default=4, minimum=1),
        "conv_bias": False,
    }


def hymba(config: Config, architecture: Architecture) -> None:
    """Hymba (nvidia/Hymba-1.5B-Base, modeling_hymba.py; arXiv 2411.13676): both mixers in a layer.

    They are projected together. Layers but a few have a window, and groups of these use the keys
    and values of their first one. Meta tokens, which stand in front of every sequence, are left
    out: 0.01 % of the parameters.
    """
    layers, heads = _whole(architecture, "layers"), _whole(architecture, "heads")
    hidden = _whole(architecture, "hidden")
    inner = hidden * config.number("mamba_expand", default=2, minimum=1)
    rank = config.value("mamba_dt_rank")[1]
    whole = isinstance(rank, int) and not isinstance(rank, bool)
    listed = config.items("global_attn_idx") or ()
    groups = config.items("kv_reuse_group") or ()
    reused = set()
    for group in groups:
        if not isinstance(group, (list, tuple)):
            raise malformed("kv_reuse_group", groups, "a list of lists of layers")
        reused |= {i for i in group[1:] if isinstance(i, int)}
    window = config.number("sliding_window", default=0)
    if inner % heads:
        raise malformed("mamba_expand", inner // hidden, f"widths that {heads} heads divide")
    for key in _HYMBA:
        config.value(key)
    sizes = {key: config.number(key, default=0) for key in ("kq_head_dim", "v_head_dim")}
    architecture |= {
        "mixers": "".join("P" if i in listed or not window else "p" for i in range(layers)),
        "window": window,
        "head_dim": sizes["kq_head_dim"] if sizes["kq_head_dim"] > 0 else hidden // heads,
        "v_head_dim": sizes["v_head_dim"] or inner // heads,
        "recurrence": "mamba1",
        "scan_heads": inner,
        "scan_groups": 0,
        "scan_value_dim": 1,
        "scan_key_dim": config.number("mamba_d_state", default=16, minimum=1),
        "scan_rank": rank if whole else -(-hidden // 16),
        "scan_chunk": 0,
        "scan_norm": config.flag("mamba_inner_layernorms", True),
        "conv_width": config.number("mamba_d_conv", default=4, minimum=1),
        "conv_bias": config.flag("mamba_conv_bias", True),
        "fused_mixers": True,
    }
    if reused:
        architecture["kv_sources"] = "".join("S" if i in reused else "O" for i in range(layers))
    config.number("num_memory_tokens", default=0)


#: Keys that say which kernel runs, or say once more what others do.
_HYMBA = (
    *("attn_hidden_size", "attn_implementation_new", "attn_reuse_every_i_layer", "conv_dim"),
    *("calc_logits_for_entire_prompt", "kv_reuse_every_i_layer", "kv_weight_reuse", "layer_type"),
    *("mlp_hidden_act", "num_mamba", "modify_attention_mask", "rope", "rope_theta"),
    *("memory_tokens_interspersed_every", "num_attn_per_layer", "seq_length", "expand_v"),
)


def zaya(config: Config, architecture: Architecture) -> list[str]:
    """ZAYA1 (transformers, models/zaya): a router of several matrices, an expert that passes on.

    The convolutions over queries and keys, 0.2 % of the parameters, and scales of the residual
    stream are left out.
    """
    for key in ("cca_time0", "cca_time1", "lm_head_bias", "zaya_use_mod", "residual_in_fp32"):
        config.value(key)
    attends_alone(architecture)
    if set(str(architecture.get("mixers"))) == {"F"}:
        del architecture["mixers"]
    architecture |= {
        "router_rank": config.number("router_hidden_size", "zaya_mlp_expansion", default=256),
        "zero_experts": 1,
    }
    return []
