"""Paths of announced demands: what a controller chooses, keeps and moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.cli import INFEASIBLE, MALFORMED, OK, main

NAMES = ["time_s", "event", "job", "source", "destination", "size_bytes", "target"]
FABRIC = sm.Fabric.leaf_spine(leaves=4, spines=4, nics_per_leaf=4)


def arrive(time_s: float, job: str, *pairs: tuple[int, int], size: float = 1e9) -> list[Any]:
    return [(time_s, "arrive", job, source, to, size, "") for source, to in pairs]


def event(time_s: float, what: str, *, job: str = "", target: str = "") -> list[Any]:
    return [(time_s, what, job, -1, -1, 0.0, target)]


def frame(*events: list[Any]) -> pd.DataFrame:
    return pd.DataFrame([row for rows in events for row in rows], columns=NAMES)


def random_day(seed: int, events: int = 12) -> pd.DataFrame:
    """Jobs come and go, spines fail and come back."""
    random = np.random.default_rng(seed)
    rows: list[list[Any]] = []
    there: list[str] = []
    down: list[int] = []
    for time in range(events):
        kind = random.integers(4)
        if kind == 1 and there:
            rows.append(event(time, "depart", job=there.pop(int(random.integers(len(there))))))
        elif kind == 2 and len(down) < 2:
            up = [spine for spine in range(4) if spine not in down]
            down.append(int(random.choice(up)))
            rows.append(event(time, "fail", target=f"spine {down[-1]}"))
        elif kind == 3 and down:
            rows.append(event(time, "repair", target=f"spine {down.pop()}"))
        else:
            pairs = [tuple(int(n) for n in random.choice(16, 2, replace=False)) for _ in range(6)]
            there.append(f"job {time}")
            rows.append(arrive(time, there[-1], *pairs, size=float(random.integers(1, 9)) * 1e8))
    return frame(*rows)


# ------------------------------------------------------------------------------------------- laws
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), every=st.sampled_from([0.0, 1.0, 2.5]))
def test_changes_add_up_to_what_every_run_says(seed: int, every: float) -> None:
    plan = sm.plan_paths(FABRIC, random_day(seed), policy="greedy", reoptimise_every_s=every)
    for run in plan.attrs["runs"]:
        own = plan[plan.time_s == run["time_s"]]
        for change in ("new", "moved", "lost"):
            assert (own.change == change).sum() == run[change]
        assert run["drain_s"] >= run["bound_s"] * (1 - 1e-9)
    assert len(plan) == sum(
        run[change] for run in plan.attrs["runs"] for change in ("new", "moved", "lost")
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_paths_are_up_and_join_their_ends(seed: int) -> None:
    day = random_day(seed)
    plan = sm.plan_paths(FABRIC, day, policy="greedy")
    for row in plan.itertuples():
        switches = [int(node) for node in row.via.split("-")] if row.via else []
        if not switches:  # within a leaf
            assert row.source // 4 == row.destination // 4
            continue
        assert (switches[0], switches[2]) == (row.source // 4, row.destination // 4)
        past = day[(day.time_s <= row.time_s) & (day.target == f"spine {switches[1] - 4}")]
        assert past.empty or past.event.iloc[-1] == "repair"


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_every_run_is_as_good_as_a_fresh_routing(seed: int) -> None:
    day = random_day(seed)
    exact, lax = (
        sm.plan_paths(FABRIC, day, policy="greedy", tolerance_fraction=tolerance)
        for tolerance in (0.0, 0.5)
    )
    for one, other in zip(exact.attrs["runs"], lax.attrs["runs"], strict=True):
        assert one["flows"] == other["flows"]
        assert other["drain_s"] <= 1.5 * one["drain_s"] * (1 + 1e-9) or one["drain_s"] == 0
    lazy = sm.plan_paths(FABRIC, day, policy="greedy", tolerance_fraction=1e9)
    downs = day[day.event == "fail"].time_s
    moved = lazy[lazy.change == "moved"]
    assert moved.time_s.isin(downs).all()  # only what lost its path moves


# --------------------------------------------------------------------------------------- examples
def test_a_failure_moves_the_flows_on_it_and_no_others() -> None:
    pairs = [(nic, 4 + nic) for nic in range(4)]
    plan = sm.plan_paths(
        FABRIC, frame(arrive(0, "a", *pairs), event(1, "fail", target="spine 2")), policy="greedy"
    )
    first = plan[plan.time_s == 0]
    assert sorted(first.via) == ["0-4-1", "0-5-1", "0-6-1", "0-7-1"]
    (moved,) = plan[plan.time_s == 1].itertuples()
    assert (moved.change, moved.via != "0-6-1") == ("moved", True)


def test_what_is_announced_has_its_path_before_it_arrives() -> None:
    day = frame(arrive(0, "a", (0, 4)), arrive(5, "b", (1, 5)))
    plan = sm.plan_paths(FABRIC, day, reoptimise_every_s=4)
    assert plan[["time_s", "job"]].values.tolist() == [[0.0, "a"], [4.0, "b"]]
    assert [run["time_s"] for run in plan.attrs["runs"]] == [0.0, 4.0, 8.0]


def test_flows_without_a_path_are_lost_until_a_repair() -> None:
    spines = [event(1, "fail", target=f"spine {spine}") for spine in range(4)]
    day = frame(arrive(0, "a", (0, 4), (0, 1)), *spines, event(2, "repair", target="spine 3"))
    plan = sm.plan_paths(FABRIC, day)
    assert plan.change.tolist() == ["new", "new", "lost", "new"]  # one of them within a leaf
    assert plan.via.tolist()[1:] == ["", "", "0-7-1"]
    assert plan.attrs["verdict"] == "ok"
    lost = sm.plan_paths(FABRIC, day[day.event != "repair"])
    assert lost.attrs["verdict"] == "illegal:disconnected"


def test_a_cable_fails_by_its_nodes() -> None:
    day = frame(arrive(0, "a", (0, 4)), event(1, "fail", target="cable 0 4"))
    assert sm.plan_paths(FABRIC, day, policy="greedy").via.tolist() == ["0-4-1", "0-5-1"]


def test_no_demands_are_no_runs() -> None:
    plan = sm.plan_paths(FABRIC, frame())
    assert len(plan) == 0
    assert plan.attrs["runs"] == []


@pytest.mark.parametrize(
    ("day", "options", "match"),
    [
        (frame(event(0, "depart", job="a")), {}, "job='a' is not there"),
        (frame(arrive(0, "a", (0, 4)), arrive(1, "a", (0, 4))), {}, "there already"),
        (frame(event(0, "repair", target="spine 1")), {}, "is not down"),
        (frame(event(0, "fail", target="spine")), {}, "must be like 'spine 3'"),
        (frame(event(0, "fail", target="spine 9"), arrive(1, "a", (0, 4))), {}, "spine=9"),
        (frame(event(0, "explode")), {}, "event='explode'"),
        (frame(event(-1, "fail", target="spine 1")), {}, "time_s"),
        (frame(arrive(0, "a", (0, 4))).drop(columns="job"), {}, "no column 'job'"),
        (frame(), {"policy": "spray"}, "one path"),
        (frame(), {"tolerance_fraction": -1}, "tolerance_fraction"),
        (frame(), {"reoptimise_every_s": float("nan")}, "reoptimise_every_s"),
    ],
)
def test_malformed_demands_are_named(
    day: pd.DataFrame, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(sm.ScaleModelError, match=match):
        sm.plan_paths(FABRIC, day, **options)


# ---------------------------------------------------------------------------------------- command
def test_the_command_writes_the_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "day.csv"
    day = random_day(3)
    day.to_csv(path, index=False)
    command = ["route", "--leaves", "4", "--spines", "4", "--nics-per-leaf", "4"]
    command += ["--demands", str(path), "--policy", "greedy"]
    assert main([*command, "--csv"]) == OK
    lines = capsys.readouterr().out.splitlines()
    plan = sm.plan_paths(
        sm.Fabric.leaf_spine(leaves=4, spines=4, nics_per_leaf=4, bandwidth="100 Gbit/s"),
        day,
        policy="greedy",
    )
    assert lines[0].split(",") == list(plan.columns)
    assert len(lines) == len(plan) + 1
    assert main([*command, "--json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert [run["moved"] for run in said["runs"]] == [run["moved"] for run in plan.attrs["runs"]]
    assert main([*command, "--reoptimise-every", "4", "--tolerance", "0.1"]) == OK
    assert "runs" in capsys.readouterr().out
    frame(arrive(0, "a", (0, 4)), event(1, "fail", target="leaf 0")).to_csv(path, index=False)
    assert main(command) == INFEASIBLE
    assert main([*command, "--demands", str(tmp_path / "none.csv")]) == MALFORMED
