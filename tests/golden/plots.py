"""What the example of every plot function draws, as small pictures.

``python tests/golden/plots.py`` writes them anew after a change that is meant; look at them first.
"""

from __future__ import annotations

import doctest
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

import scalemodel as sm

FOLDER = Path(__file__).with_name("plots")
DPI = 72
BLOCK = 4  # pixels of the drawing on a side of one of the picture: fonts differ by less


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function of `sm.plot` that returns axes."""
    for name in sorted(vars(sm.plot)):
        function = getattr(sm.plot, name)
        made_here = getattr(function, "__module__", "").startswith("scalemodel.plot")
        returned = str(getattr(function, "__annotations__", {}).get("return", ""))
        if made_here and not name.startswith("_") and "Axes" in returned:
            yield name, function


def drawn(name: str, function: Callable[..., Any]) -> Figure:
    """The last figure that the example of a function draws."""
    plt.close("all")
    names = dict(vars(sys.modules[function.__module__]))
    examples = doctest.DocTestParser().get_examples(function.__doc__ or "", name)
    for example in examples:
        exec(example.source, names)
    return plt.gcf()


def picture(figure: Figure) -> NDArray[np.uint8]:
    """Red, green and blue of a drawing, averaged over blocks."""
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].astype(float)
    rows, columns = (length // BLOCK for length in pixels.shape[:2])
    cut = pixels[: rows * BLOCK, : columns * BLOCK]
    blocks = cut.reshape(rows, BLOCK, columns, BLOCK, 3).mean(axis=(1, 3))
    return blocks.round().astype(np.uint8)


def main() -> None:
    plt.switch_backend("Agg")
    FOLDER.mkdir(exist_ok=True)
    for name, function in functions():
        matplotlib.image.imsave(FOLDER / f"{name}.png", picture(drawn(name, function)))


if __name__ == "__main__":
    main()
