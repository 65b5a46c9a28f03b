"""Knobs of a strategy that trade memory against communication: what each must and must not move."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.estimator.evaluation import MEMORY_COLUMNS, TIME_COLUMNS

MODEL = "llama3_70b"
TASK = sm.Training(global_batch=256, sequence=8192)


def ask(task: sm.Training = TASK, stack: str = "plain", **knobs: Any) -> sm.Estimate:
    plan = sm.Strategy(**{"tp": 8, "pp": 2, **knobs})
    est = sm.estimate(MODEL, sm.cluster("dgx_h100", nodes=8), task, plan, stack=stack)
    assert not est.illegal
    return est


def sends(est: sm.Estimate) -> pd.DataFrame:
    """Transfers between stages, in time."""
    events = est.timeline().events
    return events[events.kind.str.startswith("send_")].reset_index(drop=True)


def moved(before: sm.Estimate, after: sm.Estimate) -> set[str]:
    """Parts of the time and of the memory that differ by more than rounding."""
    return {
        name
        for name in (*TIME_COLUMNS, *MEMORY_COLUMNS)
        if getattr(before, name) != pytest.approx(getattr(after, name), rel=1e-9, abs=1e-12)
    }


# ------------------------------------------------------------------------------- gathering again
@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("vpp", [1, 4])
def test_inputs_kept_whole_cost_memory_and_save_a_gather(recompute: str, vpp: int) -> None:
    again = ask(recompute=recompute, vpp=vpp)
    kept = ask(recompute=recompute, vpp=vpp, regather=False)
    assert kept.exposed_tp_s < again.exposed_tp_s
    assert kept.memory_activations_bytes > again.memory_activations_bytes
    assert kept.compute_s == again.compute_s
    # Chunks wait for one another otherwise when their passes are shorter: what is exposed of other
    # traffic feels it, hardly.
    waits = {"exposed_dp_s", "exposed_pp_s"} if vpp > 1 else set()
    assert moved(again, kept) - waits <= {
        "exposed_tp_s",
        "bubble_s",
        "memory_activations_bytes",
        "memory_temporary_bytes",
        "memory_reserve_bytes",
    }
    for name in waits:
        assert getattr(kept, name) == pytest.approx(getattr(again, name), rel=0.01)


def test_gathering_again_is_a_fifth_of_the_traffic() -> None:
    """Forward: gather and scatter. Backward: scatter, gather, and the gather of the kept input."""
    again, kept = ask().exposed_tp_s, ask(regather=False).exposed_tp_s
    assert kept / again == pytest.approx(4 / 5, rel=0.02)


def test_keeping_inputs_whole_undoes_what_the_split_saved_of_them() -> None:
    whole = ask(sequence_parallel=False).memory_activations_bytes
    split = ask().memory_activations_bytes
    kept = ask(regather=False).memory_activations_bytes
    assert split < kept < whole


@pytest.mark.parametrize(
    "knobs", [{"tp": 1}, {"sequence_parallel": False}, {"tp": 1, "sequence_parallel": False}]
)
def test_nothing_is_gathered_again_where_nothing_is_split(knobs: dict[str, Any]) -> None:
    assert ask(**knobs).core == ask(**knobs, regather=False).core


# --------------------------------------------------------------------------- pipeline transfers
@pytest.mark.parametrize("vpp", [1, 2])
def test_sending_everything_takes_tp_times_as_long_and_as_much_room(vpp: int) -> None:
    parts = ask(sequence_parallel=False, vpp=vpp)
    whole = ask(sequence_parallel=False, vpp=vpp, split_p2p=False)
    # Gradients hide under waits for other chunks too.
    waits = {"exposed_dp_s"} if vpp > 1 else set()
    assert moved(parts, whole) - waits == {
        "exposed_pp_s",
        "memory_communication_bytes",
        "memory_reserve_bytes",
    }
    assert whole.exposed_dp_s == pytest.approx(parts.exposed_dp_s, rel=0.01)
    # Latency stays, bytes grow eightfold. Chunks that wait anyway hide a part of what is sent, the
    # same part of both: only without them what is exposed grows as what is sent does.
    few, many = sends(parts), sends(whole)
    assert (many.bytes / few.bytes).unique().tolist() == [8]
    assert (many.duration_s / few.duration_s).between(1, 8, inclusive="neither").all()
    if vpp == 1:
        assert 1 < whole.exposed_pp_s / parts.exposed_pp_s < 8
    more_s = many.duration_s.sum() - few.duration_s.sum()
    assert 0 < whole.exposed_pp_s - parts.exposed_pp_s < more_s
    assert whole.memory_communication_bytes == 8 * parts.memory_communication_bytes
    waited_s = whole.exposed_dp_s - parts.exposed_dp_s
    assert whole.step_time_s - parts.step_time_s == pytest.approx(
        whole.exposed_pp_s - parts.exposed_pp_s + waited_s
    )


@pytest.mark.parametrize(
    "knobs",
    [
        {"sequence_parallel": True},
        {"tp": 1, "pp": 4, "sequence_parallel": False},
        {"pp": 1, "sequence_parallel": False},
    ],
)
def test_parts_are_sent_anyway_or_nothing_is_sent(knobs: dict[str, Any]) -> None:
    assert ask(**knobs).core == ask(**knobs, split_p2p=False).core


# --------------------------------------------------------------- overlap of tensor parallelism
@pytest.mark.parametrize("sequence_parallel", [True, False])
@pytest.mark.parametrize("tp", [2, 8])
def test_overlap_hides_traffic_and_slows_the_kernels_above_it(
    tp: int, sequence_parallel: bool
) -> None:
    knobs = {"tp": tp, "sequence_parallel": sequence_parallel}
    off = ask(overlap_tp="off", **knobs)
    for kind in ("ring", "pipelined"):
        hidden = ask(overlap_tp=kind, **knobs)
        assert hidden.exposed_tp_s < off.exposed_tp_s
        assert hidden.hidden_s > off.hidden_s
        assert hidden.compute_s >= off.compute_s
        assert hidden.memory_bytes == off.memory_bytes
        assert hidden.step_time_s < off.step_time_s


def test_the_two_kinds_of_overlap_differ() -> None:
    """A ring moves a chunk at a time; the pipelined form leaves its first and last chunk open."""
    ring, pipelined = ask(overlap_tp="ring"), ask(overlap_tp="pipelined")
    assert moved(ring, pipelined) >= {"exposed_tp_s"}
    assert ring.exposed_tp_s != pipelined.exposed_tp_s


def test_overlap_left_to_the_stack_is_one_of_the_named_kinds() -> None:
    cores = {kind: ask(overlap_tp=kind).core for kind in ("stack", "off", "ring")}
    assert cores["stack"] in (cores["off"], cores["ring"])
    assert cores["off"] != cores["ring"]


def test_one_rank_has_no_tensor_parallel_traffic_to_hide() -> None:
    cores = [ask(tp=1, pp=4, overlap_tp=kind).core for kind in ("off", "ring", "pipelined")]
    assert cores[0] == cores[1] == cores[2]


# --------------------------------------------------------------------------- precision of layers
def test_narrow_layers_compute_faster_on_smaller_inputs_beside_a_copy_of_the_weights() -> None:
    wide, narrow = ask(), ask(linear_precision="fp8")
    assert narrow.compute_s < wide.compute_s
    assert narrow.memory_activations_bytes < wide.memory_activations_bytes
    assert narrow.memory_weights_bytes == pytest.approx(1.5 * wide.memory_weights_bytes)
    assert narrow.exposed_tp_s == wide.exposed_tp_s  # what travels stays in BF16
    for name in ("gradients", "optimizer", "communication"):
        column = f"memory_{name}_bytes"
        assert getattr(narrow, column) == getattr(wide, column)


def test_wide_layers_take_longer_and_twice_the_bytes() -> None:
    short, wide = ask(), ask(linear_precision="fp32")
    assert wide.compute_s > short.compute_s
    assert wide.exposed_tp_s > short.exposed_tp_s
    assert wide.memory_weights_bytes == pytest.approx(2 * short.memory_weights_bytes)
    # What is counted in bytes whatever the format, such as statistics of norms, stays.
    ratio = wide.memory_activations_bytes / short.memory_activations_bytes
    assert ratio == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "fp8"])
def test_a_layers_precision_is_the_tasks_when_it_names_the_same(precision: Any) -> None:
    task = TASK.replace(precision=precision)
    assert ask(task).core == ask(task, linear_precision=precision).core
    # The step is the same as if the task had said so; the task's own peak decides utilisation.
    named = ask(linear_precision=precision)
    assert named.step_time_s == ask(task).step_time_s
    assert named.memory_bytes == ask(task).memory_bytes


def test_a_precision_without_a_rate_is_illegal_and_in_no_space() -> None:
    cluster, plan = sm.cluster("dgx_h100"), sm.Strategy(tp=8, linear_precision="fp4")
    assert sm.estimate(MODEL, cluster, TASK, plan).verdict == "illegal:precision"
    narrow = sm.Space(linear_precision=["fp4", "fp8"], tp=8)
    found = {s.linear_precision for s in narrow.strategies(MODEL, cluster, TASK)}
    assert found == {"fp8"}
    blackwell = sm.cluster("dgx_b200")
    found = {s.linear_precision for s in narrow.strategies(MODEL, blackwell, TASK)}
    assert found == {"fp4", "fp8"}


# ---------------------------------------------------------------------------------- batch limits
@pytest.mark.parametrize(
    ("tp", "dp", "sequences"), [(1, 64, 1), (2, 32, 3), (4, 16, 6), (8, 8, 12)]
)
def test_a_replica_takes_what_a_limited_batch_leaves_it(tp: int, dp: int, sequences: int) -> None:
    task = TASK.replace(global_batch=100, batch_is_limit=True)
    est = ask(task, tp=tp, pp=1)
    assert est.dp == dp
    assert est.micro_batches == sequences == 100 // dp
    assert est.tokens_per_s * est.step_time_s == pytest.approx(dp * sequences * TASK.sequence)
    # The same step as of a task that asks for exactly that batch.
    exact = ask(TASK.replace(global_batch=dp * sequences), tp=tp, pp=1)
    assert exact.core == est.core


def test_a_limit_below_the_replicas_leaves_nothing_to_do() -> None:
    task = TASK.replace(global_batch=7, batch_is_limit=True)
    cluster = sm.cluster("dgx_h100", nodes=8)
    assert sm.estimate(MODEL, cluster, task, sm.Strategy(tp=8)).verdict == "illegal:batch"
    assert {s.dp for s in sm.Space(cp=1).strategies(MODEL, cluster, task)} <= {1, 2, 4}


def test_a_micro_batch_divides_what_the_limit_leaves() -> None:
    task = TASK.replace(global_batch=100, batch_is_limit=True)
    cluster = sm.cluster("dgx_h100", nodes=8)
    space = sm.Space(tp=8, pp=1, cp=1, micro_batch=range(1, 13))
    found = {s.micro_batch for s in space.strategies(MODEL, cluster, task)}
    assert found == {1, 2, 3, 4, 6, 12}
