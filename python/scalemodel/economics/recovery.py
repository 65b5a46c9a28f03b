"""Ways to go on after a loss of nodes, side by side: what a comparison answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.text import count_text, percent_text
from scalemodel.economics.arguments import checked
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import degrees_of
from scalemodel.estimator.summary import strategy_text

if TYPE_CHECKING:
    import pandas as pd

_HOUR_S: Final = 3600.0
_COLUMNS: Final = (
    "option",
    "verdict",
    "reason",
    "nodes",
    "dp",
    "global_batch",
    "step_time_s",
    "tokens_per_s",
    "rate_fraction",
    "standstill_s",
    "reload_s",
    "repeated_s",
    "returns_s",
    "work_until_repair_s",
    "work_until_horizon_s",
    "break_even_repair_s",
    "strategy",
)


@dataclass(frozen=True)
class RecoveryOption:
    """One way to go on after a loss. Made by `replan`.

    Attributes
    ----------
    name, verdict, reason : str
        ``"ok"``, or why the job cannot go on so, in a word and in a sentence.
    estimate : Estimate or None
        Of a step until the repair; None where no step runs.
    way : _core.Recovery or None
        Rate until the repair, begin, work lost and standstill at the return.
    standstill_s, reload_s : float
        To notice and to start, and to read the state; both before the first step.
    """

    name: str
    verdict: str
    reason: str
    estimate: Estimate | None = None
    way: _core.Recovery | None = None
    standstill_s: float = 0.0
    reload_s: float = 0.0


@dataclass(frozen=True)
class Replan:
    """Ways to go on after a loss of nodes, compared. Made by `replan`.

    Attributes
    ----------
    estimate : Estimate
        The step before the loss.
    lost_nodes : tuple of int
        Numbers of the nodes in the order of the mesh.
    lost_replicas, replicas : int
        Replicas of the state with a rank on them, of all.
    repair_s, horizon_s : float
        Seconds from the loss.
    options : tuple of RecoveryOption

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=8192)
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=8), task,
    ...                   sm.Strategy(sharding="hsdp"))
    >>> found = sm.replan(est, repair_s=8 * 3600, space={"tp": 1, "pp": 1})
    >>> found.lost_replicas, found.replicas, found.best
    (1, 8, 'smaller_batch')
    """

    estimate: Estimate
    lost_nodes: tuple[int, ...]
    lost_replicas: int
    replicas: int
    repair_s: float
    horizon_s: float
    options: tuple[RecoveryOption, ...]

    @property
    def best_until_repair(self) -> str:
        """The option that has done the most work when the nodes are back."""
        return self._best(self.repair_s)

    @property
    def best(self) -> str:
        """The option that has done the most work at the horizon."""
        return self._best(self.horizon_s)

    def work_s(self, option: str, time_s: float) -> float:
        """Work done so long after the loss, in seconds of the job as it was; lost work counts off.

        Examples
        --------
        >>> import scalemodel as sm
        >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100", nodes=2),
        ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
        >>> found = sm.replan(est, repair_s=7200, since_checkpoint_s=600, space={"tp": 2})
        >>> found.work_s("wait", 7200)
        -600.0
        """
        return self._work(self._way(option), checked("time_s", time_s, 0, 1e12))

    def overtakes(self) -> pd.DataFrame:
        """When each option that runs is ahead of each other one for the first time.

        Returns
        -------
        DataFrame
            Columns option, other, at_s (from the loss on; infinite: not by the horizon).
        """
        import pandas as pd

        rows = [
            {
                "option": name,
                "other": other,
                "at_s": _core.overtakes_at_s(way, against, self.repair_s, self.horizon_s),
            }
            for name, way in self._ways.items()
            for other, against in self._ways.items()
            if name != other
        ]
        return pd.DataFrame(rows, columns=["option", "other", "at_s"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per option, in the order of what they ask for.

        Returns
        -------
        DataFrame
            Columns option, verdict, reason (why it cannot be), nodes, dp, global_batch,
            step_time_s, tokens_per_s, rate_fraction (of the tokens per second before the loss),
            standstill_s and reload_s (until the first step), repeated_s (work lost with the state),
            returns_s (standstill to take the repaired nodes in again), work_until_repair_s,
            work_until_horizon_s, break_even_repair_s (the repair time from which on the option
            does more than waiting) and strategy.
        """
        import pandas as pd

        return pd.DataFrame([self._row(one) for one in self.options], columns=list(_COLUMNS))

    @property
    def _ways(self) -> dict[str, _core.Recovery]:
        return {one.name: one.way for one in self.options if one.way is not None}

    def _way(self, name: str) -> _core.Recovery:
        if name not in self._ways:
            known = ", ".join(self._ways)
            raise ScaleModelError(f"option={name!r}: must be one of those that run: {known}")
        return self._ways[name]

    def _work(self, way: _core.Recovery, time_s: float) -> float:
        return float(_core.work_done_s(way, self.repair_s, time_s))

    def _best(self, time_s: float) -> str:
        ways = self._ways
        return max(ways, key=lambda name: self._work(ways[name], time_s))

    def _row(self, one: RecoveryOption) -> dict[str, Any]:
        row: dict[str, Any] = {"option": one.name, "verdict": one.verdict, "reason": one.reason}
        est, way = one.estimate, one.way
        if est is not None:
            dp = int(degrees_of(est).dp)
            row |= {
                "nodes": est.cluster.nodes,
                "dp": dp,
                "global_batch": est.task.global_batch,
                "step_time_s": est.step_time_s,
                "tokens_per_s": est.tokens_per_s,
                "strategy": strategy_text(est.strategy, dp),
            }
        if way is None:
            return row
        wait = self._way("wait")
        return row | {
            "rate_fraction": way.rate_fraction,
            "standstill_s": one.standstill_s,
            "reload_s": one.reload_s,
            "repeated_s": way.repeated_s,
            "returns_s": way.returns_s,
            "work_until_repair_s": self._work(way, self.repair_s),
            "work_until_horizon_s": self._work(way, self.horizon_s),
            "break_even_repair_s": (
                None if one.name == "wait" else _core.break_even_repair_s(way, wait)
            ),
        }

    def __repr__(self) -> str:
        lost = f"{len(self.lost_nodes)} of {self.estimate.cluster.nodes:g} nodes lost"
        return (
            f"Replan({lost}, most work until the repair: {self.best_until_repair}, by the horizon: "
            f"{self.best})"
        )

    def __str__(self) -> str:
        rate = count_text(float(self.estimate.tokens_per_s))
        lines = [
            f"lost {len(self.lost_nodes)} of {self.estimate.cluster.nodes:g} nodes, "
            f"{self.lost_replicas} of {self.replicas} replicas of the state, {rate} tokens/s "
            f"before; repaired after {hours_text(self.repair_s)}, horizon "
            f"{hours_text(self.horizon_s)}"
        ]
        for one in self.options:
            lines.append(f"{one.name}: {self._option_text(one)}")
        best = f"{self.best_until_repair}; by the horizon: {self.best}"
        return "\n".join([*lines, f"most work until the repair: {best}"])

    def _option_text(self, one: RecoveryOption) -> str:
        way = one.way
        if way is None:
            return f"{one.verdict}, {one.reason}"
        parts = [f"{percent_text(way.rate_fraction)} of the rate after {hours_text(way.begins_s)}"]
        if one.name == "wait":
            parts = [f"trains again {hours_text(way.returns_s)} after the repair"]
        parts.append(f"{hours_text(way.repeated_s)} of work lost")
        parts.append(f"{hours_text(self._work(way, self.horizon_s))} of work by the horizon")
        if one.name != "wait":
            even = float(_core.break_even_repair_s(way, self._way("wait")))
            if even:
                never = math.isinf(even)
                parts.append(
                    "never pays" if never else f"pays from {hours_text(even)} of repair on"
                )
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        return self.table.to_html(index=False, na_rep="")


def hours_text(seconds: float) -> str:
    """A time of an operator: minutes or hours.

    Examples
    --------
    >>> hours_text(42), hours_text(600), hours_text(28800)
    ('42 s', '10 min', '8 h')
    """
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if abs(seconds) < _HOUR_S else f"{seconds / _HOUR_S:.3g} h"
