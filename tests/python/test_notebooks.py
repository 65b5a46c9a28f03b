"""Notebooks are stories that ran from top to bottom, with what they rely on asserted."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in listed if not kind or cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_notebooks_are_numbered_without_gaps_and_listed() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{n:02}_" for n in range(1, 13)]
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"]({path.name})" in listed for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_one_run_from_the_top(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    for cell in code:
        for output in cell["outputs"]:
            assert output["output_type"] != "error", source(cell)
            assert output.get("name") != "stderr", output
    assert len({cell["id"] for cell in cells(path)}) == len(cells(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_tells_shows_and_asserts(path: Path) -> None:
    first, *_ = cells(path)
    assert first["cell_type"] == "markdown"
    assert source(first).startswith("# ")
    code = cells(path, "code")
    drawn = [o for cell in code for o in cell["outputs"] if "image/png" in o.get("data", {})]
    assert len(drawn) >= 3
    last = ast.parse(source(code[-1]))
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(last)) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nothing_is_fetched_and_nothing_private_is_read(path: Path) -> None:
    for cell in cells(path, "code"):
        nodes = list(ast.walk(ast.parse(source(cell))))
        names = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        names = {name.split(".")[0] for name in names}
        assert not names & {"requests", "urllib", "socket", "http", "subprocess"}
        assert "shared/" not in source(cell)
