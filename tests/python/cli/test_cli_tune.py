"""``scalemodel tune``: the same answers as `estimate_tuning`, and its exit codes."""

from __future__ import annotations

import json

import pytest

import scalemodel as sm
from scalemodel import cli

JOB = ("tune", "llama3_8b", "--cluster", "dgx_h100", "--nodes", "2")
LENGTHS = ("--prompt-tokens", "200", "--generated-tokens", "800", "--limit-tokens", "4096")
PAIRS = ("--pairs", "128")
TAUGHT = ("--teacher", "llama3_70b", "--prompts", "128")
TWO = sm.cluster("dgx_h100", nodes=2)


def test_preferences_are_what_estimate_tuning_answers(capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--method", "kto", "--packing", "--lora-rank", "8", "--lora-targets", "all")
    argv = [*JOB, *LENGTHS, *PAIRS, *more, "--tp", "2", "--frozen", "resident", "--json"]
    assert cli.main(argv) == cli.OK
    found = json.loads(capsys.readouterr().out)
    task = sm.Preference(
        pairs=128,
        prompt_tokens=200,
        generated_tokens=800,
        limit_tokens=4096,
        method="kto",
        packing=True,
        lora_rank=8,
        lora_targets="all",
    )
    step = sm.estimate_tuning("llama3_8b", TWO, task, sm.Strategy(tp=2), frozen="resident")
    assert found["step_time_s"] == step.step_time_s
    assert found["logprob_s"] == step.phases.logprob_s > 0


def test_distillation_is_what_estimate_tuning_answers(capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--on-policy", "--full-logits", "--teacher-accelerators", "8", "--teacher-tp", "8")
    argv = [*JOB, *LENGTHS, *TAUGHT, *more, "--tp", "2", "--rollout-tp", "2", "--json"]
    assert cli.main(argv) == cli.OK
    found = json.loads(capsys.readouterr().out)
    task = sm.Distillation(
        teacher="llama3_70b",
        prompts=128,
        prompt_tokens=200,
        generated_tokens=800,
        limit_tokens=4096,
        on_policy=True,
        top_k=None,
    )
    one = sm.cluster("dgx_h100")
    step = sm.estimate_tuning(
        "llama3_8b",
        one,
        task,
        sm.Strategy(tp=2),
        sm.ServingLayout(tp=2),
        teacher_strategy=sm.Strategy(tp=8),
        teacher_cluster=one,
    )
    assert found["step_time_s"] == step.step_time_s
    assert (found["frozen"], found["accelerators"]) == ("apart", 16)


def test_a_terminal_gets_a_row_of_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*JOB, *LENGTHS, *PAIRS, "--tp", "2"]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("TuningEstimate(step ")
    assert "reference" in [line.split()[0] for line in lines[1:]]
    assert cli.main([*JOB, *LENGTHS, *PAIRS, "--tp", "2", "--csv"]) == cli.OK
    assert capsys.readouterr().out.startswith("model,cluster,verdict,")


@pytest.mark.parametrize(
    ("further", "message"),
    [
        ((), "needs --pairs (preferences) or --teacher (distillation)"),
        (("--prompts", "64"), "--prompts 64: needs --teacher"),
        ((*PAIRS, *TAUGHT), "--pairs 128: is of preference tuning, which has no --teacher"),
        (("--teacher", "llama3_70b"), "--teacher: needs --prompts"),
        ((*TAUGHT, "--top-k", "8", "--full-logits"), "--top-k 8: not beside --full-logits"),
        ((*TAUGHT, "--teacher-accelerators", "16"), "leaves a pool empty; must be from 1 to 15"),
        (
            (*TAUGHT, "--on-policy", "--rollout-accelerators", "8", "--teacher-accelerators", "8"),
            "--teacher-accelerators 8: leaves a pool empty; must be from 1 to 7",
        ),
        ((*PAIRS, "--teacher-accelerators", "8"), "a Preference has no teacher"),
        ((*PAIRS, "--spread", "9"), "spread=9.0: must be a number from 0 to 3"),
    ],
)
def test_it_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], further: tuple[str, ...], message: str
) -> None:
    assert cli.main([*JOB, *LENGTHS, *further]) == cli.MALFORMED
    assert message in capsys.readouterr().err


def test_what_does_not_fit_is_a_row_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["tune", "llama3_70b", *JOB[2:], *LENGTHS, *PAIRS, "--json"]
    assert cli.main(argv) == cli.INFEASIBLE
    assert json.loads(capsys.readouterr().out)["verdict"] == "out_of_memory"
