"""Constants of measured kernels: catalogue entries of kind ``kernels`` to engine records.

A file holds the kernels of one accelerator and one kind; every table in it is one kernel: labels
(kernel, dtype, engine, version, op ...) that name it, a source, and the fields of its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.resolve.reader import Reader

_DIMENSIONS = {"_bytes_per_s": "bytes_per_s", "_flop_per_s": "flop_per_s", "_s": "s"}
_PLAIN_BYTES = ("weight_bytes", "value_bytes")  # per element: a ratio, written without a unit

# Formats that kernels treat alike, by how unlike they are, in the unit of `distance`.
_ALIKE = {
    frozenset(("bfloat16", "float16")): 0.0,
    frozenset(("fp8", "fp8_block")): 3.0,
    frozenset(("int4_wo", "w4a16_mxfp4")): 3.0,
    frozenset(("nvfp4", "w4a8_mxfp4_mxfp8")): 5.0,
}
_OTHER_DTYPE = 30.0

RecordT = TypeVar("RecordT")


@dataclass(frozen=True)
class Kernel(Generic[RecordT]):
    """One kernel of one accelerator: what it is called and its constants.

    Attributes
    ----------
    accelerator : str
        Catalogue name of the accelerator the constants were fitted on.
    name : str
        Table of the catalogue file.
    labels : mapping of str
        What names the kernel: dtype, engine, version and the like.
    record : the engine's constants
    """

    accelerator: str
    name: str
    labels: Mapping[str, str]
    record: RecordT

    def label(self, key: str) -> str:
        """A label, or an empty text."""
        return self.labels.get(key, "")


def _record(table: Mapping[str, Any], record_type: Any, labels: Iterable[str], where: str) -> Any:
    reader = Reader(table, where)
    given: dict[str, Any] = {}
    for row in record_type.fields():
        field = str(row["name"])
        suffix = next((end for end in _DIMENSIONS if field.endswith(end)), "")
        key = field.removesuffix(suffix)
        reader.known.add(key)
        if key not in table:
            continue
        if suffix and field not in _PLAIN_BYTES:
            given[field] = reader.quantity(key, _DIMENSIONS[suffix])
        elif row["kind"] == "float":
            given[field] = reader.number(key)
        else:
            given[field] = value_of(table[key])
    reader.finish(*labels)
    return record_type(**given)


def kernels(
    kind: str, record_type: Callable[..., RecordT], labels: Iterable[str]
) -> list[Kernel[RecordT]]:
    """Every kernel of a kind in the catalogue, in the order of its files.

    Examples
    --------
    >>> from scalemodel import _core
    >>> found = kernels("lookup", _core.LookupKernel, ["op", "dtype"])
    >>> sorted(kernel.accelerator for kernel in found)
    ['a100_sxm_80', 'a40', 'h100_sxm_80']
    """
    names = tuple(labels)
    found: list[Kernel[RecordT]] = []
    for entry in catalog.names("kernels"):
        content = catalog.load("kernels", entry)
        if content.get("kind") != kind:
            continue
        accelerator = catalog.find("accelerators", str(content["accelerator"]))
        for key, table in content.items():
            if isinstance(table, Mapping):
                where = f"kernels/{entry}.toml: {key}"
                record = _record(table, record_type, names, where)
                named = {name: str(value_of(table[name])) for name in names if name in table}
                found.append(Kernel(accelerator, key, named, record))
    return found


@dataclass(frozen=True)
class _Build:
    architecture: str
    year: int
    interconnect: str


@catalog.kept(256)
def _build_of(accelerator: str) -> _Build:
    table = catalog.load("accelerators", accelerator)
    interconnect = str(table.get("scale_up", {}).get("class", ""))
    return _Build(
        str(table.get("architecture", "")),
        int(table.get("year", 0)),
        "pcie" if interconnect.startswith("pcie") else "domain",
    )


def distance(one: str, other: str) -> float:
    """How unlike two accelerators of the catalogue are; 0 for one and the same.

    Parts of one architecture come first, those of one form (in a scale-up domain or on PCIe)
    before others; beyond that, years apart.

    Examples
    --------
    >>> distance("h200", "h100_sxm_80") < distance("h200", "b200") < distance("h200", "l40s")
    True
    """
    if one == other:
        return 0.0
    a, b = _build_of(one), _build_of(other)
    apart = abs(a.year - b.year) / 4
    if a.architecture != b.architecture:
        apart += 6.0
    if a.interconnect != b.interconnect:
        apart += 4.0
    return 1.0 + apart


def dtype_mismatch(one: str, other: str) -> float:
    """How unlike two number formats are to a kernel, in the unit of `distance`.

    Examples
    --------
    >>> dtype_mismatch("fp8", "fp8_block") < dtype_mismatch("fp8", "bfloat16")
    True
    """
    return 0.0 if one == other else _ALIKE.get(frozenset((one, other)), _OTHER_DTYPE)


def nearest_kernel(
    candidates: Iterable[Kernel[RecordT]],
    accelerator: str,
    mismatch: Callable[[Kernel[RecordT]], float],
    apart: dict[tuple[str, str], float] | None = None,
) -> Kernel[RecordT]:
    """The candidate whose labels and accelerator are least unlike what is asked for.

    Parameters
    ----------
    candidates : iterable of Kernel
    accelerator : str
        Catalogue name.
    mismatch : callable
        How unlike the labels are, in the unit of `distance`.
    apart : dict, optional
        Distances already known; further ones are added.

    Raises
    ------
    ScaleModelError : there is no candidate.
    """
    known = {} if apart is None else apart
    best: tuple[float, Kernel[RecordT]] | None = None
    for kernel in candidates:
        pair = (accelerator, kernel.accelerator)
        if pair not in known:
            known[pair] = distance(*pair)
        total = mismatch(kernel) + known[pair]
        if best is None or total < best[0]:
            best = (total, kernel)
    if best is None:
        raise ScaleModelError("kernels: the catalogue has none of this kind", code="no_kernel")
    return best[1]
