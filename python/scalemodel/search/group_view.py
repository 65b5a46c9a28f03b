"""A ranking of group strategies on one screen: the question, the best ones, where time goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from scalemodel.base.text import money_text, percent_text, time_text
from scalemodel.layer_groups.estimate import GroupEstimate
from scalemodel.layer_groups.strategy import GroupStrategy
from scalemodel.search.compact import memory_text, table_text
from scalemodel.search.ranking_view import Answered, head_lines, lead_text, screen_html

#: Columns that every ranking of group strategies shows.
_SHOWN = ("step_time_s", "samples_per_s", "memory_bytes", "cost_usd")
_SCHEDULE = ("micro_batches", "queues", "prefetch", "backward_gather", "buckets", "recompute")
_NOTABLE, _MOST_CAUSES = 0.0005, 5


class RankedGroups(Answered, Protocol):
    """What is shown of a ranking of group strategies."""

    def __iter__(self) -> Iterator[GroupEstimate]: ...


def meshes_text(est: GroupEstimate) -> str:
    """Meshes by the groups that share them, then the schedule where it is not the usual one.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plan = sm.GroupStrategy({"embedding": "row_wise", "*": "ddp"}, recompute=True)
    >>> est = sm.estimate(sm.compose("dlrm_dcnv2"), sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=65536, sequence=1), plan)
    >>> meshes_text(est).partition(" · ")[::2]
    ('embedding row_wise@8', 'mlp ddp@8 · recompute on')
    """
    groups: dict[str, list[str]] = {}
    for name, mesh in est.meshes.items():
        groups.setdefault(mesh, []).append(name)
    alone = len(groups) == 1
    parts = [mesh if alone else f"{', '.join(names)} {mesh}" for mesh, names in groups.items()]
    usual = GroupStrategy()
    for name in _SCHEDULE:
        value = getattr(est.strategy, name)
        if value != getattr(usual, name):
            parts.append(f"{name} {'on' if value is True else value}")
    return " · ".join(parts)


def best_rows(ranking: RankedGroups) -> tuple[list[str], list[list[object]]]:
    """Header and cells of the best strategies."""
    listed = list(ranking)
    columns: dict[str, list[object]] = {
        "#": list(range(1, len(listed) + 1)),
        "step": [time_text(est.core.step_time_s) for est in listed],
        "samples/s": [f"{est.core.samples_per_s:,.4g}" for est in listed],
        "exposed": [percent_text(est.core.exposed_fraction) for est in listed],
        "memory": [
            memory_text(est.core.memory_bytes, est.core.memory_capacity_bytes) for est in listed
        ],
    }
    costs = [est.cost_usd for est in listed]
    if all(cost is not None for cost in costs):
        columns["cost"] = [money_text(cost) for cost in costs if cost is not None]
    for column, _ in ranking.question.objective:
        if column not in _SHOWN:
            columns[column] = [f"{float(getattr(est, column)):.6g}" for est in listed]
    columns["strategy"] = [meshes_text(est) for est in listed]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _foot_lines(ranking: RankedGroups) -> list[str]:
    """Where the time of the first goes, and what it has over the next; of no ranking, why."""
    if not len(ranking):
        return [ranking.why_infeasible()]
    first = next(iter(ranking))
    shares = {
        cause: time_s / first.core.step_time_s for cause, time_s in first.time_by_cause().items()
    }
    largest = sorted(shares, key=lambda cause: -shares[cause])[:_MOST_CAUSES]
    told = [
        f"{cause.replace('_', ' ')} {percent_text(shares[cause])}"
        for cause in largest
        if shares[cause] >= _NOTABLE
    ]
    lead = lead_text(ranking)
    return [f"#1 is {', '.join(told)} of the step", *([lead] if lead else [])]


def view_text(ranking: RankedGroups) -> str:
    """The ranking on one screen."""
    table = [table_text(*best_rows(ranking))] if len(ranking) else []
    return "\n".join([*head_lines(ranking), *table, *_foot_lines(ranking)])


def view_html(ranking: RankedGroups) -> str:
    """The same for notebooks."""
    table = best_rows(ranking) if len(ranking) else None
    return screen_html(head_lines(ranking), table, _foot_lines(ranking))
