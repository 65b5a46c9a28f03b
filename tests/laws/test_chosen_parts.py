"""Laws of weights that tokens choose from: experts of attention, of an encoder's layers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import scalemodel as sm

CLUSTER = sm.cluster("dgx_h100", nodes=1)
ROUTED: dict[str, Any] = {
    "layers": 8,
    "hidden": 2048,
    "vocab": 32000,
    "heads": 32,
    "kv_heads": 16,
    "head_dim": 128,
    "gated": True,
    "experts": 8,
    "experts_per_token": 2,
    "expert_ffn": 4096,
    "attention_experts": True,
}
TRAIN = sm.Training(global_batch=32, sequence=2048, precision="bf16")
SERVE = sm.Inference(input_tokens=256, output_tokens=256)


def model(**changes: object) -> sm.Model:
    return sm.model({"name": "toy", "architecture": {**ROUTED, **changes}})


def test_more_experts_are_more_weights_and_as_much_arithmetic() -> None:
    models = [model(experts=experts) for experts in (4, 8, 16)]
    for few, many in pairwise(models):
        assert few.parameters < many.parameters
        routers = 2 * 8 * 2048 * (many.shape.experts - few.shape.experts)
        assert many.active_parameters - few.active_parameters == pytest.approx(routers, abs=1)
    rows = [sm.estimate(of, CLUSTER, TRAIN, sm.Strategy(tp=2)).row() for of in models]
    for fewer, more in pairwise(rows):
        assert fewer["step_time_s"] <= more["step_time_s"]
        assert fewer["memory_weights_bytes"] < more["memory_weights_bytes"]


def test_a_rank_of_tensors_holds_its_share_of_all_of_them() -> None:
    one, four = (
        sm.estimate(model(), CLUSTER, TRAIN, sm.Strategy(tp=tp)).row()["memory_weights_bytes"]
        for tp in (1, 4)
    )
    assert 3.5 < one / four < 4


def test_single_tokens_read_what_they_choose_and_many_all_of_it() -> None:
    plain, chosen = model(attention_experts=False), model()
    more = chosen.parameters - plain.parameters
    at = {}
    for batch in (1, 256):
        times = [
            sm.serve(of, CLUSTER, SERVE, replicas=1, concurrency=batch).tpot_s
            for of in (plain, chosen)
        ]
        at[batch] = times[1] - times[0]
    bandwidth = 3.35e12
    # Routers and kernels of their own besides; the weights of the others with many tokens alone.
    assert at[256] - at[1] > 0.5 * 2 * more / bandwidth


def test_an_encoder_has_experts_where_it_is_said() -> None:
    half: dict[str, Any] = {
        "name": "toy",
        "architecture": {
            **{key: ROUTED[key] for key in ("layers", "hidden", "vocab")},
            "heads": 16,
            "ffn": 4096,
            "experts": 8,
            "experts_per_token": 1,
            "expert_ffn": 4096,
            "moe_every": 2,
            "encoder_layers": 8,
        },
    }
    dense = sm.model(half)
    half["architecture"]["encoder_moe_every"] = 2
    routed = sm.model(half)
    assert routed.parameters - dense.parameters == pytest.approx(
        4 * (7 * 2 * 2048 * 4096 + 8 * 2048)
    )
    rows = [sm.estimate(of, CLUSTER, TRAIN, sm.Strategy(tp=2)).row() for of in (dense, routed)]
    assert rows[0]["memory_weights_bytes"] < rows[1]["memory_weights_bytes"]
    assert rows[0]["step_time_s"] < rows[1]["step_time_s"] < 1.5 * rows[0]["step_time_s"]
