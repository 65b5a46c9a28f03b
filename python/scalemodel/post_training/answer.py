"""What a step of post-training takes: what its answers share, and that of `estimate_rl`."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import scalemodel._core as _core
from scalemodel.base.text import time_text
from scalemodel.estimator.estimate import INTERVAL_COLUMNS, Estimate
from scalemodel.estimator.uncertainty import Interval
from scalemodel.post_training.task import Rl, Sequences
from scalemodel.post_training.weights import reference
from scalemodel.serving.plans import cells_html
from scalemodel.serving.serve import Serving

if TYPE_CHECKING:
    import pandas as pd


class PhasedStep(ABC):
    """A step of several phases, on pools of accelerators: what its answers share."""

    task: Sequences
    colocated: bool
    accelerators: int
    phases: Any
    step_time_s: float
    training: Estimate
    verdict: str
    reason: str

    @property
    def samples_per_s(self) -> float:
        """Answers trained on, or pairs of them, a second."""
        return self.task.samples / self.step_time_s

    @property
    def tokens_per_s_per_accelerator(self) -> float:
        """Tokens of prompts and answers a second, over the accelerators of all pools."""
        sequences_per_s = self.task.sequences / self.step_time_s
        return sequences_per_s * self.task.mean_length() / self.accelerators

    def interval(self) -> Interval | None:
        """Where a measured step would lie; None where the step cannot run, or none was measured."""
        return None

    @property
    @abstractmethod
    def extrapolates(self) -> tuple[str, ...]:
        """In what the question lies beyond every measured run; empty inside what was measured."""

    def _ends(self) -> dict[str, Any]:
        """Ends of the interval, and why it is wide or there is none."""
        interval = self.interval()
        low_s, high_s = (None, None) if interval is None else interval[:2]
        ends = (low_s, high_s, "; ".join(self.extrapolates))
        return dict(zip(INTERVAL_COLUMNS, ends, strict=True))

    @abstractmethod
    def _pools(self) -> Sequence[str]:
        """Whose phase each is, in their order."""

    @abstractmethod
    def _starts_s(self) -> npt.NDArray[np.float64]:
        """From the start of a step to that of each phase."""

    @abstractmethod
    def _memory(self) -> Iterable[tuple[str, float, Estimate | Serving]]:
        """Part, bytes of its fullest accelerator, and an estimate on such an accelerator."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """One flat row; None where the step cannot run."""

    def breakdown(self) -> pd.DataFrame:
        """Phases in order: phase, pool, time_s. Pools that run beside each other overlap."""
        import pandas as pd

        rows = [
            (name.removesuffix("_s"), pool, seconds)
            for (name, seconds), pool in zip(
                self.phases.to_dict().items(), self._pools(), strict=True
            )
        ]
        return pd.DataFrame(rows, columns=["phase", "pool", "time_s"])

    def timeline(self) -> pd.DataFrame:
        """Phases that take time: phase, pool, start_s, duration_s of one step in a steady state."""
        frame = self.breakdown().rename(columns={"time_s": "duration_s"})
        frame.insert(2, "start_s", self._starts_s())
        return frame[frame.duration_s > 0].reset_index(drop=True)

    def lanes(self) -> list[str]:
        """Pools that work by themselves; all are one where the same accelerators do everything."""
        pools = list(dict.fromkeys(self.timeline().pool))
        return [pool for pool in pools if pool != "both"] or pools

    def memory(self) -> pd.DataFrame:
        """Memory of the fullest accelerator: phase, memory_bytes, capacity_bytes, fits."""
        import pandas as pd

        rows = [
            (part, held, float(est.cluster.core.accelerator.memory_capacity_bytes))
            for part, held, est in self._memory()
        ]
        frame = pd.DataFrame(rows, columns=["phase", "memory_bytes", "capacity_bytes"])
        frame["fits"] = frame.memory_bytes <= frame.capacity_bytes
        return frame

    def __repr__(self) -> str:
        name = type(self).__name__
        if not math.isfinite(self.step_time_s):
            return f"{name}({self.verdict}: {self.reason})"
        parts = ", ".join(
            f"{name.removesuffix('_s')} {time_text(seconds)}"
            for name, seconds in self.phases.to_dict().items()
            if seconds > 0
        )
        said = "" if self.verdict == "ok" else f"{self.verdict}, {self.reason}: "
        return f"{name}({said}step {time_text(self.step_time_s)}: {parts})"

    def _repr_html_(self) -> str:
        if not math.isfinite(self.step_time_s):
            return f"<p>{html.escape(f'{self.verdict}: {self.reason}')}</p>"
        cells = [["phase", "pool", "time"]]
        for phase, pool, seconds in self.breakdown().itertuples(index=False):
            if seconds > 0:
                cells.append([phase, pool, time_text(seconds)])
        said = "" if self.verdict == "ok" else f"; {self.verdict}, {self.reason}"
        step = f"a step takes {time_text(self.step_time_s)}"
        return cells_html(cells, f"{self.training.model.label}: {step}{said}")


def finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row with None in place of numbers that there are not."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


@dataclass(frozen=True, repr=False)
class RlEstimate(PhasedStep):
    """What a step takes, phase by phase. Made by `estimate_rl`.

    Attributes
    ----------
    task : Rl
    colocated : bool
        Whether the same accelerators generate and train.
    staleness : int
        Steps that the policy may be older than the weights it trains.
    accelerators : int
        Of both pools.
    phases : RlPhases
        Seconds of each, infinite where the step cannot run: generation, log-probabilities of policy
        and reference, the critic's scores, all optimizer steps, new weights, sleeping and waking.
    step_time_s : float
        Of a whole step: the sum where one phase waits for the other, else the longer of both pools
        with the new weights.
    rollout_period_s : float
        Of the pool that generates from step to step: less than its phase where staleness lets
        several batches be under way.
    training, serving : Estimate, Serving
        One optimizer step, and one replica of the engine.
    framework, options : str, dict
        As they were asked for: memory_share, logprob_batch, partial_rollouts, refit,
        stale_fraction.
    critic : Estimate or None
        One optimizer step of the critic.
    rollout_memory_bytes : float
        Of an accelerator of the engine, by its share of memory.
    verdict, reason : str
        ``"ok"``, or what stands in the way and where. Numbers of a training step that does not fit
        are filled all the same.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
    ...              limit_tokens=4096)
    >>> step = sm.estimate_rl("llama3_8b", "dgx_h100", task, sm.Strategy(tp=2, recompute="full"))
    >>> step.verdict, 0.2 < step.phases.rollout_s / step.step_time_s < 0.9
    ('ok', True)
    """

    task: Rl
    colocated: bool
    staleness: int
    accelerators: int
    phases: _core.RlPhases
    step_time_s: float
    rollout_period_s: float
    training: Estimate
    serving: Serving
    rollout_memory_bytes: float
    verdict: str
    reason: str = ""
    critic: Estimate | None = None
    framework: str = "nemo_rl"
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def train_memory_bytes(self) -> float:
        """Of the fullest accelerator that trains, with the states of a critic.

        A reference and a reward model wait on the host between their passes (NVIDIA-NeMo/RL, verl:
        weights of frozen models are offloaded).
        """
        critic = None if self.critic is None else self.critic.core
        return _core.learning_memory_bytes(self.training.core, critic)

    def interval(self) -> Interval | None:
        """Where a measured step would lie four times in five, by published steps.

        They are of few frameworks and models, and constants of the frameworks have seen them. It is
        no narrower than that of the training in it. None where the step cannot run.

        Examples
        --------
        >>> import scalemodel as sm
        >>> task = sm.Rl(prompts=16, generations=16, prompt_tokens=128, generated_tokens=800,
        ...              limit_tokens=4096)
        >>> plan = sm.Strategy(tp=2, recompute="full")
        >>> step = sm.estimate_rl("llama3_8b", "dgx_h100", task, plan)
        >>> round(step.interval().high_s / step.step_time_s, 1)
        2.1
        """
        trained = self.training.interval()
        if trained is None or not math.isfinite(self.step_time_s):
            return None
        known = reference("interval")
        factor = max(known.number("factor"), trained.high_s / self.training.step_time_s)
        return Interval(
            self.step_time_s / factor, self.step_time_s * factor, known.number("coverage_fraction")
        )

    @property
    def extrapolates(self) -> tuple[str, ...]:
        """In what the training lies beyond every measured run; empty inside what was measured."""
        return self.training.extrapolates

    def _pools(self) -> Sequence[str]:
        if self.colocated:
            return ("both",) * 9
        return ("rollout", *6 * ("training",), "both", "both")

    def _starts_s(self) -> npt.NDArray[np.float64]:
        return _core.rl_starts_s(self.phases, self.rollout_period_s, self.staleness)

    def _memory(self) -> Iterable[tuple[str, float, Estimate | Serving]]:
        yield "rollout", self.rollout_memory_bytes, self.training
        yield "train", self.train_memory_bytes, self.training

    def timeline(self) -> pd.DataFrame:
        """Phases that take time: phase, pool, start_s, duration_s of one step in a steady state.

        Generation lasts as long as its pool is busy from step to step.
        """
        frame = super().timeline()
        frame.loc[frame.phase == "rollout", "duration_s"] = self.rollout_period_s
        return frame

    def to_dict(self) -> dict[str, Any]:
        """One flat row: verdict, step, phases and memory; None where the step cannot run."""
        return finite(
            {
                "verdict": self.verdict,
                "reason": self.reason,
                "colocated": self.colocated,
                "staleness": self.staleness,
                "accelerators": self.accelerators,
                "step_time_s": self.step_time_s,
                "samples_per_s": self.samples_per_s,
                **self.phases.to_dict(),
                "rollout_period_s": self.rollout_period_s,
                "rollout_memory_bytes": self.rollout_memory_bytes,
                "train_memory_bytes": self.train_memory_bytes,
                **self._ends(),
            }
        )
