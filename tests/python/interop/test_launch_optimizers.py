"""Optimizers of frameworks: asked for where a framework has them, refused by name where not."""

from __future__ import annotations

from typing import Any

import pytest

import scalemodel as sm
from scalemodel import resolve
from scalemodel.search.framework_cases import Case
from scalemodel.search.framework_optimizers import OPTIMIZERS
from scalemodel.search.frameworks import refusals

CLUSTER = sm.cluster("dgx_h100", nodes=2)
ALL = ("adam", "sgd", "sgd_momentum", "muon", "lion", "adafactor", "adam_8bit", "shampoo", "soap")


def task(optimizer: str, **more: Any) -> sm.Training:
    named: Any = optimizer
    return sm.Training(global_batch=64, sequence=4096, optimizer=named, **more)


@pytest.mark.parametrize("optimizer", ALL)
@pytest.mark.parametrize("framework", OPTIMIZERS)
def test_what_a_search_offers_asks_for_the_optimizer_of_the_question(
    framework: str, optimizer: str
) -> None:
    """Search, launch and reading agree, and a framework that lacks it is named with its own."""
    asked = task(optimizer)
    names = OPTIMIZERS[framework][0]
    if optimizer not in names:
        says = f"optimizer='{optimizer}': {framework} has {names[0]}"
        with pytest.raises(sm.ScaleModelError, match=says):
            sm.search("llama3_8b", CLUSTER, asked, framework=framework)
        est = sm.estimate("llama3_8b", CLUSTER, asked, sm.Strategy())
        with pytest.raises(sm.ScaleModelError, match=says) as found:
            sm.launch(est, framework)
        assert all(name in str(found.value) for name in names)
        return
    (est, *_) = sm.search("llama3_8b", CLUSTER, asked, framework=framework, top=1)
    launched = sm.launch(est, framework)
    assert not any("differs" in note or "refuses" in note for note in launched.notes)
    read = sm.read_settings(framework, launched.script(), accelerators=16)
    assert read.unread == ()
    if read.task is not None:
        assert read.task.optimizer == optimizer
    else:
        assert read.optimizer in ("", optimizer)
        assert bool(read.optimizer) == (optimizer != "adam")


@pytest.mark.parametrize(
    ("words", "optimizer", "sharding", "unread"),
    [
        (["--optimizer", "sgd"], "sgd_momentum", "ddp", ()),  # 0.9 unless told otherwise
        (["--optimizer", "sgd", "--sgd-momentum", "0"], "sgd", "ddp", ()),
        (["--optimizer", "dist_muon", "--muon-momentum", "0.95"], "muon", "zero1", ()),
        (["--optimizer", "muon", "--use-distributed-optimizer"], "muon", "zero1", ()),
        (
            ["--optimizer", "muon", "--muon-num-ns-steps", "6"],
            "muon",
            "ddp",
            ("muon_num_ns_steps",),
        ),
        (["--optimizer=muon", "--muon-tp-mode=duplicated"], "muon", "ddp", ("muon_tp_mode",)),
        (["--optimizer", "lion", "--lion-beta1", "0.9"], "lion", "ddp", ()),
    ],
)
def test_flags_of_megatron_s_optimizers_are_read(
    words: list[str], optimizer: str, sharding: str, unread: tuple[str, ...]
) -> None:
    batch = ["--global-batch-size", "64", "--seq-length", "4096"]
    read = sm.read_settings("megatron", ["pretrain_gpt.py", *batch, *words])
    assert read.task is not None
    assert (read.task.optimizer, read.strategy.sharding) == (optimizer, sharding)
    assert read.unread == unread


def test_an_optimizer_that_is_not_predicted_is_refused() -> None:
    values = {"global_batch_size": 64, "seq_length": 4096, "optimizer": "soap"}
    with pytest.raises(sm.ScaleModelError, match="optimizer='soap': is not predicted"):
        sm.read_settings("megatron", values)


@pytest.mark.parametrize(
    ("named", "optimizer", "unread"),
    [
        ({"type": "AdamW"}, "adam", ()),
        ({"type": "SGD", "params": {"lr": 1e-4, "momentum": 0.9}}, "sgd_momentum", ()),
        ({"type": "SGD", "params": {"lr": 1e-4}}, "sgd", ()),
        ({"type": "Lamb"}, "", ("optimizer",)),
    ],
)
def test_deepspeed_s_optimizers_are_read(
    named: dict[str, Any], optimizer: str, unread: tuple[str, ...]
) -> None:
    read = sm.read_settings("deepspeed", {"optimizer": named})
    assert (read.optimizer, read.unread) == (optimizer, unread)


def test_zero_is_told_of_an_optimizer_that_it_was_not_tried_with() -> None:
    for optimizer, untested in (("sgd", True), ("lion", False)):
        est = sm.estimate("llama3_8b", CLUSTER, task(optimizer), sm.Strategy(sharding="zero2"))
        text = sm.launch(est, "deepspeed").files["ds_config.json"]
        assert ("zero_allow_untested_optimizer" in text) == untested


FP32 = {"gradient_precision": "fp32"}


@pytest.mark.parametrize(
    ("framework", "model", "optimizer", "more", "plan", "names"),
    [
        ("megatron", "llama3_8b", "muon", {}, {"sharding": "zero1"}, []),
        ("megatron", "llama3_8b", "muon", {}, {"sharding": "zero3"}, ["emerging_sharding"]),
        ("megatron", "llama3_8b", "lion", {}, {"sharding": "zero1"}, ["emerging_sharding"]),
        ("megatron", "llama3_8b", "lion", {}, {"sharding": "ddp"}, []),
        (
            "megatron",
            "llama3_8b",
            "lion",
            {"precision": "fp16"},
            {"sharding": "ddp"},
            ["emerging_precision"],
        ),
        ("megatron", "mixtral_8x7b", "muon", {}, {"sharding": "zero1", "ep": 8}, []),
        (
            "megatron",
            "gpt_oss_20b",
            "muon",
            {},
            {"sharding": "zero1", "ep": 8, "etp": 1},
            ["emerging_experts"],
        ),
        ("megatron", "gpt_oss_20b", "muon", {}, {"sharding": "ddp", "ep": 8, "etp": 1}, []),
        ("megatron_bridge", "llama3_8b", "muon", {}, {"sharding": "zero1"}, ["unsharded_muon"]),
        ("megatron_bridge", "llama3_8b", "muon", {}, {"sharding": "ddp"}, []),
        ("deepspeed", "llama3_8b", "muon", {}, {"sharding": "zero2", "dp": 16}, []),
        ("deepspeed", "llama3_8b", "muon", {}, {"sharding": "zero3", "dp": 16}, ["muon_stage"]),
        ("deepspeed", "llama3_8b", "muon", FP32, {"sharding": "zero1", "dp": 16}, []),
        (
            "deepspeed",
            "llama3_8b",
            "muon",
            FP32,
            {"sharding": "zero1", "tp": 2, "dp": 8},
            ["muon_groups"],
        ),
        (
            "deepspeed",
            "mixtral_8x7b",
            "muon",
            FP32,
            {"sharding": "zero1", "dp": 16},
            ["muon_groups"],
        ),
    ],
)
def test_what_an_optimizer_works_beside(
    framework: str,
    model: str,
    optimizer: str,
    more: dict[str, Any],
    plan: dict[str, Any],
    names: list[str],
) -> None:
    case = Case(
        *(sm.model(model), CLUSTER, task(optimizer, **more), sm.Strategy(**plan)),
        resolve.stack("plain"),
    )
    assert [rule.name for rule in refusals(framework, case)] == names
