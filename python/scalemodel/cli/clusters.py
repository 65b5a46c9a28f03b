"""``scalemodel compare-clusters``: one job on several clusters, at prices of one basis."""

from __future__ import annotations

import argparse
from typing import Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import add_formats, add_model, add_task, number, task_of, whole
from scalemodel.cli.output import NOTHING_FEASIBLE, OK, print_csv, print_json
from scalemodel.cli.runs import number_or_name


def add_compare_clusters(commands: Any) -> None:
    """The command that prices one job on several clusters."""
    parser = commands.add_parser(
        "compare-clusters",
        help="price one training run on several clusters",
        description="Search the best strategy of one training run on each of several clusters and "
        "compare days, energy and cost at prices of one basis.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=_compare)
    add_model(parser)
    compared = parser.add_argument_group("comparison")
    compared.add_argument(
        "--clusters",
        required=True,
        nargs="+",
        metavar="NAME|TOML[:NODES]",
        help="clusters between commas or blanks, each with its nodes, such as "
        "dgx_h100:64,dgx_b200:24",
    )
    compared.add_argument(
        "--tokens", required=True, type=number, metavar="N", help="tokens to train on"
    )
    compared.add_argument(
        "--price",
        default="neocloud_on_demand",
        metavar="BASIS|N",
        help="basis such as neocloud_on_demand, hyperscaler_reserved, spot or a seller, or USD per "
        "accelerator-hour (default neocloud_on_demand)",
    )
    compared.add_argument(
        "--days", type=number, metavar="N", help="size every cluster to finish in time"
    )
    compared.add_argument(
        "--most-nodes", type=whole, default=16384, metavar="N", help="the largest size with --days"
    )
    compared.add_argument("--stack", default="plain", metavar="NAME", help="software stack")
    add_task(parser)
    add_formats(parser)


def sized(text: str, argument: str = "--clusters ") -> Any:
    """A cluster of the command line: its name, and its nodes behind a colon.

    Examples
    --------
    >>> sized("dgx_h100:4").accelerators
    32
    """
    from scalemodel import resolve

    name, sign, nodes = text.rpartition(":")
    if not sign:
        return resolve.cluster(text)
    if not nodes.isdecimal():
        raise ScaleModelError(f"{argument}{text}: must be like dgx_h100:64, a cluster and nodes")
    return resolve.cluster(name, nodes=int(nodes))


def listed(texts: list[str]) -> list[str]:
    """Names between commas, blanks or both.

    Examples
    --------
    >>> listed(["dgx_h100:4,", "dgx_b200:2,gb200_nvl72"])
    ['dgx_h100:4', 'dgx_b200:2', 'gb200_nvl72']
    """
    names = [name.strip() for text in texts for name in text.split(",")]
    found = [name for name in names if name]
    if not found:
        raise ScaleModelError(f"--clusters {' '.join(texts)}: must name at least one cluster")
    return found


def _compare(options: argparse.Namespace) -> int:
    from scalemodel.economics import compare_clusters

    found = compare_clusters(
        options.model,
        [sized(name) for name in listed(options.clusters)],
        task_of(options),
        tokens=options.tokens,
        price=number_or_name(options.price),
        days=options.days,
        most_nodes=options.most_nodes,
        stack=options.stack,
    )
    table = found.table
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    if options.json:
        print_json({"basis": found.basis, "clusters": rows})
    elif options.csv:
        print_csv(list(table.columns), [list(row.values()) for row in rows])
    else:
        print(found)
    return OK if found.runs else NOTHING_FEASIBLE
