"""Families of 2026, and recurrent ones before them, to the parameters of their classes.

`configs_of_classes.json` holds, per model, the keys of its configuration that bear on its shape,
the parameters that its class has (transformers 5.24, flash-linear-attention 0.6) or its weights,
and how much of them the reading leaves out.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalemodel as sm
import scalemodel._core as _core
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.settings.hybrid_pattern import pattern_of
from scalemodel.resolve.hugging_face import architecture_from_config
from scalemodel.resolve.hugging_face.layer_widths import two_of

CLASSES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "configs_of_classes.json").read_text("utf-8")
)
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}


def read(config: dict[str, Any]) -> sm.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sm.model(config)


def config_of(model: str) -> dict[str, Any]:
    return next(row["config"] for row in CLASSES if row["model"] == model)


def cache_bytes(model: sm.Model) -> float:
    task = sm.Inference(input_tokens=512, output_tokens=128)
    plan = sm.serve(model, "dgx_h100", task, sm.ServingLayout(), concurrency=4)
    return float(_core.cache_token_bytes(plan.instance))


@pytest.mark.parametrize("row", CLASSES, ids=[row["model"] for row in CLASSES])
def test_parameters_are_those_of_the_class(row: dict[str, Any]) -> None:
    found = read(row["config"]).parameters
    assert found == pytest.approx(row["parameters"], rel=row["within"] or 1e-12)


def test_passes_of_a_loop_have_the_weights_of_one() -> None:
    once = read({**LLAMA, "model_type": "ouro", "total_ut_steps": 1})
    thrice = read({**LLAMA, "model_type": "ouro", "total_ut_steps": 3})
    deep = read({**LLAMA, "model_type": "ouro", "total_ut_steps": 1, "num_hidden_layers": 24})
    assert abs(thrice.parameters - once.parameters) <= 1  # a sum of thirds
    assert cache_bytes(thrice) == pytest.approx(cache_bytes(deep))
    assert cache_bytes(thrice) == pytest.approx(3 * cache_bytes(once))
    task = sm.Training(global_batch=8, sequence=2048)
    estimates = [sm.estimate(model, "dgx_h100", task, sm.Strategy()) for model in (thrice, deep)]
    times = [each.breakdown().set_index("cause").time_s["compute"] for each in estimates]
    assert times[0] == pytest.approx(times[1], rel=0.03)  # but for what is done once a weight
    held = [each.memory().set_index("kind").bytes["weights"] for each in estimates]
    assert held[0] < held[1]


def test_a_loop_in_the_middle_keeps_kinds_of_layers_apart() -> None:
    found, _ = architecture_from_config(config_of("transformers inkling2_loop_text"))
    assert (found["loop_start"], found["loop_layers"], found["loop_passes"]) == (6, 12, 3)
    assert found["layers"] == 48
    assert len(str(found["mixers"])) == 48
    assert read(config_of("transformers inkling2_loop_text")).shape.loop_passes == 3


def test_blocks_listed_beside_attention_are_one_layer() -> None:
    config = {**LLAMA, "model_type": "dory", "sliding_window": 512, "n_recurrent_loops": 2}
    pairs = ["sliding_attention", "mlp", "full_attention", "mlp"] * 4
    sizes = {"n_input_layers": 4, "n_recurrent_layers": 8, "n_output_layers": 4}
    found, unknown = architecture_from_config(
        {**config, **sizes, "num_hidden_layers": 16, "layer_types": pairs}
    )
    assert (found["layers"], found["mixers"]) == (12, "WF" * 6)
    assert "feed_forwards" not in found or set(str(found["feed_forwards"])) == {"D"}
    assert unknown == []
    kept = {**config, **sizes, "num_hidden_layers": 16, "layer_types": pairs}
    _, unknown = architecture_from_config({**kept, "recurrent_kv_cache_mode": "last_loop"})
    assert unknown == ["recurrent_kv_cache_mode"]


def test_layers_that_use_keys_of_the_one_before_cache_none() -> None:
    routed = {"num_experts": 4, "moe_topk": 1, "num_shared_expert": 1, "use_qk_norm": True}
    config = {**LLAMA, **routed, "model_type": "hunyuan"}
    alone = read({**config, "use_cla": False, "cla_share_factor": 2})
    shared = read({**config, "use_cla": True, "cla_share_factor": 2})
    keys = 2 * 256 * 1024 + 64  # projections and the norm of a layer's keys
    assert alone.parameters - shared.parameters == 4 * keys
    assert cache_bytes(shared) == pytest.approx(cache_bytes(alone) / 2)


def test_groups_of_hymba_share_keys_within_their_windows() -> None:
    model = read(config_of("nvidia/Hymba-1.5B-Base"))
    shape = model.shape
    assert shape.mixers.count("P") == 3
    assert shape.kv_sources.count("S") == 15
    assert shape.fused_mixers


@given(st.lists(st.integers(1, 400), min_size=1, max_size=80))
def test_two_widths_have_the_sum_of_all(counts: list[int]) -> None:
    widths = [64 * count for count in counts]
    low, high, second = two_of(widths)
    assert sum(high if wide else low for wide in second) == sum(widths)
    if len(set(widths)) <= 2:
        assert [high if wide else low for wide in second] == widths


@pytest.mark.parametrize(
    ("listed", "total"),
    [
        ([4] * 4 + [1] * 4, 20),
        ([4, 4, 2, 2, 1, 1, 1, 1], 16),
        ([8] * 8, 64),
        ([1, 2, 4, 8] * 2, 30),
    ],
)
def test_heads_that_differ_by_layer_are_cached_in_all(listed: list[int], total: int) -> None:
    config = {**LLAMA, "model_type": "deci", "num_key_value_heads_per_layer": listed}
    model, one = read(config), read({**LLAMA, "num_key_value_heads": 1})
    assert model.parameters - one.parameters == (total - 8) * 2 * 64 * 1024
    assert cache_bytes(model) == pytest.approx(cache_bytes(one) * total / 8)


def test_layers_of_openelm_widen_to_the_same_sum() -> None:
    found, unknown = architecture_from_config(config_of("apple/OpenELM-1_1B"))
    wide = str(found["mixers"]).count("W")
    assert unknown == []
    assert wide * 28 + (28 - wide) * 24 == 4 * sum(config_of("apple/OpenELM-1_1B")["num_kv_heads"])
    with pytest.raises(ScaleModelError, match="num_kv_heads"):
        read({**config_of("apple/OpenELM-1_1B"), "num_kv_heads": [4, 4]})


def test_a_state_of_rwkv_does_not_grow() -> None:
    model = read(config_of("transformers rwkv"))
    assert (model.shape.recurrence, model.shape.scan_key_dim) == ("rwkv4", 3)
    assert model.shape.ffn_receptance
    fifth = {"model_type": "rwkv5", "hidden_size": 2048, "num_hidden_layers": 24}
    fifth |= {"head_size": 64, "num_attention_heads": 64, "vocab_size": 65536}
    # RWKV/rwkv-5-world-1b5: 1.58 billion
    assert read(fifth).parameters == pytest.approx(1.578e9, rel=2e-3)
    # RWKV/rwkv-6-world-1b6: 1.60 billion
    assert read({**fifth, "model_type": "rwkv6"}).parameters == pytest.approx(1.60e9, rel=2e-3)


def test_layers_of_attention_stand_between_those_of_a_recurrence() -> None:
    config = config_of("fla gla")
    table = {"layers": [3, 7], "num_heads": 16, "num_kv_heads": 8, "window_size": 2048}
    found, unknown = architecture_from_config({**config, "attn": table})
    assert str(found["mixers"])[:8] == "RRRWRRRW"
    assert (found["heads"], found["kv_heads"], found["head_dim"]) == (16, 8, 128)
    assert unknown == []
    _, unknown = architecture_from_config({**config, "use_gv": True, "use_gk": False})
    assert unknown == ["use_gk", "use_gv"]
    with pytest.raises(ScaleModelError, match=r"attn\.layers"):
        read({**config, "attn": {**table, "layers": [99]}})


def test_layers_called_hybrid_for_their_convolutions_attend_alone() -> None:
    for name in ("inkling_text", "inkling2_text", "zaya"):
        found, _ = architecture_from_config(config_of(f"transformers {name}"))
        assert "P" not in str(found.get("mixers", ""))
        assert "recurrence" not in found


def test_mixers_that_megatron_lacks_are_no_pattern_of_it() -> None:
    shape = read(config_of("pfnet/plamo-2-1b")).shape
    assert (shape.recurrence, shape.scan_rank) == ("mamba2", 128)
    assert pattern_of(shape, [shape.layers]) is None
    two = sm.model("nemotron_h_8b").shape.replace(second_ffn=64)
    blocks = two.feed_forwards.replace("D", "d", 1)
    assert pattern_of(two, [two.layers]) is not None
    assert pattern_of(two.replace(feed_forwards=blocks), [two.layers]) is None


@pytest.mark.parametrize(("version", "like"), [(2.6, "qwen2"), ("4.5", "qwen3"), (2.5, "llama")])
def test_a_version_says_which_language_model_it_is(version: object, like: str) -> None:
    tower = {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"}
    config = {**LLAMA, "model_type": "minicpmv", "version": version, "vision_config": tower}
    with pytest.warns(UserWarning, match="left out: vision_config"):
        assert sm.model(config).shape == read({**LLAMA, "model_type": like}).shape
    with pytest.raises(ScaleModelError, match=r"version = 9\.9; legal is one of 2\.0"):
        read({**config, "version": 9.9})


@pytest.mark.parametrize(
    ("model_type", "like"),
    [
        ("sdar", "qwen3"),
        ("cohere_compass_text", "cohere2"),
        ("gritlm", "mistral"),
        ("yi", "llama"),
        ("paddleocr_vl_text", "ernie4_5"),
    ],
)
def test_families_of_another_name_are_read_as_the_one_they_are(model_type: str, like: str) -> None:
    assert (
        read({**LLAMA, "model_type": model_type}).shape == read({**LLAMA, "model_type": like}).shape
    )
