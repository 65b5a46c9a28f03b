"""Documents of unequal lengths in a training step: laws, the command line, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from command_line import run_command

EIGHT = sm.cluster("dgx_h100", nodes=8)
STRATEGIES = [
    sm.Strategy(tp=2, cp=2, sequence_parallel=True),
    sm.Strategy(cp=4, sharding="zero3", recompute="full"),
    sm.Strategy(tp=2, pp=2, recompute="selective"),
    sm.Strategy(cp=8, context="all_to_all"),
]
SEQUENCE = 32768


def drawn(count: int = 3000, seed: int = 1) -> list[int]:
    """Many short documents and a few long ones."""
    places = np.random.default_rng(seed).random(count)
    return [max(1, int(SEQUENCE * place**3)) for place in places]


def training(**changes: Any) -> sm.Training:
    return sm.Training(**{"global_batch": 128, "sequence": SEQUENCE, **changes})


def estimated(task: sm.Training, strategy: sm.Strategy) -> sm.Estimate:
    return sm.estimate("llama3_8b", EIGHT, task, strategy)


# ----------------------------------------------------------------------------------------- laws
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("packing", ["plain", "balanced", "dynamic_cp"])
def test_documents_as_long_as_the_sequence_change_no_bit(
    strategy: sm.Strategy, packing: str
) -> None:
    whole = estimated(training(), strategy)
    packed = estimated(training(lengths=[SEQUENCE] * 7, packing=packing), strategy)
    assert packed.to_dict() == whole.to_dict()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equal_documents_are_sequences_of_their_length_to_the_bit(strategy: sm.Strategy) -> None:
    packed = estimated(training(lengths=[4096] * 3), strategy)
    short = estimated(
        training(global_batch=128 * 8, sequence=4096), strategy.replace(micro_batch=8)
    )
    for name in ("step_time_s", "compute_s", "exposed_cp_s", "mfu_fraction", "tokens_per_s"):
        assert getattr(packed, name) == getattr(short, name), name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_packs_attend_less_and_balance_takes_some_of_the_wait(strategy: sm.Strategy) -> None:
    whole = estimated(training(), strategy)
    plain, balanced, dynamic = (
        estimated(training(lengths=drawn(), packing=packing), strategy)
        for packing in ("plain", "balanced", "dynamic_cp")
    )
    assert dynamic.step_time_s <= balanced.step_time_s <= plain.step_time_s < whole.step_time_s
    assert plain.memory_bytes == whole.memory_bytes
    assert dynamic.exposed_cp_s <= balanced.exposed_cp_s == plain.exposed_cp_s
    assert plain.tokens_per_s <= 128 * SEQUENCE / plain.step_time_s


def test_one_replica_waits_for_none() -> None:
    strategy = sm.Strategy(tp=8, pp=8)
    plain, balanced = (
        estimated(training(lengths=drawn(), packing=packing), strategy).step_time_s
        for packing in ("plain", "balanced")
    )
    assert plain == balanced


def test_padding_costs_tokens_not_time() -> None:
    strategy = sm.Strategy(tp=8, cp=8, sequence_parallel=True)
    whole = estimated(training(lengths=[128] * 8), strategy)
    odd = estimated(training(lengths=[129] * 8), strategy)
    assert odd.tokens_per_s < 0.6 * whole.tokens_per_s
    assert odd.step_time_s == pytest.approx(whole.step_time_s, rel=0.02)


def test_a_search_finds_what_every_strategy_by_itself_says() -> None:
    task = training(lengths=drawn(400), packing="balanced")
    space = sm.Space(tp=[1, 2, 4], cp=[1, 4], pp=[1, 2], recompute=["none", "full"])
    pruned = sm.search("llama3_8b", EIGHT, task, space, top=5)
    every = sm.search("llama3_8b", EIGHT, task, space, top=5, prune=False)
    assert [hit.strategy for hit in pruned] == [hit.strategy for hit in every]
    best = pruned[0]
    assert best.step_time_s == estimated(task, best.strategy).step_time_s


def test_neither_the_order_of_documents_counts_nor_how_often_all_of_them_come() -> None:
    strategy = STRATEGIES[0]
    lengths = drawn(500)
    once = estimated(training(lengths=lengths), strategy).step_time_s
    assert estimated(training(lengths=lengths[::-1]), strategy).step_time_s == once
    twice = estimated(training(lengths=lengths * 2), strategy).step_time_s
    assert twice == pytest.approx(once, rel=0.01)


# --------------------------------------------------------------------------------------- reading
def test_files_and_distributions(tmp_path: Path) -> None:
    numbers = tmp_path / "lengths.txt"
    numbers.write_text("4096 2048,1024\n512\n", encoding="utf-8")
    listed = tmp_path / "lengths.json"
    listed.write_text(json.dumps([4096, 2048, 1024, 512]), encoding="utf-8")
    wanted = (4096, 2048, 1024, 512)
    assert training(lengths=numbers).lengths == training(lengths=str(listed)).lengths == wanted
    drawn_ones = training(lengths="mean=1000,spread=0.8")
    assert drawn_ones.packs is not None
    assert np.mean(drawn_ones.packs.lengths) == pytest.approx(1000, rel=2e-3)
    assert pickle.loads(pickle.dumps(drawn_ones)) == drawn_ones
    assert training().packs is None
    assert training(lengths=list(wanted)) != training()


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ([0], "a document of 0 tokens"),
        ([100, SEQUENCE + 1], f"a document of {SEQUENCE + 1} tokens"),
        ([1.5], "no whole number"),
        ([], "0 documents"),
        ("mean=x", "mean must be a number"),
        ("mean=0", "mean must be from 1"),
        ("mean=9,spread=4", "spread must be from 0 to 3"),
        ("mode=9", "'mode' is unknown"),
        ("no_such_file.txt", "cannot be read"),
        (5, "must be whole numbers"),
    ],
)
def test_lengths_that_are_none_are_refused(lengths: Any, said: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=said):
        training(lengths=lengths)


def test_packing_without_documents_and_other_models_are_refused() -> None:
    with pytest.raises(sm.ScaleModelError, match="packing='balanced'"):
        training(packing="balanced")
    with pytest.raises(sm.ScaleModelError, match="packing='fast'"):
        training(lengths=[8], packing="fast")
    with pytest.raises(sm.ScaleModelError, match="lengths"):
        sm.estimate(
            sm.compose("vit_b"), EIGHT, sm.Training(global_batch=64, sequence=197, lengths=[100])
        )


def test_a_launched_job_says_that_it_knows_no_lengths() -> None:
    est = estimated(training(lengths=drawn()), sm.Strategy(tp=2))
    assert any("lengths of packed documents" in note for note in sm.launch(est, "megatron").notes)


def test_the_command_line_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(map(str, drawn(200))), encoding="utf-8")
    words = ["estimate", "llama3_8b", "--cluster", "dgx_h100", "--nodes", "8"]
    words += ["--global-batch", "128", "--sequence", str(SEQUENCE), "--tp", "2", "--cp", "2"]
    words += ["--lengths", str(file), "--packing", "balanced", "--json"]
    answer = run_command(capsys, *words).document
    task = training(lengths=drawn(200), packing="balanced")
    found = estimated(task, sm.Strategy(tp=2, cp=2)).step_time_s
    assert answer["step_time_s"] == pytest.approx(found)
