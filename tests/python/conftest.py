"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

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
def agg() -> Iterator[None]:
    """Drawing without a screen; what was drawn is closed."""
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    yield
    plt.close("all")
