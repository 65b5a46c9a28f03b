"""Fixtures that more than one test file uses."""

from __future__ import annotations

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
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of measured tables: the repository's own, or the one SCALEMODEL_DATA names."""
    from reference.corpora import expand, given

    directory = given()
    if directory is None:
        directory = tmp_path_factory.mktemp("corpora")
        expand(directory)
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
