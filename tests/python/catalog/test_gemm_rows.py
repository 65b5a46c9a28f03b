"""Rates of products whose rows are not whole 16 bytes, against what was measured."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator

# Milliseconds of the three products of GPT-2's head in a training step on one H200: 16 and 4
# sequences of 1,024 tokens of 1,024 values, 8 of 1,600 values (torch 2.11.0+cu130, 2026-11-26).
HEADS = (
    (16384, 1024, (18.44, 12.30, 11.60)),
    (4096, 1024, (4.38, 3.03, 2.89)),
    (8192, 1600, (14.63, 10.48, 9.77)),
)
WORDS, PADDED = 50257, 50304


def core(name: str) -> _core.Accelerator:
    return build_accelerator(accelerator_table(name))


def time_ms(name: str, m: int, n: int, k: int) -> float:
    return float(1e3 * np.asarray(_core.gemm_time_s(core(name), "bf16", m, n, k)))


@pytest.mark.parametrize(("tokens", "width", "measured_ms"), HEADS)
def test_heads_of_odd_vocabularies_take_as_long_as_measured(
    tokens: int, width: int, measured_ms: tuple[float, ...]
) -> None:
    forward, back = time_ms("h200", tokens, WORDS, width), time_ms("h200", tokens, width, WORDS)
    # The third product lies in rows of the vocabulary too: no slower than the second.
    assert forward + 2 * back == pytest.approx(sum(measured_ms), rel=0.16)
    padded = time_ms("h200", tokens, PADDED, width) + 2 * time_ms("h200", tokens, width, PADDED)
    assert padded < 0.25 * sum(measured_ms)


def test_padding_saves_the_published_quarter_on_a100() -> None:
    """GPT-2 124M: 1.25 times the step, its other products at the rate of the padded head."""
    step_over_head = 0.69 / 0.31
    odd, padded = (time_ms("a100_sxm_80", 12288, words, 768) for words in (WORDS, PADDED))
    assert (step_over_head + odd / padded) / (step_over_head + 1) == pytest.approx(1.25, abs=0.03)


def test_nothing_is_claimed_where_nothing_was_measured() -> None:
    for name in catalog.names("accelerators"):
        gemm = core(name).gemm
        known = catalog.load("accelerators", name)["architecture"] in ("hopper", "ampere")
        if not known:
            assert gemm.rows_of_4_fraction == gemm.rows_of_2_fraction == 1
        assert 0 < gemm.rows_of_2_fraction <= gemm.rows_of_4_fraction <= 1
