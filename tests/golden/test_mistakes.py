"""The answers to likely mistakes are those that were reviewed."""

from __future__ import annotations

import re

import pytest

from golden import mistakes
from golden.mistakes import MISTAKES, Mistake


def test_answers_are_those_reviewed() -> None:
    """Changed on purpose: ``python tests/golden/mistakes.py`` writes them again, to be read."""
    assert mistakes.text() == mistakes.GOLDEN.read_text(encoding="utf-8")


def reviewed() -> dict[str, str]:
    """Answers by what was typed, each on one line."""
    blocks = mistakes.GOLDEN.read_text(encoding="utf-8").split(">>> ")[1:]
    parts = (block.partition("\n") for block in blocks)
    return {line: re.sub(r"\s+", " ", told).strip() for line, _, told in parts}


def test_there_are_a_hundred_mistakes_and_each_is_answered_once() -> None:
    assert len(reviewed()) == len(MISTAKES) >= 100


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.line)
def test_an_answer_names_argument_value_what_is_legal_and_the_fix(mistake: Mistake) -> None:
    told = reviewed()[mistake.line]
    for thing in ("argument", "value", "legal", "fix"):
        assert getattr(mistake, thing) in told, f"no {thing} in: {told}"
    assert "Traceback" not in told
    assert "TypeError" not in told
    assert "internal error" not in told
