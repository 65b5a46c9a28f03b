"""Commands of vLLM.

Options as ``vllm/engine/arg_utils.py`` and ``vllm/entrypoints/openai/cli_args.py`` of 0.24.0 define
them; 0.32.0 has the same ones. Every limit is one of a data-parallel rank. Formats of weights and
of the cache: ``vllm/model_executor/layers/quantization/__init__.py`` and ``vllm/config/cache.py``.
Servers of one phase: ``docs/features/nixl_connector_usage.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import scalemodel._core as _core
from scalemodel.serving.launch import below
from scalemodel.serving.launch.instance import (
    HEAD,
    Instance,
    Start,
    Variable,
    adapter_slots,
    share,
    weight_options,
)

RELEASE: Final = "0.24.0"
#: Option of weights that the engine narrows itself, by their format.
ONLINE: Final = {
    "fp8": "fp8",
    "fp8_block": "fp8_per_block",
    "int8": "int8_per_channel_weight_only",
}
CACHE: Final = {"bf16": "bfloat16", "fp16": "float16", "fp8": "fp8", "fp4": "nvfp4"}
_RPC_PORT: Final = "13345"
#: Of the two servers that pass the cache on, so that both can run on one host.
PORTS: Final = {"prefill": "8100", "decode": "8200"}
SIDE_PORTS: Final = {"prefill": "5600", "decode": "5700"}
_CONNECTOR: Final = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def parallel(instance: Instance, notes: list[str]) -> list[str]:
    """Degrees of an instance."""
    layout = instance.plan.layout
    words = ["--tensor-parallel-size", str(layout.tp)]
    if layout.pp > 1:
        words += ["--pipeline-parallel-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--data-parallel-size", str(layout.dp)]
    if layout.cp > 1:
        words += ["--prefill-context-parallel-size", str(layout.cp)]
        notes.append("prompts sharded over ranks: not every attention backend of vLLM can")
    stage = layout.tp * layout.dp * layout.cp
    if layout.ep > 1:
        words.append("--enable-expert-parallel")
    if layout.redundant_experts:
        balance = json.dumps({"num_redundant_experts": layout.redundant_experts})
        words += ["--enable-eplb", "--eplb-config", balance]
    if layout.two_batch_overlap:
        words.append("--enable-dbo")
    if layout.ep not in (1, stage):
        notes.append(
            f"experts over ep={layout.ep} of {stage} ranks: vLLM spreads them over all {stage}"
        )
    return words


def _formats(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    words = weight_options(instance, ONLINE, notes)
    same = task.kv_precision == ("fp16" if task.precision == "fp16" else "bf16")
    return [*words, "--kv-cache-dtype", "auto" if same else CACHE[task.kv_precision]]


def _drafts(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    count = int(task.speculative_tokens)
    if not count:
        return []
    draft: dict[str, object] = {"method": "mtp", "num_speculative_tokens": count}
    if instance.drafting_model:
        draft = {"method": "draft_model", "model": instance.drafting_model}
        draft["num_speculative_tokens"] = count
        draft["draft_tensor_parallel_size"] = int(task.draft_tp or instance.plan.layout.tp)
        notes.append("drafts of a model of its own: from vLLM 0.15 on")
    elif not instance.drafts_itself:
        draft = {"method": "eagle3", "model": "DRAFT_MODEL", "num_speculative_tokens": count}
        notes.append("DRAFT_MODEL stands for the checkpoint of the draft layer")
    if task.draft_width > 1:
        paths = [list(path) for path in _core.draft_paths(task.mix)]
        draft["num_speculative_tokens"] = len(paths)
        draft["speculative_token_tree"] = str([tuple(path) for path in paths])
        notes.append("speculative_token_tree: vLLM verifies trees with its TREE_ATTN backend alone")
    if task.adaptive_drafts:
        notes.append("adaptive_drafts: vLLM drafts as many tokens at every load")
    return ["--speculative-config", json.dumps(draft)]


#: Ranks that the engine has kernels of (``MaxLoRARanks`` in ``vllm/config/lora.py``).
_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def _adapters(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    if not task.adapters:
        return []
    rank = next((rank for rank in _RANKS if rank >= task.adapter_rank), _RANKS[-1])
    if rank != task.adapter_rank:
        notes.append(f"--max-lora-rank {rank}: vLLM has no kernels of rank {task.adapter_rank}")
    notes.append("--lora-modules NAME=PATH ... names the adapters")
    slots = adapter_slots(task)
    words = ["--enable-lora", "--max-loras", str(slots), "--max-lora-rank", str(rank)]
    return [*words, "--max-cpu-loras", str(max(slots, task.adapters))]  # no fewer than slots


def options(instance: Instance, notes: list[str]) -> list[str]:
    """Limits, formats and caches of an instance."""
    constants, layout = instance.constants, instance.plan.layout
    running = share(instance.running, layout.dp, "--max-num-seqs", notes)
    tokens = share(instance.tokens, layout.dp, "--max-num-batched-tokens", notes)
    if running > tokens:
        # The engine refuses a step with room for more sequences than tokens.
        notes.append(f"--max-num-seqs {running} is cut to the {tokens} tokens of a step")
        running = tokens
    words = ["--max-model-len", str(instance.length), "--max-num-seqs", str(running)]
    words += ["--max-num-batched-tokens", str(tokens)]
    # A source is encoded at once, for a whole prompt (``vllm/config/vllm.py``, is_encoder_decoder).
    chunks = constants.chunked_prefill and not instance.hears
    words.append("--enable-chunked-prefill" if chunks else "--no-enable-chunked-prefill")
    words += ["--gpu-memory-utilization", f"{constants.memory_fraction:g}"]
    if not instance.latent:
        words += ["--block-size", str(constants.block_tokens)]
    words += _formats(instance, notes)
    words += _drafts(instance, notes)
    words += _adapters(instance, notes)
    if instance.grammar_backend:
        backend = json.dumps({"backend": instance.grammar_backend})
        words += ["--structured-outputs-config", backend]
    words.append(
        "--enable-prefix-caching" if instance.prefix_caching else "--no-enable-prefix-caching"
    )
    words += below.vllm_options(instance, notes)
    if instance.hears:
        words += ["--limit-mm-per-prompt", json.dumps({"audio": 1})]
    if instance.images:
        words += ["--limit-mm-per-prompt", json.dumps({instance.medium: instance.images})]
        if instance.plan.layout.encoder_data_parallel:
            words += ["--mm-encoder-tp-mode", "data"]
    if instance.role:
        words += ["--kv-transfer-config", json.dumps(_CONNECTOR)]
    return words


def _node(instance: Instance, node: int) -> list[str]:
    """Words that tell a node of several its place."""
    layout = instance.plan.layout
    rank = layout.tp * layout.pp * layout.cp
    if layout.dp > 1 and instance.per_node % rank == 0:
        local = instance.per_node // rank
        words = ["--data-parallel-size-local", str(local)]
        words += ["--data-parallel-address", Variable(HEAD)]
        words += ["--data-parallel-rpc-port", _RPC_PORT]
        return words + (
            ["--data-parallel-start-rank", str(node * local), "--headless"] if node else []
        )
    words = ["--nnodes", str(instance.nodes), "--node-rank", str(node)]
    return [*words, "--master-addr", Variable(HEAD), *(["--headless"] if node else [])]


def start(instance: Instance) -> Start:
    """The commands of an instance, one for each of its nodes."""
    notes = instance.notes()
    words = ["vllm", "serve", instance.model]
    words += [*parallel(instance, notes), *options(instance, notes)]
    environment = {}
    if instance.role:
        words += ["--port", PORTS[instance.role]]
        environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] = SIDE_PORTS[instance.role]
        notes.append("VLLM_NIXL_SIDE_CHANNEL_HOST must be an address the other pool reaches")
    nodes = [
        (*words, *(_node(instance, node) if instance.nodes > 1 else []))
        for node in range(instance.nodes)
    ]
    return Start(tuple(nodes), environment, {}, tuple(notes))


def router(prefill: int, decode: int) -> tuple[str, ...]:
    """Command of the router before pools of this number of instances, on hosts of their own."""
    words = ["vllm-router", "--vllm-pd-disaggregation"]
    for role, count in (("prefill", prefill), ("decode", decode)):
        for number in range(count):
            words += [f"--{role}", f"http://{role}-{number}:{PORTS[role]}"]
    return (*words, "--host", "0.0.0.0", "--port", "8000")


def replica_router(hosts: Sequence[str], policy: str) -> tuple[str, ...]:
    """Command of the router before replicas on these hosts."""
    urls = [f"http://{host}:8000" for host in hosts]
    words = ("vllm-router", "--worker-urls", *urls, "--policy", policy)
    return (*words, "--host", "0.0.0.0", "--port", "8000")
