"""Layer patterns of hybrid models, as Megatron-Core spells them.

A sign for every mixer and every feed-forward block, which are layers of their own there, ``|``
between pipeline chunks, and ``/`` before every module of multi-token prediction
(NVIDIA/Megatron-LM, megatron/core/models/hybrid, since pull request 3377).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.settings.given import Given

_RECURRENCES: Final = {"mamba2": "M", "gated_delta": "G"}
_ATTENTION: Final = "*"
_FEED_FORWARDS: Final = {"D": "-", "E": "E"}
_NONE: Final = "-"  # of a mixer or a feed-forward block, in an architecture
#: What Megatron-Core fixes of either recurrence: chunks of its scan, bias of its convolution.
_FIXED: Final = {
    "mamba2": {"scan_chunk": 128, "conv_bias": True},
    "gated_delta": {"scan_chunk": 64, "conv_bias": False},
}


def _layer_signs(shape: _core.DecoderShape, layer: int) -> str | None:
    """The signs of one layer, its mixer first; None where it has none."""
    mixers, blocks = shape.mixers, shape.feed_forwards
    mixer = mixers[layer % len(mixers)]
    routed = layer - shape.first_dense_layers
    dense = routed < 0 or (routed + 1) % shape.moe_every != 0
    usual = "D" if not shape.experts or dense else "E"
    block = blocks[layer % len(blocks)] if blocks else usual
    signs = {"R": _RECURRENCES.get(shape.recurrence), "F": _ATTENTION, _NONE: ""}.get(mixer)
    return None if signs is None else signs + _FEED_FORWARDS.get(block, "")


def pattern_of(shape: _core.DecoderShape, held: Sequence[int]) -> str | None:
    """The pattern of a hybrid, `held` layers in every pipeline chunk, if it has one.

    Examples
    --------
    >>> import scalemodel as sm
    >>> pattern_of(sm.model("nemotron_h_8b").shape, [26, 26])
    'M-M-M-M*-M-M-M-M-M*-M-M-M-|M-M*-M-M-M-M-M*-M-M-M-M-M-'
    >>> pattern_of(sm.model("qwen3_next_80b_a3b").shape, [48])[:16]
    'GEGEGE*EGEGEGE*E'
    >>> pattern_of(sm.model("llama3_8b").shape, [32]) is None
    True
    """
    if shape.recurrence not in _RECURRENCES or not shape.mixers:
        return None
    # Time steps of what is convolved, blocks of two widths and loops have no sign.
    ranked = shape.recurrence == "mamba2" and shape.scan_rank > 0
    if ranked or shape.loop_layers or set(shape.feed_forwards) - {"D", "E", _NONE}:
        return None
    layers = [_layer_signs(shape, layer) for layer in range(shape.layers)]
    signs = [sign for sign in layers if sign]
    if len(signs) < len(layers):
        return None
    edges = [0, *accumulate(held)]
    chunks = ["".join(signs[first:last]) for first, last in pairwise(edges)]
    # A module of multi-token prediction is like the last layer, or whole where layers are not.
    whole = _ATTENTION + _FEED_FORWARDS["E" if shape.experts else "D"]
    module = "/" + (signs[-1] if len(signs[-1]) == 2 else whole)
    return "|".join(chunks) + shape.mtp_layers * module


def settings_of(shape: _core.DecoderShape) -> dict[str, int]:
    """Sizes of the recurrence, by Megatron-Core's names."""
    if shape.recurrence == "mamba2":
        return {
            "mamba_state_dim": shape.scan_key_dim,
            "mamba_head_dim": shape.scan_value_dim,
            "mamba_num_groups": shape.scan_groups,
            "mamba_num_heads": shape.scan_heads,
        }
    return {
        "linear_conv_kernel_dim": shape.conv_width,
        "linear_key_head_dim": shape.scan_key_dim,
        "linear_value_head_dim": shape.scan_value_dim,
        "linear_num_key_heads": shape.scan_groups or shape.scan_heads,
        "linear_num_value_heads": shape.scan_heads,
    }


def _chunks(pattern: str) -> list[str]:
    """Layers of every chunk, a letter each; those of multi-token prediction left out."""
    return pattern.partition("/")[0].split("|")


def _in_pairs(pattern: str) -> bool:
    """Whether every mixer is followed by its feed-forward block, in the same chunk."""
    blocks = set(_FEED_FORWARDS.values())
    return all(
        len(chunk) % 2 == 0
        and all((sign in blocks) == (i % 2 == 1) for i, sign in enumerate(chunk))
        for chunk in _chunks(pattern)
    )


def chunk_layers_of(pattern: str) -> list[int]:
    """Layers of every pipeline chunk of a pattern.

    Examples
    --------
    >>> chunk_layers_of("M-*-|M-/*E"), chunk_layers_of("M-M*|-M")
    ([2, 1], [4, 2])
    """
    each = 2 if _in_pairs(pattern) else 1
    return [len(chunk) // each for chunk in _chunks(pattern)]


def architecture_of(pattern: str, given: Given, hidden: int) -> dict[str, Any]:
    """Mixers, feed-forward blocks and recurrence of a pattern, by the names of an architecture.

    Raises
    ------
    ScaleModelError : a sign is unknown, or two recurrences are mixed.
    """
    signs = "".join(_chunks(pattern))
    named = dict.fromkeys(_RECURRENCES.values(), "R") | {_ATTENTION: "F"}
    blocks = {sign: block for block, sign in _FEED_FORWARDS.items()}
    recurrences = [name for name, sign in _RECURRENCES.items() if sign in signs]
    if not signs or set(signs) - set(named) - set(blocks) or len(recurrences) > 1:
        raise ScaleModelError(
            f"megatron: hybrid_layer_pattern={pattern[:60]!r}: must be made of "
            f"{', '.join(named)}, {', '.join(blocks)} and | between stages, with one of "
            f"{' and '.join(_RECURRENCES.values())}",
            code="malformed_setting",
        )
    if _in_pairs(pattern):
        layers = [(named[sign], blocks[signs[i + 1]]) for i, sign in enumerate(signs) if i % 2 == 0]
    else:
        layers = [(named.get(sign, _NONE), blocks.get(sign, _NONE)) for sign in signs]
    table = {
        "mixers": "".join(mixer for mixer, _ in layers),
        "feed_forwards": "".join(block for _, block in layers),
    }
    if not recurrences:
        return table
    (recurrence,) = recurrences
    return table | {
        "recurrence": recurrence,
        "scan_norm": True,
        **_FIXED[recurrence],
        **_scan_sizes(recurrence, given, hidden),
    }


def _scan_sizes(recurrence: str, given: Given, hidden: int) -> dict[str, int]:
    """Megatron-Core's own sizes where none is given: transformer_config.py."""
    if recurrence == "mamba2":
        head_dim = given.count("mamba_head_dim", default=64)
        return {
            "scan_key_dim": given.count("mamba_state_dim", default=128),
            "scan_value_dim": head_dim,
            "scan_groups": given.count("mamba_num_groups", default=8),
            "scan_heads": given.count("mamba_num_heads", default=2 * hidden // max(1, head_dim)),
            "conv_width": 4,
        }
    return {
        "scan_key_dim": given.count("linear_key_head_dim", default=128),
        "scan_value_dim": given.count("linear_value_head_dim", default=128),
        "scan_groups": given.count("linear_num_key_heads", default=16),
        "scan_heads": given.count("linear_num_value_heads", default=32),
        "conv_width": given.count("linear_conv_kernel_dim", default=4),
    }
