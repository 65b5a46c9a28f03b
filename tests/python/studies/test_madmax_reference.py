"""MAD-Max's own numbers from its formulas, and what each of its simplifications costs.

The evaluator of `scalemodel.studies.madmax_original` must give every timing of the original's
table; then what it says when one formula is mended is the price of that formula, not of our
reading of it.
"""

from __future__ import annotations

import csv
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.madmax_inputs import comparable_as, question_of
from scalemodel.studies.madmax_original import CORRECTIONS, Question, ask, step

Rows = list[dict[str, str]]

TIMES_MS = {
    "t_gemm_ms": "gemm",
    "t_emb_ms": "lookup",
    "t_all2all_ms": "all_to_all",
    "t_allreduce_ms": "all_reduce",
    "t_allgather_ms": "all_gather",
    "t_reducescatter_ms": "reduce_scatter",
}


ZIONEX, DC_A = "zionex/zionex", "dc_A/dc_A"

#: A step of each family and kind of mesh, and the milliseconds the evaluator gives it.
OWN_RESULTS = [
    (ask("dlrm/dlrm_a", ZIONEX, 128, "ddp@128", 65536), 54.0024216),
    (ask("dlrm/dlrm_a", ZIONEX, 128, "fsdp@128", 65536), 72.9618152),
    (ask("dlrm/dlrm_a", ZIONEX, 8, "ddp@8", 4096), 28.8552948),
    (ask("dlrm/dlrm_i", ZIONEX, 128, "tp@8+ddp@16", 65536, tables="mp@8+ddp@16"), 18.7144599),
    (ask("dlrm/dlrm_a", ZIONEX, 128, "fsdp@8+tp@16", 65536, tables="ddp@8+mp@16"), 300.723645),
    (ask("dlrm_moe/dlrm_a_moe", ZIONEX, 128, "ddp@8+tp@16", 65536), 139.451031),
    (ask("dlrm_moe/dlrm_a_moe", ZIONEX, 128, "fsdp@128", 65536, task="inference"), 108.441199),
    (
        ask(
            "dlrm_transformer/dlrm_a_transformer",
            ZIONEX,
            128,
            "tp@8+ddp@16",
            65536,
            transformer="fsdp@8+ddp@16",
        ),
        92.5785115,
    ),
    (ask("llm/gpt3_175b", DC_A, 2048, "fsdp@2048", 2048), 16380.4267),
    (ask("llm/llama_65b", DC_A, 2048, "fsdp@2048", 2048, early=True), 3045.4656),
    (ask("llm/llama2_70b", DC_A, 2048, "tp@8+ddp@256", 2048, task="inference"), 2295.78826),
    (ask("llm_moe/gpt4_1.8t", DC_A, 2048, "fsdp@8+tp@256", 2048), 613133.818),
    (ask("vit/vit_10b", ZIONEX, 128, "ddp@128", 2048, early=True), 1577.11574),
    (ask("vit/vit_120b", "cloud_A/cloud_A_h100.80", 128, "fsdp@8+ddp@16", 2048), 12401.2008),
]


@pytest.mark.parametrize("question, step_ms", OWN_RESULTS)
def test_its_own_results_stay(question: Question, step_ms: float) -> None:
    assert step(question).step_s * 1e3 == pytest.approx(step_ms, rel=1e-8)


# --------------------------------------------------------------------------------------------- laws
questions = st.sampled_from([question for question, _ in OWN_RESULTS])
corrections = st.sets(st.sampled_from(sorted(CORRECTIONS)))


@given(questions, corrections, st.floats(0.1, 10))
def test_a_machine_twice_as_fast_in_all_takes_half_the_time(
    question: Question, corrected: set[str], factor: float
) -> None:
    system = question.system
    faster = replace(
        system,
        flop_per_s={size: peak * factor for size, peak in system.flop_per_s.items()},
        memory_bytes_per_s=system.memory_bytes_per_s * factor,
        link_bytes_per_s=system.link_bytes_per_s * factor,
        port_bytes_per_s=system.port_bytes_per_s * factor,
    )
    before, after = (
        step(replace(question, system=of), corrected).step_s for of in (system, faster)
    )
    assert after == pytest.approx(before / factor, rel=1e-9)


@given(questions, corrections)
def test_a_step_is_no_shorter_than_either_stream_and_no_longer_than_both(
    question: Question, corrected: set[str]
) -> None:
    result = step(question, corrected)
    computed = result.sums_s["gemm"] + result.sums_s["lookup"]
    longest = max(computed, result.communication_s)
    assert longest * (1 - 1e-12) <= result.step_s
    assert result.step_s <= (computed + result.communication_s) * (1 + 1e-12)


@given(questions, corrections)
def test_inference_is_the_forward_half_of_training(question: Question, corrected: set[str]) -> None:
    training = step(replace(question, task="pretrain"), corrected)
    inference = step(replace(question, task="inference"), corrected)
    assert inference.step_s == pytest.approx(training.forward_s, rel=1e-12)
    assert training.sums_s["gemm"] == pytest.approx(3 * inference.sums_s["gemm"], rel=1e-12)


# ---------------------------------------------------------------------------------------- headlines
MOE = "dlrm_moe/dlrm_a_moe"


def speed_up(mesh: str, task: str, corrected: tuple[str, ...] = ()) -> float:
    """Of a dense mesh over fsdp for DLRM-A-MoE on 128 GPUs."""
    base, best = (
        step(ask(MOE, ZIONEX, 128, dense, 65536, task=task), corrected).step_s
        for dense in ("fsdp@128", mesh)
    )
    return base / best


def test_the_published_speed_ups_over_fsdp() -> None:
    assert speed_up("ddp@8+tp@16", "pretrain") == pytest.approx(2.261, abs=5e-4)
    assert speed_up("ddp@128", "inference") == pytest.approx(5.2, abs=0.05)


def test_sharing_the_adapters_of_a_node_turns_the_training_speed_up_around() -> None:
    assert speed_up("ddp@8+tp@16", "pretrain", ("shared_adapters",)) == pytest.approx(
        0.75, abs=5e-3
    )


# ----------------------------------------------------------------------------- the original's table
@pytest.fixture(scope="module")
def rows(corpora: Path) -> Rows:
    with (corpora / "madmax_reference.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["status"] == "ok"]


@pytest.mark.slow
def test_every_timing_of_the_original(rows: Rows) -> None:
    assert len(rows) == 2640
    for row in rows:
        result = step(question_of(row))
        ours = {column: result.sums_s[kind] for column, kind in TIMES_MS.items()}
        ours["t_iter_ms"] = result.step_s
        ours["t_fwd_ms"] = result.forward_s
        ours["exposed_comm_ms"] = result.exposed_s
        ours["overlapped_comm_ms"] = result.communication_s - result.exposed_s
        step_ms = float(row["t_iter_ms"])
        for column, seconds in ours.items():
            off = abs(seconds * 1e3 - float(row[column])) / step_ms
            assert off <= 1e-9, f"row {row['row_id']}, {column}: {off}"


def test_every_size_of_the_original(rows: Rows) -> None:
    for row in rows[::7]:
        question = question_of(row)
        result = step(question)
        for ours, column in [
            (question.global_batch, "global_bs"),
            (result.weights_bytes["embedding"], "mem_emb_bytes"),
            (sum(result.weights_bytes.values()), "mem_weights_bytes"),
            (result.lookup_bytes, "lookup_bytes_per_device"),
            (result.local_flop, "local_total_flops"),
            (question.system.memory_bytes, "mem_cap_bytes"),
            (result.operations["compute"], "n_comp_ops"),
            (result.operations["communication"], "n_comm_ops"),
        ]:
            assert ours == pytest.approx(float(row[column]), rel=1e-9), (row["row_id"], column)


#: Rows by strategy where the formulas are right, else by the formula that is not.
ROWS_OF = {
    "fsdp": 682,
    "ddp": 83 + 6,
    "tp+ddp": 72 + 1 + 4,
    "fsdp+ddp": 76 + 4,
    "tp": 73,
    "small": 191,
    "shared_adapters": 151,
    "only_sharded_gathers": 30,
    "frozen_backward": 17,
    "expert_exchange": 441,
    "named_waits": 266,
    "pooled_exchange": 543,
}


def test_rows_by_what_is_wrong_with_them(rows: Rows, summary_line: Callable[[str], None]) -> None:
    counted = Counter(map(comparable_as, rows))
    assert counted == ROWS_OF
    named = sum(counted[correction] for correction in CORRECTIONS)
    summary_line(f"MAD-Max: {len(rows)} rows, {named} of a formula that is not right")


#: Of the rows a mended formula touches: the least, median and greatest step over the original's.
PRICES = {
    "pooled_exchange": ("pooled_exchange", 0.1, 1.47, 16.1),
    "embedding_update": ("pooled_exchange", 1.0, 1.041, 1.21),
    "embedding_replicas": ("pooled_exchange", 1.14, 2.497, 4.81),
    "shared_adapters": ("shared_adapters", 3.52, 7.567, 15.48),
    "expert_exchange": ("expert_exchange", 0.20, 0.876, 1.43),
    "only_sharded_gathers": ("only_sharded_gathers", 0.131, 1.0, 1.0),
    "frozen_backward": ("frozen_backward", 0.667, 0.856, 1.0),
    "named_waits": ("named_waits", 1.0, 1.013, 1.06),
}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_price_of_a_formula(
    rows: Rows, correction: str, summary_line: Callable[[str], None]
) -> None:
    wrong, least, median, greatest = PRICES[correction]
    touched = []
    for row in [row for row in rows if comparable_as(row) == wrong]:
        ratio = step(question_of(row), {correction}).step_s * 1e3 / float(row["t_iter_ms"])
        if abs(ratio - 1) > 1e-9:
            touched.append(ratio)
    low, middle, high = min(touched), statistics.median(touched), max(touched)
    summary_line(
        f"MAD-Max, {correction}: {len(touched)} steps mended, "
        f"{low:.3f} to {high:.2f} of the original's, median {middle:.3f}"
    )
    assert (low, middle, high) == pytest.approx((least, median, greatest), rel=0.02)
