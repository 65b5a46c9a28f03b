"""A step of reinforcement learning: its phases, their laws, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scalemodel as sm

ONE = sm.cluster("dgx_h100")
STRATEGY = sm.Strategy(tp=2, recompute="full")
PLAIN: dict[str, Any] = {
    "prompts": 16,
    "generations": 16,
    "prompt_tokens": 128,
    "generated_tokens": 800,
    "limit_tokens": 4096,
    "train_batch": 128,
}


def step(changes: dict[str, Any] | None = None, **options: Any) -> sm.RlEstimate:
    task = sm.Rl(**{**PLAIN, **(changes or {})})
    return sm.estimate_rl("llama3_8b", ONE, task, STRATEGY, **options)


def apart(changes: dict[str, Any] | None = None, **options: Any) -> sm.RlEstimate:
    return step(changes, rollout=ONE, staleness=1, **options)


# ------------------------------------------------------------------------------------- lengths
@pytest.mark.parametrize("spread", [0.0, 0.4, 0.8, 1.5])
def test_lengths_have_their_mean_and_end_at_the_limit(spread: float) -> None:
    lengths = sm.Rl(**PLAIN, spread=spread).answers()
    assert lengths.mean() == pytest.approx(800, rel=1e-6)
    assert lengths.max() <= 4096 - 128
    assert (np.diff(lengths) <= 0).all()


def test_equal_sequences_attend_as_much_as_the_real_ones() -> None:
    task = sm.Rl(**PLAIN)
    lengths = task.prompt_tokens + task.answers()
    count = lengths.sum() / task.equal_length()
    assert count * task.equal_length() ** 2 == pytest.approx((lengths**2).sum())
    assert task.equal_length() > task.mean_length()
    alike = sm.Rl(**PLAIN, spread=0)
    assert alike.equal_length() == pytest.approx(alike.mean_length())


# ---------------------------------------------------------------------------------------- laws
def test_a_colocated_step_is_the_sum_of_its_phases() -> None:
    found = step()
    assert found.verdict == "ok"
    assert found.step_time_s == pytest.approx(sum(found.phases.to_dict().values()))
    assert found.step_time_s == pytest.approx(found.breakdown().time_s.sum())
    assert found.accelerators == 8


def test_without_staleness_two_pools_wait_for_each_other() -> None:
    found = step(rollout=ONE)
    assert found.phases.switch_s == 0
    assert found.step_time_s == pytest.approx(sum(found.phases.to_dict().values()))
    assert found.accelerators == 16


def test_with_staleness_the_longer_pool_decides() -> None:
    found = apart()
    longest = max(found.phases.rollout_s, found.phases.learning_s)
    assert found.step_time_s == pytest.approx(longest + found.phases.between_s)
    assert found.step_time_s < step(rollout=ONE).step_time_s


def test_more_replicas_are_never_slower() -> None:
    before = math.inf
    for nodes in (1, 2, 4):
        pool = sm.cluster("dgx_h100", nodes=nodes)
        found = step(rollout=pool, staleness=1).phases.rollout_s
        assert found <= before
        before = found


def test_answers_of_one_length_end_together() -> None:
    even, uneven = step({"spread": 0}), step()
    assert even.phases.rollout_s < uneven.phases.rollout_s
    assert even.phases.train_s < uneven.phases.train_s


def test_a_timeline_ends_with_the_step_and_overlaps_pools_that_are_apart() -> None:
    for found in (step(), step(rollout=ONE), apart()):
        spans = found.timeline().set_index("phase")
        ends = spans.start_s + spans.duration_s
        assert ends.max() == pytest.approx(found.step_time_s)
        assert (spans.start_s["train"] < ends["rollout"]) == bool(found.staleness)
        assert ends["train"] <= spans.start_s["refit"] * (1 + 1e-12)


def test_partial_rollouts_wait_for_no_last_answer() -> None:
    assert apart(partial_rollouts=True).phases.rollout_s < apart().phases.rollout_s


def test_a_reference_and_a_critic_cost_passes_of_their_own() -> None:
    plain, none = step().phases, step({"reference": False}).phases
    critic = step({"algorithm": "ppo"}).phases
    assert none.reference_s == 0 < plain.reference_s == plain.logprob_s
    assert critic.critic_s == critic.logprob_s
    assert critic.train_s == pytest.approx(2 * plain.train_s)


def test_rejected_prompts_are_generated_again_and_never_trained_on() -> None:
    dapo = {"algorithm": "dapo", "reward_model": "qwen3_0_6b"}
    plain, half = step(dapo).phases, step({**dapo, "accepted_fraction": 0.5}).phases
    assert half.rollout_s == pytest.approx(2 * plain.rollout_s)
    assert half.reward_s == pytest.approx(2 * plain.reward_s)
    assert half.train_s == plain.train_s
    once = step({**dapo, "accepted_fraction": 0.5, "oversampling": 2}).phases
    assert plain.rollout_s < once.rollout_s < half.rollout_s
    assert once.reward_s == pytest.approx(half.reward_s)
    steady = [
        apart(partial_rollouts=True, changes={**dapo, "accepted_fraction": share}).phases
        for share in (1, 0.25)
    ]
    assert steady[1].rollout_s == pytest.approx(4 * steady[0].rollout_s)


def test_a_controller_of_verl_hands_on_what_is_padded() -> None:
    plain, long = (
        step({"limit_tokens": limit}, framework="verl").phases for limit in (4096, 28672)
    )
    assert long.logprob_s > plain.logprob_s + 0.8
    assert long.collect_s == 0 < apart(framework="verl", partial_rollouts=True).phases.collect_s


def test_a_reward_model_scores_and_a_verifier_is_free() -> None:
    assert step().phases.reward_s == 0
    small, large = (
        step({"reward_model": name}).phases.reward_s for name in ("qwen3_0_6b", "llama3_8b")
    )
    assert 0 < small < large == step().phases.logprob_s


def test_log_probabilities_of_the_engine_save_a_pass() -> None:
    found = step({"logprob": False}).phases
    assert found.logprob_s == 0 < found.reference_s


def test_a_smaller_critic_is_cheaper_in_time_and_memory() -> None:
    own, small = (
        step({"algorithm": "ppo"}),
        step({"algorithm": "ppo", "critic_model": "llama3_2_1b"}),
    )
    plain = step()
    assert 0 < small.phases.critic_s < own.phases.critic_s
    assert plain.phases.train_s < small.phases.train_s < own.phases.train_s
    assert plain.train_memory_bytes < small.train_memory_bytes < own.train_memory_bytes


def test_a_second_model_that_the_layout_does_not_cut_is_a_verdict() -> None:
    task = sm.Rl(**PLAIN, reward_model="qwen3_0_6b")
    found = sm.estimate_rl("llama3_8b", ONE, task, sm.Strategy(tp=1, pp=8, vpp=4))
    assert found.verdict == "illegal:second_model"
    assert found.reason.startswith("reward_model: ")
    assert math.isinf(found.step_time_s)


def test_more_staleness_is_never_slower_and_ends_at_what_the_pools_sustain() -> None:
    slow = {"train_batch": None, "reference": False, "spread": 1.5}
    before = math.inf
    for lag in (1, 2, 4, 8, 64):
        found = step(slow, rollout=ONE, staleness=lag)
        assert found.step_time_s <= before
        assert found.rollout_period_s <= found.phases.rollout_s
        before = found.step_time_s
    steady = step(slow, rollout=ONE, staleness=64, partial_rollouts=True)
    assert steady.phases.rollout_s == pytest.approx(found.rollout_period_s)


def test_a_whole_model_is_gathered_where_both_share_accelerators() -> None:
    layout = sm.ServingLayout(tp=8)
    two = sm.cluster("dgx_h100", nodes=2)
    task = sm.Rl(**PLAIN)
    shared = sm.estimate_rl("llama3_70b", two, task, sm.Strategy(tp=8, pp=2), layout)
    own = sm.estimate_rl(
        "llama3_70b", two, task, sm.Strategy(tp=8, pp=2), layout, rollout=two, staleness=1
    )
    assert shared.phases.refit_s > 2 * own.phases.refit_s


def test_one_accelerator_alone_copies_its_weights() -> None:
    task = sm.Rl(**{**PLAIN, "train_batch": None})
    one = sm.cluster("dgx_h100", accelerators=1)
    assert 0 < sm.estimate_rl("qwen3_0_6b", one, task).phases.refit_s < 0.3


def test_less_memory_for_the_engine_is_no_faster() -> None:
    wide = step({"prompts": 128}, memory_share=0.9).phases.rollout_s
    narrow = step({"prompts": 128}, memory_share=0.3).phases.rollout_s
    assert narrow > wide


def test_a_share_that_holds_no_cache_is_a_verdict() -> None:
    found = step(memory_share=0.05)
    assert found.verdict == "out_of_memory"
    assert "memory_share=0.05 holds weights, but no cache" in found.reason
    assert math.isinf(found.step_time_s)


def test_memory_is_that_of_the_share_and_of_a_critic_too() -> None:
    sizes = [step(memory_share=share).memory().memory_bytes for share in (0.6, 0.8)]
    capacity = step().training.memory_capacity_bytes
    assert sizes[1][0] - sizes[0][0] == pytest.approx(0.2 * capacity, rel=1e-3)
    assert sizes[1][1] == sizes[0][1]
    critic = step({"algorithm": "ppo"})
    assert critic.train_memory_bytes > sizes[0][1]
    assert critic.memory().memory_bytes[1] == critic.train_memory_bytes


def test_rates_are_those_of_all_accelerators() -> None:
    found = apart()
    tokens = found.samples_per_s * found.task.mean_length()
    assert found.samples_per_s == pytest.approx(256 / found.step_time_s)
    assert found.tokens_per_s_per_accelerator == pytest.approx(tokens / 16)


# ------------------------------------------------------------------------ what stands in the way
def test_weights_that_do_not_fit_are_a_verdict_with_its_pool() -> None:
    task = sm.Rl(**PLAIN)
    found = sm.estimate_rl("llama3_70b", ONE, task, sm.Strategy(tp=8), sm.ServingLayout(tp=1))
    assert found.verdict == "out_of_memory"
    assert "rollout" in found.reason
    assert math.isinf(found.step_time_s)
    found = sm.estimate_rl("llama3_70b", ONE, task, sm.Strategy(tp=8), sm.ServingLayout(tp=8))
    assert found.verdict == "out_of_memory"
    assert "training" in found.reason
    assert math.isfinite(found.step_time_s)
    assert list(found.memory().fits) == [True, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generated_tokens": 4000}, "limit_tokens leaves 3968 for an answer"),
        ({"generated_tokens": 0}, "generated_tokens=0: must be a number from 1"),
        ({"prompts": 0}, "prompts=0: must be a whole number"),
        ({"prompts": 1.5}, "prompts=1.5: must be a whole number"),
        ({"train_batch": 257}, "train_batch=257: prompts times generations make 256"),
        ({"accepted_fraction": 0.5}, "algorithm='grpo' trains on every prompt; must be 1"),
        ({"algorithm": "rloo", "oversampling": 2}, "must be 1, or algorithm='dapo'"),
        ({"algorithm": "dapo", "accepted_fraction": 0}, "accepted_fraction=0: must be a number"),
        ({"critic_model": "llama3_8b"}, "algorithm='grpo' has no critic; algorithm='ppo' has"),
        ({"algorithm": "sft"}, "algorithm='sft': must be one of grpo, ppo, dapo, rloo"),
        ({"spread": -1}, "spread=-1: must be a number from 0 to 3"),
    ],
)
def test_a_task_says_what_is_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        sm.Rl(**{**PLAIN, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"staleness": 1}, "accelerators that generate and train in turn have none"),
        ({"staleness": -1, "rollout": ONE}, "staleness=-1: must be a whole number"),
        ({"partial_rollouts": True, "rollout": ONE}, "need staleness of at least 1"),
        ({"framework": "slime"}, "framework='slime': must be one of nemo_rl, verl, areal"),
        ({"layout": sm.ServingLayout(tp=16)}, "a replica needs 16 accelerators, the pool has 8"),
        ({"memory_share": 1.5}, "memory_share=1.5: must be a number from 0"),
        ({"logprob_batch": 0}, "logprob_batch=0: must be a whole number"),
    ],
)
def test_a_question_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        step(**options)
    assert message in str(caught.value)


def test_a_task_is_an_rl() -> None:
    with pytest.raises(sm.ScaleModelError, match="must be an Rl"):
        sm.estimate_rl("llama3_8b", ONE, sm.Training(global_batch=8, sequence=128))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ new weights
def test_each_rank_its_own_part_is_no_slower_than_all_of_it() -> None:
    layout = sm.ServingLayout(tp=8)
    two = sm.cluster("dgx_h100", nodes=2)
    plan = sm.Strategy(tp=8, pp=2)
    seconds = {
        way: sm.estimate_rl(
            "llama3_70b", two, sm.Rl(**PLAIN), plan, layout, rollout=two, staleness=1, refit=way
        ).phases.refit_s
        for way in ("reshard", "rdma", "broadcast", "rdma_whole")
    }
    assert seconds["reshard"] < seconds["broadcast"] <= seconds["rdma_whole"]
    assert seconds["rdma"] == seconds["rdma_whole"]  # a dense model has no routed experts


def test_sharded_training_makes_its_matrices_whole_before_it_hands_them_on() -> None:
    task = sm.Rl(**PLAIN)

    def refit_s(sharding: str, **options: Any) -> float:
        strategy = sm.Strategy(sharding=sharding, recompute="full")
        return float(sm.estimate_rl("llama3_8b", ONE, task, strategy, **options).phases.refit_s)

    gathering = 2 * sm.model("llama3_8b").parameters / 9e9
    assert refit_s("zero3") == pytest.approx(refit_s("zero1") + gathering)
    two: dict[str, Any] = {"rollout": ONE, "staleness": 1}
    # Beside the broadcast, which is shorter here; a rank's own part is cut from shards.
    sent = refit_s("zero1", **two)
    assert sent < refit_s("zero3", **two) < sent + gathering
    own: dict[str, Any] = {**two, "refit": "reshard"}
    assert refit_s("zero3", **own) == refit_s("zero1", **own)


def test_the_start_of_a_refit_is_that_of_the_framework() -> None:
    nemo, verl = (apart(framework=name).phases.refit_s for name in ("nemo_rl", "verl"))
    assert nemo == pytest.approx(verl + 0.2)


def test_fewer_stale_answers_wait_longer_up_to_a_whole_round() -> None:
    options: dict[str, Any] = {"rollout": ONE, "staleness": 1, "partial_rollouts": True}
    before = -1.0
    for fraction in (1.0, 0.7, 0.3, 0.1, 0.0):
        found = step(stale_fraction=fraction, **options)
        assert found.phases.collect_s >= before
        before = found.phases.collect_s
    whole = step(rollout=ONE, staleness=1)
    assert before == pytest.approx(whole.phases.rollout_s)
    assert step(**options).phases == step(stale_fraction=1.0, **options).phases


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"refit": "pigeon"}, "refit"),
        ({"stale_fraction": 0.5}, "stale_fraction"),
        ({"stale_fraction": 1.5, "partial_rollouts": True}, "stale_fraction"),
    ],
)
def test_ways_and_fractions_out_of_range_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=named):
        apart(**options)


# -------------------------------------------------------------------------------------- interval
def test_the_interval_is_that_of_published_steps_or_of_training() -> None:
    est = step()
    interval = est.interval()
    assert interval is not None
    factor = interval.high_s / est.step_time_s
    assert interval.low_s == pytest.approx(est.step_time_s / factor)
    trained = est.training.interval()
    assert trained is not None
    assert factor >= trained.high_s / est.training.step_time_s
    row = est.to_dict()
    assert (row["step_time_low_s"], row["step_time_high_s"]) == interval[:2]
    assert row["extrapolates"] == "; ".join(est.training.extrapolates)


def test_what_cannot_run_has_no_interval() -> None:
    est = sm.estimate_rl("llama3_70b", "dgx_h100", step().task, sm.Strategy(tp=3))
    assert est.verdict != "ok"
    assert est.interval() is None
    assert est.to_dict()["step_time_low_s"] is None
