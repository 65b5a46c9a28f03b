"""Predicted times of expert layers, grouped products and token dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.resolve.engine_kernels import in_a_model, received_experts
from scalemodel.resolve.kernel_tables import distance, kernels, nearest_kernel
from scalemodel.validation.operators import OperatorPrediction, moe
from scalemodel.validation.rows import Row, read_table

LAYER = {
    "gpu": "H100-SXM5-80GB",
    "dtype": "bfloat16",
    "tokens": "1024",
    "hidden": "4096",
    "inter": "1536",
    "topk": "8",
    "experts": "128",
    "tp": "1",
    "ep": "8",
    "distribution": "power_law_1.2",
    "op": "fused_moe_fwd",
    "kernel": "vllm_unquantizedfusedmoe_triton_tritonexperts",
    "source": "owner/data@1:h100/moe/vllm/0.24.0/moe.parquet",
}
DISPATCH = {
    "gpu": "H100-SXM5-80GB",
    "nodes": "1",
    "hidden": "7168",
    "tokens": "4096",
    "topk": "8",
    "experts": "256",
    "mode": "deepep_normal",
    "op": "dispatch",
    "sms": "24",
    "source": "owner/data@1:h100/comm/sglang/0.5.12/normal.parquet",
}
PRODUCT = {
    "gpu": "B200-SXM",
    "dtype": "bfloat16",
    "op": "grouped_gemm_fwd",
    "kernel": "TE grouped gemm ng=32 M=1024 N=4096 K=7168",
}


def predicted(cells: dict[str, str], **changes: str) -> OperatorPrediction:
    (prediction,) = moe.predict([Row({**cells, **changes})])
    assert (prediction.time_us is None) == bool(prediction.skip_reason)
    return prediction


def time_us(cells: dict[str, str], **changes: str) -> float:
    prediction = predicted(cells, **changes)
    assert prediction.time_us is not None, prediction.skip_reason
    assert 0 < prediction.time_us < 1e9
    return prediction.time_us


# ---------------------------------------------------------------------------------------- laws
@given(
    tokens=st.integers(1, 100_000),
    growth=st.integers(2, 9),
    ranks=st.sampled_from([1, 2, 16, 128]),
    dtype=st.sampled_from(["bfloat16", "fp8_block", "int4_wo"]),
    gpu=st.sampled_from(["H200-SXM-141GB", "GB300", "A100-SXM4-80GB"]),
)
@pytest.mark.slow
def test_balanced_layers_take_longer_with_more_tokens(
    tokens: int, growth: int, ranks: int, dtype: str, gpu: str
) -> None:
    changes = {"ep": str(ranks), "dtype": dtype, "gpu": gpu, "distribution": "balanced"}
    few = time_us(LAYER, tokens=str(tokens), **changes)
    many = time_us(LAYER, tokens=str(tokens * growth * 128), **changes)
    assert many >= few


@given(
    tokens=st.integers(1, 1_000_000),
    mode=st.sampled_from(["deepep_normal", "deepep_low_latency"]),
    op=st.sampled_from(["dispatch", "combine"]),
    nodes=st.sampled_from([1, 2, 4, 8]),
)
@pytest.mark.slow
def test_dispatch_takes_longer_with_more_tokens(
    tokens: int, mode: str, op: str, nodes: int
) -> None:
    changes = {"mode": mode, "op": op, "nodes": str(nodes)}
    few = time_us(DISPATCH, tokens=str(tokens), **changes)
    assert few <= time_us(DISPATCH, tokens=str(tokens + 1), **changes)


@given(
    cells=st.dictionaries(
        st.sampled_from([*LAYER, *DISPATCH]),
        st.one_of(
            st.sampled_from(["", "unknown", "0", "-3", "1e30", "2.5", "nan", "dispatch", "H100"]),
            st.text(max_size=8),
        ),
    ),
    base=st.sampled_from([LAYER, DISPATCH, PRODUCT]),
)
def test_nothing_in_a_row_raises(cells: dict[str, str], base: dict[str, str]) -> None:
    prediction = predicted(base, **cells)
    if prediction.time_us is not None:
        assert np.isfinite(prediction.time_us)
        assert prediction.time_us > 0


def test_order_and_company_change_nothing() -> None:
    rows = [
        Row({**cells, "tokens": str(tokens)})
        for tokens in (1, 7, 512)
        for cells in (LAYER, DISPATCH, PRODUCT)
    ]
    alone = [moe.predict([row])[0] for row in rows]
    assert moe.predict(rows) == alone
    assert moe.predict(rows[::-1]) == alone[::-1]


def test_measured_columns_and_labels_change_nothing() -> None:
    noise = {"time_us": "1", "row_id": "9", "system": "elsewhere", "split": "test"}
    assert predicted(LAYER, **noise) == predicted(LAYER)
    assert predicted(LAYER, source=LAYER["source"].replace("owner/data", "x/y")) == predicted(LAYER)


def test_the_named_stack_chooses_between_kernels_of_one_name() -> None:
    old = DISPATCH["source"].replace("0.5.12", "0.5.6.post2")
    assert time_us(DISPATCH, source=old) != time_us(DISPATCH)
    assert time_us(DISPATCH, source="") > 0


def test_more_nodes_cost_the_network() -> None:
    times = [time_us(DISPATCH, nodes=str(nodes)) for nodes in (1, 2, 4, 8)]
    assert times == sorted(times)
    sent_bytes = 4096 * 7168 * 1.03 * 8 * (1 - (7 / 8) ** 8) * 7 / 8
    assert times[-1] * 1e-6 > sent_bytes / 50e9  # a 400 Gbit/s port


def test_ungated_experts_have_two_matrices_except_where_tables_timed_three() -> None:
    shape = {"hidden": "2688", "inter": "1856", "topk": "6", "tokens": "16384", "ep": "1"}
    gated = time_us(LAYER, **{**shape, "inter": "1857"})
    assert time_us(LAYER, **shape) < 0.85 * gated
    old = {"kernel": "sglang_fused_moe_triton", "source": "a@b:moe/sglang/0.5.10/moe.parquet"}
    assert time_us(LAYER, **shape, **old) > 0.99 * time_us(
        LAYER, **{**shape, "inter": "1855"}, **old
    )


# --------------------------------------------------------------------------------- skip reasons
@pytest.mark.parametrize(
    ("cells", "changes", "reason"),
    [
        (LAYER, {"gpu": ""}, "missing:gpu"),
        (LAYER, {"gpu": "unknown"}, "unknown_accelerator:unknown"),
        (LAYER, {"gpu": "Quantum 9000"}, "unknown_accelerator:Quantum 9000"),
        (LAYER, {"dtype": ""}, "missing:dtype"),
        (LAYER, {"dtype": "ternary"}, "unsupported:ternary"),
        (LAYER, {"tokens": ""}, "missing:tokens"),
        (LAYER, {"hidden": "0"}, "illegal:hidden"),
        (LAYER, {"topk": "200"}, "illegal:topk"),
        (LAYER, {"ep": "3"}, "illegal:ep"),
        (LAYER, {"op": ""}, "missing:op"),
        (LAYER, {"op": "sort"}, "unsupported:sort"),
        (LAYER, {"distribution": "lognormal"}, "unsupported:lognormal"),
        (DISPATCH, {"mode": "carrier_pigeon"}, "unsupported:carrier_pigeon"),
        (DISPATCH, {"op": "gossip"}, "unsupported:gossip"),
        (DISPATCH, {"tokens": ""}, "missing:tokens"),
        (PRODUCT, {"kernel": "TE"}, "missing:kernel"),
        (PRODUCT, {"op": "grouped_gemm_sideways"}, "unsupported:grouped_gemm_sideways"),
    ],
)
def test_rows_without_an_answer_say_why(
    cells: dict[str, str], changes: dict[str, str], reason: str
) -> None:
    assert predicted(cells, **changes) == OperatorPrediction(None, reason)


def test_missing_cells_take_documented_defaults() -> None:
    bare = {key: LAYER[key] for key in ("gpu", "dtype", "tokens", "hidden", "inter", "topk")}
    prediction = predicted({**bare, "experts": "128", "op": "fused_moe_fwd"})
    assert "balanced experts assumed" in prediction.note
    assert time_us({**bare, "experts": "128", "op": "fused_moe_fwd"}) == time_us(
        LAYER, tp="1", ep="1", distribution="balanced", kernel="", source=""
    )


@pytest.mark.parametrize("name", catalog.names("accelerators"))
def test_every_accelerator_of_the_catalogue_has_an_answer(name: str) -> None:
    for cells in (LAYER, DISPATCH, PRODUCT):
        assert time_us(cells, gpu=name) > 0
    for dtype in ("fp8", "nvfp4", "int4_wo", "float16"):
        assert time_us(LAYER, gpu=name, dtype=dtype) > 0


def test_a_borrowed_kernel_is_named() -> None:
    prediction = predicted(LAYER, gpu="h800_sxm_80")
    assert prediction.note == f"constants of {LAYER['kernel']} on h100_sxm_80"
    # The data sheet is the accelerator's own.
    wide = {"gpu": "h100_pcie_80", "tokens": "65536", "ep": "1"}
    assert time_us(LAYER, **wide) > time_us(LAYER, **{**wide, "gpu": "h100_sxm_80"})


def test_columns_are_judged_by_schema() -> None:
    assert moe.required_columns(LAYER) == moe.LAYER_COLUMNS
    assert moe.required_columns(DISPATCH) == moe.DISPATCH_COLUMNS
    assert set(moe.REQUIRED) == set(moe.LAYER_COLUMNS) & set(moe.DISPATCH_COLUMNS)


# ------------------------------------------------------------------------------------ catalogue
def test_a_private_kernel_wins_on_its_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "own_moe.toml").write_text(
        'name = "own_moe"\nkind = "expert_layer"\naccelerator = "l4"\n\n[mine]\n'
        'source = "measured here"\nkernel = "mine"\ndtype = "bfloat16"\nlaunch = "1 s"\n'
    )
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    assert time_us(LAYER, gpu="L4", kernel="mine") > 1e6
    (tmp_path / "kernels" / "own_moe.toml").write_text(
        'name = "own_moe"\nkind = "expert_layer"\naccelerator = "l4"\n\n[mine]\nlunch = "1 s"\n'
    )
    with pytest.raises(ScaleModelError, match=r"mine\.lunch: unknown key"):
        moe.predict([Row(LAYER)])


def test_kernels_are_chosen_by_likeness() -> None:
    assert distance("b200", "b200") == 0
    assert distance("b200", "gb200") < distance("b200", "rtx_pro_6000") < distance("b200", "l40s")
    found = kernels("lookup", _core.LookupKernel, ["op", "dtype"])
    assert nearest_kernel(found, "h200", lambda kernel: 0.0).accelerator == "h100_sxm_80"
    with pytest.raises(ScaleModelError, match="none of this kind"):
        nearest_kernel([], "h200", lambda kernel: 0.0)


#: Microseconds of DeepGEMM's masked layout, up (4096 x 7168) and down (7168 x 2048) of 16 experts
#: in FP8 by rows of each (deepseek-ai/DeepGEMM#192, "Original": 2025-09 on H20, 2025-10 on H100).
MASKED = {
    "h20": {32: (257, 127), 96: (497, 240), 160: (921, 472)},
    "h100_sxm_80": {32: (168, 94), 96: (176, 100), 160: (229, 116)},
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_experts_take_as_long_as_published(name: str) -> None:
    """By constants of H800 and rows of whole tiles: nothing was fitted to these.

    Mean error 7.3 % on H20 and 6.8 % on H100. With the rows as they come it is 32 % on H20, with
    the part of the peak that H800 reaches 30 %: its tensor cores have a quarter of the pace.
    """
    accelerator = build_accelerator(accelerator_table(name))
    want = {"experts": "deepgemm", "formats": ["fp8_block"]}
    chosen = received_experts(name, "fp8_block", want)
    assert chosen is not None
    kernel = in_a_model(chosen, name).replace(launch_s=0.0, activation_passes=0.0)

    def errors(kernel: _core.GroupedGemmKernel) -> list[float]:
        rows, columns, depth, measured = (
            np.array(column, dtype=float)
            for column in zip(
                *(
                    (rows, *shape, 1e-6 * us)
                    for rows, both in MASKED[name].items()
                    for shape, us in zip(((4096, 7168), (7168, 2048)), both, strict=True)
                ),
                strict=True,
            )
        )
        groups = np.full(len(rows), 16.0)
        found = _core.grouped_call_time_s(
            accelerator, kernel, groups * rows, groups, columns, depth
        )
        return list(np.abs(found / measured - 1))

    assert np.mean(errors(kernel)) < 0.08
    assert max(errors(kernel)) < 0.2
    assert np.mean(errors(kernel.replace(tile_rows=0.0, smallest_tile=0.0))) > 0.09
    if name == "h20":
        assert (
            np.mean(errors(kernel.replace(compute_fraction=chosen.record.compute_fraction))) > 0.25
        )


def test_one_row_of_an_expert_fills_no_more_than_the_smallest_tile() -> None:
    """Triton's tiles start at 16 rows, Marlin's at 8, which fits to fast parts cannot see."""
    smallest = {"triton": 16, "vllm_fused_moe": 16, "marlin": 8}
    labels = ["kernel", "op", "dtype", "engine", "version", "always_gated"]
    checked = 0
    for kernel in kernels("expert_layer", _core.GroupedGemmKernel, labels):
        rows = next((smallest[name] for name in smallest if name in kernel.label("kernel")), 0)
        # Narrow weights that this part widens cost the more the fewer rows share them.
        widened = kernel.accelerator == "l40s" and kernel.label("dtype") == "w4a16_mxfp4"
        if not rows or widened:
            continue
        assert kernel.record.smallest_tile == rows
        assert kernel.record.tile_rows / (1 + kernel.record.tile_onset) < rows - 0.95
        checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: _core.expert_loads(one, one, 2 * one, one, one), "topk.0.: must not exceed"),
        (lambda one: _core.expert_loads(one, 5 * one, one, 2 * one, one), "ranks.0.: must divide"),
        (lambda one: _core.expert_loads(0 * one, one, one, one, one), "tokens.0.=0: must be a"),
        (lambda one: _core.expert_loads(one, one[:0], one, one, one), "experts: must have one"),
        (lambda one: _core.expert_loads(one, one, one, one, np.nan * one), "skew.0.=nan"),
    ],
)
def test_malformed_routings_are_refused(call: Callable[[np.ndarray], object], message: str) -> None:
    with pytest.raises(ScaleModelError, match=message):
        call(np.ones(1))


# ------------------------------------------------------------------------------------- accuracy
def errors_by_accelerator(path: Path) -> dict[str, list[float]]:
    table = read_table(path)
    rows = table.select([name for name in table.header if name != "time_us"])
    errors: dict[str, list[float]] = {}
    measured: Iterable[float] = map(float, table.column("time_us"))
    for row, actual, prediction in zip(rows, measured, moe.predict(rows), strict=True):
        if prediction.time_us is not None:
            errors.setdefault(row.text("gpu"), []).append(abs(prediction.time_us / actual - 1))
    return errors


@pytest.mark.repeats
def test_expert_layers_are_within_the_stated_error(corpora: Path) -> None:
    errors = errors_by_accelerator(corpora / "ops" / "moe.csv")
    means = {gpu: float(np.mean(each)) for gpu, each in errors.items()}
    open_cells = {"L40S": 0.21, "RTX-PRO-6000-Server": 0.135, "Intel-Arc-Pro-B60": 0.27}
    assert len(means) >= 9
    for gpu, mean in means.items():
        assert mean < open_cells.get(gpu, 0.15), gpu
    assert np.mean([mean for gpu, mean in means.items() if gpu not in open_cells]) < 0.12


def test_dispatch_is_within_the_stated_error(corpora: Path) -> None:
    errors = errors_by_accelerator(corpora / "ops" / "moe_dispatch.csv")
    means = [float(np.mean(each)) for each in errors.values()]
    assert max(means) < 0.13
    assert np.mean(means) < 0.10


@pytest.mark.repeats
def test_a_large_table_is_predicted_row_by_row(corpora: Path) -> None:
    table = read_table(corpora / "ops" / "moe.csv")
    rows = table.select([name for name in table.header if name != "time_us"])
    assert len(moe.predict(rows)) == len(rows)
