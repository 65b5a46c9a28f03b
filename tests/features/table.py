"""The table of features: entries, the tests they name, and a summary of them.

``python tests/features/table.py`` writes the summary into ``tests/features/README.md``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).resolve().parents[1]
REPOSITORY = TESTS.parent
PAGE = TESTS / "features/README.md"
BEGIN, END = "<!-- features: begin -->", "<!-- features: end -->"
PEERS = 20


def entries() -> list[dict[str, Any]]:
    """Every feature, in order."""
    text = (TESTS / "features/features.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["feature"]
    return found


def is_full(entry: Mapping[str, Any]) -> bool:
    """There by its own definition: tests show it and nothing is known to be missing."""
    return bool(entry.get("tests")) and not entry.get("missing")


def _skipped(node: ast.FunctionDef | ast.ClassDef) -> bool:
    marks = (ast.unparse(decorator) for decorator in node.decorator_list)
    return any(re.match(r"pytest\.mark\.(skip|xfail)\b", mark) for mark in marks)


def _functions(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not _skipped(node):
            yield from _functions(node.body, f"{node.name}::")
        if (
            isinstance(node, ast.FunctionDef)
            and node.name.startswith("test")
            and not _skipped(node)
        ):
            yield prefix + node.name


@cache
def names_in(path: Path) -> frozenset[str]:
    """Tests that a file holds: functions of pytest, cases of doctest, steps of .ci/run."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return frozenset(_functions(ast.parse(text).body))
    if path.suffix == ".cpp":
        return frozenset(re.findall(r'TEST_CASE(?:_TEMPLATE)?\("([^"]+)"', text))
    rows = re.findall(r"^(?:first|python_row|cpp_row)=\((.*?)\)$", text, re.MULTILINE | re.DOTALL)
    return frozenset(step for row in rows for step in row.split())


def exists(test: str) -> bool:
    """Whether a test of an entry is there, and run with the others."""
    file, _, name = test.partition("::")
    path = (REPOSITORY if file.startswith(".") else TESTS) / file
    if path.suffix == ".py" and not path.name.startswith("test_"):
        return False
    return path.is_file() and name in names_in(path)


def summary() -> str:
    """The table of the page, one line per feature."""
    features = entries()
    full = sum(map(is_full, features))
    lines = [
        f"{full} of {len(features)} features are complete. A yes is the definition next to it,",
        "shown by the tests that `tests/features/features.toml` names. The last column counts, of",
        f"{PEERS} published tools, those that have the feature in full, and in brackets those that",
        "have it in part, by a census of their public code in August 2026.",
        "",
        "| | feature | a yes means | here | tools |",
        "|--:|---|---|---|--:|",
    ]
    for entry in features:
        here = "yes" if is_full(entry) else f"no: {entry['missing']}"
        whole, partly = entry["peers"]
        tools = f"{whole} (+{partly})" if partly else str(whole)
        lines.append(f"| {entry['number']} | {entry['name']} | {entry['yes']} | {here} | {tools} |")
    return "\n".join(lines)


def in_page(text: str) -> str:
    """The page with the summary between its markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks the markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{summary()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
