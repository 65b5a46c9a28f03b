"""Stages of training as one plan: sums of runs, hand-overs, pools, and published recipes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.economics.pools import before_s, drawn_j, phased_step_j, pools_of
from scalemodel.economics.stage_plan import SUMS
from scalemodel.economics.storage import checkpoint_sizes, read_bytes_per_s

ONE = sm.cluster("dgx_h100")
LAYOUT = sm.Strategy(tp=2, recompute="full")
ANSWERS = sm.Rl(
    prompts=16, generations=16, prompt_tokens=128, generated_tokens=800, limit_tokens=4096
)
PAIRS = sm.Preference(pairs=128, prompt_tokens=200, generated_tokens=300, limit_tokens=2048)


@pytest.fixture(scope="module")
def est() -> sm.Estimate:
    return sm.estimate("llama3_8b", ONE, sm.Training(global_batch=64, sequence=8192), LAYOUT)


@pytest.fixture(scope="module")
def large() -> sm.Estimate:
    """The same model on four times as many nodes."""
    four = sm.cluster("dgx_h100", nodes=4)
    return sm.estimate("llama3_8b", four, sm.Training(global_batch=64, sequence=8192), LAYOUT)


@pytest.fixture(scope="module")
def rl() -> Any:
    return sm.estimate_rl("llama3_8b", ONE, ANSWERS, LAYOUT)


@pytest.fixture(scope="module")
def dpo() -> Any:
    return sm.estimate_tuning("llama3_8b", ONE, PAIRS, LAYOUT)


# ------------------------------------------------------------------------------- sums of runs
def test_one_stage_is_its_training_run_to_the_bit(est: sm.Estimate) -> None:
    terms: dict[str, Any] = {"price": 2.5, "grid": "fra", "pue": 1.1, "reliability": 0.01}
    plan = sm.plan_stages([sm.Stage("pretrain", est, tokens=1e12)], **terms)
    run = sm.training_run(est, tokens=1e12, **terms)
    for name in ("time_s", "time_low_s", "time_high_s", *SUMS):
        if name != "switch_s":
            assert getattr(plan, name) == getattr(run, name), name
    (stage,) = plan.stages
    assert (stage.start_s, stage.end_s, stage.switch_s) == (0.0, run.time_s, 0.0)
    assert stage.ettr_fraction == run.ettr_fraction
    assert plan.table.cost_usd.tolist() == [run.cost_usd, run.cost_usd]


def test_without_hand_overs_stages_add_up(est: sm.Estimate, large: sm.Estimate) -> None:
    stages = [sm.Stage("pretrain", large, tokens=1e12), sm.Stage("anneal", est, tokens=1e11)]
    plan = sm.plan_stages(stages, switch_s=0, price=2.0)
    work = [(large, 1e12), (est, 1e11)]
    runs = [sm.training_run(each, tokens=tokens, price=2.0) for each, tokens in work]
    for name in ("time_s", "time_low_s", "time_high_s", *SUMS):
        if name != "switch_s":
            assert getattr(plan, name) == sum(getattr(run, name) for run in runs), name
    assert plan.stages[1].start_s == plan.stages[0].end_s == runs[0].time_s
    assert plan.costliest == "pretrain"


def test_two_halves_take_what_the_whole_does(est: sm.Estimate) -> None:
    halves = [sm.Stage(name, est, tokens=5e11) for name in ("first", "second")]
    whole = sm.plan_stages([sm.Stage("whole", est, tokens=1e12)])
    plan = sm.plan_stages(halves, switch_s=0)
    assert plan.time_s == pytest.approx(whole.time_s, rel=1e-12)
    assert plan.energy_j == pytest.approx(whole.energy_j, rel=1e-12)
    # Of errors that are shared; chances of failures alone would spread by less in the whole.
    assert whole.time_high_s is not None
    assert plan.time_high_s is not None
    assert plan.time_high_s >= whole.time_high_s * (1 - 1e-3)


@pytest.mark.parametrize("name", ["est", "rl", "dpo"])
def test_work_is_the_same_in_any_count(name: str, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(name)
    (stage,) = sm.plan_stages([sm.Stage("only", answer, steps=400)]).stages
    counts = {"tokens": stage.tokens, "samples": stage.samples}
    for count, amount in counts.items():
        asked: dict[str, Any] = {count: amount}
        (other,) = sm.plan_stages([sm.Stage("only", answer, **asked)]).stages
        assert other.time_s == pytest.approx(stage.time_s, rel=1e-12)
        assert other.steps == pytest.approx(400, rel=1e-12)


# ---------------------------------------------------------------------------------- hand-overs
def test_a_hand_over_writes_starts_and_reads(est: sm.Estimate, large: sm.Estimate) -> None:
    stages = [sm.Stage("pretrain", large, tokens=1e12), sm.Stage("anneal", est, tokens=1e11)]
    plan = sm.plan_stages(stages, read="disk")
    first, second = plan.stages
    assert second.reliability is not None
    job = second.reliability.job
    read_s = checkpoint_sizes(large)[0] / read_bytes_per_s("disk")  # by the one node of the second
    assert second.switch_s == pytest.approx(job.write_s + job.restart_s + read_s, rel=1e-12)
    run = sm.training_run(est, tokens=1e11)
    assert second.time_s == pytest.approx(run.time_s + second.switch_s, rel=1e-12)
    assert first.end_s is not None
    assert second.end_s == pytest.approx(first.end_s + second.time_s, rel=1e-12)
    # Eight accelerators that idle, and their host.
    core = ONE.core
    idle_w = 8 * core.accelerator.power.idle_w + core.host_power_w
    assert second.energy_j is not None
    assert second.energy_j - run.energy_j == pytest.approx(
        core.pue * idle_w * second.switch_s, rel=1e-6
    )


def test_more_readers_and_faster_storage_shorten_it(est: sm.Estimate, large: sm.Estimate) -> None:
    def switch_s(second: sm.Estimate, **how: Any) -> float:
        pair = [sm.Stage("a", est, tokens=1e11), sm.Stage("b", second, tokens=1e11)]
        return float(sm.plan_stages(pair, **how).switch_s)

    assert switch_s(large) < switch_s(est)
    assert switch_s(est, read=1e9) > switch_s(est, read=1e10)
    assert switch_s(large, shared_bytes_per_s=1e9) > switch_s(large)
    assert switch_s(est, switch_s=42) == 42


def test_stages_run_beside_each_other(est: sm.Estimate, rl: Any) -> None:
    stages = [
        sm.Stage("base", est, tokens=1e11),
        sm.Stage("code", est, tokens=2e10),
        sm.Stage("chat", est, tokens=5e10, after="base"),
        sm.Stage("merge", rl, steps=10, after=["code", "chat"]),
        sm.Stage("apart", est, tokens=1e9, after=()),
    ]
    plan = sm.plan_stages(stages)
    base, code, chat, merge, apart = plan.stages
    assert code.start_s == chat.start_s == base.end_s
    assert merge.start_s == chat.end_s
    assert apart.start_s == 0.0
    assert apart.switch_s == 0.0
    assert plan.time_s == merge.end_s
    assert plan.energy_j == sum(one.energy_j or 0 for one in plan.stages)
    assert merge.switch_s is not None
    assert chat.switch_s is not None
    assert merge.switch_s > chat.switch_s  # two states to read


# -------------------------------------------------------------------------------- post-training
def test_post_training_takes_its_steps(rl: Any) -> None:
    (stage,) = sm.plan_stages([sm.Stage("rl", rl, steps=500)], reliability=0, price=2.0).stages
    assert stage.time_s == pytest.approx(500 * rl.step_time_s, rel=1e-12)
    assert stage.cost_usd == pytest.approx(8 * 2.0 * 500 * rl.step_time_s / 3600, rel=1e-12)
    assert stage.samples == 500 * 256
    assert stage.energy_j == pytest.approx(500 * phased_step_j(rl), rel=1e-12)
    interval = rl.interval()
    assert stage.time_low_s == pytest.approx(500 * interval.low_s, rel=1e-12)
    assert stage.time_high_s == pytest.approx(500 * interval.high_s, rel=1e-12)


def test_a_kind_of_step_that_was_never_measured_has_no_interval(est: sm.Estimate, dpo: Any) -> None:
    plan = sm.plan_stages([sm.Stage("sft", est, tokens=1e9), sm.Stage("dpo", dpo, steps=10)])
    assert plan.time_low_s is None
    assert plan.lacking("time_low_s") == ("dpo",)
    assert "no interval of dpo" in str(plan)


def test_failures_lengthen_post_training(rl: Any) -> None:
    plan = sm.plan_stages([sm.Stage("rl", rl, steps=500)], reliability=0.5)
    (stage,) = plan.stages
    assert stage.time_s is not None
    assert stage.ettr_fraction is not None
    assert stage.time_s * stage.ettr_fraction == pytest.approx(500 * rl.step_time_s, rel=1e-12)
    assert stage.lost_s == pytest.approx(stage.time_s - 500 * rl.step_time_s, rel=1e-9)


def test_energy_of_a_colocated_step_phase_by_phase(rl: Any) -> None:
    power, phases = ONE.core.accelerator.power, rl.phases
    trains_w = sm.power_caps(rl.training, [power.limit_w]).power_w[0]
    by_hand = (
        drawn_j(ONE, phases.rollout_s, rl.serving.power_w / rl.serving.accelerators, None)
        + drawn_j(ONE, phases.logprob_s + phases.reference_s + phases.train_s, trains_w, None)
        + drawn_j(
            ONE,
            phases.collect_s + phases.refit_s + phases.switch_s,
            power.exposed_fraction * power.limit_w,
            None,
        )
    )
    assert phased_step_j(rl) == pytest.approx(by_hand, rel=1e-12)


def test_a_pool_that_waits_idles() -> None:
    rl = sm.estimate_rl("llama3_8b", ONE, ANSWERS, LAYOUT, rollout=ONE)
    pools = pools_of(rl)
    assert sum(each.accelerators for each in pools.values()) == rl.accelerators == 16
    floor_w = 2 * (8 * ONE.core.accelerator.power.idle_w + ONE.core.host_power_w)
    most_w = 2 * (8 * ONE.core.accelerator.power.limit_w + ONE.core.host_power_w)
    mean_w = phased_step_j(rl, 1.0) / rl.step_time_s
    # While one pool works the other one waits.
    assert floor_w < mean_w < (floor_w + most_w) / 2
    (stage,) = sm.plan_stages([sm.Stage("rl", rl, steps=10)], reliability=1e-3).stages
    assert stage.reliability is not None
    assert stage.reliability.job.nodes == 2


def test_a_teacher_of_its_own_draws_and_is_paid() -> None:
    task = sm.Distillation(
        teacher="llama3_70b",
        prompts=64,
        prompt_tokens=200,
        generated_tokens=800,
        limit_tokens=4096,
    )
    two = sm.cluster("dgx_h100", nodes=2)
    step = sm.estimate_tuning("llama3_8b", ONE, task, sm.Strategy(tp=8), teacher_cluster=two)
    assert list(pools_of(step)) == ["training", "teacher"]
    (stage,) = sm.plan_stages([sm.Stage("distil", step, steps=10)], price=1.0).stages
    assert stage.accelerators == 24
    assert stage.cost_usd == pytest.approx(stage.accelerator_hours, rel=1e-12)


def test_passes_before_the_first_step_count_once(dpo: Any) -> None:
    task = sm.Preference(
        pairs=128,
        prompt_tokens=200,
        generated_tokens=300,
        limit_tokens=2048,
        precomputed_reference=True,
    )
    ahead = sm.estimate_tuning("llama3_8b", ONE, task, LAYOUT)
    assert before_s(ahead) == ahead.precomputing_s > 0 == before_s(dpo)
    (stage,) = sm.plan_stages([sm.Stage("dpo", ahead, steps=100)], reliability=0).stages
    assert stage.time_s == pytest.approx(100 * (ahead.step_time_s + before_s(ahead)), rel=1e-12)


# ------------------------------------------------------------------------------------- verdicts
def test_a_stage_that_does_not_fit_is_the_verdict(est: sm.Estimate, rl: Any) -> None:
    big = sm.estimate("llama3_70b", ONE, sm.Training(global_batch=64, sequence=8192))
    stages = [
        sm.Stage("pretrain", est, tokens=1e11),
        sm.Stage("grow", big, tokens=1e11),
        sm.Stage("rl", rl, steps=10),
    ]
    plan = sm.plan_stages(stages)
    assert plan.verdict == "out_of_memory"
    assert plan.reason.startswith("grow: ")
    assert plan.time_s is plan.energy_j is plan.costliest is plan.days is None
    first, grow, last = plan.stages
    assert first.end_s is not None
    assert grow.end_s is None
    assert last.start_s is None
    assert last.time_s is not None
    assert "out_of_memory" in str(plan)
    assert "grow" in repr(plan)
    assert plan.to_dict()["time_s"] is None


def test_a_step_of_post_training_that_cannot_run_says_why(est: sm.Estimate) -> None:
    step = sm.estimate_rl("llama3_70b", ONE, ANSWERS, LAYOUT)
    plan = sm.plan_stages([sm.Stage("a", est, tokens=1e11), sm.Stage("rl", step, steps=10)])
    assert plan.verdict == step.verdict != "ok"
    assert plan.reason == f"rl: {step.reason}"


def test_totals_say_which_stages_lack_a_number(est: sm.Estimate, dpo: Any) -> None:
    ascend = sm.cluster({"accelerator": "ascend_910b"})
    task = sm.Training(global_batch=64, sequence=4096)
    unpriced = sm.estimate("llama3_8b", ascend, task, LAYOUT)
    plan = sm.plan_stages([sm.Stage("a", unpriced, tokens=1e10), sm.Stage("dpo", dpo, steps=10)])
    assert plan.cost_usd is None
    assert plan.lacking("cost_usd") == ("a",)
    assert plan.time_low_s is None
    assert plan.lacking("time_low_s")[-1] == "dpo"
    reason = plan.table.reason.tolist()[-1]
    assert "no cost_usd of a" in reason
    assert "interval" in reason
    assert plan.costliest == max(plan.stages, key=lambda one: one.accelerator_hours or 0).name
    (own,) = sm.plan_stages([sm.Stage("a", unpriced, tokens=1e10, price=1.0)]).stages
    assert own.cost_usd == own.accelerator_hours


def test_the_answer_reads_and_travels(est: sm.Estimate, rl: Any) -> None:
    plan = sm.plan_stages([sm.Stage("sft", est, steps=500), sm.Stage("rl", rl, steps=100)])
    assert str(plan).splitlines()[2].startswith("total: ")
    assert "<table" in plan._repr_html_()
    assert plan.to_dict()["stages"][1]["after"] == "sft"
    assert pickle.loads(pickle.dumps(plan)).time_s == plan.time_s


# ------------------------------------------------------------------------------------ published
def test_stages_of_deepseek_v3() -> None:
    """H800 hours of DeepSeek-V3, 14.8T tokens, then 1,000 steps each of 32K and 128K.

    Published are 2,664K hours of pre-training and 119K of both extensions (arXiv 2412.19437, table
    1, sections 4.2 and 4.3); the layouts of the extensions are not. In HAI-LLM that of pre-training
    is predicted 8 % too fast, and its first and last stages hold 90 GiB where the report says
    nothing of their loss. With the best strategies that fit, pre-training takes 2,710K, 2 % too
    long, the extensions 89K, 25 % too short: 3.3 % of the whole, published 4.3 %.
    """
    cluster = sm.cluster({"accelerator": "h800_sxm_80"}, nodes=256)

    def task(batch: int, sequence: int) -> sm.Training:
        return sm.Training(global_batch=batch, sequence=sequence, precision="fp8")

    stack = "hai_llm_2024"
    published = sm.Strategy(pp=16, ep=64, schedule="dualpipe", recompute="selective")
    step = sm.estimate("deepseek_v3", cluster, task(15360, 4096), published, stack=stack)
    steps = 14.8e12 / (15360 * 4096)
    assert step.step_time_s * steps * 2048 / 3600 == pytest.approx(2664e3, rel=0.08)
    assert step.verdict == "out_of_memory"

    def best(batch: int, sequence: int) -> sm.Estimate:
        return sm.search("deepseek_v3", cluster, task(batch, sequence), top=1, stack=stack)[0]

    plan = sm.plan_stages(
        [
            sm.Stage("pretrain", best(15360, 4096), tokens=14.8e12),
            sm.Stage("32k", best(1920, 32768), steps=1000),
            sm.Stage("128k", best(480, 131072), steps=1000),
        ],
        reliability=0,  # no failure that cost work was published
        price=2.0,
    )
    pretrain, *longer = (one.accelerator_hours or 0.0 for one in plan.stages)
    assert pretrain == pytest.approx(2664e3, rel=0.05)
    assert sum(longer) == pytest.approx(119e3, rel=0.3)
    assert 1 / 2 < sum(longer) / pretrain / (119 / 2664) < 2
    # Both extensions have as many tokens; the longer one takes longer.
    assert plan.stages[1].tokens == plan.stages[2].tokens
    assert longer[0] < longer[1]
    assert plan.costliest == "pretrain"
    # 5.576M USD for all stages, at the same price.
    assert plan.cost_usd == pytest.approx(5.576e6, rel=0.05)


# ------------------------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda est: sm.Stage("a", "llama3_8b", tokens=1e9), "answer='llama3_8b'"),
        (lambda est: sm.Stage("a", est), "exactly one of tokens, samples, steps; none"),
        (lambda est: sm.Stage("a", est, tokens=1e9, steps=3), "tokens=1000000000.0, steps=3"),
        (lambda est: sm.Stage("a", est, steps=-1), "steps=-1"),
        (lambda est: sm.Stage("", est, steps=1), "name=''"),
        (lambda est: sm.Stage("a", est, token=1e9), "token=1000000000.0"),
        (lambda est: sm.plan_stages([]), "stages=[]"),
        (lambda est: sm.plan_stages([est]), "must be a Stage"),
        (lambda est: sm.plan_stages([sm.Stage("a", est, tokens=15)]), "stage 'a': tokens=15"),
        (lambda est: sm.plan_stages(2 * [sm.Stage("a", est, steps=9)]), "'a' stands twice"),
        (
            lambda est: sm.plan_stages([sm.Stage("a", est, steps=9, after="b")]),
            "after='b': of stage 'a'",
        ),
        (lambda est: sm.plan_stages([sm.Stage("a", est, steps=9)], read="tape"), "read='tape'"),
        (lambda est: sm.plan_stages([sm.Stage("a", est, steps=9)], switch_s=-1), "switch_s=-1"),
        (lambda est: sm.plan_stages([sm.Stage("a", est, steps=9)], prize=2), "prize=2"),
    ],
)
def test_bad_input_is_named(est: sm.Estimate, made: Any, said: str) -> None:
    with pytest.raises(ScaleModelError) as caught:
        made(est)
    assert said in str(caught.value)


def test_less_than_a_step_of_post_training(rl: Any) -> None:
    with pytest.raises(ScaleModelError, match=r"stage 'rl': steps=0.5: is less than one step"):
        sm.plan_stages([sm.Stage("rl", rl, steps=0.5)])


def test_layer_groups_have_no_stage() -> None:
    est = sm.estimate(sm.compose("vit_b"), ONE, sm.Training(global_batch=4096, sequence=197))
    with pytest.raises(ScaleModelError, match="must be an Estimate of a decoder"):
        sm.Stage("a", est, steps=10)  # type: ignore[arg-type]
