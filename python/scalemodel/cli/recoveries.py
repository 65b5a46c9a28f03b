"""``scalemodel replan``, ``plan-spares`` and ``plan-checkpoints``: what failures ask for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

import scalemodel._core as _core
from scalemodel.cli.options import (
    add_formats,
    add_question,
    add_strategy,
    cluster_of,
    given,
    number,
    task_of,
    whole,
)
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json, print_table, report
from scalemodel.cli.runs import number_or_name

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.economics.failures import Rule
    from scalemodel.estimator.estimate import Estimate


def add_replan(commands: Any) -> None:
    """The command that compares the ways to go on after a loss."""
    parser = commands.add_parser(
        "replan",
        help="compare the ways to go on after nodes are lost",
        description="Wait, restart on spares, go on with fewer replicas, or search a new strategy: "
        "rate, time lost, and which way has done the most work by the repair and by a horizon.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_replan)
    add_question(parser)
    add_strategy(parser)
    loss = _failure_group(parser, "loss")
    loss.add_argument("--lost-nodes", type=whole, default=1, metavar="N", help="default 1")
    loss.add_argument("--spares", type=whole, default=0, metavar="N", help="nodes that stand ready")
    loss.add_argument(
        "--horizon-s", type=number, metavar="S", help="count work until (default a day after)"
    )
    loss.add_argument(
        "--since-checkpoint-s", type=number, metavar="S", help="work since the last one (mean)"
    )
    loss.add_argument(
        "--memory-copies",
        type=whole,
        default=0,
        metavar="N",
        help="copies of every node's state in the memory of others",
    )
    loss.add_argument(
        "--read",
        default="object_store",
        metavar="NAME|N",
        help="object_store, disk, block_volume, or bytes per second of a node",
    )
    add_formats(parser)


def add_plan_spares(commands: Any) -> None:
    """The command that counts hot spares."""
    parser = commands.add_parser(
        "plan-spares",
        help="find how many hot spares a long run should keep",
        description="Productive share, work per node-hour and price of a long run by number of hot "
        "spares, for a job that restarts at a failure and for one whose other replicas go on.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_plan_spares)
    add_question(parser)
    add_strategy(parser)
    spares = _failure_group(parser, "spares")
    spares.add_argument(
        "--replicas", type=whole, metavar="N", help="that fail one by one (default the strategy's)"
    )
    spares.add_argument(
        "--quorum-s", type=number, default=0.0, metavar="S", help="of every step, not hidden"
    )
    spares.add_argument("--most-spares", type=whole, metavar="N", help="the most to look at")
    spares.add_argument("--price", metavar="BASIS|NAME|N", help="as of estimate --tokens")
    add_formats(parser)


def add_plan_checkpoints(commands: Any) -> None:
    """The command that places checkpoints."""
    parser = commands.add_parser(
        "plan-checkpoints",
        help="find where and how often a run should write checkpoints",
        description="Standstill, time until it counts, host memory, best interval and productive "
        "share of checkpoints in host memory, on local disks, in a shared file system or an object "
        "store, written synchronously or not, and of mixes of them.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_plan_checkpoints)
    add_question(parser)
    add_strategy(parser)
    group = parser.add_argument_group("checkpoints")
    group.add_argument(
        "--tier",
        action="append",
        metavar="NAME",
        help="host_memory, local_disk, shared_file_system or object_store, repeatable (all)",
    )
    group.add_argument(
        "--copies", type=whole, default=1, metavar="N", help="of a node's part, on other nodes"
    )
    group.add_argument(
        "--shared-bytes-per-s", type=number, metavar="N", help="of the storage, from all nodes"
    )
    group.add_argument(
        "--failures", default="llama_3", metavar="NAME|N", help="per node-day (default: llama_3)"
    )
    group.add_argument("--restart-s", type=number, metavar="S", help="before the state is read")
    group.add_argument(
        "--interval", default="young", metavar="RULE|S", help="young, daly, availability or seconds"
    )
    add_formats(parser)


def _failure_group(parser: argparse.ArgumentParser, title: str) -> Any:
    group = parser.add_argument_group(title)
    group.add_argument(
        "--repair-s",
        required=True,
        type=number,
        metavar="S",
        help="from a failure until the node stands ready again",
    )
    group.add_argument(
        "--failures", default="llama_3", metavar="NAME|N", help="per node-day (default: llama_3)"
    )
    group.add_argument(
        "--stall-s", type=number, metavar="S", help="of the other replicas at a failure"
    )
    return group


def running_job(options: argparse.Namespace) -> Estimate | None:
    """The estimate asked for; None, and a line that says why, where there is no job to lose."""
    from scalemodel.estimator.estimate import estimate
    from scalemodel.estimator.verdicts import what_is_wrong

    strategy = _core.Strategy(**given(options, _core.Strategy.fields()))
    est: Estimate = estimate(
        options.model, cluster_of(options), task_of(options), strategy, stack=options.stack
    )
    if est.fits:
        return est
    report("error", f"{est.verdict}: {what_is_wrong(est)}")
    return None


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    finite = table.astype(object).where(table.notna() & (table != float("inf")), None)
    return [dict(zip(table.columns, row, strict=True)) for row in finite.to_numpy().tolist()]


def _replan(options: argparse.Namespace) -> int:
    from scalemodel.economics import replan

    est = running_job(options)
    if est is None:
        return INFEASIBLE
    found = replan(
        est,
        options.lost_nodes,
        repair_s=options.repair_s,
        horizon_s=options.horizon_s,
        spares=options.spares,
        reliability=number_or_name(options.failures),
        since_checkpoint_s=options.since_checkpoint_s,
        memory_copies=options.memory_copies,
        stall_s=options.stall_s,
        read=number_or_name(options.read),
    )
    rows = _rows(found.table)
    if options.json:
        best = {"best_until_repair": found.best_until_repair, "best": found.best}
        print_json({**best, "options": rows})
    elif options.csv:
        print_csv(list(found.table.columns), [list(row.values()) for row in rows])
    else:
        print(found)
    return OK


def _plan_spares(options: argparse.Namespace) -> int:
    from scalemodel.economics import plan_spares

    est = running_job(options)
    if est is None:
        return INFEASIBLE
    price = None if options.price is None else number_or_name(options.price)
    table = plan_spares(
        est,
        repair_s=options.repair_s,
        failures=number_or_name(options.failures),
        replicas=options.replicas,
        stall_s=options.stall_s,
        quorum_s=options.quorum_s,
        most_spares=options.most_spares,
        price=price,
    )
    rows = _rows(table)
    if options.json:
        print_json({"spares": rows})
    elif options.csv:
        print_csv(list(table.columns), [list(row.values()) for row in rows])
    else:
        _print_spares(rows)
    return OK


def _print_spares(rows: list[dict[str, Any]]) -> None:
    from scalemodel.base.text import count_text, money_text, percent_text

    header = ("policy", "spares", "productive", "queue", "per node-hour", "tokens/s", "per 1M", "")
    cells = []
    for row in rows:
        shares = ("productive_fraction", "queueing_fraction", "work_per_node_fraction")
        usd = row["usd_per_million_tokens"]
        cells.append(
            [
                row["policy"],
                str(row["spares"]),
                *(percent_text(row[name]) for name in shares),
                count_text(row["goodput_tokens_per_s"]),
                "" if usd is None else money_text(usd),
                "best" if row["best"] else "",
            ]
        )
    print_table(header, cells)


def _plan_checkpoints(options: argparse.Namespace) -> int:
    from scalemodel.economics import plan_checkpoints

    est = running_job(options)
    if est is None:
        return INFEASIBLE
    table = plan_checkpoints(
        est,
        tiers=options.tier,
        copies=options.copies,
        shared_bytes_per_s=options.shared_bytes_per_s,
        failures=number_or_name(options.failures),
        restart_s=options.restart_s,
        interval=cast("Rule | float", number_or_name(options.interval)),
    )
    rows = _rows(table)
    if options.json:
        print_json({"checkpoints": rows})
    elif options.csv:
        print_csv(list(table.columns), [list(row.values()) for row in rows])
    else:
        _print_checkpoints(rows)
    return OK


def _print_checkpoints(rows: list[dict[str, Any]]) -> None:
    from scalemodel.base.text import percent_text, size_text, time_text

    size = size_text(rows[0]["checkpoint_bytes"])
    print(f"{size} in all, {size_text(rows[0]['node_bytes'])} of the busiest node")
    header = ("tier", "mode", "stands still", "counts after", "host memory", "every", "productive")
    cells = []
    for row in rows:
        often, share = row["interval_s"], row["productive_fraction"]
        cells.append(
            [
                row["tier"],
                row["mode"],
                time_text(row["blocking_s"]),
                time_text(row["background_s"]),
                size_text(row["host_memory_bytes"]),
                "" if often is None else time_text(often),
                "" if share is None else percent_text(share),
                "best" if row["best"] else row["verdict"],
            ]
        )
    print_table((*header, ""), cells)
