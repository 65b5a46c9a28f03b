"""``scalemodel estimate``: one strategy on one screen."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.cli.mixes import estimate_parts, has_parts
from scalemodel.cli.options import (
    add_formats,
    add_question,
    add_strategy,
    cluster_of,
    given,
    task_of,
)
from scalemodel.cli.output import (
    INFEASIBLE,
    OK,
    print_csv,
    print_json,
    question_record,
)
from scalemodel.cli.runs import add_run, run_of, run_text

if TYPE_CHECKING:
    from scalemodel.estimator.estimate import Estimate


def add_estimate(commands: Any) -> None:
    """The command that predicts one step."""
    parser = commands.add_parser(
        "estimate",
        help="predict one training step",
        description="Predict step time, memory, energy and cost of one training step.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_estimate)
    add_question(parser, policies=True)
    add_strategy(parser)
    add_run(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--explain", action="store_true", help="where every number comes from")
    add_formats(parser)


def ask(options: argparse.Namespace) -> Estimate:
    """The estimate that the options describe."""
    from scalemodel import resolve
    from scalemodel.estimator.estimate import estimate

    strategy = _core.Strategy(**given(options, _core.Strategy.fields()))
    model = resolve.model(options.model)
    cluster, task = cluster_of(options), task_of(options)
    if not isinstance(options.network, str):
        return estimate(model, cluster, task, strategy, stack=options.stack)
    from scalemodel.routing.route import estimate_routed

    return estimate_routed(
        model, cluster, task, strategy, stack=options.stack, policy=options.network
    )


def record(est: Estimate) -> dict[str, Any]:
    """One flat row: the question, then every column of the estimate."""
    return {**question_record(est), **est.to_dict()}


def rates_text(est: Estimate) -> str:
    """Speed, power and cost of a step."""
    from scalemodel.estimator import summary

    return summary.rates_text(est)


def summary(est: Estimate) -> str:
    """One screen: the question, time, memory, verdict, what limits it, what to try next."""
    return est.summary()


def _estimate(options: argparse.Namespace) -> int:
    if has_parts(options.cluster):
        return estimate_parts(options)
    est = ask(options)
    run = run_of(options, est)
    if options.json:
        document = record(est)
        if run is not None:
            document["run"] = run.to_dict()
        if not est.fits:
            fixes = est.fixes()
            from scalemodel.estimator.diagnosis import message

            document["message"] = message(est, fixes)
            document["fixes"] = [
                {
                    "change": fix.change,
                    "verdict": fix.verdict,
                    "step_time_s": fix.step_time_s,
                    "memory_bytes": fix.memory_bytes,
                }
                for fix in fixes
            ]
        if options.network is not None:
            document["network"] = est.cluster.core.fabric.shares.to_dict()
        if options.explain:
            document["explanation"] = est.explain().to_dict()
        print_json(document)
    elif options.csv:
        row = record(est)
        if run is not None:
            row.update({f"run_{name}": value for name, value in run.to_dict().items()})
        print_csv(list(row), [list(row.values())])
    else:
        print(summary(est))
        if run is not None:
            print(run_text(run))
        if options.explain and not est.illegal:
            print()
            print(est.explain())
    return OK if est.fits else INFEASIBLE
