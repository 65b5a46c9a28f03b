"""Limits of latency: means and percentiles, by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TypedDict

from scalemodel.base.errors import ScaleModelError, nearest
from scalemodel.base.text import time_text

#: First token, between tokens, from arrival to the last token; columns of a served request.
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "latency_s"}
#: Percentiles that a limit may name.
PERCENTS = (50, 90, 95, 99)
#: What no interactive service allows: a larger value means milliseconds.
_LONGEST_S = {"ttft": 60.0, "tpot": 2.0, "e2e": 3600.0}


class LatencyLimits(TypedDict, total=False):
    """At most, in seconds: ``ttft_s`` is a mean, ``ttft_p99_s`` what 99 of 100 requests meet."""

    ttft_s: float | None
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    tpot_s: float | None
    tpot_p50_s: float | None
    tpot_p90_s: float | None
    tpot_p95_s: float | None
    tpot_p99_s: float | None
    e2e_s: float | None
    e2e_p50_s: float | None
    e2e_p90_s: float | None
    e2e_p95_s: float | None
    e2e_p99_s: float | None


#: Every limit by name: its metric and its percentile, 0 for the mean.
LIMITS: dict[str, tuple[str, int]] = {
    f"{metric}_p{percent}_s" if percent else f"{metric}_s": (metric, percent)
    for metric in METRICS
    for percent in (0, *PERCENTS)
}


def limits_of(given: Mapping[str, object], options: Sequence[str] = ()) -> dict[str, float]:
    """The limits that were given, checked; `options` are what else may have been meant.

    Raises
    ------
    ScaleModelError : an unknown name, or a value that is no number above 0.

    Examples
    --------
    >>> limits_of({"ttft_p99_s": 0.5, "tpot_s": None})
    {'ttft_p99_s': 0.5}
    """
    found = {}
    for name, value in given.items():
        if name not in LIMITS:
            raise ScaleModelError(
                f"{name}: no such option or limit; {nearest(name, [*LIMITS, *options])}"
            )
        if value is None:
            continue
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 < float(value) < 1e9:  # type: ignore[arg-type]
            raise ScaleModelError(f"{name}={value!r}: must be a number of seconds above 0")
        found[name] = float(value)  # type: ignore[arg-type]
    return found


def in_milliseconds(limits: Mapping[str, float]) -> str:
    """What is wrong with limits that look like milliseconds; empty where none does.

    Examples
    --------
    >>> in_milliseconds({"tpot_s": 30.0})
    'tpot_s=30: is in seconds, and more than 2 s; for 30.0 ms give tpot_s=0.03'
    """
    texts = []
    for name, value in limits.items():
        most = _LONGEST_S[LIMITS[name][0]]
        if value > most:
            meant = value / 1e3
            texts.append(
                f"{name}={value:g}: is in seconds, and more than {most:g} s; "
                f"for {time_text(meant)} give {name}={meant:g}"
            )
    return "; ".join(texts)


def warn_of_milliseconds(limits: Mapping[str, float], stacklevel: int = 3) -> None:
    """A warning where limits look like milliseconds."""
    text = in_milliseconds(limits)
    if text:
        warnings.warn(text, UserWarning, stacklevel=stacklevel)


def slack_of(values: Mapping[str, float], limits: Mapping[str, float]) -> tuple[float, str]:
    """The largest ratio of a value to its limit, and the limit's name; 0 without a limit.

    Examples
    --------
    >>> slack_of({"ttft_s": 0.4, "tpot_s": 0.01}, {"ttft_s": 0.5, "tpot_s": 0.02})
    (0.8, 'ttft_s')
    """
    ratios = [(values[name] / limit, name) for name, limit in limits.items() if name in values]
    return max(ratios, default=(0.0, ""))
