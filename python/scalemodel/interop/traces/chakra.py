"""Chakra execution traces: the predicted step as the graphs that network simulators replay.

One file per rank: a metadata message, then one message per node, each preceded by its length.
Messages and numbers are those of MLCommons Chakra's schema (mlcommons/chakra, et_def.proto).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.files import write_whole
from scalemodel.base.reading import LARGEST_RECORD, read_bytes
from scalemodel.base.safe_text import plain
from scalemodel.base.words import named_arguments
from scalemodel.interop.traces import protobuf as wire

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.estimator.timeline import Timeline

#: What an attribute of a node may be.
Value: TypeAlias = bool | int | float | str

NODE_TYPES: Final = {
    **{0: "invalid", 1: "metadata", 2: "memory_load", 3: "memory_store", 4: "compute"},
    **{5: "send", 6: "receive", 7: "collective", 8: "storage", 9: "batch", 10: "checkpoint"},
}
_CODES: Final = {name: code for code, name in NODE_TYPES.items()}
_ALL_REDUCE, _ALL_GATHER, _ALL_TO_ALL, _REDUCE_SCATTER = 0, 2, 6, 7
_BOOL, _INT64, _DOUBLE, _STRING = 27, 9, 3, 29
_SIGNED: Final = (7, 9)
_UNSIGNED: Final = (11, 13)
_VERSION: Final = "0.0.4"


class Node(NamedTuple):
    """One node of a graph.

    Attributes
    ----------
    id : int
    name : str
    type : str
        ``"compute"``, ``"collective"``, ``"send"``, ``"receive"``, ...
    control, data : tuple of int
        Nodes that must end before.
    start_us, duration_us : int
    attributes : dict
        ``comm_type``, ``comm_size``, ``comm_src``, ``comm_dst``, ``comm_tag``, ...
    """

    id: int
    name: str
    type: str
    control: tuple[int, ...]
    data: tuple[int, ...]
    start_us: int
    duration_us: int
    attributes: dict[str, Value]


# --------------------------------------------------------------------------------------- writing
def _attribute(name: str, value: Value) -> bytes:
    if isinstance(value, bool):
        cell = wire.whole(_BOOL, int(value))
    elif isinstance(value, int):
        cell = wire.whole(_INT64, value)
    elif isinstance(value, float):
        cell = wire.varint(_DOUBLE << 3 | wire.FIXED64) + struct.pack("<d", value)
    else:
        cell = wire.data(_STRING, value)
    return wire.data(1, name) + cell


def _message(node: Node) -> bytes:
    parts = [
        wire.whole(1, node.id),
        wire.data(2, node.name),
        wire.whole(3, _CODES[node.type]),
        wire.packed(4, list(node.control)),
        wire.packed(5, list(node.data)),
        wire.whole(6, node.start_us),
        wire.whole(7, node.duration_us),
    ]
    parts += [wire.data(10, _attribute(name, value)) for name, value in node.attributes.items()]
    return b"".join(parts)


def _file(nodes: list[Node]) -> bytes:
    messages = [wire.data(1, _VERSION), *(_message(node) for node in nodes)]
    return b"".join(wire.varint(len(message)) + message for message in messages)


def _what(stages: int, row: Mapping[Hashable, Any]) -> tuple[str, dict[str, Value]]:
    """Type and attributes of an event."""
    size = round(row["bytes"])
    kind, stream = str(row["kind"]), str(row["stream"])
    if kind.startswith(("send_", "receive_")):
        step = 1 if stream.endswith("next") else -1
        other = (row["rank"] + step) % stages
        tag = 2 * (row["micro_batch"] * 4096 + row["chunk"]) + kind.endswith("gradients")
        sends = kind.startswith("send_")
        ends = (row["rank"], other) if sends else (other, row["rank"])
        return ("send" if sends else "receive"), {
            "comm_size": size,
            "comm_src": int(ends[0]),
            "comm_dst": int(ends[1]),
            "comm_tag": int(tag),
        }
    collective = {
        "tp": _ALL_REDUCE,
        "cp": _ALL_GATHER,
        "ep": _ALL_TO_ALL,
        "dp": _ALL_GATHER if kind == "gather_parameters" else _REDUCE_SCATTER,
    }
    if stream in collective:
        return "collective", {
            "comm_type": collective[stream],
            "comm_size": size,
            "pg_name": stream,
        }
    return "compute", {"is_cpu_op": stream == "host", "num_ops": 0, "tensor_size": size}


def _nodes(events: pd.DataFrame, stages: int) -> list[Node]:
    """Nodes of one rank's events.

    A node waits for the one before it on its stream, and for those of other streams that end when
    it starts: in a simulated step nothing starts later than what it waits for ends.
    """
    ordered = events.sort_values(["start_s", "duration_s"], kind="stable", ignore_index=True)
    end = (ordered.start_s + ordered.duration_s).to_numpy()
    by_end = np.argsort(end, kind="stable")
    sorted_end = end[by_end]
    span = float(end.max()) if len(end) else 0.0
    before: dict[str, int] = {}
    nodes: list[Node] = []
    streams = [str(stream) for stream in ordered.stream]
    for index, row in enumerate(ordered.to_dict("records")):
        start_s, stream = float(row["start_s"]), streams[index]
        low, high = np.searchsorted(sorted_end, [start_s - 1e-12 * span, start_s + 1e-12 * span])
        waits = [int(i) for i in by_end[low:high] if i < index and streams[int(i)] != stream]
        previous = before.get(stream)
        node_type, attributes = _what(stages, row)
        passed = row["micro_batch"] >= 0
        nodes.append(
            Node(
                id=index,
                name=f"{row['name']} {row['micro_batch']}" if passed else str(row["name"]),
                type=node_type,
                control=() if previous is None else (previous,),
                data=tuple(sorted(waits)),
                start_us=round(1e6 * start_s),
                duration_us=round(1e6 * float(row["duration_s"])),
                attributes=attributes,
            )
        )
        before[stream] = index
    return nodes


@named_arguments
def write_chakra(timeline: Timeline, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a predicted step as Chakra execution traces, one file per pipeline stage.

    Parameters
    ----------
    timeline : Timeline
        Of an estimate.
    folder : path
        Made where it does not exist; files are ``rank.<stage>.et``.

    Returns
    -------
    list of Path

    Raises
    ------
    ScaleModelError : a file cannot be written.

    Examples
    --------
    >>> import tempfile, scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2, pp=4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = write_chakra(est.timeline(), folder)
    ...     [file.name for file in files], read_chakra(files[0])[1].type
    (['rank.0.et', 'rank.1.et', 'rank.2.et', 'rank.3.et'], 'collective')
    """
    where = Path(folder)
    events = timeline.events
    stages = int(events["rank"].max()) + 1 if len(events) else 0
    files = []
    try:
        where.mkdir(parents=True, exist_ok=True)
        for rank, own in events.groupby("rank"):
            file = where / f"rank.{rank}.et"
            write_whole(file, _file(_nodes(own, stages)))
            files.append(file)
    except OSError as error:
        raise ScaleModelError(
            f"folder={os.fspath(folder)!r} cannot be written: {error.strerror or error}",
            code="unwritable_file",
        ) from None
    return files


# --------------------------------------------------------------------------------------- reading
def _read_attribute(raw: bytes) -> tuple[str, Value | None]:
    name = ""
    value: Value | None = None
    for number, cell in wire.fields(raw):
        if number == 1 and isinstance(cell, bytes):
            name = plain(cell.decode("utf-8", "replace"))
        elif number == _BOOL:
            value = bool(cell)
        elif number == _STRING and isinstance(cell, bytes):
            value = plain(cell.decode("utf-8", "replace"))
        elif number in _SIGNED and isinstance(cell, int):
            value = wire.signed(cell)
        elif (number in _UNSIGNED and isinstance(cell, int)) or isinstance(cell, float):
            value = cell
    return name, value


def _read_node(raw: bytes) -> Node:
    single: dict[int, Any] = {1: 0, 2: b"", 3: 0, 6: 0, 7: 0}
    control: list[int] = []
    data: list[int] = []
    attributes: dict[str, Value] = {}
    for number, cell in wire.fields(raw):
        if number == 4:
            control += wire.unpacked(cell)
        elif number == 5:
            data += wire.unpacked(cell)
        elif number == 10 and isinstance(cell, bytes):
            name, value = _read_attribute(cell)
            if value is not None:
                attributes[name] = value
        elif number in single and isinstance(cell, type(single[number])):
            single[number] = cell
    return Node(
        id=single[1],
        name=plain(single[2].decode("utf-8", "replace")),
        type=NODE_TYPES.get(single[3], "invalid"),
        control=tuple(control),
        data=tuple(data),
        start_us=single[6],
        duration_us=single[7],
        attributes=attributes,
    )


@named_arguments
def read_chakra(path: str | os.PathLike[str]) -> list[Node]:
    """Nodes of a Chakra execution trace.

    Parameters
    ----------
    path : path
        An ``.et`` file of one rank.

    Returns
    -------
    list of Node
        In the order of the file.

    Raises
    ------
    ScaleModelError : the file cannot be read or is no such trace.

    Examples
    --------
    >>> import tempfile
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2, pp=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = sm.write_chakra(est.timeline(), folder)
    ...     nodes = sm.read_chakra(files[0])
    >>> len(files), len(nodes) > 0
    (2, True)
    """
    file = Path(path)
    raw = read_bytes(file, LARGEST_RECORD)
    nodes = []
    try:
        at, first = 0, True
        while at < len(raw):
            size, at = wire.read_varint(raw, at)
            if at + size > len(raw):
                raise ValueError("it ends within a message")
            if not first:
                nodes.append(_read_node(raw[at : at + size]))
            first, at = False, at + size
    except ValueError as error:
        raise ScaleModelError(
            f"{file}: no Chakra execution trace ({error})", code="unreadable_file"
        ) from None
    return nodes
