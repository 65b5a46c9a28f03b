"""Lengths of the requests of a run: all alike, or of a data set whose means the row gives."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from scalemodel import catalog, resolve
from scalemodel.resolve.reader import Reader
from scalemodel.serving.task import Inference
from scalemodel.validation.power import PROMPT_TOKENS
from scalemodel.validation.rows import Row, SkippedRowError

# Benchmarks that make requests of one length ask for round numbers of tokens.
_ROUND = (4, 10)
#: Height and width in pixels of an image where a row does not say.
_IMAGE_PIXELS = (1024, 1024)
_DATA_SET = re.compile(
    r"share.?gpt|data.?set|mixed|chat|conversation|arena|cnn|dolly|alpaca|openorca|trace",
    re.IGNORECASE,
)


def varies(mean: float, scenario: str = "") -> bool:
    """Whether a length is the mean of a data set: the scenario names one, or it is no round number.

    Examples
    --------
    >>> varies(202.0), varies(2048.0), varies(500.0, "ShareGPT at 4 requests/s")
    (True, False, True)
    """
    whole = float(mean).is_integer() and any(mean % step == 0 for step in _ROUND)
    return not whole or _DATA_SET.search(scenario) is not None


def drawn(
    mean: float, part: str, count: int, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Lengths of `count` prompts or answers with this mean.

    Gamma distributed with the relative spread of conversations (``reference/request_lengths``), and
    scaled to the mean exactly, as the row gives that of its own draw.

    Parameters
    ----------
    mean : float
    part : str
        ``prompts`` or ``answers``.
    count : int
    random : numpy.random.Generator

    Examples
    --------
    >>> lengths = drawn(200, "answers", 1000, np.random.default_rng(0))
    >>> bool(abs(lengths.mean() - 200) < 1), bool(500 < lengths.max() < 2000)
    (True, True)
    """
    spread = Reader(catalog.load("reference", "request_lengths")[part], part).number("spread")
    shape = spread**-2
    values = random.gamma(shape, 1 / shape, count)
    lengths = np.maximum(1.0, np.round(values * (mean / values.mean())))
    return np.asarray(lengths, dtype=np.float64)


def arrivals(count: int, rate: float, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """Poisson arrivals of `count` requests that take as long as they do on average.

    Examples
    --------
    >>> float(arrivals(100, 4.0, np.random.default_rng(0))[-1])
    25.0
    """
    times = np.cumsum(random.exponential(1.0, count))
    return np.asarray(times * (count / rate / times[-1]), dtype=np.float64)


def prompt_tokens(row: Row, notes: list[str]) -> float:
    """Tokens of a prompt; where a row does not say, those of a chat if it is one.

    Raises
    ------
    SkippedRowError : the row is silent on prompts that may be of any length.

    Examples
    --------
    >>> prompt_tokens(Row({"task": "lm-arena-chat"}), [])
    400.0
    """
    given = row.number("isl")
    if given:
        return given
    task = row.text("task").lower()
    if "fim" in task or "video" in task:
        # What stands around a gap in code, or the frames of a video, may be of any length.
        raise SkippedRowError("missing:isl")
    notes.append(f"prompts of {PROMPT_TOKENS:.0f} tokens assumed")
    return PROMPT_TOKENS


def with_images(task: Inference, row: Row, model: str, notes: list[str]) -> Inference:
    """The same requests with the images they carry: one in a chat about images.

    Examples
    --------
    >>> chat = Inference(input_tokens=400, output_tokens=500)
    >>> seen = with_images(chat, Row({"task": "image-chat"}), "gemma3_12b", [])
    >>> seen.images, seen.input_tokens
    (1, 656)
    """
    sees = resolve.model(model)
    if "image" not in row.text("task").lower() or sees.vision is None:
        return task
    height, width = _IMAGE_PIXELS
    notes.append(f"one image of {height} x {width} assumed")
    tokens = sees.image_tokens(height, width)
    return replace(
        task,
        input_tokens=task.input_tokens + tokens,
        images=1,
        image_height=height,
        image_width=width,
    )
