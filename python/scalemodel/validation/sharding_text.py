"""How tables of runs print what replicas shard."""

from __future__ import annotations

import math
import re


def sharding_name(text: str) -> str:
    """Sharding of replicas as the column prints it."""
    if "hsdp" in text or "hybrid_shard" in text or "hybrid shard" in text:
        return "hsdp"
    if stage := re.search(r"(?:zero|stage)[-_ ]?([0123])", text):
        return "ddp" if stage.group(1) == "0" else f"zero{stage.group(1)}"
    if "shard_grad_op" in text:
        return "zero2"
    if "fsdp" in text or "fully shard" in text:
        return "zero3"
    return "zero1" if re.search(r"(dist(ributed)?|sharded)[-_ ]?opt", text) else "ddp"


def shard_degree(text: str) -> int:
    """Ranks of one sharding group as printed (``FSDP (64)``, ``dcn_FSDP=16 ici_FSDP=8``); or 0."""
    if alone := re.search(r"[fh]sdp\d?\s*\((\d+)\)", text):
        return int(alone.group(1))
    sizes = re.findall(r"(?:fsdp|hsdp|shard)\s*=\s*(\d+)", text)
    return math.prod(int(size) for size in sizes) if sizes else 0
