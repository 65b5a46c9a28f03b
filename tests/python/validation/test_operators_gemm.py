"""Predicted matrix multiplications: what a row may hold, and how far predictions are."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator, newer
from scalemodel.resolve.kernels import GEMM_TYPES, gemm_kernel, training_efficiency
from scalemodel.resolve.reader import merged
from scalemodel.validation.operators.gemm import REQUIRED, predict
from scalemodel.validation.rows import Row

READ = (*REQUIRED, "batch", "source")


def row(**cells: object) -> Row:
    base: dict[str, object] = {"gpu": "H100", "dtype": "bfloat16", "m": 512, "n": 4096, "k": 4096}
    return Row({name: str(cell) for name, cell in {**base, **cells}.items()})


def time_us(**cells: object) -> float:
    (answer,) = predict([row(**cells)])
    assert answer.skip_reason == ""
    assert answer.time_us is not None
    return answer.time_us


class TestRows:
    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ({"gpu": ""}, "missing:gpu"),
            ({"dtype": "unknown"}, "missing:dtype"),
            ({"k": ""}, "missing:k"),
            ({"gpu": "Abacus 9000"}, "unknown_accelerator:Abacus 9000"),
            ({"dtype": "complex128"}, "unsupported:complex128"),
            ({"m": "0"}, "illegal:m"),
            ({"n": "-5"}, "illegal:n"),
            ({"batch": "0"}, "illegal:batch"),
            ({"gpu": "V100-PCIE-32GB", "dtype": "nvfp4"}, ""),
        ],
    )
    def test_a_row_that_cannot_be_predicted_says_why(
        self, cells: Mapping[str, str], reason: str
    ) -> None:
        before, answer, after = predict([row(), row(**cells), row()])
        assert answer.skip_reason == reason
        assert (answer.time_us is None) == bool(reason)
        assert before == after
        assert before.time_us is not None

    @given(cells=st.dictionaries(st.sampled_from(READ), st.text(max_size=20)))
    def test_nothing_in_a_row_raises(self, cells: dict[str, str]) -> None:
        (answer,) = predict([row(**cells)])
        assert (answer.time_us is None) == (answer.skip_reason != "")
        if answer.time_us is not None:
            assert 0 < answer.time_us < float("inf")

    def test_order_and_company_change_nothing(self) -> None:
        rows = [
            row(m=m, dtype=dtype, gpu=gpu)
            for m in (1, 77, 4096)
            for dtype in ("bfloat16", "fp8", "int8_wo")
            for gpu in ("H100", "B200-SXM", "L40S", "MI210")
        ]
        answers = predict(rows)
        assert predict(rows[::-1]) == answers[::-1]
        assert [predict([one])[0] for one in rows] == answers

    def test_no_rows_are_no_predictions(self) -> None:
        assert predict([]) == []


class TestKernels:
    @pytest.mark.parametrize("name", catalog.names("accelerators"))
    @pytest.mark.parametrize("dtype", sorted(GEMM_TYPES))
    def test_every_accelerator_finds_constants_or_has_none(self, name: str, dtype: str) -> None:
        kernel = gemm_kernel(name, dtype)
        if kernel is not None:
            assert kernel.format.peak_flop_per_s > 0
            assert kernel.accelerator.memory_bandwidth_bytes_per_s > 0

    @pytest.mark.parametrize("name", [n for n in catalog.names("kernels") if n.endswith("_gemm")])
    def test_entries_name_their_accelerator_and_source(self, name: str) -> None:
        entry = catalog.load("kernels", name)
        assert entry["accelerator"] in catalog.names("accelerators")
        for tables in entry.values():
            for table in tables.values() if isinstance(tables, dict) else ():
                assert "source" in table or "source" in table["efficiency"]

    def test_the_stack_decides_the_kernel(self) -> None:
        same = {"dtype": "fp8_block", "m": 8}
        eager = time_us(**same, source="somewhere/vllm/0.24.0/gemm.csv")
        graph = time_us(**same, source="elsewhere/sglang/0.5.10/gemm.csv")
        assert graph < eager / 2  # eager calls cannot be issued faster
        assert time_us(**same) == graph

    def test_a_borrowed_kernel_is_named(self) -> None:
        (answer,) = predict([row(gpu="GH200", dtype="fp8")])
        assert answer.time_us is not None
        assert answer.note == "kernel=fp8 of sglang on h100_sxm_80"

    def test_training_products_are_slower_than_benchmarks(self) -> None:
        efficiency = training_efficiency("b200", "transformer_engine")
        assert 0.5 < efficiency < 1
        benchmark = time_us(gpu="B200-SXM", m=8192)
        trained = time_us(gpu="B200-SXM", m=8192, source="MooreThreads/SimuMax")
        assert trained == pytest.approx(benchmark / efficiency)

    def test_accumulating_in_fp32_moves_more(self) -> None:
        thin = {"m": 8192, "n": 8192, "k": 64}
        assert time_us(**thin, dtype="bfloat16_acc_fp32") > 1.5 * time_us(**thin)

    def test_an_unknown_number_format_is_refused(self) -> None:
        with pytest.raises(ScaleModelError, match="dtype='fp7': must be one of"):
            gemm_kernel("h100_sxm_80", "fp7")

    def test_an_extent_below_one_is_refused(self) -> None:
        kernel = gemm_kernel("h100_sxm_80", "bf16")
        assert kernel is not None
        one, none = np.ones(2), np.array([1.0, 0.0])
        for name in ("m", "n", "k", "batch"):
            extents = {"m": one, "n": one, "k": one, "batch": one, name: none}
            with pytest.raises(ValueError, match=f"^{name}=0: must be a number from 1 upwards"):
                _core.gemm_kernel_time_s(
                    kernel.accelerator, kernel.constants, kernel.format, **extents
                )

    def test_malformed_tiles_are_refused(self) -> None:
        for tiles in ([], [[1, 2, 3]], 5, [[64, 64]] * 9):
            table = merged(accelerator_table("h100_sxm_80"), {"gemm": {"tiles": tiles}})
            with pytest.raises(ScaleModelError, match=r"tiles=.*must be 1 to 8 pairs"):
                build_accelerator(table)


def errors(rows: list[dict[str, str]]) -> dict[tuple[str, str, str], np.ndarray]:
    """Relative errors by (gpu, dtype, stack)."""
    answers = predict([Row({k: cell for k, cell in one.items() if k in READ}) for one in rows])
    groups: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one, answer in zip(rows, answers, strict=True):
        stack = next((s for s in ("sglang", "vllm", "SimuMax") if s in one["source"]), "")
        if answer.time_us is not None:
            error = answer.time_us / float(one["time_us"]) - 1
            groups[one["gpu"], one["dtype"], stack].append(error)
    return {key: np.abs(values) for key, values in groups.items()}


def table(corpora: Path, name: str) -> list[dict[str, str]]:
    with (corpora / "ops" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class TestAccuracy:
    def test_sixteen_bit_products(self, corpora: Path) -> None:
        rows = table(corpora, "gemm_consensus.csv")
        limits = {
            "A100-SXM4-80GB": 0.070,
            "H100-SXM5-80GB": 0.050,
            "H200-SXM-141GB": 0.050,
            "B200-SXM": 0.065,
            "GB200": 0.065,
            "B300-SXM": 0.068,
            "GB300": 0.065,
            "L40S": 0.135,
            "RTX-PRO-6000-Server": 0.090,
        }
        found = errors(rows)
        assert {gpu for gpu, _, _ in found} == set(limits)
        for (gpu, _, _), values in found.items():
            assert values.mean() < limits[gpu], gpu
        long = errors([one for one in rows if float(one["time_us"]) > 20])
        for (gpu, _, _), values in long.items():
            if gpu not in ("L40S", "RTX-PRO-6000-Server"):
                assert values.mean() < 0.05, gpu

    def test_narrow_products_and_training(self, corpora: Path) -> None:
        rows = table(corpora, "gemm.csv")
        found = errors(rows)
        for (gpu, dtype, stack), values in found.items():
            data_centre = gpu.startswith(("H100", "H200", "B200", "B300", "GB"))
            if dtype in ("fp8", "fp8_block", "nvfp4") and stack == "sglang" and data_centre:
                assert values.mean() < 0.125, (gpu, dtype)
            if stack == "SimuMax":
                assert values.mean() < 0.11, (gpu, dtype)
        assert sum(map(len, found.values())) > 0.96 * len(rows)

    def test_constants_carry_one_generation(self, corpora: Path) -> None:
        rows = table(corpora, "gemm_consensus.csv")
        donor = accelerator_table("h100_sxm_80")
        for gpu, generations, limit in (("H200-SXM-141GB", 0, 0.06), ("B200-SXM", 1, 0.13)):
            sheet = accelerator_table(gpu)
            mixed = dict(sheet)
            mixed["gemm"] = {**donor["gemm"], "generations": generations}
            core = build_accelerator(mixed)
            columns = np.array(
                [
                    [float(one[c]) for c in ("m", "n", "k", "time_us")]
                    for one in rows
                    if one["gpu"] == gpu
                ]
            )
            m, n, k, measured = np.ascontiguousarray(columns.T)
            predicted = 1e6 * _core.gemm_time_s(core, "bf16", m, n, k)
            assert np.abs(predicted / measured - 1).mean() < limit, gpu

    def test_a_newer_architecture_starts_sooner_and_moves_more(self) -> None:
        kernel = _core.TileGemm(
            launch_s=2e-6, cache_bytes_per_clock=50, epilogue_bytes_per_clock=20
        )
        assert newer(kernel, 0) == kernel
        later = newer(kernel, 1)
        assert later.launch_s < kernel.launch_s
        assert later.cache_bytes_per_clock > kernel.cache_bytes_per_clock
        assert later.epilogue_bytes_per_clock > kernel.epilogue_bytes_per_clock
