"""Tables of steps that loggers write: state of a Trainer, CSV, JSON lines, events of TensorBoard.

Each is first a list of records, numbers by name, as they stand in the file. What a number means is
told by its name, in every format alike (`steps_of`).
"""

from __future__ import annotations

import ast
import csv
import json
import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import parse_json
from scalemodel.interop.traces import protobuf

Record = dict[str, float]


class Step(NamedTuple):
    """What a log says of one step; None where it does not."""

    step: int
    time_s: float | None = None
    tokens_per_s_accelerator: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    flop_per_s_accelerator: float | None = None
    memory_bytes: float | None = None


# Names as loggers write them, the surest first, with what turns a value into the base unit.
_STEPS: Final = ("step", "global_step", "_step", "iteration", "iter", "trainer/global_step")
_TIMES: Final = {
    "step_time_s": 1.0,  # what the monitor of this package logs
    "scalemodel/measured_step_time_s": 1.0,
    "step_time": 1.0,
    "step_time_ms": 1e-3,
    "step_ms": 1e-3,
    "iteration-time": 1.0,  # Megatron-LM
    "train_step_timing in s": 1.0,  # NeMo
    "iteration_time": 1.0,
    "time_metrics/end_to_end(s)": 1.0,  # torchtitan: the mean of a step between two logs
    "perf/step_time_seconds": 1.0,  # MaxText
}
_RATES: Final = {
    "tokens_per_s_accelerator": {
        "throughput(tps)": 1.0,  # torchtitan
        "throughput/device/tokens_per_sec": 1.0,  # Composer
        "perf/per_device_tokens_per_sec": 1.0,  # MaxText
        "tokens_per_second_per_gpu": 1.0,  # torchtune
    },
    "tokens_per_s": {
        "tokens_per_s": 1.0,
        "tokens_per_sec": 1.0,
        "tokens_per_second": 1.0,
        "throughput/tokens_per_sec": 1.0,
    },
    "samples_per_s": {"samples_per_s": 1.0, "samples_per_sec": 1.0},
}
#: Seconds since some beginning, which grow from record to record.
_CLOCKS: Final = ("train_runtime", "train/time", "_runtime", "time/total", "wall_time_s")
_CLOCKS_OF_DAY: Final = ("_timestamp", "timestamp", "wall_time")
#: What a whole run says at its end.
_WHOLE: Final = "train_steps_per_second"
_MEMORY: Final = {
    "memory/max_reserved(GiB)": 2.0**30,  # torchtitan
    "memory_bytes": 1.0,
    "scalemodel/measured_memory_bytes": 1.0,
    "peak_memory_reserved": 2.0**30,  # torchtune
    "memory/peak_reserved_mem": 1e9,  # Composer
}
#: Seconds and counts beyond it are none of a step: a second of the year 33,000.
_LONGEST: Final = 1e12


def _number(cell: object) -> float | None:
    """A finite number, of a number or a text that is one."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float, str)):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and abs(value) <= _LONGEST else None


def record_of(cells: Iterable[tuple[object, object]]) -> Record:
    """The finite numbers of a record, by name.

    Examples
    --------
    >>> record_of([("loss", "6.991"), ("step", 5), ("note", "warm"), ("lr", float("nan"))])
    {'loss': 6.991, 'step': 5.0}
    """
    found = ((str(name), _number(cell)) for name, cell in cells)
    return {name: value for name, value in found if value is not None}


def _step(record: Record) -> int | None:
    for name in _STEPS:
        value = record.get(name)
        if value is not None and 0 <= value < 1e15:
            return int(value)
    return None


def _most(records: list[Record], names: Iterable[str]) -> str | None:
    """The name that most records have a number above 0 of; the first of several."""
    counts = {name: sum(record.get(name, 0.0) > 0 for record in records) for name in names}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def _named(records: list[Record], field: str, names: dict[str, float]) -> list[Step]:
    name = _most(records, names)
    if name is None:
        return []
    found = []
    for index, record in enumerate(records, 1):
        value = record.get(name, 0.0)
        step = _step(record)
        if value > 0:
            number = index if step is None else step
            found.append(Step(number, **{field: names[name] * value}))
    return found


def _by_clock(records: list[Record], names: Iterable[str]) -> list[Step]:
    """Seconds of a step between two records that tell the time."""
    name = _most(records, names)
    if name is None:
        return []
    found: list[Step] = []
    before: tuple[int, float] | None = None
    for record in records:
        step, clock = _step(record), record.get(name)
        if step is None or clock is None:
            continue
        if before is not None and step > before[0] and clock > before[1]:
            found.append(Step(step, time_s=(clock - before[1]) / (step - before[0])))
        if before is None or step > before[0]:
            before = (step, clock)
    return found


def _whole_run(records: list[Record]) -> list[Step]:
    rates = [record[_WHOLE] for record in records if record.get(_WHOLE, 0.0) > 0]
    return [Step(1, time_s=1 / rates[-1])] if rates else []


def _with_memory(steps: list[Step], records: list[Record]) -> list[Step]:
    name = _most(records, _MEMORY)
    if name is None:
        return steps
    most = max(record.get(name, 0.0) for record in records)
    return [step._replace(memory_bytes=_MEMORY[name] * most) for step in steps]


def steps_of(records: list[Record]) -> list[Step]:
    """Steps from records of numbers.

    The time of a step is taken where there is one; else a rate; else what passed between two
    records by a clock of the run, or of the day; else what a whole run says at its end.

    Parameters
    ----------
    records : list of dict of str to float
        In the order of the file.

    Examples
    --------
    >>> steps_of([{"step": 5, "train_runtime": 1.0}, {"step": 10, "train_runtime": 2.5}])[0].time_s
    0.3
    """
    if not records:
        return []
    fields = [("time_s", _TIMES), *_RATES.items()]
    found = next((steps for field, names in fields if (steps := _named(records, field, names))), [])
    for names in (_CLOCKS, _CLOCKS_OF_DAY):
        found = found or _by_clock(records, names)
    return _with_memory(found or _whole_run(records), records)


# ----------------------------------------------------------------------------------------- formats
def json_lines(lines: list[str]) -> list[Step]:
    """One JSON object per line."""
    records = []
    for line in lines:
        if not line.startswith("{"):
            continue
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            records.append(record_of(read.items()))
    return steps_of(records)


def table_rows(lines: list[str]) -> list[Step]:
    """A CSV table with a column of steps; Lightning spreads one step over several rows."""
    heads = (number for number, line in enumerate(lines) if line.strip())
    first = next(heads, None)
    if first is None or "," not in lines[first]:
        return []
    try:
        header = next(csv.reader([lines[first]]))
        if not set(_STEPS) & set(header):
            return []
        rows = list(csv.reader(lines[first + 1 :]))
    except csv.Error:
        return []
    return steps_of([record_of(zip(header, row, strict=False)) for row in rows])


def trainer_state(lines: list[str]) -> list[Step]:
    """``trainer_state.json`` of Hugging Face's Trainer."""
    if not any('"log_history"' in line for line in lines):
        return []
    try:
        read = parse_json("\n".join(lines), "log", unique=False)
    except ScaleModelError:
        return []
    history = read.get("log_history") if isinstance(read, dict) else None
    entries = history if isinstance(history, list) else []
    return steps_of([record_of(entry.items()) for entry in entries if isinstance(entry, dict)])


def printed_records(lines: list[str]) -> list[Step]:
    """What Hugging Face's Trainer prints: one dictionary per log, of numbers or of texts.

    They name no step; tokens seen and the seconds so far tell the rate.
    """
    records = []
    for line in lines:
        text = line.strip()
        if not (text.startswith("{'") and text.endswith("}")):
            continue
        try:
            read = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(read, dict):
            records.append(record_of(read.items()))
    found: list[Step] = []
    before: tuple[float, float] | None = None
    for record in records:
        tokens, clock = record.get("num_input_tokens_seen"), record.get("train_runtime")
        if tokens is None or clock is None or _WHOLE in record:
            continue
        if before is not None and tokens > before[0] and clock > before[1]:
            rate = (tokens - before[0]) / (clock - before[1])
            found.append(Step(len(found) + 1, tokens_per_s=rate))
        before = (tokens, clock)
    return found or steps_of(records)


# ------------------------------------------------------------------------------------- TensorBoard
def is_event_file(beginning: bytes) -> bool:
    """Whether bytes begin a file of TensorBoard: its first event names the version.

    Examples
    --------
    >>> is_event_file(b"iteration 1/9")
    False
    """
    return beginning[12:64].find(b"brain.Event:") >= 0


def _messages(raw: bytes) -> Iterator[bytes]:
    """Records of a TFRecord file: a length, its checksum, the bytes, their checksum."""
    at = 0
    while at + 12 <= len(raw):
        (size,) = struct.unpack_from("<Q", raw, at)
        if at + 16 + size > len(raw):
            return  # the job still writes, or was stopped
        yield raw[at + 12 : at + 12 + size]
        at += 16 + size


def _scalar(value: bytes) -> tuple[str, float] | None:
    """Tag and number of a value of a summary: field 2, or the number of a tensor (field 8)."""
    tag, number = "", None
    for field, item in protobuf.fields(value):
        if field == 1 and isinstance(item, bytes):
            tag = item.decode("utf-8", errors="replace")
        elif field == 2 and isinstance(item, float):
            number = item
        elif field == 8 and isinstance(item, bytes):
            for inner, cell in protobuf.fields(item):
                if inner == 5 and isinstance(cell, bytes) and len(cell) == 4:
                    number = struct.unpack("<f", cell)[0]
                elif inner == 5 and isinstance(cell, float):
                    number = cell
    return (tag, number) if tag and number is not None else None


def event_records(raw: bytes) -> list[Record]:
    """Scalars of a file of TensorBoard as records: step, wall time and one number by its tag.

    Raises
    ------
    ScaleModelError : the bytes are no such file.
    """
    records: list[Record] = []
    try:
        for message in _messages(raw):
            step, wall_time, values = 0, None, []
            for field, item in protobuf.fields(message):
                if field == 1 and isinstance(item, float):
                    wall_time = item
                elif field == 2 and isinstance(item, int):
                    step = protobuf.signed(item)
                elif field == 5 and isinstance(item, bytes):
                    summary = protobuf.fields(item)
                    values += [cell for n, cell in summary if n == 1 and isinstance(cell, bytes)]
            scalars = [scalar for value in values if (scalar := _scalar(value)) is not None]
            if scalars:
                named: list[tuple[object, Any]] = [("step", step), ("wall_time", wall_time)]
                records.append(record_of([*scalars, *named]))
    except ValueError:
        raise ScaleModelError(
            "log: its events of TensorBoard cannot be read", code="unreadable_file"
        ) from None
    # One event per number and step: merge those of a step, as a row of a table.
    merged: dict[float, Record] = {}
    for record in records:
        row = merged.setdefault(record["step"], {})
        row.update({name: cell for name, cell in record.items() if name != "wall_time"})
        row.setdefault("wall_time", record.get("wall_time", 0.0))
    return list(merged.values())
