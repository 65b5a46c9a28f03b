"""``scalemodel serve``: one serving plan, or the best of all."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import (
    add_field,
    add_formats,
    add_model,
    cluster_of,
    given,
    number,
    option_name,
    whole,
)
from scalemodel.cli.output import (
    INFEASIBLE,
    NOTHING_FEASIBLE,
    OK,
    print_csv,
    print_json,
    print_table,
    report,
)
from scalemodel.serving.limits import LIMITS, in_milliseconds, limits_of

if TYPE_CHECKING:
    from scalemodel.serving import Inference, Serving, ServingPlans
    from scalemodel.serving.limits import LatencyLimits

_MEANS = ("ttft_s", "tpot_s")
_METRICS = {"ttft": "first token", "tpot": "between tokens", "e2e": "whole request"}
_SPLIT_GOALS = ("accelerators", "cost")
_POOL_GOALS = ("throughput", "cost")
_GOALS = ("throughput", "tpot", "ttft", "accelerators")


def add_serve(commands: Any) -> None:
    """The command that predicts what a serving plan delivers."""
    parser = commands.add_parser(
        "serve",
        help="predict or choose a serving plan",
        description="Predict throughput and latency of serving a model, or choose the plan that "
        "serves it best.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_serve)
    add_model(parser)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", required=True, metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="nodes")
    size.add_argument("--accelerators", type=whole, metavar="N", help="accelerators")
    cluster.add_argument(
        "--decode-cluster",
        metavar="NAME|TOML",
        help="of the decode pool of --split (default: both pools on --cluster)",
    )
    cluster.add_argument(
        "--expert-cluster",
        metavar="NAME|TOML",
        help="of the experts of --expert-ranks or --expert-pool (default: beside attention)",
    )
    cluster.add_argument("--engine", default="vllm_v1", metavar="NAME", help="serving engine")
    task = parser.add_argument_group("requests")
    for row in _core.RequestMix.fields():
        add_field(task, row, required=row["name"] in ("input_tokens", "output_tokens"))
    task.add_argument("--precision", default="bf16", metavar="NAME", help="of the weights")
    task.add_argument("--kv-precision", default="bf16", metavar="NAME", help="of the cache")
    task.add_argument("--imbalance", type=number, metavar="X", help="of the experts")
    for side in ("input", "output"):
        task.add_argument(
            f"--{side}-spread",
            type=number,
            default=0.0,
            metavar="X",
            help=f"standard deviation of the logarithm of {side} lengths (default 0: all alike)",
        )
    for row in _core.Adapters.fields():
        add_field(task, row)
    task.add_argument(
        "--draft",
        metavar="NAME|TOML",
        help="model of its own that proposes --speculative-tokens (default: a draft layer)",
    )
    task.add_argument(
        "--draft-tp", type=whole, metavar="N", help="ranks that split it (default: as --tp)"
    )
    task.add_argument(
        "--draft-precision", metavar="NAME", help="of its weights (default: as --precision)"
    )
    task.add_argument(
        "--guided-fraction",
        type=number,
        default=0.0,
        metavar="X",
        help="of the requests, those whose answers follow a grammar (default 0)",
    )
    task.add_argument(
        "--new-grammar-fraction",
        type=number,
        default=0.0,
        metavar="X",
        help="of these, those whose grammar has to be compiled (default 0)",
    )
    task.add_argument(
        "--grammar-backend", metavar="NAME", help="what fills masks (default: the engine's)"
    )
    load = task.add_mutually_exclusive_group()
    load.add_argument("--requests-per-s", type=number, metavar="X", help="arriving at random")
    load.add_argument("--concurrency", type=number, metavar="N", help="sequences kept running")
    plan = parser.add_argument_group("plan")
    for row in _core.ServingLayout.fields():
        add_field(plan, row)
    plan.add_argument(
        "--replicas", type=whole, metavar="N", help="instances (default: all that fit)"
    )
    for name, text in (("batched_tokens", "tokens of a step"), ("running_sequences", "sequences")):
        plan.add_argument(
            option_name(f"max_{name}"),
            type=whole,
            metavar="N",
            help=f"{text} of an instance at most (default: the engine's)",
        )
    search = parser.add_argument_group("search")
    search.add_argument("--goal", choices=_GOALS, help="choose the plan by this")
    search.add_argument(
        "--split",
        choices=_SPLIT_GOALS,
        help="choose a prefill and a decode pool that carry --requests-per-s by this",
    )
    search.add_argument(
        "--expert-pool",
        choices=_POOL_GOALS,
        help="choose the accelerators of attention and of a pool of experts alone by this",
    )
    for name, (metric, percent) in LIMITS.items():
        share = f"of {percent} in 100 requests" if percent else "on average"
        search.add_argument(
            option_name(name), type=number, metavar="X", help=f"{_METRICS[metric]} at most, {share}"
        )
    search.add_argument(
        "--headroom", type=number, default=0.1, metavar="X", help="of the rate (default 0.1)"
    )
    search.add_argument("--top", type=whole, default=10, metavar="N", help="plans to show")
    output = parser.add_argument_group("output")
    output.add_argument("--simulate", type=whole, metavar="N", help="serve N requests one by one")
    output.add_argument("--explain", action="store_true", help="where a step goes")
    output.add_argument("--launch", action="store_true", help="the command that starts it")
    add_formats(parser)


def _task(options: argparse.Namespace) -> Inference:
    from scalemodel.serving import Inference

    return Inference(
        precision=options.precision,
        kv_precision=options.kv_precision,
        imbalance=options.imbalance,
        input_spread=options.input_spread,
        output_spread=options.output_spread,
        draft_model=options.draft,
        draft_tp=0 if options.draft_tp is None else options.draft_tp,
        draft_precision=options.draft_precision,
        guided_fraction=options.guided_fraction,
        new_grammar_fraction=options.new_grammar_fraction,
        grammar_backend=options.grammar_backend,
        **given(options, _core.RequestMix.fields()),
        **given(options, _core.Adapters.fields()),
    )


def _text(found: Serving) -> str:
    from scalemodel.serving.verdicts import layout_text

    layout = f"{layout_text(found.layout)} x {found.replicas}"
    head = f"{found.model.label} · {found.cluster} · {layout} · {found.engine}"
    if not found.fits:
        return f"{head}\nverdict {found.verdict}\n{found.why_not()}"
    ttft = "it never settles" if found.saturated else f"{1e3 * found.ttft_s:.1f} ms"
    gib = 2**30
    lines = [
        head,
        f"{found.output_tokens_per_s:,.0f} output tokens/s   "
        f"{found.output_tokens_per_s_per_accelerator:,.0f} per accelerator   "
        f"{found.requests_per_s:.3g} requests/s   "
        f"{100 * found.utilisation_fraction:.0f} % of the most",
        f"first token {ttft}   between tokens {1e3 * found.tpot_s:.2f} ms   "
        f"{found.concurrency:.0f} of at most {found.max_concurrency:.0f} sequences running",
        f"memory  weights {found.memory_weights_bytes / gib:.1f}  "
        f"cache {found.memory_kv_cache_bytes / gib:.1f}  "
        f"activations {found.memory_activations_bytes / gib:.1f}  "
        f"reserve {found.memory_reserve_bytes / gib:.1f} GiB",
    ]
    if found.layout.expert_ranks:
        pools = found.pools().busy_fraction
        lines.append(
            f"expert pool  weights {found.memory_expert_weights_bytes / gib:.1f}  "
            f"activations {found.memory_expert_activations_bytes / gib:.1f} GiB   busy: "
            + ", ".join(f"{place} {100 * share:.0f} %" for place, share in pools.items())
        )
    if found.usd_per_million_output_tokens:
        cost = found.usd_per_million_output_tokens
        lines.append(f"cost {cost:.2f} USD per million output tokens")
    if found.note:
        lines.append(f"stands in: {found.note}")
    return "\n".join(lines)


def _one(options: argparse.Namespace) -> int:
    from scalemodel.serving import serve

    found = serve(
        options.model,
        cluster_of(options),
        _task(options),
        _core.ServingLayout(**given(options, _core.ServingLayout.fields())),
        engine=options.engine,
        concurrency=options.concurrency,
        requests_per_s=options.requests_per_s,
        replicas=options.replicas,
        max_batched_tokens=options.max_batched_tokens,
        max_running_sequences=options.max_running_sequences,
        expert_cluster=options.expert_cluster,
    )
    row: dict[str, Any] = {"model": found.model.name, "engine": found.engine, **found.to_dict()}
    served = None
    if options.simulate and found.fits:
        served = found.simulate(requests=options.simulate).summary()
    if options.json:
        if served is not None:
            row["simulation"] = served
        if options.launch and found.fits:
            row["launch"] = found.launch()
        print_json(row)
    elif options.csv:
        print_csv(list(row), [list(row.values())])
    else:
        print(_text(found))
        if options.explain and found.fits:
            table = found.explain()
            rows = [
                [cause, f"{1e3 * time_s:.3f}", f"{100 * share:.1f}"]
                for cause, time_s, share in table.itertuples(index=False)
                if time_s > 0
            ]
            print()
            print_table(["cause", "ms", "percent"], rows)
        if served is not None:
            print()
            print_table(["simulated", "value"], [[k, f"{v:.6g}"] for k, v in served.items()])
        if options.launch and found.fits:
            print()
            print(found.launch())
    return OK if found.fits else INFEASIBLE


def _best(options: argparse.Namespace, limits: Mapping[str, float]) -> int:
    from scalemodel.serving import plan_serving

    found: ServingPlans = plan_serving(
        options.model,
        cluster_of(options),
        _task(options),
        goal=options.goal,
        requests_per_s=options.requests_per_s,
        headroom=options.headroom,
        engine=options.engine,
        top=options.top,
        **cast("LatencyLimits", limits),
    )
    header = [str(column) for column in found.best.columns]
    rows = found.best.astype(object).where(found.best.notna(), None).to_numpy().tolist()
    if options.json:
        best = [dict(zip(header, row, strict=True)) for row in rows]
        for row, plan in zip(best, found, strict=True):
            row["simulated"] = plan.simulated
            if options.launch:
                row["launch"] = plan.launch()
        counts = {"plans": found.plans, "feasible": found.feasible}
        print_json({**counts, "binds": found.binds, "message": found.message, "best": best})
    elif options.csv:
        print_csv(header, rows)
    elif rows:
        print(f"{found.plans:,} plans in steady state, {found.feasible:,} within the limits")
        print(found)
        if options.launch:
            print()
            print(found[0].launch())
    if not rows:
        report("nothing feasible", found.message)
    return OK if rows else NOTHING_FEASIBLE


_SPLIT_COLUMNS = ("accelerators", "tp", "pp", "ep", "dp", "cp", "replicas", "ttft_s", "tpot_s")


def _pools(options: argparse.Namespace) -> int:
    """The best pairs of a prefill and a decode pool."""
    from scalemodel.serving import plan_split

    wrong = next((name for name in LIMITS if getattr(options, name) and name not in _MEANS), None)
    if wrong or options.goal:
        flag = option_name(wrong or "goal")
        raise ScaleModelError(f"{flag}: no part of --split, which takes --ttft-s and --tpot-s")
    if options.requests_per_s is None:
        raise ScaleModelError("--split: needs --requests-per-s")
    found = plan_split(
        options.model,
        cluster_of(options),
        _task(options),
        requests_per_s=options.requests_per_s,
        decode_cluster=options.decode_cluster,
        goal=options.split,
        ttft_s=options.ttft_s,
        tpot_s=options.tpot_s,
        headroom=options.headroom,
        engine=options.engine,
        top=options.top,
    )
    header = [str(column) for column in found.columns]
    rows = found.astype(object).where(found.notna(), None).to_numpy().tolist()
    if options.json:
        print_json({"best": [dict(zip(header, row, strict=True)) for row in rows]})
    elif options.csv:
        print_csv(header, rows)
    elif rows:
        names = ["accelerators", "usd_per_s"]
        pools = [f"{pool}_{name}" for pool in ("prefill", "decode") for name in _SPLIT_COLUMNS]
        names += [name for name in pools if name in header]
        print_table(names, [[_cell(each) for each in row] for row in found[names].to_numpy()])
    if not rows:
        report(
            "nothing feasible", "no two pools of these clusters carry the rate within the limits"
        )
    return OK if rows else NOTHING_FEASIBLE


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _limits(options: argparse.Namespace) -> dict[str, float]:
    """The limits of latency that were named; those in milliseconds are refused."""
    limits = limits_of({name: getattr(options, name) for name in LIMITS})
    wrong = in_milliseconds(limits)
    if wrong:
        raise ScaleModelError(wrong)
    if limits and options.goal is None:
        raise ScaleModelError(
            f"{option_name(next(iter(limits)))}: a limit of a search; give --goal, one of "
            + ", ".join(_GOALS)
        )
    return limits


_EXPERT_COLUMNS = (
    *("tp", "dp", "ep", "expert_ranks", "micro_batches", "concurrency"),
    *("output_tokens_per_s_per_accelerator", "tpot_s", "usd_per_million_output_tokens"),
)


def _expert_pools(options: argparse.Namespace) -> int:
    """The best instances of an attention and an expert pool."""
    from scalemodel.serving import plan_expert_pools

    names = [name for name in LIMITS if name != "tpot_s"]
    for name in ("goal", "split", "requests_per_s", "concurrency", *names):
        if getattr(options, name):
            raise ScaleModelError(f"{option_name(name)}: no part of --expert-pool")
    found = plan_expert_pools(
        options.model,
        cluster_of(options),
        _task(options),
        expert_cluster=options.expert_cluster,
        goal=options.expert_pool,
        tpot_s=options.tpot_s,
        engine=options.engine,
        top=options.top,
    )
    rows = [plan.to_dict() for plan in found]
    if options.json:
        print_json({"best": rows})
    elif options.csv and rows:
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    elif rows:
        shown = [[_cell(row[name]) for name in _EXPERT_COLUMNS] for row in rows]
        print_table(list(_EXPERT_COLUMNS), shown)
    if not rows:
        report("nothing feasible", "no two pools of these clusters hold the model and the limit")
    return OK if rows else NOTHING_FEASIBLE


def _serve(options: argparse.Namespace) -> int:
    if options.expert_pool:
        return _expert_pools(options)
    if options.split:
        return _pools(options)
    if options.decode_cluster:
        raise ScaleModelError("--decode-cluster: the pool of --split")
    limits = _limits(options)
    return _one(options) if options.goal is None else _best(options, limits)
