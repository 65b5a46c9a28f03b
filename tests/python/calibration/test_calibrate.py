"""Laws of `calibrate`: planted constants come back, what a sample cannot see stays."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration import KINDS, Calibration, calibrate
from scalemodel.calibration.entry import toml_text
from scalemodel.calibration.measure import COLUMNS
from scalemodel.calibration.samples import Group, Sample
from scalemodel.calibration.shapes import (
    attention_shapes,
    collective_sizes,
    elementwise_shapes,
    gemm_shapes,
)
from scalemodel.catalog import tomllib
from scalemodel.cli import main
from scalemodel.resolve.accelerators import build_accelerator
from scalemodel.resolve.attention import AttentionKernels
from scalemodel.validation.rows import Row

NOISE = 0.03


def written(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    listed = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in listed for key in row)))
        writer.writeheader()
        writer.writerows(listed)
    return path


def noisy(time_s: float, rng: np.random.Generator) -> float:
    return 1e6 * time_s * float(np.exp(NOISE * rng.standard_normal()))


def accelerator(name: str) -> _core.Accelerator:
    return build_accelerator(resolve.accelerator_table(name))


PLANTED = {
    "launch_s": 0.85,
    "tau_cycles": 1.2,
    "burst_fraction": 0.9,
    "sustained_fraction": 0.85,
    "memory_fraction": 0.87,
}
"""Factors on the constants of the catalogue."""


def changed(record: Any, factors: Mapping[str, float]) -> Any:
    return record.replace(**{name: f * getattr(record, name) for name, f in factors.items()})


def planted_gemm(
    shapes: Sequence[tuple[int, int, int]],
    *,
    name: str = "h100_sxm_80",
    gpu: str = "",
    seed: int = 1,
) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    core = accelerator(name)
    core = core.replace(gemm=core.gemm.replace(dense16=changed(core.gemm.dense16, PLANTED)))
    return [
        {
            **{"gpu": gpu or name, "dtype": "bfloat16", "m": m, "n": n, "k": k},
            "time_us": noisy(float(_core.gemm_time_s(core, "bf16", m, n, k)), rng),
        }
        for m, n, k in shapes
    ]


def planted_collectives(cluster: str, ranks: Sequence[int], **changes: Any) -> list[dict[str, Any]]:
    rng = np.random.default_rng(3)
    core = resolve.cluster(cluster, accelerators=max(ranks)).core
    core = core.replace(**{name: getattr(core, name).replace(**v) for name, v in changes.items()})
    return [
        {
            **{"gpu": "H100", "gpus": count, "op": "all_reduce", "bytes": size},
            "nodes": max(1, count // 8),
            "time_us": noisy(_core.collective_time_s("all_reduce", size, count, 1, core), rng),
        }
        for count in ranks
        for size in collective_sizes(14)
    ]


def by_constant(found: Calibration) -> dict[str, dict[str, Any]]:
    return {str(row["constant"]): row for row in found.table.to_dict("records")}


# ------------------------------------------------------------------------------------------ laws
def assert_recovered(
    constants: Mapping[str, Mapping[str, Any]], planted: Mapping[str, float]
) -> None:
    """The planted values came back, and no error bar promises more than it keeps."""
    for key, value in planted.items():
        row = constants[key]
        assert row["state"] == "fitted", row
        assert row["value"] == pytest.approx(value, rel=0.05), row
        assert abs(np.log(row["value"] / value)) < 4 * row["relative_error"], row


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", ["a100_sxm_80", "h100_sxm_80", "h200", "b200", "gb200", "l40s"])
def test_planted_constants_come_back_from_forty_noisy_multiplications(
    tmp_path: Path, name: str, seed: int
) -> None:
    rows = planted_gemm(gemm_shapes(40, name), name=name, seed=seed)
    found = calibrate("gemm", written(tmp_path / "t.csv", rows))
    before = accelerator(name).gemm.dense16
    planted = {
        "gemm." + key.removesuffix("_s"): factor * getattr(before, key)
        for key, factor in PLANTED.items()
    }
    assert_recovered(by_constant(found), planted)
    assert found.mape_fraction < 0.03
    assert found.mape_fraction <= found.held_out_mape_fraction < 0.04
    assert (found.samples.state == "fitted").all()


def test_the_planted_share_of_a_narrow_format_comes_back_beside_the_wide_one(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(5)
    core = accelerator("h100_sxm_80")
    kernels = core.gemm.replace(
        dense16=changed(core.gemm.dense16, PLANTED),
        fp8=changed(core.gemm.fp8, {**PLANTED, "burst_fraction": 0.8, "sustained_fraction": 0.8}),
    )
    rows = planted_gemm(gemm_shapes(40)) + [
        {
            **{"gpu": "h100_sxm_80", "dtype": "fp8", "m": m, "n": n, "k": k},
            "time_us": noisy(
                float(_core.gemm_time_s(core.replace(gemm=kernels), "fp8", m, n, k)), rng
            ),
        }
        for m, n, k in gemm_shapes(40)
    ]
    found = calibrate("gemm", written(tmp_path / "t.csv", rows), name="mine")
    before = core.gemm.fp8.burst_fraction / core.gemm.dense16.burst_fraction
    row = by_constant(found)["gemm.fp8.relative_fraction"]
    assert row["prior"] == pytest.approx(before, rel=0.15)  # of the wide format's fitted fraction
    (text,) = found.entries.values()
    built = build_accelerator(tomllib.loads(text)).gemm
    assert built.fp8.burst_fraction == pytest.approx(kernels.fp8.burst_fraction, rel=0.05)
    assert built.dense16.burst_fraction == pytest.approx(kernels.dense16.burst_fraction, rel=0.05)


ATTENTION: dict[str, dict[str, float]] = {
    "prefill": {
        "launch": 1.2,
        "compute_fraction": 0.85,
        "step": 0.8,
        "step_width": 0.8,
        "wave": 0.8,
    },
    "decode": {"launch": 0.8, "memory_fraction": 0.9, "block": 1.2, "wave": 1.2},
    "encoder": {
        "launch": 0.9,
        "compute_fraction": 0.8,
        "step": 1.2,
        "step_width": 1.2,
        "wave": 1.2,
    },
}


def planted_attention(name: str, *, seed: int = 1) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Noisy rows of planted kernels of three phases, 40 each, and the planted constants."""
    rng = np.random.default_rng(seed)
    core, kernels = accelerator(name), AttentionKernels(name)
    records = {}
    planted = {}
    for phase, factors in ATTENTION.items():
        record = kernels.choose(phase).constants
        units = {key: key if hasattr(record, key) else f"{key}_s" for key in factors}
        records[phase] = changed(record, {units[key]: f for key, f in factors.items()})
        for key, unit in units.items():
            if getattr(record, unit) > 0:  # a factor cannot move a zero
                planted[f"{phase}.calibrated.{key}"] = getattr(records[phase], unit)
    rows = []
    for shape in attention_shapes(120):
        phase = str(shape["phase"])
        time = _core.decode_time_s if phase == "decode" else _core.prefill_time_s
        columns = {
            ours: np.array([float(shape[theirs])])
            for ours, theirs in (
                *(("batch", "batch"), ("queries", "seq_q"), ("keys", "seq_kv"), ("heads", "heads")),
                *(("kv_heads", "kv_heads"), ("head_dim", "head_dim"), ("v_head_dim", "head_dim")),
            )
        }
        causal = bool(shape["causal"])
        (time_s,) = time(records[phase], core, **columns, window=np.zeros(1), causal=causal)
        rows.append({"gpu": name, "dtype": "bf16", **shape, "time_us": noisy(float(time_s), rng)})
    return rows, planted


@pytest.mark.parametrize("name", ["a100_sxm_80", "h100_sxm_80", "b200"])
def test_planted_constants_of_attention_come_back(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, planted = planted_attention(name)
    found = calibrate("attention", written(tmp_path / "t.csv", rows))
    assert_recovered(by_constant(found), planted)
    assert found.held_out_mape_fraction < 0.04
    # The entry extends the file of the accelerator, and its kernels become the usual ones.
    found.write(tmp_path)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    kernels = AttentionKernels(name)
    for phase in ATTENTION:
        entry = kernels.choose(phase)
        assert (entry.kernel, entry.accelerator) == ("calibrated", name)
        launch = planted[f"{phase}.calibrated.launch"]
        assert entry.constants.launch_s == pytest.approx(launch, rel=0.05)
    named = catalog.load("kernels", f"{name}_attention")["prefill"]
    assert set(named) > {"calibrated"}


def test_planted_constants_of_memory_bound_kernels_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    bandwidth = accelerator("h100_sxm_80").memory_bandwidth_bytes_per_s
    planted = {
        "launch": 3.5e-6,
        "add_fraction": 0.8,
        "norm_fraction": 0.7,
        "softmax_fraction": 0.66,
    }
    families = {"ln": "norm_fraction", "softmax": "softmax_fraction"}
    rows = [
        {
            **{"gpu": "H100", "dtype": "bfloat16", "op": op, "rows": count, "cols": width},
            "time_us": noisy(
                planted["launch"]
                + 2
                * (2 if op in ("gelu", "ln", "softmax") else 3)
                * count
                * width
                / (planted[families.get(op, "add_fraction")] * bandwidth),
                rng,
            ),
        }
        for op, count, width in elementwise_shapes(40)
    ]
    found = by_constant(calibrate("elementwise", written(tmp_path / "t.csv", rows)))
    assert_recovered(found, {f"elementwise.{key}": value for key, value in planted.items()})


@pytest.mark.parametrize("cluster", ["dgx_a100", "dgx_h100", "dgx_b200"])
@pytest.mark.parametrize("latency, bandwidth", [(1.3, 0.85), (0.7, 0.95)])
def test_planted_scales_of_links_come_back(
    tmp_path: Path, cluster: str, latency: float, bandwidth: float
) -> None:
    before = resolve.cluster(cluster).core.scale_up.all_reduce
    factors = {
        **dict.fromkeys(
            ("start1_s", "per_rank1_s", "start2_s", "per_rank2_s", "pipeline_fill_s"), latency
        ),
        **dict.fromkeys(("bandwidth_fraction1", "bandwidth_fraction2"), bandwidth),
    }
    planted = changed(before, factors)
    rows = planted_collectives(cluster, [2, 4, 8], scale_up={"all_reduce": planted})
    gpu = {"dgx_a100": "A100-80GB", "dgx_h100": "H100", "dgx_b200": "B200"}[cluster]
    path = written(tmp_path / "t.csv", [{**row, "gpu": gpu} for row in rows[:40]])
    found = by_constant(calibrate("collectives", path, cluster=cluster))
    assert_recovered(
        found, {f"all_reduce.{key}": getattr(planted, name) for key, name in FIELD_OF.items()}
    )


FIELD_OF = {
    "a1": "start1_s",
    "l1": "per_rank1_s",
    "b1": "bandwidth_fraction1",
    "a2": "start2_s",
    "l2": "per_rank2_s",
    "b2": "bandwidth_fraction2",
    "c": "pipeline_fill_s",
}


def test_planted_constants_of_a_network_come_back(tmp_path: Path) -> None:
    planted = {"latency_factor": 3.5, "bandwidth_fraction": 0.7}
    rows = planted_collectives("dgx_h100", [16, 32, 64], fabric=planted)
    path = written(tmp_path / "t.csv", rows)
    found = calibrate("collectives", path, cluster="dgx_h100")
    constants = by_constant(found)
    for key, value in planted.items():
        assert constants[key]["value"] == pytest.approx(value, rel=0.05)
    assert constants["all_to_all_fraction"]["state"] == "kept"
    assert list(found.entries) == ["interconnects/infiniband_calibrated.toml"]


def test_the_class_of_the_links_is_the_given_one(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", planted_collectives("dgx_h100", [2, 8, 16]))
    for cluster, inside, outside in (
        ("dgx_h100", "nvlink4", "infiniband"),
        ("aws_p5", "nvlink4", "efa"),
        ({"base": "dgx_h100", "fabric": {"class": "roce"}}, "nvlink4", "roce"),
        ({"base": "aws_p5", "scale_up": {"class": "nvlink3"}}, "nvlink3", "efa"),
    ):
        found = calibrate("collectives", path, cluster=cluster)
        assert list(found.entries) == [
            f"interconnects/{inside}_calibrated.toml",
            f"interconnects/{outside}_calibrated.toml",
        ]


def test_one_sample_moves_at_most_one_constant(tmp_path: Path) -> None:
    (row,) = planted_gemm([(8192, 8192, 8192)])
    found = calibrate("gemm", written(tmp_path / "t.csv", [row]))
    assert (found.table.state == "kept").sum() >= 4


def test_samples_that_follow_no_model_are_called_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = planted_gemm(gemm_shapes(40))
    wild = [{**row, "time_us": 1e6 * float(rng.uniform(1, 30))} for row in rows]
    good, bad = (calibrate("gemm", written(tmp_path / "t.csv", each)) for each in (rows, wild))
    warning = "gemm: the form does not describe these samples"
    assert warning in bad.text()
    assert warning not in good.text()


def test_large_multiplications_leave_the_launch_alone(tmp_path: Path) -> None:
    shapes = [(8192 + 256 * i, 8192, 8192) for i in range(20)]
    rows = planted_gemm(shapes)
    constants = by_constant(calibrate("gemm", written(tmp_path / "t.csv", rows)))
    for key in ("gemm.launch", "gemm.tau_cycles", "gemm.memory_fraction"):
        row = constants[key]
        assert row["state"] == "kept"
        assert row["value"] == row["prior"]
        assert row["relative_error"] == 0


def test_impossible_and_unusable_rows_are_set_aside(tmp_path: Path) -> None:
    rows = planted_gemm(gemm_shapes(40))
    clean = calibrate("gemm", written(tmp_path / "a.csv", rows))
    square = {"gpu": "H100", "dtype": "bfloat16", "m": 8192, "n": 8192, "k": 8192, "time_us": 100}
    wrong: list[dict[str, object]] = [
        square,
        {**square, "time_us": ""},
        {**square, "dtype": "int8"},
        {**square, "m": "-3"},
    ]
    rows = planted_gemm(gemm_shapes(40), gpu="H100")
    mixed = calibrate("gemm", written(tmp_path / "b.csv", [*rows, *wrong]))
    assert mixed.samples.state.tolist()[-4:] == [
        "impossible:peak",
        "missing:time_us",
        "unsupported:dtype",
        "illegal:m",
    ]
    pd.testing.assert_frame_equal(mixed.table, clean.table)
    assert mixed.samples.predicted_time_us.tolist()[-4:] != mixed.samples.time_us.tolist()[-4:]
    assert mixed.samples.predicted_time_us.isna().tolist()[-4:] == [True] * 4


def test_the_order_of_columns_and_twice_the_same_change_nothing(tmp_path: Path) -> None:
    rows = planted_gemm(gemm_shapes(30))
    first = calibrate("gemm", written(tmp_path / "t.csv", rows))
    turned = [dict(reversed(row.items())) for row in rows]
    second = calibrate("gemm", written(tmp_path / "t.csv", turned))
    pd.testing.assert_frame_equal(first.table, second.table)
    assert first.entries == second.entries


@given(
    count=st.integers(1, 60),
    shapes=st.integers(1, 20),
    folds=st.integers(2, 10),
)
def test_no_shape_is_split_between_folds(count: int, shapes: int, folds: int) -> None:
    samples = tuple(Sample(i, 1e-5, i % shapes, (1.0,)) for i in range(count))
    fold = Group("g", samples).folds(folds)
    assert ((fold >= 0) & (fold < folds)).all()
    for shape in range(shapes):
        assert len(set(fold[shape::shapes].tolist())) <= 1


# --------------------------------------------------------------------------------------- entries
def test_an_entry_is_an_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.csv", planted_gemm(gemm_shapes(40)))
    found = calibrate("gemm", path, name="mine")
    (file,) = found.write(tmp_path / "catalogue")
    assert file == tmp_path / "catalogue" / "accelerators" / "mine.toml"
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path / "catalogue"))
    built = accelerator("mine")
    constants = by_constant(found)
    assert built.gemm.dense16.launch_s == pytest.approx(constants["gemm.launch"]["value"], rel=1e-5)
    assert built.gemm.dense16.tau_cycles == pytest.approx(
        constants["gemm.tau_cycles"]["value"], rel=1e-5
    )
    before = accelerator("h100_sxm_80")
    assert built.replace(gemm=before.gemm) == before
    assert catalog.find("accelerators", "H100") == "h100_sxm_80"
    sources = sm.list_catalog("accelerators", "mine").set_index("key")["source"]
    assert "calibrated on 40 samples of t.csv" in sources["gemm.launch"]
    assert (sources[[f"gemm.{key}" for key in ("launch", "throttle", "blend")]] != "").all()
    est = sm.estimate(
        "llama3_8b",
        sm.cluster({"accelerator": "mine"}, accelerators=8),
        sm.Training(global_batch=64, sequence=8192),
        sm.Strategy(tp=2),
    )
    assert est.fits


def test_an_entry_of_the_old_name_keeps_its_aliases(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", planted_gemm(gemm_shapes(40)))
    (text,) = calibrate("gemm", path, name="h100_sxm_80").entries.values()
    assert "H100-80GB" in tomllib.loads(text)["aliases"]


def test_links_make_an_interconnect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.csv", planted_collectives("dgx_h100", [2, 8]))
    found = calibrate("collectives", path, name="mine")
    found.write(tmp_path)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    cluster = sm.cluster({"base": "dgx_h100", "scale_up": {"class": "mine"}})
    value = by_constant(found)["all_reduce.b2"]["value"]
    assert cluster.core.scale_up.all_reduce.bandwidth_fraction2 == pytest.approx(value, rel=1e-5)
    before = sm.cluster("dgx_h100").core.scale_up
    assert cluster.core.scale_up.all_gather == before.all_gather


def test_a_roofline_accelerator_gets_a_roofline(tmp_path: Path) -> None:
    core = accelerator("v100_sxm_32")
    core = core.replace(gemm=core.gemm.replace(roofline_compute_fraction=0.5))
    rng = np.random.default_rng(0)
    rows = [
        {
            **{"gpu": "V100-SXM2-32GB", "dtype": "float16", "m": m, "n": n, "k": k},
            "time_us": noisy(float(_core.gemm_time_s(core, "fp16", m, n, k)), rng),
        }
        for m, n, k in gemm_shapes(40)
    ]
    path = written(tmp_path / "t.csv", rows)
    constants = by_constant(calibrate("gemm", path, accelerator="v100_sxm_32"))
    assert set(constants) == {
        "gemm.roofline.compute_fraction",
        "gemm.roofline.memory_fraction",
        "gemm.roofline.launch",
    }
    assert constants["gemm.roofline.compute_fraction"]["value"] == pytest.approx(0.5, rel=0.05)


def test_entries_survive_being_written() -> None:
    for kind in ("accelerators", "interconnects", "clusters", "models"):
        for name in catalog.names(kind):
            table = catalog.load(kind, name)
            assert tomllib.loads(toml_text(table)) == table
    odd = {"a b": 'say "no"\n', "empty": {}, "n": {"x": {"value": 1.5, "source": "é"}, "l": [1, 2]}}
    assert tomllib.loads(toml_text(odd)) == odd
    with pytest.raises(ScaleModelError, match="cannot stand in a catalogue entry"):
        toml_text({"x": object()})


# ---------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_column_is_named(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "t.csv", [{"gpu": "H100", "time_us": 1}])
    with pytest.raises(ScaleModelError, match="is missing from the table") as caught:
        calibrate(kind, path)
    assert caught.value.code == "missing_column"


@pytest.mark.parametrize(
    "changes, code",
    [
        ({"gpu": "no such thing"}, "unknown_accelerator"),
        ({"gpu": ""}, "missing_label"),
        ({"dtype": "int8"}, "no_samples"),
        ({"time_us": 0.001}, "no_samples"),
    ],
)
def test_what_cannot_be_calibrated_says_why(
    tmp_path: Path, changes: dict[str, object], code: str
) -> None:
    row = {"gpu": "H100", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "time_us": 300}
    path = written(tmp_path / "t.csv", [{**row, **changes}])
    with pytest.raises(ScaleModelError) as caught:
        calibrate("gemm", path)
    assert caught.value.code == code


def test_two_machines_are_one_too_many(tmp_path: Path) -> None:
    rows = planted_gemm(gemm_shapes(4)) + planted_gemm(gemm_shapes(4), gpu="H200")
    with pytest.raises(ScaleModelError, match="one at a time"):
        calibrate("gemm", written(tmp_path / "t.csv", rows))


def test_several_nodes_need_their_cluster(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", planted_collectives("dgx_h100", [16]))
    with pytest.raises(ScaleModelError, match="cluster=None"):
        calibrate("collectives", path)


@pytest.mark.parametrize(
    "kind, arguments, named",
    [
        ("training", {}, "kind='training'"),
        ("gemm", {"folds": 1}, "folds=1"),
        ("gemm", {"name": "../mine"}, "name='../mine'"),
        ("collectives", {"cluster": sm.cluster("dgx_h100")}, "what its networks are called"),
        ("gemm", {"cluster": "dgx_h100"}, "takes accelerator="),
        ("collectives", {"accelerator": "H100"}, "takes cluster="),
        ("attention", {"name": "mine"}, "which accelerator= chooses"),
    ],
)
def test_arguments_are_checked(kind: str, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ScaleModelError, match=named):
        calibrate(kind, "absent.csv", **arguments)


def test_the_engine_refuses_what_it_cannot_fit() -> None:
    core = accelerator("h100_sxm_80")
    one, fold = np.ones(1), np.zeros(1, dtype=np.int32)
    shape = [128 * one] * 3 + [one]
    for changes, named in (
        ({"time_s": 0 * one}, "must be positive"),
        ({"time_s": np.ones(2)}, "same length"),
        ({"ranges": [("nope", 0.1, 1.0, [])]}, "no such field"),
        ({"ranges": [("launch_s", 0.0, 1.0, [])]}, "0 < low < high"),
        ({"ranges": [("launch_s", 1e-6, 1e-4, ["nope"])]}, "no such field"),
    ):
        arguments: dict[str, Any] = {
            "time_s": one,
            "ranges": [("launch_s", 1e-6, 1e-4, [])],
            **changes,
        }
        with pytest.raises(ValueError, match=named):
            _core.fit_tile_gemm(core, "bf16", *shape, weight=one, fold=fold, **arguments)


# ----------------------------------------------------------------------------------- the command
def test_the_command_prints_writes_and_reports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(written(tmp_path / "t.csv", planted_gemm(gemm_shapes(40))))
    samples = tmp_path / "samples.csv"
    folder = tmp_path / "catalogue"
    arguments = ["calibrate", "--kind", "gemm", path, "--rows", str(samples), "--out"]
    assert main([*arguments, str(folder)]) == 0
    text = capsys.readouterr().out
    assert "gemm.burst_fraction" in text
    assert (folder / "accelerators" / "h100_sxm_80_calibrated.toml").is_file()
    rows = list(csv.DictReader(samples.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 40
    assert all(float(row["predicted_time_us"]) > 0 for row in rows)
    assert main(["calibrate", "--kind", "gemm", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows_fitted"] == 40
    assert main(["calibrate", "--kind", "gemm", path, "--csv"]) == 0
    table = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["constant"] for row in table] == [r["constant"] for r in document["constants"]]
    assert main(["calibrate", "--kind", "gemm", path]) == 0
    assert 'name = "h100_sxm_80_calibrated"' in capsys.readouterr().out
    assert main(["calibrate", "--kind", "gemm", "absent.csv"]) == 2
    assert main([*arguments, path]) == 2  # a file stands where the folder should be


def test_what_measure_writes_calibrate_reads() -> None:
    for kind in KINDS:
        assert {"gpu", "time_us"} <= set(COLUMNS[kind])
    assert Row({"time_us": "3"}).number("time_us") == 3


# -------------------------------------------------------------------------------------- accuracy
@pytest.mark.parametrize("gpu, limit", [("H200", 0.075), ("B200-SXM", 0.10)])
def test_forty_shapes_carry_the_constants_of_the_h100_over(
    corpora: Path, tmp_path: Path, gpu: str, limit: float
) -> None:
    frame = pd.read_csv(corpora / "ops" / "gemm_consensus.csv")
    rows = frame[(frame.gpu.str.startswith(gpu)) & (frame.dtype == "bfloat16")]
    few = rows.sample(40, random_state=5)
    name = catalog.find("accelerators", str(few.gpu.iloc[0]))
    begin = catalog.load("accelerators", name) | {
        "gemm": catalog.load("accelerators", "h100_sxm_80")["gemm"]
    }
    if "peak_reference" in begin["gemm"]:
        begin["gemm"] = {k: v for k, v in begin["gemm"].items() if k != "peak_reference"}
    few.to_csv(tmp_path / "few.csv", index=False)
    found = calibrate("gemm", tmp_path / "few.csv", accelerator=begin, name="few_shot")
    (text,) = found.entries.values()
    core = build_accelerator(tomllib.loads(text))
    rest = rows.drop(few.index)
    time_s = _core.gemm_time_s(core, "bf16", *(rest[axis].astype(float) for axis in "mnk"))
    error = np.abs(1e6 * time_s / rest.time_us - 1).mean()
    assert error < limit
