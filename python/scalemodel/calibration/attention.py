"""Calibration of attention kernels: whole prompts and one query per sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError
from scalemodel.calibration.kinds import (
    Constant,
    Fit,
    Numbers,
    Target,
    accelerator_entry,
    listed,
    name_of,
    nonempty,
    ranges,
)
from scalemodel.calibration.samples import Group, positive, possible, read_samples, require
from scalemodel.resolve.accelerators import build_accelerator
from scalemodel.resolve.attention import AttentionKernels, Kernel
from scalemodel.validation.rows import Row, SkippedRowError, Table

_PREFILL = (
    Constant("launch_s", "launch", "s", 0.3e-6, 200e-6),
    Constant("compute_fraction", "compute_fraction", "", 0.02, 1.1),
    Constant(
        *("step_s", "step", "s", 1e-9, 50e-6),
        tied=(
            Constant("step_width_s", "step_width", "s", 1e-9, 50e-6),
            Constant("wave_s", "wave", "s", 1e-9, 50e-6),
        ),
    ),
)
_DECODE = (
    Constant("launch_s", "launch", "s", 0.3e-6, 200e-6),
    Constant("memory_fraction", "memory_fraction", "", 0.02, 1.2),
    Constant(
        *("block_s", "block", "s", 1e-9, 50e-6),
        tied=(Constant("wave_s", "wave", "s", 1e-9, 50e-6),),
    ),
)
_PHASES = {
    "prefill": "prefill",
    "context": "prefill",
    "decode": "decode",
    "generation": "decode",
    "encoder": "encoder",
}
_NUMBERS = ("batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim")


def _sample(row: Row) -> tuple[str, tuple[float, ...]]:
    phase = _PHASES.get(row.text("phase").lower())
    if phase is None:
        raise SkippedRowError("unsupported:phase")
    for column in ("dtype", "kv_dtype"):
        wide = row.text(column).lower() in ("bfloat16", "bf16", "float16", "fp16", "half")
        if not wide and (column == "dtype" or row.text(column)):
            raise SkippedRowError(f"unsupported:{column}")
    causal = row.flag("causal")
    if phase != "decode" and causal is not None and causal != (phase == "prefill"):
        raise SkippedRowError("unsupported:causal")
    numbers = [positive(row, column) for column in _NUMBERS]
    if numbers[4] > numbers[3]:
        raise SkippedRowError("illegal:kv_heads")
    value = positive(row, "v_head_dim") if row.text("v_head_dim") else numbers[5]
    window = float(row.count("window", least=0) or 0)
    return phase, (*numbers, value, window)


def _one_kernel(table: Table) -> str:
    named = sorted({cell.strip() for cell in table.column("kernel")} - {""})
    if len(named) > 1:
        raise ScaleModelError(
            f"column 'kernel': holds {', '.join(map(repr, named[:6]))}; calibrate one at a time, "
            "from a table of its rows",
            code="several_kernels",
        )
    return named[0] if named else ""


def _shape(group: Group) -> list[Numbers]:
    return [group.column(index) for index in range(len(_NUMBERS) + 2)]


def _fit(core: _core.Accelerator, prior: Kernel, group: Group, folds: int, causal: bool) -> Fit:
    decode = isinstance(prior, _core.DecodeKernel)
    constants = _DECODE if decode else _PREFILL
    engine: Any = _core.fit_decode if decode else _core.fit_prefill
    _, *found = engine(
        core,
        prior,
        *_shape(group),
        causal=causal,
        time_s=group.time_s,
        weight=group.weight,
        fold=group.folds(folds),
        ranges=ranges(constants),
    )
    return Fit(group, (group.name, "calibrated"), listed(constants), *found)


def _table(kernel: str, prior: Kernel) -> dict[str, Any]:
    """The constants a fit began from, as an entry has them; the fitted ones replace theirs."""
    table: dict[str, Any] = {"kernel": kernel}
    for field in prior.fields():
        name, value = str(field["name"]), getattr(prior, str(field["name"]))
        if value == field["default"]:
            continue
        table[name.removesuffix("_s")] = f"{1e6 * value:.6g} us" if name.endswith("_s") else value
    return table


def _file(accelerator: str) -> dict[str, Any]:
    """The accelerator's kernels, to which a calibration adds its own."""
    name = f"{accelerator}_attention"
    if name in catalog.names("kernels"):
        return dict(catalog.load("kernels", name))
    return {
        "name": name,
        "title": f"Attention kernels calibrated on {accelerator}",
        "accelerator": accelerator,
        "defaults": {},
    }


def attention(
    table: Table, accelerator: str | Mapping[str, Any] | None, folds: int
) -> tuple[list[Target], list[str]]:
    """Attention of one kernel on one accelerator, 16-bit operands; one set of constants a phase."""
    columns = ("gpu", "dtype", "phase", *_NUMBERS, "time_us")
    require(table, columns, "attention")
    entry = accelerator_entry(table, accelerator)
    name = name_of(entry)
    core = build_accelerator(entry)
    if name not in catalog.names("accelerators"):
        raise ScaleModelError(
            f"accelerator={name!r}: is not in the catalogue, where attention kernels are kept by "
            "accelerator; write its entry to a folder on SCALEMODEL_CATALOG_PATH first",
            code="unknown_accelerator",
        )
    kernels = AttentionKernels(name)
    kernel = _one_kernel(table) if "kernel" in table.header else ""
    optional = ("kv_dtype", "causal", "v_head_dim", "window")
    groups, states = read_samples(table, (*columns, *optional), _sample)
    file = _file(name)
    fits = []
    for whole in sorted(groups, key=lambda group: group.name):
        phase = whole.name
        causal = phase == "prefill"
        bound_s = _core.attention_bound_s(core, *_shape(whole), causal=causal)
        group = possible(whole, bound_s, states, "peak")
        if not group.samples:
            continue
        prior = kernels.choose(phase, kernel=kernel).constants
        fit = _fit(core, prior, group, folds, causal)
        _, key = fit.path
        file[phase] = {**file.get(phase, {}), key: _table(kernel or key, prior)}
        file["defaults"] = {**file["defaults"], phase: kernel or key}
        fits.append(fit)
    nonempty([fit.group for fit in fits], states, "attention")
    return [Target("kernels", f"{name}_attention", file, tuple(fits))], states
