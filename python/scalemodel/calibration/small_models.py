"""Sizes of small decoders, and the table of each that an estimate reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_GPT = {"layers": 4, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 1024, "positions": 512}
_MOE = {**_GPT, "ffn": 512, "experts": 4, "experts_per_token": 2}
#: Sizes of the decoders that a machine is checked with.
MODELS = {"gpt": _GPT, "moe": _MOE}


def architecture(name: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Model table of such sizes, as an estimate takes it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> sm.model(architecture("moe", MODELS["moe"])).core.layers
    4
    """
    table: dict[str, Any] = {
        **{key: cell for key, cell in sizes.items() if key not in ("experts", "ffn")},
        "ffn": sizes["ffn"],
        "position": "learned",
        "tied_embeddings": False,
        "kv_heads": sizes["heads"],
        "head_dim": sizes["hidden"] // sizes["heads"],
        **dict.fromkeys(("qkv_bias", "out_bias"), True),
        "mlp_bias": "experts" not in sizes,
        "gated": False,
        "norm": "layernorm",
        "norms_per_layer": 2,
    }
    if "experts" in sizes:
        table |= {"experts": sizes["experts"], "expert_ffn": sizes["ffn"]}
    return {"name": name, "architecture": table}
