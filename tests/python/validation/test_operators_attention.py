"""Predictions of measured attention rows: what may change them, what may not, how good they are."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.attention import PHASES, AttentionEntry, AttentionKernels, version_of
from scalemodel.validation.operators.attention import REQUIRED, predict
from scalemodel.validation.rows import Row, read_table

GROUPED = {
    "gpu": "H100-SXM5-80GB",
    "dtype": "bfloat16",
    "phase": "decode",
    "batch": "32",
    "seq_q": "1",
    "seq_kv": "4096",
    "heads": "32",
    "kv_heads": "8",
    "head_dim": "128",
    "kernel": "flash_attention",
    "source": "owner/tool@1:data/h100/sglang/0.5.10/table.parquet",
}
LATENT = {
    "gpu": "B200-SXM",
    "dtype": "bfloat16",
    "phase": "decode",
    "batch": "32",
    "seq_q": "1",
    "seq_kv": "4096",
    "heads": "16",
    "tp": "8",
    "kernel": "default",
    "source": "owner/tool@1:data/b200/trtllm/1.3.0rc20/table.parquet",
}


def time_us(cells: dict[str, str], **changes: object) -> float:
    row = Row({**cells, **{key: str(value) for key, value in changes.items()}})
    (prediction,) = predict([row])
    assert prediction.skip_reason == ""
    assert prediction.time_us is not None
    return prediction.time_us


def skip_reason(cells: dict[str, str], **changes: object) -> str:
    row = Row({**cells, **{key: str(value) for key, value in changes.items()}})
    (prediction,) = predict([row])
    assert (prediction.time_us is None) == bool(prediction.skip_reason)
    return prediction.skip_reason


@pytest.mark.parametrize("column", REQUIRED)
def test_a_missing_required_cell_is_named(column: str) -> None:
    for cells in (GROUPED, LATENT):
        assert skip_reason(cells, **{column: ""}) == f"missing:{column}"


@pytest.mark.parametrize("column", ["kv_heads", "head_dim"])
def test_grouped_query_rows_need_their_head_sizes(column: str) -> None:
    assert skip_reason(GROUPED, **{column: ""}) == f"missing:{column}"
    assert skip_reason(LATENT, tp="", kernel="triton") == "missing:kv_heads"


def test_rows_that_cannot_be_predicted_say_why() -> None:
    assert skip_reason(GROUPED, gpu="Abacus 3000") == "unknown_accelerator:Abacus 3000"
    assert skip_reason(GROUPED, dtype="float64") == "unsupported:float64"
    assert skip_reason(GROUPED, phase="sideways") == "unsupported:sideways"
    assert skip_reason(GROUPED, batch="0") == "illegal:batch"
    assert skip_reason(GROUPED, batch="2.5") == "illegal:batch"
    assert skip_reason(GROUPED, kv_heads="64") == "illegal:kv_heads"


def test_missing_optional_cells_have_defaults() -> None:
    assert time_us(GROUPED) == time_us(GROUPED, v_head_dim=128, causal=1, window=0)
    assert time_us(GROUPED) == time_us(GROUPED, kv_dtype="bfloat16")
    encoder = {**GROUPED, "phase": "encoder", "seq_q": "4096", "kernel": "flash_attention_v3"}
    assert time_us(encoder) == time_us(encoder, causal=0)
    assert time_us(encoder, causal=1) < 0.8 * time_us(encoder)


def test_names_of_sources_change_nothing_but_the_stack() -> None:
    assert time_us(GROUPED) == time_us(GROUPED, source="other/repo:x/sglang/0.5.10/y.csv")
    newer = "owner/tool@1:data/h100/sglang/0.5.14/table.parquet"
    latent = {**LATENT, "gpu": "H100", "kernel": "flash_attention", "source": newer}
    assert time_us(latent) != time_us(latent, source=newer.replace("14", "10"))


GPUS = st.sampled_from(["A100-SXM4-80GB", "H100", "H200", "B200", "GB300", "L40S", "MI300X"])


def times_us(cells: dict[str, str], *changes: dict[str, int]) -> list[float]:
    """Times of `cells` as they are and with each of `changes`, of one table."""
    texts = [{key: str(value) for key, value in change.items()} for change in ({}, *changes)]
    times = [prediction.time_us for prediction in predict([Row({**cells, **t}) for t in texts])]
    assert all(time is not None for time in times)
    return [time for time in times if time is not None]


@given(
    batch=st.integers(1, 4096),
    keys=st.integers(1, 2**20),
    group=st.sampled_from([1, 2, 4, 8, 16, 64, 128]),
    gpu=GPUS,
)
def test_more_to_read_never_takes_less(batch: int, keys: int, group: int, gpu: str) -> None:
    shape = {"batch": str(batch), "seq_kv": str(keys), "heads": str(group), "kv_heads": "1"}
    here, *more = times_us(
        {**GROUPED, "gpu": gpu, "kernel": "", **shape},
        {"batch": 2 * batch},
        {"seq_kv": 2 * keys},
        {"heads": 2 * group, "kv_heads": 2},
    )
    assert min(more) >= 0.999 * here


@given(
    batch=st.integers(1, 512),
    queries=st.integers(1, 2**17),
    kv_heads=st.sampled_from([1, 4]),
    gpu=GPUS,
)
def test_longer_prompts_never_take_less(batch: int, queries: int, kv_heads: int, gpu: str) -> None:
    shape = {"batch": str(batch), "seq_q": str(queries), "seq_kv": str(queries), "heads": "8"}
    here, *more = times_us(
        {
            **GROUPED,
            "gpu": gpu,
            "kernel": "",
            "phase": "prefill",
            "kv_heads": str(kv_heads),
            **shape,
        },
        {"batch": 2 * batch},
        {"seq_q": 2 * queries, "seq_kv": 2 * queries},
    )
    assert min(more) >= 0.999 * here


def test_a_window_saves_reading_and_computing() -> None:
    assert time_us(GROUPED, seq_kv=65536, window=1024) < time_us(GROUPED, seq_kv=65536)
    assert time_us(GROUPED, window=4096) == time_us(GROUPED)
    long = {**GROUPED, "phase": "prefill", "seq_q": "16384", "seq_kv": "16384"}
    assert time_us(long, window=1024) < 0.5 * time_us(long)


def test_eight_bit_caches_and_operands_pay_on_long_sequences() -> None:
    assert time_us(GROUPED, kv_dtype="fp8", seq_kv=65536) < 0.75 * time_us(GROUPED, seq_kv=65536)
    long = {**GROUPED, "phase": "prefill", "seq_q": "16384", "seq_kv": "16384"}
    assert time_us(long, dtype="fp8", kv_dtype="fp8") < time_us(long)
    assert time_us(LATENT, kv_dtype="fp8", seq_kv=65536) < time_us(LATENT, seq_kv=65536)


def test_latent_attention_decodes_faster_than_its_heads_kept_apart() -> None:
    apart = {**LATENT, "tp": "", "kv_heads": "16", "head_dim": "192", "v_head_dim": "128"}
    assert time_us(LATENT, seq_kv=65536) < 0.5 * time_us(apart, seq_kv=65536)


def test_a_backward_pass_takes_longer_than_its_forward_pass() -> None:
    for gpu in ("A100-PCIE-80GB", "B200", "H100"):
        cells = {**GROUPED, "gpu": gpu, "kernel": "TE/FA", "seq_q": "8192", "seq_kv": "8192"}
        forward, backward = (time_us(cells, phase=phase) for phase in ("train_fwd", "train_bwd"))
        assert 2 < backward / forward < 4


@pytest.mark.parametrize("name", catalog.names("accelerators"))
def test_every_accelerator_answers_every_phase(name: str) -> None:
    for phase in ("prefill", "decode", "encoder", "train_fwd", "train_bwd"):
        assert time_us(GROUPED, gpu=name, phase=phase, kernel="some new kernel") > 0
    for phase in ("prefill", "decode"):
        assert time_us(LATENT, gpu=name, phase=phase, kernel="") > 0


def test_constants_come_from_the_nearest_accelerator() -> None:
    def origin(name: str) -> str:
        return AttentionKernels(name).choose("decode").accelerator

    assert origin("h100_sxm_80") == origin("h800_sxm_80") == "h100_sxm_80"
    assert origin("gh200_144") == "h200"
    assert origin("a40") == origin("v100_sxm_32") == "a100_sxm_80"
    assert origin("l40") == origin("rtx_4090") == "l40s"
    assert origin("b100") == "b200"
    assert origin("mi300x") == origin("tpu_v5p") == "h100_sxm_80"
    assert origin("rubin") == "b200"


def test_a_foreign_kernel_is_said_to_be_one() -> None:
    (known,) = predict([Row(GROUPED)])
    assert known.note == ""
    (other,) = predict([Row({**GROUPED, "gpu": "MI300X", "kernel": "aiter"})])
    assert "kernel aiter not fitted" in other.note
    assert "constants of h100_sxm_80" in other.note


def test_the_release_not_newer_than_the_asked_one_is_taken() -> None:
    kernels = AttentionKernels("H100")

    def release(version: str) -> tuple[int, ...]:
        found = kernels.choose(
            "mla_decode", kernel="flash_attention", engine="sglang", version=version
        )
        return found.version

    assert release("0.5.10") == release("0.5.13") == (0, 5, 10)
    assert release("0.5.14") == release("0.6") == release("") == (0, 5, 14)
    assert release("0.4.1") == (0, 5, 10)
    assert version_of("rc") == ()


def test_kernels_change_their_ways_with_the_group_size() -> None:
    def entry(group: int) -> AttentionEntry:
        return AttentionKernels("B200").choose(
            "decode", kernel="torch_flow", engine="trtllm", version="1.3.0", group=group
        )

    assert entry(8) == entry(32) != entry(64) == entry(128)


def test_an_unknown_phase_is_an_error() -> None:
    with pytest.raises(ScaleModelError, match="phase='prefil'"):
        AttentionKernels("H100").choose("prefil")
    assert set(PHASES) >= {"prefill", "decode"}


def test_a_private_entry_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "h100_sxm_80_attention.toml").write_text(
        'name = "h100_sxm_80_attention"\naccelerator = "h100_sxm_80"\n'
        '[decode.mine]\nkernel = "mine"\nlaunch = "3 us"\nsource = "a test"\n'
    )
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    entry = AttentionKernels("H100").choose("decode", kernel="mine")
    assert entry.constants.launch_s == pytest.approx(3e-6)
    (folder / "h100_sxm_80_attention.toml").write_text(
        'accelerator = "h100_sxm_80"\n[decode.mine]\nlunch = "3 us"\n'
    )
    with pytest.raises(ScaleModelError, match=r"decode\.mine\.lunch"):
        AttentionKernels("H100")


# ------------------------------------------------------------------------------ measured rows
def errors(path: Path) -> dict[tuple[str, str], list[float]]:
    """Relative errors of a measured table by (gpu, phase)."""
    table = read_table(path)
    rows = table.select([name for name in table.header if name != "time_us"])
    measured = [float(cell) for cell in table.column("time_us")]
    found = defaultdict(list)
    for row, prediction, actual in zip(rows, predict(rows), measured, strict=True):
        if prediction.time_us is None:
            assert prediction.skip_reason.startswith("unknown_accelerator:")
            continue
        key = (row.text("gpu"), row.text("phase"))
        found[key].append(abs(prediction.time_us / actual - 1))
    return found


def pooled(found: dict[tuple[str, str], list[float]], phase: str, *without: str) -> float:
    kept = [e for (gpu, p), e in found.items() if p == phase and not gpu.startswith(without or "?")]
    return mean(error for group in kept for error in group)


def test_grouped_query_attention_is_within_the_stated_error(corpora: Path) -> None:
    found = errors(corpora / "ops" / "attention.csv")
    assert pooled(found, "decode", "Intel") < 0.092
    assert pooled(found, "decode") < 0.094
    assert pooled(found, "prefill", "L40S", "RTX", "Intel") < 0.078
    assert pooled(found, "prefill", "Intel") < 0.087
    assert pooled(found, "prefill") < 0.1
    assert pooled(found, "encoder") < 0.15
    assert pooled(found, "train_fwd") < 0.06
    assert pooled(found, "train_bwd") < 0.04


def test_latent_attention_is_within_the_stated_error(corpora: Path) -> None:
    found = errors(corpora / "ops" / "mla.csv")
    assert pooled(found, "decode") < 0.102
    assert pooled(found, "prefill") < 0.087


def test_order_of_rows_changes_nothing(corpora: Path) -> None:
    table = read_table(corpora / "ops" / "attention.csv")
    rows = table.select([name for name in table.header if name != "time_us"])
    straight = predict(rows)
    order = random.Random(1).sample(range(len(rows)), len(rows))
    shuffled = predict([rows[index] for index in order])
    assert all(straight[index] == shuffled[place] for place, index in enumerate(order))
