"""The command that serves recorded requests with a fleet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scalemodel as sm
from scalemodel.cli import MALFORMED, NOTHING_FEASIBLE, OK, main
from scalemodel.serving.fleet_plan import FleetPlan


@pytest.fixture
def file(tmp_path: Path) -> str:
    task = sm.Inference(input_tokens=1000, output_tokens=200)
    stream = sm.request_stream(task, requests=600, requests_per_s=40)
    path = tmp_path / "trace.csv"
    sm.Trace(stream.arrival_s, stream.input_tokens, stream.output_tokens).write(path)
    return str(path)


def test_a_given_fleet_is_simulated(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--replicas", "2"]
    asked += ["--cluster", "dgx_a100", "--replicas", "1", "--ttft-s", "0.5"]
    assert main([*asked, "--json"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert (told["router"], told["requests"], told["refused"]) == ("least_loaded", 600, 0)
    assert 0 < told["goodput_fraction"] <= 1
    assert [row["cluster"] for row in told["replicas"]] == ["dgx_h100", "dgx_h100", "dgx_a100"]
    assert main([*asked, "--csv"]) == OK
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main([*asked, "--router", "round_robin", "--tp", "2"]) == OK
    shown = capsys.readouterr().out
    assert "round_robin over 2 x tp2 on dgx_h100 + 1 x tp2 on dgx_a100" in shown


def test_the_cheapest_fleet_is_that_of_python(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--ttft-p99-s", "0.3", "--json"]
    assert main(asked) == OK
    told = json.loads(capsys.readouterr().out)
    plan = sm.plan_fleet(sm.read_trace(file), "llama3_8b", "dgx_h100", {"ttft_p99_s": 0.3})
    assert isinstance(plan, FleetPlan)
    assert told["usd_per_hour"] == plan.usd_per_hour
    assert told["ttft_p99_s"] == plan.values["ttft_p99_s"] <= 0.3
    assert main([*asked[:-2], "1e-4"]) == NOTHING_FEASIBLE
    assert "nothing feasible" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "needs --replicas, or a limit"),
        (["--replicas", "1", "--replicas", "2"], "must be one each"),
        (["--replicas", "1", "--router", "fastest"], "router='fastest'"),
        (["--replicas", "1", "--ttft-p99-s", "1"], "ttft_p99_s"),
    ],
)
def test_mistakes_are_told(
    file: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "llama3_8b", file, "--cluster", "dgx_h100", *options]) == MALFORMED
    assert said in capsys.readouterr().err
    asked = ["fleet", "llama3_405b", file, "--cluster", "dgx_a100", "--tp", "1", "--replicas", "1"]
    assert main(asked) == MALFORMED
    assert "holds no replica of llama3_405b" in capsys.readouterr().err
