"""Keys that give single layers numbers of their own: those of layers with a window have fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scalemodel.resolve.hugging_face.reading import Config, malformed
from scalemodel.resolve.hugging_face.steps import Architecture

#: Keys of such a table -> field of the layers without a window; with one it has a prefix.
_FIELDS: Final[Mapping[str, str]] = {
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "v_head_dim": "v_head_dim",
}
#: Lists of one number per layer, by the key that they take the place of.
_LISTS: Final[Mapping[str, str]] = {"num_attention_heads_per_layer": "num_attention_heads"}


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise malformed(name, value, "a whole number above 0")
    return value


def _given(config: Config, layers: int) -> dict[str, dict[int, int]]:
    """Numbers of single layers, by key and layer."""
    given: dict[str, dict[int, int]] = {}
    for layer, table in config.section("per_layer_config", optional=True).raw.items():
        if not layer.isdecimal() or not isinstance(table, Mapping) or int(layer) >= layers:
            raise malformed(f"per_layer_config.{layer}", table, f"a table of a layer of {layers}")
        for key, value in table.items():
            if value is None:  # as if it were not there
                continue
            where = f"per_layer_config.{layer}.{key}"
            given.setdefault(str(key), {})[int(layer)] = _whole(where, value)
    for name, key in _LISTS.items():
        listed = config.items(name)
        if listed is None:
            continue
        if len(listed) < layers:
            raise malformed(name, listed, f"a list of {layers} numbers, one per layer")
        given[key] = {i: _whole(name, value) for i, value in enumerate(listed[:layers])}
    return given


def numbers_of_single_layers(config: Config, architecture: Architecture) -> list[str]:
    """Fill in what layers with a window have of their own, where all of them have the same.

    Returns the keys whose numbers differ otherwise.
    """
    layers = architecture["layers"]
    assert isinstance(layers, int)
    mixers = str(architecture.get("mixers") or "F" * layers)
    unknown = []
    given = _given(config, layers)
    for key, numbers in given.items():
        field = _FIELDS.get(key)
        common = config.value(key)[1] if field is None else architecture.get(field)
        each = [numbers.get(layer, common) for layer in range(layers)]
        windows = {value for value, mixer in zip(each, mixers, strict=True) if mixer == "W"}
        others = {value for value, mixer in zip(each, mixers, strict=True) if mixer in "FISP"}
        if len(windows | others) <= 1 and (windows | others) <= {common}:
            continue
        if field is None or len(windows) > 1 or len(others) > 1:
            unknown.append(f"per_layer_config.{key}")
            continue
        if others:
            architecture[field] = others.pop()
        if windows:
            architecture[f"window_{field}"] = windows.pop()
    latent = architecture.get("kv_lora_rank")
    if "head_dim" in given and "v_head_dim" not in given and not latent:  # values are as wide
        architecture["v_head_dim"] = architecture["head_dim"]
        if "window_head_dim" in architecture:
            architecture["window_v_head_dim"] = architecture["window_head_dim"]
    return unknown
