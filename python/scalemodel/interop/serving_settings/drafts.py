"""Speculative decoding as settings of engines ask for it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final, Protocol

from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.words import Options

_MOST_NODES: Final = 4096
_MOST_WIDTH: Final = 16
#: Methods of vLLM whose drafts come from a layer on the model's hidden states.
_LAYERS: Final = ("mtp", "eagle", "medusa", "mlp_speculator")


class Reader(Protocol):
    """An instance as it is read, as far as drafts need it."""

    framework: str
    options: Options
    notes: list[str]

    def number(self, name: str, value: object, most: float) -> float | None:
        """A number from 0 within a table; None where it is not set."""

    def drafts(self, name: str, value: object) -> int:
        """Tokens that are proposed per step."""


def _whole(reading: Reader, name: str, value: object, most: int) -> int:
    return int(reading.number(name, value, most) or 0)


def _tree(reading: Reader, text: object) -> dict[str, int]:
    """Depth, width and nodes of a tree that vLLM is given as the paths to its nodes."""
    name = "speculative_token_tree"
    try:
        paths = ast.literal_eval(str(text))
        lengths = [len(path) for path in paths]
        ranks = [int(path[-1]) for path in paths]
    except (ValueError, SyntaxError, TypeError, IndexError, MemoryError, RecursionError):
        lengths, ranks = [], []
    if not lengths or min(ranks) < 0 or max(ranks) >= _MOST_WIDTH or max(lengths) > 64:
        raise ScaleModelError(
            f"{reading.framework}: {name}={str(text)[:60]!r}: must be a list of paths such as "
            f"[(0,), (1,), (0, 0)], at most {_MOST_WIDTH} wide",
            code="malformed_setting",
        )
    width = 1 + max(ranks)
    nodes = len(paths) if width > 1 else 0
    return {"speculative_tokens": max(lengths), "draft_width": width, "draft_nodes": nodes}


def vllm_drafts(reading: Reader, table: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """Fields of the record that ``--speculative-config`` stands for."""
    count = reading.drafts("num_speculative_tokens", table.get("num_speculative_tokens"))
    found: dict[str, Any] = {"speculative_tokens": count}
    if count and table.get("speculative_token_tree"):
        found |= _tree(reading, table["speculative_token_tree"])
    model, method = str(table.get("model") or ""), str(table.get("method") or "")
    layer = any(each in (method or model).lower() for each in _LAYERS)
    if count and model and (method == "draft_model" or (not method and not layer)):
        asked = table.get("draft_tensor_parallel_size")
        own = _whole(reading, "draft_tensor_parallel_size", asked, 65535)
        found |= {"draft_model": model, "draft_tp": 0 if own == tp else own}
    return found


def sglang_drafts(reading: Reader) -> dict[str, Any]:
    """Fields of the record that the ``--speculative-...`` options stand for."""
    options = reading.options
    algorithm = options.text("speculative_algorithm").upper()
    path = options.text("speculative_draft_model_path")
    width = options.count("speculative_eagle_topk") or 1
    verified = options.count("speculative_num_draft_tokens")
    if not algorithm:
        return {}
    chain = options.count("speculative_num_steps", least=0)
    depth = 1 if chain is None else chain
    found: dict[str, Any] = {"speculative_tokens": depth}
    if depth and algorithm == "STANDALONE" and path:
        found["draft_model"] = path
    if depth and width > 1:
        if width > _MOST_WIDTH:
            reading.notes.append(f"speculative_eagle_topk: predicted with {_MOST_WIDTH}")
            width = _MOST_WIDTH
        most = min(_MOST_NODES, width + (depth - 1) * width**2)
        nodes = 0 if verified is None else min(most, max(1, verified - 1))
        found |= {"draft_width": width, "draft_nodes": nodes}
    return found


def tensorrt_drafts(reading: Reader, table: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the record that ``speculative_config`` stands for."""
    layers, chain = table.get("num_nextn_predict_layers"), table.get("max_draft_len")
    count = reading.drafts("speculative_config", chain if layers is None else layers)
    found: dict[str, Any] = {"speculative_tokens": count}
    kind = str(table.get("decoding_type") or "").lower().replace("_", "")
    model = str(table.get("speculative_model_dir") or table.get("speculative_model") or "")
    if count and kind == "drafttarget" and model:
        found["draft_model"] = model
    return found
