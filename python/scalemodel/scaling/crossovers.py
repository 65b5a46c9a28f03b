"""Which parallelism wins at which size and batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.scaling.choice import choice_of
from scalemodel.scaling.curve import clusters_of, point_row, sizes_of, tasks_of, typed
from scalemodel.search.objective import is_maximised, known_column
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

#: One way of being parallel beside data each: names and what each leaves open. Model parallelism
#: shards over all its data-parallel ranks, as FSDP does.
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "ddp": {"tp": 1, "cp": 1, "pp": 1, "sharding": "ddp"},
    "zero1": {"tp": 1, "cp": 1, "pp": 1, "sharding": "zero1"},
    "fsdp": {"tp": 1, "cp": 1, "pp": 1, "sharding": "zero3"},
    "hsdp": {
        "tp": 1,
        "cp": 1,
        "pp": 1,
        "sharding": "hsdp",
        "shard_degree": [8, 16, 32, 64, 128, 256],
    },
    "fsdp+tp": {"tp": [2, 4, 8], "cp": 1, "pp": 1, "sharding": "zero3"},
    "fsdp+pp": {"tp": 1, "cp": 1, "pp": [2, 4, 8, 16], "sharding": "zero3"},
    "fsdp+cp": {"tp": 1, "cp": [2, 4, 8], "pp": 1, "sharding": "zero3"},
}


def crossovers(
    model: ModelLike,
    cluster: ClusterLike,
    task: Training,
    gpus: Iterable[int],
    *,
    mode: str = "weak",
    batches: Iterable[int] | None = None,
    families: Mapping[str, Space | Mapping[str, Any]] = FAMILIES,
    objective: str = "tokens_per_s",
    stack: str = DEFAULT_STACK,
    threads: int | None = None,
) -> pd.DataFrame:
    """The best strategy of every family at every size, and the family that wins.

    Parameters
    ----------
    model, cluster, task, gpus, mode, stack, threads : as in `scaling`
    batches : sequence of int, optional
        Global batches, each in place of the task's.
    families : mapping of name to Space or mapping of its arguments
        Default: data parallelism of four kinds, and FSDP with one kind of model parallelism.
    objective : str
        Column by which strategies and families are judged.

    Returns
    -------
    DataFrame, one row per size, batch and family
        ``accelerators``, ``global_batch``, ``sequences_per_accelerator``, ``family``, ``wins``,
        then the columns of `scaling` but the ratios between sizes.

    Raises
    ------
    ScaleModelError : malformed question; the message names the argument.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=4096)
    >>> two = {name: FAMILIES[name] for name in ("fsdp", "fsdp+tp")}
    >>> found = crossovers("llama2_7b", "dgx_h100", task, [128, 4096], families=two)
    >>> found[found.wins].family.tolist()
    ['fsdp', 'fsdp+tp']
    """
    sizes = sizes_of(gpus)
    known_column(objective, "objective")
    if not families:
        raise ScaleModelError("families={}: at least one is needed")
    starts = [task]
    if batches is not None:
        starts = [task.replace(global_batch=batch) for batch in sizes_of(batches, "batches")]
    choices = {
        name: choice_of(search=space, objective=objective, stack=stack, threads=threads)
        for name, space in families.items()
    }
    resolved, machines = resolve.model(model), clusters_of(cluster, sizes)
    rows: list[dict[str, Any]] = []
    for start in starts:
        for machine, own in zip(machines, tasks_of(start, sizes, mode), strict=True):
            group = []
            for name, choice in choices.items():
                answer = choice.estimate(resolved, machine, own)
                head = {
                    "accelerators": machine.accelerators,
                    "global_batch": own.global_batch,
                    "sequences_per_accelerator": own.global_batch / machine.accelerators,
                    "family": name,
                    "wins": False,
                }
                group.append({**head, **point_row(answer)})
            running = [row for row in group if row["verdict"] == "ok"]
            if running:
                sign = -1.0 if is_maximised(objective) else 1.0
                min(running, key=lambda row: sign * float(row[objective]))["wins"] = True
            rows.extend(group)
    table = typed(rows)
    table.attrs.update(model=resolved.name, mode=mode, stack=stack, objective=objective)
    return table
