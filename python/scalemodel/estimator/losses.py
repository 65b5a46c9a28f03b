"""What holds a strategy back: the terms of a step that an ideal machine would not spend."""

from __future__ import annotations

from typing import Any, NamedTuple

from scalemodel.base.text import percent_text, size_text, time_text
from scalemodel.estimator.evaluation import (
    Evaluation,
    kinds_text,
    launches_s,
    operator_rows,
    stack_of,
    tables_for,
)


class Loss(NamedTuple):
    """Time of a step that an ideal machine would not spend."""

    term: str
    words: str
    time_s: float


_COMMUNICATION = {
    "exposed_tp_s": "tensor-parallel communication not hidden under compute",
    "exposed_cp_s": "context-parallel communication not hidden under compute",
    "exposed_ep_s": "expert-parallel dispatch and combine not hidden under compute",
    "exposed_pp_s": "pipeline transfers not hidden under compute",
    "exposed_dp_s": "data-parallel communication not hidden under compute",
    "exposed_offload_s": "host transfers not hidden under compute",
    "bubble_s": "pipeline stages waiting for each other",
    "optimizer_s": "memory bandwidth in the optimizer update",
    "overhead_s": "work once per step beside the model",
}


def recomputation_s(est: Evaluation) -> float:
    """Compute time that the same strategy without recomputation would not have."""
    if est.strategy.recompute == "none":
        return 0.0
    plain = est.strategy.replace(recompute="none", recompute_layers=0)
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    without = tables.estimate(plain).compute_s
    return max(0.0, float(est.core.compute_s) - float(without))


def operator_class(row: dict[str, Any]) -> str:
    """``gemm``, ``attention``, ``collective`` or ``elementwise`` (bound by memory bandwidth)."""
    if row["operator"].endswith("_parallel"):
        return "collective"
    if row["operator"] == "attention":
        return "attention"
    return "gemm" if row["m"] > 0 else "elementwise"


def losses(est: Evaluation) -> list[Loss]:
    """Avoidable terms of a step, largest first; empty for an illegal strategy.

    Communication, bubble, optimizer and overhead are columns of the estimate; recomputation and
    launches are what compute would lose without them, and overlap. Compute is parted by
    the operators of a mean stage: kernels bound by memory bandwidth count whole, GEMMs
    and attention with what exceeds their time at the dense peak.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=2))
    >>> {"exposed_tp", "bubble", "attention"} <= {loss.term for loss in losses(est)}
    True
    """
    if est.illegal:
        return []
    found = [
        Loss(column.removesuffix("_s"), words, float(getattr(est.core, column)))
        for column, words in _COMMUNICATION.items()
    ]
    found.append(Loss("recomputation", "recomputation of activations", recomputation_s(est)))
    found.append(Loss("launches", "the host, which cannot launch kernels faster", launches_s(est)))
    slowed = stack_of(est).contention * est.core.hidden_s
    found.append(Loss("contention", "compute slowed by communication underneath it", slowed))
    spent = {"gemm": 0.0, "attention": 0.0, "elementwise": 0.0, "collective": 0.0}
    moving: dict[str, float] = {}
    for row in operator_rows(est):
        kind, time_s = operator_class(row), row["step_s"]
        spent[kind] += time_s
        if kind == "elementwise":
            moving[row["operator"]] = moving.get(row["operator"], 0.0) + time_s
    at_peak = est.core.mfu_fraction * est.core.step_time_s
    tables = tables_for(est.model, est.cluster, est.task, est.stack)
    forward, attention = tables.model_flop()
    share = attention / forward
    widest = max(moving, key=lambda name: moving[name], default="kernels")
    found += [
        Loss(
            "memory_bandwidth",
            f"memory bandwidth in norms, activations and loss (most in {widest})",
            spent["elementwise"],
        ),
        Loss(
            "attention",
            "attention kernels below the dense peak",
            max(0.0, spent["attention"] - share * at_peak),
        ),
        Loss(
            "products",
            "GEMMs below the dense peak",
            max(0.0, spent["gemm"] - (1 - share) * at_peak),
        ),
    ]
    return sorted(found, key=lambda loss: -loss.time_s)


def what_limits(est: Evaluation) -> str:
    """The largest avoidable term, in words.

    Examples
    --------
    >>> import scalemodel as sm
    >>> est = sm.estimate("llama3_8b", sm.cluster("dgx_h100"),
    ...                   sm.Training(global_batch=64, sequence=8192), sm.Strategy(tp=3))
    >>> what_limits(est)
    'illegal:mesh'
    """
    if est.illegal:
        return est.verdict
    if not est.fits:
        largest = kinds_text(est).split(" | ")[0]
        return (
            f"memory: {size_text(est.core.memory_bytes)} of "
            f"{size_text(est.core.memory_capacity_bytes)}, the largest part {largest}"
        )
    first = losses(est)[0]
    share = percent_text(first.time_s / est.core.step_time_s)
    return f"{first.words}: {time_text(first.time_s)}, {share} of the step"
