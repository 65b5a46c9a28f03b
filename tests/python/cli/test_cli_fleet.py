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


GIVEN = ["--cluster", "dgx_h100", "--replicas", "2", "--json"]


def test_tiers_and_failures_are_those_of_python(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["fleet", "llama3_8b", file, *GIVEN, "--tiers", "hicache", "--tier-bytes", "1e11"]
    asked += ["--mtbf-s", "5", "--restart-s", "2", "--outage", "3:6:0:1", "--shed-queue", "4"]
    assert main(asked) == OK
    told = json.loads(capsys.readouterr().out)
    trace = sm.read_trace(file)
    lengths = (float(column.mean()) for column in (trace.input_tokens, trace.output_tokens))
    task = sm.Inference(**dict(zip(("input_tokens", "output_tokens"), lengths, strict=True)))
    plan = sm.serve("llama3_8b", "dgx_h100", task, replicas=1)
    served = sm.simulate_fleet(
        trace,
        [(plan, 2)],
        router="least_loaded",
        tiers=sm.cache_tiers("hicache", plan, replicas=2, capacity_bytes=1e11),
        failures=sm.Failures(mtbf_s=5, restart_s=2),
        outages=[sm.Outage(begin_s=3, end_s=6, first=0, count=1)],
        shedding=sm.Shedding(queue=4),
    )
    expected = served.summary()
    assert expected["failures"] > 1
    assert {name: told[name] for name in expected} == pytest.approx(expected)


def test_pools_are_those_of_python(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fleet", "llama3_8b", file, *GIVEN, "--pools", "--decode-replicas", "3"]
    assert main(asked) == OK
    told = json.loads(capsys.readouterr().out)
    assert [row["pool"] for row in told["replicas"]] == ["prefill"] * 2 + ["decode"] * 3
    assert told["accelerators"] == 5
    limits = ["--ttft-p99-s", "0.3", "--tpot-s", "0.02", "--json"]
    asked = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--pools", *limits]
    assert main(asked) == OK
    told = json.loads(capsys.readouterr().out)
    assert "prefill dgx_h100" in told["fleet"]
    assert told["ttft_p99_s"] <= 0.3


def test_pools_fail_and_grow_as_in_python(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fleet", "llama3_8b", file, *GIVEN, "--pools", "--decode-replicas", "3"]
    wrong = ["--outage", "1:9", "--decode-outage", "2:9:1:2", "--restart-s", "1"]
    grows = ["--scale-target", "4", "--scale-startup-s", "1", "--decode-scale-target", "9"]
    assert main([*asked, *wrong, *grows, "--decode-scale-startup-s", "2"]) == OK
    told = json.loads(capsys.readouterr().out)
    trace = sm.read_trace(file)
    mean = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    tasks = [
        sm.Inference(input_tokens=mean[0], output_tokens=mean[1], prefilled=prefilled)
        for prefilled in (False, True)
    ]
    prompts, answers = (sm.serve("llama3_8b", "dgx_h100", each, replicas=1) for each in tasks)
    served = sm.simulate_pools(
        trace,
        (prompts, 2),
        (answers, 3),
        autoscaler=sm.Autoscaler(target=4, startup_s=1),
        decode_autoscaler=sm.Autoscaler(target=9, startup_s=2),
        failures=sm.Failures(restart_s=1),
        outages=[sm.Outage(begin_s=1, end_s=9)],
        decode_outages=[sm.Outage(begin_s=2, end_s=9, first=1, count=2)],
    )
    expected = served.summary()
    assert expected["failures"] >= 1
    assert {name: told[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--ttft-s", "1", "--tiers", "hicache", "--tier-bytes", "1e9"],
            "--tier-bytes: of a fleet that is given by",
        ),
        (["--ttft-s", "1", "--shed-queue", "9"], "--shed-queue: of a fleet that is given"),
        (["--ttft-s", "1", "--tiers", "ram"], "tiers: 'ram': must be None or one of"),
        (["--ttft-s", "1", "--decode-scale-target", "9"], "--decode-scale-...: of a decode pool"),
        (["--ttft-s", "1", "--decode-outage", "1:2"], "--decode-outage: of a fleet that is given"),
        (["--replicas", "1", "--decode-outage", "1:2"], "--decode-outage: of a decode pool; give"),
        (["--ttft-s", "1", "--what-if", "add=1"], "--what-if=add=1: add is asked with"),
        (["--replicas", "1", "--what-if", "clusters=dgx_b200"], "clusters is asked without"),
        (["--replicas", "1", "--nodes", "1", "--nodes", "2"], "--nodes: 2 numbers for 1 clusters"),
        (["--replicas", "2", "--what-if", "lost=3"], "lost=3: must be a number from 1 to 2"),
        (["--replicas", "1", "--tiers", "lmcache", "--tiers", "hicache"], "--tiers: one set-up"),
        (["--replicas", "1", "--tier-bytes", "1e9"], "--tier-bytes: of tiers; give --tiers"),
        (["--replicas", "1", "--tiers", "ram"], "setup='ram': must be one of"),
        (["--replicas", "1", "--max-retries", "-1"], "max_retries=-1: must be a whole number"),
        (["--replicas", "1", "--outage", "5:1"], "outages: end_s=1 is before begin_s=5"),
        (["--replicas", "1", "--decode-replicas", "1"], "--decode-replicas: of --pools"),
        (["--replicas", "1", "--pools"], "--pools: needs --decode-replicas"),
        (
            ["--replicas", "1", "--pools", "--decode-replicas", "1", "--shed-queue", "9"],
            "--pools: a prefill and a decode pool take no shedding",
        ),
    ],
)
def test_what_cannot_be_asked_together_is_told(
    file: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "llama3_8b", file, "--cluster", "dgx_h100", *options]) == MALFORMED
    assert said in capsys.readouterr().err


def test_ways_to_run_a_fleet_are_searched_as_in_python(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--ttft-p95-s", "0.5", "--json"]
    ways = ["--outage", "7:20:0:1", "--restart-s", "2", "--tiers", "hicache"]
    ways += ["--scale-target", "20", "--scale-startup-s", "1", "--scale-interval-s", "1"]
    assert main([*asked, *ways]) == OK
    told = json.loads(capsys.readouterr().out)
    plan = sm.plan_fleet(
        sm.read_trace(file),
        "llama3_8b",
        "dgx_h100",
        {"ttft_p95_s": 0.5},
        tiers=[None, "hicache"],
        autoscalers=[sm.Autoscaler(target=20, startup_s=1, interval_s=1)],
        outages=[sm.Outage(begin_s=7, end_s=20, first=0, count=1)],
        failures=sm.Failures(restart_s=2),
    )
    assert isinstance(plan, FleetPlan)
    assert told["usd_per_hour"] == plan.usd_per_hour
    assert told["autoscaled"] == ("no" if plan.autoscaler is None else "yes")
    assert told["failures"] == 1
    given = ["fleet", "llama3_8b", file, *GIVEN, "--scale-target", "20", "--scale-startup-s", "1"]
    assert main(given) == OK
    assert json.loads(capsys.readouterr().out)["online_replicas"] < 2


def test_what_if_is_a_table(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases = ["--what-if", "rate=2", "--what-if", "lost=1"]
    planned = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--tpot-s", "0.02", *cases]
    planned += ["--what-if", "clusters=dgx_h100,dgx_h200:2", "--nodes", "2"]
    assert main([*planned, "--json"]) == OK
    rows = json.loads(capsys.readouterr().out)
    assert [row["case"] for row in rows][:3] == ["as it is", "rate=2", "lost=1"]
    assert rows[0]["keeps"] is True
    assert rows[1]["usd_per_hour"] > rows[0]["usd_per_hour"] >= rows[3]["usd_per_hour"]
    assert main(planned) == OK
    assert "2 x dgx_h100 tp1" in capsys.readouterr().out
    given = ["fleet", "llama3_8b", file, *GIVEN[:-1], *cases, "--what-if", "add=1"]
    assert main(given) == OK
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) >= 5
    assert "ttft_p99_s" in shown[0]
    assert main([*given, "--csv"]) == OK
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_more_nodes_hold_more_replicas(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["fleet", "llama3_8b", file, "--cluster", "dgx_h100", "--tp", "8", "--tpot-s", "0.0065"]
    assert main(asked) == NOTHING_FEASIBLE
    assert "1 x dgx_h100 tp8 (all that dgx_h100 hold; more nodes" in capsys.readouterr().err
    assert main([*asked, "--nodes", "4", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["accelerators"] > 8
