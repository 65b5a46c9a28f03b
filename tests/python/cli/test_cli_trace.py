"""The command that describes and changes recorded requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.cli import MALFORMED, OK, main

pytestmark = pytest.mark.usefixtures("agg")


@pytest.fixture
def file(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    whose = random.integers(0, 40, 500)
    path = tmp_path / "trace.jsonl.gz"
    sm.Trace(
        np.sort(random.uniform(0, 600, 500)),
        np.full(500, 64),
        random.integers(1, 99, 500),
        block_offsets=np.arange(0, 1001, 2),
        block_ids=np.stack([whose % 2, 2 + whose], axis=1).ravel(),
        block_tokens=32,
    ).write(path)
    return str(path)


def test_a_trace_is_described(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", file]) == OK
    shown = capsys.readouterr().out
    assert shown.startswith("Trace(500 requests over ")
    assert "gap_cv" in shown
    assert main(["trace", file, "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == sm.read_trace(file).summary()
    assert main(["trace", file, "--csv"]) == OK
    header, row = capsys.readouterr().out.splitlines()
    assert dict(zip(header.split(","), row.split(","), strict=True))["requests"] == "500.0"


def test_other_traffic_is_written_and_drawn(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / "twice.parquet", tmp_path / "twice.png"
    asked = ["trace", file, "--scale", "2", "--out", str(out), "--plot", str(picture)]
    assert main(asked) == OK
    assert sm.read_trace(out) == sm.read_trace(file).scaled(2.0)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    drawn = ["trace", file, "--draw", "800", "--rate", "4", "--seed", "3", "--json"]
    capsys.readouterr()
    assert main(drawn) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == 800
    assert found["span_s"] == pytest.approx(200)
    assert main(["trace", file, "--window", "0", "300", "--json"]) == OK
    assert json.loads(capsys.readouterr().out)["requests"] < 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "azur"], "did you mean 'azure'?"),
        (["--scale", "0"], "must be a number above 0"),
        (["--scale", "2", "--draw", "9"], "not allowed with"),
        (["--rate", "2"], "needs --draw"),
        (["--window", "700", "800"], "must hold a request"),
        (["--out", "x.txt"], "must end in"),
    ],
)
def test_a_malformed_question_is_one_line(
    options: list[str], message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", file, *options]) == MALFORMED
    complaint = capsys.readouterr().err
    assert message in complaint
    assert complaint.count("\n") == 1
