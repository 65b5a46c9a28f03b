"""Pipeline schedules side by side."""

from __future__ import annotations

import csv
import io
import json
import math

import pytest

import scalemodel as sm
from scalemodel.cli import main
from scalemodel.search.schedules import SCHEDULES

CLUSTER = sm.cluster("dgx_h100", nodes=4)
TASK = sm.Training(global_batch=256, sequence=4096)
PLAN = sm.Strategy(tp=2, pp=4)


def test_every_schedule_is_answered_as_by_itself() -> None:
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN)
    assert {option.schedule for option in found} == set(SCHEDULES)
    assert len(SCHEDULES) == 8
    assert [o.vpp for o in found if o.schedule == "interleaved"] == [8, 4, 2]
    for option in found:
        alone = sm.estimate(
            "llama3_8b",
            CLUSTER,
            TASK,
            PLAN.replace(schedule=option.schedule, vpp=option.vpp),
        )
        assert option.estimate.core == alone.core


def test_those_that_run_come_first_the_fastest_first() -> None:
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN)
    runs = [option.runs for option in found]
    assert runs == sorted(runs, reverse=True)
    assert not found["gpipe"].runs
    times = [option.estimate.step_time_s for option in found if option.runs]
    assert times == sorted(times)
    assert found.best is found[0]
    bubbles = found.table().set_index(["schedule", "vpp"]).bubble_s
    order = [("1f1b", 1), ("zero_bubble", 1), ("zero_bubble_v", 1)]
    assert [bubbles[each] for each in order] == sorted(
        (bubbles[each] for each in order), reverse=True
    )


def test_memory_is_what_schedules_are_paid_with() -> None:
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN)
    held = found.table().set_index("schedule").memory_activations_bytes
    # Of four stages ZB-2p holds seven micro-batches where zero-bubble holds four.
    assert held["zero_bubble_2p"] / held["zero_bubble"] == pytest.approx(7 / 4)
    assert held["zero_bubble_v"] == pytest.approx(held["1f1b"], rel=0.02)
    weights = {o.schedule: o.estimate.core.memory_weights_bytes for o in found}
    assert weights["dualpipe"] > 1.6 * weights["dualpipe_v"]


def test_an_illegal_schedule_says_why_and_has_no_numbers() -> None:
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK.replace(global_batch=16), PLAN)
    rows = found.table().set_index("schedule")
    for schedule, verdict in (
        ("dualpipe", "illegal:dualpipe_stages"),
        ("dualpipe_v", "illegal:dualpipe_v_batches"),
    ):
        row = rows.loc[schedule]
        assert row.verdict == verdict
        assert "4 micro-batches" in row.reason
        assert math.isnan(row.step_time_s)
        assert row.frameworks == ""
        assert row.reason in str(found)
    assert rows.loc["1f1b"].reason == ""
    assert len(found.estimates) == len(found) - 2
    assert {option.schedule for option in found[-2:]} == {"dualpipe", "dualpipe_v"}


def test_frameworks_that_do_not_start_a_schedule_say_why() -> None:
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN)
    assert found["1f1b"].frameworks == ("megatron", "megatron_bridge", "nemo", "torchtitan")
    assert found["zero_bubble_v"].frameworks == ()
    assert "torch.compile" in found["zero_bubble_v"].refused["torchtitan"]
    assert "schedule=dualpipe_v" in found["dualpipe_v"].refused["megatron"]
    assert found["1f1b"].refused["deepspeed"] == "its settings do not say pp=4"


def test_malformed_questions_name_the_argument() -> None:
    with pytest.raises(sm.ScaleModelError, match=r"strategy\.pp=1"):
        sm.compare_schedules("llama3_8b", CLUSTER, TASK)
    with pytest.raises(sm.ScaleModelError, match=r"vpp=\[1\]"):
        sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN, vpp=[1])
    with pytest.raises(KeyError):
        sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN)["gpipes"]


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compare-schedules", "llama3_8b", "--cluster", "dgx_h100", "--nodes", "4"]
    command += ["--global-batch", "256", "--sequence", "4096", "--tp", "2", "--pp", "4"]
    command += ["--interleave", "2"]
    found = sm.compare_schedules("llama3_8b", CLUSTER, TASK, PLAN, vpp=[2])
    assert main(command) == 0
    assert capsys.readouterr().out == f"{found}\n"
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["schedules"]
    assert [row["schedule"] for row in rows] == [option.schedule for option in found]
    assert rows[0]["step_time_s"] == found[0].estimate.step_time_s
    assert main([*command, "--csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["schedule"] for row in table] == [row["schedule"] for row in rows]
