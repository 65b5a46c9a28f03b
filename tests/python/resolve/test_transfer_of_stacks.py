"""Where fitted constants of a stack hold, and what they become elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import pytest

import scalemodel as sm
from scalemodel import catalog, resolve
from scalemodel.estimator.evaluation import stack_of
from scalemodel.resolve.stack_choice import (
    FITTED_CONSTANTS,
    TRAVELLING_RUNS,
    Fitted,
    facts_on,
    fitted,
    holds_on,
    stack_on,
    with_plain_constants,
)
from scalemodel.validation.fit import measured_step_time_s
from scalemodel.validation.left_out import architecture_of
from scalemodel.validation.prediction import Predictor
from scalemodel.validation.published import published_table
from scalemodel.validation.rows import SkippedRowError
from scalemodel.validation.training import Question, question

MANY = {"hopper": TRAVELLING_RUNS}


def test_constants_hold_where_they_were_fitted() -> None:
    few = Fitted({"hopper": 3}, ("gemm_efficiency",))
    assert few.holds_on("hopper", "NVIDIA")
    assert not few.holds_on("blackwell", "NVIDIA")


def test_many_runs_travel_unless_a_constant_is_at_a_bound() -> None:
    assert Fitted(MANY).holds_on("blackwell", "NVIDIA")
    assert not Fitted({"hopper": TRAVELLING_RUNS - 1}).holds_on("blackwell", "NVIDIA")
    assert not Fitted(MANY, ("memory_efficiency",)).holds_on("blackwell", "NVIDIA")
    assert not Fitted(MANY, cut=True).holds_on("blackwell", "NVIDIA")
    assert Fitted(MANY, cut=True).holds_on("hopper", "NVIDIA")


def test_no_stack_crosses_vendors() -> None:
    assert not Fitted(MANY).holds_on("cdna3", "AMD")
    for name in catalog.names("stacks"):
        if fitted(name).runs and "cdna3" not in fitted(name).runs:
            assert not holds_on(name, "mi300x")


@pytest.mark.parametrize("name", catalog.names("stacks"))
def test_facts_stay_where_constants_do_not(name: str) -> None:
    own, plain = resolve.stack(name), resolve.stack("plain")
    elsewhere = with_plain_constants(own).to_dict()
    for field, value in own.to_dict().items():
        expected = getattr(plain, field) if field in FITTED_CONSTANTS else value
        assert elsewhere[field] == expected


@pytest.mark.parametrize("name", catalog.names("stacks"))
def test_a_constant_at_its_bound_names_what_it_stands_for(name: str) -> None:
    text = catalog.path_of("stacks", name).read_text(encoding="utf-8")
    at_a_bound = re.findall(r"^(\w+) = .*at the bound of its physical range", text, re.MULTILINE)
    assert sorted(at_a_bound) == sorted(fitted(name).bounded)
    named = catalog.load("stacks", name).get("fitted", {}).get("bounded", {})
    assert all(len(words.split()) > 5 for words in named.values())
    assert not at_a_bound


@cache
def questions() -> tuple[tuple[Question, str], ...]:
    """Of every measured run, which stays the same; to resolve them all takes seconds."""
    table = published_table("training")
    found = []
    for row in table.select(table.header):
        try:
            asked = question(row)
        except SkippedRowError:
            continue
        if measured_step_time_s(row) is not None:
            found.append((asked, row.text("fitted")))
    return tuple(found)


def test_every_stack_records_the_runs_it_was_fitted_to() -> None:
    counted: dict[str, Counter[str]] = {}
    whole: set[str] = set()
    for asked, use in questions():
        if use in ("yes", "accelerator"):
            counted.setdefault(asked.stack, Counter())[architecture_of(asked)] += 1
            whole |= {asked.stack} if asked.evidence != "cut" else set()
    for name in catalog.names("stacks"):
        if name != "plain":
            assert dict(fitted(name).runs) == dict(counted.get(name, {})), name
            assert fitted(name).cut == (name in counted and name not in whole), name


def test_a_row_says_when_its_stack_is_a_stranger_there() -> None:
    run = next(asked for asked, _ in questions() if asked.stack == "mlperf_nemo_2024")
    strange = next(
        asked
        for asked, _ in questions()
        if asked.stack == "mlperf_nemo_2024" and asked.accelerator == "mi300x"
    )
    assert "plain constants" not in Predictor().predict(run).note
    guarded = Predictor().predict(strange)
    assert "plain constants" in guarded.note
    stacks = {strange.stack: with_plain_constants(resolve.stack(strange.stack))}
    by_hand = Predictor(stacks).predict(strange)
    assert guarded.step_time_s == by_hand.step_time_s
    own = Predictor(guarded=False).predict(strange)
    assert own.step_time_s != guarded.step_time_s


def test_kernels_of_one_architecture_are_no_fact_of_another() -> None:
    assert facts_on("megatron_bridge_2026_06", "blackwell").fused_experts
    hopper = facts_on("megatron_bridge_2026_06", "hopper")
    assert not hopper.fused_experts
    assert not hopper.grouped_launch
    for name in catalog.names("stacks"):
        only = catalog.load("stacks", name).get("only", {})
        assert set(only) <= set(catalog.load("stacks", name)["stack"])


def test_an_estimate_takes_constants_only_where_they_hold() -> None:
    task, strategy = sm.Training(global_batch=64, sequence=4096), sm.Strategy(tp=2)
    own, plain = resolve.stack("llm_foundry_2023"), resolve.stack("plain")
    for name, expected in (("H100", own), ("MI300X", plain)):
        cluster = sm.cluster({"accelerator": name})
        est = sm.estimate("llama3_8b", cluster, task, strategy, stack="llm_foundry_2023")
        assert stack_of(est).gemm_efficiency == expected.gemm_efficiency, name
        assert stack_of(est).attention == own.attention
        told = [text for text in est.extrapolates if "stack" in text]
        assert bool(told) == (expected is plain), name
    by_hand = stack_on("llm_foundry_2023", "cdna3", "AMD")
    cluster = sm.cluster({"accelerator": "MI300X"})
    named = sm.estimate("llama3_8b", cluster, task, strategy, stack="llm_foundry_2023")
    given = sm.estimate("llama3_8b", cluster, task, strategy, stack=by_hand)
    assert named.step_time_s == given.step_time_s


@pytest.mark.parametrize("name", catalog.names("stacks"))
def test_constants_of_the_catalogue_give_way_without_their_name(name: str) -> None:
    constants = resolve.stack(name)
    for accelerator in catalog.names("accelerators"):
        entry = catalog.load("accelerators", accelerator)
        place = (entry["architecture"], entry["vendor"])
        by_name, by_value = stack_on(name, *place), stack_on(constants, *place)
        for key in FITTED_CONSTANTS:
            assert getattr(by_name, key) == getattr(by_value, key)
    own = constants.replace(gemm_efficiency=0.5 * constants.gemm_efficiency)
    assert stack_on(own, "cdna3", "AMD") == own
