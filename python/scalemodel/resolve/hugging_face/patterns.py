"""Which mixer and which feed-forward block every layer has, by the many keys that say so.

Both are texts of one letter per layer, as `DecoderShape` reads them: mixers F full attention, W
with its window, I over keys that an indexer selects, S over those of the layer before, C and H over
compressed keys, R recurrent, P attention beside a recurrent mixer, p the same with its window, X
over a source alone, - none; feed-forward blocks D dense, E experts, - none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face.reading import Config, count_at, malformed

#: Kinds of layer by the names that configurations list -> mixer.
_MIXERS: Final[Mapping[str, str]] = {
    "full_attention": "F",
    "attention": "F",
    "global_attention": "F",
    "global": "F",
    "compressed_attention": "F",
    "sliding_attention": "W",
    "sliding_window_attention": "W",
    "local_attention": "W",
    "local": "W",
    "chunked_attention": "W",
    "linear_attention": "R",
    "lightning_attention": "R",
    "kda": "R",
    "gated_deltanet": "R",
    "mamba": "R",
    "mamba2": "R",
    "conv": "R",
    "short_conv": "R",
    "recurrent": "R",
    "jet": "R",
    "swa": "W",
    "attn": "F",
    "hybrid": "P",
    "window_attention": "W",
    "hybrid_sliding": "W",
    "sparse_attention": "I",
    "indexed_attention": "I",
    "qwen_sparse_attention": "I",
    "compressed_sparse_attention": "C",
    "heavily_compressed_attention": "H",
    "deepseek_sparse_attention": "I",
    "minimax_m3_sparse": "I",
}
#: Layers from one full attention to the next beside gated delta rules, where a file leaves it out
#: (transformers, Qwen3NextConfig and Qwen3_5TextConfig).
_DELTA_INTERVAL: Final = 4
#: Lists of the kinds of all layers.
_BLOCK_LISTS: Final = ("layers_block_type", "layer_types")
_FEED_FORWARDS: Final[Mapping[str, str]] = {
    "dense": "D",
    "sparse": "E",
    "moe": "E",
    "hash_moe": "E",
    "mlp": "D",
}
#: One letter of a pattern whose layers hold a mixer or a feed-forward block alone.
_HALVES: Final[Mapping[str, tuple[str, str]]] = {
    "M": ("R", "-"),
    "*": ("F", "-"),
    "-": ("-", "D"),
    "E": ("-", "E"),
}
#: The same by the names of lists.
_NAMED_HALVES: Final[Mapping[str, tuple[str, str]]] = {
    "mamba": ("R", "-"),
    "linear_attention": ("R", "-"),
    "attention": ("F", "-"),
    "full_attention": ("F", "-"),
    "sliding_attention": ("W", "-"),
    "mlp": ("-", "D"),
    "moe": ("-", "E"),
}


def _of_length(name: str, listed: Sequence[object], layers: int) -> Sequence[object]:
    if len(listed) < layers:
        raise malformed(name, listed, f"a list of {layers} entries, one per layer")
    return listed[:layers]  # some lists go on with the layers of token prediction


def _named(name: str, listed: Sequence[object], known: Mapping[str, str], layers: int) -> str:
    letters = []
    for kind in _of_length(name, listed, layers):
        if not isinstance(kind, str) or kind not in known:
            raise malformed(name, kind, f"a list of {layers} of {', '.join(known)}")
        letters.append(known[kind])
    return "".join(letters)


def _zeros_and_ones(name: str, listed: Sequence[object], zero: str, one: str, layers: int) -> str:
    flags = _of_length(name, listed, layers)
    if any(flag not in (0, 1) for flag in flags):
        raise malformed(name, listed, f"a list of {layers} of 0 or 1")
    return "".join(one if flag else zero for flag in flags)


def _where(layers: int, holds: Callable[[int], bool], yes: str, no: str) -> str:
    return "".join(yes if holds(layer) else no for layer in range(layers))


def _indices(name: str, listed: Sequence[object]) -> frozenset[int]:
    if any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in listed):
        raise malformed(name, listed, "a list of layers")
    return frozenset(int(i) for i in listed if isinstance(i, int))


def _numbers(config: Config, name: str) -> Sequence[object] | None:
    """A list of numbers, which some files write as a text with commas."""
    path, value = config.value(name)
    if not isinstance(value, str):
        return config.items(name)
    parts = value.replace(" ", "").split(",")
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise malformed(path, value, "a list of layers")
    return [int(part) for part in parts]


def halves(config: Config, layers: int) -> tuple[str, str] | None:
    """Both patterns of layers that hold one block each; None where no key says so."""
    name, pattern = config.value("hybrid_override_pattern")
    if pattern is None:
        name = next((key for key in _BLOCK_LISTS if config.items(key)), "")
        listed = config.items(name) if name else None
        if listed is None or ("moe" not in listed and "mlp" not in listed):
            return None
        mixers = _named(name, listed, {k: v[0] for k, v in _NAMED_HALVES.items()}, layers)
        return mixers, _named(name, listed, {k: v[1] for k, v in _NAMED_HALVES.items()}, layers)
    if not isinstance(pattern, str) or any(letter not in _HALVES for letter in pattern):
        raise malformed(name, pattern, f"letters of {''.join(_HALVES)}")
    if len(pattern) != layers:
        raise ScaleModelError(
            f"config.json: {name} has {len(pattern)} letters, the model {layers} layers; "
            "legal is one letter per layer"
        )
    pairs = [_HALVES[letter] for letter in pattern]
    return "".join(mixer for mixer, _ in pairs), "".join(block for _, block in pairs)


def _every(config: Config, layers: int) -> str | None:
    """Windows of all layers but every n-th, by a number or by letters such as ``LLLG``."""
    name, period = config.value(
        "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"
    )
    if period is None:
        return None
    if isinstance(period, str) and period and set(period) <= {"L", "G"}:
        return "".join("F" if period[i % len(period)] == "G" else "W" for i in range(layers))
    if isinstance(period, bool) or not isinstance(period, int) or period < 1:
        raise malformed(name, period, "a whole number above 0, or letters L and G")
    return _where(layers, lambda layer: (layer + 1) % period == 0, "F", "W")


def _recurrent(config: Config, layers: int) -> str | None:
    """Recurrent mixers and the layers of attention between them."""
    interval = config.count(count_at("full_attention_interval", default=None))
    if interval:
        return _where(layers, lambda layer: (layer + 1) % interval == 0, "F", "R")
    period = config.count(count_at("attn_layer_period", default=None))
    if period:
        offset = config.number("attn_layer_offset", default=0)
        return _where(layers, lambda layer: layer % period == offset, "F", "R")
    of = "attn_layer_indices" if config.items("attn_layer_indices") else "full_attn_idxs"
    listed = config.items(of)
    if listed is not None:
        some = _indices(of, listed)
        return _where(layers, lambda layer: layer in some, "F", "R")
    size = config.count(count_at("layer_group_size", default=None))
    if size:  # the last layer of a group attends, and so do those behind the last whole group
        grouped = layers - layers % size
        return _where(layers, lambda i: (i + 1) % size == 0 or i >= grouped, "F", "R")
    if config.value("linear_num_value_heads")[1] is not None:
        return _where(layers, lambda layer: (layer + 1) % _DELTA_INTERVAL == 0, "F", "R")
    listed = config.items("attn_type_list")
    if listed is not None:
        return _zeros_and_ones("attn_type_list", listed, "R", "F", layers)
    linear = config.section("linear_attn_config", optional=True)
    listed = linear.items("full_attn_layers")
    linear.items("kda_layers")
    if listed is not None:  # counted from 1
        attending = _indices("full_attn_layers", listed)
        return _where(layers, lambda layer: layer + 1 in attending, "F", "R")
    return None


def _selected(config: Config, mixers: str) -> str:
    """Full layers that attend to the keys an indexer selects, as far as the keys say."""
    layers = len(mixers)
    sparse = config.section("sparse_attention_config", optional=True)
    listed = sparse.items("sparse_attention_freq")
    if listed is not None:
        return _zeros_and_ones("sparse_attention_freq", listed, "F", "I", layers)
    if config.count(count_at("index_topk", default=None)) is None:
        return mixers
    listed = config.items("indexer_types")
    if listed is not None:
        kinds = _named("indexer_types", listed, {"full": "I", "shared": "S"}, layers)
        pairs = zip(mixers, kinds, strict=True)
        return "".join(kind if mixer in "FI" else mixer for mixer, kind in pairs)
    return mixers if "I" in mixers else mixers.replace("F", "I")


def _compressed(config: Config, layers: int) -> str | None:
    """Windows and compressed keys: without an indexer where many tokens share a key."""
    listed = config.items("compress_ratios")
    if listed is None:
        return None
    ratios = _of_length("compress_ratios", listed, layers)
    some = sorted({r for r in ratios if isinstance(r, int) and not isinstance(r, bool) and r > 0})
    if len(some) > 2 or any(isinstance(r, bool) or not isinstance(r, int) for r in ratios):
        raise malformed("compress_ratios", listed, "0 and at most two other numbers")
    letters = {0: "W"} | dict(zip(some, "CH" if len(some) == 2 else "C", strict=True))
    return "".join(letters[r] for r in ratios if isinstance(r, int))


def _repeated(config: Config, layers: int) -> str | None:
    """Kinds that take turns (RecurrentGemma): what attends beside a recurrence has a window."""
    name, _ = config.value("block_types", "_block_types")
    listed = config.items(name)
    if not listed:
        return None
    turns = [listed[layer % len(listed)] for layer in range(layers)]
    return _named(name, turns, {"recurrent": "R", "attention": "W"}, layers)


def mixers_of(config: Config, layers: int) -> str | None:
    """Mixers of the layers; None where no key tells them apart."""
    told = _compressed(config, layers) or _repeated(config, layers)
    if told is not None:
        return told
    listed = config.items("layer_types")
    of = "layer_types"
    if listed is None:
        listed, of = config.items("layers_block_type"), "layers_block_type"
    every, recurrent = _every(config, layers), _recurrent(config, layers)
    config.value("hybrid_layer_pattern")
    if listed is not None:
        return _selected(config, _named(of, listed, _MIXERS, layers))
    listed = config.items("hybrid_layer_pattern")
    if listed is not None:
        return _zeros_and_ones("hybrid_layer_pattern", listed, "F", "W", layers)
    found = recurrent or every
    selected = _selected(config, found or "F" * layers)
    return selected if found or set(selected) != {"F"} else None


def feed_forwards_of(config: Config, layers: int) -> str:
    """Which layers of a model with experts have them."""
    listed = config.items("mlp_layer_types")
    config.value("first_k_dense_replace"), config.value("decoder_sparse_step")
    config.items("mlp_only_layers"), config.value("moe_layer_freq")
    if listed is not None:
        return _named("mlp_layer_types", listed, _FEED_FORWARDS, layers)
    name, frequency = config.value("moe_layer_freq")
    if isinstance(frequency, (list, tuple)):
        return _zeros_and_ones(name, frequency, "D", "E", layers)
    every = config.number(
        "moe_layer_freq",
        "moe_layer_interval",
        "decoder_sparse_step",
        "interleave_moe_layer_step",
        default=1,
        minimum=1,
    )
    first = config.number("first_k_dense_replace", "num_dense_layers", default=0)
    if first > layers:
        raise malformed("leading dense layers", first, f"0 to the number of layers, {layers}")
    start = config.number("moe_layer_start_index", default=first)
    end = config.number("moe_layer_end_index", default=layers - 1, minimum=-1)
    end = layers - 1 if end < 0 else end
    period = config.count(count_at("expert_layer_period", default=None))
    offset = config.number("expert_layer_offset", default=1)
    listed = config.items("mlp_only_layers") or ()
    dense = _indices("mlp_only_layers", listed)
    numbers = config.items("moe_layers") or _numbers(config, "moe_layers_enum")
    chosen = None if numbers is None else _indices("moe_layers", numbers)

    def routed(layer: int) -> bool:
        if layer in dense or not start <= layer <= end:
            return False
        if chosen is not None:
            return layer in chosen
        if period:
            return layer % period == offset
        return (layer + 1) % every == 0

    return _where(layers, routed, "E", "D")
