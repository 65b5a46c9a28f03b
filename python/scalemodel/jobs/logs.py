"""Training logs: what a framework prints per step, as one table of steps."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from scalemodel.errors import ScaleModelError

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER: Final = r"([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)"


class Step(NamedTuple):
    """What a log says of one step; None where it does not."""

    step: int
    time_s: float | None = None
    tokens_per_s_accelerator: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    flop_per_s_accelerator: float | None = None
    memory_bytes: float | None = None


class Log(NamedTuple):
    """A log: the framework whose lines it has, its steps, and the arguments it prints at start."""

    framework: str
    steps: tuple[Step, ...]
    arguments: dict[str, object]


def _number(pattern: str, line: str, unit: float = 1.0) -> float | None:
    found = re.search(pattern, line)
    return unit * float(found[1].replace(",", "")) if found else None


# One line per step: what it must match (group 1 is the step), and where the other numbers stand.
class _Format(NamedTuple):
    step: str
    numbers: dict[str, tuple[str, float]]


_LINES: Final[dict[str, _Format]] = {
    # megatron/training/training.py: training_log
    "megatron": _Format(
        r"iteration\s+(\d+)\s*/\s*\d+\s*\|",
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
        r"\bstep:\s*(\d+)\s.*\btps:",
        {
            "tokens_per_s_accelerator": (rf"\btps:\s*{_NUMBER}", 1.0),
            "flop_per_s_accelerator": (rf"\btflops:\s*{_NUMBER}", 1e12),
            "memory_bytes": (rf"\bmemory:\s*{_NUMBER}GiB", 2.0**30),
        },
    ),
    # NeMo's progress printer
    "nemo": _Format(
        r"global_step[:=]\s*(\d+).*train_step_timing",
        {"time_s": (rf"train_step_timing in s[:=]\s*{_NUMBER}", 1.0)},
    ),
    # deepspeed/utils/timer.py: ThroughputTimer
    "deepspeed": _Format(
        r"global_step=(\d+),.*CurrSamplesPerSec",
        {
            "samples_per_s": (rf"CurrSamplesPerSec={_NUMBER}", 1.0),
            "memory_bytes": (rf"MaxMemAllocated={_NUMBER}GB", 2.0**30),
        },
    ),
}


def _lines(lines: list[str], form: _Format) -> Iterator[Step]:
    for line in lines:
        found = re.search(form.step, line)
        if found is None:
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
        found = re.search(r"\[batch=(\d+)/", line)
        if found:
            if step is not None and rate is not None:
                yield Step(step, tokens_per_s_accelerator=rate)
            step, rate = int(found[1]), None
        elif "throughput/device/tokens_per_sec:" in line:
            rate = _number(rf"tokens_per_sec:\s*{_NUMBER}", line)


def _maxtext(lines: list[str]) -> Iterator[Step]:
    """MaxText: ``completed step: 5, seconds: 3.2, TFLOP/s/device: 210.1, Tokens/s/device: ...``."""
    for line in lines:
        found = re.search(rf"completed step: (\d+), seconds: {_NUMBER}", line)
        if found:
            rate = _number(rf"Tokens/s/device: {_NUMBER}", line)
            flop = _number(rf"TFLOP/s/device: {_NUMBER}", line, 1e12)
            yield Step(
                int(found[1]),
                time_s=float(found[2].replace(",", "")),
                tokens_per_s_accelerator=rate,
                flop_per_s_accelerator=flop,
            )


def _bar(lines: list[str]) -> Iterator[Step]:
    """A progress bar of tqdm, as Hugging Face shows: ``12/500 [00:30<20:20, 2.50s/it]``."""
    for line in lines:
        for found in re.finditer(rf"(\d+)/\d+ \[[^\]]*?{_NUMBER}(s/it|it/s)", line):
            value = float(found[2])
            if value > 0:
                yield Step(int(found[1]), time_s=value if found[3] == "s/it" else 1 / value)


_OTHERS: Final[dict[str, Callable[[list[str]], Iterator[Step]]]] = {
    "composer": _composer,
    "maxtext": _maxtext,
    "progress_bar": _bar,
}


def _arguments(lines: list[str]) -> dict[str, object]:
    """Arguments that Megatron prints at start, ``  tensor_model_parallel_size ..... 8``."""
    found: dict[str, object] = {}
    for line in lines:
        match = re.search(r"^(?:\S+:)?\s{2,}(\w+) \.{3,} (.+?)\s*$", line)
        if match and match[2] != "None":
            found[match[1]] = match[2]
    return found


def read_log(source: str | os.PathLike[str]) -> Log:
    r"""Steps of a training log of Megatron, NeMo, torchtitan, DeepSpeed, Composer or MaxText.

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
    text = os.fspath(source)
    if "\n" not in text:
        try:
            text = Path(text).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError) as error:  # no file, or no path
            why = getattr(error, "strerror", None) or error
            raise ScaleModelError(
                f"log={os.fspath(source)!r} cannot be read: {why}",
                code="unreadable_file",
            ) from None
    lines = _COLOURS.sub("", text).replace("\r", "\n").split("\n")
    found = {name: list(_lines(lines, form)) for name, form in _LINES.items()}
    found |= {name: list(read(lines)) for name, read in _OTHERS.items()}
    framework = max(found, key=lambda name: len(found[name]))
    if not found[framework]:
        raise ScaleModelError(
            "log: no line is known; legal are the logs of " + ", ".join(found),
            code="unknown_log",
        )
    return Log(framework, tuple(found[framework]), _arguments(lines))
