"""The families: what their code fixes, which key holds which number, and the remaining steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from scalemodel.resolve.hugging_face import steps
from scalemodel.resolve.hugging_face.reading import Count, count_at, layers_at, rows_at
from scalemodel.resolve.hugging_face.steps import Architecture, Step


@dataclass(frozen=True)
class Family:
    """What the code of a family fixes, where its numbers stand, and the remaining steps."""

    fixed: Architecture
    counts: Mapping[str, Count]
    flags: tuple[tuple[tuple[str, ...], str, bool], ...] = ()
    steps: tuple[Step, ...] = field(default=())


_BIASES: Final = ("qkv_bias", "out_bias", "mlp_bias")
_ALL_BIASES: Final[Architecture] = dict.fromkeys(_BIASES, True)


def _fixed(position: str, norm: str, gated: bool, norms: int = 2, **more: object) -> Architecture:
    return {
        "position": position,
        "norm": norm,
        "gated": gated,
        "norms_per_layer": norms,
        **more,
    }


def _tied(default: bool) -> tuple[tuple[str, ...], str, bool]:
    return ("tied_embeddings",), "tie_word_embeddings", default


_ATTENTION_BIAS: Final = (("qkv_bias", "out_bias"), "attention_bias", False)
_MLP_BIAS: Final = (("mlp_bias",), "mlp_bias", False)

_SHAPE: Final[Mapping[str, Count]] = {
    "layers": layers_at("num_hidden_layers"),
    "hidden": count_at("hidden_size"),
    "vocab": rows_at("vocab_size"),
    "heads": count_at("num_attention_heads"),
    "kv_heads": count_at("num_key_value_heads", default=None),
    "head_dim": count_at("head_dim", default=None),
    "ffn": count_at("intermediate_size"),
}
_SHAPE_OF_GPT2: Final[Mapping[str, Count]] = {
    "layers": layers_at("n_layer", "num_hidden_layers"),
    "hidden": count_at("n_embd", "hidden_size"),
    "vocab": rows_at("vocab_size"),
    "heads": count_at("n_head", "num_attention_heads"),
    "ffn": count_at("n_inner", default=None),
}
_LEARNED: Final = {"positions": rows_at("n_positions", "max_position_embeddings", "n_ctx")}
_SHAPE_OF_BLOOM: Final[Mapping[str, Count]] = {
    "layers": layers_at("n_layer", "num_hidden_layers"),
    "hidden": count_at("hidden_size", "n_embed"),
    "vocab": rows_at("vocab_size"),
    "heads": count_at("n_head", "num_attention_heads"),
}
_SHAPE_OF_FALCON: Final[Mapping[str, Count]] = {
    "layers": layers_at("num_hidden_layers", "n_layer"),
    "hidden": count_at("hidden_size"),
    "vocab": rows_at("vocab_size"),
    "heads": count_at("num_attention_heads", "n_head"),
    "ffn": count_at("ffn_hidden_size", default=None),
}
_SHAPE_OF_MPT: Final[Mapping[str, Count]] = {
    "layers": layers_at("n_layers"),
    "hidden": count_at("d_model"),
    "vocab": rows_at("vocab_size"),
    "heads": count_at("n_heads"),
}
_MIXTRAL_EXPERTS: Final = {
    "experts": count_at("num_local_experts", "num_experts"),
    "experts_per_token": count_at("num_experts_per_tok", "experts_per_token"),
}
_QWEN_EXPERTS: Final = {
    "experts": count_at("num_experts"),
    "experts_per_token": count_at("num_experts_per_tok"),
    "expert_ffn": count_at("moe_intermediate_size"),
    "moe_every": count_at("decoder_sparse_step", default=1),
}
_DEEPSEEK_EXPERTS: Final = {
    "experts": count_at("n_routed_experts", default=None),
    "experts_per_token": count_at("num_experts_per_tok", default=None),
    "expert_ffn": count_at("moe_intermediate_size", default=None),
    "shared_experts": count_at("n_shared_experts", default=None, minimum=0),
    "first_dense_layers": count_at("first_k_dense_replace", default=0, minimum=0),
    "mtp_layers": count_at("num_nextn_predict_layers", default=0, minimum=0),
}
_SHAPE_OF_DEEPSEEK: Final = {
    **{k: v for k, v in _SHAPE.items() if k not in ("kv_heads", "head_dim")},
    **_DEEPSEEK_EXPERTS,
}
# gemma-3 files leave out what equals the default of the family's configuration class.
_SHAPE_OF_GEMMA3: Final = {
    **_SHAPE,
    "vocab": rows_at("vocab_size", default=262208),
    "heads": count_at("num_attention_heads", default=8),
    "kv_heads": count_at("num_key_value_heads", default=4),
    "head_dim": count_at("head_dim", default=256),
}

_LLAMA: Final = Family(
    _fixed("rope", "rmsnorm", gated=True), _SHAPE, (_tied(False), _ATTENTION_BIAS, _MLP_BIAS)
)
_FALCON: Final = Family(
    _fixed("rope", "layernorm", gated=False),
    _SHAPE_OF_FALCON,
    (_tied(True), (_BIASES, "bias", False)),
    (steps.falcon,),
)

FAMILIES: Final[Mapping[str, Family]] = {
    "bloom": Family(
        _fixed("alibi", "layernorm", gated=False, embedding_norm=True) | _ALL_BIASES,
        _SHAPE_OF_BLOOM,
        (_tied(True),),
        (steps.four_times_hidden,),
    ),
    "cohere": Family(
        _fixed("rope", "layernorm_nobias", gated=True, norms=1, parallel_block=True),
        _SHAPE,
        (_tied(True), _ATTENTION_BIAS, (("qk_norm_full",), "use_qk_norm", False)),
    ),
    "dbrx": Family(
        _fixed("rope", "layernorm_nobias", gated=True),
        _SHAPE_OF_MPT,
        (_tied(False),),
        (steps.dbrx,),
    ),
    "deepseek_v2": Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE_OF_DEEPSEEK,
        (_tied(False),),
        (steps.latent_attention,),
    ),
    "falcon": _FALCON,
    "gemma": Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, "head_dim": count_at("head_dim", default=256)},
        (_tied(True), _ATTENTION_BIAS),
    ),
    "gemma2": Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4),
        {**_SHAPE, "head_dim": count_at("head_dim", default=256)},
        (_tied(True), _ATTENTION_BIAS),
        (steps.sliding_window(every=2),),
    ),
    "gemma3_text": Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4, qk_norm=True),
        _SHAPE_OF_GEMMA3,
        (_tied(True), _ATTENTION_BIAS),
        (steps.sliding_window(every=6),),
    ),
    "gpt2": Family(
        _fixed("learned", "layernorm", gated=False) | _ALL_BIASES,
        {**_SHAPE_OF_GPT2, **_LEARNED},
        (_tied(True),),
        (steps.four_times_hidden, steps.no_cross_attention),
    ),
    "gpt_bigcode": Family(
        _fixed("learned", "layernorm", gated=False) | _ALL_BIASES,
        {**_SHAPE_OF_GPT2, **_LEARNED},
        (_tied(True),),
        (steps.four_times_hidden, steps.multi_query, steps.no_cross_attention),
    ),
    "gpt_neox": Family(
        _fixed("rope", "layernorm", gated=False, mlp_bias=True),
        _SHAPE,
        (_tied(False), (("qkv_bias", "out_bias"), "attention_bias", True)),
        (steps.neox,),
    ),
    "gpt_oss": Family(
        _fixed(
            "rope",
            "rmsnorm",
            gated=True,
            attention_sinks=True,
            router_bias=True,
            expert_bias=True,
            clamped_activation=True,
        ),
        {**_SHAPE, **_MIXTRAL_EXPERTS, "head_dim": count_at("head_dim", default=64)},
        (_tied(False), (("qkv_bias", "out_bias"), "attention_bias", True)),
        (steps.expert_width_is_ffn, steps.sliding_window(every=2)),
    ),
    "gptj": Family(
        _fixed(
            "rope",
            "layernorm",
            gated=False,
            norms=1,
            mlp_bias=True,
            parallel_block=True,
            head_bias=True,
        ),
        _SHAPE_OF_GPT2,
        (_tied(False),),
        (steps.four_times_hidden,),
    ),
    "granite": _LLAMA,
    "grok-1": Family(
        _fixed("rope", "rmsnorm", gated=True, norms=4),
        {**_SHAPE, **_MIXTRAL_EXPERTS},
        (_tied(True),),
        (steps.expert_width_is_ffn,),
    ),
    "llama": _LLAMA,
    "llama4_text": Family(
        _fixed("rope", "rmsnorm", gated=True, shared_experts=1),
        {
            **_SHAPE,
            **_MIXTRAL_EXPERTS,
            "head_dim": count_at("head_dim", default=128),
            "ffn": count_at("intermediate_size_mlp"),
            "expert_ffn": count_at("intermediate_size"),
            "moe_every": count_at("interleave_moe_layer_step", default=1),
        },
        (_tied(False), _ATTENTION_BIAS),
        (steps.llama4,),
    ),
    "mistral": Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE,
        (_tied(False),),
        (steps.sliding_window(every=0),),
    ),
    "mixtral": Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, **_MIXTRAL_EXPERTS},
        (_tied(False),),
        (steps.expert_width_is_ffn, steps.sliding_window(every=0)),
    ),
    "mpt": Family(
        _fixed("alibi", "layernorm_nobias", gated=False),
        _SHAPE_OF_MPT,
        (_tied(True),),
        (steps.mpt,),
    ),
    "nemotron": Family(
        _fixed("rope", "layernorm", gated=False),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS, _MLP_BIAS),
    ),
    "olmo2": Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm_full=True),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS),
    ),
    "olmoe": Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm_full=True),
        {**_SHAPE, **_MIXTRAL_EXPERTS},
        (_tied(False), _ATTENTION_BIAS),
        (steps.expert_width_is_ffn,),
    ),
    "opt": Family(
        _fixed("learned", "layernorm", gated=False),
        {
            **{k: v for k, v in _SHAPE.items() if k not in ("kv_heads", "head_dim")},
            "ffn": count_at("ffn_dim"),
            "positions": rows_at("max_position_embeddings"),
        },
        (_tied(True), (_BIASES, "enable_bias", True)),
        (steps.two_offset_positions,),
    ),
    "phi": Family(
        _fixed(
            "rope",
            "layernorm",
            gated=False,
            norms=1,
            parallel_block=True,
            head_bias=True,
        )
        | _ALL_BIASES,
        _SHAPE,
        (_tied(False), (("qk_norm",), "qk_layernorm", False)),
    ),
    "phi3": Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE,
        (_tied(False), _ATTENTION_BIAS),
        (steps.sliding_window(every=0),),
    ),
    "qwen2": Family(
        _fixed("rope", "rmsnorm", gated=True, qkv_bias=True),
        _SHAPE,
        (_tied(False),),
        (steps.qwen_window,),
    ),
    "qwen2_moe": Family(
        _fixed("rope", "rmsnorm", gated=True),
        {**_SHAPE, **_QWEN_EXPERTS},
        (_tied(False), (("qkv_bias",), "qkv_bias", True)),
        (steps.qwen_window, steps.leading_dense, steps.qwen2_shared_expert),
    ),
    "qwen3": Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm=True),
        {**_SHAPE, "head_dim": count_at("head_dim", default=128)},
        (_tied(False), _ATTENTION_BIAS),
        (steps.qwen_window,),
    ),
    "qwen3_moe": Family(
        _fixed("rope", "rmsnorm", gated=True, qk_norm=True),
        {**_SHAPE, **_QWEN_EXPERTS},
        (_tied(False), _ATTENTION_BIAS),
        (steps.qwen_window, steps.leading_dense),
    ),
    "smollm3": Family(
        _fixed("rope", "rmsnorm", gated=True),
        _SHAPE,
        (_tied(True), _ATTENTION_BIAS, _MLP_BIAS),
        (steps.qwen_window, steps.unrotated_layers),
    ),
    "stablelm": Family(
        _fixed("rope", "layernorm", gated=True),
        _SHAPE,
        (
            _tied(False),
            (("qkv_bias",), "use_qkv_bias", False),
            (("qk_norm_full",), "qk_layernorm", False),
        ),
        (steps.stablelm,),
    ),
}

# Models whose text part stands in `text_config`.
WRAPPERS: Final[Mapping[str, str]] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "shieldgemma2": "gemma3_text",
}

#: Models whose file says by its version alone which language model they have
#: (openbmb/MiniCPM-V-2_6, configuration_minicpm.py, and those of its relatives).
_MINICPM: Final = {"2.0": "minicpm", "2.5": "llama", "2.6": "qwen2", "4": "llama", "4.0": "llama"}
VERSIONED: Final[Mapping[str, Mapping[str, str]]] = {
    "minicpmo": _MINICPM | {"4.5": "qwen3"},
    "minicpmv": _MINICPM | {"4.5": "qwen3"},
}
