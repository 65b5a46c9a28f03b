"""A ``config.json`` read with checks; it remembers which keys were asked for."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.base.safe_text import plain

_REQUIRED: Final = -1
LARGEST: Final = 10_000_000
_LARGEST_ROWS: Final = 100_000_000
_LARGEST_LAYERS: Final = 10_000

# Keys that change neither flop nor bytes worth counting: token ids, dropout, initialisation,
# rotary parameters, router arithmetic, training losses, bookkeeping of the library.
_COSTLESS: Final = frozenset({
    "activation_dropout", "activation_function", "alibi_bias_max",
    "apply_residual_connection_post_layernorm", "architectures", "attention_dropout",
    "attention_multiplier", "attention_probs_dropout_prob", "attention_softmax_in_fp32",
    "attn_dropout", "attn_impl", "attn_logit_softcapping", "attn_output_multiplier",
    "attn_pdrop", "attn_scale", "attn_temperature_tuning", "attn_uses_sequence_id", "auto_map",
    "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens", "bias_dropout_fusion",
    "boi_token_id", "boi_token_index", "bos_token_id", "cache_implementation",
    "chunk_size_feed_forward", "classifier_dropout", "clip_qkv", "cross_attention_hidden_size",
    "decoder_start_token_id", "diversity_penalty", "do_layer_norm_before", "do_sample",
    "dropout", "dtype", "early_stopping", "emb_pdrop", "emb_scale", "embd_pdrop",
    "embedding_dropout", "embedding_fraction", "embedding_multiplier",
    "embedding_multiplier_scale", "encoder_no_repeat_ngram_size", "eoi_token_id",
    "eoi_token_index", "eos_token_id", "ep_size", "exponential_decay_length_penalty",
    "ffn_act_fn", "final_logit_softcapping", "finetuning_task", "floor_scale",
    "for_llm_compression", "forced_bos_token_id", "forced_eos_token_id", "fused_cross_entropy",
    "gradient_checkpointing", "hidden_act", "hidden_activation", "hidden_dropout",
    "hidden_dropout_prob", "id2label", "image_token_id", "image_token_index",
    "inference_runner", "init_config", "init_device", "init_std", "initial_context_length",
    "initializer_range", "is_decoder", "is_encoder_decoder", "label2id", "layer_norm_eps",
    "layer_norm_epsilon", "layer_norm_rms_epsilon", "layerdrop", "length_penalty",
    "local_rope_theta", "logit_scale", "logit_softcapping", "logits_scaling",
    "masked_softmax_fusion", "max_attn_value", "max_batch_size", "max_length",
    "max_position_embeddings", "max_seq_len", "max_sequence_length", "min_length",
    "mm_tokens_per_image", "model_max_length", "model_type", "moe_jitter_eps",
    "moe_loss_weight", "moe_normalize_expert_weights", "n_ctx", "n_group", "n_positions",
    "no_repeat_ngram_size", "norm_eps", "norm_epsilon", "norm_topk_prob", "num_beam_groups",
    "num_beams", "num_labels", "num_return_sequences", "offset_alibi",
    "original_max_position_embeddings", "output_attentions", "output_hidden_states",
    "output_multiplier_scale", "output_past", "output_router_logits", "output_scores",
    "pad_token_id", "partial_rotary_factor", "pre_allocate_kv_cache", "prefix", "prefix_lm",
    "pretraining_tp", "problem_type", "query_pre_attn_scalar", "remove_invalid_values",
    "reorder_and_upcast_attn", "repetition_penalty", "resid_pdrop", "residual_multiplier",
    "return_dict", "return_dict_in_generate", "rms_norm_eps", "rope_dail_config",
    "rope_hf_config", "rope_impl", "rope_local_base_freq", "rope_parameters", "rope_pct",
    "rope_percent", "rope_scaling", "rope_theta", "rotary", "rotary_dim", "rotary_emb_base",
    "rotary_pct", "routed_scaling_factor", "router_aux_loss_coef", "router_jitter_noise",
    "runner_max_seq_len", "runner_max_sequence_length", "scale_attention_softmax_in_fp32",
    "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "scoring_func", "sep_token_id",
    "seq_aux", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "slow_but_exact",
    "softmax_scale", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
    "summary_type", "summary_use_proj", "suppress_tokens", "swiglu_limit",
    "task_specific_params", "temperature", "tf_legacy_loss", "tokenizer_class",
    "tokenizer_name", "top_k", "top_p", "topk_group", "topk_method", "torch_dtype",
    "torchscript", "transformers_version", "typical_p", "uniform_expert_assignment",
    "unk_token_id", "use_bfloat16", "use_cache", "use_cache_quantization", "use_mrope",
    "use_return_dict", "validate_runner_input", "verbose", "z_loss_coefficient",
})  # fmt: skip


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


def layers_at(*names: str) -> Count:
    """A number of layers."""
    return Count(names, largest=_LARGEST_LAYERS)


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
