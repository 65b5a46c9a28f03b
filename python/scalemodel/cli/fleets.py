"""``scalemodel fleet``: a trace through a fleet, or the cheapest fleet for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import (
    add_field,
    add_formats,
    add_model,
    given,
    number,
    option_name,
    whole,
)
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
    import pandas as pd

    from scalemodel.resolve import Cluster
    from scalemodel.serving.fleet_pools import ServedPools
    from scalemodel.serving.plan import ServingPlan
    from scalemodel.serving.served_fleet import ServedFleet
    from scalemodel.serving.traces import Trace

#: Options of fleets that are given.
_GIVEN_ONLY = ("tier_bytes", "shed_queue", "decode_outage")
_OUTAGE = ("begin_s", "end_s", "first", "count")
#: Of a decode pool alone, by the options that say so.
_DECODE_ONLY = {"decode_autoscaler": "--decode-scale-...", "decode_outages": "--decode-outage"}
_SCALE, _DECODE_SCALE = "scale_", "decode_scale_"
#: Of the autoscaler, as options.
_SCALER_FIELDS, _DECODE_FIELDS = (
    [{**row, "name": prefix + str(row["name"])} for row in _core.Autoscaler.fields()]
    for prefix in (_SCALE, _DECODE_SCALE)
)


def add_fleet(commands: Any) -> None:
    """The command that serves a trace with a fleet."""
    parser = commands.add_parser(
        "fleet",
        help="serve a trace with a fleet of replicas, or find the cheapest one",
        description="Serve recorded requests with replicas on one or several clusters behind a "
        "router, their prefix caches, tiers below these and failures included; or, without "
        "--replicas, find the cheapest fleet that keeps limits of latency, in spite of failures "
        "and with tiers and an autoscaler where they help.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_fleet)
    add_model(parser)
    parser.add_argument("file", metavar="FILE", help="recorded requests, as of `scalemodel trace`")
    fleet = parser.add_argument_group("fleet")
    fleet.add_argument(
        "--cluster", required=True, action="append", metavar="NAME|TOML", help="may be repeated"
    )
    fleet.add_argument(
        "--nodes",
        type=whole,
        action="append",
        metavar="N",
        help="of the clusters in their order, or of all of them (default: as large as the entry)",
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
    fleet.add_argument(
        "--pools", action="store_true", help="prompts and answers on replicas of their own"
    )
    fleet.add_argument(
        "--decode-replicas",
        type=whole,
        action="append",
        metavar="N",
        help="of answers, on the clusters in their order; --replicas are then of prompts",
    )
    fleet.add_argument("--seed", type=whole, default=0, metavar="N", help="of random choices")
    _add_wrongs(parser)
    for pool, rows in (("", _SCALER_FIELDS), (" of a decode pool", _DECODE_FIELDS)):
        scale = parser.add_argument_group(f"an autoscaler{pool}, where any of these is given")
        for row in rows:
            add_field(scale, row)
    parser.add_argument(
        "--what-if",
        action="append",
        type=_case,
        metavar="CASE",
        help="a table instead: rate=2 (of the traffic), lost=4 (replicas, halfway), add=1 "
        "(replicas, with --replicas), clusters=A,B:4 (without; of 4 nodes); may be repeated",
    )
    held = parser.add_argument_group("limits, in seconds (with --replicas: of every request)")
    for name in LIMITS:
        held.add_argument(option_name(name), type=number, metavar="X")
    add_formats(parser)


def _add_wrongs(parser: argparse.ArgumentParser) -> None:
    """What lies below the caches, and what goes wrong."""
    wrong = parser.add_argument_group("below the caches, and failures")
    wrong.add_argument(
        "--tiers",
        action="append",
        metavar="NAME",
        help="such as hicache or mooncake_store; without --replicas to be tried, and repeated",
    )
    wrong.add_argument(
        "--tier-bytes",
        type=number,
        action="append",
        metavar="X",
        help="of each tier, the nearest first (default: as usual for it)",
    )
    for row in _core.Failures.fields():
        add_field(wrong, row)
    wrong.add_argument(
        "--outage",
        action="append",
        type=_outage,
        metavar="BEGIN:END:FIRST:COUNT",
        help="replicas that are down for a time, in seconds of the trace; may be repeated",
    )
    wrong.add_argument(
        "--decode-outage",
        action="append",
        type=_outage,
        metavar="BEGIN:END:FIRST:COUNT",
        help="the same of a decode pool, with --decode-replicas; without, outages are of both",
    )
    wrong.add_argument(
        "--shed-queue",
        type=number,
        metavar="X",
        help="requests are turned away while more wait per replica (with --replicas)",
    )


def _case(text: str) -> tuple[str, dict[str, Any]]:
    """A case of `what_if_fleet` or `what_if_plan`, as ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if name == "clusters" and value:
        return text, {name: [_sized(each) for each in value.split(",")]}
    try:
        figure = float(value) if name == "rate" else int(value)
    except ValueError:
        figure = 0
    if not equals or name not in ("rate", "lost", "add") or figure <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be rate=X, lost=N, add=N or clusters=NAME,NAME"
        )
    return text, {name: figure}


def _sized(text: str) -> tuple[str, int | None]:
    """A cluster and its nodes, as ``NAME`` or ``NAME:N``."""
    name, colon, nodes = text.rpartition(":")
    return (name, int(nodes)) if colon and nodes.isdecimal() else (text, None)


def _clusters(options: argparse.Namespace) -> list[Cluster]:
    """The clusters that were named, with their nodes."""
    from scalemodel import resolve

    names, nodes = options.cluster, options.nodes or [None]
    if len(nodes) not in (1, len(names)):
        raise ScaleModelError(
            f"--nodes: {len(nodes)} numbers for {len(names)} clusters: must be one, or one each"
        )
    given = nodes * len(names) if len(nodes) == 1 else nodes
    return [resolve.cluster(name, nodes=n) for name, n in zip(names, given, strict=True)]


def _outage(text: str) -> dict[str, float]:
    """Fields of an outage, as ``BEGIN:END``, ``BEGIN:END:FIRST`` or with a count behind it."""
    parts = text.split(":")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        values = []
    if not 2 <= len(values) <= len(_OUTAGE):
        raise argparse.ArgumentTypeError(f"{text!r}: must be BEGIN:END, :FIRST and :COUNT if any")
    return dict(zip(_OUTAGE, values, strict=False))


def _replica(
    options: argparse.Namespace, cluster: Cluster, trace: Trace, *, prefilled: bool = False
) -> ServingPlan:
    """One replica on a cluster."""
    from scalemodel.serving import serve
    from scalemodel.serving.fleet_plan import smallest_replica, task_of

    task = task_of(trace, None).replace(prefilled=prefilled)
    layouts = _layouts(options)
    if layouts is None:
        found = smallest_replica(options.model, cluster, task, options.engine)
    else:
        engine = options.engine
        found = [serve(options.model, cluster, task, layouts[0], engine=engine, replicas=1)]
    if not found or not found[0].fits:
        raise ScaleModelError(f"--cluster={cluster.name}: holds no replica of {options.model}")
    return found[0]


def _layouts(options: argparse.Namespace) -> list[_core.ServingLayout] | None:
    return None if options.tp is None else [_core.ServingLayout(tp=options.tp)]


def _print(
    options: argparse.Namespace, served: ServedFleet | ServedPools, more: dict[str, Any]
) -> None:
    from scalemodel.serving.fleet_pools import ServedPools

    first = served.prefill if isinstance(served, ServedPools) else served
    router = {} if first is None else {"router": first.policy.router}
    found = {**router, **more, **served.summary()}
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


def _pairs(
    options: argparse.Namespace, option: str, counts: list[int], trace: Trace, prefilled: bool
) -> list[tuple[ServingPlan, int]]:
    if len(counts) != len(options.cluster):
        raise ScaleModelError(
            f"{option}: {len(counts)} numbers for {len(options.cluster)} clusters: must be one each"
        )
    return [
        (_replica(options, cluster, trace, prefilled=prefilled), count)
        for cluster, count in zip(_clusters(options), counts, strict=True)
    ]


def _wrongs(options: argparse.Namespace, fleet: list[tuple[ServingPlan, int]]) -> dict[str, Any]:
    """Tiers below the caches, and what may go wrong, as `simulate_fleet` takes them."""
    from scalemodel.serving.tiers import cache_tiers

    found: dict[str, Any] = _faults(options)
    if options.tiers:
        if len(options.tiers) > 1:
            raise ScaleModelError("--tiers: one set-up with --replicas")
        replicas = sum(count for _, count in fleet)
        found["tiers"] = cache_tiers(
            options.tiers[0], fleet[0][0], replicas=replicas, capacity_bytes=options.tier_bytes
        )
    elif options.tier_bytes:
        raise ScaleModelError("--tier-bytes: of tiers; give --tiers")
    if options.shed_queue is not None:
        found["shedding"] = _core.Shedding(queue=options.shed_queue)
    for name, rows in (("autoscaler", _SCALER_FIELDS), ("decode_autoscaler", _DECODE_FIELDS)):
        scaler = _scaler(options, rows)
        if scaler is not None:
            found[name] = scaler
    if options.decode_outage:
        found["decode_outages"] = [_core.Outage(**each) for each in options.decode_outage]
    return found


def _faults(options: argparse.Namespace) -> dict[str, Any]:
    """Failures and outages that were named."""
    found: dict[str, Any] = {}
    named = given(options, _core.Failures.fields())
    if named:
        found["failures"] = _core.Failures(**named)
    if options.outage:
        found["outages"] = [_core.Outage(**each) for each in options.outage]
    return found


def _scaler(options: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> _core.Autoscaler | None:
    named = given(options, rows)
    if not named:
        return None
    plain = {key.split(_SCALE, 1)[1]: value for key, value in named.items()}
    return _core.Autoscaler(**plain)


def _cases(options: argparse.Namespace, other: str) -> dict[str, dict[str, Any]]:
    """What is asked by --what-if; `other` is of the other kind of question."""
    for label, case in options.what_if:
        if other in case:
            with_it = "without" if other == "clusters" else "with"
            raise ScaleModelError(f"--what-if={label}: {other} is asked {with_it} --replicas")
    return dict(options.what_if)


#: What the table of cases shows of a fleet that is given.
_CASE_COLUMNS = (
    *("case", "requests", "refused", "ttft_mean_s", "ttft_p99_s", "tpot_mean_s"),
    *("goodput_fraction", "hit_fraction", "online_replicas", "cost_usd"),
)


def _print_cases(options: argparse.Namespace, table: pd.DataFrame) -> int:
    if options.json:
        print_json(table.to_dict("records"))
        return OK
    if options.csv:
        print_csv(list(table.columns), table.to_numpy().tolist())
        return OK
    columns = [name for name in table.columns if name in _CASE_COLUMNS or "usd_per_hour" in table]
    shown = table[columns].map(lambda v: f"{v:,.4g}" if isinstance(v, float) else str(v))
    print_table(columns, shown.to_numpy().tolist())
    return OK


def _simulated(options: argparse.Namespace, trace: Trace, limits: dict[str, float]) -> int:
    from scalemodel.serving.fleet import simulate_fleet
    from scalemodel.serving.fleet_pools import simulate_pools
    from scalemodel.serving.what_if import what_if_fleet

    fleet = _pairs(options, "--replicas", options.replicas, trace, prefilled=False)
    wrongs = _wrongs(options, fleet)
    common = {"router": options.router or "least_loaded", "seed": options.seed}
    common["store_tokens"] = options.store_tokens
    if not options.pools:
        for name in _DECODE_ONLY:
            if name in wrongs:
                raise ScaleModelError(f"{_DECODE_ONLY[name]}: of a decode pool; give --pools")
    if options.what_if and not options.pools:
        cases = _cases(options, "clusters")
        table = what_if_fleet(trace, fleet, cases, limits=limits, **common, **wrongs)
        return _print_cases(options, table)
    if not options.pools:
        _print(options, simulate_fleet(trace, fleet, limits=limits, **common, **wrongs), {})
        return OK
    if options.decode_replicas is None:
        raise ScaleModelError("--pools: needs --decode-replicas beside --replicas")
    refused = "shedding" if "shedding" in wrongs else "limits" if limits else ""
    refused = refused or ("what-if" if options.what_if else "")
    if refused:
        raise ScaleModelError(f"--pools: a prefill and a decode pool take no {refused}")
    answers = _pairs(options, "--decode-replicas", options.decode_replicas, trace, prefilled=True)
    _print(options, simulate_pools(trace, fleet, answers, **common, **wrongs), {})
    return OK


def _planned(options: argparse.Namespace, trace: Trace, limits: dict[str, float]) -> int:
    from scalemodel import resolve
    from scalemodel.serving.fleet_plan import FleetPlan, plan_fleet
    from scalemodel.serving.what_if import what_if_plan

    if not limits:
        raise ScaleModelError("fleet: needs --replicas, or a limit to keep, such as --ttft-p99-s")
    for name in _GIVEN_ONLY:
        if getattr(options, name) is not None:
            raise ScaleModelError(f"{option_name(name)}: of a fleet that is given by --replicas")
    scalers = [_scaler(options, rows) for rows in (_SCALER_FIELDS, _DECODE_FIELDS)]
    if scalers[1] is not None and not options.pools:
        raise ScaleModelError("--decode-scale-...: of a decode pool; give --pools")
    asked: dict[str, Any] = {
        "engine": options.engine,
        "layouts": _layouts(options),
        "routers": None if options.router is None else [options.router],
        "tiers": [None, *(options.tiers or ())],
        "autoscalers": [scaler for scaler in scalers if scaler is not None],
        "max_replicas": options.max_replicas,
        "pools": options.pools,
        "store_tokens": options.store_tokens,
        "seed": options.seed,
        **_faults(options),
    }
    question = (trace, options.model, _clusters(options), limits)
    if options.what_if:
        cases = _cases(options, "add")
        for case in cases.values():
            if "clusters" in case:
                case["clusters"] = [resolve.cluster(name, nodes=n) for name, n in case["clusters"]]
        return _print_cases(options, what_if_plan(*question, cases, **asked))
    plan = plan_fleet(*question, **asked)
    assert isinstance(plan, FleetPlan)
    if plan.served is None:
        report("nothing feasible", plan.message)
        return NOTHING_FEASIBLE
    fleet = " + ".join(f"{count} x {name}" for name, count in plan.counts.items())
    _print(
        options,
        plan.served,
        {
            "fleet": fleet,
            "tiers": plan.tiers or "none",
            "autoscaled": "yes" if plan.autoscaler or plan.decode_autoscaler else "no",
            "usd_per_hour": plan.usd_per_hour,
            "fleets_tried": plan.tried,
        },
    )
    return OK


def _fleet(options: argparse.Namespace) -> int:
    from scalemodel.serving.traces import read_trace

    limits = limits_of({name: getattr(options, name) for name in LIMITS})
    wrong = in_milliseconds(limits)
    if wrong:
        raise ScaleModelError(wrong)
    trace = read_trace(options.file)
    if options.decode_replicas is not None and not (options.pools and options.replicas):
        raise ScaleModelError("--decode-replicas: of --pools, beside --replicas")
    if options.replicas is not None:
        return _simulated(options, trace, limits)
    return _planned(options, trace, limits)
