"""Many strategies at once: `sweep` keeps every row, `search` the best ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, overload

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.progress import Progress
from scalemodel.base.words import named_arguments
from scalemodel.layer_groups.model import is_composed, refuse_ablation
from scalemodel.layer_groups.strategy import BatchInference
from scalemodel.resolve import Network
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.positions import warn_of_sequence
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.search.frameworks import startable
from scalemodel.search.merging import merge
from scalemodel.search.objective import (
    HEADROOM,
    Objective,
    constraint,
    headroom_fraction,
    known_columns,
    objective_terms,
)
from scalemodel.search.ranking import Question, Ranking, Shard
from scalemodel.search.space import Space, as_texts

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import pandas as pd

    from scalemodel.layer_groups import ComposedModel
    from scalemodel.search.layer_groups import GroupRanking, GroupSpace
    from scalemodel.search.sweep_file import SweepFile


def question_of(
    model: Any, cluster: ClusterLike, task: Training, space: object, stack: str, network: Network
) -> Question:
    """What `search` and `sweep` are asked, checked, before anything ranks it.

    Raises
    ------
    ScaleModelError : malformed question.

    Warns
    -----
    UserWarning : sequences longer than the positions that the model has learned.
    """
    if not isinstance(task, Training):
        raise ScaleModelError(f"task={task!r}: must be a Training or FineTuning")
    if isinstance(task, BatchInference):
        raise ScaleModelError(
            "task: is a BatchInference, which layer groups take (sm.compose makes them of a "
            "decoder); must be a Training or FineTuning of a decoder"
        )
    if space is None:
        space = Space()
    elif isinstance(space, Mapping):
        space = Space(**space)
    elif not isinstance(space, Space):
        raise ScaleModelError(f"space={space!r}: must be a Space or a mapping of its arguments")
    resolve.stack(stack)
    cluster = resolve.with_network(resolve.cluster(cluster), network)
    chosen = resolve.model(model)
    warn_of_sequence(chosen, task)
    return Question(chosen, cluster, task, space, stack)


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


def _check_written(out: object, composed: bool, executor: Executor | None, shards: object) -> None:
    """Whether the rows of a sweep can go to a file."""
    from scalemodel.search.table_file import check_suffix

    if not isinstance(out, (str, os.PathLike)):
        raise ScaleModelError(f"out={out!r}: must be the path of a file")
    check_suffix(os.fspath(out))
    if composed:
        raise ScaleModelError(f"out={os.fspath(out)!r}: takes strategies of decoders only")
    if executor is not None or shards is not None:
        raise ScaleModelError(
            f"out={os.fspath(out)!r}: is written by this process alone; leave out executor and "
            "shards"
        )


@overload
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
    progress: Progress = None,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: _core.Ablation | None = None,
    out: None = None,
) -> pd.DataFrame: ...
@overload
def sweep(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    space: Space | Mapping[str, Any] | None = None,
    *,
    columns: Sequence[str] | None = None,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: Progress = None,
    out: str | os.PathLike[str],
) -> SweepFile: ...
@named_arguments
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
    progress: Progress = None,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: _core.Ablation | None = None,
    out: str | os.PathLike[str] | None = None,
) -> pd.DataFrame | SweepFile:
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
    progress : bool or function of (done, total), optional
        Default: a line once a second has passed, on a terminal or in a notebook. True shows a bar
        of tqdm, False nothing.
    executor : concurrent.futures.Executor, optional
        Runs shards in its workers instead of in threads here.
    shards : int, optional
        How many; default: four per worker.
    ablation : Ablation, optional
        What to leave out of the physics of a model of layer groups.
    out : path, optional
        Of a ``.csv`` or ``.parquet`` file (extra ``io``) that the rows go to as they come, for
        spaces that do not fit in memory. It appears under its name once it is whole.

    Returns
    -------
    DataFrame, or SweepFile where `out` is given
        The strategy's fields (`dp` resolved), `verdict`, then the numbers of the estimate; the
        index is the row number in the space. Rows that do not fit, on the accelerator or (with
        offload) on its host, are there with their numbers.

    Raises
    ------
    ScaleModelError : malformed question; a file that cannot be written.

    Examples
    --------
    >>> import scalemodel as sm
    >>> frame = sweep("llama3_8b", sm.cluster("dgx_h100"),
    ...               sm.Training(global_batch=64, sequence=8192), Space(pp=1, cp=1))
    >>> bool((frame.dp * frame.tp == 8).all()), str(frame.verdict[0])
    (True, 'out_of_memory')
    """
    if out is not None:
        _check_written(out, is_composed(model), executor, shards)
    if is_composed(model):
        from scalemodel.search.layer_groups import sweep_groups

        cluster = resolve.with_network(resolve.cluster(cluster), network)
        return sweep_groups(
            *(model, cluster, task, space, stack, ablation),
            columns=columns,
            threads=threads,
            progress=progress,
            elsewhere=executor is not None or shards is not None,
        )
    refuse_ablation(ablation)
    question = question_of(model, cluster, task, space, stack, network)
    if columns is not None:
        question = replace(question, columns=known_columns(columns))
    _check_shards(shards, executor)
    if out is not None:
        from scalemodel.search.sweep_file import write_sweep

        return write_sweep(question, out, threads, progress)
    if executor is None:
        return question.run_sweep(0, question.size, threads, progress)
    import pandas as pd

    parts = question.shards(_shard_count(executor, shards, question.size))
    return pd.concat(list(executor.map(_sweep_shard, parts)))


@named_arguments
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
    question = question_of(model, cluster, task, space, stack, network)
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
    headroom: float = HEADROOM,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    threads: int | None = None,
    progress: Progress = None,
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
    headroom: float = HEADROOM,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    prune: bool = True,
    threads: int | None = None,
    progress: Progress = None,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: None = None,
    framework: str | None = None,
) -> Ranking: ...
@named_arguments
def search(
    model: ModelLike | ComposedModel,
    cluster: ClusterLike,
    task: Training,
    space: Space | GroupSpace | Mapping[str, Any] | None = None,
    *,
    objective: Objective = "step_time_s",
    top: int = 10,
    constraints: Sequence[str] | str = (),
    headroom: float = HEADROOM,
    stack: str = DEFAULT_STACK,
    network: Network = None,
    prune: bool = True,
    threads: int | None = None,
    progress: Progress = None,
    executor: Executor | None = None,
    shards: int | None = None,
    ablation: _core.Ablation | None = None,
    framework: str | None = None,
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
        Strategies to keep. Of strategies that mean the same, and of those of one layout whose
        answers are all equal, one is kept.
    constraints : sequence of str
        ``"memory_bytes <= 0.9 * memory_capacity_bytes"``, ``"power_w <= 650"``...
    headroom : float
        Share of the memory that strategies must leave free, 0.05 unless told otherwise: predictions
        of memory err by some percent, and devices show less than they are sold with. 0 takes
        whatever fits.
    prune : bool
        Skip strategies that a lower bound shows to be worse. The answer is the same without.
    framework : {"megatron", "megatron_bridge", "nemo", "torchtitan", "deepspeed", "accelerate"}
        Keep only strategies that this training framework starts with these settings, as its own
        argument checks have it: `sm.launch` writes them. Default: all.

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
        from scalemodel.search.layer_groups import search_groups

        if framework is not None:
            raise ScaleModelError(f"framework={framework!r}: starts decoders only")
        cluster = resolve.with_network(resolve.cluster(cluster), network)
        return search_groups(
            *(model, cluster, task, space, stack, ablation),
            objective=objective,
            top=top,
            constraints=constraints,
            headroom=headroom,
            threads=threads,
            progress=progress,
            elsewhere=executor is not None or shards is not None,
        )
    refuse_ablation(ablation)
    question = question_of(model, cluster, task, space, stack, network)
    if not isinstance(prune, bool):
        raise ScaleModelError(f"prune={prune!r}: must be True or False")
    _check_shards(shards, executor)
    question = ranked_by(question, objective, constraints, headroom, top=top, prune=prune)

    def run(question: Question) -> Ranking:
        if executor is None:
            return question.run_search(0, question.size, threads, progress)
        count = _shard_count(executor, shards, question.size)
        parts = question.shards(count, beyond=question.quick_look() if count > 1 else inf)
        return merge(list(executor.map(_search_shard, parts)))

    return run(question) if framework is None else startable(question, framework, run)


def ranked_by(
    question: Question,
    objective: Objective,
    constraints: Sequence[str] | str,
    headroom: float,
    *,
    top: int,
    prune: bool = True,
) -> Question:
    """The question with what `search` ranks by and insists on.

    Raises
    ------
    ScaleModelError : no such column, or a price where the cluster has none.

    Examples
    --------
    >>> import scalemodel as sm
    >>> plain = Question(sm.model("llama3_8b"), sm.cluster("dgx_h100"),
    ...                  sm.Training(global_batch=64, sequence=8192), Space())
    >>> ranked_by(plain, "tokens_per_s", "memory_bytes <= 60e9", 0.1, top=3).objective
    (('tokens_per_s', 1.0),)
    """
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
    return replace(question, headroom=headroom_fraction(headroom))


def search_near(question: Question, near: Sequence[int], threads: int | None = None) -> Ranking:
    """The ranking of a question whose best strategies may be near those of another one.

    Parameters
    ----------
    question : Question
    near : sequence of int
        Rows of the space to look at first, such as `Ranking.kept_rows` of a question that differs
        little. They decide nothing but how soon the answer is known.
    threads : int, optional
    """
    beyond = question.score_among(near) if near else inf
    return question.run_search(0, question.size, threads, False, beyond=beyond)
