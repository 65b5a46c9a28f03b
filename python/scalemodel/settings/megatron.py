"""Settings of Megatron-LM and Megatron-Core, and of NeMo and Megatron-Bridge, which share names.

Names are those of Megatron-Core's ``arguments.py``, ``TransformerConfig`` and
``ModelParallelConfig`` (NVIDIA/Megatron-LM, 0.12 and later).
"""

from __future__ import annotations

from typing import Any, Final

from scalemodel import _core
from scalemodel.errors import ScaleModelError
from scalemodel.settings.given import Given
from scalemodel.settings.question import Job, Launch, Settings, model_of
from scalemodel.tasks import FineTuning, Training

_POSITION: Final = {"rope": "rope", "learned": "learned_absolute", "alibi": "none", "none": "none"}
_POSITION_READ: Final = {
    **{"rope": "rope", "yarn": "rope", "mrope": "rope"},
    **{"learned_absolute": "learned", "none": "none", "nope": "none"},
}
_NORM: Final = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm_nobias": "LayerNorm"}
_NORM_READ: Final = {"rmsnorm": "rmsnorm", "layernorm": "layernorm"}
_CONTEXT: Final = {"ring": "p2p", "all_to_all": "a2a", "all_gather": "allgather"}
_CONTEXT_READ: Final = {
    **{"p2p": "ring", "a2a": "all_to_all", "allgather": "all_gather"},
    "a2a+p2p": "all_to_all",
}
_SHARDING: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
_SHARDING_READ: Final = {
    **{"no_shard": "ddp", "optim": "zero1"},
    **{"optim_grads": "zero2", "optim_grads_params": "zero3"},
}
_UNFUSED_KERNELS: Final = {"unfused": "unfused", "fused_softmax": "unfused"}
# What only says where data and results lie, how the optimizer steps, what is logged, and which
# kernels run: those are the software stack's.
_IRRELEVANT: Final = (
    *("adam", "async_save", "attention_softmax", "bias_", "ckpt", "clip", "data", "dist_ckpt"),
    *(
        "distributed",
        "eval",
        "exit",
        "finetune",
        "init",
        "lr",
        "load",
        "log",
        "make_vocab",
        "manual_gc",
    ),
    *("moe_aux", "moe_grouped", "moe_permute", "moe_router_load", "moe_token"),
    *("master", "max_position", "merge"),
    *("min_lr", "mock", "nnodes", "no_bias", "no_load", "no_save", "node", "nproc", "num_workers"),
    *("optimizer", "override", "rdzv", "rotary", "save", "seed", "split", "start", "tensorboard"),
    *("tiktoken", "timing", "tokenizer", "train_iters", "train_samples", "use_mcore", "valid"),
    *("vocab_file", "wandb", "weight_decay", "use_cpu_init", "module"),
)


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
def _attention(given: Given, heads: int, hidden: int) -> dict[str, Any]:
    if given.flag("multi_latent_attention"):
        rope = given.count("qk_pos_emb_head_dim", default=64)
        return {
            "kv_heads": heads,
            "q_lora_rank": given.count("q_lora_rank", default=0),
            "kv_lora_rank": given.count("kv_lora_rank", default=32),
            "head_dim": given.count("qk_head_dim", default=128) + rope,
            "qk_rope_head_dim": rope,
            "v_head_dim": given.count("v_head_dim", default=128),
        }
    groups = given.count("num_query_groups", default=0)
    if not given.flag("group_query_attention", default=groups > 0):
        groups = 0
    return {
        "kv_heads": groups or heads,
        "head_dim": given.count("kv_channels", default=hidden // max(1, heads)),
    }


def _layer_pattern(given: Given, layers: int) -> dict[str, int]:
    """Leading dense layers and distance of expert layers, from moe_layer_freq."""
    value = given.raw("moe_layer_freq")
    if value is None:
        return {}
    text = str(value).replace(" ", "")
    if text.isdigit():
        return {"moe_every": max(1, int(text))}
    pattern = _evaluated(text)
    if len(pattern) != layers or set(pattern) - {0, 1} or 1 not in pattern:
        raise ScaleModelError(
            f"megatron: moe_layer_freq={value!r}: must be a whole number or one 0 or 1 for each "
            f"of {layers} layers",
            code="malformed_setting",
        )
    first = pattern.index(1)
    rest = pattern[first:]
    every = rest.index(1, 1) if 1 in rest[1:] else 1
    if any(bit != (i % every == 0) for i, bit in enumerate(rest)):
        raise ScaleModelError(
            f"megatron: moe_layer_freq={value!r}: must be leading zeros, then evenly spaced ones",
            code="malformed_setting",
        )
    return {"first_dense_layers": first - every + 1, "moe_every": every}


def _evaluated(text: str) -> list[int]:
    """A pattern such as ``([0]*3+[1]*58)`` or ``[0,1,1]`` as a list."""
    out: list[int] = []
    for part in text.strip("()").split("+"):
        listed, _, times = part.strip("()").partition("*")
        digits = listed.strip("[]").split(",")
        if not all(digit in ("0", "1") for digit in digits) or (times and not times.isdigit()):
            return []
        out += [int(digit) for digit in digits] * min(int(times or 1), 100_000)
    return out


def _architecture(given: Given) -> dict[str, Any] | None:
    if given.raw("num_layers") is None:
        return None
    layers, hidden = given.count("num_layers"), given.count("hidden_size")
    heads = given.count("num_attention_heads")
    gated = given.flag("swiglu", "gated_linear_unit")
    ffn = given.count("ffn_hidden_size", default=4 * hidden)
    bias = not given.flag(
        "disable_bias_linear", default=not given.flag("add_bias_linear", default=True)
    )
    null = given.text("tokenizer_type") == "nulltokenizer"
    vocab = given.count("padded_vocab_size", "vocab_size", default=0) + null
    if vocab == 0:
        raise ScaleModelError(
            "megatron: vocab_size: missing (the tokenizer's file is not read)",
            code="missing_setting",
        )
    table: dict[str, Any] = {
        **{"layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab},
        **_attention(given, heads, hidden),
        "ffn": ffn,
        "gated": gated,
        "mlp_bias": bias,
        "out_bias": bias,
        "qkv_bias": given.flag("add_qkv_bias", default=bias) or bias,
        "qk_norm": given.flag("qk_layernorm"),
        "norm": given.choice(_NORM_READ, "normalization", default="layernorm"),
        "position": given.choice(_POSITION_READ, "position_embedding_type", default="learned"),
        "tied_embeddings": not given.flag(
            "untie_embeddings_and_output_weights",
            default=not given.flag("share_embeddings_and_output_weights", default=True),
        ),
        "mtp_layers": given.count("mtp_num_layers", default=0),
    }
    if table["position"] == "learned":
        table["positions"] = given.count("max_position_embeddings")
    window = given.raw("window_size")
    if window is not None:
        left = str(window).strip("()[] ").split(",")[0]
        table["window"] = int(left) + 1 if left.isdigit() else 0
        table["full_attention_every"] = given.count("window_attn_skip_freq", default=0)
    experts = given.count("num_experts", "num_moe_experts", default=0)
    if experts:
        shared = given.count("moe_shared_expert_intermediate_size", default=0)
        table |= {
            "experts": experts,
            "experts_per_token": given.count("moe_router_topk", default=2),
            "expert_ffn": given.count("moe_ffn_hidden_size", default=ffn),
            **({"shared_experts": 1, "shared_ffn": shared} if shared else {}),
            "shared_expert_gate": given.flag("moe_shared_expert_gate"),
            **_layer_pattern(given, layers),
        }
    return table


def _sharding(given: Given) -> tuple[str, int]:
    """Sharding, and into how many copies a fully sharded model is replicated."""
    fsdp = given.flag("use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
    distributed = given.flag("use_distributed_optimizer")
    usual = "zero3" if fsdp else "zero1" if distributed else "ddp"
    kept = given.choice(_SHARDING_READ, "data_parallel_sharding_strategy", default=usual)
    copies = given.count("num_distributed_optimizer_instances", default=1)
    if not fsdp:
        return ("zero1" if distributed else "ddp"), 1
    return ("hsdp", copies) if kept == "zero3" and copies > 1 else (kept, 1)


def _vpp(given: Given, pp: int, layers: int) -> int:
    vpp = given.count(
        "num_virtual_stages_per_pipeline_rank",
        "virtual_pipeline_model_parallel_size",
        default=0,
    )
    each = given.count("num_layers_per_virtual_pipeline_stage", default=0)
    if vpp == 0 and each and layers:
        vpp = layers // pp // each
    return max(1, vpp)


def _recompute(given: Given, vpp: int) -> dict[str, Any]:
    usual = "selective" if given.flag("recompute_activations") else "none"
    legal = {"none": "none", "selective": "selective", "full": "full"}
    granularity = given.choice(legal, "recompute_granularity", default=usual)
    method = given.text("recompute_method", default="uniform")
    layers = given.count("recompute_num_layers", default=1)
    some = granularity == "full" and method == "block"
    return {"recompute": granularity, "recompute_layers": layers * vpp if some else 0}


def _strategy(given: Given, layers: int, accelerators: int) -> _core.Strategy:
    tp = given.count("tensor_model_parallel_size", default=1)
    pp = given.count("pipeline_model_parallel_size", default=1)
    cp = given.count("context_parallel_size", default=1)
    vpp = _vpp(given, pp, layers)
    sharding, copies = _sharding(given)
    replicas = accelerators // max(1, tp * pp)
    if copies > 1 and accelerators == 0:
        raise ScaleModelError(
            "megatron: num_distributed_optimizer_instances: the size of a shard group needs "
            "accelerators=",
            code="missing_setting",
        )
    ep = given.count("expert_model_parallel_size", default=1)
    return _core.Strategy(
        tp=tp,
        pp=pp,
        cp=cp,
        vpp=vpp,
        ep=ep,
        etp=given.count("expert_tensor_parallel_size", default=0) or tp,
        micro_batch=given.count("micro_batch_size", default=1),
        sharding=sharding,
        shard_degree=replicas // copies if copies > 1 else 0,
        schedule="interleaved" if vpp > 1 else "1f1b",
        context=given.choice(_CONTEXT_READ, "cp_comm_type", default="ring"),
        sequence_parallel=given.flag("sequence_parallel"),
        overlap_grad_reduce="on" if given.flag("overlap_grad_reduce") else "off",
        overlap_param_gather="on" if given.flag("overlap_param_gather") else "off",
        overlap_tp="ring" if given.flag("tp_comm_overlap") else "off",
        placement="tp-cp-pp-dp" if given.flag("use_tp_pp_dp_mapping") else "tp-cp-dp-pp",
        offload_optimizer=given.flag("optimizer_cpu_offload"),
        offload_activations=given.count("cpu_offloading_num_layers", default=0) > 0,
        **_recompute(given, vpp),
    )


def _precision(given: Given) -> str:
    named = given.text("precision", "mixed_precision")
    if given.raw("fp4_format", "fp4") or "fp4" in named:
        return "fp4"
    if given.raw("fp8_format", "fp8") or "fp8" in named:
        return "fp8"
    if given.flag("fp16") or "fp16" in named or named.startswith("16"):
        return "fp16"
    return "bf16" if given.flag("bf16") or "bf16" in named else "fp32"


def _task(given: Given) -> Training | None:
    batch, sequence = given.raw("global_batch_size"), given.raw("seq_length", "encoder_seq_length")
    if batch is None or sequence is None:
        return None
    backend = given.text("attention_backend", default="auto")
    momentum = given.raw("sgd_momentum")
    plain = given.text("optimizer", default="adam") == "sgd"
    return Training(
        global_batch=given.count("global_batch_size"),
        sequence=given.count("seq_length", "encoder_seq_length"),
        precision=_precision(given),  # type: ignore[arg-type]
        attention="unfused" if backend in ("unfused", "local") else "stack",
        gradient_precision=(
            "fp32"
            if given.flag("accumulate_allreduce_grads_in_fp32", "grad_reduce_in_fp32")
            else "stack"
        ),
        dropout=_dropout(given),
        optimizer="adam" if not plain else "sgd_momentum" if momentum is not None else "sgd",
    )


def _dropout(given: Given) -> bool:
    """Megatron's own default is 0.1."""
    for name in ("hidden_dropout", "attention_dropout"):
        value = given.raw(name)
        if value is None or str(value) not in ("0", "0.0"):
            return True
    return False


def read(values: dict[str, object], accelerators: int) -> Settings:
    """Model, task and strategy of Megatron's arguments, dashes as underscores."""
    given = Given(values, "megatron")
    architecture = _architecture(given)
    layers = int(architecture["layers"]) if architecture else 0
    strategy = _strategy(given, layers, accelerators)
    task = _task(given)
    unread = [name for name in given.unread() if not name.startswith(_IRRELEVANT)]
    return Settings(
        framework="megatron",
        model=model_of(architecture, "megatron") if architecture else None,
        task=task,
        strategy=strategy,
        accelerators=accelerators,
        unread=tuple(unread),
    )
