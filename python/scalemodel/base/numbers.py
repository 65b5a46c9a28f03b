"""Whole numbers that degrees may take."""

from __future__ import annotations

import math


def divisors(number: int, limit: int | None = None) -> list[int]:
    """Divisors up to a limit, ascending.

    Examples
    --------
    >>> divisors(12, 6)
    [1, 2, 3, 4, 6]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    every = sorted({*small, *(number // n for n in small)})
    return [n for n in every if limit is None or n <= limit]


def powers_of_two(limit: float) -> list[int]:
    """Powers of two up to a limit, 1 at least.

    Examples
    --------
    >>> powers_of_two(10)
    [1, 2, 4, 8]
    """
    return [1 << n for n in range(max(1, int(limit)).bit_length())]
