from __future__ import annotations

import pytest

import scalemodel as sm
from scalemodel.search.choice import explain_choice

CLUSTER = sm.cluster("dgx_h100", nodes=8)
TASK = sm.Training(global_batch=128, sequence=8192)
SPACE = sm.Space(
    cp=1,
    vpp=[1, 2],
    micro_batch=[1, 2],
    sharding=["zero1", "zero3"],
    placement=["tp-cp-dp-pp", "tp-cp-pp-dp"],
    offload_optimizer=False,
    regather=True,
)


@pytest.fixture(scope="module")
def ranking() -> sm.Ranking:
    return sm.search("llama3_70b", CLUSTER, TASK, SPACE)


@pytest.fixture(scope="module")
def choice(ranking: sm.Ranking):  # type: ignore[no-untyped-def]
    return explain_choice(ranking)


def test_terms_and_kinds_add_up_to_the_difference(choice) -> None:  # type: ignore[no-untyped-def]
    winner, other = choice.winner, choice.runner_up
    assert other.step_time_s > winner.step_time_s
    gap = other.step_time_s - winner.step_time_s
    assert choice.terms.difference_s.sum() == pytest.approx(gap)
    assert choice.terms.winner_s.sum() == pytest.approx(winner.step_time_s)
    assert choice.memory.difference_bytes.sum() == pytest.approx(
        other.memory_bytes - winner.memory_bytes
    )
    assert choice.differences
    assert winner.strategy.replace(
        **{name: theirs for name, (_, theirs) in choice.differences.items()}
    ) == (other.strategy)


def test_worth_of_a_knob_is_what_a_search_without_its_value_loses(choice) -> None:  # type: ignore[no-untyped-def]
    rows = {row["knob"]: row for row in choice.knobs.to_dict("records")}
    assert set(rows) >= {"tp", "pp", "vpp", "micro_batch", "sharding", "recompute"}
    assert "cp" not in rows  # has one value only
    best = choice.winner.step_time_s
    for knob in ("tp", "recompute"):
        row = rows[knob]
        others = [
            value
            for value in SPACE.values("llama3_70b", CLUSTER, TASK)[knob]
            if value != row["chosen"]
        ]
        again = sm.search("llama3_70b", CLUSTER, TASK, SPACE.replace(**{knob: others}), top=1)
        assert row["again_change_fraction"] == pytest.approx(again[0].step_time_s / best - 1)
        assert getattr(again[0].strategy, knob) == row["again"]
    for row in rows.values():
        # Searching everything else again can only help.
        if row["alone"] is not None:
            assert row["again_change_fraction"] <= row["alone_change_fraction"] + 1e-12
            assert row["alone_change_fraction"] >= 0
            values = {row["knob"]: row["alone"]}
            values |= {"dp": 0} if row["knob"] in ("tp", "pp") else {}
            alone = sm.estimate(
                "llama3_70b", CLUSTER, TASK, choice.winner.strategy.replace(**values)
            )
            assert alone.step_time_s / best - 1 == pytest.approx(row["alone_change_fraction"])


def test_words_name_winner_runner_up_and_worths(choice) -> None:  # type: ignore[no-untyped-def]
    text = choice.text()
    assert text.startswith("winner     Strategy(")
    assert "runner-up" in text
    assert "is worth" in text
    assert repr(choice) == text
    html = choice._repr_html_()
    assert "<table" in html
    assert "winner" in html


def test_a_weighted_objective_is_explained_too() -> None:
    ranking = sm.search(
        "llama3_70b", CLUSTER, TASK, SPACE, objective={"step_time_s": 1, "memory_bytes": 0.5}
    )
    choice = sm.explain_choice(ranking)
    worths = choice.knobs.again_change_fraction.dropna()
    assert (worths >= -1e-12).all()
    assert (worths > 0).any()


def test_a_space_of_one_strategy_has_no_runner_up() -> None:
    only = sm.search(
        "llama3_70b",
        CLUSTER,
        TASK,
        {
            **dict.fromkeys(("cp", "vpp", "micro_batch"), 1),
            "tp": 8,
            "pp": 4,
            "sharding": "zero1",
            "recompute": "full",
            "placement": "tp-cp-dp-pp",
            "sequence_parallel": True,
            "regather": True,
            "offload_optimizer": False,
        },
    )
    assert len(only) == only.size == 1
    choice = sm.explain_choice(only)
    assert choice.runner_up is None
    assert choice.differences == {}
    assert choice.terms.empty
    assert choice.knobs.empty
    assert choice.text().startswith("winner")


def test_nothing_to_explain_is_an_error_that_says_why() -> None:
    empty = sm.search("llama3_1_405b", sm.cluster("dgx_h100"), TASK)
    assert len(empty) == 0
    with pytest.raises(sm.ScaleModelError, match=r"nothing fits.*Least memory"):
        sm.explain_choice(empty)
    with pytest.raises(sm.ScaleModelError, match="must be a Ranking"):
        sm.explain_choice([])  # type: ignore[arg-type]
