"""Carbon of electricity and of making the machines."""

from __future__ import annotations

from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.economics.arguments import preset
from scalemodel.resolve import Cluster, accelerator_table
from scalemodel.resolve.reader import Reader

_GENERATIONS_NM = (7, 5, 3)


def _reference() -> dict[str, Any]:
    return dict(catalog.load("reference", "pue_and_carbon"))


def _number(table: str, key: str) -> float:
    return Reader(_reference()[table], f"reference/pue_and_carbon.{table}").number(key)


def grid_g_per_kwh(grid: str | float) -> float:
    """Intensity of a grid, in g of CO2e per kWh, from its name or as given.

    Examples
    --------
    >>> grid_g_per_kwh("fra")
    56.0
    """
    return preset("grid", grid, _reference()["grid"], 0)


def pue_of(pue: str | float) -> float:
    """Facility power over equipment power, from the name of an operator or as given."""
    return preset("pue", pue, _reference()["pue"], 1)


def chip_process(nanometres: float) -> _core.ChipProcess:
    """The process of the nearest generation that ACT describes, made on Taiwan's grid.

    Examples
    --------
    >>> chip_process(4).energy_kwh_per_cm2
    2.75
    """
    node = min(_GENERATIONS_NM, key=lambda known: (abs(known - nanometres), -known))
    return _core.ChipProcess(
        energy_kwh_per_cm2=_number("embodied", f"fab_energy_{node}nm"),
        gas_g_per_cm2=_number("embodied", f"fab_gas_{node}nm"),
        material_g_per_cm2=_number("embodied", "fab_material"),
        grid_g_per_kwh=grid_g_per_kwh("twn"),
        yield_fraction=_number("chip", "yield"),
    )


def server_parts(host_memory_bytes: float) -> _core.ServerParts:
    """Footprint of a usual server beside its accelerators."""
    processor_kg = _number("server", "processor") + 1e-3 * _number(
        "server", "processor_die"
    ) * _number("server", "processor_area")
    return _core.ServerParts(
        casing_kg=_number("server", "casing"),
        assembly_kg=_number("server", "assembly"),
        board_kg=_number("server", "board"),
        supplies_kg=_number("server", "supplies") * _number("server", "supply"),
        processors_kg=_number("server", "processors") * processor_kg,
        memory_kg=_core.memory_kg(host_memory_bytes, _number("embodied", "dram_ddr4_10nm")),
    )


def embodied_kg(cluster: Cluster) -> float:
    """CO2e, in kg, of making one accelerator with its share of the server.

    Dies by ACT from their area, memory by its capacity, the server part by part. Where the area of
    the dies is unknown, a usual accelerator of 150 kg takes their place. What it leaves out, boards
    of accelerators, coolers, networks, buildings and transport, makes it a lower bound: an A100
    was published with 318 kg.

    Examples
    --------
    >>> import scalemodel as sm
    >>> 50 < embodied_kg(sm.cluster("dgx_a100")) < 318
    True
    """
    table = cluster.table["accelerator"]
    if isinstance(table, str):
        table = accelerator_table(table)
    core = cluster.core
    if "die" in table:
        die = Reader(table["die"], "accelerator.die")
        chip_kg = _core.die_kg(die.number("area_mm2") / 100, chip_process(die.number("node_nm")))
        chip_kg += _core.memory_kg(
            core.accelerator.memory_capacity_bytes, _number("embodied", "dram_ddr4_10nm")
        )
    else:
        chip_kg = _number("embodied", "generic_gpu")
    return float(
        _core.accelerator_share_kg(
            chip_kg, server_parts(core.host_memory_bytes), core.node_accelerators
        )
    )


def life_s() -> tuple[float, float]:
    """Seconds that a machine serves, and the share of them that it is used."""
    return _number("life", "years") * 365.25 * 86400.0, _number("life", "utilisation")
