"""Predicted times of timed collectives: what a row may say, and how far predictions are off."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalemodel.validation.operators import OperatorPrediction
from scalemodel.validation.operators.collectives import OPTIONAL, REQUIRED, predict
from scalemodel.validation.rows import Row, read_table

COLUMNS = REQUIRED + OPTIONAL
MIB = 2**20

NODE = {"gpu": "H100-SXM5-80GB", "gpus": "8", "op": "all_reduce", "bytes": str(64 * MIB)}
NODES = {
    **NODE,
    "gpus": "16",
    "nodes": "2",
    "gpus_per_node": "8",
    "interconnect": "NVLink4/NVSwitch + 8x NDR400 IB",
}


def ask(row: dict[str, str], **changes: str) -> OperatorPrediction:
    (found,) = predict([Row({**row, **changes})])
    return found


def time_us(row: dict[str, str], **changes: str) -> float:
    found = ask(row, **changes)
    assert found.skip_reason == ""
    assert found.time_us is not None
    return found.time_us


@pytest.mark.parametrize("column", REQUIRED)
def test_a_row_without_what_is_needed_is_skipped(column: str) -> None:
    assert ask(NODE, **{column: ""}) == OperatorPrediction(None, f"missing:{column}")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "Abacus 9"}, "unknown_accelerator:Abacus 9"),
        ({"op": "gossip"}, "unsupported:gossip"),
        ({"gpus": "1"}, "illegal:gpus"),
        ({"gpus": "7.5"}, "illegal:gpus"),
        ({"bytes": "-4"}, "illegal:bytes"),
        ({"bytes": "0"}, "illegal:bytes"),
        ({"algo": "abacus"}, "unsupported:algo"),
        ({"algo": "Tree"}, "unsupported:algo"),  # inside one domain
        ({"algo": "vLLM_custom_graph", "op": "all_gather"}, "unsupported:kernel"),
        ({"algo": "vLLM_custom_graph", "gpu": "MI300X"}, "unsupported:kernel"),
        ({"nodes": "0"}, "illegal:nodes"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why(changes: dict[str, str], reason: str) -> None:
    assert ask(NODE, **changes) == OperatorPrediction(None, reason)


@given(
    cells=st.fixed_dictionaries(
        {},
        optional={
            column: st.sampled_from(
                [
                    "", "unknown", "H100", "b200", "8", "16", "72", "1e6", "-1", "nan", "1e400",
                    "all_reduce", "alltoall", "send_recv", "reduce", "NVL72 + NDR400 IB/GPU",
                    "pairwise NVLink3 + PCIe", "NVSwitch + IB", "PCIe9", "int8", "half", "Ring",
                    "SGLang_CustomAllReduce_eager", "TRTLLM", "sglang 0.5.10", "trtllm 1.3.0rc20",
                ]
            )
            for column in COLUMNS
        },
    )
)  # fmt: skip
def test_nothing_in_a_row_raises(cells: dict[str, str]) -> None:
    (found,) = predict([Row(cells)])
    assert (found.time_us is None) == bool(found.skip_reason)
    if found.time_us is not None:
        assert math.isfinite(found.time_us)
        assert found.time_us > 0


@given(order=st.permutations(range(6)))
def test_rows_are_predicted_one_by_one(order: list[int]) -> None:
    rows = [
        Row(NODE),
        Row(NODES),
        Row({**NODE, "bytes": "4096"}),
        Row({**NODE, "gpu": "?"}),
        Row({**NODES, "op": "alltoall"}),
        Row({**NODE, "algo": "TRTLLM", "nccl": "trtllm 1.3.0"}),
    ]
    together = predict(rows)
    assert predict([rows[i] for i in order]) == [together[i] for i in order]
    assert [predict([row])[0] for row in rows] == together


@given(size=st.integers(1, 2**35), more=st.integers(1, 2**35))
def test_time_never_falls_with_size(size: int, more: int) -> None:
    for row in (NODE, NODES, {**NODE, "algo": "TRTLLM"}, {**NODES, "op": "send_recv"}):
        small_us = time_us(row, bytes=str(size))
        assert time_us(row, bytes=str(size + more)) >= small_us * (1 - 1e-12)


@pytest.mark.parametrize("column", ["system", "source", "time_us", "algbw_GBps", "busbw_GBps"])
def test_measured_and_naming_columns_do_not_matter(column: str) -> None:
    assert ask(NODES, **{column: "1"}) == ask(NODES, **{column: "2"}) == ask(NODES)


def test_integers_are_not_reduced_by_the_switch() -> None:
    large = str(512 * MIB)
    assert time_us(NODE, bytes=large, dtype="int8") > 1.1 * time_us(NODE, bytes=large, dtype="half")
    gather = {**NODE, "op": "all_gather"}
    assert ask(gather, dtype="int8") == ask(gather, dtype="half")
    assert ask(NODE, gpu="A100-SXM4-80GB", dtype="int8") == ask(NODE, gpu="A100-SXM4-80GB")


def test_adapters_are_read_from_the_text() -> None:
    large = {**NODES, "bytes": str(4096 * MIB), "op": "all_gather"}
    quarter = time_us(large, interconnect="NVLink4/NVSwitch + 4x200Gb TCPX")
    half = time_us(large, interconnect="NVLink4/NVSwitch + 8x200Gb RoCE")
    assert quarter > 1.8 * half
    assert half == time_us(large, interconnect="NVLink4/NVSwitch + 16x100Gb RoCE")
    per_gpu = ask(large, interconnect="NVLink4/NVSwitch + NDR200 IB/GPU")
    assert per_gpu == ask(large, interconnect="NVLink4/NVSwitch + 8x NDR200 IB")
    assumed = ask(large, interconnect="NVLink4/NVSwitch + IB")
    assert assumed.note == "network 400 Gbit/s per accelerator assumed"
    assert assumed.time_us == time_us(large)


def test_a_missing_number_of_nodes_follows_from_the_others() -> None:
    assert time_us(NODES, nodes="") == time_us(NODES)
    assert ask(NODES, nodes="").note == "2 nodes"
    assert time_us(NODE, nodes="", gpus_per_node="") == time_us(NODE, nodes="1")


def test_trays_of_a_rack_share_one_domain() -> None:
    rack = {**NODE, "gpu": "GB200", "gpus": "72", "interconnect": "NVLink5 NVL72"}
    assert time_us(rack, nodes="18", gpus_per_node="4") == time_us(rack, nodes="1")
    two = {**rack, "gpus": "128", "interconnect": "NVLink5 NVL72 + NDR400 IB/GPU"}
    assert time_us(two, nodes="2", gpus_per_node="64") > time_us(rack)


def test_bridged_pairs_fall_back_to_their_slots() -> None:
    pairs = {**NODE, "gpu": "A100-80GB", "interconnect": "pairwise NVLink3 + PCIe"}
    slots = {**NODE, "gpu": "A100-80GB", "interconnect": "PCIe4"}
    assert time_us(pairs, gpus="2") < 0.5 * time_us(slots, gpus="2")
    # Every second hop of a ring is a bridge: a slot carries one direction, and more of it is left.
    assert 2 * time_us(pairs, gpus="2") < time_us(pairs, gpus="4") < time_us(slots, gpus="4")


def test_short_calls_of_a_plain_log_wait_for_their_process() -> None:
    log = {**NODE, "bytes": "1024", "dtype": "float"}
    hidden = time_us(log, nccl="2.27.3")
    assert hidden == time_us(log, dtype="half")
    assert time_us(log) == pytest.approx(math.hypot(40, hidden))
    exchange = time_us({**log, "op": "alltoall"}, nccl="2.27.3")
    assert time_us({**log, "op": "alltoall"}) == pytest.approx(math.hypot(80, exchange))
    large = {**log, "bytes": str(1024 * MIB)}
    assert time_us(large) == pytest.approx(time_us(large, nccl="2.27.3"), rel=1e-3)
    between = {**NODES, "bytes": "1024", "dtype": "float"}
    assert time_us(between) == time_us(between, nccl="2.27.3")


def test_hosts_and_networks_that_rows_describe() -> None:
    box = {**NODE, "gpu": "L40S", "interconnect": "PCIe4", "nccl": "2.27.3"}
    switched = {**box, "interconnect": "PCIe4 switch"}
    assert time_us(box, gpus="2") == time_us(switched, gpus="2")
    assert time_us(box, gpus="4") > 2.5 * time_us(switched, gpus="4")
    assert time_us(box, gpus="8") > 2 * time_us(box, gpus="4")
    large = {**NODES, "bytes": str(1024 * MIB)}
    untuned = ask(large, interconnect="NVLink4/NVSwitch + NDR400 IB (untuned)")
    assert untuned.time_us is not None
    assert untuned.time_us > 2 * time_us(large)
    assert "untuned network" in untuned.note


def test_oneccl_counts_what_one_rank_gives() -> None:
    card = {**NODE, "gpu": "Intel-Arc-Pro-B60", "interconnect": "PCIe5", "op": "all_gather"}
    own = time_us(card, gpus="4", nccl="2021.17.2")
    assert own > 2.5 * time_us(card, gpus="4", nccl="2.27.3")
    # Eight lanes of PCIe 5, whatever the row says of the slot.
    assert time_us(card, gpus="2", nccl="2.27") > 64 * MIB / 2 / 31.5e3


def test_kernels_of_engines_are_chosen_by_release_and_host() -> None:
    def custom(gpu: str, algo: str, engine: str) -> float:
        return time_us({**NODE, "bytes": "1024"}, gpu=gpu, algo=algo, nccl=engine)

    eager, graph = "SGLang_CustomAllReduce_eager", "SGLang_CustomAllReduce_graph"
    assert custom("H100", eager, "sglang 0.5.14") > 2 * custom("H100", graph, "sglang 0.5.14")
    old, new = (custom("H100", graph, f"sglang 0.5.{minor}") for minor in (10, 14))
    assert old != new
    assert custom("H100", graph, "sglang 0.5.12") == old
    assert custom("H100", graph, "sglang 0.4") == old
    assert custom("H100", graph, "sglang 0.6.1") == new
    assert custom("H100", graph, "") == old
    assert custom("GB200", eager, "sglang 0.5.14") > custom("B200", eager, "sglang 0.5.14")


def test_a_given_algorithm_is_followed() -> None:
    ring, tree = time_us(NODES, algo="Ring"), time_us(NODES, algo="Tree")
    assert ring != tree
    assert time_us(NODES) <= min(ring, tree)


# ------------------------------------------------------------------------------------ accuracy


@pytest.fixture(scope="module")
def errors(corpora: Path) -> list[tuple[dict[str, str], float]]:
    """Cells and relative error of every predicted row."""
    table = read_table(corpora / "ops" / "collectives.csv")
    found = predict(table.select(COLUMNS))
    cells = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    return [
        (row, prediction.time_us / float(row["time_us"]) - 1)
        for row, prediction in zip(cells, found, strict=True)
        if prediction.time_us is not None
    ]


Wanted = Callable[[dict[str, str]], bool]


def mape(errors: list[tuple[dict[str, str], float]], wanted: Wanted) -> float:
    chosen = [abs(error) for row, error in errors if wanted(row)]
    assert len(chosen) >= 20
    return sum(chosen) / len(chosen)


def test_collectives_inside_nvlink_domains(errors: list[tuple[dict[str, str], float]]) -> None:
    def wanted(row: dict[str, str]) -> bool:
        library = row["nodes"] == "1" and not row["algo"] and "NVLink" in row["interconnect"]
        return library and row["source"].startswith("ai-dynamo")

    assert mape(errors, wanted) < 0.07
    for op in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
        assert mape(errors, lambda row, op=op: wanted(row) and row["op"] == op) < 0.08


def test_kernels_of_engines(errors: list[tuple[dict[str, str], float]]) -> None:
    assert mape(errors, lambda row: bool(row["algo"]) and "NVLink" in row["interconnect"]) < 0.09


def test_collectives_of_cards_on_pcie_are_met(errors: list[tuple[dict[str, str], float]]) -> None:
    def library(row: dict[str, str]) -> bool:
        return not row["algo"] and row["gpu"].startswith(("L40S", "RTX"))

    assert mape(errors, lambda row: library(row) and row["gpu"].startswith("RTX")) < 0.08
    assert mape(errors, lambda row: library(row) and row["gpus"] == "2") < 0.12
    for cards in ("2", "4", "8"):
        assert mape(errors, lambda row, n=cards: library(row) and row["gpus"] == n) < 0.25
    assert mape(errors, lambda row: row["gpu"].startswith("Intel")) < 0.08


def test_collectives_between_nodes_are_met(errors: list[tuple[dict[str, str], float]]) -> None:
    """From 1 MiB, tuned systems of a network class that at least two of them share."""
    systems: dict[str, list[float]] = {}
    for row, error in errors:
        untuned = ("tuning", "untuned", "Vidur", "racks", "pairwise")
        if int(row["nodes"]) < 2 or float(row["bytes"]) < MIB or "send" in row["op"]:
            continue
        if not any(word in row["system"] + row["interconnect"] for word in untuned):
            systems.setdefault(row["system"], []).append(abs(error))
    means = {name: sum(e) / len(e) for name, e in systems.items() if len(e) >= 5}
    assert len(means) >= 14
    assert sum(means.values()) / len(means) < 0.12
    assert max(means.values()) < 0.40


def test_the_published_scan_of_all_reduces(corpora: Path) -> None:
    """Eight-GPU H100 nodes, default tuner, 4-512 nodes, 64 MiB to 16 GiB, read off a figure."""
    table = read_table(corpora / "collective_busbw_published.csv")
    rows, measured = [], []
    for cells in table.rows:
        row = dict(zip(table.header, cells, strict=True))
        size, nodes = float(row["bytes"] or 0), float(row["nodes"] or 0)
        if "FAIR" in row["hardware"] and size >= 64 * MIB:
            n = 8 * int(nodes)
            rows.append(
                Row({**NODES, "nodes": f"{nodes:.0f}", "gpus": f"{n}", "bytes": row["bytes"]})
            )
            measured.append(2 * (n - 1) / n * size / (float(row["busbw_GBps"]) * 1e3))
    found = [prediction.time_us or math.inf for prediction in predict(rows)]
    errors = [abs(p / m - 1) for p, m in zip(found, measured, strict=True)]
    assert len(errors) >= 60
    assert sum(errors) / len(errors) < 0.05
