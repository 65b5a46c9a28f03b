"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import pandas as pd

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Directory of the measurement corpora, which the repository does not carry."""
    directory = Path(os.environ.get("SCALEMODEL_DATA") or REPOSITORY / "../shared/data").resolve()
    if not directory.is_dir():
        pytest.skip("measurement corpora not present")
    return directory


@pytest.fixture
def predicted(tmp_path: Path) -> Callable[..., pd.DataFrame]:
    """Predictions of rows in the schema of measured training runs."""
    from reference.runs import csv_text
    from scalemodel.validation import validate

    def run(*rows: dict[str, str], stack: str | None = None) -> pd.DataFrame:
        path = tmp_path / "runs.csv"
        path.write_text(csv_text(list(rows)), encoding="utf-8")
        return validate("training", path, stack=stack)

    return run


@pytest.fixture
def agg() -> None:
    """Drawing without a screen."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
