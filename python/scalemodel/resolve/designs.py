"""Clusters that differ from a resolved one in some cells of its entry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.accelerators import build_accelerator
from scalemodel.resolve.clusters import Cluster, cluster_from_tables
from scalemodel.resolve.reader import Cell, Table, noted

#: Stands for the cluster's name while cells are listed: no key path of a catalogue begins so.
_MARK = "\0cluster"


def _accelerator(base: Cluster) -> Table:
    table = base.table.get("accelerator")
    if not isinstance(table, Mapping):
        raise ScaleModelError(f"cluster={base!r}: made without an entry; use sm.cluster")
    return table


def cells(base: Cluster) -> dict[str, Cell]:
    """Every cell that resolving `base` asks for, those left to their defaults included.

    Examples
    --------
    >>> from scalemodel import resolve
    >>> cells(resolve.cluster("dgx_h100"))["fabric.bandwidth"]
    Cell(dimension='bytes_per_s', value=50000000000.0, given=True)
    """
    accelerator = _accelerator(base)
    with noted() as of_accelerator:
        build_accelerator(accelerator)
    with noted() as of_cluster:
        cluster_from_tables(base.table, accelerator, _MARK)
    found = {
        path.removeprefix(f"{_MARK}."): cell
        for path, cell in of_cluster.items()
        if path.startswith(f"{_MARK}.")
    }
    for path, cell in of_accelerator.items():
        if not path.startswith("reference."):  # the constants every entry shares
            found[f"accelerator.{path}"] = cell
    return found


def _with_cell(table: Table, keys: list[str], value: object) -> dict[str, Any]:
    """`table` with one cell replaced; only the tables on the way are copied."""
    changed = dict(table)
    if len(keys) == 1:
        changed[keys[0]] = value
    else:
        changed[keys[0]] = _with_cell(changed.get(keys[0], {}), keys[1:], value)
    return changed


def changed(
    base: Cluster, changes: Mapping[str, object], accelerators: int | None = None
) -> Cluster:
    """`base` with cells of its entry replaced, by key path; numbers are in base units.

    Parameters
    ----------
    base : Cluster
    changes : mapping
        Key path -> value, as `cells` lists them.
    accelerators : int, optional
        Size of the job; default: as in `base`.

    Examples
    --------
    >>> from scalemodel import resolve
    >>> changed(resolve.cluster("dgx_h100"), {"fabric.bandwidth": 1e11}).core.fabric.p2p_fraction
    0.7
    """
    _accelerator(base)
    table = dict(base.table)
    for path, value in changes.items():
        table = _with_cell(table, path.split("."), value)
    built = cluster_from_tables(table, table["accelerator"], base.name)
    count = base.accelerators if accelerators is None else accelerators
    return replace(built, core=built.core.replace(accelerators=count))
