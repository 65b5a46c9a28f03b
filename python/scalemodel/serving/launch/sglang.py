"""Commands of SGLang.

Options as ``python/sglang/srt/server_args.py`` of 0.5.23 defines them. Limits are of the whole
server and divided by its data-parallel ranks under attention data parallelism
(``_handle_data_parallelism``); ``--tp-size`` counts all ranks of a stage then. Servers of one
phase: ``docs/advanced_features/pd_disaggregation.md``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from scalemodel.resolve.serving_kernels import (
    KernelChoice,
    kernels_lender,
    reads_latent_narrow,
)
from scalemodel.serving.launch import below
from scalemodel.serving.launch.instance import (
    HEAD,
    Instance,
    Start,
    Variable,
    adapter_slots,
    share,
    stored_as,
    weight_options,
)

RELEASE: Final = "0.5.23"
ONLINE: Final = {"fp8": "fp8", "fp8_block": "fp8"}
#: Four bits with a scale for 16 values: NVFP4's recipe is for Blackwell alone (kv_cache_hook.py).
CACHE: Final = {"bf16": "bfloat16", "fp8": "fp8_e4m3", "fp4": "fp4_mx_block16"}
#: Weights of 8 bits and products of 16: only as a checkpoint holds them (torchao's option is gone).
INT8: Final = ("--quantization", "gptq_marlin")
_INIT_PORT: Final = 5000
PORTS: Final = {"prefill": "30000", "decode": "30100"}
BOOTSTRAP_PORT: Final = "8998"
_DISPATCHED: Final = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
#: Default of the variable above.
_LEAST_DISPATCHED: Final = 128


#: Of latents in 8 bits on Hopper: its kernels multiply them, which those of the default widen.
LATENT_NARROW: Final = "flashmla"


def shares_attention(instance: Instance) -> bool:
    """Whether data-parallel ranks are ranks of one model, not copies of it."""
    return instance.plan.layout.dp > 1 and (instance.routed or instance.latent)


def _dispatches(instance: Instance) -> bool:
    """Whether tokens travel to experts by the kernels that the engine has for it."""
    layout = instance.plan.layout
    wide = layout.ep > 1 and layout.ep == layout.tp * layout.dp * layout.cp and layout.dp > 1
    return wide and bool(KernelChoice.of_engine(instance.plan.engine).dispatch)


def parallel(instance: Instance, notes: list[str]) -> list[str]:
    """Degrees of an instance."""
    layout, shared = instance.plan.layout, shares_attention(instance)
    ranks = layout.tp * layout.cp * (layout.dp if shared else 1)
    words = ["--tp-size", str(ranks)]
    if layout.pp > 1:
        words += ["--pp-size", str(layout.pp)]
    if layout.dp > 1:
        words += ["--dp-size", str(layout.dp)]
    if shared:
        words += ["--enable-dp-attention", "--enable-dp-lm-head"]
        if instance.routed and layout.tp == 1 and layout.cp == 1:
            words += ["--moe-dense-tp-size", "1"]
        elif instance.plan.model.shape.first_dense_layers:
            notes.append("dense layers: SGLang splits them over all ranks of a stage")
    if layout.cp > 1:
        words += ["--attn-cp-size", str(layout.cp), "--enable-prefill-cp"]
        words += ["--cp-strategy", "zigzag"]
        notes.append("prompts sharded over ranks: SGLang can for some models only")
    if layout.ep > 1:
        words += ["--ep-size", str(layout.ep)]
    if _dispatches(instance):
        words += ["--moe-a2a-backend", "deepep"]
        if instance.role:
            mode = {"prefill": "normal", "decode": "low_latency"}[instance.role]
            words += ["--deepep-mode", mode]
    if layout.redundant_experts:
        words += ["--enable-eplb", "--ep-num-redundant-experts", str(layout.redundant_experts)]
    if layout.two_batch_overlap:
        words.append("--enable-two-batch-overlap")
    if layout.single_batch_overlap:
        words.append("--enable-single-batch-overlap")
    return words


def _formats(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    if task.precision == "int8":
        words = ["--dtype", "bfloat16", *INT8]
        notes.append(stored_as(INT8, task.precision, instance.model))
    else:
        words = weight_options(instance, ONLINE, notes)
        if task.precision == "fp8_block" != instance.plan.model.checkpoint:
            notes.append("weights in fp8_block: --quantization fp8 scales them by channel")
    same = task.kv_precision == ("fp16" if task.precision == "fp16" else "bf16")
    if not same and task.kv_precision not in CACHE:
        notes.append(f"a cache in {task.kv_precision} beside other weights: SGLang has no option")
        same = True
    words += ["--kv-cache-dtype", "auto" if same else CACHE[task.kv_precision]]
    lender = kernels_lender(instance.plan.cluster)
    if (
        instance.latent
        and task.kv_precision == "fp8"
        and reads_latent_narrow(lender, instance.plan.engine)
    ):
        words += ["--attention-backend", LATENT_NARROW]
    return words


def _drafts(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    count = int(task.speculative_tokens)
    if not count:
        return []
    words = ["--speculative-algorithm", "EAGLE" if instance.drafts_itself else "EAGLE3"]
    if instance.drafting_model:
        words = ["--speculative-algorithm", "STANDALONE"]
        words += ["--speculative-draft-model-path", instance.drafting_model]
        if task.draft_tp not in (0, instance.plan.layout.tp):
            notes.append(
                f"draft_tp={task.draft_tp}: SGLang splits the draft over the ranks of the model"
            )
    elif not instance.drafts_itself:
        words += ["--speculative-draft-model-path", "DRAFT_MODEL"]
        notes.append("DRAFT_MODEL stands for the checkpoint of the draft layer")
    if task.adaptive_drafts:
        notes.append("adaptive_drafts: the command drafts as many tokens at every load")
    # The last token kept is verified beside the drafts.
    words += ["--speculative-num-steps", str(count)]
    words += ["--speculative-eagle-topk", str(task.draft_width)]
    return [*words, "--speculative-num-draft-tokens", str(instance.verified_drafts + 1)]


def _adapters(instance: Instance, notes: list[str]) -> list[str]:
    task = instance.plan.task
    if not task.adapters:
        return []
    notes.append("--lora-paths NAME=PATH ... names the adapters")
    slots = adapter_slots(task)
    words = ["--enable-lora", "--max-loras-per-batch", str(slots)]
    words += ["--max-lora-rank", str(task.adapter_rank)]
    if task.adapters > slots:
        words += ["--max-loaded-loras", str(task.adapters)]  # in the memory of the host
    targets = ["all"] if task.adapter_targets == "all" else ["q_proj", "k_proj", "v_proj", "o_proj"]
    return [*words, "--lora-target-modules", *targets]


def options(instance: Instance, notes: list[str]) -> list[str]:
    """Limits, formats and caches of an instance."""
    constants, copies = instance.constants, 1
    if not shares_attention(instance):
        copies = instance.plan.layout.dp
    running = share(instance.running, copies, "--max-running-requests", notes)
    tokens = share(instance.tokens, copies, "--chunked-prefill-size", notes)
    words = ["--context-length", str(instance.length), "--max-running-requests", str(running)]
    words += ["--chunked-prefill-size", str(tokens if constants.chunked_prefill else -1)]
    if constants.mixed_batches:
        words.append("--enable-mixed-chunk")
    words += ["--mem-fraction-static", f"{constants.memory_fraction:g}"]
    if not instance.latent:
        words += ["--page-size", str(constants.block_tokens)]
    words += _formats(instance, notes)
    words += _drafts(instance, notes)
    words += _adapters(instance, notes)
    if instance.grammar_backend:
        words += ["--grammar-backend", instance.grammar_backend]
    if instance.images:
        words += ["--limit-mm-data-per-request", json.dumps({instance.medium: instance.images})]
        if instance.plan.layout.encoder_data_parallel:
            words.append("--mm-enable-dp-encoder")
    if not instance.prefix_caching or instance.role == "decode":
        words.append("--disable-radix-cache")
    words += below.sglang_options(instance, notes)
    if instance.role:
        words += ["--disaggregation-mode", instance.role]
        words += ["--disaggregation-transfer-backend", "nixl"]
    if instance.role == "prefill":
        words += ["--disaggregation-bootstrap-port", BOOTSTRAP_PORT]
    return words


def environment(instance: Instance) -> dict[str, str]:
    """Variables that an instance needs."""
    if not _dispatches(instance) or instance.role == "prefill":
        return {}
    running = -(-instance.running // instance.plan.layout.dp)
    tokens = running * (1 + instance.verified_drafts)
    return {_DISPATCHED: str(tokens)} if tokens > _LEAST_DISPATCHED else {}


def start(instance: Instance) -> Start:
    """The commands of an instance, one for each of its nodes."""
    notes = instance.notes()
    words = ["python", "-m", "sglang.launch_server", "--model-path", instance.model]
    words += [*parallel(instance, notes), *options(instance, notes)]
    if instance.role:
        words += ["--host", "0.0.0.0", "--port", PORTS[instance.role]]
    nodes = []
    for node in range(instance.nodes):
        place: list[str] = []
        if instance.nodes > 1:
            place = ["--nnodes", str(instance.nodes), "--node-rank", str(node)]
            place += ["--dist-init-addr", Variable(f"{HEAD}:{_INIT_PORT}")]
        nodes.append((*words, *place))
    return Start(tuple(nodes), environment(instance), {}, tuple(notes))


def router(prefill: int, decode: int) -> tuple[str, ...]:
    """Command of the router before pools of this number of instances, on hosts of their own."""
    words = ["python", "-m", "sglang_router.launch_router", "--pd-disaggregation"]
    for number in range(prefill):
        words += ["--prefill", f"http://prefill-{number}:{PORTS['prefill']}", BOOTSTRAP_PORT]
    for number in range(decode):
        words += ["--decode", f"http://decode-{number}:{PORTS['decode']}"]
    return (*words, "--host", "0.0.0.0", "--port", "8000")


def replica_router(hosts: Sequence[str], policy: str) -> tuple[str, ...]:
    """Command of the router before replicas on these hosts."""
    urls = [f"http://{host}:30000" for host in hosts]
    words = ("python", "-m", "sglang_router.launch_router", "--worker-urls", *urls)
    return (*words, "--policy", policy, "--host", "0.0.0.0", "--port", "8000")
