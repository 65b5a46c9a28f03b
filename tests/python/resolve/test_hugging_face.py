"""The Hugging Face loader: published files give the catalogue's architectures; bad ones say why."""

from __future__ import annotations

import copy
import math
import sys
from importlib import resources
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scalemodel as sm
from reference.hugging_face import LLAMA4_MAVERICK, PUBLISHED, Config, llama, without
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import architecture_from_config, vision_from_config

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def catalogue_architecture(name: str) -> Config:
    path = resources.files("scalemodel") / "catalog" / "models" / f"{name}.toml"
    table: Config = tomllib.loads(path.read_text(encoding="utf-8"))["architecture"]
    return table


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_gives_the_catalogue_architecture(name: str) -> None:
    architecture, unknown = architecture_from_config(PUBLISHED[name])
    expected = catalogue_architecture(name)
    assert without(architecture, "source") == without(expected, "source")
    assert unknown == []


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (  # Granite 3.1 8B
            llama(40, 4096, 32, 8, 12800, 49155)
            | {"model_type": "granite", "tie_word_embeddings": True}
            | {"attention_multiplier": 0.0078125, "embedding_multiplier": 12.0}
            | {"logits_scaling": 16.0, "residual_multiplier": 0.22},
            8.17e9,
        ),
        (  # SmolLM3 3B
            llama(36, 2048, 16, 4, 11008, 128256)
            | {"model_type": "smollm3", "tie_word_embeddings": True}
            | {"layer_types": ["full_attention"] * 36, "no_rope_layers": [1, 1, 1, 0] * 9}
            | {"no_rope_layer_interval": 4, "use_sliding_window": False, "max_window_layers": 28},
            3.08e9,
        ),
    ],
)
def test_kin_of_llama_have_their_published_parameters(config: Config, parameters: float) -> None:
    _, unknown = architecture_from_config(config)
    assert unknown == []
    assert sm.model(config).parameters == pytest.approx(parameters, rel=0.002)


def test_the_config_is_left_as_it_was() -> None:
    config = copy.deepcopy(LLAMA4_MAVERICK)
    architecture_from_config(config)
    assert config == LLAMA4_MAVERICK


def test_unknown_keys_are_reported_with_their_path() -> None:
    config = copy.deepcopy(PUBLISHED["mosaicml_mpt_7b"])
    config |= {"quantization_config": {"bits": 4}, "state_size": 128, "_name_or_path": "x"}
    config["attn_config"]["latent_rank"] = 16
    _, unknown = architecture_from_config(config)
    assert unknown == ["attn_config.latent_rank", "quantization_config", "state_size"]


def test_a_vision_tower_that_is_not_known_is_reported() -> None:
    config = LLAMA4_MAVERICK | {"vision_config": {"hidden_size": 1408}}
    assert architecture_from_config(config)[1] == []
    assert vision_from_config(config) == (None, ["vision_config"])


def test_an_unknown_family_lists_the_nearest_first() -> None:
    with pytest.raises(ScaleModelError, match=r"qwen4.*nearest first: qwen") as caught:
        architecture_from_config({"model_type": "qwen4"})
    assert "deepseek_v3" in str(caught.value)
    assert caught.value.code == "unknown_family"


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size", "model_type"])
def test_a_missing_required_key_is_named(key: str) -> None:
    with pytest.raises(ScaleModelError, match=f"`{key}` is missing"):
        architecture_from_config(without(PUBLISHED["llama3_8b"], key))


def test_a_misspelt_required_key_is_suggested() -> None:
    config = without(PUBLISHED["llama3_8b"], "num_hidden_layers", num_hiden_layers=32)
    with pytest.raises(ScaleModelError, match="did you mean `num_hiden_layers`"):
        architecture_from_config(config)


def test_a_suggested_key_is_written_on_one_line() -> None:
    config = without(PUBLISHED["llama3_8b"], "num_hidden_layers")
    with pytest.raises(ScaleModelError, match="did you mean") as caught:
        architecture_from_config({**config, "\num_hidden_layers": 32})
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "value",
    ["32", 32.0, True, math.nan, math.inf, -1, 0, 10**8, 10**5000, [32], {"a": 1}],
    ids=lambda value: type(value).__name__,
)
def test_a_number_that_is_none_is_refused_by_name(value: object) -> None:
    with pytest.raises(ScaleModelError, match=r"num_attention_heads = .*legal is"):
        architecture_from_config(PUBLISHED["llama3_8b"] | {"num_attention_heads": value})


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama3_8b", {"tie_word_embeddings": "no"}, "tie_word_embeddings = 'no'"),
        ("llama3_8b", {"num_key_value_heads": 5}, "5 key/value heads do not divide 32"),
        ("llama3_8b", {"hidden_size": 4097}, "4097 is not a multiple of 32"),
        ("llama3_8b", {"model_type": 3}, "model_type = 3"),
        ("mixtral_8x7b", {"num_experts_per_tok": 9}, "experts per token = 9"),
        ("deepseek_v3", {"first_k_dense_replace": 62}, "leading dense layers = 62"),
        ("deepseek_v3", {"moe_intermediate_size": None}, "moe_intermediate_size"),
        ("gpt_oss_120b", {"layer_types": ["full_attention"]}, "layer_types"),
        ("gpt_oss_120b", {"layer_types": "full"}, "layer_types = 'full'"),
        ("llama4_scout", {"text_config": []}, r"text_config = \[\]"),
        ("llama4_scout", {"text_config": None}, "`text_config` is missing"),
        ("mosaicml_mpt_7b", {"attn_config": [1]}, r"attn_config = \[1\]"),
        ("mosaicml_mpt_7b", {"expansion_ratio": math.nan}, "expansion_ratio = nan"),
        ("dbrx", {"ffn_config": {}}, "`ffn_config.ffn_hidden_size` is missing"),
        ("falcon_40b", {"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn = 3"),
        ("qwen3_30b_a3b", {"mlp_only_layers": [5]}, "mlp_only_layers"),
    ],
)
def test_an_illegal_value_is_refused_by_name(name: str, changes: Config, message: str) -> None:
    with pytest.raises(ScaleModelError, match=message):
        architecture_from_config(PUBLISHED[name] | changes)


@pytest.mark.parametrize("config", [None, [], "llama", 3, [{"model_type": "llama"}]])
def test_anything_but_a_mapping_is_refused(config: Any) -> None:
    with pytest.raises(ScaleModelError, match="a mapping"):
        architecture_from_config(config)


def test_keys_that_the_schema_cannot_say_are_reported() -> None:
    windows = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    _, unknown = architecture_from_config(PUBLISHED["qwen2_7b"] | windows)
    assert unknown == ["max_window_layers"]
    _, unknown = architecture_from_config(PUBLISHED["opt_6_7b"] | {"word_embed_proj_dim": 512})
    assert unknown == ["word_embed_proj_dim"]


def test_a_window_on_every_layer() -> None:
    used = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 0}
    architecture, unknown = architecture_from_config(PUBLISHED["qwen2_7b"] | used)
    assert (architecture["window"], unknown) == (4096, [])
    assert "full_attention_every" not in architecture


def test_older_spellings_of_falcon() -> None:
    old = without(PUBLISHED["falcon_40b"], "num_hidden_layers", "num_kv_heads", n_layer=60)
    old |= {"n_head_kv": 8}
    assert architecture_from_config(old) == architecture_from_config(PUBLISHED["falcon_40b"])


ODD_VALUES: tuple[Any, ...] = (
    None, True, False, -2, -1, 0, 1, 2, 3, 7, 64, 128, 4096, 10**8, 10**12, 10**400, 10**5000,
    0.0, -1.5, 32.0, math.nan, math.inf, "", "32", "llama", "full_attention", [], [0], [1, "a"],
    [None], [0, 1, 2], ["full_attention"], ["sliding_attention"] * 40, [1, 1, 1, 0] * 12, {},
    {"a": 1}, {3: 4}, {"model_type": []}, {"num_hidden_layers": 2}, (1, 2), b"32", object(),
)  # fmt: skip


def mutate(random: Random, config: Config) -> Config:
    """A copy of `config` with up to four keys, nested ones too, changed, removed or added."""
    mutant = copy.deepcopy(config)
    for _ in range(random.randint(1, 4)):
        target: Any = mutant
        nested = [value for value in mutant.values() if isinstance(value, dict)]
        if nested and random.random() < 0.5:
            target = random.choice(nested)
        key = random.choice([*target, "added"])
        action = random.choice(["change", "remove", "add", "swap family"])
        if action == "change":
            target[key] = copy.deepcopy(random.choice(ODD_VALUES))
        elif action == "remove":
            target.pop(key, None)
        elif action == "add":
            added = random.choice(["hidden_layers", "sliding_window", "layer_types", "", 3, None])
            target[added] = copy.deepcopy(random.choice(ODD_VALUES))
        else:
            mutant["model_type"] = random.choice(list(PUBLISHED.values()))["model_type"]
    return mutant


def answers_or_refuses(config: Config) -> bool:
    """True for a sound architecture, False for a refusal; anything else escapes as a failure."""
    try:
        architecture, unknown = architecture_from_config(config)
    except ScaleModelError:
        return False
    assert unknown == sorted(set(unknown))
    heads, kv_heads = architecture["heads"], architecture["kv_heads"]
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    assert heads % kv_heads == 0
    for value in architecture.values():
        assert isinstance(value, (bool, int, str))
        assert isinstance(value, str) or 0 <= value <= 10**8 + 2
    return True


@pytest.mark.slow
def test_ten_thousand_mutated_configs_give_an_answer_or_a_reason() -> None:
    random = Random(20240229)
    published = list(PUBLISHED.values())
    answers = sum(
        answers_or_refuses(mutate(random, random.choice(published))) for _ in range(10_000)
    )
    # Both outcomes are common, or the mutations test nothing.
    assert 1_000 < answers < 9_000


@settings(max_examples=300, deadline=None)
@given(random=st.randoms(use_true_random=False), name=st.sampled_from(sorted(PUBLISHED)))
def test_a_mutated_config_gives_an_answer_or_a_reason(random: Random, name: str) -> None:
    answers_or_refuses(mutate(random, PUBLISHED[name]))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(PUBLISHED)),
    values=st.lists(json_values, min_size=1, max_size=3),
    data=st.data(),
)
@pytest.mark.slow
def test_any_json_value_gives_an_answer_or_a_reason(
    name: str, values: list[Any], data: st.DataObject
) -> None:
    keys = st.sampled_from(sorted(PUBLISHED[name]))
    answers_or_refuses(PUBLISHED[name] | {data.draw(keys): value for value in values})
