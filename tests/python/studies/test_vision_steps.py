"""Published steps of vision transformers, each predicted with what the others say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scalemodel.base.errors import ScaleModelError
from scalemodel.studies.vision_steps import RATES_GBIT, RUNS, vision_steps


def test_steps_left_out_are_met_closer_than_by_the_original(
    summary_line: Callable[[str], None],
) -> None:
    table = vision_steps()
    own, original = (
        table[column].abs() for column in ("error_fraction", "original_error_fraction")
    )
    summary_line(
        f"vision transformers, each left out: median {own.median():.1%}, mean {own.mean():.1%}; "
        f"MAD-Max {original.median():.1%}, {original.mean():.1%}"
    )
    assert len(table) == len(RUNS) == 9
    assert own.median() < original.median()
    assert own.mean() < original.mean()
    assert original.median() == pytest.approx(0.308, abs=0.001)
    assert set(table.rate_gbit) <= set(RATES_GBIT)


def test_one_rate_is_no_choice() -> None:
    table = vision_steps([200.0])
    assert set(table.rate_gbit) == {200.0}
    # Adapters of a DGX would be far faster than what the runs show.
    assert table.error_fraction.median() > 0.3


def test_no_rate_is_refused() -> None:
    with pytest.raises(ScaleModelError, match="rates_gbit"):
        vision_steps([])
