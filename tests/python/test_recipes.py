"""The README's recipes, followed to the letter in a private catalogue."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import scalemodel as sm

RECIPE = re.compile(
    r"`((?:accelerators|clusters|models)/\w+\.toml)`.*?```toml\n(.*?)```", re.DOTALL
)


@pytest.fixture
def private_catalogue(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """Entry name -> file, for every TOML file the README tells to write."""
    files = {}
    for name, text in RECIPE.findall((repository / "README.md").read_text(encoding="utf-8")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        files[path.stem] = path
    monkeypatch.setenv("SCALEMODEL_CATALOG_PATH", str(tmp_path))
    return files


def test_one_file_each_is_all_it_takes(private_catalogue: dict[str, Path]) -> None:
    assert sorted(private_catalogue) == ["example_80", "example_8b", "example_node"]
    cluster = sm.cluster("example_node", nodes=16)
    task = sm.Training(global_batch=1024, sequence=8192, precision="bf16")
    plan = sm.Strategy(tp=4, sharding="zero1", recompute="selective")
    estimate = sm.estimate("example_8b", cluster, task, plan)
    assert estimate.verdict == "ok"
    assert 0.2 < estimate.mfu_fraction < 0.8


def test_entries_are_found_by_their_aliases(private_catalogue: dict[str, Path]) -> None:
    assert sm.model("Example-8B").parameters == sm.model("example_8b").parameters == 8_030_261_248
