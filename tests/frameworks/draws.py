"""Strategies that searches offer for a training framework, drawn at random.

Models of every kind, clusters of every size, sequence lengths, formats and parts of the space: what
a search then offers is what a reader of its answer would start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import scalemodel as sm
from scalemodel.search.framework_optimizers import OPTIMIZERS
from scalemodel.search.frameworks import KNOBS

DENSE = (
    *("llama3_8b", "llama3_70b", "llama3_1_405b", "gpt3_20b", "gpt3_175b", "qwen3_32b"),
    *("qwen3_8b", "mistral_7b", "gemma2_9b", "llama2_13b", "command_r_35b", "bloom_176b"),
)
ROUTED = (
    *("mixtral_8x7b", "mixtral_8x22b", "qwen3_30b_a3b", "qwen3_235b_a22b", "gpt_oss_20b"),
    *("gpt_oss_120b", "dbrx", "llama4_scout", "glm4_5_air_106b"),
)
LATENT = ("deepseek_v2_lite", "deepseek_v2", "deepseek_v3", "kimi_k2")
#: Models that torchtitan ships; of others its configuration says a part only.
TORCHTITAN = (
    *("llama3_8b", "llama3_70b", "llama3_1_405b", "qwen3_8b", "qwen3_14b", "qwen3_32b"),
    *("qwen3_30b_a3b", "qwen3_235b_a22b", "gpt_oss_20b", "gpt_oss_120b", "deepseek_v3"),
)
CLUSTERS = ("dgx_a100", "dgx_h100", "dgx_h200", "dgx_b200", "gb200_nvl72", "l40s_server")
STACKS = {
    "megatron": ("megatron_lm_2025", "megatron_bridge_2025_11", "nemo_mcore_2024_25", "plain"),
    "megatron_bridge": ("megatron_bridge_2025_11", "megatron_bridge_2026_06", "plain"),
    "nemo": ("nemo_mcore_2024_25", "plain"),
    "torchtitan": ("torchtitan", "torchtitan_2025", "plain"),
    "deepspeed": ("plain", "megatron_deepspeed_2022"),
    "accelerate": ("plain", "pytorch_fsdp", "pytorch_2026"),
}
#: Knobs that a question may fix, with values beyond those that a search tries by itself.
FIXED: dict[str, tuple[object, ...]] = {
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 3, 4, 5, 6, 8, 16),
    "vpp": (1, 2, 3, 4, 8),
    "cp": (1, 2, 4, 8),
    "ep": (1, 2, 4, 8, 16, 32, 64),
    "micro_batch": (1, 2, 3, 4, 8),
    "schedule": ("1f1b", "interleaved", "gpipe", "zero_bubble", "dualpipe"),
    "sharding": ("ddp", "zero1", "zero2", "zero3", "hsdp"),
    "recompute": ("none", "selective", "full"),
    "recompute_layers": (0, 1, 2, 4),
    "context": ("ring", "all_to_all", "all_gather"),
    "sequence_parallel": (True, False),
    "placement": ("tp-cp-dp-pp", "tp-cp-pp-dp"),
    "overlap_tp": ("stack", "off", "ring"),
    "overlap_grad_reduce": ("stack", "on", "off"),
    "overlap_param_gather": ("stack", "on", "off"),
    "offload_optimizer": (False, True),
    "offload_weights": (False, True),
    "offload_activations": (False, True),
}


def _space(random: np.random.Generator, framework: str) -> sm.Space:
    """A part of the space: a few knobs fixed to values that the framework can say."""
    fixed: dict[str, Any] = {}
    for name, listed in FIXED.items():
        said = KNOBS[framework].get(name, listed)
        values = [value for value in listed if value in said]
        if values and random.random() < 0.3:
            fixed[name] = values[int(random.integers(len(values)))]
    return sm.Space(**fixed)


def _optimizer(random: np.random.Generator, framework: str) -> str:
    """Adam, or now and then another that the framework has."""
    names = OPTIMIZERS[framework][0]
    if len(names) == 1 or random.random() < 0.7:
        return "adam"
    return str(random.choice(names[1:]))


def _task(random: np.random.Generator, cluster: sm.Cluster, framework: str) -> sm.Training:
    """A batch, a length, a format that the accelerator has and an optimizer of the framework."""
    known = ["bf16", "bf16", "fp16"]
    if "a100" not in cluster.name:
        known.append("fp8")
    return sm.Training(
        global_batch=cluster.accelerators * int(random.choice([1, 2, 4, 6, 16])),
        sequence=int(random.choice([1024, 2048, 4096, 6144, 8192, 16384, 32768, 131072])),
        precision=str(random.choice(known)),  # type: ignore[arg-type]
        optimizer=_optimizer(random, framework),  # type: ignore[arg-type]
    )


def _question(random: np.random.Generator, framework: str) -> tuple[Any, ...]:
    kinds = (DENSE, DENSE, ROUTED, LATENT)
    listed = TORCHTITAN if framework == "torchtitan" else kinds[int(random.integers(len(kinds)))]
    name = str(random.choice(CLUSTERS))
    nodes = int(random.choice([1, 2, 3, 4, 8, 16, 32] if "nvl72" not in name else [1, 2, 4]))
    cluster = sm.cluster(name, nodes=nodes)
    stack = str(random.choice(STACKS[framework]))
    return str(random.choice(listed)), cluster, _task(random, cluster, framework), stack


def offered(framework: str, count: int, seed: int, each: int = 8) -> Iterator[sm.Estimate]:
    """Strategies that searches offer for a framework, a few of each random question.

    Parameters
    ----------
    framework : str
    count : int
        Strategies to draw.
    seed : int
        Of the questions.
    each : int
        Strategies taken from one answer at most.
    """
    random = np.random.default_rng(seed)
    drawn = 0
    while drawn < count:
        model, cluster, task, stack = _question(random, framework)
        space = _space(random, framework)
        try:
            best = sm.search(
                *(model, cluster, task, space), stack=stack, framework=framework, top=3 * each
            )
        except sm.ScaleModelError as error:
            # A format or a degree that this question does not have is no question.
            if error.code in ("empty_space", "precision", "framework_knob"):
                continue
            raise
        picked = random.permutation(len(best))[: min(each, count - drawn)]
        for at in sorted(int(at) for at in picked):
            yield best[at]
        drawn += len(picked)
