"""Layouts of published recipes: which cells of a silent run they fill, and which they leave."""

from __future__ import annotations

import pytest

from reference.runs import LLAMA
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.recipe_layouts import (
    Job,
    check_layout,
    corrections_for,
    layout_for,
    layouts,
)
from scalemodel.validation.rows import Row, SkippedRowError
from scalemodel.validation.training import question

PARTS = {"blackwell": "gb200", "hopper": "h100_sxm_80"}
SILENT = {
    "framework": "Megatron-Bridge main",
    "year": "2026",
    "model": "Qwen3-8B",
    "task": "SFT",
    "seq_len": "2048",
    "global_batch": "32",
    "precision": "BF16",
    "gpu": "H100-80GB",
    "n_gpus": "4",
}


def test_every_layout_can_be_reached() -> None:
    for number, table in enumerate(layouts(), start=1):
        check_layout(table, f"layout {number}")
        assert table.get("model", "qwen3_8b") in catalog.names("models")
        part = table.get("accelerators", ["hopper"])[0]
        job = Job(
            framework=table["frameworks"][0],
            model=table.get("model", ""),
            accelerator=PARTS.get(part, part),
            method=table["tasks"][0],
            count=table.get("count", 3),
            cp=2 if table.get("cp") == "several" else 1,
            tp=table.get("tp", 1),
        )
        for key, answer in (("cells", layout_for(job)), ("corrects", corrections_for(job))):
            cells = {name: str(value) for name, value in table.get(key, {}).items()}
            assert cells.items() <= answer.items()


def test_the_first_layout_that_speaks_of_a_cell_decides_it() -> None:
    job = Job("Megatron-Bridge main", "qwen3_30b_a3b", "h100_sxm_80", "pretrain", 16)
    assert layout_for(job)["global_batch"] == "4"
    other = layout_for(Job("Megatron-Bridge main", "", "h100_sxm_80", "pretrain", 16))
    assert (other["seq_len"], other["global_batch"], other["vpp"]) == ("4096", "32", "none")
    assert "micro_batch" not in other


def test_a_silent_run_takes_the_layout_of_its_recipe_and_says_so() -> None:
    found = question(Row(SILENT))
    strategy = dict(found.strategy)
    assert (strategy["tp"], strategy["dp"], strategy["micro_batch"]) == (4, 1, 1)
    assert found.recomputations == ("none",)
    assert any("tp 4" in note and "by the recipe" in note for note in found.notes)


def test_what_a_run_states_wins_over_the_layout() -> None:
    stated = question(Row(SILENT | {"tp": "2", "recompute": "full"}))
    assert dict(stated.strategy)["tp"] == 2
    assert stated.recomputations == ("full",)


def test_degrees_that_the_runs_own_recipe_contradicts_are_the_recipes() -> None:
    printed = LLAMA | {
        "framework": "NVIDIA NeMo Framework Release 24.04",
        "year": "2024",
        "model": "Llama2-70B",
        "task": "LoRA (MLPerf)",
        "gpu": "H200-141GB",
        "n_gpus": "8",
        "tp": "4",
        "pp": "1",
        "cp": "1",
        "dp": "2",
    }
    found = question(Row(printed))
    strategy = dict(found.strategy)
    assert (strategy["tp"], strategy["dp"]) == (2, 4)
    assert any("tp 2, dp 4 by the recipe" in note for note in found.notes)
    for other in ({"gpu": "H100-80GB"}, {"cp": "2", "dp": "1"}, {"n_gpus": "16", "dp": "4"}):
        assert dict(question(Row(printed | other)).strategy)["tp"] == 4


@pytest.mark.parametrize(
    "change",
    [
        {"framework": "Megatron-Bridge 26.08"},
        {"n_gpus": "8"},
        {"gpu": "GB200"},
        {"task": "pretrain"},
        {"model": "Llama3-8B"},
    ],
)
def test_another_job_is_left_as_it_is(change: dict[str, str]) -> None:
    try:
        found = question(Row(SILENT | {"micro_batch": "1"} | change))
    except SkippedRowError:
        return
    assert dict(found.strategy)["tp"] == 1


def test_a_layout_may_tell_the_batch_and_the_sequence() -> None:
    hybrid = SILENT | {"model": "Nemotron-3.5-Lightning", "n_gpus": "16"}
    del hybrid["seq_len"], hybrid["global_batch"]
    task = dict(question(Row(hybrid)).task)
    assert (task["sequence"], task["global_batch"]) == (4096, 128)
    task = dict(question(Row(hybrid | {"n_gpus": "32"})).task)
    assert (task["sequence"], task["global_batch"]) == (2048, 128)
    with pytest.raises(SkippedRowError, match="missing:seq_len"):
        question(Row(hybrid | {"framework": "Megatron-Bridge 26.08"}))


@pytest.mark.parametrize(
    "change, named",
    [
        ({"rows": 1}, "rows"),
        ({"source": ""}, "source"),
        ({"cells": {"dp": 2}}, "dp"),
        ({"cells": {}}, "corrects"),
        ({"corrects": {"vpp": 2}}, "vpp"),
        ({"cp": "two"}, "two"),
    ],
)
def test_a_wrong_layout_is_refused_by_name(change: dict[str, object], named: str) -> None:
    right = {
        "frameworks": ["x"],
        "model": "qwen3_8b",
        "tasks": ["full"],
        "count": 4,
        "cells": {"tp": 4},
        "source": "somewhere",
    }
    check_layout(right, "layout 1")
    with pytest.raises(ScaleModelError, match=named):
        check_layout(right | change, "layout 1")


def test_only_runs_that_say_so_are_packed() -> None:
    flags = {"other_flags": "card features: {sequence_packing: offline}"}
    packed, padded = question(Row(SILENT | flags)), question(Row(SILENT))
    assert dict(packed.task)["lengths"] == "mean=379,spread=1"
    assert "lengths" not in dict(padded.task)
    other = question(Row(LLAMA | flags | {"task": "SFT"}))
    assert "lengths" not in dict(other.task)
