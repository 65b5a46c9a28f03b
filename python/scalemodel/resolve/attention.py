"""Attention kernels: which fitted constants stand for a kernel of an accelerator and a stack."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import scalemodel._core as _core
from scalemodel import catalog
from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.units import value_of
from scalemodel.resolve.accelerators import accelerator_table
from scalemodel.resolve.reader import Reader, Table

Kernel = _core.PrefillKernel | _core.DecodeKernel

#: Phase -> record of its constants.
PHASES: dict[str, type[Kernel]] = {
    "prefill": _core.PrefillKernel,
    "decode": _core.DecodeKernel,
    "encoder": _core.PrefillKernel,
    "mla_prefill": _core.PrefillKernel,
    "mla_decode": _core.DecodeKernel,
    "train_forward": _core.PrefillKernel,
    "train_backward": _core.PrefillKernel,
}
_EVERY = 2**31
_FORMER_KEYS = {
    "most_splits": "max_splits",
    "most_heads": "max_heads",
    "most_group": "max_group",
    "least_group": "min_group",
}
# Parts of one architecture whose bandwidths differ by more (natural logarithm) are another class:
# cards against data-centre modules.
_OTHER_MEMORY = math.log(3)


@dataclass(frozen=True)
class AttentionEntry:
    """Constants of one kernel, as one stack ran it on one accelerator.

    Attributes
    ----------
    accelerator : str
        Catalogue name of the accelerator the constants were fitted on.
    kernel, engine : str
        Name of the kernel in its stack, and the stack.
    version : tuple of int
        Release of the stack; empty when unknown.
    groups : tuple of int
        Fewest and most query heads per key/value head the constants hold for.
    constants : PrefillKernel or DecodeKernel
    """

    accelerator: str
    kernel: str
    engine: str
    version: tuple[int, ...]
    groups: tuple[int, int]
    constants: Kernel


@dataclass(frozen=True)
class _File:
    """The kernels of one accelerator, by phase."""

    accelerator: str
    covers: tuple[str, ...]
    defaults: Mapping[str, str]
    phases: Mapping[str, tuple[AttentionEntry, ...]]


def version_of(text: str) -> tuple[int, ...]:
    """Release numbers of a version; ``()`` without any.

    Examples
    --------
    >>> version_of("1.3.0rc20"), version_of("0.24.0") > version_of("0.5.14")
    ((1, 3, 0), True)
    """
    match = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _constants(reader: Reader, record: type[Kernel]) -> Kernel:
    values: dict[str, Any] = {}
    for field in record.fields():
        name = str(field["name"])
        key = name.removesuffix("_s")
        if field["kind"] == "bool":
            reader.known.add(key)
            values[name] = value_of(reader.table.get(key, field["default"]))
        elif name.endswith("_s"):
            values[name] = reader.quantity(key, "s", field["default"])
        else:
            values[name] = reader.number(key, field["default"])
    try:
        return record(**values)
    except ValueError as error:
        raise ScaleModelError(f"{reader.where}: {error}") from error


def _entry(reader: Reader, accelerator: str, record: type[Kernel]) -> AttentionEntry:
    reader.accept_former(_FORMER_KEYS)
    groups = (reader.count("min_group", 1), reader.count("max_group", _EVERY))
    entry = AttentionEntry(
        accelerator=accelerator,
        kernel=reader.text("kernel", ""),
        engine=reader.text("engine", ""),
        version=version_of(reader.text("version", "")),
        groups=groups,
        constants=_constants(reader, record),
    )
    reader.finish()
    return entry


def _read(name: str) -> _File:
    catalog.load("kernels", name)  # notices a file that has changed
    return _parsed(name)


@catalog.kept(64)
def _parsed(name: str) -> _File:
    top = Reader(catalog.load("kernels", name), name)
    accelerator = top.text("accelerator", "")
    phases = {}
    for phase, record in PHASES.items():
        tables = top.sub(phase)
        phases[phase] = tuple(
            _entry(tables.sub(key), accelerator, record) for key in tables.table if key != "source"
        )
    defaults = {key: str(value_of(cell)) for key, cell in top.sub("defaults").table.items()}
    covers = tuple(str(item) for item in top.table.get("covers", ()))
    top.finish("name", "title", "aliases", "covers")
    return _File(
        accelerator, covers, defaults, {key: items for key, items in phases.items() if items}
    )


class AttentionKernels:
    """The catalogue's attention kernels as one accelerator sees them: its own first.

    Then come those of the accelerator it takes its kernels from, of its architecture (nearest
    memory bandwidth first), of the accelerator that stands for its architecture, and of all others.

    Parameters
    ----------
    accelerator : str
        Catalogue name or alias.

    Raises
    ------
    ScaleModelError : unknown accelerator, or a malformed catalogue file.

    Examples
    --------
    >>> kernels = AttentionKernels("H100")
    >>> kernels.choose("decode", kernel="vllm_flash_attn_fa3").engine
    'vllm'
    >>> AttentionKernels("MI300X").choose("prefill").accelerator
    'h100_sxm_80'
    """

    def __init__(self, accelerator: str) -> None:
        name = catalog.find("accelerators", accelerator)
        table = accelerator_table(name)
        files = {entry: _read(entry) for entry in _attention_files()}
        first = [f"{name}_attention", f"{table.get('kernels', name)}_attention"]
        near, others = _by_distance(table, files)
        first += near
        architecture = table.get("architecture", "")
        first += [entry for entry, file in files.items() if architecture in file.covers]
        order = dict.fromkeys([entry for entry in [*first, *others] if entry in files])
        self._files = [files[entry] for entry in order]
        self._near = {files[entry].accelerator for entry in near}

    def choose(
        self, phase: str, *, kernel: str = "", engine: str = "", version: str = "", group: int = 1
    ) -> AttentionEntry:
        """Return the constants that fit best.

        The named kernel of the named stack wins over the same kernel of another stack, and both
        over the usual kernel of the accelerator. Of several releases the latest that is not newer
        than `version` is taken.

        Parameters
        ----------
        phase : str
            A key of `PHASES`.
        kernel, engine, version : str
            As the stack calls them; empty: the accelerator's usual kernel.
        group : int
            Query heads per key/value head.

        Raises
        ------
        ScaleModelError : unknown phase.
        """
        if phase not in PHASES:
            raise ScaleModelError(f"phase={phase!r}: unknown; {nearest(phase, PHASES)}")
        files = [file for file in self._files if phase in file.phases]
        for same_engine in (True, False):
            for file in files:
                found = [
                    entry
                    for entry in file.phases[phase]
                    if entry.kernel == kernel and (entry.engine == engine or not same_engine)
                ]
                if found:
                    return _best(found, version, group)
        file = files[0]
        usual = [e for e in file.phases[phase] if e.kernel == file.defaults.get(phase)]
        return _best(usual or list(file.phases[phase]), version if not kernel else "", group)

    def of_engine(
        self, phase: str, *, engine: str, kernel: str = "", version: str = "", group: int = 1
    ) -> AttentionEntry:
        """Constants that stand for what an engine runs on this architecture.

        The named kernel of the engine on the nearest accelerator of this architecture, else any of
        its kernels there; where the engine was measured on other architectures only, the usual
        kernel of this one.

        Examples
        --------
        >>> AttentionKernels("H100").of_engine("decode", engine="vllm", group=8).kernel
        'vllm_flash_attn_fa3'
        >>> AttentionKernels("H100").of_engine("decode", engine="trtllm").engine
        'sglang'
        """
        if phase not in PHASES:
            raise ScaleModelError(f"phase={phase!r}: unknown; {nearest(phase, PHASES)}")
        files = [f for f in self._files if phase in f.phases and f.accelerator in self._near]
        own = [entry for file in files for entry in file.phases[phase] if entry.engine == engine]
        if not own:
            return self.choose(phase, group=group)
        first = next((entry for entry in own if entry.kernel == kernel), own[0])
        same = (first.accelerator, first.kernel)
        return _best([e for e in own if (e.accelerator, e.kernel) == same], version, group)


def _attention_files() -> Iterator[str]:
    return (name for name in catalog.names("kernels") if name.endswith("_attention"))


def _by_distance(table: Table, files: Mapping[str, _File]) -> tuple[list[str], list[str]]:
    """Files of the same architecture, and all others; nearest memory bandwidth first."""

    def bandwidth(of: Table) -> float:
        return Reader(of.get("memory", {}), "memory").quantity("bandwidth", "bytes_per_s")

    tables = {entry: accelerator_table(file.accelerator) for entry, file in files.items()}
    distance = {
        entry: abs(math.log(bandwidth(other) / bandwidth(table))) for entry, other in tables.items()
    }
    ordered = sorted(files, key=lambda entry: distance[entry])
    near = [
        entry
        for entry in ordered
        if tables[entry].get("architecture") == table.get("architecture")
        and distance[entry] < _OTHER_MEMORY
    ]
    return near, [entry for entry in ordered if entry not in near]


def _best(entries: list[AttentionEntry], version: str, group: int) -> AttentionEntry:
    asked = version_of(version)
    releases = sorted({entry.version for entry in entries})
    if asked:
        older = [release for release in releases if release <= asked]
        release = older[-1] if older else releases[0]
    else:
        release = releases[-1]
    same = [entry for entry in entries if entry.version == release]

    def distance(entry: AttentionEntry) -> int:
        least, most = entry.groups
        return max(least - group, group - most, 0)

    return min(same, key=distance)
