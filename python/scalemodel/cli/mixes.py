"""``scalemodel estimate`` of clusters whose file lists parts of several kinds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.cli.options import given, model_name, option_name, task_of
from scalemodel.cli.output import (
    INFEASIBLE,
    OK,
    print_csv,
    print_json,
    print_table,
    strategy_text,
)

if TYPE_CHECKING:
    from scalemodel.estimator.mixed import MixedEstimate

#: Options that mean nothing where parts say how many nodes there are, or need one kind.
_OF_ONE_KIND = ("nodes", "accelerators", "network", "tokens", "explain")


def has_parts(source: str) -> bool:
    """Whether the file or entry lists parts of several kinds."""
    from scalemodel.resolve.clusters import PARTS_KEY, cluster_table

    return PARTS_KEY in cluster_table(source)[0]


def estimate_parts(options: argparse.Namespace) -> int:
    """One step on all parts."""
    from scalemodel.estimator.mixed import estimate_mixed, mixed_cluster

    for name in _OF_ONE_KIND:
        if getattr(options, name, None):
            raise ScaleModelError(f"{option_name(name)}: {options.cluster} has several kinds")
    cluster = mixed_cluster(options.cluster)
    strategy = _core.Strategy(**given(options, _core.Strategy.fields()))
    task = task_of(options)
    est = estimate_mixed(options.model, cluster, task, strategy, stack=options.stack)
    record = {"model": model_name(options), "cluster": options.cluster, "stack": options.stack}
    record |= {**task.core.to_dict(), **est.to_dict()}
    if options.json:
        print_json(record)
    elif options.csv:
        print_csv(list(record), [list(record.values())])
    else:
        print(
            f"{model_name(options)} · {record['parts']} ({cluster.placement}) "
            f"· stack {options.stack}"
        )
        _print_answer(est, strategy)
    return OK if est.verdict == "ok" else INFEASIBLE


def _print_answer(est: MixedEstimate, strategy: _core.Strategy) -> None:
    from scalemodel.base.text import count_text, money_text, size_text, time_text

    if est.step_time_s is None or est.tokens_per_s is None:
        print(f"verdict {est.verdict}")
        return
    print(strategy_text(strategy, _data_parallel(est)))
    print(
        f"step {time_text(est.step_time_s)}   {count_text(est.tokens_per_s)} tokens/s   "
        f"energy {count_text(est.energy_j or 0)}J a step   cost {money_text(est.cost_usd or 0)} a "
        "step"
    )
    print()
    header = ("part", "micro-batches", "time", "memory", "power", "layers of its stages")
    rows, first = [], 0
    for k, part in enumerate(est.cluster.parts):
        stages = len(est.layers) * part.accelerators // est.cluster.accelerators
        layers = est.layers[first : first + stages]
        first += stages
        capacity = part.core.accelerator.memory_capacity_bytes
        memory = f"{size_text(est.memory_bytes[k])} of {size_text(capacity)}"
        power = f"{est.power_w[k]:,.0f} W"
        cells = [f"{est.micro_batches[k]:g}", time_text(est.part_times_s[k]), memory, power]
        rows.append([part.name, *cells, " ".join(map(str, layers)) or "all"])
    print_table(header, rows)
    print(f"verdict {est.verdict}")


def _data_parallel(est: MixedEstimate) -> int:
    s = est.strategy
    return int(s.dp) or est.cluster.accelerators // (s.tp * s.cp * s.pp)
