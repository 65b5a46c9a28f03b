"""Logs of running jobs, what would explain them, and the monitor."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
from scalemodel.cli import main
from scalemodel.codesign.vary import Hardware
from scalemodel.interop.jobs import SlowStepWarning, read_log, suspects

CLUSTER = sm.cluster("dgx_h100", nodes=16)
TASK = sm.Training(global_batch=512, sequence=8192)
EST = sm.estimate("llama3_70b", CLUSTER, TASK, sm.Strategy(tp=8, pp=2))
STEP_S = EST.step_time_s

MEGATRON = (
    " [2026-01-05 10:00:00] iteration {step:8d}/    5000 | consumed samples: {step} | elapsed time "
    "per iteration (ms): {ms:.1f} | throughput per GPU (TFLOP/s/GPU): 401.5 | learning rate: 1e-4 |"
)
TORCHTITAN = (
    "[titan] 2026-01-05 10:00:00,000 - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss:  8.1 "
    "grad_norm: 1.2 \x1b[38;2;180;60;0mmemory: 47.25GiB(59.70%)  \x1b[34mtps: {tps:,.0f}  "
    "\x1b[36mtflops: 410.50  \x1b[35mmfu: 41.50%\x1b[39m"
)
NEMO = (
    "Training epoch 0, iteration {step}/99 | lr: 1e-06 | global_batch_size: 512 | "
    "global_step: {step} | reduced_train_loss: 11.0 | train_step_timing in s: {s:.4f}"
)
DEEPSPEED = (
    "[INFO] [timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, "
    "RunningAvgSamplesPerSec=1.0, CurrSamplesPerSec={samples:.6f}, MemAllocated=21.49GB, "
    "MaxMemAllocated=39.6GB"
)
COMPOSER = (
    "[batch={step}/3200]:\n Train time/batch: 9\n Train throughput/device/tokens_per_sec: {tps:.4f}"
)
MAXTEXT = (
    "completed step: {step}, seconds: {s:.3f}, TFLOP/s/device: 200.1, Tokens/s/device: {tps:.3f}"
)
BAR = " 20%|## | {step}/500 [00:30<20:20,  {s:.4f}s/it]"


def written(line: str, times_s: list[float]) -> str:
    tokens = TASK.global_batch * TASK.sequence
    return "\n".join(
        [
            "job starts",
            *(
                line.format(
                    **{"step": step, "s": time_s, "ms": 1000 * time_s},
                    tps=tokens / time_s / CLUSTER.accelerators,
                    samples=TASK.global_batch / time_s,
                )
                for step, time_s in enumerate(times_s, 1)
            ),
            "job ends",
        ]
    )


# ------------------------------------------------------------------------------------------ logs
@pytest.mark.parametrize(
    "framework, line",
    [
        *(("megatron", MEGATRON), ("torchtitan", TORCHTITAN), ("nemo", NEMO)),
        *(("deepspeed", DEEPSPEED), ("composer", COMPOSER), ("maxtext", MAXTEXT)),
        ("progress_bar", BAR),
    ],
)
def test_every_format_gives_the_steps_back(framework: str, line: str, tmp_path: Path) -> None:
    times_s = [30.0, 25.0] + [20.0 + 0.1 * (i % 5) for i in range(18)]
    path = tmp_path / "train.log"
    path.write_text(written(line, times_s), encoding="utf-8")
    log = read_log(path)
    assert log.framework == framework
    assert [step.step for step in log.steps] == list(range(1, 21))
    found = sm.compare_log(path, EST)
    assert found.steps == 18
    assert found.median_s == pytest.approx(20.2, rel=1e-3)
    assert found.slow_fraction == 0
    if framework in ("torchtitan", "deepspeed"):
        assert found.memory_bytes == pytest.approx({"t": 47.25, "d": 39.6}[framework[0]] * 2**30)


@given(st.text(max_size=300))
def test_any_text_is_a_log_or_refused(text: str) -> None:
    with contextlib.suppress(sm.ScaleModelError):  # and nothing else
        assert read_log(text + "\n").steps


def test_the_arguments_of_a_log_are_the_question() -> None:
    flags = sm.launch(EST, "megatron").command
    arguments = {"world_size": str(CLUSTER.accelerators)}
    name = ""
    for word in flags:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            arguments[name] = "True"
        elif name:
            arguments[name] = word
    head = [f"  {name} {'.' * 20} {value}" for name, value in arguments.items()]
    text = "\n".join(["------ arguments ------", *head, written(MEGATRON, [STEP_S] * 9)])
    found = sm.compare_log(text, cluster="dgx_h100")
    assert found.estimate.step_time_s == pytest.approx(STEP_S, rel=1e-9)
    assert found.error_fraction == pytest.approx(0, abs=1e-4)
    assert found.within
    assert found.suspects == ()
    with pytest.raises(sm.ScaleModelError, match="cluster=None"):
        sm.compare_log(text)


def test_a_job_outside_its_interval_is_explained() -> None:
    found = sm.compare_log(written(MEGATRON, [2 * STEP_S] * 20 + [5 * STEP_S]), EST)
    assert not found.within
    assert found.error_fraction == pytest.approx(-0.5, rel=1e-3)
    assert found.slow_fraction == pytest.approx(1 / 19)
    assert found.suspects
    for text in (str(found), found.to_dict()["suspects"]):
        assert found.suspects[0].cause in text


@pytest.mark.parametrize(
    "log, says",
    [("/nowhere/train.log", "cannot be read"), ("nothing\nhere", "no line is known")],
)
def test_other_files_are_refused(log: str, says: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=says):
        sm.compare_log(log, EST)
    with pytest.raises(sm.ScaleModelError, match="prints no arguments"):
        sm.compare_log(written(MEGATRON, [1.0] * 5), cluster="dgx_h100")


# -------------------------------------------------------------------------------------- suspects
@pytest.mark.parametrize(
    "path, share, named",
    [
        ("accelerator.peak", 0.5, "accelerators at 50%"),
        ("scale_up.bandwidth", 0.25, "links of the domain at 25%"),
    ],
)
def test_what_was_broken_is_among_the_suspects(path: str, share: float, named: str) -> None:
    hardware = Hardware(CLUSTER)
    broken = hardware.build(hardware.design({path: share}))
    slow = sm.estimate(EST.model, broken, TASK, EST.strategy)
    found = suspects(EST, slow.step_time_s)
    assert any(each.cause.startswith(named) for each in found)
    assert found[0].explained_fraction == pytest.approx(1, abs=1e-6)


def test_nothing_explains_what_needs_no_explanation() -> None:
    assert suspects(EST, STEP_S) == []
    with pytest.raises(sm.ScaleModelError, match="measured_s=0"):
        suspects(EST, 0)


# --------------------------------------------------------------------------------- command line
JOB = [
    *("llama3_70b", "--cluster", "dgx_h100", "--nodes", "16", "--global-batch", "512"),
    *("--sequence", "8192", "--tp", "8", "--pp", "2"),
]


def test_commands_say_what_python_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    path.write_text(written(TORCHTITAN, [2 * STEP_S] * 9), encoding="utf-8")
    assert main(["compare-log", str(path), *JOB, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == sm.compare_log(path, EST).to_dict()
    assert main(["compare-log", str(path), *JOB]) == 0
    assert capsys.readouterr().out == f"{sm.compare_log(path, EST)}\n"
    assert main(["compare-log", str(path), "--cluster", "dgx_h100"]) == 2
    assert "prints no arguments" in capsys.readouterr().err
    assert main(["compare-log", str(path), "llama3_70b", "--cluster", "dgx_h100"]) == 2
    assert "needs --global-batch, --sequence" in capsys.readouterr().err
    assert main(["launch", *JOB, "--framework", "megatron"]) == 0
    assert capsys.readouterr().out == sm.launch(EST, "megatron").script()
    assert main(["launch", *JOB, "--framework", "deepspeed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["launch"]["framework"] == "deepspeed"
    assert main(["launch", *JOB, "--tp", "7", "--framework", "megatron"]) == 3
    assert capsys.readouterr().out.startswith("illegal:")


# --------------------------------------------------------------------------------------- monitor
def test_a_monitor_speaks_once_when_a_job_falls_behind() -> None:
    said: list[str] = []
    monitor = sm.StepTimeMonitor(EST, window=5, warm_up=2, on_slow=said.append)
    for _ in range(20):
        monitor.step(STEP_S)
    assert not said
    for _ in range(20):
        monitor.step(2 * STEP_S)
    assert len(said) == 1
    assert monitor.behind
    for _ in range(10):
        monitor.step(STEP_S)
    assert not monitor.behind
    for _ in range(10):
        monitor.step(2 * STEP_S)
    assert len(said) == 2
    assert monitor.steps == 60


def test_a_monitor_warns_by_default() -> None:
    monitor = sm.StepTimeMonitor(EST, window=1, warm_up=0)
    with pytest.warns(SlowStepWarning, match="would explain"):
        monitor.step(2 * STEP_S)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.step(2 * STEP_S)  # said already


def test_a_monitored_job_is_a_row_that_validate_reads(tmp_path: Path) -> None:
    monitor = sm.StepTimeMonitor(EST, window=3, warm_up=0)
    for _ in range(3):
        monitor.step(STEP_S)
    path = tmp_path / "runs.csv"
    monitor.write_row(path)
    monitor.write_row(path)
    table = sm.validate("training", path)
    assert len(table) == 2
    assert (table.skip_reason.fillna("") == "").all()
    assert table.predicted_step_time_s.to_numpy() == pytest.approx([STEP_S] * 2, rel=0.15)


@pytest.mark.parametrize(
    "adapter, module, base, begin, end",
    [
        ("hugging_face", "transformers", "TrainerCallback", "on_step_begin", "on_step_end"),
        (
            "lightning",
            "pytorch_lightning",
            "Callback",
            "on_train_batch_start",
            "on_train_batch_end",
        ),
    ],
)
def test_adapters_time_each_step(
    monkeypatch: pytest.MonkeyPatch, adapter: str, module: str, base: str, begin: str, end: str
) -> None:
    monitor = sm.StepTimeMonitor(EST)
    monkeypatch.setitem(sys.modules, module, None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "lightning", None)  # type: ignore[arg-type]
    with pytest.raises(sm.ScaleModelError, match=f"pip install {module}"):
        getattr(monitor, adapter)()
    fake: Any = ModuleType(module)
    setattr(fake, base, type(base, (), {}))
    monkeypatch.setitem(sys.modules, module, fake)
    callback = getattr(monitor, adapter)()
    assert isinstance(callback, getattr(fake, base))
    getattr(callback, end)("trainer")  # before any beginning: nothing to time
    for _ in range(3):
        getattr(callback, begin)("trainer", state=1)
        getattr(callback, end)("trainer", state=1)
    assert monitor.steps == 3


@pytest.mark.parametrize("wrong", [{"window": 0}, {"warm_up": -1}, {"window": 2.5}])
def test_wrong_counts_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(sm.ScaleModelError, match=next(iter(wrong))):
        sm.StepTimeMonitor(EST, **wrong)
    monitor = sm.StepTimeMonitor(EST)
    with pytest.raises(sm.ScaleModelError, match="seconds=-1"):
        monitor.step(-1)
    with pytest.raises(sm.ScaleModelError, match="all of them warm-up"):
        monitor.report()


# ------------------------------------------------------------------------------------ step tables
@pytest.mark.parametrize(
    "text, step, field, value",
    [
        ('{"step": 1, "step_time_ms": 250}\n{"step": 2, "step_time_ms": 250}', 1, "time_s", 0.25),
        ('{"_step": 7, "_timestamp": 100.0}\n{"_step": 9, "_timestamp": 103.0}', 9, "time_s", 1.5),
        ("step,loss,throughput(tps)\n4,2.0,5000\n5,,5000", 4, "tokens_per_s_accelerator", 5000.0),
        ("step,time/total\n2,10\n,\n2,11\n4,14.5", 4, "time_s", 2.25),
        ('{"iter": 3, "samples_per_sec": "12.5"}\n', 3, "samples_per_s", 12.5),
        ("{'loss': 1.5}\n{'train_runtime': 8.0, 'train_steps_per_second': 4.0}", 1, "time_s", 0.25),
    ],
)
def test_a_number_of_a_table_means_what_its_name_says(
    text: str, step: int, field: str, value: float
) -> None:
    first = read_log(text + "\n").steps[0]
    assert (first.step, getattr(first, field)) == (step, value)


def test_times_are_surer_than_rates_and_rates_than_clocks() -> None:
    rows = [
        {"step": n, "tokens_per_s": 1000.0, "timestamp": 50.0 * n, "step_time_s": 2.0, "loss": 1}
        for n in range(1, 6)
    ]
    dropped: list[str] = []
    for name, told in (
        ("step_time_s", lambda step: step.time_s == 2.0),
        ("tokens_per_s", lambda step: step.tokens_per_s == 1000.0),
        ("timestamp", lambda step: step.time_s == 50.0),
    ):
        kept = [{key: cell for key, cell in row.items() if key not in dropped} for row in rows]
        log = read_log("\n".join(json.dumps(row) for row in kept))
        assert log.framework == "json_lines"
        assert all(told(step) for step in log.steps)
        dropped.append(name)
    kept = [{key: cell for key, cell in row.items() if key not in dropped} for row in rows]
    with pytest.raises(sm.ScaleModelError, match="no line is known"):
        read_log("\n".join(json.dumps(row) for row in kept))


def test_a_broken_file_of_tensorboard_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[2] / "frameworks" / "recorded" / "accelerate" / "events"
    raw = next(recorded.iterdir()).read_bytes()
    path = tmp_path / "events"
    whole = len(read_log(next(recorded.iterdir())).steps)
    counts = []
    for part in (0.02, 0.5, 0.9):
        path.write_bytes(raw[: int(part * len(raw))])
        with contextlib.suppress(sm.ScaleModelError):
            counts.append(len(read_log(path).steps))
    assert 0 < counts[-2] < counts[-1] <= whole
    path.write_bytes(raw[:200] + bytes(255 - byte for byte in raw[200:]))
    with contextlib.suppress(sm.ScaleModelError):  # and nothing else
        read_log(path)
