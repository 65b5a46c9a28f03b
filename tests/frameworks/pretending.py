"""What a machine without accelerators lacks, taken for there by Megatron-Core's checks."""

from __future__ import annotations

import sys


def have_transformer_engine() -> None:
    """Every module of Megatron has its own name of the same question."""
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.training import arguments  # noqa: F401

    rope_utils.fused_apply_rotary_pos_emb = rope_utils.fused_apply_rotary_pos_emb_thd = object()
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron") and hasattr(module, "is_te_min_version"):
            module.is_te_min_version = lambda *_, **__: True
