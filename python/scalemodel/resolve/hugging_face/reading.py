"""A ``config.json`` read with checks; it remembers which keys were asked for."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain

#: Routed experts, those of a token, shared ones, and the width of one.
EXPERTS: Final = (
    "n_routed_experts",
    "num_local_experts",
    "num_experts",
    "moe_num_experts",
    "num_routed_experts",
)
TOPK: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
)
SHARED: Final = (
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
)
EXPERT_WIDTH: Final = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")

_REQUIRED: Final = -1
LARGEST: Final = 10_000_000
_LARGEST_ROWS: Final = 100_000_000
_LARGEST_LAYERS: Final = 10_000

# Keys that change neither flop nor bytes worth counting: token ids, dropout, initialisation,
# rotary parameters, router arithmetic, training losses, bookkeeping of the library.
_COSTLESS: Final = frozenset({
    "activation_dropout", "activation_function", "activation_situ_beta",
    "activation_situ_linear_beta", "add_full_attention_sink_bias", "add_swa_attention_sink_bias",
    "alibi_bias_max", "alignment_intermediate_size", "altup_active_idx", "altup_coef_clip",
    "altup_correct_scale", "altup_lr_multiplier", "apply_residual_connection_post_layernorm",
    "apply_spec_augment", "architectures", "attention_dropout", "attention_in_multiplier",
    "attention_multiplier", "attention_out_multiplier", "attention_probs_dropout_prob",
    "attention_softmax_in_fp32", "attention_value_scale", "attn_dropout", "attn_factor",
    "attn_impl", "attn_logit_softcapping", "attn_mode", "attn_output_multiplier", "attn_pdrop",
    "attn_rotary_emb", "attn_scale", "attn_temperature_len", "attn_temperature_tuning",
    "attn_uses_sequence_id", "audio_end_token_id", "audio_soft_tokens_per_image",
    "audio_start_token_id", "audio_token_id", "audio_token_index", "auto_map", "aux_loss_alpha",
    "aux_loss_coef", "bad_words_ids", "begin_suppress_tokens", "beta_fast", "beta_slow",
    "bias_dropout_fusion", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
    "block_use_xavier_init", "boa_token_id", "boi_token_id", "boi_token_index", "bos_token_id",
    "cache_implementation", "chunk_size_feed_forward", "classifier_activation", "classifier_bias",
    "classifier_dropout", "classifier_pooling", "classifier_proj_size", "clip_qkv", "cls_token_id",
    "compress_rope_theta", "conv_use_xavier_init", "cross_attention_hidden_size",
    "decoder_layerdrop", "decoder_start_token_id", "deterministic_flash_attn", "dim_model_base",
    "diversity_penalty", "do_layer_norm_before", "do_sample", "downsample_factor", "dropout",
    "dropout_rate", "dtype", "dynamic_image_size", "early_stopping", "emb_pdrop", "emb_scale",
    "embd_pdrop", "embedding_dropout", "embedding_fraction", "embedding_multiplier",
    "embedding_multiplier_scale", "enable_moe_fp32_combine", "encoder_layerdrop",
    "encoder_no_repeat_ngram_size", "eoa_token_id", "eoa_token_index", "eod_token_id",
    "eoi_token_id", "eoi_token_index", "eos_token_id", "ep_size", "expert_dtype",
    "expert_selection_fn", "exponential_decay_length_penalty", "extrapolation_factor", "ffn_act_fn",
    "final_logit_softcapping", "finetuning_task", "floor_scale", "for_llm_compression",
    "force_image_size", "forced_bos_token_id", "forced_eos_token_id", "full_attn_alpha_factor",
    "full_attn_beta_factor", "fuse_cross_entropy", "fuse_norm", "fused_cross_entropy",
    "gradient_checkpointing", "group_norm_size", "hc_eps", "hc_magnitude", "hc_sinkhorn_iters",
    "hidden_act", "hidden_activation", "hidden_dropout", "hidden_dropout_prob", "id2label",
    "ignore_index", "image_end_token_id", "image_fold", "image_grid_pinpoints", "image_seq_length",
    "image_start_token_id", "image_token_id", "image_token_index", "img_token_compression_config",
    "indexer_rope_interleave", "inference_runner", "init_config", "init_device", "init_std",
    "initial_context_length", "initializer_cutoff_factor", "initializer_factor",
    "initializer_range", "input_jitter_noise", "is_decoder", "is_encoder_decoder",
    "kda_lower_bound", "kda_safe_gate", "key_multiplier", "label2id", "lang_ids",
    "latent_moe_use_norm", "layer_norm_eps", "layer_norm_epsilon", "layer_norm_rms_epsilon",
    "layer_rope_theta", "layer_switch", "layerdrop", "layernorm_epsilon",
    "layernorm_full_attention_alpha", "layernorm_full_attention_beta",
    "layernorm_linear_attention_alpha", "layernorm_linear_attention_beta", "layernorm_mlp_alpha",
    "layernorm_mlp_beta", "learnable_sink_init", "length_penalty", "linear_a_log_max",
    "linear_a_log_min", "linear_allow_neg_eigval", "linear_attn_alpha_factor",
    "linear_attn_beta_factor", "linear_dt_init_floor", "linear_dt_max", "linear_dt_min",
    "linear_silu", "lm_head_multiplier", "local_rope_theta", "logit_scale", "logit_softcapping",
    "logits_scaling", "mamba_dt_min", "mamba_hidden_act", "mamba_norm_before_gate",
    "mamba_ssm_cache_dtype", "mamba_ssm_dtype", "mamba_use_mlp", "mask_feature_length",
    "mask_feature_min_masks", "mask_feature_prob", "mask_time_length", "mask_time_min_masks",
    "mask_time_prob", "masked_softmax_fusion", "max_attn_value", "max_batch_size",
    "max_dynamic_patch", "max_length", "max_position_embeddings", "max_seq_len",
    "max_sequence_length", "media_placeholder_token_id", "median_filter_width", "min_dynamic_patch",
    "min_length", "mixer_rms_eps", "mla_use_nope", "mlp_alpha_factor", "mlp_beta_factor",
    "mlp_dropout", "mlp_multipliers", "mm_tokens_per_image", "model_max_length", "model_type",
    "moe_apply_router_weight_on_input", "moe_capacity", "moe_gate", "moe_jitter_eps",
    "moe_loss_weight", "moe_norm_min", "moe_normalize_expert_weights", "moe_renormalize",
    "moe_routed_scaling_factor", "moe_router_activation_func", "moe_router_dtype",
    "moe_router_enable_expert_bias", "moe_router_logit_softcapping", "moe_router_scaling_factor",
    "moe_router_topk_scaling_factor", "moe_shared_expert_overlap", "moe_use_aux_free",
    "moe_use_aux_free_bias", "mtp_layers_block_type", "mtp_loss_scaling_factor",
    "mtp_transformer_layers", "multimodal_projector_bias", "mup_enabled", "n_ctx", "n_group",
    "n_positions", "no_repeat_ngram_size", "no_rope_layers", "norm_before_gate", "norm_bias",
    "norm_eps", "norm_epsilon", "norm_first", "norm_head", "norm_topk_prob", "num_beam_groups",
    "num_beams", "num_expert_group", "num_hash_layers", "num_labels", "num_logits_to_keep",
    "num_return_sequences", "num_reward_heads", "offset_alibi", "order_of_interleaved_layers",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states",
    "output_multiplier", "output_multiplier_scale", "output_past", "output_router_logits",
    "output_scores", "pad2square", "pad_token_id", "partial_rotary_factor",
    "position_embedding_type", "post_norm_eps", "postnorm", "pre_allocate_kv_cache", "prefix",
    "prefix_lm", "pretraining_tp", "problem_type", "process_image_mode", "projector_bias",
    "projector_hidden_act", "projector_hidden_size", "projector_use_layernorm", "projectors_bias",
    "ps_version", "qk_head_dim", "qk_norm_type", "qk_scale_factor", "query_pre_attn_scalar",
    "remove_invalid_values", "reorder_and_upcast_attn", "repetition_penalty",
    "rescale_prenorm_residual", "resid_pdrop", "residual_dropout", "residual_in_fp32",
    "residual_multiplier", "return_dict", "return_dict_in_generate", "rms_norm_eps",
    "rope_dail_config", "rope_hf_config", "rope_impl", "rope_interleave", "rope_local_base_freq",
    "rope_parameters", "rope_pct", "rope_percent", "rope_scaling", "rope_theta", "rope_type",
    "rotary", "rotary_dim", "rotary_emb_base", "rotary_pct", "route_norm", "route_scale",
    "routed_scaling_factor", "router_aux_loss_coef", "router_bias_update_rate", "router_dtype",
    "router_jitter_noise", "router_logit_softcapping", "router_scaling_factor",
    "runner_max_seq_len", "runner_max_sequence_length", "scalable_attention",
    "scale_attention_softmax_in_fp32", "scale_attn_by_inverse_layer_idx", "scale_attn_weights",
    "scale_decoder_outputs", "scale_depth", "scale_emb", "scale_embedding", "scale_factor",
    "scaling_factor", "score_func", "score_function", "scoring_func", "select_layer",
    "sep_token_id", "seq_aux", "seq_length", "shared_expert_combination_strategy", "skip_bias_add",
    "skip_bias_add_qkv", "slow_but_exact", "softmax_scale", "sparse_pred_ignore_index",
    "sparse_prediction", "spatial_merge_size", "ssm_dtype", "ssm_in_multiplier", "ssm_multipliers",
    "ssm_out_multiplier", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "suppress_tokens", "swa_rope_theta", "swiglu_alpha",
    "task_specific_params", "temperature", "template", "tf_legacy_loss", "theta", "time_step_floor",
    "time_step_init_scheme", "time_step_limit", "time_step_max", "time_step_min", "time_step_rank",
    "time_step_scale", "tokenizer_class", "tokenizer_name", "top_k", "top_p", "topk_group",
    "topk_method", "torch_dtype", "torchscript", "transformers_version", "typical_p",
    "uniform_expert_assignment", "unk_token_id", "use_associative_scan", "use_backbone_lora",
    "use_bfloat16", "use_bidirectional_attention", "use_cache", "use_cache_quantization",
    "use_embedding_sharing", "use_expert_bias", "use_gated_activation", "use_gemma_norm",
    "use_grouped_topk", "use_image_special_tokens", "use_llm_lora", "use_mamba_kernels",
    "use_mambapy", "use_mixed_mlp_moe", "use_mrope", "use_mtp", "use_parallel_embedding",
    "use_pos_enc", "use_return_dict", "use_routing_bias", "use_thumbnail", "use_weighted_layer_sum",
    "validate_runner_input", "verbose", "video_end_token_id", "video_start_token_id",
    "video_token_id", "video_token_index", "vision_aspect_ratio", "vision_end_token_id",
    "vision_feature_layer", "vision_feature_select_strategy", "vision_soft_tokens_per_image",
    "vision_start_token_id", "vision_token_id", "z_loss_coefficient", "zero_expert_type",
})  # fmt: skip


#: Keys that say the same, of which families have one or the other.
_SPELLINGS: Final = (
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
    ("num_key_value_heads", "num_attention_groups"),
    EXPERTS,
    TOPK,
    SHARED,
    EXPERT_WIDTH,
)
_SAME: Final = {name: group for group in _SPELLINGS for name in group}


@dataclass(frozen=True)
class Count:
    """Where a whole number stands in a config: its key, then older spellings of it."""

    names: tuple[str, ...]
    default: int | None = _REQUIRED
    minimum: int = 1
    largest: int = LARGEST


def count_at(*names: str, default: int | None = _REQUIRED, minimum: int = 1) -> Count:
    """A whole number at a key or one of its older spellings."""
    return Count(names, default, minimum)


def layers_at(*names: str, default: int | None = _REQUIRED) -> Count:
    """A number of layers."""
    return Count(names, default, largest=_LARGEST_LAYERS)


def rows_at(*names: str, default: int | None = _REQUIRED) -> Count:
    """A number of rows of a table of embeddings."""
    return Count(names, default, 1, _LARGEST_ROWS)


class Config:
    """One mapping of the file, which remembers the keys it was asked for.

    ``null`` means the same as an absent key, as in the transformers library.
    """

    def __init__(self, raw: object, path: str = "", inherited: Mapping[str, object] | None = None):
        if not isinstance(raw, Mapping):
            name = path.rstrip(".") or "config"
            raise malformed(name, raw, "a mapping (a JSON object)")
        for key in raw:
            if not isinstance(key, str):
                raise malformed(f"{path or 'config '}key", key, "a string")
        self._raw: Mapping[str, object] = raw
        self._path = path
        self._inherited = inherited or {}
        self._used: set[str] = set()

    @property
    def raw(self) -> Mapping[str, object]:
        """The mapping as it was given."""
        return self._raw

    def value(self, *names: str) -> tuple[str, object]:
        """Path and value of the first of `names` that is set; the value is None if none is."""
        found: tuple[str, object] | None = None
        for name in names:
            self._used.add(name)
            value = self._raw.get(name)
            if value is None:
                value = self._inherited.get(name)
            if value is not None and found is None:
                found = (self._path + name, value)
        if found is None:
            for name in _SAME.get(names[0], ()):
                if self._raw.get(name) is not None:
                    self._used.add(name)
                    return self._path + name, self._raw[name]
        return found or (self._path + names[0], None)

    def count(self, spec: Count) -> int | None:
        """The whole number that `spec` describes; its default when absent."""
        name, value = self.value(*spec.names)
        if value is None:
            if spec.default == _REQUIRED:
                legal = f"a whole number from {spec.minimum:,} to {spec.largest:,}"
                raise self._missing(spec.names, legal)
            return spec.default
        legal = f"a whole number from {spec.minimum} to {spec.largest:,}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise malformed(name, value, legal)
        if not spec.minimum <= value <= spec.largest:
            raise malformed(name, value, legal)
        return int(value)

    def number(self, *names: str, default: int, minimum: int = 0) -> int:
        """As `count`, for a key that always has a default."""
        value = self.count(count_at(*names, default=default, minimum=minimum))
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        """True or false; the default when absent."""
        path, value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise malformed(path, value, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A string; without a default it is required."""
        path, value = self.value(name)
        if value is None:
            if default is None:
                raise self._missing((name,), "a string")
            return default
        if not isinstance(value, str):
            raise malformed(path, value, "a string")
        return value

    def items(self, name: str) -> Sequence[object] | None:
        """A list, None when absent."""
        path, value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise malformed(path, value, "a list")
        return value

    def section(self, name: str, *, inherit: Iterable[str] = (), optional: bool = False) -> Config:
        """A nested mapping; `inherit` names keys that fall back to this one's values."""
        path, value = self.value(name)
        inherited = {key: self.value(key)[1] for key in inherit}
        if value is None and not optional:
            raise self._missing((name,), "a table")
        return Config({} if value is None else value, path + ".", inherited)

    def unknown(self) -> list[str]:
        """Keys that were not read and that may change the cost."""
        return [
            self._path + key
            for key, value in self._raw.items()
            if value is not None
            and key not in self._used
            and key not in _COSTLESS
            and not key.startswith("_")
        ]

    def _missing(self, names: tuple[str, ...], legal: str) -> ScaleModelError:
        wanted = " or ".join(f"`{self._path}{name}`" for name in names)
        # A key that configurations have anyway is no slip for another one.
        strange = {
            key
            for key, value in self._raw.items()
            if value is not None and key not in self._used and key not in _COSTLESS
        }
        near = difflib.get_close_matches(names[0], strange, n=1)
        if near:
            hint = f"did you mean `{plain(near[0])}` to be `{names[0]}`?"
        else:
            hint = f"give {legal}, or the config.json of the model as published"
        return ScaleModelError(f"config.json: required key {wanted} is missing; {hint}")


def shown(value: object) -> str:
    """A value as messages show it: short, whatever it is."""
    try:
        return reprlib.repr(value)
    except Exception:  # an integer of thousands of digits, or an object that cannot print itself
        return f"<{type(value).__name__}>"


def malformed(name: str, value: object, legal: str) -> ScaleModelError:
    """The error of a key whose value is not legal."""
    return ScaleModelError(f"config.json: {name} = {shown(value)}; legal is {legal}")
