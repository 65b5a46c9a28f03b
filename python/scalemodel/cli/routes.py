"""``scalemodel route``: what routing policies make of the traffic of jobs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import add_formats, number, whole
from scalemodel.cli.output import INFEASIBLE, OK, print_csv, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd

    from scalemodel.routing import Fabric, RoutingReport, Traffic


def add_route(commands: Any) -> None:
    """The command that routes flows."""
    parser = commands.add_parser(
        "route",
        help="route the traffic of jobs over a network",
        description="Choose paths for the flows of concurrent jobs and judge them: rates, "
        "slowdowns, fullest links. Several policies are compared.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_route)
    fabric = parser.add_argument_group("fabric (leaf-spine unless a cluster is named)")
    fabric.add_argument("--cluster", metavar="NAME|TOML", help="rail-optimised, of this cluster")
    fabric.add_argument("--nodes", type=whole, metavar="N", help="nodes of the cluster")
    fabric.add_argument("--leaves", type=whole, default=64, metavar="N", help="default 64")
    fabric.add_argument("--spines", type=whole, default=32, metavar="N", help="default 32")
    fabric.add_argument("--nics-per-leaf", type=whole, default=32, metavar="N", help="default 32")
    fabric.add_argument("--bandwidth", default="100 Gbit/s", metavar="RATE", help="of every link")
    fabric.add_argument(
        "--failed-spines", type=whole, default=0, metavar="N", help="the last N spines are down"
    )
    traffic = parser.add_argument_group("traffic")
    traffic.add_argument(
        "--flows", metavar="CSV", help="columns job, source, destination, size_bytes [, group]"
    )
    traffic.add_argument(
        "--demands",
        metavar="CSV",
        help="a controller's day: columns time_s, event (arrive, depart, fail, repair), job, "
        "source, destination, size_bytes, target (such as 'spine 3'); --csv writes what every run "
        "changes",
    )
    traffic.add_argument(
        "--jobs", type=whole, default=5, metavar="N", help="paper mix: 2 to 5 jobs"
    )
    traffic.add_argument("--ring", type=whole, default=4, metavar="N", help="paper mix: 2, 4 or 8")
    traffic.add_argument(
        "--placement",
        choices=["random_leaves", "packed", "random_servers"],
        default="random_leaves",
        help="of the paper mix (default random_leaves)",
    )
    how = parser.add_argument_group("routing")
    how.add_argument(
        "--policy", default="balanced", metavar="NAME[,NAME...]", help="default balanced"
    )
    how.add_argument(
        "--model", choices=["fair_share", "allocated"], default="fair_share", help="rate model"
    )
    how.add_argument("--seed", type=whole, default=0, metavar="N", help="default 0")
    how.add_argument("--effort", type=number, default=1.0, metavar="X", help="of local search")
    demands = parser.add_argument_group("controller (with --demands)")
    demands.add_argument(
        "--reoptimise-every",
        type=number,
        default=0.0,
        metavar="S",
        help="seconds between runs of the controller (default: a run at every event)",
    )
    demands.add_argument(
        "--tolerance",
        type=number,
        default=0.0,
        metavar="X",
        help="keep paths where the fullest link drains at most this fraction slower, such as 0.1",
    )
    add_formats(parser)


def _fabric(options: argparse.Namespace) -> Fabric:
    from scalemodel import resolve
    from scalemodel.routing import Fabric

    if options.cluster is not None:
        size = {} if options.nodes is None else {"nodes": options.nodes}
        fabric = Fabric.of_cluster(resolve.cluster(options.cluster, **size))
    else:
        fabric = Fabric.leaf_spine(
            leaves=options.leaves,
            spines=options.spines,
            nics_per_leaf=options.nics_per_leaf,
            bandwidth=options.bandwidth,
        )
    if options.failed_spines > 0:
        spines = fabric.core.kinds().count("spine")
        if options.failed_spines > spines:
            raise ScaleModelError(
                f"failed_spines={options.failed_spines}: the fabric has {spines} spines"
            )
        fabric = fabric.failed(spines=range(spines - options.failed_spines, spines))
    return fabric


def _traffic(options: argparse.Namespace, fabric: Fabric) -> Traffic:
    from scalemodel.routing import Traffic

    if options.flows is None:
        return Traffic.paper_mix(
            fabric,
            jobs=options.jobs,
            ring=options.ring,
            placement=options.placement,
            seed=options.seed,
        )
    return Traffic.from_frame(_table("flows", options.flows))


def _table(argument: str, path: str) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(Path(path))
    except (OSError, ValueError) as error:
        raise ScaleModelError(f"{argument}={path}: cannot be read ({error})") from error


def _control(options: argparse.Namespace, fabric: Fabric) -> int:
    """Paths over time, of demands in a file."""
    from scalemodel.routing import plan_paths

    plan = plan_paths(
        fabric,
        _table("demands", options.demands),
        policy=options.policy,
        reoptimise_every_s=options.reoptimise_every,
        tolerance_fraction=options.tolerance,
        seed=options.seed,
        effort=options.effort,
    )
    runs = plan.attrs["runs"]
    if options.json:
        print_json({**plan.attrs, "changes": plan.to_dict("records")})
    elif options.csv:
        print_csv(list(plan.columns), plan.values.tolist())
    else:
        print(f"{fabric!r} · {options.policy} · {len(runs)} runs, {len(plan)} changes of a path")
        header = list(runs[0]) if runs else []
        print_table(header, [[f"{value:.6g}" for value in run.values()] for run in runs])
    return OK if plan.attrs["verdict"] == "ok" else INFEASIBLE


def _route(options: argparse.Namespace) -> int:
    from scalemodel.routing import route

    fabric = _fabric(options)
    if options.demands is not None:
        return _control(options, fabric)
    traffic = _traffic(options, fabric)
    reports = [
        route(
            fabric,
            traffic,
            policy=policy.strip(),
            model=options.model,
            seed=options.seed,
            effort=options.effort,
        )
        for policy in options.policy.split(",")
    ]
    rows = [report.to_dict() for report in reports]
    if options.json:
        for row, report in zip(rows, reports, strict=True):
            row["jobs"] = report.jobs().to_dict("records")
        print_json(rows if len(rows) > 1 else rows[0])
    elif options.csv:
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    else:
        _print(reports)
    return OK if all(report.verdict == "ok" for report in reports) else INFEASIBLE


def _print(reports: list[RoutingReport]) -> None:
    from scalemodel.base.text import count_text, percent_text, time_text

    first = reports[0]
    print(f"{first.fabric!r} · {first.traffic!r} · rates {first.model}")
    header = ["policy", "verdict", "max flows", "drain", "over bound", "slowest rate", "slowdown"]
    rows = []
    for report in reports:
        row = report.to_dict()
        rows.append(
            [
                report.policy,
                report.verdict,
                f"{row['max_flows']} (bound {row['bound_flows']})",
                time_text(report.drain_s),
                percent_text(report.gap_fraction),
                f"{count_text(8 * row['rate_min_bytes_per_s'])}bit/s",
                f"{row['slowdown_mean']:.3f} mean, {row['slowdown_max']:.3f} max",
            ]
        )
    print_table(header, rows)
    if len(reports) == 1:
        print()
        jobs = first.jobs()
        print_table(
            ["job", "flows", "slowdown", "slowest rate", "mean rate"],
            [
                [
                    job["job"],
                    job["flows"],
                    f"{job['slowdown']:.3f}",
                    f"{count_text(8 * job['slowest_bytes_per_s'])}bit/s",
                    f"{count_text(8 * job['mean_bytes_per_s'])}bit/s",
                ]
                for job in jobs.to_dict("records")
            ],
        )
