"""Where the checkpoint of a model lies on the Hugging Face Hub, and in what format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from scalemodel import catalog

#: Owner and name, of the signs that the Hub allows.
_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(text: str) -> bool:
    """Whether a text can be an id of the Hub.

    Examples
    --------
    >>> is_hub_id("Qwen/Qwen3-32B"), is_hub_id("qwen3_32b"), is_hub_id("a/b; touch x")
    (True, False, False)
    """
    return _ID.fullmatch(text) is not None


def hub_id(table: Mapping[str, Any], label: str = "") -> str:
    """Id of the checkpoint that a label of an entry stands for, as the Hub spells it.

    The alias that the label is, or whose part behind the owner it is; else the label, where it is
    an id; else, and for the entry's own name, its ``hub``. Empty where the entry has none.

    Examples
    --------
    >>> entry = {"hub": "a/Base", "aliases": ["a/Base", "a/Base-Chat", "Base 7B"]}
    >>> hub_id(entry, "base-chat"), hub_id(entry, "A/Base"), hub_id(entry, "Base 7B")
    ('a/Base-Chat', 'a/Base', 'a/Base')
    >>> hub_id(entry, "a/Base-it")
    'a/Base-it'
    """
    asked = "" if label == table.get("name") else catalog.normalised(label)
    aliases = table.get("aliases", ())
    for alias in aliases if isinstance(aliases, list) else ():
        if (
            isinstance(alias, str)
            and is_hub_id(alias)
            and asked
            in (
                catalog.normalised(alias),
                catalog.normalised(alias.split("/", 1)[1]),
            )
        ):
            return str(alias)
    if is_hub_id(label):  # one more checkpoint of that shape
        return label
    own = str(table.get("hub", ""))
    return own if is_hub_id(own) else ""


def entry_format(table: Mapping[str, Any]) -> str:
    """Format of the checkpoint of an entry, or of its experts where they alone are narrow.

    Examples
    --------
    >>> entry_format({"checkpoint": {"experts": "mxfp4"}}), entry_format({})
    ('mxfp4', '')
    """
    stored = table.get("checkpoint", {})
    if not isinstance(stored, Mapping):
        return ""
    return str(stored.get("weights", stored.get("experts", "")))


def checkpoint_format(config: Mapping[str, Any]) -> str:
    """How the checkpoint of a ``config.json`` stores its weights, as a task names the format.

    Empty where they are not quantised, or in a way that no task names.

    Examples
    --------
    >>> block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    >>> checkpoint_format({"quantization_config": block})
    'fp8_block'
    >>> checkpoint_format({"hidden_size": 4096})
    ''
    """
    quantised = config.get("quantization_config")
    if not isinstance(quantised, Mapping):
        return ""
    method = str(quantised.get("quant_method", "")).lower()
    if method == "fp8":
        return "fp8_block" if quantised.get("weight_block_size") else "fp8"
    if method in ("awq", "gptq") and quantised.get("bits", quantised.get("w_bit", 4)) == 4:
        return "int4"
    # ModelOpt's own file, as some releases copy it, names the algorithm alone.
    if method == "modelopt" or (not method and "quant_algo" in quantised):
        return {"FP8": "fp8", "NVFP4": "fp4"}.get(str(quantised.get("quant_algo", "")).upper(), "")
    return "mxfp4" if method == "mxfp4" else ""
