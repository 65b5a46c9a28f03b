"""Published training runs: what fine-tuning packs, and where its adapters sit."""

from __future__ import annotations

import re
from typing import Any

from scalemodel.resolve.recipes import Recipe
from scalemodel.validation.rows import Row, SkippedRowError, states

#: Spread of the logarithm of the lengths of instructions with their answers, where only their mean
#: is known: packs of them fill, as published ones do, to more than 99 %.
_SPREAD = 1


def packed(
    row: Row, task: dict[str, Any], strategy: dict[str, Any], recipe: Recipe, notes: list[str]
) -> None:
    """Packs of documents by the lengths that are known of them.

    A run that says that it packs ahead (`offline`) has documents of the recipe's mean length. Where
    a recipe knows how long equal sequences of as much attention are, packs are those: all else is
    alike. Those that context ranks divide come in two parts for each of them.
    """
    sequence = task["sequence"]
    stated = states(row.text("other_flags").lower(), r"sequence_packing\W+offline")
    if recipe.documents and stated and sequence > recipe.documents:
        task["lengths"] = f"mean={recipe.documents},spread={_SPREAD}"
        notes.append(f"documents of {recipe.documents} tokens by the recipe")
        return
    equal = recipe.packed
    if not equal or sequence <= equal or sequence % equal or equal % (2 * strategy["cp"]):
        return
    copies = sequence // equal
    task |= {"sequence": equal, "global_batch": copies * task["global_batch"]}
    strategy["micro_batch"] *= copies
    notes.append(f"packs of {copies} sequences of {equal} tokens by the recipe")


def adapters(flags: str, usual: str, notes: list[str]) -> dict[str, Any]:
    """Rank of low-rank adapters and where they sit, by the flags of a row in lower case.

    Where it does not say they sit where they `usual`-ly do, by the recipe.
    """
    rank = re.search(r"\blora_rank\s*=\s*(\d+)", flags)
    targets = re.search(r"\blora_targets\s*=\s*(qkv|attention|all)\b", flags)
    if rank is None:
        notes.append("LoRA rank 16 assumed")
    elif int(rank.group(1)) < 1:
        raise SkippedRowError("illegal:lora_rank")
    if targets is None:
        notes.append(f"LoRA on {usual} by the recipe" if usual else "LoRA on attention assumed")
    return {
        "lora_rank": int(rank.group(1)) if rank else 16,
        "lora_targets": targets.group(1) if targets else usual or "attention",
    }
