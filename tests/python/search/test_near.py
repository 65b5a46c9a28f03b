"""A search that starts from the best strategies of another question answers the same."""

from __future__ import annotations

from math import inf

import pytest

import scalemodel as sm
from scalemodel.codesign import Hardware, codesign
from scalemodel.search.ranking import Question
from scalemodel.search.search import question_of, ranked_by, search_near

TASK = sm.Training(global_batch=256, sequence=4096)
BANDWIDTH = "accelerator.memory.bandwidth"
CAPACITY = "accelerator.memory.capacity"


def asked(cluster: sm.Cluster, objective: str = "step_time_s", constraints: str = "") -> Question:
    plain = question_of("llama3_8b", cluster, TASK, None, "plain", None)
    return ranked_by(plain, objective, constraints or (), 0.1, top=3)


def scaled(path: str, scale: float) -> sm.Cluster:
    hardware = Hardware(sm.cluster("dgx_h100", nodes=8))
    return hardware.build(hardware.design({path: scale}))


@pytest.mark.parametrize("objective", ["step_time_s", "tokens_per_j"])
@pytest.mark.parametrize("path, scale", [(BANDWIDTH, 0.5), (BANDWIDTH, 1.1), (CAPACITY, 0.3)])
def test_a_start_from_other_hardware_changes_no_answer(
    objective: str, path: str, scale: float
) -> None:
    near = asked(scaled(path, 1.0), objective)
    first = near.run_search(0, near.size, 1)
    question = asked(scaled(path, scale), objective)
    every = question.run_search(0, question.size, 1)
    found = search_near(question, first.kept_rows, 1)
    assert list(found) == list(every)
    assert found.kept_rows == every.kept_rows
    assert found.evaluated + found.pruned == question.size


def test_a_score_among_rows_is_what_as_many_do_not_exceed() -> None:
    question = asked(scaled(BANDWIDTH, 1.0))
    best = question.run_search(0, question.size, 1)
    rows = best.kept_rows
    assert len(rows) == question.kept
    worst = question.score_among(rows)
    assert worst == pytest.approx(sorted(hit.score for hit in best._hits)[-1], rel=1e-12)
    assert question.score_among(rows[:-1]) == inf, "one too few of them"
    assert question.score_among([*rows[:-1], rows[0]]) == inf, "one of them twice"
    assert question.score_among([*rows, question.size, question.size + 7]) == worst
    assert question.score_among([]) == inf


def test_rows_that_break_a_constraint_do_not_count() -> None:
    rows = asked(scaled(BANDWIDTH, 1.0)).run_search(0, 100_000, 1).kept_rows
    limited = asked(scaled(BANDWIDTH, 1.0), constraints="memory_bytes <= 1e9")
    assert limited.score_among(rows) == inf


def test_points_of_a_study_are_what_searches_of_them_find() -> None:
    cluster, scales = sm.cluster("dgx_h100", nodes=8), [0.5, 1.0, 2.0]
    table = codesign("llama3_8b", cluster, TASK, vary={BANDWIDTH: scales, CAPACITY: scales})
    hardware = Hardware(cluster)
    for i, row in table.iterrows():
        point = {BANDWIDTH: scales[int(i) // 3], CAPACITY: scales[int(i) % 3]}
        built = hardware.build(hardware.design(point))
        alone = sm.search("llama3_8b", built, TASK, top=1)
        assert row["step_time_s"] == alone[0].step_time_s
        assert row["memory_bytes"] == alone[0].core.memory_bytes
