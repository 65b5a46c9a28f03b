"""A step-time monitor for a running job, with adapters for training loops."""

from __future__ import annotations

import csv
import os
import statistics
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.words import named_fields
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import running_estimate
from scalemodel.interop.jobs.suspects import Suspect, suspects
from scalemodel.interop.jobs.writers import Writer
from scalemodel.validation.rows import cell_text


class SlowStepWarning(UserWarning):
    """A job runs slower than the interval of its prediction."""


@named_fields
class StepTimeMonitor:
    """Compares the steps of a running job with their prediction and says when they fall behind.

    Parameters
    ----------
    est : Estimate
        Of the job; its strategy must be one that can run.
    window : int
        Steps of which the median counts.
    warm_up : int
        First steps that do not count.
    on_slow : callable, optional
        Called with the text of a warning; default: `warnings.warn`. Called once when the job falls
        behind, and again only after it had caught up.

    Raises
    ------
    ScaleModelError : a strategy that cannot run, or a count below 1.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> said = []
    >>> monitor = sm.StepTimeMonitor(est, window=3, warm_up=0, on_slow=said.append)
    >>> for _ in range(3):
    ...     monitor.step(2 * est.step_time_s)
    >>> len(said), round(monitor.error_fraction, 2)
    (1, -0.5)
    """

    def __init__(
        self,
        est: Estimate,
        *,
        window: int = 50,
        warm_up: int = 5,
        on_slow: Callable[[str], object] | None = None,
    ) -> None:
        est = running_estimate(est)
        for name, value, least in (("window", window, 1), ("warm_up", warm_up, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ScaleModelError(f"{name}={value!r}: must be a whole number from {least}")
        self.estimate = est
        self._times_s: deque[float] = deque(maxlen=window)
        self._warm_up = warm_up
        self._seen = 0
        self._behind = False
        self._memory_bytes = 0.0
        self._on_slow = on_slow
        self._writers: list[Writer] = []
        interval = est.interval()
        self._interval_s = (interval.low_s, interval.high_s) if interval else None
        self._limit_s = interval.high_s if interval else float(est.core.step_time_s)

    def step(self, seconds: float, *, memory_bytes: float | None = None) -> None:
        """Record one step.

        Parameters
        ----------
        seconds : float
            That it took.
        memory_bytes : float, optional
            Most that the fullest accelerator held.

        Raises
        ------
        ScaleModelError : a time that is not above 0.
        """
        if not seconds > 0:
            raise ScaleModelError(f"seconds={seconds!r}: must be above 0")
        self._seen += 1
        self._memory_bytes = max(self._memory_bytes, memory_bytes or 0.0)
        if self._seen <= self._warm_up:
            return
        self._times_s.append(float(seconds))
        if self._writers:
            metrics = self._metrics(float(seconds))
            for writer in self._writers:
                writer.write(metrics, self._seen)
        if len(self._times_s) < (self._times_s.maxlen or 1):
            return
        behind = self.median_s > self._limit_s
        if behind and not self._behind:
            self._say(self.report())
        self._behind = behind

    def _say(self, text: str) -> None:
        if self._on_slow is not None:
            self._on_slow(text)
        else:
            warnings.warn(text, SlowStepWarning, stacklevel=4)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Record the body of a ``with`` as one step; it must wait for the accelerator itself.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Training(global_batch=64, sequence=8192)
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
        >>> monitor = sm.StepTimeMonitor(est)
        >>> with monitor.timed():
        ...     pass
        >>> monitor.steps
        1
        """
        begin = time.perf_counter()
        yield
        self.step(max(time.perf_counter() - begin, 1e-9))

    @property
    def steps(self) -> int:
        """Recorded so far, warm-up included."""
        return self._seen

    @property
    def median_s(self) -> float:
        """Median of the last window.

        Raises
        ------
        ScaleModelError : nothing but warm-up was recorded.
        """
        if not self._times_s:
            raise ScaleModelError(f"monitor: {self._seen} steps so far, all of them warm-up")
        return statistics.median(self._times_s)

    @property
    def error_fraction(self) -> float:
        """Predicted over measured, less one."""
        return float(self.estimate.core.step_time_s) / self.median_s - 1

    @property
    def behind(self) -> bool:
        """Whether the last full window was slower than the interval of the prediction."""
        return self._behind

    def suspects(self, count: int = 3) -> list[Suspect]:
        """What would explain the difference; see `jobs.suspects`."""
        return suspects(self.estimate, self.median_s, count)

    def report(self) -> str:
        """One line on measured and predicted time, and one per suspect."""
        from scalemodel.base.text import percent_text, time_text
        from scalemodel.estimator.uncertainty import step_text

        lines = [
            f"step {time_text(self.median_s)}, predicted {step_text(self.estimate)} "
            f"({percent_text(self.error_fraction, signed=True)})"
        ]
        lines += [
            f"would explain {percent_text(each.explained_fraction)} of it: {each.cause}"
            f" (check: {each.check})"
            for each in self.suspects()
        ]
        return "\n".join(lines)

    def write_row(self, path: str | os.PathLike[str]) -> None:
        """Append the job as a row that `validate` of training runs reads.

        Raises
        ------
        ScaleModelError : the file cannot be written, or nothing was recorded.
        """
        row = _measured_row(self)
        try:
            fresh = not os.path.exists(path) or os.path.getsize(path) == 0
            with open(path, "a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow({key: cell_text(cell) for key, cell in row.items()})
        except OSError as error:
            raise ScaleModelError(
                f"path={os.fspath(path)!r} cannot be written: {error.strerror or error}",
                code="unwritable_file",
            ) from None

    # ------------------------------------------------------------------------------- adapters
    def log_to(self, writer: Any, *, every: int = 1, first_step: int = 0) -> StepTimeMonitor:
        """Write predicted beside measured to a tracker, from the first step after the warm-up.

        Written are ``scalemodel/`` followed by measured_step_time_s, median_step_time_s (of the
        window), predicted_step_time_s, predicted_low_s, predicted_high_s (the ends of its
        interval), error_fraction (predicted over the median, less one), tokens_per_s,
        predicted_tokens_per_s, predicted_memory_bytes and, where it is known,
        measured_memory_bytes. `compare_log` reads them back from the tracker's files. A tracker
        that fails is named in a warning and left alone; give it on one rank only.

        Parameters
        ----------
        writer : object
            ``SummaryWriter`` of TensorBoard; ``mlflow`` or a logger of Lightning; a run of Weights
            & Biases or an ``Accelerator``; or a function of metrics and step
            (`jobs.write_function`).
        every : int
            Steps from one write to the next.
        first_step : int
            Steps of the job before the monitor's first: trackers refuse steps that go back.

        Returns
        -------
        StepTimeMonitor
            The monitor itself.

        Raises
        ------
        ScaleModelError : an object that takes no metrics, or a count below its least.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Training(global_batch=64, sequence=8192)
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
        >>> told = {}
        >>> monitor = sm.StepTimeMonitor(est, warm_up=0).log_to(lambda m, step: told.update(m))
        >>> monitor.step(8.0)
        >>> told["scalemodel/measured_step_time_s"], round(told["scalemodel/predicted_step_time_s"])
        (8.0, 7)
        """
        self._writers.append(Writer(writer, every, first_step))
        return self

    def _metrics(self, seconds: float) -> dict[str, float]:
        est = self.estimate
        predicted_s = float(est.core.step_time_s)
        tokens = est.task.global_batch * est.task.sequence
        found = {
            "measured_step_time_s": seconds,
            "median_step_time_s": self.median_s,
            "predicted_step_time_s": predicted_s,
            "error_fraction": self.error_fraction,
            "tokens_per_s": tokens / seconds,
            "predicted_tokens_per_s": tokens / predicted_s,
            "predicted_memory_bytes": float(est.core.memory_bytes),
        }
        if self._interval_s is not None:
            found |= dict(
                zip(("predicted_low_s", "predicted_high_s"), self._interval_s, strict=True)
            )
        if self._memory_bytes:
            found["measured_memory_bytes"] = self._memory_bytes
        return found

    def hugging_face(self) -> Any:
        """A ``TrainerCallback`` for Hugging Face's Trainer (needs transformers)."""
        base = _imported("transformers", "TrainerCallback")
        return _callback(base, {"on_step_begin": "begin", "on_step_end": "end"}, self)

    def lightning(self) -> Any:
        """A ``Callback`` for Lightning's Trainer (needs lightning or pytorch_lightning)."""
        try:
            base = _imported("lightning.pytorch", "Callback")
        except ScaleModelError:
            base = _imported("pytorch_lightning", "Callback")
        names = {"on_train_batch_start": "begin", "on_train_batch_end": "end"}
        return _callback(base, names, self)


def _imported(module: str, name: str) -> Any:
    import importlib

    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        package = module.partition(".")[0]
        raise ScaleModelError(
            f"{name} needs {package}: pip install {package}", code="missing_extra"
        ) from None


def _callback(base: Any, names: dict[str, str], monitor: StepTimeMonitor) -> Any:
    """An instance of a framework's callback class whose hooks begin and end a step."""
    begun: list[float] = []

    def begin(*_: object, **__: object) -> None:
        begun[:] = [time.perf_counter()]

    def end(*_: object, **__: object) -> None:
        if begun:
            monitor.step(max(time.perf_counter() - begun.pop(), 1e-9))

    ways = {"begin": begin, "end": end}
    hooks = {name: staticmethod(ways[way]) for name, way in names.items()}
    return type("StepTimeCallback", (base,), hooks)()


def _measured_row(monitor: StepTimeMonitor) -> dict[str, object]:
    """Columns of the table of measured training runs."""
    est = monitor.estimate
    plan, shape, task = est.strategy, est.model.shape, est.task
    accelerators = est.cluster.accelerators
    return {
        "row_id": f"{est.model.name}-{accelerators}",
        "source": "step-time monitor",
        "framework": est.stack,
        "model": est.model.name,
        "n_layers": shape.layers,
        "hidden": shape.hidden,
        "n_heads": shape.heads,
        "n_kv_heads": shape.kv_heads or shape.heads,
        "head_dim": shape.head_dim or shape.hidden // shape.heads,
        "ffn": shape.ffn,
        "gated_ffn": int(shape.gated),
        "vocab": shape.vocab,
        "moe_experts": shape.experts,
        "moe_topk": shape.experts_per_token,
        "moe_shared": shape.shared_experts,
        "moe_ffn": shape.expert_ffn,
        "task": "pretrain",
        "seq_len": task.sequence,
        "micro_batch": plan.micro_batch,
        "global_batch": task.global_batch,
        "precision": task.precision,
        "gpu": est.cluster.accelerator,
        "n_gpus": accelerators,
        "gpus_per_node": int(est.cluster.core.node_accelerators),
        "nic_gbps_per_gpu": 8e-9 * float(est.cluster.core.fabric.bandwidth_bytes_per_s),
        **{name: getattr(plan, name) for name in ("tp", "pp", "cp", "ep", "vpp")},
        "dp": int(est.core.dp),
        "sharding": plan.sharding,
        "recompute": plan.recompute,
        "seq_parallel": "yes" if plan.sequence_parallel else "no",
        "status": "ok",
        "norm_step_time_s": monitor.median_s,
        "norm_tokens_s_gpu": task.global_batch * task.sequence / monitor.median_s / accelerators,
    }
