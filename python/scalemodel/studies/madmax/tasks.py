"""What the models of MAD-Max's suite do with a step: tasks, bars, memory, a fleet's waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scalemodel.base.errors import ScaleModelError
from scalemodel.layer_groups import ComposedModel, GroupEstimate, compose
from scalemodel.search.pareto import pareto
from scalemodel.studies.madmax.suite import SUITE, Workload, estimates, meshes, named

if TYPE_CHECKING:
    import pandas as pd


def _fastest(
    model: ComposedModel, workload: Workload, *, inference: bool = False
) -> GroupEstimate | None:
    found = estimates(model, workload.where(), workload.task(inference=inference), workload.stack)
    fits = (one for one in found if one.verdict == "ok")
    return min(fits, key=lambda one: one.core.step_time_s, default=None)


def _frozen(model: ComposedModel) -> dict[str, ComposedModel]:
    """Variants of fine-tuning: what is frozen, from nothing to all but the last part."""
    names = [group.name for group in model.groups]
    variants = {"nothing": model}
    if "bottom_mlp" in names:
        variants["embedding"] = model.freeze("embedding")
        variants["bottom MLP"] = model.freeze("bottom_mlp")
        variants["embedding, bottom MLP"] = model.freeze("embedding", "bottom_mlp")
        variants["embedding, top MLP"] = model.freeze("embedding", "top_mlp")
        return variants
    inputs = [name for name in names if name.endswith("embedding")]
    blocks = next(g for g in model.groups if g.core.kind == "transformer")
    count = blocks.core.repeat
    for label, layers in (("lower half", count // 2), ("all but one layer", count - 1)):
        variants[label] = model.freeze(*inputs, **{blocks.name: layers})
    return variants


def fine_tuning(names: Sequence[str] = ("DLRM-A", "Llama2-70B")) -> pd.DataFrame:
    """Steps with parts of a model frozen, the best strategy for each.

    A frozen layer computes no gradient of its weights, and nothing below the lowest layer that
    learns runs backward at all.

    Parameters
    ----------
    names : sequence of str
        Of `SUITE`.

    Returns
    -------
    DataFrame, one row per model and frozen part with a strategy that fits
        Columns name, frozen, tables, layers, experts, ``step_time_s``, ``samples_per_s``,
        ``memory_bytes``, ``speed_up`` over training everything.

    Raises
    ------
    ScaleModelError : an unknown model.

    Examples
    --------
    >>> table = fine_tuning(["DLRM-A"])
    >>> bool((table.speed_up >= 1).all())
    True
    """
    import pandas as pd

    rows = []
    for name, workload in named(names, SUITE).items():
        for label, model in _frozen(compose(workload.model)).items():
            est = _fastest(model, workload)
            if est is None:
                continue
            row = (name, label, *meshes(est.strategy), est.core.step_time_s)
            rows.append((*row, est.samples_per_s, est.core.memory_bytes))
    columns = ["name", "frozen", "tables", "layers", "experts", "step_time_s"]
    frame = pd.DataFrame(rows, columns=[*columns, "samples_per_s", "memory_bytes"])
    whole = frame.groupby("name", sort=False)["step_time_s"].transform("first")
    return frame.assign(speed_up=whole / frame["step_time_s"])


def tasks(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Pre-training, fine-tuning and inference of the same models, the best strategy for each.

    Fine-tuning trains what `fine_tuning` freezes least of: all but the embedding of a click model,
    the upper half of the blocks of any other.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: all.

    Returns
    -------
    DataFrame, one row per model and task with a strategy that fits
        Columns name, task, tables, layers, experts, ``samples_per_s``, ``exposed_fraction``,
        ``memory_bytes``, ``speed_up`` over pre-training.

    Raises
    ------
    ScaleModelError : an unknown model.

    Examples
    --------
    >>> tasks(["DLRM-A"]).task.tolist()
    ['pre-training', 'fine-tuning', 'inference']
    """
    import pandas as pd

    rows = []
    for name, workload in named(names, SUITE).items():
        model = compose(workload.model)
        frozen = list(_frozen(model).values())[1]
        asked = {"pre-training": model, "fine-tuning": frozen, "inference": model}
        for task, variant in asked.items():
            est = _fastest(variant, workload, inference=task == "inference")
            if est is None:
                continue
            row = (name, task, *meshes(est.strategy), est.samples_per_s)
            rows.append((*row, est.core.exposed_fraction, est.core.memory_bytes))
    columns = ["name", "task", "tables", "layers", "experts", "samples_per_s"]
    frame = pd.DataFrame(rows, columns=[*columns, "exposed_fraction", "memory_bytes"])
    first = frame.groupby("name", sort=False)["samples_per_s"].transform("first")
    return frame.assign(speed_up=frame["samples_per_s"] / first)


def bars(names: Sequence[str] | None = None, *, inference: bool = False) -> pd.DataFrame:
    """Two bars of a step: operations one after another, and overlapped as they run.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: all.
    inference : bool

    Returns
    -------
    DataFrame, one row per model with a strategy that fits
        Columns name, layers, ``compute_s`` (with lookups, updates, host), collectives by kind
        ``all_reduce_s``, ``all_gather_s``, ``reduce_scatter_s``, ``all_to_all_s``,
        ``serialised_s`` (their sum), ``exposed_s``, ``step_time_s``.

    Raises
    ------
    ScaleModelError : an unknown model.

    Examples
    --------
    >>> table = bars(["DLRM-A"])
    >>> bool((table.step_time_s <= table.serialised_s).all())
    True
    """
    import pandas as pd

    kinds = ("all_reduce_s", "all_gather_s", "reduce_scatter_s", "all_to_all_s")
    rows = []
    for name, workload in named(names, SUITE).items():
        est = _fastest(compose(workload.model), workload, inference=inference)
        if est is None:
            continue
        core = est.core
        exposed_s = core.exposed_fraction * core.step_time_s
        row: dict[str, Any] = {"name": name, "layers": meshes(est.strategy)[1]}
        row |= {"compute_s": core.step_time_s - exposed_s}
        row |= {kind: getattr(core, kind) for kind in kinds}
        row["serialised_s"] = row["compute_s"] + core.communication_s
        rows.append(row | {"exposed_s": exposed_s, "step_time_s": core.step_time_s})
    return pd.DataFrame(rows)


def throughput_memory(names: Sequence[str] | None = None) -> pd.DataFrame:
    """Strategies of a model that no other one beats in both step time and memory.

    Parameters
    ----------
    names : sequence of str, optional
        Of `SUITE`; default: all.

    Returns
    -------
    DataFrame, one row per model and strategy of its front
        Columns name, tables, layers, experts, recompute, verdict, ``samples_per_s``,
        ``memory_bytes``. Strategies that do not fit are on the front too: their memory says what
        they would need.

    Raises
    ------
    ScaleModelError : an unknown model.

    Examples
    --------
    >>> front = throughput_memory(["ViT-10B"])
    >>> bool(front.samples_per_s.is_monotonic_increasing)
    True
    """
    import pandas as pd

    fronts = []
    for name, workload in named(names, SUITE).items():
        model, rows = compose(workload.model), []
        for est in estimates(model, workload.where(), workload.task(), workload.stack):
            if est.illegal:
                continue
            tables, layers, experts = meshes(est.strategy)
            rows.append(
                {
                    "name": name,
                    "tables": tables,
                    "layers": layers,
                    "experts": experts,
                    "recompute": est.strategy.recompute,
                    "verdict": est.verdict,
                    "samples_per_s": est.samples_per_s,
                    "memory_bytes": est.core.memory_bytes,
                }
            )
        front = pareto(pd.DataFrame(rows), minimize=["memory_bytes"], maximize=["samples_per_s"])
        fronts.append(front.sort_values("memory_bytes"))
    return pd.concat(fronts, ignore_index=True)


def fleet_exposed(exposed: Mapping[str, float], hours: Mapping[str, float]) -> float:
    """Share of all hours of a fleet in which communication is exposed.

    Parameters
    ----------
    exposed : mapping of str to float
        Exposed share of a step, by model.
    hours : mapping of str to float
        Accelerator hours of a model, in any unit.

    Raises
    ------
    ScaleModelError : a model without its share, or no hours.

    Examples
    --------
    >>> fleet_exposed({"clicks": 0.5, "text": 0.1}, {"clicks": 1, "text": 3})
    0.2
    """
    missing = sorted(set(hours) - set(exposed.keys()))
    if missing:
        raise ScaleModelError(f"hours: {missing[0]!r}: exposed says nothing of it")
    total = sum(hours.values())
    if total <= 0 or min(hours.values()) < 0:
        raise ScaleModelError(f"hours={dict(hours)!r}: must not be negative, their sum not 0")
    return sum(exposed[name] * value for name, value in hours.items()) / total
