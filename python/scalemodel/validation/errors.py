"""What every table of errors needs: rank correlation, numbers as text, aligned columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MACRO_ROWS = 5  # groups smaller than this stay out of the macro line


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's rank correlation with the correction for ties (tau-b); NaN when undefined.

    Source: Kendall, Biometrika 33 (1945) 239-251.

    Examples
    --------
    >>> kendall_tau_b([1, 2, 3, 4], [10, 20, 30, 40])
    1.0
    >>> round(kendall_tau_b([1, 2, 2, 3], [1, 3, 2, 3]), 4)
    0.8
    """
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    agreement = untied_a = untied_b = 0.0
    for i in range(1, a.size):
        sign_a, sign_b = np.sign(a[:i] - a[i]), np.sign(b[:i] - b[i])
        agreement += float(sign_a @ sign_b)
        untied_a += float(np.count_nonzero(sign_a))
        untied_b += float(np.count_nonzero(sign_b))
    if untied_a == 0 or untied_b == 0:
        return math.nan
    return agreement / math.sqrt(untied_a * untied_b)


class ErrorSummary(NamedTuple):
    """Relative errors predicted/measured - 1 of a group, in short; NaN for an empty group."""

    mape_fraction: float
    bias_fraction: float
    mean_error_fraction: float
    p90_fraction: float


def summarised(errors: Sequence[float]) -> ErrorSummary:
    """Mean size, median, mean and 90th percentile of the size of relative errors.

    Examples
    --------
    >>> summarised([-0.1, 0.0, 0.4]).bias_fraction
    0.0
    """
    values = np.asarray(errors, dtype=float)
    if not values.size:
        return ErrorSummary(math.nan, math.nan, math.nan, math.nan)
    size = np.abs(values)
    return ErrorSummary(
        mape_fraction=float(size.mean()),
        bias_fraction=float(np.median(values)),
        mean_error_fraction=float(values.mean()),
        p90_fraction=float(np.quantile(size, 0.9)),
    )


def without_nan(value: object) -> object:
    """`value` with None for every number that is not finite, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return value


def percent(value: float) -> str:
    """A fraction in percent, one decimal; a dash for nothing."""
    return f"{100 * value:.1f}" if math.isfinite(value) else "-"


def plain(value: float) -> str:
    """A number with two decimals; a dash for nothing."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def columns(titles: Sequence[str], lines: Sequence[Sequence[str]], texts: int) -> list[str]:
    """Aligned columns; the first ``texts`` of them to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in (titles, *lines)) for i in range(len(titles))]

    def line_of(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if i < texts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return [line_of(titles), *(line_of(line) for line in lines)]
