"""The answers to likely mistakes are those that were reviewed."""

from __future__ import annotations

from golden import mistakes


def test_answers_are_those_reviewed() -> None:
    """Changed on purpose: ``python tests/golden/mistakes.py`` writes them again, to be read."""
    assert mistakes.text() == mistakes.GOLDEN.read_text(encoding="utf-8")


def test_every_mistake_is_answered() -> None:
    answered = mistakes.GOLDEN.read_text(encoding="utf-8").split(">>> ")[1:]
    assert len(answered) == len(mistakes.MISTAKES) >= 40
    for block in answered:
        _, _, told = block.partition("\n")
        assert told.strip()
        assert "Traceback" not in told
        assert "internal error" not in told
