"""Keys are read by meaning: whatever spelling another family has, counts stay, or a key is named.

`configs_of_relatives.json` holds models of the same families as `configs_2026.json`, the keys of
their ``config.json`` that bear on the shape, and the parameters of their cards (billions).
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import vision_from_config

HERE = Path(__file__).parent
RELATIVES: list[dict[str, Any]] = json.loads(
    (HERE / "configs_of_relatives.json").read_text("utf-8")
)
MODELS: list[dict[str, Any]] = json.loads((HERE / "configs_2026.json").read_text("utf-8"))


def of(models: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("facts", models, ids=[m["model"] for m in models])


def decoder_of(config: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = config.get("text_config", config)
    return found


def counts_dense_layers(config: dict[str, Any]) -> bool:
    """Leading dense layers are a number, and no list says which they are."""
    inner = decoder_of(config)
    counted = isinstance(inner.get("first_k_dense_replace"), int) and inner.get("num_hidden_layers")
    return bool(counted) and not isinstance(inner.get("moe_layer_freq"), list)


each_model = of(MODELS)

#: Keys of one meaning; a file has one of them.
SAME = (
    ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"),
    ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size"),
    ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    ("num_hidden_layers", "num_layers", "n_layer"),
    ("num_key_value_heads", "num_attention_groups"),
)


def counts(config: dict[str, Any]) -> tuple[int, int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sm.model(config)
    return model.parameters, model.active_parameters


def renamed(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration in every other spelling of one of its keys."""
    sections = [key for key in ("", "text_config") if not key or key in config]
    for section in sections:
        for group in SAME:
            table = config[section] if section else config
            for old in set(group) & set(table):
                for new in set(group) - set(table):
                    other = copy.deepcopy(config)
                    keys = other[section] if section else other
                    keys[new] = keys.pop(old)
                    yield other


@pytest.mark.parametrize("facts", RELATIVES, ids=[m["model"] for m in RELATIVES])
def test_relatives_of_the_given_models_have_the_parameters_of_their_cards(
    facts: dict[str, Any],
) -> None:
    assert counts(facts["config"])[0] / 1e9 == pytest.approx(facts["total"], rel=0.005)


@each_model
def test_other_spellings_say_the_same(facts: dict[str, Any]) -> None:
    config = facts["config"]
    expected = counts(config)
    for other in renamed(config):
        assert counts(other) == expected


@of([m for m in MODELS if not {"text_config", "vision_config"} & set(m["config"])])
def test_a_decoder_may_stand_in_a_section_of_a_model_that_no_reader_knows(
    facts: dict[str, Any],
) -> None:
    config = facts["config"]
    for section in ("text_config", "llm_config", "language_config"):
        whole = {"model_type": "a_new_model", section: config}
        assert counts(whole) == counts(config)


@of([m for m in MODELS if counts_dense_layers(m["config"])])
def test_leading_dense_layers_in_any_of_their_spellings(facts: dict[str, Any]) -> None:
    whole = facts["config"]
    inner = decoder_of(whole)
    dense, layers = inner["first_k_dense_replace"], inner["num_hidden_layers"]
    expected = counts(whole)
    for key, value in (
        ("moe_layer_freq", [0] * dense + [1] * (layers - dense)),
        ("mlp_layer_types", ["dense"] * dense + ["sparse"] * (layers - dense)),
        ("mlp_only_layers", list(range(dense))),
        ("moe_layers_enum", ",".join(str(i) for i in range(dense, layers))),
        ("num_dense_layers", dense),
    ):
        other = copy.deepcopy(whole)
        table = decoder_of(other)
        del table["first_k_dense_replace"]
        table.pop("moe_layer_freq", None)
        table[key] = value
        assert counts(other) == expected


def test_gated_delta_rules_attend_in_every_fourth_layer_unless_a_file_says_else() -> None:
    config = next(m["config"] for m in MODELS if m["config"]["model_type"] == "qwen3_next")
    silent = {key: value for key, value in config.items() if key != "full_attention_interval"}
    assert counts(silent) == counts(config)
    assert counts({**silent, "full_attention_interval": 2}) != counts(config)


def test_a_gemma_3_with_the_attention_pooling_of_siglip_is_told_that_it_is_left_out() -> None:
    config = next(m["config"] for m in RELATIVES if m["model"] == "Gemma-3-4b-it")
    assert vision_from_config(config)[1] == []
    asking = copy.deepcopy(config)
    asking["vision_config"]["vision_use_head"] = True
    assert vision_from_config(asking)[1] == ["vision_config.vision_use_head"]


#: Parameters of the checkpoints that Google released: none has the pooling of SigLIP.
GEMMA_3 = {"google/gemma-3-12b-it": 12_187_325_040, "google/gemma-3-27b-it": 27_432_406_640}


@pytest.mark.parametrize("name", GEMMA_3)
def test_gemma_3_counts_like_its_checkpoint(name: str) -> None:
    config = next(m["config"] for m in MODELS if m["model"] == name)
    if "vision_config" not in config:
        config = {
            "model_type": "gemma3",
            "text_config": config,
            "vision_config": next(
                m["config"]["vision_config"] for m in RELATIVES if m["model"] == "Gemma-3-4b-it"
            ),
        }
    assert counts(config)[0] == GEMMA_3[name]


def test_kimi_k3_sees() -> None:
    vision, unknown = vision_from_config(
        {
            "model_type": "kimi_k3",
            "vision_config": {
                **{"patch_size": 14, "merge_kernel_size": [2, 2], "qkv_hidden_size": 1536},
                **{"vt_hidden_size": 1024, "vt_intermediate_size": 4096, "norm_type": "rmsnorm"},
                **{"vt_num_attention_heads": 12, "vt_num_hidden_layers": 27},
                **{"attn_bias": False, "linear_bias": False, "patch_embed_proj_bias": False},
            },
        }
    )
    assert unknown == []
    assert vision is not None
    assert (vision["head_dim"], vision["merge"], vision["projector_inner"]) == (128, 2, 4096)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("merge_kernel_size", [2, 3], "merge_kernel_size"),
        ("num_attention_heads", 7, "qkv_hidden_size = 1152"),
    ],
)
def test_what_no_moonvit_can_have_is_refused(key: str, value: object, says: str) -> None:
    config = copy.deepcopy(next(m["config"] for m in RELATIVES if m["model"] == "Kimi-VL-A3B"))
    config["vision_config"][key] = value
    with pytest.raises(ScaleModelError, match=says):
        sm.model(config)


def test_a_list_of_layers_that_is_none_is_refused() -> None:
    config = next(m["config"] for m in MODELS if m["config"]["model_type"] == "deepseek_v3")
    other = {k: v for k, v in config.items() if k not in ("first_k_dense_replace",)}
    with pytest.raises(ScaleModelError, match="moe_layers_enum"):
        sm.model({**other, "moe_layers_enum": "3,four"})
