"""The monitor writing to real trackers: ``python trackers.py NAME FOLDER`` prints what arrived.

NAME is mlflow, wandb (offline) or tensorboard. `scalemodel` must be importable.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import scalemodel as sm

STEPS_S = (9.0, 8.0, 7.5, 8.5, 8.25)


def monitored(writer: Any) -> None:
    """Five steps, the first of them warm-up, written from step 100 of the job on."""
    task = sm.Training(global_batch=64, sequence=8192)
    est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    monitor = sm.StepTimeMonitor(est, window=10, warm_up=1)
    monitor.log_to(writer, first_step=100)
    for seconds in STEPS_S:
        monitor.step(seconds, memory_bytes=6e10)


def mlflow(folder: Path) -> list[dict[str, Any]]:
    import mlflow as tracker

    tracker.set_tracking_uri((folder / "runs").as_uri())
    with tracker.start_run() as run:
        monitored(tracker)
    client = tracker.MlflowClient()
    rows: dict[int, dict[str, Any]] = {}
    for name in client.get_run(run.info.run_id).data.metrics:
        for item in client.get_metric_history(run.info.run_id, name):
            rows.setdefault(item.step, {})[name] = item.value
    return [{"step": step, **row} for step, row in sorted(rows.items())]


def wandb(folder: Path) -> list[dict[str, Any]]:
    import wandb as tracker

    run = tracker.init(mode="offline", project="loop", dir=str(folder))
    monitored(run)
    step = run.step
    run.log({"end": 1}, step=step + 1)  # a step is sent when the next one begins
    last = {name: run.summary[name] for name in dict(run.summary) if "/" in name}
    run.finish()
    return [{"step": step, **last}]


def tensorboard(folder: Path) -> list[dict[str, Any]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder / "events")) as writer:
        monitored(writer)
    read = EventAccumulator(str(folder / "events"))
    read.Reload()
    rows: dict[int, dict[str, Any]] = {}
    for name in read.Tags()["scalars"]:
        for item in read.Scalars(name):
            rows.setdefault(item.step, {})[name] = item.value
    return [{"step": step, **row} for step, row in sorted(rows.items())]


if __name__ == "__main__":
    # mlflow-skinny has no database, and asks for this to write files.
    os.environ |= {"WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    found = {"mlflow": mlflow, "wandb": wandb, "tensorboard": tensorboard}[sys.argv[1]]
    print(json.dumps(found(Path(sys.argv[2]))))
