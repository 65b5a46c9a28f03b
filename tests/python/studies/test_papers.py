"""Fifty studies of three papers: which are met, and that nothing in the tables is stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pandas as pd
import pytest

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.studies import papers
from scalemodel.studies.papers import routing_figures, scaling_figures

#: Studies of each paper, and those of them with a figure that is missed and explained.
STUDIES = {"madmax": 19, "routing": 15, "scaling": 16}
EXPLAINED = {"madmax": {1, 8, 12, 14, 16}, "routing": set(), "scaling": {5, 6, 13}}


@cache
def table(paper: str) -> pd.DataFrame:
    if paper == "routing":
        pytest.importorskip("scipy")
    return papers.figures(paper)


@pytest.mark.parametrize("paper", list(STUDIES))
def test_every_study_is_met_or_says_why_not(
    paper: str, summary_line: Callable[[str], None]
) -> None:
    found = papers.studies(table(paper))
    assert found.study.tolist() == list(range(1, STUDIES[paper] + 1))
    counts = found.status.value_counts()
    summary_line(
        f"{paper}: {len(found)} studies, " + ", ".join(f"{n} {s}" for s, n in counts.items())
    )
    for row in table(paper).itertuples():
        if not row.met:
            summary_line(f"{paper} {row.study}, {row.figure}: {row.predicted:.4g}, {row.published}")
    assert set(found[found.status != "met"].study) == EXPLAINED[paper]
    assert "missed" not in set(found.status)


@pytest.mark.parametrize("paper", list(STUDIES))
def test_errors_are_of_what_was_published(paper: str) -> None:
    rows = table(paper)
    numbers = rows[rows.error_fraction.notna()]
    again = numbers.predicted / numbers.published.astype(float) - 1
    assert numbers.error_fraction.astype(float).to_numpy() == pytest.approx(again.to_numpy())
    words = rows[rows.published.map(lambda value: isinstance(value, str))]
    assert words.error_fraction.isna().all()
    assert (rows.met | (rows.reason != "")).all()
    assert (rows[rows.met].reason == "").all()


def test_every_number_of_the_papers_is_used() -> None:
    entry = catalog.load("reference", "studied_papers")
    used = {"madmax", "routing", "scaling"}
    assert {name for name, part in entry.items() if isinstance(part, dict)} == used
    settings = {"_".join(map(str, setting)) for setting in routing_figures.SETTINGS}
    keys = {key.removeprefix("ecmp_") for key in entry["routing"] if key.startswith("ecmp_")}
    assert keys == settings
    rows = scaling_figures.all_reduces()
    assert len(rows) == sum(key.startswith("all_reduce_") for key in entry["scaling"])


def test_the_solver_is_never_worse_than_balanced_paths() -> None:
    pytest.importorskip("scipy")
    found = routing_figures.solver()
    assert (found.max_flows >= found.bound_flows).all()
    assert found.flows.max() == 1728
    assert found.gap_fraction.ge(0).all()


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(ScaleModelError, match=r"paper='madmaxx': .*madmax"):
        papers.figures("madmaxx")


def test_numbers_that_no_paper_prints_are_said_to_be_computed() -> None:
    routing = table("routing")
    printed = routing[routing.error_fraction.notna() & ~routing.computed]
    assert set(printed.study) == {14}  # the time of an assignment
    assert not table("scaling").computed.any()
    own = table("madmax")
    assert own[own.computed].study.nunique() >= 5
    # Measured on 128 accelerators of ZionEX; of 8 only the original's own prediction is public.
    validation = own[own.study == 1]
    assert (validation.computed == validation.figure.str.contains(" 8 GPUs")).all()
    assert validation.computed.sum() == 1
