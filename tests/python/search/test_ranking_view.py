"""A ranking shows answers, merges what is equal, and keeps the memory free that it is told to."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.search import ranking_file
from scalemodel.search.choice import explain_choice
from scalemodel.search.merging import merge
from scalemodel.search.objective import constraint, headroom_fraction, holds, limits_of
from scalemodel.search.ranking import _LAYOUT, Question

TASK = sm.Training(global_batch=1024, sequence=8192)
SPACE = sm.Space(tp=[2, 4], cp=[2, 4], sharding="zero1", micro_batch=1, context="ring")
QUESTION = Question(
    sm.model("llama3_70b"), sm.cluster("dgx_h100", nodes=64), TASK, SPACE, top=12, prune=False
)


def run(question: Question) -> sm.Ranking:
    return question.run_search(0, question.size)


@pytest.fixture(scope="module")
def ranking() -> sm.Ranking:
    return run(QUESTION)


@pytest.fixture(scope="module")
def nothing() -> sm.Ranking:
    one_node = sm.cluster("dgx_h100")
    return run(replace(QUESTION, model=sm.model("llama3_1_405b"), cluster=one_node))


# ------------------------------------------------------------------------------------------- equal
def test_equal_strategies_are_one_row_that_counts_them(ranking: sm.Ranking) -> None:
    assert len(ranking) == QUESTION.top
    assert len({est.core for est in ranking}) == len(ranking)
    assert ranking.table.equal_strategies.tolist() == list(ranking.equal_strategies)
    frame = sm.sweep(QUESTION.model, QUESTION.cluster, TASK, SPACE)
    for est, number in zip(ranking, ranking.equal_strategies, strict=True):
        row = est.row()
        same = frame[(frame.step_time_s == est.step_time_s) & (frame.verdict == "ok")]
        for name in (*_LAYOUT, "memory_bytes", "energy_j"):
            same = same[same[name] == row[name]]
        assert len(same) == number
    assert 2 in ranking.equal_strategies


def test_the_first_of_equal_ones_is_kept(ranking: sm.Ranking) -> None:
    assert {est.strategy.placement for est in ranking} == {"tp-cp-dp-pp"}


def test_layouts_stay_apart_whatever_they_answer(ranking: sm.Ranking) -> None:
    layouts = [tuple(getattr(est.strategy, name) for name in _LAYOUT) for est in ranking]
    for est, layout in zip(ranking, layouts, strict=True):
        hits = [hit for hit in ranking._hits if hit.core == est.core]
        assert {tuple(getattr(hit.strategy, name) for name in _LAYOUT) for hit in hits} == {layout}


def test_parts_put_together_merge_the_same(ranking: sm.Ranking) -> None:
    parts = [shard.search(1) for shard in QUESTION.shards(3)]
    whole = merge(parts)
    assert whole.equal_strategies == ranking.equal_strategies
    assert whole.table.equals(ranking.table)


# ---------------------------------------------------------------------------------------- headroom
@pytest.mark.parametrize("headroom", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("prune", [True, False])
def test_headroom_is_a_limit_on_memory(headroom: float, prune: bool) -> None:
    found = run(replace(QUESTION, headroom=headroom, prune=prune))
    limit = f"memory_bytes <= {1 - headroom} * memory_capacity_bytes"
    same = run(replace(QUESTION, constraints=(limit,), prune=prune))
    assert [est.strategy for est in found] == [est.strategy for est in same]
    assert all(est.memory_bytes <= (1 - headroom) * est.memory_capacity_bytes for est in found)


def test_a_winner_that_fills_the_memory_gives_way(ranking: sm.Ranking) -> None:
    assert ranking[0].memory_bytes > 0.95 * ranking[0].memory_capacity_bytes
    safe = run(replace(QUESTION, headroom=0.05))
    assert safe[0].memory_bytes <= 0.95 * safe[0].memory_capacity_bytes
    assert ranking[0].step_time_s < safe[0].step_time_s < 1.05 * ranking[0].step_time_s
    assert "5 % of memory free" in str(safe)
    assert safe.constrained > 0
    assert "left less than 5 % of memory free (headroom)" in safe.why_infeasible()


def test_a_search_leaves_memory_free_unless_told_otherwise(ranking: sm.Ranking) -> None:
    asked = (QUESTION.model, QUESTION.cluster, TASK, SPACE)
    safe = sm.search(*asked, top=12)
    assert safe.question.headroom == 0.05
    assert safe[0] == run(replace(QUESTION, headroom=0.05))[0]
    assert sm.search(*asked, headroom=0, top=12)[0] == ranking[0]
    with pytest.raises(ScaleModelError, match="headroom=5"):
        sm.search(*asked, headroom=5)


def test_what_headroom_alone_keeps_out_is_said() -> None:
    question = replace(QUESTION, headroom=0.9)
    for prune in (True, False):
        found = run(replace(question, prune=prune))
        assert len(found) == 0
        why = found.why_infeasible()
        assert "(headroom)" in why or "it runs where headroom is below 0.9" in why


def test_knobs_are_worth_what_keeps_the_limits() -> None:
    safe = run(replace(QUESTION, headroom=0.05))
    changes = explain_choice(safe).knobs
    # Within the limits nothing is better than the winner, whether searched again or not.
    assert (changes.alone_change_fraction.dropna() >= -1e-12).all()
    assert (changes.again_change_fraction.dropna() >= -1e-12).all()


def test_headroom_travels_with_the_ranking() -> None:
    safe = run(replace(QUESTION, headroom=0.05))
    read = ranking_file.from_json(ranking_file.to_json(safe)).ranking
    assert read == safe
    assert read.question.headroom == 0.05
    document = ranking_file.question_document(QUESTION)
    del document["headroom"]  # as rankings written before have it
    assert ranking_file.question_from(document) == QUESTION


@pytest.mark.parametrize("headroom", [-0.1, 1, 5, True, None, "5 %", float("nan")])
def test_headroom_out_of_range_is_named(headroom: object) -> None:
    with pytest.raises(ScaleModelError, match="headroom=") as caught:
        headroom_fraction(headroom)
    assert "from 0 to below 1" in str(caught.value)


@pytest.mark.parametrize("compared", ["<", "<=", "==", "!=", ">=", ">"])
def test_limits_hold_as_in_the_engine(compared: str, ranking: sm.Ranking) -> None:
    text = f"memory_bytes {compared} 0.9 * memory_capacity_bytes"
    limited = run(replace(QUESTION, constraints=(text,)))
    assert all(holds(est.core, constraint(text)) for est in limited)
    out = [hit for hit in ranking._hits if not holds(hit.core, constraint(text))]
    assert not {hit.strategy for hit in out} & {hit.strategy for hit in limited._hits}
    assert limits_of([text], 0.0) == [constraint(text)]


# -------------------------------------------------------------------------------------------- view
def test_a_printed_ranking_shows_answers_and_one_label(ranking: sm.Ranking) -> None:
    lines = str(ranking).splitlines()
    assert lines[0].startswith("llama3_70b · 512 × h100_sxm_80")
    header = re.split(r"  +", lines[2])
    assert header == ["#", "step (80 %)", "MFU", "memory", "cost", "equal", "strategy"]
    first = re.split(r"  +", lines[3])
    best = ranking[0]
    assert first[0] == "1"
    assert re.fullmatch(r"[\d.]+ s \([\d.]+ s to [\d.]+ s\)", first[1])
    assert first[3].endswith("GiB of 80.0 GiB, tight")
    assert first[4] == f"{best.cost_usd:.2f} USD"
    assert first[-1].startswith(f"tp{best.strategy.tp} cp{best.strategy.cp} ")
    assert len(lines) == 3 + len(ranking) + 2
    assert lines[-2].startswith("#1 is limited by: ")


def test_rows_near_the_capacity_are_called_tight(ranking: sm.Ranking) -> None:
    rows = str(ranking).splitlines()[3 : 3 + len(ranking)]
    for est, row in zip(ranking, rows, strict=True):
        assert ("tight" in row) == (est.memory_bytes > 0.95 * est.memory_capacity_bytes)


def test_a_notebook_shows_the_same_table(ranking: sm.Ranking) -> None:
    html = ranking._repr_html_()
    assert html.count("<tr>") == 1 + len(ranking)
    assert html.count("<th scope='col'") == 7
    assert "overlap_tp" not in html
    assert ranking.table.shape[1] > 60


def test_without_a_price_there_is_no_cost() -> None:
    core = QUESTION.cluster.core.replace(price_usd_per_s=0.0)
    found = run(replace(QUESTION, cluster=replace(QUESTION.cluster, core=core)))
    assert len(found)
    assert "cost" not in str(found).splitlines()[2]
    assert "USD" not in str(found)


def test_an_objective_has_a_column() -> None:
    found = run(replace(QUESTION, objective=(("energy_j", 1.0),), top=3))
    lines = str(found).splitlines()
    assert " energy_j " in lines[2]
    assert f"{found[0].energy_j:.6g}" in lines[3]


def test_an_empty_ranking_says_why(nothing: sm.Ranking) -> None:
    assert len(nothing) == 0
    assert str(nothing).splitlines()[-1] == nothing.why_infeasible()
    assert nothing.why_infeasible() in nothing._repr_html_().replace("&#x27;", "'")
    assert "Least memory: Strategy(" in str(nothing)
    assert repr(nothing).startswith(f"Ranking(0 of {nothing.size:,} strategies: 0 of ")
    assert "out_of_memory" in repr(nothing)


def test_an_empty_space_says_why() -> None:
    empty = run(replace(QUESTION, space=sm.Space(tp=3)))
    assert empty.size == 0
    assert empty.why_infeasible() in repr(empty)
    assert empty.why_infeasible() in str(empty)
