"""Laws of `calibrate` for kernels by their work: what was planted is predicted again."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration import WORK_KINDS, calibrate
from scalemodel.calibration.work_kernels import _RANGES, _UNITS, fit_kernels, fit_table
from scalemodel.cli import main
from scalemodel.validation.operators.mixers import CALLS, work_of
from scalemodel.validation.operators.questions import accelerator
from scalemodel.validation.rows import Row, read_table

PLANTED = _core.WorkKernel(
    launch_s=6e-6,
    step_s=1e-9,
    piece_s=1e-12,
    rate_flop_per_s=2e14,
    bandwidth_bytes_per_s=1.5e12,
    cached_speedup=2.0,
    blend=2.0,
)
NOISE = 0.02
WIDTHS = ("3072", "5120", "6144")


def shapes() -> list[dict[str, str]]:
    return [
        {
            "gpu": "H100-SXM5-80GB",
            "engine": "trtllm",
            "op": "pre",
            "kernel": "planted",
            "dtype": "bfloat16",
            "tokens": str(tokens),
            "hidden": str(hidden),
            "hc_mult": "4",
        }
        for tokens in (1, 8, 64, 512, 2048, 4096, 16384, 65536)
        for hidden in (2048, 4096, 7168)
    ]


def planted(path: Path, rows: list[dict[str, str]]) -> Path:
    calls = [CALLS["mhc"](Row(row)) for row in rows]
    l2 = accelerator("h100_sxm_80").l2_bytes
    times = np.asarray(_core.work_kernel_time_s(PLANTED, l2, work_of(calls)))
    times = times * np.exp(NOISE * np.random.default_rng(3).standard_normal(len(rows)))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], "time_us"])
        writer.writeheader()
        for row, time_s in zip(rows, times.tolist(), strict=True):
            writer.writerow({**row, "time_us": f"{1e6 * time_s:.4f}"})
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("scipy")
    return planted(tmp_path_factory.mktemp("work") / "mhc.csv", shapes())


def test_a_planted_kernel_is_found(table: Path) -> None:
    (fit,) = fit_kernels("mhc", table)
    assert fit.error < 3 * NOISE
    assert np.abs(fit.predicted_s / fit.measured_s - 1).mean() < 2 * NOISE
    # Several constants say the same of such shapes: what they predict of others comes back.
    others = [
        row | {"tokens": "1000", "hidden": hidden} for row in shapes()[:1] for hidden in WIDTHS
    ]
    work = work_of([CALLS["mhc"](Row(row)) for row in others])
    l2 = accelerator("h100_sxm_80").l2_bytes
    times = [np.asarray(_core.work_kernel_time_s(k, l2, work)) for k in (fit.record, PLANTED)]
    assert times[0] == pytest.approx(times[1], rel=2 * NOISE)
    values = {found.key: found for found in fit.constants}
    assert values["launch"].value == pytest.approx(6, rel=0.1)
    assert all(0 < found.relative_error <= 10 for found in fit.constants)


def test_what_is_calibrated_predicts_from_the_catalogue(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = calibrate("mhc", table)
    assert found.held_out_mape_fraction < 3 * NOISE
    assert (found.samples.state == "fitted").all()
    (entry,) = found.entries
    assert entry == "kernels/h100_sxm_80_mixers.toml"
    (path,) = found.write(tmp_path)
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    content = catalog.load("kernels", "h100_sxm_80_mixers")
    mine = [cell for cell in content.values() if isinstance(cell, dict)]
    assert [cell["launch"] for cell in mine if cell.get("kernel") == "planted"]
    monkeypatch.delenv("SCALEMODEL_CATALOG_PATH")
    known = catalog.load("kernels", "h100_sxm_80_mixers")
    assert set(known) < set(content)  # what the package measured stays
    assert path.is_file()


def test_the_command_takes_the_kind(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--kind", "mhc", str(table)]) == 0
    shown = capsys.readouterr().out
    assert "bandwidth" in shown
    assert 'kernel = "planted"' in shown


def test_too_few_rows_of_a_kernel_say_so(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    few = planted(tmp_path / "few.csv", shapes()[:6])
    with pytest.raises(ScaleModelError, match="fewer than 12 rows of its kernel") as caught:
        calibrate("mhc", few)
    assert caught.value.code == "no_samples"


def test_without_scipy_the_extra_is_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ScaleModelError, match=r"kind='mhc'.*scalemodel\[opt\]"):
        calibrate("mhc", table)


@pytest.mark.parametrize("kind", WORK_KINDS)
def test_a_missing_column_of_such_a_kernel_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("gpu,time_us\nH100,1\n", encoding="utf-8")
    with pytest.raises(ScaleModelError, match="is missing from the table") as caught:
        calibrate(kind, path)
    assert caught.value.code == "missing_column"


def test_accelerators_are_named_by_the_table(table: Path) -> None:
    for given in ({"accelerator": "h200"}, {"name": "mine"}):
        with pytest.raises(ScaleModelError, match="kept under the names of the accelerators"):
            calibrate("mhc", table, **given)  # type: ignore[arg-type]


def test_no_constant_of_sparse_attention_is_an_end_of_its_range() -> None:
    """What the times of a kernel do not tell is left out of its entry instead."""
    checked = 0
    ends = {
        key: (low * factor, high * factor)
        for name, (low, high, _) in _RANGES.items()
        for key, factor, _ in [_UNITS.get(name, (name, 1.0, ""))]
    }
    for entry in catalog.names("kernels"):
        if not entry.endswith("_mixers"):
            continue
        for name, table in catalog.load("kernels", entry).items():
            if not isinstance(table, dict) or table["work"] != "sparse_module":
                continue
            for key in ends.keys() & table.keys():
                value = float(str(table[key]).split()[0])
                low, high = ends[key]
                assert low * 1.002 < value < high / 1.002, f"{entry}: {name}: {key}"
                checked += 1
    assert checked > 1000


def test_a_call_longer_than_one_with_more_work_is_set_aside(table: Path, tmp_path: Path) -> None:
    """No constants make the time of a kernel fall where its work grows."""
    frame = pd.read_csv(table)
    least = int(frame.sort_values(["tokens", "hidden"]).index[0])
    frame.loc[least, "time_us"] = 4 * frame["time_us"].max()
    disturbed = tmp_path / "disturbed.csv"
    frame.to_csv(disturbed, index=False)
    fits, states = fit_table("mhc", read_table(disturbed), 3, 600)
    assert [i for i, state in enumerate(states) if "more work" in state] == [least]
    assert sum(len(fit.rows) for fit in fits) == len(frame) - 1
