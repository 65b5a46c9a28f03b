"""Models whose heads or widths a tensor-parallel degree does not divide."""

from __future__ import annotations

import math
from dataclasses import replace

import scalemodel._core as _core
from scalemodel.resolve import Model


def _up(count: int, step: int) -> int:
    return step * math.ceil(count / step)


def padded(model: Model, layout: _core.ServingLayout) -> tuple[Model, str]:
    """The model as engines that pad run it on a layout, and a note of what was padded.

    Query heads are padded to a multiple of tp, key/value heads as well where there are more of them
    than ranks (fewer are repeated, one a rank), and so is the width of dense layers and of an
    expert's matrices: as many zeros are computed as there are gaps. A model that needs nothing is
    returned as it is.

    Parameters
    ----------
    model : Model
    layout : ServingLayout

    Examples
    --------
    >>> import scalemodel as sm
    >>> from scalemodel.serving.padding import padded
    >>> model, note = padded(sm.model("qwen2_5_7b"), sm.ServingLayout(tp=8))
    >>> model.shape.heads, note
    (32, 'heads 28 padded to 32 for tp 8')
    """
    shape, tp = model.shape, int(layout.tp)
    changes: dict[str, int] = {}
    if shape.heads % tp:
        kv = shape.kv_heads or shape.heads
        if kv >= tp and kv % tp:
            kv_padded = _up(kv, tp)
            changes |= {"heads": kv_padded * (shape.heads // kv), "kv_heads": kv_padded}
        else:
            heads = _up(shape.heads, tp)
            changes["heads"] = heads if heads % kv == 0 else _up(heads, math.lcm(tp, kv))
            if shape.kv_heads == shape.heads:
                changes["kv_heads"] = changes["heads"]
        if not shape.head_dim:
            changes["head_dim"] = shape.hidden // shape.heads
    dense = not shape.experts or shape.first_dense_layers > 0 or shape.moe_every > 1
    if dense and shape.ffn % tp:
        changes["ffn"] = _up(shape.ffn, tp)
    ranks, width = layout.tp * layout.dp * layout.cp, shape.expert_ffn or shape.ffn
    split = ranks // layout.ep if shape.experts and ranks % layout.ep == 0 else 1
    if width % split:
        changes["expert_ffn"] = _up(width, split)
    if not changes:
        return model, ""
    said = [
        f"{name.replace('_', ' ')} {getattr(shape, name) or shape.ffn} padded to {value}"
        for name, value in changes.items()
        if name != "head_dim"
    ]
    return replace(model, shape=shape.replace(**changes)), f"{', '.join(said)} for tp {tp}"
