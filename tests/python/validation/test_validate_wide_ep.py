"""Deployments with wide expert parallelism, beside those published."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel.validation import scores_of

DECODE = {
    "engine": "SGLang",
    "model": "DeepSeek-V3/R1",
    "weights_precision": "FP8 blockwise",
    "kv_precision": "BF16",
    "gpu": "H100-80GB",
    "n_gpus": "72",
    "gpus_per_node": "8",
    "phase": "decode",
    "dp": "72",
    "ep": "72",
    "redundant_experts": "32",
    "batch_per_gpu": "256",
    "input_tokens": "2000",
    "output_tokens": "100",
    "two_batch_overlap": "yes",
    "eplb": "static",
}
PREFILL = {
    **DECODE,
    **{"n_gpus": "32", "phase": "prefill", "dp": "32", "ep": "32", "batch_per_gpu": ""},
    **{"tokens_per_gpu_per_pass": "16384", "input_tokens": "4096", "output_tokens": ""},
}


def asked(tmp_path: Path, *rows: dict[str, str]) -> pd.DataFrame:
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows).fillna("").to_csv(path, index=False)
    return sm.validate("wide_ep", path)


def test_published_rates_are_met() -> None:
    frame = sm.validate("wide_ep")
    assert (frame.skip_reason == "").all()
    scores = scores_of("wide_ep", frame).to_dict()
    assert scores["rows_predicted"] == len(frame)
    measured = pd.to_numeric(frame.tokens_per_s_gpu, errors="coerce")
    error = (frame.predicted_tokens_per_s_gpu / measured - 1).abs().dropna()
    decode = error[frame.phase == "decode"]
    assert decode.mean() < 0.2
    assert decode.max() < 0.6
    # A day's mean of DeepSeek's prefill nodes is a load: its share of the capacity is told.
    loads = frame.predicted_utilisation_fraction.notna()
    assert list(frame.engine[loads]) == 2 * ["DeepSeek production"]
    prefill = error[(frame.phase == "prefill") & ~loads]
    assert prefill.mean() < 0.2
    assert prefill.max() < 0.3
    assert error[frame.phase == "mixed"].max() < 0.2
    assert scores["pooled"]["mape_fraction"] < 0.2


def test_a_load_within_the_capacity_counts_for_no_error(tmp_path: Path) -> None:
    row = {**PREFILL, "engine": "SGLang in production"}
    rates = asked(tmp_path, PREFILL).predicted_tokens_per_s_gpu[0]
    rows = [{**row, "tokens_per_s_gpu": str(share * rates)} for share in (0.5, 2.0)]
    frame = asked(tmp_path, *rows)
    assert list(frame.predicted_utilisation_fraction) == pytest.approx([0.5, 2.0])
    pooled = scores_of("wide_ep", frame).to_dict()["pooled"]
    assert pooled["predicted"] == 1
    assert pooled["mape_fraction"] == pytest.approx(0.5)


def test_an_early_release_lacks_what_later_ones_added(tmp_path: Path) -> None:
    row = {**DECODE, "engine": "TensorRT-LLM", "gpu": "B200", "n_gpus": "8", "dp": "8", "ep": "8"}
    row |= {"weights_precision": "NVFP4", "redundant_experts": "", "batch_per_gpu": "64"}
    early, late = (asked(tmp_path, row | {"date": date}) for date in ("2025-02", "2025-05"))
    assert "before attention_kernels, fp8_cache" in early.predicted_note[0]
    assert late.predicted_tokens_per_s_gpu[0] / early.predicted_tokens_per_s_gpu[0] == (
        pytest.approx(1.2 * 1.06 * 1.04 * 1.074 * 1.04 * 1.013 * 1.053 * 1.22 * 1.04)
    )
    later = asked(tmp_path, row | {"date": "2026-01"})
    assert later.predicted_tokens_per_s_gpu[0] == late.predicted_tokens_per_s_gpu[0]


def test_published_ablations_have_their_sign_and_size() -> None:
    frame = sm.validate("wide_ep").set_index("row_id")
    change = frame.predicted_relative_change_pct
    for name, low, high in (
        ("W009", 15, 35),  # overlap at 256 sequences: 25.5
        ("W010", -35, -15),  # at 32: -27
        ("W011", 25, 55),  # in prefill, with twice the tokens: 40.5
        ("W012", 35, 65),  # balanced prefill: 49
        ("W013", 60, 160),  # balanced decode: 154
        ("W014", -85, -60),  # tensor parallelism instead: -70
        ("W015", -95, -70),  # -81
    ):
        assert low < change[name] < high, name


def test_what_a_row_does_not_say_is_told(tmp_path: Path) -> None:
    bare = {**DECODE, "batch_per_gpu": "", "kv_precision": "", "input_tokens": ""}
    full, found = (asked(tmp_path, row).iloc[0] for row in (DECODE, bare))
    assert full.predicted_note == ""
    for text in ("prompts of 2000 tokens", "bf16 cache", "256 sequences a rank"):
        assert f"{text} assumed" in found.predicted_note
    assert found.predicted_tokens_per_s_gpu == full.predicted_tokens_per_s_gpu


def test_rates_follow_what_a_row_says(tmp_path: Path) -> None:
    rows = [
        DECODE,
        {**DECODE, "batch_per_gpu": "64"},
        {**DECODE, "input_tokens": "8000"},
        {**DECODE, "two_batch_overlap": "no"},
        {**DECODE, "eplb": "no"},
        {**DECODE, "eplb": "simulated perfect balance"},
        {**DECODE, "mtp_tokens": "1", "mtp_acceptance": "0.8"},
        {**DECODE, "gpu": "H200"},
    ]
    usual, few, long, apart, skewed, even, drafts, wider = asked(
        tmp_path, *rows
    ).predicted_tokens_per_s_gpu
    assert few < usual < even
    assert max(long, apart, skewed) < usual < wider
    assert usual < drafts < 1.8 * usual


def test_cached_tokens_count_as_input(tmp_path: Path) -> None:
    rows = [PREFILL, {**PREFILL, "prefix_hit_fraction": "0.5"}]
    computed, half = asked(tmp_path, *rows).predicted_tokens_per_s_gpu
    assert 1.6 * computed < half < 2 * computed


def test_a_prompt_waits_for_half_a_pass_and_takes_part_in_the_next(tmp_path: Path) -> None:
    found = asked(tmp_path, PREFILL).iloc[0]
    assert found.predicted_ttft_s == pytest.approx(
        1.5 * 16384 / found.predicted_tokens_per_s_gpu, rel=1e-9
    )
    assert 2 < found.predicted_ttft_s < 5  # as SGLang publishes
    assert pd.isna(found.predicted_itl_ms)


def test_degrees_are_read_as_engines_give_them(tmp_path: Path) -> None:
    """A `tp` of all ranks beside `dp` is the world; without `dp` it splits attention."""
    rows = [
        DECODE,
        {**DECODE, "tp": "72"},
        {**DECODE, "dp": "", "tp": ""},
        {**DECODE, "dp": "", "tp": "8", "redundant_experts": "32"},
    ]
    plain, world, implied, split = asked(tmp_path, *rows).predicted_tokens_per_s_gpu
    assert plain == world == implied
    assert split < plain


def test_nodes_that_do_not_divide_a_deployment_are_smaller(tmp_path: Path) -> None:
    row = {**DECODE, "n_gpus": "36", "dp": "36", "ep": "36"}
    found = asked(tmp_path, row).iloc[0]
    assert found.skip_reason == ""
    assert "6 accelerators a node" in found.predicted_note


def test_predictions_do_not_read_what_was_measured(tmp_path: Path) -> None:
    told = {**DECODE, "tokens_per_s_gpu": "1", "itl_ms": "1", "tokens_per_s_user": "7"}
    one, other = (asked(tmp_path, row).iloc[0] for row in (DECODE, told))
    assert one.predicted_tokens_per_s_gpu == other.predicted_tokens_per_s_gpu
    assert one.predicted_itl_ms == other.predicted_itl_ms


def test_an_engine_without_an_entry_is_said_to_be_one(tmp_path: Path) -> None:
    found = asked(tmp_path, {**DECODE, "engine": "Another"}).iloc[0]
    assert "constants of SGLang stand in for the engine" in found.predicted_note


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"phase": "training"}, "illegal:phase:training"),
        ({"gpu": "Nothing-1"}, "unknown_accelerator:Nothing-1"),
        ({"model": "unheard-of"}, "unknown_architecture:unheard-of"),
        ({"n_gpus": ""}, "missing:n_gpus"),
        ({"n_gpus": "8"}, "illegal:mesh"),
        ({"weights_precision": "seven bits"}, "unsupported:dtype"),
        ({"relative_to": "a dream"}, "unsupported:relative_to"),
        ({"input_tokens": "-1"}, "illegal:input_tokens"),
        ({"input_tokens": "9e9"}, "illegal"),
        ({"gpu": "L4", "n_gpus": "72"}, "illegal"),
        ({"prefix_hit_fraction": "1.5"}, "illegal"),
    ],
)
def test_rows_that_make_no_sense_say_why(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    found = asked(tmp_path, {**DECODE, **change}).iloc[0]
    assert found.skip_reason.startswith(reason)
    assert pd.isna(found.predicted_tokens_per_s_gpu)


def test_a_table_needs_its_columns(tmp_path: Path) -> None:
    with pytest.raises(sm.ScaleModelError, match="required column 'phase'"):
        asked(tmp_path, {name: cell for name, cell in DECODE.items() if name != "phase"})
