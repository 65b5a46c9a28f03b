"""Traces larger than the memory: a file is read part by part, and only what is asked for stays."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError

COLUMNS = (
    *("arrival_s", "input_tokens", "output_tokens", "session"),
    *("turn", "tool_wait_s", "tenant", "block_offsets", "block_ids"),
)
#: Text of a part as objects of Python, and checks of a column: what reading takes beside the trace.
PART_BYTES = 30e6


def mooncake(path: Path, requests: int) -> Path:
    """A request every 100 ms, of 40 blocks, half of them shared with the one before."""
    lines = [
        json.dumps(
            {
                "timestamp": 100 * at,
                "input_length": 512 * 40,
                "output_length": 1 + at % 700,
                "hash_ids": [*range(20 * at, 20 * at + 40)],
            }
        )
        for at in range(requests)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def burstgpt(path: Path, requests: int) -> Path:
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write("Timestamp,Request tokens,Response tokens,Session ID\n")
        for at in range(requests):
            name = "" if at % 3 else f"user {at % 50}"
            file.write(f"{0.1 * at:.1f},{100 + at % 900},{at % 11},{name}\n")
    return path


def kept_bytes(trace: sm.Trace) -> int:
    columns = [getattr(trace, name) for name in COLUMNS]
    return sum(column.nbytes for column in columns if column is not None)


def read(path: Path, **options: Any) -> tuple[sm.Trace, int]:
    """A trace, and the most memory that reading it took."""
    tracemalloc.start()
    try:
        trace = sm.read_trace(path, **options)
        return trace, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("write", [mooncake, burstgpt])
def test_reading_takes_what_is_kept_and_one_part(tmp_path: Path, write: Any) -> None:
    beside = []
    for requests in (20_000, 80_000):
        trace, peak = read(write(tmp_path / f"{requests}.file", requests))
        beside.append(peak - 1.5 * kept_bytes(trace))
        assert len(trace) + trace.dropped == requests
    assert max(beside) < PART_BYTES, beside


def test_a_window_takes_as_much_of_a_long_file_as_of_a_short_one(tmp_path: Path) -> None:
    peaks = []
    for requests in (20_000, 60_000):
        path = mooncake(tmp_path / f"{requests}.jsonl", requests)
        trace, peak = read(path, start_s=1800.0, end_s=1900.0)
        assert len(trace) == 1000
        peaks.append(peak)
        whole, least = read(path, blocks=False)
        assert whole.block_ids is None
        assert least < kept_bytes(whole) * 1.5 + PART_BYTES
    assert peaks[1] < 1.05 * peaks[0]


@pytest.mark.parametrize("write", [mooncake, burstgpt])
def test_a_window_of_a_file_is_the_window_of_its_trace(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path / "trace", 3000)
    whole = sm.read_trace(path)
    for start_s, end_s in ((0.0, 100.0), (12.5, 250.0), (299.0, 1e6)):
        window, part = (
            whole.window(start_s, end_s),
            sm.read_trace(path, start_s=start_s, end_s=end_s),
        )
        for name in ("arrival_s", "input_tokens", "output_tokens", "block_offsets", "block_ids"):
            assert np.array_equal(getattr(window, name), getattr(part, name)), name
        if window.session is not None and part.session is not None:
            pairs = set(zip(window.session.tolist(), part.session.tolist(), strict=True))
            assert len(pairs) == len(set(window.session.tolist())) == part.session.max() + 1
    first, last = sm.read_trace(path, end_s=150.0), sm.read_trace(path, start_s=150.0)
    assert len(first) + len(last) == len(whole)
    assert first.dropped + last.dropped == whole.dropped


def test_a_window_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "trace", 100)
    with pytest.raises(ScaleModelError, match=r"end_s=5: must lie behind start_s=7"):
        sm.read_trace(path, start_s=7, end_s=5)
    with pytest.raises(ScaleModelError, match=r"start_s='x': must be a finite number of seconds"):
        sm.read_trace(path, start_s="x")  # type: ignore[arg-type]
    with pytest.raises(ScaleModelError, match=r"must hold a request; the last .* came at 9.9 s"):
        sm.read_trace(path, start_s=50.0, end_s=60.0)
    # What follows the window's part of the file is not looked at; what lies before it is.
    text = mooncake(path, 10_000).read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*text, "broken"]), encoding="utf-8")
    assert len(sm.read_trace(path, end_s=5.0)) == 50
    path.write_text("\n".join([text[0], "broken", *text[1:]]), encoding="utf-8")
    with pytest.raises(ScaleModelError, match="line 2: not JSON"):
        sm.read_trace(path, start_s=1.0, end_s=5.0)
