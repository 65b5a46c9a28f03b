"""What may be varied about a cluster, and the clusters that result."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import UNITS, parse_quantity
from scalemodel.resolve import Cluster, designs

if TYPE_CHECKING:
    import pandas as pd

#: Text in base units, or a number; what a varied quantity is set to.
Value: TypeAlias = float | str
#: Values of one quantity: numbers scale, texts set, a tuple beginning with its spacing is a range.
Values: TypeAlias = Any
#: A design: the value of every varied quantity, by path.
Design: TypeAlias = Mapping[str, Value]

PEAK = "accelerator.peak"
_COMPUTE = "accelerator.compute."
_SPACINGS = ("log", "linear")

#: Cells that a fit may have written down a second time; they follow their data sheet's.
_COUPLED = {
    "accelerator.compute.bf16": ("accelerator.gemm.peak_reference",),
    "accelerator.compute.multiprocessors": ("accelerator.gemm.multiprocessors",),
    "accelerator.compute.clock": ("accelerator.gemm.clock",),
}
#: Whole numbers although the entry is read as a plain number.
_WHOLE = ("accelerator.compute.multiprocessors", "accelerator.gemm.multiprocessors")


class Quantity(NamedTuple):
    """A quantity of the cluster: its dimension, its value there, the cells that follow it."""

    path: str
    dimension: str
    base: Value
    follow: tuple[tuple[str, float], ...] = ()

    @property
    def scales(self) -> bool:
        """Whether it has a value to be a multiple of."""
        return isinstance(self.base, float) and self.base > 0


class Setting(NamedTuple):
    """A value of a quantity, and its ratio to the cluster's own (None where that means nothing)."""

    value: Value
    scale: float | None


def _whole(number: float, path: str, given: object) -> float:
    if number != int(number):
        raise ScaleModelError(f"{path}={given!r}: must be a whole number")
    return number


class Hardware:
    """The quantities of one cluster, and its variants.

    Examples
    --------
    >>> hardware = Hardware("dgx_h100")
    >>> hardware.quantity("fabric.bandwidth").base
    50000000000.0
    >>> hardware.design({"fabric.bandwidth": 2, "scale_up.domain": "16"})
    {'fabric.bandwidth': 100000000000.0, 'scale_up.domain': 16.0}
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster: Cluster = resolve.cluster(cluster)
        cells = designs.cells(self.cluster)
        self.quantities: dict[str, Quantity] = {}
        for path, cell in cells.items():
            dimension = "count" if path in _WHOLE else cell.dimension
            base = cell.value if isinstance(cell.value, str) else float(cell.value)
            follow = tuple(
                (other, float(cells[other].value))
                for other in _COUPLED.get(path, ())
                if other in cells and cells[other].given
            )
            self.quantities[path] = Quantity(path, dimension, base, follow)
        peaks = {
            path: float(cell.value)
            for path, cell in cells.items()
            if cell.dimension == "flop_per_s" and path.startswith(_COMPUTE) and cell.value
        }
        if not peaks:
            raise ScaleModelError(f"cluster={self.cluster!r}: the accelerator has no peak")
        usual = (_COMPUTE + "bf16", _COMPUTE + "fp16", *peaks)
        self._leading = next(path for path in usual if path in peaks)
        reference = self.quantities[_COMPUTE + "bf16"].follow
        self.quantities[PEAK] = Quantity(
            PEAK, "flop_per_s", peaks[self._leading], (*peaks.items(), *reference)
        )
        for path, count in (
            ("accelerators", float(self.cluster.accelerators)),
            ("nodes", float(self.cluster.nodes)),
        ):
            self.quantities[path] = Quantity(path, "count", count)

    def quantity(self, path: object) -> Quantity:
        """The quantity of a path, or an error that names the nearest ones."""
        found = self.quantities.get(path) if isinstance(path, str) else None
        if found is None:
            raise ScaleModelError(
                f"vary: {path!r}: unknown path; {nearest(str(path), self.quantities)}",
                code="unknown_path",
            )
        return found

    def setting(self, path: str, given: object) -> Setting:
        """What `given` asks of a quantity: a number scales it, a text sets it."""
        quantity = self.quantity(path)
        if isinstance(given, str):
            return self.at(path, self._parsed(quantity, given))
        if isinstance(given, (bool, np.bool_)) or not isinstance(given, numbers.Real):
            raise ScaleModelError(
                f"{path}={given!r}: must be a number, which scales, or a text, which sets"
            )
        scale = float(given)
        if not (math.isfinite(scale) and scale > 0):
            raise ScaleModelError(f"{path}={given!r}: a scale must be finite and above 0")
        if not quantity.scales:
            raise ScaleModelError(
                f"{path}={given!r}: there is no value to scale ({quantity.base!r}); "
                f"set it with a text such as {_example(quantity)!r}"
            )
        value = float(quantity.base) * scale
        if quantity.dimension == "count":
            return self.at(path, float(max(1, round(value))))
        return Setting(value, scale)

    @staticmethod
    def _parsed(quantity: Quantity, text: str) -> Value:
        if quantity.dimension == "text":
            return text
        if quantity.dimension in UNITS:
            return parse_quantity(text, quantity.dimension, quantity.path)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ScaleModelError(f"{quantity.path}={text!r}: must be a number without a unit")
        return _whole(number, quantity.path, text) if quantity.dimension == "count" else number

    def at(self, path: str, value: Value) -> Setting:
        """The setting of a value in base units."""
        quantity = self.quantity(path)
        if not quantity.scales or isinstance(value, str):
            return Setting(value, None)
        return Setting(value, value / float(quantity.base))

    def settings(self, path: str, given: Values) -> list[Setting]:
        """The settings of one axis: a value, a list of values or a range."""
        if isinstance(given, tuple) and given and given[0] in _SPACINGS:
            return self._range(path, given)
        if isinstance(given, (str, numbers.Real)):
            given = [given]
        if isinstance(given, Mapping) or not isinstance(given, Iterable):
            raise ScaleModelError(
                f"{path}={given!r}: must be values, or ('log' or 'linear', low, high, points)"
            )
        found = [self.setting(path, value) for value in given]
        if not found:
            raise ScaleModelError(f"{path}={given!r}: at least one value is needed")
        return found

    def _range(self, path: str, given: tuple[Any, ...]) -> list[Setting]:
        if len(given) != 4:
            raise ScaleModelError(f"{path}={given!r}: a range is (spacing, low, high, points)")
        spacing, low, high, points = given
        if isinstance(points, bool) or not isinstance(points, int) or points < 2:
            raise ScaleModelError(f"{path}={given!r}: points must be a whole number from 2")
        if isinstance(low, str) != isinstance(high, str):
            raise ScaleModelError(f"{path}={given!r}: both ends must be numbers, or both texts")
        quantity = self.quantity(path)
        ends = self.setting(path, low), self.setting(path, high)
        sets = isinstance(low, str)
        first, last = (float(end.value) for end in ends) if sets else (float(low), float(high))
        if spacing == "log":
            if not min(first, last) > 0:
                raise ScaleModelError(f"{path}={given!r}: the ends of a log range must be above 0")
            steps = np.geomspace(first, last, points)
        else:
            steps = np.linspace(first, last, points)
        if not sets:
            return [self.setting(path, float(step)) for step in steps]
        whole = quantity.dimension == "count"
        return [self.at(path, float(round(step) if whole else step)) for step in steps]

    def design(self, given: Mapping[str, object]) -> dict[str, Value]:
        """The design that one value per path asks for."""
        return {path: self.setting(path, value).value for path, value in given.items()}

    def _changes(self, design: Design) -> tuple[dict[str, Value], int | None]:
        """Cells of the entry that a design replaces, and the size of its job if it sets one."""
        cells: dict[str, Value] = {}
        size: tuple[str, float] | None = None
        for path, value in design.items():
            quantity = self.quantity(path)
            if path in ("accelerators", "nodes"):
                if size is not None:
                    raise ScaleModelError("vary: accelerators, nodes: give one of the two")
                size = path, float(value)
                continue
            changes = {} if path == PEAK else {path: value}
            if quantity.follow and quantity.scales:
                ratio = float(value) / float(quantity.base)
                changes.update({other: ratio * own for other, own in quantity.follow})
            for cell, changed in changes.items():
                if cell in cells:
                    raise ScaleModelError(
                        f"vary: {path}: {cell} is varied already; give one of the two"
                    )
                cells[cell] = changed
        if size is None:
            return cells, None
        kept = self.quantities["node.accelerators"].base
        per_node = float(cells.get("node.accelerators", kept)) if size[0] == "nodes" else 1.0
        return cells, int(size[1] * per_node)

    def values(self, design: Design) -> dict[str, Value]:
        """The value of every quantity in a design, varied or not."""
        cells, count = self._changes(design)
        found = {path: quantity.base for path, quantity in self.quantities.items()}
        found.update(cells)
        found[PEAK] = found[self._leading]
        if count is not None:
            found["accelerators"] = float(count)
        found["nodes"] = float(found["accelerators"]) / float(found["node.accelerators"])
        return found

    def build(self, design: Design) -> Cluster:
        """The cluster of a design, through the code that resolves every cluster."""
        cells, count = self._changes(design)
        try:
            return designs.changed(self.cluster, cells, count)
        except ScaleModelError as error:
            shown = ", ".join(f"{path}={value!r}" for path, value in design.items())
            raise ScaleModelError(f"vary: {shown}: {error}", code=error.code) from None


def _example(quantity: Quantity) -> str:
    units = UNITS.get(quantity.dimension)
    return f"1 {next(iter(units))}" if units else "8"


Point: TypeAlias = Mapping[str, Setting]


def designs_of(
    hardware: Hardware,
    vary: Mapping[str, Values] | None,
    mode: str,
    points: pd.DataFrame | None,
) -> list[dict[str, Setting]]:
    """The hardware points of a study, in its order.

    Parameters
    ----------
    vary : mapping
        Path -> values.
    mode : str
        ``"grid"``: every combination, the first path slowest; ``"zip"``: side by side.
    points : DataFrame
        One column per path, one row per point, instead of `vary`.
    """
    if (vary is None) == (points is None):
        raise ScaleModelError("vary, points: give one of the two")
    if points is not None:
        axes = {path: hardware.settings(str(path), points[path]) for path in points.columns}
        return [dict(zip(axes, row, strict=True)) for row in zip(*axes.values(), strict=True)]
    if not isinstance(vary, Mapping) or not vary:
        raise ScaleModelError(f"vary={vary!r}: must map at least one path to its values")
    axes = {path: hardware.settings(path, values) for path, values in vary.items()}
    rows: Iterable[Sequence[Setting]]
    if mode == "grid":
        rows = itertools.product(*axes.values())
    elif mode == "zip":
        lengths = {path: len(axis) for path, axis in axes.items()}
        if len(set(lengths.values())) > 1:
            raise ScaleModelError(f"vary: mode='zip' needs axes of equal length, not {lengths}")
        rows = zip(*axes.values(), strict=True)
    else:
        raise ScaleModelError(f"mode={mode!r}: must be 'grid' or 'zip'")
    return [dict(zip(axes, row, strict=True)) for row in rows]
