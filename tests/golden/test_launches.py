"""What starts serving plans is what was reviewed."""

from __future__ import annotations

import pytest

from golden import launches


@pytest.mark.parametrize("name", launches.LAUNCHES)
def test_what_starts_a_plan_is_what_was_reviewed(name: str) -> None:
    """Changed on purpose: ``python tests/golden/launches.py`` writes them again, to be read."""
    assert launches.text(name) == (launches.GOLDEN / name).read_text(encoding="utf-8")


def test_every_file_belongs_to_a_plan() -> None:
    written = {path.name for path in launches.GOLDEN.iterdir()} - {"options.toml"}
    assert written == set(launches.LAUNCHES)
