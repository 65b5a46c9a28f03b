"""``scalemodel search`` and ``scalemodel sweep``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli import rankings
from scalemodel.cli.options import (
    add_formats,
    add_knob,
    add_question,
    cluster_of,
    exclusion,
    given,
    objective,
    shard,
    task_of,
    whole,
)
from scalemodel.cli.output import NOTHING_FEASIBLE, OK, print_json, question_text, strategy_text
from scalemodel.cli.sweep_rows import CsvOutput, JsonOutput
from scalemodel.search.framework_rules import FRAMEWORKS
from scalemodel.search.objective import HEADROOM, SWEEP_COLUMNS
from scalemodel.search.ranking import RANKING_COLUMNS, Shard
from scalemodel.search.search import search, sweep
from scalemodel.search.space import Space, enumeration

if TYPE_CHECKING:
    from scalemodel.resolve import Cluster, Model
    from scalemodel.resolve.tasks import Training
    from scalemodel.search.sweep_file import Tally
    from scalemodel.search.table_file import Writer

#: Rows of a sweep that are in memory at once.
CHUNK_ROWS = 65_536


def add_space(parser: argparse.ArgumentParser) -> Any:
    """The question and the space of strategies; returns the group of the space's options."""
    add_question(parser)
    space = parser.add_argument_group(
        "space (each knob takes one or more values; left out or auto: what a practitioner tries)"
    )
    for row in _core.Strategy.fields():
        add_knob(space, row)
    space.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="RULE",
        help='rule between degrees, such as "tp * cp <= domain"; may be repeated',
    )
    space.add_argument(
        "--exclude",
        action="append",
        default=[],
        type=exclusion,
        metavar="KNOB=VALUE,...",
        help="combination to leave out; may be repeated",
    )
    space.add_argument(
        "--redundant",
        nargs="+",
        default=[],
        metavar="KNOB",
        help="knobs that take every value even where they change nothing",
    )
    space.add_argument("--tiers", action="store_true", help="every axis chooses its network tier")
    space.add_argument(
        "--calculon",
        action="store_true",
        help="the space of Calculon's search, to go with --batch-is-limit; knobs named change it",
    )
    return space


def add_threads(parser: argparse.ArgumentParser) -> Any:
    """How much of the machine to use; returns the group."""
    work = parser.add_argument_group("work")
    work.add_argument("--threads", type=whole, metavar="N", help="default: one per usable core")
    return work


def add_aim(parser: argparse.ArgumentParser, top: int) -> Any:
    """What the best strategy is, and how many are kept; returns the group."""
    aim = parser.add_argument_group("aim")
    aim.add_argument(
        "--objective",
        type=objective,
        default="step_time_s",
        metavar="COLUMN|COLUMN=WEIGHT,...",
        help="what to optimise (default step_time_s)",
    )
    aim.add_argument(
        "--top", type=whole, default=top, metavar="N", help=f"how many (default {top})"
    )
    aim.add_argument(
        "--constraint",
        action="append",
        default=[],
        metavar="TEXT",
        help='limit, such as "power_w <= 650"; may be repeated',
    )
    aim.add_argument(
        "--headroom",
        type=float,
        default=HEADROOM,
        metavar="SHARE",
        help=f"share of the memory to leave free (default {HEADROOM:g}; 0 takes whatever fits)",
    )
    return aim


def _add_common(parser: argparse.ArgumentParser) -> None:
    space = add_space(parser)
    space.add_argument(
        "--count", action="store_true", help="only count the strategies of the space"
    )
    work = add_threads(parser)
    work.add_argument("--progress", action="store_true", help="tell on the error stream")
    work.add_argument(
        "--shard",
        type=shard,
        default=(1, 1),
        metavar="I/N",
        help="only the I-th of N parts, for `scalemodel merge`",
    )


def add_search(commands: Any) -> None:
    """The command that finds the best strategies."""
    parser = commands.add_parser(
        "search",
        help="find the best strategies",
        description="Find the best strategies of a space, exactly.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_search)
    _add_common(parser)
    aim = add_aim(parser, 10)
    aim.add_argument(
        "--no-prune", dest="prune", action="store_false", help="evaluate every strategy"
    )
    aim.add_argument(
        "--framework",
        choices=FRAMEWORKS,
        help="only strategies that this training framework starts with its settings",
    )
    rankings.add_ranking_output(parser, RANKING_COLUMNS)
    add_formats(parser)


def add_sweep(commands: Any) -> None:
    """The command that evaluates every strategy."""
    parser = commands.add_parser(
        "sweep",
        help="evaluate every strategy",
        description="Evaluate every strategy of a space, one row each.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_sweep)
    _add_common(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="FILE", help="write the rows to a .csv or .parquet file")
    output.add_argument(
        "--resume",
        action="store_true",
        help="continue what a killed sweep of the same question has left of the file",
    )
    output.add_argument(
        "--columns",
        nargs="+",
        metavar="NAME",
        help="columns to keep: " + ", ".join(SWEEP_COLUMNS),
    )
    add_formats(parser)


# -------------------------------------------------------------------------------------- questions
def _space(options: argparse.Namespace, model: Model, cluster: Cluster, task: Training) -> Space:
    named = given(options, _core.Strategy.fields())
    knobs = {name: values for name, values in named.items() if values != ["auto"]}
    rules: dict[str, Any] = {
        "where": options.where,
        "exclude": options.exclude,
        "redundant": options.redundant,
        "tiers": options.tiers,
    }
    if not options.calculon:
        return Space(**knobs, **rules)
    preset = Space.calculon(model, cluster, task)
    return preset.replace(
        **knobs,
        where=[*preset.where, *options.where],
        exclude=[*map(dict, preset.exclude), *options.exclude],
        redundant=[*preset.redundant, *options.redundant],
    )


def asked(options: argparse.Namespace) -> tuple[Model, Cluster, Training, Space]:
    """The question and the space that the options describe."""
    from scalemodel import resolve

    model, cluster, task = resolve.model(options.model), cluster_of(options), task_of(options)
    return model, cluster, task, _space(options, model, cluster, task)


class _OneShard(Executor):
    """Does the work of one shard here, with all threads; the others are for other machines."""

    def __init__(self, number: int, work: Callable[[Shard], Any]) -> None:
        self._number, self._work = number, work

    def map(self, fn: Callable[..., Any], *iterables: Any, **_: Any) -> Iterator[Any]:
        """The answer of the one shard."""
        (shards,) = iterables
        return iter([self._work(list(shards)[self._number - 1])])


class _Progress:
    """Tells on the error stream how far the work is: in place on a terminal, else now and then."""

    def __init__(self) -> None:
        self._percent = -1
        self._terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        step = 1 if self._terminal else 10
        if percent // step == self._percent // step:
            return
        self._percent = percent
        text = f"{percent:3d} %  {done:,} of {total:,} strategies"
        end = "\r" if self._terminal and done < total else "\n"
        print(text, end=end, file=sys.stderr, flush=True)


def _progress(options: argparse.Namespace) -> Callable[[int, int], object] | None:
    return _Progress() if options.progress else None


def _print_count(options: argparse.Namespace, size: int) -> int:
    if options.json:
        print_json({"space_rows": size})
    elif options.csv:
        print(f"space_rows\n{size}")
    else:
        print(size)
    return OK


# ----------------------------------------------------------------------------------------- search
def _search(options: argparse.Namespace) -> int:
    from scalemodel.search.ranking_file import part_of

    model, cluster, task, space = asked(options)
    if options.count:
        return _print_count(options, space.size(model, cluster, task))
    number, count = options.shard
    if options.out:
        rankings.check_out(options.out, part=count > 1)
    done: list[Shard] = []

    def work(own: Shard) -> Any:
        done.append(own)
        report = _progress(options)
        answer = own.question.run_search(own.first, own.last, options.threads, report or False)
        if report is not None:
            report(own.last - own.first, own.last - own.first)
        return answer

    ranking = search(
        model,
        cluster,
        task,
        space,
        objective=options.objective,
        top=options.top,
        constraints=options.constraint,
        headroom=options.headroom,
        stack=options.stack,
        prune=options.prune,
        executor=_OneShard(number, work),
        shards=count,
        framework=options.framework,
    )
    return rankings.show(part_of(ranking, done[0].first, done[0].last), options)


# ------------------------------------------------------------------------------------------ sweep
def _stream(
    own: Shard, options: argparse.Namespace, tally: Tally, writer: Writer | None, done: int
) -> Any:
    """The rows of a shard that are not done, a chunk at a time; an empty table at the end."""
    from scalemodel.search.sweep_file import only, sweep_parts

    report = _progress(options)
    rows = own.last - own.first
    empty = None
    for frame in sweep_parts(own, options.threads, report, rows=CHUNK_ROWS, done=done):
        tally.add(frame)
        if writer is not None and (len(frame) or not rows):
            writer.write(only(frame, options.columns))
        if empty is None:
            empty = frame.iloc[:0].copy()
        del frame  # or it stays in memory beside the next one, and beside the row groups
    if report is not None:
        report(rows, rows)
    assert empty is not None
    return empty


def _sweep(options: argparse.Namespace) -> int:
    from scalemodel.search.sweep_file import FileOutput, Tally, needed_columns, sweep_metadata
    from scalemodel.search.table_draft import writing_chunks
    from scalemodel.search.table_file import check_suffix

    if options.resume and not options.out:
        raise ScaleModelError("resume: needs the file to be continued (--out FILE)")
    model, cluster, task, space = asked(options)
    if options.count:
        return _print_count(options, space.size(model, cluster, task))
    number, count = options.shard
    if options.out:
        check_suffix(options.out)
    tally, done = Tally(), []
    streams_out = not options.out and (options.csv or options.json)

    def work(own: Shard) -> Any:
        done.append(own)
        columns = None if options.columns is None else tuple(options.columns)
        asked = replace(own.question, columns=columns)
        written = bool(options.out or streams_out)
        needed = needed_columns(columns if written else ())
        own = replace(own, question=replace(own.question, columns=needed))
        with ExitStack() as stack:
            writer: Writer | None = None
            rows_done = 0
            if options.out:
                chunks = stack.enter_context(
                    writing_chunks(options.out, sweep_metadata(own, asked), resume=options.resume)
                )
                writer, rows_done = FileOutput(chunks, tally), chunks.rows
            elif options.csv:
                writer = CsvOutput()
            elif options.json:
                writer = JsonOutput()
                stack.callback(writer.close)
            return _stream(own, options, tally, writer, rows_done)

    sweep(
        model,
        cluster,
        task,
        space,
        columns=options.columns,
        stack=options.stack,
        executor=_OneShard(number, work),
        shards=count,
    )
    (own,) = done
    if not streams_out:
        _show_tally(own, tally, options)
    nothing = tally.best is None and own.last - own.first == own.question.size
    return NOTHING_FEASIBLE if nothing else OK


def _show_tally(own: Shard, tally: Tally, options: argparse.Namespace) -> None:
    from scalemodel.cli.estimates import rates_text
    from scalemodel.cli.estimates import record as estimate_record
    from scalemodel.estimator.estimate import estimate
    from scalemodel.search.ranking_file import rows_text

    q, rows, best = own.question, own.last - own.first, None
    if tally.best is not None:
        numbered = enumeration(q.space, q.model, q.cluster, q.task)
        best = estimate(q.model, q.cluster, q.task, numbered.strategy(tally.best[1]), stack=q.stack)
    if options.json:
        print_json(
            {
                **rankings.question_document(q),
                "space_rows": q.size,
                "rows": [own.first, own.last],
                "counts": tally.ordered(),
                "best": None if best is None else estimate_record(best),
                "out": options.out,
            }
        )
        return
    if options.csv:
        print("verdict,rows")
        for verdict, number in tally.ordered().items():
            print(f"{verdict},{number}")
        return
    print(question_text(q))
    if rows < q.size:
        print(f"part: {rows_text(((own.first, own.last),))} of {q.size:,}" if rows else "no rows")
    print(rankings.counts_text(rows, tally.ordered()))
    if best is not None and tally.best is not None:
        print(f"fastest: row {tally.best[1]:,}: {strategy_text(best.strategy, best.core.dp)}")
        print(rates_text(best))
    else:
        print("none of them fits")
    if options.out:
        print(f"written to {options.out}")
