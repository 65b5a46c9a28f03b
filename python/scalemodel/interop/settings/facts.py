"""Which facts of a software stack the settings of a framework state: one table.

A stack holds what a prediction knows of the software: what it overlaps, fuses and keeps. A fact is

* ``stated`` where settings of the framework switch it; they are named,
* ``fixed`` where the framework always does the one or the other,
* ``release`` where kernels or libraries of a release decide, and settings say nothing: then the
  stack that was asked for keeps its value.

Numbers of a stack are of the release too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import scalemodel._core as _core


@dataclass(frozen=True)
class Fact:
    """How a framework comes to a fact.

    Attributes
    ----------
    settings : tuple of str
        Names of the settings that state it; empty where none does.
    value : object
        What the framework always does; None where settings or the release decide.
    why : str
    """

    settings: tuple[str, ...] = ()
    value: object = None
    why: str = ""

    @property
    def kind(self) -> str:
        """``stated``, ``fixed`` or ``release``."""
        return "stated" if self.settings else "release" if self.value is None else "fixed"


def _stated(*settings: str) -> Fact:
    return Fact(settings=settings)


def _fixed(value: object, why: str) -> Fact:
    return Fact(value=value, why=why)


def _release(why: str) -> Fact:
    return Fact(why=why)


_KERNELS: Final = _release("kernels of the release")
_LOG: Final = _release("what its log counts")
_GRAPHS: Final = _release("scope of the graphs of a release, which cuda_graphs stands for")
_MEGATRON_MEMORY: Final = "Megatron-Core keeps 16-bit weights and sharded FP32 copies"
_MEGATRON_STAGES: Final = "its pipeline schedules free the outputs they have sent"

_MEGATRON: Final[dict[str, Fact]] = {
    "host_computes": _fixed(False, "CPUs launch what accelerators run"),
    "attention": _stated("attention_backend"),
    "selective": _stated("recompute_modules"),
    "selective_modules": _stated("recompute_modules"),
    "fused_norm": _fixed(True, "Transformer Engine fuses norms"),
    "joint_norm_gradients": _release(
        "Transformer Engine's norms return both at once, Apex's do not"
    ),
    "fused_activation": _stated("bias_activation_fusion", "bias_swiglu_fusion", "bias_gelu_fusion"),
    "fused_rope": _stated("apply_rope_fusion"),
    "fused_loss": _stated("cross_entropy_loss_fusion"),
    "softmax_loss": _fixed(False, "its loss is fused or one operation after another"),
    "fused_mixer": _fixed(False, "norm and out_proj are modules behind the scan"),
    "autocast": _fixed(False, "its weights are stored in 16 bits"),
    "cuda_graphs": _release("grouped_launch stands for the graphs of a script"),
    "graphed_attention": _GRAPHS,
    "graphed_scans": _GRAPHS,
    "graphed_routing": _GRAPHS,
    "grouped_launch": _stated("cuda_graph_impl"),
    "drops_tokens": _stated("moe_expert_capacity_factor"),
    "fused_experts": _stated("use_transformer_engine_op_fuser"),
    "fused_expert_bias": _release("Transformer Engine's release, where experts have biases"),
    "fused_clamp": _release("Megatron-Core's release, where activations clamp what they read"),
    "weighted_activation": _release("Megatron-Core 0.13 weights what activations return"),
    "narrow_dispatch": _fixed(False, "its dispatchers send 16 bits"),
    "fp8_attention": _release("recipe of the formats beside the linear layers"),
    "row_scales": _fixed(False, "its recipes scale tensors or blocks"),
    "dropout": _stated("hidden_dropout", "attention_dropout"),
    "rope_by_document": _release("Megatron-Core's release, without apply_rope_fusion"),
    "deterministic": _release("deterministic_mode is for debugging, which no launch is for"),
    "exchange_by_document": _release("Transformer Engine's release"),
    "gradients_fp32": _stated("grad_reduce_in_fp32"),
    "overlap_grad_reduce": _stated("overlap_grad_reduce"),
    "overlap_param_gather": _stated("overlap_param_gather"),
    "overlap_tp": _stated("tp_comm_overlap"),
    "overlap_tp_in_node": _release("user buffers of Transformer Engine's release"),
    "overlap_p2p": _stated("overlap_p2p_comm"),
    "overlap_ep": _stated("overlap_moe_expert_parallel_comm"),
    "overlap_ep_between": _stated("overlap_moe_expert_parallel_comm"),
    "deduplicated_dispatch": _stated("moe_token_dispatcher_type", "moe_flex_dispatcher_backend"),
    "deduplicated_between": _stated("moe_token_dispatcher_type", "moe_flex_dispatcher_backend"),
    "fused_accumulation": _stated("gradient_accumulation_fusion"),
    "fp32_router": _stated("moe_router_dtype"),
    "ends_as_layers": _stated("pipeline_model_parallel_layout"),
    "split_gate": _fixed(False, "gate and up are one linear layer"),
    "async_tp": _release("Transformer Engine's release"),
    "serial_p2p": _fixed(False, "sends and receives of a stage are batched"),
    "whole_p2p": _fixed(False, "tensor ranks send their part of the sequence"),
    "all_reduces_gradients": _fixed(False, "the distributed optimizer reduce-scatters"),
    "reduces_fp32": _fixed(False, "gradients travel in the format they add up in"),
    "tensor_gathers": _fixed(False, "parameters are gathered in buckets"),
    "early_stop": _fixed(False, "its checkpoints run to the end of a layer"),
    "pads_experts": _release("Transformer Engine's release pads inside its kernels or copies"),
    "sequential_experts": _fixed(False, "experts of a launch are grouped: moe_grouped_gemm"),
    "repeated_kv": _fixed(False, "Transformer Engine's ring carries the heads that there are"),
    "batch_first": _fixed(False, "the sequence is the first dimension"),
    "narrow_gather": _release("Transformer Engine's release"),
    "whole_logits": _fixed(False, "the loss is computed on the vocabulary's shards"),
    "keep_gathered": _fixed(False, "sequence-parallel inputs are gathered again"),
    "keep_stage_outputs": _fixed(False, _MEGATRON_STAGES),
    "master_shards": _fixed(False, _MEGATRON_MEMORY),
    "unused_gradients": _release("gradient fusion of the release"),
    "narrow_gradients": _fixed(False, "gradients add up in one buffer"),
    "narrow_weights": _release("fp8_param_gather, where the format scales whole tensors"),
    "narrow_activations": _release("activation_func_fp8_input_store, which no recipe sets"),
    "master_remainders": _release("store_param_remainders of the precision-aware optimizer"),
    "update_copies_gradients": _release("what the precision-aware optimizer can read"),
    "update_copies_moments": _release("fused Adam of Transformer Engine's release"),
    "memory_report": _LOG,
}

_FSDP_OVERLAP: Final = "FSDP2 prefetches parameters and reduces gradients on streams of its own"
_TORCHTITAN: Final[dict[str, Fact]] = {
    **dict.fromkeys(_MEGATRON, _KERNELS),
    "attention": _release("scaled_dot_product_attention or FlexAttention of PyTorch's release"),
    "selective": _fixed("operators", "selective checkpointing by operators"),
    "selective_modules": _fixed("stack", "selective checkpointing by operators"),
    "fused_norm": _stated("compile.enable", "compile.components"),
    "fused_activation": _stated("compile.enable", "compile.components"),
    "fused_rope": _stated("compile.enable", "compile.components"),
    "fused_loss": _stated("compile.enable", "compile.components"),
    "drops_tokens": _fixed(False, "its experts drop no tokens"),
    "dropout": _fixed(False, "its models have none"),
    "row_scales": _stated("recipe_name"),
    "gradients_fp32": _fixed(True, "training.mixed_precision_reduce is float32"),
    "overlap_grad_reduce": _fixed(True, _FSDP_OVERLAP),
    "overlap_param_gather": _fixed(True, _FSDP_OVERLAP),
    "overlap_tp": _stated("enable_async_tensor_parallel"),
    "overlap_ep": _fixed(False, "its experts wait for their tokens"),
    "overlap_ep_between": _fixed(False, "its experts wait for their tokens"),
    "deduplicated_dispatch": _stated("expert_parallel_comm_backend"),
    "deduplicated_between": _stated("expert_parallel_comm_backend"),
    "ends_as_layers": _stated("module_fqns_per_model_part"),
    "all_reduces_gradients": _fixed(False, "FSDP2 reduce-scatters"),
    "tensor_gathers": _fixed(False, "FSDP2 gathers a layer at once"),
    "master_shards": _fixed(True, "FSDP2 shards FP32 weights and casts what it gathers"),
    "narrow_weights": _fixed(False, "FSDP2 shards FP32 weights and casts what it gathers"),
    "master_remainders": _fixed(False, "FSDP2 shards FP32 weights"),
    "update_copies_gradients": _fixed(False, "training.mixed_precision_reduce is float32"),
    "update_copies_moments": _fixed(False, "the fused AdamW of PyTorch reads moments as they are"),
    "memory_report": _LOG,
}
_SCRIPT: Final = _release("the model's code decides")
_DEEPSPEED: Final[dict[str, Fact]] = {
    **dict.fromkeys(_MEGATRON, _SCRIPT),
    "gradients_fp32": _stated("data_types.grad_accum_dtype"),
    "overlap_grad_reduce": _stated("zero_optimization.overlap_comm"),
    "memory_report": _LOG,
}
_ACCELERATE: Final[dict[str, Fact]] = {
    **dict.fromkeys(_MEGATRON, _SCRIPT),
    "overlap_grad_reduce": _fixed(True, _FSDP_OVERLAP),
    "overlap_param_gather": _fixed(True, _FSDP_OVERLAP),
    "memory_report": _LOG,
}

#: Every switch and choice of a stack, by framework.
FACTS: Final[dict[str, dict[str, Fact]]] = {
    "megatron": _MEGATRON,
    "megatron_bridge": _MEGATRON,
    "nemo": _MEGATRON,
    "torchtitan": _TORCHTITAN,
    "deepspeed": _DEEPSPEED,
    "accelerate": _ACCELERATE,
}

#: What each switch or choice of a stack means, in the engine's words.
MEANINGS: Final[dict[str, str]] = {
    str(row["name"]): str(row["meaning"])
    for row in _core.Stack.fields()
    if row["kind"] in ("bool", "choice")
}


def with_facts(base: _core.Stack, framework: str, stated: Mapping[str, object]) -> _core.Stack:
    """A stack with what settings state, and with what their framework always does.

    Examples
    --------
    >>> from scalemodel import resolve
    >>> with_facts(resolve.stack("plain"), "torchtitan", {"fused_loss": True}).fused_loss
    True
    """
    fixed = {name: fact.value for name, fact in FACTS[framework].items() if fact.value is not None}
    return base.replace(**fixed, **stated)
