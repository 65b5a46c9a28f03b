"""What a column of a table is on an axis: its name, unit, direction, and the numbers drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalemodel.search.pareto import feasible, numbers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.colors import ListedColormap

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

#: Even in lightness for every reader. Lines on white leave out its bright end.
COLOUR_MAP = "cividis"
DARK_SHARE = 0.82
#: From this number of points on they are drawn as an image inside an otherwise scalable file.
RASTER = 2_000

# Suffix of a column, unit on the axis, base units in one of it. The first that matches counts.
_UNITS = (
    ("_bytes_per_s", "GB/s", 1e9),
    ("_flop_per_s", "TFLOP/s", 1e12),
    ("_bytes", "GiB", 2.0**30),
    ("_flop", "TFLOP", 1e12),
    ("_fraction", "%", 0.01),
    ("_usd", "USD", 1.0),
    ("_s", "s", 1.0),
    ("_j", "MJ", 1e6),
    ("_w", "W", 1.0),
)
_RATE = re.compile(r"(?P<what>.+)_per_(?P<of>s|j|usd)$")
_RATES = {"s": ("Throughput", "s"), "j": ("Efficiency", "J"), "usd": ("Efficiency", "USD")}
_CAPITALS = {"mfu": "MFU", "hfu": "HFU"}
_DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp")
# Further knobs: how they read, and the value that goes without saying.
_WAYS: tuple[tuple[str, str, str | int], ...] = (
    ("sharding", "{}", "ddp"),
    ("micro_batch", "micro-batch {}", 1),
    ("recompute", "recompute {}", "none"),
    ("schedule", "{}", "1f1b"),
)


class Scale(NamedTuple):
    """Text of an axis and how many base units make one unit on it."""

    label: str
    unit: str
    divisor: float


#: Columns whose suffix does not tell.
_NAMED = {
    "accelerators": Scale("Accelerators", "", 1.0),
    "tokens_per_s_per_accelerator": Scale("Throughput per accelerator (tokens/s)", "tokens/s", 1.0),
    "accelerator_tokens_per_j": Scale("Efficiency of accelerators (tokens/J)", "tokens/J", 1.0),
    "usd_per_token": Scale("Cost (USD per million tokens)", "USD/M tokens", 1e-6),
}


def scale_of(column: str) -> Scale:
    """Quantity and unit of a column, read from its name or its suffix.

    Examples
    --------
    >>> scale_of("memory_bytes").label, scale_of("tokens_per_s").label, scale_of("tp").label
    ('Memory (GiB)', 'Throughput (tokens/s)', 'tp')
    >>> scale_of("fabric.bandwidth_scale").label
    'fabric.bandwidth (× base)'
    """
    if column in _NAMED:
        return _NAMED[column]
    for suffix, unit, divisor in _UNITS:
        stem = column.removesuffix(suffix)
        if stem != column and not stem.endswith("_per"):
            words = " ".join(_CAPITALS.get(word, word) for word in stem.split("_"))
            return Scale(f"{words[:1].upper()}{words[1:]} ({unit})", unit, divisor)
    if column.endswith("_scale"):  # of a quantity that a co-design study multiplies
        return Scale(f"{column.removesuffix('_scale')} (× base)", "× base", 1.0)
    rate = _RATE.fullmatch(column)
    if rate:
        quantity, per = _RATES[rate["of"]]
        unit = f"{rate['what'].replace('_per_', '/').replace('_', ' ')}/{per}"
        return Scale(f"{quantity} ({unit})", unit, 1.0)
    return Scale(column, "", 1.0)


def number_text(value: float) -> str:
    """Three significant digits, without an exponent where a reader needs none.

    Examples
    --------
    >>> number_text(1234.5), number_text(0.01234), number_text(2.0), number_text(3e9)
    ('1234', '0.0123', '2', '3e+09')
    """
    return f"{value:.0f}" if 1000 <= abs(value) < 1e5 else f"{value:.3g}"


def strategy_text(row: Mapping[str, Any]) -> str:
    """Degrees above one and the ways that are not the plain ones; empty without such columns.

    Examples
    --------
    >>> strategy_text({"tp": 4, "pp": 1, "dp": 8, "sharding": "zero1", "recompute": "none"})
    'tp4 dp8 zero1'
    >>> strategy_text({"mesh_embedding": "ddp@8", "mesh_mlp": "fsdp@8", "recompute": True})
    'ddp@8 fsdp@8 recompute'
    """
    parts = [f"{name}{row[name]:g}" for name in _DEGREES if (row.get(name) or 0) > 1]
    # Strategies of layer groups have a mesh for each group.
    parts += dict.fromkeys(str(row[name]) for name in row if name.startswith("mesh_"))
    for name, text, plain in _WAYS:
        value = row.get(name, plain)
        if isinstance(value, (bool, np.bool_)):
            parts += [name] if value else []
        elif value != plain:
            parts.append(text.format(value if isinstance(value, str) else f"{value:g}"))
    return " ".join(parts)


def points_of(table: pd.DataFrame, columns: Sequence[str], arguments: Sequence[str]) -> Floats:
    """Rows by columns in the units of the axes; what is missing or infinite is NaN.

    Parameters
    ----------
    table : DataFrame
    columns : sequence of str
    arguments : sequence of str
        The argument that named each column, for an error.

    Examples
    --------
    >>> import pandas as pd
    >>> points_of(pd.DataFrame({"energy_j": [2e6], "tp": [4]}), ["energy_j", "tp"], ["x", "y"])
    array([[2., 4.]])
    """
    named = zip(columns, arguments, strict=True)
    drawn = [numbers(table, name, argument) / scale_of(name).divisor for name, argument in named]
    points = np.column_stack(drawn)
    points[~np.isfinite(points)] = np.nan
    return points


def whole(points: Floats) -> Truths:
    """One truth value per row: whether all its numbers are there."""
    return np.asarray(~np.isnan(points).any(axis=1))


def feasible_rows(table: pd.DataFrame) -> Truths:
    """One truth value per row: whether its verdict is ok."""
    kept = feasible(table.reset_index(drop=True)).index.to_numpy()
    return np.isin(np.arange(len(table)), kept)


def line_colours(best_is_large: bool = False) -> ListedColormap:
    """Colours that can be read on white, the darkest for the best.

    Examples
    --------
    >>> line_colours().N, line_colours(True).name
    (210, 'cividis')
    """
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    count = round(DARK_SHARE * 256)
    colours = mpl.colormaps[COLOUR_MAP](np.linspace(0, DARK_SHARE, count))
    return ListedColormap(colours[::-1] if best_is_large else colours, name=COLOUR_MAP)


def categories(
    table: pd.DataFrame, column: str, argument: str
) -> tuple[list[str], NDArray[np.intp]]:
    """Values of a column in order, as text, and the place of each row among them."""
    import pandas as pd

    if column not in table.columns:
        numbers(table, column, argument)  # raises, with the nearest names
    codes, values = pd.factorize(table[column], sort=True, use_na_sentinel=False)
    texts = [number_text(item) if isinstance(item, int | float) else str(item) for item in values]
    return texts, codes
