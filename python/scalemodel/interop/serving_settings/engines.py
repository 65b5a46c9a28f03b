"""Options of vLLM, SGLang and TensorRT-LLM as degrees, formats and limits.

Spellings and defaults: the files that the modules of `scalemodel.serving.launch` name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import scalemodel._core as _core
from scalemodel import catalog, resolve
from scalemodel.base.errors import ScaleModelError
from scalemodel.interop.serving_settings.adapters import (
    sglang_adapters,
    tensorrt_adapters,
    vllm_adapters,
)
from scalemodel.interop.serving_settings.drafts import (
    sglang_drafts,
    tensorrt_drafts,
    vllm_drafts,
)
from scalemodel.interop.serving_settings.record import ServingSettings
from scalemodel.interop.serving_settings.words import Options, options_of
from scalemodel.interop.serving_settings.yaml_reader import read_yaml
from scalemodel.resolve import Model
from scalemodel.resolve.engines import engine as engine_constants
from scalemodel.resolve.engines import engine_for, grammar_backends

SHORT: Final[dict[str, dict[str, str]]] = {
    "vllm": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "dcp": "decode_context_parallel_size",
        "pcp": "prefill_context_parallel_size",
        "q": "quantization",
        "n": "nnodes",
        "r": "node_rank",
        "sc": "speculative_config",
        "model_tag": "model",
    },
    "sglang": {
        "model": "model_path",
        "tp": "tp_size",
        "tensor_parallel_size": "tp_size",
        "pp": "pp_size",
        "pipeline_parallel_size": "pp_size",
        "dp": "dp_size",
        "data_parallel_size": "dp_size",
        "ep": "ep_size",
        "expert_parallel_size": "ep_size",
        "attention_context_parallel_size": "attn_cp_size",
        "speculative_algo": "speculative_algorithm",
        "speculative_draft_model": "speculative_draft_model_path",
    },
    "tensorrt_llm": {
        "tensor_parallel_size": "tp_size",
        "pipeline_parallel_size": "pp_size",
        "context_parallel_size": "cp_size",
        "moe_expert_parallel_size": "ep_size",
        "free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction",
        "config": "extra_llm_api_options",
        "extra_engine_args": "extra_llm_api_options",
        "model": "model_path",
    },
}
#: What `--quantization` means, by its value. Formats of a checkpoint are among them.
WEIGHTS: Final = {
    "fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_channel": "fp8",
    "fp8_per_block": "fp8_block",
    "w8a8_fp8": "fp8",
    "modelopt": "fp8",
    "modelopt_fp8": "fp8",
    "modelopt_fp4": "fp4",
    "petit_nvfp4": "fp4",
    "nvfp4_online": "fp4",
    "int8_per_channel_weight_only": "int8",
    "experts_int8": "int8",
    **dict.fromkeys(("awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin"), "int4"),
    **dict.fromkeys(("moe_wna16", "marlin"), "int4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4", "quark_mxfp4"), "mxfp4"),
}
CACHE: Final = {
    "auto": "",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "float16": "fp16",
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla"), "fp8"),
    **dict.fromkeys(("nvfp4", "fp4_mx_block16", "fp4_e2m1"), "fp4"),
}
_COMPILED: Final = {
    "fp8": "fp8",
    "fp8_block_scales": "fp8_block",
    "nvfp4": "fp4",
    "w8a16": "int8",
    "w4a16_awq": "int4",
    "w4a16_gptq": "int4",
}
_STORED: Final = re.compile(r"[-_](fp8|nvfp4|fp4|mxfp4|awq|gptq|int4|int8|w4a16)(?=[-_.]|$)", re.I)
_IN_NAME: Final = {"nvfp4": "fp4", "awq": "int4", "gptq": "int4", "w4a16": "int4"}
_MOST_DRAFTS: Final = 64
#: Options that change nothing of what is predicted.
_SILENT: Final = frozenset(
    (
        "host",
        "port",
        "served_model_name",
        "trust_remote_code",
        "nnodes",
        "node_rank",
        "headless",
        "master_addr",
        "master_port",
        "dist_init_addr",
        "data_parallel_size_local",
        "data_parallel_address",
        "data_parallel_rpc_port",
        "data_parallel_start_rank",
        "gpus_per_node",
        "backend",
        "enable_dp_lm_head",
        "moe_dense_tp_size",
        "log_level",
        "disaggregation_transfer_backend",
        "disaggregation_bootstrap_port",
        "disaggregation_mode",
        "tokenizer",
        "is_prefill_worker",
        "is_decode_worker",
        "enable_prefill_cp",
        "cp_strategy",
        "deepep_mode",
        "moe_a2a_backend",
        "skip_tokenizer_init",
    )
)


def model_of(hub: str) -> Model | None:
    """The model of the catalogue that an id, or one of a checkpoint stored otherwise, names.

    Examples
    --------
    >>> model_of("nvidia/DeepSeek-R1-0528-FP4-v2").name, model_of("someone/unknown-model")
    ('deepseek_v3', None)
    """
    tail = hub.rstrip("/").rsplit("/", 1)[-1]
    stored = _STORED.search(tail)
    for label in (hub, tail, tail[: stored.start()] if stored else ""):
        try:
            # Neither files nor repositories that a command of a stranger names are opened.
            if label and catalog.is_entry("models", label):
                return resolve.model(label)
        except ScaleModelError:
            continue
    return None


def stored_format(hub: str, model: Model | None) -> str:
    """Format of the weights of a checkpoint, by its name or by the catalogue; empty: 16 bits.

    Examples
    --------
    >>> stored_format("nvidia/Llama-3.1-8B-Instruct-NVFP4", None), stored_format("a/b", None)
    ('fp4', '')
    """
    found = _STORED.search(hub)
    if found:
        name = found[1].lower()
        return _IN_NAME.get(name, name)
    return model.checkpoint if model is not None else ""


class Reading:
    """An instance as it is read: options, notes, and the record that they make."""

    def __init__(self, options: Options, framework: str, engine: str, hub: str) -> None:
        if not hub:
            raise ScaleModelError(
                f"{framework}: no model is named; the id or path of one is missing",
                code="missing_setting",
            )
        self.options, self.framework, self.hub = options, framework, hub
        self.engine = engine_for(engine or framework.replace("_", "-"))
        self.model = model_of(hub)
        self.notes: list[str] = []

    def degree(self, *names: str) -> int:
        """A degree; 1 where it is not set."""
        return self.options.count(*names) or 1

    def _choice(self, name: str, value: str, legal: Mapping[str, str]) -> str:
        if value.lower() not in legal:
            raise ScaleModelError(
                f"{self.framework}: {name}={value!r}: must be one of {', '.join(legal)}",
                code="malformed_setting",
            )
        return legal[value.lower()]

    def weights(self) -> str:
        """Format of the weights that ``--quantization`` or the checkpoint gives."""
        wide = "fp16" if self.options.text("dtype").lower() in ("half", "float16") else "bf16"
        if self.options.text("torchao_config").startswith("int8wo"):
            return "int8"
        method = self.options.text("quantization")
        if method:
            return self._choice("quantization", method, WEIGHTS)
        return stored_format(self.hub, self.model) or wide

    def cache(self, value: str, weights: str) -> str:
        """Format of the cache; ``auto`` is that of activations."""
        found = self._choice("kv_cache_dtype", value or "auto", CACHE)
        return found or ("fp16" if weights == "fp16" else "bf16")

    def number(self, name: str, value: object, most: float) -> float | None:
        """A number from 0 within a table; None where it is not set."""
        if value is None or value == "":
            return None
        try:
            number = float(str(value))
        except ValueError:
            number = -1.0
        if not 0 <= number <= most:
            raise ScaleModelError(
                f"{self.framework}: {name}={value!r}: must be a number from 0 to {most:g}",
                code="malformed_setting",
            )
        return number

    def grammars(self, name: str, value: str) -> str:
        """Backend of guided decoding, by our name of it; empty: the engine's default."""
        names = {own: ours for ours, own in grammar_backends(self.engine).items()}
        if value not in ("", "auto", "none", *names):
            self.notes.append(f"{name} {value}: predicted with the default of {self.engine}")
        return names.get(value, "")

    def drafts(self, name: str, value: object) -> int:
        """Tokens that are proposed per step."""
        return int(self.number(name, value, _MOST_DRAFTS) or 0)

    def fixed(self, name: str, value: object, own: float) -> None:
        """Note an option that the prediction takes from the engine's entry instead."""
        given = self.number(name, value, 1e9)
        if given is not None and abs(given - own) > 1e-9:
            self.notes.append(f"{name} {given:g}: predicted with {own:g} of {self.engine}")

    def record(self, layout: Mapping[str, Any], **known: Any) -> ServingSettings:
        """The settings of one instance."""
        self.options.asked |= _SILENT
        return ServingSettings(
            framework=self.framework,
            engine=self.engine,
            hub=self.hub,
            model=self.model,
            layout=_core.ServingLayout(**layout),
            notes=tuple(self.notes),
            unread=self.options.unread(),
            **known,
        )


def _json(options: Options, name: str) -> dict[str, Any]:
    text = options.text(name)
    if not text:
        # Engines also take the parts of such a table one by one.
        parts = {k: v for k, v in options.values.items() if k.startswith(f"{name}.")}
        options.asked |= set(parts)
        return {key.split(".", 1)[1]: value for key, value in parts.items()}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ScaleModelError(
            f"{options.framework}: {name}={text!r}: must be JSON ({error})",
            code="malformed_setting",
        ) from None
    if not isinstance(found, dict):
        raise ScaleModelError(
            f"{options.framework}: {name}={text!r}: must be a JSON table", code="malformed_setting"
        )
    return found


def _context(options: Options) -> int | None:
    """Tokens of a request; None where the engine finds out by itself."""
    if options.text("max_model_len") in ("auto", "-1"):
        return None
    return options.count("max_model_len")


def read_vllm(words: tuple[str, ...], engine: str, **known: Any) -> ServingSettings:
    """An instance of vLLM."""
    options = options_of(words, "vllm", SHORT["vllm"])
    hub = options.positional[0] if options.positional else options.text("model")
    reading = Reading(options, "vllm", engine, hub)
    constants = engine_constants(reading.engine)
    tp, pp = reading.degree("tensor_parallel_size"), reading.degree("pipeline_parallel_size")
    dp, cp = reading.degree("data_parallel_size"), reading.degree("prefill_context_parallel_size")
    if reading.degree("decode_context_parallel_size") > 1:
        reading.notes.append("decode_context_parallel_size: tensor ranks keep whole contexts here")
    options.asked.add("model")
    routed = reading.model is None or reading.model.shape.experts > 0
    wide = options.switch("enable_expert_parallel") and routed
    weights = reading.weights()
    drafts = _json(options, "speculative_config")
    transfer = _json(options, "kv_transfer_config")
    # An option of its own up to 0.11.
    former = options.text("guided_decoding_backend")
    backend = str(_json(options, "structured_outputs_config").get("backend", former))
    roles = {"kv_producer": "prefill", "kv_consumer": "decode"}
    known["role"] = known.get("role") or roles.get(str(transfer.get("kv_role")), "")
    running = options.count("max_num_seqs")
    tokens = options.count("max_num_batched_tokens")
    if not options.switch("enable_chunked_prefill", default=True):
        reading.notes.append("enable_chunked_prefill is off: predicted with prompts in chunks")
    reading.fixed(
        "gpu_memory_utilization", options.share("gpu_memory_utilization"), constants.memory_fraction
    )
    block = options.count("block_size")
    reading.fixed("block_size", block, constants.block_tokens)
    return reading.record(
        {
            **{"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": tp * dp * cp if wide else 1},
            "encoder_data_parallel": options.text("mm_encoder_tp_mode") == "data",
        },
        precision=weights,
        kv_precision=reading.cache(options.text("kv_cache_dtype"), weights),
        **vllm_drafts(reading, drafts, tp),
        **vllm_adapters(reading),
        grammar_backend=reading.grammars("structured_outputs_config", backend),
        prefix_caching=options.switch("enable_prefix_caching", default=True),
        max_running_sequences=None if running is None else running * dp,
        max_batched_tokens=None if tokens is None else tokens * dp,
        context_tokens=_context(options),
        limit_parts=dp,
        **known,
    )


def read_sglang(words: tuple[str, ...], engine: str, **known: Any) -> ServingSettings:
    """An instance of SGLang."""
    options = options_of(words, "sglang", SHORT["sglang"])
    reading = Reading(options, "sglang", engine, options.text("model_path"))
    constants = engine_constants(reading.engine)
    ranks, pp = reading.degree("tp_size"), reading.degree("pp_size")
    dp, cp, ep = (
        reading.degree("dp_size"),
        reading.degree("attn_cp_size"),
        reading.degree("ep_size"),
    )
    shared = options.switch("enable_dp_attention") and dp > 1
    parts = cp * (dp if shared else 1)
    if ranks % parts:
        raise ScaleModelError(
            f"sglang: tp_size={ranks}: must be a multiple of {parts} data and context ranks",
            code="malformed_setting",
        )
    if options.text("moe_a2a_backend") in ("deepep", "mooncake"):
        ep = ranks  # The engine spreads experts over all ranks for these.
    weights = reading.weights()
    copies = 1 if shared else dp
    tokens = options.count("chunked_prefill_size", least=-1)
    running = options.count("max_running_requests")
    if tokens == -1:
        reading.notes.append("chunked_prefill_size -1: predicted with prompts in chunks")
        tokens = None
    if options.switch("enable_mixed_chunk") != constants.mixed_batches:
        reading.notes.append("enable_mixed_chunk: predicted as the engine does by itself")
    reading.fixed(
        "mem_fraction_static", options.share("mem_fraction_static"), constants.memory_fraction
    )
    reading.fixed("page_size", options.count("page_size"), constants.block_tokens)
    options.asked |= {"enable_eplb"}
    if options.values.get("attention_backend") == "flashmla":
        options.asked |= {"attention_backend"}  # As predicted, and as the launcher writes it.
    balanced = {
        "redundant_experts": options.count("ep_num_redundant_experts", least=0) or 0,
        "two_batch_overlap": options.switch("enable_two_batch_overlap"),
        "single_batch_overlap": options.switch("enable_single_batch_overlap"),
        "encoder_data_parallel": options.switch("mm_enable_dp_encoder"),
    }
    role = options.text("disaggregation_mode")
    known["role"] = known.get("role") or ("" if role == "null" else role)
    return reading.record(
        {"tp": ranks // parts, "pp": pp, "dp": dp, "cp": cp, "ep": ep, **balanced},
        precision=weights,
        kv_precision=reading.cache(options.text("kv_cache_dtype"), weights),
        **sglang_drafts(reading),
        **sglang_adapters(reading),
        grammar_backend=reading.grammars("grammar_backend", options.text("grammar_backend")),
        prefix_caching=not options.switch("disable_radix_cache"),
        max_running_sequences=None if running is None else running * copies,
        max_batched_tokens=None if tokens is None else tokens * copies,
        context_tokens=options.count("context_length"),
        limit_parts=copies,
        **known,
    )


def _engine_file(
    options: Options, files: Mapping[str, str], notes: list[str], table: dict[str, Any]
) -> None:
    """Read the options file of TensorRT-LLM; what it says counts more than the command line."""
    name = options.text("extra_llm_api_options")
    if not name:
        return
    text = files.get(name, files.get(name.rsplit("/", 1)[-1]))
    if text is None:
        notes.append(f"{name}: not given; pass its text by name in files")
        return
    read = read_yaml(text, f"tensorrt_llm: {name}")
    if not isinstance(read, dict):
        raise ScaleModelError(
            f"tensorrt_llm: {name}: must hold a table, not {type(read).__name__}",
            code="malformed_setting",
        )
    table.update(read)
    for key, value in read.items():
        if isinstance(value, (int, float, str)):
            spelled = SHORT["tensorrt_llm"].get(str(key), str(key))
            options.values[spelled] = value if value is True else str(value)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name) or {}
    if not isinstance(found, Mapping):
        raise ScaleModelError(
            f"tensorrt_llm: {name}={found!r}: must be a table", code="malformed_setting"
        )
    return found


def read_tensorrt_llm(
    words: tuple[str, ...], engine: str, files: Mapping[str, str], **known: Any
) -> ServingSettings:
    """An instance of TensorRT-LLM, with its options file."""
    options = options_of(words, "tensorrt_llm", SHORT["tensorrt_llm"])
    hub = options.positional[0] if options.positional else options.text("model_path")
    reading = Reading(options, "tensorrt_llm", engine, hub)
    table: dict[str, Any] = {}
    _engine_file(options, files, reading.notes, table)
    constants = engine_constants(reading.engine)
    ranks, pp = reading.degree("tp_size"), reading.degree("pp_size")
    cp, ep = reading.degree("cp_size"), reading.degree("ep_size")
    shared = options.switch("enable_attention_dp")
    tp, dp = (1, ranks) if shared else (ranks, 1)
    cache, quantised = _table(table, "kv_cache_config"), _table(table, "quant_config")
    algorithm = str(quantised.get("quant_algo", "")).lower()
    weights = _COMPILED.get(algorithm) or reading.weights()
    stored = str(cache.get("dtype", options.text("kv_cache_dtype")))
    if str(quantised.get("kv_cache_quant_algo", "")).lower() == "fp8":
        stored = "fp8"
    fraction = cache.get("free_gpu_memory_fraction")
    if fraction is None:
        fraction = options.share("kv_cache_free_gpu_memory_fraction")
    reading.fixed("free_gpu_memory_fraction", fraction, constants.memory_fraction)
    reading.fixed("tokens_per_block", cache.get("tokens_per_block"), constants.block_tokens)
    if options.switch("enable_chunked_prefill") != constants.chunked_prefill:
        reading.notes.append("enable_chunked_prefill: predicted as the engine does by itself")
    drafts = _table(table, "speculative_config")
    parts = dp * pp
    running, tokens = options.count("max_batch_size"), options.count("max_num_tokens")
    options.asked |= {"max_seq_len", "model_path", "disable_overlap_scheduler"}
    # Of models with an encoder: a kernel, a scheduler, and the longest source.
    options.asked |= {"attn_backend", "scheduler_config", "max_input_len"}
    return reading.record(
        {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "ep": ep},
        precision=weights,
        kv_precision=reading.cache(stored, weights),
        **tensorrt_drafts(reading, drafts),
        **tensorrt_adapters(reading, _table(table, "lora_config")),
        grammar_backend=reading.grammars(
            "guided_decoding_backend", options.text("guided_decoding_backend")
        ),
        prefix_caching=bool(cache.get("enable_block_reuse", True)),
        max_running_sequences=None if running is None else running * parts,
        max_batched_tokens=None if tokens is None else tokens * parts,
        context_tokens=options.count("max_seq_len"),
        limit_parts=parts,
        **known,
    )


Reader = Callable[..., ServingSettings]


def read_server(
    framework: str,
    words: tuple[str, ...],
    *,
    engine: str = "",
    files: Mapping[str, str] | None = None,
    **known: Any,
) -> ServingSettings:
    """An instance by the words behind its program."""
    if framework == "tensorrt_llm":
        return read_tensorrt_llm(words, engine, files or {}, **known)
    reader: Reader = {"vllm": read_vllm, "sglang": read_sglang}[framework]
    return reader(words, engine, **known)
