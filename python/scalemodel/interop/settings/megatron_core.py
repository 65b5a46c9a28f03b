"""Settings of Megatron-Core, by the names of its configuration classes.

Names are those of ``TransformerConfig``, ``ModelParallelConfig``, ``DistributedDataParallelConfig``
and ``OptimizerConfig`` (NVIDIA/Megatron-LM, megatron/core, 0.16). Megatron-LM, Megatron-Bridge and
NeMo write the same settings each in its own way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import scalemodel._core as _core
from scalemodel.interop.settings.layouts import layout_text
from scalemodel.interop.settings.question import Job
from scalemodel.search.framework_rules import OVERLAP_OF_EXPERTS

_POSITION: Final = {"rope": "rope", "learned": "learned_absolute", "alibi": "none", "none": "none"}
_NORM: Final = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm_nobias": "LayerNorm"}
_CONTEXT: Final = {"ring": "p2p", "all_to_all": "a2a", "all_gather": "allgather"}
_SHARDING: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}
_UNFUSED_KERNELS: Final = ("unfused", "fused_softmax")
#: Architectures whose tensor cores scale FP8 by blocks of 32, as NVIDIA's recipes use them.
_BLOCK_SCALED: Final = ("blackwell", "rubin")
#: Parts of a layer that a CUDA graph of Transformer Engine can hold beside dropless experts.
_GRAPHS: Final = ("attn", "moe_router", "moe_preprocess")
#: What asks for an optimizer; Adam is there where nothing does.
_OPTIMIZER: Final[dict[str, dict[str, object]]] = {
    "adam": {},
    "sgd": {"optimizer": "sgd", "sgd_momentum": 0.0},
    "sgd_momentum": {"optimizer": "sgd", "sgd_momentum": 0.9},
    # Five Newton-Schulz steps, and a shard of a tensor-parallel rank is a matrix of its own.
    "muon": {"optimizer": "muon", "muon_num_ns_steps": 5, "muon_tp_mode": "blockwise"},
    "lion": {"optimizer": "lion"},
}


@dataclass(frozen=True)
class Setting:
    """One setting: the configuration it belongs to, its name, its value (None: left out)."""

    section: str
    name: str
    value: object


def _of(section: str, **values: object) -> list[Setting]:
    return [Setting(section, name, value) for name, value in values.items() if value is not None]


# --------------------------------------------------------------------------------- architecture
def architecture(job: Job, notes: list[str], said: Collection[str] = ()) -> list[Setting]:
    """The model; `said`: fields of its shape that other settings say."""
    shape = job.model.shape
    head_dim = shape.head_dim or shape.hidden // shape.heads
    biased = bool(shape.mlp_bias or shape.out_bias)
    settings = _of(
        "model",
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        seq_length=job.task.sequence,
        max_position_embeddings=max(shape.positions, job.task.sequence),
        position_embedding_type=_POSITION[shape.position],
        vocab_size=shape.vocab,
        make_vocab_size_divisible_by=job.stack.vocab_multiple,
        ffn_hidden_size=shape.ffn or shape.expert_ffn or 4 * shape.hidden,
        normalization=_NORM.get(shape.norm, "LayerNorm"),
    )
    if shape.kv_lora_rank:
        rope = shape.qk_rope_head_dim
        settings += _of(
            "model",
            multi_latent_attention=True,
            q_lora_rank=shape.q_lora_rank or None,
            kv_lora_rank=shape.kv_lora_rank,
            qk_head_dim=head_dim - rope,
            qk_pos_emb_head_dim=rope,
            v_head_dim=shape.v_head_dim or head_dim,
        )
    else:
        grouped = shape.kv_heads not in (0, shape.heads)
        settings += _of(
            "model", kv_channels=head_dim, num_query_groups=shape.kv_heads if grouped else None
        )
    settings += _of(
        "model",
        gated_linear_unit=bool(shape.gated),
        add_bias_linear=biased,
        add_qkv_bias=bool(shape.qkv_bias) and not biased,
        qk_layernorm=bool(shape.qk_norm or shape.qk_norm_full),
        share_embeddings_and_output_weights=bool(shape.tied_embeddings),
        mtp_num_layers=shape.mtp_layers or None,
        attention_output_gate=True if shape.attention_gate == "values" else None,
    )
    if shape.window:
        settings += _of(
            "model",
            window_size=f"{shape.window - 1},0",
            window_attn_skip_freq=shape.full_attention_every or None,
        )
    if shape.experts:
        settings += _experts(job)
    _note_architecture(job, notes, said)
    return settings


def _mixers_text(shape: _core.DecoderShape) -> str:
    """What a pattern of mixers asks for that no setting says."""
    if shape.recurrence != "none":
        return f"recurrent mixers ({shape.recurrence}), layer by layer: {shape.mixers[:12]}..."
    return "mixers that differ from layer to layer"


def _note_architecture(job: Job, notes: list[str], said: Collection[str]) -> None:
    shape = job.model.shape
    for name, what in (
        ("parallel_block", "attention and feed-forward side by side"),
        ("embedding_norm", "a norm after the embedding"),
        ("attention_sinks", "attention sinks"),
        ("head_bias", "a bias on the head"),
        ("shared_blocks", "blocks that layers use in turn"),
        ("window_heads", "heads of layers with a window"),
        ("kv_shared_ffn", "widths of layers that use earlier keys"),
        ("bidirectional", "attention to the tokens behind"),
        ("head_transform", "a matrix in front of the head"),
        ("feed_forwards", "feed-forward blocks that differ from layer to layer"),
        ("shared_values", "keys that serve as values"),
        ("zero_experts", "experts that compute nothing"),
        ("layer_embedding", "embeddings of every layer"),
        ("ngram_rows", "tables for runs of tokens"),
        ("encoder_layers", "an encoder and the attention to what it reads"),
        ("attention_experts", "experts of queries and attention outputs"),
        ("loop_layers", "layers that run several times"),
        ("kv_sources", "keys and values of earlier layers"),
        ("second_ffn", "blocks of two widths"),
        ("fused_mixers", "mixers that are projected together"),
        ("norm_rank", "gates behind norms"),
        ("router_rank", "routers of several matrices"),
        ("ffn_receptance", "a gate on the output of blocks"),
        ("stream_rank", "a low rank that mixes residual streams"),
    ):
        if getattr(shape, name) and name not in said:
            notes.append(f"not expressed: {what}")
    if shape.mixers and "mixers" not in said:
        notes.append(f"not expressed: {_mixers_text(shape)}")
    if shape.position == "alibi":
        notes.append("not expressed: ALiBi positions")
    if shape.position == "learned" and job.task.sequence > shape.positions:
        notes.append(
            f"has {job.task.sequence} learned positions, as many as a sequence has tokens; "
            f"{job.model.name} was predicted with its {shape.positions}"
        )
    if job.model.vision is not None:
        notes.append(
            f"not expressed: the vision tower of {job.model.name}; its decoder is started alone"
        )
    if shape.attention_gate not in ("none", "values"):
        notes.append("not expressed: a gate on the output of attention")


def _experts(job: Job) -> list[Setting]:
    shape = job.model.shape
    width = shape.expert_ffn or shape.ffn
    dense = shape.first_dense_layers
    pattern = [
        int(layer >= dense and (layer - dense + 1) % shape.moe_every == 0)
        for layer in range(shape.layers)
    ]
    return _of(
        "model",
        num_moe_experts=shape.experts,
        moe_router_topk=shape.experts_per_token,
        # A softmax over the one expert that was chosen would be 1: transformer_config.py.
        moe_router_pre_softmax=True
        if shape.experts_per_token == 1 and not shape.router_bias
        else None,
        moe_ffn_hidden_size=width,
        moe_latent_size=shape.expert_latent or None,
        moe_shared_expert_intermediate_size=shape.shared_experts * (shape.shared_ffn or width)
        or None,
        moe_shared_expert_gate=bool(shape.shared_expert_gate) or None,
        moe_layer_freq=None if all(pattern) else pattern,
        moe_grouped_gemm=True,
        moe_router_score_function="sigmoid" if shape.router_bias else None,
        moe_router_enable_expert_bias=True if shape.router_bias else None,
        moe_router_num_groups=shape.expert_groups or None,
        moe_router_group_topk=shape.groups_per_token or None,
    )


# ------------------------------------------------------------------------------------- strategy
def parallelism(job: Job, notes: list[str]) -> list[Setting]:
    """Degrees, pipeline, sharding, recomputation and offloading."""
    plan, shape = job.strategy, job.model.shape
    settings = _of(
        "parallel",
        tensor_model_parallel_size=plan.tp,
        pipeline_model_parallel_size=plan.pp,
        context_parallel_size=plan.cp,
        sequence_parallel=bool(plan.sequence_parallel and plan.tp > 1),
        expert_model_parallel_size=plan.ep if shape.experts else None,
        expert_tensor_parallel_size=job.etp if shape.experts else None,
        cp_comm_type=_CONTEXT[plan.context] if plan.cp > 1 else None,
    )
    settings += _pipeline(job)
    settings += _of(
        "train", micro_batch_size=plan.micro_batch, global_batch_size=job.task.global_batch
    )
    settings += _sharding(job) + _recomputation(job, notes)
    if plan.placement == "tp-cp-pp-dp":
        settings += _of("dist", use_tp_pp_dp_mapping=True)
    if plan.offload_optimizer:
        # The states on the host are those of the precision-aware optimizer: arguments.py.
        settings += _of("optimizer", optimizer_cpu_offload=True, use_precision_aware_optimizer=True)
    if plan.offload_activations:
        # Of all layers but the last, which Megatron-Core never offloads: transformer_config.py.
        settings += _of("parallel", cpu_offloading_num_layers=max(1, shape.layers - 1))
    return settings


def _pipeline(job: Job) -> list[Setting]:
    plan, held = job.strategy, job.chunk_layers
    if len(set(held)) > 1:
        layout = layout_text(held, int(job.model.shape.mtp_layers))
        return _of("parallel", pipeline_model_parallel_layout=layout)
    vpp = plan.vpp if plan.vpp > 1 else None
    return _of("parallel", virtual_pipeline_model_parallel_size=vpp)


def _sharding(job: Job) -> list[Setting]:
    plan = job.strategy
    reduce = job.switched("overlap_grad_reduce")
    gather = job.switched("overlap_param_gather") and plan.sharding != "ddp"
    fsdp = plan.sharding in ("zero2", "zero3", "hsdp")
    settings = _of(
        "ddp",
        use_distributed_optimizer=plan.sharding != "ddp",
        overlap_grad_reduce=reduce,
        overlap_param_gather=gather,
        use_megatron_fsdp=True if fsdp else None,
        data_parallel_sharding_strategy=_SHARDING.get(plan.sharding, "optim_grads_params")
        if fsdp
        else None,
    )
    if plan.sharding == "hsdp":
        groups = job.dp * plan.cp // job.shard_degree
        settings += _of("ddp", num_distributed_optimizer_instances=groups)
    return settings


def _recomputation(job: Job, notes: list[str]) -> list[Setting]:
    plan, shape = job.strategy, job.model.shape
    if plan.recompute == "none":
        return []
    if plan.recompute == "selective":
        modules = ["core_attn"]
        if job.stack.selective_modules != "stack":
            modules = str(job.stack.selective_modules).split("+")
        elif job.stack.selective == "modules":
            modules = ["layernorm"]
            modules += ["moe_act"] if shape.experts else []
            modules += ["mla_up_proj"] if shape.kv_lora_rank else []
        return _of("model", recompute_granularity="selective", recompute_modules=modules)
    if not plan.recompute_layers:
        return _of(
            "model",
            recompute_granularity="full",
            recompute_method="uniform",
            recompute_num_layers=1,
        )
    # Megatron counts the layers of one virtual stage, we those of one pipeline rank.
    each = -(-plan.recompute_layers // plan.vpp)
    if each * plan.vpp != plan.recompute_layers:
        notes.append(f"recomputes {each * plan.vpp} layers per rank, not {plan.recompute_layers}")
    return _of(
        "model",
        recompute_granularity="full",
        recompute_method="block",
        recompute_num_layers=each,
    )


# ---------------------------------------------------------------------------- facts of the stack
def software(job: Job) -> list[Setting]:
    """What the facts of the stack ask for: kernels, fusions, overlaps, number formats."""
    plan, task, stack = job.strategy, job.task, job.stack
    kernel = task.attention if task.attention != "stack" else str(stack.attention)
    dropout = stack.dropout if task.dropout in (None, "stack") else task.dropout in (True, "on")
    rotary = job.model.shape.position == "rope"
    settings = _of(
        "model",
        attention_backend="unfused" if kernel in _UNFUSED_KERNELS else "flash",
        attention_dropout=None if dropout else 0.0,
        hidden_dropout=None if dropout else 0.0,
        bias_activation_fusion=bool(stack.fused_activation),
        apply_rope_fusion=bool(stack.fused_rope) if rotary else None,
        cross_entropy_loss_fusion=bool(stack.fused_loss),
        cross_entropy_fusion_impl="te" if stack.fused_loss else None,
        gradient_accumulation_fusion=bool(stack.fused_accumulation),
    )
    settings += _of("overlap", tp_comm_overlap=job.overlaps_tp)
    if plan.pp > 1 and plan.vpp > 1:
        settings += _of("overlap", overlap_p2p_comm=bool(stack.overlap_p2p))
    settings += _of("optimizer", **_OPTIMIZER[task.optimizer])
    if job.model.shape.experts:
        settings += _expert_software(job)
    return settings + _precision(job)


def _dispatcher(job: Job) -> str:
    """DeepEP, but HybridEP on Grace Blackwell (Megatron-Bridge, flex_dispatcher_backend.py)."""
    entry = job.cluster.table.get("accelerator")
    name = str(entry.get("name", "")) if isinstance(entry, dict) else ""
    return "hybridep" if name.startswith("gb") else "deepep"


def _expert_software(job: Job) -> list[Setting]:
    plan, stack = job.strategy, job.stack
    deduplicated = plan.ep > 1 and (stack.deduplicated_dispatch or stack.deduplicated_between)
    drops = bool(stack.drops_tokens)
    settings = _of(
        "model",
        moe_token_dispatcher_type="flex" if deduplicated else "alltoall",
        moe_flex_dispatcher_backend=_dispatcher(job) if deduplicated else None,
        # DeepEP takes FP32 probabilities only: megatron/core/transformer/moe/token_dispatcher.py.
        moe_router_dtype="fp32" if stack.fp32_router or deduplicated else None,
        moe_expert_capacity_factor=1.0 if drops else None,
        # DeepEP takes no padding: transformer_config.py.
        moe_pad_expert_input_to_capacity=True if drops and not deduplicated else None,
        moe_router_load_balancing_type="aux_loss" if drops else None,
        use_transformer_engine_op_fuser=True if stack.fused_experts else None,
    )
    if plan.ep > 1 and job.case.uses(*OVERLAP_OF_EXPERTS):
        settings += _of("overlap", overlap_moe_expert_parallel_comm=True)
    if stack.grouped_launch and plan.recompute != "full":
        settings += _of(
            "model", cuda_graph_impl="transformer_engine", cuda_graph_scope=list(_GRAPHS)
        )
    return settings


def _precision(job: Job) -> list[Setting]:
    kind = job.precision
    sixteen = "fp16" if kind == "fp16" else "bf16" if kind in ("bf16", "fp8", "fp4") else None
    settings = _of("precision", **({sixteen: True} if sixteen else {}))
    if kind == "fp8":
        blocks = job.architecture in _BLOCK_SCALED
        settings += _of(
            "precision",
            fp8="e4m3" if blocks else "hybrid",
            fp8_recipe="mxfp8" if blocks else "tensorwise",
        )
    elif kind == "fp4":
        settings += _of("precision", fp4="e2m1", fp4_recipe="nvfp4")
    if sixteen:
        settings += _of("precision", grad_reduce_in_fp32=job.gradients_fp32)
    return settings


def environment(job: Job) -> dict[str, str]:
    """Variables that go with the settings."""
    plan, found = job.strategy, {}
    fsdp = plan.sharding in ("zero2", "zero3", "hsdp")
    overlaps = plan.ep > 1 and job.case.uses(*OVERLAP_OF_EXPERTS)
    if (plan.tp > 1 or plan.cp > 1) and not fsdp and job.architecture not in _BLOCK_SCALED:
        # One queue keeps collectives before the products they overlap with: arguments.py.
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if overlaps else "1"
    elif overlaps:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    if job.model.shape.experts and job.stack.fused_experts:
        found["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"
    return found


def settings_of(job: Job, notes: list[str], said: Collection[str] = ()) -> list[Setting]:
    """Every setting of a job but those that say `said`; what has none is added to the notes."""
    return [*architecture(job, notes, said), *parallelism(job, notes), *software(job)]
