"""Stages of training one after another: what a plan of them answers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from scalemodel.base.text import count_text, money_text, percent_text
from scalemodel.economics.recovery import hours_text

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.economics.failures import Reliability
    from scalemodel.estimator.estimate import Estimate
    from scalemodel.post_training.answer import PhasedStep

_DAY_S: Final = 86400.0
#: Numbers of stages that add up to those of the plan.
SUMS: Final = (
    "switch_s",
    "failures",
    "accelerator_hours",
    "cost_usd",
    "energy_j",
    "operational_kg",
    "embodied_kg",
)
#: What the rows of a table do not show.
_NOT_SHOWN: Final = ("answer", "reliability")


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """One stage of a plan. Made by `plan_stages`; numbers are None where it cannot run.

    Attributes
    ----------
    name, task : str
        Its own name, and that of the kind of its task: ``"Training"``, ``"Rl"``...
    verdict, reason : str
        ``"ok"``, or what stands in the way.
    after : tuple of str
        Stages whose weights it starts from.
    start_s, end_s : float or None
        From the beginning of the plan, the hand-over included.
    switch_s : float or None
        Of the hand-over: a last checkpoint of the stages before, a start, and reading.
    time_s, time_low_s, time_high_s : float or None
        With the hand-over, failures and checkpoints. No ends where the answer has no interval.
    steps, tokens, samples : float or None
        Work of the stage; tokens of prompts and answers where there are such.
    accelerators : int
        Of all pools.
    accelerator_hours, ettr_fraction, failures : float or None
        The hand-over counts; productive share of the rest; expected interruptions.
    energy_j, cost_usd, operational_kg, embodied_kg : float or None
        As of `TrainingRun`, and of the hand-over, in which all accelerators idle and are paid.
    price_source : str
        The price, or what to pass where there is none.
    answer : Estimate, RlEstimate or TuningEstimate
    reliability : Reliability or None
    """

    name: str
    task: str
    verdict: str
    reason: str
    after: tuple[str, ...]
    start_s: float | None = None
    end_s: float | None = None
    switch_s: float | None = None
    time_s: float | None = None
    time_low_s: float | None = None
    time_high_s: float | None = None
    steps: float | None = None
    tokens: float | None = None
    samples: float | None = None
    accelerators: int
    accelerator_hours: float | None = None
    ettr_fraction: float | None = None
    failures: float | None = None
    energy_j: float | None = None
    cost_usd: float | None = None
    price_source: str = ""
    operational_kg: float | None = None
    embodied_kg: float | None = None
    answer: Estimate | PhasedStep
    reliability: Reliability | None = None

    @property
    def lost_s(self) -> float | None:
        """Of the time, what failures, restarts and checkpoints take."""
        if self.time_s is None or self.switch_s is None or self.ettr_fraction is None:
            return None
        return (1 - self.ettr_fraction) * (self.time_s - self.switch_s)

    def to_dict(self) -> dict[str, Any]:
        """One flat row; the stages before it as one text."""
        shown = [item.name for item in fields(self) if item.name not in _NOT_SHOWN]
        row = {name: getattr(self, name) for name in shown}
        return {**row, "after": ", ".join(self.after), "lost_s": self.lost_s}

    def __str__(self) -> str:
        if self.time_s is None:
            return f"{self.name}: {self.verdict}, {self.reason}"
        parts = [
            f"{self.accelerators:,} accelerators",
            f"{count_text(self.tokens or 0)} tokens",
            f"{_days(self.time_s)}{_between(self.time_low_s, self.time_high_s)}",
        ]
        if self.lost_s:
            parts.append(f"{percent_text(self.lost_s / self.time_s)} lost to failures")
        if self.switch_s:
            parts.append(f"{hours_text(self.switch_s)} of hand-over")
        return f"{self.name}: {', '.join(parts)}; {_bill(self)}"


@dataclass(frozen=True)
class StagePlan:
    """Stages of training as one plan. Made by `plan_stages`.

    Numbers are sums over the stages, None where one of them lacks its own (`lacking`); the time is
    that of the last stage to end.

    Attributes
    ----------
    stages : tuple of StageRun
        In the order they were given.
    time_s, time_low_s, time_high_s : float or None
        Calendar time of the whole. Its ends are those of a plan whose stages all take their lower
        or all their upper end: one model predicts them all, so that what it gets wrong in one it
        gets wrong in the same direction in the others. Errors that were independent would spread
        less.
    switch_s, failures, accelerator_hours, cost_usd, energy_j, operational_kg, embodied_kg : float
        or None
        Sums over the stages.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"), task, sm.Strategy(tp=2))
    >>> plan = sm.plan_stages([sm.Stage("pretrain", est, tokens=1e11),
    ...                        sm.Stage("anneal", est, tokens=1e10)])
    >>> plan.costliest, plan.table.stage.tolist()
    ('pretrain', ['pretrain', 'anneal', 'total'])
    """

    stages: tuple[StageRun, ...]
    time_s: float | None
    time_low_s: float | None
    time_high_s: float | None

    @property
    def verdict(self) -> str:
        """``"ok"``, or that of the first stage that cannot run."""
        return next((one.verdict for one in self.stages if one.verdict != "ok"), "ok")

    @property
    def reason(self) -> str:
        """The stage that cannot run, and why; empty where all do."""
        failing = (one for one in self.stages if one.verdict != "ok")
        return next((f"{one.name}: {one.reason}" for one in failing), "")

    @property
    def days(self) -> float | None:
        """Calendar days."""
        return None if self.time_s is None else self.time_s / _DAY_S

    @property
    def costliest(self) -> str | None:
        """The stage that costs most, by accelerator-hours where one has no price."""
        by = "accelerator_hours" if self.lacking("cost_usd") else "cost_usd"
        if self.lacking(by):
            return None
        return max(self.stages, key=lambda one: getattr(one, by)).name

    def lacking(self, number: str) -> tuple[str, ...]:
        """Stages without a number, such as ``"cost_usd"`` where no price is known.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> sm.plan_stages([sm.Stage("pretrain", est, steps=1000)]).lacking("energy_j")
        ()
        """
        return tuple(one.name for one in self.stages if getattr(one, number) is None)

    def __getattr__(self, name: str) -> Any:
        if name not in SUMS:
            raise AttributeError(f"StagePlan has no attribute {name!r}")
        return None if self.lacking(name) else sum(getattr(one, name) for one in self.stages)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *SUMS})

    @property
    def table(self) -> pd.DataFrame:
        """One row per stage and one of them all.

        Returns
        -------
        DataFrame
            Columns stage, task, verdict, reason (what stands in the way, or which numbers of a row
            there are not), after, accelerators, steps, tokens, samples, start_s, end_s, time_s,
            time_low_s, time_high_s, switch_s, lost_s, ettr_fraction, failures, accelerator_hours,
            cost_usd, price_source, energy_j, operational_kg, embodied_kg.
        """
        import pandas as pd

        rows = [self._row(one) for one in self.stages]
        return pd.DataFrame([*rows, self._total()], columns=list(_COLUMNS))

    def _row(self, one: StageRun) -> dict[str, Any]:
        row = one.to_dict()
        return {"stage": row.pop("name"), **row}

    def _total(self) -> dict[str, Any]:
        totals = {name: getattr(self, name) for name in SUMS}
        ends = {name: getattr(self, name) for name in ("time_s", "time_low_s", "time_high_s")}
        reason = self.reason or "; ".join(self._gaps())
        texts = {"task": "", "verdict": self.verdict, "reason": reason, "after": ""}
        return {"stage": "total", **texts, "price_source": "", **ends, **totals}

    def _gaps(self) -> list[str]:
        """Totals that there are not, with the stages that lack them."""
        found: dict[tuple[str, ...], list[str]] = {}
        for name in ("time_low_s", *SUMS):
            if stages := self.lacking(name):
                found.setdefault(stages, []).append("interval" if name == "time_low_s" else name)
        return [f"no {', '.join(which)} of {', '.join(stages)}" for stages, which in found.items()]

    def to_dict(self) -> dict[str, Any]:
        """Totals by name, and the stages as rows.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> list(sm.plan_stages([sm.Stage("pretrain", est, steps=1000)]).to_dict())[:4]
        ['verdict', 'reason', 'costliest', 'days']
        """
        total = self._total()
        for name in ("stage", "task", "after", "price_source"):
            del total[name]
        head = {name: total.pop(name) for name in ("verdict", "reason")}
        rows = [one.to_dict() for one in self.stages]
        return {**head, "costliest": self.costliest, "days": self.days, **total, "stages": rows}

    def __repr__(self) -> str:
        if self.days is None:
            return f"StagePlan({self.verdict}: {self.reason})"
        between = _between(self.time_low_s, self.time_high_s)
        return (
            f"StagePlan({len(self.stages)} stages in {_days(self.time_s)}{between}, {_bill(self)})"
        )

    def __str__(self) -> str:
        lines = [str(one) for one in self.stages]
        if self.days is None:
            return "\n".join([*lines, f"total: {self.verdict}, {self.reason}"])
        between = _between(self.time_low_s, self.time_high_s)
        lines.append(f"total: {_days(self.time_s)}{between}; {_bill(self)}")
        if self.costliest and len(self.stages) > 1:
            lines.append(f"costs most: {self.costliest}")
        return "\n".join([*lines, *self._gaps()])

    def _repr_html_(self) -> str:
        return self.table.to_html(index=False, na_rep="")


_COLUMNS: Final = (
    "stage",
    "task",
    "verdict",
    "reason",
    "after",
    "accelerators",
    "steps",
    "tokens",
    "samples",
    "start_s",
    "end_s",
    "time_s",
    "time_low_s",
    "time_high_s",
    "switch_s",
    "lost_s",
    "ettr_fraction",
    "failures",
    "accelerator_hours",
    "cost_usd",
    "price_source",
    "energy_j",
    "operational_kg",
    "embodied_kg",
)


def _days(seconds: float | None) -> str:
    """A calendar time: days where there are two or more."""
    if seconds is None or seconds < 2 * _DAY_S:
        return hours_text(seconds or 0.0)
    return f"{seconds / _DAY_S:.3g} days"


def _between(low_s: float | None, high_s: float | None) -> str:
    return "" if low_s is None or high_s is None else f" ({_days(low_s)} to {_days(high_s)})"


def _bill(found: StageRun | StagePlan) -> str:
    """Accelerator-hours, money, energy and carbon."""
    parts = [f"{count_text(found.accelerator_hours or 0)} accelerator-hours"]
    if found.cost_usd is not None:
        parts.append(money_text(found.cost_usd))
    if found.energy_j is not None:
        parts.append(f"{found.energy_j / 3.6e9:.4g} MWh")
    if found.operational_kg is not None and found.embodied_kg is not None:
        parts.append(f"{(found.operational_kg + found.embodied_kg) / 1e3:.4g} t CO2e")
    return ", ".join(parts)
