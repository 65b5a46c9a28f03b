"""``scalemodel scaling``: one job over many sizes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.units import in_base_units
from scalemodel.cli import rankings
from scalemodel.cli.options import (
    add_field,
    add_formats,
    add_model,
    add_network,
    add_task,
    given,
    objective,
    task_of,
    whole,
)
from scalemodel.cli.output import NOTHING_FEASIBLE, OK, print_csv, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd

_HEADER = (
    "accelerators",
    "strategy",
    "step",
    "tokens/s each",
    "MFU",
    "exposed",
    "power",
    "tokens/J",
    "USD/M tokens",
    "efficiency",
    "marginal",
)


def add_scaling(commands: Any) -> None:
    """The command that follows a job over many sizes."""
    parser = commands.add_parser(
        "scaling",
        help="follow one job over many sizes",
        description="Predict one job at many sizes: throughput, efficiency, power and cost of "
        "each, and where returns diminish. Without a rule or strategy the best one is searched "
        "at every size.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_scaling)
    add_model(parser)
    size = parser.add_argument_group("sizes")
    size.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size.add_argument(
        "--gpus", required=True, nargs="+", type=whole, metavar="N", help="accelerators of the job"
    )
    size.add_argument(
        "--mode",
        choices=["weak", "strong"],
        default="weak",
        help="whether the batch grows with the job, from that of the smallest size (default weak)",
    )
    size.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    add_network(size, policies=True)
    add_task(parser)
    fixed = parser.add_argument_group("strategy (any of these: the same at every size)")
    fixed.add_argument(
        "--rule",
        choices=["ddp", "fsdp", "hsdp"],
        help="sharding of a strategy without, or with the given, model parallelism",
    )
    for row in _core.Strategy.fields():
        if row["name"] != "dp":
            add_field(fixed, row)
    searched = parser.add_argument_group("search (where no strategy is given)")
    searched.add_argument(
        "--objective", type=objective, default="step_time_s", metavar="COLUMN|COLUMN=WEIGHT,..."
    )
    searched.add_argument("--constraint", action="append", default=[], metavar="TEXT")
    searched.add_argument("--threads", type=whole, metavar="N", help="default: one per usable core")
    add_formats(parser)


def _scaling(options: argparse.Namespace) -> int:
    from scalemodel.scaling import scaling

    knobs = given(options, (row for row in _core.Strategy.fields() if row["name"] != "dp"))
    curve = scaling(
        options.model,
        options.cluster,
        task_of(options),
        options.gpus,
        mode=options.mode,
        strategy=_core.Strategy(**knobs) if knobs else None,
        rule=options.rule,
        objective=options.objective,
        constraints=[in_base_units(text) for text in options.constraint],
        stack=options.stack,
        network=options.network,
        threads=options.threads,
    )
    rows = rankings.records(curve)
    if options.json:
        print_json({**curve.attrs, "sizes": rows})
    elif options.csv:
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    else:
        _print(curve, rows)
    return OK if (curve["verdict"] == "ok").any() else NOTHING_FEASIBLE


def _cells(row: dict[str, Any]) -> list[object]:
    from scalemodel.base.text import count_text, money_text, percent_text, time_text
    from scalemodel.plot.columns import strategy_text

    size = f"{row['accelerators']:,}"
    if row["step_time_s"] is None:
        return [size, row["verdict"]]
    text = strategy_text(row) if row["verdict"] == "ok" else row["verdict"]
    price, efficiency, marginal = (
        row[name]
        for name in ("usd_per_token", "scaling_efficiency_fraction", "marginal_return_fraction")
    )
    return [
        size,
        text,
        time_text(row["step_time_s"]),
        f"{row['tokens_per_s_per_accelerator']:,.0f}",
        percent_text(row["mfu_fraction"]),
        percent_text(row["exposed_fraction"]),
        f"{row['power_w']:,.0f} W",
        count_text(row["tokens_per_j"]),
        "" if price is None else money_text(1e6 * price),
        "" if efficiency is None else percent_text(efficiency),
        "" if marginal is None else percent_text(marginal),
    ]


def _print(curve: pd.DataFrame, rows: list[dict[str, Any]]) -> None:
    said = curve.attrs
    print(f"{said['model']} · {said['cluster']} · {said['mode']} scaling · stack {said['stack']}")
    cells = [_cells(row) for row in rows]
    print_table(_HEADER, [[*row, *[""] * (len(_HEADER) - len(row))] for row in cells])
    print(f"network {said['network']}")
    diminishing = said["diminishing"]
    if diminishing["exposed_above"] is not None:
        size = diminishing["exposed_above"]
        print(f"from {size:,} on, more than 5 % of a step is exposed communication")
    if diminishing["marginal_below"] is not None:
        size = diminishing["marginal_below"]
        print(f"at {size:,} an added accelerator brings less than half of one before")
