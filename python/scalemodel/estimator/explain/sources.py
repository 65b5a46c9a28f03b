"""Formulas of the terms of an estimate, what enters them, and where both were published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.base.units import source_of
from scalemodel.estimator.evaluation import Evaluation, degrees_of, stack_of
from scalemodel.estimator.losses import operator_class

if TYPE_CHECKING:
    pass

_ZERO = "Rajbhandari et al., ZeRO, arXiv 1910.02054"
_ZERO_PLUS_PLUS = "Wang et al., ZeRO++, arXiv 2306.10209"
_ACTIVATIONS = "Korthikanti et al., arXiv 2205.05198, section 4"
MEMORY_FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "weights": (
        "parameters of the stage / (tp or ep etp) × bytes, / shard ranks with zero3 and hsdp; a "
        "second copy / secondary_degree",
        f"{_ZERO}; second copy: {_ZERO_PLUS_PLUS}",
        ("tp", "pp", "ep", "sharding", "secondary_degree", "offload_weights"),
    ),
    "gradients": (
        "trainable parameters × gradient bytes, / shard ranks with zero2, zero3 and hsdp",
        _ZERO,
        ("tp", "pp", "ep", "sharding"),
    ),
    "optimizer": (
        "trainable parameters × (master + moments, copies if updates peak), / shards but in ddp",
        _ZERO,
        ("tp", "pp", "ep", "sharding", "offload_optimizer"),
    ),
    "activations": (
        "micro-batches in flight × (bytes kept per layer × layers of the stage, stage outputs)",
        f"{_ACTIVATIONS}; micro-batches in flight: Narayanan et al., arXiv 2104.04473",
        ("micro_batch", "tp", "cp", "pp", "vpp", "schedule", "recompute", "offload_activations"),
    ),
    "logits": (
        "tokens × vocab / tp × bytes per logit of the stack's loss; whole vocab where it gathers",
        "cross-entropy kernels, costs/layer_cost.cpp",
        ("micro_batch", "tp", "cp"),
    ),
    "temporary": (
        "largest working set of a layer, recomputed or not, beyond the logits; unused gradients",
        _ACTIVATIONS,
        ("micro_batch", "tp", "cp", "recompute"),
    ),
    "communication": (
        "gathered sequence-parallel stream and two pipeline buffers",
        _ACTIVATIONS,
        ("tp", "pp", "sequence_parallel"),
    ),
    "gathered": (
        "two layers and the ends in full with zero3 and hsdp, and one layer's gradient",
        "Zhao et al., PyTorch FSDP, arXiv 2304.11277",
        ("sharding", "tp"),
    ),
}


def entry_source(kind: str, name: str, *path: str) -> str:
    """Source that a catalogue entry gives for a number, or what is to be said without one."""
    try:
        cell: object = (
            resolve.accelerator_table(name) if kind == "accelerators" else catalog.load(kind, name)
        )
    except ScaleModelError:
        return f"{'.'.join(path)} as given with the question"
    own = ""
    for key in path:
        if not isinstance(cell, Mapping) or key not in cell:
            break
        cell = cell[key]
        own = source_of(cell) or own
    return f"{kind}/{name}: {own}" if own else f"{kind}/{name}"


class Sources:
    """Citations of one estimate: formulas with the constants of its accelerator and networks."""

    def __init__(self, est: Evaluation) -> None:
        self.est = est
        accelerator = est.cluster.accelerator
        named = isinstance(est.stack, str)
        self.stack = f"stacks/{est.stack}" if named else "a stack of its own"
        self.gemm = "tile form of ops/gemm.hpp; " + entry_source(
            "accelerators", accelerator, "gemm"
        )
        self.attention = (
            "FlashAttention forward and backward rates (Dao, arXiv 2307.08691; Shah et al., "
            "arXiv 2407.08608); "
            + entry_source("accelerators", accelerator, "attention", "flash2_forward")
        )
        self.elementwise = "memory-bound kernels of ops/memory_bound.hpp; " + entry_source(
            "accelerators", accelerator, "elementwise", "add_fraction"
        )
        self.capacity = entry_source("accelerators", accelerator, "memory", "capacity")
        self.host = entry_source("accelerators", accelerator, "host", "bandwidth")
        self.power = "Fernandez et al., arXiv 2411.13055; " + entry_source(
            "accelerators", accelerator, "power", "tdp"
        )
        self.network = "; ".join(
            ["collectives/collectives.hpp, fits to nccl-tests and NCCL src/graph/tuning.cc"]
            + [
                entry_source("clusters", est.cluster.name, part, "bandwidth")
                for part in ("scale_up", "fabric")
            ]
        )

    def operator(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Formula and source of an operator."""
        kind = operator_class(dict(row))
        times = "micro_batches × layers_per_stage × (forward + backward)"
        if kind == "gemm":
            return f"{times}; C[m,n] = A[m,k] B[k,n], backward dA and dB", self.gemm
        if kind == "attention":
            return f"{times}; flop / (rate × peak), 2.5 times the flop backward", self.attention
        if kind == "collective":
            return f"{times}; time of the collectives before overlap", self.network
        return f"{times}; launch + bytes / (fraction × memory bandwidth)", self.elementwise


_BUCKETS = (
    "longest chain from the first gathering to the last reduction − the same of passes and "
    "transfers alone; overlap_efficiency × compute of the passes beside them hides all buckets but "
    "one"
)
_SHARDED = (
    "micro_batches × layers × ((traffic^p + compute^p)^(1/p) − compute) of either pass, p = 1 / "
    "(1 − overlap_efficiency); the ends, the first gathering and the last reduction are exposed"
)
#: Knobs of ZeRO++.
_QUANTIZED = ("secondary_degree", "quantized_gather", "quantized_reduce")


#: Formula, source and inputs.
Facts = tuple[str, str, dict[str, Any]]


def _communication_facts(est: Evaluation, sources: Sources) -> dict[str, Facts]:
    """Of exposed communication, by its column."""
    s, core, stack, network = est.strategy, est.core, stack_of(est), est.cluster.core
    links = {
        "scale_up_bytes_per_s": network.scale_up.bandwidth_bytes_per_s,
        "domain": network.scale_up.domain,
        "fabric_bytes_per_s": network.fabric.bandwidth_bytes_per_s,
    }
    overlap = {"overlap_efficiency": stack.overlap_efficiency}

    changed = {name: getattr(s, name) for name in _QUANTIZED if getattr(s, name)}

    def between(axis: str) -> dict[str, Any]:
        return links | {"fabric_share_fraction": getattr(network.fabric.shares, axis)}

    return {
        "exposed_tp_s": (
            "micro_batches × layers × max(0, collectives − overlap_efficiency × GEMMs); all-gather "
            "and reduce-scatter with sequence parallelism, else all-reduce",
            f"Korthikanti et al., arXiv 2205.05198; {sources.network}",
            {"tp": s.tp, "sequence_parallel": s.sequence_parallel, "overlap_tp": s.overlap_tp}
            | between("tp"),
        ),
        "exposed_cp_s": (
            "micro_batches × layers × max(0, exchange of keys and values − overlap_efficiency × "
            "attention)",
            f"Liu et al., ring attention, arXiv 2310.01889; {sources.network}",
            {"cp": s.cp, "context": s.context} | between("cp") | overlap,
        ),
        "exposed_ep_s": (
            "micro_batches × layers × 2 all-to-alls each way (dispatch, combine)",
            f"Lepikhin et al., GShard, arXiv 2006.16668; {sources.network}",
            {"ep": s.ep, "etp": s.etp, "imbalance": est.task.imbalance} | between("ep"),
        ),
        "exposed_pp_s": (
            "longest chain of passes and transfers between stages − the same without transfers; a "
            "stack that does not overlap them keeps the sending stage waiting",
            f"Narayanan et al., arXiv 2104.04473; {sources.network}",
            {"pp": s.pp, "vpp": s.vpp, "overlap_p2p": stack.overlap_p2p} | between("pp"),
        ),
        "exposed_dp_s": (
            _SHARDED if s.sharding in ("zero3", "hsdp") else _BUCKETS,
            "; ".join([_ZERO, *([_ZERO_PLUS_PLUS] if changed else []), sources.network]),
            {"dp": core.dp, "sharding": s.sharding, "shard_ranks": degrees_of(est).shard}
            | changed
            | between("dp")
            | overlap,
        ),
    }


def cause_facts(est: Evaluation, column: str, sources: Sources) -> Facts:
    """Formula, source and inputs of a cause."""
    s, core, stack, network = est.strategy, est.core, stack_of(est), est.cluster.core
    facts: dict[str, Facts] = {
        **_communication_facts(est, sources),
        "compute_s": (
            "micro_batches × (forward + backward + recomputation of the slowest stage)"
            " + contention × hidden",
            f"kernels: {sources.gemm}; {sources.stack}",
            {
                "micro_batches": core.micro_batches,
                "recompute": s.recompute,
                "gemm_efficiency": stack.gemm_efficiency,
                "memory_efficiency": stack.memory_efficiency,
                "host_launch_s": stack.host_launch_s,
            },
        ),
        "exposed_offload_s": (
            "host transfers each way − overlap_efficiency × compute",
            f"Rajbhandari et al., ZeRO-Infinity, arXiv 2104.07857; {sources.host}",
            {
                "host_bandwidth_bytes_per_s": network.accelerator.host_bandwidth_bytes_per_s,
                "host_memory_bytes": core.host_memory_bytes,
            },
        ),
        "bubble_s": (
            "longest chain of passes that wait for each other in the schedule's order, transfers "
            "taking no time, − micro_batches × passes of the busiest stage; equal stages: (pp − 1)"
            "(F + B) / vpp, zero_bubble (pp − 1)(F + I − min(W, F, I)) with F forward, B = I + W "
            "backward, I input and W weight gradients; zero_bubble_2p counts from step to step, "
            "as its optimizer waits for no other stage",
            "arXiv 1811.06965, 2104.04473, 2401.10241, 2412.19437; pytorch/pytorch, "
            "torch/distributed/pipelining/schedules.py (zero_bubble_v); deepseek-ai/DualPipe",
            {"pp": s.pp, "vpp": s.vpp, "schedule": s.schedule, "micro_batches": core.micro_batches},
        ),
        "optimizer_s": (
            "bytes of gradients, states and weights of a rank's share / (fraction × bandwidth)",
            f"Rajbhandari et al., ZeRO, arXiv 1910.02054; {sources.elementwise}",
            {
                "optimizer": est.task.optimizer,
                "sharding": s.sharding,
                "memory_bandwidth_bytes_per_s": network.accelerator.memory_bandwidth_bytes_per_s,
            },
        ),
        "overhead_s": (
            "data, clipping, logging, once per step",
            sources.stack,
            {"step_overhead_s": stack.step_overhead_s},
        ),
    }
    return facts[column]
