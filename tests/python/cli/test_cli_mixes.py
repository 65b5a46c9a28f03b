"""A cluster file of several kinds on the command line says what Python does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import scalemodel as sm
from command_line import run_command

PARTS = """
name = "old_and_new"

[[part]]
cluster = "dgx_a100"
nodes = 2

[[part]]
cluster = "dgx_h100"
nodes = 2
"""
TASK = ["--global-batch", "64", "--sequence", "4096"]


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    path = tmp_path / "old_and_new.toml"
    path.write_text(PARTS, encoding="utf-8")
    return path


@pytest.mark.parametrize("placement", ["stages", "replicas"])
def test_the_command_says_what_python_does(
    parts: Path, placement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parts.write_text(f'placement = "{placement}"\n{PARTS}', encoding="utf-8")
    est = sm.estimate_mixed(
        "llama3_8b",
        sm.mixed_cluster(parts),
        sm.Training(global_batch=64, sequence=4096),
        sm.Strategy(tp=4, pp=2),
    )
    asked = ["estimate", "llama3_8b", "--cluster", parts, *TASK, "--tp", 4, "--pp", 2]
    document = run_command(capsys, *asked, "--json").document
    assert document.items() >= json.loads(json.dumps(est.to_dict())).items()
    (row,) = run_command(capsys, *asked, "--csv").rows
    assert float(row["step_time_s"]) == est.step_time_s
    ran = run_command(capsys, *asked)
    assert ran.code == 0
    assert "2 dgx_a100 + 2 dgx_h100" in ran.out
    assert "verdict ok" in ran.out
    # A line per kind, with the layers of its stages.
    lines = [line for line in ran.out.splitlines() if line.startswith("dgx_")]
    layers = [str(count) for count in est.layers] or ["all", "all"]
    assert [line.split()[-1] for line in lines] == layers


def test_what_cannot_run_is_an_answer(parts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    too_large = ["estimate", "llama3_1_405b", "--cluster", parts, *TASK]
    for degrees, verdict in (("2", "out_of_memory"), ("3", "illegal")):
        ran = run_command(capsys, *too_large, "--tp", degrees, "--pp", 2)
        assert ran.code == 3
        assert verdict in ran.out


@pytest.mark.parametrize(
    "option", [("--nodes", 4), ("--network", "dp=0.5"), ("--tokens", "1e9"), ("--explain",)]
)
def test_options_of_one_kind_are_refused(
    parts: Path, option: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["estimate", "llama3_8b", "--cluster", parts, *TASK, "--tp", 4, "--pp", 2]
    ran = run_command(capsys, *asked, *option)
    assert ran.code == 2
    assert str(option[0]) in ran.err
