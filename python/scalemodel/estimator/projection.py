"""A measured step carried over to another size of the job.

What a prediction misses on a node it misses, for the most part, on many: the ratio of measured over
predicted carries over, to a power that published runs give. The constants come from
``catalog/reference/projection.toml``, which `scalemodel.validation.projection` derives from runs of
one model and stack at several sizes, predicted by constants that have not seen their source.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError


class Carried(NamedTuple):
    """How much of a measured ratio holds at another size, and how surely.

    Attributes
    ----------
    carried_fraction : float
        Exponent of the ratio, 0 to 1.
    factor : float
        Between a projected step time and either end of its interval.
    rows, sources : int
        Of published runs behind both.
    """

    carried_fraction: float
    factor: float
    rows: int
    sources: int


def projected_s(predicted_s: float, measured_ratio: float, carried_fraction: float) -> float:
    """Seconds of a step at another size: what is predicted there times what is known of here.

        projected = predicted ratio^carried

    Parameters
    ----------
    predicted_s : float
        At the other size.
    measured_ratio : float
        Measured over predicted seconds, where it was measured.
    carried_fraction : float
        Of `Carried`.

    Examples
    --------
    >>> projected_s(2.0, 1.21, 0.5)
    2.2
    """
    return float(predicted_s * measured_ratio**carried_fraction)


@lru_cache(maxsize=4)
def _loaded(path: Path, modified_ns: int) -> tuple[dict[tuple[str, bool], Carried], float]:
    table: dict[str, Any] = catalog.read_toml(path)
    cells = {}
    for cell in table["cells"]:
        found = Carried(**{name: cell.get(name) for name in Carried._fields})
        legal = all(isinstance(value, (int, float)) for value in found)
        if not (legal and 0 <= found.carried_fraction <= 1 and found.factor >= 1):
            raise ScaleModelError(
                f"projection.cells={cell!r}: must have a carried_fraction from 0 to 1, a factor "
                "from 1, rows and sources"
            )
        cells[str(cell["constants"]), bool(cell["same_layout"])] = found
    return cells, float(table["interval"]["coverage_fraction"]["value"])


def coverage_fraction() -> float:
    """Share of projected steps inside their interval.

    Examples
    --------
    >>> coverage_fraction()
    0.8
    """
    path = catalog.path_of("reference", "projection")
    return _loaded(path, path.stat().st_mtime_ns)[1]


def carried(constants: str, *, same_layout: bool) -> Carried:
    """What carries over from one size to another.

    Parameters
    ----------
    constants : str
        ``"plain"`` without a named software stack, else ``"named"``.
    same_layout : bool
        Whether nothing but the data-parallel degree changes.

    Examples
    --------
    >>> carried("named", same_layout=True).factor < carried("named", same_layout=False).factor
    True
    """
    path = catalog.path_of("reference", "projection")
    return _loaded(path, path.stat().st_mtime_ns)[0][constants, same_layout]
