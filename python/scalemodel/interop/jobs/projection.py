"""From a profiled node to a cluster: a measured job carried over to other sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import time_text
from scalemodel.base.words import named_arguments
from scalemodel.estimator import uncertainty
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import running_estimate
from scalemodel.estimator.knobs import Strategy
from scalemodel.estimator.projection import carried, coverage_fraction, projected_s
from scalemodel.interop.jobs.compare import asked
from scalemodel.interop.jobs.logs import read_log
from scalemodel.interop.jobs.profiles import PARTS, Profile, read_profile
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.scaling.curve import sizes_of, tasks_of

if TYPE_CHECKING:
    import pandas as pd

_COMPUTE = ("compute", "optimizer", "exposed_offload")
_COMMUNICATION = ("exposed_tp", "exposed_cp", "exposed_ep", "exposed_pp", "exposed_dp")
_HOST = ("launches", "overhead")
_COLUMNS = (
    "nodes",
    "accelerators",
    "global_batch",
    "verdict",
    "predicted_step_time_s",
    "step_time_s",
    "step_time_low_s",
    "step_time_high_s",
    "tokens_per_s",
    "scaling_efficiency_fraction",
    "same_layout",
    "carried_fraction",
    "extrapolates",
)


def predicted_parts(est: Estimate) -> dict[str, float]:
    """Seconds of a predicted step as a trace divides it.

    A stage that waits for another one does so inside a kernel that receives: with pipeline
    parallelism the bubble counts as communication, else as idle.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> abs(sum(predicted_parts(est).values()) - est.step_time_s) < 1e-9
    True
    """
    causes = est.time_by_cause()
    waits = "communication" if est.strategy.pp > 1 else "host"
    names = dict(zip(PARTS, (_COMPUTE, _COMMUNICATION, _HOST), strict=True))
    names[waits] = (*names[waits], "bubble")
    return {part: float(sum(causes[name] for name in names[part])) for part in PARTS}


@dataclass(frozen=True)
class ProjectedStep:
    """A step at one size: the estimate there, and what the measured job makes of it.

    Attributes
    ----------
    nodes : int
    estimate : Estimate
        As predicted, without what was measured.
    step_time_s, low_s, high_s : float
        Projected, and the ends of its interval; NaN where the strategy cannot run.
    same_layout : bool
        Whether nothing but the data-parallel degree and the batch differ from what was measured.
    carried_fraction : float
        How much of the measured ratio is carried over.
    extrapolates : tuple of str
        In what the size lies beyond every measured run, and the measured job did not.
    """

    nodes: int
    estimate: Estimate
    step_time_s: float
    low_s: float
    high_s: float
    same_layout: bool
    carried_fraction: float
    extrapolates: tuple[str, ...]

    def is_measured(self, measured: Estimate) -> bool:
        """Whether this is the job that was measured."""
        same_size = self.estimate.cluster.accelerators == measured.cluster.accelerators
        same_batch = self.estimate.task == measured.task
        return same_size and same_batch and self.same_layout


@dataclass(frozen=True, repr=False)
class Projection:
    """A measured job at other sizes. Made by `project`.

    Attributes
    ----------
    estimate : Estimate
        Of the job that was measured.
    profile : Profile
        What was measured.
    mode : str
    steps : tuple of ProjectedStep
        One per size, ascending.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> found = sm.project([2.0, 2.0, 2.1], est, nodes=[1, 8])
    >>> found.factors().part.tolist(), found.explain().splitlines()[1]
    (['step'], '1 node: as measured')
    """

    estimate: Estimate
    profile: Profile
    mode: str
    steps: tuple[ProjectedStep, ...]

    @property
    def ratio(self) -> float:
        """Measured over predicted seconds of the job that was measured."""
        return self.profile.step_time_s / float(self.estimate.core.step_time_s)

    def factors(self) -> pd.DataFrame:
        """Measured and predicted seconds of the measured job, whole and by part.

        Returns
        -------
        DataFrame
            Columns part (``step``; with a trace also compute, communication, host), measured_s,
            predicted_s, ratio (NaN where nothing is predicted).
        """
        import pandas as pd

        rows = [("step", self.profile.step_time_s, float(self.estimate.core.step_time_s))]
        predicted = predicted_parts(self.estimate)
        rows += [(part, self.profile.parts[part], predicted[part]) for part in self.profile.parts]
        table = pd.DataFrame(rows, columns=["part", "measured_s", "predicted_s"])
        table["ratio"] = table.measured_s / table.predicted_s.where(table.predicted_s > 0)
        return table

    def table(self) -> pd.DataFrame:
        """One row per size.

        Returns
        -------
        DataFrame
            Columns nodes, accelerators, global_batch, verdict, predicted_step_time_s (without the
            measured job), step_time_s (projected), step_time_low_s, step_time_high_s, tokens_per_s,
            scaling_efficiency_fraction (tokens per accelerator over those measured), same_layout,
            carried_fraction, extrapolates. Numbers are NaN where the strategy cannot run.
        """
        import pandas as pd

        measured = self.estimate
        own = measured.task.global_batch * measured.task.sequence / measured.cluster.accelerators
        rows = []
        for step in self.steps:
            est = step.estimate
            tokens_per_s = est.task.global_batch * est.task.sequence / step.step_time_s
            accelerators = est.cluster.accelerators
            rate = tokens_per_s / accelerators
            rows.append(
                (
                    *(step.nodes, accelerators, est.task.global_batch, str(est.verdict)),
                    float("nan") if est.illegal else float(est.core.step_time_s),
                    *(step.step_time_s, step.low_s, step.high_s, tokens_per_s),
                    rate / (own / self.profile.step_time_s),
                    *(step.same_layout, step.carried_fraction, "; ".join(step.extrapolates)),
                )
            )
        return pd.DataFrame(rows, columns=list(_COLUMNS))

    def explain(self) -> str:
        """What was measured, how it differs from the prediction, and what was carried over."""
        measured, est = self.profile, self.estimate
        lines = [
            f"measured on {est.cluster.accelerators} accelerators: "
            f"{time_text(measured.step_time_s)} a step "
            f"({measured.steps} steps of {measured.source}); predicted "
            f"{time_text(float(est.core.step_time_s))}: ratio {self.ratio:.3f}"
        ]
        predicted = predicted_parts(est)
        for part, measured_s in measured.parts.items():
            known = predicted[part] > 0
            told = f"ratio {measured_s / predicted[part]:.3f}" if known else "nothing was predicted"
            lines.append(
                f"  {part}: {time_text(measured_s)}, predicted {time_text(predicted[part])}: {told}"
            )
        return "\n".join([*lines, *(self._told(step) for step in self.steps)])

    def _told(self, step: ProjectedStep) -> str:
        """What was done at one size."""
        head = f"{step.nodes:,} node{'' if step.nodes == 1 else 's'}: "
        if step.estimate.illegal:
            return head + str(step.estimate.verdict)
        if step.is_measured(self.estimate):
            return head + "as measured"
        kept = "the same layout" if step.same_layout else "another layout"
        share = f"{100 * coverage_fraction():.0f} %"
        lines = [
            head + f"predicted {time_text(float(step.estimate.core.step_time_s))}, projected "
            f"{time_text(step.step_time_s)} ({share}: {time_text(step.low_s)} to "
            f"{time_text(step.high_s)}); {kept}: the ratio to the power {step.carried_fraction:.2f}"
        ]
        if not step.estimate.fits:
            lines.append(f"  {step.estimate.verdict}")
        lines += [f"  beyond every measured run: {reason}" for reason in step.extrapolates]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """What was measured, the factors and the sizes, for JSON; what is no number is None."""

        def records(table: pd.DataFrame) -> list[dict[str, Any]]:
            return [
                {str(key): None if cell != cell else cell for key, cell in row.items()}
                for row in table.to_dict("records")
            ]

        measured = self.profile
        return {
            "model": self.estimate.model.name,
            "stack": self.estimate.stack,
            "mode": self.mode,
            "measured_step_time_s": measured.step_time_s,
            "measured_p10_s": measured.low_s,
            "measured_p90_s": measured.high_s,
            "steps": measured.steps,
            "source": measured.source,
            "ratio": self.ratio,
            "factors": records(self.factors()),
            "sizes": records(self.table()),
        }

    def __repr__(self) -> str:
        lines = [
            f"Projection({self.estimate.model.name}, {self.mode} scaling, measured "
            f"{time_text(self.profile.step_time_s)} on {self.estimate.cluster.accelerators} "
            f"accelerators, {self.ratio:.3f} of what is predicted)"
        ]
        for step in self.steps:
            told = (
                f"{step.estimate.verdict}"
                if step.estimate.illegal
                else f"{time_text(step.step_time_s)} ({time_text(step.low_s)} to "
                f"{time_text(step.high_s)})"
            )
            memory = "" if step.estimate.fits or step.estimate.illegal else ", out of memory"
            lines.append(f"  {step.nodes:>6,} nodes  {told}{memory}")
        return "\n".join(lines)


def _ratio_at(profile: Profile, measured: Estimate, other: Estimate) -> float:
    """Measured over predicted as it would be at another size, were all of it carried over.

    Where a trace divides the step, each part takes along what it missed, in the ratio of its
    predicted seconds; but communication that the larger size adds, beyond what the node had, is
    nothing that the node measured, and takes nothing along. Where nothing was predicted, the
    seconds measured recur with every micro-batch.
    """
    if not profile.parts:
        return profile.step_time_s / float(measured.core.step_time_s)
    here, there = predicted_parts(measured), predicted_parts(other)
    passes = float(other.core.micro_batches) / float(measured.core.micro_batches)
    total = 0.0
    for part in PARTS:
        grows = there[part] / here[part] if here[part] > 0 else passes
        if part != "compute":
            grows = min(grows, passes)
        total += max(0.0, there[part] + (profile.parts[part] - here[part]) * grows)
    return total / float(other.core.step_time_s)


def _same_layout(one: Estimate, other: Estimate) -> bool:
    def replica(est: Estimate) -> Any:
        return est.strategy.replace(dp=0, shard_degree=0)

    return bool(replica(one) == replica(other))


def _step(profile: Profile, measured: Estimate, other: Estimate, nodes: int) -> ProjectedStep:
    same = _same_layout(measured, other)
    constants = "plain" if other.stack == "plain" else "named"
    known = carried(constants, same_layout=same)
    nothing = float("nan")
    if other.illegal:
        return ProjectedStep(
            nodes, other, nothing, nothing, nothing, same, known.carried_fraction, ()
        )
    if other.cluster.accelerators == measured.cluster.accelerators and same:
        ends = (profile.step_time_s, profile.low_s, profile.high_s)
        return ProjectedStep(nodes, other, *ends, True, 1.0, ())
    table = uncertainty.embedded()
    there = table.reasons(uncertainty.situation_of(other))
    here = table.reasons(uncertainty.situation_of(measured))
    beyond = {kind: text for kind, text in there.items() if kind not in here}
    widening = max([1.0, *(table.widening.get(kind, 1.0) for kind in beyond)])
    ratio = _ratio_at(profile, measured, other)
    time_s = projected_s(float(other.core.step_time_s), ratio, known.carried_fraction)
    factor = known.factor**widening
    ends = (time_s, time_s / factor, time_s * factor)
    return ProjectedStep(nodes, other, *ends, same, known.carried_fraction, tuple(beyond.values()))


@named_arguments
def project(
    profile: Any,
    est: Estimate | None = None,
    *,
    nodes: int | Iterable[int],
    mode: str = "weak",
    strategy: Strategy | None = None,
    cluster: Any = None,
    accelerators: int | None = None,
    stack: str = DEFAULT_STACK,
) -> Projection:
    """A job that was measured on a node, or on a few, at other sizes of its cluster.

    What the estimate misses on the node is carried over. Of 199 published runs that differ from a
    smaller one in the number of replicas alone, predicted by constants that have not seen their
    source, the mean error is 6.9 % as predicted and 3.1 % with the smaller run known; without a
    named stack 14.6 and 4.3 %. Of 105 in another layout it is 9.5 and 6.9 % (14.7 and 10.9 %).
    Intervals come from the same runs, which `scalemodel.validation.projection` goes through again;
    no published run tells how the parts of a trace carry over apart from the whole.

    Parameters
    ----------
    profile : path, str, float, KinetoTrace, or a sequence of paths, traces or seconds
        Trace of PyTorch's profiler, or one per rank: compute, exposed communication and idle time
        are carried over each by itself. Or a log of steps as for `compare_log`, or measured seconds
        of steps: one ratio for the whole step.
    est : Estimate, optional
        Of the job as it was measured. Default: of the arguments that Megatron prints at the head of
        its log.
    nodes : int or sequence of int
        Sizes to project to.
    mode : str
        ``"weak"``: the batch grows with the accelerators; ``"strong"``: it stays.
    strategy : Strategy, optional
        At the new sizes; default: the measured one, with as many replicas as there is room for.
    cluster, accelerators, stack : as in `compare_log`
        Without an estimate.

    Returns
    -------
    Projection

    Raises
    ------
    ScaleModelError : the profile cannot be read or is of another size, a size is no whole number
        from 1, or the batch would not be whole.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> found = sm.project(1.1 * est.step_time_s, est, nodes=[1, 16, 64])
    >>> round(found.ratio, 3), found.table().accelerators.tolist()
    (1.1, [8, 128, 512])
    >>> found.steps[-1].low_s < found.steps[-1].step_time_s < found.steps[-1].high_s
    True
    """
    if est is None:
        if not (isinstance(profile, str) or hasattr(profile, "__fspath__")):
            raise ScaleModelError("est=None: only a log of Megatron names its job; pass est=")
        est = asked(read_log(profile), cluster, accelerators, stack)
    if not isinstance(est, Estimate):
        raise ScaleModelError(f"est={est!r}: must be an Estimate of the measured job")
    est = running_estimate(est)
    counts = sizes_of([nodes] if isinstance(nodes, int) else nodes, "nodes")
    node = int(est.cluster.core.node_accelerators)
    own = est.cluster.accelerators
    tasks = tasks_of(est.task, [own, *(count * node for count in counts)], mode)[1:]
    read = read_profile(profile, est)
    plan = est.strategy.replace(dp=0) if strategy is None else strategy
    steps = []
    for count, task in zip(counts, tasks, strict=True):
        where = resolve.cluster(est.cluster, accelerators=count * node)
        other = estimate(est.model, where, task, plan, stack=est.stack)
        steps.append(_step(read, est, other, count))
    return Projection(est, read, mode, tuple(steps))
