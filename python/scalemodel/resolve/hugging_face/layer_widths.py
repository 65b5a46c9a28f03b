"""Families whose layers differ in heads and widths, written with two of each.

An estimate tells few kinds of layers apart, so layers of many widths are written as layers of two,
one step apart, which have the same parameters and arithmetic in all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scalemodel.resolve.hugging_face.reading import (
    Config,
    count_at,
    layers_at,
    malformed,
    rows_at,
)
from scalemodel.resolve.hugging_face.steps import Architecture

#: Kinds of layers that an estimate tells apart.
_KINDS = 4
#: Step of widths, for the sake of tensor ranks.
_STEP = 64


def _whole(architecture: Architecture, name: str) -> int:
    value = architecture.get(name, 0)
    assert isinstance(value, int)
    return value


def _listed(config: Config, name: str, layers: int) -> list[int]:
    """A list of whole numbers, one per layer."""
    listed = config.items(name) or ()
    numbers = [n for n in listed if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    if len(numbers) != layers or len(listed) != layers:
        raise malformed(name, listed, f"a list of {layers} whole numbers, one per layer")
    return numbers


def two_of(widths: Sequence[int]) -> tuple[int, int, list[bool]]:
    """Two widths with the sum of these, and which layers have the second.

    Examples
    --------
    >>> two_of([64, 64, 512, 128])
    (192, 256, [False, False, False, False])
    >>> two_of([4, 4, 5, 8])
    (5, 6, [False, False, False, True])
    >>> two_of([256, 1024, 256])
    (256, 1024, [False, True, False])
    """
    different = sorted(set(widths))
    if len(different) <= 2:
        return different[0], different[-1], [width != different[0] for width in widths]
    step = math.gcd(*widths, _STEP)
    low = sum(widths) // len(widths) // step * step
    more = (sum(widths) - low * len(widths)) // step
    widest = sorted(range(len(widths)), key=lambda layer: (-widths[layer], -layer))[:more]
    return low, low + step, [layer in widest for layer in range(len(widths))]


def searched_blocks(config: Config, architecture: Architecture) -> list[str]:
    """Nemotron-NAS: every layer has a width of its own, or lacks a block.

    Parameters and arithmetic agree in all, if not layer by layer. A matrix in the place of a block
    counts as a width of as many parameters, and so do keys and values of more heads than most
    layers have, where heads differ in more than one way.
    """
    blocks = config.items("block_configs") or ()
    layers, hidden = _whole(architecture, "layers"), _whole(architecture, "hidden")
    if len(blocks) != layers:
        raise malformed("block_configs", blocks, f"a list of {layers} tables, one per layer")
    heads, size = _whole(architecture, "heads"), _whole(architecture, "head_dim")
    groups: list[int] = []
    widths: list[int] = []
    matrices = 0  # in the place of blocks
    for block in blocks:
        section = Config(block, "block_configs.")
        attention, ffn = section.section("attention"), section.section("ffn")
        linear = attention.flag("replace_with_linear", False)
        matrices += linear
        lacks = attention.flag("no_op", False) or linear
        groups.append(0 if lacks else attention.number("n_heads_in_group", default=1, minimum=1))
        replaced = ffn.flag("replace_with_linear", False)
        matrices += replaced
        lacks = ffn.flag("no_op", False) or replaced
        widths.append(0 if lacks else _block_width(ffn, hidden))
    present = [group for group in groups if group]
    if not any(widths) or not present or any(heads % group for group in present):
        raise malformed("block_configs", blocks, "a list with some attention and some blocks")
    usual = max(set(present), key=present.count)
    others = sorted({group for group in present if group != usual})
    mixers = "".join("-" if not group else "F" if group == usual else "W" for group in groups)
    if len(others) > 1:
        mixers = mixers.replace("W", "F")
        further = sum(heads // group - heads // usual for group in present) * size
    else:
        further = 0
    extra = matrices * hidden / 3 + 2 * further / 3  # of parameters, as a width of one block
    architecture["kv_heads"] = heads // usual
    if "W" in mixers:
        architecture["window_kv_heads"] = heads // others[0]
    _set_widths(architecture, widths, mixers, extra)
    alike = len({width for width in widths if width}) == 1 and not extra
    exact = alike or (not extra and "d" in str(architecture["feed_forwards"]))
    return [] if exact else ["block_configs (widths read as their mean)"]


def _set_widths(
    architecture: Architecture, widths: Sequence[int], mixers: str, extra: float = 0
) -> None:
    """Two widths where few enough kinds of layers result; else their mean, in whole 64.

    `extra`: of all layers together, beside what they state.
    """
    some = [width for width in widths if width]
    low, high, second = two_of(some)
    letters = iter("d" if is_second else "D" for is_second in second)
    blocks = "".join(next(letters) if width else "-" for width in widths)
    if len(set(zip(mixers, blocks, strict=True))) > _KINDS and "d" in blocks:
        # Layers without attention have the first width, so that they are of one kind.
        whole = [i for i, letter in enumerate(mixers) if letter != "-" and widths[i]]
        count = min(sum(second), len(whole))
        wide = sorted(whole, key=lambda i: -widths[i])[:count]
        if count == sum(second) and len(set(some)) > 2:
            blocks = "".join(
                "-" if not width else "d" if i in wide else "D" for i, width in enumerate(widths)
            )
    kinds = set(zip(mixers, blocks, strict=True))
    if extra or len(kinds) > _KINDS:
        mean = (sum(some) + extra) / len(some) / _STEP
        blocks = blocks.replace("d", "D")
        architecture["ffn"] = _STEP * max(1, round(mean))
    else:
        architecture["ffn"] = low
        if "d" in blocks:
            architecture["second_ffn"] = high
    architecture |= {"mixers": mixers, "feed_forwards": blocks}


def _block_width(ffn: Config, hidden: int) -> int:
    """Width of a block of Nemotron-NAS: two thirds of a multiple of the stream, in whole 256."""
    stated = ffn.number("intermediate_size", default=0)
    if stated:
        return stated
    name, multiple = ffn.value("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, (int, float)) or multiple <= 0:
        raise malformed(name, multiple, "a number above 0")
    return 256 * -(-int(2 * multiple * hidden / 3) // 256)


def deci(config: Config, architecture: Architecture) -> list[str]:
    """DeciLM-7B (Deci/DeciLM-7B, configuration_decilm.py): heads of keys differ by layer."""
    layers, heads = _whole(architecture, "layers"), _whole(architecture, "heads")
    if config.items("num_key_value_heads_per_layer") is None:
        return []
    listed = _listed(config, "num_key_value_heads_per_layer", layers)
    if any(heads % count for count in listed):
        raise malformed("num_key_value_heads_per_layer", listed, f"divisors of {heads} heads")
    return _set_kv_heads(architecture, listed)


def _set_kv_heads(architecture: Architecture, listed: Sequence[int]) -> list[str]:
    """Heads of keys of two kinds of layers, one of them written as such with a window of all."""
    heads, total = _whole(architecture, "heads"), sum(listed)
    layers = len(listed)
    different = sorted(set(listed))
    pairs = [(different[0], different[-1])] if len(different) <= 2 else []
    divisors = [n for n in range(1, heads + 1) if heads % n == 0]
    pairs += sorted(
        ((a, b) for a in divisors for b in divisors if a < b),
        key=lambda pair: (pair[1] - pair[0], pair),
    )
    for few, many in pairs:
        second, rest = divmod(total - few * layers, many - few) if many > few else (0, 0)
        if rest or not 0 <= second <= layers:
            continue
        most = sorted(range(layers), key=lambda layer: -listed[layer])[:second]
        architecture["kv_heads"] = many if second == layers else few
        if 0 < second < layers:
            architecture["mixers"] = "".join("W" if i in most else "F" for i in range(layers))
            architecture["window_kv_heads"] = many
        return []
    return ["num_key_value_heads_per_layer"]


def openelm(config: Config, architecture: Architecture) -> list[str]:
    """OpenELM (apple/OpenELM, configuration_openelm.py; arXiv 2404.14619): wider layer by layer."""
    layers = config.count(layers_at("num_transformer_layers"))
    hidden = config.count(count_at("model_dim"))
    assert layers is not None
    assert hidden is not None
    queries, keys = (
        _listed(config, "num_query_heads", layers),
        _listed(config, "num_kv_heads", layers),
    )
    divisor = config.number("ffn_dim_divisor", default=256, minimum=1)
    multiples = config.items("ffn_multipliers") or ()
    numbers = [n for n in multiples if isinstance(n, (int, float)) and not isinstance(n, bool)]
    if len(numbers) != layers or len(multiples) != layers or any(n <= 0 for n in numbers):
        raise malformed("ffn_multipliers", multiples, f"a list of {layers} numbers above 0")
    for key in ("num_gqa_groups", "qkv_multipliers", "rope_max_length", "max_context_length"):
        config.value(key)
    config.value("normalization_layer_name"), config.value("activation_fn_name")
    config.value("rope_freq_constant")
    ratio = queries[0] // keys[0]
    alike = all(q == ratio * k for q, k in zip(queries, keys, strict=True))
    low, high, second = two_of(keys)
    mixers = "".join("W" if is_second else "F" for is_second in second)
    architecture |= {
        "layers": layers,
        "hidden": hidden,
        "vocab": config.count(rows_at("vocab_size")),
        "heads": ratio * low,
        "kv_heads": low,
        "head_dim": config.count(count_at("head_dim")),
        "gated": config.flag("ffn_with_glu", True),
        "qk_norm": config.flag("normalize_qk_projections", True),
        "tied_embeddings": config.flag("share_input_output_layers", True),
    }
    if "W" in mixers:
        architecture |= {"window_heads": ratio * high, "window_kv_heads": high}
    widths = [_divisible(multiple * hidden, divisor) for multiple in numbers]
    _set_widths(architecture, widths, mixers)
    return [] if alike else ["num_query_heads"]


def _divisible(value: float, divisor: int) -> int:
    """The nearest multiple that is not a tenth below."""
    nearest = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * value else nearest
