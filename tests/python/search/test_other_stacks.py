"""A ranking of experts under plain kernels names the stack that would run it faster."""

from __future__ import annotations

import scalemodel as sm
from scalemodel import resolve
from scalemodel.search.other_stacks import fastest_other_stack

_TASK = sm.Training(global_batch=2048, sequence=4096, precision="fp8")
_SPACE = sm.Space(pp=8, ep=64, tp=1, cp=1, micro_batch=1, schedule="dualpipe", vpp=1)


def _ranking(model: str = "deepseek_v3", **options: object) -> sm.Ranking:
    cluster = sm.cluster("azure_nd_h200_v5", nodes=64)
    return sm.search(model, cluster, _TASK, _SPACE, top=2, **options)


def test_a_stack_that_sends_a_token_once_a_node_is_named() -> None:
    ranking = _ranking()
    found = ranking.other_stack
    assert found is not None
    first = ranking[0]
    assert found.step_time_s < 0.95 * first.step_time_s
    facts = resolve.stack(found.name)
    assert facts.deduplicated_between
    assert found.name in str(ranking).splitlines()[-1]
    asked_again = sm.estimate(
        first.model, first.cluster, first.task, found.strategy, stack=found.name
    )
    assert asked_again.step_time_s == found.step_time_s


def test_named_stacks_and_dense_models_have_no_other() -> None:
    assert _ranking(stack="hai_llm_2024").other_stack is None
    dense = sm.search(
        "llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=8192), top=2
    )
    assert dense.other_stack is None
    assert fastest_other_stack([]) is None
