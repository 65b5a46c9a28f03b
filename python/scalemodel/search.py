"""Many strategies at once: `sweep` keeps every row, `search` the best ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from scalemodel import _core, resolve
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import (
    DEFAULT_STACK,
    Estimate,
    is_composed,
    refuse_ablation,
    tables_for,
    verdict_text,
)
from scalemodel.objective import (
    SWEEP_COLUMNS,
    Objective,
    constraint,
    is_maximised,
    known_columns,
    objective_terms,
)
from scalemodel.resolve import Cluster, Model, Network
from scalemodel.space import Space, as_texts, enumeration, why_empty
from scalemodel.tasks import Training
from scalemodel.threads import progress_bar, worker_threads

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

    from scalemodel.groups import ComposedModel, GroupRanking, GroupSpace

ModelLike = str | Path | Model | dict[str, Any]
ClusterLike = str | Path | Cluster | dict[str, Any]


#: Strategies of a search that are simulated before the first is shown. Always as many, so that the
#: best of them does not depend on how many are asked for.
_SIMULATED = 32


# ---------------------------------------------------------------------------------------- shards
@dataclass(frozen=True)
class Shard:
    """Rows [first, last) of a search or sweep; picklable, so that another process can run it.

    Made by `Question.shards`. What a shard answers depends on nothing but the shard.
    """

    question: Question
    first: int
    last: int

    def search(self, threads: int | None = None) -> Ranking:
        """The best strategies of these rows."""
        return self.question.run_search(self.first, self.last, threads)

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

    @property
    def size(self) -> int:
        """Strategies in the space."""
        return int(self._rows.size)

    @property
    def kept(self) -> int:
        """Strategies kept for the simulation that decides which of them are the `top` ones."""
        return max(self.top, _SIMULATED)

    @property
    def _rows(self) -> _core.Enumeration:
        return enumeration(self.space, self.model, self.cluster, self.task)

    @property
    def _tables(self) -> _core.Tables:
        return tables_for(self.model, self.cluster, self.task, self.stack)

    def shards(self, count: int) -> list[Shard]:
        """The rows in `count` parts of nearly equal size.

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
        size = self.size
        edges = [size * i // count for i in range(count + 1)]
        return [Shard(self, edges[i], edges[i + 1]) for i in range(count)]

    def run_search(
        self,
        first: int,
        last: int,
        threads: int | None = None,
        progress: bool | Callable[[int, int], object] = False,
    ) -> Ranking:
        """The best of some rows."""
        with progress_bar(progress, last - first) as report:
            answer = _core.search(
                self._tables,
                self._rows,
                first,
                last,
                list(self.objective),
                [constraint(text) for text in self.constraints],
                self.kept,
                self.prune,
                self.too_big,
                worker_threads(threads),
                report,
            )
        hits = tuple(_Hit(*hit) for hit in answer["hits"])
        return Ranking(
            self,
            hits,
            size=last - first,
            verdicts=answer["verdicts"],
            pruned=answer["pruned"],
            constrained=answer["constrained"],
        )

    def run_sweep(
        self,
        first: int,
        last: int,
        threads: int | None = None,
        progress: bool | Callable[[int, int], object] = False,
    ) -> pd.DataFrame:
        """Some rows as a table."""
        wanted = None if self.columns is None else list(self.columns)
        with progress_bar(progress, last - first) as report:
            strategies, estimates = _core.sweep(
                self._tables, self._rows, first, last, wanted, worker_threads(threads), report
            )
        return _frame(strategies, estimates, self, first)


# --------------------------------------------------------------------------------------- answers
class _Hit(NamedTuple):
    score: float
    row: int
    strategy: _core.Strategy
    core: _core.Estimate


class _Shown(NamedTuple):
    """A hit, its step in the timeline (None: too long to simulate) and what it ranks by."""

    hit: _Hit
    step_time_s: float | None
    score: float


class Ranking(Sequence[Estimate]):
    """The best strategies of a search, best first; each item is an `Estimate`.

    The first 32 are simulated event by event before the best is shown. Where a simulated step
    differs from its estimate by more than 1 %, these 32 rank by the simulated ones.

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
    ) -> None:
        self.question = question
        self._hits = hits
        self.size = size
        self.pruned = pruned
        self.constrained = constrained
        self._verdicts = dict(verdicts)

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
        return min(len(self._hits), self.question.top)

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
        best = f", best {self[0]!r}" if self._hits else ""
        return f"Ranking({len(self)} of {self.size:,} strategies{best})"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(max_rows=20))

    @cached_property
    def _shown(self) -> tuple[_Shown, ...]:
        """The hits, the first ones by what they rank by; as many as were asked for."""
        shown = self._simulate(self._hits[:_SIMULATED])
        shown.sort(key=lambda one: (one.score, one.hit.row))
        top = self.question.top
        return (*shown[:top], *self._simulate(self._hits[_SIMULATED:top]))

    def _simulate(self, hits: tuple[_Hit, ...]) -> list[_Shown]:
        q = self.question
        simulated = _core.simulate_best(
            q._tables, [hit.strategy for hit in hits], list(q.objective)
        )
        return [_Shown(hit, *known) for hit, known in zip(hits, simulated, strict=True)]

    @property
    def simulated_step_time_s(self) -> tuple[float | None, ...]:
        """Step time of each strategy in the event-driven timeline; None where it is too long."""
        return tuple(shown.step_time_s for shown in self._shown)

    @property
    def table(self) -> pd.DataFrame:
        """One row per strategy, best first.

        The columns of `sweep`, `objective` (what the strategy ranks by), `row` and
        `simulated_step_time_s`, the step time in the event-driven timeline.
        """
        import pandas as pd

        weighted = len(self.question.objective) > 1
        rows = []
        for hit, simulated, score in self._shown:
            values = self._estimate(hit).row()
            first = self.question.objective[0][0]
            shown = score if weighted or not is_maximised(first) else -score
            known = {"objective": shown, "row": hit.row, "simulated_step_time_s": simulated}
            rows.append({**values, **known})
        names = [*SWEEP_COLUMNS, "objective", "row", "simulated_step_time_s"]
        return pd.DataFrame(rows, columns=names)

    def why_infeasible(self) -> str:
        """How many strategies ran, what kept the others from it, and the one nearest to fitting."""
        if self.size == 0:
            q = self.question
            return why_empty(q.space, q.model, q.cluster, q.task)
        ok = self._verdicts.get("ok", 0)
        parts = [
            f"{100 * number / max(1, self.evaluated):.0f} % {verdict}"
            for verdict, number in self.counts.items()
            if verdict != "ok"
        ]
        if self.constrained:
            parts.append(f"{self.constrained:,} broke a constraint")
        text = f"{ok:,} of {self.evaluated:,} evaluated strategies fit"
        if self.pruned and not self.evaluated:
            text = f"0 of {self.pruned:,} strategies fit"
        elif self.pruned:
            parts.append(f"{self.pruned:,} more {self.why_pruned()}")
        text = f"{text}: {', '.join(parts)}." if parts else f"{text}."
        return text if self._hits or ok else text + self._nearest()

    def why_pruned(self) -> str:
        """Why strategies were left out unevaluated; none can be worse than what was not found."""
        return "cannot be better or cannot fit" if self._hits else "cannot fit"

    def _nearest(self) -> str:
        """The strategy that needs least memory, when none fits."""
        from scalemodel.messages import size_text

        least = replace(
            self.question, objective=(("memory_bytes", 1.0),), constraints=(), top=1, too_big=True
        )
        ranking = least.run_search(0, least.size)
        if not ranking:
            return ""
        core = ranking[0].core
        over = core.memory_bytes - core.memory_capacity_bytes
        return f" Least memory: {ranking[0].strategy!r}, {size_text(over)} too much."


def merge(rankings: Sequence[Ranking]) -> Ranking:
    """The ranking of all rows from those of parts of them; associative, in any order.

    Raises
    ------
    ScaleModelError : no ranking, or rankings of different questions.

    Examples
    --------
    >>> import scalemodel as sm
    >>> question = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"),
    ...                     sm.Training(global_batch=64, sequence=8192), Space(tp=[1, 2]))
    >>> parts = [shard.search() for shard in question.shards(4)]
    >>> whole = question.run_search(0, question.size)
    >>> merge(parts)[0] == whole[0]
    True
    """
    if not rankings:
        raise ScaleModelError("rankings=[]: at least one is needed")
    question = rankings[0].question
    if any(ranking.question != question for ranking in rankings):
        raise ScaleModelError("rankings: must answer the same question")
    hits: list[_Hit] = []
    seen: set[tuple[float, _core.Strategy]] = set()
    every = (hit for ranking in rankings for hit in ranking._hits)
    for hit in sorted(every, key=lambda hit: (hit.score, hit.row)):
        meaning = _core.canonical(
            hit.strategy, question.model.core, question.cluster.core, question.task.core
        )
        if (hit.score, meaning) not in seen:
            seen.add((hit.score, meaning))
            hits.append(hit)
    verdicts: dict[str, int] = {}
    for ranking in rankings:
        for reason, number in ranking._verdicts.items():
            verdicts[reason] = verdicts.get(reason, 0) + number
    return Ranking(
        question,
        tuple(hits[: question.kept]),
        size=sum(ranking.size for ranking in rankings),
        verdicts=verdicts,
        pruned=sum(ranking.pruned for ranking in rankings),
        constrained=sum(ranking.constrained for ranking in rankings),
    )


def _frame(
    strategies: Mapping[str, Any], estimates: Mapping[str, Any], question: Question, first: int
) -> pd.DataFrame:
    """Columns of the engine as a table, without copying them."""
    import pandas as pd

    columns: dict[str, Any] = {}
    # The resolved data-parallel degree is the strategy's own here.
    for name, column in {**estimates, **strategies}.items():
        if isinstance(column, tuple):
            codes, names = column
            texts = [verdict_text(text) for text in names] if name == "verdict" else names
            labels = pd.Index(texts, dtype=object)
            columns[name] = pd.Categorical.from_codes(codes, categories=labels, validate=False)
        else:
            columns[name] = column
    if "cost_usd" in columns and not question.cluster.core.price_usd_per_s > 0:
        columns["cost_usd"] = pd.array([None] * len(columns["cost_usd"]), dtype="Float64")
    ordered = {name: columns[name] for name in SWEEP_COLUMNS if name in columns}
    rows = len(next(iter(ordered.values())))
    index = pd.RangeIndex(first, first + rows, name="row")
    return pd.DataFrame(ordered, index=index, copy=False)


# ----------------------------------------------------------------------------------------- verbs
def _question(
    model: Any, cluster: ClusterLike, task: Training, space: object, stack: str, network: Network
) -> Question:
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    if space is None:
        space = Space()
    elif isinstance(space, Mapping):
        space = Space(**space)
    elif not isinstance(space, Space):
        raise ScaleModelError(f"space={space!r}: must be a Space or a mapping of its arguments")
    resolve.stack(stack)
    cluster = resolve.with_network(resolve.cluster(cluster), network)
    return Question(resolve.model(model), cluster, task, space, stack)


def _search_shard(shard: Shard) -> Ranking:
    return shard.search(threads=1)


def _sweep_shard(shard: Shard) -> pd.DataFrame:
    return shard.sweep(threads=1)


#: Shards per worker: enough that a slow one does not keep the others waiting.
_SHARDS_PER_WORKER = 4


def _check_shards(shards: object, executor: Executor | None) -> None:
    if shards is None:
        return
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
        raise ScaleModelError(f"shards={shards!r}: must be a positive whole number")
    if executor is None:
        raise ScaleModelError(f"shards={shards!r}: say who runs them, executor=...")


def _shard_count(executor: Executor, shards: int | None, size: int) -> int:
    if shards is not None:
        return shards
    workers = getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    return max(1, min(_SHARDS_PER_WORKER * int(workers), size))


def sweep(
    model: ModelLike | ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: Space | GroupSpace | Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] | None = None,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: _core.Ablation | None = None,
) -> pd.DataFrame:
    """Every legal strategy of a space, one row each.

    Parameters
    ----------
    model, cluster : object or anything `sm.model` and `sm.cluster` take
    task : Training or FineTuning
    space : Space or mapping of its arguments, optional
        Default: the automatic values of every knob.
    columns : sequence of str, optional
        Columns to keep; a row of all takes about 350 bytes.
    stack : str
        Named software stack of the catalogue.
    network : NetworkReport or mapping of axis to share, optional
        As of `estimate`: the shares of the routed strategy stand for those of all.
    threads : int, optional
        Default: SCALEMODEL_NUM_THREADS or one per usable core. The table does not depend on it.
    progress : bool or function of (done, total)
        True shows a bar of tqdm.
    executor : concurrent.futures.Executor, optional
        Runs shards in its workers instead of in threads here.
    shards : int, optional
        How many; default: four per worker.
    ablation : Ablation, optional
        What to leave out of the physics of a model of layer groups.

    Returns
    -------
    DataFrame
        The strategy's fields (`dp` resolved), `verdict`, then the numbers of the estimate; the
        index is the row number in the space. Rows that do not fit, on the accelerator or (with
        offload) on its host, are there with their numbers.

    Raises
    ------
    ScaleModelError : malformed question.

    Examples
    --------
    >>> import scalemodel as sm
    >>> frame = sweep("llama3_8b", sm.cluster("dgx_h100"),
    ...               sm.Training(global_batch=64, sequence=8192), Space(pp=1, cp=1))
    >>> bool((frame.dp * frame.tp == 8).all()), str(frame.verdict[0])
    (True, 'out_of_memory')
    """
    if is_composed(model):
        from scalemodel.groups.search import sweep_groups

        cluster = resolve.with_network(resolve.cluster(cluster), network)
        return sweep_groups(
            *(model, cluster, task, space, stack, ablation),
            columns=columns,
            threads=threads,
            progress=progress,
            elsewhere=executor is not None or shards is not None,
        )
    refuse_ablation(ablation)
    question = _question(model, cluster, task, space, stack, network)
    if columns is not None:
        question = replace(question, columns=known_columns(columns))
    _check_shards(shards, executor)
    if executor is None:
        return question.run_sweep(0, question.size, threads, progress)
    import pandas as pd

    parts = question.shards(_shard_count(executor, shards, question.size))
    return pd.concat(list(executor.map(_sweep_shard, parts)))


def sweep_chunks(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    rows: int = 1_000_000,
    columns: Sequence[str] | None = None,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
) -> Iterator[pd.DataFrame]:
    """The table of `sweep` in parts of `rows` rows, for spaces that do not fit in memory.

    Examples
    --------
    >>> import scalemodel as sm
    >>> parts = sweep_chunks("llama3_8b", sm.cluster("dgx_h100"),
    ...                      sm.Training(global_batch=64, sequence=8192), rows=10_000)
    >>> len(next(parts))
    10000
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise ScaleModelError(f"rows={rows!r}: must be a positive whole number")
    question = _question(model, cluster, task, space, stack, network)
    if columns is not None:
        question = replace(question, columns=known_columns(columns))
    size = question.size
    return (
        question.run_sweep(first, min(first + rows, size), threads)
        for first in range(0, size, rows)
    )


@overload
def search(
    model: ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: GroupSpace | Mapping[str, Any] | None = None,
    *,
    objective: Objective = "step_time_s",
    top: int = 10,
    constraints: Sequence[str] | str = (),
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    ablation: _core.Ablation | None = None,
) -> GroupRanking: ...
@overload
def search(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    objective: Objective = "step_time_s",
    top: int = 10,
    constraints: Sequence[str] | str = (),
    stack: str = DEFAULT_STACK,
    network: Network = None,
    prune: bool = True,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: None = None,
) -> Ranking: ...
def search(
    model: ModelLike | ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: Space | GroupSpace | Mapping[str, Any] | None = None,
    *,
    objective: Objective = "step_time_s",
    top: int = 10,
    constraints: Sequence[str] | str = (),
    stack: str = DEFAULT_STACK,
    network: Network = None,
    prune: bool = True,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: _core.Ablation | None = None,
) -> Ranking | GroupRanking:
    """The best strategies of a space. Exact, and the same for any number of threads.

    Parameters
    ----------
    model, cluster, task, space, stack, network, threads, progress, executor, shards, ablation
        As of `sweep`.
    objective : str or mapping of str to weight
        A column (tokens_per_s, mfu_fraction, hfu_fraction and tokens_per_j are maximised, every
        other one minimised), or several with weights: then the weighted sum of their logarithms,
        which does not depend on units.
    top : int
        Strategies to keep. Of strategies that mean the same one is kept.
    constraints : sequence of str
        ``"memory_bytes <= 0.9 * memory_capacity_bytes"``, ``"power_w <= 650"``...
    prune : bool
        Skip strategies that a lower bound shows to be worse. The answer is the same without.

    Returns
    -------
    Ranking
        Empty when nothing fits; `Ranking.why_infeasible` says why. A GroupRanking for a model of
        layer groups, whose `space` is a GroupSpace.

    Raises
    ------
    ScaleModelError : malformed question.

    Examples
    --------
    >>> import scalemodel as sm
    >>> best = search("llama3_70b", sm.cluster("dgx_h100", nodes=64),
    ...               sm.Training(global_batch=1024, sequence=8192))
    >>> best[0].verdict, best[0].step_time_s <= best[1].step_time_s
    ('ok', True)
    """
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= 100_000:
        raise ScaleModelError(f"top={top!r}: must be a whole number from 1 to 100000")
    if is_composed(model):
        from scalemodel.groups.search import search_groups

        cluster = resolve.with_network(resolve.cluster(cluster), network)
        return search_groups(
            *(model, cluster, task, space, stack, ablation),
            objective=objective,
            top=top,
            constraints=constraints,
            threads=threads,
            progress=progress,
            elsewhere=executor is not None or shards is not None,
        )
    refuse_ablation(ablation)
    question = _question(model, cluster, task, space, stack, network)
    if not isinstance(prune, bool):
        raise ScaleModelError(f"prune={prune!r}: must be True or False")
    _check_shards(shards, executor)
    texts = as_texts(constraints, "constraints")
    terms = tuple(objective_terms(objective))
    limited = [column for text in texts for column in constraint(text)[::3]]
    for argument, names in (("objective", [name for name, _ in terms]), ("constraints", limited)):
        priced = any("usd" in str(name) for name in names)
        if priced and not question.cluster.core.price_usd_per_s > 0:
            raise ScaleModelError(
                f"{argument}: {question.cluster.name} has no price; give "
                "price.usd_per_accelerator_hour"
            )
    question = replace(question, objective=terms, constraints=texts, top=top, prune=prune)
    if executor is None:
        return question.run_search(0, question.size, threads, progress)
    parts = question.shards(_shard_count(executor, shards, question.size))
    return merge(list(executor.map(_search_shard, parts)))
