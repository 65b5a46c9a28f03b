"""Steps of reinforcement learning as NeMo-RL and verl understand them, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm

ONE, TWO = sm.cluster("dgx_h100"), sm.cluster("dgx_h100", nodes=2)
PLAIN: dict[str, Any] = {
    "prompts": 16,
    "generations": 16,
    "prompt_tokens": 128,
    "generated_tokens": 800,
    "limit_tokens": 4096,
    "train_batch": 128,
}
FULL = sm.Strategy(tp=2, recompute="full")
DAPO = {"algorithm": "dapo", "accepted_fraction": 0.5, "oversampling": 2.0, "reference": False}
STEPS: dict[str, tuple[Any, dict[str, Any], sm.Strategy, dict[str, Any]]] = {
    "colocated": (ONE, {}, FULL, {"logprob_batch": 2}),
    "sharded": (
        *(TWO, {}, sm.Strategy(cp=2, sharding="zero3", recompute="full")),
        {"layout": sm.ServingLayout(tp=2), "memory_share": 0.5},
    ),
    "one step off": (ONE, DAPO, FULL, {"rollout": ONE, "staleness": 1, "memory_share": 0.8}),
    "resharded": (
        *(TWO, {"logprob": False}, sm.Strategy(tp=2, pp=2, recompute="none")),
        {"rollout": ONE, "staleness": 1, "partial_rollouts": True, "refit": "reshard"},
    ),
}


def predicted(name: str) -> sm.RlEstimate:
    train, task, strategy, options = STEPS[name]
    return sm.estimate_rl("llama3_8b", train, sm.Rl(**{**PLAIN, **task}), strategy, **options)


@pytest.mark.parametrize("framework", ["nemo_rl", "verl"])
@pytest.mark.parametrize("name", STEPS)
def test_what_is_written_is_read_back_and_predicted_alike(name: str, framework: str) -> None:
    step = predicted(name)
    job = sm.launch_rl(step, framework)
    again = sm.read_rl(framework, job.script()).estimate(step)
    assert again.step_time_s == pytest.approx(step.step_time_s, rel=1e-12)
    assert again.phases == step.phases
    assert not any("not expressed" in note for note in job.notes)


@pytest.mark.parametrize(
    ("framework", "changes", "options", "said"),
    [
        ("nemo_rl", {"algorithm": "ppo"}, {}, "algorithm=ppo"),
        ("nemo_rl", {}, {"partial_rollouts": True, "stale_fraction": 0.0}, "stale_fraction"),
        ("nemo_rl", {}, {"refit": "rdma_whole"}, "refit=rdma_whole"),
        ("verl", {}, {"refit": "rdma"}, "refit=rdma"),
        ("verl", {}, {"staleness": 3}, "staleness=3"),
        ("verl", {"train_batch": 100}, {}, "train_batch=100"),
        ("verl", {"precision": "fp8"}, {}, "precision=fp8"),
    ],
)
def test_what_a_framework_cannot_say_is_a_note(
    framework: str, changes: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    task = sm.Rl(**{**PLAIN, **changes})
    asked = {"rollout": ONE, "staleness": 1, **options}
    step = sm.estimate_rl("llama3_8b", ONE, task, FULL, **asked)
    job = sm.launch_rl(step, framework)
    assert any("not expressed" in note and said in note for note in job.notes)
    again = sm.read_rl(framework, job.script()).estimate(step)
    if again.step_time_s != pytest.approx(step.step_time_s, rel=0.01):
        assert any("all in all" in note for note in job.notes)


def test_a_sharded_actor_of_verl_has_no_tensor_ranks() -> None:
    plan = sm.Strategy(tp=2, sharding="zero3", recompute="full")
    job = sm.launch_rl(sm.estimate_rl("llama3_8b", ONE, sm.Rl(**PLAIN), plan), "verl")
    assert any("not expressed: tp=2" in note for note in job.notes)


def test_settings_are_read_from_files_texts_and_tables(tmp_path: Path) -> None:
    text = "grpo:\n  num_prompts_per_step: 64\npolicy:\n  max_total_sequence_length: 8192\n"
    file = tmp_path / "grpo.yaml"
    file.write_text(text, encoding="utf-8")
    wanted = {"prompts": 64, "limit_tokens": 8192}
    table = {"grpo": {"num_prompts_per_step": 64}, "policy": {"max_total_sequence_length": 8192}}
    for source in (file, str(file), text, table):
        assert sm.read_rl("nemo_rl", source).values == wanted
    command = (
        "python3 -m verl.trainer.main_ppo \\\n  data.train_batch_size=8 \\\n  +trainer.nnodes=2"
    )
    read = sm.read_rl("verl", command).values
    assert read["prompts"] == 8
    assert read["train_accelerators"] == 16


def test_overrides_win_over_the_file() -> None:
    job = sm.launch_rl(predicted("colocated"), "nemo_rl")
    read = sm.read_rl("nemo_rl", job.script() + "\nuv run x.py grpo.num_prompts_per_step=32\n")
    assert read.values["prompts"] == 32


def test_wrong_values_frameworks_and_steps_are_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="num_prompts_per_step=many"):
        sm.read_rl("nemo_rl", {"grpo": {"num_prompts_per_step": "many"}})
    with pytest.raises(sm.ScaleModelError, match="framework='trl'"):
        sm.launch_rl(predicted("colocated"), "trl")
    illegal = sm.estimate_rl("llama3_8b", ONE, sm.Rl(**PLAIN), sm.Strategy(tp=3))
    with pytest.raises(sm.ScaleModelError, match="cannot run"):
        sm.launch_rl(illegal, "verl")
