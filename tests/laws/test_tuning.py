"""Laws of preference tuning and distillation, for lengths and batches that nobody chose."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

ONE = sm.cluster("dgx_h100")
PLAN = sm.Strategy(tp=2, recompute="full")


@st.composite
def lengths(draw: st.DrawFn) -> dict[str, Any]:
    limit = draw(st.sampled_from([512, 2048, 8192]))
    prompt = draw(st.integers(1, limit // 4))
    answer = draw(st.integers(1, limit - prompt))
    spread = draw(st.floats(0, 2))
    return {
        "limit_tokens": limit,
        "prompt_tokens": prompt,
        "generated_tokens": answer,
        "spread": spread,
    }


@settings(max_examples=25, deadline=None)
@given(lengths(), st.integers(1, 300), st.booleans(), st.integers(1, 4))
def test_every_pass_of_a_method_costs_and_what_was_computed_does_not(
    given_lengths: dict[str, Any], pairs: int, packing: bool, micro_batch: int
) -> None:
    def step(**changes: Any) -> sm.TuningEstimate:
        task = sm.Preference(pairs=pairs, packing=packing, **given_lengths, **changes)
        plan = PLAN.replace(micro_batch=micro_batch)
        return sm.estimate_tuning("llama3_2_1b", ONE, task, plan, frozen="resident")

    none, dpo, kto = step(method="orpo"), step(), step(method="kto")
    assert step(precomputed_reference=True).phases == none.phases
    assert none.step_time_s < dpo.step_time_s < kto.step_time_s
    assert none.phases.train_s == dpo.phases.train_s == kto.phases.train_s
    assert step(method="reward").step_time_s < none.step_time_s
    assert none.train_memory_bytes < dpo.train_memory_bytes


@settings(max_examples=25, deadline=None)
@given(lengths(), st.integers(1, 300), st.one_of(st.none(), st.integers(1, 1000)))
def test_a_teacher_of_its_own_accelerators_never_slows_its_student(
    given_lengths: dict[str, Any], prompts: int, top_k: int | None
) -> None:
    task = sm.Distillation(teacher="llama3_8b", prompts=prompts, top_k=top_k, **given_lengths)

    def step(**options: Any) -> sm.TuningEstimate:
        return sm.estimate_tuning("llama3_2_1b", ONE, task, PLAN, **options)

    beside, turns, stays = step(teacher_cluster=ONE), step(), step(frozen="resident")
    supervised = beside.phases.train_s
    assert supervised <= beside.step_time_s <= stays.step_time_s
    assert supervised < stays.step_time_s < turns.step_time_s
    assert beside.teacher_memory_bytes < turns.teacher_memory_bytes < stays.teacher_memory_bytes
