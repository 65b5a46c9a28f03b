"""Claims about training: ZeRO, Megatron-LM, GPipe, PipeDream, GShard, P3, TicTac, QSGD."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import scalemodel._core as _core
from scalemodel import resolve
from scalemodel._core import Strategy
from scalemodel.estimator.estimate import Estimate, estimate
from scalemodel.layer_groups import (
    ComposedModel,
    GroupStrategy,
    TokenEmbedding,
    Transformer,
    compose,
)
from scalemodel.resolve import Model
from scalemodel.resolve.tasks import Training
from scalemodel.studies.cited_systems.claim import Claim

#: Megatron-LM's software of 2021 to 2022, the oldest whose constants are known.
_MEGATRON = "megatron_lm_2021_22"


# --------------------------------------------------------------------------------------------- ZeRO
def zero_bytes(sharding: str) -> float:
    """Weights, gradients and optimizer states of an accelerator: 7.5B parameters on 64.

    Examples
    --------
    >>> round(zero_bytes("zero3") / 1e9, 1)
    1.9
    """
    # Gradients in 16 bits, as the paper counts them: 2 + 2 + 12 bytes a parameter.
    task = Training(global_batch=64, sequence=2048, precision="fp16", gradient_precision="bf16")
    cluster = resolve.cluster("dgx_2", nodes=4)
    plan = Strategy(micro_batch=1, sharding=sharding, recompute="full")
    core = estimate("megatron_7_5b", cluster, task, plan).core
    return float(
        core.memory_weights_bytes + core.memory_gradients_bytes + core.memory_optimizer_bytes
    )


# --------------------------------------------------------------------------------- Megatron-LM 2019
#: Hidden size, heads and layers by tensor-parallel degree: 1.2B, 2.5B, 4.2B and 8.3B parameters.
_SHAPES = {1: (1536, 16, 40), 2: (1920, 20, 54), 4: (2304, 24, 64), 8: (3072, 32, 72)}
_BATCH_OF_A_REPLICA, _SEQUENCE, _VOCABULARY = 8, 1024, 51200


def _gpt(tp: int) -> Model:
    hidden, heads, layers = _SHAPES[tp]
    architecture: dict[str, Any] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "ffn": 4 * hidden,
    }
    architecture |= {"vocab": _VOCABULARY, "position": "learned", "positions": _SEQUENCE}
    return resolve.model(
        {"name": f"megatron_2019_tp{tp}", "architecture": {**architecture, "gated": False}}
    )


@cache
def megatron_2019(tp: int, dp: int) -> float:
    """Model FLOP/s of an accelerator of a DGX-2H, the model as large as `tp` asks for.

    Examples
    --------
    >>> megatron_2019(8, 64) < megatron_2019(8, 1) < megatron_2019(1, 1)
    True
    """
    ranks = tp * dp
    nodes = {"node": {"accelerators": ranks}} if ranks < 16 else {}
    cluster = resolve.cluster({"base": "dgx_2", **nodes}, accelerators=ranks)
    task = Training(
        global_batch=_BATCH_OF_A_REPLICA * dp,
        sequence=_SEQUENCE,
        precision="fp16",
        gradient_precision="bf16",  # two bytes, as FP16
    )
    plan = Strategy(tp=tp, micro_batch=_BATCH_OF_A_REPLICA, recompute="full", sharding="ddp")
    est = estimate(_gpt(tp), cluster, task, plan, stack=_MEGATRON)
    peaks = cluster.core.accelerator.peak_flop_per_s
    return float(est.mfu_fraction * peaks[_core.precisions().index("fp16")])


def _weak_scaling(tp: int, dp: int) -> float:
    return megatron_2019(tp, dp) / megatron_2019(1, 1)


# ------------------------------------------------------------------------------ GPipe and PipeDream
def _busy_and_bubble_s(pp: int, micro_batches: int, recompute: str) -> tuple[float, float]:
    """What passes take and how long stages idle, on links between stages that cost next to nothing.

    Tensor parallelism inside stages brings no bubble; it counts as part of a pass.
    """
    cluster = resolve.cluster("dgx_h100", accelerators=8 * pp)
    task = Training(global_batch=micro_batches, sequence=2048)
    plan = Strategy(tp=8, pp=pp, schedule="gpipe", micro_batch=1, recompute=recompute)
    core = estimate("gpt3_175b", cluster, task, plan).core
    return core.compute_s + core.exposed_tp_s, core.bubble_s


def gpipe_speed_up(stages: int, micro_batches: int = 32) -> float:
    """Speed-up of a pipeline with flushes over one stage that does everything.

    Examples
    --------
    >>> 4 < gpipe_speed_up(8, 8) < gpipe_speed_up(8, 32) < 8
    True
    """
    busy_s, bubble_s = _busy_and_bubble_s(stages, micro_batches, "full")
    return stages * busy_s / (busy_s + bubble_s)


def lost_to_flushes(stages: int = 16) -> float:
    """Throughput that GPipe loses against PipeDream with as many micro-batches as stages.

    PipeDream neither flushes nor runs forward twice: its stages always compute. GPipe recomputes
    activations and waits for the pipeline to fill and drain in every step.

    Examples
    --------
    >>> 0.5 < lost_to_flushes() < 0.75
    True
    """
    flushed_s = sum(_busy_and_bubble_s(stages, stages, "full"))
    busy_s, _ = _busy_and_bubble_s(stages, stages, "none")
    return float(1 - _core.asynchronous_s(busy_s / stages, stages) / flushed_s)


def stashed_over_replicated(stages: int = 16) -> float:
    """Weights and activations of the first stage over those of a replica under data parallelism.

    The first stage keeps as many versions of its weights, and as many activations, as there are
    stages: those of the whole model.

    Examples
    --------
    >>> stashed_over_replicated(4)
    1.0
    """
    share = 1 / stages
    kept = _core.asynchronous_stage_bytes(
        stages, 0, weight_bytes=share, state_bytes=0.0, activation_bytes=share
    )
    return float(kept / 2)


# ------------------------------------------------------------------------------------------- GShard
def _gshard() -> ComposedModel:
    """36 layers of width 1,024 in all, every other one with 2,048 experts, two of a token."""
    shape: dict[str, Any] = {"hidden": 1024, "heads": 16, "ffn": 8192, "tokens": 1024}
    return compose(
        "gshard_600b",
        groups=[
            TokenEmbedding(vocab=64000, hidden=1024, tokens=1024),
            Transformer(name="dense", layers=18, **shape),
            Transformer(name="moe", layers=18, experts=2048, experts_per_token=2, **shape),
        ],
    )


def gshard_parameters() -> float:
    """Parameters of GShard's largest model.

    Examples
    --------
    >>> round(gshard_parameters() / 1e9)
    619
    """
    return float(_gshard().parameters)


def gshard_steps_per_s() -> float:
    """Steps per second of 4M tokens on 1,024 chips of TPU v3, two experts on each.

    Examples
    --------
    >>> gshard_steps_per_s() > 0.72
    True
    """
    pod = {
        "accelerator": "tpu_v3",
        "node": {"accelerators": 4},
        "scale_up": {"class": "tpu_ici", "bandwidth": "400 GB/s", "domain": 1024},
    }
    task = Training(
        global_batch=4096, sequence=1024, precision="bf16", optimizer="sgd", master_bytes=0
    )
    plan = GroupStrategy({"*": "ddp", "experts": "ep"}, recompute=True)
    est = estimate(_gshard(), resolve.cluster(pod, accelerators=1024), task, plan)
    return 1 / est.core.step_time_s


# --------------------------------------------------------------------------------- P3, TicTac, QSGD
_FABRICS_GBIT = (5, 10, 20, 40, 60, 80, 100, 150, 200)


def _on_fabric(gbit: float) -> Estimate:
    """Four machines with one V100 each; the smallest decoder of the catalogue, replicated."""
    base = {"base": "dgx_1v", "node": {"accelerators": 1}, "scale_up": {"domain": 1}}
    cluster = resolve.cluster({**base, "fabric": {"bandwidth": f"{gbit} Gbit/s"}}, nodes=4)
    task = Training(global_batch=32, sequence=512, precision="fp16")
    return estimate("gpt3_125m", cluster, task, Strategy(micro_batch=8, sharding="ddp"))


@cache
def gain_by_need() -> float:
    """Largest gain of sending what is needed first, over all fabrics tried.

    Examples
    --------
    >>> 1 < gain_by_need() < 4 / 3
    True
    """
    gains = []
    for gbit in _FABRICS_GBIT:
        est = _on_fabric(gbit)
        fifo = est.timeline().step_time_s
        gains.append(fifo / est.timeline(priority="by_need", slices=4).step_time_s)
    return float(max(gains))


@cache
def gain_of_four_bits() -> float:
    """Gain of gradients in 4 of 32 bits where half of a step is exposed communication.

    Examples
    --------
    >>> gain_of_four_bits() > 1.5
    True
    """
    near = min(
        (_on_fabric(gbit) for gbit in _FABRICS_GBIT),
        key=lambda est: abs(est.core.exposed_dp_s / est.core.step_time_s - 0.5),
    )
    plain = near.timeline().step_time_s
    return float(plain / near.timeline(gradient_compression=4 / 32).step_time_s)


_ZERO = {
    "baseline": ("ddp", "model states, replicated"),
    "stage1": ("zero1", "model states, optimizer sharded"),
    "stage2": ("zero2", "model states, gradients sharded too"),
    "stage3": ("zero3", "model states, all sharded"),
}
_SCALING = {
    "tp2": (2, 1, "2.5B on 2, of linear scaling"),
    "tp4": (4, 1, "4.2B on 4, of linear scaling"),
    "tp8": (8, 1, "8.3B on 8, of linear scaling"),
    "dp64": (1, 64, "1.2B on 64, of linear scaling"),
    "dp512": (8, 64, "8.3B on 512, of linear scaling"),
}
_ALIKE = (
    "layers of a decoder are alike: what is sent late hides at most under one forward pass; VGG-19 "
    "has most of its weights in the last layers, whose gradients come first and are needed last"
)
_UNKNOWN_OVERLAP = (
    "gradients of 512 ranks are reduced as the same stack did on Ampere in 2021; how much of it "
    "the runs of 2019 hid is not published"
)

CLAIMS = (
    *(
        Claim("zero", key, what, partial(zero_bytes, sharding), 0.05, "bytes")
        for key, (sharding, what) in _ZERO.items()
    ),
    Claim("megatron_2019", "one", "1.2B on one V100, flop/s", partial(megatron_2019, 1, 1)),
    *(
        Claim(
            "megatron_2019",
            key,
            what,
            partial(_weak_scaling, tp, dp),
            0.1,
            reason=_UNKNOWN_OVERLAP if key == "dp512" else "",
        )
        for key, (tp, dp, what) in _SCALING.items()
    ),
    *(
        Claim("gpipe", f"stages{n}", f"speed-up of {n} stages", partial(gpipe_speed_up, n))
        for n in (2, 4, 8)
    ),
    Claim("pipedream", "flush_low", "lost by GPipe, 16 stages", lost_to_flushes, 0.2),
    Claim("pipedream", "flush_high", "lost by GPipe, 16 stages", lost_to_flushes, 0.2),
    Claim(
        "pipedream",
        "memory",
        "first stage with stashed weights, replicated",
        stashed_over_replicated,
    ),
    Claim("gshard", "parameters", "parameters of 2,048 experts, 36 layers", gshard_parameters),
    Claim(
        "gshard",
        "steps_per_s",
        "steps per second of 4M tokens on 1,024 chips",
        gshard_steps_per_s,
        0.2,
        reason="dispatch and combination are products with one-hot masks there, gathers here; and "
        "an all-to-all crosses a torus as if it were a switch",
    ),
    Claim(
        "qsgd",
        "resnet152",
        "gradients in 4 bits where half of a step is exposed communication",
        gain_of_four_bits,
        0.2,
        reason="the share of communication of ResNet-152 on 16 accelerators is not printed",
    ),
    Claim("p3", "vgg19", "largest gain of priorities", gain_by_need, reason=_ALIKE),
    Claim("p3", "resnet50", "largest gain of priorities", gain_by_need, reason=_ALIKE),
    Claim("tictac", "training", "largest gain of ordered transfers", gain_by_need, reason=_ALIKE),
)
