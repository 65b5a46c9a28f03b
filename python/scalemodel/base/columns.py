"""Columns of numbers: given, drawn and compared."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.type_hints import shown


def numbers_of(name: str, given: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The numbers that an argument gives, as an array without gaps.

    Raises
    ------
    ScaleModelError : something that is no number.

    Examples
    --------
    >>> numbers_of("arrival_s", [0, 1.5])
    array([0. , 1.5])
    >>> numbers_of("arrival_s", "soon")
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: arrival_s='soon': must be numbers
    """
    try:
        return np.asarray(given, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ScaleModelError(f"{name}={shown(given)}: must be numbers") from None


def random_of(seed: int) -> np.random.Generator:
    """Random numbers that a seed repeats.

    Raises
    ------
    ScaleModelError : a seed that is no whole number from 0.

    Examples
    --------
    >>> random_of(0).integers(10), random_of(0).integers(10)
    (np.int64(8), np.int64(8))
    >>> random_of(-1)
    Traceback (most recent call last):
    scalemodel.base.errors.ScaleModelError: seed=-1: must be a whole number from 0
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ScaleModelError(f"seed={shown(seed)}: must be a whole number from 0") from None


def same_columns(one: Any, other: Any) -> bool:
    """Whether two records of one type hold the same numbers, column by column.

    Examples
    --------
    >>> from scalemodel.serving.stream import RequestStream
    >>> one, other = (RequestStream([0.0], [8], [last]) for last in (1, 2))
    >>> same_columns(one, one), same_columns(one, other)
    (True, False)
    """
    if type(one) is not type(other):
        return False
    pairs = [(getattr(one, item.name), getattr(other, item.name)) for item in fields(one)]
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else b is a or bool(np.all(a == b))
        for a, b in pairs
    )
