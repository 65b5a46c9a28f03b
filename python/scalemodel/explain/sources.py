"""Formulas of the terms of an estimate, what enters them, and where both were published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from scalemodel import catalog, resolve
from scalemodel.diagnosis import operator_class
from scalemodel.errors import ScaleModelError
from scalemodel.estimate import stack_of
from scalemodel.messages import degrees_of
from scalemodel.units import source_of

if TYPE_CHECKING:
    from scalemodel.estimate import Estimate
    from scalemodel.resolve import Cluster

_ZERO = "Rajbhandari et al., ZeRO, arXiv 1910.02054"
_ACTIVATIONS = "Korthikanti et al., arXiv 2205.05198, section 4"
MEMORY_FACTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "weights": (
        "parameters of the stage / (tp or ep etp) × bytes, / shard ranks with zero3 and hsdp",
        _ZERO,
        ("tp", "pp", "ep", "sharding", "offload_weights"),
    ),
    "gradients": (
        "trainable parameters × gradient bytes, / shard ranks with zero2, zero3 and hsdp",
        _ZERO,
        ("tp", "pp", "ep", "sharding"),
    ),
    "optimizer": (
        "trainable parameters × (master + moments) bytes, / shard ranks except with ddp",
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


def network_text(cluster: Cluster) -> str:
    """What is assumed of the network between domains.

    Examples
    --------
    >>> import scalemodel as sm
    >>> network_text(sm.cluster("dgx_h100"))
    'ideal fabric assumed: no collisions, no failures; network=... takes what sm.route reports'
    """
    shares = cluster.core.fabric.shares.to_dict()
    if all(share == 1 for share in shares.values()):
        return (
            "ideal fabric assumed: no collisions, no failures; network=... takes what sm.route "
            "reports"
        )
    listed = ", ".join(f"{axis} {share:.4g}" for axis, share in shares.items() if share < 1)
    return f"routed fabric: shares of the ideal bandwidth {listed}, other axes 1"


class Sources:
    """Citations of one estimate: formulas with the constants of its accelerator and networks."""

    def __init__(self, est: Estimate) -> None:
        self.est = est
        accelerator = est.cluster.accelerator
        self.stack = f"stacks/{est.stack}"
        self.gemm = "tile form of ops/gemm.hpp; " + entry_source(
            "accelerators", accelerator, "gemm"
        )
        self.attention = (
            "FlashAttention forward and backward rates (Dao, arXiv 2307.08691; Shah et al., "
            "arXiv 2407.08608); "
            + entry_source("accelerators", accelerator, "attention", "flash2_forward")
        )
        self.moving = "memory-bound kernels of ops/memory_bound.hpp; " + entry_source(
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
        if kind == "product":
            return f"{times}; C[m,n] = A[m,k] B[k,n], backward dA and dB", self.gemm
        if kind == "attention":
            return f"{times}; flop / (rate × peak), 2.5 times the flop backward", self.attention
        if kind == "collective":
            return f"{times}; time of the collectives before overlap", self.network
        return f"{times}; launch + bytes / (fraction × memory bandwidth)", self.moving


_BUCKETS = (
    "gradient reduction and parameter gathering, less reach × the compute above them; the bucket "
    "at the end of the step stays open"
)
_SHARDED = (
    "micro_batches × layers × ((traffic^p + compute^p)^(1/p) − compute) of either pass, p = 1 / "
    "(1 − overlap_efficiency); the ends, the first gathering and the last reduction stay open"
)


def cause_facts(est: Estimate, column: str, sources: Sources) -> tuple[str, str, dict[str, Any]]:
    """Formula, source and inputs of a cause."""
    s, core, stack = est.strategy, est.core, stack_of(est)
    network = est.cluster.core
    links = {
        "scale_up_bytes_per_s": network.scale_up.bandwidth_bytes_per_s,
        "domain": network.scale_up.domain,
        "fabric_bytes_per_s": network.fabric.bandwidth_bytes_per_s,
    }
    reach = {"overlap_efficiency": stack.overlap_efficiency}

    def between(axis: str) -> dict[str, Any]:
        return links | {"fabric_share_fraction": getattr(network.fabric.shares, axis)}

    facts: dict[str, tuple[str, str, dict[str, Any]]] = {
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
        "exposed_tp_s": (
            "micro_batches × layers × max(0, collectives − reach × matrix products); all-gather "
            "and reduce-scatter with sequence parallelism, else all-reduce",
            f"Korthikanti et al., arXiv 2205.05198; {sources.network}",
            {"tp": s.tp, "sequence_parallel": s.sequence_parallel, "overlap_tp": s.overlap_tp}
            | between("tp"),
        ),
        "exposed_cp_s": (
            "micro_batches × layers × max(0, exchange of keys and values − reach × attention)",
            f"Liu et al., ring attention, arXiv 2310.01889; {sources.network}",
            {"cp": s.cp, "context": s.context} | between("cp") | reach,
        ),
        "exposed_ep_s": (
            "micro_batches × layers × 2 all-to-alls each way (dispatch, combine)",
            f"Lepikhin et al., GShard, arXiv 2006.16668; {sources.network}",
            {"ep": s.ep, "etp": s.etp, "imbalance": est.task.imbalance} | between("ep"),
        ),
        "exposed_pp_s": (
            "(2 vpp micro_batches + 2 (pp − 1)) × time of one transfer, less what the ends do not "
            "send; where the stack overlaps them 2 (pp − 1) + 2 (vpp − 1) pp, zero_bubble 4 (pp − "
            "1)",
            f"Narayanan et al., arXiv 2104.04473; {sources.network}",
            {"pp": s.pp, "vpp": s.vpp, "overlap_p2p": stack.overlap_p2p} | between("pp"),
        ),
        "exposed_dp_s": (
            _SHARDED if s.sharding in ("zero3", "hsdp") else _BUCKETS,
            f"Rajbhandari et al., ZeRO, arXiv 1910.02054; {sources.network}",
            {"dp": core.dp, "sharding": s.sharding, "shard_ranks": degrees_of(est).shard}
            | between("dp")
            | reach,
        ),
        "exposed_offload_s": (
            "host transfers each way − reach × compute",
            f"Rajbhandari et al., ZeRO-Infinity, arXiv 2104.07857; {sources.host}",
            {
                "host_bandwidth_bytes_per_s": network.accelerator.host_bandwidth_bytes_per_s,
                "host_memory_bytes": core.host_memory_bytes,
            },
        ),
        "bubble_s": (
            "1f1b and gpipe: time of the other stages; interleaved: / vpp; zero_bubble: (pp − 1)"
            "(F + I − min(W, F, I)); dualpipe: max((pp/2 − 1)(2F + I − W), (pp/2 − 1)(F + 2I − W) "
            "− F, (pp − 2)F); F forward, I input and W weight gradients",
            "arXiv 1811.06965, 2104.04473, 2401.10241, 2412.19437",
            {"pp": s.pp, "vpp": s.vpp, "schedule": s.schedule, "micro_batches": core.micro_batches},
        ),
        "optimizer_s": (
            "bytes of gradients, states and weights of a rank's share / (fraction × bandwidth)",
            f"Rajbhandari et al., ZeRO, arXiv 1910.02054; {sources.moving}",
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
