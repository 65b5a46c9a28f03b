"""The model builder counts as many parameters as the publishers do."""

from __future__ import annotations

import sys
from importlib import resources
from typing import Any

import pytest

import scalemodel as sm

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = resources.files("scalemodel") / "catalog" / "models"


def published(kind: str) -> list[Any]:
    """(name, count, rounded) of every entry with a published count of this kind."""
    cases = []
    for path in sorted(FOLDER.iterdir(), key=lambda path: path.name):
        if path.name.endswith(".toml"):
            entry = tomllib.loads(path.read_text(encoding="utf-8"))
            count = entry.get("parameters", {}).get(kind)
            if count is not None:
                case = (entry["name"], count["value"], count.get("rounded", False))
                cases.append(pytest.param(*case, id=entry["name"]))
    return cases


def tolerance(rounded: bool) -> float:
    """An exact count is met to the last weight; a rounded one is good to a few percent."""
    return 0.03 if rounded else 0.0


@pytest.mark.parametrize(("name", "count", "rounded"), published("total"))
def test_total_parameters(name: str, count: int, rounded: bool) -> None:
    assert sm.model(name).parameters == pytest.approx(count, rel=tolerance(rounded), abs=0.5)


@pytest.mark.parametrize(("name", "count", "rounded"), published("active"))
def test_active_parameters(name: str, count: int, rounded: bool) -> None:
    assert sm.model(name).active_parameters == pytest.approx(count, rel=tolerance(rounded), abs=0.5)


def test_most_counts_are_exact() -> None:
    exact = [case for case in published("total") if not case.values[2]]
    assert len(exact) >= 80
