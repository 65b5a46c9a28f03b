"""Predicted beside measured in the trackers of a job."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from frameworks import tools
from frameworks.trackers import STEPS_S

TASK = sm.Training(global_batch=64, sequence=8192)
EST = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), TASK, sm.Strategy(tp=2))


class Calls:
    """Takes the calls of trackers as their documentation has them."""

    def __init__(self) -> None:
        self.found: list[tuple[int, dict[str, float]]] = []


class TensorBoard(Calls):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = None) -> None:
        self.found.append((global_step or 0, {tag: scalar_value}))


class Mlflow(Calls):
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.found.append((step or 0, metrics))


class Wandb(Calls):
    def log(self, data: dict[str, Any], step: int | None = None) -> None:
        self.found.append((step or 0, data))


def written(calls: Calls) -> dict[int, dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    for step, metrics in calls.found:
        rows.setdefault(step, {}).update(metrics)
    return rows


def check_rows(rows: dict[int, dict[str, float]], first: int) -> None:
    assert list(rows) == [first + step for step in range(2, 6)]
    for number, (row, seconds) in enumerate(zip(rows.values(), STEPS_S[1:], strict=True), 1):
        values = {name.removeprefix("scalemodel/"): value for name, value in row.items()}
        assert len(values) == 10
        assert values["measured_step_time_s"] == pytest.approx(seconds)
        assert values["predicted_step_time_s"] == pytest.approx(EST.step_time_s)
        interval = EST.interval()
        assert interval is not None
        assert values["predicted_low_s"] == pytest.approx(interval.low_s)
        assert values["predicted_high_s"] == pytest.approx(interval.high_s)
        median = sorted(STEPS_S[1 : number + 1])
        assert median[0] <= values["median_step_time_s"] <= median[-1]
        assert values["error_fraction"] == pytest.approx(
            EST.step_time_s / values["median_step_time_s"] - 1, rel=1e-5
        )
        assert values["tokens_per_s"] == pytest.approx(64 * 8192 / seconds, rel=1e-5)
        assert values["measured_memory_bytes"] == pytest.approx(6e10, rel=1e-5)
        assert values["predicted_memory_bytes"] == pytest.approx(EST.memory_bytes, rel=1e-5)


def run(writer: Any, **options: int) -> sm.StepTimeMonitor:
    monitor = sm.StepTimeMonitor(EST, window=10, warm_up=1).log_to(writer, **options)
    for seconds in STEPS_S:
        monitor.step(seconds, memory_bytes=6e10)
    return monitor


@pytest.mark.parametrize("kind", [TensorBoard, Mlflow, Wandb])
def test_every_tracker_gets_the_same(kind: type[Calls]) -> None:
    calls = kind()
    run(calls, first_step=100)
    check_rows(written(calls), 100)


def test_a_function_and_several_trackers() -> None:
    told: list[int] = []
    calls = Mlflow()
    monitor = sm.StepTimeMonitor(EST, warm_up=0).log_to(calls, every=2)
    monitor.log_to(lambda _, step: told.append(step))
    for seconds in STEPS_S:
        monitor.step(seconds)
    assert told == [1, 2, 3, 4, 5]
    assert list(written(calls)) == [2, 4]
    assert "scalemodel/measured_memory_bytes" not in calls.found[0][1]


def test_a_tracker_that_fails_does_not_end_the_job() -> None:
    class Broken(Calls):
        def log(self, data: dict[str, Any], step: int | None = None) -> None:
            self.found.append((step or 0, data))
            raise OSError("no space left on device")

    broken, working = Broken(), Mlflow()
    monitor = sm.StepTimeMonitor(EST, warm_up=0).log_to(broken).log_to(working)
    with pytest.warns(RuntimeWarning, match="Broken takes no metrics .no space left"):
        monitor.step(8.0)
    monitor.step(8.0)
    assert len(broken.found) == 1
    assert len(working.found) == 2


@pytest.mark.parametrize(
    "writer, options, says",
    [
        (3, {}, "writer=3: must have add_scalar"),
        (Mlflow(), {"every": 0}, "every=0: must be a whole number from 1"),
        (Mlflow(), {"first_step": -1}, "first_step=-1: must be a whole number from 0"),
    ],
)
def test_what_takes_no_metrics_is_refused(writer: Any, options: Any, says: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.StepTimeMonitor(EST).log_to(writer, **options)


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "tensorboard"])
def test_real_trackers_take_them(tracker: str, tmp_path: Path) -> None:
    python = tools.interpreter_with(tracker)
    done = subprocess.run(
        [python, str(Path(tools.__file__).with_name("trackers.py")), tracker, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={**tools.environment(), "PYTHONPATH": str(Path(sm.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(done.stdout.splitlines()[-1])
    by_step = {row.pop("step"): row for row in rows}
    if tracker == "wandb":  # an offline run shows its last step
        assert list(by_step) == [105]
        assert by_step.popitem()[1]["scalemodel/measured_step_time_s"] == STEPS_S[-1]
        return
    check_rows(by_step, 100)
    if tracker == "tensorboard":
        (events,) = (tmp_path / "events").iterdir()
        assert sm.compare_log(events, EST).median_s == pytest.approx(8.375)
