"""Lengths of the requests of a run: all alike, or of a data set whose means the row gives."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from scalemodel import catalog
from scalemodel.resolve.reader import Reader

# Benchmarks that make requests of one length ask for round numbers of tokens.
_ROUND = (4, 10)
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
