"""Plots of fleets draw what the tables say, and say what is missing."""

from __future__ import annotations

import numpy as np
import pytest

import scalemodel as sm
from scalemodel import plot
from scalemodel.base.errors import ScaleModelError
from scalemodel.serving import RequestStream, ServedFleet

pytestmark = pytest.mark.usefixtures("agg")

TASK = sm.Inference(input_tokens=800, output_tokens=100)


@pytest.fixture(scope="module")
def served() -> ServedFleet:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=4)
    stream = sm.request_stream(TASK, requests=2000, requests_per_s=60, arrivals="bursty")
    rule = sm.Autoscaler(target=8.0, interval_s=2.0, startup_s=3.0, down_window_s=10.0)
    return sm.simulate_fleet(stream, plan, router="least_loaded", autoscaler=rule)


def drawn(served: ServedFleet, quantity: str, parts: int = 20) -> tuple[np.ndarray, np.ndarray]:
    (steps,) = plot.fleet_load(served, quantity, parts=parts).patches
    data = steps.get_data()  # type: ignore[attr-defined]
    return np.asarray(data.values), np.asarray(data.edges)


def test_the_rate_times_its_time_is_the_number_of_requests(served: ServedFleet) -> None:
    values, edges = drawn(served, "rate")
    assert (values * np.diff(edges)).sum() == pytest.approx(len(served.stream))


def test_the_queue_is_the_waits_of_the_requests(served: ServedFleet) -> None:
    values, edges = drawn(served, "queue")
    end = served.stream.arrival_s[-1]
    waits = np.minimum(served.first_token_s, end) - served.stream.arrival_s
    assert (values * np.diff(edges)).sum() == pytest.approx(waits.sum())


def test_replicas_are_those_of_the_autoscaler(served: ServedFleet) -> None:
    values, _ = drawn(served, "replicas", parts=200)
    assert values[0] == 1
    assert values.max() == pytest.approx(served.scaling.online.max())
    assert values.max() > 1
    table = served.scaling
    times = np.append(table.time_s, served.stream.arrival_s[-1])
    mean = (table.online * np.diff(times)).sum() / (times[-1] - times[0])
    assert values.mean() == pytest.approx(mean)


def test_hits_and_waits_are_by_time_of_arrival(served: ServedFleet) -> None:
    values, _ = drawn(served, "hits")
    assert (values == 0).all()  # The trace names no blocks.
    waits, _ = drawn(served, "ttft_p99", parts=1)
    assert waits[0] == pytest.approx(served.requests.ttft_s.quantile(0.99))


def test_percentiles_are_those_of_the_summary(served: ServedFleet) -> None:
    ax = plot.latency_percentiles({"a": served}, limit_s=0.1)
    slower, times = ax.lines[0].get_data()
    assert np.interp(10, np.asarray(slower)[::-1], np.asarray(times)[::-1]) == pytest.approx(
        served.summary()["ttft_p90_s"], rel=0.02
    )


def test_the_front_is_the_most_goodput_within_a_cost() -> None:
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    stream = sm.request_stream(TASK, requests=800, requests_per_s=80)
    table = sm.study_fleets(
        stream, [(plan, n) for n in (4, 1, 2)], limits={"ttft_s": 0.2, "tpot_s": 0.02}
    )
    assert table.usd_per_hour.tolist() == pytest.approx(
        [3600 * n * plan.cluster.core.price_usd_per_s for n in (4, 1, 2)], rel=1e-6
    )
    points, front = plot.fleet_front(table).lines
    assert sorted(points.get_ydata()) == sorted(100 * table.goodput_fraction)
    assert (np.diff(np.asarray(front.get_ydata())) >= 0).all()


def test_what_cannot_be_drawn_is_named(served: ServedFleet) -> None:
    with pytest.raises(ScaleModelError, match="served=int: must be a ServedFleet"):
        plot.fleet_load(7)  # type: ignore[arg-type]
    with pytest.raises(ScaleModelError, match="quantity='x': must be one of rate"):
        plot.fleet_load(served, "x")
    with pytest.raises(ScaleModelError, match="parts=0: must be a whole number"):
        plot.fleet_load(served, parts=0)
    with pytest.raises(ScaleModelError, match="metric='x': must be one of ttft_s"):
        plot.latency_percentiles(served, "x")
    with pytest.raises(ScaleModelError, match="at least one is needed"):
        plot.fleet_front({})
    plan = sm.serve("llama3_8b", "dgx_h100", TASK, replicas=1)
    once = sm.simulate_fleet(RequestStream([1.0, 1.0], [9, 9], [9, 9]), plan)
    with pytest.raises(ScaleModelError, match="all requests come at once"):
        plot.fleet_load(once)
