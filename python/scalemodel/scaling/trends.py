"""The same job on other hardware, other models and other context lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.codesign.sensitivity import invert
from scalemodel.resolve import Cluster
from scalemodel.resolve.clusters import ClusterLike
from scalemodel.resolve.models import ModelLike
from scalemodel.resolve.stacks import DEFAULT_STACK
from scalemodel.resolve.tasks import Training
from scalemodel.scaling.choice import choice_of
from scalemodel.scaling.curve import point_row, scaling, typed
from scalemodel.search.space import Space

if TYPE_CHECKING:
    import pandas as pd

#: One cluster per generation of NVIDIA accelerators, oldest first.
GENERATIONS = ("dgx_1v_32", "dgx_a100", "dgx_h100", "dgx_b200", "gb200_nvl72")

_PRECISIONS = next(row["choices"] for row in _core.Task.fields() if row["name"] == "precision")

#: What a generation may be short of.
GROWING = ("fabric.bandwidth", "scale_up.bandwidth", "accelerator.memory.bandwidth")


def balance(cluster: ClusterLike, precision: str = "bf16") -> dict[str, Any]:
    """What an accelerator can compute while a byte comes from memory, link or network.

    Parameters
    ----------
    cluster : object or anything `sm.cluster` takes
    precision : str
        Format whose dense peak counts.

    Returns
    -------
    dict
        accelerator, year, peak_flop_per_s, memory_bandwidth_bytes_per_s,
        scale_up_bandwidth_bytes_per_s, fabric_bandwidth_bytes_per_s (of one accelerator, one
        direction), and the peak over each: flop_per_memory_byte, flop_per_scale_up_byte,
        flop_per_fabric_byte.

    Examples
    --------
    >>> round(balance("dgx_a100")["flop_per_fabric_byte"]), round(
    ...     balance("dgx_h100")["flop_per_fabric_byte"])
    (12480, 19780)
    """
    resolved = resolve.cluster(cluster)
    core = resolved.core
    if precision not in _PRECISIONS:
        raise ScaleModelError(f"precision={precision!r}: must be one of {', '.join(_PRECISIONS)}")
    peak = core.accelerator.peak_flop_per_s[_PRECISIONS.index(precision)]
    rates = {
        "memory": core.accelerator.memory_bandwidth_bytes_per_s,
        "scale_up": core.scale_up.bandwidth_bytes_per_s,
        "fabric": core.fabric.bandwidth_bytes_per_s,
    }
    return {
        "accelerator": resolved.accelerator,
        "year": resolved.table["accelerator"].get("year"),
        "peak_flop_per_s": peak,
        **{f"{name}_bandwidth_bytes_per_s": rate for name, rate in rates.items()},
        **{f"flop_per_{name}_byte": peak / rate for name, rate in rates.items()},
    }


def hardware_trends(
    model: ModelLike,
    task: Training,
    gpus: Iterable[int],
    *,
    clusters: Iterable[ClusterLike] = GENERATIONS,
    **options: Any,
) -> pd.DataFrame:
    """The curve of `scaling` for every generation of hardware, beside what limits it.

    Parameters
    ----------
    model, task, gpus : as in `scaling`
        The first generations know ``precision="fp16"`` but no BF16.
    clusters : sequence of anything `sm.cluster` takes
        Default: `GENERATIONS`, from V100 to GB200.
    **options
        ``mode``, ``strategy``, ``rule``, ``search``, ``stack``... as in `scaling`.

    Returns
    -------
    DataFrame, one row per cluster and size
        ``cluster``, the columns of `balance`, then those of `scaling`.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=16, sequence=4096)
    >>> table = hardware_trends("llama2_7b", task, [8, 128], rule="fsdp",
    ...                         clusters=["dgx_a100", "dgx_h100"])
    >>> late = table[table.accelerators == 128]
    >>> float(late.mfu_fraction.iloc[0]) > float(late.mfu_fraction.iloc[1])
    True
    """
    import pandas as pd

    listed = [resolve.cluster(item) for item in clusters]
    if not listed:
        raise ScaleModelError("clusters=[]: at least one is needed")
    sizes = list(gpus)
    parts = []
    for item in listed:
        curve = scaling(model, item, task, sizes, **options)
        head = {"cluster": item.name, **balance(item, task.precision)}
        for place, (name, value) in enumerate(head.items()):
            curve.insert(place, name, value)
        parts.append(curve)
    return pd.concat(parts, ignore_index=True)


def workload_trends(
    models: Iterable[ModelLike],
    cluster: ClusterLike,
    task: Training,
    *,
    sequences: Iterable[int] | None = None,
    strategy: _core.Strategy | None = None,
    rule: str | None = None,
    search: Space | Mapping[str, Any] | None = None,
    stack: str = DEFAULT_STACK,
    threads: int | None = None,
) -> pd.DataFrame:
    """One size of a cluster, other models and context lengths, equally many tokens a step.

    Parameters
    ----------
    models : sequence of anything `sm.model` takes
    cluster : object or anything `sm.cluster` takes
    task : Training or FineTuning
        Its batch and sequence say how many tokens a step has.
    sequences : sequence of int, optional
        Context lengths, each a divisor of the tokens of a step. Default: the task's.
    strategy, rule, search, stack, threads : as in `scaling`

    Returns
    -------
    DataFrame, one row per model and context length
        ``model``, ``sequence``, ``global_batch``, ``accelerators``, then the columns of `scaling`
        but the ratios between sizes.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=512, sequence=4096)
    >>> table = workload_trends(["llama2_7b", "llama2_13b"], sm.cluster("dgx_h100", nodes=32),
    ...                         task, sequences=[4096, 8192], rule="fsdp")
    >>> table.global_batch.tolist()
    [512, 256, 512, 256]
    """
    machine = resolve.cluster(cluster)
    choice = choice_of(strategy=strategy, rule=rule, search=search, stack=stack, threads=threads)
    tokens = task.global_batch * task.sequence
    lengths = [task.sequence] if sequences is None else list(sequences)
    rows = []
    for model in models:
        resolved = resolve.model(model)
        for length in lengths:
            if not isinstance(length, int) or length < 1 or tokens % length:
                raise ScaleModelError(
                    f"sequences={length!r}: must divide the {tokens:,} tokens of a step"
                )
            own = task.replace(sequence=length, global_batch=tokens // length)
            head = {"model": resolved.name, "sequence": length, "global_batch": own.global_batch}
            answer = choice.estimate(resolved, machine, own)
            rows.append({**head, "accelerators": machine.accelerators, **point_row(answer)})
    if not rows:
        raise ScaleModelError("models=[], sequences=[]: at least one of each is needed")
    return typed(rows)


def growth_needed(
    model: ModelLike,
    task: Training,
    accelerators: int,
    target_mfu_fraction: float,
    *,
    clusters: Iterable[ClusterLike] = GENERATIONS,
    paths: Iterable[str] = GROWING,
    strategy: _core.Strategy | None = None,
    most: float = 16.0,
    stack: str = DEFAULT_STACK,
    threads: int | None = None,
) -> pd.DataFrame:
    """By how much a generation's network, links or memory would have to grow for a target MFU.

    Parameters
    ----------
    model, task : as in `sm.codesign`
    accelerators : int
        Of the job.
    target_mfu_fraction : float
        Utilisation to reach, such as that of the generation before.
    clusters : sequence of anything `sm.cluster` takes
    paths : sequence of str
        Quantities as in `sm.codesign`; each is scaled alone.
    strategy : Strategy, optional
        Kept; default: searched again at every scale.
    most : float
        The largest scale to look at.
    stack, threads : as in `scaling`

    Returns
    -------
    DataFrame, one row per cluster and path
        ``cluster``, ``accelerator``, ``mfu_fraction`` (as it is), ``path`` and ``scale``: one or
        less where the target is met already, ``<NA>`` where that quantity alone does not reach it.

    Examples
    --------
    >>> import scalemodel as sm
    >>> task = sm.Training(global_batch=256, sequence=4096)
    >>> plan = sm.Strategy(sharding="zero3", micro_batch=2)
    >>> table = growth_needed("llama2_7b", task, 128, 0.4, clusters=["dgx_a100"], strategy=plan)
    >>> bool((table.scale <= 1).all())
    True
    """
    space = None
    if strategy is not None:
        knobs = {name: value for name, value in strategy.to_dict().items() if name != "dp"}
        space = Space(**knobs)
    rows = []
    for item in clusters:
        machine: Cluster = resolve.cluster(item, accelerators=accelerators)
        choice = choice_of(strategy=strategy, stack=stack, threads=threads)
        answer = choice.estimate(resolve.model(model), machine, task)
        mfu = None if answer is None or answer.illegal else answer.mfu_fraction
        for path in paths:
            reached = invert(
                model,
                machine,
                task,
                space,
                path=path,
                target=target_mfu_fraction,
                objective="mfu_fraction",
                high=most,
                tolerance=0.01,
                stack=stack,
                threads=threads,
            )
            rows.append(
                {
                    "cluster": machine.name,
                    "accelerator": machine.accelerator,
                    "mfu_fraction": mfu,
                    "path": path,
                    "scale": None if reached is None else float(reached[f"{path}_scale"]),
                }
            )
    return typed(rows).astype({"scale": "Float64"})
