"""The kinds a calibration knows: how their rows become samples, and which constants may move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import value_of
from scalemodel.calibration.samples import (
    Group,
    one_label,
    positive,
    possible,
    read_samples,
    require,
)
from scalemodel.resolve import Cluster
from scalemodel.resolve.accelerators import accelerator_table, build_accelerator
from scalemodel.resolve.clusters import cluster_table
from scalemodel.resolve.networks import interconnect_table
from scalemodel.validation.operators.elementwise import CLASS_OF
from scalemodel.validation.rows import Row, SkippedRowError, Table

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Constant:
    """A constant that may move: field of the record, key in the catalogue, unit, legal range.

    Those tied to it follow by the same factor.
    """

    field: str
    key: str
    unit: str
    low: float
    high: float
    tied: tuple[Constant, ...] = ()
    unit_value: float = 1.0  # of the field, where the catalogue's number is 1


@dataclass(frozen=True)
class Fit:
    """What the engine found for one group of samples."""

    group: Group
    path: tuple[str, ...]
    constants: tuple[Constant, ...]
    fields: list[_core.FittedField]
    predicted_s: Numbers
    held_out_s: Numbers


@dataclass(frozen=True)
class Target:
    """A catalogue entry a calibration changes, and the fits that change it."""

    kind: str
    name: str
    table: Mapping[str, Any]
    fits: tuple[Fit, ...]


_TILE = (
    Constant("launch_s", "launch", "s", 0.3e-6, 50e-6),
    Constant("tau_cycles", "tau_cycles", "", 5, 2000),
    Constant("burst_fraction", "burst_fraction", "", 0.1, 1.2),
    Constant("sustained_fraction", "sustained_fraction", "", 0.1, 1.2),
    Constant("memory_fraction", "memory_fraction", "", 0.1, 1.2),
)
_NARROW = Constant(
    *("burst_fraction", "relative_fraction", "", 0.1, 1.2),
    tied=(Constant("sustained_fraction", "", "", 0.1, 1.2),),
)
_ROOFLINE = (
    Constant("roofline_compute_fraction", "compute_fraction", "", 0.02, 1.1),
    Constant("roofline_memory_fraction", "memory_fraction", "", 0.02, 1.1),
    Constant("roofline_launch_s", "launch", "s", 0.5e-6, 200e-6),
)
_ELEMENTWISE = (
    Constant("launch_s", "launch", "s", 0.3e-6, 200e-6),
    Constant("add_fraction", "add_fraction", "", 0.02, 1.2),
    Constant("norm_fraction", "norm_fraction", "", 0.02, 1.2),
    Constant("softmax_fraction", "softmax_fraction", "", 0.02, 1.2),
    Constant("activation_fraction", "activation_fraction", "", 0.02, 1.2),
)
# One scale of all latencies and one of all bandwidths. The form has seven constants, as thousands
# of timings can tell protocols apart; forty leave each of the seven 3 to 40 % wrong.
_COLLECTIVE = (
    Constant(
        *("start1_s", "a1", "s", 0.5e-6, 20e-3),
        tied=(
            Constant("per_rank1_s", "l1", "s", 1e-9, 5e-3),
            Constant("start2_s", "a2", "s", 0.5e-6, 50e-3),
            Constant("per_rank2_s", "l2", "s", 1e-9, 50e-3),
            Constant("pipeline_fill_s", "c", "s", 1e-8, 2e-3),
        ),
    ),
    Constant(
        *("bandwidth_fraction2", "b2", "", 0.002, 1.2),
        tied=(Constant("bandwidth_fraction1", "b1", "", 0.0005, 1.2),),
    ),
)
_FABRIC = (
    Constant("latency_factor", "latency_factor", "", 0.1, 50),
    Constant("bandwidth_fraction", "bandwidth_fraction", "", 0.02, 1.1),
    Constant("all_to_all_fraction", "all_to_all_fraction", "", 0.02, 1.1),
)

_FLASH = (
    Constant("flash2_forward", "flash2_forward", "", 0.005, 1.5),
    Constant("flash2_backward", "flash2_backward", "", 0.005, 1.5),
    Constant("launch_s", "launch", "s", 0.5e-6, 500e-6),
)

_SIXTEEN_BIT = ("bfloat16", "bf16", "float16", "fp16", "half")
_SINGLE = ("float32", "fp32", "float")
_ELEMENT_BYTES = {**dict.fromkeys(_SIXTEEN_BIT, 2.0), **dict.fromkeys(_SINGLE, 4.0)}
# What a kernel does with memory -> family of kernels that share a fraction of the bandwidth, and
# passes over the matrix: inputs read and output written.
_MEMORY_BOUND = {
    "add": ("add", 3.0),
    "unary": ("add", 2.0),
    "layernorm": ("norm", 2.0),
    "rmsnorm": ("norm", 2.0),
    "softmax": ("softmax", 2.0),
}
#: Families of memory-bound kernels that share a fraction of the bandwidth.
FAMILIES = ("add", "norm", "softmax", "activation")
_ACTIVATIONS = ("gelu", "silu", "tanh")
_OPERATIONS = {"alltoall": "all_to_all"}


def ranges(constants: tuple[Constant, ...]) -> list[tuple[str, float, float, list[str]]]:
    """Fields that move, their ranges and the fields tied to them, as the engine asks for them."""
    return [
        (item.field, item.low, item.high, [other.field for other in item.tied])
        for item in constants
    ]


def listed(constants: tuple[Constant, ...]) -> tuple[Constant, ...]:
    """Every constant, each followed by those tied to it: the order of a fit's fields."""
    return tuple(each for item in constants for each in (item, *item.tied))


def accelerator_entry(table: Table, given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The entry a fit begins from: the given one, else what the column gpu names."""
    label = one_label(table, "gpu")
    try:
        return accelerator_table(label if given is None else given)
    except ScaleModelError as error:
        if given is not None:
            raise
        raise ScaleModelError(
            f"column 'gpu': {error}; or pass accelerator= with the entry to begin from",
            code="unknown_accelerator",
        ) from None


def name_of(entry: Mapping[str, Any]) -> str:
    """Catalogue name of an entry; a table of one's own may have none."""
    return str(entry.get("name", "accelerator"))


def nonempty(groups: list[Group], states: list[str], kind: str) -> None:
    """Refuse a table without a single sample.

    Raises
    ------
    ScaleModelError : says why its rows were set aside.
    """
    if any(group.samples for group in groups):
        return
    found = sorted(set(states))
    why = f" ({', '.join(found[:4])})" if found else ""
    raise ScaleModelError(f"table: holds no row to calibrate {kind!r} with{why}", code="no_samples")


# ------------------------------------------------------------------------------------------ gemm
def _shape(group: Group) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    return group.column(0), group.column(1), group.column(2), group.column(3)


def _gemm_fit(
    core: _core.Accelerator, precision: str, group: Group, folds: int
) -> tuple[_core.Accelerator, Fit]:
    """Fit one number format; the accelerator comes back with the fitted constants."""
    samples = (group.time_s, group.weight, group.folds(folds))
    gemm = core.gemm
    if not gemm.tiled:
        record, *found = _core.fit_roofline_gemm(
            core, precision, *_shape(group), *samples, ranges(_ROOFLINE)
        )
        fit = Fit(group, ("gemm", "roofline"), _ROOFLINE, *found)
        return core.replace(gemm=record), fit
    if precision in ("fp8", "fp4"):
        # The entry gives a narrow format as a share of the 16-bit fractions: one number to fit.
        share = replace(_NARROW, unit_value=gemm.dense16.burst_fraction)
        tile, fields, *times = _core.fit_tile_gemm(
            core, precision, *_shape(group), *samples, ranges((share,))
        )
        fit = Fit(group, ("gemm", precision), (share,), fields[:1], *times)
        return core.replace(gemm=gemm.replace(**{precision: tile})), fit
    tile, *found = _core.fit_tile_gemm(core, precision, *_shape(group), *samples, ranges(_TILE))
    return core.replace(gemm=gemm.replace(dense16=tile)), Fit(group, ("gemm",), _TILE, *found)


def gemm(
    table: Table, accelerator: str | Mapping[str, Any] | None, folds: int
) -> tuple[list[Target], list[str]]:
    """Dense multiplications of one accelerator: 16-bit operands, then narrower ones beside them."""
    columns = ("gpu", "dtype", "m", "n", "k", "time_us")
    require(table, columns, "gemm")
    entry = accelerator_entry(table, accelerator)
    core = build_accelerator(entry)
    peaks = dict(zip(_core.precisions(), core.peak_flop_per_s, strict=True))
    wide = next((name for name in ("bf16", "fp16") if peaks[name]), "fp32")
    narrow = {
        name: name
        for name in ("fp8", "fp4")
        if peaks[name] and core.gemm.tiled and getattr(core.gemm, name).burst_fraction > 0
    }
    # Where no 16-bit format has a peak, as on CPUs, FP32 is what layers multiply in.
    precisions = {**dict.fromkeys(_SINGLE if wide == "fp32" else _SIXTEEN_BIT, wide), **narrow}

    def sample_of(row: Row) -> tuple[str, tuple[float, ...]]:
        precision = precisions.get(row.text("dtype").lower())
        if precision is None:
            raise SkippedRowError("unsupported:dtype")
        batch = positive(row, "batch") if row.text("batch") else 1.0
        name = "gemm" if precision == wide else f"gemm.{precision}"
        return name, (positive(row, "m"), positive(row, "n"), positive(row, "k"), batch)

    groups, states = read_samples(table, (*columns, "batch"), sample_of)
    fits = []
    for whole in sorted(groups, key=lambda group: group.name):
        precision = whole.name.partition(".")[2] or wide
        bound_s = _core.gemm_bound_s(core, precision, *_shape(whole))
        group = possible(whole, bound_s, states, "peak")
        if group.samples:
            core, fit = _gemm_fit(core, precision, group, folds)
            fits.append(fit)
    nonempty([fit.group for fit in fits], states, "gemm")
    return [Target("accelerators", name_of(entry), entry, tuple(fits))], states


# ----------------------------------------------------------------------------------- elementwise
def elementwise(
    table: Table, accelerator: str | Mapping[str, Any] | None, folds: int
) -> tuple[list[Target], list[str]]:
    """Kernels that only move bytes."""
    columns = ("gpu", "dtype", "op", "rows", "cols", "time_us")
    require(table, columns, "elementwise")
    entry = accelerator_entry(table, accelerator)
    activates = any(op.strip().lower() in _ACTIVATIONS for op in table.column("op"))
    constants = _ELEMENTWISE if activates else _ELEMENTWISE[:-1]
    if activates:
        known = entry["elementwise"]
        entry = {
            **entry,
            "elementwise": {"activation_fraction": value_of(known["add_fraction"]), **known},
        }
    core = build_accelerator(entry)

    def sample_of(row: Row) -> tuple[str, tuple[float, ...]]:
        op = row.text("op").lower()
        memory_bound = _MEMORY_BOUND.get(CLASS_OF.get(op, ""))
        if memory_bound is None:
            raise SkippedRowError("unsupported:op")
        size = _ELEMENT_BYTES.get(row.text("dtype").lower())
        if size is None:
            raise SkippedRowError("unsupported:dtype")
        family, passes = memory_bound
        if op in _ACTIVATIONS:
            family = "activation"
        elements = positive(row, "rows") * positive(row, "cols")
        return "elementwise", (float(FAMILIES.index(family)), passes * size * elements)

    groups, states = read_samples(table, columns, sample_of)
    fits = []
    for whole in groups:
        bound_s = _core.memory_bound_s(core, whole.column(1))
        group = possible(whole, bound_s, states, "bandwidth")
        if not group.samples:
            continue
        _, fields, predicted_s, held_out_s = _core.fit_elementwise(
            core,
            [FAMILIES[int(index)] for index in group.column(0)],
            group.column(1),
            group.time_s,
            group.weight,
            group.folds(folds),
            ranges(constants),
        )
        fits.append(Fit(group, ("elementwise",), constants, fields, predicted_s, held_out_s))
    nonempty([fit.group for fit in fits], states, "elementwise")
    return [Target("accelerators", name_of(entry), entry, tuple(fits))], states


# ------------------------------------------------------------------------------------ attention
def training_attention(
    table: Table, accelerator: str | Mapping[str, Any] | None, folds: int
) -> tuple[list[Target], list[str]]:
    """Causal attention of training, forward and backward, in FP32."""
    numbers = ("batch", "tokens", "heads", "head_dim")
    columns = ("gpu", "dtype", "pass", *numbers, "time_us")
    require(table, columns, "training_attention")
    entry = accelerator_entry(table, accelerator)
    passes = ("forward", "backward")

    def sample_of(row: Row) -> tuple[str, tuple[float, ...]]:
        if row.text("pass") not in passes:
            raise SkippedRowError("unsupported:pass")
        if row.text("dtype").lower() not in _SINGLE:
            raise SkippedRowError("unsupported:dtype")
        which = float(passes.index(row.text("pass")))
        return "attention", (which, *(positive(row, name) for name in numbers))

    groups, states = read_samples(table, columns, sample_of)
    nonempty(groups, states, "training_attention")
    fits = []
    for group in groups:
        _, fields, predicted_s, held_out_s = _core.fit_flash(
            build_accelerator(entry),
            "fp32",
            [bool(which) for which in group.column(0)],
            *(group.column(index) for index in range(1, 5)),
            causal=True,
            time_s=group.time_s,
            weight=group.weight,
            fold=group.folds(folds),
            ranges=ranges(_FLASH),
        )
        fits.append(Fit(group, ("attention",), _FLASH, fields, predicted_s, held_out_s))
    return [Target("accelerators", name_of(entry), entry, tuple(fits))], states


# ----------------------------------------------------------------------------------- collectives
def _cluster(table: Table, given: str | Mapping[str, Any] | None) -> Cluster:
    sizes = [row.number("gpus") or 1 for row in table.select(("gpus",))]
    most = max([1, *(int(size) for size in sizes if size < 1e8)])
    if given is not None:
        return resolve.cluster(given, accelerators=most)
    if any((row.number("nodes") or 1) > 1 for row in table.select(("nodes",))):
        raise ScaleModelError(
            "cluster=None: rows of several nodes need the cluster they were measured on "
            "(a catalogue name, a .toml path or a table), which says the rate of its network",
            code="missing_cluster",
        )
    entry = accelerator_entry(table, None)
    return resolve.cluster({"accelerator": entry["name"], "node": {"accelerators": most}})


def _interconnect(name: str) -> tuple[str, Mapping[str, Any]]:
    found = catalog.find("interconnects", name)
    return found, interconnect_table(found)


def _classes(given: str | Mapping[str, Any] | None, cluster: Cluster) -> tuple[str, str]:
    """Names of the interconnect classes of the links inside a domain and between domains."""
    links = accelerator_table(cluster.table["accelerator"]).get("scale_up", {})
    table = {} if given is None else cluster_table(given)[0]
    inside = {**links, **table.get("scale_up", {})}.get("class", "pcie5")
    outside = table.get("fabric", {}).get("class", "infiniband")
    return str(value_of(inside)), str(value_of(outside))


def collectives(
    table: Table, cluster: str | Mapping[str, Any] | None, folds: int
) -> tuple[list[Target], list[str]]:
    """Collectives inside a scale-up domain, one set of constants each, and between domains."""
    columns = ("gpu", "gpus", "op", "bytes", "time_us")
    require(table, columns, "collectives")
    one_label(table, "gpu")
    built = _cluster(table, cluster)
    core = built.core
    domain = int(core.scale_up.domain)
    known = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")

    def sample_of(row: Row) -> tuple[str, tuple[float, ...]]:
        op = _OPERATIONS.get(row.text("op"), row.text("op"))
        if op not in known:
            raise SkippedRowError("unsupported:op")
        if row.text("algo"):
            raise SkippedRowError("unsupported:algo")
        ranks, nodes = row.required_count("gpus"), row.count("nodes") or 1
        if ranks < 2:
            raise SkippedRowError("illegal:gpus")
        inside = ranks <= domain
        if nodes > 1 and (ranks / nodes != min(domain, core.node_accelerators)):
            raise SkippedRowError("unsupported:layout")
        numbers = (float(known.index(op)), positive(row, "bytes"), float(ranks))
        return (op if inside else "fabric"), numbers

    groups, states = read_samples(table, (*columns, "nodes", "algo"), sample_of)
    inside_fits: list[Fit] = []
    fabric_fits: list[Fit] = []
    for whole in sorted(groups, key=lambda group: group.name):
        group = possible(whole, _bound_s(core, whole, known), states, "wire")
        if not group.samples:
            continue
        spanning = group.name == "fabric"
        constants = _FABRIC if spanning else _COLLECTIVE
        fit = _core.fit_fabric if spanning else _core.fit_collective
        _, fields, predicted_s, held_out_s = fit(
            core,
            [known[int(index)] for index in group.column(0)],
            group.column(1),
            group.column(2).astype(np.int32),
            group.time_s,
            group.weight,
            group.folds(folds),
            ranges(constants),
        )
        path = () if spanning else (group.name,)
        found = Fit(group, path, listed(constants), fields, predicted_s, held_out_s)
        (fabric_fits if spanning else inside_fits).append(found)
    nonempty([fit.group for fit in [*inside_fits, *fabric_fits]], states, "collectives")
    targets = []
    for name, fits in zip(_classes(cluster, built), (inside_fits, fabric_fits), strict=True):
        if fits:
            targets.append(Target("interconnects", *_interconnect(name), tuple(fits)))
    return targets, states


def _bound_s(core: _core.Cluster, group: Group, known: tuple[str, ...]) -> Numbers:
    return _core.collective_bound_s(
        core,
        [known[int(index)] for index in group.column(0)],
        group.column(1),
        group.column(2).astype(np.int32),
    )
