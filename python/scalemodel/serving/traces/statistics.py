"""Numbers that describe traffic: rates, burstiness, lengths, shared prefixes."""

from __future__ import annotations

from typing import Any

import numpy as np

from scalemodel.serving.traces.columns import Floats, Ids, Whole, renumbered, row_of

_WINDOW_S = 60.0  # in which arrivals are counted, where the trace is long enough
_FEWEST_WINDOWS = 20
_QUANTILES = (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("p99", 0.99))


def gap_cv(arrival_s: Floats) -> float:
    """Coefficient of variation of the gaps between arrivals: 1 at random, above where bursty.

    Examples
    --------
    >>> gap_cv(np.array([0.0, 1.0, 2.0])), gap_cv(np.array([0.0, 0.0, 2.0]))
    (0.0, 1.0)
    """
    gaps = np.diff(arrival_s)
    mean = float(gaps.mean()) if gaps.size else 0.0
    return float(gaps.std()) / mean if mean > 0 else 0.0


def dispersion(arrival_s: Floats) -> tuple[float, float]:
    """Index of dispersion of counts (variance over mean) and the window they are counted in.

    Examples
    --------
    >>> dispersion(np.arange(1201.0))
    (0.0, 60.0)
    """
    span = float(arrival_s[-1] - arrival_s[0])
    if span <= 0:
        return 0.0, 0.0
    window = min(_WINDOW_S, span / _FEWEST_WINDOWS)
    windows = int(span // window)
    # The last arrival is the end of the last gap, not the first of a window.
    places = ((arrival_s - arrival_s[0]) / window).astype(np.int64)[:-1]
    counts = np.bincount(places[places < windows], minlength=windows)
    return float(counts.var() / counts.mean()), window


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's correlation: of the ranks, equal values sharing one; 0 where all are equal.

    Examples
    --------
    >>> round(rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([5.0, 6.0, 7.0])), 6)
    1.0
    """
    ranks = []
    for column in (one, other):
        _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        rank = (ends - (counts - 1) / 2)[places.reshape(-1)]
        ranks.append(rank - rank.mean())
    scale = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float((ranks[0] * ranks[1]).sum()) / scale if scale > 0 else 0.0


def length_statistics(name: str, tokens: Floats) -> dict[str, float]:
    """Mean, quantiles and maximum of lengths.

    Examples
    --------
    >>> length_statistics("input_tokens", np.array([1.0, 3.0]))["input_tokens_mean"]
    2.0
    """
    found = {f"{name}_mean": float(tokens.mean())}
    for label, share in _QUANTILES:
        found[f"{name}_{label}"] = float(np.quantile(tokens, share))
    found[f"{name}_max"] = float(tokens.max())
    return found


def arrival_statistics(arrival_s: Floats) -> dict[str, float]:
    """Rates and burstiness.

    Examples
    --------
    >>> arrival_statistics(np.arange(1201.0))["gap_cv"]
    0.0
    """
    span = float(arrival_s[-1] - arrival_s[0])
    ratio, window = dispersion(arrival_s)
    found = {
        "requests": float(arrival_s.size),
        "span_s": span,
        "requests_per_s": arrival_s.size / span if span > 0 else float("inf"),
        "gap_cv": gap_cv(arrival_s),
        "dispersion": ratio,
        "dispersion_window_s": window,
    }
    if window > 0:
        places = ((arrival_s - arrival_s[0]) / window).astype(np.int64)
        found["peak_requests_per_s"] = float(np.bincount(places).max()) / window
    return found


def session_statistics(arrival_s: Floats, sessions: Whole) -> dict[str, float]:
    """How many sessions there are, how long, and how soon their turns follow.

    Examples
    --------
    >>> found = session_statistics(np.array([0.0, 1.0, 5.0]), np.array([0, 1, 0]))
    >>> found["sessions"], found["turns_mean"], found["turn_gap_median_s"]
    (2.0, 1.5, 5.0)
    """
    numbers, count = renumbered(sessions)
    turns = np.bincount(numbers)
    order = np.argsort(numbers, kind="stable")
    same = numbers[order][1:] == numbers[order][:-1]
    gaps = np.diff(arrival_s[order])[same]
    return {
        "sessions": float(count),
        "turns_mean": float(turns.mean()),
        "turns_p90": float(np.quantile(turns, 0.9)),
        "turns_max": float(turns.max()),
        "turn_gap_median_s": float(np.median(gaps)) if gaps.size else 0.0,
    }


def tree_statistics(block_offsets: Whole, block_ids: Ids) -> dict[str, float]:
    """Shape of the tree of prefixes: its size, depth, branching, and how far it is shared.

    Examples
    --------
    >>> found = tree_statistics(np.array([0, 2, 4]), np.array([1, 2, 1, 3], dtype=np.uint64))
    >>> found["distinct_blocks"], found["tree_leaves"], found["tree_forks"]
    (3.0, 2.0, 1.0)
    """
    sizes = np.diff(block_offsets)
    found = {"blocks": float(block_ids.size)}
    if not block_ids.size:
        return found
    numbers, count = renumbered(block_ids)
    uses = np.bincount(numbers, minlength=count)
    rows = row_of(block_offsets)
    first = np.concatenate([[True], rows[1:] != rows[:-1]])
    # The block before each within its prompt; equal ids have equal prefixes, so any of them tells.
    before = np.full(count, -1, dtype=np.int64)
    before[numbers[1:][~first[1:]]] = numbers[:-1][~first[1:]]
    children = np.bincount(before[before >= 0], minlength=count)
    return found | {
        "distinct_blocks": float(count),
        "blocks_per_request_mean": float(sizes.mean()),
        "blocks_per_request_max": float(sizes.max()),
        "tree_roots": float((before < 0).sum()),
        "tree_leaves": float((children == 0).sum()),
        "tree_forks": float((children > 1).sum()),
        "shared_block_fraction": float((uses > 1).mean()),
        "block_uses_max": float(uses.max()),
    }


def text_of(found: dict[str, float]) -> list[tuple[str, str]]:
    """Names and values of a summary, written for people.

    Examples
    --------
    >>> text_of({"requests": 12000.0, "hit_fraction": 0.25})
    [('requests', '12,000'), ('hit_fraction', '25.0 %')]
    """

    def text(name: str, value: Any) -> str:
        if name.endswith("_fraction"):
            return f"{100 * value:.1f} %"
        if float(value).is_integer() or abs(value) >= 1e4:
            return f"{value:,.0f}"
        return f"{value:,.4g}"

    return [(name, text(name, value)) for name, value in found.items()]
