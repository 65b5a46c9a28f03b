"""Two estimates side by side: which causes make the difference, and which inputs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalemodel.base.words import named_arguments
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.estimator.evaluation import running_estimate

if TYPE_CHECKING:
    import pandas as pd

_INPUTS = ("model", "cluster", "task", "strategy", "stack")


@dataclass(frozen=True)
class Comparison:
    """What makes one step longer than another. Made by `compare`.

    Attributes
    ----------
    first, second : Estimate
    difference_s : float
        Step time of the second less that of the first.
    """

    first: Estimate
    second: Estimate

    @property
    def difference_s(self) -> float:
        """Step time of the second less that of the first."""
        return float(self.second.core.step_time_s) - float(self.first.core.step_time_s)

    def causes(self) -> pd.DataFrame:
        """Difference by cause of time, largest first; the differences sum to `difference_s`.

        Returns
        -------
        DataFrame
            Columns cause, first_s, second_s, difference_s.
        """
        import pandas as pd

        rows = []
        others = self.second.time_by_cause()
        for cause, one in self.first.time_by_cause().items():
            rows.append((cause, one, others[cause], others[cause] - one))
        table = pd.DataFrame(rows, columns=["cause", "first_s", "second_s", "difference_s"])
        order = table.difference_s.abs().sort_values(ascending=False, kind="stable").index
        return table.loc[order].reset_index(drop=True)

    def inputs(self) -> pd.DataFrame:
        """Difference by what was asked: model, cluster, task, strategy, stack.

        Each input's part is the mean change of the step time when it is exchanged, over every
        order in which the inputs that differ can be exchanged (its Shapley value), so that the
        parts sum to `difference_s`. An order that passes a strategy which cannot run is left out.

        Returns
        -------
        DataFrame
            Columns input, first, second, difference_s; inputs that are equal are left out. The
            differences are None where every order is left out.
        """
        import pandas as pd

        differing = [
            name for name in _INPUTS if getattr(self.first, name) != getattr(self.second, name)
        ]
        steps: dict[frozenset[str], float | None] = {}

        def step_s(changed: frozenset[str]) -> float | None:
            if changed not in steps:
                each = {
                    name: getattr(self.second if name in changed else self.first, name)
                    for name in _INPUTS
                }
                stack = each.pop("stack")
                mixed = estimate(**each, stack=stack)
                steps[changed] = None if mixed.illegal else float(mixed.core.step_time_s)
            return steps[changed]

        parts = dict.fromkeys(differing, 0.0)
        orders = 0
        for order in itertools.permutations(differing):
            path = [step_s(frozenset(order[:n])) for n in range(len(order) + 1)]
            if any(time is None for time in path):
                continue
            orders += 1
            for name, before, after in zip(order, path, path[1:], strict=False):
                parts[name] += (after or 0.0) - (before or 0.0)
        rows = [
            {
                "input": name,
                "first": _shown(getattr(self.first, name)),
                "second": _shown(getattr(self.second, name)),
                "difference_s": parts[name] / orders if orders else None,
            }
            for name in differing
        ]
        return pd.DataFrame(rows, columns=["input", "first", "second", "difference_s"])

    def __str__(self) -> str:
        from scalemodel.base.text import percent_text, time_text

        ratio = self.second.core.step_time_s / self.first.core.step_time_s
        lines = [
            f"step {time_text(self.first.core.step_time_s)} → "
            f"{time_text(self.second.core.step_time_s)} ({percent_text(ratio - 1, signed=True)})"
        ]
        lines += self._cost_lines()
        for title, table, key in (("by cause", self.causes(), "cause"), *self._by_input()):
            told = [
                f"{row[key]} {time_text(row['difference_s'], signed=True)}"
                for row in table.to_dict("records")
                if not _is_nothing(row["difference_s"], self.difference_s)
            ]
            lines.append(f"{title}: " + (", ".join(told) if told else "no difference"))
        return "\n".join(lines)

    def _cost_lines(self) -> list[str]:
        """What the steps cost, with the price of each and whether both are of one basis."""
        from scalemodel.base.text import money_text
        from scalemodel.resolve.prices import no_price, one_basis

        both = (self.first, self.second)
        if all(est.cost_usd is None for est in both):
            return []
        prices = [est.cluster.price for est in both]
        told = [
            f"{money_text(est.cost_usd)} at {price}"
            if est.cost_usd is not None
            else f"no cost: {no_price(est.cluster.accelerator)}"
            for est, price in zip(both, prices, strict=True)
        ]
        if told[0].partition(" at ")[2] == told[1].partition(" at ")[2]:
            told[0] = told[0].partition(" at ")[0]
        mixed = (
            ""
            if one_basis(prices)
            else "; the prices differ in seller or terms: sm.compare_clusters takes one basis"
        )
        return [f"cost of a step {' → '.join(told)}{mixed}"]

    def _by_input(self) -> list[tuple[str, pd.DataFrame, str]]:
        table = self.inputs()
        known = len(table) > 1 and not table.difference_s.isna().any()
        return [("by input", table, "input")] if known else []


def _is_nothing(part_s: float, whole_s: float) -> bool:
    return math.isclose(part_s, 0, abs_tol=1e-3 * abs(whole_s) + 1e-12)


def _shown(value: object) -> str:
    name = getattr(value, "name", None)
    return str(name) if name else str(value)


@named_arguments
def compare(first: Estimate, second: Estimate) -> Comparison:
    """Compare two estimates: what makes the second step longer or shorter than the first.

    Parameters
    ----------
    first, second : Estimate
        Of strategies that can run.

    Returns
    -------
    Comparison

    Raises
    ------
    ScaleModelError : one of them cannot run.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=8192)
    >>> cluster = sm.cluster("dgx_h100", nodes=8)
    >>> one, other = (sm.estimate("llama3_70b", cluster, task, sm.Strategy(tp=8, pp=pp))
    ...               for pp in (2, 4))
    >>> found = sm.compare(one, other)
    >>> bool(abs(found.causes().difference_s.sum() - found.difference_s) < 1e-9)
    True
    >>> found.inputs().input.tolist()
    ['strategy']
    """
    return Comparison(running_estimate(first, "first"), running_estimate(second, "second"))
