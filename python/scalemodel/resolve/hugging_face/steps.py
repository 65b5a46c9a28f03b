"""What a plain renaming of keys cannot say: one step per peculiarity of a family.

A step completes the architecture from the config and returns the keys it could not account for.
The two checks at the top end every reading.
"""

from __future__ import annotations

from collections.abc import Callable

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face.reading import LARGEST, Config, count_at, malformed, rows_at

Architecture = dict[str, object]
Step = Callable[[Config, Architecture], "list[str] | None"]


def _whole(architecture: Architecture, name: str, default: int = 0) -> int:
    value = architecture.get(name, default)
    assert isinstance(value, int)
    return value


def complete_heads(architecture: Architecture) -> None:
    """Fill in head width and key/value heads; what does not divide is refused."""
    hidden, heads = _whole(architecture, "hidden"), _whole(architecture, "heads")
    if heads < 1:
        raise ScaleModelError(
            "config.json: required key `num_attention_heads` is missing; a model with attention "
            "has it, or what its family calls it"
        )
    if "head_dim" not in architecture:
        if hidden % heads:
            raise ScaleModelError(
                f"config.json: hidden size {hidden} is not a multiple of {heads} attention heads; "
                "legal is a multiple, or an explicit `head_dim`"
            )
        architecture["head_dim"] = hidden // heads
    kv_heads = _whole(architecture, "kv_heads") if "kv_heads" in architecture else heads
    architecture["kv_heads"] = kv_heads
    if heads % kv_heads:
        raise ScaleModelError(
            f"config.json: {kv_heads} key/value heads do not divide {heads} attention heads; "
            "legal is a divisor of the attention heads"
        )


def check_experts(architecture: Architecture) -> None:
    """Refuse more active experts than experts, more dense layers than layers."""
    experts, active = _whole(architecture, "experts"), _whole(architecture, "experts_per_token")
    if experts and not 1 <= active <= experts:
        raise malformed("experts per token", active, f"1 to the number of experts, {experts}")
    dense, layers = _whole(architecture, "first_dense_layers"), _whole(architecture, "layers")
    if dense > layers:
        raise malformed("leading dense layers", dense, f"0 to the number of layers, {layers}")


def attends_alone(architecture: Architecture) -> None:
    """Layers that are called hybrid for the states of their convolutions have attention alone."""
    mixers = str(architecture.get("mixers") or "").replace("P", "F")
    if mixers:
        architecture["mixers"] = mixers
    for key in [key for key in architecture if key == "recurrence" or key.startswith("scan_")]:
        del architecture[key]


def four_times_hidden(config: Config, architecture: Architecture) -> None:
    """The MLP is four times as wide as the stream unless the config says else."""
    architecture.setdefault("ffn", 4 * _whole(architecture, "hidden"))


def no_cross_attention(config: Config, architecture: Architecture) -> list[str]:
    """Cross-attention is not modelled: report it when it is on."""
    return ["add_cross_attention"] if config.flag("add_cross_attention", False) else []


def two_offset_positions(config: Config, architecture: Architecture) -> list[str]:
    """OPT keeps two rows before position 0, and may embed in a narrower space."""
    architecture["positions"] = _whole(architecture, "positions") + 2
    affine = config.flag("layer_norm_elementwise_affine", True)
    architecture["norm"] = "layernorm" if affine else "nonparametric"
    narrow = config.number("word_embed_proj_dim", default=_whole(architecture, "hidden"), minimum=1)
    return ["word_embed_proj_dim"] if narrow != architecture["hidden"] else []


def multi_query(config: Config, architecture: Architecture) -> None:
    """One key/value head unless switched off."""
    if config.flag("multi_query", True):
        architecture["kv_heads"] = 1


def falcon(config: Config, architecture: Architecture) -> None:
    """Falcon-7B shares one norm; the new decoder gives attention and MLP a norm each."""
    four_times_hidden(config, architecture)
    heads = _whole(architecture, "heads")
    kv_heads = config.number("num_kv_heads", "n_head_kv", default=heads, minimum=1)
    multi_query = config.flag("multi_query", True)
    new_decoder = config.flag("new_decoder_architecture", False)
    parallel = config.flag("parallel_attn", True)
    norms = config.number("num_ln_in_parallel_attn", default=2 if new_decoder else 1, minimum=1)
    if norms > 2:
        raise malformed("num_ln_in_parallel_attn", norms, "1 or 2")
    architecture["kv_heads"] = kv_heads if new_decoder else 1 if multi_query else heads
    architecture["parallel_block"] = parallel
    architecture["norms_per_layer"] = norms if parallel else 2
    architecture["position"] = "alibi" if config.flag("alibi", False) else "rope"


def mpt(config: Config, architecture: Architecture) -> list[str]:
    """MPT names widths by ratio, and attention and positions in a section of their own."""
    hidden, heads = _whole(architecture, "hidden"), _whole(architecture, "heads")
    name, ratio = config.value("expansion_ratio")
    ratio = 4 if ratio is None else ratio
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1000:
        raise malformed(name, ratio, "a number above 0, at most 1000")
    ffn = int(ratio * hidden)
    if not 1 <= ffn <= LARGEST:
        raise malformed(name, ratio, f"a ratio that makes an MLP 1 to {LARGEST:,} wide")
    architecture["ffn"] = ffn
    bias = not config.flag("no_bias", True)
    architecture |= dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), bias)
    rms = "rms" in config.text("norm_type", default="low_precision_layernorm").lower()
    architecture["norm"] = "rmsnorm" if rms else "layernorm" if bias else "layernorm_nobias"

    attention = config.section("attn_config", optional=True)
    kind = attention.text("attn_type", default="multihead_attention")
    kv_heads = attention.number("kv_n_heads", default=heads, minimum=1)
    architecture["kv_heads"] = {"multiquery_attention": 1, "grouped_query_attention": kv_heads}.get(
        kind, heads
    )
    architecture["qk_norm_full"] = attention.flag("qk_ln", False)
    architecture["window"] = max(0, attention.number("sliding_window_size", default=0, minimum=-1))
    positions = config.count(rows_at("max_seq_len", default=2048))
    if attention.flag("alibi", False):
        architecture["position"] = "alibi"
        config.flag("learned_pos_emb", True)
    elif attention.flag("rope", False):
        architecture["position"] = "rope"
        config.flag("learned_pos_emb", True)
    elif config.flag("learned_pos_emb", True):
        architecture |= {"position": "learned", "positions": positions}
    else:
        architecture["position"] = "none"
    return attention.unknown()


def dbrx(config: Config, architecture: Architecture) -> list[str]:
    """DBRX keeps attention and experts in sections of their own."""
    attention = config.section("attn_config", optional=True)
    heads = _whole(architecture, "heads")
    architecture["kv_heads"] = attention.number("kv_n_heads", default=heads, minimum=1)
    ffn = config.section("ffn_config")
    width = ffn.count(count_at("ffn_hidden_size"))
    architecture |= {
        "ffn": width,
        "expert_ffn": width,
        "experts": ffn.count(count_at("moe_num_experts", default=4)),
        "experts_per_token": ffn.count(count_at("moe_top_k", default=1)),
    }
    return attention.unknown() + ffn.unknown()


def neox(config: Config, architecture: Architecture) -> None:
    """Attention and MLP in parallel unless switched off."""
    architecture["parallel_block"] = config.flag("use_parallel_residual", True)


def stablelm(config: Config, architecture: Architecture) -> None:
    """The parallel form shares one norm."""
    parallel = config.flag("use_parallel_residual", False)
    architecture["parallel_block"] = parallel
    architecture["norms_per_layer"] = 1 if parallel else 2


def _attention_pattern(config: Config, layers: int) -> tuple[bool, int] | None:
    """Say if some layer has a window, and n of "every n-th layer is full"; None if not stated."""
    listed = config.items("layer_types")
    if listed is None:
        return None
    known = ("full_attention", "sliding_attention", "chunked_attention")
    if len(listed) != layers or any(kind not in known for kind in listed):
        raise malformed("layer_types", listed, f"a list of {layers} of {', '.join(known)}")
    full = [kind == "full_attention" for kind in listed]
    if all(full):
        return False, 0
    if not any(full):
        return True, 0
    every = full.index(True) + 1
    if full != [(layer + 1) % every == 0 for layer in range(layers)]:
        raise malformed("layer_types", listed, "a regular list: every n-th layer is full")
    return True, every


def sliding_window(every: int) -> Step:
    """`sliding_window`, with every `every`-th layer full (0: none) unless `layer_types` differs."""

    def step(config: Config, architecture: Architecture) -> None:
        window = config.number("sliding_window", default=0)
        period = config.number("sliding_window_pattern", "_sliding_window_pattern", default=every)
        pattern = _attention_pattern(config, _whole(architecture, "layers"))
        some, full_every = (True, period) if pattern is None else pattern
        if full_every == 1:
            some, full_every = False, 0
        architecture["window"] = window if some else 0
        architecture["full_attention_every"] = full_every if some and window else 0

    return step


def qwen_window(config: Config, architecture: Architecture) -> list[str]:
    """Qwen writes a window it does not use; when used, the first `max_window_layers` are full."""
    layers = _whole(architecture, "layers")
    window = config.number("sliding_window", default=0)
    full_layers = config.number("max_window_layers", default=layers)
    used = config.flag("use_sliding_window", False) and window > 0
    pattern = _attention_pattern(config, layers)
    if pattern is not None:
        some, every = pattern
        if some and window:
            architecture |= {"window": window, "full_attention_every": every}
        return []
    if used and full_layers == 0:
        architecture["window"] = window
    return ["max_window_layers"] if used and 0 < full_layers < layers else []


def llama4(config: Config, architecture: Architecture) -> None:
    """Chunked attention stands as a window; the layers without rotary embedding are full."""
    layers = _whole(architecture, "layers")
    chunk = config.number("attention_chunk_size", default=0)
    pattern = _attention_pattern(config, layers)
    interval = config.number("no_rope_layer_interval", default=4, minimum=1)
    rotary = config.items("no_rope_layers")
    if rotary:
        if len(rotary) != layers or any(flag not in (0, 1) for flag in rotary):
            raise malformed("no_rope_layers", rotary, f"a list of {layers} of 0 or 1")
        first = rotary.index(0) + 1 if 0 in rotary else layers + 1
        if [bool(flag) for flag in rotary] != [(i + 1) % first != 0 for i in range(layers)]:
            raise malformed("no_rope_layers", rotary, "a regular list: every n-th layer is 0")
        interval = first
    some, every = (interval > 1, interval) if pattern is None else pattern
    architecture["window"] = chunk if some else 0
    architecture["full_attention_every"] = every if some and chunk and every <= layers else 0

    moe_every = _whole(architecture, "moe_every")
    listed = config.items("moe_layers")
    if listed and list(listed) != list(range(moe_every - 1, layers, moe_every)):
        raise malformed("moe_layers", listed, f"every {moe_every}-th layer")
    # The norm of queries and keys has no weights and no cost worth counting.
    config.flag("use_qk_norm", True)


def unrotated_layers(config: Config, architecture: Architecture) -> None:
    """Which layers rotate queries and keys costs nothing worth counting."""
    config.items("no_rope_layers")
    config.number("no_rope_layer_interval", default=4)


def leading_dense(config: Config, architecture: Architecture) -> None:
    """`mlp_only_layers` of Qwen: only leading layers may be dense."""
    listed = config.items("mlp_only_layers")
    if listed:
        if any(isinstance(i, bool) for i in listed) or list(listed) != list(range(len(listed))):
            raise malformed("mlp_only_layers", listed, "leading layers: 0, 1, 2, ...")
        architecture["first_dense_layers"] = len(listed)


def qwen2_shared_expert(config: Config, architecture: Architecture) -> None:
    """One gated shared expert of its own width, where one is given."""
    width = config.number("shared_expert_intermediate_size", default=0)
    if width:
        architecture |= {"shared_experts": 1, "shared_ffn": width, "shared_expert_gate": True}


def expert_width_is_ffn(config: Config, architecture: Architecture) -> None:
    """The experts are as wide as `intermediate_size` says."""
    architecture["expert_ffn"] = architecture["ffn"]


def latent_attention(config: Config, architecture: Architecture) -> list[str]:
    """Multi-head latent attention: one head is a part without and a part with rotation."""
    rope = config.number("qk_rope_head_dim", default=64)
    plain = config.number("qk_nope_head_dim", default=128, minimum=1)
    architecture |= {
        "kv_heads": architecture["heads"],
        "head_dim": plain + rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": config.number("v_head_dim", default=128, minimum=1),
        "kv_lora_rank": config.count(count_at("kv_lora_rank")),
        "q_lora_rank": config.number("q_lora_rank", default=0),
    }
    config.count(count_at("num_key_value_heads", default=None))
    unknown = []
    if config.flag("attention_bias", False):
        unknown.append("attention_bias")
    frequency = config.value("moe_layer_freq")[1]
    listed = isinstance(frequency, (list, tuple))  # read with the pattern of the layers
    if not listed and config.number("moe_layer_freq", default=1, minimum=1) != 1:
        unknown.append("moe_layer_freq")
    if not architecture.get("experts"):
        for name in ("experts_per_token", "shared_experts", "expert_ffn", "first_dense_layers"):
            architecture.pop(name, None)
        architecture["router_bias"] = False
    elif not architecture.get("expert_ffn"):
        raise malformed("moe_intermediate_size", None, "a whole number above 0")
    return unknown
