"""Attention layers of decode steps, as published for one accelerator after the other."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.resolve.attention import AttentionKernels

#: Step-3, arXiv 2507.19427, table 9: microseconds of an attention layer with its projections, 64
#: sequences of a rank (256 where four tensor ranks share one layer of Qwen3), by kind and context.
#: 16-bit attention of FlashAttention 3 and 2, projections in 8 bits. Query heads of a rank, key
#: heads, head size, and values of the projections.
KINDS = {
    "MFA": (64, 64, 1, 256, 7168 * 2560 + 2048 * 16384 + 16384 * 7168),
    "GQA": (256, 16, 1, 128, 4096 * (2 * 16 + 2) * 128),
}
CASES = [("MFA", 8192), ("MFA", 32768), ("GQA", 8192), ("GQA", 32768)]
LAYERS = {
    "h800_sxm_80": (281, 791, 382, 1391),
    "h20": (438, 1452, 812, 3042),
    "a800_sxm_80": (531, 1484, 791, 3010),
}


def layer_us(accelerator: str, kind: str, context: int) -> float:
    """The kernel, and projections at 70 % of the accelerator's memory or tensor cores."""
    batch, heads, kv_heads, head_dim, values = KINDS[kind]
    chip = sm.cluster({"accelerator": accelerator}, nodes=1).core.accelerator
    entry = AttentionKernels(accelerator).of_engine(
        "decode", engine="vllm", version="0.24.0", group=heads // kv_heads
    )
    one = np.ones(1)
    time_s = _core.decode_time_s(
        entry.constants, chip, batch=batch * one, queries=one, keys=context * one,
        heads=heads * one, kv_heads=kv_heads * one, head_dim=head_dim * one,
        v_head_dim=head_dim * one, window=0 * one,
    )[0]  # fmt: skip
    peaks = dict(zip(_core.precisions(), chip.peak_flop_per_s, strict=True))
    peak = peaks["fp8"] or 2 * peaks["bf16"]
    read = max(values / chip.memory_bandwidth_bytes_per_s, 2 * batch * values / peak)
    return 1e6 * (float(time_s) + read / 0.7)


@pytest.mark.parametrize("accelerator", LAYERS)
def test_attention_layers_of_the_step_3_report(accelerator: str) -> None:
    """No constant was fitted to them; H20 shows whole WGMMA tiles, as its tensor cores are slow."""
    errors = {
        case: layer_us(accelerator, *case) / measured - 1
        for case, measured in zip(CASES, LAYERS[accelerator], strict=True)
    }
    assert max(map(abs, errors.values())) < 0.2, errors
