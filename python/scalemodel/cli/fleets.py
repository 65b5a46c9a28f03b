"""``scalemodel fleet``: a trace through a fleet, or the cheapest fleet for it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import MODEL_HELP, add_formats, number, option_name, whole
from scalemodel.cli.output import (
    NOTHING_FEASIBLE,
    OK,
    print_csv,
    print_json,
    print_table,
    report,
)
from scalemodel.serving.limits import LIMITS, in_milliseconds, limits_of

if TYPE_CHECKING:
    from scalemodel.serving.plan import ServingPlan
    from scalemodel.serving.served_fleet import ServedFleet
    from scalemodel.serving.traces import Trace


def add_fleet(commands: Any) -> None:
    """The command that serves a trace with a fleet."""
    parser = commands.add_parser(
        "fleet",
        help="serve a trace with a fleet of replicas, or find the cheapest one",
        description="Serve recorded requests with replicas on one or several clusters behind a "
        "router, their prefix caches included; or, without --replicas, find the cheapest fleet "
        "that keeps limits of latency.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_fleet)
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("file", metavar="FILE", help="recorded requests, as of `scalemodel trace`")
    fleet = parser.add_argument_group("fleet")
    fleet.add_argument(
        "--cluster", required=True, action="append", metavar="NAME|TOML", help="may be repeated"
    )
    fleet.add_argument(
        "--replicas",
        type=whole,
        action="append",
        metavar="N",
        help="on the clusters, in their order; without it the cheapest fleet is sought",
    )
    fleet.add_argument(
        "--tp",
        type=whole,
        metavar="N",
        help="ranks of a replica (default: the fewest that hold it)",
    )
    fleet.add_argument("--engine", default="vllm_v1", metavar="NAME", help="serving engine")
    fleet.add_argument("--router", metavar="NAME", help="such as least_loaded or prefix_aware")
    fleet.add_argument(
        "--max-replicas", type=whole, default=64, metavar="N", help="of a kind (default 64)"
    )
    fleet.add_argument(
        "--store-tokens", type=number, default=0.0, metavar="X", help="of a store of prefixes"
    )
    fleet.add_argument("--seed", type=whole, default=0, metavar="N", help="of random choices")
    held = parser.add_argument_group("limits, in seconds (with --replicas: of every request)")
    for name in LIMITS:
        held.add_argument(option_name(name), type=number, metavar="X")
    add_formats(parser)


def _replica(options: argparse.Namespace, name: str, trace: Trace) -> ServingPlan:
    """One replica on a cluster."""
    from scalemodel import resolve
    from scalemodel.serving import serve
    from scalemodel.serving.fleet_plan import smallest_replica, task_of

    cluster, task = resolve.cluster(name), task_of(trace, None)
    layouts = _layouts(options)
    if layouts is None:
        found = smallest_replica(options.model, cluster, task, options.engine)
    else:
        engine = options.engine
        found = [serve(options.model, cluster, task, layouts[0], engine=engine, replicas=1)]
    if not found or not found[0].fits:
        raise ScaleModelError(f"--cluster={name}: holds no replica of {options.model}")
    return found[0]


def _layouts(options: argparse.Namespace) -> list[_core.ServingLayout] | None:
    return None if options.tp is None else [_core.ServingLayout(tp=options.tp)]


def _print(options: argparse.Namespace, served: ServedFleet, more: dict[str, Any]) -> None:
    found = {"router": served.policy.router, **more, **served.summary()}
    if options.json:
        replicas = served.replicas.to_dict("records")
        print_json({**found, "replicas": replicas})
    elif options.csv:
        table = served.replicas
        print_csv(list(table.columns), table.to_numpy().tolist())
    else:
        print(served)
        shown = [(k, f"{v:,.6g}" if isinstance(v, float) else str(v)) for k, v in found.items()]
        print_table(("quantity", "value"), shown)


def _simulated(options: argparse.Namespace, trace: Trace, limits: dict[str, float]) -> int:
    from scalemodel.serving.fleet import simulate_fleet

    if len(options.replicas) != len(options.cluster):
        raise ScaleModelError(
            f"--replicas: {len(options.replicas)} numbers for {len(options.cluster)} clusters: "
            "must be one each"
        )
    served = simulate_fleet(
        trace,
        [
            (_replica(options, name, trace), count)
            for name, count in zip(options.cluster, options.replicas, strict=True)
        ],
        router=options.router or "least_loaded",
        limits=limits,
        store_tokens=options.store_tokens,
        seed=options.seed,
    )
    _print(options, served, {})
    return OK


def _planned(options: argparse.Namespace, trace: Trace, limits: dict[str, float]) -> int:
    from scalemodel.serving.fleet_plan import FleetPlan, plan_fleet

    if not limits:
        raise ScaleModelError("fleet: needs --replicas, or a limit to keep, such as --ttft-p99-s")
    plan = plan_fleet(
        trace,
        options.model,
        options.cluster,
        limits,
        engine=options.engine,
        layouts=_layouts(options),
        routers=None if options.router is None else [options.router],
        max_replicas=options.max_replicas,
        store_tokens=options.store_tokens,
        seed=options.seed,
    )
    assert isinstance(plan, FleetPlan)
    if plan.served is None:
        report("nothing feasible", plan.message)
        return NOTHING_FEASIBLE
    fleet = " + ".join(f"{count} x {name}" for name, count in plan.counts.items())
    _print(
        options,
        plan.served,
        {"fleet": fleet, "usd_per_hour": plan.usd_per_hour, "fleets_tried": plan.tried},
    )
    return OK


def _fleet(options: argparse.Namespace) -> int:
    from scalemodel.serving.traces import read_trace

    limits = limits_of({name: getattr(options, name) for name in LIMITS})
    wrong = in_milliseconds(limits)
    if wrong:
        raise ScaleModelError(wrong)
    trace = read_trace(options.file)
    if options.replicas is not None:
        return _simulated(options, trace, limits)
    return _planned(options, trace, limits)
