"""Rankings in files: not a bit is lost, and parts fit together in any order."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.search import ranking_file
from scalemodel.search.ranking import Question
from scalemodel.search.ranking_file import (
    Part,
    from_json,
    joined_rows,
    merge,
    missing_rows,
    to_json,
)

TASK = sm.Training(global_batch=64, sequence=8192)
SPACE = sm.Space(pp=[1, 2], cp=1, micro_batch=[1, 2])


@functools.cache
def question(prune: bool = True, top: int = 20) -> Question:
    return Question(
        sm.model("llama3_8b"), sm.cluster("dgx_h100"), TASK, SPACE, prune=prune, top=top
    )


def part(asked: Question, first: int, last: int, name: str = "part") -> Part:
    ranking = asked.run_search(first, last, threads=1)
    return Part(ranking, joined_rows([(first, last)]), asked.size, name)


def answer(ranking: sm.Ranking) -> list[tuple[Any, ...]]:
    """What does not depend on how the rows were cut."""
    return [tuple(hit) for hit in ranking._hits]


# --------------------------------------------------------------------------------------------- laws
@given(data=st.data(), prune=st.booleans(), top=st.sampled_from([1, 5, 200]))
@settings(max_examples=25)
def test_parts_merge_in_any_order_and_grouping(data: st.DataObject, prune: bool, top: int) -> None:
    asked = question(prune, top)
    whole = part(asked, 0, asked.size)
    cuts = data.draw(st.lists(st.integers(0, asked.size), max_size=5), label="cuts")
    edges = [0, *sorted(cuts), asked.size]
    parts = [part(asked, a, b, f"{a}-{b}") for a, b in itertools.pairwise(edges)]
    generator = random.Random(data.draw(st.integers(0, 1000), label="seed"))
    generator.shuffle(parts)
    while len(parts) > 1:  # pairs at random: any tree of merges
        left = parts.pop(generator.randrange(len(parts)))
        right = parts.pop(generator.randrange(len(parts)))
        both = merge([left, right], partial=True)
        parts.append(from_json(to_json(both)))  # and each step through a file
    (merged,) = parts
    assert merged.complete
    assert answer(merged.ranking) == answer(whole.ranking)
    assert merged.ranking.evaluated + merged.ranking.pruned == asked.size
    if not prune:  # what is pruned depends on what else was seen; everything else does not
        assert merged.ranking == whole.ranking
        assert to_json(merged) == to_json(whole)


@pytest.mark.parametrize("cut", [1, 300, 1000])
def test_the_order_of_merging_leaves_no_trace(cut: int) -> None:
    asked = question(prune=False)
    whole = to_json(part(asked, 0, asked.size))
    parts = [part(asked, 0, cut), part(asked, cut, asked.size)]
    assert to_json(merge(parts)) == to_json(merge(parts[::-1])) == whole


@given(
    cuts=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8),
    size=st.integers(50, 60),
)
@example(cuts=[], size=50)
@example(cuts=[(0, 50)], size=50)
def test_rows_and_missing_rows_make_up_the_space(cuts: list[tuple[int, int]], size: int) -> None:
    taken: set[int] = set()
    ranges = []
    for a, b in cuts:
        first, last = min(a, b), max(a, b)
        if not taken & set(range(first, last)):
            taken |= set(range(first, last))
            ranges.append((first, last))
    rows = joined_rows(ranges)
    missing = missing_rows(rows, size)
    assert {n for first, last in rows for n in range(first, last)} == taken
    assert {n for first, last in missing for n in range(first, last)} == set(range(size)) - taken
    assert joined_rows([*rows, *missing]) == ((0, size),)


# ----------------------------------------------------------------------------------------- contents
QUESTIONS = {
    "plain": ("llama3_8b", sm.cluster("dgx_h100"), TASK, {}, {}),
    "numpy": ("llama3_8b", sm.cluster("dgx_h100"), TASK, {"tp": np.array([1, 2])}, {}),
    "rules": (
        "llama3_8b",
        sm.cluster("dgx_h100"),
        TASK,
        {
            "tp": range(1, 9),
            "sequence_parallel": [True, False],
            "overlap_tp": [None, "ring"],
            "where": ["tp * pp <= domain"],
            "exclude": [{"sharding": "zero3", "regather": True}],
            "redundant": ["regather"],
        },
        {},
    ),
    "experts": (
        "mixtral_8x7b",
        sm.cluster("dgx_h100", nodes=4),
        sm.Training(
            global_batch=64, sequence=4096, precision="fp8", fused_norm=True, imbalance=1.3
        ),
        {"ep": [1, 8], "etp": [0, 1]},
        {
            "objective": (("step_time_s", 1.0), ("cost_usd", 1 / 3)),
            "constraints": ("power_w <= 690",),
            "columns": ("step_time_s",),
        },
    ),
    "tuning": (
        "llama3_8b",
        sm.cluster({"base": "dgx_h100", "name": "mine", "fabric": {"bandwidth": "800 Gbit/s"}}),
        sm.FineTuning(global_batch=8, sequence=4096, method="lora", lora_rank=3),
        {"tiers": True},
        {"stack": "nemo_mcore_2024_25", "top": 3, "prune": False, "too_big": True},
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_and_answers_come_back_the_same(name: str) -> None:
    model, cluster, task, knobs, further = QUESTIONS[name]
    space = sm.Space(**{"cp": 1, "pp": 1, **knobs})
    asked = Question(sm.model(model), cluster, task, space, **further)
    document = ranking_file.question_document(asked)
    again = ranking_file.question_from(json.loads(json.dumps(document)))
    assert again == asked
    assert type(again.task) is type(asked.task)
    assert ranking_file.question_document(again) == document
    for attribute in ("title", "accelerator", "price_source"):
        assert getattr(again.cluster, attribute) == getattr(asked.cluster, attribute)
    ranking = asked.run_search(0, asked.size)
    read = from_json(to_json(ranking)).ranking
    assert read == ranking
    assert len(read) > 0
    assert [est.to_dict() for est in read] == [est.to_dict() for est in ranking]
    assert read.table.equals(ranking.table)


def test_a_question_is_written_whole() -> None:
    written = ranking_file.question_document(question())
    assert set(written) == {item.name for item in dataclasses.fields(Question)}
    cluster = written["cluster"]
    kept = {item.name for item in dataclasses.fields(sm.Cluster)} - {"table"}
    assert set(cluster) == kept  # the entry that the numbers come from stands beside the question
    assert set(written["model"]) == {item.name for item in dataclasses.fields(sm.Model)}
    for name, kind in (("core", _core.Cluster), ("shape", _core.DecoderShape)):
        values = cluster[name] if name in cluster else written["model"][name]
        assert set(values) == {row["name"] for row in kind.fields()}


@pytest.mark.parametrize("name", catalog.names("clusters"))
def test_every_cluster_and_its_entry_come_back(name: str) -> None:
    cluster = sm.cluster(name)
    asked = dataclasses.replace(question(), cluster=cluster)
    empty = sm.Ranking(asked, (), size=0, verdicts={}, pruned=0, constrained=0)
    read = from_json(to_json(Part(empty, (), 10))).ranking.question.cluster
    assert read == cluster
    assert read.table == cluster.table != {}


def test_the_digest_tells_questions_apart() -> None:
    def digest(**changes: Any) -> str:
        fields = {
            "model": "llama3_8b",
            "nodes": 1,
            "sequence": 8192,
            "space": SPACE,
            "stack": "plain",
            "top": 10,
            **changes,
        }
        asked = Question(
            sm.model(fields["model"]),
            sm.cluster("dgx_h100", nodes=fields["nodes"]),
            sm.Training(global_batch=64, sequence=fields["sequence"]),
            fields["space"],
            fields["stack"],
            top=fields["top"],
        )
        return ranking_file.question_sha256(ranking_file.question_document(asked))

    changes: list[dict[str, Any]] = [
        {},
        {"model": "llama2_7b"},
        {"nodes": 2},
        {"sequence": 4096},
        {"space": SPACE.replace(tp=1)},
        {"stack": "nemo_mcore_2024_25"},
        {"top": 11},
    ]
    digests = [digest(**change) for change in changes]
    assert len(set(digests)) == len(digests)
    assert digest() == digests[0]


def test_an_empty_ranking_keeps_its_reasons() -> None:
    ranking = sm.search("llama3_1_405b", sm.cluster("dgx_h100"), TASK, SPACE, prune=False)
    read = from_json(to_json(ranking)).ranking
    assert len(read) == 0
    assert read.counts == ranking.counts != {}
    assert read.why_infeasible() == ranking.why_infeasible()


# ------------------------------------------------------------------------------------------ errors
def error_of(text: str) -> str:
    with pytest.raises(sm.ScaleModelError) as caught:
        from_json(text, "a.json")
    return str(caught.value)


def document() -> dict[str, Any]:
    asked = question()
    found: dict[str, Any] = json.loads(to_json(part(asked, 0, asked.size)))
    return found


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3", '{"format": "other"}', "[" * 5000])
def test_what_is_no_ranking_is_refused(text: str) -> None:
    assert error_of(text).startswith("a.json: holds no ranking of scalemodel")


@pytest.mark.parametrize(
    "key",
    ["question", "question_sha256", "space_rows", "rows", "verdicts", "pruned", "hits"],
)
def test_a_missing_key_is_refused(key: str) -> None:
    changed = document()
    del changed[key]
    assert key in error_of(json.dumps(changed))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda d: d.update(version="0.0.1"), "written by scalemodel 0.0.1"),
        (lambda d: d["question"].update(top=3), "its question was changed"),
        (lambda d: d["question"]["cluster"]["core"].update(pue=2.0), "its question was changed"),
        (
            lambda d: d["question"]["stack"]["constants"].update(reserve_bytes=1e9),
            "other constants",
        ),
        (lambda d: d["question"]["stack"].update(name="nope"), "nope"),
        (lambda d: d.update(rows=[[0, 10]]), "do not add up"),
        (lambda d: d.update(rows=[[5, 2]]), "do not lie within"),
        (lambda d: d.update(rows=[[0, 10**9]]), "do not lie within"),
        (lambda d: d.update(pruned=d["pruned"] + 1), "do not add up"),
        (lambda d: d["hits"][0]["core"].update(verdict="nope"), "nope"),
        (lambda d: d["hits"][0]["strategy"].update(tp=-1), "tp=-1"),
    ],
)
def test_a_changed_file_is_refused(change: Any, named: str) -> None:
    changed = document()
    change(changed)
    message = error_of(json.dumps(changed))
    assert message.startswith("a.json: ")
    assert named in message


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(sm.ScaleModelError, match=r"missing\.json: cannot be read"):
        ranking_file.read(tmp_path / "missing.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(sm.ScaleModelError, match=r"binary\.json: holds no ranking"):
        ranking_file.read(tmp_path / "binary.json")


def merge_error(parts: list[Part], **options: Any) -> str:
    with pytest.raises(sm.ScaleModelError) as caught:
        merge(parts, **options)
    return str(caught.value)


def test_missing_and_doubled_rows_are_named() -> None:
    asked = question()
    a, b, c = (part(asked, s.first, s.last, f"{i}.json") for i, s in enumerate(asked.shards(3)))
    message = merge_error([c, a])
    assert f"rows {b.rows[0][0]:,} to {b.rows[0][1] - 1:,} are missing" in message
    message = merge_error([a, b, c, b])
    assert message.startswith("1.json, 1.json: both hold rows")
    assert merge_error([merge([a, b], partial=True), b], partial=True).startswith("merged, 1.json:")
    assert merge_error([]).startswith("parts=[]")


def test_other_questions_are_not_mixed() -> None:
    asked = question()
    half = asked.size // 2
    a = part(asked, 0, half, "a.json")
    other = Question(asked.model, sm.cluster("dgx_a100"), asked.task, asked.space, top=5)
    b = part(other, half, other.size, "b.json")
    message = merge_error([a, b])
    assert message == "a.json, b.json: answer different questions: cluster, top differ"


def test_a_part_is_not_taken_for_the_whole() -> None:
    asked = question()
    ranking = asked.run_search(0, 5)
    with pytest.raises(sm.ScaleModelError, match="the ranking is one of 5 rows"):
        to_json(ranking)


def test_the_framework_travels_with_the_ranking() -> None:
    asked = ("llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=8192))
    ranking = sm.search(*asked, SPACE, framework="torchtitan", top=3)
    assert ranking.question.framework == "torchtitan"
    read = from_json(to_json(ranking)).ranking
    assert read == ranking
    assert read.question.framework == "torchtitan"
    assert "started by torchtitan" in str(read)
    named = dataclasses.replace(ranking.question, framework=None)
    documents = [ranking_file.question_document(each) for each in (named, ranking.question)]
    assert ranking_file.question_sha256(documents[0]) != ranking_file.question_sha256(documents[1])
