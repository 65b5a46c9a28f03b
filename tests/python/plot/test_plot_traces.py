"""Plots of traces draw what the columns say, and say what is missing."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel as sm
from scalemodel import plot
from scalemodel.base.errors import ScaleModelError

pytestmark = pytest.mark.usefixtures("agg")

PLAIN = sm.Trace([0.0, 1.0, 3.0, 8.0], [10, 20, 20, 90], [1, 1, 2, 3])
BLOCKS = sm.Trace(
    np.arange(300.0),
    np.full(300, 64),
    np.full(300, 5),
    block_offsets=np.arange(0, 601, 2),
    block_ids=np.stack([np.arange(300) % 7, 10 + np.arange(300) % 49], axis=1).ravel(),
    block_tokens=32,
)


def test_the_rate_times_its_time_is_the_number_of_requests() -> None:
    ax = plot.request_rate({"one": PLAIN, "two": BLOCKS}, parts=4)
    for steps, trace in zip(ax.patches, (PLAIN, BLOCKS), strict=True):
        data = steps.get_data()  # type: ignore[attr-defined]
        assert (data.values * np.diff(data.edges)).sum() == pytest.approx(len(trace))


def test_lengths_are_a_distribution() -> None:
    lines = plot.request_lengths(PLAIN).lines
    inputs = np.asarray(lines[0].get_xydata())
    assert inputs[:, 0].tolist() == [10, 10, 20, 20, 90]
    assert inputs[:, 1].tolist() == [0, 25, 50, 75, 100]


def test_the_hit_curve_is_what_caches_hold() -> None:
    line, limit = plot.hit_curve(BLOCKS, blocks=[5, 20, 56]).lines
    found = np.asarray(line.get_ydata(), dtype=float)
    assert found == pytest.approx([100 * BLOCKS.prefix_hits(n).fraction for n in (5, 20, 56)])
    assert (np.diff(found) >= 0).all()
    assert found[-1] == pytest.approx(np.asarray(limit.get_ydata(), dtype=float)[0])
    assert np.asarray(plot.hit_curve(BLOCKS).lines[0].get_xdata())[-1] == 56


def test_what_cannot_be_drawn_is_named() -> None:
    with pytest.raises(ScaleModelError, match="traces: must have blocks of the prompts"):
        plot.hit_curve(PLAIN)
    with pytest.raises(ScaleModelError, match=r"traces\['a'\]: must have blocks"):
        plot.hit_curve({"a": PLAIN})
    with pytest.raises(ScaleModelError, match="traces=int: must be a RequestStream"):
        plot.request_rate(7)  # type: ignore[arg-type]
    with pytest.raises(ScaleModelError, match="at least one is needed"):
        plot.request_lengths({})
    with pytest.raises(ScaleModelError, match="parts=0: must be a whole number"):
        plot.request_rate(PLAIN, parts=0)
    with pytest.raises(ScaleModelError, match="all requests come at once"):
        plot.request_rate(sm.Trace([1.0, 1.0], [1, 1], [1, 1]))
