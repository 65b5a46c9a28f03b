"""MAD-Max's headline speed-ups: from its formulas, and what is left when they are set right."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from scalemodel.base.errors import ScaleModelError
from scalemodel.studies.madmax_gains import MENDED, original_strategies, speed_ups
from scalemodel.studies.madmax_original import ask

#: Of the abstract.
PUBLISHED = {"pretrain": 2.24, "inference": 5.2}


@pytest.fixture(scope="module")
def gains() -> pd.DataFrame:
    return speed_ups()


def test_the_originals_formulas_give_the_published_gains(
    gains: pd.DataFrame, summary_line: Callable[[str], None]
) -> None:
    for row in gains.itertuples():
        summary_line(f"MAD-Max, {row.task}, {row.formulas}: {row.speed_up:.2f} ({row.layers})")
    original = gains[gains.formulas == "original"].set_index("task").speed_up
    for task, published in PUBLISHED.items():
        assert original[task] == pytest.approx(published, rel=0.02)


def test_shared_adapters_take_the_gain_of_training_away(gains: pd.DataFrame) -> None:
    training = gains[gains.task == "pretrain"].set_index("formulas").speed_up
    assert training["+ shared_adapters"] == pytest.approx(1.0)
    mended = original_strategies(corrected=["shared_adapters"]).set_index("layers")
    assert mended.speed_up["ddp@8+tp@16"] < 0.8
    # Experts on ranks of their own bring a gain back, which the original's space lacks.
    assert training["engine"] > training["engine, experts as layers"] > 1


def test_the_exchange_of_rows_takes_half_of_the_gain_of_inference(gains: pd.DataFrame) -> None:
    inference = gains[gains.task == "inference"].set_index("formulas").speed_up
    before, after = inference["+ expert_exchange"], inference["+ pooled_exchange"]
    assert before == pytest.approx(inference["original"])
    assert after < 0.5 * before
    # Set right, the original is the engine with the original's space; experts of their own gain.
    assert inference["engine, experts as layers"] == pytest.approx(after, rel=0.1)
    assert inference["engine, experts as layers"] < inference["engine"] < before


def test_corrections_are_made_one_after_another(gains: pd.DataFrame) -> None:
    names = ["original", *(f"+ {name}" for name in MENDED), "engine, experts as layers", "engine"]
    for _, rows in gains.groupby("task"):
        assert rows.formulas.tolist() == names
    with pytest.raises(ScaleModelError, match="tasks: 'finetune': must be"):
        speed_ups(["finetune"])


@pytest.mark.parametrize(
    "layers, message",
    [
        ("tp@2+fsdp@4+ddp@16", "at most two levels"),
        ("ddp@8+fsdp@16", "inner level only"),
        ("ddp@8+ddp@16", "takes a parallelism once"),
        ("tp@8+ddp@8", "degrees must multiply to 128"),
        ("tp@4+ddp@32", "the inner degree must be 8 or 128"),
        ("ep@128", "must be made of ddp, fsdp, tp"),
        ("tp@8+", "must be spelled|degrees must multiply"),
        ("tp8", "must be spelled"),
        ("", "must be made of"),
    ],
)
def test_strategies_that_the_original_refuses_are_refused(layers: str, message: str) -> None:
    with pytest.raises(ScaleModelError, match=message):
        ask("dlrm/dlrm_a", "zionex/zionex", 128, layers, 65536)


def test_unknown_models_and_systems_are_named() -> None:
    with pytest.raises(ScaleModelError, match=r"model='dlrm/dlrm_b'"):
        ask("dlrm/dlrm_b", "zionex/zionex", 128, "ddp@128", 65536)
    with pytest.raises(ScaleModelError, match=r"system='zionex'"):
        ask("dlrm/dlrm_a", "zionex", 128, "ddp@128", 65536)
