"""Caches of hybrids as their papers count them."""

from __future__ import annotations

import pytest

import scalemodel as sm

MIB = 2**20


@pytest.mark.parametrize(
    ("name", "published"), [("jet_nemotron_2b", 154), ("jet_nemotron_4b", 258)]
)
def test_the_cache_of_jet_nemotron_at_64_ki_tokens(name: str, published: int) -> None:
    """Gu et al., arXiv 2508.15884, table of throughputs: MB of one sequence of 65,536 tokens."""
    task = sm.Inference(input_tokens=65_535, output_tokens=1)
    plan = sm.serve(name, "dgx_h100", task, replicas=1)
    assert plan.instance is not None
    capacity = plan.instance.capacity(task.input_tokens, task.output_tokens)
    each = capacity.blocks * capacity.block_bytes / capacity.cached_sequences
    assert each / MIB == pytest.approx(published, rel=0.03)


def test_a_recurrence_of_channels_keeps_a_window_and_a_number_each() -> None:
    """RecurrentGemma 2B: windows of eight layers, numbers and convolutions of the other 18."""
    task = sm.Inference(input_tokens=8192, output_tokens=1)
    plan = sm.serve("recurrentgemma_2b", "dgx_h100", task, replicas=1)
    assert plan.instance is not None
    capacity = plan.instance.capacity(task.input_tokens, task.output_tokens)
    each = capacity.blocks * capacity.block_bytes / capacity.cached_sequences
    windows = 8 * 2048 * 2 * 256 * 2
    states = 18 * 2560 * (4 + 3 * 2)
    assert each == pytest.approx(windows + states, rel=0.03)
