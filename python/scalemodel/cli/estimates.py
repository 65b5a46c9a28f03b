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
    question_text,
    strategy_text,
)
from scalemodel.cli.runs import add_run, run_of, run_text

if TYPE_CHECKING:
    from scalemodel.estimator.estimate import Estimate

_BAR_WIDTH = 10


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


def _header(est: Estimate) -> str:
    return question_text(est, strategy_text(est.strategy, est.core.dp))


def rates_text(est: Estimate) -> str:
    """Speed, power and cost of a step."""
    from scalemodel.base.text import count_text, money_text, percent_text
    from scalemodel.estimator.uncertainty import step_text

    core, cluster = est.core, est.cluster
    tokens = est.task.global_batch * est.task.sequence
    facility_w = core.energy_j / core.step_time_s
    parts = [
        f"step {step_text(est)}",
        f"{count_text(core.tokens_per_s)} tokens/s",
        f"{core.tokens_per_s / cluster.accelerators:,.0f} tokens/s per accelerator",
        f"MFU {percent_text(core.mfu_fraction)}",
    ]
    if core.hfu_fraction > core.mfu_fraction:
        parts.append(f"HFU {percent_text(core.hfu_fraction)}")
    energy = [
        f"power {core.power_w:,.0f} W per accelerator, {count_text(facility_w)}W facility",
        f"energy {count_text(core.energy_j)}J a step",
    ]
    if est.cost_usd is not None:
        hourly = 3600 * cluster.core.price_usd_per_s
        per_million = money_text(est.cost_usd / tokens * 1e6)
        energy.append(
            f"cost {money_text(est.cost_usd)} a step, {per_million} / M tokens "
            f"at {hourly:.2f} USD/h ({cluster.price_source})"
        )
    return "   ".join(parts) + "\n" + "   ".join(energy)


def _bar(fraction: float) -> str:
    return "█" * max(0, round(_BAR_WIDTH * fraction))


def _time_line(est: Estimate) -> str:
    from scalemodel.base.text import percent_text, time_text
    from scalemodel.estimator.evaluation import TIME_COLUMNS

    core = est.core
    seconds = {column: float(getattr(core, column)) for column in TIME_COLUMNS}
    parts = []
    for column in sorted(seconds, key=lambda name: -seconds[name]):
        share = seconds[column] / core.step_time_s
        if share < 0.0005:
            continue
        cause = column.removesuffix("_s").removeprefix("exposed_")
        exposed = " exposed" if column.startswith("exposed_") else ""
        bar = _bar(share)
        parts.append(f"{cause}{exposed} {percent_text(share)}{' ' + bar if bar else ''}")
    hidden = f" (hidden underneath: {time_text(core.hidden_s)})" if core.hidden_s > 0 else ""
    return "time    " + "  ".join(parts) + hidden


def summary(est: Estimate) -> str:
    """One screen: the question, time, memory, verdict, what limits it, what to try next."""
    from scalemodel.base.text import size_text
    from scalemodel.estimator import diagnosis
    from scalemodel.estimator.diagnosis import fix_text, message
    from scalemodel.estimator.evaluation import kinds_text
    from scalemodel.estimator.losses import what_limits
    from scalemodel.resolve.clusters import network_text

    if est.illegal:
        return _header(est) + "\n" + message(est)
    core = est.core
    spare = core.memory_capacity_bytes - core.memory_bytes
    lines = [_header(est), rates_text(est), _time_line(est)]
    if est.extrapolates:
        lines.append(f"extrapolates: {'; '.join(est.extrapolates)}")
    if any(share < 1 for share in est.cluster.core.fabric.shares.to_dict().values()):
        lines.append(f"network {network_text(est.cluster)}")
    if not est.fits:
        return "\n".join([*lines, message(est)])
    lines.append(
        f"memory  {size_text(core.memory_bytes)} of {size_text(core.memory_capacity_bytes)}  "
        f"{kinds_text(est)}"
    )
    lines.append(f"verdict {est.verdict}: fits, {size_text(spare)} spare")
    lines.append(f"limited by: {what_limits(est)}")
    better = [fix_text(fix, relative=True) for fix in diagnosis.next_knobs(est)]
    lines.append("next best knobs: " + (" · ".join(better) if better else "no single one helps"))
    return "\n".join(lines)


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
