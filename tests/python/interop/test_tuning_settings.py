"""Steps of preference tuning and of distillation as NeMo-RL and verl start them."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm

ONE = sm.cluster("dgx_h100")
PAIRS: dict[str, Any] = {
    "pairs": 128,
    "prompt_tokens": 200,
    "generated_tokens": 300,
    "limit_tokens": 2048,
    "pad_to": "batch",
}
TAUGHT: dict[str, Any] = {
    "teacher": "qwen3_32b",
    "prompts": 64,
    "prompt_tokens": 200,
    "generated_tokens": 1000,
    "limit_tokens": 4096,
    "on_policy": True,
}


def preferred(plan: sm.Strategy, **changes: Any) -> sm.TuningEstimate:
    return sm.estimate_tuning("llama3_8b", ONE, sm.Preference(**{**PAIRS, **changes}), plan)


def taught(changes: dict[str, Any] | None = None, **options: Any) -> sm.TuningEstimate:
    task = sm.Distillation(**{**TAUGHT, **(changes or {})})
    teacher = sm.Strategy(tp=8)
    plan = options.pop("plan", sm.Strategy(tp=2))
    return sm.estimate_tuning("qwen3_4b", ONE, task, plan, teacher_strategy=teacher, **options)


def settings(job: Any) -> dict[str, Any]:
    """Values of the YAML that a job writes, by their paths."""
    import scalemodel.interop.post_training_settings as reading
    from scalemodel.interop.serving_settings.yaml_reader import read_yaml

    found = reading.paths(read_yaml(job.files["nemo_rl.yaml"], "test"))
    return {name: str(value) for name, value in found.items()}


def test_preferences_start_in_nemo_rl_with_their_batch_in_pairs() -> None:
    job = sm.launch_tuning(preferred(sm.Strategy(tp=2, pp=2, micro_batch=2)), "nemo_rl")
    assert job.command[:3] == ("uv", "run", "examples/run_dpo.py")
    assert "defaults: examples/configs/dpo.yaml\n" in job.files["nemo_rl.yaml"]
    found = settings(job)
    assert found["policy.train_global_batch_size"] == "128"
    assert found["policy.train_micro_batch_size"] == "2"
    assert found["policy.megatron_cfg.pipeline_model_parallel_size"] == "2"
    assert found["policy.make_sequence_length_divisible_by"] == "2"
    assert not any("not expressed" in note for note in job.notes)
    assert "predicted:" in job.script()


def test_a_reward_model_and_adapters_have_their_own_settings() -> None:
    job = sm.launch_tuning(preferred(sm.Strategy(tp=2), method="reward"), "nemo_rl")
    assert "examples/run_rm.py" in job.command
    plan = sm.Strategy(sharding="zero3")
    lora = sm.launch_tuning(preferred(plan, lora_rank=8, lora_targets="all"), "nemo_rl")
    found = settings(lora)
    assert found["policy.dtensor_cfg.lora_cfg.dim"] == "8"
    assert found["policy.dtensor_cfg.lora_cfg.match_all_linear"].lower() == "true"


def test_distillation_starts_with_a_teacher_of_its_own_layout() -> None:
    job = sm.launch_tuning(taught(), "nemo_rl")
    assert "examples/run_distillation.py" in job.command
    found = settings(job)
    assert found["distillation.topk_logits_k"] == "64"
    assert found["policy.megatron_cfg.tensor_model_parallel_size"] == "2"
    assert found["teacher.megatron_cfg.tensor_model_parallel_size"] == "8"
    assert not any("not expressed" in note for note in job.notes)


def test_the_teacher_of_verl_has_accelerators_of_its_own() -> None:
    job = sm.launch_tuning(taught(teacher_cluster=ONE), "verl")
    for word in (
        "distillation.enabled=True",
        "distillation.nnodes=1",
        "distillation.teacher_models.teacher_model.inference.tensor_model_parallel_size=8",
        "distillation.distillation_loss.topk=64",
        "trainer.nnodes=1",
    ):
        assert word in job.command
    assert job.nodes == 2


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda: preferred(sm.Strategy(tp=2), precomputed_reference=True), "precomputed_reference"),
        (lambda: preferred(sm.Strategy(tp=2), packing=True), "packing"),
        (lambda: preferred(sm.Strategy(tp=2), pad_to="micro_batch"), "pad_to=micro_batch"),
        (lambda: preferred(sm.Strategy(tp=2), lora_rank=8), "lora_rank=8"),
        (lambda: taught(teacher_cluster=ONE), "teacher_cluster"),
        (lambda: taught(frozen="resident"), "frozen=resident"),
        (lambda: taught({"top_k": None}), "top_k=None"),
        (
            lambda: taught(plan=sm.Strategy(tp=2, sharding="zero3")),
            "sequence_parallel=True of policy",
        ),
    ],
)
def test_what_nemo_rl_cannot_say_is_a_note(step: Any, said: str) -> None:
    job = sm.launch_tuning(step(), "nemo_rl")
    assert any("not expressed" in note and said in note for note in job.notes)


@pytest.mark.parametrize(
    ("step", "framework", "said"),
    [
        (lambda: preferred(sm.Strategy(tp=2)), "verl", "no preference tuning; nemo_rl has"),
        (
            lambda: preferred(sm.Strategy(tp=2), method="simpo"),
            "nemo_rl",
            "no method='simpo'; it has dpo and reward",
        ),
        (lambda: taught({"on_policy": False}), "nemo_rl", "on_policy=True"),
        (lambda: taught(), "verl", "teacher_cluster="),
        (lambda: taught({"top_k": None}, teacher_cluster=ONE), "verl", "top_k="),
        (lambda: preferred(sm.Strategy(tp=2)), "trl", "framework='trl': unknown"),
        (lambda: preferred(sm.Strategy(tp=3)), "nemo_rl", "cannot run"),
    ],
)
def test_what_a_framework_has_not_is_refused(step: Any, framework: str, said: str) -> None:
    with pytest.raises(sm.ScaleModelError) as caught:
        sm.launch_tuning(step(), framework)
    assert said in str(caught.value)


def test_each_verb_takes_its_own_kind_of_step() -> None:
    rl = sm.Rl(
        prompts=16, generations=4, prompt_tokens=128, generated_tokens=200, limit_tokens=1024
    )
    step = sm.estimate_rl("llama3_8b", ONE, rl, sm.Strategy(tp=2, recompute="full"))
    with pytest.raises(sm.ScaleModelError, match="must be a TuningEstimate"):
        sm.launch_tuning(step, "nemo_rl")  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match="must be an RlEstimate"):
        sm.launch_rl(preferred(sm.Strategy(tp=2)), "nemo_rl")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------ read back
READ_BACK: dict[str, tuple[str, Any]] = {
    "dpo": ("nemo_rl", lambda: preferred(sm.Strategy(tp=2, pp=2, micro_batch=2))),
    "dpo of full shards": ("nemo_rl", lambda: preferred(sm.Strategy(sharding="zero3"))),
    "reward": ("nemo_rl", lambda: preferred(sm.Strategy(tp=2), method="reward")),
    "adapters": (
        "nemo_rl",
        lambda: preferred(sm.Strategy(sharding="zero3"), lora_rank=8, lora_targets="all"),
    ),
    "distillation": ("nemo_rl", lambda: taught({"top_k": 32, "generations": 2})),
    "distillation beside a rollout": (
        "nemo_rl",
        lambda: taught(rollout=ONE, layout=sm.ServingLayout(tp=4), memory_share=0.8),
    ),
    "distillation in verl": ("verl", lambda: taught({"train_batch": 32}, teacher_cluster=ONE)),
}


@pytest.mark.parametrize("case", READ_BACK)
def test_what_is_started_is_read_back_as_the_same_step(case: str) -> None:
    framework, make = READ_BACK[case]
    step = make()
    job = sm.launch_tuning(step, framework)
    read = sm.read_tuning(framework, job.script())
    assert read.estimate(step).to_dict() == step.to_dict()
    # Like another step, it is still the one that was started.
    other = type(step.task)(**{**vars(step.task), "limit_tokens": 3000})
    strategy = sm.Strategy(tp=4, recompute="full")
    options = {"teacher_strategy": sm.Strategy(tp=4)} if case.startswith("dist") else {}
    if framework == "verl":
        options["teacher_cluster"] = ONE
    else:
        options |= {"rollout": ONE} if "rollout" in case else {}
    like = sm.estimate_tuning(step.training.model, ONE, other, strategy, **options)
    again = read.estimate(like)
    assert again.task.limit_tokens == step.task.limit_tokens
    assert again.training.strategy.tp == step.training.strategy.tp
    assert again.step_time_s == pytest.approx(step.step_time_s, rel=0.02)


def test_a_difference_of_settings_is_told_with_what_a_step_takes() -> None:
    job = sm.launch_tuning(preferred(sm.Strategy(tp=2, recompute="selective")), "nemo_rl")
    assert any(
        note.startswith("not expressed: recompute=selective: with full") for note in job.notes
    )
    assert any(note.startswith("differs from the prediction, all in all") for note in job.notes)
    padded = sm.launch_tuning(preferred(sm.Strategy(tp=2), packing=True), "nemo_rl")
    assert sum("packing" in note for note in padded.notes) == 1


def test_settings_of_other_steps_are_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="neither of dpo, rm and distillation"):
        sm.read_tuning("nemo_rl", {"grpo": {"num_prompts_per_step": 64}})
    read = sm.read_tuning("nemo_rl", {"distillation": {"num_prompts_per_step": 64}})
    with pytest.raises(sm.ScaleModelError, match="like: is a Preference, and the settings say"):
        read.estimate(preferred(sm.Strategy(tp=2)))
    with pytest.raises(sm.ScaleModelError, match=r"train_global_batch_size=many: is no value"):
        sm.read_tuning("nemo_rl", {"dpo": {}, "policy": {"train_global_batch_size": "many"}})
    with pytest.raises(sm.ScaleModelError, match="framework='trl': unknown"):
        sm.read_tuning("trl", "a=1")


def test_overrides_of_a_command_win_over_the_file() -> None:
    job = sm.launch_tuning(preferred(sm.Strategy(tp=2)), "nemo_rl")
    script = job.script() + "\nuv run x.py policy.train_global_batch_size=256\n"
    assert sm.read_tuning("nemo_rl", script).values["pairs"] == 256
