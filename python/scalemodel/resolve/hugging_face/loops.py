"""Families whose layers run several times with the same weights."""

from __future__ import annotations

from scalemodel.resolve.hugging_face.reading import Config, malformed
from scalemodel.resolve.hugging_face.steps import Architecture

_PATTERNS = ("mixers", "feed_forwards")


def _whole(architecture: Architecture, name: str, default: int = 0) -> int:
    value = architecture.get(name, default)
    assert isinstance(value, int)
    return value


def _spelled_out(architecture: Architecture) -> None:
    """Patterns of one letter per layer, whichever way layers differ."""
    layers = _whole(architecture, "layers")
    every = _whole(architecture, "full_attention_every")
    if "mixers" not in architecture and architecture.get("window"):
        architecture["mixers"] = "".join(
            "F" if every and (i + 1) % every == 0 else "W" for i in range(layers)
        )
        architecture["full_attention_every"] = 0
    dense, turn = _whole(architecture, "first_dense_layers"), _whole(architecture, "moe_every", 1)
    if "feed_forwards" not in architecture and architecture.get("experts"):
        architecture["feed_forwards"] = "".join(
            "E" if i >= dense and (i + 1) % turn == 0 else "D" for i in range(layers)
        )
        architecture |= {"first_dense_layers": 0, "moe_every": 1}
    for name in _PATTERNS:
        letters = str(architecture.get(name) or "")
        if letters:
            architecture[name] = (letters * layers)[:layers]


def looped(architecture: Architecture, start: int, end: int, passes: int) -> None:
    """Layers from `start` up to `end` run that many times."""
    layers = _whole(architecture, "layers")
    if not 0 <= start <= end <= layers:
        raise malformed("layers of a loop", (start, end), f"among {layers} layers")
    if passes < 1:
        raise malformed("passes of a loop", passes, "a whole number above 0")
    _spelled_out(architecture)
    for name in _PATTERNS:
        letters = str(architecture.get(name) or "")
        if letters:
            architecture[name] = letters[:start] + letters[start:end] * passes + letters[end:]
    architecture |= {
        "layers": layers + (end - start) * (passes - 1),
        "loop_start": start,
        "loop_layers": end - start,
        "loop_passes": passes,
    }


def ouro(config: Config, architecture: Architecture) -> None:
    """Ouro (ByteDance/Ouro-2.6B, modeling_ouro.py; arXiv 2510.25741): all layers some times over.

    Every pass leaves keys and values of its own. Tokens that stop early save nothing here.
    """
    config.value("early_exit_threshold"), config.value("early_exit_step")
    passes = config.number("total_ut_steps", default=4, minimum=1)
    looped(architecture, 0, _whole(architecture, "layers"), passes)


def inkling_loop(config: Config, architecture: Architecture) -> None:
    """Inkling 2 Mini (transformers, models/inkling2_loop): some layers in the middle.

    The gates that mix what earlier passes left, of a low rank, are left out: 0.3 %.
    """
    layers = _whole(architecture, "layers")
    config.value("loop_gate_rank")
    looped(
        architecture,
        config.number("loop_layer_index_start", default=0),
        config.number("loop_layer_index_end", default=layers),
        config.number("loop_num_passes", default=1, minimum=1),
    )


def dory(config: Config, architecture: Architecture) -> list[str]:
    """Dory (transformers, models/dory): some layers in the middle, their scales in place of norms.

    Files list attention and its block as two layers. Scales of heads and widths, 0.02 % of the
    parameters, are left out.
    """
    paired = "-" in str(architecture.get("mixers") or "")
    if paired:
        for name in _PATTERNS:
            architecture[name] = str(architecture[name]).replace("-", "")
    half = 2 if paired else 1
    layers = _whole(architecture, "layers") // half
    architecture["layers"] = layers
    first = config.number("n_input_layers", default=8 * half) // half
    last = config.number("n_output_layers", default=8 * half) // half
    between = config.number("n_recurrent_layers", default=(layers - first - last) * half) // half
    passes = config.number("n_recurrent_loops", default=2, minimum=1)
    config.value("ngpt_alpha_init")
    looped(architecture, first, first + between, passes)
    mode = config.text("recurrent_kv_cache_mode", "per_loop")
    return [] if mode == "per_loop" else ["recurrent_kv_cache_mode"]


def hrm(config: Config, architecture: Architecture) -> list[str]:
    """HRM-Text (transformers, models/hrm_text): two stacks of layers, one run more often.

    The mean of both is taken for each layer: parameters and arithmetic agree in all.
    """
    high = config.number("H_cycles", default=2, minimum=1)
    low = config.number("L_cycles", default=3, minimum=1)
    runs = _whole(architecture, "layers")
    stack = config.number("num_layers_per_stack", default=runs // (high * (low + 1)), minimum=1)
    config.value("L_bp_cycles"), config.value("embedding_scale")
    total = stack * high * (low + 1)
    architecture["layers"] = 2 * stack
    passes, rest = divmod(total, 2 * stack)
    looped(architecture, 0, 2 * stack, passes)
    return ["L_cycles"] if rest else []
