"""Training logs: what a framework prints per step, as one table of steps."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.reading import LARGEST_RECORD, read_bytes, reading
from scalemodel.base.safe_text import plain
from scalemodel.interop.jobs import step_tables
from scalemodel.interop.jobs.step_tables import Step

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
#: Characters of a line that are looked at: frameworks print up to 1,000 per step. A log is of
#: anybody, and a line of many megabytes must not take longer than as many lines.
_LONGEST_LINE: Final = 4096
#: Characters of the text of a progress bar that are looked at.
_LONGEST_BAR: Final = 200
# Patterns have one way to match and bounded repeats, so that the time is linear in the line.
_STEP: Final = r"(\d{1,18})"
_NUMBER: Final = r"(?<![0-9,.])([0-9][0-9,]{0,24}(?:\.[0-9]{0,24})?(?:[eE][+-]?[0-9]{1,3})?)"


class Log(NamedTuple):
    """A log: the framework whose lines it has, its steps, and the arguments it prints at start."""

    framework: str
    steps: tuple[Step, ...]
    arguments: dict[str, object]


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _number(pattern: str, line: str, unit: float = 1.0) -> float | None:
    found = re.search(pattern, line)
    value = unit * _value(found[1]) if found else math.inf
    return value if math.isfinite(value) else None


# One line per step: what it begins with (group 1 is the step), what must follow, and where the
# other numbers stand.
class _Format(NamedTuple):
    step: str
    then: str
    numbers: dict[str, tuple[str, float]]


_LINES: Final[dict[str, _Format]] = {
    # megatron/training/training.py: training_log
    "megatron": _Format(
        rf"iteration\s+{_STEP}\s*/\s*\d{{1,18}}\s*\|",
        "",
        {
            "time_s": (rf"elapsed time per iteration \(ms\):\s*{_NUMBER}", 1e-3),
            "flop_per_s_accelerator": (
                rf"throughput per GPU \(TFLOP/s/GPU\):\s*{_NUMBER}",
                1e12,
            ),
        },
    ),
    # torchtitan/components/metrics.py
    "torchtitan": _Format(
        rf"\bstep:\s*{_STEP}\s",
        "tps:",
        {
            "tokens_per_s_accelerator": (rf"\btps:\s*{_NUMBER}", 1.0),
            "flop_per_s_accelerator": (rf"\btflops:\s*{_NUMBER}", 1e12),
            "memory_bytes": (rf"\bmemory:\s*{_NUMBER}GiB", 2.0**30),
        },
    ),
    # NeMo's progress printer
    "nemo": _Format(
        rf"global_step[:=]\s*{_STEP}(?!\d)",
        "train_step_timing",
        {"time_s": (rf"train_step_timing in s[:=]\s*{_NUMBER}", 1.0)},
    ),
    # deepspeed/utils/timer.py: ThroughputTimer
    "deepspeed": _Format(
        rf"global_step={_STEP},",
        "CurrSamplesPerSec",
        {
            "samples_per_s": (rf"CurrSamplesPerSec={_NUMBER}", 1.0),
            "memory_bytes": (rf"MaxMemAllocated={_NUMBER}GB", 2.0**30),
        },
    ),
}


def _lines(lines: list[str], form: _Format) -> Iterator[Step]:
    for line in lines:
        found = re.search(form.step, line)
        if found is None or form.then not in line[found.end() :]:
            continue
        numbers = {
            name: _number(pattern, line, unit) for name, (pattern, unit) in form.numbers.items()
        }
        if any(value is not None for value in numbers.values()):
            yield Step(int(found[1]), **numbers)


def _composer(lines: list[str]) -> Iterator[Step]:
    """Composer, under llm-foundry: a line that names the batch, then one per metric."""
    step: int | None = None
    rate: float | None = None
    for line in [*lines, "[batch=0/0]"]:
        found = re.search(rf"\[batch={_STEP}/", line)
        if found:
            if step is not None and rate is not None:
                yield Step(step, tokens_per_s_accelerator=rate)
            step, rate = int(found[1]), None
        elif "throughput/device/tokens_per_sec:" in line:
            rate = _number(rf"tokens_per_sec:\s*{_NUMBER}", line)


def _maxtext(lines: list[str]) -> Iterator[Step]:
    """MaxText: ``completed step: 5, seconds: 3.2, TFLOP/s/device: 210.1, Tokens/s/device: ...``."""
    for line in lines:
        found = re.search(rf"completed step: {_STEP}, seconds: ", line)
        time_s = _number(rf"seconds: {_NUMBER}", line[found.end() - 9 :]) if found else None
        if found and time_s is not None:
            rate = _number(rf"Tokens/s/device: {_NUMBER}", line)
            flop = _number(rf"TFLOP/s/device: {_NUMBER}", line, 1e12)
            yield Step(
                int(found[1]),
                time_s=time_s,
                tokens_per_s_accelerator=rate,
                flop_per_s_accelerator=flop,
            )


def _bar(lines: list[str]) -> Iterator[Step]:
    """A progress bar of tqdm, as Hugging Face shows: ``12/500 [00:30<20:20, 2.50s/it]``."""
    for line in lines:
        for found in re.finditer(rf"(?<!\d){_STEP}/\d{{1,18}} \[([^\]]{{0,{_LONGEST_BAR}}})", line):
            rate = re.search(rf"{_NUMBER}(s/it|it/s)", found[2])
            value = _value(rate[1]) if rate else 0.0
            if rate and 0 < value < math.inf:
                yield Step(int(found[1]), time_s=value if rate[2] == "s/it" else 1 / value)


_OTHERS: Final[dict[str, Callable[[list[str]], Iterable[Step]]]] = {
    "composer": _composer,
    "maxtext": _maxtext,
    "progress_bar": _bar,
    "hugging_face": step_tables.trainer_state,
    "hugging_face_output": step_tables.printed_records,
    "json_lines": step_tables.json_lines,
    "csv": step_tables.table_rows,
}


def _arguments(lines: list[str]) -> dict[str, object]:
    """Arguments that Megatron prints at start, ``  tensor_model_parallel_size ..... 8``."""
    found: dict[str, object] = {}
    for line in lines:
        match = re.match(r"(?:\S+:)?\s{2,}(\w+) \.{3,} (\S.*)", line.rstrip())
        if match and match[2] != "None":
            found[match[1]] = plain(match[2])
    return found


def _lines_of(source: str) -> list[str]:
    """The beginnings of lines, without colours; a progress bar is redrawn as a line of its own."""
    if "\n" in source:
        given = source.replace("\r", "\n").split("\n")
        return [_COLOURS.sub("", line[:_LONGEST_LINE]) for line in given]
    lines: list[str] = []
    with reading(source, "log=") as raw, io.TextIOWrapper(raw, "utf-8", errors="replace") as text:
        beginning = True
        while part := text.readline(_LONGEST_LINE):
            if beginning:
                lines.append(_COLOURS.sub("", part.rstrip("\n")))
            beginning = part.endswith("\n")
            if text.buffer.tell() > LARGEST_RECORD:
                raise ScaleModelError(
                    f"log={source} cannot be read (holds more than {LARGEST_RECORD >> 20:,} MiB)",
                    code="unreadable_file",
                )
    return lines


def _events_of(source: str) -> bytes | None:
    """The contents of a file of TensorBoard; None of anything else."""
    if "\n" in source:
        return None
    with reading(source, "log=") as file:
        beginning = file.read(64)
    if not step_tables.is_event_file(beginning):
        return None
    return read_bytes(source, LARGEST_RECORD, "log=")


def read_log(source: str | os.PathLike[str]) -> Log:
    r"""Steps of a training log.

    Read are what Megatron, NeMo, torchtitan, DeepSpeed (at logging level INFO), Composer, MaxText,
    Hugging Face's Trainer and progress bars print; ``trainer_state.json``; metrics of Lightning
    and other CSV tables with a column of steps; one JSON object per line; and event files of
    TensorBoard, which Accelerate, Lightning and others write. In tables, a step's time or rate
    counts, else what passed between two records.

    Parameters
    ----------
    source : str or path
        The file; or the text itself, of more than one line.

    Returns
    -------
    Log
        Steps in the order of the file. Where several formats match, the one with most steps.

    Raises
    ------
    ScaleModelError : the file cannot be read, or no line of it is known.

    Examples
    --------
    >>> log = read_log("start\n iteration 10/ 500 | elapsed time per iteration (ms): 1250.0 |")
    >>> log.framework, log.steps[0].time_s
    ('megatron', 1.25)
    """
    events = _events_of(os.fspath(source))
    if events is not None:
        steps = step_tables.steps_of(step_tables.event_records(events))
        if not steps:
            raise ScaleModelError(
                "log: its events of TensorBoard tell no time of steps", code="unknown_log"
            )
        return Log("tensorboard", tuple(steps), {})
    lines = _lines_of(os.fspath(source))
    found = {name: list(_lines(lines, form)) for name, form in _LINES.items()}
    found |= {name: list(read(lines)) for name, read in _OTHERS.items()}
    framework = max(found, key=lambda name: len(found[name]))
    if not found[framework]:
        raise ScaleModelError(
            "log: no line is known; legal are the logs of " + ", ".join(found),
            code="unknown_log",
        )
    return Log(framework, tuple(found[framework]), _arguments(lines))
