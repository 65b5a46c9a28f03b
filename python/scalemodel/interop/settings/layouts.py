"""Layers of pipeline chunks: as the engine splits them, and as frameworks write them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from scalemodel.base.errors import ScaleModelError

#: Where stages count embedding, final norm and head as layers: one before, two behind.
_BEFORE, _BEHIND = 1, 2
#: Signs of a layout, before and after multiplications are written out.
_LONGEST: Final = 20_000


def chunk_layers(layers: int, chunks: int, ends_as_layers: bool) -> list[int]:
    """Layers of every pipeline chunk in the order a micro-batch passes them.

    Even, the remainder on the middle chunks; with `ends_as_layers` the embedding, final norm and
    head count too and the remainder is on the first chunks. The engine's schedule/stages.cpp.

    Examples
    --------
    >>> chunk_layers(61, 8, False)
    [7, 8, 8, 8, 8, 8, 7, 7]
    >>> chunk_layers(61, 8, True)
    [7, 8, 8, 8, 8, 8, 8, 6]
    """
    if not ends_as_layers:
        base, extra = divmod(layers, chunks)
        first = (chunks - extra) // 2
        return [base + (first <= c < first + extra) for c in range(chunks)]
    base, extra = divmod(layers + _BEFORE + _BEHIND, chunks)
    edges = [c * base + min(c, extra) for c in range(chunks + 1)]
    held = [min(max(edge - _BEFORE, 0), layers) for edge in edges]
    return [after - before for before, after in pairwise(held)]


def layout_text(held: Sequence[int], mtp_layers: int) -> str:
    """A ``pipeline_model_parallel_layout`` of Megatron-Core.

    Examples
    --------
    >>> layout_text([1, 2, 1], 1)
    'Et|tt|tmL'
    """
    parts = ["t" * count for count in held]
    parts[0] = "E" + parts[0]
    parts[-1] += "m" * mtp_layers + "L"
    return "|".join(parts)


def layout_layers(text: str) -> list[int]:
    """Layers of every chunk of a layout; multiplications such as ``(tt|)*3`` are written out.

    Examples
    --------
    >>> layout_layers("Et*3|(tt|)*2,m|L")
    [3, 2, 2, 0, 0]
    """
    text = text.strip("\"' ").replace(",", "").replace(" ", "")
    for pattern in (r"\(([^()]{1,999})\)\*(\d{1,3})", r"([A-Za-z|])\*(\d{1,3})"):
        if len(text) > _LONGEST:
            raise ScaleModelError(
                f"pipeline_model_parallel_layout: longer than {_LONGEST:,} signs",
                code="malformed_setting",
            )
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return [part.count("t") for part in text.split("|")]


def counts_ends(held: Sequence[int], layers: int) -> bool | None:
    """Whether a split counts the ends as layers; None where the engine has no such split.

    Examples
    --------
    >>> counts_ends([7, 8, 8, 8, 8, 8, 8, 6], 61), counts_ends([8, 8], 16), counts_ends([1, 7], 8)
    (True, False, None)
    """
    for ends_as_layers in (False, True):
        if list(held) == chunk_layers(layers, len(held), ends_as_layers):
            return ends_as_layers
    return None
