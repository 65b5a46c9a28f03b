"""Why two other estimators answer differently: causes that can be switched off one by one.

Each cause is a function that takes a `Comparison` and matches the two sides in one respect: it
changes our question to what the tool assumed, or takes a mistake of the tool out of its answer by
means of the tool's own intermediate results. The engine itself is never touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

import scalemodel._core as _core
from reference.peers import (
    CALCULON,
    Peer,
    Question,
    of_tool,
    question,
    wire_only,
    without_ends,
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Our answer beside another tool's, after some causes of difference were removed."""

    peer: Peer
    asked: Question
    theirs_s: float
    #: Columns of our answer that the tool has no counterpart for.
    omitted: tuple[str, ...] = ()

    @property
    def ours_s(self) -> float:
        estimate = self.asked.estimate
        omitted_s = sum(float(getattr(estimate, column)) for column in self.omitted)
        return estimate.step_time_s - omitted_s

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours_s / self.theirs_s

    def asking(self, asked: Question) -> Comparison:
        return dataclasses.replace(self, asked=asked)


Cause = Callable[[Comparison], Comparison]


def comparison(peer: Peer) -> Comparison:
    return Comparison(peer, question(peer), peer.step_time_s)


# ----------------------------------------------------------------------- causes of both tools
def stack_losses(c: Comparison) -> Comparison:
    """No host launches, no kernel slower inside a step than alone, no time between steps."""
    stack = c.asked.stack.replace(
        gemm_efficiency=1.0, memory_efficiency=1.0, host_launch_s=0.0, step_overhead_s=0.0
    )
    return c.asking(c.asked.but(stack=stack))


def ideal_overlap(c: Comparison) -> Comparison:
    """Communication hides whole and for nothing where the tool says that it hides, else not."""
    stack = c.asked.stack.replace(contention=0.0, overlap_efficiency=1.0, overlap_p2p=False)
    strategy = c.asked.strategy
    if c.peer.tool == CALCULON:
        data_parallel = c.peer.flag("data_par_overlap")
        strategy = strategy.replace(
            overlap_grad_reduce=data_parallel,
            overlap_param_gather=data_parallel,
            overlap_tp=c.peer.text("tensor_par_overlap") != "none",
        )
    return c.asking(c.asked.but(stack=stack, strategy=strategy))


def wide_gradients(c: Comparison) -> Comparison:
    """Gradients travel in 16 bits, not in FP32."""
    return c.asking(c.asked.but(task=c.asked.task.replace(gradient_precision="bf16")))


#: Share of memory bandwidth that flat products reach.
FLAT_MEMORY_FRACTION = 0.9


def flat_products(accelerator: _core.Accelerator, of_peak: float) -> _core.Accelerator:
    """Matrix products at one fraction of peak, their bytes moved before or after."""
    flat = _core.TileGemm(
        burst_fraction=of_peak,
        sustained_fraction=of_peak,
        throttle_s=1.0,
        memory_fraction=FLAT_MEMORY_FRACTION,
        blend=1.0,
    )
    precision = _core.precisions().index("bf16")
    kernels = _core.GemmKernels(
        tiled=True,
        dense16=flat,
        tile_rows=[64, *[0] * 7],
        tile_columns=[64, *[0] * 7],
        reference_peak_flop_per_s=accelerator.peak_flop_per_s[precision],
        roofline_compute_fraction=of_peak,
        roofline_memory_fraction=FLAT_MEMORY_FRACTION,
    )
    return accelerator.replace(multiprocessors=1, clock_hz=1e11, gemm=kernels)


# ------------------------------------------------------------------------------------ Calculon
def untimed_ends(c: Comparison) -> Comparison:
    """Token table, logits and loss are not timed."""
    return c.asking(without_ends(c.asked))


def score_maps(c: Comparison) -> Comparison:
    """Attention scores, softmax and dropout pass through memory, over the full square."""
    return c.asking(
        c.asked.but(
            task=c.asked.task.replace(attention="fused_softmax"),
            stack=c.asked.stack.replace(dropout=True),
        )
    )


#: Bytes on the wire of an all-gather or reduce-scatter over NVLink, in units of size (n - 1)/n.
#: The all-reduce has 2, as a ring does.
A100_HALVES = 1.5


def calculon_links(c: Comparison) -> Comparison:
    """Its links: 65 and 90 % of wire speed, 10 and 20 us whatever the ranks, an all-gather and a
    reduce-scatter of 1.5 (n - 1)/n on NVLink of A100 and 1 of H100, over the fabric one buffer
    per operation (an all-reduce too), and a port per rank even where ranks share a node."""
    peer, cluster = c.peer, c.asked.cluster
    n, d = peer.tp, peer.dp
    whole = n / (n - 1) if n > 1 else 1
    halves = whole if peer.row["system"].startswith("h100") else A100_HALVES

    def fit(passes: float) -> _core.CollectiveFit:
        fraction = 0.65 / passes
        return _core.CollectiveFit(
            start1_s=1.0,  # never the faster branch: one straight line
            start2_s=10e-6,
            bandwidth_fraction1=fraction,
            bandwidth_fraction2=fraction,
        )

    scale_up = cluster.scale_up.replace(
        all_reduce=fit(1),
        all_gather=fit(halves),
        reduce_scatter=fit(halves),
        in_switch=_core.InSwitchFit(),
    )
    one_buffer = (d - 1) / d * (2 if peer.sharding == "ddp" else 1) if d > 1 else 1
    sharing = max(1, min(cluster.scale_up.domain // n, d))
    fabric = cluster.fabric.replace(
        latency_factor=0.0,
        bandwidth_fraction=0.9 * one_buffer / sharing,
        p2p_latency_s=20e-6,
        p2p_fraction=0.9,
    )
    return c.asking(c.asked.but(cluster=cluster.replace(scale_up=scale_up, fabric=fabric)))


def whole_stream(c: Comparison) -> Comparison:
    """Where tensor ranks all-reduce, each sends the whole residual stream to the next stage."""
    if c.peer.text("tensor_par_comm_type") != "ar":
        return c
    cluster = c.asked.cluster
    slower = {"p2p_fraction": cluster.fabric.p2p_fraction / c.peer.tp}
    fabric = cluster.fabric.replace(**slower)
    slower = {"p2p_fraction": cluster.scale_up.p2p_fraction / c.peer.tp}
    scale_up = cluster.scale_up.replace(**slower)
    return c.asking(c.asked.but(cluster=cluster.replace(scale_up=scale_up, fabric=fabric)))


def calculon_rates(c: Comparison) -> Comparison:
    """Its kernels: products at 95 or 99 % of peak plus, not beside, their bytes; the rest at the
    share of memory bandwidth it gives to tensors of 10 to 100 MB."""
    even = c.peer.row["system"] == "a100_80e"
    accelerator = flat_products(c.asked.cluster.accelerator, 0.99 if even else 0.95)
    fraction = 0.90 if even else 0.75
    elementwise = accelerator.elementwise.replace(
        add_fraction=fraction, norm_fraction=fraction, softmax_fraction=fraction, launch_s=0.0
    )
    accelerator = accelerator.replace(elementwise=elementwise)
    return c.asking(c.asked.but(cluster=c.asked.cluster.replace(accelerator=accelerator)))


#: Of a block's weights, those whose input gradients a ring exchange feeds: what attention writes
#: through and the second feed-forward matrix, 1 + 4 of 4 + 8 squares of the hidden size.
FED_BACKWARD = 5 / 12


def whole_products(c: Comparison) -> Comparison:
    """Products under a ring exchange are whole; in pieces, one a rank, each reads all weights."""
    peer = c.peer
    if peer.text("tensor_par_overlap") != "ring":
        return c
    bandwidth = FLAT_MEMORY_FRACTION * c.asked.cluster.accelerator.memory_bandwidth_bytes_per_s
    reads = (peer.tp - 1) * (1 + FED_BACKWARD)
    again_s = reads * peer.out("block_weight_space") / bandwidth
    passes = peer.stage_layers * (peer.micro_batches + (peer.pp - 1) / peer.chunks)
    return dataclasses.replace(c, theirs_s=c.theirs_s + passes * again_s)


# -------------------------------------------------------------------------------- llm-analysis
FORWARD = ("latency_fwd_attn", "latency_fwd_mlp", "latency_fwd_layernorm", "latency_fwd_tp_comm")
ENDS = ("latency_fwd_input_embedding", "latency_fwd_output_embedding_loss")
GATHER = "latency_fwd_sharded_dp_comm"


def total_s(peer: Peer, columns: Iterable[str]) -> float:
    return sum(peer.out(column) for column in columns)


def repeated_s(peer: Peer) -> float:
    """Its recomputation of one micro-batch: what three forward passes leave of it."""
    return max(0.0, peer.out("latency_per_micro_batch") - 3 * peer.out("latency_fwd"))


def selective_twice(c: Comparison) -> Comparison:
    """The attention core is repeated as often as there are layers, once more for each layer."""
    if c.peer.recompute != "selective":
        return c
    surplus_s = repeated_s(c.peer) * (1 - 1 / c.peer.stage_layers)
    return dataclasses.replace(c, theirs_s=c.theirs_s - c.peer.micro_batches * surplus_s)


def gather_always(c: Comparison) -> Comparison:
    """Parameters are gathered for each micro-batch even where every rank holds them all."""
    if c.peer.sharding == "zero3":
        return c
    surplus_s = max(0.0, c.peer.out(GATHER) - total_s(c.peer, FORWARD))
    return dataclasses.replace(c, theirs_s=c.theirs_s - 3 * c.peer.micro_batches * surplus_s)


def spread_ends(c: Comparison) -> Comparison:
    """Token table and logits are spread evenly over stages; taken out of both sides."""
    ends_s = 3 * c.peer.micro_batches * total_s(c.peer, ENDS)
    return dataclasses.replace(c, asked=without_ends(c.asked), theirs_s=c.theirs_s - ends_s)


def no_pipeline(c: Comparison) -> Comparison:
    """No bubble, no transfers between stages, no reduction of gradients once per step."""
    once = () if c.peer.sharding == "zero3" else ("exposed_dp_s",)
    return dataclasses.replace(c, omitted=("bubble_s", "exposed_pp_s", *once))


def wire_speed(c: Comparison) -> Comparison:
    """Links without latency at their full bandwidth."""
    return c.asking(wire_only(c.asked))


def half_of_peak(c: Comparison) -> Comparison:
    """Every product at half of peak, attention over the full square, little else timed."""
    accelerator = flat_products(c.asked.cluster.accelerator, 0.5)
    # Flash kernels compute half of the square, in the backward pass 2.5 times instead of twice.
    attention = accelerator.attention.replace(
        flash2_forward=0.25, flash2_backward=0.25 * 2.5 / 2, launch_s=0.0
    )
    accelerator = accelerator.replace(
        attention=attention,
        elementwise=accelerator.elementwise.replace(launch_s=0.0),
        memory_bandwidth_bytes_per_s=1e16,
    )
    return c.asking(
        c.asked.but(
            task=c.asked.task.replace(attention="flash2"),
            cluster=c.asked.cluster.replace(accelerator=accelerator),
        )
    )


#: Cause -> function that removes it, by tool, in the order in which they are removed.
CAUSES: dict[str, dict[str, Cause]] = {
    "calculon": {
        "ends": untimed_ends,
        "losses": stack_losses,
        "overlap": ideal_overlap,
        "scores": score_maps,
        "gradients": wide_gradients,
        "links": calculon_links,
        "stream": whole_stream,
        "rates": calculon_rates,
        "pieces": whole_products,
    },
    "llm-analysis": {
        "selective": selective_twice,
        "gather": gather_always,
        "ends": spread_ends,
        "losses": stack_losses,
        "overlap": ideal_overlap,
        "gradients": wide_gradients,
        "pipeline": no_pipeline,
        "links": wire_speed,
        "rates": half_of_peak,
    },
}


def without(c: Comparison, names: Iterable[str]) -> Comparison:
    """The comparison after the named causes were removed, in the order of `CAUSES`."""
    chosen = set(names)
    for name, remove in CAUSES[c.peer.tool].items():
        if name in chosen:
            c = remove(c)
    return c


def ratios(peer: Peer) -> dict[str, float]:
    """Ours over theirs as asked, then after each further cause."""
    c = comparison(peer)
    steps = {"asked": c.ratio}
    for name, remove in CAUSES[peer.tool].items():
        c = remove(c)
        steps[name] = c.ratio
    return steps


def table() -> str:
    """Ratio of our step time to theirs for every row, after each further cause."""
    lines = []
    for tool, causes in CAUSES.items():
        lines.append(f"{tool:>34}  " + " ".join(f"{name:>9}" for name in ("asked", *causes)))
        for peer in of_tool(tool):
            steps = " ".join(f"{ratio:9.3f}" for ratio in ratios(peer).values())
            lines.append(f"{peer!s:>34}  {steps}")
    return "\n".join(lines)
