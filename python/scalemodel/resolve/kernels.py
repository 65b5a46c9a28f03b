"""Matrix multiplications of named software stacks: catalogue entries to engine values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import (
    accelerator_table,
    build_accelerator,
    tile_constants,
    tile_shapes,
)
from scalemodel.resolve.reader import Reader


@dataclass(frozen=True)
class GemmType:
    """Number formats of a kind of product and the units that multiply it.

    Attributes
    ----------
    activation_bytes, weight_bytes : float
        Per element; block scales included.
    peak_of : str
        Precision whose peak on the data sheet applies when no 16-bit one is known.
    peak_factor : float
        Peak over the 16-bit peak that the constants refer to; 0 for products outside the tensor
        cores, which run at the peak of their own precision.
    like : str
        The kind of product whose kernels stand in where this one was not measured.
    """

    activation_bytes: float
    weight_bytes: float
    peak_of: str
    peak_factor: float
    like: str = ""


GEMM_TYPES: Mapping[str, GemmType] = {
    "bf16": GemmType(2, 2, "bf16", 1),
    "fp16": GemmType(2, 2, "fp16", 1),
    "fp32": GemmType(4, 4, "fp32", 0),
    "fp8": GemmType(1, 1, "fp8", 2),
    "fp8_block": GemmType(1, 1, "fp8", 2, "fp8"),
    "nvfp4": GemmType(0.5625, 0.5625, "fp4", 4, "fp8"),
    "sq": GemmType(1, 1, "fp8", 2, "fp8"),
    "int8_wo": GemmType(2, 1, "bf16", 1),
    "int4_wo": GemmType(2, 0.52, "bf16", 1),
}


@dataclass(frozen=True)
class GemmKernel:
    """What `_core.gemm_kernel_time_s` needs, and where the constants come from."""

    accelerator: _core.Accelerator
    constants: _core.TileGemm
    format: _core.GemmFormat
    note: str = ""


def _measured(accelerator: str, dtype: str) -> Mapping[str, Any]:
    """Tables of the stacks measured on an accelerator, by stack."""
    name = f"{accelerator}_gemm"
    if name not in catalog.names("kernels"):
        return {}
    stacks: Mapping[str, Any] = catalog.load("kernels", name).get(dtype, {})
    return stacks


@catalog.kept(256)
def _donors(accelerator: str, dtype: str) -> list[str]:
    """Accelerators of the vendor that may lend kernel constants, the nearest first."""

    def distance(name: str) -> tuple[bool, bool, int]:
        entry = catalog.load("accelerators", name)
        return (
            name != accelerator,
            entry["architecture"] != own["architecture"],
            abs(entry["year"] - own["year"]),
        )

    own = catalog.load("accelerators", accelerator)
    lenders = [
        str(catalog.load("kernels", name)["accelerator"])
        for name in catalog.names("kernels")
        if catalog.load("kernels", name).get("operator") == "gemm"
        and dtype in catalog.load("kernels", name)
    ]
    vendor = own["vendor"]
    same = [name for name in lenders if catalog.load("accelerators", name)["vendor"] == vendor]
    return sorted(same, key=distance)


def training_efficiency(accelerator: str, stack: str) -> float:
    """Rate of a training stack's products over those of the inference benchmarks."""
    table = _measured(accelerator, "training").get(stack)
    if table is None:
        return 1.0
    return Reader(table, f"{accelerator}_gemm.training.{stack}").number("efficiency")


@catalog.kept(256)
def gemm_kernel(accelerator: str, dtype: str, stack: str = "") -> GemmKernel | None:
    """Constants of the products of a catalogue accelerator in a number format.

    The stack's own constants if there are any, else another stack's, else those of the nearest
    accelerator by architecture and year with this accelerator's own rates.

    Parameters
    ----------
    accelerator : str
        Catalogue name or alias.
    dtype : str
        A key of `GEMM_TYPES`.
    stack : str
        Named stack, such as ``sglang``; any when empty.

    Returns
    -------
    GemmKernel or None
        None where the accelerator has only the roofline form of its data sheet to offer.

    Examples
    --------
    >>> gemm_kernel("h100_sxm_80", "fp8", "sglang").format.activation_bytes
    1.0
    """
    name = catalog.find("accelerators", accelerator)
    kind = GEMM_TYPES.get(dtype)
    if kind is None:
        raise ScaleModelError(f"dtype={dtype!r}: must be one of {', '.join(GEMM_TYPES)}")
    core = build_accelerator(accelerator_table(name))
    peak = core.peak_flop_per_s[_core.precisions().index(kind.peak_of)]
    if kind.peak_factor > 0:
        peak = kind.peak_factor * core.gemm.reference_peak_flop_per_s
    if peak <= 0:
        return None
    shape = _core.GemmFormat(
        activation_bytes=kind.activation_bytes,
        weight_bytes=kind.weight_bytes,
        peak_flop_per_s=peak,
        warm=True,
    )
    if dtype in ("bf16", "fp16"):
        return GemmKernel(core, core.gemm.dense16, shape) if core.gemm.tiled else None
    for wanted in filter(None, (dtype, kind.like)):
        for lender in _donors(name, wanted):
            stacks = _measured(lender, wanted)
            chosen = next((s for s in (stack, "sglang", *stacks) if s in stacks), None)
            if chosen is None:
                continue
            reader = Reader(stacks[chosen], f"{lender}_gemm.{wanted}.{chosen}")
            donor = core if core.gemm.tiled else build_accelerator(accelerator_table(lender))
            constants, kernels = tile_constants(reader), donor.gemm
            if "tiles" in reader.table:
                kernels = kernels.replace(tiled=True, **tile_shapes(reader))
            reader.finish()
            same = lender == name and wanted == dtype and chosen == (stack or chosen)
            note = "" if same else f"kernel={wanted} of {chosen} on {lender}"
            return GemmKernel(core.replace(gemm=kernels), constants, shape, note)
    return None
