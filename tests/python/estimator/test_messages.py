"""Every reason code has a text, and the text carries the numbers of the question."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base import text, vocabulary
from scalemodel.cli import main
from scalemodel.estimator import verdicts as messages

TASK = sm.Training(global_batch=1024, sequence=8192)


def test_every_reason_has_a_template() -> None:
    assert set(messages.TEMPLATES) == set(_core.reasons())


def test_templates_name_known_facts_only() -> None:
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=8))
    known = set(messages.facts(est))
    for template in messages.TEMPLATES.values():
        for line in template:
            fields = {name for _, name, _, _ in string.Formatter().parse(line) if name}
            assert fields <= known


def ask(
    model: Any, nodes: int, task: sm.Training = TASK, **knobs: Any
) -> tuple[sm.Estimate, list[str]]:
    est = sm.estimate(model, sm.cluster("dgx_h100", nodes=nodes), task, sm.Strategy(**knobs))
    return est, est.message().splitlines()


def test_an_illegal_strategy_says_what_why_and_how() -> None:
    est, lines = ask("llama3_70b", 6, sm.Training(global_batch=48, sequence=8192), tp=12)
    assert est.verdict == "illegal:tp_heads"
    assert (
        lines[0]
        == "illegal:tp_heads   tp=12 cannot split 64 attention heads (64 / 12 is not whole)."
    )
    assert "{1, 2, 4, 8, 16, 32}" in lines[1]
    assert "up to tp=8 without copies" in lines[1]
    assert any(line.strip().startswith("tp 12→8") for line in lines)


def test_a_strategy_that_does_not_fit_says_how_much_is_missing() -> None:
    est, lines = ask("llama3_70b", 64)
    assert est.verdict == "out_of_memory"
    missing = est.memory_bytes - est.memory_capacity_bytes
    assert f"{text.size_text(missing)} too much on pipeline stage 0" in lines[0]
    kinds = lines[1].strip().split(" | ")
    assert kinds[0].split()[0] in ("gradients", "activations", "weights")
    assert len(lines) > 3


def test_a_batch_that_does_not_divide_names_its_neighbours() -> None:
    task = sm.Training(global_batch=1000, sequence=8192)
    _, lines = ask("llama3_70b", 64, task, tp=8, pp=4)
    assert "992, 1008" in lines[1]


def test_a_mesh_that_does_not_fill_the_cluster_is_multiplied_out() -> None:
    _, lines = ask("llama3_70b", 64, tp=8, pp=4, dp=15)
    assert "8*1*4*15 = 480 but the cluster has 512" in lines[0]


def test_offload_names_host_memory() -> None:
    task = sm.Training(global_batch=8, sequence=8192)
    est, lines = ask("llama3_1_405b", 1, task, sharding="ddp", offload_optimizer=True)
    assert est.verdict == "illegal:offload"
    assert text.size_text(est.cluster.core.host_memory_bytes) in lines[0]
    assert "Offloaded: optimizer." in lines[1]


def test_a_strategy_that_runs_has_a_message_too() -> None:
    est, lines = ask("llama3_70b", 64, tp=8, pp=4)
    assert est.fits
    assert len(lines) == 2
    assert "spare" in lines[0]


def test_widths_without_a_dense_layer_are_named() -> None:
    shape = {**catalog.load("models", "llama3_8b")["architecture"], "ffn": 14332}
    est, lines = ask({"name": "odd", "architecture": shape}, 1, tp=8)
    assert est.verdict == "illegal:tp_ffn"
    assert "width 14332" in lines[0]
    assert "{1, 2, 4}" in lines[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (text.time_text(0.0), "0 s"),
        (text.time_text(99.96), "100 s"),
        (text.time_text(1234.5), "1,234 s"),
        (text.time_text(3e-6), "3.00 us"),
        (text.time_text(3e-10), "0.30 ns"),
        (text.time_text(-0.5), "-500 ms"),
        (text.size_text(1023), "1023 B"),
        (text.size_text(2.0**50), "1,024 TiB"),
        (text.percent_text(0), "0.0 %"),
        (text.percent_text(0.25, signed=True), "+25.0 %"),
        (text.count_text(0.5), "0.50"),
        (text.count_text(1e15), "1.00 P"),
    ],
)
def test_quantities_read_well(text: str, expected: str) -> None:
    assert text == expected


def test_messages_hold_no_unfilled_field() -> None:
    questions: tuple[dict[str, Any], ...] = (
        {"tp": 7},
        {"ep": 8},
        {"vpp": 3},
        {"cp": 512},
        {"pp": 256},
    )
    for knobs in questions:
        _, lines = ask("llama3_70b", 64, **knobs)
        assert not re.search(r"\{[a-z_]+\}", "\n".join(lines))


# ---------------------------------------------------------------------------------- likely words
@pytest.mark.parametrize(
    ("field", "words", "meant"),
    [
        ("precision", ("BF16", "bfloat16", "BFloat16"), "bf16"),
        ("precision", ("FP8", "mxfp8", "float8", "MXFP8"), "fp8"),
        ("precision", ("NVFP4", "mxfp4"), "fp4"),
        ("precision", ("half", "float16"), "fp16"),
        ("optimizer", ("AdamW", "Adam"), "adam"),
        ("attention", ("FlashAttention-3", "fa3"), "flash3"),
    ],
)
def test_a_task_reads_choices_as_people_spell_them(
    field: str, words: tuple[str, ...], meant: str
) -> None:
    for word in words:
        given: Any = {field: word}
        task = sm.Training(global_batch=64, sequence=4096, **given)
        assert getattr(task, field) == getattr(task.core, field) == meant
        assert task == sm.Training(global_batch=64, sequence=4096, **{field: meant})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "words", "meant"),
    [
        ("sharding", ("fsdp", "FSDP2", "ZeRO3", "zero-3", "ZeRO stage 3", "FULL_SHARD"), "zero3"),
        ("sharding", ("ZeRO-1", "distributed_optimizer"), "zero1"),
        ("sharding", ("HSDP", "hybrid_shard"), "hsdp"),
        ("recompute", ("Selective",), "selective"),
        ("recompute", ("activation-checkpointing", "FULL"), "full"),
        ("context", ("ulysses", "all-to-all"), "all_to_all"),
        ("schedule", ("1F1B",), "1f1b"),
        ("schedule", ("zero-bubble", "ZB-H1"), "zero_bubble"),
    ],
)
def test_a_strategy_reads_choices_as_people_spell_them(
    field: str, words: tuple[str, ...], meant: str
) -> None:
    for word in words:
        given: Any = {field: word}
        assert sm.Strategy(**given) == sm.Strategy(**{field: meant})
        assert sm.Strategy(tp=2).replace(**given) == sm.Strategy(tp=2, **{field: meant})


def test_a_mesh_of_layer_groups_reads_parallelisms_as_people_spell_them() -> None:
    given = sm.GroupStrategy({"mlp": "TP@8 + ZeRO-3", "embedding": "row-wise"}, queues="Per-level")  # type: ignore[arg-type]
    assert given == sm.GroupStrategy(
        {"mlp": "tp@8+fsdp", "embedding": "row_wise"}, queues="per_level"
    )
    with pytest.raises(sm.ScaleModelError, match=r"'dp' is none of .* did you mean 'ddp'"):
        sm.GroupStrategy({"mlp": "tp@8+dp"})
    with pytest.raises(sm.ScaleModelError, match=r"queue='one': .* did you mean 'queues'"):
        sm.GroupStrategy(queue="one")  # type: ignore[call-arg]


def test_every_other_spelling_means_a_choice_of_some_record() -> None:
    records = (_core.Strategy, _core.Task)
    legal = {name for record in records for row in record.fields() for name in row["choices"]}
    legal |= {"int8", "int4", "mxfp4"}  # formats of weights that are served
    legal |= {"fsdp"}  # in a mesh of layer groups
    for word, meant in vocabulary.SPELLINGS.items():
        assert word == vocabulary.folded(word)
        assert set(meant) <= legal, word


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("mi355x", "mi355x"),
        ("H100 SXM", "h100_sxm_80"),
        ("h100", "h100_sxm_80"),
        ("H100 80GB SXM5", "h100_sxm_80"),
        ("Vera Rubin", "rubin"),
        ("MI300", "mi300x"),
    ],
)
def test_an_accelerator_in_the_place_of_a_cluster_is_a_generic_node(
    name: str, accelerator: str
) -> None:
    with pytest.warns(UserWarning, match=f"is the accelerator {accelerator}, taken in nodes of"):
        found = sm.cluster(name, nodes=2)
    assert found.core == sm.cluster({"accelerator": accelerator}, nodes=2).core


@pytest.mark.parametrize("name", ["dgx_h10", "my_h100_rig", "h1000", "", "nodes"])
def test_what_only_resembles_an_accelerator_is_unknown(name: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=f"cluster='{name}': unknown"):
        sm.cluster(name)


def test_model_and_cluster_that_are_swapped_are_told_apart() -> None:
    cluster, model = sm.cluster("dgx_h100"), sm.model("llama3_8b")
    config = {"model_type": "llama", "hidden_size": 4096}
    for given in ("llama3_8b", model, config, sm.compose("vit_b")):
        with pytest.raises(sm.ScaleModelError, match="did you swap them") as caught:
            sm.estimate("dgx_h100", given, TASK)  # type: ignore[call-overload]
        assert caught.value.code == "unknown_cluster"
    for other in ("dgx_h100", cluster, "h200"):
        with pytest.raises(sm.ScaleModelError, match="did you swap them"):
            sm.model(other)  # type: ignore[arg-type]


def test_part_nodes_and_batches_in_tokens_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"accelerators=12: are 1.5 nodes of dgx_h100"):
        sm.cluster("dgx_h100", accelerators=12)
    for whole in (1, 4, 8, 16, 512):  # a part of one node is no part of a network
        sm.cluster("dgx_h100", accelerators=whole)
    with pytest.warns(UserWarning, match=r"holds 131 G tokens; did you mean global_batch=1953"):
        sm.Training(global_batch=16_000_000, sequence=8192)
    sm.Training(global_batch=15_360, sequence=4096)  # of DeepSeek-V3, the largest published


def test_further_arguments_are_named_by_the_verb_that_was_called() -> None:
    for ask, meant in (
        (lambda: sm.training_run(None, token=1), "tokens"),  # type: ignore[call-arg,arg-type]
        (lambda: sm.plan_training("x", "y", TASK, tokens=1, days=1, max_nodes=2), "most_nodes"),
        (lambda: sm.compare_clusters("x", ["y"], TASK, tokens=1, max_nodes=2), "most_nodes"),
        (lambda: sm.reliability(64, write=3), "write_s"),  # type: ignore[call-arg]
        (lambda: sm.Training(global_batch=1, seq_len=1), "sequence"),  # type: ignore[call-arg]
    ):
        with pytest.raises(sm.ScaleModelError, match=f"no such argument; did you mean '{meant}'"):
            ask()  # type: ignore[no-untyped-call]


# ------------------------------------------------------------------------- on the command line
JOB = ["estimate", "llama3_8b", "--cluster", "dgx_h100", "--tp", "2"]
JOB += ["--global-batch", "64", "--sequence", "4096"]


class Ran(NamedTuple):
    """Exit code, output and errors of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def ran(*arguments: str) -> Ran:
        return Ran(main(arguments), *capsys.readouterr())

    return ran


def test_no_command_prints_the_help(run: Run) -> None:
    ran = run()
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("usage: scalemodel")
    assert "compare-clusters" in ran.out


@pytest.mark.parametrize(
    ("options", "column", "expected"),
    [
        (["--precision", "BF16"], "precision", "bf16"),
        (["--precision", "mxfp8"], "precision", "fp8"),
        (["--sharding", "fsdp"], "sharding", "zero3"),
        (["--sharding", "ZeRO-3"], "sharding", "zero3"),
        (["--recompute", "Full"], "recompute", "full"),
    ],
)
def test_choices_are_read_as_people_spell_them(
    run: Run, options: list[str], column: str, expected: str
) -> None:
    ran = run(*JOB, *options, "--json")
    assert json.loads(ran.out)[column] == expected


@pytest.mark.parametrize(
    ("command", "option", "meant"),
    [
        ("estimate", "--gpus=64", "--accelerators"),
        ("estimate", "--seq-len", "--sequence"),
        ("estimate", "--micro-batch-size", "--micro-batch"),
        ("serve", "--ttft", "--ttft-s"),
        ("serve", "--tpot", "--tpot-s"),
        ("scaling", "--accelerators", "--gpus"),
        ("search", "--thread", "--threads"),
    ],
)
def test_options_that_do_not_exist_name_the_one_meant(
    run: Run, command: str, option: str, meant: str
) -> None:
    ran = run(command, "llama3_8b", "--cluster", "dgx_h100", option, "1")
    assert ran.code == 2
    told = f"scalemodel {command}: error: {option}: no such option; did you mean {meant}"
    assert ran.err.startswith(told)


def test_a_value_that_looks_like_an_option_may_stand_behind_two_dashes(run: Run) -> None:
    ran = run(*JOB[:1], *JOB[2:], "--", "--odd-name")
    assert ran.code == 2
    assert "model='--odd-name': unknown" in ran.err
