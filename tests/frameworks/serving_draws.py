"""Plans of serving instances, drawn at random over models, engines, layouts, formats and loads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import scalemodel as sm
from scalemodel.serving import serving_layouts

MODELS = ("llama3_8b", "llama3_70b", "mixtral_8x7b", "deepseek_v3", "gpt_oss_120b", "qwen3_32b")
CLUSTERS = {
    "dgx_h100": sm.cluster("dgx_h100", nodes=2),
    "dgx_b200": sm.cluster("dgx_b200", nodes=4),
}


def drawn(number: int, engines: Sequence[str]) -> Any:
    """A plan at random, of a model, an engine, a layout, formats, limits and a load."""
    draw = random.Random(number)
    model = sm.model(draw.choice(MODELS))
    cluster = draw.choice(list(CLUSTERS.values()))
    precision = draw.choice(["bf16", "fp8", "fp8", "fp8_block", "fp4", "int8", "int4", "fp16"])
    task = sm.Inference(
        input_tokens=draw.choice([200, 1000, 3000.5]),
        output_tokens=draw.choice([1, 100, 700]),
        precision="mxfp4" if model.checkpoint == "mxfp4" else precision,
        kv_precision=draw.choice(["bf16", "fp8", "fp4"]),
        prefix_hit_fraction=draw.choice([0.0, 0.3]),
        speculative_tokens=draw.choice([0, 0, 2]),
        acceptance_fraction=0.6,
        imbalance=draw.choice([1.0, 1.2]),
    )
    options: dict[str, Any] = {"engine": draw.choice(list(engines))}
    load = draw.choice(["rate", "concurrency", "full"])
    layout = draw.choice(serving_layouts(model, cluster, 16))
    options["replicas"] = draw.choice([1, 1, 2])
    if load == "rate":
        options["requests_per_s"] = draw.choice([0.1, 3.0])
    elif load == "concurrency":
        options["concurrency"] = draw.choice([1, 64, 200])
    if draw.random() < 0.3:
        options["max_batched_tokens"] = draw.choice([2048, 16384])
    try:
        return sm.serve(model, cluster, task, layout, **options)
    except sm.ScaleModelError:  # the accelerator has no products of the format
        return None


def plans(count: int, engines: Sequence[str], first: int = 0) -> list[Any]:
    """Plans that fit; `first` is where the numbers that are drawn from begin."""
    found: list[Any] = []
    for number in range(first, first + 100_000):
        plan = drawn(number, engines)
        if plan is not None and plan.fits:
            found.append(plan)
        if len(found) == count:
            break
    return found
