"""What a measured size of a job tells larger ones, by published runs."""

from __future__ import annotations

import math

import pytest

from scalemodel import catalog
from scalemodel.estimator.projection import Carried, carried
from scalemodel.validation.projection import (
    Projected,
    carried_fraction,
    carried_over,
    projections,
    scores_of,
    text,
)
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import Table


@pytest.fixture(scope="module")
def plain() -> list[Projected]:
    return projections(way="plain")


def _pair(ratio: float, known: float, source: str = "a") -> Projected:
    return Projected(source, "plain", "x", 8, 64, True, True, ratio, 1.0, known)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_power_law_is_found_again(share: float) -> None:
    pairs = [_pair(known**share, known, source) for known in (0.8, 1.3) for source in "abcd"]
    assert carried_fraction(pairs) == pytest.approx(share, abs=1e-12)


def test_what_goes_the_other_way_is_not_carried() -> None:
    assert carried_fraction([_pair(0.9, 1.1)]) == 0
    assert carried_fraction([_pair(1.5, 1.1)]) == 1


def test_wider_misses_give_wider_factors() -> None:
    sources = "abcdef"
    narrow, wide = (
        carried_over(
            [
                _pair(math.exp(scale * (i - 3) / 3 * (1 if s in "ace" else -1)) * 1.2, 1.2, s)
                for s in sources
                for i in range(7)
            ]
        )
        for scale in (0.02, 0.1)
    )
    assert 1 < narrow.factor < wide.factor


@pytest.mark.repeats
def test_published_runs_are_met_better_with_a_smaller_one(plain: list[Projected]) -> None:
    table = scores_of({"plain": plain}).query("part == 'all'").set_index("same_layout")
    # As many as the documentation counts.
    assert table.runs.to_dict() == {True: 199, False: 105}
    assert table.projected_error_fraction[True] < 0.4 * table.error_fraction[True]
    assert table.projected_error_fraction[False] < 0.9 * table.error_fraction[False]
    assert table.covered_fraction[True] > 0.8
    shown = text(scores_of({"plain": plain}))
    assert "mosaicml/llm-foundry" in shown
    assert "from one node" in shown


def test_the_catalogue_holds_what_the_runs_say(plain: list[Projected]) -> None:
    for same_layout in (True, False):
        found = carried_over([pair for pair in plain if pair.same_layout == same_layout])
        kept = carried("plain", same_layout=same_layout)
        assert kept.rows == pytest.approx(found.rows, rel=0.1)
        assert kept.sources == found.sources
        assert kept.carried_fraction == pytest.approx(found.carried_fraction, abs=0.1)
        assert math.log(kept.factor) == pytest.approx(math.log(found.factor), rel=0.2)
    errors = catalog.load("reference", "projection")["errors"]
    left_out = [line for line in errors if line["way"] == "left_out" and line["part"] == "all"]
    by_layout = {line["same_layout"]: line for line in left_out}
    # The figures of the docstrings.
    told = {True: (6.9, 3.1), False: (9.5, 6.9)}
    for same_layout, figures in told.items():
        line = by_layout[same_layout]
        errors = (line["error_fraction"], line["projected_error_fraction"])
        assert [100 * error for error in errors] == pytest.approx(figures, abs=0.1)


def test_named_constants_carry_less_surely_to_another_layout() -> None:
    same, other = (carried("named", same_layout=same) for same in (True, False))
    assert isinstance(same, Carried)
    assert same.carried_fraction > other.carried_fraction
    assert same.factor < other.factor


def test_runs_of_a_development_branch_are_left_out() -> None:
    table = published_table("training")
    at = table.header.index("framework")
    rows = [row for row in table.rows if row[at] == "Megatron-Bridge main"]
    assert len(rows) > 40
    assert projections(Table(table.header, rows), way="plain") == []
