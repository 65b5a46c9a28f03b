"""A measured job carried over to other sizes of its cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.cli import main
from scalemodel.codesign.vary import PEAK, Hardware
from scalemodel.estimator.projection import carried
from scalemodel.interop.jobs import read_profile
from scalemodel.interop.jobs.projection import _ratio_at, _step, predicted_parts
from scalemodel.interop.traces import KinetoTrace, read_kineto

NODE = sm.cluster("dgx_h100")
TASK = sm.Training(global_batch=32, sequence=8192)
STACK = "nemo_mcore_2024_25"
PLANS = {
    "tensor ranks": sm.Strategy(tp=4),
    "full sharding": sm.Strategy(sharding="zero3", recompute="full"),
    "pipeline": sm.Strategy(tp=2, pp=2, micro_batch=1),
}
SIZES = [1, 2, 16, 128]


def asked(plan: sm.Strategy, cluster: Any = NODE, batch: int = 32) -> sm.Estimate:
    task = TASK.replace(global_batch=batch)
    return sm.estimate("llama3_8b", cluster, task, plan, stack=STACK)


def trace_of(est: sm.Estimate, folder: Path) -> KinetoTrace:
    """The predicted step as a profiler would have recorded it on the first rank."""
    files = sm.write_kineto(est.timeline(), folder)
    return replace(read_kineto(files[0]), world_size=None)


# ------------------------------------------------------------------------------------------- laws
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("mode", ["weak", "strong"])
def test_a_job_that_runs_as_predicted_projects_to_its_predictions(name: str, mode: str) -> None:
    est = asked(PLANS[name], batch=32 if mode == "weak" else 1024)
    for profile in (est.step_time_s, [est.step_time_s] * 5):
        found = sm.project(profile, est, nodes=SIZES, mode=mode)
        for step in found.steps:
            batch = est.task.global_batch * (step.nodes if mode == "weak" else 1)
            same = asked(PLANS[name], sm.cluster("dgx_h100", nodes=step.nodes), batch)
            assert step.estimate == same
            assert step.step_time_s == pytest.approx(same.step_time_s, rel=1e-9)
            assert step.low_s <= step.step_time_s <= step.high_s
            assert step.same_layout


def test_parts_as_predicted_change_nothing() -> None:
    est = asked(PLANS["full sharding"])
    whole = sm.project(est.step_time_s, est, nodes=SIZES)
    read = read_profile(est.step_time_s, est)
    with_parts = replace(read, parts=predicted_parts(est))
    for step in whole.steps[1:]:
        assert _step(with_parts, est, step.estimate, step.nodes) == step


@given(slower=st.floats(0.5, 3.0), more=st.floats(1.01, 2.0))
@settings(max_examples=20, deadline=None)
def test_a_slower_node_means_a_slower_cluster(slower: float, more: float) -> None:
    est = asked(PLANS["tensor ranks"])
    one, other = (
        sm.project(factor * est.step_time_s, est, nodes=[4, 64])
        for factor in (slower, slower * more)
    )
    share = carried("named", same_layout=True).carried_fraction
    for first, second in zip(one.steps, other.steps, strict=True):
        assert second.step_time_s / first.step_time_s == pytest.approx(more**share, rel=1e-9)


@pytest.mark.parametrize("name", ["tensor ranks", "full sharding"])
def test_what_slows_a_node_is_found_again_on_many(name: str) -> None:
    """The truth is a cluster whose accelerators are slower than the catalogue says."""
    hardware = Hardware(NODE)
    slow = hardware.build(hardware.design({PEAK: 0.7}))
    truth = asked(PLANS[name], slow)
    found = sm.project(truth.step_time_s, asked(PLANS[name]), nodes=[16, 128])
    for step in found.steps:
        size = sm.cluster(slow, accelerators=step.estimate.cluster.accelerators)
        true_s = asked(PLANS[name], size, 32 * step.nodes).step_time_s
        missed = abs(float(step.estimate.core.step_time_s) / true_s - 1)
        assert missed > 0.08
        assert abs(step.step_time_s / true_s - 1) < 0.25 * missed
        assert step.low_s < true_s < step.high_s


def test_the_network_beyond_the_node_takes_no_ratio_along() -> None:
    """Communication of a node that is three times as slow as predicted says nothing of a fabric."""
    est = asked(PLANS["full sharding"])
    far = sm.project(est.step_time_s, est, nodes=[128]).steps[0].estimate
    here, there = predicted_parts(est), predicted_parts(far)
    assert there["communication"] > 2 * here["communication"] > 0
    read = replace(read_profile(est.step_time_s, est), parts=dict(here))
    read.parts["communication"] *= 3
    excess_s = float(far.core.step_time_s) * (_ratio_at(read, est, far) - 1)
    assert excess_s == pytest.approx(2 * here["communication"], rel=1e-9)


# ------------------------------------------------------------------------------------- what is read
def test_a_trace_divides_the_step(tmp_path: Path) -> None:
    est = asked(PLANS["tensor ranks"])
    trace = trace_of(est, tmp_path)
    found = sm.project(trace, est, nodes=[1, 16])
    factors = found.factors().set_index("part")
    assert factors.index.tolist() == ["step", "compute", "communication", "host"]
    assert factors.measured_s["step"] == pytest.approx(factors.measured_s.iloc[1:].sum())
    assert factors.ratio["step"] == pytest.approx(1, abs=0.02)
    assert factors.ratio["compute"] == pytest.approx(1, abs=0.03)
    assert factors.ratio["communication"] == pytest.approx(1, abs=0.1)
    assert found.steps[1].step_time_s == pytest.approx(
        found.steps[1].estimate.step_time_s, rel=0.03
    )
    several = sm.project([trace, trace], est, nodes=16)
    assert several.steps[0].step_time_s == pytest.approx(found.steps[1].step_time_s)
    assert "compute:" in found.explain()
    assert "as measured" in found.explain()
    path = next(tmp_path.glob("*.gz"))
    with pytest.raises(sm.ScaleModelError, match="traces are of 1 ranks, the estimate of 8"):
        sm.project(path, est, nodes=16)


def test_a_log_and_its_seconds_say_the_same() -> None:
    est = asked(PLANS["tensor ranks"])
    line = " iteration {}/ 30 | elapsed time per iteration (ms): {} |"
    times_s = [9.0, 8.0] + [1.2 * est.step_time_s] * 18
    text = "\n".join(line.format(i, 1e3 * time_s) for i, time_s in enumerate(times_s, 1))
    from_log = sm.project(text, est, nodes=[1, 8])
    from_times = sm.project(times_s[2:], est, nodes=[1, 8])
    assert from_log.profile.steps == from_times.profile.steps == 18
    assert from_log.ratio == pytest.approx(from_times.ratio, rel=1e-12)
    assert from_log.table().step_time_s.tolist() == pytest.approx(
        from_times.table().step_time_s.tolist(), rel=1e-12
    )
    assert from_log.profile.source == "a log of megatron"


def test_another_layout_is_known_less_surely() -> None:
    est = asked(PLANS["tensor ranks"])
    same = sm.project(1.2 * est.step_time_s, est, nodes=64).steps[0]
    other = sm.project(
        1.2 * est.step_time_s, est, nodes=64, strategy=sm.Strategy(tp=2, recompute="full")
    ).steps[0]
    assert same.same_layout
    assert not other.same_layout
    assert other.high_s / other.low_s > same.high_s / same.low_s
    assert 1 < other.step_time_s / float(other.estimate.core.step_time_s) < 1.2


def test_a_size_that_cannot_run_has_a_verdict_and_no_numbers() -> None:
    est = asked(PLANS["pipeline"], batch=32)
    found = sm.project(est.step_time_s, est, nodes=[1, 4], mode="strong")
    ruled_out = sm.project(est.step_time_s, est, nodes=[1, 1024], mode="strong")
    table = ruled_out.table()
    assert table.verdict.tolist()[0] == "ok"
    assert table.verdict[1].startswith("illegal")
    assert table.step_time_s.isna().tolist() == [False, True]
    assert "illegal" in repr(ruled_out)
    assert "illegal" in ruled_out.explain()
    assert found.to_dict()["sizes"][1]["verdict"] == "ok"
    assert json.loads(json.dumps(ruled_out.to_dict()))["sizes"][1]["step_time_s"] is None


@pytest.mark.parametrize(
    "change, says",
    [
        ({"profile": -1.0}, "must be finite and above 0"),
        ({"profile": []}, "must be a trace of PyTorch's profiler"),
        ({"profile": {"a": 1}}, "must be a trace of PyTorch's profiler"),
        ({"profile": "/nowhere/train.log"}, "cannot be read"),
        ({"nodes": [0]}, "nodes=0: must be a positive whole number"),
        ({"nodes": [2, 2]}, "2 is listed twice"),
        ({"nodes": []}, "at least one size"),
        ({"mode": "wide"}, "mode='wide': must be 'weak' or 'strong'"),
        ({"est": None}, "only a log of Megatron names its job"),
        ({"est": "llama3_8b"}, "must be an Estimate of the measured job"),
    ],
)
def test_bad_questions_are_refused(change: dict[str, Any], says: str) -> None:
    question = {"profile": 1.0, "est": asked(PLANS["tensor ranks"]), "nodes": [2], **change}
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.project(question.pop("profile"), question.pop("est"), **question)


# --------------------------------------------------------------------------------- command line
JOB = [
    *("llama3_8b", "--cluster", "dgx_h100", "--global-batch", "32", "--sequence", "8192"),
    *("--tp", "4", "--stack", STACK),
]


def test_the_command_says_what_python_says(capsys: pytest.CaptureFixture[str]) -> None:
    found = sm.project(2.5, asked(PLANS["tensor ranks"]), nodes=[1, 16])
    assert main(["project", "2.5", *JOB, "--nodes", "1", "16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found.to_dict()
    assert main(["project", "2.5", *JOB, "--nodes", "1", "16"]) == 0
    assert capsys.readouterr().out == f"{found.explain()}\n"
    assert main(["project", "2.5", *JOB, "--nodes", "16", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("nodes,accelerators,global_batch,verdict")
    assert main(["project", "2.5", "llama3_8b", "--cluster", "dgx_h100", "--nodes", "2"]) == 2
    assert "needs --global-batch, --sequence" in capsys.readouterr().err
    two = [*JOB, "--measured-nodes", "2", "--nodes", "2", "4", "--json"]
    assert main(["project", "2.5", *two]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"][0]["step_time_s"] == 2.5
