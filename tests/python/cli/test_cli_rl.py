"""``scalemodel rl``: the same answers as `estimate_rl` and `search_rl`, and its exit codes."""

from __future__ import annotations

import json

import pytest

import scalemodel as sm
from scalemodel import cli

TASK = (
    *("--prompts", "16", "--generations", "16", "--prompt-tokens", "128"),
    *("--generated-tokens", "800", "--limit-tokens", "4096"),
)
RL = ("rl", "llama3_8b", "--cluster", "dgx_h100", "--nodes", "2", *TASK)
LEARN = ("--tp", "2", "--recompute", "full")


def task(**changes: object) -> sm.Rl:
    plain = {"prompts": 16, "generations": 16, "prompt_tokens": 128, "generated_tokens": 800}
    return sm.Rl(**{**plain, "limit_tokens": 4096, **changes})  # type: ignore[arg-type]


def test_it_prints_what_estimate_rl_answers(capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--algorithm", "dapo", "--accepted-fraction", "0.5", "--no-reference")
    split = ("--rollout-accelerators", "8", "--staleness", "2", "--rollout-tp", "2")
    assert cli.main([*RL, *LEARN, *more, *split, "--json"]) == cli.OK
    found = json.loads(capsys.readouterr().out)
    whole = sm.cluster("dgx_h100", nodes=2)
    step = sm.estimate_rl(
        "llama3_8b",
        sm.cluster(whole, accelerators=8),
        task(algorithm="dapo", accepted_fraction=0.5, reference=False),
        sm.Strategy(tp=2, recompute="full"),
        sm.ServingLayout(tp=2),
        rollout=sm.cluster(whole, accelerators=8),
        staleness=2,
        memory_share=0.8,
    )
    assert found["step_time_s"] == step.step_time_s
    assert found["reference_s"] == 0
    assert found["accelerators"] == 16


def test_a_terminal_gets_a_row_of_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RL, *LEARN]) == cli.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("RlEstimate(step ")
    assert [line.split()[0] for line in lines[1:] if line.split()[0] == "rollout"] == ["rollout"]
    assert cli.main([*RL, *LEARN, "--csv"]) == cli.OK
    assert capsys.readouterr().out.startswith("model,cluster,verdict,")


def test_a_search_prints_its_ranking_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RL, "--search", "--top", "3", "--json"]) == cli.OK
    found = json.loads(capsys.readouterr().out)
    best = sm.search_rl("llama3_8b", sm.cluster("dgx_h100", nodes=2), task(), top=3)
    assert [row["step_time_s"] for row in found["steps"]] == [step.step_time_s for step in best]
    assert found["why"] == best.why()


@pytest.mark.parametrize(
    ("further", "code", "message"),
    [
        (("--rollout-accelerators", "16"), 2, "leaves a pool empty; must be from 1 to 15"),
        (("--staleness", "1"), 2, "give a pool of its own"),
        (("--spread", "9"), 2, "spread=9.0: must be a number from 0 to 3"),
    ],
)
def test_it_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], further: tuple[str, ...], code: int, message: str
) -> None:
    assert cli.main([*RL, *further]) == code
    assert message in capsys.readouterr().err


def test_what_does_not_fit_is_a_row_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rl", "llama3_70b", *RL[2:], "--json"]) == cli.INFEASIBLE
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "out_of_memory"
    assert found["step_time_s"] is None
