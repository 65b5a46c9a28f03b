"""A question over a space of strategies, its shards, and the ranking of its best answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple, overload

import scalemodel._core as _core
from scalemodel.base.answer import verdict_text
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress, watched
from scalemodel.base.threads import worker_threads
from scalemodel.estimator.estimate import Estimate
from scalemodel.estimator.evaluation import tables_for
from scalemodel.resolve import Cluster, Model
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.objective import SWEEP_COLUMNS, is_maximised, limits_of
from scalemodel.search.other_stacks import OtherStack, fastest_other_stack
from scalemodel.search.ranking_view import view_html, view_text
from scalemodel.search.space import Space, enumeration, why_empty
from scalemodel.search.sweep_table import sweep_table

if TYPE_CHECKING:
    import pandas as pd


#: Columns of a ranking's table.
RANKING_COLUMNS = (
    *SWEEP_COLUMNS,
    *("objective", "row", "simulated_step_time_s", "equal_strategies"),
)
#: Strategies of a search that are simulated before the first is shown. Always as many, so that the
#: best of them does not depend on how many are asked for.
_SIMULATED = 32
#: Strategies kept for each that is shown: as many as may answer the same, where a knob such as the
#: placement of axes changes nothing.
_EQUAL = 4
#: Knobs that keep strategies apart even where all their answers are equal.
_LAYOUT = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "schedule")


# ---------------------------------------------------------------------------------------- shards
@dataclass(frozen=True)
class Shard:
    """Rows [first, last) of a search or sweep; picklable, so that another process can run it.

    Made by `Question.shards`. What a shard answers depends on nothing but the shard. Its search
    leaves out what scores above `beyond`: as many strategies as are kept are better.
    """

    question: Question
    first: int
    last: int
    beyond: float = inf

    def search(self, threads: int | None = None) -> Ranking:
        """The best strategies of these rows."""
        return self.question.run_search(self.first, self.last, threads, beyond=self.beyond)

    def sweep(self, threads: int | None = None) -> pd.DataFrame:
        """Every row of these rows."""
        return self.question.run_sweep(self.first, self.last, threads)


@dataclass(frozen=True)
class Question:
    """What is searched for, and where: everything that decides the answer.

    Attributes
    ----------
    model, cluster, task, space, stack
        The strategies and what they run on.
    objective : tuple of (column, weight)
    constraints : tuple of str
    top : int
    prune : bool
    columns : tuple of str, optional
        Columns of a sweep; None: all.
    too_big : bool
        Rank strategies that run out of memory too.
    headroom : float
        Share of the memory that strategies must leave free.
    framework : str, optional
        What starts the strategies, where only those are ranked; `space` is the part of the space
        that its settings can say.
    """

    model: Model
    cluster: Cluster
    task: Training
    space: Space
    stack: str = DEFAULT_STACK
    objective: tuple[tuple[str, float], ...] = (("step_time_s", 1.0),)
    constraints: tuple[str, ...] = ()
    top: int = 10
    prune: bool = True
    columns: tuple[str, ...] | None = None
    too_big: bool = False
    headroom: float = 0.0
    framework: str | None = None

    @property
    def size(self) -> int:
        """Strategies in the space."""
        return int(self._rows.size)

    @property
    def kept(self) -> int:
        """Strategies kept: those that are simulated or shown, and as many more as equal them."""
        return _EQUAL * max(self.top, _SIMULATED)

    @property
    def _rows(self) -> _core.Enumeration:
        return enumeration(self.space, self.model, self.cluster, self.task)

    @property
    def _tables(self) -> _core.Tables:
        return tables_for(self.model, self.cluster, self.task, self.stack)

    @cached_property
    def _searcher(self) -> _core.Searcher:
        """What rows are asked of. Every shard needs it: models and clusters are long to hash."""
        return _core.Searcher(
            self._tables,
            self._rows,
            list(self.objective),
            limits_of(self.constraints, self.headroom),
            self.kept,
            self.prune,
            self.too_big,
        )

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_searcher"}

    def shards(self, count: int, *, beyond: float = inf) -> list[Shard]:
        """The rows in `count` parts of nearly equal size; `beyond` as `quick_look` answers it.

        A part begins up to a quarter of a part sooner or later where that is between the degrees,
        micro-batches and schedules of strategies: those of one set share most of their costs.

        Examples
        --------
        >>> import scalemodel as sm
        >>> question = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"),
        ...                     sm.Training(global_batch=64, sequence=8192), Space())
        >>> parts = question.shards(3)
        >>> parts[0].first, parts[-1].last == question.size
        (0, True)
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ScaleModelError(f"shards={count!r}: must be a positive whole number")
        return [Shard(self, *edges, beyond) for edges in pairwise(self._rows.parts(count))]

    def quick_look(self) -> float:
        """A score that as many strategies as are kept do not exceed.

        Each shard of a search would otherwise look for good strategies of its own before it leaves
        out the others. Infinite where few points of the space do not say.
        """
        found: float = self._searcher.quick_look()
        return found

    def score_among(self, rows: Sequence[int]) -> float:
        """A score that as many strategies as are kept do not exceed, from these rows alone.

        The best rows of a question that differs little say what is worth a look in this one.
        Infinite where too few of them are answers here.
        """
        found: float = self._searcher.score_among(list(rows))
        return found

    def run_search(
        self,
        first: int,
        last: int,
        threads: int | None = None,
        progress: Progress = False,
        *,
        beyond: float = inf,
    ) -> Ranking:
        """The best of some rows, of those that score at most `beyond`."""
        with watched(progress, last - first, " rows") as report:
            hits, verdicts, pruned, constrained = self._searcher.search(
                first, last, worker_threads(threads), report, beyond
            )
        return Ranking(
            self,
            tuple(_Hit(*hit) for hit in hits),
            size=last - first,
            verdicts=verdicts,
            pruned=pruned,
            constrained=constrained,
        )

    def run_sweep(
        self, first: int, last: int, threads: int | None = None, progress: Progress = False
    ) -> pd.DataFrame:
        """Some rows as a table."""
        wanted = None if self.columns is None else list(self.columns)
        with watched(progress, last - first, " rows") as report:
            strategies, estimates = _core.sweep(
                self._tables, self._rows, first, last, wanted, worker_threads(threads), report
            )
        return sweep_table(strategies, estimates, self.cluster, first)


# --------------------------------------------------------------------------------------- answers
class _Hit(NamedTuple):
    score: float
    row: int
    strategy: _core.Strategy
    core: _core.Estimate


class _Shown(NamedTuple):
    """A hit, its step in the timeline (None: too long to simulate) and what it ranks by.

    `equal`: strategies of the hits that answer the same, itself included.
    """

    hit: _Hit
    step_time_s: float | None
    score: float
    equal: int


class Ranking(Sequence[Estimate]):
    """The best strategies of a search, best first; each item is an `Estimate`.

    The first 32 are simulated event by event before the best is shown. Where a simulated step
    differs from its estimate by more than 1 %, these 32 rank by the simulated ones. Strategies of
    one layout whose answers are equal to the last digit, because the knob in which they differ
    changes nothing there, are one row: `equal_strategies` counts them. Printed, and in a notebook,
    a ranking is the table of the command line; `table` has every column.

    Attributes
    ----------
    question : Question
    size : int
        Strategies that were to be looked at.
    pruned : int
        Of those, how many a lower bound showed to be worse, so that they were not evaluated.
    constrained : int
        Strategies that run but break a constraint.
    counts : dict
        Evaluated strategies by verdict.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=64, sequence=8192)
    >>> best = sm.search("llama3_8b", sm.cluster("dgx_h100"), task, top=3)
    >>> len(best), best[0].step_time_s <= best[1].step_time_s
    (3, True)
    """

    def __init__(
        self,
        question: Question,
        hits: tuple[_Hit, ...],
        *,
        size: int,
        verdicts: Mapping[str, int],
        pruned: int,
        constrained: int,
        refused: str = "",
    ) -> None:
        self.question = question
        self._refused = refused
        self._hits = hits
        self.size = size
        self.pruned = pruned
        self.constrained = constrained
        self._verdicts = dict(verdicts)

    @property
    def kept_rows(self) -> tuple[int, ...]:
        """Numbers of the strategies that are kept, in the space: best first, as estimated."""
        return tuple(hit.row for hit in self._hits)

    @property
    def counts(self) -> dict[str, int]:
        """Evaluated strategies by verdict, most frequent first."""
        ordered = sorted(self._verdicts.items(), key=lambda item: (-item[1], item[0]))
        return {verdict_text(reason): number for reason, number in ordered}

    @property
    def evaluated(self) -> int:
        """Strategies that were evaluated in full."""
        return sum(self._verdicts.values())

    def __len__(self) -> int:
        return min(len(self._distinct), self.question.top)

    @overload
    def __getitem__(self, index: int) -> Estimate: ...
    @overload
    def __getitem__(self, index: slice) -> list[Estimate]: ...
    def __getitem__(self, index: int | slice) -> Estimate | list[Estimate]:
        if isinstance(index, slice):
            return [self._estimate(shown.hit) for shown in self._shown[index]]
        if not self._hits:
            raise IndexError(f"no strategy is left; {self.why_infeasible()}")
        return self._estimate(self._shown[index].hit)

    def __iter__(self) -> Iterator[Estimate]:
        return (self._estimate(shown.hit) for shown in self._shown)

    def _estimate(self, hit: _Hit) -> Estimate:
        q = self.question
        return Estimate(q.model, q.cluster, q.task, hit.strategy, q.stack, hit.core)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((self.question, self._hits))

    def _identity(self) -> tuple[object, ...]:
        counts = self.size, self.pruned, self.constrained, self._verdicts
        return self.question, self._hits, *counts

    def __repr__(self) -> str:
        if self._hits:
            return f"Ranking({len(self)} of {self.size:,} strategies, best {self[0]!r})"
        # The strategy that needs least memory, which `why_infeasible` names, takes a search.
        why = self._why() if self.size else self.why_infeasible()
        return f"Ranking(0 of {self.size:,} strategies: {why})"

    def __str__(self) -> str:
        return view_text(self)

    def _repr_html_(self) -> str:
        return view_html(self)

    @cached_property
    def _distinct(self) -> tuple[tuple[_Hit, int], ...]:
        """The first of the hits of one layout and equal answers, and how many there are."""
        found: dict[tuple[object, ...], list[_Hit]] = {}
        for hit in self._hits:
            layout = (getattr(hit.strategy, name) for name in _LAYOUT)
            found.setdefault((hit.core, *layout), []).append(hit)
        return tuple((hits[0], len(hits)) for hits in found.values())

    @cached_property
    def _shown(self) -> tuple[_Shown, ...]:
        """The hits, the first ones by what they rank by; as many as were asked for."""
        shown = self._simulate(self._distinct[:_SIMULATED])
        shown.sort(key=lambda one: (one.score, one.hit.row))
        top = self.question.top
        return (*shown[:top], *self._simulate(self._distinct[_SIMULATED:top]))

    def _simulate(self, hits: tuple[tuple[_Hit, int], ...]) -> list[_Shown]:
        if not hits:
            return []
        q = self.question
        simulated = _core.simulate_best(
            q._tables, [hit.strategy for hit, _ in hits], list(q.objective)
        )
        return [
            _Shown(hit, step_time_s, score, equal)
            for (hit, equal), (step_time_s, score) in zip(hits, simulated, strict=True)
        ]

    @property
    def equal_strategies(self) -> tuple[int, ...]:
        """By strategy shown, how many of its layout answer the same, itself included."""
        return tuple(shown.equal for shown in self._shown)

    @cached_property
    def other_stack(self) -> OtherStack | None:
        """The named stack under which one of the strategies is fastest, and how fast.

        None for models without experts, questions of a named stack, and where no other stack is
        5 % faster: see `scalemodel.search.other_stacks.fastest_other_stack`.
        """
        return fastest_other_stack(list(self))

    @property
    def simulated_step_time_s(self) -> tuple[float | None, ...]:
        """Step time of each strategy in the event-driven timeline; None where it is too long."""
        return tuple(shown.step_time_s for shown in self._shown)

    @property
    def table(self) -> pd.DataFrame:
        """One row per strategy, best first.

        The columns of `sweep`, `objective` (what the strategy ranks by), `row`,
        `simulated_step_time_s`, the step time in the event-driven timeline, and
        `equal_strategies`, how many strategies of its layout answer the same.
        """
        import pandas as pd

        weighted = len(self.question.objective) > 1
        rows = []
        for hit, simulated, score, equal in self._shown:
            values = self._estimate(hit).row()
            first = self.question.objective[0][0]
            shown = score if weighted or not is_maximised(first) else -score
            known = {"objective": shown, "row": hit.row, "simulated_step_time_s": simulated}
            rows.append({**values, **known, "equal_strategies": equal})
        return pd.DataFrame(rows, columns=list(RANKING_COLUMNS))

    def why_infeasible(self) -> str:
        """How many strategies ran, what kept the others from it, and the one nearest to fitting."""
        if self.size == 0:
            q = self.question
            return why_empty(q.space, q.model, q.cluster, q.task)
        text, ok = self._why(), self._verdicts.get("ok", 0)
        return text if self._hits or ok else text + self._nearest()

    def _why(self) -> str:
        """How many strategies ran, and what kept the others from it."""
        parts = [
            f"{100 * number / max(1, self.evaluated):.0f} % {verdict}"
            for verdict, number in self.counts.items()
            if verdict != "ok"
        ]
        if self.constrained:
            parts.append(f"{self.constrained:,} {self._why_constrained()}")
        text = f"{self._verdicts.get('ok', 0):,} of {self.evaluated:,} evaluated strategies fit"
        if self.pruned and not self.evaluated:
            text = f"0 of {self.pruned:,} strategies fit"
        elif self.pruned:
            parts.append(f"{self.pruned:,} more {self.why_pruned()}")
        text = f"{text}: {', '.join(parts)}." if parts else f"{text}."
        return text + self._refused

    def _why_constrained(self) -> str:
        """Which limits are broken where strategies run."""
        q = self.question
        broke = ["broke a constraint"] if q.constraints or not q.headroom else []
        if q.headroom:
            broke.append(f"left less than {100 * q.headroom:g} % of memory free (headroom)")
        return " or ".join(broke)

    def why_pruned(self) -> str:
        """Why strategies were left out unevaluated; none can be worse than what was not found."""
        return "cannot be better or cannot fit" if self._hits else "cannot fit"

    def _nearest(self) -> str:
        """The strategy that needs least memory, when none fits."""
        from scalemodel.base.text import size_text

        least = replace(
            self.question,
            objective=(("memory_bytes", 1.0),),
            constraints=(),
            headroom=0.0,
            top=1,
            too_big=True,
        )
        ranking = least.run_search(0, least.size)
        if not ranking:
            return ""
        core, strategy = ranking[0].core, ranking[0].strategy
        if core.verdict == "ok":
            used = f"{size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}"
            return f" Least memory: {strategy!r}, {used}: it runs where {self._lifted()}."
        over = core.memory_bytes - core.memory_capacity_bytes
        return f" Least memory: {strategy!r}, {size_text(over)} too much."

    def _lifted(self) -> str:
        """What lets strategies run that only a limit keeps out."""
        q = self.question
        lifted = [f"headroom is below {q.headroom:g}"] if q.headroom else []
        return " and ".join([*lifted, *(["constraints are lifted"] if q.constraints else [])])
