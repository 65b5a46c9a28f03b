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
