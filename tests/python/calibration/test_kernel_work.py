"""Work of kernels of recurrent mixers: what the engine refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError

SIZES = {
    "batch": 2.0,
    "tokens": 128.0,
    "heads": 32.0,
    "groups": 16.0,
    "key_dim": 128.0,
    "value_dim": 128.0,
    "chunk": 64.0,
}


def work(**changed: float) -> np.ndarray:
    """Work of one call, with some of its sizes changed."""
    return _core.kernel_work("gated_delta", [np.array([v]) for v in (SIZES | changed).values()])


@pytest.mark.parametrize("name", ["heads", "groups", "key_dim", "value_dim", "chunk"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0, 2.5, 1e10])
def test_sizes_that_are_counted_are_whole_numbers(name: str, value: float) -> None:
    with pytest.raises(ScaleModelError, match=f"^{name}=.*: must be a whole number"):
        work(**{name: value})


def test_work_is_in_proportion_to_sequences() -> None:
    one, two = work(batch=1.0)[0], work(batch=2.0)[0]
    assert (two[:2] == 2 * one[:2]).all()
    assert one[2] == two[2] == 2  # chunks of a sequence, one behind the other
    assert two[3] == 2 * one[3]
