"""Commands of failures, checkpoints and data: as Python answers, and what cannot run."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

import scalemodel as sm

JOB = ["llama3_8b", "--cluster", "dgx_h100", "--nodes", "8"]
TASK = ["--global-batch", "224", "--sequence", "8192"]
STRATEGY = ["--tp", "2", "--sharding", "hsdp", "--shard-degree", "4"]
ASKED = [*JOB, *TASK, *STRATEGY, "--repair-s", "28800"]


def python_estimate() -> sm.Estimate:
    return sm.estimate(
        "llama3_8b",
        sm.cluster("dgx_h100", nodes=8),
        sm.Training(global_batch=224, sequence=8192),
        sm.Strategy(tp=2, sharding="hsdp", shard_degree=4),
    )


def test_replan_answers_as_python_does(run: Any) -> None:
    ran = run("replan", *ASKED, "--lost-nodes", "2", "--failures", "0.01", "--json")
    assert ran.code == 0
    answer = json.loads(ran.out)
    found = sm.replan(python_estimate(), 2, repair_s=28800, reliability=0.01)
    assert answer["best"] == found.best
    rows = {row["option"]: row for row in answer["options"]}
    work = found.table.set_index("option").work_until_horizon_s
    for option in ("wait", "smaller_batch", "new_strategy"):
        assert rows[option]["work_until_horizon_s"] == work[option]
    assert rows["spares"]["verdict"] == "no_spares"
    assert rows["spares"]["tokens_per_s"] is None


def test_replan_says_in_words_what_does_most(run: Any) -> None:
    ran = run("replan", *ASKED, "--spares", "1", "--read", "disk")
    assert ran.code == 0
    assert ran.out.startswith("lost 1 of 8 nodes, 1 of 8 replicas of the state")
    assert ran.out.splitlines()[-1].startswith("most work until the repair: replica_spares")


def test_plan_spares_answers_as_python_does(run: Any) -> None:
    ran = run("plan-spares", *ASKED, "--most-spares", "2", "--price", "2.5", "--csv")
    assert ran.code == 0
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    table = sm.plan_spares(python_estimate(), repair_s=28800, most_spares=2, price=2.5)
    assert len(rows) == len(table) == 6
    for row, usd in zip(rows, table.usd_per_million_tokens, strict=True):
        assert float(row["usd_per_million_tokens"]) == usd
    shown = run("plan-spares", *ASKED, "--most-spares", "2")
    assert shown.code == 0
    assert [line.split()[0] for line in shown.out.splitlines() if line.endswith("best")] == [
        "restart",
        "drop_replica",
    ]


def test_plan_checkpoints_answers_as_python_does(run: Any) -> None:
    asked = ["plan-checkpoints", *JOB, *TASK, *STRATEGY, "--tier", "local_disk"]
    asked += ["--tier", "object_store", "--failures", "0.01"]
    ran = run(*asked, "--json")
    assert ran.code == 0
    rows = json.loads(ran.out)["checkpoints"]
    table = sm.plan_checkpoints(
        python_estimate(), tiers=["local_disk", "object_store"], failures=0.01
    )
    assert [row["tier"] for row in rows] == list(table.tier)
    assert [row["blocking_s"] for row in rows] == list(table.blocking_s)
    shown = run(*asked)
    assert shown.code == 0
    assert [line for line in shown.out.splitlines() if line.endswith("best")]


@pytest.mark.parametrize("command", ["replan", "plan-spares"])
def test_a_job_that_cannot_run_has_nothing_to_lose(run: Any, command: str) -> None:
    ran = run(command, *JOB, *TASK, "--tp", "3", "--repair-s", "60")
    assert ran.code == 3
    assert ran.err.startswith("scalemodel: error: illegal:mesh")


def test_too_many_lost_nodes_are_a_mistake(run: Any) -> None:
    ran = run("replan", *ASKED, "--lost-nodes", "9")
    assert ran.code == 2
    assert "lost_nodes=9" in ran.err


def test_data_loading_answers_as_python_does(run: Any) -> None:
    asked = ["data-loading", *JOB, *TASK, *STRATEGY, "--read", "object_store", "--cores", "16"]
    asked += ["--images-per-sample", "2000"]
    found = sm.data_loading(python_estimate(), read="object_store", cores=16, images=2000)
    ran = run(*asked, "--json")
    assert ran.code == 3  # every step waits
    assert json.loads(ran.out) == found.to_dict()
    (row,) = csv.DictReader(io.StringIO(run(*asked, "--csv").out))
    assert row["bound"] == found.bound == "decode"
    assert float(row["decode_per_s"]) == found.rates_per_s["decode"]
    table = run(*asked).out.partition("part ")[2].splitlines()
    assert [line.split()[0] for line in table if line.endswith("binds")] == ["decode"]
    assert run("data-loading", *JOB, *TASK, *STRATEGY).code == 0
