"""``scalemodel compare-bench``: a benchmark of serving beside its prediction."""

from __future__ import annotations

import argparse
from typing import Any

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import add_field, add_formats, add_model, cluster_of, given, whole
from scalemodel.cli.output import OK, print_csv, print_json

#: Fields of the requests that the file of a benchmark has.
_LENGTHS = ("input_tokens", "output_tokens")


def add_compare_bench(commands: Any) -> None:
    """The command that lays a benchmark of serving beside its prediction."""
    parser = commands.add_parser(
        "compare-bench",
        help="compare a benchmark of serving with its prediction",
        description="Compare what a load generator measured (vllm bench serve, SGLang, AIPerf, "
        "GenAI-Perf, GuideLLM, InferenceX) with the prediction at the same load. Lengths of "
        "requests and the load are those of the file; a record of InferenceX names the rest too.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_compare)
    parser.add_argument("file", metavar="FILE", help="JSON or JSONL of a load generator")
    add_model(parser, required=False)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--cluster", metavar="NAME|TOML", help="cluster")
    size = cluster.add_mutually_exclusive_group()
    size.add_argument("--nodes", type=whole, metavar="N", help="nodes")
    size.add_argument("--accelerators", type=whole, metavar="N", help="accelerators")
    cluster.add_argument(
        "--engine", default="", metavar="NAME", help="serving engine (default: the tool's)"
    )
    task = parser.add_argument_group("requests")
    for row in _fields():
        add_field(task, row)
    task.add_argument("--precision", default="bf16", metavar="NAME", help="of the weights")
    task.add_argument("--kv-precision", default="bf16", metavar="NAME", help="of the cache")
    plan = parser.add_argument_group("plan")
    for row in _core.ServingLayout.fields():
        add_field(plan, row)
    plan.add_argument(
        "--replicas", type=whole, metavar="N", help="instances (default: all that fit)"
    )
    add_formats(parser)


def _fields() -> list[Any]:
    """Fields of requests that a file does not have."""
    return [row for row in _core.RequestMix.fields() if row["name"] not in _LENGTHS]


def _compare(options: argparse.Namespace) -> int:
    from scalemodel.interop.benchmarks import compare_bench

    if options.model is not None and options.cluster is None:
        raise ScaleModelError(f"MODEL={options.model!r} needs --cluster", code="malformed")
    cluster = None if options.cluster is None else cluster_of(options)
    if options.model is None:
        found = compare_bench(options.file, cluster=cluster)
    else:
        found = compare_bench(
            options.file,
            model=options.model,
            cluster=cluster,
            layout=_core.ServingLayout(**given(options, _core.ServingLayout.fields())),
            engine=options.engine,
            replicas=options.replicas,
            precision=options.precision,
            kv_precision=options.kv_precision,
            **given(options, _fields()),
        )
    if options.json:
        print_json(found.to_dict())
    elif options.csv:
        rows = found.to_dict()["rows"]
        print_csv(list(rows[0]), [list(row.values()) for row in rows])
    else:
        print(found)
    return OK
