"""Accelerators: data sheet and kernel constants of an entry to engine values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.reader import Reader, Table, is_path, merged


def accelerator_table(source: str | Table) -> dict[str, Any]:
    """Tables of an accelerator with inherited kernel constants filled in."""
    if isinstance(source, Mapping):
        base = source.get("base")
        table = accelerator_table(str(base)) if base is not None else {}
        return merged(table, {key: cell for key, cell in source.items() if key != "base"})
    if is_path(source, (".toml",), ("accelerators",)):
        table = catalog.read_toml(Path(source))
    else:
        table = dict(catalog.load("accelerators", source))
    inherited = table.get("kernels")
    if inherited is not None and inherited != table.get("name"):
        parent = accelerator_table(str(inherited))
        for kind in ("gemm", "attention", "elementwise"):
            if kind not in table and kind in parent:
                table[kind] = parent[kind]
    return table


def tile_constants(reader: Reader) -> _core.TileGemm:
    """The constants of one kernel family in the tile form."""
    return _core.TileGemm(
        launch_s=reader.quantity("launch", "s"),
        tau_cycles=reader.number("tau_cycles"),
        burst_fraction=reader.fraction("burst_fraction"),
        sustained_fraction=reader.fraction("sustained_fraction"),
        throttle_s=reader.quantity("throttle", "s"),
        memory_fraction=reader.fraction("memory_fraction"),
        cache_bytes_per_clock=reader.number("cache_bytes_per_clock", 0.0),
        epilogue_bytes_per_clock=reader.number("epilogue_bytes_per_clock", 0.0),
        wave_weight=reader.number("wave_weight"),
        split_s=reader.quantity("split", "s"),
        split_passes=reader.number("split_passes"),
        memory_ramp_s=reader.quantity("memory_ramp", "s", 0.0),
        blend=reader.number("blend"),
        quantise_passes=reader.number("quantise_passes", 0.0),
        host_floor_s=reader.quantity("host_floor", "s", 0.0),
    )


#: FLOP per second below which a peak is a slip of units.
_LEAST_PEAK = 1e6

#: Of the H100, whose attention and expert kernels stand for parts without timings: where a part has
#: a few large cores, or does not say, their blocks are spread as they were measured.
_BORROWED_MULTIPROCESSORS = 132
_BESIDE_PRODUCTS = _core.AttentionKernels().flash3_narrow
_TILE = _core.AttentionKernels().tile

# How the constants moved from Ampere to Hopper: a shorter start, operands shared between
# multiprocessors (multicast), results written beside the next tile's arithmetic.
_LAUNCH_TREND, _CACHE_TREND, _EPILOGUE_TREND = 0.914, 3.1, 2.1


def newer(kernel: _core.TileGemm, generations: float) -> _core.TileGemm:
    """Kernel constants carried to an architecture some generations newer, without timings."""
    return kernel.replace(
        launch_s=_LAUNCH_TREND**generations * kernel.launch_s,
        cache_bytes_per_clock=_CACHE_TREND**generations * kernel.cache_bytes_per_clock,
        epilogue_bytes_per_clock=_EPILOGUE_TREND**generations * kernel.epilogue_bytes_per_clock,
    )


def _narrow_tile(reader: Reader, key: str, wide: _core.TileGemm) -> _core.TileGemm:
    """A narrow format: the wide one's tiles, at a share of its fractions of the higher peak."""
    if key not in reader.table:
        reader.known.add(key)
        return _core.TileGemm()
    inner = reader.sub(key)
    usual = Reader(
        catalog.load("reference", "narrow_gemm")["step_latency"], "reference.narrow_gemm"
    )
    relative = inner.fraction("relative_fraction")
    tile = wide.replace(
        burst_fraction=relative * wide.burst_fraction,
        sustained_fraction=relative * wide.sustained_fraction,
        tau_cycles=usual.number(key) * wide.tau_cycles,
        quantise_passes=inner.number("quantise_passes", 0.0),
    )
    inner.finish()
    return tile


def tile_shapes(reader: Reader) -> dict[str, Any]:
    """Tiles a library chooses between, filled up with zeros, and how they share the chip."""
    reader.known.add("tiles")
    shapes = reader.table.get("tiles")
    most = len(_core.GemmKernels().tile_rows)
    if (
        not isinstance(shapes, Sequence)
        or not 1 <= len(shapes) <= most
        or not all(isinstance(shape, Sequence) and len(shape) == 2 for shape in shapes)
    ):
        raise ScaleModelError(
            f"{reader.where}.tiles={shapes!r}: must be 1 to {most} pairs [rows, columns]"
        )
    filled = [*shapes, *([(0, 0)] * (most - len(shapes)))]
    return {
        "tile_rows": [rows for rows, _ in filled],
        "tile_columns": [columns for _, columns in filled],
        "wave_targets": reader.count("wave_targets", 1),
        "resident_elements": reader.number("resident_elements", 0.0),
        "resident_most": reader.count("resident_most", 1),
        "warm_factor": reader.number("warm_factor", 1.0),
    }


def _gemm(reader: Reader, sheet_peak: float) -> _core.GemmKernels:
    roofline = reader.sub("roofline")
    common: dict[str, Any] = {
        "roofline_compute_fraction": roofline.fraction("compute_fraction"),
        "roofline_memory_fraction": roofline.fraction("memory_fraction"),
        "roofline_launch_s": roofline.quantity("launch", "s"),
        "reference_peak_flop_per_s": reader.quantity("peak_reference", "flop_per_s", sheet_peak),
    }
    roofline.finish()
    rows = reader.sub("rows")
    for key, name in (("of_4_bytes", "rows_of_4_fraction"), ("of_2_bytes", "rows_of_2_fraction")):
        common[name] = rows.number(key, 1.0)
    rows.finish()
    if reader.text("form", "roofline") != "tile":
        reader.finish("multiprocessors", "clock", "tiles")
        return _core.GemmKernels(**common)
    wide = newer(tile_constants(reader), reader.number("generations", 0.0))
    kernels = _core.GemmKernels(
        tiled=True,
        dense16=wide,
        fp8=_narrow_tile(reader, "fp8", wide),
        fp4=_narrow_tile(reader, "fp4", wide),
        **tile_shapes(reader),
        **common,
    )
    reader.finish("multiprocessors", "clock")
    return kernels


def _power(reader: Reader) -> _core.PowerPhases:
    phases = catalog.load("reference", "power_phases")["phases"]
    defaults = Reader(phases, "reference.power_phases")
    power = _core.PowerPhases(
        limit_w=reader.quantity("tdp", "w"),
        idle_w=reader.quantity("idle", "w"),
        compute_fraction=reader.number("compute_fraction", defaults.number("compute_fraction")),
        exposed_fraction=reader.number("exposed_fraction", defaults.number("exposed_fraction")),
    )
    reader.finish("serving")
    return power


def _scan(reader: Reader) -> _core.ScanKernels:
    """Scans of recurrent mixers: an accelerator without its own takes the mean of those known."""
    usual = Reader(catalog.load("reference", "scan_kernels")["scan"], "reference.scan_kernels")
    scan = _core.ScanKernels(
        **{
            name: reader.number(name, usual.number(name))
            for name in ("compute_fraction", "memory_fraction", "backward", "blend")
        },
        **{
            f"{name}_s": reader.quantity(name, "s", usual.quantity(name, "s"))
            for name in ("step", "launch")
        },
    )
    reader.finish()
    return scan


def _peak(compute: Reader, precision: str) -> float:
    """The dense peak of a format; 0 where the accelerator lacks it."""
    peak = compute.quantity(precision, "flop_per_s", 0.0)
    if 0 < peak < _LEAST_PEAK:
        raise ScaleModelError(
            f"{compute.where}.{precision}={peak}: must be 0, for a format the accelerator lacks, "
            f"or at least {_LEAST_PEAK:g} (flop_per_s)"
        )
    return peak


def sheet_peak(table: Table, precision: str) -> float:
    """The data sheet's FLOP per second in one format, of an entry's tables; 0 where it has none."""
    return _peak(Reader(table, "").sub("compute"), precision)


def build_accelerator(table: Table) -> _core.Accelerator:
    """The engine's accelerator of an entry's tables."""
    top = Reader(table, "")
    compute = top.sub("compute")
    peaks = [_peak(compute, name) for name in _core.precisions()]
    by_name = dict(zip(_core.precisions(), peaks, strict=True))
    gemm = top.sub("gemm")
    # The fit of the tile form may have assumed another count or clock than the data sheet.
    stated = compute.number("multiprocessors", _BORROWED_MULTIPROCESSORS)
    multiprocessors = gemm.number("multiprocessors", stated)
    clock = gemm.quantity("clock", "hz", compute.quantity("clock", "hz", 1e9))
    compute.finish()
    memory, host = top.sub("memory"), top.sub("host")
    attention, elementwise = top.sub("attention"), top.sub("elementwise")
    accelerator = _core.Accelerator(
        peak_flop_per_s=peaks,
        multiprocessors=int(multiprocessors),
        clock_hz=clock,
        memory_capacity_bytes=memory.quantity("capacity", "bytes"),
        memory_bandwidth_bytes_per_s=memory.quantity("bandwidth", "bytes_per_s"),
        l2_bytes=memory.quantity("l2", "bytes", 0.0),
        host_bandwidth_bytes_per_s=host.quantity("bandwidth", "bytes_per_s"),
        host_slowdown=host.number("slowdown", 1.0),
        gemm=_gemm(gemm, by_name["bf16"] or by_name["fp16"]),
        attention=_core.AttentionKernels(
            **{
                name: attention.fraction(name)
                for name in (
                    "flash2_forward",
                    "flash2_backward",
                    "flash3_forward",
                    "flash3_backward",
                )
            },
            flash3_narrow=attention.number("flash3_narrow", _BESIDE_PRODUCTS),
            tile=attention.number("tile", _TILE),
            launch_s=attention.quantity("launch", "s"),
        ),
        elementwise=_core.ElementwiseKernels(
            add_fraction=elementwise.fraction("add_fraction"),
            norm_fraction=elementwise.fraction("norm_fraction"),
            softmax_fraction=elementwise.fraction("softmax_fraction"),
            activation_fraction=elementwise.number("activation_fraction", 0.0),
            launch_s=elementwise.quantity("launch", "s"),
        ),
        scan=_scan(top.sub("scan")),
        power=_power(top.sub("power")),
    )
    # Read with the kernels of serving engines, and with nodes.
    host.known.update(("serving_slowdown", "memory", "power"))
    for reader in (memory, host, attention, elementwise):
        reader.finish()
    about = ("name", "title", "vendor", "architecture", "year", "aliases", "kernels")
    top.finish(*about, "announced", "scale_up", "die", "part_of")
    return accelerator
