"""What every plot is drawn on: style, colours, axes, legends, files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel._core import __version__
from scalemodel.base.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_STYLE = Path(__file__).with_name("scalemodel.mplstyle")
COLOURS = (
    "#3f90da",
    "#ffa90e",
    "#bd1f01",
    "#94a4a2",
    "#832db6",
    "#a96b59",
    "#e76300",
    "#b9ac70",
    "#717581",
    "#92dadd",
)
HATCHES = ("", "///", "\\\\\\", "...", "xxx", "---", "ooo", "+++", "|||", "***")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*")
#: Points of the smallest text on a plot: what is smaller cannot be read on a page.
SMALL = 8
#: Box of a label on a plot.
WHITE = {"boxstyle": "square,pad=0.1", "facecolor": "white", "alpha": 0.75, "linewidth": 0}


@contextmanager
def style() -> Iterator[None]:
    """Apply the package's style sheet inside a ``with`` block.

    Examples
    --------
    >>> import matplotlib
    >>> with style():
    ...     matplotlib.rcParams["svg.fonttype"]
    'none'
    """
    import matplotlib as mpl
    import matplotlib.style

    interactive = mpl.is_interactive()
    try:
        with matplotlib.style.context(_STYLE):
            yield
            interactive = mpl.is_interactive()
    finally:
        # A notebook's backend, loaded with the first figure, switches this on: leave it so.
        mpl.interactive(interactive)


def save(target: Axes | Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure with text as text and its origin in the metadata.

    Parameters
    ----------
    target : Axes or Figure
    path : path
        The ending decides the format (svg, pdf, png...).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> ax = sm.plot.breakdown(sm.estimate("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(ax, folder + "/step.svg")
    ...     "compute" in Path(folder, "step.svg").read_text(encoding="utf-8")
    True
    """
    figure: Any = getattr(target, "figure", target)
    origin = f"scalemodel {__version__}"
    suffix = Path(path).suffix.lower()
    keys = {".svg": {"Creator": origin, "Date": None}, ".pdf": {"Creator": origin}}
    metadata = keys.get(suffix, {"Software": origin} if suffix == ".png" else None)
    drawn = BytesIO()
    with style():
        if not suffix:  # the name then gets one
            figure.savefig(path, metadata=metadata)
            return
        figure.savefig(drawn, metadata=metadata, format=suffix[1:])
    write_whole(path, drawn.getvalue())


def new_axis(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axis, or a new one of a size that suits its content."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    with style():
        return plt.subplots(figsize=(width, height))[1]


def legend_beside(ax: Axes, order: Sequence[str] = ()) -> None:
    """A small legend to the right of the axis, each label once, those of `order` first."""
    handles, labels = ax.get_legend_handles_labels()
    named = dict(zip(map(str, labels), handles, strict=True))
    shown = list(dict.fromkeys([*(label for label in order if label in named), *named]))
    ax.legend(
        [named[label] for label in shown],
        shown,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        frameon=False,
        fontsize=SMALL,
    )


def from_zero(ax: Axes) -> None:
    """Let the vertical axis start at zero, with room for whole markers above the largest value."""
    low, high = min(0.0, float(ax.dataLim.ymin)), float(ax.dataLim.ymax)
    # Limits close to the data would have too little room above once zero is added below.
    if high > low:
        ax.set_ylim(low, high + 0.06 * (high - low))


def log_ticks(axis: Axis) -> None:
    """Numbers instead of powers of ten on a log axis, never more than fit without touching.

    Below a decade the ticks are round numbers at equal distances, up to three decades 1, 2 and 5
    of each, beyond that the powers of ten.
    """
    from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator

    class Readable(Locator):
        """Chooses by what is shown when it is drawn: limits move after an axis is made."""

        def __call__(self) -> Any:
            return self.tick_values(*axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> Any:
            low, high = sorted((vmin, vmax))
            if low <= 0 or high <= low:
                return []
            if high < 8 * low:
                ticks = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
            else:
                subs = (1.0, 2.0, 5.0) if high < 1e3 * low else (1.0,)
                ticks = LogLocator(subs=subs, numticks=9).tick_values(low, high)
            return [tick for tick in ticks if low <= tick <= high]

    axis.set_major_locator(Readable())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}")
    )
