"""A question that the tests of search, sweep and merge ask on the command line and in Python."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import scalemodel as sm
from scalemodel import cli
from scalemodel.search.ranking import Question

QUESTION = ["llama3_8b", "--cluster", "dgx_h100", "--global-batch", "64", "--sequence", "8192"]
SMALL = ["--pp", "1", "--cp", "1", "--micro-batch", "1", "2"]
SPACE = sm.Space(pp=1, cp=1, micro_batch=[1, 2])
#: For `pd.read_csv`: every bit of a number, which older versions give only when asked.
EXACT: dict[str, Any] = {} if pd.__version__ >= "3" else {"float_precision": "round_trip"}
TOO_LARGE = ["llama3_1_405b", *QUESTION[1:], *SMALL]


class Ran:
    """Exit code and both streams of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """One command in this process; a fault of scalemodel itself fails the test."""
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert "internal error" not in captured.err
    return Ran(code, captured.out, captured.err)


def asked() -> tuple[str, sm.Cluster, sm.Training]:
    return "llama3_8b", sm.cluster("dgx_h100"), sm.Training(global_batch=64, sequence=8192)


def shard_rows(count: int) -> list[tuple[int, int]]:
    """First and last row, the latter not included, of every shard of the question."""
    model, *rest = asked()
    return [(s.first, s.last) for s in Question(sm.model(model), *rest, SPACE).shards(count)]


def best(**options: Any) -> sm.Ranking:
    return sm.search(*asked(), SPACE, **options)


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of the same kind, whatever file they come from."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.astype(dict.fromkeys(texts, object))


def assert_same_rows(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(
        plain(found), plain(expected), check_dtype=False, rtol=0, atol=0, check_index_type=False
    )


def swept() -> pd.DataFrame:
    return sm.sweep(*asked(), SPACE)


def read_rows(path: Path) -> pd.DataFrame:
    if path.suffix == ".csv":
        return pd.read_csv(path, index_col="row", keep_default_na=False, **EXACT)
    return pd.read_parquet(path).set_index("row")
