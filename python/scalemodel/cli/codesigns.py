"""``scalemodel codesign``: the best strategy of every hardware point."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.cli import rankings
from scalemodel.cli.options import (
    add_formats,
    add_knob,
    add_question,
    cluster_of,
    given,
    objective,
    task_of,
    whole,
)
from scalemodel.cli.output import NOTHING_FEASIBLE, OK, print_csv, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd


def variation(text: str) -> tuple[str, list[float | str]]:
    """A path and the values it takes, read from ``path=value,value``; numbers scale, texts set.

    Examples
    --------
    >>> variation("fabric.bandwidth=0.5,1,800 Gbit/s")
    ('fabric.bandwidth', [0.5, 1.0, '800 Gbit/s'])
    """
    path, sign, listed = (piece.strip() for piece in text.partition("="))
    values = [value.strip() for value in listed.split(",")]
    if not sign or not path or not all(values):
        raise argparse.ArgumentTypeError(f"{text!r}: must be like fabric.bandwidth=0.5,1,2")
    return path, [_number_or_text(value) for value in values]


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def add_codesign(commands: Any) -> None:
    """The command that varies the hardware."""
    parser = commands.add_parser(
        "codesign",
        help="vary the hardware, the best strategy at every point",
        description="Vary quantities of a cluster and search the best strategy of every point.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_codesign)
    add_question(parser)
    hardware = parser.add_argument_group("hardware")
    hardware.add_argument(
        "--vary",
        action="append",
        required=True,
        type=variation,
        metavar="PATH=VALUE,...",
        help="a key of the cluster's entry, as fabric.bandwidth or accelerator.memory.capacity; "
        "a number scales it, a text such as 800 Gbit/s sets it; may be repeated",
    )
    hardware.add_argument(
        "--mode",
        choices=["grid", "zip"],
        default="grid",
        help="every combination, or the first values together, then the second (default grid)",
    )
    hardware.add_argument(
        "--budget", action="append", default=[], metavar="TEXT", help="limit on a varied quantity"
    )
    aim = parser.add_argument_group("aim")
    aim.add_argument(
        "--objective", type=objective, default="step_time_s", metavar="COLUMN|COLUMN=WEIGHT,..."
    )
    aim.add_argument("--constraint", action="append", default=[], metavar="TEXT")
    aim.add_argument("--threads", type=whole, metavar="N", help="default: one per usable core")
    knobs = parser.add_argument_group("strategies (values to try; default: the usual ones)")
    for row in _core.Strategy.fields():
        add_knob(knobs, row)
    add_formats(parser)


def _codesign(options: argparse.Namespace) -> int:
    from scalemodel.codesign import codesign
    from scalemodel.search.space import Space

    named = given(options, _core.Strategy.fields())
    study = codesign(
        options.model,
        cluster_of(options),
        task_of(options),
        Space(**{name: values for name, values in named.items() if values != ["auto"]}),
        vary=dict(options.vary),
        mode=options.mode,
        objective=options.objective,
        constraints=options.constraint,
        budget=options.budget or None,
        stack=options.stack,
        threads=options.threads,
    )
    rows = rankings.records(study)
    paths = [path for path, _ in options.vary]
    if options.json:
        print_json({"units": study.attrs["units"], "points": rows})
    elif options.csv:
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    else:
        _print(study, paths, rows)
    return OK if (study["verdict"] == "ok").any() else NOTHING_FEASIBLE


def _print(study: pd.DataFrame, paths: list[str], rows: list[dict[str, Any]]) -> None:
    from scalemodel.base.text import count_text, percent_text, time_text
    from scalemodel.plot.columns import strategy_text

    units = study.attrs["units"]
    header = [f"{path} ({units[path]})" if units.get(path) else path for path in paths]
    cells = []
    for row in rows:
        point = [
            value if isinstance(value, str) else count_text(value)
            for value in (row[path] for path in paths)
        ]
        answer = (
            [strategy_text(row), time_text(row["step_time_s"]), percent_text(row["mfu_fraction"])]
            if row["verdict"] == "ok"
            else [row["verdict"], "", ""]
        )
        cells.append([*point, *answer])
    print_table([*header, "strategy", "step", "MFU"], cells)
