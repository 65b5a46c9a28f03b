"""Recurrent mixers of a configuration: which kind its keys describe, and their sizes."""

from __future__ import annotations

from typing import Final

from scalemodel.resolve.hugging_face.reading import Config, count_at, malformed
from scalemodel.resolve.hugging_face.steps import Architecture

#: Tokens of a chunk of the delta rule's kernels (fla-org/flash-linear-attention, BT = 64).
_DELTA_CHUNK: Final = 64
#: Tokens of a block of linear attention where the file gives none (MiniMax-Text-01, `BLOCK`).
_LIGHTNING_CHUNK: Final = 256
#: Tokens of a chunk of RWKV-7's kernels (fla-org/flash-linear-attention, ops/rwkv7: chunk_size 16).
_RWKV_CHUNK: Final = 16
#: Width over that of what makes the weights of a convolution, where a file gives none
#: (NVlabs/Jet-Nemotron, JetBlockConfig).
_JET_REDUCTION: Final = 8


def recurrence_of(config: Config, architecture: Architecture) -> bool:
    """Complete the recurrent mixer from its keys; False where no key describes one."""
    for read in (
        _gated_delta,
        _kimi_delta,
        _rwkv7,
        _jet,
        _rg_lru,
        _xlstm,
        _state_space,
        _convolution,
        _lightning,
    ):
        if read(config, architecture):
            return True
    return False


def _needed(config: Config, *names: str) -> int:
    value = config.count(count_at(*names))
    assert value is not None
    return value


def _gated_delta(config: Config, architecture: Architecture) -> bool:
    heads = config.count(count_at("linear_num_value_heads", default=None))
    if heads is None:
        return False
    architecture |= {
        "recurrence": "gated_delta",
        "scan_heads": heads,
        "scan_groups": config.number("linear_num_key_heads", default=heads, minimum=1),
        "scan_key_dim": _needed(config, "linear_key_head_dim"),
        "scan_value_dim": _needed(config, "linear_value_head_dim"),
        "conv_width": config.number("linear_conv_kernel_dim", default=4, minimum=1),
        "scan_chunk": _DELTA_CHUNK,
        "scan_norm": True,
    }
    return True


def _kimi_delta(config: Config, architecture: Architecture) -> bool:
    section = config.section("linear_attn_config", optional=True)
    heads = section.count(count_at("num_heads", default=None))
    names = ("head_dim", "short_conv_kernel_size")
    own = ("linear_head_dim", "linear_conv_kernel_dim")
    beside = config.count(count_at("linear_num_heads", default=None))
    config.value("linear_lower_bound"), [config.value(name) for name in own]
    if heads is None:  # the same keys beside those of the other layers
        section, names, heads = config, own, beside
    if heads is None:
        return False
    head_dim = _needed(section, names[0])
    section.items("full_attn_layers"), section.items("kda_layers")
    section.value("gate_lower_bound")
    architecture |= {
        "recurrence": "kimi_delta",
        "scan_heads": heads,
        "scan_key_dim": head_dim,
        "scan_value_dim": head_dim,
        "conv_width": section.number(names[1], default=4, minimum=1),
        "scan_chunk": _DELTA_CHUNK,
        "scan_rank": 0 if section.flag("use_full_rank_gate", False) else head_dim,
        "scan_norm": True,
    }
    return True


def _rwkv7(config: Config, architecture: Architecture) -> bool:
    """Peng et al., arXiv 2503.14456: four low ranks, whose sum is what they cost."""
    ranks = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")
    if config.value("decay_low_rank_dim")[1] is None:
        return False
    hidden = _hidden(architecture)
    head_dim = config.number("head_dim", default=64, minimum=1)
    architecture |= {
        "recurrence": "rwkv7",
        "scan_heads": config.number("num_heads", default=hidden // head_dim, minimum=1),
        "scan_key_dim": head_dim,
        "scan_value_dim": head_dim,
        "scan_rank": sum(config.number(name, default=64, minimum=1) for name in ranks),
        "scan_chunk": _RWKV_CHUNK,
    }
    return True


def _jet(config: Config, architecture: Architecture) -> bool:
    """Gu et al., arXiv 2508.15884: values some times as wide as keys, in a table of its own."""
    kinds = config.section("efficient_attention_config", optional=True)
    table = kinds.section("jet", optional=True)
    if not table.raw:
        return False
    name, ratio = table.value("expand_v")
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 100:
        raise malformed(name, ratio, "a number above 0, at most 100")
    heads, head_dim = _needed(table, "num_heads"), _needed(table, "head_dim")
    values = int(head_dim * ratio + 1e-3)  # written to some places, as 2.6666666667
    reduction = table.number("dconv_generator_reduction", default=_JET_REDUCTION, minimum=1)
    for key in ("mode", "norm_eps", "dconv_implementation"):
        table.value(key)
    architecture |= {
        "recurrence": "jet",
        "scan_heads": heads,
        "scan_key_dim": head_dim,
        "scan_value_dim": values,
        "scan_rank": heads * values // reduction,
        "conv_width": table.number("conv_size", default=4, minimum=1),
        "scan_chunk": _DELTA_CHUNK,
        "scan_norm": True,
    }
    return True


def _rg_lru(config: Config, architecture: Architecture) -> bool:
    """De et al., arXiv 2402.19427: a recurrence of every channel, gates by blocks of a head."""
    width = config.count(count_at("conv1d_width", default=None))
    if width is None:
        return False
    inner = config.number("lru_width", default=_hidden(architecture), minimum=1)
    heads = architecture.get("heads")
    assert isinstance(heads, int)
    if inner % heads:
        raise malformed("lru_width", inner, f"a multiple of {heads} attention heads")
    architecture |= {
        "recurrence": "rg_lru",
        "scan_heads": heads,
        "scan_key_dim": 1,
        "scan_value_dim": inner // heads,
        "conv_width": width,
        "conv_bias": True,
        "scan_bias": True,
    }
    return True


def _xlstm(config: Config, architecture: Architecture) -> bool:
    """Beck et al., arXiv 2503.13427: linear attention whose decay and input gate every token sets.

    Read as linear attention of the same heads: the two gates are 0.1 % of a layer.
    """
    _, keys = config.value("qk_dim_factor")
    _, values = config.value("v_dim_factor")
    if not isinstance(keys, (int, float)) or not isinstance(values, (int, float)):
        return False
    hidden, heads = _hidden(architecture), _needed(config, "num_heads")
    for name in ("chunkwise_kernel", "sequence_kernel", "step_kernel", "mode", "gate_soft_cap"):
        config.value(name)
    architecture |= {
        "recurrence": "lightning",
        "scan_heads": heads,
        "scan_key_dim": int(hidden * keys) // heads,
        "scan_value_dim": int(hidden * values) // heads,
        "scan_chunk": config.number("chunk_size", default=_DELTA_CHUNK, minimum=1),
        "scan_norm": True,
    }
    return True


def _state_space(config: Config, architecture: Architecture) -> bool:
    state = config.count(
        count_at("ssm_state_size", "mamba_d_state", "state_size", "d_state", default=None)
    )
    if state is None:
        return False
    hidden = architecture["hidden"]
    assert isinstance(hidden, int)
    expand = config.number("expand", "mamba_expand", default=2, minimum=1)
    alone = "R" in str(architecture.get("mixers", "")) and "heads" not in architecture
    names = (
        "mamba_num_heads",
        "mamba_n_heads",
        "n_mamba_heads",
        *(("num_heads", "n_heads") if alone else ()),
    )
    heads = config.count(count_at(*names, default=None))
    width = config.number("mamba_d_ssm", default=expand * hidden, minimum=1)
    architecture |= {
        "scan_key_dim": state,
        "conv_width": config.number("conv_kernel", "mamba_d_conv", "d_conv", default=4, minimum=1),
        "conv_bias": config.flag("use_conv_bias", True) and config.flag("mamba_conv_bias", True),
        "scan_bias": config.flag("mamba_proj_bias", False) or config.flag("use_bias", False),
    }
    if heads is None:
        rank = config.value("mamba_dt_rank", "time_step_rank", "dt_rank")[1]
        whole = isinstance(rank, int) and not isinstance(rank, bool)
        architecture |= {
            "recurrence": "mamba1",
            "scan_heads": config.number("intermediate_size", default=width) if alone else width,
            "scan_value_dim": 1,
            "scan_rank": rank if whole else -(-hidden // 16),
        }
        return True
    names = ("mamba_head_dim", "mamba_d_head", "mamba_headdim", *(("head_dim",) if alone else ()))
    architecture |= {
        "recurrence": "mamba2",
        "scan_heads": heads,
        "scan_groups": config.number(
            "n_groups", "mamba_n_groups", "mamba_ngroups", default=1, minimum=1
        ),
        "scan_value_dim": config.number(*names, default=max(1, width // heads), minimum=1),
        "scan_chunk": config.number("chunk_size", "mamba_chunk_size", default=256, minimum=1),
        "scan_norm": config.flag("mamba_rms_norm", True),
    }
    return True


def _convolution(config: Config, architecture: Architecture) -> bool:
    width = config.count(count_at("conv_L_cache", default=None))
    if width is None:
        return False
    biased = config.flag("conv_bias", False)
    architecture |= {
        "recurrence": "convolution",
        "scan_heads": config.number("conv_dim", default=_hidden(architecture), minimum=1),
        "scan_value_dim": 1,
        "conv_width": width,
        "conv_bias": biased,
        "scan_bias": biased,
    }
    return True


def _lightning(config: Config, architecture: Architecture) -> bool:
    """Linear attention with the heads of the other layers."""
    if "heads" not in architecture:
        return False
    heads, head_dim = architecture["heads"], architecture.get("head_dim")
    architecture |= {
        "recurrence": "lightning",
        "scan_heads": heads,
        "scan_key_dim": head_dim,
        "scan_value_dim": head_dim,
        "scan_chunk": config.number("block_size", default=_LIGHTNING_CHUNK, minimum=1),
        "scan_norm": True,
    }
    return True


def _hidden(architecture: Architecture) -> int:
    hidden = architecture["hidden"]
    assert isinstance(hidden, int)
    return hidden
