"""What keys of the newest configurations mean, on small ones written for the purpose."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import scalemodel as sm
from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import architecture_from_config, vision_from_config

SMALL: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "index_topk": 64,
    "index_n_heads": 2,
    "index_head_dim": 8,
}


def read(**config: Any) -> dict[str, Any]:
    architecture, unknown = architecture_from_config({**SMALL, **config})
    assert unknown == []
    return architecture


def parameters(**config: Any) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sm.model({**SMALL, **config}).parameters


def test_selected_keys_are_named_one_way_or_another() -> None:
    older = read(model_type="deepseek_v32", first_k_dense_replace=1, **LATENT)
    newer = read(
        model_type="deepseek_v32",
        layer_types=["indexed_attention"] * 4,
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"],
        **LATENT,
    )
    assert newer == older
    assert older["mixers"] == "IIII"


def test_keys_are_selected_in_blocks_too() -> None:
    index = {
        "index_n_heads": 2,
        "index_head_dim": 8,
        "index_topk_blocks": 4,
        "index_block_size": 32,
    }
    kinds = ["full_attention", "minimax_m3_sparse"] * 2
    found = read(model_type="minimax_m3_vl_text", layer_types=kinds, **index)
    assert (found["mixers"], found["index_topk"]) == ("FIFI", 128)


def test_experts_that_no_layer_has_are_none() -> None:
    common = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    pattern = {"model_type": "nemotron_h", "hybrid_override_pattern": "M*-M"}
    assert read(**pattern, **common, **experts) == read(**pattern, **common)


def test_layers_that_share_a_selection_stand_among_recurrent_ones() -> None:
    found = read(
        model_type="glm5_next_text",
        layer_types=["linear_attention", "indexed_attention"] * 2,
        indexer_types=["full", "full", "full", "shared"],
        mlp_layer_types=["sparse"] * 4,
        linear_num_heads=4,
        linear_head_dim=16,
        **LATENT,
    )
    assert found["mixers"] == "RIRS"
    assert (found["recurrence"], found["scan_rank"]) == ("kimi_delta", 16)


def test_compressed_keys_are_named_by_layer_and_their_rates_by_kind() -> None:
    common = {
        "q_lora_rank": 32,
        "o_groups": 2,
        "o_lora_rank": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "sliding_window": 8,
        "num_key_value_heads": 1,
        **{key: LATENT[key] for key in ("index_topk", "index_n_heads", "index_head_dim")},
    }
    older = read(model_type="deepseek_v4", compress_ratios=[0, 4, 128, 4], **common)
    newer = read(
        model_type="deepseek_v4",
        layer_types=[
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
        **common,
    )
    assert newer == older
    assert (older["mixers"], older["near_ratio"], older["far_ratio"]) == ("WCHC", 4, 128)


def test_blocks_alone_are_named_in_words_too() -> None:
    common = {
        "model_type": "nemotron_h",
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 2,
        "mlp_hidden_act": "relu2",
    }
    letters = read(hybrid_override_pattern="M*-M", **common)
    words = read(
        layers_block_type=["linear_attention", "full_attention", "mlp", "linear_attention"],
        **common,
    )
    assert words == letters
    assert (letters["mixers"], letters["feed_forwards"]) == ("RF-R", "--D-")


def test_what_the_whole_model_says_of_its_head_wins() -> None:
    text = {**SMALL, "model_type": "qwen2", "tie_word_embeddings": False}
    outer = {"model_type": "qwen2_5_vl", "text_config": text}
    own, _ = architecture_from_config(outer)
    assert not own.get("tied_embeddings")
    tied, _ = architecture_from_config({**outer, "tie_word_embeddings": True})
    assert tied["tied_embeddings"] is True


def test_heads_of_every_layer_are_those_of_its_kind() -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    config = {"model_type": "laguna", "layer_types": kinds, "sliding_window": 8, "gating": True}
    found = read(num_attention_heads_per_layer=[4, 6, 6, 4], **config)
    assert (found["heads"], found["window_heads"]) == (4, 6)
    assert found["attention_gate"] == "heads"
    more = parameters(num_attention_heads_per_layer=[4, 6, 6, 4], **config)
    # Two layers of two more heads: queries, output, and a number a head for the gate.
    assert more - parameters(**config) == 2 * 2 * (2 * 64 * 16 + 64)
    _, unknown = architecture_from_config(
        {**SMALL, **config, "num_attention_heads_per_layer": [4, 6, 8, 4]}
    )
    assert unknown == ["per_layer_config.num_attention_heads"]
    with pytest.raises(ScaleModelError, match="a list of 4 numbers"):
        read(num_attention_heads_per_layer=[4], **config)
    with pytest.raises(ScaleModelError, match="gating = 'sometimes'"):
        read(**{**config, "gating": "sometimes"})


def test_a_table_of_single_layers_gives_full_attention_wider_heads() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    wide = {"01": {"head_dim": 32}, "03": {"head_dim": 32}}
    found = read(
        model_type="gemma4_text", layer_types=kinds, sliding_window=8, per_layer_config=wide
    )
    assert (found["head_dim"], found["window_head_dim"]) == (32, 16)


def test_a_dense_block_stands_beside_the_experts_of_a_layer() -> None:
    config = {
        "architectures": ["Grok1ForCausalLM"],
        "model_type": "git",  # as its file says
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }
    beside = parameters(**config, residual_moe=True)
    assert beside - parameters(**config) == 4 * 3 * 64 * 128


def test_layers_take_turns_with_shared_blocks() -> None:
    config = {
        "model_type": "zamba2",
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "mamba_d_state": 8,
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
        "num_mem_blocks": 1,
        "adapter_rank": 4,
        "head_dim": None,
    }
    found = read(**config)
    assert (found["mixers"], found["feed_forwards"]) == ("RZRZ", "-D-D")
    assert found["head_dim"] == 2 * 64 // 4
    two = parameters(**{**config, "num_mem_blocks": 2})
    width = 4 * 32
    block = 2 * 64 * (width + 2 * 64) + width * 64 + 3 * 64 * 128 + 3 * 64
    assert two - parameters(**config) == block
    adapted = parameters(**config, use_shared_attention_adapter=True)
    assert adapted - parameters(**config) == 2 * 4 * (3 * 2 * 64 + width + 2 * 64)


def test_low_ranks_of_rwkv_are_counted_together() -> None:
    ranks = {f"{name}_low_rank_dim": 8 for name in ("decay", "a", "v")}
    found = read(model_type="rwkv7", gate_low_rank_dim=16, **ranks)
    assert (found["recurrence"], found["scan_rank"], found["scan_heads"]) == ("rwkv7", 40, 4)
    assert (found["mixers"], found["gated"], found["ffn"]) == ("R", False, 128)


def test_no_pattern_beside_a_state_space_means_no_attention() -> None:
    states = {"mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 16}
    assert read(model_type="bamba", **states)["mixers"] == "RRRR"


@pytest.mark.parametrize(
    ("keys", "shape"),
    [
        ({**SMALL, "type_vocab_size": 2}, "encoder of words"),
        (
            {
                "vocab_size": 100,
                "d_model": 64,
                **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
                **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
                **{f"{part}_ffn_dim": 128 for part in ("encoder", "decoder")},
            },
            "encoder and decoder",
        ),
        (SMALL, "attention"),
    ],
)
def test_an_unknown_family_is_read_by_what_its_keys_describe(
    keys: dict[str, Any], shape: str
) -> None:
    with pytest.warns(UserWarning, match=f"read as {shape}"):
        model = sm.model({"model_type": "a_new_one", **keys}, approximate=True)
    assert model.read_as == shape
    assert model.shape.bidirectional is (shape == "encoder of words")
    assert (model.shape.encoder_layers > 0) is (shape == "encoder and decoder")


def test_a_file_that_describes_no_mixer_is_refused() -> None:
    config = {"model_type": "a_new_one", "hidden_size": 64, "num_layers": 2, "vocab_size": 100}
    with pytest.raises(ScaleModelError, match="the state of a recurrent mixer, or `n_head`"):
        sm.model(config, approximate=True)


TOWER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 64,
    "patch_size": 8,
}


@pytest.mark.parametrize(
    ("family", "keys", "merge", "tokens"),
    [
        ("llava", {}, 1, 64),
        ("idefics3", {"scale_factor": 4}, 4, 4),
        ("cohere2_vision", {"alignment_intermediate_size": 128}, 2, 16),
        ("llama4", {}, 2, 16),
        ("step3p7", {}, 4, 4),
    ],
)
def test_towers_make_as_many_tokens_as_their_merge_leaves(
    family: str, keys: dict[str, int], merge: int, tokens: int
) -> None:
    text = {**SMALL, "model_type": "llama"}
    config = {"model_type": family, "text_config": text, "vision_config": dict(TOWER), **keys}
    vision, unknown = vision_from_config(config)
    assert vision is not None
    assert unknown == []
    assert vision.get("merge", 1) == merge
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sm.model(config).image_tokens(64, 64) == tokens


def test_tokens_that_no_merge_makes_are_refused() -> None:
    config = {"model_type": "idefics3", "text_config": SMALL, "vision_config": dict(TOWER)}
    with pytest.raises(ScaleModelError, match="scale_factor = 3; legal is a divisor"):
        vision_from_config({**config, "scale_factor": 3})
