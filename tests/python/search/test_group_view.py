"""What a ranking of group strategies shows, and the memory that it leaves free."""

from __future__ import annotations

import pytest

import scalemodel as sm
from questions import checked_markup
from scalemodel.search.group_view import meshes_text

TASK = sm.Training(global_batch=65536, sequence=1)
CLUSTER = sm.cluster("dgx_h100", nodes=2)


@pytest.fixture(scope="module")
def ranking() -> sm.GroupRanking:
    return sm.search(sm.compose("dlrm_dcnv2"), CLUSTER, TASK, top=4)


def test_a_printed_ranking_is_a_table_of_answers(ranking: sm.GroupRanking) -> None:
    head, counts, header, *rows, where, lead = str(ranking).splitlines()
    assert "dlrm_dcnv2" in head
    assert "least step_time_s, 5 % of memory free" in head
    assert f"{ranking.size:,} strategies" in counts
    assert header.split() == ["#", "step", "samples/s", "exposed", "memory", "cost", "strategy"]
    assert len(rows) == len(ranking) == 4
    assert all(meshes_text(est) in row for est, row in zip(ranking, rows, strict=True))
    assert where.startswith("#1 is ")
    assert lead.startswith("#1 against #2")
    assert max(map(len, rows)) < 140


def test_a_notebook_shows_the_same_table(ranking: sm.GroupRanking) -> None:
    html = ranking._repr_html_()
    checked_markup(html)
    assert html.count("<tr>") == 1 + len(ranking)
    assert meshes_text(ranking[0]) in html


def test_the_objective_has_a_column() -> None:
    found = sm.search(sm.compose("dlrm_dcnv2"), CLUSTER, TASK, top=1, objective="energy_j")
    assert " energy_j " in str(found)
    faster = sm.search(sm.compose("dlrm_dcnv2"), CLUSTER, TASK, top=1, objective="samples_per_s")
    assert "most samples_per_s" in str(faster)


@pytest.mark.parametrize("headroom", [0.0, 0.05, 0.6])
def test_memory_is_left_free(headroom: float) -> None:
    model, task = sm.compose("vit_b"), sm.Training(global_batch=8192, sequence=197)
    found = sm.search(model, "dgx_h100", task, top=50, headroom=headroom)
    every = sm.search(model, "dgx_h100", task, top=50, headroom=0)
    kept = [e for e in every if e.memory_bytes <= (1 - headroom) * e.memory_capacity_bytes]
    assert [est.strategy for est in found] == [est.strategy for est in kept]
    assert found.constrained == len(every) - len(kept)
    assert found.question.headroom == headroom
    with pytest.raises(sm.ScaleModelError, match="headroom=2"):
        sm.search(model, "dgx_h100", task, headroom=2)


def test_an_empty_ranking_says_why() -> None:
    task = sm.Training(global_batch=64, sequence=4096)
    nothing = sm.search(sm.compose("llama3_70b"), sm.cluster("dgx_h100"), task)
    why = "no strategy is left of 5: 5 out_of_memory"
    assert str(nothing).splitlines()[-1] == nothing.why_infeasible() == why
    assert why in repr(nothing)
    assert why in nothing._repr_html_()
    with pytest.raises(IndexError, match=why):
        nothing[0]
    limited = sm.search(
        sm.compose("vit_b"), "dgx_h100", sm.Training(global_batch=8192, sequence=197), headroom=0.9
    )
    assert "left less than 90 % of memory free (headroom)" in str(limited)
