"""Every plot function draws what it drew when somebody looked at it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray

from golden import plots

HERE = Path(__file__).parent
#: Of 255, averaged over blocks: other fonts and refitted constants stay below, a line that is
#: missing, moved or of another colour does not.
TOLERANCE = 4.0


FUNCTIONS: dict[str, Any] = dict(plots.functions())


def difference(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    return float(np.sqrt(np.mean((one.astype(float) - other.astype(float)) ** 2)))


def kept(name: str) -> NDArray[np.uint8]:
    pixels = matplotlib.image.imread(HERE / "plots" / f"{name}.png")
    return (255 * pixels[:, :, :3]).round().astype(np.uint8)


def test_every_plot_function_has_a_picture() -> None:
    assert {path.stem for path in (HERE / "plots").glob("*.png")} == set(FUNCTIONS)
    assert len(FUNCTIONS) > 20


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_drawing_is_the_one_kept(name: str) -> None:
    figure = plots.drawn(name, FUNCTIONS[name])
    for line in (line for ax in figure.axes for line in ax.lines):
        # By its place in a cycle a colour is looked up when a figure is written: in another cycle.
        assert not re.fullmatch(r"C\d+", str(line.get_color())), line.get_label()
    now = plots.picture(figure)
    assert now.shape == kept(name).shape
    assert difference(now, kept(name)) < TOLERANCE


def test_another_drawing_would_be_noticed() -> None:
    for name, other in itertools.pairwise(FUNCTIONS):
        one, two = kept(name), kept(other)
        assert one.shape != two.shape or difference(one, two) > 2 * TOLERANCE
        assert difference(np.full_like(one, 255), one) > 2 * TOLERANCE
