"""Plots of serving draw what the tables say, with units, and say what is missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D

import scalemodel as sm
from scalemodel import plot
from scalemodel.serving import ServedStream, rate_table

pytestmark = pytest.mark.usefixtures("agg")

CHAT = sm.Inference(input_tokens=1000, output_tokens=200)


@pytest.fixture(scope="module")
def served() -> ServedStream:
    plan = sm.serve("llama3_8b", "dgx_h100", CHAT, requests_per_s=30, replicas=2)
    return plan.simulate(requests=800, lengths="exponential", arrivals="bursty", seed=2)


def drawn(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_xydata())


# ------------------------------------------------------------------------------ cache over time
def test_the_cache_holds_what_requests_hold(served: ServedStream) -> None:
    table = served.occupancy(points=4001)
    frame = served.requests
    assert table.time_s.iloc[0] == 0
    assert table.cached_tokens.iloc[-1] == pytest.approx(0, abs=1e-3)
    # At any time: prompts of those that have started, and the grown part of their answers.
    for at in (200, 1700, 3300):
        now = table.time_s[at] + frame.arrival_s[0]
        inside = frame[(frame.started_s <= now) & (now < frame.finished_s)]
        grown = (now - inside.first_token_s).clip(lower=0) / (
            inside.finished_s - inside.first_token_s
        )
        tokens = (inside.input_tokens + grown * inside.output_tokens).sum()
        assert table.cached_tokens[at] == pytest.approx(tokens, rel=1e-9)
        assert table.running[at] == (inside.first_token_s <= now).sum()
        assert table.waiting[at] == ((frame.arrival_s <= now) & (now < frame.started_s)).sum()
    # The mean over time is that of the integrals that the simulation kept.
    running = served.totals.running_s / served.totals.makespan_s
    assert table.running.mean() == pytest.approx(running, rel=0.02)
    with pytest.raises(sm.ScaleModelError, match="points"):
        served.occupancy(points=1)


def test_caches_that_overflow_are_full() -> None:
    task = sm.Inference(input_tokens=3000, output_tokens=3000)
    plan = sm.serve("llama3_8b", "dgx_h100", task, requests_per_s=50)
    flooded = plan.simulate(requests=2000)
    assert flooded.summary()["preemptions"] > 0
    share = flooded.occupancy(points=200).cache_fraction
    assert share.max() == 1
    assert (share == 1).mean() > 0.2


def test_occupancy_is_drawn_as_a_share_with_requests_beside(served: ServedStream) -> None:
    table = served.occupancy(points=100)
    ax = plot.cache_occupancy(served, points=100)
    assert drawn(ax.lines[0])[:, 1].tolist() == pytest.approx((100 * table.cache_fraction).tolist())
    beside = ax.figure.axes[1]
    assert [line.get_label() for line in beside.lines] == ["running", "waiting"]
    assert drawn(beside.lines[0])[:, 1].tolist() == table.running.tolist()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Time (s)", "Cache (%)")
    assert drawn(plot.cache_occupancy(table).lines[0]).tolist() == drawn(ax.lines[0]).tolist()
    with pytest.raises(sm.ScaleModelError, match="time_s"):
        plot.cache_occupancy(pd.DataFrame({"cache_fraction": [0.5]}))


# ------------------------------------------------------------------------------ over the rate
def test_rates_are_drawn_until_they_saturate() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", CHAT, replicas=1)
    most = plan.requests_per_s
    table = rate_table(plan, [0.2 * most, 0.5 * most, 0.8 * most, 1.2 * most])
    assert table.saturated.tolist() == [False, False, False, True]
    assert table.ttft_s.isna().tolist() == [False, False, False, True]
    one = sm.serve("llama3_8b", "dgx_h100", CHAT, replicas=1, requests_per_s=0.5 * most)
    assert table.tpot_s[1] == one.tpot_s
    ax = plot.serving_rates(table)
    first, between = ax.lines
    assert drawn(first)[:, 1].tolist() == pytest.approx((1e3 * table.ttft_s[:3]).tolist())
    assert drawn(between)[:, 1].tolist() == pytest.approx((1e3 * table.tpot_s[:3]).tolist())
    assert (ax.get_yscale(), ax.get_ylabel()) == ("log", "Time (ms)")
    assert len(ax.patches) == 1
    assert len(rate_table(plan)) == 24
    with pytest.raises(sm.ScaleModelError, match="requests_per_s"):
        rate_table(plan, [0.0])
    with pytest.raises(sm.ScaleModelError, match="does not run"):
        rate_table(sm.serve("llama3_70b", "dgx_h100", CHAT))
    with pytest.raises(sm.ScaleModelError, match="ttft_s"):
        plot.serving_rates(pd.DataFrame({"requests_per_s": [1.0]}))


# ------------------------------------------------------------------------------ the front
def test_fronts_are_steps_by_label_with_a_limit() -> None:
    plans = {
        name: sm.plan_serving("llama3_8b", name, CHAT, top=1) for name in ("dgx_a100", "dgx_h100")
    }
    ax = plot.serving_front(plans, tpot_s=0.02)
    old, new, limit = ax.lines
    front = plans["dgx_h100"].front
    assert drawn(new)[:, 0].tolist() == pytest.approx((1e3 * front.tpot_s).tolist())
    assert drawn(new)[:, 1].tolist() == pytest.approx(
        front.output_tokens_per_s_per_accelerator.tolist()
    )
    assert drawn(old)[-1, 1] < drawn(new)[-1, 1]
    assert set(limit.get_xdata()) == {20.0}
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["dgx_a100", "dgx_h100", "limit"]
    # A table in any order, with plans that others beat, gives the same steps.
    shuffled = front.sample(frac=1, random_state=1)
    worse = shuffled.assign(output_tokens_per_s_per_accelerator=1.0, tpot_s=2 * shuffled.tpot_s)
    line = plot.serving_front(pd.concat([shuffled, worse])).lines[0]
    assert drawn(line)[:, 1].max() == drawn(new)[:, 1].max()
    assert (np.diff(drawn(line)[:, 1]) >= 0).all()
    with pytest.raises(sm.ScaleModelError, match="plans"):
        plot.serving_front({})
    with pytest.raises(sm.ScaleModelError, match="tpot_s"):
        plot.serving_front(pd.DataFrame({"output_tokens_per_s_per_accelerator": [1.0]}))
