"""Closed form and timeline over every pipeline that may be asked, of any catalogue entries."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest

import scalemodel as sm
from scalemodel import catalog

SCHEDULES = [
    *("1f1b", "gpipe", "interleaved", "zero_bubble", "dualpipe"),
    *("zero_bubble_2p", "zero_bubble_v", "dualpipe_v"),
]
PIPELINES = 600


def any_estimate(draw: random.Random) -> sm.Estimate | None:
    """One random question over the whole catalogue; None where it cannot run."""
    schedule = draw.choice(SCHEDULES)
    interleaved = schedule == "interleaved"
    pp, tp = draw.choice([2, 3, 4, 6, 8, 12, 16]), draw.choice([1, 2, 4, 8])
    cluster = sm.cluster(
        draw.choice(catalog.names("clusters")), nodes=draw.choice([1, 2, 4, 8, 32])
    )
    if cluster.accelerators % (tp * pp):
        return None
    micro_batch = draw.choice([1, 2, 4])
    micro_batches = draw.choice([draw.randint(1, pp), draw.randint(1, 4 * pp), draw.randint(1, 64)])
    batch = cluster.accelerators // (tp * pp) * micro_batch * micro_batches
    strategy = sm.Strategy(
        tp=tp,
        pp=pp,
        vpp=draw.choice([2, 3, 4, 5, 8]) if interleaved else 1,
        schedule="1f1b" if interleaved else schedule,
        ep=draw.choice([1, 1, 2, 4, 8]),
        micro_batch=micro_batch,
        sharding=draw.choice(["ddp", "zero1", "zero2", "zero3"]),
        recompute=draw.choice(["none", "selective", "full"]),
    )
    task = sm.Training(global_batch=batch, sequence=draw.choice([512, 2048, 4096]))
    stack = draw.choice(["plain", *catalog.names("stacks")])
    try:
        estimate = sm.estimate(
            draw.choice(catalog.names("models")), cluster, task, strategy, stack=stack
        )
    except sm.ScaleModelError:  # a format that the accelerator or the model does not have
        return None
    return None if estimate.illegal else estimate


@lru_cache(maxsize=1)
def pipelines() -> list[tuple[sm.Estimate, float]]:
    """Estimates and what the timeline says of them, over the estimate."""
    draw = random.Random(20_261_123)
    found: list[tuple[sm.Estimate, float]] = []
    while len(found) < PIPELINES:
        estimate = any_estimate(draw)
        if estimate is not None:
            found.append((estimate, estimate.timeline().period_s / estimate.step_time_s))
    return found


@pytest.mark.slow
def test_the_closed_form_follows_the_timeline() -> None:
    off = [abs(ratio - 1) for _, ratio in pipelines()]
    assert sum(error > 0.02 for error in off) <= 0.01 * PIPELINES
    assert max(off) <= 0.05


@pytest.mark.parametrize(
    ("model", "cluster", "nodes", "batch", "sequence", "strategy", "stack"),
    [
        # Stages of one layer and of two hand on unlike parts of a pair early.
        (
            "qwen2_57b_a14b",
            "gcp_a2",
            4,
            108,
            4096,
            sm.Strategy(tp=2, pp=16, ep=2, schedule="dualpipe"),
            "mlperf_nemo_2023",
        ),
        # The slowest stage has the LM head and no expert.
        (
            "gpt_oss_20b",
            "aws_p4de",
            32,
            592,
            2048,
            sm.Strategy(pp=16, ep=2, recompute="full"),
            "aleph_alpha_2023",
        ),
        # Few tokens of many experts: the gradients of weights take longest, as does their traffic.
        (
            "llama4_maverick",
            "dgx_h200",
            32,
            20,
            512,
            sm.Strategy(tp=8, pp=16, ep=2, schedule="zero_bubble", recompute="selective"),
            "llama_fsdp_2024",
        ),
        # Less traffic than passes, fewer micro-batches than stages twice over.
        (
            "megatron_530b",
            "aws_p4de",
            32,
            92,
            512,
            sm.Strategy(tp=4, pp=16, schedule="zero_bubble"),
            "plain",
        ),
        # A pair hands on early what its last layer takes, not what the LM head does.
        (
            "gpt_oss_20b",
            "gcp_a2_ultra",
            2,
            66,
            512,
            sm.Strategy(pp=16, micro_batch=2, schedule="dualpipe"),
            "plain",
        ),
        # Experts without replicas send nothing: all traffic of an end is its own chunk's.
        (
            "kimi_k2",
            "l40s_shared_root",
            8,
            48,
            512,
            sm.Strategy(tp=2, pp=16, ep=4, vpp=3, micro_batch=4, sharding="ddp"),
            "torchtitan_2025",
        ),
        # The embedding travels in larger messages than layers do.
        (
            "gemma3n_e4b",
            "gcp_a3_high",
            32,
            62,
            512,
            sm.Strategy(tp=8, pp=16, recompute="full"),
            "megatron_lm_2025",
        ),
        # Chunks of a layer or two that also have an embedding or a head reduce every pass.
        (
            "qwen3_5_0_8b",
            "aws_p5en",
            4,
            184,
            512,
            sm.Strategy(
                pp=16, micro_batch=2, schedule="dualpipe", sharding="zero2", recompute="full"
            ),
            "plain",
        ),
        # A hop as long as two layers, traffic as long as nine.
        (
            "megatron_18_4b",
            "gcp_a2",
            32,
            1792,
            512,
            sm.Strategy(tp=2, pp=4, vpp=5, micro_batch=4, recompute="selective"),
            "nemo_mcore_2024_25",
        ),
        # Two kinds of layers that last equally long.
        (
            "deepseek_v4_pro",
            "dgx_h100",
            32,
            104,
            512,
            sm.Strategy(tp=2, pp=16, ep=2, schedule="zero_bubble", recompute="full"),
            "megatron_bridge_2025_11",
        ),
    ],
)
def test_unlike_stages_run_as_the_timeline_says(
    model: str,
    cluster: str,
    nodes: int,
    batch: int,
    sequence: int,
    strategy: sm.Strategy,
    stack: str,
) -> None:
    estimate = sm.estimate(
        model,
        sm.cluster(cluster, nodes=nodes),
        sm.Training(global_batch=batch, sequence=sequence),
        strategy,
        stack=stack,
    )
    assert not estimate.illegal
    assert estimate.timeline().step_time_s == pytest.approx(estimate.step_time_s, rel=0.01)


def test_no_pipeline_is_faster_than_one_micro_batch_alone() -> None:
    alone = 0
    for estimate, _ in pipelines():
        single = sm.estimate(
            estimate.model,
            estimate.cluster,
            estimate.task.replace(global_batch=(estimate.dp or 1) * estimate.strategy.micro_batch),
            estimate.strategy,
            stack=estimate.stack,
        )
        if single.illegal:  # DualPipe needs two micro-batches
            continue
        alone += estimate.micro_batches > 1
        assert estimate.step_time_s >= single.step_time_s * (1 - 1e-9)
    assert alone > PIPELINES / 2


@pytest.mark.parametrize("vpp", [1, 2, 3, 4, 6])
def test_one_micro_batch_passes_all_layers_one_after_the_other(vpp: int) -> None:
    # 48 layers in 8 x 4 chunks are no whole number of layers each.
    estimate = sm.estimate(
        "megatron_39_1b",
        sm.cluster("dgx_h100", nodes=2),
        sm.Training(global_batch=1, sequence=2048),
        sm.Strategy(cp=2, pp=8, vpp=vpp),
    )
    assert estimate.step_time_s == pytest.approx(estimate.timeline().step_time_s, rel=0.04)
    whole = estimate.model.core.layers / 8 * estimate.compute_s / (48 / 8)
    assert estimate.step_time_s > 7 * whole


@pytest.mark.parametrize(
    "schedule", ["1f1b", "gpipe", "zero_bubble", "zero_bubble_2p", "zero_bubble_v"]
)
def test_more_micro_batches_never_shorten_a_step(schedule: str) -> None:
    times = [
        sm.estimate(
            "gpt3_175b",
            sm.cluster("dgx_h100", nodes=8),
            sm.Training(global_batch=batch, sequence=2048),
            sm.Strategy(tp=8, pp=8, schedule=schedule),
        ).step_time_s
        for batch in range(1, 24)
    ]
    assert times == sorted(times)
