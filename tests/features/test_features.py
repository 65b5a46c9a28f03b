"""A feature is there when the tests that its entry names exist and run with all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from features import table

FEATURES = table.entries()


def test_features_are_numbered_and_named_once() -> None:
    assert [entry["number"] for entry in FEATURES] == list(range(1, 65))
    assert len({entry["name"] for entry in FEATURES}) == 64
    for entry in FEATURES:
        assert set(entry) <= {"number", "group", "name", "yes", "peers", "tests", "missing"}
        whole, partly = entry["peers"]
        assert 0 <= whole <= whole + partly <= table.PEERS
        assert entry["yes"] != entry["name"]


@pytest.mark.parametrize("entry", FEATURES, ids=lambda entry: str(entry["number"]))
def test_the_tests_of_a_feature_exist(entry: dict[str, list[str]]) -> None:
    absent = [test for test in entry.get("tests", []) if not table.exists(test)]
    assert not absent
    # One or the other: something shows it, or something is said to be missing.
    assert entry.get("tests") or entry.get("missing")


def test_named_tests_are_collected(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collected, every named test is among what it found."""
    found = [*request.session.items, *getattr(request.config.option, "left_out", ())]
    root = request.config.rootpath
    collected = {
        f"{Path(item.path).relative_to(root / 'tests').as_posix()}::"
        + item.nodeid.partition("::")[2].partition("[")[0]
        for item in found
        if Path(item.path).is_relative_to(root / "tests")
    }
    files = {name.partition("::")[0] for name in collected}
    if request.config.option.keyword or any("::" in each for each in request.config.args):
        pytest.skip("only some tests of a file were asked for")
    named = {test for entry in FEATURES for test in entry.get("tests", [])}
    missing = {test for test in named if test.partition("::")[0] in files} - collected
    assert not missing


def test_what_is_not_there_is_not_found() -> None:
    assert table.exists("python/test_package.py::test_public_names_exist")
    assert table.exists(".ci/run::wheel")
    for absent in (
        "python/test_package.py::test_nothing_of_the_kind",
        "python/conftest.py::repository",
        "python/no_such_file.py::test_public_names_exist",
        ".ci/run::no_such_step",
        "cpp/schedule/pipeline.cpp::no such case",
    ):
        assert not table.exists(absent)


def test_most_features_are_there() -> None:
    assert sum(map(table.is_full, FEATURES)) >= 58


def test_the_page_shows_the_table() -> None:
    text = table.PAGE.read_text(encoding="utf-8")
    assert table.in_page(text) == text, "python tests/features/table.py writes it again"
