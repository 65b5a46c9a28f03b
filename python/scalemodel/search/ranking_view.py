"""A ranking on one screen: the question, the best strategies, what limits the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Protocol

from scalemodel.base.text import money_text, percent_text, time_text
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.losses import what_limits
from scalemodel.estimator.summary import Asked, question_text, strategy_text
from scalemodel.search.compact import memory_text, table_html, table_text
from scalemodel.search.objective import GROUP_COLUMNS, is_maximised
from scalemodel.search.other_stacks import OtherStack, other_stack_text

#: Columns of an estimate that every ranking shows.
_SHOWN = ("step_time_s", "mfu_fraction", "memory_bytes", "cost_usd")
#: Columns that change as the step time does.
_SAME = ("tokens_per_s", "mfu_fraction")
#: Differences below this share of a step are not worth a word.
_NOTABLE = 0.0005


class Sought(Asked, Protocol):
    """A question with what is searched for."""

    @property
    def objective(self) -> tuple[tuple[str, float], ...]:
        """Columns and their weights."""

    @property
    def constraints(self) -> tuple[str, ...]:
        """Limits, as they were given."""

    @property
    def headroom(self) -> float:
        """Share of the memory that is left free."""

    @property
    def framework(self) -> str | None:
        """What starts the strategies, where only those are ranked."""


class Answered(Protocol):
    """What is shown of any ranking."""

    @property
    def question(self) -> Sought:
        """What was asked."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Evaluated strategies by verdict."""

    @property
    def evaluated(self) -> int:
        """Strategies that were evaluated in full."""

    size: int
    pruned: int
    constrained: int

    def why_infeasible(self) -> str:
        """What kept the others from running."""

    def why_pruned(self) -> str:
        """Why strategies were left out."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class Ranked(Answered, Protocol):
    """What is shown of a ranking of strategies of a decoder."""

    @property
    def equal_strategies(self) -> Sequence[int]:
        """By strategy, how many answer the same, itself included."""

    @property
    def other_stack(self) -> OtherStack | None:
        """The stack that would run one of them notably faster."""

    def __iter__(self) -> Iterator[Estimate]: ...


def counts_text(size: int, counts: Mapping[str, int], *further: str) -> str:
    """Rows by what became of them.

    Examples
    --------
    >>> counts_text(1200, {"ok": 1000, "out_of_memory": 200}, "1,200 evaluated")
    '1,200 strategies · 1,200 evaluated · ok 1,000 · out_of_memory 200'
    """
    verdicts = [f"{verdict} {number:,}" for verdict, number in counts.items()]
    return " · ".join([f"{size:,} strategies", *further, *verdicts])


def _counts_line(ranking: Answered) -> str:
    further = [f"{ranking.evaluated:,} evaluated"]
    if ranking.pruned:
        further.append(f"{ranking.pruned:,} pruned ({ranking.why_pruned()})")
    text = counts_text(ranking.size, ranking.counts, *further)
    return text + (f" · constrained {ranking.constrained:,}" if ranking.constrained else "")


def _is_maximised(column: str) -> bool:
    return is_maximised(column) or is_maximised(column, GROUP_COLUMNS)


def aim_text(question: Sought) -> str:
    """What is searched for, and within which limits."""
    terms = question.objective
    if len(terms) == 1:
        aim = terms[0][0]
    else:
        aim = " + ".join(f"{weight:g} ln {column}" for column, weight in terms)
    goal = "most" if len(terms) == 1 and _is_maximised(terms[0][0]) else "least"
    free = [f"{100 * question.headroom:g} % of memory free"] if question.headroom else []
    started = [f"started by {question.framework}"] if question.framework else []
    return ", ".join([f"{goal} {aim}", *question.constraints, *free, *started])


def head_lines(ranking: Answered) -> list[str]:
    """The question, and what became of the strategies."""
    question = ranking.question
    return [question_text(question, aim_text(question)), _counts_line(ranking)]


def _further_columns(question: Sought) -> list[str]:
    return [column for column, _ in question.objective if column not in _SHOWN]


def _number_text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def best_rows(ranking: Ranked) -> tuple[list[str], list[list[object]]]:
    """Header and cells of the best strategies.

    Cost stands there where the cluster has a price, and the number of equal strategies where
    any has some.
    """
    listed, equal = list(ranking), ranking.equal_strategies
    columns: dict[str, list[object]] = {
        "#": list(range(1, len(listed) + 1)),
        _step_header(listed): [_step_cell(est) for est in listed],
        "MFU": [percent_text(est.core.mfu_fraction) for est in listed],
        "memory": [
            memory_text(est.core.memory_bytes, est.core.memory_capacity_bytes) for est in listed
        ],
    }
    costs = [est.cost_usd for est in listed]
    if all(cost is not None for cost in costs):
        columns["cost"] = [money_text(cost) for cost in costs if cost is not None]
    for column in _further_columns(ranking.question):
        columns[column] = [_number_text(getattr(est, column)) for est in listed]
    if any(number > 1 for number in equal):
        columns["equal"] = list(equal)
    if not all(est.fits for est in listed):
        columns["verdict"] = [est.verdict for est in listed]
    # Last, as it is the longest: where a line is cut or wrapped, the answers are still there.
    columns["strategy"] = [strategy_text(est.strategy, est.core.dp) for est in listed]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _step_header(listed: Sequence[Estimate]) -> str:
    interval = listed[0].interval() if listed else None
    return "step" if interval is None else f"step ({100 * interval.coverage_fraction:.0f} %)"


def _step_cell(est: Estimate) -> str:
    interval, step = est.interval(), time_text(est.core.step_time_s)
    if interval is None:
        return step
    return f"{step} ({time_text(interval.low_s)} to {time_text(interval.high_s)})"


def lead_text(ranking: Answered) -> str:
    """What the first has over the next that differs, in shares of the other's step."""
    first, *others = ranking
    ours = first.time_by_cause()
    for number, other in enumerate(others, start=2):
        step = other.core.step_time_s
        theirs = other.time_by_cause()
        shares = {cause: (time_s - theirs[cause]) / step for cause, time_s in ours.items()}
        aims = {}
        sought = [column for column, _ in ranking.question.objective if column not in _SAME]
        for column in dict.fromkeys(["step_time_s", *sought]):
            mine, its = float(getattr(first, column)), float(getattr(other, column))
            aims[column] = mine / its - 1 if its else 0.0
        if all(abs(value) < _NOTABLE for value in [*shares.values(), *aims.values()]):
            continue
        parts = [
            f"{column.removesuffix('_time_s')} {percent_text(value, signed=True)}"
            for column, value in aims.items()
        ]
        largest = sorted(shares, key=lambda cause: -abs(shares[cause]))[:4]
        causes = [
            f"{cause.removeprefix('exposed_')} {percent_text(shares[cause], signed=True)}"
            for cause in largest
            if abs(shares[cause]) >= _NOTABLE
        ]
        of = f" (of the step: {', '.join(causes)})" if causes else ""
        return f"#1 against #{number}: {', '.join(parts)}{of}"
    return ""


def foot_lines(ranking: Ranked) -> list[str]:
    """What limits the first, and what it has over the next; of an empty ranking, why."""
    if not len(ranking):
        return [ranking.why_infeasible()]
    first: Any = next(iter(ranking))
    lead, faster = lead_text(ranking), ranking.other_stack
    lines = [f"#1 is limited by: {what_limits(first)}", *([lead] if lead else [])]
    return lines + ([other_stack_text(faster)] if faster else [])


def view_text(ranking: Ranked) -> str:
    """The ranking on one screen."""
    table = [table_text(*best_rows(ranking))] if len(ranking) else []
    return "\n".join([*head_lines(ranking), *table, *foot_lines(ranking)])


def view_html(ranking: Ranked) -> str:
    """The same for notebooks."""
    table = best_rows(ranking) if len(ranking) else None
    return screen_html(head_lines(ranking), table, foot_lines(ranking))


def screen_html(
    head: Sequence[str],
    rows: tuple[Sequence[str], Sequence[Sequence[object]]] | None,
    below: Sequence[str],
) -> str:
    """Two lines, a table with its header and lines below it, as HTML."""
    table = "" if rows is None else table_html(*rows)
    question, counts = (escape(line) for line in head)
    foot = "<br>".join(escape(line) for line in below)
    return (
        "<div style='font-family:system-ui,sans-serif;font-size:90%'>"
        f"<p>{question}<br>{counts}</p><div style='overflow-x:auto'>{table}</div>"
        f"<p>{foot}</p></div>"
    )
