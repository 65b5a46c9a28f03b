"""``scalemodel rl``: one step of reinforcement learning, or the best split of accelerators."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import (
    add_formats,
    add_model,
    add_strategy,
    cluster_of,
    given,
    model_name,
    number,
    whole,
)
from scalemodel.cli.output import (
    INFEASIBLE,
    NOTHING_FEASIBLE,
    OK,
    cell,
    print_csv,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from scalemodel import resolve
    from scalemodel.post_training import Rl, RlEstimate, RlRanking
    from scalemodel.post_training.answer import PhasedStep

#: Option, its type or choices, whether it is needed, and what it means.
Row = tuple[str, Any, bool, str]
#: Lengths of the sequences of any task.
LENGTHS: tuple[Row, ...] = (
    ("prompt_tokens", number, True, "tokens of a prompt"),
    ("generated_tokens", number, True, "tokens of an answer, in the mean"),
    ("limit_tokens", whole, True, "tokens of prompt and answer together at most"),
    ("spread", number, False, "deviation of the logarithm of lengths (default 0.8)"),
)
TRAIN_BATCH: Row = ("train_batch", whole, False, "sequences of an optimizer step (default: all)")
PRECISION: Row = (
    *("precision", ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4"), False),
    "of training",
)
ROLLOUT_PRECISION: Row = (
    *("rollout_precision", ("fp16", "bf16", "fp8", "fp4"), False),
    "of generation",
)
TASK: tuple[Row, ...] = (
    ("prompts", whole, True, "prompts of a step"),
    ("generations", whole, True, "answers to each prompt"),
    *LENGTHS,
    TRAIN_BATCH,
    ("algorithm", ("grpo", "ppo", "dapo", "rloo"), False, "(default grpo)"),
    ("accepted_fraction", number, False, "of prompts, the others drawn again: dapo (default 1)"),
    ("oversampling", number, False, "prompts of a round over those of a step (default 1)"),
    ("reward_model", str, False, "model that scores answers (default: they are verified)"),
    ("critic_model", str, False, "critic of ppo (default: the policy's size)"),
    PRECISION,
    ROLLOUT_PRECISION,
)
_SWITCHES = (
    ("reference", "log-probabilities of a reference model (default on)"),
    ("logprob", "log-probabilities of the policy by those that train (default on)"),
)


def add_job(parser: argparse.ArgumentParser) -> None:
    """Options of the model, its accelerators and its software."""
    add_model(parser)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="nodes of the job")
    size.add_argument("--accelerators", type=whole, metavar="N", help="accelerators of the job")
    cluster.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    parser.set_defaults(network=None)


def add_fields(group: Any, rows: Sequence[Row]) -> None:
    """An option for each field of a task."""
    for name, kind, needed, text in rows:
        option = "--" + name.replace("_", "-")
        if isinstance(kind, tuple):
            group.add_argument(option, choices=kind, help=text)
        else:
            metavar = "MODEL" if kind is str else "N"
            group.add_argument(option, type=kind, required=needed, metavar=metavar, help=text)


def add_pools(parser: argparse.ArgumentParser) -> Any:
    """Options of the accelerators that generate."""
    pools = parser.add_argument_group("pools")
    pools.add_argument(
        "--rollout-accelerators",
        type=whole,
        metavar="N",
        help="of the job, that only generate; the others train (default: all do both in turn)",
    )
    pools.add_argument("--rollout-tp", type=whole, metavar="N", help="of a replica (default 1)")
    pools.add_argument("--memory-share", type=number, metavar="N", help="of the engine")
    pools.add_argument(
        "--refit",
        choices=("broadcast", "reshard", "rdma", "rdma_whole"),
        default="broadcast",
        help="how new weights reach a pool of their own (default broadcast)",
    )
    pools.add_argument("--engine", default="vllm_v1", metavar="NAME", help="of generation")
    return pools


def pools_of(options: argparse.Namespace, *names: str) -> list[resolve.Cluster | None]:
    """Accelerators that train, and of each of the pools that options take from them."""
    from scalemodel import resolve

    whole_cluster = cluster_of(options)
    left = int(whole_cluster.accelerators)
    apart: list[resolve.Cluster | None] = []
    for name in names:
        count = getattr(options, name)
        if count is not None and not 0 < count < left:
            raise ScaleModelError(
                f"--{name.replace('_', '-')} {count}: leaves a pool empty; must be from 1 to "
                f"{left - 1}"
            )
        left -= count or 0
        pool = None if count is None else resolve.cluster(whole_cluster, accelerators=count)
        apart.append(pool)
    train = whole_cluster
    if any(pool is not None for pool in apart):
        train = resolve.cluster(whole_cluster, accelerators=left)
    return [train, *apart]


def show(options: argparse.Namespace, step: PhasedStep) -> int:
    """Prints a step and its phases."""
    record = {"model": model_name(options), "cluster": options.cluster, **step.to_dict()}
    if options.json:
        print_json(record)
    elif options.csv:
        print_csv(list(record), [list(record.values())])
    else:
        print(step)
        rows = step.breakdown().to_dict(orient="records")
        print_table(("phase", "pool", "time"), [_cells(row) for row in rows])
    return OK if step.verdict == "ok" else INFEASIBLE


def add_rl(commands: Any) -> None:
    """The command that predicts a step of reinforcement learning."""
    parser = commands.add_parser(
        "rl",
        help="predict a step of reinforcement learning",
        description="Predict rollout, scoring, training and new weights of a step of "
        "reinforcement learning, or find the best split of accelerators.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_rl)
    add_job(parser)
    task = parser.add_argument_group("task")
    add_fields(task, TASK)
    for name, text in _SWITCHES:
        task.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=text)
    pools = add_pools(parser)
    pools.add_argument("--staleness", type=whole, metavar="N", help="steps (default 0)")
    pools.add_argument("--partial-rollouts", action="store_true", help="over updates")
    pools.add_argument(
        "--stale-fraction",
        type=number,
        default=1.0,
        metavar="N",
        help="of answers that may be of older weights, with --partial-rollouts (default 1)",
    )
    pools.add_argument("--framework", choices=("nemo_rl", "verl", "areal"), default="nemo_rl")
    add_strategy(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--search", action="store_true", help="the best splits and layouts")
    output.add_argument("--top", type=whole, default=10, metavar="N", help="rows of --search")
    add_formats(parser)


def _task_of(options: argparse.Namespace) -> Rl:
    from scalemodel.post_training import Rl

    names = [row[0] for row in TASK] + [row[0] for row in _SWITCHES]
    found = {name: getattr(options, name) for name in names}
    return Rl(**{name: value for name, value in found.items() if value is not None})


def _step_of(options: argparse.Namespace) -> RlEstimate:
    from scalemodel.post_training import estimate_rl

    train, rollout = pools_of(options, "rollout_accelerators")
    assert train is not None
    share = options.memory_share
    return estimate_rl(
        options.model,
        train,
        _task_of(options),
        _core.Strategy(**given(options, _core.Strategy.fields())),
        _core.ServingLayout(tp=options.rollout_tp or 1),
        rollout=rollout,
        staleness=options.staleness or 0,
        engine=options.engine,
        stack=options.stack,
        memory_share=(0.6 if rollout is None else 0.8) if share is None else share,
        partial_rollouts=options.partial_rollouts,
        framework=options.framework,
        refit=options.refit,
        stale_fraction=options.stale_fraction,
    )


def _ranking_of(options: argparse.Namespace) -> RlRanking:
    from scalemodel.post_training import search_rl

    return search_rl(
        options.model,
        cluster_of(options),
        _task_of(options),
        engine=options.engine,
        stack=options.stack,
        framework=options.framework,
        top=options.top,
        **({} if options.staleness is None else {"staleness": (options.staleness,)}),
    )


def _rl(options: argparse.Namespace) -> int:
    if options.search:
        return _search(options)
    return show(options, _step_of(options))


def _cells(row: Mapping[Any, Any]) -> list[str]:
    """A row for a terminal: seconds with their unit, other numbers to four digits."""
    from scalemodel.base.text import time_text

    return [
        time_text(value)
        if str(name).endswith("_s")
        else f"{value:.4g}"
        if isinstance(value, float)
        else cell(value)
        for name, value in row.items()
    ]


def _search(options: argparse.Namespace) -> int:
    found = _ranking_of(options)
    frame = found.table()
    rows = frame.to_dict(orient="records")
    if options.json:
        print_json({"tried": found.tried, "why": found.why(), "steps": rows})
    elif options.csv:
        print_csv([str(name) for name in frame], [list(row.values()) for row in rows])
    else:
        print(found.why())
        print_table([str(name) for name in frame], [_cells(row) for row in rows])
    return OK if rows else NOTHING_FEASIBLE
