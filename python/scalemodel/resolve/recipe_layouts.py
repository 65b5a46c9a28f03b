"""Layouts of published recipes: what a run that names its recipe does not repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError

#: What a layout may fill: columns of a table of measured runs.
CELLS = (
    *("seq_len", "micro_batch", "global_batch", "tp", "pp", "cp", "ep", "etp", "vpp"),
    *("seq_parallel", "recompute", "other_flags"),
)
#: What a layout may correct: degrees that a table has from another recipe than the run's.
CORRECTED = ("tp", "pp", "cp", "dp")
_KEYS = {
    *("frameworks", "model", "accelerators", "tasks", "count", "tp", "cp", "cells", "corrects"),
    "source",
}
_NEEDED = ("frameworks", "tasks", "source")


@dataclass(frozen=True)
class Job:
    """What a layout is looked up by.

    Attributes
    ----------
    framework : str
        As printed, with the task where that names a benchmark.
    model, accelerator : str
        Names of catalogue entries; the model is empty where the catalogue does not know it.
    method : str
        ``pretrain``, ``full`` or ``lora``.
    count : int
        Accelerators.
    cp, tp : int
        Ranks that a sequence and a matrix are divided over, as far as the run says.
    """

    framework: str
    model: str
    accelerator: str
    method: str
    count: int
    cp: int = 1
    tp: int = 1


def check_layout(table: Mapping[str, Any], where: str) -> None:
    """Refuse an entry that lacks something, or fills what it cannot.

    Raises
    ------
    ScaleModelError
        Names the entry, the key and what would be legal.
    """
    if unknown := sorted(set(table) - _KEYS):
        raise ScaleModelError(f"{where}: {unknown[0]!r} is unknown; legal are {sorted(_KEYS)}")
    for key in _NEEDED:
        if not table.get(key):
            raise ScaleModelError(f"{where}: {key} is missing")
    if not table.get("cells") and not table.get("corrects"):
        raise ScaleModelError(f"{where}: cells or corrects is missing")
    for key, legal in (("cells", CELLS), ("corrects", CORRECTED)):
        if wrong := sorted(set(table.get(key, ())) - set(legal)):
            raise ScaleModelError(f"{where}: {key}: {wrong[0]!r}; legal are {', '.join(legal)}")
    if table.get("cp", "one") not in ("one", "several"):
        raise ScaleModelError(f"{where}: cp={table['cp']!r}; legal are one, several")


@catalog.kept(1)
def layouts() -> tuple[Mapping[str, Any], ...]:
    """The entries of ``reference/layouts.toml``, checked, in their order."""
    listed = catalog.load("reference", "layouts")["layouts"]
    for number, table in enumerate(listed, start=1):
        check_layout(table, f"reference/layouts.toml: layout {number}")
    return tuple(listed)


def _matches(table: Mapping[str, Any], job: Job, architecture: str) -> bool:
    parts = table.get("accelerators", ())
    return (
        any(part in job.framework.lower() for part in table["frameworks"])
        and table.get("model", job.model) == job.model
        and (not parts or job.accelerator in parts or architecture in parts)
        and job.method in table["tasks"]
        and table.get("count", job.count) == job.count
        and table.get("tp", job.tp) == job.tp
        and ("cp" not in table or (table["cp"] == "several") == (job.cp > 1))
    )


def _cells(job: Job, key: str) -> dict[str, str]:
    """Of all layouts that match, the first that speaks of a cell decides it."""
    found: dict[str, str] = {}
    architecture = catalog.load("accelerators", job.accelerator).get("architecture", "")
    for table in layouts():
        if _matches(table, job, architecture):
            found = {name: str(value) for name, value in table.get(key, {}).items()} | found
    return found


@catalog.kept(256)
def layout_for(job: Job) -> Mapping[str, str]:
    """Cells that published recipes of a job fill, as texts; none where they are unknown.

    Examples
    --------
    >>> job = Job("Megatron-Bridge main", "qwen3_8b", "h100_sxm_80", "full", 4)
    >>> layout_for(job)["tp"]
    '4'
    >>> layout_for(Job("a framework of one's own", "qwen3_8b", "h100_sxm_80", "full", 4))
    {}
    """
    return _cells(job, "cells")


@catalog.kept(256)
def corrections_for(job: Job) -> Mapping[str, str]:
    """Cells of a job that its published recipe contradicts, as the recipe has them.

    Examples
    --------
    >>> job = Job("NeMo LoRA (MLPerf)", "llama2_70b", "h200", "lora", 8, tp=4)
    >>> corrections_for(job)
    {'tp': '2', 'dp': '4'}
    """
    return _cells(job, "corrects")
