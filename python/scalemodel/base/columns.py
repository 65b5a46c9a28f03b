"""Records of columns, compared."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np


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
