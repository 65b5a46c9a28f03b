"""What every table of errors needs: its cells, errors by group, rank correlation, aligned text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from scalemodel.validation.rows import number_in

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)

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


@dataclass(frozen=True)
class GroupErrors:
    """Errors of one group of rows; fractions, NaN where nothing was predicted."""

    label: str
    part: str
    rows: int
    predicted: int
    skipped: int
    mape_fraction: float
    bias_fraction: float
    mean_error_fraction: float
    p90_fraction: float
    kendall_tau: float

    @classmethod
    def of(
        cls,
        label: str,
        part: str,
        pairs: Sequence[tuple[float, float | None]],
        *,
        ranked: bool = True,
    ) -> GroupErrors:
        """Errors of pairs of measured and predicted; `ranked` asks for the rank correlation."""
        both = [(predicted, measured) for measured, predicted in pairs if predicted is not None]
        errors = summarised([predicted / measured - 1 for predicted, measured in both])
        ranks = kendall_tau_b(*zip(*both, strict=True)) if ranked and both else math.nan
        return cls(
            label=label,
            part=part,
            rows=len(pairs),
            predicted=len(both),
            skipped=len(pairs) - len(both),
            kendall_tau=ranks,
            **errors._asdict(),
        )


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by key, keys in order.

    Examples
    --------
    >>> grouped([3, 1, 4, 1, 5], lambda number: number % 2)
    {0: [4], 1: [3, 1, 1, 5]}
    """
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {label: groups[label] for label in sorted(groups)}  # type: ignore[type-var]


def macro(groups: Iterable[GroupErrors]) -> tuple[float, int]:
    """Unweighted mean error of the groups that are large enough, and their number."""
    errors = [row.mape_fraction for row in groups if row.rows >= MACRO_ROWS and row.predicted]
    return (float(np.mean(errors)) if errors else math.nan), len(errors)


# -------------------------------------------------------------------------------- cells of tables


def cells_of(frame: pd.DataFrame, name: str) -> list[Any]:
    """Cells of a column; blanks where they are missing or the table lacks it."""
    if name not in frame.columns:
        return [""] * len(frame)
    return ["" if item != item else item for item in frame[name].astype(object).tolist()]


def positive(value: object) -> float | None:
    """A finite positive number of a cell, text or not; None for anything else.

    Examples
    --------
    >>> positive("1,024"), positive(3), positive("n/a"), positive(-1.0)
    (1024.0, 3.0, None, None)
    """
    number = number_in(value) if isinstance(value, str) else value
    if not isinstance(number, (int, float)) or not math.isfinite(number) or number <= 0:
        return None
    return float(number)


def skip_reasons(frame: pd.DataFrame) -> dict[str, int]:
    """How many rows were skipped for which reason, the commonest first."""
    counts = Counter(reason for reason in cells_of(frame, "skip_reason") if reason)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


# ------------------------------------------------------------------------------------------ text


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


def error_lines(
    rows: Sequence[GroupErrors], titles: tuple[str, str], *, ranked: bool = True
) -> list[str]:
    """One aligned line per group, under its titles; errors in percent."""
    header = (*titles, "n", "predicted", "skipped", "MAPE %", "bias %", "mean %", "P90 %", "tau")
    cells = [
        [
            row.label,
            row.part,
            *(str(count) for count in (row.rows, row.predicted, row.skipped)),
            percent(row.mape_fraction),
            percent(row.bias_fraction),
            percent(row.mean_error_fraction),
            percent(row.p90_fraction),
            plain(row.kendall_tau),
        ]
        for row in rows
    ]
    kept = len(header) if ranked else len(header) - 1
    return columns(header[:kept], [line[:kept] for line in cells], texts=2)


def skip_lines(reasons: dict[str, int]) -> list[str]:
    """How many rows were skipped for which reason, under a blank line; nothing without any."""
    if not reasons:
        return []
    cells = [[reason, str(count)] for reason, count in reasons.items()]
    return ["", *columns(("skip reason", "rows"), cells, texts=1)]


def share_text(part: int, whole: int) -> str:
    """Rows of rows, and in percent.

    Examples
    --------
    >>> share_text(3, 4)
    '3 of 4 rows (75.0 %)'
    """
    return f"{part} of {whole} rows" + (f" ({100 * part / whole:.1f} %)" if whole else "")
