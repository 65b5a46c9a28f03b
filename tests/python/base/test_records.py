"""Records of the core name what they do not know."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import pytest

import scalemodel as sm


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (
            lambda: sm.Strategy(tensor_parallel=8),
            "tensor_parallel=8: no such knob; did you mean 'tp' (tensor-",
        ),
        (lambda: sm.Strategy(pipeline_parallel=2), "did you mean 'pp' (pipeline stages)"),
        (lambda: sm.Strategy(data_parallel_size=2), "did you mean 'dp' ("),
        (lambda: sm.Strategy(micro_batch_size=2), "did you mean 'micro_batch' ("),
        (lambda: sm.Strategy(tpp=2), "tpp=2: no such knob; did you mean 'tp' or 'pp'"),
        (lambda: sm.Strategy(zero_stage=3), "zero_stage=3: no such knob; did you mean 'sharding'"),
        (lambda: sm.Strategy(foo=3), "foo=3: no such knob; known: tp, "),
        (lambda: sm.Strategy(zero_hpz_partition_size=8), "did you mean 'secondary_degree' ("),
        (lambda: sm.Strategy(zero_quantized_weights=True), "did you mean 'quantized_gather' ("),
        (lambda: sm.Strategy(tp=2, colour="red"), "colour='red': no such knob"),
        (lambda: sm.Strategy(8, 4), "Strategy(8, 4): knobs are given by name, for example tp=1"),
        (lambda: sm.ServingLayout(pipeline_stages=4), "did you mean 'pp' ("),
        (lambda: sm.Ablation(gem_fraction=0.5), "did you mean 'gemm_fraction'"),
    ],
)
def test_a_field_that_does_not_exist_is_named(ask: Callable[[], object], answer: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=re.escape(answer)):
        ask()


def test_what_is_known_passes_unchanged() -> None:
    strategy = sm.Strategy(tp=4, pp=2)
    assert (strategy.tp, strategy.pp) == (4, 2)
    assert copy.copy(strategy) == pickle.loads(pickle.dumps(strategy)) == strategy
    with pytest.raises(sm.ScaleModelError, match="tp=0: must be a whole number"):
        sm.Strategy(tp=0)
