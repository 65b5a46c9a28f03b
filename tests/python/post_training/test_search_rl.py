"""The best split of accelerators for reinforcement learning."""

from __future__ import annotations

import itertools

import pytest

import scalemodel as sm

CLUSTER = sm.cluster("dgx_h100", nodes=3)
TASK = sm.Rl(
    prompts=16,
    generations=16,
    prompt_tokens=128,
    generated_tokens=800,
    limit_tokens=4096,
    train_batch=128,
)
STRATEGIES = [sm.Strategy(tp=tp, recompute="full") for tp in (1, 2, 4)]
LAYOUTS = [sm.ServingLayout(tp=tp) for tp in (1, 2)]
SPLITS = (8, 16)


def everything() -> list[sm.RlEstimate]:
    """All of them, by the verb for one."""
    found = []
    for strategy, layout in itertools.product(STRATEGIES, LAYOUTS):
        found.append(sm.estimate_rl("llama3_8b", CLUSTER, TASK, strategy, layout))
        for split, lag in itertools.product(SPLITS, (0, 1)):
            train = sm.cluster(CLUSTER, accelerators=split)
            rollout = sm.cluster(CLUSTER, accelerators=24 - split)
            found.append(
                sm.estimate_rl(
                    "llama3_8b",
                    train,
                    TASK,
                    strategy,
                    layout,
                    rollout=rollout,
                    staleness=lag,
                    memory_share=0.8,
                )
            )
    return [step for step in found if step.verdict == "ok"]


def test_the_best_is_that_of_trying_everything() -> None:
    found = sm.search_rl(
        "llama3_8b",
        CLUSTER,
        TASK,
        strategies=STRATEGIES,
        layouts=LAYOUTS,
        splits=SPLITS,
        top=1000,
    )
    times = sorted(step.step_time_s for step in everything())
    assert [step.step_time_s for step in found] == times
    assert found.tried == len(STRATEGIES) * len(LAYOUTS) * (1 + 2 * len(SPLITS))


def test_a_table_says_what_was_split_and_why() -> None:
    found = sm.search_rl("llama3_8b", CLUSTER, TASK, top=4)
    table = found.table()
    assert len(found) == len(table) == 4
    assert table.samples_per_hour.is_monotonic_decreasing
    total = table.train_accelerators + table.rollout_accelerators * ~table.colocated
    assert set(total) == {24}
    assert found.why() in repr(found)
    assert found[0].samples_per_s * 3600 == pytest.approx(table.samples_per_hour[0])


def test_what_runs_nowhere_is_an_answer() -> None:
    one = sm.cluster("dgx_h100", accelerators=1)
    found = sm.search_rl("llama3_70b", one, TASK, strategies=[sm.Strategy()])
    assert len(found) == 0
    assert "runs: every pool lacks memory" in found.why()
    assert found.table().empty


@pytest.mark.parametrize("split", [0, 24, -4, True, 4.0])
def test_a_split_leaves_no_pool_empty(split: object) -> None:
    with pytest.raises(sm.ScaleModelError, match="leaves a pool empty; must be from 1 to 23"):
        sm.search_rl("llama3_8b", CLUSTER, TASK, splits=[split])  # type: ignore[list-item]
