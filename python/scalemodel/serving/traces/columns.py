"""Columns of a trace: checks, choices of rows, blocks of prompts in compressed rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scalemodel.base.errors import ScaleModelError

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]


def whole_column(name: str, given: Any, size: int, kind: type = np.int64) -> npt.NDArray[Any]:
    """A column of whole numbers, as many as there are requests.

    Examples
    --------
    >>> whole_column("session", [0, 0, 1], 3)
    array([0, 0, 1])
    """
    column = np.ascontiguousarray(given)
    if column.shape != (size,) or column.dtype.kind not in "iu":
        raise ScaleModelError(
            f"{name}: must be a column of {size:,} whole numbers, one of each request"
        )
    return column.astype(kind, copy=False)


def first_fault(
    arrival_s: Floats, input_tokens: Floats, output_tokens: Floats
) -> tuple[int, str, str] | None:
    """Row and column of the first value that no trace can have, and what would be legal.

    Examples
    --------
    >>> one, two = np.array([1.0, 2.0]), np.array([1.0, -2.0])
    >>> first_fault(one, two, one)
    (1, 'input_tokens', 'must be a whole number of tokens from 1')
    """
    tokens = "must be a whole number of tokens from 1"
    bad = [(~np.isfinite(arrival_s), "arrival_s", "must be a finite number of seconds")]
    for name, column in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
        bad.append(
            (~(np.isfinite(column) & (column >= 1) & (column == np.floor(column))), name, tokens)
        )
    back = np.concatenate([[False], arrival_s[1:] < arrival_s[:-1]])
    bad.append((back, "arrival_s", "must not lie before the arrival of the request above it"))
    found = [(int(np.argmax(mask)), name, legal) for mask, name, legal in bad if mask.any()]
    return min(found, default=None, key=lambda fault: fault[0])


def gathered(offsets: Whole, ids: Ids, rows: npt.NDArray[np.intp]) -> tuple[Whole, Ids]:
    """The compressed rows of some requests, in their order.

    Examples
    --------
    >>> gathered(np.array([0, 2, 3]), np.array([7, 8, 9], dtype=np.uint64), np.array([1, 0]))
    (array([0, 1, 3]), array([9, 7, 8], dtype=uint64))
    """
    sizes = np.diff(offsets)[rows]
    ends = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    places = np.repeat(offsets[rows] - ends[:-1], sizes) + np.arange(ends[-1])
    return ends, ids[places]


def row_of(offsets: Whole) -> npt.NDArray[np.intp]:
    """The request of every block.

    Examples
    --------
    >>> row_of(np.array([0, 2, 3])).tolist()
    [0, 0, 1]
    """
    return np.repeat(np.arange(offsets.size - 1), np.diff(offsets))


def renumbered(ids: npt.NDArray[Any]) -> tuple[Whole, int]:
    """Ids as 0, 1, ... in order of size, and how many there are.

    Examples
    --------
    >>> renumbered(np.array([9, 4, 9]))
    (array([1, 0, 1]), 2)
    """
    known, numbers = np.unique(ids, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64), int(known.size)


class GrowingColumn:
    """A column that parts are added to, as large as they are together.

    Room for more is address space: pages are taken as they are written, and the column moves
    without a copy of it where the system can remap it.

    Examples
    --------
    >>> column = GrowingColumn(np.int64)
    >>> column.add(np.array([1, 2])), column.add(np.array([3]))
    (None, None)
    >>> column.whole()
    array([1, 2, 3])
    """

    _GROWTH = 1.25
    _FEWEST = 1024

    def __init__(self, kind: type) -> None:
        self._room: npt.NDArray[Any] = np.empty(0, kind)
        self._size = 0

    @property
    def size(self) -> int:
        """Values so far."""
        return self._size

    @property
    def held_bytes(self) -> int:
        """What these take."""
        return self._size * self._room.itemsize

    def add(self, part: npt.NDArray[Any]) -> None:
        """Appends a part."""
        end = self._size + part.size
        if end > self._room.size:
            more = max(end, int(self._GROWTH * self._room.size), self._FEWEST)
            self._room.resize(more, refcheck=False)
        self._room[self._size : end] = part
        self._size = end

    def whole(self) -> npt.NDArray[Any]:
        """All parts; the column is empty afterwards."""
        found, self._room = self._room, np.empty(0, self._room.dtype)
        found.resize(self._size, refcheck=False)
        self._size = 0
        return found
