"""Published hours of LLaMA and Llama 2 against predictions."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from scalemodel.base.errors import ScaleModelError
from scalemodel.studies.pretraining_hours import STACKS, pretraining_hours


@pytest.fixture(scope="module")
def hours() -> pd.DataFrame:
    return pretraining_hours()


def test_hours_are_those_published(
    hours: pd.DataFrame, summary_line: Callable[[str], None]
) -> None:
    for row in hours.itertuples():
        summary_line(
            f"{row.name}, {row.predictor}: {row.accelerator_hours:,.0f} hours, published "
            f"{row.published_hours:,.0f} ({row.error_fraction:+.1%})"
        )
    table = hours.pivot(index="name", columns="predictor", values="error_fraction")
    # Software of the time; what came later is faster, as it should be.
    assert table[STACKS[0]].abs().max() < 0.10
    assert (table[list(STACKS)].abs().max(axis=1) < table["MAD-Max"].abs()).all()


def test_hours_are_tokens_over_rate(hours: pd.DataFrame) -> None:
    row = hours[(hours.name == "llama_65b") & (hours.predictor == "MAD-Max")].iloc[0]
    assert row.tokens_per_s_per_accelerator == pytest.approx(449.9, rel=1e-3)
    assert row.accelerator_hours == pytest.approx(864_475, rel=1e-3)


def test_an_unknown_run_is_refused() -> None:
    with pytest.raises(ScaleModelError, match="names: 'llama3_70b': must be of"):
        pretraining_hours(["llama3_70b"])
