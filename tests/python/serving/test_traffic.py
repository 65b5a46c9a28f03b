"""Traffic drawn like a trace's repeats what the trace is like, at any rate."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

#: Recorded traces, and by how much the variation of gaps, the quantiles of lengths (relative) and
#: the share of hits (absolute) of draws may differ from sessions that the fit has not seen. The
#: code trace has few very long gaps. Lengths of synthetic prompts have two peaks with the median
#: between them: those of its halves differ by 31 %.
BOUNDS = {
    "azure_llm_2023_code.csv": (0.15, 0.08, 0.0),
    "azure_llm_2023_conv.csv": (0.05, 0.05, 0.0),
    "mooncake_conversation_trace.jsonl": (0.05, 0.10, 0.015),
    "mooncake_synthetic_trace.jsonl": (0.05, 0.32, 0.035),
}
QUANTILES = (
    *("input_tokens_mean", "input_tokens_median", "input_tokens_p90"),
    *("output_tokens_mean", "output_tokens_median", "output_tokens_p90"),
)


def given(name: str) -> Path:
    """A recorded trace, of the directory of corpora."""
    named = os.environ.get("SCALEMODEL_DATA")
    shared = Path(__file__).resolve().parents[4] / "shared" / "data"
    path = (Path(named) if named else shared) / "traces" / name
    if not path.is_file():
        pytest.skip(f"{name} is not there: recorded traces are no part of the repository")
    return path


def alternating(trace: sm.Trace) -> tuple[sm.Trace, sm.Trace]:
    """Every second session, and the others."""
    odd = trace.with_sessions().session % 2 == 1
    return trace.chosen(np.flatnonzero(odd)), trace.chosen(np.flatnonzero(~odd))


def chats(sessions: int = 300, seed: int = 0) -> sm.Trace:
    """Chats of three turns under one of two system prompts."""
    random = np.random.default_rng(seed)
    rows, fresh = [], 2
    for session in range(sessions):
        at, chain = float(random.uniform(0, 3000)), [session % 2]
        for turn in range(3):
            size = int(random.integers(1, 8))
            chain = chain + list(range(fresh, fresh + size))
            fresh += size
            wait = float(random.exponential(30)) if turn else 0.0
            at += wait
            rows.append((at, 16 * len(chain), 8 + 4 * size, session, wait, chain))
    rows.sort(key=lambda row: row[0])
    return sm.Trace(
        *(np.array([row[place] for row in rows], float) for place in range(3)),
        session=np.array([row[3] for row in rows]),
        tool_wait_s=np.array([row[4] for row in rows]),
        block_offsets=np.cumsum([0, *(len(row[5]) for row in rows)]),
        block_ids=np.concatenate([row[5] for row in rows]),
        block_tokens=16,
    )


@pytest.mark.parametrize("name", BOUNDS)
def test_draws_are_like_the_half_that_the_fit_has_not_seen(name: str) -> None:
    gaps, lengths, hits = BOUNDS[name]
    seen, unseen = alternating(sm.read_trace(given(name)))
    expected, profile = unseen.summary(), sm.fit_traffic(seen)
    found = profile.draw(len(unseen), seed=1).summary()
    assert found["requests_per_s"] == pytest.approx(expected["requests_per_s"], rel=0.05)
    assert found["gap_cv"] == pytest.approx(expected["gap_cv"], rel=gaps)
    for quantile in QUANTILES:
        assert found[quantile] == pytest.approx(expected[quantile], rel=lengths), quantile
        assert found[quantile] == pytest.approx(seen.summary()[quantile], rel=0.04), quantile
    difference = found["length_correlation"] - expected["length_correlation"]
    assert abs(difference) < 0.06
    if hits:
        assert found["hit_fraction"] == pytest.approx(expected["hit_fraction"], abs=hits)
        assert found["turns_mean"] == pytest.approx(expected["turns_mean"], rel=0.03)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_draws_of_other_rates_keep_what_is_not_the_rate(name: str, factor: float) -> None:
    trace = sm.read_trace(given(name))
    expected, profile = trace.summary(), sm.fit_traffic(trace)
    rate = factor * profile.requests_per_s
    found = profile.draw(len(trace), rate=rate, seed=2).summary()
    assert found["requests_per_s"] == pytest.approx(rate, rel=1e-9)
    assert found["requests"] == len(trace)
    assert found["gap_cv"] == pytest.approx(expected["gap_cv"], rel=0.25)
    for quantile in QUANTILES:
        assert found[quantile] == pytest.approx(expected[quantile], rel=0.05), quantile
    if "hit_fraction" in expected:
        assert found["hit_fraction"] == pytest.approx(expected["hit_fraction"], abs=0.02)


def test_a_cache_of_any_size_holds_of_a_conversation_what_it_held() -> None:
    trace = sm.read_trace(given("mooncake_conversation_trace.jsonl"))
    drawn = sm.fit_traffic(trace).draw(seed=1)
    for blocks in (1000, 10_000, 30_000, 100_000):
        held = trace.prefix_hits(blocks).fraction
        assert drawn.prefix_hits(blocks).fraction == pytest.approx(held, abs=0.02)


def test_sessions_keep_their_turns_waits_and_growth() -> None:
    trace = chats()
    drawn = sm.fit_traffic(trace).draw(seed=3)
    before, after = trace.summary(), drawn.summary()
    assert after["turns_mean"] == 3
    assert after["hit_fraction"] == pytest.approx(before["hit_fraction"], abs=0.01)
    assert after["tool_wait_median_s"] == pytest.approx(before["tool_wait_median_s"], rel=0.02)
    assert after["gap_cv"] == pytest.approx(before["gap_cv"], rel=0.08)
    for session in range(50):
        rows = np.flatnonzero(drawn.session == session)
        assert drawn.turn[rows].tolist() == [0, 1, 2]
        assert (np.diff(drawn.input_tokens[rows]) > 0).all()
        chains = [set(drawn.chosen(np.array([row])).block_ids.tolist()) for row in rows]
        assert chains[0] < chains[1] < chains[2]
    told = drawn.block_ids.size - np.unique(drawn.block_ids).size
    assert told == drawn.prefix_hits().hit_blocks  # every block that comes again is a hit


def test_the_rate_over_the_day_is_kept_and_comes_again() -> None:
    random = np.random.default_rng(5)
    busy, quiet = random.uniform(0, 1000, 3000), random.uniform(1000, 2000, 1000)
    times = np.sort(np.concatenate([busy, quiet]))
    profile = sm.fit_traffic(sm.Trace(times, np.full(4000, 9.0), np.full(4000, 9.0)))
    drawn = profile.draw(span_s=2 * profile.span_s, seed=1)
    assert len(drawn) == 8000
    counts = np.histogram(drawn.arrival_s, bins=4)[0]
    assert counts == pytest.approx([3000, 1000, 3000, 1000], rel=0.08)


def test_a_profile_is_small_anonymous_and_survives_a_file(tmp_path: Path) -> None:
    trace = chats(6000)
    profile = sm.fit_traffic(trace)
    path = tmp_path / "traffic.json"
    profile.write(path)
    assert path.stat().st_size < 600_000
    again = sm.TrafficProfile.read(path)
    assert again == profile
    assert again.draw(500, seed=4) == profile.draw(500, seed=4) != profile.draw(500, seed=5)
    document = json.loads(path.read_text())
    assert not {"session", "tenant", "block_ids"} & {*document, *document["turns"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "other"),
        ("span_s", 0),
        ("requests_per_s", None),
        ("gap_cv", -1),
        ("rate", []),
        ("turn_counts", [1, 1]),
        ("turns", {}),
        ("tie_fraction", 1.5),
    ],
)
def test_files_that_hold_no_profile_are_refused(field: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "traffic.json"
    sm.fit_traffic(chats(20)).write(path)
    document = json.loads(path.read_text()) | {field: value}
    path.write_text(json.dumps(document))
    with pytest.raises(ScaleModelError, match=r"traffic\.json: "):
        sm.TrafficProfile.read(path)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"requests": 0}, "requests=0: must be a whole number"),
        ({"requests": 1.5}, r"requests=1\.5: must be a whole number"),
        ({"span_s": -1.0}, r"span_s=-1\.0: must be a number above 0"),
        ({"rate": np.nan}, "rate=nan: must be a number above 0"),
        ({"rate": 1e9}, "must be at most 1e7 requests"),
        ({"requests": 5, "span_s": 1.0, "rate": 1.0}, "must be two of them at most"),
    ],
)
def test_draws_of_no_extent_are_refused(asked: dict[str, float], message: str) -> None:
    profile = sm.fit_traffic(chats(20))
    with pytest.raises(ScaleModelError, match=message):
        profile.draw(**asked)  # type: ignore[arg-type]


def test_traffic_of_no_time_is_refused() -> None:
    with pytest.raises(ScaleModelError, match="all its requests come at once"):
        sm.fit_traffic(sm.Trace([1.0, 1.0], [1, 1], [1, 1]))
    with pytest.raises(ScaleModelError, match="must be a Trace"):
        sm.fit_traffic([1, 2])  # type: ignore[arg-type]
