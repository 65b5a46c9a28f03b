"""Rows of kernels of mixers, sparse attention and towers: laws, refusals, and published errors."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from scalemodel import resolve
from scalemodel.validation.operators.mixers import CALLS, Predictor, sparse_attention, work_of
from scalemodel.validation.operators.table import predict
from scalemodel.validation.rows import Row, SkippedRowError, read_table

KINDS = tuple(CALLS)
#: One call of each kind, and the column that makes it longer.
CELLS: dict[str, tuple[dict[str, str], str]] = {
    "linear_attention": (
        {
            **{"gpu": "H100-SXM5-80GB", "engine": "sglang", "family": "gdn", "phase": "context"},
            **{
                "kernel": "chunk_gated_delta_rule",
                "batch": "1",
                "seq": "8192",
                "dtype": "bfloat16",
            },
            **{"k_heads": "16", "k_head_dim": "128", "v_heads": "32", "v_head_dim": "128"},
        },
        "seq",
    ),
    "mamba2": (
        {
            **{"gpu": "H100-SXM5-80GB", "engine": "vllm", "phase": "context", "batch": "1"},
            **{"kernel": "mamba_chunk_scan_combined", "seq": "8192", "heads": "128"},
            **{"head_dim": "64", "state": "128", "groups": "8", "chunk_size": "256"},
        },
        "seq",
    ),
    "sparse_attention": (
        {
            **{"gpu": "B200", "engine": "sglang", "model": "DeepSeek-V3.2"},
            **{"op": "dsa", "phase": "prefill", "heads": "16", "batch": "1", "seq_q": "4096"},
            **{"seq_kv": "4096", "gemm_dtype": "fp8_block", "kv_dtype": "fp8"},
        },
        "seq_q",
    ),
    "msa": (
        {
            **{"gpu": "B200", "phase": "prefill", "heads": "64", "batch": "1", "seq_q": "4096"},
            **{"seq_kv": "4096", "dtype": "bfloat16"},
        },
        "seq_q",
    ),
    "mhc": (
        {"gpu": "B200", "op": "pre", "tokens": "4096", "hidden": "7168", "hc_mult": "4"},
        "tokens",
    ),
    "moe_fused_a2a": (
        {
            **{"gpu": "GB200", "phase": "prefill", "tokens_per_rank": "4096", "hidden": "7168"},
            **{"inter": "2048", "topk": "8", "experts": "256", "ep": "8"},
        },
        "tokens_per_rank",
    ),
    "encoder_attention": (
        {"gpu": "H100-SXM5-80GB", "batch": "4", "seq": "4096", "heads": "16", "head_dim": "72"},
        "seq",
    ),
}
#: Mean and median error over the tables of a folder of one's own, where it has them.
LARGEST_ERRORS = {
    "linear_attention": (0.12, 0.065),
    "mamba2": (0.12, 0.085),
    "sparse_attention": (0.12, 0.06),
    "msa": (0.14, 0.065),
    "mhc": (0.08, 0.045),
    "moe_fused_a2a": (0.16, 0.10),
    "encoder_attention": (0.18, 0.10),
}


def time_us(kind: str, **changes: str) -> float:
    (prediction,) = Predictor(kind).predict([Row(CELLS[kind][0] | changes)])
    assert prediction.time_us is not None, prediction.skip_reason
    return prediction.time_us


@pytest.mark.parametrize("kind", KINDS)
def test_longer_calls_take_longer(kind: str) -> None:
    cells, column = CELLS[kind]
    sizes = [str(int(cells[column]) * factor) for factor in (1, 4, 16)]
    times = [time_us(kind, **{column: size}) for size in sizes]
    assert all(0 < short < long for short, long in pairwise(times))
    assert times[2] < 16 * 16 * times[0]  # at most the square, of scores


@pytest.mark.parametrize("kind", KINDS)
def test_a_needed_column_is_named_by_the_kind(kind: str) -> None:
    assert set(Predictor(kind).REQUIRED) <= {"gpu", *CELLS[kind][0]}


@pytest.mark.parametrize("kind", KINDS)
def test_an_accelerator_without_timings_borrows_and_says_so(kind: str) -> None:
    (prediction,) = Predictor(kind).predict([Row(CELLS[kind][0] | {"gpu": "L4"})])
    assert prediction.time_us is not None
    assert prediction.note.startswith("constants of ")


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_labels_of_sources_decide_nothing(kind: str) -> None:
    cells, column = CELLS[kind]
    rows = [Row(cells | {column: size}) for size in ("512", "1024", "2048")]
    times = [prediction.time_us for prediction in Predictor(kind).predict(rows)]
    back = [prediction.time_us for prediction in Predictor(kind).predict(rows[::-1])]
    assert back == times[::-1]


@pytest.mark.parametrize(
    "kind, changes, reason",
    [
        ("linear_attention", {"family": "retention"}, "unsupported:retention"),
        ("linear_attention", {"seq": "none"}, "missing:seq"),
        ("mhc", {"tokens": "-3"}, "illegal:tokens"),
        ("mhc", {"gpu": "Abacus"}, "unknown_accelerator:Abacus"),
        ("sparse_attention", {"model": "Nobody-7B"}, "unknown_model:Nobody-7B"),
        ("sparse_attention", {"model": "llama3_8b"}, "unknown_model:llama3_8b"),
        ("sparse_attention", {"op": "spa"}, "unsupported:spa"),
        ("sparse_attention", {"op": "dsa", "heads": "0"}, "illegal:heads"),
    ],
)
def test_a_row_that_cannot_be_asked_says_why(
    kind: str, changes: dict[str, str], reason: str
) -> None:
    rows = [Row(CELLS[kind][0] | changes), Row(CELLS[kind][0])]
    refused, answered = Predictor(kind).predict(rows)
    assert (refused.time_us, refused.skip_reason) == (None, reason)
    assert answered.time_us is not None


# ------------------------------------------------------------------------------------- the engine
def test_weights_of_a_module_are_those_of_the_model() -> None:
    """DeepSeek-V3.2 by hand: arXiv 2412.19437 for the projections, 2512.02556 for the indexer."""
    cells = CELLS["sparse_attention"][0]
    *_, projected, indexer = sparse_attention(Row(cells | {"heads": "128"})).sizes[3:7]
    by_hand = 7168 * (1536 + 512 + 64) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    assert projected == pytest.approx(by_hand, rel=2e-4)  # norms beside them
    assert indexer == pytest.approx(1536 * 64 * 128 + 7168 * (128 + 64), rel=2e-4)
    without = sparse_attention(Row(cells | {"heads": "128", "indexer": "0"})).sizes
    assert (without[5], without[6]) == (projected, 0)


@pytest.mark.parametrize("model", ["deepseek_v3_2", "deepseek_v4_pro", "deepseek_v4_flash"])
def test_ranks_of_a_module_have_their_part_of_its_heads(model: str) -> None:
    shape = resolve.model(model).shape
    op = "dsa" if shape.kv_lora_rank else "csa"
    cells = CELLS["sparse_attention"][0] | {"model": model, "op": op}
    ranks = (1, 2, 4, 8)
    weights = [
        sum(sparse_attention(Row(cells | {"heads": str(shape.heads // n)})).sizes[5:7])
        for n in ranks
    ]
    whole = [weights[0] - each for each in weights]
    # What all ranks have stays: of heads, half of the ranks leave half.
    assert whole[1] / whole[2] == pytest.approx((1 / 2) / (3 / 4), rel=1e-3)
    assert whole[1] / whole[3] == pytest.approx((1 / 2) / (7 / 8), rel=1e-3)


@pytest.mark.parametrize("model, op", [("DeepSeek-V3.2", "dsa"), ("deepseek_v4_pro", "csa")])
def test_part_of_a_head_is_refused(model: str, op: str) -> None:
    cells = CELLS["sparse_attention"][0] | {"model": model, "op": op, "heads": "0.5"}
    with pytest.raises(SkippedRowError, match="illegal:heads"):
        sparse_attention(Row(cells))


@pytest.mark.parametrize("kind", KINDS)
def test_work_is_finite_and_positive(kind: str) -> None:
    work = work_of([CALLS[kind](Row(CELLS[kind][0]))])
    assert work.shape == (1, 5)
    assert (work >= 0).all()
    assert work[0, 1] > 0


# ------------------------------------------------------------------------------------- accuracy
@pytest.mark.parametrize("kind", KINDS)
def test_published_timings_are_met(kind: str, corpora: Path) -> None:
    table = read_table(corpora / "ops" / f"{kind}.csv")
    errors = sorted(
        abs(prediction.time_us / float(measured) - 1)
        for prediction, measured in zip(predict(kind, table), table.column("time_us"), strict=True)
        if prediction.time_us is not None
    )
    assert len(errors) == len(table.rows)
    mean, median = LARGEST_ERRORS[kind]
    assert sum(errors) / len(errors) < mean
    assert errors[len(errors) // 2] < median
