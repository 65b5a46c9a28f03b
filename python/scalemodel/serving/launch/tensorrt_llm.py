"""Commands of TensorRT-LLM.

Options as ``tensorrt_llm/commands/serve.py`` of 1.2 and 1.3 defines them, and keys of the options
file as ``tensorrt_llm/llmapi/llm_args.py`` does. A table of the file takes the place of the one
that the command line makes (``update_llm_args_with_extra_dict``), so all of the cache stands in the
file. Limits are of one rank under attention data parallelism, and of one part of a batch where
stages form a pipeline (``_torch/pyexecutor/_util.py``).
"""

from __future__ import annotations

import math
from typing import Any, Final

from scalemodel.base.errors import ScaleModelError
from scalemodel.serving.launch import below
from scalemodel.serving.launch.instance import (
    Instance,
    Start,
    adapter_slots,
    runs_as_stored,
    share,
)
from scalemodel.serving.launch.yaml_text import yaml_text

RELEASE: Final = "1.2"
OPTIONS: Final = "options.yaml"
#: Keys of ``quant_config`` for engines that are compiled; the other backend asks the checkpoint.
COMPILED: Final = {
    "fp8": "FP8",
    "fp8_block": "FP8_BLOCK_SCALES",
    "fp4": "NVFP4",
    "int8": "W8A16",
    "int4": "W4A16_AWQ",
}
CACHE: Final = {"fp8": "fp8", "fp4": "nvfp4"}
CACHE_COMPILED: Final = {"fp8": "FP8"}
_ATTENTION: Final = ("attn_q", "attn_k", "attn_v", "attn_dense")
_TARGETS: Final = {
    "attention": _ATTENTION,
    "all": (*_ATTENTION, "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
}
PORTS: Final = {"prefill": "8001", "decode": "8002"}


def is_compiled(engine: str) -> bool:
    """Whether the version of the engine compiles models before it serves them."""
    return "pytorch" not in engine


def parallel(instance: Instance, notes: list[str]) -> list[str]:
    """Degrees of an instance."""
    layout = instance.plan.layout
    words = ["--tp_size", str(layout.tp * layout.dp), "--pp_size", str(layout.pp)]
    if layout.cp > 1:
        words += ["--cp_size", str(layout.cp)]
        notes.append("prompts sharded over ranks: cp_config must name the kind for the model")
    if layout.ep > 1:
        words += ["--ep_size", str(layout.ep)]
    if layout.dp > 1 and layout.tp > 1:
        notes.append(
            f"tp={layout.tp} dp={layout.dp}: attention data parallelism of TensorRT-LLM gives each "
            f"of the {layout.tp * layout.dp} ranks a whole attention"
        )
    return words


def limits(instance: Instance, notes: list[str]) -> list[str]:
    """Sequences and tokens of a rank's step."""
    layout = instance.plan.layout
    parts = layout.dp * layout.pp
    running = share(instance.running, parts, "--max_batch_size", notes)
    tokens = share(instance.tokens, parts, "--max_num_tokens", notes)
    longest = math.ceil(instance.plan.task.input_tokens)
    chunked = instance.constants.chunked_prefill and not instance.encodes
    if instance.encodes:
        longest = math.ceil(instance.plan.task.source_tokens)
    if not chunked and tokens < longest:
        notes.append(f"--max_num_tokens {tokens} is raised to {longest}, the length of a prompt")
        tokens = longest
    if instance.images:
        notes.append(
            f"images: TensorRT-LLM has no limit of them to set, {instance.images} a prompt"
        )
    if instance.images and layout.encoder_data_parallel:
        notes.append("encoder_data_parallel: TensorRT-LLM shards the vision tower")
    words = ["--max_seq_len", str(instance.length), "--max_batch_size", str(running)]
    words += ["--max_num_tokens", str(tokens)]
    if chunked:
        words.append("--enable_chunked_prefill")
    return words


def _sources(instance: Instance, notes: list[str]) -> dict[str, Any]:
    """Keys of the cache of a model whose layers attend to an encoded source.

    The cache is divided once, between sources and what is generated after them, and a source is
    encoded whole (docs/source/models/encoder-decoder.md).
    """
    task, layout = instance.plan.task, instance.plan.layout
    for name, value in (("pp", layout.pp), ("cp", layout.cp), ("dp", layout.dp)):
        if value > 1:
            raise ScaleModelError(
                f"{name}={value}: TensorRT-LLM runs a model with an encoder on tensor ranks alone"
            )
    notes.append("models with an encoder: the PyTorch backend of TensorRT-LLM as of 2026")
    source, own = task.source_tokens, task.input_tokens + task.output_tokens
    return {"cross_kv_cache_fraction": round(source / (source + own), 4)}


def _weights(instance: Instance, notes: list[str]) -> dict[str, Any]:
    task, model = instance.plan.task, instance.plan.model
    if task.precision == "fp16":
        return {"dtype": "float16"}
    if is_compiled(instance.plan.engine) and task.precision in COMPILED:
        return {"quant_config": {"quant_algo": COMPILED[task.precision]}}
    if model.checkpoint and model.checkpoint != task.precision:
        runs_as_stored(instance, notes)
    elif (model.checkpoint or "bf16") != task.precision:
        notes.append(
            f"weights in {task.precision}: trtllm-serve asks the checkpoint: one stored so must "
            f"take the place of {instance.model}"
        )
    return {}


def options_table(instance: Instance, notes: list[str]) -> dict[str, Any]:
    """Contents of the options file."""
    task, constants = instance.plan.task, instance.constants
    cache: dict[str, Any] = {"free_gpu_memory_fraction": float(constants.memory_fraction)}
    weights = _weights(instance, notes)
    compiled = is_compiled(instance.plan.engine)
    same = task.kv_precision == ("fp16" if task.precision == "fp16" else "bf16")
    known = same or task.kv_precision in (CACHE_COMPILED if compiled else CACHE)
    if not known:
        notes.append(
            f"a cache in {task.kv_precision} beside weights in {task.precision}: no option"
        )
    if not compiled:
        cache["tokens_per_block"] = int(constants.block_tokens)
        cache["dtype"] = CACHE.get(task.kv_precision, "auto")
    elif known and not same:
        quantised = weights.get("quant_config", {})
        quantised = quantised | {"kv_cache_quant_algo": CACHE_COMPILED[task.kv_precision]}
        weights["quant_config"] = quantised
    cache["enable_block_reuse"] = instance.prefix_caching and not instance.encodes
    if instance.encodes:
        cache |= _sources(instance, notes)
    table: dict[str, Any] = {}
    if instance.plan.layout.dp > 1:
        table["enable_attention_dp"] = True
    table |= {"kv_cache_config": cache, **weights}
    if instance.encodes:
        # Relative positions of T5 need this kernel, and so do tensor ranks.
        table |= {"attn_backend": "TRTLLM", "max_input_len": math.ceil(task.source_tokens)}
        table["scheduler_config"] = {"use_python_scheduler": True}
    if task.speculative_tokens:
        count = int(task.speculative_tokens)
        draft: dict[str, Any]
        if instance.drafting_model:
            draft = {"decoding_type": "DraftTarget", "max_draft_len": count}
            draft["speculative_model_dir"] = instance.drafting_model
            if task.draft_tp not in (0, instance.plan.layout.tp):
                notes.append(
                    f"draft_tp={task.draft_tp}: TensorRT-LLM splits the draft over the ranks of "
                    "the model"
                )
        elif instance.drafts_itself:
            draft = {"decoding_type": "MTP", "num_nextn_predict_layers": count}
        else:
            draft = {"decoding_type": "Eagle", "max_draft_len": count}
            draft["speculative_model_dir"] = "DRAFT_MODEL"
            notes.append("DRAFT_MODEL stands for the checkpoint of the draft layer")
        if task.draft_width > 1:
            notes.append("draft_width: the file asks for a chain of drafts")
        if task.adaptive_drafts:
            notes.append("adaptive_drafts: the file drafts as many tokens at every load")
        table["speculative_config"] = draft
    if task.adapters:
        table["lora_config"] = {
            "max_lora_rank": int(task.adapter_rank),
            "max_loras": adapter_slots(task),
            "max_cpu_loras": max(int(task.adapters), adapter_slots(task)),
            "lora_target_modules": list(_TARGETS[task.adapter_targets]),
        }
    if instance.grammar_backend:
        table["guided_decoding_backend"] = instance.grammar_backend
    if instance.role:
        longest = math.ceil(instance.plan.task.input_tokens)
        table["cache_transceiver_config"] = {
            "backend": "DEFAULT",
            "max_tokens_in_buffer": longest,
        }
    if instance.role == "prefill":
        # A server of prompts alone has no next step to prepare while one runs.
        table["disable_overlap_scheduler"] = True
    return table


def start(instance: Instance) -> Start:
    """The command of an instance; a launcher of processes starts it on several nodes."""
    notes = instance.notes()
    below.no_options(instance, notes)
    name = f"{instance.role}_{OPTIONS}" if instance.role else OPTIONS
    words = ["trtllm-serve", instance.model]
    if not is_compiled(instance.plan.engine):
        words += ["--backend", "pytorch"]
    words += [*parallel(instance, notes), *limits(instance, notes)]
    words += ["--extra_llm_api_options", name]
    if instance.role:
        words += ["--host", "0.0.0.0", "--port", PORTS[instance.role]]
    if instance.nodes > 1:
        before = ["srun", "--mpi", "pmix", "--nodes", str(instance.nodes)]
        before += ["--ntasks", str(instance.ranks), "--ntasks-per-node", str(instance.per_node)]
        words = [*before, "trtllm-llmapi-launch", *words, "--gpus_per_node", str(instance.per_node)]
    files = {name: yaml_text(options_table(instance, notes))}
    return Start((tuple(words),), {}, files, tuple(notes))


def pools(prefill: int, decode: int) -> dict[str, Any]:
    """Contents of the file that ``trtllm-serve disaggregated`` reads."""

    def servers(role: str, count: int) -> dict[str, Any]:
        urls = [f"{role}-{number}:{PORTS[role]}" for number in range(count)]
        return {"num_instances": count, "urls": urls}

    return {
        "hostname": "0.0.0.0",
        "port": 8000,
        "backend": "pytorch",
        "context_servers": servers("prefill", prefill),
        "generation_servers": servers("decode", decode),
    }
