"""A machine measured, calibrated and checked from nothing published."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration import cores
from scalemodel.calibration.check import CONFIGURATIONS, catalogue_of, predicted
from scalemodel.calibration.host import LAYERS, host_launch_s
from scalemodel.calibration.machine import (
    TABLES,
    attention_shapes,
    calibrate_machine,
    measure_machine,
)
from scalemodel.cli import main
from scalemodel.resolve.stacks import stack

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch (extra torch) is not installed"
)
PEAK, MOVED, SENT = 50e9, 10e9, 1e9


def tables(folder: Path, *, ranks: int = 2) -> Path:
    """What a machine of plain rates would measure: 40 samples of each kind, no noise."""
    common = {"gpu": "a core", "dtype": "float32", "source": "made up"}
    rows: dict[str, list[dict[str, object]]] = {
        "copies": [{"bytes": 2**26, "time_us": 2e6 * 2**26 / MOVED}],
        "gemm": [
            {"m": m, "n": n, "k": k, "time_us": 10 + 2e6 * m * n * k / PEAK}
            for m, n, k in cores.gemm_shapes(40)
        ],
        "elementwise": [
            {
                "op": op,
                "rows": rows,
                "cols": cols,
                "time_us": 5 + (12e6 if op in ("add", "mul") else 16e6) * rows * cols / MOVED,
            }
            for op, rows, cols in cores.elementwise_shapes(40)
        ],
        "training_attention": [
            {
                "pass": which,
                "batch": batch,
                "tokens": tokens,
                "heads": heads,
                "head_dim": width,
                "time_us": 20
                + (5 if which == "backward" else 2)
                * (4e6 * batch * heads * width * tokens * (tokens + 128) / 2)
                / PEAK,
            }
            for which, batch, tokens, heads, width in attention_shapes(40)
        ],
    }
    rows["host"] = [{"layers": n, "tokens": 8, "time_us": 500 + 400 * n} for n in LAYERS]
    if ranks > 1:
        rows["collectives"] = [
            {"op": op, "bytes": size, "gpus": 2, "nodes": 1, "time_us": 100 + 1e6 * size / SENT}
            for op in ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "p2p")
            for size in (4096, 65536, 2**20, 2**23, 2**25)
        ]
    folder.mkdir(exist_ok=True)
    for kind, cells in rows.items():
        with (folder / f"{kind}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*common, *cells[0]])
            writer.writeheader()
            writer.writerows({**common, **row} for row in cells)
    (folder / "machine.toml").write_text(
        f'label = "a core"\ndevice = "cpu"\nranks = {ranks}\nmemory_bytes = 8e9\n'
        'source = "made up"\n'
    )
    return folder


def test_a_machine_becomes_a_cluster_that_predicts(tmp_path: Path) -> None:
    folder = tables(tmp_path / "machine")
    calibrate_machine(folder).write(folder / "catalog")
    with catalogue_of(folder):
        core = resolve.cluster("here").core
        assert core.accelerators == 2
        roofline = core.accelerator.gemm
        rate = roofline.roofline_compute_fraction * core.accelerator.peak_flop_per_s[0]
        assert rate == pytest.approx(PEAK, rel=0.01)
        assert roofline.roofline_launch_s == pytest.approx(10e-6, rel=0.1)
        times_s = {}
        for one in CONFIGURATIONS:
            step_s, low_s, high_s = predicted(one, "here")
            assert low_s < step_s < high_s
            times_s[one.model, one.way, one.sequence] = step_s
    # Twelve configurations; exchanges cost, half a model does not cost more than a whole one.
    assert len(times_s) == 12
    assert times_s["gpt", "ddp", 128] > times_s["gpt", "one", 128]
    assert times_s["gpt", "fsdp", 512] > times_s["gpt", "one", 512]
    assert times_s["gpt", "pp", 128] < 4 * times_s["gpt", "one", 128]


def test_launches_take_what_layers_of_a_few_numbers_take_beyond_their_kernels(
    tmp_path: Path,
) -> None:
    folder = tables(tmp_path / "machine")
    calibrate_machine(folder).write(folder / "catalog")
    facts = {"host_computes": True, "softmax_loss": True}
    with catalogue_of(folder):
        entry = catalog.load("accelerators", "here")
        launch_s = stack("here").host_launch_s

        def found_s(layer_us: float) -> float:
            rows = [{"layers": str(n), "time_us": str(500 + layer_us * n)} for n in LAYERS]
            return host_launch_s(entry, facts, rows)

        assert launch_s == pytest.approx(found_s(400), rel=0.01)
        # Each launch takes its part of what a layer takes more; longer kernels leave none.
        less_s, more_s, most_s = found_s(400), found_s(500), found_s(700)
        assert most_s - more_s == pytest.approx(2 * (more_s - less_s))
        assert 20 < 100e-6 / (more_s - less_s) < 60
        assert found_s(1) == 0


def test_rates_of_attention_are_found_again() -> None:
    core = resolve.cluster("dgx_h100").core.accelerator
    count = 12
    backward = [bool(i % 2) for i in range(count)]
    tokens = np.array([2048.0 * (1 + i // 2) for i in range(count)])
    ones = np.ones(count)
    # At head size 128 a flash pass is launch and 4 b h d area at its share of the peak.
    flop = 4 * 8 * 128 * tokens * (tokens + 128) / 2 * np.where(backward, 2.5, 1.0)
    peak = core.peak_flop_per_s[_core.precisions().index("bf16")]
    time_s = np.where(backward, 10e-6, 5e-6) + flop / (np.where(backward, 0.3, 0.4) * peak)
    ranges = [
        ("flash2_forward", 0.01, 1.5, []),
        ("flash2_backward", 0.01, 1.5, []),
        ("launch_s", 1e-7, 1e-3, []),
    ]
    record, fields, predicted_s, _ = _core.fit_flash(
        core,
        "bf16",
        backward,
        ones,
        tokens,
        8 * ones,
        128 * ones,
        causal=True,
        time_s=time_s,
        weight=ones,
        fold=np.arange(count, dtype=np.int32) % 3,
        ranges=ranges,
    )
    assert record.flash2_forward == pytest.approx(0.4, rel=0.01)
    assert record.flash2_backward == pytest.approx(0.3, rel=0.01)
    assert not any(one.frozen for one in fields[:2])
    np.testing.assert_allclose(predicted_s, time_s, rtol=0.02)


def test_one_rank_needs_no_links(tmp_path: Path) -> None:
    found = calibrate_machine(tables(tmp_path / "machine", ranks=1), name="alone")
    assert set(found.entries) == {
        "accelerators/alone.toml",
        "clusters/alone.toml",
        "stacks/alone.toml",
    }


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tables(tmp_path / "machine")
    assert main(["check", str(folder)]) == 2
    assert "scalemodel calibrate" in capsys.readouterr().err
    assert main(["calibrate", str(folder / "gemm.csv")]) == 2
    assert "a table needs --kind" in capsys.readouterr().err
    (folder / "copies.csv").unlink()
    assert main(["calibrate", str(folder)]) == 2
    assert "copies.csv" in capsys.readouterr().err
    with pytest.raises(ScaleModelError, match="device='tpu'"):
        measure_machine(tmp_path, device="tpu")


def test_the_command_writes_a_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tables(tmp_path / "machine")
    assert main(["calibrate", str(folder), "--name", "mine"]) == 0
    assert "gemm.roofline.compute_fraction" in capsys.readouterr().out
    assert (folder / "catalog" / "stacks" / "mine.toml").exists()


@needs_torch
@pytest.mark.slow
def test_the_whole_loop_on_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "machine")
    few = ["--samples", "10", "--repeats", "2"]
    assert main(["measure", "--all", "--device", "cpu", "--out", folder, *few]) == 0
    assert {path.stem for path in Path(folder).glob("*.csv")} == set(TABLES)
    assert main(["calibrate", folder]) == 0
    capsys.readouterr()
    assert main(["check", folder, "--steps", "1", "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["way"] for row in rows} == {"one", "ddp", "fsdp", "tp", "pp"}
    assert all(float(row["measured_s"]) > 0 for row in rows)
