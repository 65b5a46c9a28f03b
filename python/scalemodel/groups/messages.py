"""What the verdict on a model of layer groups means, with the numbers of the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalemodel import _core
from scalemodel.messages import size_text

if TYPE_CHECKING:
    from scalemodel.groups.estimate import GroupEstimate

#: What is wrong and what would be legal, by reason code; fields of `_facts` in braces.
_ILLEGAL = {
    "mesh": "a mesh does not suit {accelerators} accelerators or its group: {meshes}.\n"
    "  The degrees of a mesh multiply to {accelerators}; tp and sp exclude each other, and cp "
    "stands right before ddp, zero1 or fsdp.",
    "batch": "{global_batch} samples in {micro_batches} micro-batches cannot be shared out evenly: "
    "{meshes}.\n"
    "  The ranks of a mesh, without those of tp, sp and cp, times the micro-batches divide the "
    "batch; or give the task batch_is_limit=True.",
    "tp_heads": "tp or sp of a mesh does not divide the attention heads: {meshes}.\n"
    "  Each rank takes whole heads.",
    "tp_ffn": "tp or sp of a mesh does not divide the width of a layer: {meshes}.\n"
    "  Each rank takes as many columns as every other.",
    "etp_ffn": "tp of a mesh does not divide the width of an expert: {meshes}.\n"
    "  Each rank takes as many columns as every other.",
    "ep_experts": "ep of a mesh does not divide the experts: {meshes}.\n"
    "  Each rank takes whole experts.",
    "precision": "{accelerator} has no {precision} rate.\n  It computes in {precisions}.",
}


def _facts(est: GroupEstimate) -> dict[str, object]:
    peaks = est.cluster.core.accelerator.peak_flop_per_s
    return {
        "accelerators": est.cluster.accelerators,
        "accelerator": est.cluster.accelerator,
        "global_batch": est.task.global_batch,
        "micro_batches": est.strategy.micro_batches,
        "meshes": ", ".join(f"{name} {mesh}" for name, mesh in est.meshes.items()),
        "precision": est.task.precision,
        "precisions": ", ".join(
            name for name, peak in zip(_core.precisions(), peaks, strict=True) if peak > 0
        ),
    }


def message(est: GroupEstimate) -> str:
    """What the verdict says and why.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=100, sequence=197)
    >>> est = sm.estimate(sm.compose("vit_b"), sm.cluster("dgx_h100"), task)
    >>> print(message(est).partition(":")[2].partition(":")[0])
    batch   100 samples in 1 micro-batches cannot be shared out evenly
    """
    if est.illegal:
        return f"{est.verdict}   {_ILLEGAL[str(est.core.verdict)].format_map(_facts(est))}"
    core = est.core
    used, capacity = core.memory_bytes, core.memory_capacity_bytes
    text = f"needs {size_text(used)} per accelerator, {est.cluster.accelerator} has "
    if used <= capacity:
        return f"ok   {text}{size_text(capacity)} -> {size_text(capacity - used)} spare."
    kinds = est.memory().sort_values("bytes", ascending=False)
    listed = " | ".join(
        f"{kind} {size_text(size)}"
        for kind, size in zip(kinds["kind"], kinds["bytes"], strict=True)
        if size > 0
    )
    over = size_text(used - capacity)
    return f"{est.verdict}   {text}{size_text(capacity)} -> {over} too much.\n  {listed}"
