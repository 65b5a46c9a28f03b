"""All pipeline schedules of one strategy side by side: `compare_schedules`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import percent_text, size_text, time_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import stack_of
from scalemodel.estimator.verdicts import what_is_wrong
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK, StackLike
from scalemodel.resolve.tasks import Training
from scalemodel.search.framework_cases import Case
from scalemodel.search.framework_rules import FRAMEWORKS
from scalemodel.search.frameworks import refusals, unsaid

if TYPE_CHECKING:
    import pandas as pd

#: Every schedule, by the names of `Strategy.schedule`.
SCHEDULES: tuple[str, ...] = next(
    tuple(str(name) for name in row["choices"])
    for row in _core.Strategy.fields()
    if row["name"] == "schedule"
)
_INTERLEAVED = "interleaved"
#: Most virtual stages of the interleaved form that are looked at by themselves, as of a search.
_MOST_CHUNKS = 8


@dataclass(frozen=True, repr=False)
class ScheduleOption:
    """One schedule, and what a step takes with it.

    Attributes
    ----------
    schedule : str
    vpp : int
        Virtual stages; those that hold two chunks by themselves have one.
    estimate : Estimate
        The step, or why it cannot run.
    refused : dict of str to str
        Framework -> why it does not start the strategy with this schedule; empty text where it
        does. Empty for a schedule that is illegal.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> found = sm.compare_schedules("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(pp=4))
    >>> found["1f1b"].frameworks
    ('megatron', 'megatron_bridge', 'nemo', 'torchtitan')
    >>> found["zero_bubble_v"].refused["megatron"]
    'its settings do not say schedule=zero_bubble_v'
    """

    schedule: str
    vpp: int
    estimate: Estimate
    refused: Mapping[str, str]

    @property
    def frameworks(self) -> tuple[str, ...]:
        """Those that start it."""
        return tuple(name for name, why in self.refused.items() if not why)

    @property
    def runs(self) -> bool:
        """Whether it is legal and fits."""
        return bool(self.estimate.verdict == "ok")

    @property
    def name(self) -> str:
        """The schedule, and its virtual stages where there are several."""
        return self.schedule if self.vpp == 1 else f"{self.schedule} vpp={self.vpp}"

    def __repr__(self) -> str:
        return f"ScheduleOption({self.name}: {self.estimate.verdict})"


class ScheduleComparison(Sequence[ScheduleOption]):
    """Schedules of one strategy: those that run first, the fastest first; then the others.

    An option is found by its place, or by the name of its schedule.

    Attributes
    ----------
    best : ScheduleOption or None
        The fastest that runs; None where none does.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=4096)
    >>> found = sm.compare_schedules("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(pp=4))
    >>> found.best is found[0], found["1f1b"].estimate.verdict
    (True, 'ok')
    """

    def __init__(self, options: Sequence[ScheduleOption]) -> None:
        legal = [option for option in options if not option.estimate.illegal]
        illegal = [option for option in options if option.estimate.illegal]
        legal.sort(key=lambda option: (not option.runs, option.estimate.step_time_s))
        self._options = (*legal, *illegal)
        self.best = next((option for option in self._options if option.runs), None)

    def __len__(self) -> int:
        return len(self._options)

    @overload
    def __getitem__(self, index: int | str) -> ScheduleOption: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScheduleOption, ...]: ...

    def __getitem__(self, index: int | str | slice) -> ScheduleOption | tuple[ScheduleOption, ...]:
        if not isinstance(index, str):
            return self._options[index]
        for option in self._options:
            if option.schedule == index:
                return option
        raise KeyError(index)

    @property
    def estimates(self) -> list[Estimate]:
        """Steps of the legal schedules, as `plot.breakdown` and `plot.memory` draw them."""
        return [option.estimate for option in self._options if not option.estimate.illegal]

    def table(self) -> pd.DataFrame:
        """One row per schedule; numbers of an illegal one are None.

        Returns
        -------
        DataFrame
            Columns schedule, vpp, verdict, step_time_s, bubble_s, bubble_fraction (of the step),
            exposed_pp_s (transfers between stages that nothing hides), exposed_ep_s, memory_bytes
            (of the fullest accelerator), memory_activations_bytes, mfu_fraction, frameworks
            (joined by commas), reason (why it cannot run, else empty).
        """
        import pandas as pd

        columns = (
            *("step_time_s", "bubble_s", "bubble_fraction", "exposed_pp_s", "exposed_ep_s"),
            *("memory_bytes", "memory_activations_bytes", "mfu_fraction"),
        )
        rows = []
        for option in self._options:
            core = option.estimate.core
            numbers: dict[str, float | None] = dict.fromkeys(columns)
            if not option.estimate.illegal:
                shown = {
                    name: float(getattr(core, name)) for name in columns if hasattr(core, name)
                }
                numbers |= shown
                numbers["bubble_fraction"] = shown["bubble_s"] / shown["step_time_s"]
            rows.append(
                {
                    "schedule": option.schedule,
                    "vpp": option.vpp,
                    "verdict": option.estimate.verdict,
                    **numbers,
                    "frameworks": ",".join(option.frameworks),
                    "reason": "" if option.runs else what_is_wrong(option.estimate),
                }
            )
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        width = max(len(option.name) for option in self._options)
        lines = []
        for option in self._options:
            core = option.estimate.core
            if option.estimate.illegal:
                lines.append(f"{option.name:<{width}}  {what_is_wrong(option.estimate)}")
                continue
            lines.append(
                f"{option.name:<{width}}  step {time_text(core.step_time_s)}, bubble "
                f"{percent_text(core.bubble_s / core.step_time_s)}, exposed transfers "
                f"{time_text(core.exposed_pp_s)}, {size_text(core.memory_bytes)}"
                f"{'' if option.runs else ', out of memory'}; "
                f"{', '.join(option.frameworks) or 'no framework starts it'}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        best = self.best.name if self.best else "none runs"
        return f"ScheduleComparison({len(self._options)} schedules, fastest: {best})"


def _chunks(pp: int, layers: int, given: Sequence[int] | None) -> Iterator[int]:
    """Virtual stages of the interleaved form: those given, or all that divide a stage's layers."""
    if given is not None:
        yield from given
        return
    whole = [
        vpp for vpp in range(2, _MOST_CHUNKS + 1) if layers % (pp * vpp) == 0 and pp * vpp <= layers
    ]
    yield from whole or [2]


@named_arguments
def compare_schedules(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    strategy: _core.Strategy | None = None,
    *,
    vpp: Sequence[int] | None = None,
    stack: StackLike = DEFAULT_STACK,
) -> ScheduleComparison:
    """Every pipeline schedule of one strategy: step, bubble, transfers, memory, who starts it.

    Schedules are GPipe, 1F1B, its interleaved form, zero-bubble with the memory of 1F1B (ZB-H1),
    with twice as much (ZB-2p, whose optimizer waits for no other stage), with the layers there and
    back (ZB-V), DualPipe and DualPipeV.

    Parameters
    ----------
    model, cluster, task, stack
        As in `scalemodel.estimate`.
    strategy : Strategy, optional
        What it says of `schedule` and `vpp` is left aside; `pp` must be 2 or more.
    vpp : sequence of int, optional
        Virtual stages to interleave with, each 2 or more; without it, all up to 8 that divide the
        layers of a stage.

    Returns
    -------
    ScheduleComparison
        Also schedules that cannot run, with the reason.

    Raises
    ------
    ScaleModelError : malformed argument; a strategy without a pipeline.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=4096)
    >>> cluster = sm.cluster("dgx_h100", nodes=4)
    >>> found = sm.compare_schedules("llama3_8b", cluster, task, sm.Strategy(tp=2, pp=4))
    >>> table = found.table().set_index("schedule")
    >>> bool(table.bubble_s["zero_bubble_v"] < table.bubble_s["1f1b"])
    True
    """
    strategy = _core.Strategy() if strategy is None else strategy
    if int(strategy.pp) < 2:
        raise ScaleModelError(
            f"strategy.pp={strategy.pp}: schedules are orders of pipeline stages; give 2 or more",
            code="pp",
        )
    wrong = [chunks for chunks in vpp or () if isinstance(chunks, bool) or not 2 <= chunks <= 255]
    if wrong:
        raise ScaleModelError(f"vpp={list(vpp or ())!r}: must be whole numbers from 2 to 255")
    decoder, where = resolve.model(model), resolve.cluster(cluster)
    layers = int(decoder.shape.layers)
    options = []
    for schedule in SCHEDULES:
        several = schedule == _INTERLEAVED
        for chunks in _chunks(int(strategy.pp), layers, vpp) if several else (1,):
            chosen = strategy.replace(schedule=schedule, vpp=chunks)
            est = estimate(decoder, where, task, chosen, stack=stack)
            refused = {} if est.illegal else _refused(est)
            options.append(ScheduleOption(schedule, chunks, est, refused))
    return ScheduleComparison(options)


def _refused(est: Estimate) -> dict[str, str]:
    """Why each framework does not start a strategy: a pipeline it cannot say, or a rule broken."""
    case = Case(est.model, est.cluster, est.task, est.strategy, stack_of(est))
    told = {}
    for name in FRAMEWORKS:
        mute = [knob for knob in unsaid(name, est.strategy) if knob in ("pp", "schedule")]
        broken = [rule.says for rule in refusals(name, case)]
        said = ", ".join(f"{knob}={getattr(est.strategy, knob)}" for knob in mute)
        told[name] = f"its settings do not say {said}" if mute else "; ".join(broken)
    return told
