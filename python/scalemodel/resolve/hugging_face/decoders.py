"""Families that are read by meaning: what their code fixes beside what their files say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.resolve.hugging_face import (
    encoders,
    hybrids,
    layer_widths,
    linear,
    loops,
    newest,
    own_names,
    peculiar,
)
from scalemodel.resolve.hugging_face.families import FAMILIES, Family
from scalemodel.resolve.hugging_face.meaning import decoder
from scalemodel.resolve.hugging_face.steps import Step

_BIASES: Final = (
    (("qkv_bias", "out_bias"), "attention_bias", False),
    (("mlp_bias",), "mlp_bias", False),
)


def _family(
    *steps: Step,
    tied: bool = False,
    read: Step | None = None,
    bias: bool = True,
    **fixed: object,
) -> Family:
    """A decoder with rotary positions, RMSNorm and gated blocks unless `fixed` says else."""
    usual: dict[str, object] = {
        "position": "rope",
        "norm": "rmsnorm",
        "gated": True,
        "norms_per_layer": 2,
    }
    return Family(
        usual | fixed,
        {},
        ((("tied_embeddings",), "tie_word_embeddings", tied), *(_BIASES if bias else ())),
        (read or decoder(), *steps),
    )


_PLAIN: Final = _family()
_QK_NORM: Final = _family(qk_norm=True)
_LATENT: Final = _family(router_bias=True)
_GEMMA: Final = _family(tied=True, qk_norm=True, norms_per_layer=4)
_GATED_DELTA: Final = _family(qk_norm=True, attention_gate="values")
_GATED_DELTA_EXPERTS: Final = _family(
    qk_norm=True, attention_gate="values", shared_expert_gate=True
)
_STATE_SPACE: Final = _family(read=decoder(mixers="R", alone=True), tied=True, bias=False)
_LEARNED: Final = {
    "norm": "layernorm",
    "gated": False,
    "qkv_bias": True,
    "out_bias": True,
    "mlp_bias": True,
    "embedding_norm": True,
}
_COMPUTED: Final = {key: value for key, value in _LEARNED.items() if key != "embedding_norm"}
_BERT: Final = _family(
    read=encoders.bert, tied=True, bias=False, head_bias=True, head_transform=True, **_LEARNED
)
_BART: Final = _family(read=encoders.bart, tied=True, bias=False, position="learned", **_LEARNED)
_LANGUAGES: Final = _family(
    read=encoders.many_languages, tied=True, bias=False, position="none", **_COMPUTED
)
_KIMI: Final = _family(router_bias=True, position="none")


def _inkling2(*steps: Step) -> Family:
    """Norms behind the embedding, gates and sinks of attention."""
    return _family(
        newest.inkling2,
        *steps,
        bias=False,
        qk_norm=True,
        attention_gate="values",
        attention_sinks=True,
        embedding_norm=True,
    )


def _linear(kind: str) -> Family:
    """A model of recurrent layers of one kind, with gated blocks between them."""
    return _family(read=linear.fla(kind), bias=False, position="none")


def _rwkv(read: Step) -> Family:
    return _family(read=read, bias=False, position="none", norm="layernorm", gated=False)


_COMPRESSED: Final = _family(router_bias=True, feed_forwards="E")

#: Family by ``model_type`` of the text part.
DECODERS: Final[Mapping[str, Family]] = {
    "afmoe": _family(qk_norm=True, attention_gate="values", norms_per_layer=4),
    "apertus": _family(peculiar.fixed_norms, qk_norm=True, gated=False),
    "aquila": _PLAIN,
    "arctic": _family(newest.arctic, bias=False, norms_per_layer=3),
    "aria_text": _PLAIN,
    "axk1": _family(router_bias=True, norms_per_layer=3),
    "axk2": _family(newest.gated_norms, router_bias=True, attention_gate="latents"),
    "arcee": _family(gated=False),
    "baichuan": _family(own_names.baichuan, bias=False),
    "bailing_moe": _family(peculiar.bailing, bias=False),
    "bailing_hybrid": _family(newest.full_gate, attention_gate="heads", scan_full_decay=True),
    "bailing_moe_linear": _family(peculiar.bailing, bias=False, qk_norm=True),
    "bailing_moe_v2": _family(peculiar.bailing, bias=False, qk_norm=True),
    "bamba": _PLAIN,
    "bart": _BART,
    "beam": _family(qk_norm=True, attention_gate="values", norms_per_layer=4),
    "bert": _BERT,
    "bitnet": _family(peculiar.inner_norms, tied=True, gated=True),
    "cohere2": _family(tied=True, norm="layernorm_nobias", norms_per_layer=1, parallel_block=True),
    "cohere2_moe": _family(
        tied=True, norm="layernorm_nobias", norms_per_layer=1, parallel_block=True
    ),
    "camembert": _BERT,
    "cosmos3_edge_text": _family(gated=False),
    "chatglm": _family(read=own_names.chatglm, bias=False),
    "cwm": _PLAIN,
    "deci": _family(layer_widths.deci),
    "deepseek": _PLAIN,
    "deepseek_ref": _COMPRESSED,
    "deepseek_v3": _LATENT,
    "deepseek_v32": _LATENT,
    "deepseek_v4": _COMPRESSED,
    "delta_net": _linear("delta"),
    "diffllama": _family(newest.two_maps),
    "dory": _family(loops.dory, attention_gate="values", head_bias=True),
    "distilbert": _BERT,
    "dots1": _QK_NORM,
    "dots3_note_text": _family(attention_gate="heads"),
    "ernie4_5": _family(peculiar.one_bias, tied=True, bias=False),
    "ernie4_5_moe": _family(peculiar.one_bias, tied=True, bias=False, router_bias=True),
    "ernie4_5_vl_moe_text": _family(
        peculiar.one_bias,
        peculiar.experts_of_text,
        tied=True,
        bias=False,
        router_bias=True,
    ),
    "Dream": _family(own_names.both_ways, bias=False),
    "eurobert": _family(encoders.both_ways),
    "exaone": _PLAIN,
    "exaone4": _QK_NORM,
    "exaone_moe": _QK_NORM,
    "flex_olmo": _family(qk_norm_full=True),
    "flint": _family(qk_norm=True, attention_sinks=True),
    "falcon_h1": _family(peculiar.falcon_h1, read=decoder(mixers="P")),
    "falcon_mamba": _family(
        read=decoder(mixers="R", alone=True), tied=True, bias=False, scan_norm=False
    ),
    "gated_deltanet": _linear("gated_delta"),
    "gemma3n_text": _family(peculiar.layer_embeddings, tied=True, qk_norm=True, norms_per_layer=4),
    "gemma4_text": _family(
        peculiar.dense_beside_experts, tied=True, qk_norm=True, norms_per_layer=4
    ),
    "gla": _linear("gla"),
    "glm": _family(peculiar.query_bias_where_said, bias=False),
    "glm4": _family(peculiar.query_bias_where_said, bias=False, norms_per_layer=4),
    "glm4_moe": _family(peculiar.glm4_moe, bias=False, router_bias=True),
    "glm4_moe_lite": _LATENT,
    "glm5_next_text": _family(position="none"),
    "glm_moe_dsa": _LATENT,
    "gpt_neo": _family(
        read=own_names.gpt_neo,
        tied=True,
        bias=False,
        position="learned",
        norm="layernorm",
        gated=False,
    ),
    "granite_swa": _PLAIN,
    "granitemoe": _PLAIN,
    "granitemoe_swa": _PLAIN,
    "granitemoehybrid": _family(tied=True),
    "granitemoeshared": _PLAIN,
    "grok-2": _family(peculiar.dense_beside_routed, bias=False, norms_per_layer=4),
    "helium": _PLAIN,
    "hgrn": _linear("hgrn"),
    "hgrn2": _linear("hgrn2"),
    "hrm_text": _family(loops.hrm, attention_gate="values", norm="nonparametric"),
    "hunyuan": _family(newest.shared_keys, qk_norm=True),
    "hunyuan_v1_dense": _QK_NORM,
    "hunyuan_v1_moe": _QK_NORM,
    "hy_v3": _QK_NORM,
    "hy_v4": _family(attention_gate="values", attention_sinks=True),
    "hymba": _family(hybrids.hymba, bias=False),
    "hyperclovax": _family(peculiar.norms_behind),
    "inkling2_loop_text": _inkling2(loops.inkling_loop),
    "inkling2_text": _inkling2(),
    "inkling_text": _family(peculiar.positions_in_attention, bias=False, qk_norm=True),
    "internlm": _family(peculiar.one_attention_bias, bias=False),
    "internlm2": _family(peculiar.one_attention_bias, bias=False),
    "internlm3": _family(peculiar.one_attention_bias, bias=False),
    "iquestcoder": _PLAIN,
    "jamba": _family(scan_norm=True, position="none"),
    "jet_nemotron": _family(peculiar.query_bias, bias=False, tied=True),
    "jetmoe": _family(peculiar.attention_experts, tied=True, bias=False),
    "jais2": _family(norm="layernorm", gated=False),
    "kda": _linear("kda"),
    "kimi_k2": _LATENT,
    "kimi_linear": _KIMI,
    "kolibri1": _family(qk_norm=True, norms_per_layer=4),
    "laguna": _family(peculiar.gate_where_said, qk_norm=True, router_bias=True),
    "lara_mini": _family(tied=True, qk_norm=True),
    "lfm2": _family(peculiar.adjusted_width, tied=True, qk_norm=True),
    "lfm2_moe": _family(tied=True, qk_norm=True),
    "lfm3": _family(peculiar.sandwich, tied=True, qk_norm=True),
    "llada": _family(read=own_names.llada, bias=False),
    "longcat_flash": _family(peculiar.two_blocks_a_layer, router_bias=True),
    "longcat_flash_ngram": _family(
        peculiar.two_blocks_a_layer, peculiar.runs_of_tokens, router_bias=True
    ),
    "mamba": _STATE_SPACE,
    "mamba2": _STATE_SPACE,
    "m2m_100": _LANGUAGES,
    "marian": _BART,
    "mbart": _BART,
    "mellum": _QK_NORM,
    "mimo": _family(peculiar.query_bias, bias=False),
    "mimo_v2_flash": _family(newest.doubled_keys, attention_sinks=True),
    "minicpm": _family(tied=True),
    "minicpm3": _LATENT,
    "minimax": _PLAIN,
    "minimax_m1": _PLAIN,
    "minimax_m2": _family(qk_norm_full=True),
    "minimax_m3": _QK_NORM,
    "minimax_m3_text": _QK_NORM,
    "minimax_m3_vl_text": _QK_NORM,
    "minimax_text_01": _PLAIN,
    "ministral": _PLAIN,
    "ministral3": _PLAIN,
    "mistral4": _LATENT,
    "mistral_large4_text": _LATENT,
    "mllama_text_model": _family(peculiar.cross_attention, bias=False, vocab=128256),
    "modernbert": _family(
        read=encoders.modern_bert,
        tied=True,
        bias=False,
        norm="layernorm_nobias",
        embedding_norm=True,
        head_transform=True,
    ),
    "modernbert-decoder": _family(
        newest.modern_bert_decoder,
        read=encoders.modern_bert,
        tied=True,
        bias=False,
        norm="layernorm_nobias",
        embedding_norm=True,
        head_transform=True,
    ),
    "muse_glimmer_text": _family(attention_gate="values", norms_per_layer=4),
    "muse_spark_text": _family(newest.gated_residuals, attention_gate="values"),
    "nanochat": _family(norm="nonparametric", gated=False),
    "nemotron-nas": _family(layer_widths.searched_blocks),
    "nemotron_h": _family(norms_per_layer=2, position="none"),
    "nllb-moe": _LANGUAGES,
    "olmo": _family(norm="nonparametric"),
    "olmo3": _family(qk_norm_full=True),
    "olmo_hybrid": _family(qk_norm_full=True, position="none"),
    "openelm": _family(read=layer_widths.openelm, bias=False),
    "orion": _family(norm="layernorm"),
    "ouro": _family(loops.ouro, norms_per_layer=4),
    "PanguEmbedded": _family(peculiar.one_attention_bias, bias=False),
    "persimmon": _family(
        peculiar.all_biases, bias=False, norm="layernorm", gated=False, qk_norm=True
    ),
    "phi4_multimodal": _family(tied=True),
    "phi4mm": _family(),
    "phimoe": _family(peculiar.head_bias, norm="layernorm"),
    "plamo": _family(newest.shared_heads, bias=False, norms_per_layer=1, parallel_block=True),
    "plamo2": _family(hybrids.plamo2, bias=False, qk_norm_full=True, norms_per_layer=4),
    "plamo3": _family(newest.plamo3, bias=False, qk_norm=True, norms_per_layer=4),
    "qwen": _family(read=own_names.qwen, bias=False),
    "qwen3_5_moe_text": _GATED_DELTA_EXPERTS,
    "qwen3_5_text": _GATED_DELTA,
    "qwen3_next": _GATED_DELTA_EXPERTS,
    "qwen4_exp_text": _family(
        newest.qwen4, qk_norm=True, attention_gate="values", shared_expert_gate=True
    ),
    "recurrent_gemma": _family(peculiar.recurrent_gemma, tied=True, bias=False),
    "retnet": _linear("retnet"),
    "roberta": _BERT,
    "rwkv": _rwkv(linear.rwkv4),
    "rwkv5": _rwkv(linear.rwkv6),
    "rwkv6": _rwkv(linear.rwkv6),
    "rwkv7": _family(peculiar.rwkv7, read=decoder(mixers="R"), bias=False, norm="layernorm"),
    "seed_oss": _family(peculiar.query_bias, bias=False),
    "skywork": _PLAIN,
    "solar": _PLAIN,
    "solar_open": _PLAIN,
    "starcoder2": _family(
        peculiar.every_bias, tied=True, bias=False, norm="layernorm", gated=False
    ),
    "mt5": _family(read=peculiar.t5, bias=False, position="none"),
    "step3": _PLAIN,
    "step3p5": _family(qk_norm=True, attention_gate="heads"),
    "step3p7": _family(qk_norm=True, attention_gate="heads"),
    "telechat": _family(newest.biased_output, bias=False),
    "vaultgemma": _family(tied=True),
    "youtu": _family(),
    "xglm": _family(read=own_names.xglm, tied=True, bias=False, position="none", **_COMPUTED),
    "xlm-roberta": _BERT,
    "xlstm": _family(peculiar.xlstm, read=decoder(mixers="R"), bias=False, position="none"),
    "xverse": _PLAIN,
    "zamba": _family(hybrids.zamba, tied=True, bias=False, position="none"),
    "zamba2": _family(
        peculiar.zamba2, read=decoder(), tied=True, bias=False, position="none", scan_norm=True
    ),
    "zaya": _family(hybrids.zaya, tied=True),
    "switch_transformers": _family(read=peculiar.switch, bias=False, position="none", tied=True),
    "t5": _family(read=peculiar.t5, bias=False, position="none", tied=True),
    "t5gemma": _family(read=encoders.t5gemma, bias=False, norms_per_layer=4),
    "umt5": _family(read=peculiar.t5, bias=False, position="none"),
    "whisper": _family(
        read=peculiar.whisper,
        tied=True,
        bias=False,
        position="learned",
        norm="layernorm",
        gated=False,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    ),
}

#: Models whose text part stands in a section, or goes by another name -> family of that part.
ALIASES: Final[Mapping[str, str]] = {
    "MiniMaxM1": "minimax_m1",
    "Grok1ForCausalLM": "grok-2",
    "Grok1ModelForCausalLM": "grok-1",
    "MiniMaxText01": "minimax_text_01",
    "apertus1p5": "apertus",
    "apertus1p5_text": "apertus",
    "aria": "aria_text",
    "aya_vision": "cohere2",
    "cohere2_vision": "cohere2",
    "codegen": "gptj",
    "cohere_compass": "cohere2",
    "cohere_compass_text": "cohere2",
    "cosmos3_edge": "cosmos3_edge_text",
    "deepseek_ocr2": "deepseek",
    "deepseek_ocr2_text": "deepseek",
    "diffusion_gemma": "gemma4_text",
    "dots_ocr": "qwen2",
    "emu3": "llama",
    "emu3_text_model": "llama",
    "granite4_vision": "granite",
    "gritlm": "mistral",
    "hunyuan_vl": "hunyuan_v1_dense",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "inkling2": "inkling2_text",
    "inkling2_loop": "inkling2_loop_text",
    "llada2_moe": "bailing_moe_v2",
    "muse_spark": "muse_spark_text",
    "paddleocr_vl": "ernie4_5",
    "paddleocr_vl_text": "ernie4_5",
    "qwen4_exp": "qwen4_exp_text",
    "sdar": "qwen3",
    "sdar_moe": "qwen3_moe",
    "teleflm": "llama",
    "telechat2": "telechat",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "Yi": "llama",
    "yi": "llama",
    "dots3_note": "dots3_note_text",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "exaone4_5": "exaone4",
    "exaone4_5_text": "exaone4",
    "gemma3n": "gemma3n_text",
    "gemma4_unified": "gemma4_text",
    "gemma4_unified_text": "gemma4_text",
    "glm46v": "glm4",
    "gpt-sw3": "gpt2",
    "glmga": "glm4",
    "glm5_next": "glm5_next_text",
    "glm_ocr": "glm4",
    "glm_ocr_text": "glm4",
    "hy_v4_text": "hy_v4",
    "hy_v4_vl": "hy_v4",
    "hy_v4_vl_text": "hy_v4",
    "hyperclovax_vision_v2": "hyperclovax",
    "inkling_mm_model": "inkling_text",
    "lfm2_vl": "lfm2",
    "lfm3_text": "lfm3",
    "lfm3_vl": "lfm3",
    "llama4": "llama4_text",
    "llava_llama": "llama",
    "llava_mistral": "mistral",
    "llava_qwen": "qwen2",
    "mistral_large4": "mistral_large4_text",
    "mllama": "mllama_text_model",
    "muse_glimmer": "muse_glimmer_text",
    "sarvam_mla": "deepseek_v3",
    "sarvam_moe": "glm4_moe",
    "nemotron_h_omni": "nemotron_h",
    "qwen2_5_omni_thinker": "qwen2",
    "qwen3_omni_moe_thinker": "qwen3_moe",
    "gemma4": "gemma4_text",
    "glm4v": "glm4",
    "glm4v_moe": "glm4_moe",
    "glm4v_moe_text": "glm4_moe",
    "glm4v_text": "glm4",
    "internvl": "qwen2",
    "internvl_chat": "qwen2",
    "kimi_k25": "kimi_k2",
    "kimi_k3": "kimi_linear",
    "kimi_vl": "deepseek_v3",
    "minimax_m3_vl": "minimax_m3",
    "stablelm_epoch": "stablelm",
    "step3_text": "step3",
    "step3_vl": "step3",
    "mistral3": "mistral",
    "phi3_v": "phi3",
    "pixtral": "mistral",
    "qwen2_5_omni": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_omni_moe": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "deepseek_vl_v2": "deepseek_v2",
}


def family_of(*names: str) -> Family | None:
    """The family of the first of these names that is known."""
    for name in names:
        meant = ALIASES.get(name, name)
        found = FAMILIES.get(meant) or DECODERS.get(meant)
        if found is not None:
            return found
    return None


def nearest_family(config: object) -> tuple[str, Family]:
    """The known shape that an unknown family is most like, by what its file has keys for.

    Examples
    --------
    >>> nearest_family({"kv_lora_rank": 512, "n_routed_experts": 64})[0]
    'latent attention with experts'
    """
    if not isinstance(config, Mapping):
        raise ScaleModelError(f"config.json={config!r}: must be a table")
    for keys, name, like in (
        (("d_kv", "num_decoder_layers"), "encoder and decoder of like layers", "t5"),
        (("encoder_layers", "decoder_layers"), "encoder and decoder", "bart"),
        (("type_vocab_size", "num_attention_heads"), "encoder of words", "bert"),
    ):
        if all(config.get(key) is not None for key in keys):
            return name, DECODERS[like]
    mixer = "attention"
    for key, name in (
        ("kv_lora_rank", "latent attention"),
        ("linear_num_value_heads", "gated delta rules"),
        ("linear_attn_config", "delta rules"),
        ("ssm_state_size", "state spaces"),
        ("mamba_d_state", "state spaces"),
        ("state_size", "state spaces"),
    ):
        if config.get(key) is not None:
            mixer = name
            break
    routed = any(isinstance(config.get(k), int) for k in ("num_experts", "n_routed_experts",
                                                          "num_local_experts"))  # fmt: skip
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads")
    heads = any(config.get(name) is not None for name in names) and mixer != "state spaces"
    heads = heads or config.get("num_attention_heads") is not None
    family = _PLAIN if heads else _STATE_SPACE
    return mixer + (" with experts" if routed else ""), family
