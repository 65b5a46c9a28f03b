"""Laws of fixes and next knobs: they hold what they promise, in order, and repeat exactly."""

from __future__ import annotations

import pytest

import scalemodel as sm
from questions import ILLEGAL, illegal_estimate
from scalemodel import resolve
from scalemodel.estimator import diagnosis
from scalemodel.estimator.diagnosis import Fix
from scalemodel.estimator.evaluation import TIME_COLUMNS, launches_s, stack_of, tables_for
from scalemodel.explorer.view import view_html

TASK = sm.Training(global_batch=1024, sequence=8192)


def ask(**knobs: object) -> sm.Estimate:
    cluster = sm.cluster("dgx_h100", nodes=64)
    return sm.estimate("llama3_70b", cluster, TASK, sm.Strategy(**knobs))  # type: ignore[arg-type]


def assert_keeps_its_promise(est: sm.Estimate, fix: Fix) -> None:
    again = sm.estimate(est.model, est.cluster, fix.task, fix.strategy, stack=est.stack)
    assert again.verdict == fix.verdict
    assert again.step_time_s == fix.step_time_s
    assert again.memory_bytes == fix.memory_bytes
    if est.illegal:
        assert fix.time_change_fraction is None
        assert fix.memory_change_bytes is None
    else:
        assert fix.time_change_fraction == pytest.approx(fix.step_time_s / est.step_time_s - 1)
        assert fix.memory_change_bytes == pytest.approx(fix.memory_bytes - est.memory_bytes)


# ------------------------------------------------------------------------------------------ fixes
@pytest.mark.parametrize("knobs", [{}, {"tp": 2}, {"pp": 4}, {"sharding": "ddp", "tp": 4}], ids=str)
def test_fixes_of_memory_fit_and_are_ranked(knobs: dict[str, object]) -> None:
    est = ask(**knobs)
    assert est.verdict == "out_of_memory"
    found = diagnosis.fixes(est)
    assert found
    assert all(fix.verdict == "ok" for fix in found)
    assert [fix.step_time_s for fix in found] == sorted(fix.step_time_s for fix in found)
    assert len({fix.change for fix in found}) == len(found)
    for fix in found:
        assert fix.memory_bytes <= est.memory_capacity_bytes
        assert fix.task == est.task
        assert_keeps_its_promise(est, fix)


@pytest.mark.parametrize("reason", ILLEGAL)
def test_every_illegal_strategy_has_a_legal_neighbour(reason: str) -> None:
    est = illegal_estimate(reason)
    found = diagnosis.fixes(est)
    assert found
    fits = [fix.verdict == "ok" for fix in found]
    assert fits == sorted(fits, reverse=True)
    for fix in found:
        assert fix.verdict in ("ok", "out_of_memory")
        assert (fix.strategy, fix.task) != (est.strategy, est.task)
        assert_keeps_its_promise(est, fix)


def test_fixes_are_the_nearest_legal_values() -> None:
    est = illegal_estimate("tp_heads")
    assert sorted(fix.strategy.tp for fix in diagnosis.fixes(est)) == [8, 16]


def test_a_given_data_parallel_degree_is_corrected_first() -> None:
    est = ask(tp=8, pp=4, dp=15)
    (fix,) = diagnosis.fixes(est)
    assert fix.change == "dp 15→16"
    assert fix.verdict == "ok"


def test_a_batch_is_rounded_to_its_neighbours() -> None:
    est = illegal_estimate("batch")
    batches = {fix.task.global_batch for fix in diagnosis.fixes(est)}
    assert {992, 1008} <= batches


def test_count_limits_the_fixes() -> None:
    est = ask()
    assert len(diagnosis.fixes(est, count=1)) == 1
    assert diagnosis.fixes(est, count=2)[0] == diagnosis.fixes(est)[0]


def test_what_runs_needs_no_fix() -> None:
    assert diagnosis.fixes(ask(tp=8, pp=4)) == []


def test_what_cannot_be_helped_has_no_fix() -> None:
    cluster = sm.cluster("dgx_h100", nodes=1)
    task = sm.Training(global_batch=8, sequence=8192)
    assert diagnosis.fixes(sm.estimate("megatron_1t", cluster, task)) == []


# -------------------------------------------------------------------------------------- next knobs
@pytest.mark.parametrize(
    "knobs",
    [{"tp": 8, "pp": 4}, {"tp": 8, "pp": 8, "recompute": "full"}, {"tp": 8, "sharding": "zero3"}],
    ids=str,
)
def test_next_knobs_are_faster_and_fit(knobs: dict[str, object]) -> None:
    est = ask(**knobs)
    assert est.fits
    found = diagnosis.next_knobs(est, count=10)
    assert found
    assert [fix.step_time_s for fix in found] == sorted(fix.step_time_s for fix in found)
    for fix in found:
        assert fix.verdict == "ok"
        assert fix.step_time_s < est.step_time_s
        assert_keeps_its_promise(est, fix)
    assert diagnosis.next_knobs(est, count=1) == found[:1]


def test_following_the_next_knob_ends() -> None:
    est, steps = ask(tp=8, pp=8, recompute="full"), 0
    while better := diagnosis.next_knobs(est, count=1):
        est = sm.estimate(est.model, est.cluster, TASK, better[0].strategy)
        steps += 1
        assert steps < 50
    assert steps > 0
    assert est.fits


def test_full_recomputation_is_worth_leaving() -> None:
    changes = [fix.change for fix in diagnosis.next_knobs(ask(tp=8, pp=8, recompute="full"), 10)]
    assert any(change.startswith("recompute full→") for change in changes)


@pytest.mark.parametrize("knobs", [{}, {"tp": 7}], ids=str)
def test_what_does_not_run_has_no_next_knob(knobs: dict[str, object]) -> None:
    assert diagnosis.next_knobs(ask(**knobs)) == []


# -------------------------------------------------------------------------------------- what limits
def test_losses_are_ranked_parts_of_the_step() -> None:
    est = ask(tp=8, pp=4, recompute="full")
    found = diagnosis.losses(est)
    times = [loss.time_s for loss in found]
    assert times == sorted(times, reverse=True)
    assert all(0 <= time_s < est.step_time_s for time_s in times)
    assert sum(times) < est.step_time_s
    terms = {loss.term: loss.time_s for loss in found}
    assert terms["exposed_tp"] == est.exposed_tp_s
    assert terms["bubble"] == est.bubble_s
    assert 0 < terms["recomputation"] < 0.5 * est.compute_s


def test_a_slow_network_limits() -> None:
    slow = sm.cluster({"base": "dgx_h100", "scale_up": {"bandwidth": "20 GB/s"}}, nodes=64)
    est = sm.estimate("llama3_70b", slow, TASK, sm.Strategy(tp=8, pp=4))
    assert diagnosis.what_limits(est).startswith("tensor-parallel communication")


def test_a_long_pipeline_limits() -> None:
    cluster = sm.cluster("dgx_h100", nodes=64)
    task = sm.Training(global_batch=64, sequence=8192)
    est = sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=4, pp=16, cp=2))
    assert diagnosis.what_limits(est).startswith("pipeline stages waiting")


def test_memory_and_rules_limit_too() -> None:
    assert diagnosis.what_limits(ask()).startswith("memory: ")
    assert diagnosis.what_limits(ask(tp=7)) == "illegal:mesh"
    assert diagnosis.losses(ask(tp=7)) == []


# ------------------------------------------------------------------------------------------- host
def slow_host() -> sm.Estimate:
    """Many small kernels on fast accelerators, recomputed in full."""
    task = sm.Training(global_batch=2048, sequence=4096, precision="fp8")
    strategy = sm.Strategy(tp=8, pp=4, ep=16, recompute="full")
    cluster = sm.cluster("dgx_b200", nodes=32)
    return sm.estimate("deepseek_v3", cluster, task, strategy, stack="megatron_bridge_2025_11")


def test_the_host_is_named_where_it_is_the_limit() -> None:
    est = slow_host()
    found = sm.diagnose(est)
    assert found.limit.startswith("the host, which cannot launch kernels faster: ")
    assert found.losses[0].term == "launches"
    for text in (str(found), est.summary(), view_html(est)):
        assert "limited by: the host" in text


def test_launches_are_what_compute_loses_without_them() -> None:
    est = slow_host()
    at_once = stack_of(est).replace(host_launch_s=0.0)
    without = tables_for(est.model, est.cluster, est.task, at_once).estimate(est.strategy)
    assert launches_s(est) == pytest.approx(est.compute_s - without.compute_s)
    assert 0 < launches_s(est, recomputed=False) < launches_s(est)
    (part,) = [each for each in est.explain("compute").children if each.name == "launches"]
    assert part.value == launches_s(est, recomputed=False)


def test_launches_are_a_line_wherever_causes_of_time_are_listed() -> None:
    est = slow_host()
    frame = est.breakdown().set_index("cause")
    assert list(frame.index) == ["compute", "launches", *(c[:-2] for c in TIME_COLUMNS[1:])]
    assert frame.time_s["launches"] == launches_s(est) > 0.4 * est.step_time_s
    assert frame.time_s["compute"] + frame.time_s["launches"] == pytest.approx(est.compute_s, 1e-12)
    assert frame.time_s.sum() == pytest.approx(est.step_time_s, rel=1e-12)
    share = f"{100 * frame.share_fraction['launches']:.1f} %"
    (time_line,) = [line for line in est.summary().splitlines() if line.startswith("time ")]
    assert f"launches {share}" in time_line
    assert ">launches</th>" in view_html(est)
    assert "launches" in list(sm.compare(est, est).causes().cause)


def test_launches_of_layer_groups_are_a_line_too() -> None:
    task = sm.Training(global_batch=256, sequence=197)
    model, cluster = sm.compose("vit_b"), sm.cluster("dgx_b200")
    at_once = resolve.stack("plain").replace(host_launch_s=0.0)
    slow, fast = (
        sm.estimate(model, cluster, task, stack=at_once.replace(host_launch_s=host_s))
        for host_s in (50e-6, 0.0)
    )
    parts = slow.time_by_cause()
    assert parts["launches"] == slow.compute_s - fast.compute_s > 0
    assert sum(parts.values()) == pytest.approx(slow.step_time_s, rel=1e-12)
    assert fast.time_by_cause()["launches"] == 0
    labels = [text.get_text() for text in sm.plot.breakdown(slow).get_legend().get_texts()]
    assert labels[:2] == ["compute", "launches"]


def test_a_host_that_keeps_up_is_no_loss() -> None:
    est = ask(tp=8, pp=4)
    assert launches_s(est) == est.time_by_cause()["launches"] == 0
    assert "host" not in sm.diagnose(est).limit
    assert all(part.name != "launches" for part in est.explain("compute").children)
