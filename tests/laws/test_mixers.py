"""Laws of models whose layers have unlike mixers: limits, conservation, independence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm

CLUSTER = sm.cluster("dgx_h100", nodes=2)
DENSE: dict[str, Any] = {
    "layers": 8,
    "hidden": 2048,
    "vocab": 32000,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 8192,
    "gated": True,
}
ROUTED = {**DENSE, "experts": 16, "experts_per_token": 2, "expert_ffn": 2048}
MAMBA: dict[str, Any] = {
    "recurrence": "mamba2",
    "scan_heads": 64,
    "scan_groups": 8,
    "scan_key_dim": 128,
    "scan_value_dim": 64,
    "scan_chunk": 128,
    "conv_width": 4,
    "scan_norm": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "mamba2": MAMBA,
    "mamba1": {"recurrence": "mamba1", "scan_heads": 4096, "scan_key_dim": 16, "scan_value_dim": 1,
               "scan_rank": 128, "conv_width": 4},
    "gated_delta": {"recurrence": "gated_delta", "scan_heads": 32, "scan_groups": 16,
                    "scan_key_dim": 128, "scan_value_dim": 128, "scan_chunk": 64, "conv_width": 4},
    "kimi_delta": {"recurrence": "kimi_delta", "scan_heads": 16, "scan_key_dim": 128,
                   "scan_value_dim": 128, "scan_chunk": 64, "conv_width": 4, "scan_rank": 128},
    "lightning": {"recurrence": "lightning", "scan_heads": 16, "scan_key_dim": 128,
                  "scan_value_dim": 128, "scan_chunk": 256},
    "convolution": {"recurrence": "convolution", "scan_heads": 2048, "scan_value_dim": 1,
                    "conv_width": 3},
    "jet": {"recurrence": "jet", "scan_heads": 16, "scan_key_dim": 128, "scan_value_dim": 256,
            "scan_chunk": 64, "conv_width": 4, "scan_rank": 512},
    "gla": {"recurrence": "gla", "scan_heads": 16, "scan_key_dim": 64, "scan_value_dim": 128,
            "scan_chunk": 64, "scan_rank": 16, "scan_norm": True},
    "hgrn": {"recurrence": "hgrn", "scan_heads": 16, "scan_key_dim": 128, "scan_value_dim": 128,
             "scan_chunk": 64},
    "delta": {"recurrence": "delta", "scan_heads": 16, "scan_key_dim": 128, "scan_value_dim": 128,
              "scan_chunk": 64, "conv_width": 4, "scan_norm": True},
    "rwkv4": {"recurrence": "rwkv4", "scan_heads": 2048, "scan_key_dim": 3, "scan_value_dim": 1},
    "rwkv6": {"recurrence": "rwkv6", "scan_heads": 32, "scan_key_dim": 64, "scan_value_dim": 64,
              "scan_chunk": 32, "scan_rank": 224},
    "rg_lru": {"recurrence": "rg_lru", "scan_heads": 16, "scan_key_dim": 1, "scan_value_dim": 128,
               "conv_width": 4, "conv_bias": True},
}  # fmt: skip
HYBRID = {**DENSE, **MAMBA, "mixers": "RRRF"}


def model(architecture: dict[str, Any], **changes: object) -> sm.Model:
    return sm.model({"name": "toy", "architecture": {**architecture, **changes}})


def row(architecture: dict[str, Any], *, sequence: int = 4096, **knobs: object) -> dict[str, Any]:
    task = sm.Training(global_batch=64, sequence=sequence, precision="bf16")
    answer = sm.estimate(model(architecture), CLUSTER, task, sm.Strategy(**knobs))
    assert not answer.illegal, answer.verdict
    return dict(answer.row())


@pytest.mark.parametrize("knobs", [{"tp": 2}, {"pp": 2}, {"tp": 2, "cp": 2}, {"ep": 1}])
def test_a_hybrid_without_a_recurrent_layer_is_the_decoder(knobs: dict[str, int]) -> None:
    assert row({**DENSE, **MAMBA, "mixers": "F", "feed_forwards": "D"}, **knobs) == row(
        DENSE, **knobs
    )


@pytest.mark.parametrize("ep", [1, 8])
def test_patterns_of_blocks_are_the_numbers_that_say_the_same(ep: int) -> None:
    by_number = row({**ROUTED, "first_dense_layers": 2}, ep=ep)
    assert row({**ROUTED, "feed_forwards": "DDEEEEEE"}, ep=ep) == by_number
    windows = {**DENSE, "window": 1024}
    assert row({**windows, "mixers": "WWWF"}) == row({**windows, "full_attention_every": 4})


def test_a_window_as_long_as_the_sequence_is_full_attention() -> None:
    wide = row({**DENSE, "mixers": "WF", "window": 4096})
    whole = row({**DENSE, "mixers": "F"})
    assert wide["step_time_s"] == pytest.approx(whole["step_time_s"], rel=1e-12)


def test_keys_that_are_all_selected_are_full_attention_and_an_indexer() -> None:
    index = {"index_heads": 4, "index_dim": 128}
    chosen = row({**DENSE, "mixers": "S", "index_topk": 4096, **index})
    assert chosen["step_time_s"] == pytest.approx(row(DENSE)["step_time_s"], rel=1e-12)
    fewer = row({**DENSE, "mixers": "S", "index_topk": 1024, **index})
    assert fewer["step_time_s"] < chosen["step_time_s"]


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_do_not_depend_on_how_many_ranks_split_a_mixer(kind: str) -> None:
    hybrid = {**DENSE, **KINDS[kind], "mixers": "RRRF"}
    alone = row(hybrid, tp=1)
    split = row(hybrid, tp=4, sequence_parallel=True)
    assert split["memory_weights_bytes"] < alone["memory_weights_bytes"]
    assert model(hybrid).parameters > 0


@given(st.sampled_from((32, 64, 128, 256)))
@settings(max_examples=4, deadline=None)
def test_a_chunk_changes_no_arithmetic_but_the_scans(chunk: int) -> None:
    one, other = (model(HYBRID, scan_chunk=c) for c in (128, chunk))
    assert one.parameters == other.parameters
    assert one.active_parameters == other.active_parameters


def test_work_of_a_hybrid_grows_linearly_with_the_sequence_where_nothing_attends() -> None:
    alone = {**DENSE, **MAMBA, "mixers": "R"}
    short, long = row(alone, sequence=4096), row(alone, sequence=8192)
    assert long["step_time_s"] / short["step_time_s"] == pytest.approx(2, rel=0.05)


def test_a_state_has_one_size_however_long_the_sequence() -> None:
    def blocks(tokens: int, mixers: str) -> float:
        task = sm.Inference(input_tokens=tokens, output_tokens=128)
        layout = sm.ServingLayout(tp=1)
        answer = sm.serve(model(HYBRID, mixers=mixers), CLUSTER, task, layout, concurrency=1)
        return float(answer.max_concurrency)

    assert blocks(1024, "R") == blocks(16384, "R")
    assert blocks(1024, "F") > 4 * blocks(16384, "F")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("knobs", [{"cp": 2}, {"tp": 2, "cp": 2, "sequence_parallel": True}])
def test_every_mixer_trains_and_serves(kind: str, knobs: dict[str, Any]) -> None:
    hybrid = {**DENSE, **KINDS[kind], "mixers": "RRRF"}
    assert 0 < row(hybrid, **knobs)["step_time_s"] < 1e4
    task = sm.Inference(input_tokens=1024, output_tokens=128)
    served = sm.serve(model(hybrid), CLUSTER, task, sm.ServingLayout(tp=2), concurrency=8)
    assert served.output_tokens_per_s > 0


def test_heads_that_do_not_divide_are_a_verdict() -> None:
    task = sm.Training(global_batch=64, sequence=4096, precision="bf16")
    odd = model({**HYBRID, "scan_heads": 12, "scan_groups": 4})
    answer = sm.estimate(odd, CLUSTER, task, sm.Strategy(tp=8))
    assert answer.reason == "tp_heads"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixers": "RY"}, "must be letters of"),
        ({"mixers": "R" * 9}, "at most one of layers=8"),
        ({"recurrence": "none"}, "recurrence=none"),
        ({"scan_key_dim": 0}, "scan_key_dim=0"),
        ({"mixers": "I"}, "index_topk=0"),
        ({"mixers": "H"}, "far_ratio=0"),
        ({"feed_forwards": "E"}, "experts=0"),
    ],
)
def test_what_no_pattern_can_mean_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(sm.ScaleModelError, match=message):
        model(HYBRID, **changes)
