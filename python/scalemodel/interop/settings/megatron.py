"""Settings of Megatron-LM and Megatron-Core, and of NeMo and Megatron-Bridge, which share names.

Names are those of Megatron-Core's ``arguments.py``, ``TransformerConfig`` and
``ModelParallelConfig`` (NVIDIA/Megatron-LM, 0.12 and later).
"""

from __future__ import annotations

from typing import Final

from scalemodel.interop.settings.question import Job, Launch
from scalemodel.resolve.tasks import FineTuning

_POSITION: Final = {"rope": "rope", "learned": "learned_absolute", "alibi": "none", "none": "none"}
_NORM: Final = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm_nobias": "LayerNorm"}
_CONTEXT: Final = {"ring": "p2p", "all_to_all": "a2a", "all_gather": "allgather"}
_SHARDING: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
_UNFUSED_KERNELS: Final = {"unfused": "unfused", "fused_softmax": "unfused"}


# ---------------------------------------------------------------------------------------- writing
def _architecture_flags(job: Job, notes: list[str]) -> list[tuple[str, object]]:
    shape = job.model.shape
    head_dim = shape.head_dim or shape.hidden // shape.heads
    flags: list[tuple[str, object]] = [
        ("num-layers", shape.layers),
        ("hidden-size", shape.hidden),
        ("num-attention-heads", shape.heads),
        ("seq-length", job.task.sequence),
        ("max-position-embeddings", max(shape.positions, job.task.sequence)),
        ("position-embedding-type", _POSITION[shape.position]),
        ("tokenizer-type", "NullTokenizer"),
        ("vocab-size", shape.vocab - 1),  # the null tokenizer adds one end of document
        ("make-vocab-size-divisible-by", 1),
        ("ffn-hidden-size", shape.ffn or shape.expert_ffn),
        ("normalization", _NORM.get(shape.norm, "LayerNorm")),
    ]
    if shape.kv_lora_rank:
        rope = shape.qk_rope_head_dim
        flags += [
            ("multi-latent-attention", True),
            ("q-lora-rank", shape.q_lora_rank or None),
            ("kv-lora-rank", shape.kv_lora_rank),
            ("qk-head-dim", head_dim - rope),
            ("qk-pos-emb-head-dim", rope),
            ("v-head-dim", shape.v_head_dim or head_dim),
        ]
    else:
        grouped = shape.kv_heads not in (0, shape.heads)
        flags += [
            ("kv-channels", head_dim),
            ("group-query-attention", grouped),
            ("num-query-groups", shape.kv_heads if grouped else None),
        ]
    flags += [
        ("swiglu", shape.gated),
        ("disable-bias-linear", not (shape.mlp_bias or shape.out_bias)),
        ("add-qkv-bias", shape.qkv_bias and not (shape.mlp_bias or shape.out_bias)),
        ("qk-layernorm", shape.qk_norm or shape.qk_norm_full),
        ("untie-embeddings-and-output-weights", not shape.tied_embeddings),
        ("mtp-num-layers", shape.mtp_layers or None),
    ]
    if shape.window:
        flags += [("window-size", f"{shape.window - 1},0")]
        if shape.full_attention_every:
            flags += [("window-attn-skip-freq", shape.full_attention_every)]
    if shape.experts:
        flags += _expert_flags(job)
    for name, what in (
        ("parallel_block", "attention and feed-forward side by side"),
        ("embedding_norm", "a norm after the embedding"),
        ("attention_sinks", "attention sinks"),
        ("head_bias", "a bias on the head"),
    ):
        if getattr(shape, name):
            notes.append(f"not expressed: {what}")
    if shape.position == "alibi":
        notes.append("not expressed: ALiBi positions")
    return flags


def _expert_flags(job: Job) -> list[tuple[str, object]]:
    shape = job.model.shape
    width = shape.expert_ffn or shape.ffn
    dense = shape.first_dense_layers
    pattern = "".join(
        "1" if layer >= dense and (layer - dense + 1) % shape.moe_every == 0 else "0"
        for layer in range(shape.layers)
    )
    every = shape.layers == pattern.count("1")
    return [
        ("num-experts", shape.experts),
        ("moe-router-topk", shape.experts_per_token),
        ("moe-ffn-hidden-size", width),
        (
            "moe-shared-expert-intermediate-size",
            shape.shared_experts * (shape.shared_ffn or width) or None,
        ),
        ("moe-shared-expert-gate", shape.shared_expert_gate),
        ("moe-layer-freq", None if every else "[" + ",".join(pattern) + "]"),
        ("moe-grouped-gemm", True),
        ("moe-token-dispatcher-type", "alltoall"),
    ]


def _parallel_flags(job: Job, notes: list[str]) -> list[tuple[str, object]]:
    plan, shape = job.strategy, job.model.shape
    flags: list[tuple[str, object]] = [
        ("tensor-model-parallel-size", plan.tp),
        ("pipeline-model-parallel-size", plan.pp),
        ("context-parallel-size", plan.cp),
        ("sequence-parallel", plan.sequence_parallel and plan.tp > 1),
        ("num-virtual-stages-per-pipeline-rank", plan.vpp if plan.vpp > 1 else None),
        ("cp-comm-type", _CONTEXT[plan.context] if plan.cp > 1 else None),
        ("micro-batch-size", plan.micro_batch),
        ("global-batch-size", job.task.global_batch),
    ]
    if shape.experts:
        flags += [
            ("expert-model-parallel-size", plan.ep),
            ("expert-tensor-parallel-size", job.etp),
        ]
    stages = plan.pp * plan.vpp
    if stages > 1 and shape.layers % stages != 0:
        if (shape.layers + 2) % stages == 0:
            flags += [
                ("account-for-embedding-in-pipeline-split", True),
                ("account-for-loss-in-pipeline-split", True),
            ]
        else:
            notes.append(f"{shape.layers} layers over {stages} stages: add a pipeline layout")
    flags += _sharding_flags(job) + _recompute_flags(job, notes)
    if plan.placement == "tp-cp-pp-dp":
        flags += [("use-tp-pp-dp-mapping", True)]
    elif plan.placement != "tp-cp-dp-pp":
        notes.append(f"not expressed: placement {plan.placement}")
    if plan.pp > 1 and plan.schedule not in ("1f1b", "interleaved"):
        notes.append(f"not expressed: pipeline schedule {plan.schedule}")
    if plan.tp > 1 and plan.sequence_parallel and not plan.regather:
        notes.append("not expressed: gathered inputs kept for weight gradients")
    overlap_tp = plan.overlap_tp
    wanted = job.stack.overlap_tp if overlap_tp == "stack" else overlap_tp != "off"
    flags += [("tp-comm-overlap", bool(wanted) and plan.tp > 1 and plan.sequence_parallel)]
    if plan.offload_optimizer:
        flags += [("optimizer-cpu-offload", True)]
    if plan.offload_activations:
        flags += [("cpu-offloading-num-layers", shape.layers)]
    if plan.offload_weights:
        notes.append("not expressed: weights in host memory")
    return flags


def _sharding_flags(job: Job) -> list[tuple[str, object]]:
    plan = job.strategy
    flags: list[tuple[str, object]] = []
    if plan.sharding != "ddp":
        flags += [("use-distributed-optimizer", True)]
    if plan.sharding in ("zero2", "zero3", "hsdp"):
        kept = _SHARDING.get(plan.sharding, "optim_grads_params")
        flags += [("use-megatron-fsdp", True), ("data-parallel-sharding-strategy", kept)]
    if plan.sharding == "hsdp":
        groups = job.dp * plan.cp // job.shard_degree
        flags += [("num-distributed-optimizer-instances", groups)]
    return [
        *flags,
        ("overlap-grad-reduce", job.switched("overlap_grad_reduce")),
        (
            "overlap-param-gather",
            job.switched("overlap_param_gather") and plan.sharding != "ddp",
        ),
    ]


def _recompute_flags(job: Job, notes: list[str]) -> list[tuple[str, object]]:
    plan = job.strategy
    if plan.recompute == "none":
        return []
    if plan.recompute == "selective":
        if plan.recompute_layers:
            notes.append("not expressed: selective recomputation of some layers only")
        return [("recompute-granularity", "selective")]
    flags: list[tuple[str, object]] = [("recompute-granularity", "full")]
    if not plan.recompute_layers:
        return [*flags, ("recompute-method", "uniform"), ("recompute-num-layers", 1)]
    # Megatron counts the layers of one virtual stage, we those of one pipeline rank.
    each = -(-plan.recompute_layers // plan.vpp)
    if each * plan.vpp != plan.recompute_layers:
        notes.append(f"recomputes {each * plan.vpp} layers per rank, not {plan.recompute_layers}")
    return [*flags, ("recompute-method", "block"), ("recompute-num-layers", each)]


def _task_flags(job: Job, notes: list[str]) -> list[tuple[str, object]]:
    task = job.task
    flags: list[tuple[str, object]] = []
    if job.precision in ("fp16", "bf16"):
        flags += [(job.precision, True)]
    elif job.precision == "fp8":
        flags += [("bf16", True), ("fp8-format", "hybrid")]
    elif job.precision == "fp4":
        flags += [("bf16", True), ("fp4-format", "e2m1")]
    fp32 = task.gradient_precision
    if fp32 == "fp32" or (fp32 == "stack" and job.stack.gradients_fp32):
        flags += [("accumulate-allreduce-grads-in-fp32", True)]
    kernel = task.attention if task.attention != "stack" else str(job.stack.attention)
    flags += [("attention-backend", _UNFUSED_KERNELS.get(kernel, "flash"))]
    dropout = job.stack.dropout if task.dropout in (None, "stack") else task.dropout
    if dropout not in (True, "on"):
        flags += [("attention-dropout", 0.0), ("hidden-dropout", 0.0)]
    if task.optimizer == "sgd":
        flags += [("optimizer", "sgd")]
    elif task.optimizer == "sgd_momentum":
        flags += [("optimizer", "sgd"), ("sgd-momentum", 0.9)]
    if isinstance(task, FineTuning) and task.method == "lora":
        notes.append("not expressed: adapters are set in NeMo or Megatron-Bridge")
    return flags


def write(job: Job) -> Launch:
    """Flags of ``pretrain_gpt.py``; data, learning rate and logging stay with the reader."""
    notes: list[str] = []
    flags = [
        *_architecture_flags(job, notes),
        *_parallel_flags(job, notes),
        *_task_flags(job, notes),
    ]
    words: list[str] = []
    for name, value in flags:
        if value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", str(value)]
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if job.strategy.tp > 1 else {}
    return Launch(
        framework="megatron",
        command=job.torchrun("pretrain_gpt.py", *words),
        environment=environment,
        files={},
        notes=tuple(notes),
    )


# ---------------------------------------------------------------------------------------- reading
